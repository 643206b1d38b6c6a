//! Pods: converted once, counted for their owners, and listed when they need a place.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod as KubePod;
use millwright_model::{
    Chunks, Name, NodeName, Pod, PodKey, PodSpec, PodUid, Timestamp,
    pod::{Intake, Owner, Volume},
    snapshot::BoundPod,
};

use crate::{
    budgets::Budgets,
    convert::{self, ClaimRef, ClaimSources},
    intern::Interner,
    owner::Owners,
    positions::Positions,
};

/// What a live pod is to planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// It waits; `marked` once the kube-scheduler found no node.
    Waiting { marked: bool },
    /// It is bound to a node.
    Bound {
        node: NodeName,
        is_daemon: bool,
        is_movable: bool,
    },
    /// It is gated, nominated or a daemon without a node: not ours, but its owner counts it.
    Other,
}

#[derive(Debug)]
pub(crate) struct PodEntry {
    pub(crate) uid: PodUid,
    pub(crate) created_at: Timestamp,
    pub(crate) spec: Arc<PodSpec>,
    /// Its claim-backed volumes, to be resolved again when a claim changes.
    claims: Box<[ClaimRef]>,
    pub(crate) volumes: Arc<[Volume]>,
    pub(crate) owner: Option<Arc<Owner>>,
    /// What is wrong with the pod itself, whatever its claims are like.
    own_rejections: Arc<[String]>,
    pub(crate) rejections: Arc<[String]>,
    pub(crate) role: Role,
    /// Whether it is on its way out; no budget is asked then.
    is_terminating: bool,
    is_unready: bool,
    /// The node or NodeClaim that a plan gave it while it waits.
    planned_on: Option<NodeName>,
}

impl PodEntry {
    fn is_waiting(&self) -> bool {
        matches!(self.role, Role::Waiting { .. })
    }

    fn owner_uid(&self) -> Option<&Name> {
        self.owner.as_deref().map(|owner| &owner.uid)
    }

    /// Judges the claims anew.
    fn resolve(&mut self, sources: ClaimSources<'_>) {
        let outcome = convert::resolve_claims(&self.claims, sources);
        self.volumes = outcome.volumes.into();
        self.rejections = if outcome.rejections.is_empty() {
            Arc::clone(&self.own_rejections)
        } else {
            let own = self.own_rejections.iter().cloned();
            outcome.rejections.into_iter().chain(own).collect()
        };
    }
}

/// All live pods.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    entries: HashMap<PodKey, PodEntry>,
    by_node: HashMap<NodeName, BTreeSet<PodKey>>,
    /// Waiting pods by the node or NodeClaim that a plan gave them; the pods say the same.
    planned: HashMap<NodeName, BTreeSet<PodKey>>,
    /// Pods with claim-backed volumes.
    with_claims: BTreeSet<PodKey>,
    /// Number of pods that wait.
    waiting: usize,
    listed: Chunks<Arc<Pod>>,
    positions: Positions<PodKey>,
    dirty: HashSet<PodKey>,
    /// Whether pods that nobody has tried are in the list.
    anticipates: bool,
    /// Counts pods that began to need a plan: they began to wait, or lost the place they had.
    arrivals: u64,
    owners_of_pods: HashMap<Owner, Arc<Owner>>,
    budgets: Budgets,
}

/// What a change of a pod means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodNews {
    /// It began to wait for a place.
    pub began_to_wait: bool,
    /// It waited, and is bound now.
    pub was_bound: bool,
}

/// What a change of a pod touched.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodChange {
    /// Nodes whose bound pods changed.
    pub(crate) nodes: Vec<NodeName>,
    pub(crate) news: PodNews,
}

