//! PodDisruptionBudgets: which pods must stay where they are, even on a node that is going away.

use std::collections::{BTreeMap, HashSet};

use millwright_api::taints;
use millwright_model::{Effect, PodSpec, Taint};

use crate::convert::DisruptionBudget;

/// All budgets by `namespace/name`.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    by_key: BTreeMap<String, DisruptionBudget>,
}

impl Budgets {
    /// Takes in a budget; whether anything changed that matters here.
    pub(crate) fn apply(&mut self, key: &str, budget: DisruptionBudget) -> bool {
        if self.by_key.get(key) == Some(&budget) {
            return false;
        }
        self.by_key.insert(key.to_owned(), budget);
        true
    }

    /// Takes out a budget; whether it was there.
    pub(crate) fn delete(&mut self, key: &str) -> bool {
        self.by_key.remove(key).is_some()
    }

    /// Keeps the budgets listed; whether one went.
    pub(crate) fn retain(&mut self, listed: &HashSet<String>) -> bool {
        let before = self.by_key.len();
        self.by_key.retain(|key, _| listed.contains(key));
        self.by_key.len() != before
    }

    /// Whether the Eviction API will never let go of an active pod. Two matching budgets block,
    /// because the API rejects that. A pod that tolerates the taint of nodes going away is not
    /// evicted, so no budget is asked.
    pub(crate) fn block(&self, spec: &PodSpec, is_unready: bool) -> bool {
        if self.by_key.is_empty() {
            return false;
        }
        let disrupted = Taint::new(taints::DISRUPTED, "", Effect::NoSchedule);
        if spec.tolerations.iter().any(|t| t.tolerates(&disrupted)) {
            return false;
        }
        let mut matching = self.by_key.values().filter(|budget| {
            budget.namespace == spec.namespace
                && budget
                    .selector
                    .as_ref()
                    .is_some_and(|selector| selector.selects(&spec.labels))
        });
        match (matching.next(), matching.next()) {
            (None, _) => false,
            (Some(only), None) => {
                only.fully_blocking && !(only.unhealthy_always_allowed && is_unready)
            }
            (Some(_), Some(_)) => true,
        }
    }
}
