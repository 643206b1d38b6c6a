//! Evictions: through the Eviction API, which honours PodDisruptionBudgets; by deletion only where a
//! deadline forces it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams, Preconditions},
};
use millwright_lifecycle::{
    ObservedPod,
    eviction::{Action, Attempt, EvictionQueue, Outcome, action},
    termination::format_time,
};
use millwright_model::{NodeName, Timestamp};
use tokio::sync::Notify;

use super::{Shared, observe};
use crate::{
    context::now,
    events::{Event, Severity},
};

/// Attempts at once.
const WORKERS: usize = 32;
/// Attempts per round.
const ROUND: usize = 500;
/// Longest pause between rounds.
const IDLE: Duration = Duration::from_secs(1);

/// Pods that are to leave.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    queue: Mutex<EvictionQueue>,
    added: Notify,
}

impl Evictions {
    fn queue(&self) -> MutexGuard<'_, EvictionQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a pod in; a pod that is in already keeps the earlier deadline.
    pub(super) fn add(&self, pod: &ObservedPod, node: &NodeName, deadline: Option<Timestamp>) {
        if self.queue().add(pod, node, deadline) {
            self.added.notify_one();
        }
    }
}

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    loop {
        let due = shared.evictions.queue().due(ROUND, now());
        if due.is_empty() {
            let next = shared.evictions.queue().next_due();
            let pause = next.map_or(IDLE, |at| crate::batch::until(now(), at).min(IDLE));
            let _ = tokio::time::timeout(
                pause.max(Duration::from_millis(5)),
                shared.evictions.added.notified(),
            )
            .await;
            continue;
        }
        stream::iter(due)
            .for_each_concurrent(WORKERS, |attempt| {
                let shared = shared.clone();
                async move {
                    let outcome = try_once(&shared, &attempt).await;
                    shared.evictions.queue().settle(&attempt, outcome, now());
                }
            })
            .await;
    }
}

async fn try_once(shared: &Shared, attempt: &Attempt) -> Outcome {
    if !shared.context.leadership.is_leader() {
        return Outcome::Done;
    }
    let api: Api<Pod> = Api::namespaced(shared.context.client.clone(), &attempt.key.namespace);
    let pod = match api.get_opt(&attempt.key.name).await {
        Ok(Some(pod)) if pod.uid().as_deref() == Some(attempt.uid.as_str()) => pod,
        Ok(_) => return Outcome::Done,
        Err(error) => {
            tracing::debug!(pod = %attempt.key, %error, "pod could not be read");
            return Outcome::Again;
        }
    };
    match action(&observe::pod(&pod), attempt.deadline, now()) {
        Action::Drop => Outcome::Done,
        Action::Hold => Outcome::Again,
        Action::Evict => evict(shared, &api, &pod, attempt).await,
        Action::ForceDelete { grace_seconds } => {
            force(shared, &api, &pod, attempt, grace_seconds).await
        }
    }
}

async fn evict(shared: &Shared, api: &Api<Pod>, pod: &Pod, attempt: &Attempt) -> Outcome {
    let parameters = EvictParams {
        delete_options: Some(DeleteParams {
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        }),
        ..EvictParams::default()
    };
    match api.evict(&attempt.key.name, &parameters).await {
        Ok(_) => {
            let event = Event::new(
                pod,
                Severity::Normal,
                "Evicted",
                "Evicted pod: node is being terminated",
            );
            shared
                .context
                .recorder
                .publish(event.keyed(vec![attempt.key.name.to_string()]));
            Outcome::Done
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Done,
        // 429: a PodDisruptionBudget says not now; 500: several budgets match, which needs a person.
        Err(kube::Error::Api(status)) if matches!(status.code, 429 | 500) => {
            let message = format!("Failed to drain node, {}", status.message);
            if let Some(node) = shared.context.nodes.get(attempt.node.as_str()) {
                shared.context.recorder.publish(Event::new(
                    &*node,
                    Severity::Warning,
                    "FailedDraining",
                    message,
                ));
            }
            Outcome::Again
        }
        Err(error) => {
            tracing::debug!(pod = %attempt.key, %error, "eviction failed, will retry");
            Outcome::Again
        }
    }
}

async fn force(
    shared: &Shared,
    api: &Api<Pod>,
    pod: &Pod,
    attempt: &Attempt,
    grace_seconds: i64,
) -> Outcome {
    let parameters = DeleteParams {
        grace_period_seconds: u32::try_from(grace_seconds).ok(),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&attempt.key.name, &parameters).await {
        Ok(_) => {
            let deadline = attempt.deadline.map(format_time).unwrap_or_default();
            let message = format!(
                "Deleted the pod to accommodate the terminationTime {deadline} of the node. The pod was granted {grace_seconds} \
                 seconds of grace-period of its own {:?}; this bypasses the PDB of the pod and the do-not-disrupt annotation.",
                pod.spec
                    .as_ref()
                    .and_then(|spec| spec.termination_grace_period_seconds)
            );
            let event = Event::new(pod, Severity::Normal, "Disrupted", message);
            shared
                .context
                .recorder
                .publish(event.keyed(vec![attempt.key.name.to_string()]));
            Outcome::Done
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Done,
        Err(error) => {
            tracing::warn!(pod = %attempt.key, %error, "forced deletion failed, will retry");
            Outcome::Again
        }
    }
}
