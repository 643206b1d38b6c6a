//! The checks of `spec.kubelet` that admission does not make.
//!
//! Source: AWS specification 6.1 and 6.3.

use std::collections::BTreeSet;

use millwright_api::ec2_node_class::AmiFamily;
use millwright_model::Quantity;
use serde_json::{Map, Value};

use super::{
    KubeletSettings,
    fields::{self, go_duration},
};
use crate::family;

/// Why a class's kubelet settings cannot be used. The text is for the class's condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// Unknown fields, wrong types, or values that contradict each other.
    #[error("{0}")]
    Invalid(String),
    /// An expression stands where only the gate `NodeClassCEL` allows one.
    #[error("spec.kubelet uses expressions, which need the feature gate NodeClassCEL")]
    ExpressionsDisabled,
    /// The AMI family would drop fields silently.
    #[error("{0}")]
    Unsupported(String),
}

impl KubeletError {
    /// The condition's reason.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "InvalidKubeletConfiguration",
            Self::ExpressionsDisabled => "KubeletExpressionsDisabled",
            Self::Unsupported(_) => "UnsupportedKubeletConfiguration",
        }
    }
}

/// Fields that every family but `Custom` applies.
const MANAGED: &[&str] = &[
    "clusterDNS",
    "cpuCFSQuota",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "kubeReserved",
    "maxPods",
    "podsPerCore",
    "systemReserved",
];

const SIGNALS: &[&str] = &[
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];

const RESERVABLE: &[&str] = &["cpu", "ephemeral-storage", "memory", "pid"];

/// Checks the settings for a family.
///
/// # Errors
/// The first group of findings, in the order of [`KubeletError`]'s variants; all findings of a
/// group are named together.
pub fn validate(raw: &Map<String, Value>, family: AmiFamily) -> Result<(), KubeletError> {
    let mut findings = structure(raw);
    if findings.is_empty() {
        findings = semantics(raw);
    }
    if !findings.is_empty() {
        return Err(KubeletError::Invalid(findings.join("; ")));
    }
    let settings = KubeletSettings::read(raw);
    if settings.uses_expressions() {
        return Err(KubeletError::ExpressionsDisabled);
    }
    unsupported(raw, &settings, family)
        .map_or(Ok(()), |message| Err(KubeletError::Unsupported(message)))
}

fn structure(raw: &Map<String, Value>) -> Vec<String> {
    let mut findings = Vec::new();
    for (field, value) in raw {
        match fields::kind(field) {
            None => findings.push(format!("spec.kubelet: unknown field \"{field}\"")),
            // An expression for maxPods is a string and judged later.
            Some(_) if field == "maxPods" && value.is_string() => {}
            Some(kind) if !kind.accepts(value) => {
                findings.push(format!("spec.kubelet.{field}: must be {}", kind.as_str()));
            }
            Some(_) => {}
        }
    }
    findings
}

fn semantics(raw: &Map<String, Value>) -> Vec<String> {
    let mut findings = Vec::new();
    if raw.contains_key("registerWithTaints") {
        findings.push("spec.kubelet.registerWithTaints: is managed by the controller".to_owned());
    }
    for field in ["evictionHard", "evictionSoft", "evictionMinimumReclaim"] {
        thresholds(raw, field, &mut findings);
    }
    grace_periods(raw, &mut findings);
    for field in ["kubeReserved", "systemReserved"] {
        for (key, value) in object(raw, field) {
            if !RESERVABLE.contains(&key.as_str()) {
                findings.push(format!(
                    "spec.kubelet.{field}: unknown resource \"{key}\", expected one of {}",
                    RESERVABLE.join(", ")
                ));
            } else if value
                .as_str()
                .is_some_and(|text| text.trim_start().starts_with('-'))
            {
                findings.push(format!("spec.kubelet.{field}.{key}: must not be negative"));
            }
        }
    }
    image_thresholds(raw, &mut findings);
    for field in ["podsPerCore", "evictionMaxPodGracePeriod", "maxPods"] {
        if raw
            .get(field)
            .and_then(Value::as_i64)
            .is_some_and(|n| n < 0)
        {
            findings.push(format!("spec.kubelet.{field}: must not be negative"));
        }
    }
    findings
}

