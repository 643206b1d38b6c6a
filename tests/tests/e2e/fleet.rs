//! A whole fleet for one scenario: control plane, CRDs, the chart's RBAC, cloud, nodes, controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use millwright_api::{Ec2NodeClass, NodeClaim, NodePool};
use millwright_sim::{
    aws::{AwsSim, AwsSimConfig, AwsSimHandle, Timing},
    kubelet::{KubeletConfig, Kubelets},
};
use millwright_tests::{ControlPlane, ControlPlaneOptions, Service, eventually, tools};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Name of the cluster in every scenario.
pub(crate) const CLUSTER: &str = "e2e";
/// Scenarios mostly wait (for leases, boots, time-outs), so two share the machine; what measures
/// takes both places.
const PLACES: u32 = 2;
static TURNS: Semaphore = Semaphore::const_new(PLACES as usize);

/// Everything that a scenario needs. Dropped at its end.
pub(crate) struct Fleet {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) aws: AwsSimHandle,
    kubeconfig: PathBuf,
    folder: tempfile::TempDir,
    _kubelets: Kubelets,
    _turn: SemaphorePermit<'static>,
}

/// Waits for one of the places.
pub(crate) async fn turn() -> anyhow::Result<SemaphorePermit<'static>> {
    Ok(TURNS.acquire().await?)
}

/// Applies a manifest as a person would.
pub(crate) async fn apply<K>(api: &Api<K>, value: &Value) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let name = value["metadata"]["name"].as_str().context("a name")?;
    api.patch(
        name,
        &PatchParams::apply("e2e").force(),
        &Patch::Apply(value),
    )
    .await?;
    Ok(())
}

impl Fleet {
    /// Starts everything but the controller; `None` when there is no control plane and that is allowed.
    pub(crate) async fn start(
        adjust: impl FnOnce(&mut AwsSimConfig),
    ) -> anyhow::Result<Option<Self>> {
        Self::start_with(turn().await?, adjust).await
    }

    /// The same while no other scenario runs.
    pub(crate) async fn start_alone() -> anyhow::Result<Option<Self>> {
        Self::start_with(TURNS.acquire_many(PLACES).await?, |_| {}).await
    }

    async fn start_with(
        turn: SemaphorePermit<'static>,
        adjust: impl FnOnce(&mut AwsSimConfig),
    ) -> anyhow::Result<Option<Self>> {
        let Some(plane) = ControlPlane::start_or_skip(ControlPlaneOptions::default()).await else {
            return Ok(None);
        };
        let client = plane.admin().await?;
        let folder = tempfile::tempdir()?;
        install(&plane)?;
        let token = plane
            .service_account_token(&client, "kube-system", "millwright")
            .await?;
        let kubeconfig = folder.path().join("controller.kubeconfig");
        write_kubeconfig(&plane, &token, &kubeconfig)?;
        let mut config = AwsSimConfig::new(CLUSTER);
        config.timing = Timing {
            pending: (Duration::from_millis(300), Duration::from_millis(900)),
            shutting_down: (Duration::from_millis(300), Duration::from_millis(900)),
            ..Timing::default()
        };
        adjust(&mut config);
        let aws = AwsSim::start(config).await?;
        let nodes = KubeletConfig {
            boot: Duration::from_secs(1),
            ready: Duration::from_millis(200),
            ..KubeletConfig::default()
        };
        let kubelets = Kubelets::start(client.clone(), &aws.world(), nodes);
        Ok(Some(Self {
            plane,
            client,
            aws,
            kubeconfig,
            folder,
            _kubelets: kubelets,
            _turn: turn,
        }))
    }

