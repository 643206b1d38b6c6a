//! The provider port and all provider policy that needs no socket.
//!
//! Ring 3. What the controller asks of a cloud is the trait [`provider::Provider`]; the AWS
//! adapter (`millwright-cloud-aws`) implements it over the SDK, tests implement it in memory. How
//! an instance type's labels, capacity, overhead and offerings follow from EC2's facts, which
//! offerings are known to be unavailable, which overrides a launch names and in which order: all of
//! that is decided here, on plain values, so that it can be tested without a cloud.

pub mod catalogue;
pub mod ec2_errors;
pub mod error;
pub mod facts;
pub mod family;
pub mod images;
pub mod instance_profile;
pub mod instance_types;
pub mod kubelet;
pub mod launch;
pub mod memory;
pub mod pricing;
pub mod provider;
pub mod selectors;
pub mod shape;
pub mod tags;
pub mod token_bucket;
pub mod unavailable;
pub mod user_data;

pub use catalogue::embedded_instance_types;
pub use error::{CloudError, CloudErrorKind};
pub use provider::{
    Instance, InstanceState, LaunchGroup, LaunchRequest, NodeClassResolution, Provider,
};