impl Pods {
    pub(crate) fn keys(&self) -> HashSet<PodKey> {
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn apply(
        &mut self,
        pod: &KubePod,
        sources: ClaimSources<'_>,
        interner: &mut Interner,
        owners: &mut Owners,
    ) -> PodChange {
        let key = convert::pod_key(pod);
        if convert::is_terminal(pod) {
            return self.delete(&key, owners);
        }
        let mut entry = self.entry(pod, interner);
        entry.resolve(sources);
        let mut change = PodChange {
            nodes: Vec::new(),
            news: PodNews {
                began_to_wait: entry.is_waiting(),
                was_bound: false,
            },
        };
        if let Some(old) = self.entries.get_mut(&key) {
            let same = old.uid == entry.uid && old.role == entry.role && old.spec == entry.spec;
            if same && old.rejections == entry.rejections && old.volumes == entry.volumes {
                // Only budgets read readiness; its flicker must not publish a node anew. A pod on
                // its way out no longer counts on its node.
                let leaves = old.is_terminating != entry.is_terminating;
                if leaves || old.is_unready != entry.is_unready {
                    old.is_terminating = entry.is_terminating;
                    old.is_unready = entry.is_unready;
                    self.dirty.insert(key);
                }
                if let Role::Bound { node, .. } = &entry.role
                    && leaves
                {
                    change.nodes = vec![node.clone()];
                }
                return PodChange {
                    news: PodNews::default(),
                    ..change
                };
            }
            let continues = old.uid == entry.uid && old.is_waiting();
            change.news.began_to_wait &= !continues;
            change.news.was_bound = continues && matches!(entry.role, Role::Bound { .. });
            if old.uid == entry.uid && entry.is_waiting() {
                entry.planned_on.clone_from(&old.planned_on);
            }
            change.nodes.extend(self.remove(&key, owners));
        }
        if let Role::Bound { node, .. } = &entry.role {
            change.nodes.push(node.clone());
        }
        self.arrivals += u64::from(change.news.began_to_wait);
        self.insert(key, entry, owners);
        change
    }

    /// Puts an entry into all indexes.
    fn insert(&mut self, key: PodKey, entry: PodEntry, owners: &mut Owners) {
        owners.count(entry.owner_uid(), entry.is_waiting(), 1);
        self.waiting += usize::from(entry.is_waiting());
        if let Role::Bound { node, .. } = &entry.role {
            put(&mut self.by_node, node, &key);
        }
        if let Some(node) = &entry.planned_on {
            put(&mut self.planned, node, &key);
        }
        if !entry.claims.is_empty() {
            self.with_claims.insert(key.clone());
        }
        self.dirty.insert(key.clone());
        self.entries.insert(key, entry);
    }

    pub(crate) fn delete(&mut self, key: &PodKey, owners: &mut Owners) -> PodChange {
        PodChange {
            nodes: self.remove(key, owners).into_iter().collect(),
            news: PodNews::default(),
        }
    }

    /// Takes an entry out of all indexes; returns the node it was bound to.
    fn remove(&mut self, key: &PodKey, owners: &mut Owners) -> Option<NodeName> {
        let entry = self.entries.remove(key)?;
        owners.count(entry.owner_uid(), entry.is_waiting(), -1);
        self.waiting -= usize::from(entry.is_waiting());
        if let Some(node) = &entry.planned_on {
            take(&mut self.planned, node, key);
        }
        self.with_claims.remove(key);
        self.dirty.insert(key.clone());
        let Role::Bound { node, .. } = entry.role else {
            return None;
        };
        take(&mut self.by_node, &node, key);
        Some(node)
    }

    fn entry(&mut self, pod: &KubePod, interner: &mut Interner) -> PodEntry {
        let mut rejections = Vec::new();
        let spec = convert::pod_spec(pod).unwrap_or_else(|error| {
            rejections.push(error.to_string());
            PodSpec {
                namespace: convert::pod_key(pod).namespace,
                ..PodSpec::default()
            }
        });
        rejections.extend(convert::rejections(pod, &spec));
        let rejections: Arc<[String]> = rejections.into();
        let owner = convert::controller_owner(pod).map(|owner| self.shared_owner(owner));
        PodEntry {
            uid: convert::pod_uid(pod),
            created_at: convert::timestamp(pod.metadata.creation_timestamp.as_ref()),
            spec: interner.intern(spec),
            claims: convert::claim_refs(pod),
            volumes: [].into(),
            owner,
            own_rejections: Arc::clone(&rejections),
            rejections,
            role: role(pod),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            is_unready: convert::is_unready(pod),
            planned_on: None,
        }
    }

    /// Judges the claims of pods anew: of those that use `claim`, or of all. A pod that waits and
    /// thereby becomes valid counts as an arrival.
    pub(crate) fn resolve_again(&mut self, claim: Option<&str>, sources: ClaimSources<'_>) {
        for key in &self.with_claims {
            let Some(entry) = self.entries.get_mut(key) else {
                continue;
            };
            if claim.is_some_and(|claim| entry.claims.iter().all(|own| own.claim != claim)) {
                continue;
            }
            let before = (Arc::clone(&entry.volumes), Arc::clone(&entry.rejections));
            entry.resolve(sources);
            if before != (Arc::clone(&entry.volumes), Arc::clone(&entry.rejections)) {
                self.dirty.insert(key.clone());
                let became_valid = !before.1.is_empty() && entry.rejections.is_empty();
                self.arrivals += u64::from(entry.is_waiting() && became_valid);
            }
        }
    }

    fn shared_owner(&mut self, owner: Owner) -> Arc<Owner> {
        // Owners come and go with their pods; sweeping when the table doubles keeps it bounded.
        if self.owners_of_pods.len() > 1024 && self.owners_of_pods.len() > self.entries.len() {
            self.owners_of_pods
                .retain(|_, shared| Arc::strong_count(shared) > 1);
        }
        Arc::clone(
            self.owners_of_pods
                .entry(owner.clone())
                .or_insert_with(|| Arc::new(owner)),
        )
    }

    /// Pods bound to a node, in order of name.
    pub(crate) fn bound_to(&self, node: &NodeName) -> Arc<[BoundPod]> {
        let keys = self.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| {
            let entry = self.entries.get(key)?;
            let is_daemon = matches!(
                entry.role,
                Role::Bound {
                    is_daemon: true,
                    ..
                }
            );
            Some(BoundPod {
                key: key.clone(),
                spec: Arc::clone(&entry.spec),
                is_daemon,
                is_terminating: entry.is_terminating,
            })
        })
        .collect()
    }

