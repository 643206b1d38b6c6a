//! PodDisruptionBudgets as the Eviction API will judge them.
//!
//! Source: disruption specification 1.17.

use millwright_model::{Name, Timestamp, requirement::Operator, topology::LabelSelector};

use crate::pod::ObservedPod;

/// A PodDisruptionBudget.
#[derive(Clone, Debug)]
pub struct ObservedPdb {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// Which pods; `None` matches none.
    pub selector: Option<LabelSelector>,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// Whether the spec can never allow a disruption: `maxUnavailable` 0 or 0%, or
    /// `minAvailable` 100%.
    pub fully_blocking: bool,
    /// Whether `unhealthyPodEvictionPolicy` is `AlwaysAllow`.
    pub unhealthy_always_allowed: bool,
}

impl ObservedPdb {
    fn matches(&self, pod: &ObservedPod) -> bool {
        self.namespace == pod.key.namespace
            && self
                .selector
                .as_ref()
                .is_some_and(|selector| selects(selector, pod))
    }
}

/// Whether a selector selects a pod's labels.
fn selects(selector: &LabelSelector, pod: &ObservedPod) -> bool {
    let pairs = selector
        .match_labels
        .iter()
        .all(|(key, value)| pod.labels.get(key) == Some(value));
    pairs
        && selector
            .match_expressions
            .iter()
            .all(|(key, operator, values)| {
                let own = pod.labels.get(key);
                match operator {
                    Operator::In => own.is_some_and(|value| values.contains(value)),
                    Operator::NotIn => own.is_none_or(|value| !values.contains(value)),
                    Operator::Exists => own.is_some(),
                    Operator::DoesNotExist => own.is_none(),
                    // A label selector has no numeric operators; the API server refuses them.
                    _ => false,
                }
            })
}

/// Which test a budget must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdbTest {
    /// `disruptionsAllowed` is zero now.
    ZeroNow,
    /// The spec never allows a disruption.
    FullyBlocking,
}

/// The budgets (`namespace/name`) that keep `pod` from being evicted; empty when it may go.
///
/// Only evictable pods are tested. Two matching budgets block, because the API rejects that.
#[must_use]
pub fn blocking(
    pod: &ObservedPod,
    pdbs: &[ObservedPdb],
    test: PdbTest,
    now: Timestamp,
) -> Vec<Name> {
    if !pod.is_evictable(now) {
        return Vec::new();
    }
    let matching: Vec<&ObservedPdb> = pdbs.iter().filter(|pdb| pdb.matches(pod)).collect();
    let name = |pdb: &&ObservedPdb| Name::from(format!("{}/{}", pdb.namespace, pdb.name));
    match matching.as_slice() {
        [] => Vec::new(),
        [pdb] if pdb.unhealthy_always_allowed && pod.unready => Vec::new(),
        [pdb] => {
            let blocked = match test {
                PdbTest::ZeroNow => pdb.disruptions_allowed == 0,
                PdbTest::FullyBlocking => pdb.fully_blocking,
            };
            if blocked { vec![name(pdb)] } else { Vec::new() }
        }
        several => several.iter().map(name).collect(),
    }
}

/// Whether a pod will need a new home and can leave its present one voluntarily.
#[must_use]
pub fn is_currently_reschedulable(pod: &ObservedPod, pdbs: &[ObservedPdb], now: Timestamp) -> bool {
    pod.is_reschedulable()
        && pod.is_disruptable(now)
        && blocking(pod, pdbs, PdbTest::FullyBlocking, now).is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{T0, pod};

    fn pdb(name: &str, allowed: i32) -> ObservedPdb {
        ObservedPdb {
            namespace: "default".into(),
            name: name.into(),
            selector: Some(LabelSelector {
                match_labels: vec![("app".into(), "web".into())],
                match_expressions: Vec::new(),
            }),
            disruptions_allowed: allowed,
            fully_blocking: false,
            unhealthy_always_allowed: false,
        }
    }

    fn web() -> ObservedPod {
        ObservedPod {
            labels: Arc::new([("app".into(), "web".into())].into()),
            ..pod("web")
        }
    }

    #[test]
    fn a_budget_blocks_when_it_allows_nothing_or_is_one_of_two() {
        let blocked = |pdbs: &[ObservedPdb]| blocking(&web(), pdbs, PdbTest::ZeroNow, T0).len();
        assert_eq!(blocked(&[]), 0);
        assert_eq!(blocked(&[pdb("a", 1)]), 0);
        assert_eq!(blocked(&[pdb("a", 0)]), 1);
        assert_eq!(blocked(&[pdb("a", 1), pdb("b", 1)]), 2);
        assert_eq!(
            blocked(&[ObservedPdb {
                namespace: "other".into(),
                ..pdb("a", 0)
            }]),
            0
        );
        assert_eq!(
            blocked(&[ObservedPdb {
                selector: None,
                ..pdb("a", 0)
            }]),
            0
        );
        let everything = Some(LabelSelector::default());
        assert_eq!(
            blocked(&[ObservedPdb {
                selector: everything,
                ..pdb("a", 0)
            }]),
            1
        );
    }

    #[test]
    fn an_unhealthy_pod_passes_where_the_budget_always_allows_it() {
        let lenient = ObservedPdb {
            unhealthy_always_allowed: true,
            ..pdb("a", 0)
        };
        let unready = ObservedPod {
            unready: true,
            ..web()
        };
        assert!(
            blocking(
                &unready,
                std::slice::from_ref(&lenient),
                PdbTest::ZeroNow,
                T0
            )
            .is_empty()
        );
        assert!(!blocking(&unready, &[pdb("a", 0)], PdbTest::ZeroNow, T0).is_empty());
        assert!(!blocking(&web(), &[lenient], PdbTest::ZeroNow, T0).is_empty());
    }

    #[test]
    fn mirror_and_terminating_pods_are_never_blocked() {
        let mirror = ObservedPod {
            is_mirror: true,
            ..web()
        };
        let leaving = ObservedPod {
            deleting_at: Some(T0),
            ..web()
        };
        for pod in [mirror, leaving] {
            assert!(blocking(&pod, &[pdb("a", 0)], PdbTest::ZeroNow, T0).is_empty());
        }
    }

    #[test]
    fn only_a_budget_that_can_never_allow_anything_keeps_a_pod_from_being_planned_elsewhere() {
        assert!(is_currently_reschedulable(&web(), &[pdb("a", 0)], T0));
        let never = ObservedPdb {
            fully_blocking: true,
            ..pdb("a", 0)
        };
        assert!(!is_currently_reschedulable(&web(), &[never], T0));
    }
}
