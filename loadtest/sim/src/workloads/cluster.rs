//! The cluster as the watches and our own writes show it, and who must look when something changes.

use std::{collections::HashSet, fmt::Debug};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet},
        batch::v1::Job,
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource, ResourceExt, runtime::watcher::Event};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    budget, garbage,
    index::{Index, Uid},
};

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Pod,
    Node,
    ReplicaSet,
    Deployment,
    DaemonSet,
    Job,
    Budget,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Pod,
        Self::Node,
        Self::ReplicaSet,
        Self::Deployment,
        Self::DaemonSet,
        Self::Job,
        Self::Budget,
    ];

    /// The kind that an owner reference means, if it is a watched one.
    pub(super) fn of(owner: &OwnerReference) -> Option<Self> {
        let group = owner.api_version.split_once('/').map_or("", |(g, _)| g);
        match (group, owner.kind.as_str()) {
            ("", "Pod") => Some(Self::Pod),
            ("", "Node") => Some(Self::Node),
            ("apps", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps", "Deployment") => Some(Self::Deployment),
            ("apps", "DaemonSet") => Some(Self::DaemonSet),
            ("batch", "Job") => Some(Self::Job),
            ("policy", "PodDisruptionBudget") => Some(Self::Budget),
            _ => None,
        }
    }

    /// Whether the kind has a reconciler of its own.
    const fn is_reconciled(self) -> bool {
        !matches!(self, Self::Pod | Self::Job)
    }
}

/// What is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// An object's specification against what there is.
    Reconcile(Kind, Uid),
    /// Whether an object has a reason to exist.
    Collect(Kind, Uid),
}

/// An object of a watched kind.
pub(super) trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
    const KIND: Kind;
    fn index_mut(cluster: &mut Cluster) -> &mut Index<Self>;
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) pods: Index<Pod>,
    pub(super) nodes: Index<Node>,
    pub(super) replica_sets: Index<ReplicaSet>,
    pub(super) deployments: Index<Deployment>,
    pub(super) daemon_sets: Index<DaemonSet>,
    pub(super) jobs: Index<Job>,
    pub(super) budgets: Index<PodDisruptionBudget>,
    node_names: HashSet<String>,
}

macro_rules! watched {
    ($($type:ty, $kind:ident, $field:ident;)*) => {$(
        impl Watched for $type {
            const KIND: Kind = Kind::$kind;
            fn index_mut(cluster: &mut Cluster) -> &mut Index<Self> {
                &mut cluster.$field
            }
        }
    )*
    impl Cluster {
        /// Whether a first list of every kind has been seen: nothing is decided before.
        pub(super) fn is_synced(&self) -> bool {
            true $(&& self.$field.is_synced())*
        }

        /// An object's metadata.
        pub(super) fn meta(&self, kind: Kind, uid: &str) -> Option<&ObjectMeta> {
            match kind {
                $(Kind::$kind => self.$field.get(uid).map(|object| object.meta()),)*
            }
        }

        /// Whether an object's deletion was seen lately.
        pub(super) fn was_deleted(&self, kind: Kind, uid: &str) -> bool {
            match kind {
                $(Kind::$kind => self.$field.was_deleted(uid),)*
            }
        }

        /// Metadata of the objects of one kind that name this owner.
        pub(super) fn dependents_of_kind(&self, kind: Kind, owner: &str) -> Vec<&ObjectMeta> {
            match kind {
                $(Kind::$kind => self.$field.owned_by(owner).map(|object| object.meta()).collect(),)*
            }
        }
    }};
}

watched! {
    Pod, Pod, pods;
    Node, Node, nodes;
    ReplicaSet, ReplicaSet, replica_sets;
    Deployment, Deployment, deployments;
    DaemonSet, DaemonSet, daemon_sets;
    Job, Job, jobs;
    PodDisruptionBudget, Budget, budgets;
}

impl Cluster {
    /// Whether there is a node of this name.
    pub(super) fn has_node(&self, name: &str) -> bool {
        self.node_names.contains(name)
    }

    /// Everything of the watched kinds that names this owner.
    pub(super) fn dependents(&self, owner: &str) -> Vec<(Kind, &ObjectMeta)> {
        let of_kind = |kind| {
            let found = self.dependents_of_kind(kind, owner);
            found.into_iter().map(move |meta| (kind, meta))
        };
        Kind::ALL.into_iter().flat_map(of_kind).collect()
    }

