//! What a node learns from its user data: the labels and taints it registers with.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Taint;
use serde_json::Value;

/// Labels and taints of the registration, and the limit of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registration {
    /// Node labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Pods per node, if stated.
    pub max_pods: Option<u32>,
}

/// Reads user data (base64, as an instance has it) in the forms of AL2023 (MIME with a NodeConfig), AL2
/// (bootstrap.sh) and Bottlerocket (TOML). What cannot be read registers nothing, as on a real node
/// whose bootstrap fails.
#[must_use]
pub fn registration(user_data: &str) -> Registration {
    let Some(text) = STANDARD
        .decode(user_data)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
    else {
        return Registration::default();
    };
    if let Some(config) = node_configs(&text).last() {
        return from_node_config(config);
    }
    if let Some(settings) = toml::from_str::<Value>(&text)
        .ok()
        .and_then(|t| t.pointer("/settings/kubernetes").cloned())
    {
        return from_bottlerocket(&settings);
    }
    from_bootstrap(&text)
}

/// NodeConfig documents among the MIME parts; later ones win.
fn node_configs(text: &str) -> Vec<Value> {
    let boundary = text
        .lines()
        .find_map(|line| line.split_once("boundary=\""))
        .and_then(|(_, rest)| rest.split('"').next())
        .map_or_else(|| "\u{0}".to_owned(), |boundary| format!("--{boundary}"));
    text.split(boundary.as_str())
        .filter_map(|part| {
            part.split_once("\n\n")
                .map_or(Some(part), |(_, body)| Some(body))
        })
        .filter_map(|body| serde_saphyr::from_str::<Value>(body).ok())
        .filter(|value| value.get("kind").and_then(Value::as_str) == Some("NodeConfig"))
        .collect()
}

fn from_node_config(config: &Value) -> Registration {
    let mut result = Registration::default();
    let list = |pointer: &str| {
        config
            .pointer(pointer)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    for taint in list("/spec/kubelet/config/registerWithTaints") {
        result
            .taints
            .extend(serde_json::from_value::<Taint>(taint).ok());
    }
    for flag in list("/spec/kubelet/flags") {
        if let Some(labels) = flag
            .as_str()
            .and_then(|flag| flag.strip_prefix("--node-labels="))
        {
            result.labels.extend(pairs(labels));
        }
    }
    let pods = config
        .pointer("/spec/kubelet/config/maxPods")
        .and_then(Value::as_u64);
    result.max_pods = pods.and_then(|pods| u32::try_from(pods).ok());
    result
}

fn from_bottlerocket(settings: &Value) -> Registration {
    let mut result = Registration::default();
    for (key, value) in settings
        .get("node-labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        result
            .labels
            .insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
    }
    for (key, values) in settings
        .get("node-taints")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        for value in values
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            result.taints.extend(taint(&format!("{key}={value}")));
        }
    }
    let pods = settings.get("max-pods").and_then(Value::as_u64);
    result.max_pods = pods.and_then(|pods| u32::try_from(pods).ok());
    result
}

fn from_bootstrap(text: &str) -> Registration {
    let flag = |name: &str| {
        let rest = text.split_once(&format!("{name}="))?.1;
        let quoted = rest.trim_start_matches(['"', '\'']);
        Some(
            quoted
                .split(['"', '\'', ' ', '\n'])
                .next()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    Registration {
        labels: flag("--node-labels")
            .map(|labels| pairs(&labels).collect())
            .unwrap_or_default(),
        taints: flag("--register-with-taints")
            .map(|taints| taints.split(',').filter_map(taint).collect())
            .unwrap_or_default(),
        max_pods: flag("--max-pods").and_then(|pods| pods.parse().ok()),
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    text.trim_matches(['"', '\''])
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Option<Taint> {
    let (rest, effect) = text.trim().rsplit_once(':')?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Some(Taint {
        key: key.to_owned(),
        value: (!value.is_empty()).then(|| value.to_owned()),
        effect: effect.to_owned(),
        time_added: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let registration = registration(&STANDARD.encode(text));
        assert_eq!(
            registration
                .labels
                .get("karpenter.sh/nodepool")
                .map(String::as_str),
            Some("p"),
            "{text}"
        );
        assert_eq!(
            registration.labels.get("team").map(String::as_str),
            Some("a"),
            "{text}"
        );
        let taints: Vec<(&str, &str)> = registration
            .taints
            .iter()
            .map(|t| (t.key.as_str(), t.effect.as_str()))
            .collect();
        assert!(
            taints.contains(&("karpenter.sh/unregistered", "NoExecute")),
            "{taints:?}"
        );
        assert_eq!(registration.max_pods, Some(58));
    }

    #[test]
    fn labels_and_taints_are_read_in_every_form() {
        check(
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: application/node.eks.aws\n\n\
             apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      maxPods: 58\n      \
             registerWithTaints:\n      - effect: NoExecute\n        key: karpenter.sh/unregistered\n    flags:\n    - \
             --node-labels=\"karpenter.sh/nodepool=p,team=a\"\n--//--\n",
        );
        check(
            "#!/bin/bash -xe\n/etc/eks/bootstrap.sh 'c' --kubelet-extra-args '--node-labels=\"karpenter.sh/nodepool=p,team=a\" \
             --register-with-taints=\"karpenter.sh/unregistered:NoExecute\" --max-pods=58'\n",
        );
        check(
            "[settings.kubernetes]\nmax-pods = 58\n[settings.kubernetes.node-labels]\n\"karpenter.sh/nodepool\" = 'p'\nteam = 'a'\n\
             [settings.kubernetes.node-taints]\n\"karpenter.sh/unregistered\" = [':NoExecute']\n",
        );
    }

    #[test]
    fn user_data_that_says_nothing_registers_nothing() {
        for text in ["", "#!/bin/sh\necho hello\n"] {
            assert_eq!(
                registration(&STANDARD.encode(text)),
                Registration::default()
            );
        }
        assert_eq!(registration("not base64!"), Registration::default());
    }
}
