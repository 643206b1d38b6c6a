//! What is known of one kind: the objects, and who owns them.
//!
//! An index learns from two sides: from its watch, and from the answers to our own writes. Without the
//! second a reconciler would read a past in which the pods that it just created do not exist yet, and
//! create them again. With it, the index is never older than our own writes.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use kube::{Resource, ResourceExt};

/// An object's identity. Names come back after a deletion, uids do not.
pub(super) type Uid = String;

/// Deletions that are remembered: more than can happen between a write and its answer.
const GONE_MAX: usize = 32 * 1024;

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Index<K> {
    objects: HashMap<Uid, Arc<K>>,
    by_owner: HashMap<Uid, BTreeSet<Uid>>,
    /// During a list: what it has shown so far, and what we wrote since it began.
    listing: Option<HashSet<Uid>>,
    synced: bool,
    gone: Gone,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            by_owner: HashMap::new(),
            listing: None,
            synced: false,
            gone: Gone::default(),
        }
    }
}

/// The latest deletions, oldest forgotten first.
#[derive(Debug, Default)]
struct Gone {
    order: VecDeque<Uid>,
    set: HashSet<Uid>,
}

impl Gone {
    fn insert(&mut self, uid: Uid) {
        if self.set.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        while self.order.len() > GONE_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.set.remove(&oldest);
            }
        }
    }
}

impl<K: Resource> Index<K> {
    /// Whether a first list has been seen to its end.
    pub(super) const fn is_synced(&self) -> bool {
        self.synced
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Arc<K>> {
        self.objects.get(uid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Objects that name this owner, controller or not, in the order of their uids.
    pub(super) fn owned_by(&self, owner: &str) -> impl Iterator<Item = &Arc<K>> {
        let owned = self.by_owner.get(owner).into_iter().flatten();
        owned.filter_map(|uid| self.objects.get(uid))
    }

    /// Whether the deletion of this object was seen lately.
    pub(super) fn was_deleted(&self, uid: &str) -> bool {
        self.gone.set.contains(uid)
    }

    /// A list begins.
    pub(super) fn list_begins(&mut self) {
        self.listing = Some(HashSet::new());
    }

    /// A list has ended: what it did not show is gone. What we wrote while it ran stays, since the list
    /// may be older; the watch that follows tells about it.
    pub(super) fn list_ended(&mut self) -> Vec<Arc<K>> {
        self.synced = true;
        let Some(seen) = self.listing.take() else {
            return Vec::new();
        };
        let missing = self.objects.keys().filter(|uid| !seen.contains(*uid));
        let missing: Vec<Uid> = missing.cloned().collect();
        missing.iter().filter_map(|uid| self.remove(uid)).collect()
    }

    /// Takes an object that the watch showed. An older state than the known one changes nothing.
    pub(super) fn observe(&mut self, object: K) -> Option<Arc<K>> {
        let uid = object.uid()?;
        if let Some(seen) = &mut self.listing {
            seen.insert(uid.clone());
        }
        if self
            .objects
            .get(&uid)
            .is_some_and(|known| version(known.as_ref()) > version(&object))
        {
            return None;
        }
        Some(self.insert(&uid, object))
    }

    /// Takes the answer to a write of ours. The watch may have told of the object's end before.
    pub(super) fn written(&mut self, object: K) -> Option<Arc<K>> {
        let uid = object.uid()?;
        if self.was_deleted(&uid) {
            return None;
        }
        self.observe(object)
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, uid: &str) -> Option<Arc<K>> {
        self.gone.insert(uid.to_owned());
        let object = self.objects.remove(uid)?;
        self.unlink(uid, object.as_ref());
        Some(object)
    }

    fn insert(&mut self, uid: &str, object: K) -> Arc<K> {
        let object = Arc::new(object);
        if let Some(old) = self.objects.insert(uid.to_owned(), object.clone()) {
            self.unlink(uid, old.as_ref());
        }
        for owner in object.owner_references() {
            let owned = self.by_owner.entry(owner.uid.clone()).or_default();
            owned.insert(uid.to_owned());
        }
        object
    }

    fn unlink(&mut self, uid: &str, object: &K) {
        for owner in object.owner_references() {
            if let Some(owned) = self.by_owner.get_mut(&owner.uid) {
                owned.remove(uid);
                if owned.is_empty() {
                    self.by_owner.remove(&owner.uid);
                }
            }
        }
    }
}

/// Resource versions of one kind are ordered numbers: Kubernetes promises it since 1.35.
fn version(object: &impl Resource) -> u64 {
    let text = object.meta().resource_version.as_deref();
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::Pod,
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    };

    use super::*;

    fn pod(uid: &str, version: u64) -> Pod {
        Pod {
            metadata: ObjectMeta {
                uid: Some(uid.to_owned()),
                resource_version: Some(version.to_string()),
                owner_references: Some(vec![OwnerReference {
                    uid: "owner".to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }

    fn owned(index: &Index<Pod>) -> Vec<String> {
        index
            .owned_by("owner")
            .filter_map(|pod| pod.uid())
            .collect()
    }

    #[test]
    fn an_older_state_does_not_replace_a_newer_one() {
        let mut index = Index::default();
        assert!(index.written(pod("a", 7)).is_some());
        assert!(index.observe(pod("a", 6)).is_none());
        assert!(index.observe(pod("a", 7)).is_some());
        assert_eq!(owned(&index), ["a"]);
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
        let mut index = Index::default();
        index.observe(pod("a", 1));
        assert!(index.remove("a").is_some());
        assert!(index.written(pod("a", 1)).is_none());
        assert!(owned(&index).is_empty());
    }

    #[test]
    fn a_list_removes_what_it_does_not_show_except_what_was_written_meanwhile() {
        let mut index = Index::default();
        index.observe(pod("a", 1));
        index.written(pod("b", 2));
        index.list_begins();
        index.observe(pod("a", 1));
        index.written(pod("c", 3));
        let gone = index.list_ended();
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].uid().as_deref(), Some("b"));
        assert_eq!(owned(&index), ["a", "c"]);
        assert!(index.is_synced());
    }

    #[test]
    fn deletions_are_forgotten_in_the_end() {
        let mut gone = Gone::default();
        for i in 0..=GONE_MAX {
            gone.insert(i.to_string());
        }
        assert!(!gone.set.contains("0") && gone.set.contains("1"));
        assert_eq!(gone.order.len(), gone.set.len());
    }
}
