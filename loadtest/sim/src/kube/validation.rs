//! Whether an object may be stored: its metadata, its schema, and what no schema says.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::error::ApiError;
use super::object::{at, finalizers, is_deleting, list_at, meta_str, str_at};
use super::registry::Resource;
use super::validate::{self, Cause, cause, forbidden_value, invalid_value, required_value};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const POD_UPDATES: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Refuses what may not be stored.
///
/// # Errors
/// 422 with one cause per field.
pub(crate) fn check(
    resource: &Resource,
    value: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    metadata(resource, value, old, &mut causes);
    let schema = resource.schema();
    if schema.is_builtin() {
        causes.extend(validate::missing_fields(schema, value));
    } else {
        causes.extend(validate::validate(schema, value, old));
    }
    if resource.custom.is_none() && subresource.is_empty() {
        builtin(resource, value, old, &mut causes);
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = meta_str(value, "name");
    Err(ApiError::invalid(
        &resource.group,
        &resource.kind,
        name,
        causes,
    ))
}

fn pattern(expression: &str) -> Regex {
    Regex::new(expression).expect("a constant expression")
}

fn metadata(resource: &Resource, value: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    });
    static NAME_PART: LazyLock<Regex> =
        LazyLock::new(|| pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
    static KEY: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        )
    });
    static VALUE: LazyLock<Regex> =
        LazyLock::new(|| pattern("^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$"));
    let name = meta_str(value, "name");
    let shown = json!(name);
    if old.is_none() {
        let is_label = matches!(resource.plural.as_str(), "namespaces" | "services")
            && resource.custom.is_none();
        let is_free = resource.group == "rbac.authorization.k8s.io";
        let (valid, max, why) = if is_label {
            (NAME_PART.is_match(name), 63, LABEL)
        } else {
            (is_free || NAME.is_match(name), 253, SUBDOMAIN)
        };
        if name.is_empty() {
            causes.push(required_value(
                "metadata.name",
                "name or generateName is required",
            ));
        } else if !valid {
            causes.push(invalid_value("metadata.name", &shown, why));
        } else if name.len() > max {
            let why = format!("must be no more than {max} characters");
            causes.push(invalid_value("metadata.name", &shown, &why));
        }
    }
    for (key, label) in at(value, &["metadata", "labels"])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if !KEY.is_match(key) {
            let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must \
                       start and end with an alphanumeric character";
            causes.push(invalid_value("metadata.labels", &json!(key), why));
        }
        if !label.as_str().is_some_and(|text| VALUE.is_match(text)) {
            causes.push(invalid_value("metadata.labels", label, LABEL_VALUE));
        }
    }
    for (index, owner) in list_at(value, &["metadata", "ownerReferences"])
        .iter()
        .enumerate()
    {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if str_at(owner, &[field]).is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                let message = "Invalid value: \"\": must not be empty".to_owned();
                causes.push(cause("FieldValueInvalid", message, &path));
            }
        }
    }
    if let Some(old) = old.filter(|old| is_deleting(old)) {
        finalizers_in_deletion(old, value, causes);
    }
}

fn finalizers_in_deletion(old: &Value, value: &Value, causes: &mut Vec<Cause>) {
    let before = finalizers(old);
    let now = finalizers(value);
    let fresh: Vec<&&str> = now.iter().filter(|name| !before.contains(name)).collect();
    if !fresh.is_empty() {
        let quoted: Vec<String> = fresh.iter().map(|name| format!("{name:?}")).collect();
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            quoted.join(", ")
        );
        causes.push(forbidden_value("metadata.finalizers", &why));
    }
}

