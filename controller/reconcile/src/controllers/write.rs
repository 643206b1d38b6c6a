//! Writes: each carries the resource version it was decided on, and only what changes.

use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{Condition as ApiCondition, OwnerReference},
    jiff,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
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

/// Writes the status of an object that was changed in memory.
pub(super) async fn status<K>(
    client: &Client,
    object: &K,
    status: impl Serialize,
) -> Result<Written, Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    K: Resource<Scope = kube::core::ClusterResourceScope>,
{
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    let patch =
        json!({"metadata": {"resourceVersion": object.resource_version()}, "status": status});
    let result = api
        .patch_status(&name, &parameters(), &Patch::Merge(&patch))
        .await;
    settle(&format!("write status of {} {name}", K::kind(&())), result)
}

/// Writes a merge patch on the version of the object it was decided on.
pub(super) async fn merge<K>(
    client: &Client,
    object: &K,
    mut patch: Value,
) -> Result<Written, Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    patch["metadata"]["resourceVersion"] = object.resource_version().into();
    let result = api.patch(&name, &parameters(), &Patch::Merge(&patch)).await;
    settle(&format!("patch {} {name}", K::kind(&())), result)
}

fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Deletes exactly this object, not a successor of its name.
pub(super) async fn delete<K>(client: &Client, object: &K) -> Result<Written, Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let name = object.name_any();
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    settle(
        &format!("delete {} {name}", K::kind(&())),
        api.delete(&name, &parameters).await,
    )
}

/// Takes a finalizer off; the object may vanish by it.
pub(super) async fn remove_finalizer<K>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<Written, Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
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
pub(super) async fn add_finalizer<K>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<Written, Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
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
        metadata["labels"] = json!(
            edit.labels
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect::<std::collections::BTreeMap<_, _>>()
        );
    }
    if !edit.annotations.is_empty() {
        metadata["annotations"] = json!(
            edit.annotations
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect::<std::collections::BTreeMap<_, _>>()
        );
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
        let current = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default();
        let gone = |taint: &k8s_openapi::api::core::v1::Taint| {
            edit.remove_taints
                .iter()
                .any(|gone| *gone.key == taint.key && gone.effect.as_str() == taint.effect)
        };
        let kept = current
            .iter()
            .filter(|taint| !gone(taint))
            .map(|taint| json!(taint));
        let taints: Vec<Value> = kept.chain(edit.add_taints.iter().map(taint)).collect();
        patch["spec"] = json!({"taints": taints});
    }
    merge(client, node, patch).await
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
