//! What the processes say about themselves: metrics under Karpenter's names, and logs.
//!
//! The only crate that names the `metrics` macros: others call one function per fact, so that names,
//! labels and their cardinality stand in one table. Labels are NodePool names, capacity types, reasons
//! and controllers: bounded by what the operator configured, never by pods or nodes.

#![expect(
    clippy::disallowed_macros,
    reason = "this is the crate that names metrics, so that no other does"
)]

mod catalogue;
mod disruption;
mod tracing_setup;
mod work;

use std::time::Duration;

pub use catalogue::{CATALOGUE, Kind, Metric};
pub use disruption::{
    budget, disruption_decided, disruption_eligible, eviction_requested, node_drained, pod_drained,
    pods_disrupted, validation_failed,
};
pub use tracing_setup::{LogFormat, SetupError, init_tracing};
pub use work::{
    Reconciled, build, cloud_called, nodepool_resource, pod_bound, queue_added, queue_started,
    queue_state, work_began, work_ended,
};

use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Renders the metrics in Prometheus' text format.
#[derive(Clone, Debug)]
pub struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// Installs the process-wide recorder; `None` when there is one already (a second controller in
    /// one test process), whose metrics then go to the first.
    #[must_use]
    pub fn install() -> Option<Self> {
        let handle = PrometheusBuilder::new()
            .set_buckets(catalogue::DURATION_BUCKETS)
            .ok()?
            .install_recorder()
            .ok()?;
        catalogue::describe();
        Some(Self { handle })
    }

    /// The current values as text.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.run_upkeep();
        self.handle.render()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "gauges are floats; counts stay far below 2^53"
)]
const fn float(count: usize) -> f64 {
    count as f64
}

/// A plan was computed.
pub fn solved(elapsed: Duration, pods: usize) {
    histogram!("karpenter_scheduler_scheduling_duration_seconds", "controller" => "provisioner")
        .record(elapsed);
    gauge!("karpenter_scheduler_queue_depth", "controller" => "provisioner").set(float(pods));
}

/// A plan broke its own rules and was discarded: a bug.
pub fn plan_rejected() {
    counter!("millwright_scheduler_plans_rejected_total").increment(1);
}

/// Pods that a plan left without a place.
pub fn pods_unschedulable(pods: usize) {
    gauge!("karpenter_scheduler_unschedulable_pods_count", "controller" => "provisioner")
        .set(float(pods));
}

/// Pods that are invalid for planning.
pub fn pods_ignored(pods: usize) {
    gauge!("karpenter_scheduler_ignored_pods_count").set(float(pods));
}

/// A NodeClaim was created.
pub fn nodeclaim_created(nodepool: &str, reason: &'static str) {
    let labels = [
        ("nodepool", nodepool.to_owned()),
        ("reason", reason.to_owned()),
        ("min_values_relaxed", "false".to_owned()),
    ];
    counter!("karpenter_nodeclaims_created_total", &labels).increment(1);
}

/// A NodeClaim's object is gone.
pub fn nodeclaim_terminated(nodepool: &str, capacity_type: &str) {
    let labels = [
        ("nodepool", nodepool.to_owned()),
        ("capacity_type", capacity_type.to_owned()),
    ];
    counter!("karpenter_nodeclaims_terminated_total", &labels).increment(1);
}

/// A NodeClaim was chosen for disruption.
pub fn nodeclaim_disrupted(nodepool: &str, capacity_type: &str, reason: &'static str) {
    let labels = [
        ("nodepool", nodepool.to_owned()),
        ("capacity_type", capacity_type.to_owned()),
        ("reason", reason.to_owned()),
    ];
    counter!("karpenter_nodeclaims_disrupted_total", &labels).increment(1);
}

/// A Node was registered for a NodeClaim.
pub fn node_created(nodepool: &str) {
    counter!("karpenter_nodes_created_total", "nodepool" => nodepool.to_owned()).increment(1);
}

/// A Node's object is gone.
pub fn node_terminated(nodepool: &str) {
    counter!("karpenter_nodes_terminated_total", "nodepool" => nodepool.to_owned()).increment(1);
}

/// Whether everything that plans depend on was seen.
pub fn cluster_synced(synced: bool, nodes: usize) {
    gauge!("karpenter_cluster_state_synced").set(if synced { 1.0 } else { 0.0 });
    gauge!("karpenter_cluster_state_node_count").set(float(nodes));
}

/// Whether this process leads.
pub fn leading(leads: bool) {
    gauge!("leader_election_master_status", "name" => "karpenter-leader-election").set(if leads {
        1.0
    } else {
        0.0
    });
}
