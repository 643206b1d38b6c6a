//! Emptiness: nodes that no pod needs are deleted, within the budgets, after they stayed empty for the
//! validation delay.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millwright_api::{NodeClaim, NodePool, node_pool::DisruptionReason};
use millwright_lifecycle::{
    ConditionType, ObservedPod,
    budget::{self, Budget, Reason},
    candidate::{Block, Candidate, Class, NodeFacts, candidate},
    consolidatable::ConsolidateAfter,
    emptiness::{Eligibility, Ineligible, POLL, VALIDATION_DELAY, eligible, select, validate},
    launch::DeleteCause,
    observed::disrupted_taint,
    pdb::ObservedPdb,
    register::NodeEdit,
    termination::pause,
};
use millwright_model::{NanoDollarsPerHour, NodePoolName, Span, StateNode, labels};
use millwright_telemetry as telemetry;

use super::{
    Shared, claim, node, observe,
    write::{self, Error, Written},
};
use crate::{
    context::now,
    events::{Event, Severity},
};

/// Window of the Unconsolidatable event.
const TOLD: Duration = Duration::from_secs(900);

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    loop {
        tokio::time::sleep(pause(POLL)).await;
        if !shared.context.leadership.is_leader() {
            continue;
        }
        if let Err(error) = pass(&shared).await {
            tracing::warn!(%error, "emptiness pass failed, will retry");
        }
    }
}

/// Decides, waits, decides again on fresh observations, acts.
async fn pass(shared: &Shared) -> Result<(), Error> {
    let first = observe_empty(shared).await?;
    let selection = select(first.candidates, &first.remaining);
    for pool in selection.constrained {
        let message = format!(
            "No allowed disruptions for disruption reason Empty due to blocking budget of NodePool {pool}"
        );
        if let Some(object) = shared.context.node_pools.get(pool.as_str()) {
            let event = Event::new(&*object, Severity::Normal, "DisruptionBlocked", message);
            let key = vec![object.uid().unwrap_or_default(), "Empty".to_owned()];
            shared
                .context
                .recorder
                .publish(event.keyed(key).within(Duration::from_secs(60)));
        }
    }
    if selection.chosen.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(pause(VALIDATION_DELAY)).await;
    let fresh = observe_empty(shared).await?;
    let validated = validate(&selection.chosen, &fresh.candidates, &fresh.remaining);
    if validated.failed > 0 {
        tracing::debug!(
            failed = validated.failed,
            "nodes did not stay empty or the budget fell"
        );
    }
    for candidate in validated.valid {
        disrupt(shared, &candidate).await?;
    }
    Ok(())
}

struct Empty {
    candidates: Vec<Candidate>,
    /// What the budgets of each pool still allow for the reason Empty.
    remaining: BTreeMap<NodePoolName, u32>,
}

async fn observe_empty(shared: &Shared) -> Result<Empty, Error> {
    let context = &shared.context;
    let (snapshot, _) = context.state().snapshot(now(), false, |_| [].into());
    let budgets: Vec<ObservedPdb> = context
        .disruption_budgets
        .list()
        .iter()
        .map(|b| observe::budget(b))
        .collect();
    let mut candidates = Vec::new();
    let mut counts: BTreeMap<NodePoolName, Counts> = BTreeMap::new();
    for state in snapshot.nodes.iter() {
        let Some(pool) = &state.node_pool else {
            continue;
        };
        counts.entry(pool.clone()).or_default().count(state);
        if state.is_managed()
            && state.workload_pods == 0
            && !state.deleting
            && let Some(found) = judge(shared, state, &budgets).await?
        {
            candidates.push(found);
        }
    }
    let remaining = counts
        .into_iter()
        .filter_map(|(name, counts)| {
            let pool = context.node_pools.get(name.as_str())?;
            Some((name, counts.remaining(&pool)))
        })
        .collect();
    Ok(Empty {
        candidates,
        remaining,
    })
}

#[derive(Debug, Default)]
struct Counts {
    nodes: u32,
    /// Deleting or not ready: they use the budget up.
    disrupting: u32,
}

impl Counts {
    fn count(&mut self, node: &StateNode) {
        if node.initialized || node.deleting {
            self.nodes += 1;
            self.disrupting += u32::from(node.deleting);
        }
    }

    fn remaining(&self, pool: &NodePool) -> u32 {
        let budgets: Vec<Budget> = pool
            .spec
            .disruption
            .budgets
            .iter()
            .map(convert_budget)
            .collect();
        // A budget that cannot be read allows nothing.
        budget::allowed(&budgets, Reason::Empty, self.nodes, now())
            .unwrap_or(0)
            .saturating_sub(self.disrupting)
    }
}

fn convert_budget(budget: &millwright_api::node_pool::Budget) -> Budget {
    let reason = |reason: &DisruptionReason| match reason {
        DisruptionReason::Underutilized => Reason::Underutilized,
        DisruptionReason::Empty => Reason::Empty,
        DisruptionReason::Drifted => Reason::Drifted,
    };
    Budget {
        nodes: budget.nodes.clone(),
        reasons: budget
            .reasons
            .as_ref()
            .map(|reasons| reasons.iter().map(reason).collect()),
        schedule: budget.schedule.clone(),
        duration: budget
            .duration
            .as_ref()
            .map(|duration| Span(duration.millis())),
    }
}

