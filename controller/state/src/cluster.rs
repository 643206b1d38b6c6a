//! The cluster as the watches tell it, and its publication as snapshots.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use millwright_api::{NodeClaim, NodePool};
use millwright_model::{
    ClusterSnapshot, DaemonPod, Name, NodeClaimName, NodeName, NodePoolName, PodKey, PodUid,
    Resources, Span, Timestamp, instance_type::InstanceTypes, snapshot::Namespaces,
};

use crate::{
    convert::{self, FieldError},
    intern::Interner,
    nodes::{Nodes, Prospect},
    owner::{Completeness, Owners},
    pods::{PodChange, PodNews, Pods},
};

/// How long a created NodeClaim is believed in before the watch has shown it.
const UNSEEN_CLAIM: Span = Span::from_secs(15);

/// The state behind all snapshots. One thread at a time changes it; readers use snapshots.
///
/// Objects that cannot be converted are kept out; the error is returned so that the caller can count
/// and log it.
#[derive(Debug, Default)]
pub struct ClusterState {
    pods: Pods,
    nodes: Nodes,
    owners: Owners,
    interner: Interner,
    pools: BTreeMap<String, Arc<NodePool>>,
    daemons: BTreeMap<String, DaemonEntry>,
    claims: BTreeMap<String, PersistentVolumeClaim>,
    volumes: BTreeMap<String, PersistentVolume>,
    classes: BTreeMap<String, StorageClass>,
    namespaces: Option<Namespaces>,
    /// NodeClaims that we created and the watch has not shown yet, with the time of creation.
    unseen: BTreeMap<NodeClaimName, Timestamp>,
    /// Nodes whose pods changed since somebody last asked; bounded by the number of nodes.
    touched: HashSet<NodeName>,
    generation: u64,
}

#[derive(Debug)]
struct DaemonEntry {
    set: DaemonSet,
    newest: Option<Pod>,
    converted: Arc<DaemonPod>,
}

impl ClusterState {
    /// Takes in a pod that was added or changed.
    pub fn apply_pod(&mut self, pod: &Pod) -> PodNews {
        let sources = convert::ClaimSources {
            claims: &self.claims,
            volumes: &self.volumes,
            classes: &self.classes,
        };
        let change = self
            .pods
            .apply(pod, sources, &mut self.interner, &mut self.owners);
        self.note_daemon_pod(pod);
        self.touch(&change);
        change.news
    }

    /// Takes out a pod.
    pub fn delete_pod(&mut self, key: &PodKey) {
        let change = self.pods.delete(key, &mut self.owners);
        self.touch(&change);
    }

    /// After a relist: every pod that was not in it is gone.
    pub fn retain_pods(&mut self, listed: &HashSet<PodKey>) {
        for key in self.pods.keys().difference(listed) {
            self.delete_pod(key);
        }
    }

    fn touch(&mut self, change: &PodChange) {
        for node in &change.nodes {
            self.nodes.touch_node(node);
            self.touched.insert(node.clone());
        }
    }

    /// Takes in a Node.
    ///
    /// # Errors
    /// When a field cannot be converted; the Node is then not planned with.
    pub fn apply_node(&mut self, node: &Node) -> Result<(), FieldError> {
        let name = NodeName::from(node.metadata.name.as_deref().unwrap_or_default());
        let was_deleting = self.nodes.is_deleting(&name);
        match convert::node_facts(node) {
            Ok(facts) => self.nodes.apply_node(facts),
            Err(error) => {
                self.delete_node(&name);
                return Err(error);
            }
        }
        if was_deleting != self.nodes.is_deleting(&name) {
            self.pods.touch_node(&name);
        }
        Ok(())
    }

    /// Takes out a Node.
    pub fn delete_node(&mut self, name: &NodeName) {
        self.nodes.delete_node(name);
        self.pods.touch_node(name);
        self.forget_plans_for(name);
    }

