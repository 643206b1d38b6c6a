//! Emptiness: nodes that no pod needs are deleted, within the budgets, after they stayed empty for the
//! validation delay.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millwright_api::{
    NodeClaim, NodePool,
    conditions::{self, Conditioned},
};
use millwright_lifecycle::{
    Change, ConditionType, ObservedClaim, ObservedNode, Status,
    budget::{self, Counted, Reason, Remaining},
    candidate::{Block, Candidate, Class, NodeFacts, candidate},
    emptiness::{Eligibility, Ineligible, POLL, VALIDATION_DELAY, eligible, select, validate},
    launch::DeleteCause,
    observed::disrupted_taint,
    pdb::ObservedPdb,
    register::NodeEdit,
    termination::pause,
};
use millwright_model::{NanoDollarsPerHour, NodePoolName, StateNode};
use millwright_telemetry as telemetry;

use super::{
    Shared, claim, node, observe,
    write::{self, Error, Written},
};
use crate::{
    context::now,
    events::{DEFAULT_WINDOW, Event, Severity},
};

/// Nodes written at once.
const WORKERS: usize = 32;
/// Reason of the event that a disruption begins.
const TERMINATING: &str = "DisruptionTerminating";
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

/// Cleans up, decides, waits, decides again on fresh observations, acts.
async fn pass(shared: &Shared) -> Result<(), Error> {
    clean_up(shared).await;
    let first = observe_empty(shared);
    telemetry::disruption_eligible("empty", first.candidates.len());
    first
        .budgets
        .iter()
        .for_each(|budget| budget.publish(shared));
    let selection = select(first.candidates, &remaining(&first.budgets));
    if selection.chosen.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(pause(VALIDATION_DELAY)).await;
    let fresh = observe_empty(shared);
    let budgets = remaining(&fresh.budgets);
    let validated = validate(&selection.chosen, &fresh.candidates, &budgets);
    if validated.failed > 0 {
        telemetry::validation_failed("empty", validated.failed);
        tracing::debug!(
            failed = validated.failed,
            "nodes did not stay empty or the budget fell"
        );
    }
    if validated.valid.is_empty() || !shared.context.leadership.is_leader() {
        return Ok(());
    }
    telemetry::disruption_decided("delete", "empty", "empty");
    stream::iter(validated.valid)
        .for_each_concurrent(WORKERS, |candidate| async move {
            if let Err(error) = disrupt(shared, &candidate).await {
                tracing::warn!(node = %candidate.node, %error, "empty node could not be disrupted, will retry");
            }
        })
        .await;
    Ok(())
}

/// Takes the marks of a disruption off nodes that nobody disrupts: a process that ended between the
/// taint and the deletion left them. Nodes on their way out keep theirs.
async fn clean_up(shared: &Shared) {
    let context = &shared.context;
    let marked = context.node_claims.list().into_iter().filter_map(|claim| {
        let node_name = claim.status.as_ref().map(|s| s.node_name.clone())?;
        let node = context.nodes.get(&node_name)?;
        let leaving = claim.metadata.deletion_timestamp.is_some()
            || node.metadata.deletion_timestamp.is_some();
        let tainted = observe::node(&node).has_taint(&disrupted_taint());
        let reasoned = claim.condition(conditions::DISRUPTION_REASON).is_some();
        (!leaving && (tainted || reasoned)).then_some((claim, node))
    });
    stream::iter(marked)
        .for_each_concurrent(WORKERS, |(claim, node)| async move {
            if let Err(error) = release(shared, &claim, &node).await {
                tracing::warn!(node = node.name_any(), %error, "marks of a disruption could not be removed, will retry");
            }
        })
        .await;
}

