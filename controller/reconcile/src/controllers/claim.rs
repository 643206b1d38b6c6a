//! NodeClaims: launch, registration, initialization, liveness, expiration, consolidatability; and,
//! once they are deleted, their end.

use std::time::Duration;

use kube::ResourceExt;
use millwright_api::{NodeClaim, NodePool, annotations, conditions::Conditioned};
use millwright_cloud::{CloudError, CloudErrorKind, Instance};
use millwright_lifecycle::{
    Advance, Change, ConditionType, ObservedClaim, ObservedNode, advance,
    consolidatable::{self, ConsolidateAfter},
    expire,
    launch::{DeleteCause, LaunchFailure, Reaction, labels_to_add, react, truncate},
    liveness::LAUNCH_TIMEOUT,
    observed::NodeMatch,
    termination::pause,
};
use millwright_model::{Name, Span, labels};
use millwright_telemetry as telemetry;
use serde_json::json;

use super::{
    Shared, claim_finalize, observe,
    write::{self, Error, Written},
};
use crate::{
    context::now,
    events::{Event, Severity},
    workqueue::Next,
};

/// NodeClaims worked on at once.
const WORKERS: usize = 64;
/// An object that changed under our hands is looked at again this soon: the watch will have told.
const STALE: Next = Next::After(Duration::from_millis(50));
/// A launch that was refused is tried again this much later.
const RETRY_LAUNCH: Duration = Duration::from_secs(5);

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    let queue = shared.claims.clone();
    let work = move |key: String| {
        let shared = shared.clone();
        async move { reconcile(&shared, &key).await }
    };
    queue.run(WORKERS, std::future::pending(), work).await;
}

async fn reconcile(shared: &Shared, key: &str) -> Result<Next, Error> {
    if !shared.context.leadership.is_leader() {
        return Ok(Next::Done);
    }
    let Some(claim) = shared.context.node_claims.get(key) else {
        return Ok(Next::Done);
    };
    let observed = observe::claim(&claim);
    let nodes: Vec<_> = observed
        .provider_id
        .iter()
        .flat_map(|id| shared.nodes_of(id))
        .collect();
    if observed.deleting_since.is_some() {
        return claim_finalize::finalize(shared, &claim, observed, &nodes).await;
    }
    let seen: Vec<ObservedNode> = nodes.iter().map(|node| observe::node(node)).collect();
    let step = advance(&observed, NodeMatch::of(&seen), LAUNCH_TIMEOUT, now());
    if step.add_finalizer {
        write::add_finalizer(
            &shared.context.client,
            &*claim,
            annotations::TERMINATION_FINALIZER,
        )
        .await?;
        return Ok(STALE);
    }
    if let Some(cause) = step.delete {
        if cause == DeleteCause::RegistrationTimeout {
            if let Some(pool) = shared.context.node_pools.get(&pool_of(&claim)) {
                shared.health.failed(&claim, &pool);
            }
            shared.pools.add(pool_of(&claim));
        }
        return give_back(shared, &claim, cause, None).await;
    }
    if step.launch {
        return launch(shared, &claim, &observed, step.again_after).await;
    }
    settle(shared, &claim, &observed, &nodes, step).await
}

fn pool_of(claim: &NodeClaim) -> String {
    claim
        .labels()
        .get(labels::NODE_POOL)
        .cloned()
        .unwrap_or_default()
}

/// Launches, or writes down what became of the launch.
async fn launch(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    deadline: Option<Span>,
) -> Result<Next, Error> {
    let uid = claim.uid().unwrap_or_default();
    let Some(outcome) = shared.launcher.outcome(&uid) else {
        shared.launcher.offer(claim);
        return Ok(deadline.map_or(Next::Done, |span| Next::After(pause(span))));
    };
    match outcome {
        Ok(instance) => {
            let written = write_launched(shared, claim, observed, &instance).await?;
            if written == Written::Yes {
                shared.launcher.forget(&uid);
                return Ok(Next::Done);
            }
            Ok(STALE)
        }
        Err(error) => {
            telemetry::cloud_error("Create", error.reason);
            shared.launcher.forget(&uid);
            match react(failure(&error)) {
                Reaction::GiveBack(cause) => give_back(shared, claim, cause, Some(&error)).await,
                Reaction::Retry(change) => {
                    tracing::warn!(nodeclaim = claim.name_any(), %error, "launch failed, will retry");
                    write_changes(shared, claim, &[change]).await?;
                    Ok(Next::After(RETRY_LAUNCH))
                }
            }
        }
    }
}

