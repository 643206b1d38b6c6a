//! Cluster state: from Kubernetes objects to the snapshots that decisions are made from.
//!
//! Ring 3. [`convert`] is the only place where Kubernetes objects become model values. No client, no
//! socket, no clock: events and times come in as arguments.

pub mod convert;
