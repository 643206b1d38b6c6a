//! NodeClaims: launch, registration, initialization, liveness, expiration, consolidatability; and,
//! once they are deleted, their end.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};
use kube::ResourceExt;
use millwright_api::{
    NodeClaim, annotations,
    conditions::{self, Conditioned},
};
use millwright_cloud::{CloudError, CloudErrorKind, Instance};
use millwright_lifecycle::{
    Advance, Change, ConditionType, ObservedClaim, ObservedNode, advance, consolidatable,
    expire::{self, Expiration},
    launch::{DeleteCause, LaunchFailure, Reaction, labels_to_add, react, truncate},
    liveness::LAUNCH_TIMEOUT,
    observed::NodeMatch,
    register::NodeEdit,
    termination::pause,
};
use millwright_model::{Span, labels};
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
/// The shortest wait: a timer that fires a moment early must not spin.
const SOON: Duration = Duration::from_millis(10);
/// Tags that could not be written are tried again this much later.
const RETRY_TAG: Span = Span::from_secs(30);

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
        return match give_back(shared, &claim, cause, None).await? {
            Written::Yes => {
                if let Some(pool) = shared.context.node_pools.get(&pool_of(&claim)) {
                    shared.health.failed(&claim, &pool);
                    shared.pools.add(pool_of(&claim));
                }
                Ok(Next::Done)
            }
            Written::Stale => Ok(STALE),
        };
    }
    match expire::judge(&observed, now()) {
        Expiration::Expired => give_back(shared, &claim, DeleteCause::Expired, None)
            .await
            .map(done_or_again),
        _ if step.launch => launch(shared, &claim, &observed, step.again_after).await,
        expiration => {
            // The store shows the launch now, so nobody can mistake the claim for an unlaunched one.
            shared.launcher.forget(&claim.uid().unwrap_or_default());
            let expiry = match expiration {
                Expiration::Wait(span) => Some(span),
                Expiration::Exempt | Expiration::Expired => None,
            };
            settle(shared, &claim, &observed, &nodes, step, expiry).await
        }
    }
}

const fn done_or_again(written: Written) -> Next {
    match written {
        Written::Yes => Next::Done,
        Written::Stale => STALE,
    }
}

