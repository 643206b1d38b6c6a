//! NodePool companions: readiness from the class, and the validation that schemas cannot express.
//!
//! Source: provisioning specification 4.6, 8.3 and 8.4.

use std::collections::BTreeMap;

use millwright_model::{CapacityType, Name, Operator, Taint, labels};

use crate::condition::Status;

/// The class that a NodePool names, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassState {
    /// There is none.
    NotFound,
    /// It is being deleted.
    Terminating,
    /// It exists; its `Ready` condition at the class's present generation.
    Present {
        /// Truth.
        ready: Status,
        /// Its reason.
        reason: String,
        /// Its message.
        message: String,
    },
}

/// The `NodeClassReady` condition: status, reason, message.
#[must_use]
pub fn class_readiness(class: &ClassState) -> (Status, String, String) {
    let failed =
        |reason: &str, message: &str| (Status::False, reason.to_owned(), message.to_owned());
    match class {
        ClassState::NotFound => failed("NodeClassNotFound", "NodeClass not found on cluster"),
        ClassState::Terminating => failed("NodeClassTerminating", "NodeClass is Terminating"),
        ClassState::Present {
            ready: Status::True,
            ..
        } => (Status::True, "NodeClassReady".to_owned(), String::new()),
        ClassState::Present {
            ready: Status::False,
            reason,
            message,
        } => failed(reason, message),
        ClassState::Present {
            ready: Status::Unknown,
            ..
        } => failed("NodeClassReadinessUnknown", "Node Class Readiness Unknown"),
    }
}

/// One entry of `spec.template.spec.requirements`, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRequirement {
    /// Key.
    pub key: String,
    /// Operator.
    pub operator: String,
    /// Values.
    pub values: Vec<String>,
    /// `minValues`.
    pub min_values: Option<u32>,
}

/// What validation reads of a template.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// Labels.
    pub labels: BTreeMap<Name, Name>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Startup taints.
    pub startup_taints: Vec<Taint>,
    /// Requirements.
    pub requirements: Vec<RawRequirement>,
}

/// Everything that is wrong with a template, each as a text that names the thing; empty when it is
/// valid.
#[must_use]
pub fn validate(template: &Template) -> Vec<String> {
    let mut errors = Vec::new();
    for (key, value) in &template.labels {
        if &**key == labels::NODE_POOL {
            errors.push(format!("invalid key name {key:?} in labels, restricted"));
        }
        if !is_qualified_name(key) {
            errors.push(format!(
                "invalid key name {key:?} in labels, not a qualified name"
            ));
        }
        if !is_label_value(value) {
            errors.push(format!("invalid value {value:?} for label[{key}]"));
        }
        if labels::is_restricted(key) {
            errors.push(format!(
                "invalid key name {key:?} in labels, label is restricted"
            ));
        }
    }
    taint_errors(template, &mut errors);
    for requirement in &template.requirements {
        if requirement.key == labels::NODE_POOL {
            errors.push(format!(
                "invalid key {:?} in requirements, restricted",
                requirement.key
            ));
        }
        requirement_errors(requirement, &mut errors);
    }
    errors
}

fn taint_errors(template: &Template, errors: &mut Vec<String>) {
    let mut seen = Vec::new();
    for taint in template.taints.iter().chain(&template.startup_taints) {
        if !is_qualified_name(&taint.key) {
            errors.push(format!(
                "invalid taint key {:?}, not a qualified name",
                taint.key
            ));
        }
        if !taint.value.is_empty() && !is_qualified_name(&taint.value) {
            errors.push(format!(
                "invalid taint value {:?} of taint {:?}",
                taint.value, taint.key
            ));
        }
        if seen.iter().any(|other: &&Taint| other.matches(taint)) {
            errors.push(format!(
                "duplicate taint key/effect pair {}={}",
                taint.key,
                taint.effect.as_str()
            ));
        }
        seen.push(taint);
    }
}

fn requirement_errors(requirement: &RawRequirement, errors: &mut Vec<String>) {
    let RawRequirement {
        key,
        operator,
        values,
        min_values,
    } = requirement;
    let key = labels::normalise(&Name::from(key.as_str()));
    let Some(operator) = Operator::parse(operator) else {
        errors.push(format!(
            "key {key} has an unsupported operator {operator:?}"
        ));
        return;
    };
    if labels::is_restricted(&key) {
        errors.push(format!("label {key} is restricted"));
    }
    if !is_qualified_name(&key) {
        errors.push(format!("key {key:?} is not a qualified name"));
    }
    for value in values.iter().filter(|value| !is_label_value(value)) {
        errors.push(format!("invalid value {value:?} for key {key}"));
    }
    let min_values = min_values.map_or(0, |min| usize::try_from(min).unwrap_or(usize::MAX));
    if operator == Operator::In {
        if values.is_empty() {
            errors.push(format!(
                "key {key} with operator In must have a value defined"
            ));
        }
        if values.len() < min_values {
            errors.push(format!(
                "key {key} with operator In must have at least minValues values"
            ));
        }
        if &*key == labels::CAPACITY_TYPE && !values.is_empty() {
            let known = values
                .iter()
                .filter(|v| CapacityType::parse(v).is_some())
                .count();
            if known < min_values.max(1) {
                errors.push(format!(
                    "invalid values for key {key}, expected on-demand, spot or reserved"
                ));
            }
        }
    }
    if operator.is_bound() {
        let valid = matches!(&values[..], [value] if value.parse::<i64>().is_ok_and(|n| n >= 0));
        if !valid {
            errors.push(format!(
                "key {key} with operator {} must have one integer >= 0",
                operator.as_str()
            ));
        }
    }
}