/// Whether an empty-looking node is one that may be deleted.
async fn judge(
    shared: &Shared,
    state: &StateNode,
    budgets: &[ObservedPdb],
) -> Result<Option<Candidate>, Error> {
    let context = &shared.context;
    let Some((claim, node)) = objects(shared, state) else {
        return Ok(None);
    };
    let pods: Vec<ObservedPod> = if state.pods.is_empty() {
        Vec::new()
    } else {
        node::pods_on(shared, state.name.as_str()).await?
    };
    let pool = state
        .node_pool
        .as_ref()
        .and_then(|pool| context.node_pools.get(pool.as_str()));
    let (seen_claim, seen_node) = (observe::claim(&claim), observe::node(&node));
    let facts = NodeFacts {
        claim: Some(&seen_claim),
        node: Some(&seen_node),
        queued: false,
        deleting: state.deleting,
        nominated: state.nominated_until.is_some_and(|until| until > now()),
        pool_usable: state.node_pool.as_ref().map(|_| pool.is_some()),
        pods: &pods,
        price: state.price.unwrap_or(NanoDollarsPerHour::ZERO),
    };
    let found = match candidate(facts, budgets, Class::Graceful, now()) {
        Ok(found) => found,
        Err(Block::Silent) => return Ok(None),
        Err(Block::Told(cause)) => {
            context.recorder.publish(Event::new(
                &*node,
                Severity::Normal,
                "DisruptionBlocked",
                cause,
            ));
            return Ok(None);
        }
    };
    let with = Eligibility {
        is_static: pool
            .as_ref()
            .is_some_and(|pool| pool.spec.replicas.is_some()),
        consolidate_after: pool.as_ref().map_or(ConsolidateAfter::Never, |pool| {
            claim::consolidate_after(pool)
        }),
        consolidatable: seen_claim.is(ConditionType::Consolidatable),
    };
    match eligible(&found, with) {
        Ok(()) => Ok(Some(found)),
        Err(Ineligible::Silent) => Ok(None),
        Err(Ineligible::Told(cause)) => {
            context.recorder.publish(
                Event::new(&*node, Severity::Normal, "Unconsolidatable", cause).within(TOLD),
            );
            Ok(None)
        }
    }
}

fn objects(shared: &Shared, state: &StateNode) -> Option<(Arc<NodeClaim>, Arc<Node>)> {
    let claim = shared
        .context
        .node_claims
        .get(state.node_claim.as_ref()?.as_str())?;
    let node = shared.context.nodes.get(state.name.as_str())?;
    Some((claim, node))
}

/// Taints the node so that no pod comes, looks once more, and deletes the NodeClaim.
async fn disrupt(shared: &Shared, candidate: &Candidate) -> Result<(), Error> {
    let context = &shared.context;
    let Some(node) = context.nodes.get(candidate.node.as_str()) else {
        return Ok(());
    };
    let Some(claim) = shared.claim_of(&node) else {
        return Ok(());
    };
    let edit = NodeEdit {
        add_taints: vec![disrupted_taint()],
        ..NodeEdit::default()
    };
    if write::edit_node(&context.client, &node, None, &edit).await? == Written::Stale {
        return Ok(());
    }
    let late = node::pods_on(shared, candidate.node.as_str()).await?;
    if late.iter().any(ObservedPod::is_reschedulable) {
        tracing::info!(node = %candidate.node, "a pod came in the last moment, node is kept");
        return untaint(shared, candidate).await;
    }
    let pool = claim
        .labels()
        .get(labels::NODE_POOL)
        .cloned()
        .unwrap_or_default();
    tracing::info!(node = %candidate.node, nodeclaim = claim.name_any(), nodepool = pool, "disrupting empty node");
    let event = Event::new(
        &*claim,
        Severity::Normal,
        "DisruptionTerminating",
        "Disrupting NodeClaim: Empty",
    );
    context
        .recorder
        .publish(event.keyed(vec![claim.uid().unwrap_or_default(), "Empty".to_owned()]));
    telemetry::nodeclaim_disrupted(
        &pool,
        claim::capacity_type(&claim),
        DeleteCause::Empty.as_str(),
    );
    write::delete(&context.client, &*claim).await?;
    Ok(())
}

async fn untaint(shared: &Shared, candidate: &Candidate) -> Result<(), Error> {
    let api: kube::Api<Node> = kube::Api::all(shared.context.client.clone());
    let node = api
        .get_opt(candidate.node.as_str())
        .await
        .map_err(|source| Error::Api {
            what: format!("read node {}", candidate.node),
            source: Box::new(source),
        })?;
    if let Some(node) = node {
        let edit = NodeEdit {
            remove_taints: vec![disrupted_taint()],
            ..NodeEdit::default()
        };
        write::edit_node(&shared.context.client, &node, None, &edit).await?;
    }
    Ok(())
}
