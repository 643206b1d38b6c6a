//! A cluster without nodes, a cloud in memory, and the controllers between them.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use k8s_openapi::{
    api::core::v1::{Event, Node, Pod, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use millwright_api::{
    Ec2NodeClass, NodeClaim, NodePool,
    conditions::{self, Conditioned},
};
use millwright_cloud::{
    CloudError, Instance, LaunchGroup, NodeClassResolution, Provider, memory::MemoryProvider,
};
use millwright_model::{
    CapacityType, InstanceType, NanoDollarsPerHour, NodeClaimName, Offering, ProviderId,
    Requirement, Resources, Span, instance_type::InstanceTypes, labels,
};
use millwright_reconcile::{
    Context, Settings,
    batch::BatchSettings,
    controllers,
    events::{Recorder, write_events},
    leader::Leadership,
};
use millwright_scheduling::SolveSettings;
use millwright_tests::{ControlPlane, ControlPlaneOptions, eventually};
use serde_json::{Value, from_value, json};
use tokio::{
    sync::{Mutex, MutexGuard, watch},
    task::JoinSet,
};

/// Longest wait for anything but the delays that the rules prescribe.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// Longest wait for an event: emptiness looks every 10 s and validates after 15 s.
const TOLD: Duration = Duration::from_secs(90);
/// One test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// A cloud whose answers to launches can be held back after the instances exist.
#[derive(Debug)]
pub(crate) struct Gated {
    cloud: Arc<MemoryProvider>,
    open: watch::Receiver<bool>,
}

#[async_trait]
impl Provider for Gated {
    fn instance_types(&self, class: &Ec2NodeClass) -> Result<InstanceTypes, CloudError> {
        self.cloud.instance_types(class)
    }
    fn epoch(&self) -> u64 {
        self.cloud.epoch()
    }
    async fn refresh(&self) -> Result<(), CloudError> {
        self.cloud.refresh().await
    }
    async fn resolve_node_class(
        &self,
        class: &Ec2NodeClass,
    ) -> Result<NodeClassResolution, CloudError> {
        self.cloud.resolve_node_class(class).await
    }
    async fn finalize_node_class(&self, class: &Ec2NodeClass) -> Result<(), CloudError> {
        self.cloud.finalize_node_class(class).await
    }
    async fn launch(&self, group: LaunchGroup) -> Vec<Result<Instance, CloudError>> {
        let answer = self.cloud.launch(group).await;
        // A closed channel is an open gate.
        let _ = self.open.clone().wait_for(|open| *open).await;
        answer
    }
    async fn tag(&self, id: &ProviderId, claim: &NodeClaimName) -> Result<(), CloudError> {
        self.cloud.tag(id, claim).await
    }
    async fn get(&self, id: &ProviderId) -> Result<Instance, CloudError> {
        self.cloud.get(id).await
    }
    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        self.cloud.list().await
    }
    async fn terminate(&self, id: &ProviderId) -> Result<(), CloudError> {
        self.cloud.terminate(id).await
    }
}

