//! Pods of the played nodes: bound ones run, deleted ones end.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    KubeletConfig, Nodes, REQUESTS,
    node::{Request, persist},
};

/// Annotation of a pod that ends by itself: seconds until it has succeeded.
const RUN_SECONDS: &str = "millwright.dev/run-seconds";

/// What was last asked of a pod, so that an event seen twice is acted on once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Run,
    End,
}

/// Watches bound pods and plays them.
pub(super) async fn run(client: Client, nodes: Nodes, config: KubeletConfig) {
    let permits = Arc::new(Semaphore::new(REQUESTS));
    let watched: Api<Pod> = Api::all(client.clone());
    let filter = watcher::Config::default().fields("spec.nodeName!=");
    let mut events = std::pin::pin!(watcher(watched, filter).default_backoff());
    let mut asked: HashMap<String, Asked> = HashMap::new();
    let mut tasks = JoinSet::new();
    while let Some(event) = events.next().await {
        while tasks.try_join_next().is_some() {}
        let pod = match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => pod,
            Ok(watcher::Event::Delete(pod)) => {
                asked.remove(&pod.uid().unwrap_or_default());
                continue;
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) => {
                tracing::debug!(%error, "pod watch interrupted, resuming");
                continue;
            }
        };
        let Some(wish) = wish(&pod, &nodes) else {
            continue;
        };
        if asked.insert(pod.uid().unwrap_or_default(), wish) == Some(wish) {
            continue;
        }
        let api = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let (permits, config) = (permits.clone(), config.clone());
        match wish {
            Asked::Run => tasks.spawn(start(api, pod, config, permits)),
            Asked::End => tasks.spawn(end(api, pod, config, permits)),
        };
    }
}

fn wish(pod: &Pod, nodes: &Nodes) -> Option<Asked> {
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())?;
    if !nodes.contains(node) {
        return None;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Asked::End);
    }
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending");
    (phase == "Pending").then_some(Asked::Run)
}

async fn start(api: Api<Pod>, pod: Pod, config: KubeletConfig, permits: Arc<Semaphore>) {
    tokio::time::sleep(config.start_pod).await;
    let name = pod.name_any();
    let status = running(&pod);
    {
        let _permit = permits.acquire().await;
        persist(&api, &name, Request::Status(&status)).await;
    }
    let seconds = pod
        .annotations()
        .get(RUN_SECONDS)
        .and_then(|text| text.parse::<u64>().ok());
    if let Some(seconds) = seconds {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let _permit = permits.acquire().await;
        let done = json!({"status": {"phase": "Succeeded"}});
        persist(&api, &name, Request::Status(&done)).await;
    }
}

fn running(pod: &Pod) -> Value {
    let now = Time(Timestamp::now());
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    let conditions = [
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
    ]
    .map(condition);
    json!({"status": {
        "phase": "Running", "startTime": now, "containerStatuses": containers,
        "conditions": conditions,
    }})
}

async fn end(api: Api<Pod>, pod: Pod, config: KubeletConfig, permits: Arc<Semaphore>) {
    let grace = pod
        .metadata
        .deletion_grace_period_seconds
        .and_then(|s| u64::try_from(s).ok())
        .unwrap_or(30);
    tokio::time::sleep(Duration::from_secs(grace).min(config.grace_max)).await;
    let _permit = permits.acquire().await;
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    persist(&api, &pod.name_any(), Request::Delete(&parameters)).await;
}
