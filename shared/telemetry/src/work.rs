//! What work queues and calls to the cloud count, under the names of the libraries that Karpenter
//! is built with, because dashboards and alerts ask for those.
//!
//! Labels are bounded: the controllers, the fixed results, the methods of the provider port.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::float;

/// How one reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// Nothing is left to do.
    Success,
    /// It wants to run again after a while.
    RequeueAfter,
    /// It failed and is tried again with back-off.
    Error,
    /// It panicked, which is a bug, and is tried again with back-off.
    Panic,
}

/// A queue begins to work, at most this many keys at once.
pub fn queue_started(queue: &'static str, concurrency: usize) {
    gauge!("controller_runtime_max_concurrent_reconciles", "controller" => queue)
        .set(float(concurrency));
    // Alerts on a rate need the series before the first event.
    counter!("controller_runtime_reconcile_errors_total", "controller" => queue).absolute(0);
    counter!("controller_runtime_reconcile_panics_total", "controller" => queue).absolute(0);
}

/// A key was added that was not in the queue.
pub fn queue_added(queue: &'static str) {
    counter!("workqueue_adds_total", "name" => queue, "controller" => queue).increment(1);
}

/// A queue as it is now: keys that wait, keys that are worked on, how long these have been worked on
/// in all, and the longest of them.
pub fn queue_state(
    queue: &'static str,
    depth: usize,
    active: usize,
    unfinished: Duration,
    longest: Duration,
) {
    gauge!("workqueue_depth", "name" => queue, "controller" => queue).set(float(depth));
    gauge!("workqueue_unfinished_work_seconds", "name" => queue, "controller" => queue)
        .set(unfinished.as_secs_f64());
    gauge!("workqueue_longest_running_processor_seconds", "name" => queue, "controller" => queue)
        .set(longest.as_secs_f64());
    gauge!("controller_runtime_active_workers", "controller" => queue).set(float(active));
}

/// Work on a key begins, after it waited this long.
pub fn work_began(queue: &'static str, waited: Duration) {
    histogram!("workqueue_queue_duration_seconds", "name" => queue, "controller" => queue)
        .record(waited);
}

/// Work on a key ended after this long.
pub fn work_ended(queue: &'static str, took: Duration, result: Reconciled) {
    histogram!("workqueue_work_duration_seconds", "name" => queue, "controller" => queue)
        .record(took);
    histogram!("controller_runtime_reconcile_time_seconds", "controller" => queue).record(took);
    let label = match result {
        Reconciled::Success => "success",
        Reconciled::RequeueAfter => "requeue_after",
        Reconciled::Error | Reconciled::Panic => "error",
    };
    counter!("controller_runtime_reconcile_total", "controller" => queue, "result" => label)
        .increment(1);
    if matches!(result, Reconciled::Error | Reconciled::Panic) {
        counter!("controller_runtime_reconcile_errors_total", "controller" => queue).increment(1);
        counter!("workqueue_retries_total", "name" => queue, "controller" => queue).increment(1);
    }
    if result == Reconciled::Panic {
        counter!("controller_runtime_reconcile_panics_total", "controller" => queue).increment(1);
    }
}

/// A call of the provider port came back. `error` is Karpenter's name of the kind of error, empty
/// for kinds that it does not name; `None` when the call succeeded.
pub fn cloud_called(
    controller: &'static str,
    method: &'static str,
    took: Duration,
    error: Option<&'static str>,
) {
    let labels = [
        ("controller", controller),
        ("method", method),
        ("provider", "aws"),
    ];
    histogram!("karpenter_cloudprovider_duration_seconds", &labels).record(took);
    if let Some(error) = error {
        counter!(
            "karpenter_cloudprovider_errors_total",
            "controller" => controller, "method" => method, "provider" => "aws", "error" => error
        )
        .increment(1);
    }
}

/// One resource of a NodePool, in cores, bytes or a count.
pub fn nodepool_resource(nodepool: &str, resource: &str, limit: Option<f64>, usage: f64) {
    let labels = [
        ("nodepool", nodepool.to_owned()),
        ("resource_type", resource.to_lowercase().replace('-', "_")),
    ];
    if let Some(limit) = limit {
        gauge!("karpenter_nodepools_limit", &labels).set(limit);
    }
    gauge!("karpenter_nodepools_usage", &labels).set(usage);
}

/// A pod that waited was bound, this long after its creation.
pub fn pod_bound(took: Duration) {
    histogram!("karpenter_pods_bound_duration_seconds").record(took);
}

/// Which build this is.
pub fn build(version: &'static str, toolchain: &'static str, commit: &'static str) {
    // `goversion` is the label that dashboards know.
    gauge!(
        "karpenter_build_info",
        "version" => version, "goversion" => toolchain,
        "goarch" => std::env::consts::ARCH, "commit" => commit
    )
    .set(1.0);
}
