//! The kubelet stand-in: plays the nodes of a cluster whose instances are simulated.
//!
//! For every running instance it registers a Node as a kubelet does (Ready=False first, then Ready),
//! renews Leases, runs the pods that are bound to it, and removes pods that are being deleted. It acts
//! only through the Kubernetes API, so it runs unchanged against the simulated API server and against
//! the real one. What labels and taints a node registers with it reads from the instance's user data,
//! as a real node does: a controller that writes wrong user data gets a wrong node.

mod node;
mod pods;
mod user_data;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::Client;
use tokio::{sync::mpsc, task::JoinSet};

pub use user_data::{Registration, registration};

use crate::aws::{AwsWorld, Instance, InstanceState};

/// How the nodes behave.
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    /// From running instance to registered Node.
    pub boot: Duration,
    /// From registered to Ready.
    pub ready: Duration,
    /// From bound pod to running pod.
    pub start_pod: Duration,
    /// Longest grace that a deleted pod is given here; pods of a demo end quickly.
    pub grace_max: Duration,
    /// Renewal of Leases.
    pub lease: Duration,
    /// Whether Nodes of gone instances are deleted, as a cloud's node lifecycle controller does.
    pub delete_gone_nodes: bool,
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(2),
            ready: Duration::from_millis(500),
            start_pod: Duration::from_millis(100),
            grace_max: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            delete_gone_nodes: true,
        }
    }
}

/// Requests in flight at once; the API server is the bottleneck, more only queue there.
const REQUESTS: usize = 16;

/// Running stand-ins; dropping it stops them.
#[derive(Debug)]
pub struct Kubelets {
    _tasks: JoinSet<()>,
    nodes: Nodes,
}

/// Names of the nodes that are played, with the instance behind each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes(Arc<Mutex<HashMap<String, Arc<Instance>>>>);

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Instance>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }
}

impl Kubelets {
    /// Plays a node for every instance of the world that runs, now and later.
    #[must_use]
    pub fn start(client: Client, world: &AwsWorld, config: KubeletConfig) -> Self {
        let nodes = Nodes::default();
        let mut tasks = JoinSet::new();
        let (changes, queue) = mpsc::unbounded_channel();
        let (now, mut news) = world.watch_instances();
        let resync = world.clone();
        tasks.spawn(async move {
            for instance in now {
                let _ = changes.send(instance);
            }
            loop {
                match news.recv().await {
                    Ok(instance) => {
                        let _ = changes.send(instance);
                    }
                    Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {
                        for instance in resync.instances() {
                            let _ = changes.send(instance);
                        }
                    }
                    Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
                }
            }
        });
        tasks.spawn(run_nodes(
            client.clone(),
            queue,
            nodes.clone(),
            config.clone(),
        ));
        tasks.spawn(node::renew_leases(
            client.clone(),
            nodes.clone(),
            config.lease,
        ));
        tasks.spawn(pods::run(client, nodes.clone(), config));
        Self {
            _tasks: tasks,
            nodes,
        }
    }

    /// Number of nodes that are played now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.lock().len()
    }
}

/// Follows instances: boots nodes, ends them.
async fn run_nodes(
    client: Client,
    mut changes: mpsc::UnboundedReceiver<Arc<Instance>>,
    nodes: Nodes,
    config: KubeletConfig,
) {
    let permits = Arc::new(tokio::sync::Semaphore::new(REQUESTS));
    let mut booting: HashMap<Arc<str>, tokio::task::AbortHandle> = HashMap::new();
    let mut tasks = JoinSet::new();
    while let Some(instance) = changes.recv().await {
        // Ended tasks are collected as changes come, so that the set stays as small as the fleet.
        while tasks.try_join_next().is_some() {}
        let name = instance.private_dns_name.to_string();
        match instance.state {
            InstanceState::Running
                if !booting.contains_key(&instance.id) && !nodes.contains(&name) =>
            {
                let boot = node::boot(
                    client.clone(),
                    instance.clone(),
                    nodes.clone(),
                    config.clone(),
                    permits.clone(),
                );
                booting.insert(instance.id.clone(), tasks.spawn(boot));
            }
            InstanceState::Pending | InstanceState::Running => {}
            InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::ShuttingDown
            | InstanceState::Terminated => {
                if let Some(task) = booting.remove(&instance.id) {
                    task.abort();
                }
                let played = nodes.lock().remove(&name).is_some();
                let gone = matches!(
                    instance.state,
                    InstanceState::Terminated | InstanceState::ShuttingDown
                );
                if config.delete_gone_nodes
                    && gone
                    && (played || instance.state == InstanceState::Terminated)
                {
                    tasks.spawn(node::delete(client.clone(), instance, permits.clone()));
                }
            }
        }
    }
}
