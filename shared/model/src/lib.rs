//! The vocabulary of Millwright: what a pod wants, what an instance type offers, what the
//! cluster looked like at one moment and what was decided about it.
//!
//! This crate is ring 0. It knows no Kubernetes client, no AWS, no clock, no file: every type is
//! a plain value, every function is total and deterministic. Anything that must be read from the
//! outside world arrives here already converted (`millwright-state` and the loader of
//! `millwright plan` are the only places that convert).
//!
//! Start reading at [`snapshot::ClusterSnapshot`] (what was seen) and [`plan::Plan`] (what was
//! decided): the packing core is a function from one to the other.

pub mod chunks;
pub mod ids;
pub mod instance_type;
pub mod labels;
pub mod money;
pub mod node_pool;
pub mod plan;
pub mod pod;
pub mod quantity;
pub mod requirement;
pub mod requirements;
pub mod resources;
pub mod snapshot;
pub mod taints;
pub mod time;
pub mod topology;

pub use chunks::Chunks;
pub use ids::{Name, NodeClaimName, NodeName, NodePoolName, PodKey, PodUid, ProviderId};
pub use instance_type::{CapacityType, InstanceType, Offering};
pub use money::NanoDollarsPerHour;
pub use node_pool::{NodeClassRef, NodePool};
pub use plan::{NodeClaimProposal, Nomination, Plan, PodIndex, Refusal, Unschedulable};
pub use pod::{Pod, PodSpec};
pub use quantity::Quantity;
pub use requirement::{Operator, Requirement};
pub use requirements::Requirements;
pub use resources::{ResourceName, Resources};
pub use snapshot::{ClusterSnapshot, DaemonPod, StateNode};
pub use taints::{Effect, Taint, Toleration};
pub use time::{Span, Timestamp};
