//! A real control plane for tests: etcd, kube-apiserver, kube-controller-manager and
//! kube-scheduler as processes that end with the test.
//!
//! ```text
//! test --stdin: stop|start|restart COMPONENT--> controlplane up --> etcd, kube-apiserver, ...
//!      <--stdout: READY ..., DONE ...-----------     (Go, tests/controlplane)
//! ```
//!
//! Standard input is also the life line: when it closes, because the test stopped the
//! control plane or died in whatever way, everything ends and its files go.

mod options;
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Context;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::absence::{Absent, present_or_skip};
use crate::costs::ProcessCosts;

pub use options::{Component, ControlPlaneOptions, StaticToken};
use process::Process;

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// It can be neither found nor built here.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// It was found and did not do what it must.
    #[error("control plane: {0}")]
    Failed(String),
}

/// A running control plane. Dropping it ends it; so does the end of the test process.
#[derive(Debug)]
pub struct ControlPlane {
    kubeconfig_path: PathBuf,
    kubeconfig: Kubeconfig,
    server: String,
    /// One command at a time: answers carry no number.
    process: Arc<Mutex<Process>>,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready, which takes 3 to 4 s (and
    /// several minutes once per machine, if it was not built yet).
    ///
    /// # Errors
    /// [`ControlPlaneError::Absent`] when it can be neither found nor built,
    /// [`ControlPlaneError::Failed`] when it does not become ready in time.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        tokio::task::spawn_blocking(move || Self::start_blocking(&options))
            .await
            .map_err(|error| ControlPlaneError::Failed(format!("start: {error}")))?
    }

    /// [`ControlPlane::start`], or `None` after printing why the test is skipped.
    ///
    /// # Panics
    /// When it does not start, and when it is absent under `REQUIRE_APISERVER=1`.
    pub async fn start_or_skip(options: ControlPlaneOptions) -> Option<Self> {
        running_or_skip(Self::start(options).await)
    }

    /// The control plane that all tests of this binary share, started by the first of
    /// them with default options; each test works in a namespace of its own. A test of
    /// cluster-scoped things, or one that stops components, starts its own instead.
    ///
    /// `None` after printing why the test is skipped.
    ///
    /// # Panics
    /// When it does not start, and when it is absent under `REQUIRE_APISERVER=1`.
    pub async fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<ControlPlane, ControlPlaneError>> = OnceLock::new();
        let shared = tokio::task::spawn_blocking(|| {
            SHARED.get_or_init(|| ControlPlane::start_blocking(&ControlPlaneOptions::default()))
        })
        .await;
        match shared {
            Ok(Ok(plane)) => Some(plane),
            Ok(Err(ControlPlaneError::Absent(absent))) => present_or_skip(Err(absent.clone())),
            Ok(Err(failed)) => panic!("{failed}"),
            Err(error) => panic!("start of the shared control plane: {error}"),
        }
    }

    fn start_blocking(options: &ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        let (process, ready) = Process::start(options)?;
        let kubeconfig = Kubeconfig::read_from(&ready.kubeconfig).map_err(|error| {
            ControlPlaneError::Failed(format!("{}: {error}", ready.kubeconfig.display()))
        })?;
        Ok(Self {
            kubeconfig_path: ready.kubeconfig,
            kubeconfig,
            server: ready.server,
            process: Arc::new(Mutex::new(process)),
        })
    }

    /// The administrator's kubeconfig, self-contained; it is removed with the control plane.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig_path
    }

    /// The API server's address, `https://127.0.0.1:PORT`; a restart keeps it.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A client configuration with the administrator's certificate.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn admin_config(&self) -> anyhow::Result<Config> {
        Config::from_custom_kubeconfig(self.kubeconfig.clone(), &KubeConfigOptions::default())
            .await
            .context("the control plane's kubeconfig")
    }

    /// A new client for the administrator. Clients belong to the runtime they were made
    /// in, so each test makes its own.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn admin(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.admin_config().await?)?)
    }

    /// A client configuration with nothing but a bearer token.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn token_config(&self, token: &str) -> anyhow::Result<Config> {
        let mut config = self.admin_config().await?;
        config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
        Ok(config)
    }

    /// A new client with nothing but a bearer token.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn with_token(&self, token: &str) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.token_config(token).await?)?)
    }

    /// A token of a ServiceAccount, valid for an hour, by the API's TokenRequest.
    ///
    /// # Errors
    /// When the ServiceAccount does not exist.
    pub async fn service_account_token(
        &self,
        admin: &Client,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<String> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        Api::<ServiceAccount>::namespaced(admin.clone(), namespace)
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("token of the ServiceAccount {namespace}/{name}"))?
            .status
            .and_then(|status| status.token)
            .context("a token in the answer")
    }

    /// Makes a namespace for one test, named after `prefix`, and returns its name.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, admin: &Client, prefix: &str) -> anyhow::Result<String> {
        let metadata = ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        let created = Api::all(admin.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        created.metadata.name.context("a name in the answer")
    }

    /// A command whose `KUBECONFIG` is the administrator's, for kubectl, helm and our own
    /// programs.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.kubeconfig_path);
        command
    }

    /// Kills one component and leaves it down; what it stored stays.
    ///
    /// # Errors
    /// When it is stopped already, or the control plane has ended.
    pub async fn stop_component(&self, component: Component) -> Result<(), ControlPlaneError> {
        self.ask("stop", component).await.map(drop)
    }

    /// Starts a stopped component and waits until it is ready.
    ///
    /// # Errors
    /// When it is running, does not become ready, or the control plane has ended.
    pub async fn start_component(&self, component: Component) -> Result<(), ControlPlaneError> {
        self.ask("start", component).await.map(drop)
    }

    /// Kills one component, starts it again and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready, or the control plane has ended.
    pub async fn restart_component(&self, component: Component) -> Result<(), ControlPlaneError> {
        self.ask("restart", component).await.map(drop)
    }

    /// What a component's process has cost since its (last) start.
    ///
    /// # Errors
    /// When it is stopped.
    pub async fn costs_of(&self, component: Component) -> Result<ProcessCosts, ControlPlaneError> {
        let answer = self.ask("pid", component).await?;
        let failed =
            |why: String| ControlPlaneError::Failed(format!("costs of {component}: {why}"));
        let pid = answer
            .trim()
            .parse()
            .map_err(|_| failed(format!("{answer:?} is no process id")))?;
        ProcessCosts::of(pid).map_err(|error| failed(error.to_string()))
    }

    /// Asks on a thread that may block.
    async fn ask(
        &self,
        verb: &'static str,
        component: Component,
    ) -> Result<String, ControlPlaneError> {
        let process = Arc::clone(&self.process);
        let asking = move || {
            let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
            process.ask(verb, component)
        };
        tokio::task::spawn_blocking(asking)
            .await
            .map_err(|error| ControlPlaneError::Failed(format!("{verb} {component}: {error}")))?
    }
}

fn running_or_skip(started: Result<ControlPlane, ControlPlaneError>) -> Option<ControlPlane> {
    match started {
        Ok(plane) => Some(plane),
        Err(ControlPlaneError::Absent(absent)) => present_or_skip(Err(absent)),
        Err(failed) => panic!("{failed}"),
    }
}
