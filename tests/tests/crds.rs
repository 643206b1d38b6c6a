//! The definitions of our kinds on the real API server: what it admits, what it refuses and with
//! which words, what it fills in, what it shows, and that our types read all of it without loss.
//!
//! The definitions come from the files of the chart, as a user would install them.

#[path = "crds/capacity_buffer.rs"]
mod capacity_buffer;
#[path = "crds/ec2_node_class.rs"]
mod ec2_node_class;
#[path = "crds/node_claim.rs"]
mod node_claim;
#[path = "crds/node_overlay.rs"]
mod node_overlay;
#[path = "crds/node_pool.rs"]
mod node_pool;
#[path = "crds/reading.rs"]
mod reading;
#[path = "crds/serving.rs"]
mod serving;
#[path = "crds/support/mod.rs"]
mod support;
