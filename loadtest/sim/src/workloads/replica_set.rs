//! ReplicaSets: as many pods as wanted.

use std::time::Duration;

use k8s_openapi::{
    api::{apps::v1::ReplicaSet, core::v1::Pod},
    jiff::Timestamp,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    BURST, Decision,
    cluster::{Cluster, controller_of},
    pods, status,
    write::{Target, Write},
};

pub(super) fn reconcile(cluster: &Cluster, uid: &str, now: Timestamp) -> Decision {
    let Some(set) = cluster.replica_sets.get(uid) else {
        return Decision::default();
    };
    let owned = cluster.pods.owned_by(uid).map(AsRef::as_ref);
    let owned: Vec<&Pod> = owned
        .filter(|pod| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid))
        .collect();
    decide(set, &owned, now)
}

/// What to create, what to delete and what to report, given the set's own pods.
fn decide(set: &ReplicaSet, owned: &[&Pod], now: Timestamp) -> Decision {
    let active: Vec<&Pod> = owned
        .iter()
        .copied()
        .filter(|pod| pods::is_active(pod))
        .collect();
    let mut writes = Vec::new();
    if set.metadata.deletion_timestamp.is_none() {
        writes = manage(set, &active);
    }
    let (wanted, again) = wanted_status(set, &active, now);
    writes.extend(status::report(set, set.status.as_ref(), &wanted));
    Decision { writes, again }
}

fn wanted(set: &ReplicaSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
    usize::try_from(replicas.unwrap_or(1)).unwrap_or_default()
}

fn manage(set: &ReplicaSet, active: &[&Pod]) -> Vec<Write> {
    let wanted = wanted(set);
    if active.len() < wanted {
        let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let Some(template) = template else {
            return Vec::new();
        };
        let pod = pods::from_template(set, template);
        let count = (wanted - active.len()).min(BURST);
        return vec![Write::CreatePod(Box::new(pod)); count];
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return Vec::new();
    }
    let surplus = pods::by_worth(active).into_iter().take(surplus);
    surplus.map(|pod| Write::Delete(Target::of(pod))).collect()
}

fn wanted_status(set: &ReplicaSet, active: &[&Pod], now: Timestamp) -> (Value, Option<Duration>) {
    let spec = set.spec.as_ref();
    let min_ready = spec
        .and_then(|spec| spec.min_ready_seconds)
        .unwrap_or_default();
    let template = spec.and_then(|spec| spec.template.as_ref());
    let labels = template
        .and_then(|template| template.metadata.as_ref())
        .and_then(|meta| meta.labels.clone())
        .unwrap_or_default();
    let has_labels = |pod: &&&Pod| {
        let of_pod = pod.labels();
        labels
            .iter()
            .all(|(key, value)| of_pod.get(key) == Some(value))
    };
    let ready: Vec<Duration> = active
        .iter()
        .filter_map(|pod| pods::until_available(pod, min_ready, now))
        .collect();
    let available = ready.iter().filter(|left| left.is_zero()).count();
    let again = ready.iter().filter(|left| !left.is_zero()).min().copied();
    let status = json!({
        "replicas": active.len(), "fullyLabeledReplicas": active.iter().filter(has_labels).count(),
        "readyReplicas": ready.len(), "availableReplicas": available,
        "observedGeneration": set.metadata.generation,
    });
    (status, again)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i32) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "set", "generation": 3},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        }))
        .expect("a ReplicaSet")
    }

    fn pod(name: usize, status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name.to_string(), "uid": name.to_string(), "labels": {"app": "web"}},
            "spec": {"containers": []}, "status": status,
        }))
        .expect("a pod")
    }

    /// Counts of creations and deletions for a set that wants `replicas` and has these pods.
    fn counts(set: &ReplicaSet, pods: &[Pod]) -> (usize, usize) {
        let refs: Vec<&Pod> = pods.iter().collect();
        let writes = decide(set, &refs, Timestamp::UNIX_EPOCH).writes;
        let count = |is: fn(&Write) -> bool| writes.iter().filter(|write| is(write)).count();
        (
            count(|write| matches!(write, Write::CreatePod(_))),
            count(|write| matches!(write, Write::Delete(_))),
        )
    }

    #[test]
    fn the_difference_is_created_or_deleted_in_bounded_bursts() {
        let pending = json!({"phase": "Pending"});
        let pods: Vec<Pod> = (0..700).map(|i| pod(i, &pending)).collect();
        for (replicas, have, expected) in [
            (0, 0, (0, 0)),
            (3, 0, (3, 0)),
            (3, 3, (0, 0)),
            (1, 3, (0, 2)),
            (5000, 0, (BURST, 0)),
            (0, 700, (0, BURST)),
        ] {
            assert_eq!(
                counts(&set(replicas), &pods[..have]),
                expected,
                "{replicas} wanted, {have} there"
            );
        }
    }

    #[test]
    fn ended_pods_are_replaced_and_a_set_on_its_way_out_creates_nothing() {
        let pods = [
            pod(1, &json!({"phase": "Failed"})),
            pod(2, &json!({"phase": "Running"})),
        ];
        assert_eq!(counts(&set(2), &pods), (1, 0));
        let mut deleted = set(2);
        deleted.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
        assert_eq!(counts(&deleted, &pods), (0, 0));
    }

    #[test]
    fn the_status_is_written_when_it_changes_only() {
        let ready = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let pods = [pod(1, &ready), pod(2, &json!({}))];
        let refs: Vec<&Pod> = pods.iter().collect();
        let mut set = set(2);
        let now = "2026-01-02T00:00:00Z".parse().expect("a time");
        let (status, again) = wanted_status(&set, &refs, now);
        let expected = json!({"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 1,
            "availableReplicas": 1, "observedGeneration": 3});
        assert_eq!((&status, again), (&expected, None));
        set.status = serde_json::from_value(status).expect("a status");
        assert!(decide(&set, &refs, now).writes.is_empty());
    }
}
