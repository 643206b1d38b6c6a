//! PodDisruptionBudgets: how many of their pods may be evicted now.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
    jiff::Timestamp,
};
use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};
use serde_json::{Value, json};

use super::{
    Decision,
    cluster::{Cluster, Kind, controller_of},
    index::Uid,
    pods, status,
};

/// How long an evicted pod may take to show that it is going; after that it counts as staying.
const EVICTION_DEADLINE: Duration = Duration::from_secs(120);

/// The budgets that a change in this namespace concerns: of a pod those that select it, otherwise all.
pub(super) fn concerned<'a>(
    cluster: &'a Cluster,
    namespace: Option<&'a str>,
    pod: Option<&'a ObjectMeta>,
) -> impl Iterator<Item = Uid> + 'a {
    let budgets = cluster.budgets.iter();
    let here = budgets.filter(move |budget| budget.metadata.namespace.as_deref() == namespace);
    let selected = here.filter(move |budget| match (pod, selector(budget)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(pod), Some(selector)) => selector.matches(&pod.labels.clone().unwrap_or_default()),
    });
    selected.filter_map(|budget| budget.uid())
}

/// The pods that the budget is about; a budget without a selector has none.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let selector = budget.spec.as_ref()?.selector.clone()?;
    selector.try_into().ok()
}

pub(super) fn reconcile(cluster: &Cluster, uid: &str, now: Timestamp) -> Decision {
    let Some(budget) = cluster.budgets.get(uid) else {
        return Decision::default();
    };
    let selector = selector(budget);
    let selected: Vec<&Pod> = cluster
        .pods
        .iter()
        .filter(|pod| pod.namespace() == budget.namespace())
        .filter(|pod| !pods::is_finished(pod))
        .filter(|pod| {
            selector
                .as_ref()
                .is_some_and(|selector| selector.matches(pod.labels()))
        })
        .map(AsRef::as_ref)
        .collect();
    decide(budget, &selected, scale(cluster, &selected), now)
}

/// How many pods the controllers of these pods want in total: the base of percentages.
fn scale(cluster: &Cluster, selected: &[&Pod]) -> i32 {
    let mut scales: HashMap<&str, i32> = HashMap::new();
    for pod in selected {
        let Some(owner) = controller_of(&pod.metadata) else {
            continue;
        };
        if Kind::of(owner) != Some(Kind::ReplicaSet) {
            continue;
        }
        let Some(set) = cluster.replica_sets.get(&owner.uid) else {
            continue;
        };
        let deployment = controller_of(&set.metadata)
            .and_then(|owner| Some((owner, cluster.deployments.get(&owner.uid)?)));
        match deployment {
            Some((owner, deployment)) => {
                let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                scales.insert(&owner.uid, replicas.unwrap_or(1));
            }
            None => {
                let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
                scales.insert(&owner.uid, replicas.unwrap_or(1));
            }
        }
    }
    scales.values().fold(0, |sum, n| sum.saturating_add(*n))
}

/// A number, or a percentage of `whole` rounded up.
fn scaled(value: &IntOrString, whole: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text
                .trim_end_matches('%')
                .parse::<i64>()
                .unwrap_or_default();
            let scaled = (i64::from(whole) * percent + 99).div_euclid(100);
            i32::try_from(scaled).unwrap_or(i32::MAX)
        }
    }
}

fn decide(budget: &PodDisruptionBudget, selected: &[&Pod], scale: i32, now: Timestamp) -> Decision {
    let Some(spec) = &budget.spec else {
        return Decision::default();
    };
    let count = i32::try_from(selected.len()).unwrap_or(i32::MAX);
    let (expected, desired) = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (scale, scale.saturating_sub(scaled(most, scale)).max(0)),
        (None, Some(least @ IntOrString::String(_))) => (scale, scaled(least, scale)),
        (None, Some(IntOrString::Int(least))) => (count, *least),
        (None, None) => (count, 0),
    };
    let known = budget.status.as_ref();
    let (evicted, again) = evictions(budget, selected, now);
    let healthy = selected.iter().filter(|pod| {
        let is_going = pod.metadata.deletion_timestamp.is_some()
            || evicted.contains_key(pod.name_any().as_str());
        !is_going && pods::is_ready(pod)
    });
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    let allowed = if expected > 0 {
        healthy.saturating_sub(desired).max(0)
    } else {
        0
    };
    let conditions = json!(known.and_then(|status| status.conditions.as_ref()));
    let reason = if allowed > 0 {
        "SufficientPods"
    } else {
        "InsufficientPods"
    };
    let mut condition = status::condition(
        &conditions,
        ("DisruptionAllowed", allowed > 0),
        (reason, ""),
        &now.to_string(),
    );
    condition["observedGeneration"] = json!(budget.metadata.generation);
    // A merge patch removes an entry by naming it with null.
    let mut disrupted = json!(evicted);
    for gone in known
        .iter()
        .flat_map(|status| status.disrupted_pods.iter().flatten())
    {
        if !evicted.contains_key(gone.0.as_str()) {
            disrupted[gone.0] = Value::Null;
        }
    }
    let mut wanted = json!({
        "expectedPods": expected, "desiredHealthy": desired, "currentHealthy": healthy,
        "disruptionsAllowed": allowed, "observedGeneration": budget.metadata.generation,
        "conditions": [condition],
    });
    if disrupted
        .as_object()
        .is_some_and(|all| all.values().any(Value::is_null))
    {
        wanted["disruptedPods"] = disrupted;
    }
    Decision {
        writes: status::report_exclusively(budget, known, &wanted)
            .into_iter()
            .collect(),
        again,
    }
}

