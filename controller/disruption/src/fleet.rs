//! The fleet as disruption sees it: one snapshot, and behind each of its nodes what the rules ask.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use millwright_lifecycle::{
    ConditionType, DisruptionRules, ObservedClaim, ObservedNode, ObservedPod,
    budget::{self, Counted, Reason},
    consolidatable,
    pdb::ObservedPdb,
};
use millwright_model::{
    ClusterSnapshot, NodeName, NodePool, NodePoolName, Pod, PodKey, StateNode, Timestamp,
};

/// What budgets leave of each NodePool; a pool without an entry has nothing left.
pub type Budgets = BTreeMap<NodePoolName, u32>;

/// A node with all that is known of it.
#[derive(Clone, Debug)]
pub struct FleetNode {
    /// As planning sees it.
    pub state: Arc<StateNode>,
    /// Its NodeClaim, if there is exactly one.
    pub claim: Option<ObservedClaim>,
    /// Its Node, if there is exactly one.
    pub node: Option<ObservedNode>,
    /// Whether it is part of a command that is under way.
    pub queued: bool,
    /// The pods bound to it, finished ones too.
    pub pods: Vec<ObservedPod>,
    /// Those of them that can be planned elsewhere, as planning sees them.
    pub displaced: HashMap<PodKey, Arc<Pod>>,
}

/// Everything that a pass decides from. Immutable; its order carries no meaning.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub(crate) snapshot: Arc<ClusterSnapshot>,
    /// In order of name.
    pub(crate) nodes: Vec<FleetNode>,
    pub(crate) rules: BTreeMap<NodePoolName, DisruptionRules>,
    pub(crate) pdbs: Vec<ObservedPdb>,
    pub(crate) now: Timestamp,
}

impl Fleet {
    /// Joins a snapshot with what is known of its nodes. `nodes` are those of the snapshot; `rules`
    /// are those of its NodePools.
    #[must_use]
    pub fn new(
        snapshot: Arc<ClusterSnapshot>,
        mut nodes: Vec<FleetNode>,
        rules: BTreeMap<NodePoolName, DisruptionRules>,
        mut pdbs: Vec<ObservedPdb>,
        now: Timestamp,
    ) -> Self {
        nodes.sort_by(|a, b| a.state.name.cmp(&b.state.name));
        for node in &mut nodes {
            node.pods.sort_by(|a, b| a.key.cmp(&b.key));
        }
        pdbs.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Self {
            snapshot,
            nodes,
            rules,
            pdbs,
            now,
        }
    }

    /// Number of nodes and NodeClaims in flight.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The NodePool of that name in the snapshot.
    pub(crate) fn pool(&self, name: &str) -> Option<&Arc<NodePool>> {
        self.snapshot
            .node_pools
            .iter()
            .find(|pool| &*pool.name == name)
    }

    /// What the budgets of each NodePool leave for a reason.
    #[must_use]
    pub fn budgets(&self, reason: Reason) -> Budgets {
        let mut counted: BTreeMap<&NodePoolName, Counted> = BTreeMap::new();
        for node in &self.nodes {
            let Some(pool) = &node.state.node_pool else {
                continue;
            };
            let terminating = |claim: &ObservedClaim| claim.is(ConditionType::InstanceTerminating);
            counted.entry(pool).or_default().count(budget::NodeFacts {
                managed: node.claim.is_some(),
                initialized: node.state.initialized,
                instance_terminating: node.claim.as_ref().is_some_and(terminating),
                ready: node.node.as_ref().is_some_and(|node| node.ready),
                deleting: node.is_leaving(),
            });
        }
        let left = |(name, rules): (&NodePoolName, &DisruptionRules)| {
            let counted = counted.get(name).copied().unwrap_or_default();
            let left = budget::remaining(&rules.budgets, reason, counted, self.now);
            (name.clone(), left.remaining)
        };
        self.rules.iter().map(left).collect()
    }

    /// Nodes whose pods changed so recently that their pool would not consolidate them: nothing
    /// moves there, or the nodes of a pool would wander without end.
    pub(crate) fn settling(&self) -> impl Iterator<Item = &NodeName> + '_ {
        self.nodes.iter().filter_map(|node| {
            let rules = self.rules.get(node.state.node_pool.as_ref()?)?;
            let marking =
                consolidatable::mark(node.claim.as_ref()?, rules.consolidate_after, self.now);
            marking.again_after.map(|_| &node.state.name)
        })
    }
}

impl FleetNode {
    /// Whether it is marked for deletion or part of a command already.
    pub(crate) fn is_leaving(&self) -> bool {
        self.state.deleting || self.queued
    }
}
