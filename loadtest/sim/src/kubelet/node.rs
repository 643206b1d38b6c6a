//! One node: registration, readiness, heartbeat, end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use millwright_ec2_catalogue::{Architecture, TypeFacts};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{KubeletConfig, Nodes, user_data::registration};
use crate::aws::Instance;

/// Attempts of a request before a node gives up for this boot.
const ATTEMPTS: u32 = 30;

/// What a node asks of the API server.
#[derive(Debug)]
pub(super) enum Request<'a, K> {
    /// Create the object.
    Create(&'a K),
    /// Strategic merge patch of the status.
    Status(&'a serde_json::Value),
    /// Delete the object.
    Delete(&'a DeleteParams),
}

impl<K> Request<'_, K> {
    /// Whether repeating it after this answer is of no use.
    const fn is_settled_by(&self, code: u16) -> bool {
        match self {
            Self::Create(_) | Self::Delete(_) => matches!(code, 404 | 409 | 422),
            // The API server gives up on a patch (409) when the object changes too often under it.
            Self::Status(_) => matches!(code, 404 | 422),
        }
    }
}

/// Repeats a request with growing pauses: API servers restart while nodes boot. What exists already, is
/// gone, or is refused for good ends it; a status that others kept changing meanwhile does not.
pub(super) async fn persist<K>(api: &Api<K>, name: &str, request: Request<'_, K>)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    for attempt in 0..ATTEMPTS {
        let result = match &request {
            Request::Create(object) => api.create(&PostParams::default(), object).await.map(drop),
            Request::Status(patch) => {
                let patch = Patch::Strategic(patch);
                api.patch_status(name, &PatchParams::default(), &patch)
                    .await
                    .map(drop)
            }
            Request::Delete(parameters) => api.delete(name, parameters).await.map(drop),
        };
        match result {
            Ok(()) => return,
            Err(kube::Error::Api(status)) if request.is_settled_by(status.code) => return,
            Err(error) => tracing::debug!(name, attempt, %error, "node's request failed"),
        }
        tokio::time::sleep(Duration::from_millis(100 * u64::from(attempt.min(20) + 1))).await;
    }
}

/// Boots a node: registers it not ready, then makes it ready.
pub(super) async fn boot(
    client: Client,
    instance: Arc<Instance>,
    nodes: Nodes,
    config: KubeletConfig,
    permits: Arc<Semaphore>,
) {
    tokio::time::sleep(config.boot).await;
    let api: Api<Node> = Api::all(client);
    let node = node_object(&instance);
    let name = instance.private_dns_name.to_string();
    {
        let _permit = permits.acquire().await;
        // A conflict means that the Node exists: a kubelet that restarts takes it over.
        persist(&api, &name, Request::Create(&node)).await;
    }
    nodes.lock().insert(name.clone(), instance);
    tokio::time::sleep(config.ready).await;
    let _permit = permits.acquire().await;
    let ready = json!({"status": {"conditions": conditions(true)}});
    persist(&api, &name, Request::Status(&ready)).await;
}

fn node_object(instance: &Instance) -> Node {
    let facts = instance.facts;
    let registration = registration(instance.user_data().unwrap_or_default());
    let name = instance.private_dns_name.to_string();
    let region = instance
        .zone
        .name
        .trim_end_matches(|c: char| c.is_ascii_lowercase())
        .to_owned();
    let arch = match facts.architecture {
        Architecture::Amd64 => "amd64",
        Architecture::Arm64 => "arm64",
    };
    let mut labels: BTreeMap<String, String> = registration.labels;
    for (key, value) in [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("node.kubernetes.io/instance-type", facts.name),
        ("topology.kubernetes.io/zone", &instance.zone.name),
        ("topology.kubernetes.io/region", &region),
        ("topology.k8s.aws/zone-id", &instance.zone.id),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let (capacity, allocatable) = room(facts, registration.max_pods);
    let address = instance.private_ip.map(|ip| NodeAddress {
        type_: "InternalIP".into(),
        address: ip.to_string(),
    });
    Node {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(instance.provider_id()),
            taints: (!registration.taints.is_empty()).then_some(registration.taints),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: address.map(|address| vec![address]),
            capacity: Some(capacity),
            allocatable: Some(allocatable),
            conditions: Some(conditions(false)),
            ..NodeStatus::default()
        }),
    }
}

