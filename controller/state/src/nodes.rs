//! Nodes and NodeClaims, joined by provider id.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use millwright_model::{
    Chunks, InstanceType, NodeClaimName, NodeName, NodePoolName, ProviderId, ResourceName,
    Resources, StateNode, Timestamp, labels, snapshot::BoundPod,
};

use crate::{
    convert::{ClaimFacts, NodeFacts, state_node},
    positions::Positions,
};

/// Identity of an entry: its NodeClaim if it has one, else its Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EntryKey {
    Claim(NodeClaimName),
    Node(NodeName),
}

/// What is known of a node before it is launched, from the instance types that it may become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prospect {
    /// No type has a larger capacity; limits count this much.
    most: Resources,
    /// Every type has at least this room for pods, which later plans may therefore use.
    least: Resources,
}

impl Prospect {
    /// The prospect of a node that becomes one of these types.
    #[must_use]
    pub fn of(instance_types: &[Arc<InstanceType>]) -> Self {
        let mut most = Resources::new();
        for instance_type in instance_types {
            most.raise_to(&instance_type.capacity);
        }
        let rooms = instance_types.iter().map(|own| own.allocatable());
        let lesser = |a: Resources, b: Resources| {
            a.iter()
                .map(|(name, amount)| (name.clone(), amount.min(b.get(name))))
                .collect()
        };
        Self {
            most,
            least: rooms.reduce(lesser).unwrap_or_default(),
        }
    }
}

/// All nodes and NodeClaims.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    nodes: BTreeMap<NodeName, NodeFacts>,
    claims: BTreeMap<NodeClaimName, ClaimFacts>,
    node_by_provider: HashMap<ProviderId, NodeName>,
    claim_by_provider: HashMap<ProviderId, NodeClaimName>,
    /// What unlaunched NodeClaims may turn out to be.
    prospects: HashMap<NodeClaimName, Prospect>,
    nominated: HashMap<NodeName, Timestamp>,
    listed: Chunks<Arc<StateNode>>,
    positions: Positions<EntryKey>,
    dirty: HashSet<EntryKey>,
    usage: BTreeMap<NodePoolName, Resources>,
}

impl Nodes {
    pub(crate) fn node_names(&self) -> HashSet<NodeName> {
        self.nodes.keys().cloned().collect()
    }

    pub(crate) fn claim_names(&self) -> HashSet<NodeClaimName> {
        self.claims.keys().cloned().collect()
    }

    pub(crate) fn apply_node(&mut self, facts: NodeFacts) {
        if !is_usable(&facts) {
            self.delete_node(&facts.name);
            return;
        }
        if self.nodes.get(&facts.name) == Some(&facts) {
            return;
        }
        self.delete_node(&facts.name);
        if let Some(provider) = &facts.provider_id {
            self.node_by_provider
                .insert(provider.clone(), facts.name.clone());
        }
        let name = facts.name.clone();
        self.nodes.insert(name.clone(), facts);
        self.touch_node(&name);
    }

    pub(crate) fn delete_node(&mut self, name: &NodeName) {
        self.touch_node(name);
        if let Some(provider) = self.nodes.remove(name).and_then(|node| node.provider_id) {
            self.node_by_provider.remove(&provider);
        }
    }

    pub(crate) fn apply_claim(&mut self, facts: ClaimFacts) {
        if self.claims.get(&facts.name) == Some(&facts) {
            return;
        }
        self.touch_claim(&facts.name);
        let prospect = self.prospects.remove(&facts.name);
        self.delete_claim(&facts.name);
        if let Some(provider) = &facts.provider_id {
            self.claim_by_provider
                .insert(provider.clone(), facts.name.clone());
        } else if let Some(prospect) = prospect {
            self.prospects.insert(facts.name.clone(), prospect);
        }
        let name = facts.name.clone();
        self.claims.insert(name.clone(), facts);
        self.touch_claim(&name);
    }

    pub(crate) fn delete_claim(&mut self, name: &NodeClaimName) {
        self.touch_claim(name);
        self.prospects.remove(name);
        if let Some(provider) = self.claims.remove(name).and_then(|claim| claim.provider_id) {
            self.claim_by_provider.remove(&provider);
        }
    }

