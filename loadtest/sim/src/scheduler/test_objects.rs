//! Objects for tests: a usual one, merged with what the test is about.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::pod::PodInfo;

/// A pod in the namespace `default` that asks for 100m and 100Mi.
pub(super) fn pod(name: &str, more: &Value) -> PodInfo {
    let mut value = json!({
        "metadata": {"name": name, "uid": name, "namespace": "default"},
        "spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}]},
    });
    json_patch::merge(&mut value, more);
    PodInfo::read(serde_json::from_value(value).expect("a pod"))
}

/// A node with eight CPUs, 16Gi, room for ten pods, and its name as a label.
pub(super) fn node(name: &str, more: &Value) -> Node {
    let mut value = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "10"}},
    });
    json_patch::merge(&mut value, more);
    serde_json::from_value(value).expect("a node")
}
