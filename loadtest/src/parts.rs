//! The parts that demo and bursts stand on: an API server, a cloud, nodes, and the controller's own
//! binary.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use millwright_sim::{
    aws::{AwsSim, AwsSimConfig, AwsSimHandle, Timing},
    kube::{KubeSim, KubeSimConfig, KubeSimHandle},
    kubelet::{KubeletConfig, Kubelets},
    scheduler::Scheduler,
    workloads::Workloads,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
};

use crate::args::ControlPlane;

/// Name of the cluster; the manifests select by it.
const CLUSTER: &str = "demo";
/// How long a part may take to start.
const START: Duration = Duration::from_secs(120);

/// A running API server.
pub(crate) struct ApiServer {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
    /// The real control plane: it ends when its standard input is closed.
    _process: Option<(Child, ChildStdin)>,
    _embedded: Option<Embedded>,
    _folder: Option<tempfile::TempDir>,
}

/// The simulated control plane: its parts end when they are dropped, the clients first.
struct Embedded {
    _workloads: Workloads,
    _scheduler: Scheduler,
    _sim: KubeSimHandle,
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

impl ApiServer {
    /// The cluster of a kubeconfig, or a private one of the given kind.
    pub(crate) async fn open(
        kubeconfig: Option<&Path>,
        control_plane: ControlPlane,
    ) -> anyhow::Result<Self> {
        match (kubeconfig, control_plane) {
            (Some(kubeconfig), _) => Self::existing(kubeconfig.to_owned()).await,
            (None, ControlPlane::Real) => Self::real().await,
            (None, ControlPlane::Embedded) => Self::embedded().await,
        }
    }

    /// Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
    async fn real() -> anyhow::Result<Self> {
        let program = std::env::var_os("MILLWRIGHT_CONTROLPLANE").map(PathBuf::from).context(
            "MILLWRIGHT_CONTROLPLANE does not name the control plane's program; start it by `make`, which builds \
             that program",
        )?;
        let folder = tempfile::Builder::new()
            .prefix("millwright-loadtest-")
            .tempdir()?;
        let mut child = Command::new(&program)
            .args(["up", "--watch-stdin", "--dir"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let stdin = child
            .stdin
            .take()
            .context("the control plane has no standard input")?;
        let stdout = child
            .stdout
            .take()
            .context("the control plane has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = tokio::time::timeout(START, lines.next_line())
            .await
            .context("the control plane did not become ready")??
            .context("the control plane ended before it was ready")?;
        let kubeconfig = ready
            .split(' ')
            .find_map(|part| part.strip_prefix("kubeconfig="))
            .map(PathBuf::from)
            .with_context(|| format!("the control plane said \"{ready}\""))?;
        // The program must not block on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let client = client(&kubeconfig).await?;
        Ok(Self {
            kubeconfig,
            client,
            _process: Some((child, stdin)),
            _embedded: None,
            _folder: Some(folder),
        })
    }

    /// Starts the simulated API server with its controllers and scheduler.
    async fn embedded() -> anyhow::Result<Self> {
        let sim = KubeSim::start(KubeSimConfig::default())
            .await
            .context("start the simulated Kubernetes API")?;
        let folder = tempfile::Builder::new()
            .prefix("millwright-loadtest-")
            .tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, serde_saphyr::to_string(&sim.kubeconfig())?)
            .with_context(|| format!("write {}", kubeconfig.display()))?;
        let client = client(&kubeconfig).await?;
        let embedded = Embedded {
            _workloads: Workloads::start(client.clone()),
            _scheduler: Scheduler::start(client.clone()),
            _sim: sim,
        };
        Ok(Self {
            kubeconfig,
            client,
            _process: None,
            _embedded: Some(embedded),
            _folder: Some(folder),
        })
    }

    /// Uses a cluster that exists.
    async fn existing(kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let client = client(&kubeconfig).await?;
        Ok(Self {
            kubeconfig,
            client,
            _process: None,
            _embedded: None,
            _folder: None,
        })
    }

    /// Installs the CRDs and waits until they are served.
    pub(crate) async fn install_crds(&self) -> anyhow::Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let parameters = PatchParams::apply("millwright-loadtest").force();
        for crd in millwright_api::crds() {
            let name = crd.metadata.name.clone().unwrap_or_default();
            api.patch(&name, &parameters, &Patch::Apply(&crd))
                .await
                .with_context(|| format!("install {name}"))?;
            let established = kube::runtime::wait::await_condition(
                api.clone(),
                &name,
                kube::runtime::conditions::is_crd_established(),
            );
            tokio::time::timeout(START, established)
                .await
                .with_context(|| format!("{name} is not served"))??;
        }
        Ok(())
    }

    /// Makes a namespace.
    pub(crate) async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api.patch(
            name,
            &PatchParams::apply("millwright-loadtest").force(),
            &Patch::Apply(&namespace),
        )
        .await?;
        Ok(())
    }
}

/// The cloud and its nodes.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) aws: AwsSimHandle,
    _kubelets: Kubelets,
}

