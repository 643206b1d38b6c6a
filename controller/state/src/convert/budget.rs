//! PodDisruptionBudgets, reduced to what keeps a pod from being planned elsewhere.
//!
//! Source: provisioning specification 4.4.

use k8s_openapi::{
    api::policy::v1::PodDisruptionBudget, apimachinery::pkg::util::intstr::IntOrString,
};
use millwright_model::{Name, topology::LabelSelector};

use super::{FieldError, affinity};

/// What a budget means for pods on a node that is going away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionBudget {
    /// Namespace.
    pub namespace: Name,
    /// Which pods; `None` matches none.
    pub selector: Option<LabelSelector>,
    /// Whether the spec can never allow an eviction: `maxUnavailable` 0 or 0%, or `minAvailable`
    /// 100%. What the status allows just now does not count: a replacement takes minutes.
    pub fully_blocking: bool,
    /// Whether `unhealthyPodEvictionPolicy` is `AlwaysAllow`.
    pub unhealthy_always_allowed: bool,
}

/// A budget.
///
/// # Errors
/// A selector that cannot be converted.
pub fn disruption_budget(budget: &PodDisruptionBudget) -> Result<DisruptionBudget, FieldError> {
    let spec = budget.spec.as_ref();
    let is = |value: Option<&IntOrString>, number: Option<i32>, text: &str| match value {
        Some(IntOrString::Int(own)) => Some(*own) == number,
        Some(IntOrString::String(own)) => own == text,
        None => false,
    };
    let none_unavailable = is(spec.and_then(|s| s.max_unavailable.as_ref()), Some(0), "0%");
    let all_available = is(spec.and_then(|s| s.min_available.as_ref()), None, "100%");
    Ok(DisruptionBudget {
        namespace: budget
            .metadata
            .namespace
            .as_deref()
            .unwrap_or("default")
            .into(),
        selector: affinity::selector(spec.and_then(|s| s.selector.as_ref()), "spec.selector")?,
        fully_blocking: none_unavailable || all_available,
        unhealthy_always_allowed: spec.and_then(|s| s.unhealthy_pod_eviction_policy.as_deref())
            == Some("AlwaysAllow"),
    })
}