    /// Takes an event of a watch; appends what must be looked at.
    pub(super) fn observe<K: Watched>(&mut self, event: Event<K>, dirty: &mut Vec<Key>) {
        match event {
            Event::Init => K::index_mut(self).list_begins(),
            Event::Apply(object) | Event::InitApply(object) => {
                if let Some(object) = K::index_mut(self).observe(object) {
                    self.changed(object.as_ref(), dirty);
                }
            }
            Event::Delete(object) => {
                let uid = object.uid().unwrap_or_default();
                let known = K::index_mut(self).remove(&uid);
                self.removed(known.as_deref().unwrap_or(&object), dirty);
            }
            Event::InitDone => {
                for object in K::index_mut(self).list_ended() {
                    self.removed(object.as_ref(), dirty);
                }
            }
        }
    }

    /// Takes the answer to a write of ours.
    pub(super) fn written<K: Watched>(&mut self, object: K, dirty: &mut Vec<Key>) {
        if let Some(object) = K::index_mut(self).written(object) {
            self.changed(object.as_ref(), dirty);
        }
    }

    /// Takes the answer that an object no longer exists.
    pub(super) fn missing<K: Watched>(&mut self, uid: &str, dirty: &mut Vec<Key>) {
        if let Some(object) = K::index_mut(self).remove(uid) {
            self.removed(object.as_ref(), dirty);
        }
    }

    fn changed<K: Watched>(&mut self, object: &K, dirty: &mut Vec<Key>) {
        let meta = object.meta();
        let Some(uid) = meta.uid.clone() else { return };
        if K::KIND == Kind::Node {
            self.node_names.extend(meta.name.clone());
        }
        if K::KIND.is_reconciled() {
            dirty.push(Key::Reconcile(K::KIND, uid.clone()));
        }
        if garbage::is_suspect(self, K::KIND, &uid) {
            dirty.push(Key::Collect(K::KIND, uid));
        }
        self.neighbours(K::KIND, meta, dirty);
    }

    fn removed<K: Watched>(&mut self, object: &K, dirty: &mut Vec<Key>) {
        let meta = object.meta();
        if K::KIND == Kind::Node
            && let Some(name) = &meta.name
        {
            self.node_names.remove(name);
            let stranded = self.pods.iter().filter(|pod| {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
                node == Some(name)
            });
            dirty.extend(
                stranded
                    .filter_map(|pod| pod.uid())
                    .map(|uid| Key::Collect(Kind::Pod, uid)),
            );
        }
        if let Some(uid) = &meta.uid {
            for (kind, dependent) in self.dependents(uid) {
                dirty.extend(dependent.uid.clone().map(|uid| Key::Collect(kind, uid)));
            }
        }
        self.neighbours(K::KIND, meta, dirty);
    }

    /// Who else looks when an object has come, changed or gone: its owners, and what counts it.
    fn neighbours(&self, kind: Kind, meta: &ObjectMeta, dirty: &mut Vec<Key>) {
        for owner in meta.owner_references.iter().flatten() {
            let Some(owner_kind) = Kind::of(owner) else {
                continue;
            };
            if self.meta(owner_kind, &owner.uid).is_none() {
                continue;
            }
            if owner.controller == Some(true) && owner_kind.is_reconciled() {
                dirty.push(Key::Reconcile(owner_kind, owner.uid.clone()));
            }
            if garbage::is_suspect(self, owner_kind, &owner.uid) {
                dirty.push(Key::Collect(owner_kind, owner.uid.clone()));
            }
        }
        match kind {
            Kind::Node => {
                let sets = self.daemon_sets.iter().filter_map(|set| set.uid());
                dirty.extend(sets.map(|uid| Key::Reconcile(Kind::DaemonSet, uid)));
            }
            Kind::Pod | Kind::ReplicaSet | Kind::Deployment => {
                let labels = (kind == Kind::Pod).then_some(meta);
                dirty.extend(
                    budget::concerned(self, meta.namespace.as_deref(), labels)
                        .map(|uid| Key::Reconcile(Kind::Budget, uid)),
                );
            }
            Kind::DaemonSet | Kind::Job | Kind::Budget => {}
        }
    }
}

/// The reference by which `owner` controls what it creates.
pub(super) fn controlled_by<K>(owner: &K) -> OwnerReference
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The uid of the object that controls this one.
pub(super) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}
