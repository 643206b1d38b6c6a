//! Bottlerocket settings (TOML): the user's, with ours on top.
//!
//! Differs: unknown keys inside `settings.kubernetes` are kept, where upstream drops them
//! (decision D-011).

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{UserDataError, UserDataInput, dns};

pub(super) fn settings(input: &UserDataInput<'_>) -> Result<String, UserDataError> {
    let mut root: Table =
        input
            .custom
            .unwrap_or_default()
            .parse()
            .map_err(|e: toml::de::Error| {
                UserDataError::Custom(format!("not TOML: {}", e.message()))
            })?;
    let kubernetes = table(table(&mut root, "settings")?, "kubernetes")?;
    for (key, value) in [
        ("cluster-name", input.cluster_name),
        ("api-server", input.endpoint),
        ("cluster-certificate", input.ca_bundle),
    ] {
        kubernetes.insert(key.to_owned(), value.into());
    }
    if let Some(dns) = dns(input) {
        kubernetes.insert("cluster-dns-ip".to_owned(), dns.into());
    }
    kubernetes.insert("max-pods".to_owned(), Value::Integer(input.max_pods.into()));
    kubelet(input, kubernetes);
    let labels = table(kubernetes, "node-labels")?;
    for (key, value) in input.labels {
        labels.insert(key.clone(), value.as_str().into());
    }
    let mut taints: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for taint in input.taints {
        taints
            .entry(&taint.key)
            .or_default()
            .push(format!("{}:{}", taint.value, taint.effect.as_str()).into());
    }
    let taints: Table = taints
        .into_iter()
        .map(|(key, values)| (key.to_owned(), Value::Array(values)))
        .collect();
    kubernetes.insert("node-taints".to_owned(), Value::Table(taints));
    if input.raid0 {
        let commands = table(table(&mut root, "settings")?, "bootstrap-commands")?;
        commands.insert(
            "000-mount-instance-storage".to_owned(),
            Value::Table(raid0()),
        );
    }
    toml::to_string(&root).map_err(|e| UserDataError::Custom(e.to_string()))
}

fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table, UserDataError> {
    parent
        .entry(key)
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .ok_or_else(|| UserDataError::Custom(format!("{key} is not a table")))
}

/// Settings that appear only when the class states them.
fn kubelet(input: &UserDataInput<'_>, kubernetes: &mut Table) {
    let kubelet = input.kubelet;
    for (key, map) in [
        ("system-reserved", &kubelet.system_reserved),
        ("kube-reserved", &kubelet.kube_reserved),
        ("eviction-hard", &kubelet.eviction_hard),
        ("eviction-soft", &kubelet.eviction_soft),
        (
            "eviction-soft-grace-period",
            &kubelet.eviction_soft_grace_period,
        ),
    ] {
        if !map.is_empty() {
            let table: Table = map
                .iter()
                .map(|(k, v)| (k.clone(), v.as_str().into()))
                .collect();
            kubernetes.insert(key.to_owned(), Value::Table(table));
        }
    }
    if let Some(seconds) = kubelet.eviction_max_pod_grace_period {
        kubernetes.insert(
            "eviction-max-pod-grace-period".to_owned(),
            Value::Integer(seconds),
        );
    }
    for (key, percent) in [
        (
            "image-gc-high-threshold-percent",
            kubelet.image_gc_high_threshold_percent,
        ),
        (
            "image-gc-low-threshold-percent",
            kubelet.image_gc_low_threshold_percent,
        ),
    ] {
        if let Some(percent) = percent {
            kubernetes.insert(key.to_owned(), percent.to_string().into());
        }
    }
    if let Some(quota) = kubelet.cpu_cfs_quota {
        kubernetes.insert("cpu-cfs-quota-enforced".to_owned(), Value::Boolean(quota));
    }
}

fn raid0() -> Table {
    let words = |text: &str| Value::Array(text.split(' ').map(Value::from).collect());
    let bind = "apiclient ephemeral-storage bind --dirs /var/lib/containerd /var/lib/kubelet /var/log/pods";
    Table::from_iter([
        (
            "commands".to_owned(),
            Value::Array(vec![words("apiclient ephemeral-storage init"), words(bind)]),
        ),
        ("mode".to_owned(), "always".into()),
        ("essential".to_owned(), Value::Boolean(true)),
    ])
}
