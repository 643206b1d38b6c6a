//! Carrying out a provisioning plan: NodeClaims, nominations, events.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use millwright_api::{NodeClaim, conditions};
use millwright_model::plan::RefusalKind;
use millwright_model::{
    ClusterSnapshot, NodeClaimProposal, NodeName, Plan, Pod, PodIndex, Resources, Span, Timestamp,
};
use millwright_state::Prospect;
use millwright_telemetry as telemetry;

use super::claim::{LAUNCH_GROUP, node_claim};
use crate::{
    context::{Context, now},
    events::{Event, Severity},
};

/// NodeClaims written at once. The API server handles about 500 creates a second on two cores;
/// more parallel requests only queue there.
const WRITES: usize = 32;
/// NodeClaims in one launch group, hence instances of one CreateFleet.
const GROUP_MAX: usize = 250;
/// A pod's FailedScheduling event is not repeated within this time.
const FAILED_SCHEDULING: Duration = Duration::from_secs(300);
/// Shortest time that a nomination lasts.
const NOMINATION_MIN: Span = Span::from_secs(10);
/// A NodeClaim this young is not withdrawn: its pods may not have been seen yet.
const WITHDRAW_AFTER: Span = Span::from_secs(2);

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Provisioned {
    /// NodeClaims created.
    pub created: usize,
    /// NodeClaims that could not be created; their pods are planned again.
    pub failed: usize,
}

/// Carries out a plan. Nothing is written when leadership was lost meanwhile.
pub async fn provision(context: &Context, snapshot: &ClusterSnapshot, plan: &Plan) -> Provisioned {
    if !context.leadership.is_leader() {
        return Provisioned::default();
    }
    nominate(context, snapshot, plan);
    report_unschedulable(context, snapshot, plan);
    create_claims(context, snapshot, plan).await
}

fn pods<'a>(
    snapshot: &'a ClusterSnapshot,
    indices: &'a [PodIndex],
) -> impl Iterator<Item = &'a Arc<Pod>> {
    indices
        .iter()
        .filter_map(|index| snapshot.pods.get(index.0 as usize))
}

/// Expects planned pods on nodes that exist or are in flight.
fn nominate(context: &Context, snapshot: &ClusterSnapshot, plan: &Plan) {
    let span = Span::from_millis(context.settings.batch.max.as_millis().saturating_mul(2))
        .max(NOMINATION_MIN);
    let until = now() + span;
    let claims: HashMap<&NodeName, Option<&str>> = snapshot
        .nodes
        .iter()
        .map(|node| {
            (
                &node.name,
                node.node_claim.as_ref().map(|claim| claim.as_str()),
            )
        })
        .collect();
    for nomination in &plan.nominations {
        let mut state = context.state();
        state.nominate(&nomination.node, until);
        for pod in pods(snapshot, &nomination.pods) {
            state.plan_pod(&pod.key, &pod.uid, nomination.node.clone());
        }
        drop(state);
        let claim = claims.get(&nomination.node).copied().flatten();
        let target = match claim {
            Some(claim) if claim != nomination.node.as_str() => {
                format!("nodeclaim/{claim}, node/{}", nomination.node)
            }
            Some(claim) => format!("nodeclaim/{claim}"),
            None => format!("node/{}", nomination.node),
        };
        for pod in pods(snapshot, &nomination.pods).filter(|pod| pod.planned_on.is_none()) {
            context.recorder.publish(nominated(pod, &target));
        }
    }
}

fn nominated(pod: &Pod, target: &str) -> Event {
    pod_event(
        pod,
        Severity::Normal,
        "Nominated",
        format!("Pod should schedule on: {target}"),
    )
    .rate_limited()
}

fn pod_event(pod: &Pod, severity: Severity, reason: &'static str, message: String) -> Event {
    Event {
        object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.key.namespace.to_string()),
            name: Some(pod.key.name.to_string()),
            uid: Some(pod.uid.to_string()),
            ..ObjectReference::default()
        },
        severity,
        reason,
        message,
        key: vec![pod.uid.to_string()],
        window: crate::events::DEFAULT_WINDOW,
        rate_limited: false,
    }
}

