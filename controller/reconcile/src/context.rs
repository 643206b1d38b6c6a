//! What every controller needs: the watched kinds, the state, the cloud, and who may write.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use kube::{Api, Client};
use millwright_api::{Ec2NodeClass, NodeClaim, NodePool};
use millwright_cloud::Provider;
use millwright_model::{PodKey, Timestamp, instance_type::InstanceTypes};
use millwright_state::{
    ClusterState, wanted_by_job, wanted_by_replica_set, wanted_by_stateful_set,
};
use millwright_telemetry as telemetry;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use crate::{
    bound_pods::BoundPods,
    events::Recorder,
    hub::{Change, Kind, key_of, watch_kind, watch_only},
    leader::Leadership,
    settings::Settings,
};

/// Now, for the pure crates.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

/// Time from a pod's creation to its binding, by the API server's clock.
fn bound_after(pod: &Pod) -> Option<Duration> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "True")?;
    let bound = scheduled.last_transition_time.as_ref()?.0;
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    Duration::try_from(bound.duration_since(created)).ok()
}

/// A kind that can be watched cluster-wide.
trait Watched:
    kube::Resource<DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Watched for K where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Shared by all controllers. Clones share everything.
#[derive(Clone)]
pub struct Context {
    /// The Kubernetes client.
    pub client: Client,
    /// The cloud.
    pub provider: Arc<dyn Provider>,
    /// Events.
    pub recorder: Recorder,
    /// Who may write.
    pub leadership: Leadership,
    /// What the operator chose.
    pub settings: Arc<Settings>,
    /// Nodes.
    pub nodes: Kind<Node>,
    /// NodeClaims.
    pub node_claims: Kind<NodeClaim>,
    /// NodePools.
    pub node_pools: Kind<NodePool>,
    /// Node classes.
    pub node_classes: Kind<Ec2NodeClass>,
    /// Disruption budgets of pods.
    pub disruption_budgets: Kind<PodDisruptionBudget>,
    /// Rings when a pod began to wait, or when what can be launched changed.
    pub arrivals: Arc<Notify>,
    /// Counts changes of what can be launched: pools, classes, types, prices.
    supply: Arc<AtomicU64>,
    /// What drains and disruption read of pods.
    pub(crate) bound_pods: Arc<BoundPods>,
    state: Arc<Mutex<ClusterState>>,
    /// Whether the first list is complete, of each kind whose objects are not kept.
    inputs: Arc<Mutex<Vec<watch::Receiver<bool>>>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Starts every watch as a task of `tasks`.
    #[must_use]
    pub fn start(
        client: Client,
        provider: Arc<dyn Provider>,
        recorder: Recorder,
        leadership: Leadership,
        settings: Settings,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (nodes, watch_nodes) = watch_kind(Api::all(client.clone()));
        let (node_claims, watch_claims) = watch_kind(Api::all(client.clone()));
        let (node_pools, watch_pools) = watch_kind(Api::all(client.clone()));
        let (node_classes, watch_classes) = watch_kind::<Ec2NodeClass>(Api::all(client.clone()));
        let (disruption_budgets, watch_budgets) =
            watch_kind::<PodDisruptionBudget>(Api::all(client.clone()));
        let context = Self {
            client,
            provider,
            recorder,
            leadership,
            settings: Arc::new(settings),
            nodes,
            node_claims,
            node_pools,
            node_classes,
            disruption_budgets,
            arrivals: Arc::default(),
            supply: Arc::default(),
            bound_pods: Arc::default(),
            state: Arc::default(),
            inputs: Arc::default(),
        };
        let ingest = context.clone();
        tasks.spawn(watch_nodes.run(move |change| ingest.ingest_node(&change)));
        let ingest = context.clone();
        tasks.spawn(watch_claims.run(move |change| ingest.ingest_claim(&change)));
        let ingest = context.clone();
        tasks.spawn(watch_pools.run(move |change| ingest.ingest_pool(&change)));
        let ingest = context.clone();
        tasks.spawn(watch_classes.run(move |_| ingest.supply_changed()));
        tasks.spawn(watch_budgets.run(|_| {}));
        context.start_inputs(tasks);
        context
    }