fn failure(error: &CloudError) -> LaunchFailure {
    match error.kind {
        CloudErrorKind::InsufficientCapacity => LaunchFailure::InsufficientCapacity,
        CloudErrorKind::NodeClassNotReady => LaunchFailure::NodeClassNotReady,
        CloudErrorKind::Create | CloudErrorKind::Unauthorized => LaunchFailure::Refused {
            reason: error.reason,
            message: truncate(&error.to_string()),
        },
        CloudErrorKind::NodeClaimNotFound
        | CloudErrorKind::Throttled
        | CloudErrorKind::Transient
        | CloudErrorKind::Bug => LaunchFailure::Other {
            message: error.to_string(),
        },
    }
}

/// Deletes a NodeClaim that will not become a node; its pods are planned again at once.
async fn give_back(
    shared: &Shared,
    claim: &NodeClaim,
    cause: DeleteCause,
    error: Option<&CloudError>,
) -> Result<Next, Error> {
    let context = &shared.context;
    tracing::info!(
        nodeclaim = claim.name_any(),
        cause = cause.as_str(),
        "deleting nodeclaim"
    );
    if let Some(error) = error.filter(|_| cause == DeleteCause::InsufficientCapacity) {
        let message = format!(
            "NodeClaim {} event: {}",
            claim.name_any(),
            truncate(&error.to_string())
        );
        context.recorder.publish(Event::new(
            claim,
            Severity::Warning,
            "InsufficientCapacityError",
            message,
        ));
    }
    telemetry::nodeclaim_disrupted(&pool_of(claim), capacity_type(claim), cause.as_str());
    write::delete(&context.client, claim).await?;
    context.arrivals.notify_one();
    Ok(Next::Done)
}

pub(super) fn capacity_type(claim: &NodeClaim) -> &str {
    claim
        .labels()
        .get(labels::CAPACITY_TYPE)
        .map_or("", String::as_str)
}

/// The status of a launched NodeClaim first (it holds the provider id), then the labels.
async fn write_launched(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    instance: &Instance,
) -> Result<Written, Error> {
    let client = &shared.context.client;
    let mut changed = claim.clone();
    let quantities = |resources: &millwright_model::Resources| {
        resources
            .iter()
            .filter(|(_, amount)| *amount != 0)
            .map(|(n, amount)| {
                (
                    n.to_string(),
                    k8s_openapi::apimachinery::pkg::api::resource::Quantity(n.format(amount)),
                )
            })
            .collect()
    };
    let status = changed.status.get_or_insert_default();
    status.provider_id = instance.provider_id.to_string();
    status.image_id = instance.image_id.to_string();
    status.capacity = quantities(&instance.capacity);
    status.allocatable = quantities(&instance.allocatable);
    let before = claim.conditions().to_vec();
    write::apply_changes(
        &mut changed,
        &[Change::holds(ConditionType::Launched)],
        now(),
    );
    if write::status(client, claim, &changed.status).await? == Written::Stale {
        return Ok(Written::Stale);
    }
    write::publish_transitions(
        &shared.context.recorder,
        claim,
        &before,
        changed.conditions(),
    );
    tracing::info!(
        nodeclaim = claim.name_any(),
        provider_id = %instance.provider_id,
        instance_type = &*instance.instance_type,
        zone = &*instance.zone,
        capacity_type = instance.capacity_type.as_str(),
        "launched nodeclaim"
    );
    write_labels(
        shared,
        claim,
        &labels_to_add(&observed.labels, &instance.labels),
    )
    .await
}

/// Adds labels that the provider fixed. Not tied to a version: the status write has moved it, and
/// labels of this kind never conflict.
async fn write_labels(
    shared: &Shared,
    claim: &NodeClaim,
    labels: &std::collections::BTreeMap<Name, Name>,
) -> Result<Written, Error> {
    if labels.is_empty() {
        return Ok(Written::Yes);
    }
    let labels: std::collections::BTreeMap<String, String> = labels
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    let api: kube::Api<NodeClaim> = kube::Api::all(shared.context.client.clone());
    let patch = json!({"metadata": {"labels": labels, "uid": claim.uid()}});
    let result = api
        .patch(
            &claim.name_any(),
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(&patch),
        )
        .await;
    write::settle(&format!("label nodeclaim {}", claim.name_any()), result)
}

async fn write_changes(
    shared: &Shared,
    claim: &NodeClaim,
    changes: &[Change],
) -> Result<Written, Error> {
    let mut changed = claim.clone();
    if !write::apply_changes(&mut changed, changes, now()) {
        return Ok(Written::Yes);
    }
    let written = write::status(&shared.context.client, claim, &changed.status).await?;
    if written == Written::Yes {
        write::publish_transitions(
            &shared.context.recorder,
            claim,
            claim.conditions(),
            changed.conditions(),
        );
    }
    Ok(written)
}

