//! What pods ask for and what nodes have, in whole units; the CPU in thousandths.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use millwright_model as model;

/// Amounts by the name of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources(BTreeMap<String, i64>);

/// A list as it stands in an object.
type List = BTreeMap<String, Quantity>;

impl Resources {
    /// Reads a list. What is not a quantity the API server would not have let in: it counts as nothing.
    pub(super) fn read(list: Option<&List>) -> Self {
        let amount = |(name, quantity): (&String, &Quantity)| {
            let quantity = model::Quantity::parse(&quantity.0).ok()?;
            let amount = if name == "cpu" {
                quantity.millis_ceil()
            } else {
                quantity.units_ceil()
            };
            Some((name.clone(), amount))
        };
        Self(list.into_iter().flatten().filter_map(amount).collect())
    }

    pub(super) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(super) fn set(&mut self, name: &str, amount: i64) {
        self.0.insert(name.to_owned(), amount);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.merge(other, i64::saturating_add);
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.merge(other, i64::saturating_sub);
    }

    fn raise_to(&mut self, other: &Self) {
        self.merge(other, i64::max);
    }

    fn merge(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(own) => *own = with(*own, *amount),
                None => {
                    self.0.insert(name.clone(), with(0, *amount));
                }
            }
        }
    }
}

/// What the pod takes of a node at the most: init containers run one after the other, beside the sidecars
/// that were started before them.
pub(super) fn effective_requests(spec: &PodSpec) -> Resources {
    let requests = |resources: Option<&ResourceRequirements>| {
        Resources::read(resources.and_then(|resources| resources.requests.as_ref()))
    };
    let of = |container: &Container| requests(container.resources.as_ref());
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut now = sidecars.clone();
        now.add(&of(container));
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = now.clone();
        }
        starting.raise_to(&now);
    }
    let mut total = sidecars;
    for container in &spec.containers {
        total.add(&of(container));
    }
    total.raise_to(&starting);
    // What the pod as a whole asks for replaces what its containers ask for.
    for (name, amount) in requests(spec.resources.as_ref()).iter() {
        total.set(name, amount);
    }
    total.add(&Resources::read(spec.overhead.as_ref()));
    total.set("pods", 1);
    total
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: &Value, expected: &[(&str, i64)]) {
        let spec: PodSpec = serde_json::from_value(spec.clone()).expect("a pod's spec");
        let found = effective_requests(&spec);
        let found: Vec<(&str, i64)> = found.iter().collect();
        assert_eq!(found, expected, "{spec:?}");
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "a", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn requests_add_up_and_init_containers_take_turns() {
        check(&json!({"containers": []}), &[("pods", 1)]);
        check(
            &json!({"containers": [container("100m"), container("1")]}),
            &[("cpu", 1100), ("pods", 1)],
        );
        check(
            &json!({"containers": [container("1")], "initContainers": [container("2"), container("3")]}),
            &[("cpu", 3000), ("pods", 1)],
        );
        // A sidecar runs beside what comes after it, not beside what came before.
        check(
            &json!({"containers": [container("1")],
                "initContainers": [container("3"), sidecar("1"), container("2500m")]}),
            &[("cpu", 3500), ("pods", 1)],
        );
    }

    #[test]
    fn overhead_is_added_and_the_pod_as_a_whole_has_the_last_word() {
        check(
            &json!({"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "1Ki"}}),
            &[("cpu", 1250), ("memory", 1024), ("pods", 1)],
        );
        check(
            &json!({"containers": [container("1")], "resources": {"requests": {"cpu": "5"}}}),
            &[("cpu", 5000), ("pods", 1)],
        );
    }
}