pub(super) fn pool_of(claim: &NodeClaim) -> String {
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
        let wait = match shared.launcher.pause(&uid) {
            Some(wait) => deadline.map_or(wait, |deadline| deadline.min(wait)),
            None => {
                shared.launcher.offer(claim);
                deadline.unwrap_or(LAUNCH_TIMEOUT)
            }
        };
        return Ok(Next::After(pause(wait).max(SOON)));
    };
    let error = match outcome {
        Ok(instance) => {
            return write_launched(shared, claim, observed, &instance)
                .await
                .map(done_or_again);
        }
        Err(error) => error,
    };
    match react(failure(&error)) {
        Reaction::GiveBack(cause) => give_back(shared, claim, cause, Some(&error))
            .await
            .map(done_or_again),
        Reaction::Retry(change) => {
            tracing::warn!(nodeclaim = claim.name_any(), %error, "launch failed, will retry");
            shared.launcher.refused(&uid);
            write_changes(shared, claim, &[change]).await?;
            let wait = shared.launcher.pause(&uid).map_or(SOON, pause);
            Ok(Next::After(wait.max(SOON)))
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

/// Deletes a NodeClaim of our own accord, once: told and counted only if this very call did it.
async fn give_back(
    shared: &Shared,
    claim: &NodeClaim,
    cause: DeleteCause,
    error: Option<&CloudError>,
) -> Result<Written, Error> {
    let context = &shared.context;
    let name = claim.name_any();
    if write::delete_as_seen(&context.client, claim).await? == Written::Stale {
        return Ok(Written::Stale);
    }
    tracing::info!(
        nodeclaim = name,
        cause = cause.as_str(),
        "deleted nodeclaim"
    );
    if let Some(error) = error.filter(|_| cause == DeleteCause::InsufficientCapacity) {
        let message = format!("NodeClaim {name} event: {}", truncate(&error.to_string()));
        let reason = "InsufficientCapacityError";
        let event = Event::new(claim, Severity::Warning, reason, message);
        context.recorder.publish(event);
    }
    count_disruption(shared, claim, cause);
    // Its pods are planned again at once.
    context.arrivals.notify_one();
    Ok(Written::Yes)
}

/// Counts a deletion, and the pods that need a new home because of it.
pub(super) fn count_disruption(shared: &Shared, claim: &NodeClaim, cause: DeleteCause) {
    let pool = pool_of(claim);
    telemetry::nodeclaim_disrupted(&pool, capacity_type(claim), cause.as_str());
    let node = claim
        .status
        .as_ref()
        .map(|status| status.node_name.as_str())
        .filter(|node| !node.is_empty());
    if let Some(node) = node {
        let pods = shared.context.bound_pods.on(node);
        let moving = pods.iter().filter(|pod| pod.is_reschedulable()).count();
        telemetry::pods_disrupted(&pool, capacity_type(claim), cause.as_str(), moving);
    }
}

pub(super) fn capacity_type(claim: &NodeClaim) -> &str {
    claim
        .labels()
        .get(labels::CAPACITY_TYPE)
        .map_or("", String::as_str)
}

/// Labels and annotations first, then the status, whose provider id ends the launch: a crash in
/// between repeats the launch, and the provider answers with the same instance (D-005).
async fn write_launched(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    instance: &Instance,
) -> Result<Written, Error> {
    let client = &shared.context.client;
    let Some(mut labelled) = write_metadata(shared, claim, observed, instance).await? else {
        return Ok(Written::Stale);
    };
    let seen = labelled.clone();
    let status = labelled.status.get_or_insert_default();
    status.provider_id = instance.provider_id.to_string();
    status.image_id = instance.image_id.to_string();
    status.capacity = quantities(&instance.capacity);
    status.allocatable = quantities(&instance.allocatable);
    let launched = [Change::holds(ConditionType::Launched)];
    write::apply_changes(&mut labelled, &launched, now());
    if write::status(client, &seen, &labelled.status).await? == Written::Stale {
        return Ok(Written::Stale);
    }
    let (before, after) = (claim.conditions(), labelled.conditions());
    write::publish_transitions(&shared.context.recorder, claim, before, after);
    tracing::info!(
        nodeclaim = claim.name_any(),
        provider_id = %instance.provider_id,
        instance_type = &*instance.instance_type,
        zone = &*instance.zone,
        capacity_type = instance.capacity_type.as_str(),
        "launched nodeclaim"
    );
    Ok(Written::Yes)
}

fn quantities(resources: &millwright_model::Resources) -> millwright_api::ResourceList {
    resources
        .iter()
        .filter(|(_, amount)| *amount != 0)
        .map(|(name, amount)| (name.to_string(), Quantity(name.format(amount))))
        .collect()
}

/// Adds what the launch fixed: labels of type and offering, the class's static hash and instance
/// profile. The claim as it is after that; `None` when it changed meanwhile.
async fn write_metadata(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    instance: &Instance,
) -> Result<Option<NodeClaim>, Error> {
    let context = &shared.context;
    let class = context.node_classes.get(&claim.spec.node_class_ref.name);
    let mut wanted = serde_json::Map::new();
    for key in [
        annotations::EC2_NODE_CLASS_HASH,
        annotations::EC2_NODE_CLASS_HASH_VERSION,
    ] {
        if let Some(value) = class
            .as_ref()
            .and_then(|class| class.annotations().get(key))
        {
            wanted.insert(key.to_owned(), value.as_str().into());
        }
    }
    let profile = class
        .as_ref()
        .and_then(|class| class.status.as_ref())
        .map(|status| status.instance_profile.as_str())
        .filter(|profile| !profile.is_empty());
    if let Some(profile) = profile {
        let key = annotations::INSTANCE_PROFILE_NAME.to_owned();
        wanted.insert(key, profile.into());
    }
    wanted.retain(|key, value| claim.annotations().get(key).map(String::as_str) != value.as_str());
    let labels = labels_to_add(&observed.labels, &instance.labels);
    if labels.is_empty() && wanted.is_empty() {
        return Ok(Some(claim.clone()));
    }
    let patch = json!({"metadata": {"labels": write::texts(&labels), "annotations": wanted}});
    write::merge_and_read(&context.client, claim, patch).await
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
    nodes: &[Arc<Node>],
    step: Advance,
    expiry: Option<Span>,
) -> Result<Next, Error> {
    let context = &shared.context;
    if step.taint_missing {
        tell_taint_missing(shared, claim);
    }
    if let ([node], Some(edit)) = (nodes, node_edit(claim, nodes, &step))
        && write::edit_node(&context.client, node, Some(claim), &edit).await? == Written::Stale
    {
        return Ok(STALE);
    }
    let mut changed = claim.clone();
    if let Some(name) = &step.node_name {
        changed.status.get_or_insert_default().node_name = name.to_string();
    }
    let (marking, marked_again) = consolidatability(shared, claim, observed, &step);
    let consistency = shared.scans.check(claim, observed, nodes);
    let mut changes = step.changes.clone();
    changes.extend(marking);
    changes.extend(consistency.change);
    let dirty = write::apply_changes(&mut changed, &changes, now()) || step.node_name.is_some();
    if dirty {
        if write::status(&context.client, claim, &changed.status).await? == Written::Stale {
            return Ok(STALE);
        }
        let (before, after) = (claim.conditions(), changed.conditions());
        write::publish_transitions(&context.recorder, claim, before, after);
    }
    tell_inconsistencies(shared, claim, consistency.issues);
    if step.registers {
        tell_registered(shared, claim, &step);
    }
    if step.initializes {
        tracing::info!(nodeclaim = claim.name_any(), "initialized nodeclaim");
    }
    // Last, and never in the way of the rest: tags are for people.
    let untagged = tag_instance(shared, claim, observed).await;
    let again = [step.again_after, marked_again, expiry, untagged];
    Ok(again
        .into_iter()
        .flatten()
        .min()
        .map_or(Next::Done, |span| Next::After(pause(span).max(SOON))))
}

/// What registration and initialization write to the Node, and the label of the class, which nodes
/// of older versions lack.
fn node_edit(claim: &NodeClaim, nodes: &[Arc<Node>], step: &Advance) -> Option<NodeEdit> {
    let [node] = nodes else { return None };
    let class = &claim.spec.node_class_ref;
    let key = millwright_api::labels::node_class_key(&class.group, &class.kind);
    let mut edit = step.node.clone().unwrap_or_default();
    let registered = step.registers || claim.is_condition_true(conditions::REGISTERED);
    if registered && node.labels().get(&key) != Some(&class.name) {
        edit.labels
            .insert(key.as_str().into(), class.name.as_str().into());
    }
    (!edit.is_empty()).then_some(edit)
}

fn tell_taint_missing(shared: &Shared, claim: &NodeClaim) {
    let message = format!(
        "Missing {} taint which prevents registration related race conditions on Karpenter-managed nodes",
        millwright_lifecycle::names::UNREGISTERED
    );
    let reason = "UnregisteredTaintMissing";
    let event = Event::new(claim, Severity::Warning, reason, message);
    shared.context.recorder.publish(event);
}

fn tell_inconsistencies(shared: &Shared, claim: &NodeClaim, issues: Vec<String>) {
    for issue in issues {
        let key = vec![claim.uid().unwrap_or_default(), issue.clone()];
        let event = Event::new(claim, Severity::Warning, "FailedConsistencyCheck", issue);
        shared.context.recorder.publish(event.keyed(key));
    }
}

fn tell_registered(shared: &Shared, claim: &NodeClaim, step: &Advance) {
    if let Some(pool) = shared.context.node_pools.get(&pool_of(claim)) {
        shared.health.succeeded(claim, &pool);
        shared.pools.add(pool_of(claim));
    }
    telemetry::node_created(&pool_of(claim));
    tracing::info!(
        nodeclaim = claim.name_any(),
        node = step.node_name.as_ref().map(|n| n.as_str()),
        "registered nodeclaim"
    );
}

/// Names the instance after its NodeClaim, once, when it has registered. When that fails, how long
/// to wait before it is tried again.
async fn tag_instance(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
) -> Option<Span> {
    let due = observed.is(ConditionType::Registered)
        && !claim.annotations().contains_key(annotations::TAGGED);
    let id = observed.provider_id.as_ref().filter(|_| due)?;
    let error: Error = match shared.context.provider.tag(id, &observed.name).await {
        Ok(()) => {
            let patch = json!({"metadata": {"annotations": {
                annotations::TAGGED: "true", annotations::CLUSTER_NAME_TAGGED: "true",
            }}});
            // Not tied to a version: the status may have been written a moment ago, and nobody
            // else writes these two.
            write::annotate(&shared.context.client, claim, patch)
                .await
                .err()?
        }
        // Gone: the garbage collector sees to it.
        Err(error) if error.kind == CloudErrorKind::NodeClaimNotFound => return None,
        Err(error) => error.into(),
    };
    tracing::warn!(nodeclaim = claim.name_any(), %error, "instance could not be tagged, will retry");
    Some(RETRY_TAG)
}

/// The Consolidatable mark, judged on the claim as it will be after this pass. Static pools have
/// none.
fn consolidatability(
    shared: &Shared,
    claim: &NodeClaim,
    observed: &ObservedClaim,
    step: &Advance,
) -> (Option<Change>, Option<Span>) {
    let pool = shared.context.node_pools.get(&pool_of(claim));
    let Some(pool) = pool.filter(|pool| pool.spec.replicas.is_none()) else {
        return (None, None);
    };
    let mut after = observed.clone();
    for change in &step.changes {
        after.conditions.apply(change, now());
    }
    let marking = consolidatable::mark(
        &after,
        observe::disruption_rules(&pool).consolidate_after,
        now(),
    );
    (marking.change, marking.again_after)
}