/// Registration and what follows: one patch of the Node, one write of the status.
async fn settle(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    nodes: &[std::sync::Arc<k8s_openapi::api::core::v1::Node>],
    step: Advance,
) -> Result<Next, Error> {
    let context = &shared.context;
    if step.taint_missing {
        let message = format!(
            "Missing {} taint which prevents registration related race conditions on Karpenter-managed nodes",
            millwright_lifecycle::names::UNREGISTERED
        );
        context.recorder.publish(Event::new(
            claim,
            Severity::Warning,
            "UnregisteredTaintMissing",
            message,
        ));
    }
    if let (Some(edit), [node]) = (&step.node, nodes)
        && write::edit_node(&context.client, node, Some(claim), edit).await? == Written::Stale
    {
        return Ok(STALE);
    }
    let mut changed = claim.clone();
    if let Some(name) = &step.node_name {
        changed.status.get_or_insert_default().node_name = name.to_string();
    }
    let (marking, marked_again) = consolidatability(shared, claim, observed, &step);
    let mut changes = step.changes.clone();
    changes.extend(marking);
    let dirty = write::apply_changes(&mut changed, &changes, now()) || step.node_name.is_some();
    if dirty {
        if write::status(&context.client, claim, &changed.status).await? == Written::Stale {
            return Ok(STALE);
        }
        write::publish_transitions(
            &context.recorder,
            claim,
            claim.conditions(),
            changed.conditions(),
        );
    }
    if step.registers {
        if let Some(pool) = shared.context.node_pools.get(&pool_of(claim)) {
            shared.health.succeeded(claim, &pool);
        }
        shared.pools.add(pool_of(claim));
        telemetry::node_created(&pool_of(claim));
        tracing::info!(
            nodeclaim = claim.name_any(),
            node = step.node_name.as_ref().map(|n| n.as_str()),
            "registered nodeclaim"
        );
    }
    if step.initializes {
        tracing::info!(nodeclaim = claim.name_any(), "initialized nodeclaim");
    }
    tag_instance(shared, claim, observed).await?;
    expire_or_wait(shared, claim, observed, [step.again_after, marked_again]).await
}

/// Names the instance after its NodeClaim, once, when it has registered.
async fn tag_instance(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
) -> Result<(), Error> {
    let due = observed.is(ConditionType::Registered)
        && !claim.annotations().contains_key(annotations::TAGGED);
    let Some(id) = observed.provider_id.as_ref().filter(|_| due) else {
        return Ok(());
    };
    match shared.context.provider.tag(id, &observed.name).await {
        Ok(()) => {}
        // Gone: the garbage collector sees to it.
        Err(error) if error.kind == CloudErrorKind::NodeClaimNotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let patch = json!({"metadata": {"annotations": {
        annotations::TAGGED: "true", annotations::CLUSTER_NAME_TAGGED: "true",
    }}});
    write::merge(&shared.context.client, claim, patch).await?;
    Ok(())
}

/// The Consolidatable mark, judged on the claim as it will be after this pass.
fn consolidatability(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    step: &Advance,
) -> (Option<Change>, Option<Span>) {
    let Some(pool) = shared.context.node_pools.get(&pool_of(claim)) else {
        return (None, None);
    };
    let mut after = observed.clone();
    for change in &step.changes {
        after.conditions.apply(change, now());
    }
    let marking = consolidatable::mark(&after, consolidate_after(&pool), now());
    (marking.change, marking.again_after)
}

pub(super) fn consolidate_after(pool: &NodePool) -> ConsolidateAfter {
    match &pool.spec.disruption.consolidate_after.0 {
        Some(duration) => ConsolidateAfter::After(Span(duration.millis())),
        None => ConsolidateAfter::Never,
    }
}

async fn expire_or_wait(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    waits: [Option<Span>; 2],
) -> Result<Next, Error> {
    let mut soonest = waits.into_iter().flatten().min();
    match expire::judge(observed, now()) {
        expire::Expiration::Expired => {
            return give_back(shared, claim, DeleteCause::Expired, None).await;
        }
        expire::Expiration::Wait(span) => {
            soonest = Some(soonest.map_or(span, |other| other.min(span)))
        }
        expire::Expiration::Exempt => {}
    }
    Ok(soonest.map_or(Next::Done, |span| {
        Next::After(pause(span).max(Duration::from_millis(10)))
    }))
}