fn thresholds(raw: &Map<String, Value>, field: &str, findings: &mut Vec<String>) {
    for (signal, value) in object(raw, field) {
        known_signal(field, signal, findings);
        let text = value.as_str().unwrap_or_default();
        let fine = match text.strip_suffix('%') {
            Some(percent) => percent
                .parse::<f64>()
                .is_ok_and(|p| (0.0..=100.0).contains(&p)),
            None => Quantity::parse(text).is_ok_and(|quantity| !quantity.is_negative()),
        };
        if !fine {
            findings.push(format!(
                "spec.kubelet.{field}.{signal}: \"{text}\" is neither a percentage from 0% to 100% \
                 nor a non-negative quantity"
            ));
        }
    }
}

fn known_signal(field: &str, signal: &str, findings: &mut Vec<String>) {
    if !SIGNALS.contains(&signal) {
        findings.push(format!(
            "spec.kubelet.{field}: unknown signal \"{signal}\", expected one of {}",
            SIGNALS.join(", ")
        ));
    }
}

fn grace_periods(raw: &Map<String, Value>, findings: &mut Vec<String>) {
    let field = "evictionSoftGracePeriod";
    for (signal, value) in object(raw, field) {
        known_signal(field, signal, findings);
        let text = value.as_str().unwrap_or_default();
        if go_duration(text).is_none_or(|millis| millis < 0) {
            findings.push(format!(
                "spec.kubelet.{field}.{signal}: \"{text}\" is not a non-negative duration"
            ));
        }
    }
    let keys = |field: &str| {
        object(raw, field)
            .map(|(key, _)| key)
            .collect::<BTreeSet<_>>()
    };
    let (soft, grace) = (keys("evictionSoft"), keys(field));
    for signal in soft.difference(&grace) {
        findings.push(format!(
            "spec.kubelet.evictionSoft.{signal}: has no matching evictionSoftGracePeriod"
        ));
    }
    for signal in grace.difference(&soft) {
        findings.push(format!(
            "spec.kubelet.{field}.{signal}: has no matching evictionSoft"
        ));
    }
}

fn image_thresholds(raw: &Map<String, Value>, findings: &mut Vec<String>) {
    let percent = |field: &str| raw.get(field).and_then(Value::as_i64);
    let high = percent("imageGCHighThresholdPercent");
    let low = percent("imageGCLowThresholdPercent");
    for (field, value) in [
        ("imageGCHighThresholdPercent", high),
        ("imageGCLowThresholdPercent", low),
    ] {
        if value.is_some_and(|n| !(0..=100).contains(&n)) {
            findings.push(format!("spec.kubelet.{field}: must be from 0 to 100"));
        }
    }
    if matches!((high, low), (Some(high), Some(low)) if high <= low) {
        findings.push(
            "spec.kubelet.imageGCHighThresholdPercent: must be greater than \
             imageGCLowThresholdPercent"
                .to_owned(),
        );
    }
}

