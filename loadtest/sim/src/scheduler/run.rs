//! The loop: events in, attempts, requests out, outcomes in.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    attempt,
    ledger::{Ledger, NodeFacts},
    pod::{PodInfo, is_finished, is_waiting, node_of},
    queue::Queue,
    report::{self, Reports},
    requests::{Bound, bind, tell},
};

/// Events that are taken in at once.
const EVENTS_AT_ONCE: usize = 1024;

/// Bindings under way at once: no more pods are tried while there are so many.
const BINDINGS: usize = 64;

/// Reports under way at once; further ones wait, bindings do not.
const REPORTS: usize = 16;

/// Pods that are tried before events are looked at again.
const ATTEMPTS_AT_ONCE: usize = 64;

/// What an event means for the [`State`].
type Learn = Box<dyn FnOnce(&mut State) + Send>;

/// What has changed since parked pods were looked at.
#[derive(Debug, Default)]
struct Changes {
    /// These nodes have more room, or are others than they were.
    nodes: BTreeSet<String>,
    /// Pods have come, gone or changed.
    pods: bool,
}

/// What a list has shown so far, and how many first lists have ended.
#[derive(Debug, Default)]
struct Listing {
    pods: HashSet<String>,
    nodes: BTreeSet<String>,
    synced: (bool, bool, bool),
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    queue: Queue,
    reports: Reports,
    changes: Changes,
    listing: Listing,
    /// Pods whose binding is under way.
    binding: HashSet<String>,
}

/// Watches and binds until it is dropped.
pub(super) async fn run(client: Client) {
    let mut events = stream::select_all([
        watch(&client, State::learn_node),
        watch(&client, State::learn_namespace),
        watch(&client, State::learn_pod),
    ])
    .ready_chunks(EVENTS_AT_ONCE);
    let mut state = State::default();
    let mut bindings: JoinSet<(Arc<PodInfo>, Bound)> = JoinSet::new();
    let mut tellings: JoinSet<Option<String>> = JoinSet::new();
    let mut told = 0;
    loop {
        let may_try =
            state.listing.is_synced() && state.queue.has_active() && bindings.len() < BINDINGS;
        let deadline = state.queue.next_deadline();
        let pause = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(ended) = bindings.join_next(), if !bindings.is_empty() => {
                // A binding neither panics nor is aborted while the loop runs.
                if let Ok((pod, bound)) = ended {
                    state.bound(pod, bound);
                }
            }
            Some(ended) = tellings.join_next(), if !tellings.is_empty() => {
                if let Ok(Some(uid)) = ended {
                    state.try_again(&uid);
                }
            }
            chunk = events.next() => {
                let Some(chunk) = chunk else { return };
                for learn in chunk {
                    learn(&mut state);
                }
            }
            () = pause => state.queue.advance(Instant::now()),
            () = tokio::task::yield_now(), if may_try => {}
        }
        if !state.listing.is_synced() {
            continue;
        }
        state.wake();
        for _ in 0..ATTEMPTS_AT_ONCE {
            if bindings.len() >= BINDINGS {
                break;
            }
            let Some(pod) = state.queue.pop() else { break };
            if let Some(node) = state.attempt(&pod) {
                bindings.spawn(bind(client.clone(), pod, node));
            }
        }
        while tellings.len() < REPORTS
            && let Some((pod, message)) = state.reports.pop()
        {
            told += 1;
            tellings.spawn(tell(client.clone(), pod, message, told));
        }
    }
}

impl Listing {
    const fn is_synced(&self) -> bool {
        self.synced.0 && self.synced.1 && self.synced.2
    }
}

impl State {
    /// Tries to find a node; the pod has its room there at once.
    fn attempt(&mut self, pod: &Arc<PodInfo>) -> Option<String> {
        match attempt::find(pod, &self.ledger) {
            Ok(node) => {
                self.reports.withdraw(&pod.uid);
                self.ledger.place(pod.clone(), &node);
                self.binding.insert(pod.uid.clone());
                Some(node)
            }
            Err(reasons) => {
                let message = report::message(self.ledger.node_count(), &reasons);
                self.reports.push(pod.clone(), message);
                self.queue.park(pod.clone());
                None
            }
        }
    }

