//! Against the complete real control plane. This target has its own control plane and its
//! own process, so that it does not compete with other tests for memory.

#[path = "apiserver/availability.rs"]
mod availability;
#[path = "apiserver/identity.rs"]
mod identity;
#[path = "apiserver/scheduling.rs"]
mod scheduling;
