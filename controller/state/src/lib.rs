//! Cluster state: from Kubernetes objects to the snapshots that decisions are made from.
//!
//! Ring 3. [`convert`] is the only place where Kubernetes objects become model values;
//! [`ClusterState`] keeps them joined (a Node with its NodeClaim by provider id, a pod with its
//! node) and publishes [`millwright_model::ClusterSnapshot`]s that share all that did not change. No
//! client, no socket, no clock: events and times come in as arguments.

mod budgets;
mod cluster;
pub mod convert;
mod intern;
mod nodes;
pub mod observe;
mod owner;
mod pods;
mod positions;

#[cfg(test)]
mod tests;

pub use cluster::{ClusterState, object_key};
pub use convert::FieldError;
pub use intern::Interner;
pub use nodes::Prospect;
pub use owner::{Completeness, wanted_by_job, wanted_by_replica_set, wanted_by_stateful_set};
pub use pods::PodNews;
