//! User data: what tells an instance how to become a node.
//!
//! Byte for byte stable for equal inputs, because the launch template's name is a hash of it.
//!
//! Source: AWS specification 18.

mod bottlerocket;
mod mime;

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use millwright_api::ec2_node_class::AmiFamily;
use millwright_model::Taint;
use serde_json::{Map, Value, json};

use crate::kubelet::KubeletSettings;

/// Everything that user data depends on.
#[derive(Clone, Debug)]
pub struct UserDataInput<'a> {
    /// Image family.
    pub family: AmiFamily,
    /// Cluster name.
    pub cluster_name: &'a str,
    /// URL of the API server.
    pub endpoint: &'a str,
    /// Base64 of the certificate authority.
    pub ca_bundle: &'a str,
    /// Range of service addresses.
    pub service_cidr: Option<&'a str>,
    /// Address of the cluster's DNS.
    pub cluster_dns: Option<&'a str>,
    /// Kubelet settings of the class.
    pub kubelet: &'a KubeletSettings,
    /// Pods per node.
    pub max_pods: u32,
    /// Node labels, those that a kubelet may not set already left out.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints, the unregistered one included.
    pub taints: &'a [Taint],
    /// The user's own data.
    pub custom: Option<&'a str>,
    /// Whether local disks are joined.
    pub raid0: bool,
}

/// Why user data cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// AL2023 needs the range of service addresses.
    #[error("resolving cluster CIDR")]
    NoCidr,
    /// The user's own data is not what its family takes.
    #[error("spec.userData: {0}")]
    Custom(String),
}

/// User data in base64.
///
/// # Errors
/// When the user's own data cannot be merged, or a fact of the cluster is missing.
pub fn user_data(input: &UserDataInput<'_>) -> Result<String, UserDataError> {
    let text = match input.family {
        AmiFamily::AL2 => al2(input)?,
        AmiFamily::AL2023 => al2023(input)?,
        AmiFamily::Bottlerocket => bottlerocket::settings(input)?,
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => windows(input),
        AmiFamily::Custom => input.custom.unwrap_or_default().to_owned(),
    };
    Ok(STANDARD.encode(text))
}

/// `key=value:Effect`, or `key:Effect` without a value.
fn taint_text(taint: &Taint) -> String {
    taint.to_string()
}

fn label_text(labels: &BTreeMap<String, String>) -> String {
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// The kubelet's flags for families that are bootstrapped by a script.
fn flags(input: &UserDataInput<'_>) -> String {
    let kubelet = input.kubelet;
    let map = |name: &str, map: &BTreeMap<String, String>, separator: &str| {
        (!map.is_empty()).then(|| {
            let pairs: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}{separator}{value}"))
                .collect();
            format!("{name}=\"{}\"", pairs.join(","))
        })
    };
    let number = |name: &str, value: Option<i64>| value.map(|value| format!("{name}={value}"));
    let taints: Vec<String> = input.taints.iter().map(taint_text).collect();
    [
        (!input.labels.is_empty())
            .then(|| format!("--node-labels=\"{}\"", label_text(input.labels))),
        (!taints.is_empty()).then(|| format!("--register-with-taints=\"{}\"", taints.join(","))),
        Some(format!("--max-pods={}", input.max_pods)),
        (kubelet.pods_per_core > 0).then(|| format!("--pods-per-core={}", kubelet.pods_per_core)),
        map("--system-reserved", &kubelet.system_reserved, "="),
        map("--kube-reserved", &kubelet.kube_reserved, "="),
        map("--eviction-hard", &kubelet.eviction_hard, "<"),
        map("--eviction-soft", &kubelet.eviction_soft, "<"),
        map(
            "--eviction-soft-grace-period",
            &kubelet.eviction_soft_grace_period,
            "=",
        ),
        number(
            "--eviction-max-pod-grace-period",
            kubelet.eviction_max_pod_grace_period,
        ),
        number(
            "--image-gc-high-threshold",
            kubelet.image_gc_high_threshold_percent,
        ),
        number(
            "--image-gc-low-threshold",
            kubelet.image_gc_low_threshold_percent,
        ),
        kubelet
            .cpu_cfs_quota
            .map(|quota| format!("--cpu-cfs-quota={quota}")),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" ")
}

fn dns<'a>(input: &'a UserDataInput<'_>) -> Option<&'a str> {
    input
        .kubelet
        .cluster_dns
        .first()
        .map(String::as_str)
        .or(input.cluster_dns)
}