    /// Watches of kinds whose objects are converted and dropped.
    fn start_inputs(&self, tasks: &mut JoinSet<()>) {
        self.watch_input::<Pod>(tasks, Self::ingest_pod);
        self.watch_input::<DaemonSet>(tasks, Self::ingest_daemon_set);
        self.watch_input::<PersistentVolumeClaim>(tasks, Self::ingest_volume_claim);
        self.watch_input::<PersistentVolume>(tasks, Self::ingest_volume);
        self.watch_input::<StorageClass>(tasks, Self::ingest_storage_class);
        self.watch_owner::<ReplicaSet>(wanted_by_replica_set, tasks);
        self.watch_owner::<StatefulSet>(wanted_by_stateful_set, tasks);
        self.watch_owner::<Job>(wanted_by_job, tasks);
    }

    fn watch_input<K: Watched>(
        &self,
        tasks: &mut JoinSet<()>,
        ingest: impl Fn(&Self, &Change<'_, K>) + Send + 'static,
    ) {
        let (done, synced) = watch::channel(false);
        self.inputs().push(synced);
        let (context, api) = (self.clone(), Api::<K>::all(self.client.clone()));
        tasks.spawn(watch_only(api, done, move |change| {
            ingest(&context, &change);
        }));
    }

    fn watch_owner<K: Watched>(&self, wanted: fn(&K) -> i64, tasks: &mut JoinSet<()>) {
        self.watch_input::<K>(tasks, move |context, change| match change {
            Change::Applied(owner) => {
                if let Some(uid) = &owner.meta().uid {
                    context.state().want_pods(uid, wanted(owner));
                    context.arrivals.notify_one();
                }
            }
            Change::Deleted(owner) => {
                if let Some(uid) = &owner.meta().uid {
                    context.state().forget_owner(uid);
                }
            }
            // An owner that vanished while the watch was down wants pods that never come; its pods
            // vanish with it, and without waiting pods an owner is not asked.
            Change::Listed(_) => {}
        });
    }

    fn inputs(&self) -> MutexGuard<'_, Vec<watch::Receiver<bool>>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster's state, for a moment; never held across an await.
    pub fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the first list of everything that plans depend on is complete: a plan made
    /// before the DaemonSets are known, say, has no room for their pods.
    pub async fn synced(&self) {
        let inputs = self.inputs().clone();
        for mut input in inputs {
            // An error means that the watch task is gone, which happens only at shutdown.
            let _ = input.wait_for(|done| *done).await;
        }
        self.nodes.synced().await;
        self.node_claims.synced().await;
        self.node_pools.synced().await;
        self.node_classes.synced().await;
    }

    /// Whether everything that plans depend on was seen.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.inputs().iter().all(|input| *input.borrow())
            && self.nodes.is_synced()
            && self.node_claims.is_synced()
            && self.node_pools.is_synced()
            && self.node_classes.is_synced()
    }

    /// Notes that what can be launched changed; pods without a place are then planned again.
    pub fn supply_changed(&self) {
        self.supply.fetch_add(1, Ordering::Relaxed);
        self.arrivals.notify_one();
    }

    /// Counts changes of what can be launched since the start.
    #[must_use]
    pub fn supply(&self) -> u64 {
        self.supply.load(Ordering::Relaxed)
    }

    /// The instance types of a pool's class; none while the class or its types are not known.
    #[must_use]
    pub fn instance_types(&self, pool: &NodePool) -> InstanceTypes {
        let class = self
            .node_classes
            .get(&pool.spec.template.spec.node_class_ref.name);
        class
            .and_then(|class| self.provider.instance_types(&class).ok())
            .unwrap_or_else(|| [].into())
    }

