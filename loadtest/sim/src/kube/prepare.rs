//! What the server itself decides about an object that is written: which parts of it a request
//! may change, defaults, the initial status, the generation.

use serde_json::{Value, json};

use super::defaults;
use super::object::{at, metadata_mut, set_or_remove};
use super::registry::Resource;
use super::request::Call;

/// Metadata that no client changes.
const SYSTEM_META: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "generateName",
    "managedFields",
];

/// Completes a new object.
pub(crate) fn new_object(resource: &Resource, value: &mut Value) {
    if resource.has_status
        && let Some(status) = initial_status(resource)
    {
        let map = value.as_object_mut();
        if let Some(map) = map {
            set_or_remove(map, "status", status);
        }
    }
    resource.schema().default(value);
    defaults::fill(resource, value);
}

/// The status of a new object: `None` where clients may bring one, `Some(None)` for none.
fn initial_status(resource: &Resource) -> Option<Option<Value>> {
    if resource.custom.is_some() {
        return Some(None);
    }
    let status = match resource.plural.as_str() {
        "nodes" | "namespaces" | "volumeattachments" => return None,
        "customresourcedefinitions" => return Some(None),
        "pods" | "persistentvolumeclaims" | "persistentvolumes" => json!({ "phase": "Pending" }),
        "replicasets" | "replicationcontrollers" => json!({ "replicas": 0 }),
        "statefulsets" => json!({ "availableReplicas": 0, "replicas": 0 }),
        "services" => json!({ "loadBalancer": {} }),
        "daemonsets" => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0,
            "desiredNumberScheduled": 0, "numberReady": 0,
        }),
        "poddisruptionbudgets" => json!({
            "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
        }),
        _ => json!({}),
    };
    Some(Some(status))
}

/// Restores in `new` what this request may not change, and fills in defaults.
pub(crate) fn changed_object(call: &Call, old: &Value, new: &mut Value) {
    let resource = &call.resource;
    match call.subresource.as_str() {
        "status" => {
            let status = new.get("status").cloned();
            // Built-in resources take labels and annotations along with a status.
            let metadata = if resource.custom.is_some() {
                old.get("metadata").cloned()
            } else {
                new.get("metadata").cloned()
            };
            *new = old.clone();
            put(new, "status", status);
            put(new, "metadata", metadata);
        }
        "finalize" => {
            let finalizers = at(new, &["spec", "finalizers"]).cloned();
            *new = old.clone();
            new["spec"]["finalizers"] = finalizers.unwrap_or_else(|| json!([]));
        }
        _ => {
            if resource.has_status {
                put(new, "status", old.get("status").cloned());
            }
            if resource.is("", "namespaces") {
                put(new, "spec", old.get("spec").cloned());
            }
        }
    }
    let meta = metadata_mut(new);
    for field in SYSTEM_META {
        set_or_remove(meta, field, at(old, &["metadata", field]).cloned());
    }
    if let Some(version) = at(old, &["metadata", "resourceVersion"]) {
        meta.insert("resourceVersion".to_owned(), version.clone());
    }
    resource.schema().default(new);
    defaults::fill(resource, new);
}

fn put(value: &mut Value, field: &str, inner: Option<Value>) {
    if let Some(map) = value.as_object_mut() {
        set_or_remove(map, field, inner);
    }
}

/// Counts a change of what is wanted, as opposed to what is observed.
pub(crate) fn generation(resource: &Resource, old: &Value, new: &mut Value) {
    let Some(before) = at(old, &["metadata", "generation"]).and_then(Value::as_i64) else {
        return;
    };
    let has_changed = if resource.custom.is_some() {
        wanted(resource, old) != wanted(resource, new)
    } else {
        old.get("spec") != new.get("spec")
    };
    if has_changed {
        metadata_mut(new).insert("generation".to_owned(), json!(before + 1));
    }
}

/// All of a custom object but metadata and, if that is a subresource, status.
fn wanted(resource: &Resource, value: &Value) -> Vec<(String, Value)> {
    let is_wanted =
        |field: &str| field != "metadata" && !(field == "status" && resource.has_status);
    let fields = value.as_object().into_iter().flatten();
    let mut kept: Vec<(String, Value)> = fields
        .filter(|(field, _)| is_wanted(field))
        .map(|(field, inner)| (field.clone(), inner.clone()))
        .collect();
    kept.sort_by(|a, b| a.0.cmp(&b.0));
    kept
}
