//! The loop: events in, decisions, requests out, answers in.

use std::sync::Arc;

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet},
        batch::v1::Job,
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Decision, REQUESTS, budget,
    cluster::{Cluster, Key, Kind, Watched},
    daemon_set, deployment, garbage, node,
    queue::{Outcome, Queue},
    replica_set,
    write::{Done, Learn, carry_out},
};

/// Events that are taken in at once before anything is decided: many events about one object become one
/// look at it.
const EVENTS_AT_ONCE: usize = 1024;

/// Objects whose requests are under way at once.
const BATCHES: usize = 256;

/// After this time a suspect that was let be is looked at again.
const SECOND_LOOK: std::time::Duration = std::time::Duration::from_secs(30);

/// Watches and acts until it is dropped.
pub(super) async fn run(client: Client) {
    let mut events = stream::select_all([
        watch::<Node>(&client),
        watch::<Deployment>(&client),
        watch::<ReplicaSet>(&client),
        watch::<DaemonSet>(&client),
        watch::<Job>(&client),
        watch::<PodDisruptionBudget>(&client),
        watch::<Pod>(&client),
    ])
    .ready_chunks(EVENTS_AT_ONCE);
    let mut cluster = Cluster::default();
    let mut queue = Queue::default();
    let mut batches: JoinSet<(Key, Done)> = JoinSet::new();
    let permits = Arc::new(Semaphore::new(REQUESTS));
    let mut dirty = Vec::new();
    loop {
        let deadline = queue.next_deadline();
        let pause = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = batches.join_next(), if !batches.is_empty() => {
                // A batch neither panics nor is aborted while the loop runs.
                let Ok((key, done)) = ended else { continue };
                for learn in done.learned {
                    learn(&mut cluster, &mut dirty);
                }
                let outcome = match (&key, done.is_complete) {
                    (_, false) => Outcome::Failed,
                    (Key::Reconcile(..), true) => Outcome::Written,
                    // Its object is gone, or somebody else has to act first.
                    (Key::Collect(..), true) => Outcome::Settled(Some(SECOND_LOOK)),
                };
                queue.finish(key, outcome, Instant::now());
            }
            chunk = events.next() => {
                let Some(chunk) = chunk else { return };
                for learn in chunk {
                    learn(&mut cluster, &mut dirty);
                }
            }
            () = pause => {}
        }
        for key in dirty.drain(..) {
            queue.push(key);
        }
        queue.advance(Instant::now());
        if !cluster.is_synced() {
            continue;
        }
        while batches.len() < BATCHES
            && let Some(key) = queue.pop()
        {
            let decision = decide(&cluster, &key);
            if decision.writes.is_empty() {
                queue.finish(key, Outcome::Settled(decision.again), Instant::now());
                continue;
            }
            let (client, permits) = (client.clone(), permits.clone());
            batches.spawn(async move {
                let done = carry_out(client, decision.writes, &permits).await;
                (key, done)
            });
        }
    }
}

fn decide(cluster: &Cluster, key: &Key) -> Decision {
    let now = Timestamp::now();
    match key {
        Key::Collect(kind, uid) => garbage::reconcile(cluster, *kind, uid),
        Key::Reconcile(Kind::ReplicaSet, uid) => replica_set::reconcile(cluster, uid, now),
        Key::Reconcile(Kind::Deployment, uid) => deployment::reconcile(cluster, uid, now),
        Key::Reconcile(Kind::Budget, uid) => budget::reconcile(cluster, uid, now),
        Key::Reconcile(Kind::DaemonSet, uid) => daemon_set::reconcile(cluster, uid, now),
        Key::Reconcile(Kind::Node, uid) => node::reconcile(cluster, uid),
        // Jobs are watched as owners only; pods are what the others reconcile.
        Key::Reconcile(Kind::Job | Kind::Pod, _) => Decision::default(),
    }
}

/// The events of one kind, as what they teach.
fn watch<K: Watched>(client: &Client) -> BoxStream<'static, Learn> {
    let api: Api<K> = Api::all(client.clone());
    let events = watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(async |event| match event {
            Ok(event) => Some(event),
            Err(error) => {
                tracing::debug!(%error, kind = ?K::KIND, "watch interrupted, resuming");
                None
            }
        });
    events
        .map(|event| event.modify(|object| object.managed_fields_mut().clear()))
        .map(|event| -> Learn { Box::new(move |cluster, dirty| cluster.observe(event, dirty)) })
        .boxed()
}