fn conditions(ready: bool) -> Vec<NodeCondition> {
    let now = Time(Timestamp::now());
    let condition = |type_: &str, status: bool, reason: &str| NodeCondition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(String::new()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    vec![
        condition("MemoryPressure", false, "KubeletHasSufficientMemory"),
        condition("DiskPressure", false, "KubeletHasNoDiskPressure"),
        condition("PIDPressure", false, "KubeletHasSufficientPID"),
        condition(
            "Ready",
            ready,
            if ready {
                "KubeletReady"
            } else {
                "KubeletNotReady"
            },
        ),
    ]
}

/// Capacity and allocatable. The documented allocatable of the type is an independent source: the
/// controller's own computation is put to the test here, not repeated.
fn room(
    facts: &TypeFacts,
    max_pods: Option<u32>,
) -> (BTreeMap<String, Quantity>, BTreeMap<String, Quantity>) {
    let vcpu_millis = u64::from(facts.vcpu) * 1000;
    let (cpu, memory_mib, documented_pods) = facts.allocatable.as_ref().map_or_else(
        || {
            (
                vcpu_millis.saturating_sub(100),
                facts.memory_mib * 9 / 10,
                110,
            )
        },
        |documented| {
            (
                documented.cpu_millis,
                documented.memory_mib,
                documented.pods,
            )
        },
    );
    let pods = max_pods.unwrap_or(documented_pods);
    let list = |cpu: u64, memory_mib: u64, storage: &str| {
        let mut list = BTreeMap::from([
            ("cpu".to_owned(), Quantity(format!("{cpu}m"))),
            ("memory".to_owned(), Quantity(format!("{memory_mib}Mi"))),
            ("pods".to_owned(), Quantity(pods.to_string())),
            ("ephemeral-storage".to_owned(), Quantity(storage.to_owned())),
        ]);
        if let Some(gpu) = facts.gpu.as_ref().filter(|gpu| gpu.count > 0) {
            list.insert("nvidia.com/gpu".to_owned(), Quantity(gpu.count.to_string()));
        }
        list
    };
    (
        list(vcpu_millis, facts.memory_mib, "20Gi"),
        list(cpu, memory_mib, "17Gi"),
    )
}

/// Renews the Leases of all nodes, a few at a time.
pub(super) async fn renew_leases(client: Client, nodes: Nodes, every: Duration) {
    let api: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    loop {
        tokio::time::sleep(every).await;
        let names: Vec<String> = nodes.lock().keys().cloned().collect();
        let renewals = names.into_iter().map(|name| {
            let api = api.clone();
            async move {
                let spec = json!({
                    "holderIdentity": name, "leaseDurationSeconds": 40,
                    "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
                });
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": name}, "spec": spec,
                });
                let parameters = PatchParams::apply("kubelet").force();
                if let Err(error) = api.patch(&name, &parameters, &Patch::Apply(&lease)).await {
                    tracing::debug!(node = name, %error, "lease could not be renewed");
                }
            }
        });
        let mut renewals = std::pin::pin!(futures::stream::iter(renewals));
        let mut running = futures::stream::FuturesUnordered::new();
        use futures::StreamExt as _;
        while let Some(renewal) = renewals.next().await {
            if running.len() >= super::REQUESTS / 2 {
                running.next().await;
            }
            running.push(renewal);
        }
        while running.next().await.is_some() {}
    }
}

/// Deletes the Node of an instance that is gone.
pub(super) async fn delete(client: Client, instance: Arc<Instance>, permits: Arc<Semaphore>) {
    let _permit = permits.acquire().await;
    let api: Api<Node> = Api::all(client);
    persist(
        &api,
        &instance.private_dns_name,
        Request::Delete(&DeleteParams::default()),
    )
    .await;
}