/// Everything a test needs.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) cloud: Arc<MemoryProvider>,
    pool_uid: String,
    gate: watch::Sender<bool>,
    controllers: JoinSet<()>,
    _plane: ControlPlane,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    /// A cluster with a class and a pool that are ready; `None` after printing why it is skipped.
    pub(crate) async fn start() -> anyhow::Result<Option<Self>> {
        let turn = TURN.lock().await;
        let options = ControlPlaneOptions {
            scheduler: false,
            controller_manager: false,
            ..ControlPlaneOptions::default()
        };
        let Some(plane) = ControlPlane::start_or_skip(options).await else {
            return Ok(None);
        };
        let client = plane.admin().await?;
        install(&client).await?;
        let mut world = Self {
            client,
            cloud: Arc::new(MemoryProvider::new(types())),
            pool_uid: String::new(),
            gate: watch::Sender::new(true),
            controllers: JoinSet::new(),
            _plane: plane,
            _turn: turn,
        };
        world.run_controllers();
        world.create::<Ec2NodeClass>(class()).await?;
        let pool: NodePool = world.create(pool()).await?;
        world.pool_uid = pool.uid().unwrap_or_default();
        world
            .reaches("the pool is ready", "default", |pool: &NodePool| {
                ensure!(pool.is_ready_now(), "{:?}", pool.conditions());
                Ok(())
            })
            .await;
        Ok(Some(world))
    }

    /// Starts the controllers, as a new process would.
    pub(crate) fn run_controllers(&mut self) {
        let provider = Gated {
            cloud: self.cloud.clone(),
            open: self.gate.subscribe(),
        };
        let (recorder, queue) = Recorder::new();
        let writer = write_events(self.client.clone(), "test".to_owned(), queue);
        self.controllers.spawn(writer);
        let context = Context::start(
            self.client.clone(),
            Arc::new(provider),
            recorder,
            Leadership::always(),
            settings(),
            &mut self.controllers,
        );
        controllers::start(&context, &mut self.controllers);
    }

    /// Ends the controllers in the middle of whatever they do.
    pub(crate) async fn kill_controllers(&mut self) {
        self.controllers.shutdown().await;
    }

    /// Holds answers to launches back, or lets them through.
    pub(crate) fn hold_launches(&self, hold: bool) {
        self.gate.send_replace(!hold);
    }

    pub(crate) async fn create<K>(&self, object: Value) -> anyhow::Result<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
        K: serde::de::DeserializeOwned + serde::Serialize,
        K: kube::Resource<Scope = kube::core::ClusterResourceScope>,
    {
        let object: K = from_value(object).context("a manifest of the test")?;
        let api: Api<K> = Api::all(self.client.clone());
        Ok(api.create(&PostParams::default(), &object).await?)
    }

    pub(crate) async fn get<K>(&self, name: &str) -> anyhow::Result<Option<K>>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        Ok(Api::<K>::all(self.client.clone()).get_opt(name).await?)
    }

    /// Deletes an object; its finalizers decide when it goes.
    pub(crate) async fn delete<K>(&self, name: &str) -> anyhow::Result<()>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits for an object to be as wanted.
    pub(crate) async fn reaches<K>(
        &self,
        what: &str,
        name: &str,
        wanted: impl Fn(&K) -> anyhow::Result<()>,
    ) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        eventually(what, BOUND, async || {
            let object: K = self.get(name).await?.context("it does not exist")?;
            wanted(&object)?;
            Ok(object)
        })
        .await
    }

    /// Waits for an object to be gone.
    pub(crate) async fn vanishes<K>(&self, name: &str, bound: Duration)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        eventually(&format!("the end of {name}"), bound, async || {
            let left: Option<K> = self.get(name).await?;
            ensure!(left.is_none(), "it is still there: {left:?}");
            Ok(())
        })
        .await;
    }

    /// Waits for a NodeClaim to have a condition.
    pub(crate) async fn claim_is(&self, name: &str, condition: &str) -> NodeClaim {
        let what = format!("nodeclaim {name} is {condition}");
        self.reaches(&what, name, |claim: &NodeClaim| {
            ensure!(
                claim.is_condition_true(condition),
                "{:?}",
                claim.conditions()
            );
            Ok(())
        })
        .await
    }

    /// Waits for an event about an object; its message.
    pub(crate) async fn told(&self, reason: &str, object: &str) -> String {
        let events: Api<Event> = Api::all(self.client.clone());
        eventually(&format!("event {reason} on {object}"), TOLD, async || {
            let all = events.list(&ListParams::default()).await?;
            let found = all.items.into_iter().find(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.name.as_deref() == Some(object)
            });
            found.and_then(|event| event.message).context("no event")
        })
        .await
    }

    /// A Node of a launched NodeClaim joins as a kubelet makes it join.
    pub(crate) async fn join(&self, node: &str, claim: &NodeClaim) -> anyhow::Result<Node> {
        let status = claim.status.clone().unwrap_or_default();
        self.create(json!({
            "metadata": {"name": node},
            "spec": {
                "providerID": status.provider_id,
                "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
            },
        }))
        .await
    }

    /// The kubelet reports that the Node is ready.
    pub(crate) async fn make_ready(&self, node: &str, ready: bool) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let status = if ready { "True" } else { "False" };
        let patch = json!({"status": {
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "15Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": status, "reason": "Test", "message": ""}],
        }});
        let patch = Patch::Strategic(&patch);
        nodes
            .patch_status(node, &PatchParams::default(), &patch)
            .await?;
        // The API server taints every new Node; the node lifecycle controller, which does not run
        // here, takes the taint off when the Node is ready.
        eventually("the not-ready taint is off", BOUND, async || {
            let mut object = nodes.get(node).await?;
            let taints = object
                .spec
                .get_or_insert_default()
                .taints
                .get_or_insert_default();
            taints.retain(|taint| taint.key != "node.kubernetes.io/not-ready");
            Ok(nodes.replace(node, &PostParams::default(), &object).await?)
        })
        .await;
        Ok(())
    }

    /// An initialized NodeClaim with its Node of the same name.
    pub(crate) async fn running(&self, name: &str) -> anyhow::Result<NodeClaim> {
        self.create::<NodeClaim>(self.claim(name)).await?;
        let launched = self.claim_is(name, conditions::LAUNCHED).await;
        self.join(name, &launched).await?;
        self.make_ready(name, true).await?;
        Ok(self.claim_is(name, conditions::INITIALIZED).await)
    }

    /// A NodeClaim of the pool, as the executor would write it.
    pub(crate) fn claim(&self, name: &str) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": name,
                "labels": {
                    "karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default",
                },
                "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
                    "name": "default", "uid": self.pool_uid, "blockOwnerDeletion": true}],
            },
            "spec": {
                "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In",
                    "values": ["m5.xlarge"]}],
                "resources": {"requests": {"cpu": "1"}},
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
            },
        })
    }

    /// A NodeClaim in a launch group.
    pub(crate) fn grouped(&self, name: &str, group: &str) -> Value {
        let mut claim = self.claim(name);
        claim["metadata"]["annotations"] = json!({"millwright.dev/launch-group": group});
        claim
    }

    /// A pod bound to a node.
    pub(crate) async fn bind_pod(&self, name: &str, node: &str) -> anyhow::Result<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let pod = from_value(json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "registry.example/c"}]},
        }))?;
        Ok(pods.create(&PostParams::default(), &pod).await?)
    }
}

