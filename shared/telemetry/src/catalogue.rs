//! Every metric: name, kind, help.
//!
//! Source: disruption specification 6.4, operations specification 7. Names that start with
//! `karpenter_` are Karpenter's and are what dashboards query; `millwright_` is what it has no twin of.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// What a metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution of seconds.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Full name.
    pub name: &'static str,
    /// What it measures.
    pub kind: Kind,
    /// One sentence.
    pub help: &'static str,
}

const fn metric(name: &'static str, kind: Kind, help: &'static str) -> Metric {
    Metric { name, kind, help }
}

/// All metrics, by name.
pub const CATALOGUE: &[Metric] = &[
    metric(
        "controller_runtime_active_workers",
        Kind::Gauge,
        "Keys that a controller works on now.",
    ),
    metric(
        "controller_runtime_max_concurrent_reconciles",
        Kind::Gauge,
        "Keys that a controller may work on at once.",
    ),
    metric(
        "controller_runtime_reconcile_errors_total",
        Kind::Counter,
        "Reconciles that failed, by controller.",
    ),
    metric(
        "controller_runtime_reconcile_panics_total",
        Kind::Counter,
        "Reconciles that panicked, by controller.",
    ),
    metric(
        "controller_runtime_reconcile_time_seconds",
        Kind::Histogram,
        "Duration of reconciles, by controller.",
    ),
    metric(
        "controller_runtime_reconcile_total",
        Kind::Counter,
        "Reconciles, by controller and result.",
    ),
    metric(
        "karpenter_build_info",
        Kind::Gauge,
        "1, with the version of this build as labels.",
    ),
    metric(
        "karpenter_cloudprovider_duration_seconds",
        Kind::Histogram,
        "Duration of calls to the cloud, by controller and method.",
    ),
    metric(
        "karpenter_cloudprovider_errors_total",
        Kind::Counter,
        "Errors of calls to the cloud, by method and reason.",
    ),
    metric(
        "karpenter_cluster_state_node_count",
        Kind::Gauge,
        "Nodes and NodeClaims in the cluster state.",
    ),
    metric(
        "karpenter_cluster_state_synced",
        Kind::Gauge,
        "1 when everything that plans depend on was seen.",
    ),
    metric(
        "karpenter_nodeclaims_created_total",
        Kind::Counter,
        "NodeClaims created, by NodePool and reason.",
    ),
    metric(
        "karpenter_nodeclaims_disrupted_total",
        Kind::Counter,
        "NodeClaims chosen for disruption, by NodePool and reason.",
    ),
    metric(
        "karpenter_nodeclaims_terminated_total",
        Kind::Counter,
        "NodeClaims whose object is gone, by NodePool.",
    ),
    metric(
        "karpenter_nodepools_allowed_disruptions",
        Kind::Gauge,
        "Nodes that budgets allow to disrupt, by NodePool and reason.",
    ),
    metric(
        "karpenter_nodepools_limit",
        Kind::Gauge,
        "Limits of NodePools, by resource: cores, bytes or a count.",
    ),
    metric(
        "karpenter_nodepools_nodes_consuming_budgets",
        Kind::Gauge,
        "Nodes that use budgets up, by NodePool and reason.",
    ),
    metric(
        "karpenter_nodepools_usage",
        Kind::Gauge,
        "What the nodes of NodePools use of their limits, by resource.",
    ),
    metric(
        "karpenter_nodes_created_total",
        Kind::Counter,
        "Nodes that registered for a NodeClaim, by NodePool.",
    ),
    metric(
        "karpenter_nodes_drained_total",
        Kind::Counter,
        "Nodes whose pods are gone, by NodePool.",
    ),
    metric(
        "karpenter_nodes_terminated_total",
        Kind::Counter,
        "Nodes whose object is gone, by NodePool.",
    ),
    metric(
        "karpenter_pods_bound_duration_seconds",
        Kind::Histogram,
        "Time from the creation of a pod that waited to its binding.",
    ),
    metric(
        "karpenter_pods_disruption_initiated_total",
        Kind::Counter,
        "Pods that need a new home because of a disruption, by NodePool and reason.",
    ),
    metric(
        "karpenter_pods_drained_total",
        Kind::Counter,
        "Pods evicted or deleted by a drain, by reason.",
    ),
    metric(
        "karpenter_pods_eviction_requests_total",
        Kind::Counter,
        "Calls of the Eviction API, by status code.",
    ),
    metric(
        "karpenter_scheduler_ignored_pods_count",
        Kind::Gauge,
        "Pods that are invalid for planning.",
    ),
    metric(
        "karpenter_scheduler_queue_depth",
        Kind::Gauge,
        "Pods in the last planning pass.",
    ),
    metric(
        "karpenter_scheduler_scheduling_duration_seconds",
        Kind::Histogram,
        "Duration of planning passes.",
    ),
    metric(
        "karpenter_scheduler_unschedulable_pods_count",
        Kind::Gauge,
        "Pods that the last plan left without a place.",
    ),
    metric(
        "karpenter_voluntary_disruption_decisions_total",
        Kind::Counter,
        "Disruption commands started, by decision, reason and kind.",
    ),
    metric(
        "karpenter_voluntary_disruption_eligible_nodes",
        Kind::Gauge,
        "Nodes that may be disrupted, by reason.",
    ),
    metric(
        "karpenter_voluntary_disruption_failed_validations_total",
        Kind::Counter,
        "Nodes that a validation dropped, by kind.",
    ),
    metric(
        "leader_election_master_status",
        Kind::Gauge,
        "1 when this process leads.",
    ),
    metric(
        "millwright_scheduler_plans_rejected_total",
        Kind::Counter,
        "Plans that broke their own rules and were discarded.",
    ),
    metric(
        "workqueue_adds_total",
        Kind::Counter,
        "Keys added, by controller.",
    ),
    metric(
        "workqueue_depth",
        Kind::Gauge,
        "Keys that wait for work, by controller.",
    ),
    metric(
        "workqueue_longest_running_processor_seconds",
        Kind::Gauge,
        "Age of the longest work under way, by controller.",
    ),
    metric(
        "workqueue_queue_duration_seconds",
        Kind::Histogram,
        "How long keys waited for work, by controller.",
    ),
    metric(
        "workqueue_retries_total",
        Kind::Counter,
        "Keys tried again after a failure, by controller.",
    ),
    metric(
        "workqueue_unfinished_work_seconds",
        Kind::Gauge,
        "Age of all work under way together, by controller.",
    ),
    metric(
        "workqueue_work_duration_seconds",
        Kind::Histogram,
        "How long work on a key took, by controller.",
    ),
];

