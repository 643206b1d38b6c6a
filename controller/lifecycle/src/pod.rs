//! A pod as eviction and disruption see it, and the predicates on it.
//!
//! Source: disruption specification 1.15 and 1.16.

use std::{collections::BTreeMap, sync::Arc};

use millwright_model::{Name, PodKey, PodUid, Span, Timestamp, Toleration};

use crate::observed::disrupted_taint;

/// How long beyond its deletion time a terminating pod is waited for. Deletion times already
/// include the grace period.
pub const STUCK_AFTER: Span = Span::from_secs(60);

/// A bound pod, reduced to what draining, budgets and emptiness read (about 200 bytes; label maps
/// and tolerations are shared between replicas by whoever builds it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPod {
    /// Namespace and name.
    pub key: PodKey,
    /// Unique id.
    pub uid: PodUid,
    /// Labels, for the selectors of PodDisruptionBudgets.
    pub labels: Arc<BTreeMap<Name, Name>>,
    /// Whether the phase is Succeeded or Failed.
    pub terminal: bool,
    /// `metadata.deletionTimestamp`: when the kubelet must have killed it.
    pub deleting_at: Option<Timestamp>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace: Option<Span>,
    /// `status.startTime`.
    pub started_at: Option<Timestamp>,
    /// Whether the condition Ready is False (not missing, not Unknown).
    pub unready: bool,
    /// Whether a DaemonSet owns it.
    pub is_daemon: bool,
    /// Whether it mirrors a static pod (a Node owns it).
    pub is_mirror: bool,
    /// Whether a StatefulSet owns it.
    pub is_stateful: bool,
    /// Whether its priority class is one of the two system-critical ones.
    pub is_critical: bool,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// The annotation `controller.kubernetes.io/pod-deletion-cost`, if it is a number.
    pub deletion_cost: Option<i64>,
    /// The annotation `karpenter.sh/do-not-disrupt`.
    pub do_not_disrupt: DoNotDisrupt,
    /// Tolerations.
    pub tolerations: Arc<[Toleration]>,
    /// Names of its PersistentVolumeClaims, in its namespace.
    pub volume_claims: Arc<[Name]>,
}

impl ObservedPod {
    /// A running pod about which nothing special is known.
    #[must_use]
    pub fn new(key: PodKey, uid: PodUid) -> Self {
        Self {
            key,
            uid,
            labels: Arc::default(),
            terminal: false,
            deleting_at: None,
            grace: None,
            started_at: None,
            unready: false,
            is_daemon: false,
            is_mirror: false,
            is_stateful: false,
            is_critical: false,
            priority: None,
            deletion_cost: None,
            do_not_disrupt: DoNotDisrupt::Absent,
            tolerations: Arc::default(),
            volume_claims: Arc::default(),
        }
    }

    /// Neither terminal nor terminating.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        !self.terminal && self.deleting_at.is_none()
    }

    /// Whether it runs on in spite of the `karpenter.sh/disrupted` taint.
    #[must_use]
    pub fn tolerates_disrupted(&self) -> bool {
        let taint = disrupted_taint();
        self.tolerations
            .iter()
            .any(|toleration| toleration.tolerates(&taint))
    }

    /// Whether it has been terminating for more than [`STUCK_AFTER`] beyond its deletion time.
    #[must_use]
    pub fn is_stuck(&self, now: Timestamp) -> bool {
        self.deleting_at
            .is_some_and(|at| now.since(at) > STUCK_AFTER)
    }

    /// Whether it will need a new home when its node goes.
    #[must_use]
    pub const fn is_reschedulable(&self) -> bool {
        let moving = self.is_active() || (self.is_stateful && self.deleting_at.is_some());
        moving && !self.is_daemon && !self.is_mirror
    }

    /// Whether the Eviction API may be asked to evict it.
    #[must_use]
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        self.is_active()
            && !self.tolerates_disrupted()
            && !self.is_mirror
            && !self.do_not_disrupt.is_active(self.started_at, now)
    }

    /// Whether a drain waits for it to go.
    #[must_use]
    pub fn is_drainable(&self, now: Timestamp) -> bool {
        !self.tolerates_disrupted() && !self.is_stuck(now) && !self.is_mirror
    }

    /// Whether a drain still has to wait for it.
    #[must_use]
    pub fn is_waiting_eviction(&self, now: Timestamp) -> bool {
        !self.terminal && self.is_drainable(now)
    }

    /// Whether its annotation permits a voluntary disruption of its node.
    #[must_use]
    pub fn is_disruptable(&self, now: Timestamp) -> bool {
        !self.is_active() || !self.do_not_disrupt.is_active(self.started_at, now)
    }

    /// Whether it must be deleted now so that it is gone by the deadline of its node: deletion
    /// begins early enough for its full grace period, and a grace period that reaches beyond the
    /// deadline is cut.
    #[must_use]
    pub fn is_past_deadline(&self, deadline: Option<Timestamp>, now: Timestamp) -> bool {
        match (deadline, self.deleting_at, self.grace) {
            (None, _, _) | (Some(_), None, None) => false,
            (Some(deadline), Some(at), _) => at > deadline,
            (Some(deadline), None, Some(grace)) => now > deadline - grace,
        }
    }

    /// What evicting it costs, in units of 2^-27: `1 + deletionCost/2^27 + priority/2^25`,
    /// clamped to -10..=10.
    #[must_use]
    pub fn eviction_cost(&self) -> i64 {
        const ONE: i64 = 1 << 27;
        let cost = self.deletion_cost.unwrap_or(0).clamp(-20 * ONE, 20 * ONE);
        let priority = i64::from(self.priority.unwrap_or(0)) * 4;
        (ONE + cost + priority).clamp(-10 * ONE, 10 * ONE)
    }
}