fn class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "role": "nodes",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
        },
    })
}

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {"requirements": [], "expireAfter": "Never", "nodeClassRef":
                {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}},
            // Nodes stay unless a test is about their going.
            "disruption": {"consolidateAfter": "Never"},
        },
    })
}

fn types() -> InstanceTypes {
    let price = NanoDollarsPerHour(192_000_000);
    let requirements = [
        (labels::INSTANCE_TYPE, "m5.xlarge"),
        (labels::ARCH, "amd64"),
        (labels::OS, "linux"),
    ];
    let kind = InstanceType {
        name: "m5.xlarge".into(),
        requirements: requirements
            .into_iter()
            .map(|(key, value)| Requirement::label(&key.into(), &value.into()))
            .collect(),
        capacity: Resources::of(4_000, 16 << 30).with("pods".into(), 110),
        overhead: Resources::of(0, 1 << 30),
        offerings: vec![Offering::new(
            "test-1a".into(),
            CapacityType::OnDemand,
            price,
        )],
    };
    [Arc::new(kind)].into()
}

fn settings() -> Settings {
    Settings {
        cluster_name: "test".to_owned(),
        batch: BatchSettings {
            idle: Span::from_secs(1),
            max: Span::from_secs(10),
        },
        anticipation: true,
        solve: SolveSettings::default(),
        cpu_requests_millis: 1_000,
    }
}

async fn install(client: &Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in millwright_api::crds() {
        definitions
            .create(&PostParams::default(), &crd)
            .await
            .with_context(|| crd.name_any())?;
    }
    eventually("all definitions are established", BOUND, async || {
        for crd in definitions.list(&ListParams::default()).await? {
            let conditions = crd.status.as_ref().and_then(|s| s.conditions.as_ref());
            let established = conditions
                .into_iter()
                .flatten()
                .any(|c| c.type_ == "Established" && c.status == "True");
            ensure!(established, "{} is not", crd.name_any());
        }
        Ok(())
    })
    .await;
    // Pods need an account, which the controller manager would have made.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = from_value(json!({"metadata": {"name": "default"}}))?;
    eventually("the default account", BOUND, async || {
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
    .await;
    Ok(())
}
