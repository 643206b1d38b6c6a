//! A pod as the scheduler sees it: read once, used many times.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, Time},
};
use kube::ResourceExt;
use serde_json::json;

use super::{
    resources::{Resources, effective_requests},
    topology::{Matcher, Spread, Term, Terms},
};

/// A port of the node that a pod takes: protocol, address, number.
pub(super) type HostPort = (String, String, i32);

/// A pod that waits for a node or has one.
#[derive(Clone, Debug)]
pub(super) struct PodInfo {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) priority: i32,
    pub(super) requests: Resources,
    pub(super) ports: Vec<HostPort>,
    pub(super) spec: PodSpec,
    pub(super) terms: Terms,
    pub(super) version: Option<String>,
    /// Whether it is on its way out.
    pub(super) is_going: bool,
    /// The message of its condition `PodScheduled` while that is false, and since when.
    pub(super) refused: Option<(String, Option<Time>)>,
}

impl PodInfo {
    pub(super) fn read(pod: Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let namespace = pod.namespace().unwrap_or_default();
        let terms = terms(&spec, &namespace, pod.labels());
        let conditions = pod.status.iter().flat_map(|status| &status.conditions);
        let refused = conditions
            .flatten()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
        Self {
            uid: pod.uid().unwrap_or_default(),
            name: pod.name_any(),
            version: pod.resource_version(),
            priority: spec.priority.unwrap_or_default(),
            requests: effective_requests(&spec),
            ports: host_ports(&spec),
            is_going: pod.metadata.deletion_timestamp.is_some(),
            refused: refused.map(|condition| {
                let message = condition.message.clone().unwrap_or_default();
                (message, condition.last_transition_time.clone())
            }),
            labels: pod.metadata.labels.unwrap_or_default(),
            namespace,
            spec,
            terms,
        }
    }

    /// Whether other pods take part in where it may go.
    pub(super) fn depends_on_pods(&self) -> bool {
        let terms = &self.terms;
        !terms.affinity.is_empty() || !terms.anti_affinity.is_empty() || !terms.spread.is_empty()
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars =
        sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars);
    let ports = ports.flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let address = port.host_ip.clone().filter(|ip| !ip.is_empty());
        Some((
            protocol,
            address.unwrap_or_else(|| "0.0.0.0".to_owned()),
            number,
        ))
    });
    taken.collect()
}

fn terms(spec: &PodSpec, namespace: &str, labels: &BTreeMap<String, String>) -> Terms {
    let affinity = spec.affinity.as_ref();
    let pod_affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let anti_affinity = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let read = |terms: Option<&Vec<PodAffinityTerm>>| -> Vec<Arc<Term>> {
        let terms = terms.into_iter().flatten();
        terms
            .map(|term| Arc::new(read_term(term, namespace)))
            .collect()
    };
    let weighted = pod_affinity
        .and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .into_iter()
        .flatten()
        .map(|preferred| (i64::from(preferred.weight), &preferred.pod_affinity_term));
    let unwelcome = anti_affinity
        .and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .into_iter()
        .flatten()
        .map(|preferred| (-i64::from(preferred.weight), &preferred.pod_affinity_term));
    let constraints = spec.topology_spread_constraints.iter().flatten();
    let (hard, soft): (Vec<_>, Vec<_>) =
        constraints.partition(|constraint| constraint.when_unsatisfiable == "DoNotSchedule");
    let spreads = |constraints: Vec<&TopologySpreadConstraint>| -> Vec<Spread> {
        let constraints = constraints.into_iter();
        constraints
            .map(|constraint| read_spread(constraint, namespace, labels))
            .collect()
    };
    Terms {
        affinity: read(pod_affinity.and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        })),
        anti_affinity: read(anti_affinity.and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        })),
        preferred: weighted
            .chain(unwelcome)
            .map(|(weight, term)| (weight, read_term(term, namespace)))
            .collect(),
        spread: spreads(hard),
        soft_spread: spreads(soft),
    }
}

/// The API server has put `matchLabelKeys` into the selector already.
fn read_term(term: &PodAffinityTerm, own: &str) -> Term {
    let mut namespaces = term.namespaces.clone().unwrap_or_default();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.push(own.to_owned());
    }
    Term {
        topology_key: term.topology_key.clone(),
        matcher: Matcher::new(
            namespaces,
            term.namespace_selector.clone(),
            term.label_selector.clone(),
        ),
    }
}

fn read_spread(
    constraint: &TopologySpreadConstraint,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Spread {
    let mut selector = constraint.label_selector.clone();
    if let Some(selector) = &mut selector {
        add_label_keys(selector, constraint.match_label_keys.as_deref(), labels);
    }
    Spread {
        topology_key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
        honours_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honours_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        matcher: Matcher::new(vec![namespace.to_owned()], None, selector).without_going(),
    }
}

/// Keys whose value the pod itself gives.
fn add_label_keys(
    selector: &mut LabelSelector,
    keys: Option<&[String]>,
    labels: &BTreeMap<String, String>,
) {
    for key in keys.unwrap_or_default() {
        let Some(value) = labels.get(key) else {
            continue;
        };
        let expressions = selector.match_expressions.get_or_insert_default();
        expressions.push(LabelSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        });
    }
}

/// Whether the scheduler has to find a node for this pod.
pub(super) fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let scheduler = spec.scheduler_name.as_deref().unwrap_or(super::NAME);
    scheduler == super::NAME
        && node_of(pod).is_none()
        && pod.metadata.deletion_timestamp.is_none()
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
}

pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref();
    node.filter(|name| !name.is_empty())
}

/// Whether it holds nothing of its node any more.
pub(super) fn is_finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A text that is the same for selectors that say the same.
pub(super) fn identity(parts: &impl serde::Serialize) -> String {
    json!(parts).to_string()
}
