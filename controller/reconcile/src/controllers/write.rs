//! Writes: each carries the resource version it was decided on, and only what changes.

use std::fmt;

use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{Condition as ApiCondition, OwnerReference},
    jiff,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::ClusterResourceScope,
};
use millwright_api::{
    NodeClaim, annotations,
    conditions::{ConditionSet, Conditioned},
};
use millwright_lifecycle::{Change, Status, register::NodeEdit};
use millwright_model::{Taint, Timestamp};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::events::{Event, Recorder, Severity};

/// Name under which fields are owned.
const MANAGER: &str = "millwright";

/// Why a controller could not finish; the key is tried again with back-off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server refused or could not be reached.
    #[error("{what}")]
    Api {
        /// Operation and object.
        what: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object of ours cannot be written as JSON: a bug.
    #[error("{what}")]
    Json {
        /// The thing.
        what: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The cloud refused or could not be reached.
    #[error("cloud: {0}")]
    Cloud(#[from] millwright_cloud::CloudError),
    /// An annotation of ours is broken.
    #[error(transparent)]
    Deadline(#[from] millwright_lifecycle::termination::BadDeadline),
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Done.
    Yes,
    /// The object changed meanwhile, or is gone: look again.
    Stale,
}

/// A kind without a namespace, as all kinds that we write are.
pub(super) trait ClusterObject:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + fmt::Debug + DeserializeOwned
{
}

impl<K> ClusterObject for K where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + fmt::Debug
        + DeserializeOwned
{
}

/// 404 and 409 mean that the decision was made on an old picture.
pub(super) fn settle<T>(what: &str, result: Result<T, kube::Error>) -> Result<Written, Error> {
    match result {
        Ok(_) => Ok(Written::Yes),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Written::Stale),
        Err(source) => Err(Error::Api {
            what: what.to_owned(),
            source: Box::new(source),
        }),
    }
}

/// Writes what differs between the status of `object` and the one that was changed in memory.
pub(super) async fn status<K: ClusterObject + Serialize>(
    client: &Client,
    object: &K,
    status: impl Serialize,
) -> Result<Written, Error> {
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    let json = |source| Error::Json {
        what: format!("status of {} {name}", K::kind(&())),
        source,
    };
    let before = serde_json::to_value(object).map_err(json)?;
    let after = serde_json::to_value(status).map_err(json)?;
    let change = difference(before.get("status").unwrap_or(&Value::Null), after);
    let patch =
        json!({"metadata": {"resourceVersion": object.resource_version()}, "status": change});
    let result = api
        .patch_status(&name, &parameters(), &Patch::Merge(&patch))
        .await;
    settle(&format!("write status of {} {name}", K::kind(&())), result)
}

/// The merge patch that turns `before` into `after`: an entry that a map lost is named as null.
fn difference(before: &Value, after: Value) -> Value {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let mut patch: serde_json::Map<String, Value> = before
                .keys()
                .filter(|key| !after.contains_key(*key))
                .map(|key| (key.clone(), Value::Null))
                .collect();
            for (key, value) in after {
                match before.get(&key) {
                    Some(old) if *old == value => {}
                    Some(old) => {
                        patch.insert(key, difference(old, value));
                    }
                    None => {
                        patch.insert(key, value);
                    }
                }
            }
            Value::Object(patch)
        }
        (_, after) => after,
    }
}

/// Writes a merge patch on the version of the object it was decided on.
pub(super) async fn merge<K: ClusterObject>(
    client: &Client,
    object: &K,
    mut patch: Value,
) -> Result<Written, Error> {
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    patch["metadata"]["resourceVersion"] = object.resource_version().into();
    let result = api.patch(&name, &parameters(), &Patch::Merge(&patch)).await;
    settle(&format!("patch {} {name}", K::kind(&())), result)
}

/// Like [`merge`], and returns the object as it is afterwards; `None` when the decision was stale.
pub(super) async fn merge_and_read<K: ClusterObject>(
    client: &Client,
    object: &K,
    mut patch: Value,
) -> Result<Option<K>, Error> {
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    patch["metadata"]["resourceVersion"] = object.resource_version().into();
    match api.patch(&name, &parameters(), &Patch::Merge(&patch)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) => {
            settle::<K>(&format!("patch {} {name}", K::kind(&())), Err(error)).map(|_| None)
        }
    }
}

/// Writes annotations that nobody else writes, on whatever version there is of this very object.
pub(super) async fn annotate<K: ClusterObject>(
    client: &Client,
    object: &K,
    mut patch: Value,
) -> Result<Written, Error> {
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    patch["metadata"]["uid"] = object.uid().into();
    let result = api.patch(&name, &parameters(), &Patch::Merge(&patch)).await;
    settle(&format!("annotate {} {name}", K::kind(&())), result)
}

fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Deletes exactly this object, not a successor of its name.
pub(super) async fn delete<K: ClusterObject>(
    client: &Client,
    object: &K,
) -> Result<Written, Error> {
    let this = Preconditions {
        uid: object.uid(),
        resource_version: None,
    };
    delete_if(client, object, this).await
}

async fn delete_if<K: ClusterObject>(
    client: &Client,
    object: &K,
    preconditions: Preconditions,
) -> Result<Written, Error> {
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    let parameters = DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    settle(
        &format!("delete {} {name}", K::kind(&())),
        api.delete(&name, &parameters).await,
    )
}

/// Deletes an object if it is still as it was seen, so that a deletion is decided, done and counted
/// once even before the watch has told of it.
pub(super) async fn delete_as_seen<K: ClusterObject>(
    client: &Client,
    object: &K,
) -> Result<Written, Error> {
    let seen = Preconditions {
        uid: object.uid(),
        resource_version: object.resource_version(),
    };
    delete_if(client, object, seen).await
}

/// Takes a finalizer off; the object may vanish by it.
pub(super) async fn remove_finalizer<K: ClusterObject>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<Written, Error> {
    let left: Vec<&String> = object
        .finalizers()
        .iter()
        .filter(|f| *f != finalizer)
        .collect();
    if left.len() == object.finalizers().len() {
        return Ok(Written::Yes);
    }
    merge(client, object, json!({"metadata": {"finalizers": left}})).await
}

/// Puts a finalizer on.
pub(super) async fn add_finalizer<K: ClusterObject>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<Written, Error> {
    let mut all = object.finalizers().to_vec();
    all.push(finalizer.to_owned());
    merge(client, object, json!({"metadata": {"finalizers": all}})).await
}

/// Carries an edit of a Node out in one patch.
pub(super) async fn edit_node(
    client: &Client,
    node: &Node,
    owner: Option<&NodeClaim>,
    edit: &NodeEdit,
) -> Result<Written, Error> {
    let mut metadata = json!({});
    if !edit.labels.is_empty() {
        metadata["labels"] = texts(&edit.labels);
    }
    if !edit.annotations.is_empty() {
        metadata["annotations"] = texts(&edit.annotations);
    }
    if edit.add_finalizer {
        let mut all = node.finalizers().to_vec();
        all.push(annotations::TERMINATION_FINALIZER.to_owned());
        metadata["finalizers"] = json!(all);
    }
    if let Some(claim) = owner.filter(|_| edit.add_owner) {
        let mut owners = node.owner_references().to_vec();
        owners.push(OwnerReference {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodeClaim".to_owned(),
            name: claim.name_any(),
            uid: claim.uid().unwrap_or_default(),
            block_owner_deletion: Some(true),
            controller: None,
        });
        metadata["ownerReferences"] = json!(owners);
    }
    let mut patch = json!({"metadata": metadata});
    if !edit.add_taints.is_empty() || !edit.remove_taints.is_empty() {
        patch["spec"] = json!({"taints": taints_after(node, edit)});
    }
    merge(client, node, patch).await
}

