//! What would happen to the pods if some nodes were not there: one planning pass on a copy of the
//! cluster without them.
//!
//! Source: disruption specification 3.6.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use millwright_model::{
    ClusterSnapshot, NodeClaimProposal, NodeName, NodePool, NodePoolName, Plan, Pod, PodIndex,
    PodKey, ResourceName, Resources, StateNode, pod::Intake, snapshot::BoundPod,
};
use millwright_scheduling::{Packing, SolveSettings, solve};
use rustc_hash::FxHashMap;

use crate::{candidates::Member, command::Command, fleet::Fleet};

/// Pods named in a reason; the rest is counted.
const PODS_NAMED: usize = 5;

/// The cluster, ready to be planned again without some of its nodes.
#[derive(Debug)]
pub(crate) struct Simulator {
    /// Without the nodes that nothing may move to.
    base: ClusterSnapshot,
    position: FxHashMap<NodeName, usize>,
    settings: SolveSettings,
    has_usable_pool: bool,
}

/// Where the pods would go.
#[derive(Debug)]
pub(crate) struct Simulation {
    /// NodeClaims that would be needed.
    pub(crate) claims: Vec<NodeClaimProposal>,
    /// Existing nodes with the pods that they would take.
    pub(crate) to_existing: BTreeMap<NodeName, Vec<PodKey>>,
    /// Running pods that would have no place, and why; empty when all is well.
    pub(crate) unplaced: Vec<(PodKey, String)>,
    pods: Vec<Arc<Pod>>,
}

impl Simulator {
    /// Consolidation decides by Karpenter's packing, whatever the settings say about packing: it
    /// asks whether there is a place, and the answer must be the same as next time.
    pub(crate) fn new(fleet: &Fleet, settings: &SolveSettings) -> Self {
        let settling: HashSet<&NodeName> = fleet.settling().collect();
        let mut base = (*fleet.snapshot).clone();
        for at in (0..base.nodes.len()).rev() {
            let settles = |node: &Arc<StateNode>| settling.contains(&node.name);
            if base.nodes.get(at).is_some_and(settles) {
                base.nodes.swap_remove(at);
            }
        }
        let position = base.nodes.iter().enumerate();
        Self {
            position: position.map(|(at, node)| (node.name.clone(), at)).collect(),
            settings: SolveSettings {
                packing: Packing::Karpenter,
                ..settings.clone()
            },
            has_usable_pool: base.node_pools.iter().any(|pool| is_usable(pool)),
            base,
        }
    }

    /// Plans without `removed`. Their room, their share of limits and their daemons are gone;
    /// their pods need a place, like those that wait and those on nodes that are going away.
    pub(crate) fn without(&self, removed: &[&Member]) -> Simulation {
        let mut snapshot = self.base.clone();
        let nodes = removed
            .iter()
            .filter_map(|member| self.position.get(&member.candidate.node).copied());
        let mut nodes: Vec<usize> = nodes.collect();
        // From the back, because the last node takes the place of one that is removed.
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        for at in nodes {
            if let Some(node) = snapshot.nodes.swap_remove(at) {
                release_limits(&mut snapshot, &node);
            }
        }
        for pod in removed.iter().flat_map(|member| &member.pods) {
            snapshot.pods.push(Arc::clone(pod));
        }
        let plan = solve(&snapshot, &self.settings).plan;
        self.read(&snapshot, plan, removed)
    }

    fn read(&self, snapshot: &ClusterSnapshot, plan: Plan, removed: &[&Member]) -> Simulation {
        let pods: Vec<Arc<Pod>> = snapshot.pods.iter().cloned().collect();
        let pod = |at: PodIndex| pods.get(at.0 as usize);
        let mut unplaced = Vec::new();
        for group in &plan.unschedulable {
            let reasons: Vec<String> = group.reasons.iter().map(ToString::to_string).collect();
            // A pod that waits already may go on waiting.
            let running = group.pods.iter().filter_map(|at| pod(*at));
            let running = running.filter(|pod| matches!(pod.intake, Intake::Rescheduled { .. }));
            unplaced.extend(running.map(|pod| (pod.key.clone(), reasons.join("; "))));
        }
        let removed: HashSet<&NodeName> = removed.iter().map(|m| &m.candidate.node).collect();
        let is_removed = |pod: &Arc<Pod>| matches!(&pod.intake, Intake::Rescheduled { from } if removed.contains(from));
        let mut to_existing = BTreeMap::new();
        for nomination in plan.nominations {
            let node = self.position.get(&nomination.node);
            let node = node.and_then(|at| self.base.nodes.get(*at));
            let ready = node.is_some_and(|node| node.initialized);
            let taken: Vec<&Arc<Pod>> = nomination.pods.iter().filter_map(|at| pod(*at)).collect();
            for pod in taken.iter().filter(|pod| !ready && is_removed(pod)) {
                let claim = node.and_then(|node| node.node_claim.as_ref());
                let claim = claim.map(|claim| claim.as_str()).unwrap_or_default();
                let why = format!(
                    "would schedule against uninitialized nodeclaim/{claim}, node/{}",
                    nomination.node
                );
                unplaced.push((pod.key.clone(), why));
            }
            let mut keys: Vec<PodKey> = taken.iter().map(|pod| pod.key.clone()).collect();
            keys.sort_unstable();
            to_existing.insert(nomination.node, keys);
        }
        unplaced.sort_unstable();
        Simulation {
            claims: plan.node_claims,
            to_existing,
            unplaced,
            pods,
        }
    }

