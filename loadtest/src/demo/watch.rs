//! What happens in the demo's cluster, watched through the Kubernetes API like everybody does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, reflector, reflector::Store, watcher},
};
use millwright_api::NodeClaim;
use tokio::task::JoinSet;

use super::view::{NodeCounts, NodeKind, View};

/// Stores of what the view shows.
#[derive(Debug)]
pub(super) struct Watched {
    pub(crate) pods: Store<Pod>,
    pub(crate) claims: Store<NodeClaim>,
    _tasks: JoinSet<()>,
}

fn follow<K>(api: Api<K>, tasks: &mut JoinSet<()>) -> Store<K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let stream = watcher(api, watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    tasks.spawn(async move {
        use futures::StreamExt as _;
        let mut stream = std::pin::pin!(stream);
        while stream.next().await.is_some() {}
    });
    store
}

impl Watched {
    /// Watches pods of a namespace and NodeClaims.
    pub(crate) fn start(client: &Client, namespace: &str) -> Self {
        let mut tasks = JoinSet::new();
        Self {
            pods: follow(Api::namespaced(client.clone(), namespace), &mut tasks),
            claims: follow(Api::all(client.clone()), &mut tasks),
            _tasks: tasks,
        }
    }

    /// The picture of this moment. `price` gives dollars per hour by type, zone and capacity type.
    pub(super) fn view(&self, price: impl Fn(&str, &str, &str) -> f64) -> View {
        let mut view = View::default();
        for pod in self.pods.state() {
            let status = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                .unwrap_or("Pending");
            let bound = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some());
            view.pods += 1;
            view.pending += usize::from(!bound);
            view.bound += usize::from(bound);
            view.running +=
                usize::from(status == "Running" && pod.metadata.deletion_timestamp.is_none());
        }
        let mut nodes: BTreeMap<NodeKind, NodeCounts> = BTreeMap::new();
        for claim in self.claims.state() {
            let label = |key: &str| claim.labels().get(key).cloned().unwrap_or_default();
            let instance_type = label("node.kubernetes.io/instance-type");
            let capacity_type = label("karpenter.sh/capacity-type");
            view.price_per_hour += price(
                &instance_type,
                &label("topology.kubernetes.io/zone"),
                &capacity_type,
            );
            let counts = nodes
                .entry(NodeKind {
                    instance_type,
                    capacity_type,
                })
                .or_default();
            let conditions = claim
                .status
                .as_ref()
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            let ready = conditions
                .iter()
                .any(|c| c.type_ == "Initialized" && c.status == "True");
            if claim.metadata.deletion_timestamp.is_some() {
                counts.leaving += 1;
            } else if ready {
                counts.ready += 1;
            } else {
                counts.starting += 1;
            }
        }
        view.nodes = nodes;
        view
    }
}
