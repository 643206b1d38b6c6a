//! What the scheduler asks of the API server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Binding, Event, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams, Request},
};

use super::{
    pod::{PodInfo, node_of},
    report,
};

/// Attempts at one binding before the node is given up.
const ATTEMPTS: u32 = 5;

/// Pause after the first failed attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(50);

/// What became of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// It is bound to this node, by us or by somebody else.
    To(String),
    /// The pod is gone.
    Gone,
    /// It is certainly not bound.
    Failed,
}

/// Binds a pod and says what became of it. An answer that was lost leaves open whether the pod is bound, so the same binding is
/// repeated, and a refusal is answered by looking.
pub(super) async fn bind(client: Client, pod: Arc<PodInfo>, node: String) -> (Arc<PodInfo>, Bound) {
    let bound = try_binding(&client, &pod, node).await;
    (pod, bound)
}

async fn try_binding(client: &Client, pod: &PodInfo, node: String) -> Bound {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    for attempt in 0..ATTEMPTS {
        match post_binding(client, pod, &node).await {
            Ok(()) => return Bound::To(node),
            Err(kube::Error::Api(status)) if status.code == 404 => return Bound::Gone,
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) if (400..429).contains(&status.code) => {
                tracing::debug!(pod = pod.name, %status, "binding refused");
                return Bound::Failed;
            }
            Err(error) => {
                tracing::debug!(pod = pod.name, attempt, %error, "binding failed");
            }
        }
        if let Ok(found) = pods.get_opt(&pod.name).await {
            let same = found.filter(|found| found.metadata.uid.as_ref() == Some(&pod.uid));
            let Some(same) = same else {
                return Bound::Gone;
            };
            if let Some(node) = node_of(&same) {
                return Bound::To(node.to_owned());
            }
        }
        tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await;
    }
    Bound::Failed
}

async fn post_binding(client: &Client, pod: &PodInfo, node: &str) -> Result<(), kube::Error> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            // A new pod of the same name is not meant.
            uid: Some(pod.uid.clone()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let body = serde_json::to_vec(&binding).map_err(kube::Error::SerdeError)?;
    let path = format!("/api/v1/namespaces/{}/pods", pod.namespace);
    let request = Request::new(path)
        .create_subresource("binding", &pod.name, &PostParams::default(), body)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<Status>(request).await.map(drop)
}

/// Writes the condition and the event. Answers with the pod's uid when the pod has changed meanwhile, so
/// that there may be something else to say.
pub(super) async fn tell(
    client: Client,
    pod: Arc<PodInfo>,
    message: String,
    unique: u64,
) -> Option<String> {
    let now = Timestamp::now();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let patch = report::condition(&pod, &message, now);
    let patch = Patch::Strategic(patch);
    let parameters = PatchParams::default();
    match pods.patch_status(&pod.name, &parameters, &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            return Some(pod.uid.clone());
        }
        Err(error) => {
            tracing::debug!(pod = pod.name, %error, "condition not written");
            return None;
        }
    }
    let events: Api<Event> = Api::namespaced(client, &pod.namespace);
    let event = report::event(&pod, &message, now, unique);
    if let Err(error) = events.create(&PostParams::default(), &event).await {
        tracing::debug!(pod = pod.name, %error, "event not written");
    }
    None
}
