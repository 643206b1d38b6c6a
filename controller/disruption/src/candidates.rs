//! Which nodes may be disrupted, and by which method.
//!
//! The rules for a candidate as such are lifecycle's ([`millwright_lifecycle::candidate`]); this
//! module joins them with prices and pods, and adds the filters of the consolidation methods.
//!
//! Source: disruption specification 3.2 and 3.3.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use millwright_lifecycle::{
    ConditionType, ConsolidationPolicy, ObservedPod,
    candidate::{Block, COST_ONE, Candidate, Class, NodeFacts, candidate},
    consolidatable::ConsolidateAfter,
    emptiness::{Eligibility, Ineligible, eligible},
    pdb::is_currently_reschedulable,
};
use millwright_model::{
    CapacityType, InstanceType, Name, NanoDollarsPerHour, NodeName, NodePoolName, Pod, labels,
};

use crate::{
    fleet::{Fleet, FleetNode},
    price,
};

/// A candidate with what consolidation asks of it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) candidate: Candidate,
    /// Its type, if its pool still offers it.
    pub(crate) instance_type: Option<Arc<InstanceType>>,
    /// By label.
    pub(crate) capacity_type: Option<CapacityType>,
    /// By label.
    pub(crate) zone: Option<Name>,
    /// Pods that need a new place when the node goes, in order.
    pub(crate) pods: Vec<Arc<Pod>>,
}

/// What one pass knows about every node.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// In order of saving per disruption, the best first.
    pub(crate) members: Vec<Member>,
    /// Positions of those that emptiness may take, in that order.
    pub(crate) empty: Vec<usize>,
    /// Positions of those that multi-node and single-node consolidation may take.
    pub(crate) consolidatable: Vec<usize>,
    /// Why the others are not taken.
    pub(crate) skipped: BTreeMap<NodeName, Vec<String>>,
}

/// Judges every node of the fleet.
pub(crate) fn candidates(fleet: &Fleet) -> Candidates {
    let types = TypesByPool::new(fleet);
    let mut found = Candidates::default();
    let mut judged = Vec::new();
    for node in &fleet.nodes {
        match member(fleet, node, &types) {
            Ok(member) => judged.push((member, node)),
            Err(why) => {
                found.skipped.insert(node.state.name.clone(), vec![why]);
            }
        }
    }
    judged.sort_by(|(a, _), (b, _)| a.candidate.by_savings(&b.candidate));
    for (at, (member, node)) in judged.iter().enumerate() {
        let mut reasons = Vec::new();
        match emptiness_filter(fleet, node, member) {
            Ok(()) => found.empty.push(at),
            Err(why) => reasons.extend(why),
        }
        match consolidation_filter(fleet, node, member) {
            Ok(()) => found.consolidatable.push(at),
            Err(why) => reasons.extend(why),
        }
        let is_taken = found.empty.last() == Some(&at) || found.consolidatable.last() == Some(&at);
        if !is_taken {
            reasons.dedup();
            found.skipped.insert(node.state.name.clone(), reasons);
        }
    }
    found.members = judged.into_iter().map(|(member, _)| member).collect();
    found
}

/// Instance types by NodePool and name.
struct TypesByPool<'f>(HashMap<&'f NodePoolName, HashMap<&'f str, &'f Arc<InstanceType>>>);

impl<'f> TypesByPool<'f> {
    fn new(fleet: &'f Fleet) -> Self {
        let pools = fleet.snapshot.node_pools.iter().map(|pool| {
            let types = pool.instance_types.iter().map(|t| (&*t.name, t));
            (&pool.name, types.collect())
        });
        Self(pools.collect())
    }

    fn find(&self, pool: &NodePoolName, name: &str) -> Option<&'f Arc<InstanceType>> {
        self.0.get(pool)?.get(name).copied()
    }

    /// `None` without a pool.
    fn is_usable(&self, pool: Option<&NodePoolName>) -> Option<bool> {
        let types = self.0.get(pool?);
        Some(types.is_some_and(|types| !types.is_empty()))
    }
}

