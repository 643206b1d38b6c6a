//! The work queue: which objects want to be looked at, and when.
//!
//! A key is in it once. A key that is being worked on is not handed out again before that work is
//! finished, so two batches of writes for one object never run at once. All of it is a function of the
//! instants it is given.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

/// Between two looks at one object: what changes faster than this is looked at together.
const REST: Duration = Duration::from_millis(10);

/// First pause after a failure; it doubles.
const BACKOFF: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Where a key stands. A key that is not in the table is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Handed out; whether it was asked for again since.
    Busy {
        again: bool,
    },
    /// Not before that instant; whether it is wanted then.
    Resting {
        until: (Instant, u64),
        again: bool,
    },
}

/// How the work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There was nothing to write, and there may be something after this time.
    Settled(Option<Duration>),
    /// Everything was written: look again.
    Written,
    /// Something failed: look again after a pause.
    Failed,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    states: HashMap<T, State>,
    ready: VecDeque<T>,
    timers: BTreeMap<(Instant, u64), T>,
    /// Looks that are due later without anybody asking: a pod becomes available with time.
    later: BTreeMap<(Instant, u64), T>,
    /// Where a key stands in `later`: at most once.
    due: HashMap<T, (Instant, u64)>,
    failures: HashMap<T, u32>,
    sequence: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            states: HashMap::new(),
            ready: VecDeque::new(),
            timers: BTreeMap::new(),
            later: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
        }
    }
}

impl<T: Clone + Eq + Hash> Queue<T> {
    /// Asks for a look at a key.
    pub(super) fn push(&mut self, key: T) {
        match self.states.get_mut(&key) {
            None => {
                self.ready.push_back(key.clone());
                self.states.insert(key, State::Ready);
            }
            Some(State::Ready) => {}
            Some(State::Busy { again } | State::Resting { again, .. }) => *again = true,
        }
    }

    /// Hands out the next key; `finish` must follow.
    pub(super) fn pop(&mut self) -> Option<T> {
        let key = self.ready.pop_front()?;
        self.states
            .insert(key.clone(), State::Busy { again: false });
        Some(key)
    }

    /// Takes back a key that was handed out.
    pub(super) fn finish(&mut self, key: T, outcome: Outcome, now: Instant) {
        let asked = matches!(self.states.get(&key), Some(State::Busy { again: true }));
        match outcome {
            Outcome::Settled(later) => {
                self.failures.remove(&key);
                self.rest(key.clone(), now + REST, asked);
                if let Some(later) = later {
                    let at = self.at(now + later);
                    self.later.insert(at, key.clone());
                    if let Some(before) = self.due.insert(key, at) {
                        self.later.remove(&before);
                    }
                }
            }
            Outcome::Written => {
                self.failures.remove(&key);
                self.states.remove(&key);
                self.push(key);
            }
            Outcome::Failed => {
                let failures = self.failures.entry(key.clone()).or_default();
                let pause = BACKOFF * 2_u32.pow((*failures).min(10));
                *failures += 1;
                self.rest(key, now + pause.min(BACKOFF_MAX), true);
            }
        }
    }

    /// When `advance` has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let first = |map: &BTreeMap<(Instant, u64), T>| map.keys().next().map(|(at, _)| *at);
        [first(&self.timers), first(&self.later)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Wakes what has rested long enough.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(entry) = self
            .later
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let key = entry.remove();
            self.due.remove(&key);
            self.push(key);
        }
        while let Some(entry) = self
            .timers
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let at = *entry.key();
            let key = entry.remove();
            let Some(State::Resting { until, again }) = self.states.get(&key).copied() else {
                continue;
            };
            if until == at {
                self.states.remove(&key);
                if again {
                    self.push(key);
                }
            }
        }
    }

    fn rest(&mut self, key: T, until: Instant, again: bool) {
        let until = self.at(until);
        self.timers.insert(until, key.clone());
        self.states.insert(key, State::Resting { until, again });
    }

    fn at(&mut self, instant: Instant) -> (Instant, u64) {
        self.sequence += 1;
        (instant, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_handed_out_once_and_again_when_asked_meanwhile() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.push("a");
        queue.push("a");
        assert_eq!(queue.pop(), Some("a"));
        queue.push("a");
        assert_eq!(queue.pop(), None, "it is being worked on");
        queue.finish("a", Outcome::Settled(None), now);
        assert_eq!(queue.pop(), None, "it rests");
        queue.advance(now + REST);
        assert_eq!(queue.pop(), Some("a"));
        queue.finish("a", Outcome::Settled(None), now);
        queue.advance(now + REST);
        assert_eq!(queue.pop(), None, "nobody asked");
        assert_eq!(queue.next_deadline(), None);
    }

    #[test]
    fn failures_pause_longer_and_longer_up_to_the_bound() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.push("a");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert_eq!(queue.pop(), Some("a"));
            queue.finish("a", Outcome::Failed, now);
            let at = queue.next_deadline().expect("a retry");
            pauses.push(at - now);
            queue.advance(at);
        }
        assert_eq!(pauses[..3], [BACKOFF, BACKOFF * 2, BACKOFF * 4]);
        assert_eq!(pauses.last(), Some(&BACKOFF_MAX));
        queue.pop();
        queue.finish("a", Outcome::Written, now);
        assert_eq!(queue.pop(), Some("a"), "what was written is looked at");
        queue.finish("a", Outcome::Failed, now);
        assert_eq!(queue.next_deadline(), Some(now + BACKOFF), "forgiven");
    }

    #[test]
    fn a_later_look_needs_no_asking() {
        let now = Instant::now();
        let later = Duration::from_secs(3);
        let mut queue = Queue::default();
        queue.push("a");
        queue.pop();
        queue.finish("a", Outcome::Settled(Some(later)), now);
        queue.advance(now + REST);
        assert_eq!(queue.pop(), None);
        queue.advance(now + later);
        assert_eq!(queue.pop(), Some("a"));
    }
}
