//! What was decided about one snapshot. A plan leaves no choice to whoever carries it out.

use std::{fmt, sync::Arc};

use crate::{
    ids::{Name, NodeName, NodePoolName},
    instance_type::{CapacityType, InstanceType},
    money::NanoDollarsPerHour,
    node_pool::NodePool,
    requirements::Requirements,
    resources::Resources,
};

/// Index into [`crate::ClusterSnapshot::pods`] of the generation that the plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodIndex(pub u32);

/// The result of one planning pass.
///
/// Every pod of the snapshot is in exactly one place: a proposal, a nomination or
/// `unschedulable`. Orders are canonical, so equal inputs give equal plans.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The snapshot this was made from.
    pub generation: u64,
    /// NodeClaims to create, in canonical order.
    pub node_claims: Vec<NodeClaimProposal>,
    /// Room taken on nodes that exist or are in flight, in order of node name.
    pub nominations: Vec<Nomination>,
    /// Pods without a place, grouped by cause.
    pub unschedulable: Vec<Unschedulable>,
}

/// One NodeClaim to create.
#[derive(Clone, Debug)]
pub struct NodeClaimProposal {
    /// `POOL-N`, N counting from 1 within the pool and plan; the API server names the object.
    pub name: Name,
    /// The NodePool as the plan saw it: hash and template are taken from here.
    pub node_pool: Arc<NodePool>,
    /// Labels and constraints of the node, without the instance-type list.
    pub requirements: Requirements,
    /// Every type that may be launched, cheapest first; never empty, at most 600.
    pub instance_types: Vec<Arc<InstanceType>>,
    /// The cheapest offering among them.
    pub cheapest: Launchable,
    /// What the pods and the daemons on it ask for together.
    pub requests: Resources,
    /// Pods it is made for; never empty, ascending.
    pub pods: Vec<PodIndex>,
}

impl NodeClaimProposal {
    /// Whether `other` differs at most in name and pods, so that whatever is derived from one of
    /// them without these holds for the other. Proposals of a burst are alike by the hundred, and
    /// stand next to each other.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let same = |(own, other): (&Arc<InstanceType>, &Arc<InstanceType>)| Arc::ptr_eq(own, other);
        Arc::ptr_eq(&self.node_pool, &other.node_pool)
            && self.instance_types.len() == other.instance_types.len()
            && std::iter::zip(&self.instance_types, &other.instance_types).all(same)
            && self.requests == other.requests
            && self.cheapest == other.cheapest
            && self.requirements == other.requirements
    }
}

/// An offering by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Launchable {
    /// Price per hour; first, so that the derived order is by price.
    pub price: NanoDollarsPerHour,
    /// Instance type.
    pub instance_type: Name,
    /// Zone.
    pub zone: Name,
    /// How it is bought.
    pub capacity_type: CapacityType,
}

/// Pods that take room on a node which exists or is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nomination {
    /// The node.
    pub node: NodeName,
    /// The pods, ascending.
    pub pods: Vec<PodIndex>,
}

/// Pods that have no place, for the same reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// The pods, ascending.
    pub pods: Vec<PodIndex>,
    /// Why, one refusal per NodePool that was tried, or one that concerns the pod itself.
    pub reasons: Vec<Refusal>,
}

/// Why a pod was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The NodePool that refused; `None` when the reason is the pod's own.
    pub node_pool: Option<NodePoolName>,
    /// The kind of reason, for aggregation and metrics.
    pub kind: RefusalKind,
    /// The full text with keys, values and the nearest miss.
    pub detail: String,
}

/// Kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalKind {
    /// The pod is invalid or asks not to be planned for.
    Rejected,
    /// There is no NodePool that may open nodes.
    NoNodePool,
    /// A taint of the NodePool is not tolerated.
    Taint,
    /// The NodePool's labels and requirements exclude the pod.
    Requirements,
    /// No instance type is large enough.
    Resources,
    /// No offering is available.
    Offering,
    /// Several of requirements, resources and offering exclude every type together.
    NoInstanceType,
    /// The NodePool's limits are reached.
    Limits,
    /// Too few distinct values remain for `minValues`.
    MinValues,
    /// A spread or affinity rule cannot be satisfied.
    Topology,
    /// The pod needs a rule that this build does not plan for.
    Unsupported,
    /// The step budget ended before the pod was reached.
    BudgetExhausted,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node_pool {
            Some(pool) => write!(f, "nodepool \"{pool}\": {}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}
