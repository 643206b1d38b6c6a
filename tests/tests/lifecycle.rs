//! The lives of NodeClaims and Nodes on the real API server, with a cloud in memory: the controllers
//! run in this process, Nodes and kubelets are played by the tests.
//!
//! Tests run one after the other: all kinds are cluster-scoped, so each has its own API server.

#[path = "lifecycle/endings.rs"]
mod endings;
#[path = "lifecycle/launches.rs"]
mod launches;
#[path = "lifecycle/world.rs"]
mod world;
