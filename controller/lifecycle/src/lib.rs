//! The lives of NodeClaims and Nodes, as functions from what was observed to what is to be done.
//!
//! Ring 2. Every entrance takes observed values and `now`, and returns a complete value: what to
//! write, what to call, when to look again. The crate knows no Kubernetes client, no API types, no
//! cloud and no clock, so that each rule is a table in a unit test; `millwright-reconcile` reads
//! the objects, carries the values out and owns all retries.
//!
//! ```text
//!  created -- advance --> launch --> register --> initialize          (advance.rs and its parts)
//!                 |          |           |
//!                 |          +-- liveness, insufficient capacity --> delete
//!  expire.rs, garbage.rs, emptiness.rs -----------------------------> delete
//!  deleting -- termination.rs --> drain.rs -> eviction.rs -> volumes.rs -> instance -> finalizers
//! ```
//!
//! Properties: functions are total and deterministic; observing the result of a step and asking
//! again yields no second effect (idempotence, tested per module); every "look again" is bounded.
//!
//! Source: disruption specification 1, 3.5, 3.7, 3.12 and 4; provisioning specification 8.

pub mod advance;
pub mod budget;
pub mod candidate;
pub mod condition;
pub mod consistency;
pub mod consolidatable;
pub mod disruption_rules;
pub mod drain;
pub mod emptiness;
pub mod eviction;
pub mod expire;
pub mod garbage;
pub mod initialize;
pub mod launch;
pub mod launch_group;
pub mod liveness;
pub mod names;
pub mod node_pool;
pub mod observed;
pub mod pdb;
pub mod pod;
pub mod register;
pub mod registration_health;
pub mod termination;
pub mod volumes;

pub use advance::{Advance, advance};
pub use condition::{Change, Condition, ConditionType, Conditions, Status};
pub use disruption_rules::{ConsolidationPolicy, DisruptionRules};
pub use observed::{ObservedClaim, ObservedNode};
pub use pod::ObservedPod;

#[cfg(test)]
mod fixtures;
