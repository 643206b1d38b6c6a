//! Affinity, spread and selectors, as data.

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm as KubePodAffinityTerm,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as KubeSelector;
use millwright_model::{
    Name, Operator, PodSpec, Requirement,
    topology::{LabelSelector, PodAffinityTerm, TopologySpread, WhenUnsatisfiable},
};

use super::{FieldError, requirement};

/// Fills the affinity fields of a pod spec. Terms with `matchFields` become terms that nothing
/// satisfies; [`super::rejections`] reports them.
pub(super) fn affinity(affinity: &Affinity, spec: &mut PodSpec) -> Result<(), FieldError> {
    if let Some(node) = &affinity.node_affinity {
        const PATH: &str = "spec.affinity.nodeAffinity";
        if let Some(required) = &node.required_during_scheduling_ignored_during_execution {
            let path =
                format!("{PATH}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
            for (at, term) in required.node_selector_terms.iter().enumerate() {
                spec.required_terms
                    .push(node_term(term, &format!("{path}[{at}]"))?);
            }
        }
        let path = format!("{PATH}.preferredDuringSchedulingIgnoredDuringExecution");
        for (at, term) in node
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
            .enumerate()
        {
            let expressions = node_term(&term.preference, &format!("{path}[{at}].preference"))?;
            spec.preferred_terms
                .push((weight(term.weight), expressions));
        }
    }
    if let Some(pod) = &affinity.pod_affinity {
        const PATH: &str = "spec.affinity.podAffinity";
        spec.affinity = terms(
            pod.required_during_scheduling_ignored_during_execution
                .as_deref(),
            PATH,
        )?;
        spec.preferred_affinity = weighted(
            pod.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
            PATH,
        )?;
    }
    if let Some(pod) = &affinity.pod_anti_affinity {
        const PATH: &str = "spec.affinity.podAntiAffinity";
        spec.anti_affinity = terms(
            pod.required_during_scheduling_ignored_during_execution
                .as_deref(),
            PATH,
        )?;
        spec.preferred_anti_affinity = weighted(
            pod.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
            PATH,
        )?;
    }
    Ok(())
}

fn weight(weight: i32) -> u32 {
    u32::try_from(weight).unwrap_or(0)
}

/// The expressions of a node-selector term.
///
/// # Errors
/// An expression that cannot be converted.
pub(super) fn node_term(
    term: &NodeSelectorTerm,
    path: &str,
) -> Result<Vec<Requirement>, FieldError> {
    expressions(
        term.match_expressions.as_deref(),
        &format!("{path}.matchExpressions"),
    )
}

fn expressions(
    list: Option<&[NodeSelectorRequirement]>,
    path: &str,
) -> Result<Vec<Requirement>, FieldError> {
    list.unwrap_or_default()
        .iter()
        .enumerate()
        .map(|(at, e)| {
            requirement(
                &e.key,
                &e.operator,
                e.values.as_deref().unwrap_or_default(),
                &format!("{path}[{at}]"),
            )
        })
        .collect()
}

fn terms(
    list: Option<&[KubePodAffinityTerm]>,
    path: &str,
) -> Result<Vec<PodAffinityTerm>, FieldError> {
    let path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution");
    let convert = |(at, term)| pod_term(term, &format!("{path}[{at}]"));
    list.unwrap_or_default()
        .iter()
        .enumerate()
        .map(convert)
        .collect()
}

fn weighted(
    list: Option<&[WeightedPodAffinityTerm]>,
    path: &str,
) -> Result<Vec<(u32, PodAffinityTerm)>, FieldError> {
    let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution");
    list.unwrap_or_default()
        .iter()
        .enumerate()
        .map(|(at, term)| {
            let converted = pod_term(
                &term.pod_affinity_term,
                &format!("{path}[{at}].podAffinityTerm"),
            )?;
            Ok((weight(term.weight), converted))
        })
        .collect()
}

fn pod_term(term: &KubePodAffinityTerm, path: &str) -> Result<PodAffinityTerm, FieldError> {
    Ok(PodAffinityTerm {
        topology_key: term.topology_key.as_str().into(),
        selector: selector(
            term.label_selector.as_ref(),
            &format!("{path}.labelSelector"),
        )?,
        namespaces: list(term.namespaces.as_deref()),
        namespace_selector: selector(
            term.namespace_selector.as_ref(),
            &format!("{path}.namespaceSelector"),
        )?,
        match_label_keys: list(term.match_label_keys.as_deref()),
        mismatch_label_keys: list(term.mismatch_label_keys.as_deref()),
    })
}

fn list(names: Option<&[String]>) -> Vec<Name> {
    names
        .unwrap_or_default()
        .iter()
        .map(|name| name.as_str().into())
        .collect()
}

/// A label selector; its operators are `In`, `NotIn`, `Exists`, `DoesNotExist`.
pub(super) fn selector(
    selector: Option<&KubeSelector>,
    path: &str,
) -> Result<Option<LabelSelector>, FieldError> {
    let Some(selector) = selector else {
        return Ok(None);
    };
    let match_labels = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| (Name::from(key.as_str()), Name::from(value.as_str())))
        .collect();
    let match_expressions = selector
        .match_expressions
        .iter()
        .flatten()
        .enumerate()
        .map(|(at, e)| {
            let operator = Operator::parse(&e.operator)
                .filter(|o| !o.is_bound())
                .ok_or_else(|| {
                    let message = format_args!(
                        "\"{}\" is none of In, NotIn, Exists, DoesNotExist",
                        e.operator
                    );
                    FieldError::new(format!("{path}.matchExpressions[{at}].operator"), message)
                })?;
            Ok((
                Name::from(e.key.as_str()),
                operator,
                list(e.values.as_deref()),
            ))
        })
        .collect::<Result<_, FieldError>>()?;
    Ok(Some(LabelSelector {
        match_labels,
        match_expressions,
    }))
}

pub(super) fn spread(
    constraints: &[TopologySpreadConstraint],
) -> Result<Vec<TopologySpread>, FieldError> {
    constraints
        .iter()
        .enumerate()
        .map(|(at, c)| {
            let path = format!("spec.topologySpreadConstraints[{at}]");
            let when_unsatisfiable = match c.when_unsatisfiable.as_str() {
                "DoNotSchedule" => WhenUnsatisfiable::DoNotSchedule,
                "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
                other => {
                    let message =
                        format_args!("\"{other}\" is none of DoNotSchedule, ScheduleAnyway");
                    return Err(FieldError::new(
                        format!("{path}.whenUnsatisfiable"),
                        message,
                    ));
                }
            };
            let max_skew = u32::try_from(c.max_skew).ok().filter(|skew| *skew > 0);
            Ok(TopologySpread {
                max_skew: max_skew.ok_or_else(|| {
                    FieldError::new(format!("{path}.maxSkew"), "must be 1 or more")
                })?,
                topology_key: c.topology_key.as_str().into(),
                when_unsatisfiable,
                selector: selector(c.label_selector.as_ref(), &format!("{path}.labelSelector"))?,
                min_domains: c.min_domains.and_then(|n| u32::try_from(n).ok()),
                match_label_keys: list(c.match_label_keys.as_deref()),
                honor_node_affinity: c.node_affinity_policy.as_deref() != Some("Ignore"),
                honor_node_taints: c.node_taints_policy.as_deref() == Some("Honor"),
            })
        })
        .collect()
}
