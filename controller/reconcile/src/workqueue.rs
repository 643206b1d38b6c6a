//! A queue of keys: each key at most once, one worker per key at a time, delays and back-off per
//! key, bounded concurrency.
//!
//! The shape is that of Kubernetes' own work queues: a key that changes while it is being worked on
//! is worked on once more afterwards. The number of keys is bounded by the number of objects.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque},
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use millwright_telemetry::{self as telemetry, Reconciled};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

/// First and largest delay after failures of one key; each failure doubles it.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// How often the metrics of a queue that works are brought up to date even if nothing happens, so
/// that a worker that hangs shows.
const MEASURE: Duration = Duration::from_secs(5);

/// What a worker wants next for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something changes.
    Done,
    /// Look again after this long, or when something changes.
    After(Duration),
}

/// A queue. Clones share it.
#[derive(Clone, Debug)]
pub struct WorkQueue {
    name: &'static str,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The queue's name.
    name: &'static str,
    /// Keys, and since when they are here.
    ready: VecDeque<(String, Instant)>,
    /// Keys in `ready`.
    queued: HashSet<String>,
    /// Keys that are worked on, and since when.
    working: HashMap<String, Instant>,
    /// Keys that changed while they were worked on.
    again: HashSet<String>,
    /// Due times, soonest first; `due` is the truth, the heap may hold outdated entries.
    delayed: BinaryHeap<Reverse<(Instant, String)>>,
    due: BTreeMap<String, Instant>,
    failures: HashMap<String, u32>,
}

impl State {
    fn push(&mut self, key: String) {
        if self.working.contains_key(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.due.remove(&key);
            self.ready.push_back((key, Instant::now()));
            telemetry::queue_added(self.name);
        }
    }

    /// Takes the next key to work on.
    fn pop(&mut self, now: Instant) -> Option<String> {
        let (key, since) = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.working.insert(key.clone(), now);
        telemetry::work_began(self.name, now.duration_since(since));
        Some(key)
    }

    fn measure(&self, now: Instant) {
        let ages = || {
            self.working
                .values()
                .map(|since| now.duration_since(*since))
        };
        let longest = ages().max().unwrap_or_default();
        telemetry::queue_state(
            self.name,
            self.ready.len(),
            self.working.len(),
            ages().sum(),
            longest,
        );
    }

    fn push_after(&mut self, key: String, at: Instant) {
        if self.queued.contains(&key) || self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), at);
        self.delayed.push(Reverse((at, key)));
    }

    /// Moves what is due to `ready`; returns when the next key is due.
    fn promote(&mut self, now: Instant) -> Option<Instant> {
        while let Some(Reverse((at, key))) = self.delayed.peek() {
            if self.due.get(key) != Some(at) {
                self.delayed.pop();
            } else if *at <= now {
                let key = key.clone();
                self.delayed.pop();
                self.due.remove(&key);
                self.push(key);
            } else {
                return Some(*at);
            }
        }
        None
    }

    fn finish<E>(&mut self, key: String, now: Instant, result: &Result<Next, E>, end: Reconciled) {
        if let Some(since) = self.working.remove(&key) {
            telemetry::work_ended(self.name, now.duration_since(since), end);
        }
        let delay = match result {
            Ok(next) => {
                self.failures.remove(&key);
                match next {
                    Next::Done => None,
                    Next::After(delay) => Some(*delay),
                }
            }
            Err(_) => {
                let failures = self.failures.entry(key.clone()).or_insert(0);
                let delay = BACKOFF
                    .0
                    .saturating_mul(1 << (*failures).min(16))
                    .min(BACKOFF.1);
                *failures = failures.saturating_add(1);
                Some(delay)
            }
        };
        if self.again.remove(&key) {
            self.push(key);
        } else if let Some(delay) = delay {
            self.push_after(key, now + delay);
        }
    }
}

