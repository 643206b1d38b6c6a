//! When what happened: the times of a burst, taken from watch events.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use millwright_api::NodeClaim;

/// What is timed, in the order in which it happens to one pod and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// The pod exists.
    Created,
    /// The kube-scheduler has said that the pod fits nowhere.
    Marked,
    /// The NodeClaim exists.
    Claimed,
    /// The NodeClaim has an instance.
    Launched,
    /// The instance is a Node.
    Registered,
    /// The pod has a node.
    Bound,
}

impl Step {
    pub(super) const ALL: [Self; 6] = [
        Self::Created,
        Self::Marked,
        Self::Claimed,
        Self::Launched,
        Self::Registered,
        Self::Bound,
    ];

    /// The name in the table.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Created => "pods created",
            Self::Marked => "pods marked unschedulable",
            Self::Claimed => "nodeclaims created",
            Self::Launched => "nodeclaims launched",
            Self::Registered => "nodes registered",
            Self::Bound => "pods bound",
        }
    }
}

/// The first time of each step of each object.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    seen: HashMap<(Step, String), Duration>,
}

impl Timeline {
    fn note(&mut self, step: Step, uid: &str, at: Duration) {
        self.seen.entry((step, uid.to_owned())).or_insert(at);
    }

    /// Takes in a pod as it was at a time.
    pub(super) fn pod(&mut self, pod: &Pod, at: Duration) {
        let uid = pod.uid().unwrap_or_default();
        self.note(Step::Created, &uid, at);
        let conditions = pod.status.iter().flat_map(|status| &status.conditions);
        let marked = conditions.flatten().any(|condition| {
            condition.type_ == "PodScheduled"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("Unschedulable")
        });
        if marked {
            self.note(Step::Marked, &uid, at);
        }
        if pod.spec.as_ref().is_some_and(|s| s.node_name.is_some()) {
            self.note(Step::Bound, &uid, at);
        }
    }

    /// Takes in a NodeClaim as it was at a time.
    pub(super) fn claim(&mut self, claim: &NodeClaim, at: Duration) {
        let uid = claim.uid().unwrap_or_default();
        self.note(Step::Claimed, &uid, at);
        let conditions = claim.status.iter().flat_map(|status| &status.conditions);
        for condition in conditions.filter(|condition| condition.status == "True") {
            match condition.type_.as_str() {
                "Launched" => self.note(Step::Launched, &uid, at),
                "Registered" => self.note(Step::Registered, &uid, at),
                _ => {}
            }
        }
    }

    /// How often a step has happened.
    pub(super) fn count(&self, step: Step) -> usize {
        self.seen.keys().filter(|(of, _)| *of == step).count()
    }

    /// The times of a step since the first pod, ascending.
    pub(super) fn times(&self, step: Step) -> Vec<Duration> {
        let of = |step| {
            let entries = self.seen.iter().filter(move |((of, _), _)| *of == step);
            entries.map(|(_, at)| *at)
        };
        let start = of(Step::Created).min().unwrap_or_default();
        let mut times: Vec<Duration> = of(step).map(|at| at.saturating_sub(start)).collect();
        times.sort_unstable();
        times
    }

    /// From the last pod's creation to the last NodeClaim's.
    pub(super) fn claims_after_pods(&self) -> Duration {
        let last = |step| self.times(step).last().copied().unwrap_or_default();
        last(Step::Claimed).saturating_sub(last(Step::Created))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: Option<&str>, marked: bool) -> Pod {
        let conditions = if marked {
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
        } else {
            json!([])
        };
        serde_json::from_value(json!({
            "metadata": {"name": uid, "uid": uid}, "spec": {"containers": [], "nodeName": node},
            "status": {"conditions": conditions},
        }))
        .expect("a pod")
    }

    #[test]
    fn the_first_time_of_each_step_counts_from_the_first_pod() {
        let ms = Duration::from_millis;
        let mut timeline = Timeline::default();
        timeline.pod(&pod("a", None, false), ms(1000));
        timeline.pod(&pod("b", None, false), ms(1300));
        timeline.pod(&pod("a", None, true), ms(1500));
        timeline.pod(&pod("a", Some("n"), true), ms(2000));
        timeline.pod(&pod("a", Some("n"), false), ms(3000));
        assert_eq!(timeline.times(Step::Created), [ms(0), ms(300)]);
        assert_eq!(timeline.times(Step::Marked), [ms(500)]);
        assert_eq!(timeline.times(Step::Bound), [ms(1000)]);
        assert_eq!(timeline.count(Step::Bound), 1);
    }
}
