//! Provider ids of NodeClaims and Nodes, and the flow of keys from watches to queues.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millwright_api::{NodeClaim, labels};
use tokio::task::JoinSet;

use super::Shared;

/// Pools are counted this long after a change, so that a burst of nodes costs one status write.
const POOL_DEBOUNCE: Duration = Duration::from_millis(500);

/// Which NodeClaims and Nodes carry a provider id. More than one of either is a broken invariant
/// that the rules know how to handle.
#[derive(Debug, Default)]
pub(super) struct Index {
    maps: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    claims: HashMap<String, BTreeSet<String>>,
    nodes: HashMap<String, BTreeSet<String>>,
    id_of_claim: HashMap<String, String>,
    id_of_node: HashMap<String, String>,
    generation_of_pool: HashMap<String, i64>,
}

fn set(
    by_id: &mut HashMap<String, BTreeSet<String>>,
    id_of: &mut HashMap<String, String>,
    name: &str,
    id: Option<String>,
) -> Option<String> {
    let old = match &id {
        Some(id) => id_of.insert(name.to_owned(), id.clone()),
        None => id_of.remove(name),
    };
    if let Some(names) = old.as_ref().and_then(|old| by_id.get_mut(old)) {
        names.remove(name);
        if names.is_empty() {
            old.as_ref().map(|old| by_id.remove(old));
        }
    }
    if let Some(id) = &id {
        by_id.entry(id.clone()).or_default().insert(name.to_owned());
    }
    id.or(old)
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_claim(&self, name: &str, claim: Option<&NodeClaim>) -> Option<String> {
        let id = claim
            .and_then(|c| c.status.as_ref())
            .map(|s| s.provider_id.clone())
            .filter(|id| !id.is_empty());
        let maps = &mut *self.lock();
        set(&mut maps.claims, &mut maps.id_of_claim, name, id)
    }

    fn set_node(&self, name: &str, node: Option<&Node>) -> Option<String> {
        let id = node
            .and_then(|n| n.spec.as_ref()?.provider_id.clone())
            .filter(|id| !id.is_empty());
        let maps = &mut *self.lock();
        set(&mut maps.nodes, &mut maps.id_of_node, name, id)
    }

    /// Remembers the generation of a pool; whether it is another one than before.
    fn set_pool(&self, name: &str, generation: Option<i64>) -> bool {
        let pools = &mut self.lock().generation_of_pool;
        let old = match generation {
            Some(generation) => pools.insert(name.to_owned(), generation),
            None => pools.remove(name),
        };
        old != generation
    }

    /// Names of the NodeClaims of a provider id.
    pub(super) fn claims_of(&self, provider_id: &str) -> Vec<String> {
        self.lock()
            .claims
            .get(provider_id)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Names of the Nodes of a provider id.
    pub(super) fn nodes_of(&self, provider_id: &str) -> Vec<String> {
        self.lock()
            .nodes
            .get(provider_id)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}

/// Feeds changed keys to the queues that care.
pub(super) fn start(shared: &Shared, tasks: &mut JoinSet<()>) {
    let s = shared.clone();
    tasks.spawn(async move {
        let claims = s.context.node_claims.clone();
        claims.for_each_key(|key| claim_changed(&s, key)).await;
    });
    let s = shared.clone();
    tasks.spawn(async move {
        let nodes = s.context.nodes.clone();
        nodes.for_each_key(|key| node_changed(&s, key)).await;
    });
    let s = shared.clone();
    tasks.spawn(async move {
        let pools = s.context.node_pools.clone();
        pools.for_each_key(|key| pool_changed(&s, key)).await;
    });
    let s = shared.clone();
    tasks.spawn(async move {
        let classes = s.context.node_classes.clone();
        classes
            .for_each_key(|key| {
                s.classes.add(key);
                s.context
                    .node_pools
                    .list()
                    .iter()
                    .for_each(|pool| s.pools.add(pool.name_any()));
                s.context.arrivals.notify_one();
            })
            .await;
    });
}

/// Whether a claim is consolidatable depends on its pool's spec; the status, which is written every
/// few seconds, concerns no claim.
fn pool_changed(shared: &Shared, key: &str) {
    shared.pools.add(key);
    let generation = shared
        .context
        .node_pools
        .get(key)
        .map(|p| p.metadata.generation);
    if !shared.index.set_pool(key, generation.flatten()) {
        return;
    }
    let claims = shared.context.node_claims.list();
    let of_pool = |claim: &&Arc<NodeClaim>| {
        claim.labels().get(labels::NODE_POOL).map(String::as_str) == Some(key)
    };
    for claim in claims.iter().filter(of_pool) {
        shared.claims.add(claim.name_any());
    }
}

fn claim_changed(shared: &Shared, key: &str) {
    let claim = shared.context.node_claims.get(key);
    let id = shared.index.set_claim(key, claim.as_deref());
    shared.claims.add(key);
    for node in id.iter().flat_map(|id| shared.index.nodes_of(id)) {
        shared.nodes.add(node);
    }
    if let Some(claim) = claim {
        count_pool(shared, claim.labels().get(labels::NODE_POOL));
        if claim.metadata.deletion_timestamp.is_some() {
            shared
                .classes
                .add_after(claim.spec.node_class_ref.name.clone(), POOL_DEBOUNCE);
        }
    }
}

fn node_changed(shared: &Shared, key: &str) {
    let node = shared.context.nodes.get(key);
    let id = shared.index.set_node(key, node.as_deref());
    for claim in id.iter().flat_map(|id| shared.index.claims_of(id)) {
        shared.claims.add(claim);
    }
    if let Some(node) = node {
        count_pool(shared, node.labels().get(labels::NODE_POOL));
        if node.metadata.deletion_timestamp.is_some() {
            shared.nodes.add(key);
        }
    }
}

fn count_pool(shared: &Shared, pool: Option<&String>) {
    if let Some(pool) = pool {
        shared.pools.add_after(pool.clone(), POOL_DEBOUNCE);
    }
}

impl Shared {
    /// The Nodes of a provider id.
    pub(super) fn nodes_of(&self, provider_id: &str) -> Vec<Arc<Node>> {
        let names = self.index.nodes_of(provider_id);
        names
            .iter()
            .filter_map(|name| self.context.nodes.get(name))
            .collect()
    }

    /// The NodeClaim of a Node, if there is exactly one.
    pub(super) fn claim_of(&self, node: &Node) -> Option<Arc<NodeClaim>> {
        let id = node
            .spec
            .as_ref()?
            .provider_id
            .as_deref()
            .filter(|id| !id.is_empty())?;
        match self.index.claims_of(id).as_slice() {
            [only] => self.context.node_claims.get(only),
            _ => None,
        }
    }
}
