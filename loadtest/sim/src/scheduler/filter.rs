//! Which nodes can take a pod, and in whose words they cannot.

use std::fmt;

use super::{
    ledger::{NodeFacts, Usage},
    node_affinity,
    pod::{HostPort, PodInfo},
};

/// Taint of a cordoned node: who tolerates it may go there.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why a node does not take a pod. The texts are the kube-scheduler's own: people and programs look for
/// them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reason {
    Unschedulable,
    Taint(String, String),
    NodeAffinity,
    Ports,
    TooManyPods,
    Insufficient(String),
    SpreadLabel,
    Spread,
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::Taint(key, value) => {
                write!(f, "node(s) had untolerated taint {{{key}: {value}}}")
            }
            Self::NodeAffinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Ports => {
                f.write_str("node(s) didn't have free ports for the requested pod ports")
            }
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            Self::SpreadLabel => f.write_str(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ),
            Self::Spread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::Affinity => f.write_str("node(s) didn't match pod affinity rules"),
            Self::AntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::ExistingAntiAffinity => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
        }
    }
}

/// Why this node does not take the pod, as far as the node itself is concerned; empty when it does. The
/// first filter that objects speaks, and only missing resources are named all together.
pub(super) fn objections(pod: &PodInfo, node: &NodeFacts, usage: Option<&Usage>) -> Vec<Reason> {
    let tolerations = pod.spec.tolerations.as_deref().unwrap_or_default();
    let tolerates_cordon = || {
        tolerations.iter().any(|toleration| {
            let taint = k8s_openapi::api::core::v1::Taint {
                key: UNSCHEDULABLE.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Default::default()
            };
            node_affinity::tolerates(toleration, &taint)
        })
    };
    if node.is_unschedulable && !tolerates_cordon() {
        return vec![Reason::Unschedulable];
    }
    let effects = ["NoSchedule", "NoExecute"];
    if let Some(taint) = node_affinity::untolerated(&node.taints, &effects, tolerations) {
        let value = taint.value.clone().unwrap_or_default();
        return vec![Reason::Taint(taint.key.clone(), value)];
    }
    if !node_affinity::admits(&pod.spec, &node.name, &node.labels) {
        return vec![Reason::NodeAffinity];
    }
    let taken = usage
        .map(|usage| usage.ports.as_slice())
        .unwrap_or_default();
    if pod
        .ports
        .iter()
        .any(|port| taken.iter().any(|taken| collide(port, taken)))
    {
        return vec![Reason::Ports];
    }
    let lacks = |(resource, amount): (&str, i64)| {
        let used = usage.map_or(0, |usage| usage.requests.get(resource));
        let free = node.allocatable.get(resource).saturating_sub(used);
        // Who asks for nothing is not in the way of a node that is overfull.
        (amount > 0 && amount > free).then(|| match resource {
            "pods" => Reason::TooManyPods,
            other => Reason::Insufficient(other.to_owned()),
        })
    };
    pod.requests.iter().filter_map(lacks).collect()
}

/// The same protocol and number collide when the addresses are equal or one of them is all addresses.
fn collide(one: &HostPort, other: &HostPort) -> bool {
    const ALL: &str = "0.0.0.0";
    one.0 == other.0 && one.2 == other.2 && (one.1 == other.1 || one.1 == ALL || other.1 == ALL)
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