    /// Starts a controller process.
    pub(crate) fn controller(&self, name: &str) -> anyhow::Result<Service> {
        let program = tools::workspace_program("millwright-controller")
            .map_err(|absent| anyhow::anyhow!("{absent}"))?;
        let mut command = Command::new(program);
        command
            .args([
                "--cluster-name",
                CLUSTER,
                "--log-format",
                "plain",
                "--listen-address",
                "127.0.0.1",
            ])
            .args(["--metrics-port", "0", "--health-probe-port", "0"])
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOSTNAME", name)
            .env("AWS_ENDPOINT_URL", self.aws.endpoint())
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "simulated")
            .env("AWS_SECRET_ACCESS_KEY", "simulated");
        Service::spawn(name, command, self.folder.path())
    }

    /// Applies a node class by the cluster's discovery tags.
    pub(crate) async fn node_class(&self, name: &str, discovery: &str) -> anyhow::Result<()> {
        let terms = json!([{"tags": {"karpenter.sh/discovery": discovery}}]);
        let class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name},
            "spec": {
                "amiFamily": "AL2023", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "role": format!("KarpenterNodeRole-{CLUSTER}"),
                "subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms,
            },
        });
        apply(&Api::<Ec2NodeClass>::all(self.client.clone()), &class).await
    }

    /// Applies a NodePool of amd64 c, m and r types of at most `vcpus`, whose empty nodes leave at once.
    pub(crate) async fn node_pool(
        &self,
        name: &str,
        class: &str,
        vcpus: u32,
        labels: Value,
    ) -> anyhow::Result<()> {
        self.node_pool_of(name, class, ("Lt", vcpus + 1), labels)
            .await
    }

    /// The same with a requirement on the number of vCPUs: operator and value.
    pub(crate) async fn node_pool_of(
        &self,
        name: &str,
        class: &str,
        (operator, vcpus): (&str, u32),
        labels: Value,
    ) -> anyhow::Result<()> {
        let requirement = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class},
                        "requirements": [
                            requirement("kubernetes.io/arch", "In", json!(["amd64"])),
                            requirement("karpenter.sh/capacity-type", "In", json!(["on-demand"])),
                            requirement("karpenter.k8s.aws/instance-category", "In", json!(["c", "m", "r"])),
                            requirement("karpenter.k8s.aws/instance-generation", "Gt", json!(["4"])),
                            requirement("karpenter.k8s.aws/instance-cpu", operator, json!([vcpus.to_string()])),
                        ],
                    },
                },
                "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
            },
        });
        apply(&Api::<NodePool>::all(self.client.clone()), &pool).await
    }

    /// Applies a Deployment.
    pub(crate) async fn deployment(
        &self,
        name: &str,
        replicas: u32,
        cpu: &str,
        memory: &str,
        selector: Value,
    ) -> anyhow::Result<()> {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "nodeSelector": selector, "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
                    },
                },
            },
        });
        apply(
            &Api::<Deployment>::namespaced(self.client.clone(), "default"),
            &deployment,
        )
        .await
    }

    /// Sets the replicas of a Deployment.
    pub(crate) async fn scale(&self, name: &str, replicas: u32) -> anyhow::Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
        let patch = json!({"spec": {"replicas": replicas}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    pub(crate) async fn claims(&self) -> anyhow::Result<Vec<NodeClaim>> {
        Ok(Api::<NodeClaim>::all(self.client.clone())
            .list(&ListParams::default())
            .await?
            .items)
    }

    pub(crate) async fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        Ok(Api::<Node>::all(self.client.clone())
            .list(&ListParams::default())
            .await?
            .items)
    }

    pub(crate) async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        Ok(Api::<Pod>::namespaced(self.client.clone(), "default")
            .list(&ListParams::default())
            .await?
            .items)
    }

    /// Waits until that many pods exist and all are bound.
    pub(crate) async fn all_bound(&self, pods: usize, bound: Duration) {
        eventually(&format!("{pods} pods are bound"), bound, async || {
            let all = self.pods().await?;
            let waiting = all
                .iter()
                .filter(|pod| pod.spec.as_ref().is_none_or(|s| s.node_name.is_none()))
                .count();
            ensure!(
                all.len() == pods && waiting == 0,
                "{} pods, {waiting} of them wait",
                all.len()
            );
            Ok(())
        })
        .await;
    }

    /// Instances that are not on their way out.
    pub(crate) fn alive(&self) -> usize {
        self.aws
            .world()
            .instances()
            .iter()
            .filter(|instance| !instance.state.is_ending())
            .count()
    }

    /// Waits until no instance, Node or NodeClaim is left.
    pub(crate) async fn all_gone(&self, bound: Duration) {
        eventually(
            "no instance, Node or NodeClaim is left",
            bound,
            async || {
                let (claims, nodes, alive) = (
                    self.claims().await?.len(),
                    self.nodes().await?.len(),
                    self.alive(),
                );
                ensure!(
                    claims == 0 && nodes == 0 && alive == 0,
                    "{claims} nodeclaims, {nodes} nodes, {alive} instances"
                );
                Ok(())
            },
        )
        .await;
    }

    /// Deletes pools and classes and waits until launch templates, profiles and finalizers are gone.
    pub(crate) async fn dismantle(&self, bound: Duration) -> anyhow::Result<()> {
        let parameters = kube::api::DeleteParams::default();
        let everything = ListParams::default();
        Api::<NodePool>::all(self.client.clone())
            .delete_collection(&parameters, &everything)
            .await?;
        Api::<Ec2NodeClass>::all(self.client.clone())
            .delete_collection(&parameters, &everything)
            .await?;
        eventually(
            "no node class, launch template or instance profile is left",
            bound,
            async || {
                let classes = Api::<Ec2NodeClass>::all(self.client.clone())
                    .list(&everything)
                    .await?
                    .items
                    .len();
                let world = self.aws.world();
                let (templates, profiles) = (
                    world.launch_templates().len(),
                    world.instance_profiles().len(),
                );
                ensure!(
                    classes == 0 && templates == 0 && profiles == 0,
                    "{classes} classes, {templates} launch templates, {profiles} instance profiles"
                );
                Ok(())
            },
        )
        .await;
        Ok(())
    }

    /// Every instance is the instance of exactly one NodeClaim, and the other way round.
    pub(crate) async fn instances_match_claims(&self) -> anyhow::Result<()> {
        let claimed: Vec<String> = self
            .claims()
            .await?
            .iter()
            .filter_map(|claim| claim.status.as_ref())
            .map(|s| s.provider_id.clone())
            .collect();
        let unique: BTreeSet<&String> = claimed.iter().collect();
        ensure!(
            unique.len() == claimed.len(),
            "two nodeclaims share an instance: {claimed:?}"
        );
        let world = self.aws.world();
        let alive: BTreeSet<String> = world
            .instances()
            .iter()
            .filter(|i| !i.state.is_ending())
            .map(|i| i.provider_id())
            .collect();
        let claimed: BTreeSet<String> = claimed.into_iter().collect();
        ensure!(
            alive == claimed,
            "instances {alive:?} but nodeclaims of {claimed:?}"
        );
        Ok(())
    }
}