/// A map of names as JSON.
pub(super) fn texts(
    map: &std::collections::BTreeMap<millwright_model::Name, millwright_model::Name>,
) -> Value {
    map.iter()
        .map(|(key, value)| (key.to_string(), Value::from(&**value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The whole list of taints, because a merge patch replaces lists. What stays keeps everything it
/// has; a taint that is there already is not added again, which the API server would refuse.
fn taints_after(node: &Node, edit: &NodeEdit) -> Vec<Value> {
    let current = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let same = |model: &Taint, taint: &k8s_openapi::api::core::v1::Taint| {
        *model.key == taint.key && model.effect.as_str() == taint.effect
    };
    let kept: Vec<_> = current
        .iter()
        .filter(|taint| !edit.remove_taints.iter().any(|gone| same(gone, taint)))
        .collect();
    let added = edit
        .add_taints
        .iter()
        .filter(|new| !kept.iter().any(|taint| same(new, taint)));
    let added: Vec<Value> = added.map(taint).collect();
    kept.iter().map(|taint| json!(taint)).chain(added).collect()
}

fn taint(taint: &Taint) -> Value {
    let mut value = json!({"key": &*taint.key, "effect": taint.effect.as_str()});
    if !taint.value.is_empty() {
        value["value"] = (&*taint.value).into();
    }
    value
}

/// Applies changes of conditions to an object in memory; says whether anything changed.
pub(super) fn apply_changes<K: Conditioned>(
    object: &mut K,
    changes: &[Change],
    now: Timestamp,
) -> bool {
    let mut set = ConditionSet::open(object, api_time(now));
    let mut changed = false;
    for change in changes {
        changed |= match change {
            Change::Set {
                kind,
                status,
                reason,
                message,
            } => match status {
                Status::True => set.set_true_with_reason(kind.as_str(), reason, message),
                Status::False => set.set_false(kind.as_str(), reason, message),
                Status::Unknown => set.set_unknown_with_reason(kind.as_str(), reason, message),
            },
            // Dependents and the root cannot be cleared; the rules never ask for it.
            Change::Clear(kind) => set.clear(kind.as_str()).unwrap_or(false),
        };
    }
    changed
}

/// The condition engine's time.
pub(super) fn api_time(now: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(now.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// Tells of every condition whose status changed.
pub(super) fn publish_transitions<K: Resource<DynamicType = ()>>(
    recorder: &Recorder,
    object: &K,
    before: &[ApiCondition],
    after: &[ApiCondition],
) {
    for condition in after {
        let old = before
            .iter()
            .find(|c| c.type_ == condition.type_)
            .map_or("Unknown", |c| c.status.as_str());
        if old == condition.status {
            continue;
        }
        let mut message = format!(
            "Status condition transitioned, Type: {}, Status: {old} -> {}, Reason: {}",
            condition.type_, condition.status, condition.reason
        );
        if !condition.message.is_empty() {
            message.push_str(", Message: ");
            message.push_str(&condition.message);
        }
        // The reason of such an event is the condition's type, one of a fixed set.
        let reason = static_name(&condition.type_);
        recorder.publish(Event::new(object, Severity::Normal, reason, message).keyed(Vec::new()));
    }
}

/// The condition types of our kinds as constants.
fn static_name(kind: &str) -> &'static str {
    use millwright_api::conditions as c;
    const KNOWN: &[&str] = &[
        c::READY,
        c::VALIDATION_SUCCEEDED,
        c::NODE_CLASS_READY,
        c::NODE_REGISTRATION_HEALTHY,
        c::LAUNCHED,
        c::REGISTERED,
        c::INITIALIZED,
        c::CONSOLIDATABLE,
        c::DRIFTED,
        c::DRAINED,
        c::VOLUMES_DETACHED,
        c::INSTANCE_TERMINATING,
        c::CONSISTENT_STATE_FOUND,
        c::DISRUPTION_REASON,
        c::AMIS_READY,
        c::SUBNETS_READY,
        c::SECURITY_GROUPS_READY,
        c::INSTANCE_PROFILE_READY,
        c::PLACEMENT_GROUP_READY,
        c::CAPACITY_RESERVATIONS_READY,
    ];
    KNOWN
        .iter()
        .find(|known| **known == kind)
        .copied()
        .unwrap_or("StatusCondition")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_what_changed_and_names_what_a_map_lost() {
        let before = json!({"nodes": 2, "resources": {"cpu": "4", "nvidia.com/gpu": "1"}, "conditions": [1]});
        let after = json!({"nodes": 2, "resources": {"cpu": "2"}, "conditions": [1, 2]});
        assert_eq!(
            difference(&before, after),
            json!({"resources": {"cpu": "2", "nvidia.com/gpu": null}, "conditions": [1, 2]})
        );
        assert_eq!(difference(&Value::Null, json!({"a": 1})), json!({"a": 1}));
    }

    #[test]
    fn taints_that_stay_keep_everything_and_none_is_there_twice() {
        let node: Node = serde_json::from_value(json!({"spec": {"taints": [
            {"key": "a", "effect": "NoExecute", "timeAdded": "2024-01-01T00:00:00Z"},
            {"key": "b", "effect": "NoSchedule"},
        ]}}))
        .expect("a node");
        let of = |key: &str| Taint::new(key, "", millwright_model::Effect::NoSchedule);
        let edit = NodeEdit {
            add_taints: vec![of("b"), of("c"), of("a")],
            remove_taints: vec![of("a")],
            ..NodeEdit::default()
        };
        let after = taints_after(&node, &edit);
        let keys: Vec<_> = after
            .iter()
            .map(|t| (t["key"].as_str(), t["effect"].as_str()))
            .collect();
        assert_eq!(
            keys,
            [
                (Some("a"), Some("NoExecute")),
                (Some("b"), Some("NoSchedule")),
                (Some("c"), Some("NoSchedule")),
                (Some("a"), Some("NoSchedule")),
            ]
        );
        assert_eq!(after[0]["timeAdded"], "2024-01-01T00:00:00Z");
    }
}
