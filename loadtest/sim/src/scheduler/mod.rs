//! The scheduler: finds nodes for pods as the kube-scheduler does, as far as our runs need it.
//!
//! It is a client of the Kubernetes API like any other and runs unchanged against the simulated API server
//! and against the real one. It filters by cordon, taints, node selector and affinity, host ports,
//! resources, affinity between pods and spread; prefers empty nodes; binds through `pods/binding`; and says
//! why a pod has no node in the kube-scheduler's words. It neither preempts nor looks at volumes.
//!
//! It is written independently of the controller's own packing, which it judges.
//!
//! ```text
//! watches ──> ledger, queue ──> attempt (pure) ──> binding, or condition and event
//!                  ^                                  |
//!                  └──────────── outcome ─────────────┘
//! ```

mod attempt;
mod filter;
mod ledger;
pub(crate) mod node_affinity;
mod pod;
mod queue;
mod report;
mod requests;
mod resources;
mod run;
mod score;
#[cfg(test)]
mod test_objects;
mod topology;

use kube::Client;
use tokio::task::JoinSet;

/// The name by which pods ask for this scheduler.
const NAME: &str = "default-scheduler";

/// A running scheduler; dropping it stops it.
#[derive(Debug)]
pub struct Scheduler {
    _tasks: JoinSet<()>,
}

impl Scheduler {
    /// Begins to watch and to bind.
    #[must_use]
    pub fn start(client: Client) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(run::run(client));
        Self { _tasks: tasks }
    }
}
