//! From the documents' objects to the fleet that disruption decides on.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use millwright_disruption::{Fleet, FleetNode};
use millwright_lifecycle::{Change, ConditionType, ObservedClaim, ObservedNode, ObservedPod};
use millwright_model::{ClusterSnapshot, NodeClaimName, NodeName, NodePoolName, Timestamp, labels};
use millwright_state::observe;

use crate::plan::world::World;

/// Joins a snapshot of the world with its objects.
pub(super) fn fleet(world: &mut World, snapshot: Arc<ClusterSnapshot>, now: Timestamp) -> Fleet {
    if world.observed.claims.is_empty() {
        assume_claims(world);
    }
    let observed = std::mem::take(&mut world.observed);
    let by_name = |claim: ObservedClaim| (claim.name.clone(), claim);
    let mut claims: HashMap<NodeClaimName, ObservedClaim> =
        observed.claims.into_iter().map(by_name).collect();
    let by_name = |node: ObservedNode| (node.name.clone(), node);
    let mut nodes: HashMap<NodeName, ObservedNode> =
        observed.nodes.into_iter().map(by_name).collect();
    let mut pods: HashMap<NodeName, Vec<ObservedPod>> = HashMap::new();
    for (node, pod) in observed.pods {
        pods.entry(node).or_default().push(pod);
    }
    let joined = snapshot.nodes.iter().map(|state| {
        let claim = match &state.node_claim {
            Some(name) => claims.remove(name),
            None => claims.remove(&NodeClaimName(state.name.0.clone())),
        };
        let pods = pods.remove(&state.name).unwrap_or_default();
        let displaced = pods.iter().filter_map(|pod| {
            let displaced = world.state.displaced_pod(&pod.key)?;
            Some((pod.key.clone(), displaced))
        });
        FleetNode {
            claim,
            node: nodes.remove(&state.name),
            queued: false,
            displaced: displaced.collect(),
            pods,
            state: Arc::clone(state),
        }
    });
    let joined = joined.collect();
    let rules: BTreeMap<NodePoolName, _> = world
        .pools
        .iter()
        .map(|(_, pool)| {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            (name.into(), observe::disruption_rules(pool))
        })
        .collect();
    Fleet::new(snapshot, joined, rules, observed.budgets, now)
}

/// Nodes by themselves, as `kubectl get nodes` gives them: each that has the label of a NodePool
/// counts as having a NodeClaim of its name that may be consolidated.
fn assume_claims(world: &mut World) {
    use ConditionType::{Consolidatable, Initialized, Launched, Registered};
    for node in &world.observed.nodes {
        if !node.labels.contains_key(labels::NODE_POOL) {
            continue;
        }
        let mut claim = ObservedClaim {
            labels: node.labels.clone(),
            provider_id: node.provider_id.clone(),
            ..ObservedClaim::new(node.name.0.clone().into(), "".into(), node.created_at)
        };
        for kind in [Launched, Registered, Initialized, Consolidatable] {
            let holds = Change::holds(kind);
            claim.conditions.apply(&holds, node.created_at);
        }
        world.observed.claims.push(claim);
    }
    if !world.observed.claims.is_empty() {
        world.warnings.push(
            "note: the input has no NodeClaims; every node of a NodePool counts as consolidatable"
                .to_owned(),
        );
    }
}
