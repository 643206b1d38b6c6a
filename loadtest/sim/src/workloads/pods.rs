//! What controllers ask about a pod, how they make one from a template, and which one they give up first.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use kube::{Resource, ResourceExt};

use super::cluster::controlled_by;

/// Annotation by which users say which pod to give up first; lower is first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Whether the pod counts: it has not ended and is not on its way out.
pub(super) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod has ended, well or badly.
pub(super) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(super) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// When the pod became ready; `None` while it is not.
fn ready_since(pod: &Pod) -> Option<Option<Timestamp>> {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions
        .flatten()
        .find(|condition| condition.type_ == "Ready")?;
    (ready.status == "True").then(|| ready.last_transition_time.as_ref().map(|time| time.0))
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// How long until the pod has been ready for `minReadySeconds`: zero when it is available already, `None`
/// while it is not ready.
pub(super) fn until_available(pod: &Pod, min_ready: i32, now: Timestamp) -> Option<Duration> {
    let since = ready_since(pod)?;
    let min_ready = Duration::from_secs(u64::try_from(min_ready).unwrap_or_default());
    let Some(since) = since.filter(|_| !min_ready.is_zero()) else {
        return Some(min_ready);
    };
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(min_ready.saturating_sub(passed))
}

pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    spec.node_name.as_deref().filter(|name| !name.is_empty())
}

/// A pod as the template says, controlled by `owner` and named after it.
pub(super) fn from_template<K>(owner: &K, template: &PodTemplateSpec) -> Pod
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name_any())),
            namespace: owner.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controlled_by(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// What a pod is worth to its controller; the derived order is the policy, least worth first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    is_bound: bool,
    phase: u8,
    is_ready: bool,
    deletion_cost: i32,
    /// The more siblings on its node, the less a pod is missed.
    siblings: Reverse<usize>,
    /// Who has been ready for longer is kept.
    ready_since: Reverse<Option<Timestamp>>,
    restarts: Reverse<i32>,
    created: Reverse<Option<Timestamp>>,
}

/// The pods in the order in which they are given up.
pub(super) fn by_worth<'a>(pods: &[&'a Pod]) -> Vec<&'a Pod> {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for node in pods.iter().filter_map(|pod| node_of(pod)) {
        *on_node.entry(node).or_default() += 1;
    }
    let worth = |pod: &Pod| Worth {
        is_bound: node_of(pod).is_some(),
        phase: match phase(pod) {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        },
        is_ready: is_ready(pod),
        deletion_cost: pod
            .annotations()
            .get(DELETION_COST)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        siblings: Reverse(
            node_of(pod)
                .and_then(|node| on_node.get(node))
                .copied()
                .unwrap_or_default(),
        ),
        ready_since: Reverse(ready_since(pod).flatten()),
        restarts: Reverse(
            pod.status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten())
                .map(|container| container.restart_count)
                .max()
                .unwrap_or_default(),
        ),
        created: Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
    };
    let mut ordered: Vec<(Worth, &'a Pod)> = pods.iter().map(|pod| (worth(pod), *pod)).collect();
    ordered.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.uid().cmp(&y.uid())));
    ordered.into_iter().map(|(_, pod)| pod).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, more: &Value) -> Pod {
        let mut value =
            json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": []}});
        json_patch::merge(&mut value, more);
        serde_json::from_value(value).expect("a pod")
    }

    fn ready(since: &str) -> Value {
        json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": since}]})
    }

    #[test]
    fn unbound_and_unready_pods_are_given_up_first() {
        let pods = [
            pod(
                "old",
                &json!({"spec": {"nodeName": "a"}, "status": ready("2026-01-01T00:00:00Z")}),
            ),
            pod(
                "young",
                &json!({"spec": {"nodeName": "b"}, "status": ready("2026-01-02T00:00:00Z")}),
            ),
            pod(
                "crowded",
                &json!({"spec": {"nodeName": "c"}, "status": ready("2026-01-01T00:00:00Z")}),
            ),
            pod(
                "cheap",
                &json!({"metadata": {"annotations": {DELETION_COST: "-5"}},
                    "spec": {"nodeName": "d"}, "status": ready("2026-01-01T00:00:00Z")}),
            ),
            pod(
                "unready",
                &json!({"spec": {"nodeName": "c"}, "status": {"phase": "Running"}}),
            ),
            pod("starting", &json!({"spec": {"nodeName": "e"}})),
            pod("unbound", &json!({})),
        ];
        let refs: Vec<&Pod> = pods.iter().collect();
        let order: Vec<String> = by_worth(&refs).iter().map(|pod| pod.name_any()).collect();
        assert_eq!(
            order,
            [
                "unbound", "starting", "unready", "cheap", "crowded", "young", "old"
            ]
        );
    }

    #[test]
    fn a_pod_becomes_available_with_time() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
        let ready = pod("a", &json!({"status": ready("2026-01-01T00:00:00Z")}));
        let check = |pod: &Pod, min: i32, seconds: Option<u64>| {
            assert_eq!(
                until_available(pod, min, now),
                seconds.map(Duration::from_secs)
            );
        };
        check(&ready, 0, Some(0));
        check(&ready, 10, Some(0));
        check(&ready, 15, Some(5));
        check(&pod("b", &json!({})), 0, None);
    }
}
