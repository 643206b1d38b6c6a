//! The pods that wait for a node.
//!
//! Active ones are tried by priority, then in the order in which they came. What found no node is parked
//! until something changes that may help it; what failed for another reason comes back after a pause.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::pod::PodInfo;

/// First pause after a failed binding; it doubles.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Higher priority first, then first come, first served.
type Rank = (Reverse<i32>, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active,
    Parked,
    Paused(Instant),
}

#[derive(Debug)]
struct Waiting {
    pod: Arc<PodInfo>,
    rank: Rank,
    place: Place,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pods: HashMap<String, Waiting>,
    active: BTreeMap<Rank, String>,
    paused: BTreeMap<(Instant, u64), String>,
    failures: HashMap<String, u32>,
    sequence: u64,
}

impl Queue {
    /// Takes a pod that waits, or its new state. A parked pod is tried again only when what it asks for
    /// has changed: its status is what we write ourselves.
    pub(super) fn push(&mut self, pod: Arc<PodInfo>) {
        if let Some(known) = self.pods.get_mut(&pod.uid) {
            let is_same = known.pod.spec == pod.spec && known.pod.labels == pod.labels;
            known.pod = pod.clone();
            if !is_same {
                self.activate(&pod.uid);
            }
            return;
        }
        self.insert(pod, Place::Active);
    }

    fn insert(&mut self, pod: Arc<PodInfo>, place: Place) {
        self.sequence += 1;
        let rank = (Reverse(pod.priority), self.sequence);
        let uid = pod.uid.clone();
        match place {
            Place::Active => {
                self.active.insert(rank, uid.clone());
            }
            Place::Paused(until) => {
                self.paused.insert((until, rank.1), uid.clone());
            }
            Place::Parked => {}
        }
        self.pods.insert(uid, Waiting { pod, rank, place });
    }

    /// Takes out the next pod to try; `park`, `pause` or `forget` tells what became of it.
    pub(super) fn pop(&mut self) -> Option<Arc<PodInfo>> {
        let (_, uid) = self.active.pop_first()?;
        self.pods.remove(&uid).map(|waiting| waiting.pod)
    }

    /// Puts back a pod for which there is no node.
    pub(super) fn park(&mut self, pod: Arc<PodInfo>) {
        self.insert(pod, Place::Parked);
    }

    /// Puts back a pod whose binding failed.
    pub(super) fn pause(&mut self, pod: Arc<PodInfo>, now: Instant) {
        let failures = self.failures.entry(pod.uid.clone()).or_default();
        let pause = BACKOFF * 2_u32.pow((*failures).min(10));
        *failures += 1;
        self.insert(pod, Place::Paused(now + pause.min(BACKOFF_MAX)));
    }

    /// Forgets a pod that is bound or gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.failures.remove(uid);
        if let Some(waiting) = self.pods.remove(uid) {
            self.active.remove(&waiting.rank);
            if let Place::Paused(until) = waiting.place {
                self.paused.remove(&(until, waiting.rank.1));
            }
        }
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|waiting| &waiting.pod)
    }

    /// All pods that wait.
    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        self.pods.keys().map(String::as_str)
    }

    pub(super) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Makes the parked pods active that may fit now.
    pub(super) fn wake(&mut self, may_fit: impl Fn(&PodInfo) -> bool) {
        let parked = self.pods.values();
        let parked = parked.filter(|waiting| waiting.place == Place::Parked);
        let woken = parked.filter(|waiting| may_fit(&waiting.pod));
        let woken: Vec<String> = woken.map(|waiting| waiting.pod.uid.clone()).collect();
        for uid in woken {
            self.activate(&uid);
        }
    }

    /// When `advance` has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.paused.keys().next().map(|(at, _)| *at)
    }

    /// Makes the pods active whose pause is over.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some((at, _)) = self.paused.first_key_value()
            && at.0 <= now
            && let Some((_, uid)) = self.paused.pop_first()
        {
            self.activate(&uid);
        }
    }

    fn activate(&mut self, uid: &str) {
        if let Some(waiting) = self.pods.get_mut(uid) {
            if let Place::Paused(until) = waiting.place {
                self.paused.remove(&(until, waiting.rank.1));
            }
            waiting.place = Place::Active;
            self.active.insert(waiting.rank, uid.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test_objects::pod;
    use super::*;

    fn waiting(name: &str, priority: i32) -> Arc<PodInfo> {
        Arc::new(pod(name, &json!({"spec": {"priority": priority}})))
    }

    fn drain(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop())
            .map(|pod| pod.name.clone())
            .collect()
    }

    #[test]
    fn by_priority_then_first_come_first_served() {
        let mut queue = Queue::default();
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
            queue.push(waiting(name, priority));
        }
        queue.forget("c");
        assert_eq!(drain(&mut queue), ["b", "d", "a"]);
    }

    #[test]
    fn parked_pods_wait_for_what_may_help_them() {
        let mut queue = Queue::default();
        for name in ["a", "b"] {
            queue.park(waiting(name, 0));
        }
        assert!(!queue.has_active());
        queue.wake(|pod| pod.name == "b");
        assert_eq!(drain(&mut queue), ["b"]);
        queue.push(waiting("a", 0));
        assert!(!queue.has_active(), "its status alone has changed");
        queue.push(waiting("a", 7));
        assert_eq!(drain(&mut queue), ["a"], "it asks for something else");
    }

    #[test]
    fn failed_bindings_pause_longer_up_to_the_bound() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            queue.pause(waiting("a", 0), now);
            let at = queue.next_deadline().expect("an end");
            pauses.push(at - now);
            queue.advance(at);
            assert!(queue.pop().is_some());
        }
        assert_eq!(pauses[..2], [BACKOFF, BACKOFF * 2]);
        assert_eq!(pauses.last(), Some(&BACKOFF_MAX));
        assert_eq!(queue.next_deadline(), None);
    }
}
