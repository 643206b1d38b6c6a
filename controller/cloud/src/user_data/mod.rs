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
    // The user's list may have several entries and stays as it is.
    if let (true, Some(dns)) = (input.kubelet.cluster_dns.is_empty(), input.cluster_dns) {
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

    /// User data of a small node, with changes.
    fn render(
        family: AmiFamily,
        kubelet: &Value,
        change: impl FnOnce(&mut UserDataInput<'_>),
    ) -> Result<String, UserDataError> {
        let labels = BTreeMap::from([
            ("karpenter.sh/nodepool".to_owned(), "p".to_owned()),
            ("team".to_owned(), "a".to_owned()),
        ]);
        let taints = [
            Taint::new("karpenter.sh/unregistered", "", Effect::NoExecute),
            Taint::new("gpu", "yes", Effect::NoSchedule),
        ];
        let kubelet = KubeletSettings::read(kubelet.as_object().expect("an object"));
        let mut input = UserDataInput {
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
            custom: None,
            raid0: false,
        };
        change(&mut input);
        user_data(&input).map(|encoded| {
            let bytes = STANDARD.decode(encoded).expect("base64");
            String::from_utf8(bytes).expect("text")
        })
    }

    fn check(family: AmiFamily, custom: Option<&str>) -> Result<String, UserDataError> {
        let custom = custom.map(str::to_owned);
        render(family, &json!({}), |input| {
            // Leaking a few bytes of a test keeps the signature of the closure simple.
            input.custom = custom.map(|text| &*text.leak());
        })
    }

    const EVERYTHING: &str = r#"{
        "clusterDNS": ["10.0.0.10"], "podsPerCore": 4, "cpuCFSQuota": false,
        "systemReserved": {"memory": "1Gi", "cpu": "1"}, "kubeReserved": {"cpu": "90m"},
        "evictionHard": {"memory.available": "5%"}, "evictionSoft": {"memory.available": "9%"},
        "evictionSoftGracePeriod": {"memory.available": "1m"}, "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80
    }"#;

    #[test]
    fn every_managed_kubelet_field_becomes_a_flag_in_a_fixed_order() {
        let everything = serde_json::from_str(EVERYTHING).expect("JSON");
        let text = render(AmiFamily::AL2, &everything, |_| {}).expect("user data");
        let flags = "--max-pods=58 --pods-per-core=4 --system-reserved=\"cpu=1,memory=1Gi\" \
                     --kube-reserved=\"cpu=90m\" --eviction-hard=\"memory.available<5%\" \
                     --eviction-soft=\"memory.available<9%\" \
                     --eviction-soft-grace-period=\"memory.available=1m\" \
                     --eviction-max-pod-grace-period=60 --image-gc-high-threshold=85 \
                     --image-gc-low-threshold=80 --cpu-cfs-quota=false'";
        assert!(text.contains(flags), "{text}");
        assert!(
            text.contains("--dns-cluster-ip '10.0.0.10'"),
            "the class's DNS wins: {text}"
        );
    }

    #[test]
    fn every_managed_kubelet_field_becomes_a_bottlerocket_setting() {
        let everything = serde_json::from_str(EVERYTHING).expect("JSON");
        let text = render(AmiFamily::Bottlerocket, &everything, |_| {}).expect("user data");
        let value: Value = toml::from_str(&text).expect("TOML");
        let kubernetes = &value["settings"]["kubernetes"];
        for (key, expected) in [
            ("cluster-dns-ip", json!("10.0.0.10")),
            ("system-reserved", json!({"cpu": "1", "memory": "1Gi"})),
            ("kube-reserved", json!({"cpu": "90m"})),
            ("eviction-hard", json!({"memory.available": "5%"})),
            ("eviction-soft", json!({"memory.available": "9%"})),
            (
                "eviction-soft-grace-period",
                json!({"memory.available": "1m"}),
            ),
            ("eviction-max-pod-grace-period", json!(60)),
            ("image-gc-high-threshold-percent", json!("85")),
            ("image-gc-low-threshold-percent", json!("80")),
            ("cpu-cfs-quota-enforced", json!(false)),
        ] {
            assert_eq!(kubernetes[key], expected, "{key}");
        }
    }

    #[test]
    fn local_disks_are_joined_in_the_way_of_each_family() {
        let raid = |family| render(family, &json!({}), |input| input.raid0 = true).expect("data");
        assert!(raid(AmiFamily::AL2).contains(" \\\n--local-disks raid0\n"));
        assert!(raid(AmiFamily::AL2023).contains("strategy: RAID0"));
        let bottlerocket: Value = toml::from_str(&raid(AmiFamily::Bottlerocket)).expect("TOML");
        let command = &bottlerocket["settings"]["bootstrap-commands"]["000-mount-instance-storage"];
        assert_eq!(
            command["commands"][0],
            json!(["apiclient", "ephemeral-storage", "init"])
        );
        assert_eq!(command["essential"], json!(true));
    }

    #[test]
    fn al2023_keeps_every_dns_entry_and_needs_the_service_range() {
        let kubelet = json!({"clusterDNS": ["10.0.0.10", "10.0.0.11"], "podPidsLimit": 9});
        let text = render(AmiFamily::AL2023, &kubelet, |_| {}).expect("user data");
        assert!(
            text.contains("10.0.0.11") && text.contains("podPidsLimit: 9"),
            "{text}"
        );
        let without = render(AmiFamily::AL2023, &kubelet, |input| {
            input.service_cidr = None;
        });
        assert_eq!(without, Err(UserDataError::NoCidr));
    }

    #[test]
    fn an_ipv6_cluster_tells_the_bootstrap_script() {
        let text = render(AmiFamily::AL2, &json!({}), |i| {
            i.cluster_dns = Some("fd00::a");
        })
        .expect("data");
        assert!(
            text.contains("--ip-family ipv6 \\\n--dns-cluster-ip 'fd00::a' \\\n"),
            "{text}"
        );
    }

    #[test]
    fn windows_runs_the_user_s_lines_before_the_bootstrap_script() {
        let text = check(AmiFamily::Windows2022, Some("Write-Host hi")).expect("user data");
        assert!(text.starts_with("<powershell>\nWrite-Host hi\n[string]$EKSBootstrapScriptFile"));
        assert!(
            text.ends_with("-DNSClusterIP '172.20.0.10'\n</powershell>"),
            "{text}"
        );
    }

    proptest::proptest! {
        /// The order in which a class lists its kubelet fields changes no byte, so it makes no
        /// second launch template.
        #[test]
        fn the_order_of_fields_does_not_matter(seed in 0_u64..1_000) {
            let everything: Value = serde_json::from_str(EVERYTHING).expect("JSON");
            let mut fields: Vec<_> = everything.as_object().expect("an object").clone().into_iter().collect();
            let turn = usize::try_from(seed).unwrap_or(0) % fields.len();
            fields.rotate_left(turn);
            if seed % 2 == 0 {
                fields.reverse();
            }
            let shuffled = Value::Object(fields.into_iter().collect());
            for family in AmiFamily::ALL {
                let a = render(family, &everything, |_| {});
                let b = render(family, &shuffled, |_| {});
                proptest::prop_assert_eq!(a, b, "{:?}", family);
            }
        }
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
