//! What `millwright-lifecycle` decides, carried out: one file per controller.
//!
//! A controller is a work queue, a source of keys, and a function from a key to writes. All of them
//! run only on the leader. Objects are read from the hub's stores, which may lag behind our own
//! writes: every write carries the resource version it was decided on, and a conflict just means that
//! the object is looked at again.

mod claim;
mod claim_finalize;
mod emptiness;
mod evict;
mod garbage;
mod health;
mod index;
mod launcher;
mod node;
mod node_class;
mod node_pool;
pub(crate) mod observe;
mod pod_event;
mod scans;
mod write;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::{context::Context, workqueue::WorkQueue};
use index::Index;
use launcher::Launcher;

/// What the controllers share.
#[derive(Clone, Debug)]
struct Shared {
    context: Context,
    index: Arc<Index>,
    launcher: Arc<Launcher>,
    claims: WorkQueue,
    nodes: WorkQueue,
    pools: WorkQueue,
    classes: WorkQueue,
    health: Arc<health::Health>,
    evictions: Arc<evict::Evictions>,
    scans: Arc<scans::Scans>,
    attachments: Arc<node::Attachments>,
}

/// Starts all controllers as tasks; they act from the moment this process leads.
pub fn start(context: &Context, tasks: &mut JoinSet<()>) {
    let claims = WorkQueue::new("nodeclaim.lifecycle");
    let shared = Shared {
        index: Arc::default(),
        launcher: Arc::new(Launcher::new(context.clone(), claims.clone())),
        claims,
        nodes: WorkQueue::new("node.termination"),
        pools: WorkQueue::new("nodepool"),
        classes: WorkQueue::new("nodeclass"),
        health: Arc::default(),
        evictions: Arc::default(),
        scans: Arc::default(),
        attachments: Arc::default(),
        context: context.clone(),
    };
    index::start(&shared, tasks);
    tasks.spawn(launcher::run(shared.launcher.clone()));
    tasks.spawn(claim::run(shared.clone()));
    tasks.spawn(node::run(shared.clone()));
    tasks.spawn(evict::run(shared.clone()));
    tasks.spawn(node_pool::run(shared.clone()));
    tasks.spawn(node_class::run(shared.clone()));
    tasks.spawn(garbage::run(shared.clone()));
    tasks.spawn(emptiness::run(shared.clone()));
    tasks.spawn(pod_event::run(shared));
}

impl Shared {
    /// Resolves when this process leads and has seen everything.
    async fn ready(&self) {
        self.context.synced().await;
        self.context.leadership.acquired().await;
    }
}
