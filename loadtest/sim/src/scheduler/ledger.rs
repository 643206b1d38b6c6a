//! The ledger: which nodes there are, and which pods have which of their room.
//!
//! A pod has its room from the moment at which a node is chosen for it, long before the API server and the
//! watch say so; it is given back only when the pod is gone, or its binding has certainly failed. So no
//! node is ever promised twice.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;

use super::{
    filter,
    pod::{HostPort, PodInfo},
    resources::Resources,
    topology::{Matcher, Term},
};

type Labels = BTreeMap<String, String>;

/// Groups of pods whose counts are kept; more than any run has in use at once.
const GROUPS_MAX: usize = 1024;

/// What of a node matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) is_unschedulable: bool,
    pub(super) allocatable: Resources,
}

impl NodeFacts {
    pub(super) fn read(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref();
        let allocatable = allocatable.and_then(|status| status.allocatable.as_ref());
        Self {
            name: node.name_any(),
            labels: node.labels().clone(),
            taints: spec
                .and_then(|spec| spec.taints.clone())
                .unwrap_or_default(),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable) == Some(true),
            allocatable: Resources::read(allocatable),
        }
    }
}

/// What the pods of a node have.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) requests: Resources,
    pub(super) ports: Vec<HostPort>,
    pods: usize,
}

/// A pod with its node.
#[derive(Debug)]
struct Placed {
    pod: Arc<PodInfo>,
    node: String,
}

/// How many pods of a group each node has.
#[derive(Debug)]
struct Group {
    matchers: Vec<Matcher>,
    by_node: HashMap<String, i64>,
}

/// Nodes, pods, and counts that follow from them.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    nodes: BTreeMap<String, NodeFacts>,
    /// Also of nodes that are not known (yet): their pods are.
    usage: HashMap<String, Usage>,
    pods: HashMap<String, Placed>,
    namespaces: HashMap<String, Labels>,
    /// Counted at the first question, then kept: asking happens for every pod.
    groups: RefCell<HashMap<String, Group>>,
    /// The required anti-affinity of placed pods, by identity; nodes with how many pods have it.
    anti_affinity: HashMap<String, (Arc<Term>, BTreeMap<String, i64>)>,
}

impl Ledger {
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.values()
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn facts(&self, node: &str) -> Option<&NodeFacts> {
        self.nodes.get(node)
    }

    pub(super) fn usage(&self, node: &str) -> Option<&Usage> {
        self.usage.get(node)
    }

    pub(super) const fn namespaces(&self) -> &HashMap<String, Labels> {
        &self.namespaces
    }

    /// Takes a node's present state; whether anything that matters has changed.
    pub(super) fn set_node(&mut self, facts: NodeFacts) -> bool {
        if self.nodes.get(&facts.name) == Some(&facts) {
            return false;
        }
        self.nodes.insert(facts.name.clone(), facts);
        true
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Forgets the nodes that a list did not show.
    pub(super) fn retain_nodes(&mut self, seen: &BTreeSet<String>) {
        self.nodes.retain(|name, _| seen.contains(name));
    }

    /// Takes a namespace's labels; whether they have changed.
    pub(super) fn set_namespace(&mut self, name: String, labels: Labels) -> bool {
        if self.namespaces.get(&name) == Some(&labels) {
            return false;
        }
        self.namespaces.insert(name, labels);
        self.groups.get_mut().clear();
        true
    }

    pub(super) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.groups.get_mut().clear();
    }

    /// Gives a pod its room: a node was chosen for it, or it is bound.
    pub(super) fn place(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove(&pod.uid);
        self.account(&pod, node, 1);
        let placed = Placed {
            pod,
            node: node.to_owned(),
        };
        self.pods.insert(placed.pod.uid.clone(), placed);
    }

    /// Takes back a pod's room; the node that has it again.
    pub(super) fn remove(&mut self, uid: &str) -> Option<String> {
        let placed = self.pods.remove(uid)?;
        self.account(&placed.pod, &placed.node, -1);
        Some(placed.node)
    }