/// The evictions that are still under way, and when the next of them is given up.
fn evictions<'a>(
    budget: &'a PodDisruptionBudget,
    selected: &[&Pod],
    now: Timestamp,
) -> (BTreeMap<&'a str, Value>, Option<Duration>) {
    let known = budget
        .status
        .iter()
        .flat_map(|status| &status.disrupted_pods);
    let mut under_way = BTreeMap::new();
    let mut again: Option<Duration> = None;
    for (name, since) in known.flatten() {
        let stays = |pod: &&&Pod| {
            pod.metadata.name.as_ref() == Some(name) && pod.metadata.deletion_timestamp.is_none()
        };
        let passed = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
        let left = EVICTION_DEADLINE.saturating_sub(passed);
        if !left.is_zero() && selected.iter().any(|pod| stays(&pod)) {
            under_way.insert(name.as_str(), json!(since));
            again = Some(again.map_or(left, |again| again.min(left)));
        }
    }
    (under_way, again)
}

#[cfg(test)]
mod tests {
    use super::super::write::Write;
    use super::*;

    fn pods(ready: usize, pending: usize) -> Vec<Pod> {
        let pod = |i: usize| {
            let conditions = if i < ready {
                json!([{"type": "Ready", "status": "True"}])
            } else {
                json!([])
            };
            let pod = json!({"metadata": {"name": format!("p{i}"), "uid": i.to_string()},
                "status": {"conditions": conditions}});
            serde_json::from_value(pod).expect("a pod")
        };
        (0..ready + pending).map(pod).collect()
    }

    fn status_of(budget: &Value, pods: &[Pod], scale: i32) -> Value {
        let budget: PodDisruptionBudget = serde_json::from_value(budget.clone()).expect("a budget");
        let refs: Vec<&Pod> = pods.iter().collect();
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        match decide(&budget, &refs, scale, now).writes.pop() {
            Some(Write::Status(_, body)) => body["status"].clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_allowed_follows_from_what_is_healthy() {
        let check = |spec: Value, (ready, pending): (usize, usize), expected: [i64; 4]| {
            let budget = json!({"metadata": {"uid": "b", "generation": 1}, "spec": spec});
            let scale = i32::try_from(ready + pending).expect("small");
            let status = status_of(&budget, &pods(ready, pending), scale);
            let numbers = [
                "expectedPods",
                "desiredHealthy",
                "currentHealthy",
                "disruptionsAllowed",
            ]
            .map(|field| status[field].as_i64().unwrap_or_default());
            assert_eq!(numbers, expected, "{spec}");
        };
        check(json!({"maxUnavailable": 1}), (3, 0), [3, 2, 3, 1]);
        check(json!({"maxUnavailable": 1}), (2, 1), [3, 2, 2, 0]);
        check(json!({"maxUnavailable": "30%"}), (10, 0), [10, 7, 10, 3]);
        check(json!({"maxUnavailable": "25%"}), (3, 0), [3, 2, 3, 1]);
        check(json!({"minAvailable": 2}), (3, 0), [3, 2, 3, 1]);
        check(json!({"minAvailable": "50%"}), (3, 0), [3, 2, 3, 1]);
        check(json!({"maxUnavailable": 0}), (3, 0), [3, 3, 3, 0]);
    }

    #[test]
    fn an_eviction_under_way_is_not_healthy_and_an_old_one_is_forgotten() {
        let budget = json!({"metadata": {"uid": "b"}, "spec": {"maxUnavailable": 2},
        "status": {"disruptedPods": {
            "p0": "2026-01-01T00:00:59Z", "p1": "2025-12-31T00:00:00Z", "gone": "2026-01-01T00:00:59Z",
        }}});
        let status = status_of(&budget, &pods(3, 0), 3);
        assert_eq!(status["currentHealthy"], 2);
        assert_eq!(status["disruptionsAllowed"], 1);
        assert_eq!(status["disruptedPods"]["p1"], Value::Null);
        assert_eq!(status["disruptedPods"]["gone"], Value::Null);
        assert!(status["disruptedPods"]["p0"].is_string());
    }
}