fn member(fleet: &Fleet, node: &FleetNode, types: &TypesByPool<'_>) -> Result<Member, String> {
    let label = |key: &str| node.state.labels.get(key).filter(|value| !value.is_empty());
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool());
    let instance_type = label(labels::INSTANCE_TYPE)
        .zip(pool.as_ref())
        .and_then(|(name, pool)| types.find(pool, name));
    let capacity_type = label(labels::CAPACITY_TYPE).and_then(|text| CapacityType::parse(text));
    let zone = label(labels::ZONE);
    let price = match (instance_type, zone, capacity_type) {
        (Some(t), Some(zone), Some(capacity_type)) => price::of_node(t, zone, capacity_type),
        _ => None,
    };
    let facts = NodeFacts {
        claim: node.claim.as_ref(),
        node: node.node.as_ref(),
        queued: node.queued,
        deleting: node.state.deleting,
        nominated: node.state.nominated_until.is_some_and(|at| at > fleet.now),
        pool_usable: types.is_usable(pool.as_ref()),
        pods: &node.pods,
        price: price.unwrap_or(NanoDollarsPerHour::ZERO),
    };
    let candidate =
        candidate(facts, &fleet.pdbs, Class::Graceful, fleet.now).map_err(|block| match block {
            Block::Told(why) => why,
            Block::Silent if node.queued => "Node is being disrupted already".to_owned(),
            Block::Silent => "Node isn't managed through a NodeClaim".to_owned(),
        })?;
    Ok(Member {
        candidate,
        instance_type: instance_type.cloned(),
        capacity_type,
        zone: zone.cloned(),
        pods: displaced(fleet, node)?,
    })
}

/// The pods that must find a place elsewhere. One that planning does not know keeps its node: it
/// would be lost.
fn displaced(fleet: &Fleet, node: &FleetNode) -> Result<Vec<Arc<Pod>>, String> {
    let moves = |pod: &&ObservedPod| is_currently_reschedulable(pod, &fleet.pdbs, fleet.now);
    let moving = node.pods.iter().filter(moves);
    moving
        .map(|pod| {
            let known = node.displaced.get(&pod.key);
            known
                .cloned()
                .ok_or_else(|| format!("Pod is not known to planning yet (Pod={})", pod.key))
        })
        .collect()
}

/// Emptiness takes empty nodes of dynamic pools, whatever their policy.
fn emptiness_filter(fleet: &Fleet, node: &FleetNode, member: &Member) -> Result<(), Vec<String>> {
    let Some(rules) = fleet.rules.get(&member.candidate.node_pool) else {
        return Err(Vec::new());
    };
    let with = Eligibility {
        is_static: rules.is_static,
        consolidate_after: rules.consolidate_after,
        consolidatable: is_consolidatable(node),
    };
    eligible(&member.candidate, with).map_err(|why| match why {
        Ineligible::Told(why) => vec![why],
        Ineligible::Silent => Vec::new(),
    })
}

fn is_consolidatable(node: &FleetNode) -> bool {
    let holds =
        |claim: &millwright_lifecycle::ObservedClaim| claim.is(ConditionType::Consolidatable);
    node.claim.as_ref().is_some_and(holds)
}

/// Multi-node and single-node consolidation, in the order of the rules: the first against the node
/// is the one told.
fn consolidation_filter(
    fleet: &Fleet,
    node: &FleetNode,
    member: &Member,
) -> Result<(), Vec<String>> {
    let pool = &member.candidate.node_pool;
    let Some(rules) = fleet.rules.get(pool) else {
        return Err(Vec::new());
    };
    let told = |why: String| Err(vec![why]);
    if rules.is_static {
        return told(format!("NodePool \"{pool}\" is static"));
    }
    if member.instance_type.is_none() {
        let name = node.state.labels.get(labels::INSTANCE_TYPE);
        let name = name.map(|name| &**name).unwrap_or_default();
        return told(format!("Instance Type \"{name}\" not found"));
    }
    for (key, is_there) in [
        (labels::CAPACITY_TYPE, member.capacity_type.is_some()),
        (labels::ZONE, member.zone.is_some()),
    ] {
        if !is_there {
            return told(format!("Node does not have label \"{key}\""));
        }
    }
    if rules.consolidate_after == ConsolidateAfter::Never {
        return told(format!("NodePool \"{pool}\" has consolidation disabled"));
    }
    if member.candidate.is_empty() {
        // Emptiness has it, or says why not.
        return Err(unripe(node));
    }
    if rules.policy == ConsolidationPolicy::WhenEmpty {
        return told(format!(
            "NodePool \"{pool}\" has non-empty consolidation disabled"
        ));
    }
    if is_consolidatable(node) {
        Ok(())
    } else {
        Err(unripe(node))
    }
}

fn unripe(node: &FleetNode) -> Vec<String> {
    if is_consolidatable(node) {
        return Vec::new();
    }
    vec![
        "NodeClaim isn't consolidatable yet: consolidateAfter counts from its last pod event"
            .into(),
    ]
}

/// What disrupting a node that is no candidate would cost: `1 + the sum of its pods' positive
/// costs`, daemons excepted.
pub(crate) fn undisturbed_cost(node: &FleetNode) -> i64 {
    let pods = node
        .pods
        .iter()
        .filter(|pod| !pod.terminal && !pod.is_daemon);
    COST_ONE + pods.map(|pod| pod.eviction_cost().max(0)).sum::<i64>()
}