fn object<'a>(
    raw: &'a Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    raw.get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn unsupported(
    raw: &Map<String, Value>,
    settings: &KubeletSettings,
    family: AmiFamily,
) -> Option<String> {
    if family::passes_any_kubelet_field(family) {
        return None;
    }
    let mut dropped: Vec<&str> = raw
        .keys()
        .map(String::as_str)
        .filter(|field| {
            !MANAGED.contains(field)
                || (*field == "podsPerCore" && !family::honours_pods_per_core(family))
        })
        .collect();
    dropped.sort_unstable();
    let mut messages = Vec::new();
    if !dropped.is_empty() {
        messages.push(format!(
            "spec.kubelet has fields not applied by the {} AMI family that would be silently \
             dropped: {}",
            family.as_str(),
            dropped.join(", ")
        ));
    }
    if settings.cluster_dns.len() > 1 {
        messages.push(format!(
            "spec.kubelet.clusterDNS: the {} AMI family doesn't accept multiple entries, only \
             one, but {} were set",
            family.as_str(),
            settings.cluster_dns.len()
        ));
    }
    (!messages.is_empty()).then(|| messages.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kubelet: &Value, family: AmiFamily) -> Result<(), KubeletError> {
        validate(kubelet.as_object().expect("tests write objects"), family)
    }

    #[test]
    fn every_rule_refuses_what_it_must_and_accepts_its_neighbour() {
        for (bad, good, part) in [
            (
                json!({"maxPodz": 3}),
                json!({"maxPods": 3}),
                "unknown field",
            ),
            (
                json!({"maxPods": true}),
                json!({"maxPods": 0}),
                "an integer",
            ),
            (json!({"maxPods": -1}), json!({"maxPods": 1}), "negative"),
            (
                json!({"registerWithTaints": []}),
                json!({"clusterDNS": ["10.0.0.10"]}),
                "registerWithTaints",
            ),
            (
                json!({"evictionHard": {"memory.free": "5%"}}),
                json!({"evictionHard": {"memory.available": "5%"}}),
                "unknown signal",
            ),
            (
                json!({"evictionHard": {"memory.available": "101%"}}),
                json!({"evictionHard": {"memory.available": "100%"}}),
                "percentage",
            ),
            (
                json!({"evictionHard": {"memory.available": "-1Gi"}}),
                json!({"evictionHard": {"memory.available": "1Gi"}}),
                "percentage",
            ),
            (
                json!({"evictionSoft": {"pid.available": "5%"}}),
                json!({"evictionSoft": {"pid.available": "5%"},
                       "evictionSoftGracePeriod": {"pid.available": "1m30s"}}),
                "no matching evictionSoftGracePeriod",
            ),
            (
                json!({"evictionSoftGracePeriod": {"pid.available": "1m"}}),
                json!({}),
                "no matching evictionSoft",
            ),
            (
                json!({"kubeReserved": {"gpu": "1"}}),
                json!({"kubeReserved": {"pid": "100"}}),
                "unknown resource",
            ),
            (
                json!({"systemReserved": {"cpu": "-100m"}}),
                json!({"systemReserved": {"cpu": "100m"}}),
                "negative",
            ),
            (
                json!({"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}),
                json!({"imageGCHighThresholdPercent": 51, "imageGCLowThresholdPercent": 50}),
                "greater",
            ),
            (
                json!({"imageGCLowThresholdPercent": 101}),
                json!({"imageGCLowThresholdPercent": 100}),
                "0 to 100",
            ),
        ] {
            let error = check(&bad, AmiFamily::AL2023).expect_err("a bad value");
            assert_eq!(error.reason(), "InvalidKubeletConfiguration", "{bad}");
            assert!(error.to_string().contains(part), "{bad}: {error}");
            assert_eq!(check(&good, AmiFamily::AL2023), Ok(()), "{good}");
        }
    }

    #[test]
    fn all_findings_are_named_together() {
        let error = check(
            &json!({"podsPerCore": -1, "evictionMaxPodGracePeriod": -5}),
            AmiFamily::AL2023,
        )
        .expect_err("two bad values");
        assert_eq!(error.to_string().matches(';').count(), 1, "{error}");
    }

    #[test]
    fn a_family_refuses_fields_that_it_would_drop() {
        let arbitrary = json!({"maxPods": 10, "podPidsLimit": 100});
        assert_eq!(check(&arbitrary, AmiFamily::AL2023), Ok(()));
        assert_eq!(check(&arbitrary, AmiFamily::Custom), Ok(()));
        for family in [
            AmiFamily::AL2,
            AmiFamily::Bottlerocket,
            AmiFamily::Windows2022,
        ] {
            let error = check(&arbitrary, family).expect_err("dropped");
            assert_eq!(error.reason(), "UnsupportedKubeletConfiguration");
            assert!(
                error
                    .to_string()
                    .ends_with("silently dropped: podPidsLimit"),
                "{error}"
            );
        }
        let per_core = json!({"podsPerCore": 10});
        assert_eq!(check(&per_core, AmiFamily::AL2), Ok(()));
        assert!(check(&per_core, AmiFamily::Bottlerocket).is_err());
        let dns = json!({"clusterDNS": ["a", "b"]});
        let error = check(&dns, AmiFamily::AL2).expect_err("two entries");
        assert!(
            error.to_string().ends_with("only one, but 2 were set"),
            "{error}"
        );
    }

    #[test]
    fn expressions_need_their_gate() {
        for kubelet in [
            json!({"maxPods": "max_pods - 5"}),
            json!({"kubeReserved": {"cpu": "vcpus * 10"}}),
        ] {
            let error = check(&kubelet, AmiFamily::AL2023).expect_err("an expression");
            assert_eq!(error.reason(), "KubeletExpressionsDisabled", "{kubelet}");
        }
    }
}
