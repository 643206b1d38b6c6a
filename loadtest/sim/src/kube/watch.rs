//! Watches: the present state or a replay, then changes, bookmarks, and an orderly end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{Stream, stream};
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::api::{ApiServer, Reply, View, WatchReply};
use super::error::ApiError;
use super::object::{Object, to_bytes};
use super::read::Selection;
use super::request::Call;
use super::store::{Event, EventKind, Subscription, WatchFrom};

/// A watch without `timeoutSeconds` ends after this long, as the real one's do at random.
const TIMEOUT: Duration = Duration::from_secs(1_800);

/// What a watch asked for.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    selection: Selection,
    bookmarks: bool,
    initial_events_end: bool,
    timeout: Duration,
    bookmark_every: Duration,
    /// The history asked for is gone: the only event is this error.
    failure: Option<ApiError>,
}

impl ApiServer {
    pub(crate) fn watch(&self, call: &Call) -> Result<Reply, ApiError> {
        let params = &call.params;
        let selection = Selection::of(call)?;
        let start = params.number("resourceVersion")?.unwrap_or(0);
        let sends_initial = match params.text("sendInitialEvents") {
            "" => start == 0,
            _ => params.flag("sendInitialEvents"),
        };
        let bookmarks = params.flag("allowWatchBookmarks");
        let from = if sends_initial {
            WatchFrom::Now
        } else {
            WatchFrom::Revision(start)
        };
        let (resource, namespace) = (&call.resource.id, call.namespace.as_str());
        let (subscription, failure) = match self.store.subscribe(resource, namespace, from) {
            Ok(subscription) => (subscription, None),
            Err(too_old) => {
                let message = format!("too old resource version: {start} ({})", too_old.oldest);
                (Subscription::ended(), Some(ApiError::expired(message)))
            }
        };
        let timeout = params
            .number("timeoutSeconds")?
            .filter(|seconds| *seconds > 0);
        Ok(Reply::Watch(Box::new(WatchReply {
            view: View::new(call),
            subscription,
            options: WatchOptions {
                selection,
                bookmarks,
                initial_events_end: bookmarks && params.flag("sendInitialEvents"),
                timeout: timeout.map_or(TIMEOUT, Duration::from_secs).min(TIMEOUT),
                bookmark_every: self.config.bookmark_every,
                failure,
            },
        })))
    }
}

struct Watch {
    server: Arc<ApiServer>,
    view: View,
    selection: Selection,
    subscription: Subscription,
    /// Lines not yet sent.
    ready: VecDeque<Bytes>,
    bookmarks: Option<Interval>,
    end: Instant,
    has_ended: bool,
}

/// The lines of a watch's body.
pub(crate) fn lines(server: Arc<ApiServer>, reply: WatchReply) -> impl Stream<Item = Bytes> + Send {
    let WatchReply {
        view,
        mut subscription,
        options,
    } = reply;
    let start = Instant::now();
    let bookmarks = options.bookmarks.then(|| {
        let every = options.bookmark_every;
        let mut interval = tokio::time::interval_at(start + every, every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    });
    let initial = std::mem::take(&mut subscription.initial);
    let replay = std::mem::take(&mut subscription.replay);
    let mut watch = Watch {
        server,
        view,
        selection: options.selection,
        subscription,
        ready: VecDeque::new(),
        bookmarks,
        end: start + options.timeout,
        has_ended: options.failure.is_some(),
    };
    for object in initial {
        if watch.selection.matches(&object.value) {
            watch.push("ADDED", &object);
        }
    }
    if options.initial_events_end {
        watch.bookmark(watch.subscription.revision, true);
    }
    for event in replay {
        watch.push_event(&event);
    }
    if let Some(error) = options.failure {
        let status = to_bytes(&error.to_status());
        watch.ready.push_back(line("ERROR", &status));
    }
    stream::unfold(watch, |mut watch| async {
        watch.next().await.map(|line| (line, watch))
    })
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.has_ended {
                return None;
            }
            let tick = async {
                match &mut self.bookmarks {
                    Some(interval) => {
                        interval.tick().await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = self.subscription.receiver.recv() => match event {
                    Some(event) => self.push_event(&event),
                    None => self.has_ended = true,
                },
                () = tick => self.catch_up_and_bookmark(),
                () = tokio::time::sleep_until(self.end) => {
                    if self.bookmarks.is_some() {
                        self.catch_up_and_bookmark();
                    }
                    self.has_ended = true;
                }
            }
        }
    }

    /// A bookmark promises that everything up to its revision has been sent: what was written
    /// before the revision was read is in the queue already.
    fn catch_up_and_bookmark(&mut self) {
        let revision = self.server.store.revision();
        while let Ok(event) = self.subscription.receiver.try_recv() {
            self.push_event(&event);
        }
        self.bookmark(revision, false);
    }

    /// A change as this selection sees it: an object that no longer matches is deleted.
    fn push_event(&mut self, event: &Event) {
        let matched = |object: &Object| self.selection.matches(&object.value);
        let is = event.kind != EventKind::Deleted && matched(&event.object);
        let was = event.previous.as_ref().is_some_and(|it| matched(it));
        match (was, is) {
            (false, true) => self.push("ADDED", &event.object),
            (true, true) => self.push("MODIFIED", &event.object),
            (true, false) => self.push("DELETED", &event.object),
            (false, false) => {}
        }
    }

    fn push(&mut self, kind: &str, object: &Object) {
        let text = self.view.show(object);
        self.ready.push_back(line(kind, &text));
    }

    fn bookmark(&mut self, revision: u64, ends_initial_events: bool) {
        let mut object = json!({
            "kind": self.view.resource.kind, "apiVersion": self.view.resource.api_version(),
            "metadata": { "resourceVersion": revision.to_string(), "creationTimestamp": null },
        });
        if ends_initial_events {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.ready.push_back(line("BOOKMARK", &to_bytes(&object)));
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}
