//! Spread constraints and inter-pod affinity, as data. Their meaning is in the packing core.
//!
//! Source: Kubernetes, "Pod Topology Spread Constraints" and "Inter-pod affinity";
//! provisioning specification 6.16.

use std::collections::BTreeMap;

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

impl LabelSelector {
    /// Whether it selects an object with these labels. A numeric operator, which a label selector
    /// cannot have, selects nothing.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<Name, Name>) -> bool {
        let pairs = self
            .match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value));
        let expressions = self
            .match_expressions
            .iter()
            .all(|(key, operator, values)| {
                let own = labels.get(key);
                match operator {
                    Operator::In => own.is_some_and(|value| values.contains(value)),
                    Operator::NotIn => own.is_none_or(|value| !values.contains(value)),
                    Operator::Exists => own.is_some(),
                    Operator::DoesNotExist => own.is_none(),
                    Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => false,
                }
            });
        pairs && expressions
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_selects_where_every_pair_and_expression_holds() {
        let labels = BTreeMap::from([("app".into(), "web".into())]);
        let expression = |key: &str, operator, values: &[&str]| LabelSelector {
            match_labels: Vec::new(),
            match_expressions: vec![(
                key.into(),
                operator,
                values.iter().map(|value| Name::from(*value)).collect(),
            )],
        };
        for (selector, expected) in [
            (LabelSelector::default(), true),
            (expression("app", Operator::In, &["api", "web"]), true),
            (expression("app", Operator::NotIn, &["web"]), false),
            (expression("tier", Operator::NotIn, &["web"]), true),
            (expression("app", Operator::Exists, &[]), true),
            (expression("tier", Operator::Exists, &[]), false),
            (expression("tier", Operator::DoesNotExist, &[]), true),
            (expression("app", Operator::Gt, &["0"]), false),
        ] {
            assert_eq!(selector.selects(&labels), expected, "{selector:?}");
        }
        let pairs = LabelSelector {
            match_labels: vec![("app".into(), "api".into())],
            match_expressions: Vec::new(),
        };
        assert!(!pairs.selects(&labels));
    }
}