fn al2(input: &UserDataInput<'_>) -> Result<String, UserDataError> {
    let mut lines = vec![
        "#!/bin/bash -xe".to_owned(),
        "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1"
            .to_owned(),
        format!(
            "/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}' --b64-cluster-ca '{}' \\",
            input.cluster_name, input.endpoint, input.ca_bundle
        ),
    ];
    if let Some(dns) = dns(input) {
        if dns.contains(':') {
            lines.push("--ip-family ipv6 \\".to_owned());
        }
        lines.push(format!("--dns-cluster-ip '{dns}' \\"));
    }
    lines.push("--use-max-pods false \\".to_owned());
    let tail = if input.raid0 {
        " \\\n--local-disks raid0"
    } else {
        ""
    };
    lines.push(format!("--kubelet-extra-args '{}'{tail}", flags(input)));
    let generated = mime::Part::script(format!("{}\n", lines.join("\n")));
    mime::join(input.custom, generated, mime::Part::script)
}

fn al2023(input: &UserDataInput<'_>) -> Result<String, UserDataError> {
    let cidr = input
        .service_cidr
        .filter(|cidr| !cidr.is_empty())
        .ok_or(UserDataError::NoCidr)?;
    let mut config: Map<String, Value> = input.kubelet.raw.clone();
    config.insert("maxPods".to_owned(), input.max_pods.into());
    if let Some(dns) = dns(input) {
        config.insert("clusterDNS".to_owned(), json!([dns]));
    }
    let taints: Vec<Value> = input
        .taints
        .iter()
        .map(|taint| {
            let mut value = json!({"effect": taint.effect.as_str(), "key": &*taint.key});
            if !taint.value.is_empty() {
                value["value"] = (&*taint.value).into();
            }
            value
        })
        .collect();
    if !taints.is_empty() {
        config.insert("registerWithTaints".to_owned(), taints.into());
    }
    let mut kubelet = json!({"config": sorted(Value::Object(config))});
    if !input.labels.is_empty() {
        kubelet["flags"] = json!([format!("--node-labels=\"{}\"", label_text(input.labels))]);
    }
    let mut instance = json!({"localStorage": {}});
    if input.raid0 {
        instance["localStorage"]["strategy"] = "RAID0".into();
    }
    let node_config = json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": {
                "apiServerEndpoint": input.endpoint,
                "certificateAuthority": input.ca_bundle,
                "cidr": cidr,
                "name": input.cluster_name,
            },
            "containerd": {},
            "instance": instance,
            "kubelet": kubelet,
        },
    });
    let yaml =
        serde_saphyr::to_string(&node_config).map_err(|e| UserDataError::Custom(e.to_string()))?;
    let generated = mime::Part::node_config(format!("# Karpenter Generated NodeConfig\n{yaml}"));
    mime::join(input.custom, generated, |custom| {
        let mapping = serde_saphyr::from_str::<Value>(&custom).is_ok_and(|value| value.is_object());
        if mapping {
            mime::Part::node_config(custom)
        } else {
            mime::Part::script(custom)
        }
    })
}

/// Keys in order at every level: equal settings give equal bytes.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<String, Value> = map
                .into_iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect();
            ordered.into_iter().collect()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

fn windows(input: &UserDataInput<'_>) -> String {
    let custom = input
        .custom
        .map(|text| format!("{text}\n"))
        .unwrap_or_default();
    let dns = dns(input)
        .map(|dns| format!(" -DNSClusterIP '{dns}'"))
        .unwrap_or_default();
    format!(
        "<powershell>\n{custom}[string]$EKSBootstrapScriptFile = \
         \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n& $EKSBootstrapScriptFile -EKSClusterName '{}' \
         -APIServerEndpoint '{}' -Base64ClusterCA '{}' -KubeletExtraArgs '{}'{dns}\n</powershell>",
        input.cluster_name,
        input.endpoint,
        input.ca_bundle,
        flags(input)
    )
}

