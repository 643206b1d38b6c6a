//! Voluntary disruption: which nodes may go, and what replaces them.
//!
//! Ring 2. [`decide`] takes a [`Fleet`] (a snapshot, and what is known of its nodes) and hands out
//! [`Command`]s. It reads no clock, waits for nothing and writes nothing; whoever carries a command
//! out holds it back for the validation delay, decides again on fresh observations, and only then
//! acts. Consolidation is a simulated scheduling run, hence the arrow to `scheduling`; the rules
//! for candidates, budgets and emptiness are `lifecycle`'s.
//!
//! ```text
//! Fleet ── candidates ──> Members ── emptiness ──────────────────────────> delete
//!             |               |  multi_node, single_node
//!             v               v
//!          skipped      consolidation <── simulation (plan without the set)
//!                             |   price: every launch is cheaper than the set
//!                             v
//!                       balanced ──> delete, or replace
//! ```
//!
//! With cost packing the whole fleet is searched (`search`): rounds in which Karpenter's own command
//! is the floor.
//!
//! Properties: a command never raises the cost; budgets hold at every prefix of the commands; every
//! pod of a candidate that must move has a place; equal fleets give equal decisions, whatever the
//! order of their lists.
//!
//! Source: disruption specification 3.

mod balanced;
mod candidates;
mod command;
mod consolidation;
mod decide;
mod fleet;
mod multi_node;
mod price;
mod search;
mod simulation;
mod single_node;

#[cfg(test)]
mod tests;

pub use command::{Command, Method, Replacement};
pub use decide::{Decision, Eligible, Settings, decide};
pub use fleet::{Budgets, Fleet, FleetNode};
