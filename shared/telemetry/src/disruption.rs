//! What drains and voluntary disruption count.
//!
//! Labels are bounded: NodePools, the fixed reasons, HTTP codes.

use metrics::{counter, gauge};

/// All pods of a Node are gone.
pub fn node_drained(nodepool: &str) {
    counter!("karpenter_nodes_drained_total", "nodepool" => nodepool.to_owned()).increment(1);
}

/// The Eviction API answered.
pub fn eviction_requested(code: u16) {
    counter!("karpenter_pods_eviction_requests_total", "code" => code.to_string()).increment(1);
}

/// A drain evicted or deleted a pod. `reason` is that of the NodeClaim's disruption, often empty.
pub fn pod_drained(reason: &str) {
    counter!("karpenter_pods_drained_total", "reason" => reason.to_owned()).increment(1);
}

/// A disruption makes pods look for a new home.
pub fn pods_disrupted(nodepool: &str, capacity_type: &str, reason: &'static str, pods: usize) {
    let labels = [
        ("nodepool", nodepool.to_owned()),
        ("capacity_type", capacity_type.to_owned()),
        ("reason", reason.to_owned()),
    ];
    let pods = u64::try_from(pods).unwrap_or(u64::MAX);
    counter!("karpenter_pods_disruption_initiated_total", &labels).increment(pods);
}

/// A disruption command was started.
pub fn disruption_decided(
    decision: &'static str,
    reason: &'static str,
    consolidation_type: &'static str,
) {
    let labels = [
        ("decision", decision),
        ("reason", reason),
        ("consolidation_type", consolidation_type),
    ];
    counter!("karpenter_voluntary_disruption_decisions_total", &labels).increment(1);
}

/// Nodes that a method may disrupt, budgets apart.
pub fn disruption_eligible(reason: &'static str, nodes: usize) {
    gauge!("karpenter_voluntary_disruption_eligible_nodes", "reason" => reason)
        .set(crate::float(nodes));
}

/// Nodes that a validation dropped.
pub fn validation_failed(consolidation_type: &'static str, nodes: usize) {
    let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
    counter!(
        "karpenter_voluntary_disruption_failed_validations_total",
        "consolidation_type" => consolidation_type
    )
    .increment(nodes);
}

/// What the budgets of a NodePool allow for a reason (spelled as the API spells it), and what of it
/// is in use.
pub fn budget(nodepool: &str, reason: &'static str, allowed: u32, consuming: u32) {
    let labels = [
        ("nodepool", nodepool.to_owned()),
        ("reason", reason.to_owned()),
    ];
    gauge!("karpenter_nodepools_allowed_disruptions", &labels).set(f64::from(allowed));
    gauge!("karpenter_nodepools_nodes_consuming_budgets", &labels).set(f64::from(consuming));
}
