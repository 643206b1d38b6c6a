//! The workload controllers: what kube-controller-manager does for workloads, as far as our runs need it.
//!
//! Deployments, ReplicaSets, DaemonSets, the status of PodDisruptionBudgets, the taint of nodes that are
//! not ready, and the collection of garbage; Jobs are known as owners only. They are a client of the Kubernetes API like any other and run unchanged against the simulated
//! API server and against the real one.
//!
//! One task owns what is known ([`cluster::Cluster`]) and decides; each decision is a function from that to
//! requests. What the requests answer goes back into what is known before the same object is looked at
//! again, so a watch that is behind never leads to surplus pods.

mod budget;
mod cluster;
mod daemon_set;
mod deployment;
mod engine;
mod garbage;
mod index;
mod node;
mod pods;
mod queue;
mod replica_set;
mod status;
mod template;
mod write;

use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;

/// Requests in flight at once, all controllers together.
const REQUESTS: usize = 32;

/// Pods that one look at one object creates or deletes at most; the next look goes on.
const BURST: usize = 500;

/// What a look at an object leads to.
#[derive(Debug, Default)]
struct Decision {
    writes: Vec<write::Write>,
    /// When time alone may change the decision.
    again: Option<Duration>,
}

impl From<Vec<write::Write>> for Decision {
    fn from(writes: Vec<write::Write>) -> Self {
        Self {
            writes,
            again: None,
        }
    }
}

/// Running controllers; dropping it stops them.
#[derive(Debug)]
pub struct Workloads {
    _tasks: JoinSet<()>,
}

impl Workloads {
    /// Begins to watch and to act.
    #[must_use]
    pub fn start(client: Client) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(engine::run(client));
        Self { _tasks: tasks }
    }
}
