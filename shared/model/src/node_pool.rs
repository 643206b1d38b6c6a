//! A NodePool as planning sees it: what may be launched, how much, at which preference.

use std::collections::BTreeMap;

use crate::{
    ids::{Name, NodePoolName},
    instance_type::InstanceTypes,
    labels,
    requirement::Requirement,
    requirements::Requirements,
    resources::Resources,
    taints::Taint,
    time::Span,
};

/// Reference to the object that says how instances are launched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClassRef {
    /// API group, `karpenter.k8s.aws`.
    pub group: Name,
    /// Kind, `EC2NodeClass`.
    pub kind: Name,
    /// Name of the object.
    pub name: Name,
}

impl NodeClassRef {
    /// The label key that marks NodeClaims and Nodes of this class: `GROUP/lower-case KIND`.
    #[must_use]
    pub fn label_key(&self) -> Name {
        format!("{}/{}", self.group, self.kind.to_lowercase()).into()
    }
}

/// A NodePool with the instance types that its node class offers now.
#[derive(Clone, Debug)]
pub struct NodePool {
    /// Name.
    pub name: NodePoolName,
    /// `metadata.uid`, for owner references.
    pub uid: Name,
    /// 0 to 100; higher is tried first.
    pub weight: u32,
    /// Whether its `Ready` condition is true at its current generation: may new nodes be opened?
    pub ready: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether `spec.replicas` is set, so that pods do not open nodes of it.
    pub is_static: bool,
    /// Template labels.
    pub labels: BTreeMap<Name, Name>,
    /// Template annotations.
    pub annotations: BTreeMap<Name, Name>,
    /// Template requirements as stated, with their minimum values.
    pub requirements: Requirements,
    /// Taints that pods must tolerate.
    pub taints: Vec<Taint>,
    /// Taints that vanish by themselves; pods need not tolerate them.
    pub startup_taints: Vec<Taint>,
    /// How instances are launched.
    pub node_class: NodeClassRef,
    /// Drain deadline copied to NodeClaims.
    pub termination_grace_period: Option<Span>,
    /// Lifetime copied to NodeClaims; `None` is `Never`.
    pub expire_after: Option<Span>,
    /// Ceilings by resource, `nodes` among them.
    pub limits: Option<Resources>,
    /// What its non-deleting nodes and NodeClaims use of the limits: capacity, and `nodes`.
    pub usage: Resources,
    /// Static hash of the template, as Karpenter computes it.
    pub hash: Name,
    /// Instance types of the node class, unfiltered, in the provider's order.
    pub instance_types: InstanceTypes,
}

impl NodePool {
    /// Labels of every node of this pool: the template's, the pool's name, the node class's.
    #[must_use]
    pub fn node_labels(&self) -> BTreeMap<Name, Name> {
        let mut labels = self.labels.clone();
        labels.insert(labels::NODE_POOL.into(), self.name.0.clone());
        labels.insert(self.node_class.label_key(), self.node_class.name.clone());
        labels
    }

    /// What every node of this pool satisfies: the requirements, narrowed by the labels.
    #[must_use]
    pub fn template_requirements(&self) -> Requirements {
        let mut requirements = self.requirements.clone();
        for (key, value) in &self.node_labels() {
            requirements.add(Requirement::label(key, value));
        }
        requirements
    }
}
