//! DaemonSets: one pod for every node that takes it. The pod names its node by affinity, and the scheduler
//! binds it.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetSpec},
        core::v1::{
            Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
    jiff::Timestamp,
};
use kube::ResourceExt;
use serde_json::json;

use super::{
    BURST, Decision,
    cluster::{Cluster, controller_of},
    pods, status, template,
    write::{Target, Write},
};
use crate::scheduler::node_affinity::{admits, untolerated};

const HASH: &str = "controller-revision-hash";

/// What every pod of a DaemonSet tolerates: it belongs to the node, whatever the node's state.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(super) fn reconcile(cluster: &Cluster, uid: &str, now: Timestamp) -> Decision {
    let Some(set) = cluster.daemon_sets.get(uid) else {
        return Decision::default();
    };
    let owned = cluster.pods.owned_by(uid).map(AsRef::as_ref);
    let owned: Vec<&Pod> = owned
        .filter(|pod| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid))
        .collect();
    let nodes: BTreeMap<String, &Node> = cluster
        .nodes
        .iter()
        .map(|node| (node.name_any(), node.as_ref()))
        .collect();
    decide(set, &nodes, &owned, now)
}

fn decide(
    set: &DaemonSet,
    nodes: &BTreeMap<String, &Node>,
    owned: &[&Pod],
    now: Timestamp,
) -> Decision {
    let Some(spec) = &set.spec else {
        return Decision::default();
    };
    let pod = daemon_pod(set, spec);
    let mut by_node: HashMap<&str, Vec<&Pod>> = HashMap::new();
    for pod in owned {
        if let Some(node) = meant_for(pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    let is_leaving = set.metadata.deletion_timestamp.is_some();
    let mut writes = Vec::new();
    let mut counts = Counts::default();
    let mut outdated = Vec::new();
    for (name, node) in nodes {
        let here = by_node.remove(name.as_str()).unwrap_or_default();
        let (ended, present): (Vec<&Pod>, Vec<&Pod>) =
            here.into_iter().partition(|pod| pods::is_finished(pod));
        let active = present.iter().copied().filter(|pod| pods::is_active(pod));
        let active: Vec<&Pod> = active.collect();
        let place = place(pod.spec.as_ref(), node);
        if place != Place::Never {
            counts.count(
                place == Place::Wanted,
                active.first().copied(),
                spec,
                &pod,
                now,
            );
        }
        if is_leaving {
            continue;
        }
        // One that has ended makes room for the next.
        writes.extend(ended.into_iter().filter(|pod| pods_stay(pod)).map(delete));
        match place {
            Place::Wanted if present.is_empty() => writes.push(create(&pod, name)),
            Place::Never => writes.extend(active.into_iter().map(delete)),
            Place::Wanted | Place::Tolerated => {
                let order = pods::by_worth(&active);
                let surplus = order.len().saturating_sub(1);
                let (surplus, kept) = order.split_at(surplus);
                writes.extend(surplus.iter().copied().map(delete));
                outdated.extend(kept.iter().copied().filter(|own| !is_current(own, &pod)));
            }
        }
    }
    // What is meant for a node that does not exist would wait for ever.
    let lost = by_node.into_values().flatten();
    writes.extend(lost.filter(|pod| pods_stay(pod) && !is_leaving).map(delete));
    writes.extend(replace(spec, &counts, &outdated));
    writes.truncate(BURST);
    writes.extend(status::report(
        set,
        set.status.as_ref(),
        &counts.status(set),
    ));
    Decision {
        writes,
        again: counts.again,
    }
}

fn delete(pod: &Pod) -> Write {
    Write::Delete(Target::of(pod))
}

fn pods_stay(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod was made from the present template.
fn is_current(pod: &Pod, wanted: &Pod) -> bool {
    pod.labels().get(HASH) == wanted.labels().get(HASH)
}

/// How a node stands to the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Wanted,
    /// A pod that is there may stay, none is created.
    Tolerated,
    Never,
}

fn place(spec: Option<&PodSpec>, node: &Node) -> Place {
    let Some(spec) = spec else {
        return Place::Never;
    };
    if !admits(spec, &node.name_any(), node.labels()) {
        return Place::Never;
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let taints = taints.unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if untolerated(taints, &["NoExecute"], tolerations).is_some() {
        Place::Never
    } else if untolerated(taints, &["NoSchedule"], tolerations).is_some() {
        Place::Tolerated
    } else {
        Place::Wanted
    }
}

/// The pod for any node: the template with its hash and with what all such pods tolerate.
fn daemon_pod(set: &DaemonSet, spec: &DaemonSetSpec) -> Pod {
    let mut pod = pods::from_template(set, &spec.template);
    let hash = template::hash(&spec.template, 0);
    pod.labels_mut().insert(HASH.to_owned(), hash);
    let spec = pod.spec.get_or_insert_default();
    let on_host = spec.host_network == Some(true);
    let network = on_host.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    let tolerations = spec.tolerations.get_or_insert_default();
    tolerations.extend(
        TOLERATED
            .into_iter()
            .chain(network)
            .map(|(key, effect)| Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some(effect.to_owned()),
                ..Toleration::default()
            }),
    );
    pod
}

/// The pod for one node. Its name replaces the other terms: the node has been checked against them.
fn create(pod: &Pod, node: &str) -> Write {
    let mut pod = pod.clone();
    let affinity = pod
        .spec
        .get_or_insert_default()
        .affinity
        .get_or_insert_default();
    let affinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            }]),
            match_expressions: None,
        }],
    });
    Write::CreatePod(Box::new(pod))
}