/// Whether a text is `[DNS-subdomain/]name`, as label keys are.
#[must_use]
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let subdomain = |prefix: &str| {
        prefix.len() <= 253
            && prefix.split('.').all(|part| {
                is_bounded_by(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit())
                    && part
                        .bytes()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
            })
    };
    !name.is_empty() && is_name(name) && prefix.is_none_or(subdomain)
}

/// Whether a text is empty or a legal label value.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && is_bounded_by(text, |c| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

fn is_bounded_by(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => allowed(*first) && allowed(*last),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use millwright_model::Effect;

    use super::*;

    fn with(key: &str, operator: &str, values: &[&str], min_values: Option<u32>) -> Template {
        let requirement = RawRequirement {
            key: key.into(),
            operator: operator.into(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            min_values,
        };
        Template {
            requirements: vec![requirement],
            ..Template::default()
        }
    }

    #[test]
    fn requirements_are_checked_as_pods_are() {
        for (key, operator, values, min_values, valid) in [
            ("team", "In", &["a"][..], None, true),
            ("team", "In", &[], None, false),
            ("team", "In", &["a"], Some(2), false),
            ("team", "Exists", &[], None, true),
            ("team", "Like", &["a"], None, false),
            ("team", "Gt", &["5"], None, true),
            ("team", "Gt", &["-1"], None, false),
            ("team", "Gte", &["1", "2"], None, false),
            ("team", "In", &["-bad-"], None, false),
            ("bad key", "Exists", &[], None, false),
            ("karpenter.sh/x", "Exists", &[], None, false),
            ("karpenter.sh/nodepool", "In", &["a"], None, false),
            ("kubernetes.io/hostname", "In", &["a"], None, false),
            (
                "failure-domain.beta.kubernetes.io/zone",
                "In",
                &["a"],
                None,
                true,
            ),
            (
                "karpenter.sh/capacity-type",
                "In",
                &["spot", "cheap"],
                None,
                true,
            ),
            ("karpenter.sh/capacity-type", "In", &["cheap"], None, false),
            (
                "karpenter.sh/capacity-type",
                "In",
                &["spot", "cheap"],
                Some(2),
                false,
            ),
        ] {
            let errors = validate(&with(key, operator, values, min_values));
            assert_eq!(
                errors.is_empty(),
                valid,
                "{key} {operator} {values:?}: {errors:?}"
            );
        }
    }

    #[test]
    fn labels_and_taints_are_checked_and_named() {
        let label = |key: &str, value: &str| Template {
            labels: [(key.into(), value.into())].into(),
            ..Template::default()
        };
        for (template, named) in [
            (label("karpenter.sh/nodepool", "a"), "karpenter.sh/nodepool"),
            (label("x/y/z", "a"), "x/y/z"),
            (label("a", "b c"), "b c"),
            (label("karpenter.sh/custom", "a"), "karpenter.sh/custom"),
            (
                Template {
                    taints: vec![Taint::new("", "", Effect::NoSchedule)],
                    ..Template::default()
                },
                "\"\"",
            ),
            (
                Template {
                    taints: vec![Taint::new("a", "1", Effect::NoSchedule)],
                    startup_taints: vec![Taint::new("a", "2", Effect::NoSchedule)],
                    ..Template::default()
                },
                "a=NoSchedule",
            ),
        ] {
            let errors = validate(&template);
            assert!(
                errors.iter().any(|error| error.contains(named)),
                "{named}: {errors:?}"
            );
        }
        assert!(validate(&label("example.com/team", "a.b_c-d")).is_empty());
    }

    #[test]
    fn readiness_follows_the_class() {
        let present = |ready| ClassState::Present {
            ready,
            reason: "R".into(),
            message: "m".into(),
        };
        for (class, status, reason) in [
            (ClassState::NotFound, Status::False, "NodeClassNotFound"),
            (
                ClassState::Terminating,
                Status::False,
                "NodeClassTerminating",
            ),
            (
                present(Status::Unknown),
                Status::False,
                "NodeClassReadinessUnknown",
            ),
            (present(Status::False), Status::False, "R"),
            (present(Status::True), Status::True, "NodeClassReady"),
        ] {
            let (seen, why, _) = class_readiness(&class);
            assert_eq!((seen, &*why), (status, reason), "{class:?}");
        }
    }
}