    /// The cluster that is planned again.
    pub(crate) const fn base(&self) -> &ClusterSnapshot {
        &self.base
    }

    /// Takes nodes away that go without a plan for their pods, and with them their room.
    pub(crate) fn drop_nodes<'n>(&mut self, nodes: impl Iterator<Item = &'n NodeName>) {
        let mut at: Vec<usize> = nodes
            .filter_map(|node| self.position.get(node).copied())
            .collect();
        at.sort_unstable_by(|a, b| b.cmp(a));
        for at in at {
            if let Some(node) = self.base.nodes.swap_remove(at) {
                release_limits(&mut self.base, &node);
            }
        }
        let position = self.base.nodes.iter().enumerate();
        self.position = position.map(|(at, node)| (node.name.clone(), at)).collect();
    }

    /// Goes on from what a command leaves: its candidates are gone, pods are where it puts them,
    /// and its replacements have taken their share of limits. `members` know the candidates' pods.
    pub(crate) fn apply(&mut self, command: &Command, members: &[&Member]) {
        let moving = members.iter().flat_map(|member| &member.pods);
        let known: FxHashMap<PodKey, Arc<Pod>> = self
            .base
            .pods
            .iter()
            .chain(moving)
            .map(|pod| (pod.key.clone(), Arc::clone(pod)))
            .collect();
        for (node, keys) in &command.to_existing_nodes {
            let Some(at) = self.position.get(node) else {
                continue;
            };
            let Some(mut state) = self.base.nodes.get(*at).map(|node| (**node).clone()) else {
                continue;
            };
            let mut pods = state.pods.to_vec();
            for pod in keys.iter().filter_map(|key| known.get(key)) {
                state.requested.add(&pod.spec.requests);
                state.workload_pods += 1;
                pods.push(BoundPod {
                    key: pod.key.clone(),
                    spec: Arc::clone(&pod.spec),
                    is_daemon: false,
                    is_terminating: false,
                });
            }
            state.pods = pods.into();
            self.base.nodes.replace(*at, Arc::new(state));
        }
        self.drop_nodes(command.candidates.iter().map(|candidate| &candidate.node));
        let on_new = command.replacements.iter().flat_map(|r| &r.pods);
        let placed: HashSet<&PodKey> = command
            .to_existing_nodes
            .values()
            .flatten()
            .chain(on_new)
            .collect();
        for at in (0..self.base.pods.len()).rev() {
            let is_placed = |pod: &Arc<Pod>| placed.contains(&pod.key);
            if self.base.pods.get(at).is_some_and(is_placed) {
                self.base.pods.swap_remove(at);
            }
        }
        for replacement in &command.replacements {
            let mut largest = Resources::new().with(ResourceName::Nodes, 1);
            replacement
                .instance_types
                .iter()
                .for_each(|t| largest.raise_to(&t.capacity));
            self.change_usage(&replacement.node_pool.name, &largest);
        }
    }

    fn change_usage(&mut self, name: &NodePoolName, add: &Resources) {
        let changed = self.base.node_pools.iter().map(|pool| {
            if pool.name != *name || pool.limits.is_none() {
                return Arc::clone(pool);
            }
            let mut pool = NodePool::clone(pool);
            pool.usage.add(add);
            Arc::new(pool)
        });
        self.base.node_pools = changed.collect();
    }

    /// Number of nodes that are planned for.
    pub(crate) const fn len(&self) -> usize {
        self.base.nodes.len()
    }

    /// Whether any NodePool can open nodes; without one, nothing is simulated.
    pub(crate) const fn has_usable_pool(&self) -> bool {
        self.has_usable_pool
    }
}

impl Simulation {
    /// Names of the pods of a claim, in order.
    pub(crate) fn keys(&self, claim: &NodeClaimProposal) -> Vec<PodKey> {
        let pods = claim.pods.iter();
        let pods = pods.filter_map(|at| self.pods.get(at.0 as usize));
        let mut keys: Vec<PodKey> = pods.map(|pod| pod.key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// Why some running pods would have no place: at most [`PODS_NAMED`] of them.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.unplaced.is_empty() {
            return None;
        }
        let named = self.unplaced.iter().take(PODS_NAMED);
        let mut parts: Vec<String> = named.map(|(pod, why)| format!("{pod}: {why}")).collect();
        if let Some(others) = self
            .unplaced
            .len()
            .checked_sub(PODS_NAMED)
            .filter(|n| *n > 0)
        {
            parts.push(format!("and {others} other(s)"));
        }
        Some(format!("Not all pods would schedule, {}", parts.join("; ")))
    }
}

fn is_usable(pool: &NodePool) -> bool {
    pool.ready && !pool.deleting && !pool.is_static && !pool.instance_types.is_empty()
}

/// Gives back what a node takes of its pool's limits.
fn release_limits(snapshot: &mut ClusterSnapshot, node: &StateNode) {
    let Some(name) = &node.node_pool else { return };
    let limited = |pool: &Arc<NodePool>| pool.name == *name && pool.limits.is_some();
    if !snapshot.node_pools.iter().any(limited) || node.deleting {
        return;
    }
    let release = |pool: &Arc<NodePool>| {
        if !limited(pool) {
            return Arc::clone(pool);
        }
        let mut pool = NodePool::clone(pool);
        pool.usage.subtract(&node.capacity);
        Arc::new(pool)
    };
    snapshot.node_pools = snapshot.node_pools.iter().map(release).collect();
}