/// The node of a pod, or the one that its affinity names.
fn meant_for(pod: &Pod) -> Option<&str> {
    let named = || {
        let affinity = pod
            .spec
            .as_ref()?
            .affinity
            .as_ref()?
            .node_affinity
            .as_ref()?;
        let required = affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()?;
        let terms = required.node_selector_terms.iter();
        let mut fields = terms.flat_map(|term| term.match_fields.iter().flatten());
        let field = fields.find(|field| field.key == "metadata.name")?;
        field.values.as_ref()?.first().map(String::as_str)
    };
    pods::node_of(pod).or_else(named)
}

/// Pods of an older template that may go now: never more unavailable than allowed.
fn replace<'a>(spec: &DaemonSetSpec, counts: &Counts, outdated: &[&'a Pod]) -> Vec<Write> {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return Vec::new();
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let allowed = match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or_default(),
        Some(IntOrString::String(text)) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or_default();
            (counts.desired * percent).div_ceil(100)
        }
        None => 1,
    };
    let unavailable = counts.desired.saturating_sub(counts.available);
    // Who is not ready anyway can go without being missed.
    let (unready, ready): (Vec<&'a Pod>, Vec<&'a Pod>) = outdated
        .iter()
        .copied()
        .partition(|pod| !pods::is_ready(pod));
    let ready = ready.into_iter().take(allowed.saturating_sub(unavailable));
    unready.into_iter().chain(ready).map(delete).collect()
}

/// The numbers of the status.
#[derive(Debug, Default)]
struct Counts {
    desired: usize,
    current: usize,
    misscheduled: usize,
    ready: usize,
    available: usize,
    updated: usize,
    again: Option<Duration>,
}

impl Counts {
    fn count(
        &mut self,
        is_wanted: bool,
        pod: Option<&Pod>,
        spec: &DaemonSetSpec,
        wanted: &Pod,
        now: Timestamp,
    ) {
        self.desired += usize::from(is_wanted);
        let Some(pod) = pod else { return };
        if !is_wanted {
            self.misscheduled += 1;
            return;
        }
        self.current += 1;
        self.updated += usize::from(is_current(pod, wanted));
        let min_ready = spec.min_ready_seconds.unwrap_or_default();
        if let Some(left) = pods::until_available(pod, min_ready, now) {
            self.ready += 1;
            if left.is_zero() {
                self.available += 1;
            } else {
                self.again = Some(self.again.map_or(left, |again| again.min(left)));
            }
        }
    }