    /// After a relist: every Node that was not in it is gone.
    pub fn retain_nodes(&mut self, listed: &HashSet<NodeName>) {
        for name in self.nodes.node_names().difference(listed) {
            self.delete_node(name);
        }
    }

    /// Takes in a NodeClaim; also called with the answer of a create, before the watch shows it.
    ///
    /// # Errors
    /// When a field cannot be converted; the NodeClaim is then not planned with.
    pub fn apply_claim(&mut self, claim: &NodeClaim) -> Result<(), FieldError> {
        let facts = convert::claim_facts(claim)?;
        self.unseen.remove(&facts.name);
        let name = facts.name.clone();
        self.change_claim(&name, |nodes| nodes.apply_claim(facts));
        Ok(())
    }

    /// Changes a claim; when its Node thereby begins or ceases to be on its way out, the pods there
    /// begin or cease to need a new place.
    fn change_claim(&mut self, claim: &NodeClaimName, change: impl FnOnce(&mut Nodes)) {
        let view = |nodes: &Nodes| {
            nodes
                .node_of_claim(claim)
                .map(|node| (nodes.is_deleting(&node), node))
        };
        let before = view(&self.nodes);
        change(&mut self.nodes);
        let after = view(&self.nodes);
        if before != after {
            for (_, node) in before.into_iter().chain(after) {
                self.pods.touch_node(&node);
            }
        }
    }

    /// Takes in a NodeClaim that was just created, with what it may turn out to be.
    ///
    /// # Errors
    /// As [`Self::apply_claim`].
    pub fn insert_created(
        &mut self,
        claim: &NodeClaim,
        prospect: Prospect,
        now: Timestamp,
    ) -> Result<(), FieldError> {
        self.apply_claim(claim)?;
        let name = NodeClaimName::from(claim.metadata.name.as_deref().unwrap_or_default());
        self.nodes.expect(&name, prospect);
        self.unseen.insert(name, now);
        Ok(())
    }

    /// Takes out a NodeClaim; pods planned on it are free again.
    pub fn delete_claim(&mut self, name: &NodeClaimName) {
        self.unseen.remove(name);
        self.change_claim(name, |nodes| nodes.delete_claim(name));
        self.forget_plans_for(&NodeName(name.0.clone()));
    }

    /// After a relist: every NodeClaim that was not in it is gone, save those just created.
    pub fn retain_claims(&mut self, listed: &HashSet<NodeClaimName>) {
        for name in self.nodes.claim_names().difference(listed) {
            if !self.unseen.contains_key(name) {
                self.delete_claim(name);
            }
        }
    }