/// Pods per node name.
pub(crate) fn pods_by_node(pods: &[Pod]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
    {
        *counts.entry(node).or_insert(0) += 1;
    }
    counts
}

/// What the controller has cost, as a line for people.
pub(crate) fn costs(service: &Service) -> String {
    match service.costs() {
        Ok(costs) => format!(
            "controller: {} MiB at its peak, {} ms of CPU",
            costs.memory_bytes_peak >> 20,
            costs.cpu_millis
        ),
        Err(error) => format!("controller's costs: {error}"),
    }
}

/// Lets helm render the chart, and kubectl apply all of it but the controller itself.
fn install(plane: &ControlPlane) -> anyhow::Result<()> {
    let absent = |absent: millwright_tests::Absent| anyhow::anyhow!("{absent}");
    let (helm, kubectl) = (
        tools::helm().map_err(absent)?,
        tools::kubectl().map_err(absent)?,
    );
    let chart = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
    let crds = plane
        .command(&kubectl)
        .args(["apply", "--server-side", "-f"])
        .arg(chart.join("crds"))
        .output()?;
    ensure!(
        crds.status.success(),
        "crds: {}",
        String::from_utf8_lossy(&crds.stderr)
    );
    let rendered = Command::new(helm)
        .args(["template", "millwright"])
        .arg(&chart)
        .args([
            "--namespace",
            "kube-system",
            "--set",
            &format!("settings.clusterName={CLUSTER}"),
        ])
        .output()?;
    ensure!(
        rendered.status.success(),
        "helm: {}",
        String::from_utf8_lossy(&rendered.stderr)
    );
    let text = String::from_utf8(rendered.stdout)?;
    let rights: Vec<&str> = text
        .split("\n---")
        .filter(|document| !document.contains("kind: Deployment"))
        .collect();
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), rights.join("\n---"))?;
    let applied = plane
        .command(&kubectl)
        .args(["apply", "-f"])
        .arg(file.path())
        .output()?;
    ensure!(
        applied.status.success(),
        "chart: {}",
        String::from_utf8_lossy(&applied.stderr)
    );
    Ok(())
}

/// A kubeconfig with the controller's own token in place of the administrator's certificate.
fn write_kubeconfig(
    plane: &ControlPlane,
    token: &str,
    path: &std::path::Path,
) -> anyhow::Result<()> {
    let mut config =
        serde_json::to_value(kube::config::Kubeconfig::read_from(plane.kubeconfig())?)?;
    let user = config["users"][0]["name"].clone();
    config["users"] = json!([{"name": user, "user": {"token": token}}]);
    std::fs::write(path, serde_json::to_vec(&config)?)?;
    Ok(())
}

/// Names of objects, for messages.
pub(crate) fn names<K: kube::Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}
