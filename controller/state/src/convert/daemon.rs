//! DaemonSets: the pod that one would put on a node.
//!
//! Source: provisioning specification 5.5.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use millwright_model::DaemonPod;

use super::{FieldError, affinity::node_term, pod_spec};

/// The pod of a DaemonSet. `newest` is the newest pod it controls, if there is one: admission may
/// have changed it, so it is used in place of the template. The template's required node affinity
/// replaces the pod's, because the DaemonSet controller pins real pods to one node.
///
/// # Errors
/// The first field that cannot be converted.
pub fn daemon_pod(daemon_set: &DaemonSet, newest: Option<&Pod>) -> Result<DaemonPod, FieldError> {
    let namespace = daemon_set
        .metadata
        .namespace
        .as_deref()
        .unwrap_or("default");
    let name = format!(
        "{namespace}/{}",
        daemon_set.metadata.name.as_deref().unwrap_or_default()
    );
    let template = daemon_set.spec.as_ref().map(|spec| &spec.template);
    let from_template = Pod {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            namespace: Some(namespace.to_owned()),
            ..template
                .and_then(|t| t.metadata.clone())
                .unwrap_or_default()
        },
        spec: template.and_then(|t| t.spec.clone()),
        status: None,
    };
    let mut spec = pod_spec(newest.unwrap_or(&from_template)).map_err(|e| FieldError {
        path: if newest.is_some() {
            e.path
        } else {
            format!("spec.template.{}", e.path)
        },
        message: e.message,
    })?;
    let required = from_template
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref())
        .and_then(|node| {
            node.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    if let Some(required) = required {
        spec.required_terms = required
            .node_selector_terms
            .iter()
            .map(|term| node_term(term, "spec.template.spec.affinity.nodeAffinity"))
            .collect::<Result<_, _>>()?;
    } else if newest.is_some() {
        // The only required affinity that the real pod then has is the pin to its node.
        spec.required_terms.clear();
    }
    Ok(DaemonPod {
        name: name.into(),
        spec: Arc::new(spec),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_pod_counts_but_not_its_pin_to_a_node() {
        let set = json!({
            "metadata": {"name": "d", "namespace": "kube-system"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "c", "resources": {"limits": {"cpu": "100m"}}}]}}},
        });
        let set: DaemonSet = serde_json::from_value(set).unwrap();
        let own = daemon_pod(&set, None).unwrap();
        assert_eq!(
            (&*own.name, own.spec.requests.to_string()),
            ("kube-system/d", "cpu=100m, pods=1".to_owned())
        );
        let pod = json!({"metadata": {"name": "d-1", "namespace": "kube-system"}, "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}},
        }});
        let newest = daemon_pod(&set, Some(&serde_json::from_value(pod).unwrap())).unwrap();
        assert_eq!(newest.spec.requests.to_string(), "cpu=200m, pods=1");
        assert!(newest.spec.required_terms.is_empty());
    }
}
