//! One watch per kind: a store of what there is, and news of what changed.
//!
//! A watch that ends is resumed where it stopped; when that is no longer possible (410 Gone), the
//! kind is listed again and what is missing counts as deleted. A closed watch is never success.

use std::{
    collections::HashSet,
    fmt::{self, Debug},
    hash::Hash,
    sync::Arc,
};

use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, watch};

/// News that a slow subscriber may fall behind before it must look at everything again.
const NEWS: usize = 4096;
/// Objects per page of a list.
const PAGE: u32 = 500;

/// What a watch says, in a form that a relist and a plain event share.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// The object was added or changed.
    Applied(&'a K),
    /// The object is gone.
    Deleted(&'a K),
    /// A list is complete: whatever is not among these keys is gone.
    Listed(&'a HashSet<String>),
}

/// `name` of a cluster-scoped object, `namespace/name` of a namespaced one.
pub fn key_of<K: Resource>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// A watched kind: its store, and a subscription to changed keys. Clones share both.
#[derive(Debug)]
pub struct Kind<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    news: broadcast::Sender<String>,
    synced: watch::Receiver<bool>,
}

impl<K: Resource<DynamicType = ()> + 'static> Clone for Kind<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            news: self.news.clone(),
            synced: self.synced.clone(),
        }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Kind<K> {
    /// The object of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        let reference = match key.split_once('/') {
            Some((namespace, name)) => ObjectRef::new(name).within(namespace),
            None => ObjectRef::new(key),
        };
        self.store.get(&reference)
    }

    /// All objects, in no order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Resolves when the first list is complete.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        // An error means that the watch task is gone, which happens only at shutdown.
        let _ = synced.wait_for(|done| *done).await;
    }

    /// Whether the first list is complete.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Feeds the keys of changed objects, and of all objects at first and after a loss of news, to
    /// `each`. Never returns while the watch lives.
    pub async fn for_each_key(&self, each: impl Fn(&str)) {
        let mut news = self.news.subscribe();
        self.synced().await;
        let everything = || {
            self.list()
                .iter()
                .for_each(|object| each(&key_of(&**object)));
        };
        everything();
        loop {
            match news.recv().await {
                Ok(key) => each(&key),
                Err(broadcast::error::RecvError::Lagged(_)) => everything(),
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }
}

/// The driving half of a [`Kind`].
pub struct Watch<K: Resource<DynamicType = ()> + Clone + 'static> {
    api: Api<K>,
    writer: Writer<K>,
    news: broadcast::Sender<String>,
    synced: watch::Sender<bool>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("kind", &K::kind(&()))
            .finish_non_exhaustive()
    }
}

/// Prepares the watch of a kind.
#[must_use]
pub fn watch_kind<K>(api: Api<K>) -> (Kind<K>, Watch<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, writer) = reflector::store();
    let (news, _) = broadcast::channel(NEWS);
    let (synced, receiver) = watch::channel(false);
    let kind = Kind {
        store,
        news: news.clone(),
        synced: receiver,
    };
    (
        kind,
        Watch {
            api,
            writer,
            news,
            synced,
        },
    )
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Watches until the task is dropped; `ingest` sees every change before subscribers do.
    pub async fn run(self, mut ingest: impl FnMut(Change<'_, K>) + Send) {
        let Self {
            api,
            mut writer,
            news,
            synced,
        } = self;
        let mut previous = HashSet::new();
        drive(api, |event, listed| {
            match event {
                watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                    ingest(Change::Applied(object));
                }
                watcher::Event::Delete(object) => ingest(Change::Deleted(object)),
                watcher::Event::InitDone => ingest(Change::Listed(listed)),
                watcher::Event::Init => {}
            }
            writer.apply_watcher_event(event);
            // No subscriber is no error.
            match event {
                watcher::Event::Apply(object) => {
                    previous.insert(key_of(object));
                    let _ = news.send(key_of(object));
                }
                watcher::Event::Delete(object) => {
                    previous.remove(&key_of(object));
                    let _ = news.send(key_of(object));
                }
                watcher::Event::InitDone => {
                    for key in previous.union(listed) {
                        let _ = news.send(key.clone());
                    }
                    previous.clone_from(listed);
                    synced.send_replace(true);
                }
                watcher::Event::Init | watcher::Event::InitApply(_) => {}
            }
        })
        .await;
    }
}

/// Watches a kind without keeping its objects; returns only when the task is dropped. `synced` turns
/// true with the first complete list.
pub async fn watch_only<K>(
    api: Api<K>,
    synced: watch::Sender<bool>,
    mut ingest: impl FnMut(Change<'_, K>) + Send,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    drive(api, |event, listed| match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
            ingest(Change::Applied(object));
        }
        watcher::Event::Delete(object) => ingest(Change::Deleted(object)),
        watcher::Event::InitDone => {
            ingest(Change::Listed(listed));
            synced.send_replace(true);
        }
        watcher::Event::Init => {}
    })
    .await;
}

/// Runs the watch; `each` also gets the keys of the list in progress.
async fn drive<K>(api: Api<K>, mut each: impl FnMut(&watcher::Event<K>, &HashSet<String>) + Send)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().any_semantic().page_size(PAGE);
    let stream = watcher(api, config).default_backoff().map_ok(trim);
    let mut stream = std::pin::pin!(stream);
    let mut listed = HashSet::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                match &event {
                    watcher::Event::Init => listed.clear(),
                    watcher::Event::InitApply(object) => {
                        listed.insert(key_of(object));
                    }
                    _ => {}
                }
                each(&event, &listed);
            }
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted, resuming");
            }
        }
    }
}

/// Drops what nobody reads: managed fields are half of an object.
fn trim<K: Resource>(mut event: watcher::Event<K>) -> watcher::Event<K> {
    if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) = &mut event {
        object.meta_mut().managed_fields = None;
    }
    event
}

#[cfg(test)]
mod tests;