/// Upstream's duration buckets, seconds.
pub(crate) const DURATION_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

pub(crate) fn describe() {
    for metric in CATALOGUE {
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, metric.help),
            Kind::Gauge => describe_gauge!(metric.name, metric.help),
            Kind::Histogram => describe_histogram!(metric.name, metric.help),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_sorted_and_helps() {
        assert!(CATALOGUE.is_sorted_by_key(|metric| metric.name));
        assert!(CATALOGUE.iter().all(|metric| metric.help.ends_with('.')));
    }

    #[test]
    fn every_metric_that_is_emitted_is_in_the_catalogue() {
        let sources = [
            include_str!("lib.rs"),
            include_str!("disruption.rs"),
            include_str!("work.rs"),
        ];
        let emitted: Vec<&str> = ["counter!(", "gauge!(", "histogram!("]
            .iter()
            .flat_map(|name| {
                sources
                    .iter()
                    .flat_map(move |source| source.split(name).skip(1))
            })
            .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
            .collect();
        assert!(emitted.len() > 30, "{emitted:?}");
        for metric in CATALOGUE {
            assert!(
                emitted.contains(&metric.name),
                "{} is never emitted",
                metric.name
            );
        }
        for name in emitted {
            assert!(CATALOGUE.iter().any(|metric| metric.name == name), "{name}");
        }
    }
}
