//! The eviction queue: every pod that is to leave, once, with the earliest deadline anybody gave.
//!
//! A state machine without I/O: [`EvictionQueue::add`] and [`EvictionQueue::retain_live`] feed it,
//! [`EvictionQueue::due`] hands out what is to be tried now, [`EvictionQueue::settle`] takes the
//! outcome and decides about back-off.
//!
//! Source: disruption specification 4.4 and 4.5.

use std::collections::BTreeMap;

use millwright_model::{NodeName, PodKey, PodUid, Span, Timestamp};

use crate::pod::ObservedPod;

/// First pause after a refused eviction; doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_BASE: Span = Span::from_millis(100);
/// Longest pause.
pub const BACKOFF_MAX: Span = Span::from_secs(10);
/// Pods in the queue at the same time; beyond that a drain hands its pods in again a second later.
pub const CAPACITY: usize = 50_000;

/// One try to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Namespace and name.
    pub key: PodKey,
    /// Unique id: the request carries it as precondition, so that a successor with the same name
    /// is never hit.
    pub uid: PodUid,
    /// The node that is drained.
    pub node: NodeName,
    /// When the node must be empty.
    pub deadline: Option<Timestamp>,
}

/// What to do about one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete it with this grace period in whole seconds, at least 1: 0 would remove the object
    /// without the kubelet's confirmation.
    ForceDelete {
        /// Seconds.
        grace_seconds: i64,
    },
    /// Ask the Eviction API.
    Evict,
    /// Not now; try again with back-off.
    Hold,
    /// Nothing is left to do.
    Drop,
}

/// Decides about a pod as it is now.
#[must_use]
pub fn action(pod: &ObservedPod, deadline: Option<Timestamp>, now: Timestamp) -> Action {
    if let Some(deadline) = deadline.filter(|deadline| pod.is_past_deadline(Some(*deadline), now)) {
        let left = deadline.since(now).as_millis() / 1_000;
        return Action::ForceDelete {
            grace_seconds: left.max(1),
        };
    }
    if !pod.is_active() {
        Action::Drop
    } else if pod.is_evictable(now) {
        Action::Evict
    } else {
        Action::Hold
    }
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Evicted, deleted, gone or not ours any more.
    Done,
    /// Refused or failed: again with back-off.
    Again,
}

#[derive(Debug)]
struct Entry {
    node: NodeName,
    deadline: Option<Timestamp>,
    failures: u32,
    not_before: Timestamp,
    in_flight: bool,
}

/// The queue. Shape: one entry per (namespace, name, uid).
#[derive(Debug, Default)]
pub struct EvictionQueue {
    entries: BTreeMap<(PodKey, PodUid), Entry>,
}

impl EvictionQueue {
    /// Adds a pod. Adding again keeps the earlier deadline (none is the latest of all) and tries
    /// at once when it became earlier. False when the queue is full.
    pub fn add(&mut self, pod: &ObservedPod, node: &NodeName, deadline: Option<Timestamp>) -> bool {
        let key = (pod.key.clone(), pod.uid.clone());
        if let Some(entry) = self.entries.get_mut(&key) {
            let tighter = match (deadline, entry.deadline) {
                (Some(new), Some(old)) => new < old,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if tighter {
                entry.deadline = deadline;
                entry.not_before = Timestamp(0);
            }
            return true;
        }
        if self.entries.len() >= CAPACITY {
            return false;
        }
        let entry = Entry {
            node: node.clone(),
            deadline,
            failures: 0,
            not_before: Timestamp(0),
            in_flight: false,
        };
        self.entries.insert(key, entry);
        true
    }

    /// Number of pods in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no pod is in the queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether exactly this pod is in the queue.
    #[must_use]
    pub fn contains(&self, key: &PodKey, uid: &PodUid) -> bool {
        self.entries.contains_key(&(key.clone(), uid.clone()))
    }

    /// Takes up to `limit` attempts that are due, tightest deadlines first; each stays in flight
    /// until it is settled.
    pub fn due(&mut self, limit: usize, now: Timestamp) -> Vec<Attempt> {
        let mut due: Vec<_> = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| !entry.in_flight && entry.not_before <= now)
            .collect();
        due.sort_by_key(|(_, entry)| (entry.deadline.is_none(), entry.deadline, entry.not_before));
        due.into_iter()
            .take(limit)
            .map(|((key, uid), entry)| {
                entry.in_flight = true;
                Attempt {
                    key: key.clone(),
                    uid: uid.clone(),
                    node: entry.node.clone(),
                    deadline: entry.deadline,
                }
            })
            .collect()
    }

