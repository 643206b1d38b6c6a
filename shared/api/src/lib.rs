//! The API types of Karpenter, field for field: kinds, schemas, defaults and admission rules.
//!
//! **What it is.** The kinds `NodePool`, `NodeClaim` and `NodeOverlay` (`karpenter.sh`),
//! `EC2NodeClass` (`karpenter.k8s.aws`) and `CapacityBuffer` (`autoscaling.x-k8s.io`) as Rust types
//! whose JSON equals that of Karpenter 1.14; the CustomResourceDefinitions generated from them;
//! the well-known keys; the engine that computes conditions; the static hashes.
//!
//! **What it must not know.** No client, no async runtime, no clock: `now` comes in as an argument.
//! Nothing about pods, offerings or plans.
//!
//! **In and out.** JSON and YAML in, typed objects out, and back without loss; types in,
//! CustomResourceDefinitions out.
//!
//! **Properties.** Reading and writing an object changes nothing that an API server would keep,
//! except that quantities spelled as numbers are written as strings; durations keep their
//! spelling. The generated files are a function of the types alone. Hashes are equal, bit for bit,
//! to those that Karpenter writes, so a cluster can be taken over without replacing a node.
//!
//! Tests: beside the code; admission on a real API server in `tests/tests/crds.rs`.

pub mod annotations;
pub mod capacity_buffer;
pub mod common;
pub mod conditions;
pub mod crd;
pub mod duration;
pub mod ec2_node_class;
pub mod hash;
pub mod labels;
pub mod node_claim;
pub mod node_overlay;
pub mod node_pool;
pub mod tags;
pub mod taints;

pub use capacity_buffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
pub use common::{
    Condition, NodeClassReference, NodeSelectorRequirement, NodeSelectorRequirementWithMinValues,
    ResourceList, Taint, Time,
};
pub use crd::{CrdFile, crd_files, crds, crds_yaml, write_crds};
pub use duration::{Duration, NillableDuration};
pub use ec2_node_class::{Ec2NodeClass, Ec2NodeClassSpec, Ec2NodeClassStatus};
pub use node_claim::{NodeClaim, NodeClaimSpec, NodeClaimStatus};
pub use node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
pub use node_pool::{NodePool, NodePoolSpec, NodePoolStatus};
