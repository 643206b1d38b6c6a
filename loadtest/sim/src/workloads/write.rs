//! What reconcilers ask of the API server, and how it is carried out.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet},
        batch::v1::Job,
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    cluster::{Cluster, Key, Kind, Watched},
    garbage,
    index::Uid,
};

/// Who writes, as it stands in `managedFields`.
const MANAGER: &str = "workload-controllers";

/// An existing object that a write is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: Uid,
}

impl Target {
    pub(super) fn new(kind: Kind, meta: &ObjectMeta) -> Self {
        Self {
            kind,
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    pub(super) fn of<K: Watched>(object: &K) -> Self {
        Self::new(K::KIND, object.meta())
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    CreatePod(Box<Pod>),
    CreateReplicaSet(Box<ReplicaSet>),
    /// Deletes in the background.
    Delete(Target),
    /// Deletes a pod without grace unless its node turns out to exist: nobody else can end it.
    Strand(Target, String),
    /// Deletes unless one of these owners turns out to exist.
    Collect(Target, Vec<OwnerReference>),
    /// Merge patch.
    Patch(Target, Value),
    /// Merge patch of the status.
    Status(Target, Value),
}

/// What a write's answer means for the [`Cluster`].
pub(super) type Learn = Box<dyn FnOnce(&mut Cluster, &mut Vec<Key>) + Send>;

/// How a batch ended.
pub(super) struct Done {
    pub(super) learned: Vec<Learn>,
    pub(super) is_complete: bool,
}

/// Carries out the writes of one reconciliation, several at a time; `permits` bounds all batches together.
/// After a failure the rest is left: what refuses one pod (a quota) refuses the next.
pub(super) async fn carry_out(client: Client, writes: Vec<Write>, permits: &Semaphore) -> Done {
    let failed = AtomicBool::new(false);
    let one = async |write: Write| -> Option<Learn> {
        let _permit = permits.acquire().await.ok()?;
        if failed.load(Ordering::Relaxed) {
            return None;
        }
        match execute(&client, write).await {
            Ok(learn) => Some(learn),
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                tracing::debug!(%error, "workload controller's request failed");
                None
            }
        }
    };
    let answers = stream::iter(writes.into_iter().map(one));
    let answers = answers.buffer_unordered(super::REQUESTS);
    let learned: Vec<Option<Learn>> = answers.collect().await;
    Done {
        learned: learned.into_iter().flatten().collect(),
        is_complete: !failed.load(Ordering::Relaxed),
    }
}

async fn execute(client: &Client, write: Write) -> Result<Learn, kube::Error> {
    match write {
        Write::CreatePod(pod) => create(client, *pod).await,
        Write::CreateReplicaSet(set) => create(client, *set).await,
        Write::Delete(target) => change(client, &target, Change::Delete { grace: None }).await,
        Write::Strand(target, node) => {
            let nodes: Api<Node> = Api::all(client.clone());
            if nodes.get_metadata_opt(&node).await?.is_some() {
                return Ok(Box::new(|_, _| {}));
            }
            change(client, &target, Change::Delete { grace: Some(0) }).await
        }
        Write::Collect(target, owners) => {
            for owner in &owners {
                if exists(client, target.namespace.as_deref(), owner).await? {
                    return Ok(Box::new(|_, _| {}));
                }
            }
            change(client, &target, Change::Delete { grace: None }).await
        }
        Write::Patch(target, body) => change(client, &target, Change::Patch(body)).await,
        Write::Status(target, body) => change(client, &target, Change::Status(body)).await,
    }
}

async fn create<K>(client: &Client, object: K) -> Result<Learn, kube::Error>
where
    K: Watched + Resource<Scope = NamespaceResourceScope>,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let parameters = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let object = api.create(&parameters, &object).await?;
    Ok(Box::new(move |cluster, dirty| {
        cluster.written(object, dirty);
    }))
}

enum Change {
    Delete { grace: Option<u32> },
    Patch(Value),
    Status(Value),
}

async fn change(client: &Client, target: &Target, change: Change) -> Result<Learn, kube::Error> {
    let client = client.clone();
    let namespace = target.namespace.as_deref().unwrap_or_default();
    match target.kind {
        Kind::Node => apply(Api::<Node>::all(client), target, change).await,
        Kind::Pod => apply(Api::<Pod>::namespaced(client, namespace), target, change).await,
        Kind::ReplicaSet => {
            apply(
                Api::<ReplicaSet>::namespaced(client, namespace),
                target,
                change,
            )
            .await
        }
        Kind::Deployment => {
            apply(
                Api::<Deployment>::namespaced(client, namespace),
                target,
                change,
            )
            .await
        }
        Kind::DaemonSet => {
            apply(
                Api::<DaemonSet>::namespaced(client, namespace),
                target,
                change,
            )
            .await
        }
        Kind::Job => apply(Api::<Job>::namespaced(client, namespace), target, change).await,
        Kind::Budget => {
            let api = Api::<PodDisruptionBudget>::namespaced(client, namespace);
            apply(api, target, change).await
        }
    }
}

/// A write to an object that is gone succeeds: it teaches that it is gone.
async fn apply<K: Watched>(
    api: Api<K>,
    target: &Target,
    change: Change,
) -> Result<Learn, kube::Error> {
    let patch = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let answer = match change {
        Change::Delete { grace } => {
            let parameters = DeleteParams {
                grace_period_seconds: grace,
                propagation_policy: Some(PropagationPolicy::Background),
                preconditions: Some(Preconditions {
                    uid: Some(target.uid.clone()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let answer = api.delete(&target.name, &parameters).await;
            answer.map(|answer| answer.left().map(marked_deleted))
        }
        Change::Patch(body) => {
            let body = Patch::Merge(pinned(body, target));
            let answer = api.patch(&target.name, &patch, &body).await;
            answer.map(Some)
        }
        Change::Status(body) => {
            let body = Patch::Merge(pinned(body, target));
            let answer = api.patch_status(&target.name, &patch, &body).await;
            answer.map(Some)
        }
    };
    match answer {
        Ok(Some(object)) => Ok(Box::new(move |cluster, dirty| {
            cluster.written(object, dirty);
        })),
        Ok(None) => Ok(Box::new(|_, _| {})),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let uid = target.uid.clone();
            Ok(Box::new(move |cluster, dirty| {
                cluster.missing::<K>(&uid, dirty);
            }))
        }
        Err(error) => Err(error),
    }
}

/// A patch that names the uid cannot hit a new object of the same name.
fn pinned(mut body: Value, target: &Target) -> Value {
    if let Some(meta) = body
        .as_object_mut()
        .map(|body| {
            body.entry("metadata")
                .or_insert_with(|| serde_json::json!({}))
        })
        .and_then(Value::as_object_mut)
    {
        meta.insert("uid".to_owned(), Value::from(target.uid.clone()));
    }
    body
}

/// The answer to a deletion may show the object as it was; that it is on its way out is certain.
fn marked_deleted<K: Resource>(mut object: K) -> K {
    let deleted = &mut object.meta_mut().deletion_timestamp;
    deleted.get_or_insert_with(|| Time(Timestamp::now()));
    object
}

/// Whether an owner exists; asked of the API server, because a watch may be behind.
async fn exists(
    client: &Client,
    namespace: Option<&str>,
    owner: &OwnerReference,
) -> Result<bool, kube::Error> {
    async fn is_there<K: Watched>(
        api: Api<K>,
        owner: &OwnerReference,
    ) -> Result<bool, kube::Error> {
        let found = api.get_metadata_opt(&owner.name).await?;
        Ok(found.is_some_and(|found| {
            found.uid().as_ref() == Some(&owner.uid) && garbage::holds(&found.metadata)
        }))
    }
    let client = client.clone();
    let namespace = namespace.unwrap_or_default();
    match Kind::of(owner) {
        Some(Kind::Node) => is_there(Api::<Node>::all(client), owner).await,
        Some(Kind::Pod) => is_there(Api::<Pod>::namespaced(client, namespace), owner).await,
        Some(Kind::ReplicaSet) => {
            is_there(Api::<ReplicaSet>::namespaced(client, namespace), owner).await
        }
        Some(Kind::Deployment) => {
            is_there(Api::<Deployment>::namespaced(client, namespace), owner).await
        }
        Some(Kind::DaemonSet) => {
            is_there(Api::<DaemonSet>::namespaced(client, namespace), owner).await
        }
        Some(Kind::Job) => is_there(Api::<Job>::namespaced(client, namespace), owner).await,
        Some(Kind::Budget) => {
            is_there(
                Api::<PodDisruptionBudget>::namespaced(client, namespace),
                owner,
            )
            .await
        }
        // Of kinds that are not watched nothing is known: their dependents stay.
        None => Ok(true),
    }
}