impl WorkQueue {
    /// An empty queue; the name appears in logs and metrics.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        let state = State {
            name,
            ..State::default()
        };
        Self {
            name,
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    /// The queue's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; a poisoned lock still guards a valid state.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for work on a key as soon as possible.
    pub fn add(&self, key: impl Into<String>) {
        self.state().push(key.into());
        self.shared.changed.notify_one();
    }

    /// Asks for work on a key after a delay, unless it is asked for sooner.
    pub fn add_after(&self, key: impl Into<String>, delay: Duration) {
        self.state().push_after(key.into(), Instant::now() + delay);
        self.shared.changed.notify_one();
    }

    /// Keys that wait, those with a delay not counted.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.state().ready.len()
    }

    /// Works until `stop` resolves, then lets running work end. At most `concurrency` keys are worked
    /// on at once. Errors are logged and the key tried again with back-off.
    pub async fn run<F, W, E>(&self, concurrency: usize, stop: impl Future<Output = ()>, work: F)
    where
        F: Fn(String) -> W,
        W: Future<Output = Result<Next, E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let mut running: JoinSet<()> = JoinSet::new();
        telemetry::queue_started(self.name, concurrency);
        tokio::pin!(stop);
        loop {
            let due = self.start(concurrency, &mut running, &work);
            let measure = (!running.is_empty()).then(|| Instant::now() + MEASURE);
            let timer = async {
                match due.into_iter().chain(measure).min() {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stop => break,
                () = self.shared.changed.notified() => {}
                () = timer => {}
                Some(ended) = running.join_next(), if !running.is_empty() => self.report_panic(ended),
            }
        }
        while let Some(ended) = running.join_next().await {
            self.report_panic(ended);
        }
    }

    /// Starts work on ready keys while there is room; returns when the next delayed key is due.
    fn start<F, W, E>(
        &self,
        concurrency: usize,
        running: &mut JoinSet<()>,
        work: &F,
    ) -> Option<Instant>
    where
        F: Fn(String) -> W,
        W: Future<Output = Result<Next, E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let mut state = self.state();
        let now = Instant::now();
        let due = state.promote(now);
        while running.len() < concurrency {
            let Some(key) = state.pop(now) else {
                break;
            };
            let queue = self.clone();
            let task = work(key.clone());
            running.spawn(async move {
                // The guard frees the key even if the work panics.
                let mut guard = Guard {
                    queue,
                    key: Some(key),
                };
                let result = task.await;
                guard.finish(&result);
            });
        }
        state.measure(now);
        due
    }

    fn report_panic(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(controller = self.name, %error, "reconcile panicked");
        }
    }
}

struct Guard {
    queue: WorkQueue,
    key: Option<String>,
}

impl Guard {
    fn finish<E: fmt::Display>(&mut self, result: &Result<Next, E>) {
        let Some(key) = self.key.take() else { return };
        if let Err(error) = result {
            tracing::warn!(controller = self.queue.name, key, %error, "reconcile failed, will retry");
        }
        let end = match result {
            Ok(Next::Done) => Reconciled::Success,
            Ok(Next::After(_)) => Reconciled::RequeueAfter,
            Err(_) => Reconciled::Error,
        };
        self.queue.state().finish(key, Instant::now(), result, end);
        self.queue.shared.changed.notify_one();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let panicked: Result<Next, &str> = Err("panicked");
            let mut state = self.queue.state();
            state.finish(key, Instant::now(), &panicked, Reconciled::Panic);
            drop(state);
            self.queue.shared.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    async fn run_for(
        queue: &WorkQueue,
        span: Duration,
        work: impl Fn(String) -> Result<Next, &'static str> + Send + Sync + 'static,
    ) {
        let work = Arc::new(work);
        queue
            .run(4, tokio::time::sleep(span), move |key| {
                let work = Arc::clone(&work);
                async move { work(key) }
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_added_often_is_worked_on_once() {
        let queue = WorkQueue::new("test");
        for _ in 0..5 {
            queue.add("a");
        }
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        run_for(&queue, Duration::from_secs(1), move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            Ok(Next::Done)
        })
        .await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_success_resets_them() {
        let queue = WorkQueue::new("test");
        queue.add("a");
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        // 0, 0.1, 0.3, 0.7, 1.5 s: five attempts in two seconds.
        run_for(&queue, Duration::from_secs(2), move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            Err("no")
        })
        .await;
        assert_eq!(count.load(Ordering::Relaxed), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_is_kept_and_an_earlier_wish_wins() {
        let queue = WorkQueue::new("test");
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(1));
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        run_for(&queue, Duration::from_secs(5), move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            Ok(Next::After(Duration::from_secs(60)))
        })
        .await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_changes_during_its_work_is_worked_on_again_but_never_twice_at_once() {
        let queue = WorkQueue::new("test");
        queue.add("a");
        let (busy, most, runs) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
        );
        let inner = queue.clone();
        let (b, m, r) = (Arc::clone(&busy), Arc::clone(&most), Arc::clone(&runs));
        queue
            .run(4, tokio::time::sleep(Duration::from_secs(10)), move |key| {
                let (queue, b, m, r) = (
                    inner.clone(),
                    Arc::clone(&b),
                    Arc::clone(&m),
                    Arc::clone(&r),
                );
                async move {
                    m.fetch_max(b.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if r.fetch_add(1, Ordering::Relaxed) == 0 {
                        queue.add(key);
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    b.fetch_sub(1, Ordering::Relaxed);
                    Ok::<_, &str>(Next::Done)
                }
            })
            .await;
        assert_eq!(
            (most.load(Ordering::Relaxed), runs.load(Ordering::Relaxed)),
            (1, 2)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_contained_and_the_key_tried_again() {
        let queue = WorkQueue::new("test");
        queue.add("a");
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        run_for(&queue, Duration::from_secs(1), move |_| {
            assert_ne!(
                seen.fetch_add(1, Ordering::Relaxed),
                0,
                "first attempt panics"
            );
            Ok(Next::Done)
        })
        .await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