    /// A bound pod as planning would see it if its node went away.
    pub(crate) fn displaced(&self, key: &PodKey) -> Option<Arc<Pod>> {
        let entry = self.entries.get(key)?;
        let Role::Bound { node, .. } = &entry.role else {
            return None;
        };
        let from = node.clone();
        Some(planned_pod(key, entry, Intake::Rescheduled { from }))
    }

    /// Lists the pods of a node again: it began or ceased to be on its way out.
    pub(crate) fn touch_node(&mut self, node: &NodeName) {
        self.dirty
            .extend(self.by_node.get(node).into_iter().flatten().cloned());
    }

    /// Changes the budgets; pods on nodes are listed anew if that changed anything.
    pub(crate) fn change_budgets(&mut self, change: impl FnOnce(&mut Budgets) -> bool) {
        if change(&mut self.budgets) {
            self.dirty.extend(self.by_node.values().flatten().cloned());
        }
    }

    /// Remembers where a plan put a pod.
    pub(crate) fn plan(&mut self, key: &PodKey, uid: &PodUid, node: NodeName) {
        let waiting = self.entries.get_mut(key);
        let Some(entry) = waiting.filter(|entry| entry.uid == *uid && entry.is_waiting()) else {
            return;
        };
        put(&mut self.planned, &node, key);
        let before = entry.planned_on.replace(node);
        if let Some(before) = before.filter(|before| entry.planned_on.as_ref() != Some(before)) {
            take(&mut self.planned, &before, key);
        }
        self.dirty.insert(key.clone());
    }

    /// Forgets plans for a node that is gone.
    pub(crate) fn unplan(&mut self, node: &NodeName) {
        let freed = self.planned.remove(node).unwrap_or_default();
        self.arrivals += u64::from(!freed.is_empty());
        for key in freed {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.planned_on = None;
            }
            self.dirty.insert(key);
        }
    }

    /// Lets plans follow an entry that goes by another name now: a NodeClaim has become a Node, or
    /// a Node turned out to belong to a NodeClaim.
    pub(crate) fn rename_plans(&mut self, from: &NodeName, to: &NodeName) {
        for key in self.planned.remove(from).unwrap_or_default() {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.planned_on = Some(to.clone());
            }
            put(&mut self.planned, to, &key);
            self.dirty.insert(key);
        }
    }

    /// Nodes and NodeClaims that waiting pods are planned on.
    pub(crate) fn planned_nodes(&self) -> HashSet<NodeName> {
        self.planned.keys().cloned().collect()
    }

    /// Compares every index with a count from the entries; says what differs.
    pub(crate) fn inconsistencies(&self) -> Vec<String> {
        let mut by_node = HashMap::new();
        let mut planned = HashMap::new();
        let mut with_claims = BTreeSet::new();
        let mut waiting = 0;
        for (key, entry) in &self.entries {
            if let Role::Bound { node, .. } = &entry.role {
                put(&mut by_node, node, key);
            }
            if let Some(node) = &entry.planned_on {
                put(&mut planned, node, key);
            }
            if !entry.claims.is_empty() {
                with_claims.insert(key.clone());
            }
            waiting += usize::from(entry.is_waiting());
        }
        let mut found = Vec::new();
        for (what, differs) in [
            ("pods by node", by_node != self.by_node),
            ("pods by planned node", planned != self.planned),
            ("pods with claims", with_claims != self.with_claims),
            ("number of waiting pods", waiting != self.waiting),
        ] {
            if differs {
                found.push(format!("{what}: the index differs from the pods"));
            }
        }
        found
    }

    /// Owner, and whether the pod waits, of every pod.
    pub(crate) fn by_owner(&self) -> impl Iterator<Item = (Option<&Name>, bool)> + '_ {
        self.entries
            .values()
            .map(|entry| (entry.owner_uid(), entry.is_waiting()))
    }

    /// Counts pods that began to need a plan since the start.
    pub(crate) const fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Number of pods that wait.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The list of pods that need a place, brought up to date. `is_deleting` tells whether a node is
    /// on its way out.
    pub(crate) fn publish(
        &mut self,
        anticipate: bool,
        is_deleting: impl Fn(&NodeName) -> bool,
    ) -> Chunks<Arc<Pod>> {
        if anticipate != self.anticipates {
            // The list was made by another rule: all pods that wait are judged anew.
            self.anticipates = anticipate;
            let waiting = self.entries.iter().filter(|(_, entry)| entry.is_waiting());
            self.dirty.extend(waiting.map(|(key, _)| key.clone()));
        }
        for key in std::mem::take(&mut self.dirty) {
            let pod = self
                .entries
                .get(&key)
                .and_then(|entry| listed_pod(&key, entry, anticipate, &self.budgets, &is_deleting));
            self.positions
                .set(&mut self.listed, key, pod, |pod| pod.key.clone());
        }
        self.listed.clone()
    }
}

