//! The store: every object in memory, one revision sequence, a bounded history per resource,
//! and bounded watch queues.
//!
//! A write assigns the next revision, replaces the object, appends an event to the resource's
//! history and offers it to every watcher, all under one lock, so every reader sees one order.
//! A watcher whose queue is full is cut off, as the real watch cache does with slow readers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::object::{Object, ObjectKey, metadata_mut};

/// Identifies one stored resource (`pods`, `deployments.apps`).
pub(crate) type ResourceId = Arc<str>;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// It did not exist before.
    Added,
    /// It replaced another version.
    Modified,
    /// It is gone; the event carries its last state under the revision of the deletion.
    Deleted,
}

/// One change, shared by the history and every watcher.
#[derive(Debug)]
pub(crate) struct Event {
    /// What happened.
    pub(crate) kind: EventKind,
    /// The state after the change (before it, for a deletion).
    pub(crate) object: Arc<Object>,
    /// The version that was replaced or deleted.
    pub(crate) previous: Option<Arc<Object>>,
}

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Nothing under this key.
    Absent,
    /// Exactly this version.
    Revision(u64),
}

/// Why a write did not happen: another write came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The key exists although it was expected to be absent.
    Exists,
    /// The key is gone.
    Gone,
    /// The key has another version.
    Changed,
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchFrom {
    /// The present state first, then changes.
    Now,
    /// Changes after this revision.
    Revision(u64),
}

/// The revision asked for is older than the history kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest revision a watch may still start from.
    pub(crate) oldest: u64,
}

/// A subscription: what was there, and what came after.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Revision at which it began.
    pub(crate) revision: u64,
    /// The state at that revision, for `WatchFrom::Now`.
    pub(crate) initial: Vec<Arc<Object>>,
    /// History to replay before `receiver`.
    pub(crate) replay: Vec<Arc<Event>>,
    /// Later changes; ends when the watcher was too slow or watches were cut.
    pub(crate) receiver: mpsc::Receiver<Arc<Event>>,
}

impl Subscription {
    /// One that never says anything.
    pub(crate) fn ended() -> Self {
        let (_, receiver) = mpsc::channel(1);
        Self {
            revision: 0,
            initial: Vec::new(),
            replay: Vec::new(),
            receiver,
        }
    }
}

#[derive(Debug)]
struct Watcher {
    namespace: String,
    sender: mpsc::Sender<Arc<Event>>,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    history: VecDeque<Arc<Event>>,
    /// Revision of the youngest event dropped from the history.
    evicted: u64,
    watchers: Vec<Watcher>,
}

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    tables: FxHashMap<ResourceId, Table>,
    /// Watchers cut off because their queue was full.
    slow_watchers: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Store {
    inner: RwLock<Inner>,
    history_max: usize,
    watch_buffer_max: usize,
}

impl Store {
    /// An empty store that keeps `history_max` events per resource and lets a watcher fall
    /// `watch_buffer_max` events behind.
    pub(crate) fn new(history_max: usize, watch_buffer_max: usize) -> Self {
        let inner = Inner {
            revision: 1,
            ..Inner::default()
        };
        Self {
            inner: RwLock::new(inner),
            history_max,
            watch_buffer_max,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner
            .read()
            .expect("no code panics while it holds the store")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner
            .write()
            .expect("no code panics while it holds the store")
    }

    /// The revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.read().revision
    }

    /// One object.
    pub(crate) fn get(&self, resource: &str, key: &ObjectKey) -> Option<Arc<Object>> {
        self.read().tables.get(resource)?.objects.get(key).cloned()
    }

    /// All objects of a resource, or of one namespace if it is not empty, in key order,
    /// with the revision at which that was the state.
    pub(crate) fn list(&self, resource: &str, namespace: &str) -> (Vec<Arc<Object>>, u64) {
        let inner = self.read();
        let objects = inner
            .tables
            .get(resource)
            .map_or_else(Vec::new, |table| select(table, namespace));
        (objects, inner.revision)
    }

