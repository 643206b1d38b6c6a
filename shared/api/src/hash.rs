//! The static hashes that say whether a NodeClaim still is what its pool and class describe.
//!
//! Both are computed as Karpenter computes them, bit for bit, so that a cluster can be taken over
//! without a single node counting as drifted. The algorithm walks a value as Go's reflection would:
//! type and field names are hashed along, zero values are skipped, lists count as sets.
//!
//! Source: provisioning specification 1.7; AWS specification 7.

mod digest;
mod node_class;
mod node_pool;

pub use node_class::{NODE_CLASS_HASH_VERSION, node_class_hash};
pub use node_pool::{NODE_POOL_HASH_VERSION, node_pool_hash};
