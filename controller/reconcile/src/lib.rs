//! Kubernetes glue: the only ring that waits for the API server, reads the clock and writes objects.
//!
//! [`context::Context`] owns one watch per kind and feeds the state; [`planner`] turns a closed batch
//! window into a plan; [`executor`] carries plans out; [`controllers`] carry out what
//! `millwright-lifecycle` decides about NodeClaims, Nodes, NodePools and node classes. Everything that
//! writes asks [`leader::Leadership`] first.

pub mod batch;
mod bound_pods;
pub mod context;
pub mod controllers;
pub mod events;
pub mod executor;
pub mod hub;
pub mod leader;
pub mod metered;
pub mod planner;
pub mod settings;
pub mod workqueue;

pub use context::Context;
pub use settings::Settings;