    fn status(&self, set: &DaemonSet) -> serde_json::Value {
        json!({
            "observedGeneration": set.metadata.generation, "desiredNumberScheduled": self.desired,
            "currentNumberScheduled": self.current, "numberMisscheduled": self.misscheduled,
            "numberReady": self.ready, "numberAvailable": self.available,
            "numberUnavailable": self.desired.saturating_sub(self.available),
            "updatedNumberScheduled": self.updated,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn node(name: &str, spec: &Value) -> Node {
        let node = json!({"metadata": {"name": name, "labels": {"os": "linux"}}, "spec": spec});
        serde_json::from_value(node).expect("a node")
    }

    fn set(pod_spec: &Value) -> DaemonSet {
        let mut template =
            json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": []}});
        json_patch::merge(&mut template["spec"], pod_spec);
        let set = json!({"metadata": {"name": "agent", "namespace": "default", "uid": "set"},
            "spec": {"selector": {}, "template": template}});
        serde_json::from_value(set).expect("a DaemonSet")
    }

    /// The nodes for which pods are created, the pods that are deleted, and the status.
    fn decided(
        set: &DaemonSet,
        nodes: &[Node],
        owned: &[Pod],
    ) -> (Vec<String>, Vec<String>, Value) {
        let nodes = nodes.iter().map(|node| (node.name_any(), node)).collect();
        let owned: Vec<&Pod> = owned.iter().collect();
        let (mut created, mut deleted, mut status) = (Vec::new(), Vec::new(), Value::Null);
        for write in decide(set, &nodes, &owned, Timestamp::UNIX_EPOCH).writes {
            match write {
                Write::CreatePod(pod) => created.extend(meant_for(&pod).map(str::to_owned)),
                Write::Delete(target) => deleted.push(target.name),
                Write::Status(_, body) => status = body["status"].clone(),
                other => panic!("{other:?}"),
            }
        }
        (created, deleted, status)
    }

    fn created(set: &DaemonSet, node: &str) -> Pod {
        let spec = set.spec.as_ref().expect("a spec");
        let Write::CreatePod(mut pod) = create(&daemon_pod(set, spec), node) else {
            panic!("no creation")
        };
        pod.metadata.name = Some(format!("agent-{node}"));
        pod.metadata.uid = Some(format!("agent-{node}"));
        *pod
    }

    #[test]
    fn one_pod_for_every_node_that_takes_it() {
        let tainted = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let cordoned = json!({"unschedulable": true, "taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]});
        let nodes = [
            node("a", &json!({})),
            node("b", &tainted),
            node("c", &cordoned),
            node("d", &json!({})),
        ];
        let set = set(&json!({}));
        let (made, deleted, status) = decided(&set, &nodes, &[created(&set, "a")]);
        assert_eq!(made, ["c", "d"]);
        assert!(deleted.is_empty());
        assert_eq!(status["desiredNumberScheduled"], 3);
        assert_eq!(status["currentNumberScheduled"], 1);
        let elsewhere = self::set(&json!({"nodeSelector": {"os": "windows"}}));
        assert!(decided(&elsewhere, &nodes, &[]).0.is_empty());
    }

    #[test]
    fn what_has_no_place_any_more_is_deleted() {
        let set = set(&json!({}));
        let evicting = json!({"taints": [{"key": "k", "effect": "NoExecute"}]});
        let keeping = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let nodes = [node("a", &evicting), node("b", &keeping)];
        let owned = ["a", "b", "gone"].map(|name| created(&set, name));
        let (made, mut deleted, status) = decided(&set, &nodes, &owned);
        deleted.sort();
        assert_eq!(deleted, ["agent-a", "agent-gone"]);
        assert!(made.is_empty());
        assert_eq!(status["numberMisscheduled"], 1);
    }

    #[test]
    fn a_new_template_replaces_unready_pods_at_once_and_ready_ones_in_turn() {
        let old = set(&json!({"priority": 1}));
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let owned = ["a", "b", "c"].map(|name| {
            let mut pod = created(&old, name);
            pod.status = serde_json::from_value(ready.clone()).expect("a status");
            pod
        });
        let nodes = ["a", "b", "c"].map(|name| node(name, &json!({})));
        let new = set(&json!({"priority": 2}));
        assert_eq!(decided(&new, &nodes, &owned).1.len(), 1);
        let mut broken = owned.clone();
        broken[1].status = None;
        assert_eq!(decided(&new, &nodes, &broken).1, ["agent-b"]);
        assert!(decided(&old, &nodes, &owned).1.is_empty());
    }
}