    pub(crate) fn expect(&mut self, name: &NodeClaimName, prospect: Prospect) {
        self.prospects.insert(name.clone(), prospect);
        self.touch_claim(name);
    }

    pub(crate) fn nominate(&mut self, name: &NodeName, until: Timestamp) {
        let slot = self.nominated.entry(name.clone()).or_default();
        *slot = (*slot).max(until);
        self.touch_name(name);
    }

    /// Marks whatever goes by a name, Node or NodeClaim, as changed.
    pub(crate) fn touch_name(&mut self, name: &NodeName) {
        self.touch_node(name);
        self.touch_claim(&NodeClaimName(name.0.clone()));
    }

    /// Whether an entry of this name (Node or unregistered NodeClaim) exists.
    pub(crate) fn is_known(&self, name: &NodeName) -> bool {
        self.nodes.contains_key(name) || self.claims.contains_key(&NodeClaimName(name.0.clone()))
    }

    /// Whether the Node is on its way out.
    pub(crate) fn is_deleting(&self, name: &NodeName) -> bool {
        let Some(node) = self.nodes.get(name) else {
            return false;
        };
        self.claim_of(node)
            .map_or(node.deleting, |claim| claim.deleting)
    }

    /// Marks the entry of a Node as changed, both as a Node and as its NodeClaim.
    pub(crate) fn touch_node(&mut self, name: &NodeName) {
        self.dirty.insert(EntryKey::Node(name.clone()));
        if let Some(claim) = self.nodes.get(name).and_then(|node| self.claim_of(node)) {
            let key = EntryKey::Claim(claim.name.clone());
            self.dirty.insert(key);
        }
    }

    fn touch_claim(&mut self, name: &NodeClaimName) {
        self.dirty.insert(EntryKey::Claim(name.clone()));
        let provider = self
            .claims
            .get(name)
            .and_then(|claim| claim.provider_id.as_ref());
        if let Some(node) = provider.and_then(|provider| self.node_by_provider.get(provider)) {
            self.dirty.insert(EntryKey::Node(node.clone()));
        }
    }

    fn claim_of(&self, node: &NodeFacts) -> Option<&ClaimFacts> {
        self.claims
            .get(self.claim_by_provider.get(node.provider_id.as_ref()?)?)
    }

    fn node_of(&self, claim: &ClaimFacts) -> Option<&NodeFacts> {
        self.nodes
            .get(self.node_by_provider.get(claim.provider_id.as_ref()?)?)
    }

    /// The Node of a NodeClaim, if both are known.
    pub(crate) fn node_of_claim(&self, name: &NodeClaimName) -> Option<NodeName> {
        self.claims
            .get(name)
            .and_then(|claim| self.node_of(claim))
            .map(|node| node.name.clone())
    }

    /// The list of nodes, brought up to date. `pods_on` gives the pods bound to a node; `became`
    /// learns of each other name that an entry may have had, and of the one it goes by now.
    pub(crate) fn publish(
        &mut self,
        now: Timestamp,
        pods_on: impl Fn(&NodeName) -> Arc<[BoundPod]>,
        mut became: impl FnMut(&NodeName, &NodeName),
    ) -> Chunks<Arc<StateNode>> {
        let expired: Vec<NodeName> = self
            .nominated
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in expired {
            self.nominated.remove(&name);
            self.touch_name(&name);
        }
        for key in std::mem::take(&mut self.dirty) {
            let entry = self.entry(&key, &pods_on).map(Arc::new);
            let before = self.positions.get(&self.listed, &key).cloned();
            for (node, sign) in [(before.as_ref(), -1), (entry.as_ref(), 1)] {
                self.account(node.map(AsRef::as_ref), sign);
            }
            if let (EntryKey::Claim(claim), Some(entry)) = (&key, &entry) {
                let names = [Some(NodeName(claim.0.clone())), self.node_of_claim(claim)];
                for other in names.iter().flatten().filter(|name| **name != entry.name) {
                    became(other, &entry.name);
                }
            }
            self.positions
                .set(&mut self.listed, key, entry, |node| key_of(node));
        }
        self.listed.clone()
    }