/// Takes taint and reason of a disruption off.
async fn release(shared: &Shared, claim: &NodeClaim, node: &Node) -> Result<(), Error> {
    let client = &shared.context.client;
    if observe::node(node).has_taint(&disrupted_taint()) {
        let edit = NodeEdit {
            remove_taints: vec![disrupted_taint()],
            ..NodeEdit::default()
        };
        write::edit_node(client, node, None, &edit).await?;
    }
    let mut changed = claim.clone();
    let clear = [Change::Clear(ConditionType::DisruptionReason)];
    if claim.condition(conditions::DISRUPTION_REASON).is_some()
        && write::apply_changes(&mut changed, &clear, now())
    {
        write::status(client, claim, &changed.status).await?;
    }
    Ok(())
}

struct Empty {
    candidates: Vec<Candidate>,
    /// What the budgets of each pool allow for the reason Empty.
    budgets: Vec<PoolBudget>,
}

struct PoolBudget {
    pool: Arc<NodePool>,
    counted: Counted,
    left: Remaining,
}

impl PoolBudget {
    fn publish(&self, shared: &Shared) {
        let name = self.pool.name_any();
        let reason = Reason::Empty.as_str();
        telemetry::budget(&name, reason, self.left.allowed, self.counted.consuming);
        if self.counted.nodes == 0 || self.left.allowed > 0 {
            return;
        }
        let message =
            format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
        let event = Event::new(&*self.pool, Severity::Normal, "DisruptionBlocked", message);
        let key = vec![self.pool.uid().unwrap_or_default(), reason.to_owned()];
        shared
            .context
            .recorder
            .publish(event.keyed(key).within(Duration::from_secs(60)));
    }
}

fn remaining(budgets: &[PoolBudget]) -> BTreeMap<NodePoolName, u32> {
    budgets
        .iter()
        .map(|budget| (budget.pool.name_any().into(), budget.left.remaining))
        .collect()
}

fn observe_empty(shared: &Shared) -> Empty {
    let context = &shared.context;
    let (snapshot, _) = context
        .state()
        .snapshot(now(), context.settings.anticipation, |_| [].into());
    let budgets: Vec<ObservedPdb> = context
        .disruption_budgets
        .list()
        .iter()
        .map(|b| observe::budget(b))
        .collect();
    let pools: BTreeMap<String, Pool> = context
        .node_pools
        .list()
        .into_iter()
        .map(|pool| {
            let usable = !context.instance_types(&pool).is_empty();
            (pool.name_any(), Pool { pool, usable })
        })
        .collect();
    let mut candidates = Vec::new();
    let mut counts: BTreeMap<&str, Counted> = BTreeMap::new();
    for state in snapshot.nodes.iter().filter(|state| state.is_managed()) {
        let Some((claim, node)) = objects(shared, state) else {
            continue;
        };
        let observed = (observe::claim(&claim), observe::node(&node));
        if let Some(name) = &state.node_pool {
            counts.entry(name).or_default().count(budget::NodeFacts {
                managed: true,
                initialized: state.initialized,
                instance_terminating: observed.0.is(ConditionType::InstanceTerminating),
                ready: observed.1.ready,
                deleting: state.deleting,
            });
        }
        let pool = state.node_pool.as_ref().map(|name| pools.get(&**name));
        candidates.extend(judge(
            shared,
            state,
            (&claim, &node),
            &observed,
            pool,
            &budgets,
        ));
    }
    let budgets = pools
        .values()
        .map(|pool| {
            pool.budget(
                counts
                    .get(&*pool.pool.name_any())
                    .copied()
                    .unwrap_or_default(),
            )
        })
        .collect();
    Empty {
        candidates,
        budgets,
    }
}

struct Pool {
    pool: Arc<NodePool>,
    /// Whether it offers instance types.
    usable: bool,
}

impl Pool {
    fn budget(&self, counted: Counted) -> PoolBudget {
        let budgets = observe::disruption_rules(&self.pool).budgets;
        PoolBudget {
            pool: self.pool.clone(),
            counted,
            left: budget::remaining(&budgets, Reason::Empty, counted, now()),
        }
    }
}

