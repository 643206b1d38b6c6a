//! Test support for the crates that decide: small random cluster worlds, and a naive reference
//! solver to compare the packing core with.
//!
//! Nothing here ships. It must not know the crates under test: it stands on `millwright-model`
//! alone, so that agreement with the packing core means something.

pub mod reference;
pub mod rules;
pub mod world;
