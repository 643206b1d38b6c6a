//! Whether a plan is valid for the snapshot it was made from.
//!
//! Knows the rules, and nothing of how plans are made: it reads the snapshot's own values, never
//! the dense problem. Slow and obvious on purpose; it runs in tests, in simulation, and sampled
//! in production.

mod claim;
mod node;
mod topology;

use std::{collections::HashMap, fmt};

use millwright_model::{
    ClusterSnapshot, Effect, Plan, Pod, PodIndex, PodSpec, Requirements, Resources, Taint,
};

use crate::problem::{strict_alternatives, unsupported};

/// The property of plans that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// P1: what is placed fits.
    Fit,
    /// P2: labels, requirements and taints go together.
    Requirements,
    /// P3: spread, affinity and host-port rules hold.
    Topology,
    /// P4: limits of NodePools hold.
    Limits,
    /// P5: types are in order of price, and the cheapest offering is named.
    Price,
    /// P9: every pod is in exactly one place, and every pod without a place has reasons.
    Explanation,
}

/// A broken rule, with what broke it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The property.
    pub property: Property,
    /// What is wrong with what.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.detail)
    }
}

/// Collects violations and what several rules need.
struct Checker<'a> {
    snapshot: &'a ClusterSnapshot,
    violations: Vec<Violation>,
}

/// Checks `plan` against `snapshot`.
///
/// # Errors
/// Every broken rule; never an empty list. Cost: pods plus, for each NodeClaim, its types times
/// its daemons.
pub fn check(snapshot: &ClusterSnapshot, plan: &Plan) -> Result<(), Vec<Violation>> {
    let mut checker = Checker {
        snapshot,
        violations: Vec::new(),
    };
    if plan.generation != snapshot.generation {
        checker.report(
            Property::Explanation,
            "the plan is for another snapshot".to_owned(),
        );
    }
    checker.check_completeness(plan);
    checker.check_nominations(plan);
    checker.check_claims(plan);
    checker.check_limits(plan);
    checker.check_topology(plan);
    if checker.violations.is_empty() {
        Ok(())
    } else {
        Err(checker.violations)
    }
}

impl<'a> Checker<'a> {
    fn report(&mut self, property: Property, detail: String) {
        self.violations.push(Violation { property, detail });
    }

    fn pod(&self, index: PodIndex) -> Option<&'a Pod> {
        let snapshot: &'a ClusterSnapshot = self.snapshot;
        snapshot.pods.get(index.0 as usize).map(AsRef::as_ref)
    }

    /// Every pod is in exactly one list, lists are ascending and not empty, and whoever has no
    /// place is told why.
    fn check_completeness(&mut self, plan: &Plan) {
        let mut seen = vec![0_u32; self.snapshot.pods.len()];
        let claims = plan
            .node_claims
            .iter()
            .map(|claim| (claim.name.to_string(), &claim.pods));
        let nodes = plan
            .nominations
            .iter()
            .map(|taken| (taken.node.to_string(), &taken.pods));
        let none = plan
            .unschedulable
            .iter()
            .map(|group| ("unschedulable".to_owned(), &group.pods));
        for (list, pods) in claims.chain(nodes).chain(none).collect::<Vec<_>>() {
            if pods.is_empty() || !pods.is_sorted() {
                self.report(
                    Property::Explanation,
                    format!("{list}: pods are missing or unordered"),
                );
            }
            for pod in pods {
                match seen.get_mut(pod.0 as usize) {
                    Some(count) => *count += 1,
                    None => {
                        let detail = format!("{list}: pod {} does not exist", pod.0);
                        self.report(Property::Explanation, detail);
                    }
                }
            }
        }
        for (at, count) in seen.iter().enumerate().filter(|(_, count)| **count != 1) {
            let key = self.snapshot.pods.get(at).map(|pod| pod.key.to_string());
            let detail = format!("pod {} is in {count} places", key.unwrap_or_default());
            self.report(Property::Explanation, detail);
        }
        for group in plan
            .unschedulable
            .iter()
            .filter(|group| group.reasons.is_empty())
        {
            let detail = format!("{} pods are refused without a reason", group.pods.len());
            self.report(Property::Explanation, detail);
        }
    }

    /// Pods that may not be placed anywhere.
    fn check_placeable(&mut self, pod: &Pod) {
        if !pod.rejections.is_empty() {
            self.report(
                Property::Requirements,
                format!("{} is invalid but placed", pod.key),
            );
        }
        if let Some(rule) = unsupported(&pod.spec, self.snapshot) {
            self.report(
                Property::Topology,
                format!("{} is placed although {rule}", pod.key),
            );
        }
    }
}

/// The first taint that keeps the pod away for good. Preferences to stay away may be relaxed.
fn keeps_away<'t>(taints: &'t [Taint], spec: &PodSpec) -> Option<&'t Taint> {
    taints.iter().find(|taint| {
        taint.effect != Effect::PreferNoSchedule
            && !spec
                .tolerations
                .iter()
                .any(|toleration| toleration.tolerates(taint))
    })
}

/// The sum of what pods ask for.
fn total<'p>(pods: impl Iterator<Item = &'p Pod>) -> Resources {
    let mut total = Resources::new();
    pods.for_each(|pod| total.add(&pod.spec.requests));
    total
}

/// Strict requirements by spec, so that replicas are read once.
#[derive(Default)]
struct Strict {
    by_spec: HashMap<*const PodSpec, Vec<Requirements>>,
}

impl Strict {
    fn of(&mut self, pod: &Pod) -> &[Requirements] {
        self.by_spec
            .entry(std::sync::Arc::as_ptr(&pod.spec))
            .or_insert_with(|| strict_alternatives(&pod.spec))
    }
}

#[cfg(test)]
mod tests;