impl Cloud {
    /// Starts a simulated AWS and a kubelet for each of its instances.
    pub(crate) async fn start(client: Client, seed: u64) -> anyhow::Result<Self> {
        let mut config = AwsSimConfig::new(CLUSTER);
        config.seed = seed;
        config.timing = Timing {
            pending: (Duration::from_millis(500), Duration::from_millis(1500)),
            shutting_down: (Duration::from_millis(500), Duration::from_millis(1500)),
            ..Timing::default()
        };
        let aws = AwsSim::start(config)
            .await
            .context("start the simulated AWS")?;
        let kubelets = Kubelets::start(client, &aws.world(), KubeletConfig::default());
        Ok(Self {
            aws,
            _kubelets: kubelets,
        })
    }
}

/// The controller, as a process of its own.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
}

impl Controller {
    /// Starts the binary that stands beside this one.
    pub(crate) fn start(
        server: &ApiServer,
        cloud: &Cloud,
        log: PathBuf,
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let program = own.with_file_name("millwright-controller");
        if !program.exists() {
            bail!(
                "{} does not exist; build it with `make demo`",
                program.display()
            );
        }
        let file =
            std::fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let child = Command::new(&program)
            .args([
                "--cluster-name",
                CLUSTER,
                "--log-format",
                "plain",
                "--listen-address",
                "127.0.0.1",
            ])
            .args(["--metrics-port", "0", "--health-probe-port", "0"])
            .args(more)
            .env("KUBECONFIG", &server.kubeconfig)
            .env("AWS_ENDPOINT_URL", cloud.aws.endpoint())
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "simulated")
            .env("AWS_SECRET_ACCESS_KEY", "simulated")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { child, log })
    }

    /// Fails when the process has ended, with the last line it wrote.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it wrote nothing");
            bail!("the controller ended ({status}): {last}");
        }
        Ok(())
    }

    /// How many lines of its log contain a text.
    pub(crate) fn said(&self, text: &str) -> anyhow::Result<usize> {
        let log = std::fs::read_to_string(&self.log)
            .with_context(|| format!("read {}", self.log.display()))?;
        Ok(log.lines().filter(|line| line.contains(text)).count())
    }

    /// CPU milliseconds and peak memory in KiB so far.
    pub(crate) fn costs(&self) -> Option<(u64, u64)> {
        let pid = self.child.id()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Fields after the command's closing parenthesis; user and system time are the 12th and 13th.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 =
            fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib = peak.trim().trim_end_matches("kB").trim().parse().ok()?;
        // Linux reports times in hundredths of a second on every architecture we support.
        Some((ticks * 10, kib))
    }

    /// Asks the process to end and waits.
    pub(crate) async fn stop(mut self) {
        if let Some(pid) = self.child.id() {
            let pid = pid.to_string();
            let _ = Command::new("kill").args(["-TERM", &pid]).status().await;
        }
        let _ = tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await;
    }
}
