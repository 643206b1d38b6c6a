//! Kubernetes objects to model values: the only place where that happens.
//!
//! Conversion is total: a bad quantity or operator is an error value that names the field, never a
//! panic, so one broken object cannot stop a watch of all the others.

mod affinity;
mod budget;
mod claim;
mod daemon;
mod node;
mod node_pool;
mod pod;
mod requests;
mod volume;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity as KubeQuantity, apis::meta::v1::Time,
};
use millwright_model::{
    Effect, Name, Operator, Quantity, Requirement, ResourceName, Resources, Taint, Timestamp,
};

pub use budget::{DisruptionBudget, disruption_budget};
pub use claim::{ClaimFacts, claim_facts};
pub use daemon::daemon_pod;
pub use node::{NodeFacts, node_facts, state_node};
pub use node_pool::node_pool;
pub use pod::{
    controller_owner, is_daemon, is_mirror, is_provisionable, is_terminal, is_unready, is_untried,
    is_waiting, pod_key, pod_spec, pod_uid, rejections,
};
pub use requests::effective_requests;
pub use volume::{ClaimRef, ClaimSources, VolumeOutcome, claim_refs, resolve_claims};

/// A field that cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// Path in the object, `spec.containers[0].resources.requests.cpu`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl FieldError {
    fn new(path: impl Into<String>, message: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            message: message.to_string(),
        }
    }
}

/// A resource list; every amount must be zero or more.
///
/// # Errors
/// The first entry that is no quantity, or is negative.
pub fn resources(
    list: &BTreeMap<String, KubeQuantity>,
    path: &str,
) -> Result<Resources, FieldError> {
    list.iter()
        .map(|(name, quantity)| {
            let parsed = Quantity::parse(&quantity.0).map_err(|e| {
                FieldError::new(
                    format!("{path}.{name}"),
                    format_args!("\"{}\": {e}", quantity.0),
                )
            })?;
            if parsed.is_negative() {
                let message = format_args!("\"{}\": must not be negative", quantity.0);
                return Err(FieldError::new(format!("{path}.{name}"), message));
            }
            let name = ResourceName::from(name.as_str());
            let amount = name.amount(parsed);
            Ok((name, amount))
        })
        .collect()
}

/// One requirement entry. Karpenter's `Gte` and `Lte` are understood everywhere.
///
/// # Errors
/// An operator that does not exist, values that the operator cannot have.
pub fn requirement(
    key: &str,
    operator: &str,
    values: &[String],
    path: &str,
) -> Result<Requirement, FieldError> {
    let parsed = Operator::parse(operator).ok_or_else(|| {
        let known = "In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte";
        FieldError::new(
            format!("{path}.operator"),
            format_args!("\"{operator}\" is none of {known}"),
        )
    })?;
    let wrong = |message: &str| Err(FieldError::new(format!("{path}.values"), message));
    match parsed {
        Operator::In if values.is_empty() => {
            return wrong("operator In needs at least one value");
        }
        operator if operator.is_bound() => {
            let valid = matches!(values, [one] if one.parse::<i64>().is_ok_and(|n| n >= 0));
            if !valid {
                return wrong("a comparison needs exactly one integer of 0 or more");
            }
        }
        _ => {}
    }
    if key.is_empty() {
        return Err(FieldError::new(format!("{path}.key"), "must not be empty"));
    }
    Ok(Requirement::new(
        &key.into(),
        parsed,
        values.iter().map(|v| Name::from(v.as_str())),
    ))
}

/// Taints of a node or a template.
///
/// # Errors
/// An effect that does not exist.
pub fn taints(
    list: &[k8s_openapi::api::core::v1::Taint],
    path: &str,
) -> Result<Vec<Taint>, FieldError> {
    list.iter()
        .enumerate()
        .map(|(at, taint)| {
            let effect = Effect::parse(&taint.effect).ok_or_else(|| {
                let message = format_args!(
                    "\"{}\" is none of NoSchedule, PreferNoSchedule, NoExecute",
                    taint.effect
                );
                FieldError::new(format!("{path}[{at}].effect"), message)
            })?;
            Ok(Taint::new(
                taint.key.as_str(),
                taint.value.as_deref().unwrap_or_default(),
                effect,
            ))
        })
        .collect()
}

/// Labels or annotations.
pub(crate) fn names(map: &BTreeMap<String, String>) -> BTreeMap<Name, Name> {
    map.iter()
        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
        .collect()
}

/// A time, the epoch when absent.
pub(crate) fn timestamp(time: Option<&Time>) -> Timestamp {
    Timestamp(time.map_or(0, |time| time.0.as_millisecond()))
}
