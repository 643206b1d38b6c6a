//! Rules that this build does not plan for. A pod under such a rule is refused with the rule's
//! name: placing it as if the rule were absent could put it where it cannot run.

use millwright_model::{
    ClusterSnapshot, Name, Operator, PodSpec,
    topology::{LabelSelector, PodAffinityTerm, WhenUnsatisfiable},
};

/// Required anti-affinity of pods that run already: whom they keep away.
#[derive(Debug, Default)]
pub(crate) struct Repelled<'a> {
    /// The term, with the namespace of the pod that has it.
    terms: Vec<(&'a PodAffinityTerm, &'a Name)>,
}

impl<'a> Repelled<'a> {
    pub(crate) fn new(snapshot: &'a ClusterSnapshot) -> Self {
        let bound = snapshot.nodes.iter().flat_map(|node| node.pods.iter());
        let mut terms: Vec<_> = bound
            .flat_map(|pod| {
                pod.spec
                    .anti_affinity
                    .iter()
                    .map(|term| (term, &pod.spec.namespace))
            })
            .collect();
        // Replicas repeat their terms.
        terms.sort_unstable();
        terms.dedup();
        Self { terms }
    }

    fn contains(&self, spec: &PodSpec) -> bool {
        self.terms
            .iter()
            .any(|(term, namespace)| selects(term, namespace, spec))
    }
}

/// Why pods with this spec are not planned for; `None` when they are.
pub(crate) fn unsupported(spec: &PodSpec, repelled: &Repelled<'_>) -> Option<&'static str> {
    let hard = |s: &millwright_model::topology::TopologySpread| {
        s.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule
    };
    if spec.uses_resource_claims {
        Some("dynamic resource allocation is not planned for (resourceClaims)")
    } else if spec.topology_spread.iter().any(hard) {
        Some("hard topology spread is not planned for (topologySpreadConstraints, DoNotSchedule)")
    } else if !spec.affinity.is_empty() {
        Some("required pod affinity is not planned for (podAffinity)")
    } else if !spec.anti_affinity.is_empty() {
        Some("required pod anti-affinity is not planned for (podAntiAffinity)")
    } else if !spec.host_ports.is_empty() {
        Some("host ports are not planned for (ports.hostPort)")
    } else if spec.claim_volumes > 0 {
        Some("volumes of claims are not planned for (volumes.persistentVolumeClaim)")
    } else if repelled.contains(spec) {
        Some("the required pod anti-affinity of a running pod selects it, which is not planned for")
    } else {
        None
    }
}

/// Whether `term` of a pod in `namespace` may select `spec`. Namespace selectors count as
/// matching and label-key refinements as equal, because the snapshot does not decide them: the
/// error is on the side of keeping away.
fn selects(term: &PodAffinityTerm, namespace: &Name, spec: &PodSpec) -> bool {
    let named = term.namespaces.contains(&spec.namespace);
    let own = term.namespaces.is_empty() && *namespace == spec.namespace;
    let here = named || own || term.namespace_selector.is_some();
    here && term
        .selector
        .as_ref()
        .is_some_and(|selector| matches(selector, spec))
}

fn matches(selector: &LabelSelector, spec: &PodSpec) -> bool {
    let pairs = selector
        .match_labels
        .iter()
        .all(|(key, value)| spec.labels.get(key) == Some(value));
    pairs
        && selector
            .match_expressions
            .iter()
            .all(|(key, operator, values)| {
                let label = spec.labels.get(key);
                match operator {
                    Operator::In => label.is_some_and(|label| values.contains(label)),
                    Operator::NotIn => label.is_none_or(|label| !values.contains(label)),
                    Operator::Exists => label.is_some(),
                    Operator::DoesNotExist => label.is_none(),
                    // Pod selectors have no numeric operators; an unknown one selects.
                    Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => true,
                }
            })
}
