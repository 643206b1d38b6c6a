//! NodeClaims and Nodes as observed, reduced to what the rules read.

use std::collections::BTreeMap;

use millwright_model::{
    Name, NodeClaimName, NodeName, NodePoolName, ProviderId, Resources, Span, Taint, Timestamp,
    labels,
};

use crate::{
    condition::{ConditionType, Conditions},
    names,
};

/// A NodeClaim.
#[derive(Clone, Debug)]
pub struct ObservedClaim {
    /// Name.
    pub name: NodeClaimName,
    /// `metadata.uid`.
    pub uid: Name,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// `metadata.deletionTimestamp`.
    pub deleting_since: Option<Timestamp>,
    /// Whether the finalizer `karpenter.sh/termination` is present.
    pub has_finalizer: bool,
    /// Labels.
    pub labels: BTreeMap<Name, Name>,
    /// Annotations.
    pub annotations: BTreeMap<Name, Name>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.startupTaints`.
    pub startup_taints: Vec<Taint>,
    /// `spec.resources.requests`.
    pub requests: Resources,
    /// `spec.expireAfter`; `None` is `Never`.
    pub expire_after: Option<Span>,
    /// `spec.terminationGracePeriod`.
    pub termination_grace_period: Option<Span>,
    /// `status.providerID`, when not empty.
    pub provider_id: Option<ProviderId>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.lastPodEventTime`.
    pub last_pod_event: Option<Timestamp>,
    /// Conditions.
    pub conditions: Conditions,
}

impl ObservedClaim {
    /// A NodeClaim about which nothing more is known.
    #[must_use]
    pub fn new(name: NodeClaimName, uid: Name, created_at: Timestamp) -> Self {
        Self {
            name,
            uid,
            created_at,
            deleting_since: None,
            has_finalizer: false,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            requests: Resources::new(),
            expire_after: None,
            termination_grace_period: None,
            provider_id: None,
            capacity: Resources::new(),
            last_pod_event: None,
            conditions: Conditions::default(),
        }
    }

    /// Whether a condition is True.
    #[must_use]
    pub fn is(&self, kind: ConditionType) -> bool {
        self.conditions.is_true(kind)
    }

    /// Since when a condition has its status.
    #[must_use]
    pub fn since(&self, kind: ConditionType) -> Timestamp {
        self.conditions.since(kind, self.created_at)
    }

    /// The NodePool by label.
    #[must_use]
    pub fn node_pool(&self) -> Option<NodePoolName> {
        self.labels
            .get(labels::NODE_POOL)
            .filter(|name| !name.is_empty())
            .cloned()
            .map(NodePoolName)
    }
}

/// A Node.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    /// Name.
    pub name: NodeName,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// `metadata.deletionTimestamp`.
    pub deleting_since: Option<Timestamp>,
    /// Whether the finalizer `karpenter.sh/termination` is present.
    pub has_finalizer: bool,
    /// `metadata.uid`s of its NodeClaim owners.
    pub owner_uids: Vec<Name>,
    /// `spec.providerID`, when not empty.
    pub provider_id: Option<ProviderId>,
    /// Whether its `Ready` condition is True.
    pub ready: bool,
    /// Labels.
    pub labels: BTreeMap<Name, Name>,
    /// Annotations.
    pub annotations: BTreeMap<Name, Name>,
    /// `spec.taints`, in the order of the object.
    pub taints: Vec<Taint>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.allocatable`.
    pub allocatable: Resources,
}

impl ObservedNode {
    /// A Node about which nothing more is known.
    #[must_use]
    pub fn new(name: NodeName, created_at: Timestamp) -> Self {
        Self {
            name,
            created_at,
            deleting_since: None,
            has_finalizer: false,
            owner_uids: Vec::new(),
            provider_id: None,
            ready: false,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            capacity: Resources::new(),
            allocatable: Resources::new(),
        }
    }

    /// Whether a label has a value.
    #[must_use]
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        self.labels.get(key).is_some_and(|own| &**own == value)
    }

    /// Whether a taint of the same key and effect is present.
    #[must_use]
    pub fn has_taint(&self, taint: &Taint) -> bool {
        self.taints.iter().any(|own| own.matches(taint))
    }

    /// Whether registration has completed.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.has_label(labels::REGISTERED, "true")
    }

    /// Whether initialization has completed.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.has_label(labels::INITIALIZED, "true")
    }
}

/// The taint of a node that is being disrupted.
#[must_use]
pub fn disrupted_taint() -> Taint {
    Taint::new(names::DISRUPTED, "", millwright_model::Effect::NoSchedule)
}

/// The taint that a node joins with.
#[must_use]
pub fn unregistered_taint() -> Taint {
    Taint::new(names::UNREGISTERED, "", millwright_model::Effect::NoExecute)
}

/// The Node of a NodeClaim, as found by provider id.
#[derive(Clone, Copy, Debug)]
pub enum NodeMatch<'a> {
    /// No Node has the provider id (or the claim has none).
    None,
    /// Exactly one.
    One(&'a ObservedNode),
    /// Several: treated as no match by nearly everything.
    Several,
}

impl<'a> NodeMatch<'a> {
    /// The only Node, if it is the only one.
    #[must_use]
    pub const fn one(self) -> Option<&'a ObservedNode> {
        match self {
            Self::One(node) => Some(node),
            Self::None | Self::Several => None,
        }
    }

    /// Classifies the Nodes that carry the claim's provider id.
    #[must_use]
    pub const fn of(nodes: &'a [ObservedNode]) -> Self {
        match nodes {
            [] => Self::None,
            [node] => Self::One(node),
            _ => Self::Several,
        }
    }
}