/// The annotation `karpenter.sh/do-not-disrupt` of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoNotDisrupt {
    /// Not there.
    Absent,
    /// `true`: until it is removed.
    Always,
    /// A positive duration, counted from the pod's start.
    For(Span),
    /// Neither `true` nor a positive duration: protects from nothing, and its owner is told.
    Invalid(Name),
}

impl DoNotDisrupt {
    /// Reads the annotation's value.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            None => Self::Absent,
            Some("true") => Self::Always,
            Some(text) => match parse_duration(text) {
                Some(span) if span > Span::from_millis(0) => Self::For(span),
                _ => Self::Invalid(text.into()),
            },
        }
    }

    /// Whether it protects now. A pod that has not started yet is protected.
    #[must_use]
    pub fn is_active(&self, started_at: Option<Timestamp>, now: Timestamp) -> bool {
        match self {
            Self::Absent | Self::Invalid(_) => false,
            Self::Always => true,
            Self::For(span) => started_at.is_none_or(|at| now.since(at) < *span),
        }
    }
}

/// Reads a duration as Go prints and parses it (`1h30m`, `1.5h`, `300ms`, `-5s`, `0`); precision
/// below a millisecond is cut. `None` for anything else, also for what exceeds 64 bits.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Span> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(Span::from_millis(0));
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .filter(|end| *end > 0)?;
        let (digits, tail) = rest.split_at(number);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        nanos += scaled(digits, unit_nanos(unit)?)?;
        rest = tail;
    }
    i64::try_from(nanos).ok()?;
    let millis = i64::try_from(nanos / 1_000_000).ok()?;
    Some(Span::from_millis(if negative { -millis } else { millis }))
}

