//! Which of the nodes that can take a pod does take it.

use super::{
    ledger::{Ledger, NodeFacts, Usage},
    node_affinity,
    pod::PodInfo,
    topology::Topology,
};

/// What speaks for a node. The weights are those of the kube-scheduler's default profile.
fn total(scores: &Scores) -> i64 {
    scores.least_allocated + 2 * scores.node_affinity + 2 * scores.pods + 3 * scores.taints
}

/// Each from 0 to 100.
#[derive(Clone, Copy, Debug, Default)]
struct Scores {
    least_allocated: i64,
    node_affinity: i64,
    pods: i64,
    taints: i64,
}

/// The best of these nodes; of equal ones the first, so that the choice is reproducible.
pub(super) fn best<'a>(
    pod: &PodInfo,
    ledger: &Ledger,
    topology: &Topology<'_>,
    nodes: &[&'a NodeFacts],
) -> Option<&'a NodeFacts> {
    let scaled = |raw: Vec<i64>| -> Vec<i64> {
        let least = raw.iter().copied().min().unwrap_or_default();
        let range = raw.iter().copied().max().unwrap_or_default() - least;
        let scale = |value: i64| {
            if range == 0 {
                0
            } else {
                (value - least) * 100 / range
            }
        };
        raw.into_iter().map(scale).collect()
    };
    let spec = &pod.spec;
    let affinity = |node: &&NodeFacts| node_affinity::preference(spec, &node.name, &node.labels);
    let affinity = scaled(nodes.iter().map(affinity).collect());
    let pods = scaled(nodes.iter().map(|node| topology.preference(node)).collect());
    let taints = scaled(nodes.iter().map(|node| -unwelcome(pod, node)).collect());
    let mut best: Option<(i64, &'a NodeFacts)> = None;
    for (at, node) in nodes.iter().enumerate() {
        let of = |scores: &[i64]| scores.get(at).copied().unwrap_or_default();
        let score = total(&Scores {
            least_allocated: least_allocated(pod, node, ledger.usage(&node.name)),
            node_affinity: of(&affinity),
            pods: of(&pods),
            taints: of(&taints),
        });
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, node));
        }
    }
    best.map(|(_, node)| node)
}

/// Taints that only advise against the node and that the pod does not tolerate.
fn unwelcome(pod: &PodInfo, node: &NodeFacts) -> i64 {
    let tolerations = pod.spec.tolerations.as_deref().unwrap_or_default();
    let advising = node
        .taints
        .iter()
        .filter(|taint| taint.effect == "PreferNoSchedule");
    let unwelcome = advising.filter(|taint| {
        !tolerations
            .iter()
            .any(|toleration| node_affinity::tolerates(toleration, taint))
    });
    i64::try_from(unwelcome.count()).unwrap_or(i64::MAX)
}

/// How much of the CPU and memory would be free, in percent, on average.
fn least_allocated(pod: &PodInfo, node: &NodeFacts, usage: Option<&Usage>) -> i64 {
    let free = |resource: &str| {
        let whole = node.allocatable.get(resource);
        let used = usage.map_or(0, |usage| usage.requests.get(resource));
        let left = whole - used - pod.requests.get(resource);
        if whole <= 0 || left <= 0 {
            return 0;
        }
        i64::try_from(i128::from(left) * 100 / i128::from(whole)).unwrap_or(100)
    };
    i64::midpoint(free("cpu"), free("memory"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::test_objects::{node, pod};
    use super::*;

    fn choice(ledger: &Ledger, pod: &PodInfo) -> String {
        let nodes: Vec<&NodeFacts> = ledger.nodes().collect();
        let topology = Topology::new(pod, ledger);
        best(pod, ledger, &topology, &nodes)
            .expect("a node")
            .name
            .clone()
    }

    fn ledger(nodes: &[(&str, Value)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (name, more) in nodes {
            ledger.set_node(NodeFacts::read(&node(name, more)));
        }
        ledger
    }

    #[test]
    fn the_emptiest_node_unless_a_preference_says_otherwise() {
        let mut ledger = ledger(&[
            ("a", json!({})),
            ("b", json!({})),
            ("c", json!({"metadata": {"labels": {"disk": "fast"}}})),
            (
                "d",
                json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}),
            ),
        ]);
        for (name, on) in [("p1", "a"), ("p2", "c"), ("p3", "c")] {
            ledger.place(Arc::new(pod(name, &json!({}))), on);
        }
        assert_eq!(choice(&ledger, &pod("x", &json!({}))), "b");
        let fast = json!({"spec": {"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference":
                {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]}}}});
        assert_eq!(choice(&ledger, &pod("x", &fast)), "c");
    }
}