    fn bound(&mut self, pod: Arc<PodInfo>, bound: Bound) {
        if !self.binding.remove(&pod.uid) {
            // The watch has told of its end already.
            return;
        }
        match bound {
            Bound::To(node) => {
                self.queue.forget(&pod.uid);
                self.ledger.place(pod, &node);
            }
            Bound::Gone => self.gone(&pod.uid),
            Bound::Failed => {
                self.changes.nodes.extend(self.ledger.remove(&pod.uid));
                self.queue.pause(pod, Instant::now());
            }
        }
    }

    /// The pod had changed when it was told that it has no node: tries anew with what is known now.
    fn try_again(&mut self, uid: &str) {
        if let Some(pod) = self.queue.get(uid).cloned() {
            self.queue.forget(uid);
            self.queue.push(pod);
        }
    }

    /// Makes parked pods active that what has changed may help.
    fn wake(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        if changes.nodes.is_empty() && !changes.pods {
            return;
        }
        let ledger = &self.ledger;
        self.queue.wake(|pod| {
            pod.depends_on_pods()
                || changes
                    .nodes
                    .iter()
                    .any(|node| ledger.would_take(pod, node))
        });
    }

    fn learn_pod(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listing.pods.clear(),
            Event::InitApply(pod) => {
                self.listing.pods.insert(pod.uid().unwrap_or_default());
                self.pod(pod);
            }
            Event::Apply(pod) => self.pod(pod),
            Event::Delete(pod) => self.gone(&pod.uid().unwrap_or_default()),
            Event::InitDone => {
                self.listing.synced.0 = true;
                let seen = std::mem::take(&mut self.listing.pods);
                let known = self.ledger.pods().chain(self.queue.uids());
                let missing: Vec<String> = known
                    .filter(|uid| !seen.contains(*uid) && !self.binding.contains(*uid))
                    .map(str::to_owned)
                    .collect();
                for uid in missing {
                    self.gone(&uid);
                }
            }
        }
    }

    fn pod(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        if is_finished(&pod) {
            self.gone(&uid);
        } else if let Some(node) = node_of(&pod).map(str::to_owned) {
            self.queue.forget(&uid);
            self.reports.withdraw(&uid);
            self.binding.remove(&uid);
            self.changes.pods = true;
            let before = self.ledger.remove(&uid);
            self.changes
                .nodes
                .extend(before.filter(|before| *before != node));
            self.ledger.place(Arc::new(PodInfo::read(pod)), &node);
        } else if self.ledger.has_pod(&uid) {
            // This state is older than the binding.
        } else if is_waiting(&pod) {
            self.queue.push(Arc::new(PodInfo::read(pod)));
        } else {
            self.queue.forget(&uid);
            self.reports.withdraw(&uid);
        }
    }

    fn gone(&mut self, uid: &str) {
        self.queue.forget(uid);
        self.reports.withdraw(uid);
        self.binding.remove(uid);
        if let Some(node) = self.ledger.remove(uid) {
            self.changes.nodes.insert(node);
            self.changes.pods = true;
        }
    }

    fn learn_node(&mut self, event: Event<Node>) {
        match event {
            Event::Init => self.listing.nodes.clear(),
            Event::InitApply(node) => {
                self.listing.nodes.insert(node.name_any());
                self.node(&node);
            }
            Event::Apply(node) => self.node(&node),
            Event::Delete(node) => self.ledger.remove_node(&node.name_any()),
            Event::InitDone => {
                self.listing.synced.1 = true;
                let seen = std::mem::take(&mut self.listing.nodes);
                self.ledger.retain_nodes(&seen);
            }
        }
    }

    fn node(&mut self, node: &Node) {
        if self.ledger.set_node(NodeFacts::read(node)) {
            self.changes.nodes.insert(node.name_any());
        }
    }

    fn learn_namespace(&mut self, event: Event<Namespace>) {
        match event {
            Event::Init => {}
            Event::InitApply(namespace) | Event::Apply(namespace) => {
                let (name, labels) = (namespace.name_any(), namespace.labels().clone());
                self.changes.pods |= self.ledger.set_namespace(name, labels);
            }
            Event::Delete(namespace) => self.ledger.remove_namespace(&namespace.name_any()),
            Event::InitDone => self.listing.synced.2 = true,
        }
    }
}

/// The events of one kind.
fn watch<K>(client: &Client, learn: fn(&mut State, Event<K>)) -> BoxStream<'static, Learn>
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = Api::all(client.clone());
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let events = events.filter_map(async |event| match event {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::debug!(%error, kind = %K::kind(&()), "watch interrupted, resuming");
            None
        }
    });
    events
        .map(move |event| -> Learn { Box::new(move |state| learn(state, event)) })
        .boxed()
}
