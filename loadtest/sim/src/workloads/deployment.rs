//! Deployments: one ReplicaSet for each revision of the template, moved from the old to the new.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
    jiff::Timestamp,
};
use kube::ResourceExt;
use serde_json::json;

use super::{
    Decision,
    cluster::{Cluster, controlled_by, controller_of},
    status, template,
    write::{Target, Write},
};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) fn reconcile(cluster: &Cluster, uid: &str, now: Timestamp) -> Decision {
    let Some(deployment) = cluster.deployments.get(uid) else {
        return Decision::default();
    };
    let mut owned: Vec<&ReplicaSet> = cluster
        .replica_sets
        .owned_by(uid)
        .filter(|set| controller_of(&set.metadata).is_some_and(|owner| owner.uid == uid))
        .map(AsRef::as_ref)
        .collect();
    owned.sort_by_key(|set| (revision(set), set.name_any()));
    let is_taken = |name: &str| {
        let mut sets = cluster.replica_sets.iter();
        sets.any(|set| set.namespace() == deployment.namespace() && set.name_any() == name)
    };
    decide(deployment, &owned, is_taken, now)
}

/// Decides with the Deployment's own ReplicaSets, oldest revision first.
fn decide(
    deployment: &Deployment,
    owned: &[&ReplicaSet],
    is_taken: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Decision {
    let Some(spec) = &deployment.spec else {
        return Decision::default();
    };
    let current = owned
        .iter()
        .rposition(|set| has_template(set, &spec.template));
    let current = current.and_then(|at| owned.get(at).copied());
    let old = owned.iter().copied();
    let old: Vec<&ReplicaSet> = old
        .filter(|set| current.is_none_or(|current| current.uid() != set.uid()))
        .collect();
    let mut writes = Vec::new();
    if deployment.metadata.deletion_timestamp.is_none() {
        match current {
            Some(current) => writes = roll(spec, current, &old),
            // A paused Deployment begins no new revision.
            None if spec.paused == Some(true) => {}
            None => {
                let revision = owned.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
                let replicas = first_replicas(spec, &old);
                let set = new_set(deployment, spec, is_taken, revision, replicas);
                writes.push(Write::CreateReplicaSet(Box::new(set)));
            }
        }
        writes.extend(outlived(spec, &old));
    }
    writes.extend(report(deployment, spec, current, owned, now));
    Decision::from(writes)
}

fn revision(set: &ReplicaSet) -> u64 {
    let text = set.annotations().get(REVISION);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Whether the set is of this template; the hash is a label that only the set's template has.
fn has_template(set: &ReplicaSet, template: &PodTemplateSpec) -> bool {
    let Some(own) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else {
        return false;
    };
    let labels = |template: &PodTemplateSpec| {
        let meta = template.metadata.clone().unwrap_or_default();
        let mut labels = meta.labels.unwrap_or_default();
        labels.remove(HASH);
        (labels, meta.annotations.unwrap_or_default())
    };
    own.spec == template.spec && labels(own) == labels(template)
}

/// What the API server makes of the template decides the name; a name that another set has is avoided.
fn new_set(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    is_taken: impl Fn(&str) -> bool,
    revision: u64,
    replicas: i32,
) -> ReplicaSet {
    let named = |attempt: u32| {
        let hash = template::hash(&spec.template, attempt);
        (format!("{}-{hash}", deployment.name_any()), hash)
    };
    let mut attempt = 0;
    let (name, hash) = loop {
        let (name, hash) = named(attempt);
        if attempt == u32::MAX || !is_taken(&name) {
            break (name, hash);
        }
        attempt += 1;
    };
    let mut pod_template = spec.template.clone();
    let labels = &mut pod_template.metadata.get_or_insert_default().labels;
    labels
        .get_or_insert_default()
        .insert(HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    let equal = selector.match_labels.get_or_insert_default();
    equal.insert(HASH.to_owned(), hash);
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: deployment.namespace(),
            labels,
            annotations: Some([(REVISION.to_owned(), revision.to_string())].into()),
            owner_references: Some(vec![controlled_by(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(pod_template),
        }),
        status: None,
    }
}

fn wanted(spec: &DeploymentSpec) -> i32 {
    spec.replicas.unwrap_or(1).max(0)
}

fn size(set: &ReplicaSet) -> i32 {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
    replicas.unwrap_or(1)
}

fn pods_of(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

fn available(set: &ReplicaSet) -> i32 {
    let status = set.status.as_ref();
    status
        .and_then(|status| status.available_replicas)
        .unwrap_or_default()
}

fn total(sets: &[&ReplicaSet], of: impl Fn(&ReplicaSet) -> i32) -> i32 {
    sets.iter().fold(0, |sum, set| sum.saturating_add(of(set)))
}

/// How far a rollout may go beyond and below the wanted number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slack {
    surge: i32,
    unavailable: i32,
}

fn slack(spec: &DeploymentSpec) -> Slack {
    let wanted = i64::from(wanted(spec));
    let scaled = |value: Option<&IntOrString>, round_up: i64| match value {
        Some(IntOrString::Int(number)) => *number,
        text => {
            let text = match text {
                Some(IntOrString::String(text)) => text.as_str(),
                _ => "25%",
            };
            let percent = text
                .trim_end_matches('%')
                .parse::<i64>()
                .unwrap_or_default();
            i32::try_from((wanted * percent + round_up).div_euclid(100)).unwrap_or(i32::MAX)
        }
    };
    let rolling = spec.strategy.as_ref();
    let rolling = rolling.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), 99);
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let unavailable = scaled(unavailable, 0);
    Slack {
        surge,
        // With neither, a rollout could not move.
        unavailable: if surge == 0 {
            unavailable.max(1)
        } else {
            unavailable
        },
    }
}

fn recreates(spec: &DeploymentSpec) -> bool {
    let strategy = spec.strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// With how many replicas a new revision begins.
fn first_replicas(spec: &DeploymentSpec, old: &[&ReplicaSet]) -> i32 {
    if recreates(spec) {
        let is_over = total(old, |set| size(set).max(pods_of(set))) == 0;
        return if is_over { wanted(spec) } else { 0 };
    }
    let room = wanted(spec) + slack(spec).surge - total(old, size);
    room.clamp(0, wanted(spec))
}

/// One step of the way from the old sets to the current one.
fn roll(spec: &DeploymentSpec, current: &ReplicaSet, old: &[&ReplicaSet]) -> Vec<Write> {
    let wanted = wanted(spec);
    if size(current) > wanted {
        let mut writes = vec![resize(current, wanted)];
        writes.extend(shrink(spec, current, old));
        return writes;
    }
    if recreates(spec) {
        let running = old.iter().copied().filter(|set| size(set) > 0);
        let mut writes: Vec<Write> = running.map(|set| resize(set, 0)).collect();
        if total(old, |set| size(set).max(pods_of(set))) == 0 && size(current) < wanted {
            writes.push(resize(current, wanted));
        }
        return writes;
    }
    let mut writes = Vec::new();
    if spec.paused != Some(true) || old.iter().all(|set| size(set) == 0) {
        let room = wanted + slack(spec).surge - total(old, size) - size(current);
        let growth = room.min(wanted - size(current));
        if growth > 0 {
            writes.push(resize(current, size(current) + growth));
        }
    }
    if spec.paused != Some(true) {
        writes.extend(shrink(spec, current, old));
    }
    writes
}

/// Takes from the old sets what the wanted availability does not need, unavailable pods first.
fn shrink(spec: &DeploymentSpec, current: &ReplicaSet, old: &[&ReplicaSet]) -> Vec<Write> {
    let least = wanted(spec) - slack(spec).unavailable;
    let unready = (size(current) - available(current)).max(0);
    let mut spare = total(old, size) + size(current) - least - unready;
    let mut sizes: Vec<i32> = old.iter().map(|set| size(set)).collect();
    for (set, size) in old.iter().zip(&mut sizes) {
        let broken = (*size - available(set)).clamp(0, spare.max(0));
        *size -= broken;
        spare -= broken;
    }
    let mut spare = spare.min(total(old, available) + available(current) - least);
    for size in &mut sizes {
        let taken = (*size).clamp(0, spare.max(0));
        *size -= taken;
        spare -= taken;
    }
    let changed = old.iter().zip(sizes);
    let changed = changed.filter(|(set, to)| size(set) != *to);
    changed.map(|(set, to)| resize(set, to)).collect()
}

fn resize(set: &ReplicaSet, replicas: i32) -> Write {
    Write::Patch(Target::of(set), json!({"spec": {"replicas": replicas}}))
}

/// Old sets beyond the history that is kept.
fn outlived(spec: &DeploymentSpec, old: &[&ReplicaSet]) -> Vec<Write> {
    let kept = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or_default();
    let idle: Vec<&ReplicaSet> = old
        .iter()
        .copied()
        .filter(|set| size(set) == 0 && pods_of(set) == 0)
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .collect();
    let surplus = idle.len().saturating_sub(kept);
    let surplus = idle.into_iter().take(surplus);
    surplus.map(|set| Write::Delete(Target::of(set))).collect()
}

fn report(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    current: Option<&ReplicaSet>,
    owned: &[&ReplicaSet],
    now: Timestamp,
) -> Option<Write> {
    let wanted = wanted(spec);
    let ready = total(owned, |set| {
        let status = set.status.as_ref();
        status
            .and_then(|status| status.ready_replicas)
            .unwrap_or_default()
    });
    let replicas = total(owned, pods_of);
    let is_available = total(owned, available);
    let updated = current.map_or(0, pods_of);
    let known = deployment.status.as_ref();
    let conditions = json!(known.and_then(|status| status.conditions.as_ref()));
    let now = now.to_string();
    let has_minimum = is_available >= wanted - slack(spec).unavailable.min(wanted);
    let minimum = if has_minimum {
        (
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    let is_complete = updated == wanted && replicas == wanted && is_available >= wanted;
    let set = current.map(|set| set.name_any()).unwrap_or_default();
    let (reason, message) = match (current, is_complete) {
        (None, _) => (
            "NewReplicaSetCreated",
            "Created new replica set.".to_owned(),
        ),
        (_, true) => (
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{set}\" has successfully progressed."),
        ),
        (_, false) => (
            "ReplicaSetUpdated",
            format!("ReplicaSet \"{set}\" is progressing."),
        ),
    };
    let with_update_time = |mut condition: serde_json::Value| {
        if condition.get("lastUpdateTime").is_none() {
            condition["lastUpdateTime"] = json!(now);
        }
        condition
    };
    let available = status::condition(&conditions, ("Available", has_minimum), minimum, &now);
    let progress = (reason, message.as_str());
    let progressing = status::condition(&conditions, ("Progressing", true), progress, &now);
    let wanted_status = json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
        "availableReplicas": is_available, "unavailableReplicas": (wanted.max(replicas) - is_available).max(0),
        "conditions": [with_update_time(available), with_update_time(progressing)],
    });
    status::report(deployment, known, &wanted_status)
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
