//! End to end on the real control plane: the controller's own binary, with the rights of the chart's
//! ServiceAccount, against the simulated AWS; nodes are played by the kubelet stand-in.
//!
//! Each scenario has a control plane of its own; at most two run at a time.
#![expect(
    clippy::print_stdout,
    reason = "tests print what the controller has cost"
)]

#[path = "e2e/fleet.rs"]
mod fleet;

#[path = "e2e/demo.rs"]
mod demo;
#[path = "e2e/faults.rs"]
mod faults;
#[path = "e2e/scale.rs"]
mod scale;