    fn ingest_pod(&self, change: &Change<'_, Pod>) {
        match change {
            Change::Applied(pod) => {
                self.bound_pods.apply(pod);
                let news = self.state().apply_pod(pod);
                if news.began_to_wait {
                    self.arrivals.notify_one();
                }
                if news.was_bound
                    && let Some(took) = bound_after(pod)
                {
                    telemetry::pod_bound(took);
                }
            }
            Change::Deleted(pod) => {
                let key = millwright_state::convert::pod_key(pod);
                self.bound_pods.delete(&key);
                self.state().delete_pod(&key);
            }
            Change::Listed(keys) => {
                let keys = keys
                    .iter()
                    .filter_map(|key| key.split_once('/'))
                    .map(|(namespace, name)| PodKey::new(namespace, name))
                    .collect();
                self.bound_pods.retain(&keys);
                self.state().retain_pods(&keys);
                self.arrivals.notify_one();
            }
        }
    }

    fn ingest_node(&self, change: &Change<'_, Node>) {
        match change {
            Change::Applied(node) => {
                if let Err(error) = self.state().apply_node(node) {
                    tracing::warn!(node = key_of(*node), %error, "node cannot be read and is not planned with");
                }
                self.arrivals.notify_one();
            }
            Change::Deleted(node) => self.state().delete_node(&key_of(*node).into()),
            Change::Listed(keys) => {
                self.state()
                    .retain_nodes(&keys.iter().map(|key| key.as_str().into()).collect());
            }
        }
    }

    fn ingest_claim(&self, change: &Change<'_, NodeClaim>) {
        match change {
            Change::Applied(claim) => {
                if let Err(error) = self.state().apply_claim(claim) {
                    tracing::warn!(nodeclaim = key_of(*claim), %error, "nodeclaim cannot be read and is not planned with");
                }
            }
            Change::Deleted(claim) => {
                self.state().delete_claim(&key_of(*claim).into());
                self.arrivals.notify_one();
            }
            Change::Listed(keys) => {
                self.state()
                    .retain_claims(&keys.iter().map(|key| key.as_str().into()).collect());
            }
        }
    }

    fn ingest_pool(&self, change: &Change<'_, NodePool>) {
        match change {
            Change::Applied(pool) => self.state().apply_pool((*pool).clone()),
            Change::Deleted(pool) => self.state().delete_pool(&key_of(*pool)),
            Change::Listed(keys) => self.state().retain_pools(keys),
        }
        self.supply_changed();
    }

    fn ingest_daemon_set(&self, change: &Change<'_, DaemonSet>) {
        match change {
            Change::Applied(set) => {
                if let Err(error) = self.state().apply_daemon_set((*set).clone()) {
                    tracing::warn!(daemonset = key_of(*set), %error, "daemonset cannot be read and costs nothing in plans");
                }
            }
            Change::Deleted(set) => self.state().delete_daemon_set(&key_of(*set)),
            Change::Listed(keys) => self.state().retain_daemon_sets(keys),
        }
    }

    fn ingest_volume_claim(&self, change: &Change<'_, PersistentVolumeClaim>) {
        match change {
            Change::Applied(claim) => self.state().apply_volume_claim((*claim).clone()),
            Change::Deleted(claim) => self.state().delete_volume_claim(&key_of(*claim)),
            Change::Listed(keys) => self.state().retain_volume_claims(keys),
        }
        self.arrivals.notify_one();
    }

    fn ingest_volume(&self, change: &Change<'_, PersistentVolume>) {
        match change {
            Change::Applied(volume) => self.state().apply_volume((*volume).clone()),
            Change::Deleted(volume) => self.state().delete_volume(&key_of(*volume)),
            Change::Listed(keys) => self.state().retain_volumes(keys),
        }
        self.arrivals.notify_one();
    }

    fn ingest_storage_class(&self, change: &Change<'_, StorageClass>) {
        match change {
            Change::Applied(class) => self.state().apply_storage_class((*class).clone()),
            Change::Deleted(class) => self.state().delete_storage_class(&key_of(*class)),
            Change::Listed(keys) => self.state().retain_storage_classes(keys),
        }
        self.arrivals.notify_one();
    }
}