    pub(super) fn has_pod(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// All pods that have room.
    pub(super) fn pods(&self) -> impl Iterator<Item = &str> {
        self.pods.keys().map(String::as_str)
    }

    /// Adds a pod to what is counted, or takes it out.
    fn account(&mut self, pod: &Arc<PodInfo>, node: &str, sign: i64) {
        let usage = self.usage.entry(node.to_owned()).or_default();
        if sign > 0 {
            usage.requests.add(&pod.requests);
            usage.ports.extend(pod.ports.iter().cloned());
            usage.pods += 1;
        } else {
            usage.requests.subtract(&pod.requests);
            for port in &pod.ports {
                if let Some(at) = usage.ports.iter().position(|taken| taken == port) {
                    usage.ports.swap_remove(at);
                }
            }
            usage.pods = usage.pods.saturating_sub(1);
            if usage.pods == 0 {
                self.usage.remove(node);
            }
        }
        for group in self.groups.get_mut().values_mut() {
            let mut matchers = group.matchers.iter();
            if matchers.all(|matcher| matcher.matches(pod, &self.namespaces)) {
                change(&mut group.by_node, node, sign);
            }
        }
        for term in &pod.terms.anti_affinity {
            let id = format!("{} {}", term.topology_key, term.matcher.id);
            let entry = self.anti_affinity.entry(id.clone());
            let (_, nodes) = entry.or_insert_with(|| (term.clone(), BTreeMap::new()));
            let count = nodes.entry(node.to_owned()).or_default();
            *count += sign;
            if *count == 0 {
                nodes.remove(node);
            }
            if nodes.is_empty() {
                self.anti_affinity.remove(&id);
            }
        }
    }

    /// How many pods that all matchers mean each node has.
    pub(super) fn matching(&self, matchers: &[&Matcher]) -> Vec<(String, i64)> {
        let id: Vec<&str> = matchers.iter().map(|matcher| matcher.id.as_str()).collect();
        let id = id.join("&");
        let mut groups = self.groups.borrow_mut();
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&id) {
            groups.clear();
        }
        let group = groups.entry(id).or_insert_with(|| self.count(matchers));
        let counts = group.by_node.iter();
        counts.map(|(node, count)| (node.clone(), *count)).collect()
    }

    fn count(&self, matchers: &[&Matcher]) -> Group {
        let mut by_node = HashMap::new();
        for placed in self.pods.values() {
            let mut all = matchers.iter();
            if all.all(|matcher| matcher.matches(&placed.pod, &self.namespaces)) {
                change(&mut by_node, &placed.node, 1);
            }
        }
        Group {
            matchers: matchers.iter().map(|matcher| (*matcher).clone()).collect(),
            by_node,
        }
    }

    /// The required anti-affinity of placed pods, with the nodes on which they are.
    pub(super) fn anti_affinity(
        &self,
    ) -> impl Iterator<Item = (&Term, impl Iterator<Item = &str>)> {
        let terms = self.anti_affinity.values();
        terms.map(|(term, nodes)| (term.as_ref(), nodes.keys().map(String::as_str)))
    }

    /// Whether the node alone, without regard to other pods' terms, would take the pod.
    pub(super) fn would_take(&self, pod: &PodInfo, node: &str) -> bool {
        let facts = self.facts(node);
        facts.is_some_and(|facts| filter::objections(pod, facts, self.usage(node)).is_empty())
    }
}

fn change(counts: &mut HashMap<String, i64>, node: &str, by: i64) {
    let count = counts.entry(node.to_owned()).or_default();
    *count += by;
    if *count == 0 {
        counts.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_objects::{node, pod};
    use super::*;
    use serde_json::json;

    fn ports(value: i32) -> serde_json::Value {
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1, "hostPort": value}],
            "resources": {"requests": {"cpu": "1"}}}]}})
    }

    #[test]
    fn what_is_taken_is_given_back() {
        let mut ledger = Ledger::default();
        ledger.set_node(NodeFacts::read(&node("n", &json!({}))));
        let first = Arc::new(pod("a", &ports(80)));
        ledger.place(first.clone(), "n");
        ledger.place(first, "n");
        ledger.place(Arc::new(pod("b", &ports(81))), "n");
        let usage = ledger.usage("n").expect("usage");
        assert_eq!((usage.requests.get("cpu"), usage.ports.len()), (2000, 2));
        assert_eq!(ledger.remove("a").as_deref(), Some("n"));
        assert_eq!(ledger.remove("a"), None);
        let usage = ledger.usage("n").expect("usage");
        assert_eq!((usage.requests.get("cpu"), usage.ports.len()), (1000, 1));
        ledger.remove("b");
        assert!(ledger.usage("n").is_none());
    }

    #[test]
    fn counts_that_are_kept_equal_counts_from_scratch() {
        let mut ledger = Ledger::default();
        let selector = serde_json::from_value(json!({"matchLabels": {"app": "x"}})).expect("one");
        let matcher = Matcher::new(vec!["default".to_owned()], None, Some(selector));
        let labelled = |name: &str, app: &str| {
            Arc::new(pod(name, &json!({"metadata": {"labels": {"app": app}}})))
        };
        assert!(ledger.matching(&[&matcher]).is_empty());
        for (name, app, node) in [
            ("a", "x", "n"),
            ("b", "x", "m"),
            ("c", "y", "m"),
            ("d", "x", "m"),
        ] {
            ledger.place(labelled(name, app), node);
        }
        ledger.remove("a");
        let kept = ledger.matching(&[&matcher]);
        assert_eq!(kept, [("m".to_owned(), 2)]);
        let fresh = ledger.count(&[&matcher]);
        assert_eq!(fresh.by_node, kept.into_iter().collect());
    }
}
