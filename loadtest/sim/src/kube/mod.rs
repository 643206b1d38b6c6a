//! A simulated Kubernetes API server: what a controller, kube-rs and kubectl need of the real one,
//! in memory and on loopback, without authentication.
//!
//! ```text
//! server ── request ── api ─┬─ read, watch ──────────────── store
//!                           ├─ decode, prepare, admission,     | one revision sequence,
//!                           │  validation, managed ── write ── | bounded history
//!                           └─ delete, eviction, scale, binding
//! registry: built-in types (k8s-openapi's schemas) and CRDs ── schema ── cel
//! ```
//!
//! It is held to the real server by the conformance suite (`tests/tests/conformance.rs`), which runs
//! against both. It is an API server only: controllers and the scheduler are clients of it. What
//! it does beside is what a client cannot tell from the server: it counts PodDisruptionBudgets
//! and empties namespaces that are being deleted.
//!
//! Simplified: one version of an object is not converted to another, quantities are not rewritten
//! in canonical form, and field ownership ignores versions ([`managed`]).

mod admission;
mod api;
mod bootstrap;
mod builtin;
mod cel;
mod columns;
mod config;
mod crd;
mod decode;
mod defaults;
mod delete;
mod discovery;
mod disruption;
mod error;
mod events;
mod eviction;
mod fields;
mod handle;
mod json_path;
mod lifecycle;
mod managed;
mod object;
mod openapi;
mod patch;
mod prepare;
mod read;
mod registry;
mod request;
mod schema;
mod selector;
mod server;
mod store;
mod strategic;
mod subresources;
mod table;
mod validate;
mod validation;
mod watch;
mod write;

pub use config::KubeSimConfig;
pub use handle::{KubeSim, KubeSimHandle};
