//! `spec.kubelet` of a class: the typed view of what is computed with, and its validation.
//!
//! Source: AWS specification 6. The map stays open; what is not in the typed view only reaches the
//! nodes of families that pass arbitrary fields on.

mod fields;
mod validation;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub use validation::{KubeletError, validate};

/// The fields that the provider reads. Maps are sorted by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletSettings {
    /// Addresses of the cluster's DNS service.
    pub cluster_dns: Vec<String>,
    /// Pods on a node, when it is a plain number.
    pub max_pods: Option<u32>,
    /// Pods for each vCPU; 0 means no limit.
    pub pods_per_core: u32,
    /// Resource to quantity.
    pub system_reserved: BTreeMap<String, String>,
    /// Resource to quantity.
    pub kube_reserved: BTreeMap<String, String>,
    /// Signal to threshold.
    pub eviction_hard: BTreeMap<String, String>,
    /// Signal to threshold.
    pub eviction_soft: BTreeMap<String, String>,
    /// Signal to duration.
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Seconds.
    pub eviction_max_pod_grace_period: Option<i64>,
    /// Percent.
    pub image_gc_high_threshold_percent: Option<i64>,
    /// Percent.
    pub image_gc_low_threshold_percent: Option<i64>,
    /// Whether CPU limits are enforced by quota.
    pub cpu_cfs_quota: Option<bool>,
    /// All fields as written, for families that pass them on.
    pub raw: Map<String, Value>,
}

impl KubeletSettings {
    /// Reads the typed view. Values of the wrong type are left out here; [`validate`] names them.
    #[must_use]
    pub fn read(raw: &Map<String, Value>) -> Self {
        let number = |key: &str| raw.get(key).and_then(Value::as_i64);
        let count = |key: &str| number(key).and_then(|n| u32::try_from(n).ok());
        Self {
            cluster_dns: raw
                .get("clusterDNS")
                .and_then(Value::as_array)
                .map(|list| {
                    list.iter()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect()
                })
                .unwrap_or_default(),
            max_pods: count("maxPods").or_else(|| {
                let text = raw.get("maxPods").and_then(Value::as_str)?;
                text.parse().ok()
            }),
            pods_per_core: count("podsPerCore").unwrap_or(0),
            system_reserved: text_map(raw, "systemReserved"),
            kube_reserved: text_map(raw, "kubeReserved"),
            eviction_hard: text_map(raw, "evictionHard"),
            eviction_soft: text_map(raw, "evictionSoft"),
            eviction_soft_grace_period: text_map(raw, "evictionSoftGracePeriod"),
            eviction_max_pod_grace_period: number("evictionMaxPodGracePeriod"),
            image_gc_high_threshold_percent: number("imageGCHighThresholdPercent"),
            image_gc_low_threshold_percent: number("imageGCLowThresholdPercent"),
            cpu_cfs_quota: raw.get("cpuCFSQuota").and_then(Value::as_bool),
            raw: raw.clone(),
        }
    }

    /// Whether a value that must be a number is given as an expression, which only the gate
    /// `NodeClassCEL` allows.
    #[must_use]
    pub fn uses_expressions(&self) -> bool {
        let max_pods = self
            .raw
            .get("maxPods")
            .and_then(Value::as_str)
            .is_some_and(|text| text.parse::<u32>().is_err());
        max_pods
            || self
                .kube_reserved
                .values()
                .chain(self.system_reserved.values())
                .any(|text| millwright_model::Quantity::parse(text).is_err())
    }
}

fn text_map(raw: &Map<String, Value>, key: &str) -> BTreeMap<String, String> {
    raw.get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
