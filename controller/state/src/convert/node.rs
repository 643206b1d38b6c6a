//! Nodes, and the join of a Node with its NodeClaim.
//!
//! Source: provisioning specification 5.1.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use millwright_model::{
    Name, NodeName, NodePoolName, ProviderId, ResourceName, Resources, StateNode, Taint, Timestamp,
    labels, snapshot::BoundPod,
};

use super::{ClaimFacts, FieldError, names, resources, taints, timestamp};

/// A Node, reduced to what planning needs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// Name.
    pub name: NodeName,
    /// `spec.providerID`, if set.
    pub provider_id: Option<ProviderId>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Labels.
    pub labels: BTreeMap<Name, Name>,
    /// Taints; a cordon is the taint that Kubernetes makes of it.
    pub taints: Vec<Taint>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.allocatable`.
    pub allocatable: Resources,
}

impl NodeFacts {
    fn has(&self, label: &str) -> bool {
        self.labels
            .get(label)
            .is_some_and(|value| &**value == "true")
    }
}

/// Reduces a Node.
///
/// # Errors
/// The first field that cannot be converted.
pub fn node_facts(node: &Node) -> Result<NodeFacts, FieldError> {
    let spec = node.spec.as_ref();
    let list = spec
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let mut taints = taints(list, "spec.taints")?;
    let cordon = Taint::new(
        "node.kubernetes.io/unschedulable",
        "",
        millwright_model::Effect::NoSchedule,
    );
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    // The node controller adds this taint a moment after the cordon; the cordon itself decides.
    if cordoned && !taints.iter().any(|taint| taint.matches(&cordon)) {
        taints.push(cordon);
    }
    let status = node.status.as_ref();
    let list = |list: Option<&BTreeMap<_, _>>, path| {
        list.map_or_else(|| Ok(Resources::new()), |l| resources(l, path))
    };
    Ok(NodeFacts {
        name: node.metadata.name.as_deref().unwrap_or_default().into(),
        provider_id: spec
            .and_then(|spec| spec.provider_id.as_deref())
            .filter(|id| !id.is_empty())
            .map(Into::into),
        created_at: timestamp(node.metadata.creation_timestamp.as_ref()),
        deleting: node.metadata.deletion_timestamp.is_some(),
        labels: node.metadata.labels.as_ref().map(names).unwrap_or_default(),
        taints,
        capacity: list(status.and_then(|s| s.capacity.as_ref()), "status.capacity")?,
        allocatable: list(
            status.and_then(|s| s.allocatable.as_ref()),
            "status.allocatable",
        )?,
    })
}

/// Joins a Node, its NodeClaim and the pods bound to it. `None` when there is neither.
///
/// Nominations and prices are not known here; the caller adds them.
#[must_use]
pub fn state_node(
    node: Option<&NodeFacts>,
    claim: Option<&ClaimFacts>,
    pods: Arc<[BoundPod]>,
) -> Option<StateNode> {
    let managed = claim.is_some();
    let registered = node.is_some_and(|node| !managed || node.has(labels::REGISTERED));
    let initialized =
        node.is_some_and(|node| !managed || (registered && node.has(labels::INITIALIZED)));
    let name = match (node, claim) {
        (Some(node), _) if registered => node.name.clone(),
        (_, Some(claim)) => NodeName(claim.name.0.clone()),
        (Some(node), None) => node.name.clone(),
        (None, None) => return None,
    };
    let labels = match (node, claim) {
        (Some(node), _) if registered => &node.labels,
        (_, Some(claim)) => &claim.labels,
        (Some(node), None) => &node.labels,
        (None, None) => return None,
    };
    let launched = node.is_some() || claim.is_some_and(|claim| claim.provider_id.is_some());
    let (mut capacity, allocatable) = room(node, claim, initialized, launched);
    capacity.set(ResourceName::Nodes, 1);
    let (requested, daemon_requested, workload_pods) = usage(&pods);
    let hostname = labels
        .get(labels::HOSTNAME)
        .filter(|name| !name.is_empty())
        .unwrap_or(&name.0)
        .clone();
    Some(StateNode {
        provider_id: node
            .and_then(|node| node.provider_id.clone())
            .or_else(|| claim.and_then(|claim| claim.provider_id.clone())),
        node_claim: claim.map(|claim| claim.name.clone()),
        node_pool: labels
            .get(labels::NODE_POOL)
            .map(|pool| NodePoolName(pool.clone())),
        launched,
        registered,
        initialized,
        deleting: claim.map_or_else(
            || node.is_some_and(|node| node.deleting),
            |claim| claim.deleting,
        ),
        nominated_until: None,
        created_at: claim
            .map(|c| c.created_at)
            .or_else(|| node.map(|n| n.created_at))
            .unwrap_or_default(),
        taints: effective_taints(node, claim, registered, initialized).into(),
        labels: Arc::new(labels.clone()),
        hostname,
        capacity,
        allocatable,
        requested,
        daemon_requested,
        workload_pods,
        pods,
        price: None,
        name,
    })
}

/// Capacity and allocatable. Before initialisation the NodeClaim fills what the Node does not say
/// yet (device plugins register late); before launch there is just the room that was asked for.
fn room(
    node: Option<&NodeFacts>,
    claim: Option<&ClaimFacts>,
    initialized: bool,
    launched: bool,
) -> (Resources, Resources) {
    let merged = |own: &Resources, fallback: &Resources| {
        let mut merged = own.clone();
        for (name, amount) in fallback.iter() {
            if merged.get(name) == 0 {
                merged.set(name.clone(), amount);
            }
        }
        merged
    };
    match (node, claim) {
        (Some(node), Some(claim)) if !initialized => (
            merged(&node.capacity, &claim.capacity),
            merged(&node.allocatable, &claim.allocatable),
        ),
        (Some(node), _) => (node.capacity.clone(), node.allocatable.clone()),
        (None, Some(claim)) if launched => (claim.capacity.clone(), claim.allocatable.clone()),
        (None, Some(claim)) => (claim.requests.clone(), claim.requests.clone()),
        (None, None) => (Resources::new(), Resources::new()),
    }
}

fn effective_taints(
    node: Option<&NodeFacts>,
    claim: Option<&ClaimFacts>,
    registered: bool,
    initialized: bool,
) -> Vec<Taint> {
    let all: &[Taint] = match (node, claim) {
        (Some(node), _) if registered => &node.taints,
        (_, Some(claim)) => &claim.taints,
        (Some(node), None) => &node.taints,
        (None, None) => &[],
    };
    let startup: &[Taint] = claim.map_or(&[], |claim| &claim.startup_taints);
    let counts = |taint: &&Taint| {
        initialized || !(taint.is_ephemeral() || startup.iter().any(|own| own.matches(taint)))
    };
    all.iter().filter(counts).cloned().collect()
}

fn usage(pods: &[BoundPod]) -> (Resources, Resources, u32) {
    let mut requested = Resources::new();
    let mut daemons = Resources::new();
    let mut workload = 0;
    for pod in pods {
        requested.add(&pod.spec.requests);
        if pod.is_daemon {
            daemons.add(&pod.spec.requests);
        } else {
            workload += 1;
        }
    }
    (requested, daemons, workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(labels: &serde_json::Value) -> NodeFacts {
        let node = json!({
            "metadata": {"name": "n1", "labels": labels},
            "spec": {"providerID": "aws:///z/i-1", "taints": [
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "boot", "effect": "NoSchedule"},
                {"key": "gpu", "effect": "NoSchedule"},
            ]},
            "status": {"capacity": {"cpu": "2", "x.io/device": "0"}, "allocatable": {"cpu": "1900m"}},
        });
        node_facts(&serde_json::from_value(node).unwrap()).unwrap()
    }

    fn claim() -> ClaimFacts {
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "p", "from": "claim"}},
            "spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "boot", "effect": "NoSchedule"}],
                "resources": {"requests": {"cpu": "500m"}},
            },
            "status": {"providerID": "aws:///z/i-1", "capacity": {"cpu": "2", "x.io/device": "1"},
                       "allocatable": {"cpu": "1930m", "x.io/device": "1"}},
        });
        super::super::claim_facts(&serde_json::from_value(claim).unwrap()).unwrap()
    }

    fn keys(node: &StateNode) -> Vec<&str> {
        node.taints.iter().map(|taint| &*taint.key).collect()
    }

    #[test]
    fn before_registration_the_claim_speaks_for_the_node() {
        let node = state_node(Some(&node(&json!({}))), Some(&claim()), [].into()).unwrap();
        assert_eq!(
            (node.name.as_str(), node.registered, node.initialized),
            ("c1", false, false)
        );
        assert_eq!(keys(&node), ["gpu"]);
        assert_eq!(node.allocatable.to_string(), "cpu=1900m, x.io/device=1");
        assert_eq!(node.node_pool, Some("p".into()));
    }

    #[test]
    fn before_initialisation_ephemeral_and_startup_taints_do_not_count_and_afterwards_all_do() {
        let registered = json!({"karpenter.sh/registered": "true"});
        let young = state_node(Some(&node(&registered)), Some(&claim()), [].into()).unwrap();
        assert_eq!((young.name.as_str(), keys(&young)), ("n1", vec!["gpu"]));
        let both = json!({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
        let grown = state_node(Some(&node(&both)), Some(&claim()), [].into()).unwrap();
        assert_eq!(
            keys(&grown),
            ["node.kubernetes.io/not-ready", "boot", "gpu"]
        );
        assert_eq!(grown.allocatable.to_string(), "cpu=1900m");
    }

    #[test]
    fn an_unlaunched_claim_has_the_room_that_was_asked_for() {
        let unlaunched = ClaimFacts {
            provider_id: None,
            ..claim()
        };
        let node = state_node(None, Some(&unlaunched), [].into()).unwrap();
        assert!(!node.launched);
        assert_eq!(node.allocatable.to_string(), "cpu=500m");
    }

    #[test]
    fn an_unmanaged_node_is_always_registered_and_initialised() {
        let node = state_node(Some(&node(&json!({}))), None, [].into()).unwrap();
        assert!(node.registered && node.initialized && !node.is_managed());
        assert_eq!(node.taints.len(), 3);
    }
}