    /// When the next attempt is due, if any waits.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.entries
            .values()
            .filter(|entry| !entry.in_flight)
            .map(|entry| entry.not_before)
            .min()
    }

    /// Reports the outcome of an attempt.
    pub fn settle(&mut self, attempt: &Attempt, outcome: Outcome, now: Timestamp) {
        let key = (attempt.key.clone(), attempt.uid.clone());
        match outcome {
            Outcome::Done => {
                self.entries.remove(&key);
            }
            Outcome::Again => {
                let Some(entry) = self.entries.get_mut(&key) else {
                    return;
                };
                entry.in_flight = false;
                // A deadline that was tightened meanwhile is tried at once.
                if entry.deadline == attempt.deadline {
                    let pause = BACKOFF_BASE.0.saturating_mul(1 << entry.failures.min(20));
                    entry.not_before = now + Span::from_millis(pause.min(BACKOFF_MAX.0));
                    entry.failures = entry.failures.saturating_add(1);
                }
            }
        }
    }

    /// Drops entries whose pod is gone.
    ///
    /// Differs: the reference keeps the entry of a vanished pod for ever.
    pub fn retain_live(&mut self, is_live: impl Fn(&PodKey, &PodUid) -> bool) {
        self.entries
            .retain(|(key, uid), entry| entry.in_flight || is_live(key, uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{T0, at, pod},
        pod::DoNotDisrupt,
    };

    fn queue(deadline: Option<Timestamp>) -> EvictionQueue {
        let mut queue = EvictionQueue::default();
        assert!(queue.add(&pod("p"), &"n".into(), deadline));
        queue
    }

    #[test]
    fn the_action_follows_the_pod_and_the_deadline() {
        let slow = ObservedPod {
            grace: Some(Span::from_secs(120)),
            ..pod("slow")
        };
        let kept = ObservedPod {
            do_not_disrupt: DoNotDisrupt::Always,
            ..pod("kept")
        };
        let leaving = ObservedPod {
            deleting_at: Some(at(30)),
            ..pod("l")
        };
        let shortened = ObservedPod {
            deleting_at: Some(at(6_000)),
            ..pod("s")
        };
        let force = |grace_seconds| Action::ForceDelete { grace_seconds };
        for (pod, deadline, expected) in [
            (&pod("p"), None, Action::Evict),
            (&pod("p"), Some(at(60)), Action::Evict),
            (&kept, None, Action::Hold),
            (&kept, Some(at(10)), force(10)),
            (&slow, Some(at(60)), force(60)),
            (&pod("p"), Some(at(-3_600)), force(1)),
            (&leaving, None, Action::Drop),
            (&leaving, Some(at(60)), Action::Drop),
            (&shortened, Some(at(210)), force(210)),
        ] {
            assert_eq!(
                action(pod, deadline, T0),
                expected,
                "{} {deadline:?}",
                pod.key
            );
        }
    }

    #[test]
    fn the_earlier_deadline_is_kept() {
        let mut queue = queue(None);
        queue.add(&pod("p"), &"n".into(), Some(at(60)));
        queue.add(&pod("p"), &"n".into(), Some(at(90)));
        queue.add(&pod("p"), &"n".into(), None);
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.due(9, T0)[0].deadline, Some(at(60)));
    }

    #[test]
    fn refusals_back_off_from_a_tenth_of_a_second_to_ten() {
        let mut queue = queue(None);
        let mut now = T0;
        for pause in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
            let attempt = queue.due(1, now).pop().expect("due");
            assert!(queue.due(1, now).is_empty(), "in flight");
            queue.settle(&attempt, Outcome::Again, now);
            now = now + Span::from_millis(pause);
            assert_eq!(queue.next_due(), Some(now));
        }
    }

    #[test]
    fn a_tightened_deadline_is_tried_at_once_even_during_back_off_and_flight() {
        let mut queue = queue(None);
        let attempt = queue.due(1, T0).pop().expect("due");
        queue.add(&pod("p"), &"n".into(), Some(at(1)));
        queue.settle(&attempt, Outcome::Again, T0);
        let again = queue.due(1, T0).pop().expect("due at once");
        queue.settle(&again, Outcome::Again, T0);
        assert!(queue.due(1, T0).is_empty());
        queue.add(&pod("p"), &"n".into(), Some(T0));
        assert_eq!(queue.due(1, T0).len(), 1);
    }

    #[test]
    fn a_successor_with_the_same_name_is_another_entry() {
        let mut queue = queue(None);
        let successor = ObservedPod {
            uid: "second".into(),
            ..pod("p")
        };
        assert!(!queue.contains(&successor.key, &successor.uid));
        let attempt = queue.due(1, T0).pop().expect("due");
        queue.add(&successor, &"n".into(), None);
        queue.settle(&attempt, Outcome::Done, T0);
        assert!(queue.contains(&successor.key, &successor.uid));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn entries_of_vanished_pods_are_dropped() {
        let mut queue = queue(None);
        queue.retain_live(|_, _| false);
        assert!(queue.is_empty());
    }

    #[test]
    fn tight_deadlines_go_first() {
        let mut queue = queue(None);
        queue.add(&pod("a"), &"n".into(), None);
        queue.add(&pod("z"), &"n".into(), Some(at(5)));
        let order: Vec<String> = queue
            .due(9, T0)
            .iter()
            .map(|a| a.key.name.to_string())
            .collect();
        assert_eq!(order, ["z", "a", "p"]);
    }
}