/// Whether a kubelet may set this label on its own Node.
#[must_use]
pub fn is_settable(key: &str) -> bool {
    const REFUSED: [&str; 3] = ["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"];
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    !REFUSED
        .iter()
        .any(|refused| domain == *refused || domain.ends_with(&format!(".{refused}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millwright_model::Effect;

    fn check(family: AmiFamily, custom: Option<&str>) -> Result<String, UserDataError> {
        let labels = BTreeMap::from([
            ("karpenter.sh/nodepool".to_owned(), "p".to_owned()),
            ("team".to_owned(), "a".to_owned()),
        ]);
        let taints = [
            Taint::new("karpenter.sh/unregistered", "", Effect::NoExecute),
            Taint::new("gpu", "yes", Effect::NoSchedule),
        ];
        let kubelet = KubeletSettings::default();
        let input = UserDataInput {
            family,
            cluster_name: "demo",
            endpoint: "https://api",
            ca_bundle: "Y2E=",
            service_cidr: Some("172.20.0.0/16"),
            cluster_dns: Some("172.20.0.10"),
            kubelet: &kubelet,
            max_pods: 58,
            labels: &labels,
            taints: &taints,
            custom,
            raid0: false,
        };
        let encoded = user_data(&input)?;
        Ok(String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap())
    }

    #[test]
    fn al2_runs_the_bootstrap_script_after_the_user_s_parts() {
        let text = check(AmiFamily::AL2, Some("echo hi")).unwrap();
        let (user, generated) = text.split_once("echo hi").unwrap();
        assert!(
            user.starts_with(
                "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n"
            ),
            "{user}"
        );
        assert!(generated.contains("/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://api' --b64-cluster-ca 'Y2E=' \\\n--dns-cluster-ip '172.20.0.10' \\\n--use-max-pods false \\\n--kubelet-extra-args '--node-labels=\"karpenter.sh/nodepool=p,team=a\" --register-with-taints=\"karpenter.sh/unregistered:NoExecute,gpu=yes:NoSchedule\" --max-pods=58'\n"), "{generated}");
        assert!(text.ends_with("--//--\n"));
    }

    #[test]
    fn al2023_writes_a_node_config_that_comes_last() {
        let text = check(
            AmiFamily::AL2023,
            Some("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"),
        )
        .unwrap();
        let parts: Vec<&str> = text.split("--//\n").collect();
        assert_eq!(parts.len(), 3, "{text}");
        assert!(
            parts[1].starts_with("Content-Type: application/node.eks.aws\n\napiVersion"),
            "{text}"
        );
        let body = parts[2]
            .split_once("\n\n")
            .unwrap()
            .1
            .trim_end_matches("\n--//--\n");
        let config: Value = serde_saphyr::from_str(body).unwrap();
        assert_eq!(config["spec"]["kubelet"]["config"]["maxPods"], 58);
        assert_eq!(
            config["spec"]["kubelet"]["flags"][0],
            "--node-labels=\"karpenter.sh/nodepool=p,team=a\""
        );
        assert_eq!(
            config["spec"]["kubelet"]["config"]["registerWithTaints"][1]["value"],
            "yes"
        );
        assert_eq!(config["spec"]["cluster"]["cidr"], "172.20.0.0/16");
        assert!(
            check(AmiFamily::AL2023, Some("#!/bin/sh\n"))
                .unwrap()
                .contains("text/x-shellscript")
        );
    }

    #[test]
    fn bottlerocket_merges_settings_and_keeps_what_it_does_not_know() {
        let text = check(AmiFamily::Bottlerocket, Some("[settings.host-containers.admin]\nenabled = true\n[settings.kubernetes]\nallowed-unsafe-sysctls = ['x']\n[settings.kubernetes.node-labels]\nmine = 'yes'\n")).unwrap();
        let value: Value = toml::from_str(&text).unwrap();
        let kubernetes = &value["settings"]["kubernetes"];
        assert_eq!(
            value["settings"]["host-containers"]["admin"]["enabled"],
            true
        );
        assert_eq!(kubernetes["allowed-unsafe-sysctls"][0], "x");
        assert_eq!(kubernetes["node-labels"]["mine"], "yes");
        assert_eq!(kubernetes["node-labels"]["team"], "a");
        assert_eq!(
            kubernetes["node-taints"]["karpenter.sh/unregistered"][0],
            ":NoExecute"
        );
        assert_eq!(kubernetes["max-pods"], 58);
        assert!(check(AmiFamily::Bottlerocket, Some("not = [toml")).is_err());
    }

    #[test]
    fn custom_data_passes_as_it_is_and_restricted_labels_are_known() {
        assert_eq!(
            check(AmiFamily::Custom, Some("anything")).unwrap(),
            "anything"
        );
        assert!(
            !is_settable("node-restriction.kubernetes.io/x") && !is_settable("kubernetes.io/os")
        );
        assert!(is_settable("karpenter.sh/nodepool") && is_settable("team"));
    }
}
