//! One attempt: a node for a pod, or the reasons why there is none.

use std::collections::BTreeMap;

use super::{
    filter::{self, Reason},
    ledger::{Ledger, NodeFacts},
    pod::PodInfo,
    score,
    topology::Topology,
};

/// The node for the pod, or how many nodes object for which reason.
pub(super) fn find(pod: &PodInfo, ledger: &Ledger) -> Result<String, BTreeMap<Reason, usize>> {
    let topology = Topology::new(pod, ledger);
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    let mut feasible: Vec<&NodeFacts> = Vec::new();
    for node in ledger.nodes() {
        let mut objections = filter::objections(pod, node, ledger.usage(&node.name));
        if objections.is_empty() {
            objections.extend(topology.objection(node));
        }
        if objections.is_empty() {
            feasible.push(node);
        }
        for reason in objections {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    match score::best(pod, ledger, &topology, &feasible) {
        Some(node) => Ok(node.name.clone()),
        None => Err(reasons),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::{
        report,
        test_objects::{node, pod},
    };
    use super::*;

    #[test]
    fn nodes_fill_up_exactly_and_then_say_why_they_are_full() {
        let mut ledger = Ledger::default();
        for name in ["a", "b", "c"] {
            // Eight CPUs and ten pods each.
            ledger.set_node(NodeFacts::read(&node(name, &json!({}))));
        }
        let wanted = json!({"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1500m"}}}]}});
        let mut placed = BTreeMap::new();
        let refused = loop {
            let at: usize = placed.values().sum();
            let pod = pod(&format!("p{at}"), &wanted);
            match find(&pod, &ledger) {
                Ok(node) => {
                    ledger.place(Arc::new(pod), &node);
                    *placed.entry(node).or_default() += 1;
                }
                Err(reasons) => break reasons,
            }
        };
        let five = |name: &str| (name.to_owned(), 5);
        assert_eq!(placed, ["a", "b", "c"].map(five).into());
        assert_eq!(
            report::message(3, &refused),
            "0/3 nodes are available: 3 Insufficient cpu."
        );
    }
}