/// Whether a node is one that emptiness may delete; tells why not, where people should know.
///
/// `pool` is `None` without a pool label, `Some(None)` when there is no such pool.
fn judge(
    shared: &Shared,
    state: &StateNode,
    (claim, node): (&NodeClaim, &Node),
    (seen_claim, seen_node): &(ObservedClaim, ObservedNode),
    pool: Option<Option<&Pool>>,
    budgets: &[ObservedPdb],
) -> Option<Candidate> {
    let recorder = &shared.context.recorder;
    let pods = shared.context.bound_pods.on(&node.name_any());
    let facts = NodeFacts {
        claim: Some(seen_claim),
        node: Some(seen_node),
        queued: false,
        deleting: state.deleting,
        nominated: state.nominated_until.is_some_and(|until| until > now()),
        pool_usable: pool.map(|pool| pool.is_some_and(|pool| pool.usable)),
        pods: &pods,
        price: state.price.unwrap_or(NanoDollarsPerHour::ZERO),
    };
    let tell = |reason: &'static str, cause: &str, window: Duration| {
        let on_node = Event::new(node, Severity::Normal, reason, cause);
        let on_claim = Event::new(claim, Severity::Normal, reason, cause);
        recorder.publish(on_node.within(window));
        recorder.publish(on_claim.within(window));
    };
    let found = match candidate(facts, budgets, Class::Graceful, now()) {
        Ok(found) => found,
        Err(Block::Silent) => return None,
        Err(Block::Told(cause)) => {
            tell("DisruptionBlocked", &cause, DEFAULT_WINDOW);
            return None;
        }
    };
    let pool = &pool.flatten()?.pool;
    let rules = observe::disruption_rules(pool);
    let with = Eligibility {
        is_static: rules.is_static,
        consolidate_after: rules.consolidate_after,
        consolidatable: seen_claim.is(ConditionType::Consolidatable),
    };
    match eligible(&found, with) {
        Ok(()) => Some(found),
        Err(Ineligible::Silent) => None,
        Err(Ineligible::Told(cause)) => {
            tell("Unconsolidatable", &cause, TOLD);
            None
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

/// Taints the node so that no pod comes, says why, looks once more, and deletes the NodeClaim.
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
    // What follows leaves the marks behind when it fails: the next pass takes them off.
    let mut changed = (*claim).clone();
    let reason = Change::Set {
        kind: ConditionType::DisruptionReason,
        status: Status::True,
        reason: Reason::Empty.as_str().into(),
        message: Reason::Empty.as_str().to_owned(),
    };
    write::apply_changes(&mut changed, &[reason], now());
    if write::status(&context.client, &*claim, &changed.status).await? == Written::Stale {
        return Ok(());
    }
    let late = node::pods_on(shared, candidate.node.as_str()).await?;
    if late
        .iter()
        .any(|pod| pod.is_reschedulable() && pod.eviction_cost() > 0)
    {
        tracing::info!(node = %candidate.node, "a pod came in the last moment, node is kept");
        return Ok(());
    }
    if write::delete(&context.client, &*claim).await? == Written::Stale {
        return Ok(());
    }
    tracing::info!(
        node = %candidate.node,
        nodeclaim = claim.name_any(),
        nodepool = %candidate.node_pool,
        "disrupted empty node"
    );
    let tell = |event: Event, uid: Option<String>| {
        let key = vec![uid.unwrap_or_default(), "empty".to_owned()];
        context.recorder.publish(event.keyed(key));
    };
    let of_claim = Event::new(
        &*claim,
        Severity::Normal,
        TERMINATING,
        "Disrupting NodeClaim: Empty",
    );
    let of_node = Event::new(
        &*node,
        Severity::Normal,
        TERMINATING,
        "Disrupting Node: Empty",
    );
    tell(of_claim, claim.uid());
    tell(of_node, node.uid());
    claim::count_disruption(shared, &claim, DeleteCause::Empty);
    Ok(())
}