    /// The state of a resource (or of one namespace of it) at an earlier revision: the present
    /// one with the history undone.
    ///
    /// # Errors
    /// [`TooOld`] if the history no longer reaches back so far.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        namespace: &str,
        revision: u64,
    ) -> Result<Vec<Arc<Object>>, TooOld> {
        let inner = self.read();
        let Some(table) = inner.tables.get(resource) else {
            return Ok(Vec::new());
        };
        if revision < table.evicted {
            return Err(TooOld {
                oldest: table.evicted,
            });
        }
        let mut state: BTreeMap<&ObjectKey, &Arc<Object>> = table.objects.iter().collect();
        let later = |event: &&Arc<Event>| event.object.resource_version > revision;
        for event in table.history.iter().rev().take_while(later) {
            match &event.previous {
                Some(previous) => state.insert(&event.object.key, previous),
                None => state.remove(&event.object.key),
            };
        }
        let wanted = |key: &ObjectKey| namespace.is_empty() || key.namespace == namespace;
        let kept = state.into_iter().filter(|(key, _)| wanted(key));
        Ok(kept.map(|(_, object)| Arc::clone(object)).collect())
    }

    /// Whether a resource has an object (in one namespace, if it is not empty).
    pub(crate) fn has_any(&self, resource: &str, namespace: &str) -> bool {
        let inner = self.read();
        let mut first = inner
            .tables
            .get(resource)
            .into_iter()
            .flat_map(|table| table.objects.range(ObjectKey::new(namespace, "")..));
        first
            .next()
            .is_some_and(|(key, _)| namespace.is_empty() || key.namespace == namespace)
    }

    /// Writes one object. The stored value gets the new revision as its resourceVersion.
    ///
    /// # Errors
    /// [`Lost`] if the store does not hold what was expected.
    pub(crate) fn put(
        &self,
        resource: &ResourceId,
        key: ObjectKey,
        expect: Expect,
        mut value: Value,
    ) -> Result<Arc<Object>, Lost> {
        let mut inner = self.write();
        let revision = inner.revision + 1;
        let table = inner.tables.entry(Arc::clone(resource)).or_default();
        let previous = table.objects.get(&key).cloned();
        check(previous.as_deref(), expect)?;
        metadata_mut(&mut value).insert("resourceVersion".to_owned(), json!(revision.to_string()));
        let object = Arc::new(Object::new(key.clone(), revision, value));
        table.objects.insert(key, Arc::clone(&object));
        let kind = if previous.is_some() {
            EventKind::Modified
        } else {
            EventKind::Added
        };
        let event = Arc::new(Event {
            kind,
            object: Arc::clone(&object),
            previous,
        });
        self.publish(&mut inner, resource, revision, event);
        Ok(object)
    }

    /// Removes one object; answers its last state, which becomes `value`.
    ///
    /// # Errors
    /// [`Lost`] if the store does not hold what was expected.
    pub(crate) fn remove_as(
        &self,
        resource: &ResourceId,
        key: &ObjectKey,
        expect: Expect,
        mut value: Value,
    ) -> Result<Arc<Object>, Lost> {
        let mut inner = self.write();
        let revision = inner.revision + 1;
        let table = inner.tables.entry(Arc::clone(resource)).or_default();
        let previous = table.objects.get(key).cloned();
        check(previous.as_deref(), expect)?;
        let previous = previous.ok_or(Lost::Gone)?;
        table.objects.remove(key);
        metadata_mut(&mut value).insert("resourceVersion".to_owned(), json!(revision.to_string()));
        let object = Arc::new(Object::new(key.clone(), revision, value));
        let event = Event {
            kind: EventKind::Deleted,
            object: Arc::clone(&object),
            previous: Some(previous),
        };
        self.publish(&mut inner, resource, revision, Arc::new(event));
        Ok(object)
    }

    fn publish(&self, inner: &mut Inner, resource: &ResourceId, revision: u64, event: Arc<Event>) {
        inner.revision = revision;
        let Some(table) = inner.tables.get_mut(resource) else {
            return;
        };
        let mut slow = 0;
        table.watchers.retain(|watcher| {
            if !watcher.namespace.is_empty() && watcher.namespace != event.object.key.namespace {
                return !watcher.sender.is_closed();
            }
            match watcher.sender.try_send(Arc::clone(&event)) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    slow += 1;
                    false
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            }
        });
        table.history.push_back(event);
        while table.history.len() > self.history_max {
            if let Some(old) = table.history.pop_front() {
                table.evicted = old.object.resource_version;
            }
        }
        inner.slow_watchers += slow;
    }

    /// Subscribes to a resource, or to one namespace of it.
    ///
    /// # Errors
    /// [`TooOld`] if the history no longer reaches back to the revision.
    pub(crate) fn subscribe(
        &self,
        resource: &ResourceId,
        namespace: &str,
        from: WatchFrom,
    ) -> Result<Subscription, TooOld> {
        let mut inner = self.write();
        let revision = inner.revision;
        let table = inner.tables.entry(Arc::clone(resource)).or_default();
        let (initial, replay) = match from {
            WatchFrom::Now => (select(table, namespace), Vec::new()),
            WatchFrom::Revision(start) => {
                if start < table.evicted {
                    return Err(TooOld {
                        oldest: table.evicted,
                    });
                }
                let first = table
                    .history
                    .partition_point(|e| e.object.resource_version <= start);
                let wanted = |event: &&Arc<Event>| {
                    namespace.is_empty() || event.object.key.namespace == namespace
                };
                (
                    Vec::new(),
                    table
                        .history
                        .iter()
                        .skip(first)
                        .filter(wanted)
                        .cloned()
                        .collect(),
                )
            }
        };
        let (sender, receiver) = mpsc::channel(self.watch_buffer_max);
        table.watchers.push(Watcher {
            namespace: namespace.to_owned(),
            sender,
        });
        Ok(Subscription {
            revision,
            initial,
            replay,
            receiver,
        })
    }

    /// Ends every client's watch; each sees its stream close.
    pub(crate) fn cut_watches(&self) {
        for table in self.write().tables.values_mut() {
            table.watchers.clear();
        }
    }

    /// Forgets the history: a watch from any revision before now answers 410.
    pub(crate) fn expire_history(&self) {
        let mut inner = self.write();
        // One revision passes, so that even a client that is up to date finds its own expired.
        inner.revision += 1;
        let revision = inner.revision;
        for table in inner.tables.values_mut() {
            table.history.clear();
            table.evicted = revision;
            table.watchers.clear();
        }
    }

    /// How many watchers have been cut off for being slow.
    pub(crate) fn slow_watchers(&self) -> u64 {
        self.read().slow_watchers
    }

    /// Ends the watches of one resource (its CRD is gone).
    pub(crate) fn end_watches(&self, resource: &str) {
        if let Some(table) = self.write().tables.get_mut(resource) {
            table.watchers.clear();
        }
    }
}

