//! Draining a node: which pods are to be evicted now, and whether the node is empty.
//!
//! Source: disruption specification 4.3 and 4.5.

use millwright_model::{Span, Timestamp};

use crate::pod::ObservedPod;

/// How often a drain looks again.
pub const POLL: Span = Span::from_secs(1);
/// How long a drain lasts at least when the node has a claim: pods bound just before the taint was
/// seen are caught.
pub const MINIMUM: Span = Span::from_secs(5);

/// Order in which graceful pods go. A group must be gone before the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Plain,
    Daemon,
    Critical,
    CriticalDaemon,
}

const fn group(pod: &ObservedPod) -> Group {
    match (pod.is_critical, pod.is_daemon) {
        (false, false) => Group::Plain,
        (false, true) => Group::Daemon,
        (true, false) => Group::Critical,
        (true, true) => Group::CriticalDaemon,
    }
}

/// What a drain needs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain<'a> {
    /// Pods to hand to the eviction queue: all that are past the deadline, then the first group
    /// of the others; in the order given.
    pub evict: Vec<&'a ObservedPod>,
    /// Pods that are still waited for, those of later groups among them.
    pub waiting: usize,
}

/// Decides about the pods that are bound to a node.
#[must_use]
pub fn drain<'a>(
    pods: impl IntoIterator<Item = &'a ObservedPod>,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Drain<'a> {
    let waiting: Vec<&ObservedPod> = pods
        .into_iter()
        .filter(|pod| pod.is_waiting_eviction(now))
        .collect();
    let (mut evict, graceful): (Vec<&ObservedPod>, Vec<&ObservedPod>) = waiting
        .iter()
        .partition(|pod| pod.is_past_deadline(deadline, now));
    if let Some(first) = graceful.iter().map(|pod| group(pod)).min() {
        evict.extend(graceful.iter().filter(|pod| group(pod) == first));
    }
    Drain {
        evict,
        waiting: waiting.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{T0, at, pod},
        pod::DoNotDisrupt,
    };

    fn evicted(pods: &[ObservedPod], deadline: Option<Timestamp>, now: Timestamp) -> Vec<String> {
        drain(pods, deadline, now)
            .evict
            .iter()
            .map(|pod| pod.key.name.to_string())
            .collect()
    }

    #[test]
    fn groups_go_one_after_the_other() {
        let mut pods = vec![
            ObservedPod {
                is_critical: true,
                is_daemon: true,
                ..pod("critical-daemon")
            },
            ObservedPod {
                is_critical: true,
                ..pod("critical")
            },
            ObservedPod {
                is_daemon: true,
                ..pod("daemon")
            },
            pod("plain"),
        ];
        for expected in ["plain", "daemon", "critical", "critical-daemon"] {
            assert_eq!(evicted(&pods, None, T0), [expected]);
            assert_eq!(drain(&pods, None, T0).waiting, pods.len());
            pods.pop();
        }
        assert_eq!(
            drain(&pods, None, T0),
            Drain {
                evict: Vec::new(),
                waiting: 0
            }
        );
    }

    #[test]
    fn a_group_whose_pods_are_only_terminating_still_holds_the_next_one_back() {
        let pods = [
            ObservedPod {
                deleting_at: Some(at(30)),
                ..pod("leaving")
            },
            ObservedPod {
                is_critical: true,
                ..pod("critical")
            },
        ];
        assert_eq!(evicted(&pods, None, T0), ["leaving"]);
        assert_eq!(
            evicted(&pods, None, at(91)),
            ["critical"],
            "stuck pods are not waited for"
        );
    }

    #[test]
    fn a_protected_pod_is_waited_for() {
        let pods = [ObservedPod {
            do_not_disrupt: DoNotDisrupt::Always,
            ..pod("kept")
        }];
        assert_eq!(drain(&pods, None, T0).waiting, 1);
    }

    #[test]
    fn pods_past_their_deadline_go_at_once_whatever_their_group() {
        let pods = [
            pod("plain"),
            ObservedPod {
                grace: Some(Span::from_secs(600)),
                is_critical: true,
                ..pod("slow")
            },
        ];
        assert_eq!(evicted(&pods, Some(at(300)), T0), ["slow", "plain"]);
    }

    #[test]
    fn mirror_and_finished_pods_hold_nothing_up() {
        let pods = [
            ObservedPod {
                is_mirror: true,
                ..pod("mirror")
            },
            ObservedPod {
                terminal: true,
                ..pod("done")
            },
        ];
        assert_eq!(
            drain(&pods, None, T0),
            Drain {
                evict: Vec::new(),
                waiting: 0
            }
        );
    }
}
