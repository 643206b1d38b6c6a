//! Evictions: through the Eviction API, which honours PodDisruptionBudgets; by deletion only where a
//! deadline forces it.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams, Preconditions},
};
use millwright_api::conditions::{self, Conditioned};
use millwright_lifecycle::{
    ObservedPod,
    eviction::{Action, Attempt, EvictionQueue, Outcome, action},
    termination::format_time,
};
use millwright_model::{NodeName, Timestamp};
use millwright_telemetry as telemetry;
use tokio::{sync::Notify, task::JoinSet};

use super::{Shared, observe};
use crate::{
    context::now,
    events::{Event, Severity},
};

/// Attempts at once.
const WORKERS: usize = 32;
/// Attempts per round.
const ROUND: usize = 500;
/// Shortest pause: a timer that fires a moment early must not spin.
const SOON: Duration = Duration::from_millis(5);
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
    let mut running = JoinSet::new();
    // Taken in rounds, because ordering the whole queue for every single pod costs too much.
    let mut round: VecDeque<Attempt> = VecDeque::new();
    loop {
        if round.is_empty() {
            round = shared.evictions.queue().due(ROUND, now()).into();
        }
        while running.len() < WORKERS {
            let Some(attempt) = round.pop_front() else {
                break;
            };
            let shared = shared.clone();
            running.spawn(async move {
                let mut settled = Settle {
                    shared: &shared,
                    attempt: &attempt,
                    outcome: Outcome::Again,
                };
                settled.outcome = try_once(&shared, &attempt).await;
            });
        }
        let next = shared.evictions.queue().next_due();
        let pause = next.map_or(IDLE, |at| crate::batch::until(now(), at).min(IDLE));
        tokio::select! {
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(controller = "eviction-queue", %error, "attempt panicked");
                }
            }
            () = shared.evictions.added.notified(), if running.len() < WORKERS && round.is_empty() => {}
            () = tokio::time::sleep(pause.max(SOON)), if running.len() < WORKERS && round.is_empty() => {}
        }
    }
}

/// Reports the outcome however the attempt ends, so that no pod stays in flight for ever.
struct Settle<'a> {
    shared: &'a Shared,
    attempt: &'a Attempt,
    outcome: Outcome,
}

impl Drop for Settle<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.evictions.queue();
        queue.settle(self.attempt, self.outcome, now());
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
    let result = api.evict(&attempt.key.name, &parameters).await;
    let code = match &result {
        Ok(_) => Some(200),
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(_) => None,
    };
    if let Some(code) = code {
        telemetry::eviction_requested(code);
    }
    match (code, result) {
        (Some(200), _) => {
            let reason = reason(shared, attempt);
            telemetry::pod_drained(&reason);
            let message = format!("Evicted pod: {reason}");
            let event = Event::new(pod, Severity::Normal, "Evicted", message);
            let key = vec![attempt.key.name.to_string()];
            shared.context.recorder.publish(event.keyed(key));
            Outcome::Done
        }
        (Some(404 | 409), _) => Outcome::Done,
        // 429: a PodDisruptionBudget says not now; 500: several budgets match, which needs a person.
        (Some(429 | 500), Err(error)) => {
            tell_refused(shared, attempt, &error);
            Outcome::Again
        }
        (_, result) => {
            if let Err(error) = result {
                tracing::debug!(pod = %attempt.key, %error, "eviction failed, will retry");
            }
            Outcome::Again
        }
    }
}

/// Tells on the node that a pod may not be evicted now.
fn tell_refused(shared: &Shared, attempt: &Attempt, error: &kube::Error) {
    let kube::Error::Api(status) = error else {
        return;
    };
    let message = match status.code {
        429 => format!(
            "Failed to drain node, evicting pod {} would violate a PDB",
            attempt.key
        ),
        _ if status.message.contains("more than one PodDisruptionBudget") => format!(
            "Failed to drain node, evicting pod {} is not supported: multiple PDBs match it",
            attempt.key
        ),
        _ => {
            tracing::debug!(pod = %attempt.key, message = status.message, "eviction failed, will retry");
            return;
        }
    };
    if let Some(node) = shared.context.nodes.get(attempt.node.as_str()) {
        let event = Event::new(&*node, Severity::Warning, "FailedDraining", message);
        shared
            .context
            .recorder
            .publish(event.keyed(vec![node.name_any()]));
    }
}

/// Why the node is drained: what the claim says, or that nobody asked its pods.
fn reason(shared: &Shared, attempt: &Attempt) -> String {
    let node = shared.context.nodes.get(attempt.node.as_str());
    let Some(claim) = node.and_then(|node| shared.claim_of(&node)) else {
        return String::new();
    };
    match claim.condition(conditions::DISRUPTION_REASON) {
        Some(condition) if condition.status == conditions::TRUE => condition.reason.clone(),
        Some(_) | None => "Forceful Termination".to_owned(),
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
            telemetry::pod_drained(&reason(shared, attempt));
            tell_forced(shared, pod, attempt, grace_seconds);
            Outcome::Done
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Done,
        Err(error) => {
            tracing::warn!(pod = %attempt.key, %error, "forced deletion failed, will retry");
            Outcome::Again
        }
    }
}

/// Tells on the pod that its node's deadline overrode its protection.
fn tell_forced(shared: &Shared, pod: &Pod, attempt: &Attempt, grace_seconds: i64) {
    let deadline = attempt.deadline.map(format_time).unwrap_or_default();
    let own = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds)
        .map_or_else(|| "none".to_owned(), |seconds| format!("{seconds} seconds"));
    let message = format!(
        "Deleted the pod to accommodate the terminationTime {deadline} of the node. The pod was \
         granted {grace_seconds} seconds of grace-period (its own terminationGracePeriodSeconds: \
         {own}). This bypasses the PDB of the pod and the do-not-disrupt annotation."
    );
    let event = Event::new(pod, Severity::Normal, "Disrupted", message);
    let key = vec![attempt.key.name.to_string()];
    shared.context.recorder.publish(event.keyed(key));
}