fn unit_nanos(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `digits` is a decimal number with at most one point and at least one digit.
fn scaled(digits: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) || whole.len() > 19 {
        return None;
    }
    let mut total = if whole.is_empty() {
        0
    } else {
        whole.parse::<i128>().ok()?
    } * unit;
    let mut scale = unit;
    for digit in fraction.bytes().take(13) {
        scale /= 10;
        total += i128::from(digit - b'0') * scale;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, pod};
    use millwright_model::taints::TolerationOperator;

    fn tolerating(key: &str, operator: TolerationOperator) -> ObservedPod {
        let toleration = Toleration {
            key: key.into(),
            operator,
            value: "".into(),
            effect: None,
        };
        ObservedPod {
            tolerations: [toleration].into(),
            ..pod("t")
        }
    }

    #[test]
    fn durations_read_as_go_reads_them() {
        for (text, millis) in [
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("300ms", Some(300)),
            ("-5s", Some(-5_000)),
            ("0", Some(0)),
            (".5s", Some(500)),
            ("1us", Some(0)),
            ("5", None),
            ("", None),
            ("-", None),
            ("h", None),
            ("1.2.3s", None),
            (".s", None),
            ("yes", None),
            ("10000000000h", None),
        ] {
            assert_eq!(
                parse_duration(text).map(Span::as_millis),
                millis,
                "{text:?}"
            );
        }
    }

    #[test]
    fn do_not_disrupt_protects_for_ever_for_a_time_or_not_at_all() {
        for (value, started, seconds, active) in [
            (None, true, 0, false),
            (Some("true"), true, 1_000_000, true),
            (Some("false"), true, 0, false),
            (Some("yes"), true, 0, false),
            (Some("0"), true, 0, false),
            (Some("-5m"), true, 0, false),
            (Some("5m"), true, 299, true),
            (Some("5m"), true, 300, false),
            (Some("5m"), false, 1_000_000, true),
        ] {
            let protection = DoNotDisrupt::parse(value);
            let started = started.then_some(T0);
            assert_eq!(
                protection.is_active(started, at(seconds)),
                active,
                "{value:?} {seconds}"
            );
        }
        assert_eq!(
            DoNotDisrupt::parse(Some("yes")),
            DoNotDisrupt::Invalid("yes".into())
        );
    }

    #[test]
    fn predicates_follow_the_table() {
        let plain = pod("p");
        let daemon = ObservedPod {
            is_daemon: true,
            ..pod("d")
        };
        let mirror = ObservedPod {
            is_mirror: true,
            ..pod("m")
        };
        let done = ObservedPod {
            terminal: true,
            ..pod("f")
        };
        let leaving = ObservedPod {
            deleting_at: Some(at(10)),
            ..pod("l")
        };
        let leaving_stateful = ObservedPod {
            is_stateful: true,
            ..leaving.clone()
        };
        let tolerant = tolerating("karpenter.sh/disrupted", TolerationOperator::Exists);
        let cordon = tolerating(
            "node.kubernetes.io/unschedulable",
            TolerationOperator::Exists,
        );
        let kept = ObservedPod {
            do_not_disrupt: DoNotDisrupt::Always,
            ..pod("k")
        };
        //                  reschedulable evictable waiting disruptable
        for (pod, expected) in [
            (&plain, [true, true, true, true]),
            (&daemon, [false, true, true, true]),
            (&mirror, [false, false, false, true]),
            (&done, [false, false, false, true]),
            (&leaving, [false, false, true, true]),
            (&leaving_stateful, [true, false, true, true]),
            (&tolerant, [true, false, false, true]),
            (&cordon, [true, true, true, true]),
            (&kept, [true, false, true, false]),
        ] {
            let now = at(1);
            let seen = [
                pod.is_reschedulable(),
                pod.is_evictable(now),
                pod.is_waiting_eviction(now),
                pod.is_disruptable(now),
            ];
            assert_eq!(seen, expected, "{}", pod.key);
        }
    }

    #[test]
    fn a_pod_that_is_stuck_for_more_than_a_minute_is_not_waited_for() {
        let leaving = ObservedPod {
            deleting_at: Some(T0),
            ..pod("l")
        };
        assert!(leaving.is_waiting_eviction(at(60)));
        assert!(!leaving.is_waiting_eviction(at(61)));
    }

    #[test]
    fn deletion_begins_early_enough_for_the_full_grace_period_and_cuts_longer_ones() {
        let deadline = Some(at(300));
        let grace = |seconds| ObservedPod {
            grace: Some(Span::from_secs(seconds)),
            ..pod("g")
        };
        for (pod, seconds, past) in [
            (grace(60), 90, false),
            (grace(60), 240, false),
            (grace(60), 241, true),
            (grace(600), 0, true),
            (
                ObservedPod {
                    grace: None,
                    ..pod("n")
                },
                10_000,
                false,
            ),
            (
                ObservedPod {
                    deleting_at: Some(at(301)),
                    ..grace(1)
                },
                0,
                true,
            ),
            (
                ObservedPod {
                    deleting_at: Some(at(300)),
                    ..grace(1)
                },
                0,
                false,
            ),
        ] {
            assert_eq!(
                pod.is_past_deadline(deadline, at(seconds)),
                past,
                "{pod:?} at {seconds}"
            );
            assert!(!pod.is_past_deadline(None, at(seconds)));
        }
    }

    #[test]
    fn eviction_cost_weighs_priority_and_deletion_cost_and_is_clamped() {
        const ONE: i64 = 1 << 27;
        let cost = |priority, deletion_cost| {
            ObservedPod {
                priority,
                deletion_cost,
                ..pod("c")
            }
            .eviction_cost()
        };
        assert_eq!(cost(None, None), ONE);
        assert_eq!(cost(Some(1 << 25), None), 2 * ONE);
        assert_eq!(cost(None, Some(-ONE)), 0);
        assert_eq!(cost(Some(i32::MIN), Some(i64::MIN)), -10 * ONE);
        assert_eq!(cost(Some(i32::MAX), Some(i64::MAX)), 10 * ONE);
    }
}
