//! What a case has: a client, a namespace of its own, and words for what it expects.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::core::Status;
use kube::{Api, Client, Config, Resource};
use millwright_sim::kube::KubeSimHandle;
use millwright_tests::eventually;
use serde_json::{Value, json};

/// How long anything that needs no work by a controller may take.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// See the module's documentation.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The simulator of this case alone; `None` on the real control plane.
    sim: Option<KubeSimHandle>,
}

impl World {
    pub(crate) async fn simulated(sim: KubeSimHandle) -> anyhow::Result<Self> {
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(sim.kubeconfig(), &options).await?;
        let client = client(config)?;
        let namespace = new_namespace(&client).await?;
        Ok(Self {
            client,
            namespace,
            sim: Some(sim),
        })
    }

    pub(crate) async fn real(config: Config) -> anyhow::Result<Self> {
        let client = client(config)?;
        let namespace = new_namespace(&client).await?;
        // Pods need their namespace's ServiceAccount, which a controller makes.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
        eventually("a ServiceAccount", SOON, || async {
            Ok(accounts.get("default").await?)
        })
        .await;
        Ok(Self {
            client,
            namespace,
            sim: None,
        })
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A name for something outside the namespace.
    pub(crate) fn unique(&self, name: &str) -> String {
        format!("{name}-{}", self.namespace)
    }

    /// Makes revisions of the past unusable; `false` where that takes minutes (the real server
    /// compacts its history every five).
    pub(crate) fn forget_history(&self) -> bool {
        if let Some(sim) = &self.sim {
            sim.compact();
        }
        self.sim.is_some()
    }

    /// Sends any request and gives the answer as JSON.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> kube::Result<Value> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// The path of a core resource in the case's namespace.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }
}

/// A client that shows refusals at once instead of trying again.
fn client(mut config: Config) -> kube::Result<Client> {
    config.default_retry = false;
    Client::try_from(config)
}

async fn new_namespace(client: &Client) -> anyhow::Result<String> {
    let namespace: Namespace = from(json!({ "metadata": { "generateName": "case-" } }));
    let created = Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    created.metadata.name.context("a name")
}

/// An object from its JSON form.
pub(crate) fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a well-formed object")
}

pub(crate) fn config_map(name: &str, data: Value) -> ConfigMap {
    let mut object = json!({ "metadata": { "name": name } });
    object["data"] = data;
    from(object)
}

pub(crate) fn pod(name: &str, labels: Value) -> Pod {
    let mut object = json!({
        "metadata": { "name": name },
        "spec": {
            "schedulerName": "nobody",
            "containers": [{ "name": "main", "image": "example.test/none:1" }],
        },
    });
    object["metadata"]["labels"] = labels;
    from(object)
}

/// Binds a pod to a node that nobody plays, and says that it runs.
pub(crate) async fn run_pod(world: &World, name: &str) -> anyhow::Result<()> {
    bind(world, name).await?;
    let status = json!({ "status": {
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    let pods: Api<Pod> = world.api();
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

pub(crate) async fn bind(world: &World, name: &str) -> kube::Result<Value> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "nowhere" },
    });
    let path = world.path(&format!("pods/{name}/binding"));
    world
        .request("POST", &path, "application/json", &binding)
        .await
}

/// The `Status` that a request must be refused with.
pub(crate) fn refused<T: Debug>(result: kube::Result<T>, code: u16) -> anyhow::Result<Box<Status>> {
    match result {
        Err(kube::Error::Api(status)) => {
            ensure!(
                status.code == code,
                "refused with {} instead of {code}: {}",
                status.code,
                status.message
            );
            Ok(status)
        }
        Err(other) => bail!("failed otherwise: {other}"),
        Ok(found) => bail!("not refused: {found:?}"),
    }
}

/// The fields that the causes of a refusal name, each with its reason.
pub(crate) fn causes(status: &Status) -> Vec<(String, String)> {
    let details = status.details.as_ref();
    let causes = details.map_or(&[][..], |details| &details.causes);
    causes
        .iter()
        .map(|cause| (cause.field.clone(), cause.reason.clone()))
        .collect()
}

/// Fails unless a refusal names a field for a reason.
pub(crate) fn names_field(status: &Status, field: &str, reason: &str) -> anyhow::Result<()> {
    let causes = causes(status);
    let named = causes.iter().any(|(f, r)| f == field && r == reason);
    ensure!(
        named,
        "no cause {field} {reason} in {causes:?}: {}",
        status.message
    );
    Ok(())
}