/// Tells the owners of pods without a place why, and counts them.
fn report_unschedulable(context: &Context, snapshot: &ClusterSnapshot, plan: &Plan) {
    let (mut unschedulable, mut ignored) = (0, 0);
    for group in &plan.unschedulable {
        let rejected = group
            .reasons
            .iter()
            .all(|reason| reason.kind == RefusalKind::Rejected);
        *(if rejected {
            &mut ignored
        } else {
            &mut unschedulable
        }) += group.pods.len();
        let reasons: Vec<String> = group.reasons.iter().map(ToString::to_string).collect();
        let message = format!("Failed to schedule pod, {}", reasons.join("; "));
        // A pod that asks for no NodePool wants no word from us.
        let opted_out = rejected
            && group
                .reasons
                .iter()
                .any(|reason| reason.detail.contains("asks for no NodePool"));
        if opted_out {
            continue;
        }
        for pod in pods(snapshot, &group.pods) {
            let event = pod_event(pod, Severity::Warning, "FailedScheduling", message.clone());
            context.recorder.publish(event.within(FAILED_SCHEDULING));
        }
    }
    telemetry::pods_unschedulable(unschedulable);
    telemetry::pods_ignored(ignored);
}

/// Writes the plan's NodeClaims. One failure does not stop the others.
async fn create_claims(context: &Context, snapshot: &ClusterSnapshot, plan: &Plan) -> Provisioned {
    let claims = grouped(&plan.node_claims);
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    let started = tokio::time::Instant::now();
    // Built before they are streamed: a closure inside the stream would make the future's Send
    // depend on a lifetime that the compiler cannot name.
    let writes: Vec<_> = claims
        .into_iter()
        .zip(prospects(&plan.node_claims))
        .map(|(claim, prospect)| create_claim(context, &api, snapshot, claim, prospect))
        .collect();
    let outcomes: Vec<bool> = stream::iter(writes)
        .buffer_unordered(WRITES)
        .collect()
        .await;
    let created = outcomes.iter().filter(|done| **done).count();
    let failed = outcomes.len() - created;
    if created > 0 {
        let pods: usize = plan.node_claims.iter().map(|claim| claim.pods.len()).sum();
        tracing::info!(
            nodeclaims = created,
            pods,
            seconds = started.elapsed().as_secs_f64(),
            "created nodeclaims"
        );
    }
    Provisioned { created, failed }
}

async fn create_claim(
    context: &Context,
    api: &Api<NodeClaim>,
    snapshot: &ClusterSnapshot,
    (proposal, claim): (&NodeClaimProposal, NodeClaim),
    prospect: Prospect,
) -> bool {
    if !context.leadership.is_leader() {
        return false;
    }
    let pool = &proposal.node_pool;
    if let Some(resource) = exceeded(pool.limits.as_ref(), &context.state().usage(&pool.name)) {
        tracing::warn!(nodepool = %pool.name, resource, "nodeclaim not created: the limit is exceeded");
        return false;
    }
    let created = match api.create(&PostParams::default(), &claim).await {
        Ok(created) => created,
        Err(error) => {
            tracing::error!(nodepool = %pool.name, %error, "nodeclaim could not be created");
            return false;
        }
    };
    let name = created.name_any();
    let mut state = context.state();
    // Created from our own values, so it converts; if not, the watch says the same with its reason.
    if let Err(error) = state.insert_created(&created, prospect, now()) {
        tracing::error!(nodeclaim = name, %error, "created nodeclaim cannot be read");
    }
    for pod in pods(snapshot, &proposal.pods) {
        state.plan_pod(&pod.key, &pod.uid, name.as_str().into());
    }
    drop(state);
    for pod in pods(snapshot, &proposal.pods) {
        context
            .recorder
            .publish(nominated(pod, &format!("nodeclaim/{name}")));
    }
    telemetry::nodeclaim_created(&pool.name, "provisioned");
    true
}