fn listed_pod(
    key: &PodKey,
    entry: &PodEntry,
    anticipate: bool,
    budgets: &Budgets,
    is_deleting: &impl Fn(&NodeName) -> bool,
) -> Option<Arc<Pod>> {
    let intake = match &entry.role {
        Role::Waiting { marked: true } => Intake::Marked,
        Role::Waiting { marked: false } if anticipate => Intake::Anticipated,
        Role::Bound {
            node,
            is_daemon: false,
            is_movable: true,
        } if is_deleting(node)
            && (entry.is_terminating || !budgets.block(&entry.spec, entry.is_unready)) =>
        {
            Intake::Rescheduled { from: node.clone() }
        }
        Role::Waiting { .. } | Role::Bound { .. } | Role::Other => return None,
    };
    Some(planned_pod(key, entry, intake))
}

/// A pod as planning sees it.
fn planned_pod(key: &PodKey, entry: &PodEntry, intake: Intake) -> Arc<Pod> {
    // Pods that already ran somewhere are not validated again.
    let validated = !matches!(intake, Intake::Rescheduled { .. });
    Arc::new(Pod {
        key: key.clone(),
        uid: entry.uid.clone(),
        created_at: entry.created_at,
        spec: Arc::clone(&entry.spec),
        volumes: Arc::clone(&entry.volumes),
        owner: entry.owner.clone(),
        intake,
        planned_on: entry.planned_on.clone(),
        rejections: if validated {
            Arc::clone(&entry.rejections)
        } else {
            [].into()
        },
    })
}

fn put(index: &mut HashMap<NodeName, BTreeSet<PodKey>>, node: &NodeName, key: &PodKey) {
    index.entry(node.clone()).or_default().insert(key.clone());
}

fn take(index: &mut HashMap<NodeName, BTreeSet<PodKey>>, node: &NodeName, key: &PodKey) {
    if let Some(keys) = index.get_mut(node) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(node);
        }
    }
}

fn role(pod: &KubePod) -> Role {
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .filter(|name| !name.is_empty());
    if let Some(node) = node {
        let is_daemon = convert::is_daemon(pod);
        let protected = pod
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get("karpenter.sh/do-not-disrupt"))
            .is_some_and(|value| value == "true");
        let owned_by_stateful_set =
            convert::controller_owner(pod).is_some_and(|owner| &*owner.kind == "StatefulSet");
        let terminating = pod.metadata.deletion_timestamp.is_some();
        let is_movable = !is_daemon
            && !convert::is_mirror(pod)
            && !protected
            && (!terminating || owned_by_stateful_set);
        return Role::Bound {
            node: node.into(),
            is_daemon,
            is_movable,
        };
    }
    if convert::is_provisionable(pod) {
        Role::Waiting { marked: true }
    } else if convert::is_untried(pod) {
        Role::Waiting { marked: false }
    } else {
        Role::Other
    }
}
