//! The pods of every node, reduced to what draining and disruption read.
//!
//! Fed by the one watch on pods. A drain that asked the API server for its pods instead would cost
//! one list per node and second; a thousand nodes that leave together would take the API server's
//! whole budget. What the watch has not brought yet is caught by the minimum of a drain and, before
//! an empty node is deleted, by one fresh list.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Pod;
use millwright_lifecycle::ObservedPod;
use millwright_model::PodKey;
use millwright_state::convert;

use crate::controllers::observe;

/// Distinct values below which the interning tables are not swept.
const SWEEP_MIN: usize = 1_024;

/// Pods by the node they are bound to. About 300 bytes per pod: replicas share what they have in
/// common.
#[derive(Debug, Default)]
pub(crate) struct BoundPods {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_node: HashMap<String, HashMap<PodKey, ObservedPod>>,
    node_of: HashMap<PodKey, String>,
    labels: Interner<std::collections::BTreeMap<millwright_model::Name, millwright_model::Name>>,
    tolerations: Interner<[millwright_model::Toleration]>,
}

impl BoundPods {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the latest version of a pod in; a pod without a node is not kept.
    pub(crate) fn apply(&self, pod: &Pod) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let inner = &mut *self.inner();
        let Some(node) = node.filter(|node| !node.is_empty()) else {
            return inner.remove(&convert::pod_key(pod));
        };
        let mut observed = observe::pod(pod);
        observed.labels = inner.labels.intern(observed.labels);
        observed.tolerations = inner.tolerations.intern(observed.tolerations);
        if inner.node_of.get(&observed.key) != Some(&node) {
            // The same name on another node is another pod, even if its predecessor's end was
            // never told.
            inner.remove(&observed.key);
            inner.node_of.insert(observed.key.clone(), node.clone());
        }
        let pods = inner.by_node.entry(node).or_default();
        pods.insert(observed.key.clone(), observed);
    }

    /// Forgets a pod.
    pub(crate) fn delete(&self, key: &PodKey) {
        self.inner().remove(key);
    }

    /// Forgets all pods but those listed.
    pub(crate) fn retain(&self, listed: &HashSet<PodKey>) {
        let inner = &mut *self.inner();
        let gone: Vec<PodKey> = inner
            .node_of
            .keys()
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        gone.iter().for_each(|key| inner.remove(key));
    }

    /// The pods of a node, in order of their keys.
    pub(crate) fn on(&self, node: &str) -> Vec<ObservedPod> {
        let inner = self.inner();
        let mut pods: Vec<ObservedPod> = inner
            .by_node
            .get(node)
            .into_iter()
            .flat_map(HashMap::values)
            .cloned()
            .collect();
        pods.sort_by(|a, b| a.key.cmp(&b.key));
        pods
    }
}

impl Inner {
    fn remove(&mut self, key: &PodKey) {
        let Some(node) = self.node_of.remove(key) else {
            return;
        };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }
}

/// One allocation per distinct value. Values that nobody holds any more are swept when the table has
/// doubled, so it is never larger than twice what is in use (or [`SWEEP_MIN`]).
#[derive(Debug)]
struct Interner<T: ?Sized> {
    values: HashSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self {
            values: HashSet::new(),
            sweep_at: SWEEP_MIN,
        }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(&*value) {
            return known.clone();
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = (self.values.len() * 2).max(SWEEP_MIN);
        }
        self.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str, node: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": name, "uid": uid, "labels": {"app": "web"}},
            "spec": {"containers": [], "nodeName": node,
                "tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"},
        }))
        .expect("a pod")
    }

    fn names(pods: &BoundPods, node: &str) -> Vec<String> {
        pods.on(node)
            .iter()
            .map(|pod| pod.key.name.to_string())
            .collect()
    }

    #[test]
    fn pods_are_found_by_their_node_in_order() {
        let pods = BoundPods::default();
        for name in ["b", "a"] {
            pods.apply(&pod(name, name, Some("n1")));
        }
        pods.apply(&pod("waiting", "w", None));
        assert_eq!(names(&pods, "n1"), ["a", "b"]);
        let seen = &pods.on("n1")[0];
        assert!(seen.is_critical && seen.tolerates_disrupted());
        assert!(Arc::ptr_eq(&seen.labels, &pods.on("n1")[1].labels));
    }

    #[test]
    fn a_successor_on_another_node_frees_the_first_node() {
        let pods = BoundPods::default();
        pods.apply(&pod("a", "first", Some("n1")));
        pods.apply(&pod("a", "second", Some("n2")));
        assert_eq!(names(&pods, "n1"), Vec::<String>::new());
        assert_eq!(names(&pods, "n2"), ["a"]);
    }

    #[test]
    fn a_relist_forgets_what_is_gone() {
        let pods = BoundPods::default();
        pods.apply(&pod("a", "a", Some("n1")));
        pods.apply(&pod("b", "b", Some("n1")));
        pods.retain(&[PodKey::new("default", "b")].into());
        assert_eq!(names(&pods, "n1"), ["b"]);
        pods.delete(&PodKey::new("default", "b"));
        assert!(pods.inner().by_node.is_empty() && pods.inner().node_of.is_empty());
    }

    #[test]
    fn values_that_nobody_holds_are_swept() {
        let mut interner: Interner<str> = Interner::default();
        let held = interner.intern("held".into());
        for n in 0..10_000 {
            interner.intern(n.to_string().into());
        }
        assert!(interner.values.len() <= 2 * SWEEP_MIN);
        assert!(Arc::ptr_eq(&held, &interner.intern("held".into())));
    }
}