/// What each proposal may turn out to be; proposals that are alike are looked through once.
fn prospects(proposals: &[NodeClaimProposal]) -> Vec<Prospect> {
    let mut all: Vec<Prospect> = Vec::with_capacity(proposals.len());
    for run in proposals.chunk_by(NodeClaimProposal::is_like) {
        let prospect = run.first().map(|first| Prospect::of(&first.instance_types));
        all.extend(std::iter::repeat_n(prospect.unwrap_or_default(), run.len()));
    }
    all
}

/// The first resource of which more is used than allowed.
fn exceeded(limits: Option<&Resources>, usage: &Resources) -> Option<String> {
    let limits = limits?;
    limits
        .iter()
        .find(|(name, limit)| usage.get(name) > *limit)
        .map(|(name, _)| name.to_string())
}

/// The NodeClaims of a plan, with the launch group of those whose launches are equal (D-005).
fn grouped(proposals: &[NodeClaimProposal]) -> Vec<(&NodeClaimProposal, NodeClaim)> {
    let mut claims = Vec::with_capacity(proposals.len());
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for run in proposals.chunk_by(NodeClaimProposal::is_like) {
        let Some(claim) = run.first().map(node_claim) else {
            continue;
        };
        // What a launch depends on is in spec and labels; both serialise in a fixed order.
        let parameters =
            serde_json::to_string(&(&claim.spec, &claim.metadata.labels)).unwrap_or_default();
        let members = claims.len()..claims.len() + run.len();
        groups.entry(parameters).or_default().extend(members);
        claims.extend(run.iter().map(|proposal| (proposal, claim.clone())));
    }
    for members in groups.values() {
        for chunk in members.chunks(GROUP_MAX) {
            let group = format!("{}/{}", uuid::Uuid::new_v4(), chunk.len());
            for at in chunk {
                if let Some((_, claim)) = claims.get_mut(*at) {
                    claim
                        .metadata
                        .annotations
                        .get_or_insert_default()
                        .insert(LAUNCH_GROUP.to_owned(), group.clone());
                }
            }
        }
    }
    claims
}

/// Looks up NodeClaims that we created and that the watch has not shown for a while: one that was
/// deleted at once would hold its room for ever, one whose watch event is late must keep it.
pub async fn confirm_claims(context: &Context) {
    let unconfirmed = context.state().unconfirmed_claims(now());
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    for name in unconfirmed {
        match api.get_opt(&name).await {
            Ok(Some(claim)) => {
                // It was read when it was created, with the same spec.
                if let Err(error) = context.state().apply_claim(&claim) {
                    tracing::error!(nodeclaim = %name, %error, "nodeclaim cannot be read");
                }
            }
            Ok(None) => context.state().delete_claim(&name),
            Err(error) => {
                tracing::warn!(nodeclaim = %name, %error, "nodeclaim could not be looked up");
            }
        }
    }
}

/// Deletes NodeClaims that were never launched and that no waiting pod is planned on any more: their
/// pods were deleted or found another place.
pub async fn withdraw_idle_claims(context: &Context, snapshot_taken: Timestamp) {
    let planned: HashSet<NodeName> = context.state().planned_nodes();
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    for claim in context.node_claims.list() {
        let name = claim.name_any();
        let created = claim
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |time| time.0.as_millisecond());
        let idle = claim.metadata.deletion_timestamp.is_none()
            && claim.annotations().contains_key(LAUNCH_GROUP)
            && !is_launched(&claim)
            && snapshot_taken.since(Timestamp(created)) > WITHDRAW_AFTER
            && !planned.contains(&NodeName::from(name.as_str()));
        if !idle || !context.leadership.is_leader() {
            continue;
        }
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: claim.uid(),
                resource_version: claim.resource_version(),
            }),
            ..DeleteParams::default()
        };
        match api.delete(&name, &parameters).await {
            Ok(_) => tracing::info!(
                nodeclaim = name,
                "withdrew nodeclaim: no pod needs it any more"
            ),
            // It changed or is gone: the next pass sees.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                tracing::warn!(nodeclaim = name, %error, "nodeclaim could not be withdrawn");
            }
        }
    }
}

fn is_launched(claim: &NodeClaim) -> bool {
    let conditions = claim
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    conditions::find(conditions, "Launched").is_some_and(|condition| condition.status == "True")
}