    fn entry(
        &self,
        key: &EntryKey,
        pods_on: &impl Fn(&NodeName) -> Arc<[BoundPod]>,
    ) -> Option<StateNode> {
        let (node, claim) = match key {
            EntryKey::Claim(name) => {
                let claim = self.claims.get(name)?;
                (self.node_of(claim), Some(claim))
            }
            EntryKey::Node(name) => {
                let node = self.nodes.get(name)?;
                if self.claim_of(node).is_some() {
                    return None;
                }
                (Some(node), None)
            }
        };
        let pods = node.map_or_else(|| [].into(), |node| pods_on(&node.name));
        let mut entry = state_node(node, claim, pods)?;
        // A nomination made before the Node registered names the NodeClaim.
        let by_claim = claim.map(|claim| NodeName(claim.name.0.clone()));
        entry.nominated_until = [Some(&entry.name), by_claim.as_ref()]
            .into_iter()
            .filter_map(|name| self.nominated.get(name?).copied())
            .max();
        if !entry.launched
            && let Some(prospect) = claim.and_then(|claim| self.prospects.get(&claim.name))
        {
            entry.capacity = prospect.most.clone().with(ResourceName::Nodes, 1);
            entry.allocatable.raise_to(&prospect.least);
        }
        Some(entry)
    }

    /// Compares, right after a publication, indexes and totals with a count from what is listed and
    /// known; says what differs.
    pub(crate) fn inconsistencies(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut usage: BTreeMap<NodePoolName, Resources> = BTreeMap::new();
        let mut listed = HashSet::new();
        for node in self.listed.iter() {
            let key = key_of(node);
            if self.positions.get(&self.listed, &key) != Some(node) {
                found.push(format!("{key:?}: the position does not lead to the entry"));
            }
            if !listed.insert(key.clone()) {
                found.push(format!("{key:?}: listed twice"));
            }
            if let (Some(pool), false) = (&node.node_pool, node.deleting) {
                usage.entry(pool.clone()).or_default().add(&node.capacity);
            }
        }
        for pool in usage.keys().chain(self.usage.keys()) {
            let mut counted = usage.get(pool).cloned().unwrap_or_default();
            counted.drop_zeros();
            if counted != self.usage(pool) {
                let kept = self.usage(pool);
                found.push(format!(
                    "nodepool {pool}: usage is {kept}, counted {counted}"
                ));
            }
        }
        for node in self.nodes.values() {
            let joined = self
                .claim_of(node)
                .map(|claim| EntryKey::Claim(claim.name.clone()));
            let key = joined.unwrap_or_else(|| EntryKey::Node(node.name.clone()));
            if !listed.contains(&key) {
                found.push(format!("node {}: not listed", node.name));
            }
        }
        for name in self.claims.keys() {
            if !listed.contains(&EntryKey::Claim(name.clone())) {
                found.push(format!("nodeclaim {name}: not listed"));
            }
        }
        found
    }

    fn account(&mut self, node: Option<&StateNode>, sign: i64) {
        let Some(node) = node.filter(|node| !node.deleting) else {
            return;
        };
        if let Some(pool) = &node.node_pool {
            self.usage
                .entry(pool.clone())
                .or_default()
                .add_times(&node.capacity, sign);
        }
    }

    /// What a pool's non-deleting nodes use of its limits, as of the last publish.
    pub(crate) fn usage(&self, pool: &NodePoolName) -> Resources {
        let mut usage = self.usage.get(pool).cloned().unwrap_or_default();
        usage.drop_zeros();
        usage
    }
}

/// Whether labels have propagated far enough to judge the node by them (disruption specification
/// 2.3): a node of ours needs a provider id, and an instance type until it is initialised.
fn is_usable(node: &NodeFacts) -> bool {
    let ours = node.labels.contains_key(labels::NODE_POOL);
    let initialized = node
        .labels
        .get(labels::INITIALIZED)
        .is_some_and(|value| &**value == "true");
    !ours
        || (node.provider_id.is_some()
            && (initialized || node.labels.contains_key(labels::INSTANCE_TYPE)))
}

fn key_of(node: &StateNode) -> EntryKey {
    match &node.node_claim {
        Some(claim) => EntryKey::Claim(claim.clone()),
        None => EntryKey::Node(node.name.clone()),
    }
}
