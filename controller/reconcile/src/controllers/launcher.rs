//! Launches: NodeClaims collected into their groups, one call per group (decision D-005).
//!
//! Results are kept until the NodeClaim's status says the same, so that a status write that fails does
//! not launch again. After a crash the same group with the same members has the same token, and the
//! cloud answers with the instances of the first call.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt;
use millwright_api::NodeClaim;
use millwright_cloud::{CloudError, CloudErrorKind, Instance, LaunchGroup, LaunchRequest};
use millwright_lifecycle::launch_group::{ANNOTATION, Collector, GroupTag, ReadyGroup};
use millwright_model::{Name, NodeClaimName, NodePoolName, ProviderId, Span, Timestamp, labels};
use millwright_state::convert;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

use crate::{
    context::{Context, now},
    workqueue::WorkQueue,
};

/// Launches in flight at once; each is one CreateFleet, and the provider paces itself.
const LAUNCHES: usize = 32;
/// First and longest pause after a refused launch; each refusal doubles it.
const RETRY: (Span, Span) = (Span::from_secs(1), Span::from_secs(60));
/// How often groups that wait for members are looked at.
const TICK: Duration = Duration::from_millis(250);

/// What became of one launch.
pub(super) type Outcome = Result<Instance, CloudError>;

/// Collects and launches.
#[derive(Debug)]
pub(super) struct Launcher {
    context: Context,
    claims: WorkQueue,
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct State {
    collector: Collector,
    queue: Vec<ReadyGroup>,
    /// Those that wait for their group, or whose launch is in flight: name by uid.
    busy: HashMap<String, String>,
    /// Results that the store does not show yet, by uid. Bounded by the number of NodeClaims.
    outcomes: HashMap<String, Outcome>,
    /// Refusals by uid: how many, and when the next launch may be tried.
    refusals: HashMap<String, (u32, Timestamp)>,
}

impl Launcher {
    pub(super) fn new(context: Context, claims: WorkQueue) -> Self {
        Self {
            context,
            claims,
            state: Mutex::default(),
            ready: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a launch; repetitions while one is under way change nothing.
    pub(super) fn offer(&self, claim: &NodeClaim) {
        let uid = claim.uid().unwrap_or_default();
        let name = claim.name_any();
        let tag = GroupTag::parse(
            claim.annotations().get(ANNOTATION).map(String::as_str),
            &uid.as_str().into(),
        );
        let settled = self.settled(claim, &tag);
        let mut state = self.state();
        if state.busy.contains_key(&uid) {
            return;
        }
        state.busy.insert(uid, name.clone());
        if let Some(group) = state
            .collector
            .offer(name.as_str().into(), &tag, settled, now())
        {
            state.queue.push(group);
            self.ready.notify_one();
        }
    }

    /// Members of the group that were launched before (a leader took over in between).
    fn settled(&self, claim: &NodeClaim, tag: &GroupTag) -> usize {
        if tag.size <= 1 {
            return 0;
        }
        let group = claim.annotations().get(ANNOTATION);
        let launched = |other: &NodeClaim| {
            other
                .status
                .as_ref()
                .is_some_and(|status| !status.provider_id.is_empty())
        };
        let members = self.context.node_claims.list();
        members
            .iter()
            .filter(|other| other.annotations().get(ANNOTATION) == group && launched(other))
            .count()
    }

    /// The result of a launch, if there is one; it is kept.
    pub(super) fn outcome(&self, uid: &str) -> Option<Outcome> {
        self.state().outcomes.get(uid).cloned()
    }

    /// Whether a launch is under way.
    pub(super) fn is_busy(&self, uid: &str) -> bool {
        self.state().busy.contains_key(uid)
    }

    /// Forgets everything about a claim: the store shows that it was launched, or it is gone.
    ///
    /// Not earlier: a look at a store that lags behind our own write would launch once more.
    pub(super) fn forget(&self, uid: &str) {
        let mut state = self.state();
        state.outcomes.remove(uid);
        state.refusals.remove(uid);
    }

    /// Takes a refused launch back, to be tried again after a pause that grows.
    pub(super) fn refused(&self, uid: &str) {
        let mut state = self.state();
        state.outcomes.remove(uid);
        let (count, until) = state.refusals.entry(uid.to_owned()).or_default();
        *until = now() + Span((RETRY.0.0 << (*count).min(10)).min(RETRY.1.0));
        *count = count.saturating_add(1);
    }

    /// How long the next launch has to wait for, if at all.
    pub(super) fn pause(&self, uid: &str) -> Option<Span> {
        let (_, until) = *self.state().refusals.get(uid)?;
        Some(until.since(now())).filter(|span| *span > Span(0))
    }

    /// Provider ids of launches that no status says yet.
    pub(super) fn unwritten(&self) -> Vec<String> {
        let state = self.state();
        state
            .outcomes
            .values()
            .filter_map(|o| o.as_ref().ok())
            .map(|i| i.provider_id.to_string())
            .collect()
    }

    fn take(&self) -> Vec<ReadyGroup> {
        let mut state = self.state();
        let over = state.collector.expired(now());
        state.queue.extend(over);
        std::mem::take(&mut state.queue)
    }

    async fn launch(self: Arc<Self>, ready: ReadyGroup, permit: tokio::sync::OwnedSemaphorePermit) {
        let release = Release {
            launcher: &self,
            members: &ready.members,
        };
        let claims: Vec<Arc<NodeClaim>> = ready
            .members
            .iter()
            .filter_map(|name| self.context.node_claims.get(name))
            .collect();
        let alive: Vec<_> = claims
            .into_iter()
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
            .collect();
        let outcomes = match self.group(&ready.id, &alive) {
            _ if alive.is_empty() => Vec::new(),
            Ok(group) => self.context.provider.launch(group).await,
            Err(error) => vec![Err(error); alive.len()],
        };
        drop(permit);
        let mut state = self.state();
        for (claim, outcome) in alive.iter().zip(outcomes) {
            state
                .outcomes
                .insert(claim.uid().unwrap_or_default(), outcome);
        }
        drop(state);
        drop(release);
        for name in &ready.members {
            self.claims.add(name.as_str());
        }
    }

    /// Provider ids of the group's members that were launched before.
    fn claimed(&self, claims: &[Arc<NodeClaim>]) -> BTreeSet<ProviderId> {
        let Some(group) = claims
            .first()
            .and_then(|claim| claim.annotations().get(ANNOTATION))
        else {
            return BTreeSet::new();
        };
        let members = self.context.node_claims.list();
        members
            .iter()
            .filter(|claim| claim.annotations().get(ANNOTATION) == Some(group))
            .filter_map(|claim| claim.status.as_ref())
            .filter(|status| !status.provider_id.is_empty())
            .map(|status| ProviderId::from(status.provider_id.as_str()))
            .collect()
    }

    fn group(&self, id: &Name, claims: &[Arc<NodeClaim>]) -> Result<LaunchGroup, CloudError> {
        let not_ready = |message: String| {
            CloudError::new(
                CloudErrorKind::NodeClassNotReady,
                "NodeClassNotReady",
                message,
            )
        };
        let class = claims
            .first()
            .map(|claim| claim.spec.node_class_ref.name.as_str())
            .unwrap_or_default();
        let node_class = self
            .context
            .node_classes
            .get(class)
            .filter(|class| class.metadata.deletion_timestamp.is_none())
            .ok_or_else(|| {
                not_ready(format!(
                    "nodeclass {class} does not exist or is being deleted"
                ))
            })?;
        let members = claims
            .iter()
            .map(|claim| request(claim))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(LaunchGroup {
            id: id.clone(),
            node_class,
            members,
            claimed: self.claimed(claims),
        })
    }
}

/// Frees the members of a group when its launch is over, however it ends: a claim that stayed busy
/// could never be finalized.
struct Release<'a> {
    launcher: &'a Launcher,
    members: &'a [NodeClaimName],
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        // By name, because a member that vanished meanwhile has no object to read a uid from.
        let members: HashSet<&str> = self.members.iter().map(|name| name.as_str()).collect();
        self.launcher
            .state()
            .busy
            .retain(|_, name| !members.contains(name.as_str()));
    }
}

fn request(claim: &NodeClaim) -> Result<LaunchRequest, CloudError> {
    let facts = convert::claim_facts(claim).map_err(|error| {
        CloudError::new(
            CloudErrorKind::Create,
            "InvalidNodeClaim",
            format!("nodeclaim {}: {error}", claim.name_any()),
        )
    })?;
    Ok(LaunchRequest {
        node_claim: facts.name,
        uid: facts.uid,
        node_pool: facts
            .labels
            .get(labels::NODE_POOL)
            .map(|pool| NodePoolName(pool.clone())),
        requirements: facts.requirements,
        requests: facts.requests,
        labels: facts.labels,
        taints: facts.taints,
        startup_taints: facts.startup_taints,
    })
}

/// Runs until the task is dropped.
pub(super) async fn run(launcher: Arc<Launcher>) {
    launcher.context.leadership.acquired().await;
    let permits = Arc::new(Semaphore::new(LAUNCHES));
    let mut running = JoinSet::new();
    loop {
        for group in launcher.take() {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            running.spawn(launcher.clone().launch(group, permit));
        }
        while running.try_join_next().is_some() {}
        let _ = tokio::time::timeout(TICK, launcher.ready.notified()).await;
    }
}
