//! Kubernetes events: deduplicated, rate limited, written by one task from a bounded queue.
//!
//! The rules are Karpenter's (disruption specification 6.5): the key of an event is its reason and
//! the listed values, never its message; a repeated key within its window is dropped; pod events of
//! one reason share a token bucket and are dropped, not delayed, when it is empty.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Event as KubeEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};
use tokio::{sync::mpsc, time::Instant};

/// Events that wait to be written before further ones are dropped.
const QUEUE: usize = 1000;
/// Keys remembered before old ones are swept.
const REMEMBERED: usize = 20_000;
/// Window of an event that does not say otherwise.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(120);
/// Name under which events are written; dashboards and people filter on it.
const COMPONENT: &str = "karpenter";

/// Whether the event is worth worrying about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something happened.
    Normal,
    /// Something is wrong.
    Warning,
}

/// An event to record.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it is about.
    pub object: ObjectReference,
    /// Normal or Warning.
    pub severity: Severity,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
    /// Values that, with the reason, identify the event; none means that it is never a repetition.
    pub key: Vec<String>,
    /// How long a repetition is dropped.
    pub window: Duration,
    /// Whether the event takes a token of its reason's bucket (5/s, burst 10).
    pub rate_limited: bool,
}

impl Event {
    /// An event about an object, identified by the object's uid.
    pub fn new<K: Resource<DynamicType = ()>>(
        object: &K,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let key = vec![object.uid().unwrap_or_default()];
        Self {
            object: object.object_ref(&()),
            severity,
            reason,
            message: message.into(),
            key,
            window: DEFAULT_WINDOW,
            rate_limited: false,
        }
    }

    /// Drops repetitions for this long instead of two minutes.
    #[must_use]
    pub const fn within(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Identified by other values than the object's uid.
    #[must_use]
    pub fn keyed(mut self, key: Vec<String>) -> Self {
        self.key = key;
        self
    }

    /// Takes a token of the bucket that events of this reason share.
    #[must_use]
    pub const fn rate_limited(mut self) -> Self {
        self.rate_limited = true;
        self
    }
}

/// Takes events in. Clones share queue and memory.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Event>,
    memory: Arc<Mutex<Memory>>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Memory {
    /// When an identical event may be written again.
    until: HashMap<String, Instant>,
    buckets: HashMap<&'static str, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    const BURST: f64 = 10.0;
    const PER_SECOND: f64 = 5.0;

    fn take(&mut self, now: Instant) -> bool {
        let refill = now.duration_since(self.at).as_secs_f64() * Self::PER_SECOND;
        self.tokens = (self.tokens + refill).min(Self::BURST);
        self.at = now;
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

impl Memory {
    fn admits(&mut self, event: &Event, now: Instant) -> bool {
        if event.rate_limited {
            let bucket = self.buckets.entry(event.reason).or_insert(Bucket {
                tokens: Bucket::BURST,
                at: now,
            });
            if !bucket.take(now) {
                return false;
            }
        }
        if event.key.is_empty() {
            return true;
        }
        let key = format!("{}/{}", event.reason.to_lowercase(), event.key.join("/"));
        if self.until.get(&key).is_some_and(|until| *until > now) {
            return false;
        }
        if self.until.len() >= REMEMBERED {
            self.until.retain(|_, until| *until > now);
            if self.until.len() >= REMEMBERED {
                // More live keys than we remember: repetitions may slip through, nothing is lost.
                self.until.clear();
            }
        }
        self.until.insert(key, now + event.window);
        true
    }
}

impl Recorder {
    /// A recorder and the queue that [`write_events`] drains.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Event>) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        (
            Self {
                queue,
                memory: Arc::default(),
                dropped: Arc::default(),
            },
            receiver,
        )
    }

    /// Records an event, unless it is a repetition or too much.
    pub fn publish(&self, event: Event) {
        let admitted = self
            .memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admits(&event, Instant::now());
        if admitted && self.queue.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that were dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Writes events until the last recorder is gone. Events are best effort: a failure is logged once
/// and the event lost.
pub async fn write_events(client: Client, host: String, mut queue: mpsc::Receiver<Event>) {
    while let Some(event) = queue.recv().await {
        let namespace = event
            .object
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        let api: Api<KubeEvent> = Api::namespaced(client.clone(), &namespace);
        let event = kube_event(event, &namespace, &host);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(reason = event.reason, %error, "event could not be written");
        }
    }
}

fn kube_event(event: Event, namespace: &str, host: &str) -> KubeEvent {
    let now = Time(Timestamp::now());
    KubeEvent {
        metadata: ObjectMeta {
            generate_name: Some(format!(
                "{}.",
                event.object.name.as_deref().unwrap_or("event")
            )),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(
            if event.severity == Severity::Warning {
                "Warning"
            } else {
                "Normal"
            }
            .to_owned(),
        ),
        reason: Some(event.reason.to_owned()),
        // The API server refuses notes of more than 1 KiB.
        message: Some(truncate(event.message, 1000)),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            host: None,
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(host.to_owned()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        involved_object: event.object,
        ..KubeEvent::default()
    }
}

fn truncate(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &'static str, key: &str) -> Event {
        Event {
            object: ObjectReference::default(),
            severity: Severity::Normal,
            reason,
            message: String::new(),
            key: vec![key.to_owned()],
            window: DEFAULT_WINDOW,
            rate_limited: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_within_its_window_is_dropped() {
        let (recorder, mut queue) = Recorder::new();
        recorder.publish(event("Nominated", "a"));
        recorder.publish(event("Nominated", "a"));
        recorder.publish(event("Nominated", "b"));
        tokio::time::advance(DEFAULT_WINDOW).await;
        recorder.publish(event("Nominated", "a"));
        let mut count = 0;
        while queue.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_lets_a_burst_through_and_then_five_a_second() {
        let (recorder, mut queue) = Recorder::new();
        for n in 0..100 {
            recorder.publish(event("Nominated", &n.to_string()).rate_limited());
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        for n in 100..200 {
            recorder.publish(event("Nominated", &n.to_string()).rate_limited());
        }
        let mut count = 0;
        while queue.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_drops_and_counts() {
        let (recorder, _queue) = Recorder::new();
        for n in 0..=QUEUE {
            recorder.publish(event("X", &n.to_string()));
        }
        assert_eq!(recorder.dropped(), 1);
    }
}
