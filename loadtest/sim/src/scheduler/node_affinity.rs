//! Which nodes a pod may and would rather run on: names, labels, taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};

type Labels = BTreeMap<String, String>;

/// Whether the node is one that the pod's selector and required affinity name.
pub(crate) fn admits(spec: &PodSpec, name: &str, labels: &Labels) -> bool {
    let selector = spec.node_selector.iter().flatten();
    let mut selector = selector.map(|(key, value)| labels.get(key) == Some(value));
    selector.all(|matches| matches)
        && required(spec).is_none_or(|required| {
            let mut terms = required.node_selector_terms.iter();
            terms.any(|term| matches_term(term, name, labels))
        })
}

fn required(spec: &PodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()
}

/// Sum of the weights of the preferences that the node meets.
pub(super) fn preference(spec: &PodSpec, name: &str, labels: &Labels) -> i64 {
    let affinity = spec.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|affinity| {
        affinity
            .preferred_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let met = preferred.into_iter().flatten();
    let met = met.filter(|preferred| matches_term(&preferred.preference, name, labels));
    met.map(|preferred| i64::from(preferred.weight)).sum()
}

/// All requirements of a term; a term without any matches nothing.
fn matches_term(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let matches_field = |requirement: &NodeSelectorRequirement| {
        requirement.key == "metadata.name" && matches(requirement, Some(name))
    };
    let matches_label = |requirement: &NodeSelectorRequirement| {
        matches(
            requirement,
            labels.get(&requirement.key).map(String::as_str),
        )
    };
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(matches_label)
        && fields.iter().all(matches_field)
}

fn matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = || value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let numbers = || -> Option<(i64, i64)> {
        let bound = values.first()?.parse().ok()?;
        Some((value?.parse().ok()?, bound))
    };
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// The first taint with one of these effects that no toleration covers.
pub(crate) fn untolerated<'a>(
    taints: &'a [Taint],
    effects: &[&str],
    tolerations: &[Toleration],
) -> Option<&'a Taint> {
    let mut taints = taints.iter();
    taints.find(|taint| {
        effects.contains(&taint.effect.as_str())
            && !tolerations
                .iter()
                .any(|toleration| tolerates(toleration, taint))
    })
}

pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    let effect = is_any(&toleration.effect) || toleration.effect.as_ref() == Some(&taint.effect);
    let key = is_any(&toleration.key) || toleration.key.as_ref() == Some(&taint.key);
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            !is_any(&toleration.key)
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    };
    effect && key && value
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn admitted(affinity_terms: &Value) -> bool {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": affinity_terms}}}}))
        .expect("a spec");
        let labels = [("zone", "a"), ("cpus", "8")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        admits(&spec, "n1", &labels.into())
    }

    #[test]
    fn every_operator() {
        let term = |key: &str, operator: &str, values: &[&str]| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
        for (key, operator, values, expected) in [
            ("zone", "In", &["a", "b"][..], true),
            ("zone", "In", &["b"], false),
            ("none", "In", &["b"], false),
            ("zone", "NotIn", &["b"], true),
            ("zone", "NotIn", &["a"], false),
            ("none", "NotIn", &["a"], true),
            ("zone", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("zone", "DoesNotExist", &[], false),
            ("cpus", "Gt", &["7"], true),
            ("cpus", "Gt", &["8"], false),
            ("cpus", "Lt", &["9"], true),
            ("zone", "Lt", &["9"], false),
            ("none", "Gt", &["1"], false),
        ] {
            let found = admitted(&term(key, operator, values));
            assert_eq!(found, expected, "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn one_term_is_enough_and_an_empty_one_matches_nothing() {
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(admitted(&json!([named("n1")])));
        assert!(!admitted(&json!([named("n2")])));
        assert!(admitted(&json!([named("n2"), named("n1")])));
        assert!(!admitted(&json!([{}])));
    }

    #[test]
    fn taints_and_tolerations() {
        let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        let taint: Taint = serde_json::from_value(taint).expect("a taint");
        for (toleration, expected) in [
            (json!({"key": "k", "value": "v"}), true),
            (
                json!({"key": "k", "operator": "Equal", "value": "w"}),
                false,
            ),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"operator": "Exists"}), true),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
                true,
            ),
        ] {
            let parsed: Toleration =
                serde_json::from_value(toleration.clone()).expect("a toleration");
            assert_eq!(tolerates(&parsed, &taint), expected, "{toleration}");
        }
        let taints = [taint];
        assert!(untolerated(&taints, &["NoSchedule"], &[]).is_some());
        assert!(untolerated(&taints, &["NoExecute"], &[]).is_none());
    }
}
