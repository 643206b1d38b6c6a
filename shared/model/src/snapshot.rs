//! The cluster at one moment: the only thing that decisions are made from.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    chunks::Chunks,
    ids::{Name, NodeClaimName, NodeName, NodePoolName, ProviderId},
    money::NanoDollarsPerHour,
    node_pool::NodePool,
    pod::{Pod, PodSpec},
    resources::Resources,
    taints::Taint,
    time::Timestamp,
};

/// An immutable picture of the cluster. Clones share everything.
///
/// Shape: `pods` are the pods that need a place, in any order; `nodes` are all nodes and
/// in-flight NodeClaims, deleting ones too; `node_pools` are all managed pools in order of name.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// Counts published snapshots; a plan is valid for the generation it names.
    pub generation: u64,
    /// When the snapshot was published.
    pub taken_at: Timestamp,
    /// Pods that need a place.
    pub pods: Chunks<Arc<Pod>>,
    /// Nodes and in-flight NodeClaims.
    pub nodes: Chunks<Arc<StateNode>>,
    /// NodePools.
    pub node_pools: Arc<[Arc<NodePool>]>,
    /// DaemonSets, each by the newest pod it would make.
    pub daemons: Arc<[Arc<DaemonPod>]>,
    /// Labels of namespaces, for selectors over them; `None` when nobody watches them. A namespace
    /// that is not listed has only the label that every namespace has, its name.
    pub namespaces: Option<Namespaces>,
}

/// Labels by name of the namespace.
pub type Namespaces = Arc<BTreeMap<Name, BTreeMap<Name, Name>>>;

/// The pod that a DaemonSet puts on every node it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonPod {
    /// `namespace/name` of the DaemonSet.
    pub name: Name,
    /// Where its pods run, and what they ask for.
    pub spec: Arc<PodSpec>,
}

/// A node, or the NodeClaim that will become one.
#[derive(Clone, Debug, PartialEq)]
pub struct StateNode {
    /// Node name once registered, NodeClaim name before.
    pub name: NodeName,
    /// Provider id, once launched.
    pub provider_id: Option<ProviderId>,
    /// The NodeClaim, if the node is managed.
    pub node_claim: Option<NodeClaimName>,
    /// The NodePool it belongs to, if any.
    pub node_pool: Option<NodePoolName>,
    /// Whether the instance exists (a NodeClaim before its launch has none).
    pub launched: bool,
    /// Whether the Node has registered; always true of unmanaged nodes.
    pub registered: bool,
    /// Whether the Node is initialised; always true of unmanaged nodes.
    pub initialized: bool,
    /// Whether it is marked for deletion: no place for pods, and its own need a new one.
    pub deleting: bool,
    /// Until when planned pods are expected to bind here.
    pub nominated_until: Option<Timestamp>,
    /// When the NodeClaim, or else the Node, was created.
    pub created_at: Timestamp,
    /// Labels by the rule of provisioning specification 5.1 (NodeClaim's before registration).
    pub labels: Arc<BTreeMap<Name, Name>>,
    /// Effective taints by the same rule: ephemeral and startup taints do not count before
    /// initialisation.
    pub taints: Arc<[Taint]>,
    /// Value of the host-name domain.
    pub hostname: Name,
    /// Capacity; for an unlaunched NodeClaim the largest that its limits account for.
    pub capacity: Resources,
    /// Allocatable; for an unlaunched NodeClaim just what its planned pods and daemons ask for.
    pub allocatable: Resources,
    /// Requests of bound, non-terminal pods, daemons included.
    pub requested: Resources,
    /// The part of `requested` that belongs to daemons.
    pub daemon_requested: Resources,
    /// Number of bound pods that are not daemons and not terminal.
    pub workload_pods: u32,
    /// Bound, non-terminal pods (for topology, host ports and volumes).
    pub pods: Arc<[BoundPod]>,
    /// What the node costs, where the offering is known.
    pub price: Option<NanoDollarsPerHour>,
}

impl StateNode {
    /// Whether a NodeClaim stands behind the node.
    #[must_use]
    pub const fn is_managed(&self) -> bool {
        self.node_claim.is_some()
    }

    /// Allocatable less what bound pods ask for; entries may be negative.
    #[must_use]
    pub fn available(&self) -> Resources {
        let mut available = self.allocatable.clone();
        available.subtract(&self.requested);
        available
    }
}

/// A pod bound to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPod {
    /// `namespace/name`.
    pub key: crate::ids::PodKey,
    /// Where it may run, and what it asks for.
    pub spec: Arc<PodSpec>,
    /// Whether a DaemonSet owns it.
    pub is_daemon: bool,
    /// Whether it is on its way out: it still takes room, but no longer counts for spread and
    /// affinity.
    pub is_terminating: bool,
}