    /// Created NodeClaims that the watch has not shown for a while. Each must be looked up: the
    /// watch may be late, or the object was deleted before the watch could show it and would hold its
    /// room for ever. Tell the answer with [`Self::apply_claim`] or [`Self::delete_claim`].
    #[must_use]
    pub fn unconfirmed_claims(&self, now: Timestamp) -> Vec<NodeClaimName> {
        let late = |created: &Timestamp| now.since(*created) > UNSEEN_CLAIM;
        self.unseen
            .iter()
            .filter(|(_, created)| late(created))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn forget_plans_for(&mut self, name: &NodeName) {
        if !self.nodes.is_known(name) {
            self.pods.unplan(name);
        }
    }

    /// Takes in a NodePool.
    pub fn apply_pool(&mut self, pool: NodePool) {
        self.pools.insert(
            pool.metadata.name.clone().unwrap_or_default(),
            Arc::new(pool),
        );
    }

    /// Takes out a NodePool.
    pub fn delete_pool(&mut self, name: &str) {
        self.pools.remove(name);
    }

    /// After a relist: every NodePool that was not in it is gone.
    pub fn retain_pools(&mut self, listed: &HashSet<String>) {
        self.pools.retain(|name, _| listed.contains(name));
    }

    /// Takes in a DaemonSet.
    ///
    /// # Errors
    /// When a field cannot be converted; the DaemonSet then costs nothing in plans.
    pub fn apply_daemon_set(&mut self, set: DaemonSet) -> Result<(), FieldError> {
        let key = object_key(&set.metadata);
        let newest = self.daemons.remove(&key).and_then(|entry| entry.newest);
        let converted = Arc::new(convert::daemon_pod(&set, newest.as_ref())?);
        self.daemons.insert(
            key,
            DaemonEntry {
                set,
                newest,
                converted,
            },
        );
        Ok(())
    }

    /// Takes out a DaemonSet by `namespace/name`.
    pub fn delete_daemon_set(&mut self, key: &str) {
        self.daemons.remove(key);
    }

    /// After a relist: every DaemonSet that was not in it is gone.
    pub fn retain_daemon_sets(&mut self, listed: &HashSet<String>) {
        self.daemons.retain(|key, _| listed.contains(key));
    }

    /// The newest pod of a DaemonSet stands for all of them, because admission may change pods.
    fn note_daemon_pod(&mut self, pod: &Pod) {
        if !convert::is_daemon(pod) {
            return;
        }
        let Some(owner) = convert::controller_owner(pod) else {
            return;
        };
        let key = format!("{}/{}", convert::pod_key(pod).namespace, owner.name);
        let Some(entry) = self.daemons.get_mut(&key) else {
            return;
        };
        let age = |pod: &Pod| convert::timestamp(pod.metadata.creation_timestamp.as_ref());
        if entry
            .newest
            .as_ref()
            .is_some_and(|newest| age(newest) >= age(pod))
        {
            return;
        }
        if let Ok(converted) = convert::daemon_pod(&entry.set, Some(pod)) {
            entry.converted = Arc::new(converted);
            entry.newest = Some(pod.clone());
        }
    }

    /// Says how many pods an owner (ReplicaSet, StatefulSet, Job) wants, by its uid.
    pub fn want_pods(&mut self, uid: &str, pods: i64) {
        self.owners.want(uid, pods);
    }

    /// Forgets an owner.
    pub fn forget_owner(&mut self, uid: &str) {
        self.owners.forget(uid);
    }

    /// After a relist of one kind of owner: keeps those for which `keep` holds.
    pub fn retain_owners(&mut self, keep: impl Fn(&str) -> bool) {
        self.owners.retain(keep);
    }

    /// Takes in a PersistentVolumeClaim; pods that use it are judged anew.
    pub fn apply_volume_claim(&mut self, claim: PersistentVolumeClaim) {
        let key = object_key(&claim.metadata);
        self.claims.insert(key.clone(), claim);
        self.judge_volumes(Some(&key));
    }

    /// Takes out a PersistentVolumeClaim by `namespace/name`.
    pub fn delete_volume_claim(&mut self, key: &str) {
        self.claims.remove(key);
        self.judge_volumes(Some(key));
    }

    /// After a relist: every PersistentVolumeClaim that was not in it is gone.
    pub fn retain_volume_claims(&mut self, listed: &HashSet<String>) {
        self.claims.retain(|key, _| listed.contains(key));
        self.judge_volumes(None);
    }

    /// Takes in a PersistentVolume.
    pub fn apply_volume(&mut self, volume: PersistentVolume) {
        let claim = volume.spec.as_ref().and_then(|spec| {
            let claim = spec.claim_ref.as_ref()?;
            Some(format!(
                "{}/{}",
                claim.namespace.as_deref()?,
                claim.name.as_deref()?
            ))
        });
        self.volumes
            .insert(volume.metadata.name.clone().unwrap_or_default(), volume);
        self.judge_volumes(claim.as_deref());
    }

    /// Takes out a PersistentVolume.
    pub fn delete_volume(&mut self, name: &str) {
        self.volumes.remove(name);
        self.judge_volumes(None);
    }

    /// After a relist: every PersistentVolume that was not in it is gone.
    pub fn retain_volumes(&mut self, listed: &HashSet<String>) {
        self.volumes.retain(|name, _| listed.contains(name));
        self.judge_volumes(None);
    }

    /// Takes in a StorageClass.
    pub fn apply_storage_class(&mut self, class: StorageClass) {
        self.classes
            .insert(class.metadata.name.clone().unwrap_or_default(), class);
        self.judge_volumes(None);
    }

    /// Takes out a StorageClass.
    pub fn delete_storage_class(&mut self, name: &str) {
        self.classes.remove(name);
        self.judge_volumes(None);
    }

    /// After a relist: every StorageClass that was not in it is gone.
    pub fn retain_storage_classes(&mut self, listed: &HashSet<String>) {
        self.classes.retain(|name, _| listed.contains(name));
        self.judge_volumes(None);
    }

    /// Takes in a PodDisruptionBudget: pods that it will never let go are not planned elsewhere
    /// when their node goes.
    ///
    /// # Errors
    /// When its selector cannot be converted; the budget then blocks nothing.
    pub fn apply_disruption_budget(
        &mut self,
        budget: &PodDisruptionBudget,
    ) -> Result<(), FieldError> {
        let key = object_key(&budget.metadata);
        match convert::disruption_budget(budget) {
            Ok(converted) => {
                self.pods
                    .change_budgets(|budgets| budgets.apply(&key, converted));
                Ok(())
            }
            Err(error) => {
                self.delete_disruption_budget(&key);
                Err(error)
            }
        }
    }

    /// Takes out a PodDisruptionBudget by `namespace/name`.
    pub fn delete_disruption_budget(&mut self, key: &str) {
        self.pods.change_budgets(|budgets| budgets.delete(key));
    }

    /// After a relist: every PodDisruptionBudget that was not in it is gone.
    pub fn retain_disruption_budgets(&mut self, listed: &HashSet<String>) {
        self.pods.change_budgets(|budgets| budgets.retain(listed));
    }

    /// Says that namespaces are told from now on; until then selectors over their labels are not
    /// decided.
    pub fn know_namespaces(&mut self) {
        self.namespaces.get_or_insert_default();
    }

    /// Takes in a namespace.
    pub fn apply_namespace(&mut self, namespace: &Namespace) {
        let name = Name::from(namespace.metadata.name.as_deref().unwrap_or_default());
        let labels = namespace.metadata.labels.iter().flatten();
        let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        let known = self.namespaces.get_or_insert_default();
        Arc::make_mut(known).insert(name, labels.collect());
    }

    /// Judges the volumes of pods anew: of those that use a claim, or of all.
    fn judge_volumes(&mut self, claim: Option<&str>) {
        let sources = convert::ClaimSources {
            claims: &self.claims,
            volumes: &self.volumes,
            classes: &self.classes,
        };
        self.pods.resolve_again(claim, sources);
    }

    /// Nodes whose pods changed since the last call.
    pub fn take_touched_nodes(&mut self) -> HashSet<NodeName> {
        std::mem::take(&mut self.touched)
    }

    /// The volume that a claim is bound to.
    #[must_use]
    pub fn volume_of_claim(&self, namespace: &str, name: &str) -> Option<Name> {
        let claim = self.claims.get(&format!("{namespace}/{name}"))?;
        claim.spec.as_ref()?.volume_name.as_deref().map(Name::from)
    }

    /// Remembers that a plan put a pod on a node or NodeClaim, unless that is gone meanwhile.
    pub fn plan_pod(&mut self, key: &PodKey, uid: &PodUid, node: NodeName) {
        if self.nodes.is_known(&node) {
            // Since the plan was made, it may have been published under another name.
            self.nodes.touch_name(&node);
            self.pods.plan(key, uid, node);
        }
    }

    /// Expects pods to bind to a node until a point in time; it is not disrupted before.
    pub fn nominate(&mut self, node: &NodeName, until: Timestamp) {
        self.nodes.nominate(node, until);
    }

    /// A bound pod as planning would see it if its node went away; `None` when it is not bound.
    #[must_use]
    pub fn displaced_pod(&self, key: &PodKey) -> Option<Arc<millwright_model::Pod>> {
        self.pods.displaced(key)
    }

    /// Nodes and NodeClaims that waiting pods are planned on.
    #[must_use]
    pub fn planned_nodes(&self) -> HashSet<NodeName> {
        self.pods.planned_nodes()
    }

    /// Whether more pods are to come from the owners of those that wait.
    #[must_use]
    pub fn completeness(&self) -> Completeness {
        self.owners.completeness()
    }

    /// Counts, since the start, the pods that began to need a plan: they began to wait, or the place
    /// they had is going away.
    #[must_use]
    pub const fn arrivals(&self) -> u64 {
        self.pods.arrivals()
    }

    /// Number of pods that wait for a place.
    #[must_use]
    pub fn waiting_pods(&self) -> usize {
        self.pods.waiting()
    }

    /// What a pool's nodes use of its limits, as of the last snapshot.
    #[must_use]
    pub fn usage(&self, pool: &str) -> Resources {
        self.nodes.usage(&NodePoolName::from(pool))
    }

    /// Publishes a snapshot. `instance_types` gives the types of a pool's class (an empty list keeps
    /// the pool from opening nodes); `anticipate` includes pods that nobody has tried to schedule.
    ///
    /// Cost: linear in what changed since the last snapshot, plus the number of pools.
    pub fn snapshot(
        &mut self,
        now: Timestamp,
        anticipate: bool,
        instance_types: impl Fn(&NodePool) -> InstanceTypes,
    ) -> (Arc<ClusterSnapshot>, Vec<FieldError>) {
        let mut became = Vec::new();
        let nodes = self.nodes.publish(
            now,
            |node| self.pods.bound_to(node),
            |from, to| became.push((from.clone(), to.clone())),
        );
        for (from, to) in became {
            self.pods.rename_plans(&from, &to);
        }
        let pods = self
            .pods
            .publish(anticipate, |node| self.nodes.is_deleting(node));
        let mut errors = Vec::new();
        let mut pools = Vec::with_capacity(self.pools.len());
        for pool in self.pools.values() {
            let name = NodePoolName::from(pool.metadata.name.as_deref().unwrap_or_default());
            match convert::node_pool(pool, instance_types(pool), self.nodes.usage(&name)) {
                Ok(converted) => pools.push(Arc::new(converted)),
                Err(error) => errors.push(error),
            }
        }
        self.generation += 1;
        let snapshot = ClusterSnapshot {
            generation: self.generation,
            taken_at: now,
            pods,
            nodes,
            node_pools: pools.into(),
            daemons: self
                .daemons
                .values()
                .map(|entry| Arc::clone(&entry.converted))
                .collect(),
            namespaces: self.namespaces.clone(),
        };
        (Arc::new(snapshot), errors)
    }

    /// Recounts, right after [`Self::snapshot`], everything that is kept incrementally. Empty when all
    /// is well; each text names what differs. Cost: linear in the size of the cluster.
    #[must_use]
    pub fn inconsistencies(&self) -> Vec<String> {
        let mut found = self.pods.inconsistencies();
        found.extend(self.nodes.inconsistencies());
        if !self.owners.counts(self.pods.by_owner()) {
            found.push("pods by owner: the counts differ from the pods".to_owned());
        }
        for node in self.pods.planned_nodes() {
            if !self.nodes.is_known(&node) {
                found.push(format!(
                    "{node}: pods are planned on it, and it does not exist"
                ));
            }
        }
        found
    }
}

/// `namespace/name`, with the namespace that a manifest may leave out.
#[must_use]
pub fn object_key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    format!(
        "{namespace}/{}",
        metadata.name.as_deref().unwrap_or_default()
    )
}