fn builtin(resource: &Resource, value: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            pod_spec(value.get("spec"), "spec", causes);
            if let Some(old) = old {
                pod_update(old, value, causes);
            }
        }
        ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") => {
            let template = at(value, &["spec", "template", "spec"]);
            pod_spec(template, "spec.template.spec", causes);
            selector(value, causes);
            if let Some(old) = old {
                immutable(old, value, &["spec", "selector"], causes);
            }
        }
        ("batch", "jobs") => {
            let template = at(value, &["spec", "template", "spec"]);
            pod_spec(template, "spec.template.spec", causes);
            if template.is_some_and(|spec| str_at(spec, &["restartPolicy"]) == "Always") {
                let field = "spec.template.spec.restartPolicy";
                causes.push(required_value(
                    field,
                    "valid values: \"OnFailure\", \"Never\"",
                ));
            }
        }
        ("", "nodes") => {
            if let Some(old) = old.filter(|old| !str_at(old, &["spec", "providerID"]).is_empty()) {
                let same = at(old, &["spec", "providerID"]) == at(value, &["spec", "providerID"]);
                if !same {
                    let why = "node updates may not change providerID except from \"\" to valid";
                    causes.push(forbidden_value("spec.providerID", why));
                }
            }
        }
        ("policy", "poddisruptionbudgets") => {
            let both = ["minAvailable", "maxUnavailable"]
                .iter()
                .all(|field| at(value, &["spec", field]).is_some());
            if both {
                let why = "minAvailable and maxUnavailable cannot be both set";
                let message = format!(
                    "Invalid value: {}: {why}",
                    value.get("spec").unwrap_or(&json!({}))
                );
                causes.push(cause("FieldValueInvalid", message, "spec"));
            }
        }
        _ => {}
    }
}

fn pod_spec(spec: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    let Some(spec) = spec else {
        causes.push(required_value(path, ""));
        return;
    };
    if list_at(spec, &["containers"]).is_empty() {
        causes.push(required_value(&format!("{path}.containers"), ""));
    }
    for list in ["containers", "initContainers"] {
        let mut names = Vec::new();
        for (index, container) in list_at(spec, &[list]).iter().enumerate() {
            let place = format!("{path}.{list}[{index}]");
            let name = str_at(container, &["name"]);
            if names.contains(&name) {
                let message = format!("Duplicate value: {name:?}");
                causes.push(cause(
                    "FieldValueDuplicate",
                    message,
                    &format!("{place}.name"),
                ));
            }
            if name.is_empty() && container.get("name").is_some() {
                causes.push(required_value(&format!("{place}.name"), ""));
            }
            names.push(name);
            if str_at(container, &["image"]).is_empty() {
                causes.push(required_value(&format!("{place}.image"), ""));
            }
        }
    }
}

fn selector(value: &Value, causes: &mut Vec<Cause>) {
    let Some(selector) = at(value, &["spec", "selector"]) else {
        return;
    };
    let labels = at(value, &["spec", "template", "metadata", "labels"]);
    let parsed = super::selector::LabelSelector::from_object(selector);
    if !parsed.is_some_and(|selector| selector.matches_labels(labels)) {
        let shown = labels.cloned().unwrap_or_else(|| json!({}));
        let message =
            format!("Invalid value: {shown}: `selector` does not match template `labels`");
        causes.push(cause(
            "FieldValueInvalid",
            message,
            "spec.template.metadata.labels",
        ));
    }
}

fn immutable(old: &Value, new: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    let now = at(new, path);
    if at(old, path) != now {
        let shown = now.cloned().unwrap_or_default();
        let message = format!("Invalid value: {shown}: field is immutable");
        causes.push(cause("FieldValueInvalid", message, &path.join(".")));
    }
}

/// A pod keeps its specification, save for a few fields.
fn pod_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let fixed = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        if let Some(map) = spec.as_object_mut() {
            for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
                map.shift_remove(field);
            }
        }
        for list in ["containers", "initContainers"] {
            let items = spec.get_mut(list).and_then(Value::as_array_mut);
            for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
                item.shift_remove("image");
            }
        }
        spec
    };
    let before = list_at(old, &["spec", "tolerations"]);
    let now = list_at(new, &["spec", "tolerations"]);
    let keeps_tolerations = before.iter().all(|toleration| now.contains(toleration));
    let gates = list_at(old, &["spec", "schedulingGates"]);
    let opens_only = list_at(new, &["spec", "schedulingGates"])
        .iter()
        .all(|gate| gates.contains(gate));
    let (before, now) = (fixed(old), fixed(new));
    let same = if gates.is_empty() {
        before == now
    } else {
        // A pod that is held back may still be narrowed to fewer nodes.
        let narrowable = |spec: &Value| {
            let mut spec = spec.clone();
            if let Some(map) = spec.as_object_mut() {
                map.shift_remove("nodeSelector");
                map.shift_remove("affinity");
            }
            spec
        };
        narrowable(&before) == narrowable(&now)
    };
    if !same || !keeps_tolerations || !opens_only {
        causes.push(forbidden_value("spec", POD_UPDATES));
    }
}
