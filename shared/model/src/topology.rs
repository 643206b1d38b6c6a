//! Spread constraints and inter-pod affinity, as data. Their meaning is in the packing core.
//!
//! Source: Kubernetes, "Pod Topology Spread Constraints" and "Inter-pod affinity";
//! provisioning specification 6.16.

use crate::{ids::Name, requirement::Operator};

/// A label selector: every pair and every expression must match. An empty selector matches all
/// pods; the absence of a selector (`None` where optional) matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSelector {
    /// Exact pairs, sorted by key.
    pub match_labels: Vec<(Name, Name)>,
    /// Expressions over `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub match_expressions: Vec<(Name, Operator, Vec<Name>)>,
}

/// What to do when a spread constraint cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhenUnsatisfiable {
    /// The pod waits: a hard constraint.
    DoNotSchedule,
    /// The pod is placed anyway: a preference.
    ScheduleAnyway,
}

/// One entry of `topologySpreadConstraints`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologySpread {
    /// Largest allowed difference between the fullest and the emptiest domain, at least 1.
    pub max_skew: u32,
    /// Label key whose values are the domains; not alias-normalised.
    pub topology_key: Name,
    /// Hard or soft.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// Which pods count; `None` counts none.
    pub selector: Option<LabelSelector>,
    /// Fewer eligible domains than this count as an empty one more.
    pub min_domains: Option<u32>,
    /// Pod label keys whose values join the selector.
    pub match_label_keys: Vec<Name>,
    /// Whether only nodes that the pod's node affinity allows count (`Honor`, the default).
    pub honor_node_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates count (`Honor`; default false).
    pub honor_node_taints: bool,
}

/// One term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodAffinityTerm {
    /// Label key whose values are the domains.
    pub topology_key: Name,
    /// Which pods are meant; `None` means none.
    pub selector: Option<LabelSelector>,
    /// Namespaces by name; empty together with an absent selector means the pod's own.
    pub namespaces: Vec<Name>,
    /// Namespaces by label; an empty selector means all.
    pub namespace_selector: Option<LabelSelector>,
    /// Pod label keys whose values must be equal.
    pub match_label_keys: Vec<Name>,
    /// Pod label keys whose values must differ.
    pub mismatch_label_keys: Vec<Name>,
}
