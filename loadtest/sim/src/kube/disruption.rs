//! The keeper of PodDisruptionBudgets: how many of the pods that a budget covers are healthy, and
//! how many may be missing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use serde_json::{Value, json};

use super::api::ApiServer;
use super::object::{
    Object, ObjectKey, at, controller_of, int_at, is_deleting, list_at, now_rfc3339, object_mut,
    str_at,
};
use super::selector::LabelSelector;
use super::store::Expect;

pub(crate) const BUDGETS: &str = "poddisruptionbudgets.policy";

/// The numbers of one budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) healthy: i64,
    pub(crate) desired: i64,
    pub(crate) expected: i64,
}

impl Counts {
    pub(crate) fn allowed(self) -> i64 {
        if self.expected > 0 {
            (self.healthy - self.desired).max(0)
        } else {
            0
        }
    }
}

/// Counts budgets anew whenever pods or budgets have changed, until dropped.
pub(crate) async fn keep(server: Arc<ApiServer>) -> Infallible {
    loop {
        server.disruption.notified().await;
        server.refresh_budgets();
        // Other requests go first; changes that come meanwhile are counted together.
        tokio::task::yield_now().await;
    }
}

impl ApiServer {
    /// Counts all budgets anew.
    pub(crate) fn refresh_budgets(&self) {
        for budget in self.store.list(BUDGETS, "").0 {
            let mut value = budget.value.clone();
            write_status(&mut value, self.count(&budget));
            if value != budget.value {
                let expect = Expect::Revision(budget.resource_version);
                let put = self
                    .store
                    .put(&BUDGETS.into(), budget.key.clone(), expect, value);
                if put.is_err() {
                    self.disruption.notify_one();
                }
            }
        }
    }

    /// Counts the pods of a budget. Those whose eviction has just been granted are not healthy
    /// any more, although they may still look so.
    pub(crate) fn count(&self, budget: &Object) -> Counts {
        let (pods, _) = self.store.list("pods", &budget.key.namespace);
        let covered: Vec<Arc<Object>> = pods
            .into_iter()
            .filter(|pod| covers(&budget.value, &pod.value))
            .collect();
        let counts_as_healthy =
            |pod: &&Arc<Object>| is_ready(&pod.value) && !is_deleting(&pod.value);
        let healthy = covered.iter().filter(counts_as_healthy).count();
        let present = i64::try_from(covered.len()).unwrap_or(i64::MAX);
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let minimum = at(&budget.value, &["spec", "minAvailable"]);
        let maximum = at(&budget.value, &["spec", "maxUnavailable"]);
        let (desired, expected) = match (minimum, maximum) {
            (Some(Value::Number(number)), _) => (number.as_i64().unwrap_or(0), present),
            (Some(share), _) => {
                let expected = self.expected(&covered);
                (portion(share, expected), expected)
            }
            (None, Some(maximum)) => {
                let expected = self.expected(&covered);
                ((expected - portion(maximum, expected)).max(0), expected)
            }
            (None, None) => (1, present),
        };
        Counts {
            healthy,
            desired,
            expected,
        }
    }

    /// The sum of what the controllers of these pods want; a pod without one stands for itself.
    fn expected(&self, pods: &[Arc<Object>]) -> i64 {
        let mut wanted: BTreeMap<String, i64> = BTreeMap::new();
        for pod in pods {
            let (owner, replicas) = controller_of(&pod.value)
                .and_then(|owner| self.scale_of(&pod.key.namespace, owner))
                .unwrap_or_else(|| (pod.key.name.clone(), 1));
            wanted.insert(owner, replicas);
        }
        wanted.values().sum()
    }

    fn scale_of(&self, namespace: &str, owner: &Value) -> Option<(String, i64)> {
        let resource = self
            .registry()
            .of_kind(str_at(owner, &["apiVersion"]), str_at(owner, &["kind"]))?;
        let key = ObjectKey::new(namespace, str_at(owner, &["name"]));
        let object = self.store.get(&resource.id, &key)?;
        // A ReplicaSet on its way out leaves the count to its Deployment.
        if let Some(above) = controller_of(&object.value)
            && let Some(found) = self.scale_of(namespace, above)
        {
            return Some(found);
        }
        let replicas = int_at(&object.value, &["spec", "replicas"])?;
        Some((object.uid().to_owned(), replicas))
    }
}

/// A number, or a percentage rounded up.
fn portion(value: &Value, of: i64) -> i64 {
    let percent = value
        .as_str()
        .and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match percent {
        Some(percent) => (of * percent + 99) / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

/// Whether a budget covers a pod; one without selector covers none.
pub(crate) fn covers(budget: &Value, pod: &Value) -> bool {
    at(budget, &["spec", "selector"])
        .and_then(LabelSelector::from_object)
        .is_some_and(|selector| selector.matches(pod))
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    list_at(pod, &["status", "conditions"])
        .iter()
        .any(|condition| {
            str_at(condition, &["type"]) == "Ready" && str_at(condition, &["status"]) == "True"
        })
}

/// Writes the numbers into a budget's status, and the condition that goes with them.
pub(crate) fn write_status(budget: &mut Value, counts: Counts) {
    let generation = at(budget, &["metadata", "generation"]).cloned();
    let allowed = counts.allowed();
    let (state, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let known = list_at(budget, &["status", "conditions"]).first().cloned();
    let since = known
        .filter(|condition| str_at(condition, &["status"]) == state)
        .and_then(|condition| condition.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| json!(now_rfc3339()));
    let condition = json!({
        "type": "DisruptionAllowed", "status": state, "reason": reason, "message": "",
        "observedGeneration": generation, "lastTransitionTime": since,
    });
    let status = object_mut(budget, "status");
    for (field, number) in [
        ("disruptionsAllowed", allowed),
        ("currentHealthy", counts.healthy),
        ("desiredHealthy", counts.desired),
        ("expectedPods", counts.expected),
    ] {
        status.insert(field.to_owned(), json!(number));
    }
    if let Some(generation) = generation {
        status.insert("observedGeneration".to_owned(), generation);
    }
    status.insert("conditions".to_owned(), json!([condition]));
}
