//! The library behind the `millwright` command: reading manifests, planning on them, shrinking
//! the cluster they describe, converting old ones. No cluster and no cloud is needed for any of it.

pub mod consolidate;
pub mod convert;
pub mod documents;
pub mod plan;
