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

use crate::{convert, intern::Interner, owner::Owners, positions::Positions};

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
    pub(crate) volumes: Arc<[Volume]>,
    pub(crate) owner: Option<Arc<Owner>>,
    pub(crate) rejections: Arc<[String]>,
    pub(crate) role: Role,
}

impl PodEntry {
    fn is_waiting(&self) -> bool {
        matches!(self.role, Role::Waiting { .. })
    }

    fn owner_uid(&self) -> Option<&Name> {
        self.owner.as_deref().map(|owner| &owner.uid)
    }
}

/// All live pods.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    entries: HashMap<PodKey, PodEntry>,
    by_node: HashMap<NodeName, BTreeSet<PodKey>>,
    /// The node or NodeClaim that a plan gave to a waiting pod.
    planned: HashMap<PodUid, NodeName>,
    listed: Chunks<Arc<Pod>>,
    positions: Positions<PodKey>,
    dirty: HashSet<PodKey>,
    /// Whether pods that nobody has tried are in the list.
    anticipates: bool,
    /// Counts pods that began to need a plan: they began to wait, or lost the place they had.
    arrivals: u64,
    owners_of_pods: HashMap<Owner, Arc<Owner>>,
}

/// What a change of a pod touched.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodChange {
    /// Nodes whose bound pods changed.
    pub(crate) nodes: Vec<NodeName>,
    /// Whether a pod began to wait.
    pub(crate) began_to_wait: bool,
}

impl Pods {
    pub(crate) fn keys(&self) -> HashSet<PodKey> {
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn apply(
        &mut self,
        pod: &KubePod,
        volumes: convert::VolumeOutcome,
        interner: &mut Interner,
        owners: &mut Owners,
    ) -> PodChange {
        let key = convert::pod_key(pod);
        if convert::is_terminal(pod) {
            return self.delete(&key, owners);
        }
        let entry = self.entry(pod, volumes, interner);
        let mut change = PodChange {
            nodes: Vec::new(),
            began_to_wait: entry.is_waiting(),
        };
        if let Some(old) = self.entries.get(&key) {
            let same = old.uid == entry.uid && old.role == entry.role && old.spec == entry.spec;
            if same && old.rejections == entry.rejections && old.volumes == entry.volumes {
                return PodChange::default();
            }
            change.began_to_wait &= !old.is_waiting() || old.uid != entry.uid;
            change.nodes.extend(self.remove(&key, owners));
        }
        owners.count(entry.owner_uid(), entry.is_waiting(), 1);
        if let Role::Bound { node, .. } = &entry.role {
            self.by_node
                .entry(node.clone())
                .or_default()
                .insert(key.clone());
            self.planned.remove(&entry.uid);
            change.nodes.push(node.clone());
        }
        self.arrivals += u64::from(change.began_to_wait);
        self.dirty.insert(key.clone());
        self.entries.insert(key, entry);
        change
    }

    pub(crate) fn delete(&mut self, key: &PodKey, owners: &mut Owners) -> PodChange {
        if let Some(entry) = self.entries.get(key) {
            self.planned.remove(&entry.uid);
        }
        PodChange {
            nodes: self.remove(key, owners).into_iter().collect(),
            began_to_wait: false,
        }
    }

    /// Takes an entry out; returns the node it was bound to.
    fn remove(&mut self, key: &PodKey, owners: &mut Owners) -> Option<NodeName> {
        let entry = self.entries.remove(key)?;
        owners.count(entry.owner_uid(), entry.is_waiting(), -1);
        self.dirty.insert(key.clone());
        let Role::Bound { node, .. } = entry.role else {
            return None;
        };
        if let Some(keys) = self.by_node.get_mut(&node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }

    fn entry(
        &mut self,
        pod: &KubePod,
        volumes: convert::VolumeOutcome,
        interner: &mut Interner,
    ) -> PodEntry {
        let mut rejections = volumes.rejections;
        let spec = convert::pod_spec(pod).unwrap_or_else(|error| {
            rejections.push(error.to_string());
            PodSpec {
                namespace: convert::pod_key(pod).namespace,
                ..PodSpec::default()
            }
        });
        rejections.extend(convert::rejections(pod, &spec));
        let owner = convert::controller_owner(pod).map(|owner| self.shared_owner(owner));
        PodEntry {
            uid: convert::pod_uid(pod),
            created_at: convert::timestamp(pod.metadata.creation_timestamp.as_ref()),
            spec: interner.intern(spec),
            volumes: volumes.volumes.into(),
            owner,
            rejections: rejections.into(),
            role: role(pod),
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
            })
        })
        .collect()
    }

    /// Lists the pods of a node again: it began or ceased to be on its way out.
    pub(crate) fn touch_node(&mut self, node: &NodeName) {
        self.dirty
            .extend(self.by_node.get(node).into_iter().flatten().cloned());
    }

    /// Remembers where a plan put a pod.
    pub(crate) fn plan(&mut self, key: &PodKey, uid: &PodUid, node: NodeName) {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| entry.uid == *uid && entry.is_waiting())
        {
            self.planned.insert(uid.clone(), node);
            self.dirty.insert(key.clone());
        }
    }

    /// Forgets plans for a node that is gone.
    pub(crate) fn unplan(&mut self, node: &NodeName) {
        let gone: HashSet<PodUid> = self
            .planned
            .iter()
            .filter(|(_, n)| *n == node)
            .map(|(uid, _)| uid.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        self.arrivals += 1;
        self.planned.retain(|uid, _| !gone.contains(uid));
        let touched = self
            .entries
            .iter()
            .filter(|(_, e)| gone.contains(&e.uid))
            .map(|(key, _)| key.clone());
        self.dirty.extend(touched.collect::<Vec<_>>());
    }

    /// Nodes and NodeClaims that waiting pods are planned on.
    pub(crate) fn planned_nodes(&self) -> HashSet<NodeName> {
        self.planned.values().cloned().collect()
    }

    /// Counts pods that began to need a plan since the start.
    pub(crate) const fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Number of pods that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.entries
            .values()
            .filter(|entry| entry.is_waiting())
            .count()
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
                .and_then(|entry| self.listed_pod(&key, entry, anticipate, &is_deleting));
            self.positions
                .set(&mut self.listed, key, pod, |pod| pod.key.clone());
        }
        self.listed.clone()
    }

    fn listed_pod(
        &self,
        key: &PodKey,
        entry: &PodEntry,
        anticipate: bool,
        is_deleting: &impl Fn(&NodeName) -> bool,
    ) -> Option<Arc<Pod>> {
        let intake = match &entry.role {
            Role::Waiting { marked: true } => Intake::Marked,
            Role::Waiting { marked: false } if anticipate => Intake::Anticipated,
            Role::Bound {
                node,
                is_daemon: false,
                is_movable: true,
            } if is_deleting(node) => Intake::Rescheduled { from: node.clone() },
            Role::Waiting { .. } | Role::Bound { .. } | Role::Other => return None,
        };
        // Pods that already ran somewhere are not validated again.
        let validated = !matches!(intake, Intake::Rescheduled { .. });
        Some(Arc::new(Pod {
            key: key.clone(),
            uid: entry.uid.clone(),
            created_at: entry.created_at,
            spec: Arc::clone(&entry.spec),
            volumes: Arc::clone(&entry.volumes),
            owner: entry.owner.clone(),
            intake,
            planned_on: self.planned.get(&entry.uid).cloned(),
            rejections: if validated {
                Arc::clone(&entry.rejections)
            } else {
                [].into()
            },
        }))
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