fn check(found: Option<&Object>, expect: Expect) -> Result<(), Lost> {
    match (found, expect) {
        (None, Expect::Absent) => Ok(()),
        (Some(_), Expect::Absent) => Err(Lost::Exists),
        (None, Expect::Revision(_)) => Err(Lost::Gone),
        (Some(object), Expect::Revision(revision)) if object.resource_version == revision => Ok(()),
        (Some(_), Expect::Revision(_)) => Err(Lost::Changed),
    }
}

fn select(table: &Table, namespace: &str) -> Vec<Arc<Object>> {
    if namespace.is_empty() {
        return table.objects.values().cloned().collect();
    }
    table
        .objects
        .range(ObjectKey::new(namespace, "")..)
        .take_while(|(key, _)| key.namespace == namespace)
        .map(|(_, object)| Arc::clone(object))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> ResourceId {
        "pods".into()
    }

    fn put(store: &Store, name: &str, expect: Expect) -> Result<Arc<Object>, Lost> {
        let value = json!({ "metadata": { "name": name, "namespace": "a" } });
        store.put(&pods(), ObjectKey::new("a", name), expect, value)
    }

    #[test]
    fn writes_need_the_version_they_are_based_on() {
        let store = Store::new(10, 10);
        let first = put(&store, "x", Expect::Absent).unwrap();
        assert_eq!(put(&store, "x", Expect::Absent).unwrap_err(), Lost::Exists);
        let second = put(&store, "x", Expect::Revision(first.resource_version)).unwrap();
        assert!(second.resource_version > first.resource_version);
        let stale = put(&store, "x", Expect::Revision(first.resource_version));
        assert_eq!(stale.unwrap_err(), Lost::Changed);
        let absent = store.remove_as(
            &pods(),
            &ObjectKey::new("a", "y"),
            Expect::Revision(1),
            json!({}),
        );
        assert_eq!(absent.unwrap_err(), Lost::Gone);
    }

    #[test]
    fn a_watch_replays_history_and_refuses_what_it_dropped() {
        let store = Store::new(3, 10);
        let start = store.revision();
        for name in ["a", "b", "c"] {
            put(&store, name, Expect::Absent).unwrap();
        }
        let subscription = store
            .subscribe(&pods(), "", WatchFrom::Revision(start))
            .unwrap();
        assert_eq!(subscription.replay.len(), 3);
        put(&store, "d", Expect::Absent).unwrap();
        let error = store
            .subscribe(&pods(), "", WatchFrom::Revision(start))
            .unwrap_err();
        assert_eq!(error.oldest, start + 1);
        store.expire_history();
        let newest = store.revision();
        assert!(
            store
                .subscribe(&pods(), "", WatchFrom::Revision(newest - 1))
                .is_err()
        );
        assert!(
            store
                .subscribe(&pods(), "", WatchFrom::Revision(newest))
                .is_ok()
        );
    }

    #[test]
    fn a_slow_watcher_is_cut_off_and_counted() {
        let store = Store::new(10, 2);
        let mut watch = store.subscribe(&pods(), "", WatchFrom::Now).unwrap();
        for name in ["a", "b", "c"] {
            put(&store, name, Expect::Absent).unwrap();
        }
        assert_eq!(store.slow_watchers(), 1);
        assert!(watch.receiver.try_recv().is_ok() && watch.receiver.try_recv().is_ok());
        assert_eq!(
            watch.receiver.try_recv().unwrap_err(),
            mpsc::error::TryRecvError::Disconnected
        );
    }
}
