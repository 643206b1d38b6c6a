//! Defaults of built-in types, as far as clients see them.

use serde_json::{Map, Value, json};

use super::object::{at, object_mut};
use super::registry::Resource;

/// Fills in what a client left out.
pub(crate) fn fill(resource: &Resource, value: &mut Value) {
    if resource.custom.is_some() {
        return;
    }
    match resource.group.as_str() {
        "" => core(&resource.plural, value),
        "apps" | "batch" => controllers(&resource.plural, value),
        _ => others(resource, value),
    }
}

fn core(plural: &str, value: &mut Value) {
    match plural {
        "pods" => {
            pod_spec(object_mut(value, "spec"));
            set(object_mut(value, "spec"), "enableServiceLinks", true.into());
        }
        "namespaces" => {
            set(
                object_mut(value, "spec"),
                "finalizers",
                json!(["kubernetes"]),
            );
            set(object_mut(value, "status"), "phase", json!("Active"));
            let name = at(value, &["metadata", "name"])
                .cloned()
                .unwrap_or_default();
            let meta = object_mut(value, "metadata");
            let labels = meta.entry("labels").or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name;
        }
        "replicationcontrollers" => {
            workload(value);
            let labels = at(value, &["spec", "template", "metadata", "labels"]).cloned();
            if let Some(labels) = labels {
                set(object_mut(value, "spec"), "selector", labels);
            }
        }
        "services" => {
            let spec = object_mut(value, "spec");
            set(spec, "type", json!("ClusterIP"));
            set(spec, "sessionAffinity", json!("None"));
            each(spec, "ports", |port| {
                set(port, "protocol", json!("TCP"));
                if let Some(number) = port.get("port").cloned() {
                    set(port, "targetPort", number);
                }
            });
        }
        "persistentvolumeclaims" => {
            set(object_mut(value, "spec"), "volumeMode", json!("Filesystem"));
        }
        "persistentvolumes" => {
            let spec = object_mut(value, "spec");
            set(spec, "volumeMode", json!("Filesystem"));
            set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
        }
        "secrets" => {
            let Some(secret) = value.as_object_mut() else {
                return;
            };
            set(secret, "type", json!("Opaque"));
            secret_text(secret);
        }
        _ => {}
    }
}

fn controllers(plural: &str, value: &mut Value) {
    match plural {
        "deployments" => {
            workload(value);
            let spec = object_mut(value, "spec");
            set(spec, "revisionHistoryLimit", 10.into());
            set(spec, "progressDeadlineSeconds", 600.into());
            rolling(
                spec,
                "strategy",
                &json!({ "maxUnavailable": "25%", "maxSurge": "25%" }),
            );
        }
        "daemonsets" => {
            template(object_mut(value, "spec"));
            let spec = object_mut(value, "spec");
            set(spec, "revisionHistoryLimit", 10.into());
            rolling(
                spec,
                "updateStrategy",
                &json!({ "maxUnavailable": 1, "maxSurge": 0 }),
            );
        }
        "statefulsets" => {
            workload(value);
            let spec = object_mut(value, "spec");
            set(spec, "revisionHistoryLimit", 10.into());
            set(spec, "podManagementPolicy", json!("OrderedReady"));
            rolling(spec, "updateStrategy", &json!({ "partition": 0 }));
        }
        "replicasets" => workload(value),
        "jobs" => job(value),
        "cronjobs" => {
            let spec = object_mut(value, "spec");
            set(spec, "concurrencyPolicy", json!("Allow"));
            set(spec, "suspend", false.into());
            set(spec, "successfulJobsHistoryLimit", 3.into());
            set(spec, "failedJobsHistoryLimit", 1.into());
        }
        _ => {}
    }
}

fn others(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("storage.k8s.io", "storageclasses") => {
            let Some(class) = value.as_object_mut() else {
                return;
            };
            set(class, "reclaimPolicy", json!("Delete"));
            set(class, "volumeBindingMode", json!("Immediate"));
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            let Some(class) = value.as_object_mut() else {
                return;
            };
            set(class, "preemptionPolicy", json!("PreemptLowerPriority"));
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => super::crd::complete(value),
        _ => {}
    }
}

/// `stringData` is for writing only; it ends up encoded in `data`.
fn secret_text(secret: &mut Map<String, Value>) {
    use base64::Engine as _;
    let Some(Value::Object(texts)) = secret.shift_remove("stringData") else {
        return;
    };
    let data = secret.entry("data").or_insert_with(|| json!({}));
    for (key, text) in texts {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or(""));
        data[&key] = encoded.into();
    }
}

fn set(map: &mut Map<String, Value>, field: &str, default: Value) {
    map.entry(field).or_insert(default);
}

fn each(
    map: &mut Map<String, Value>,
    field: &str,
    mut change: impl FnMut(&mut Map<String, Value>),
) {
    let items = map.get_mut(field).and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        change(item);
    }
}

fn workload(value: &mut Value) {
    let spec = object_mut(value, "spec");
    set(spec, "replicas", 1.into());
    template(spec);
}

fn template(spec: &mut Map<String, Value>) {
    let inner = spec
        .get_mut("template")
        .and_then(|template| template.get_mut("spec"));
    if let Some(inner) = inner.and_then(Value::as_object_mut) {
        pod_spec(inner);
    }
}

fn rolling(spec: &mut Map<String, Value>, field: &str, parameters: &Value) {
    let strategy = spec.entry(field).or_insert_with(|| json!({}));
    let Some(strategy) = strategy.as_object_mut() else {
        return;
    };
    set(strategy, "type", json!("RollingUpdate"));
    if strategy.get("type") != Some(&json!("RollingUpdate")) {
        return;
    }
    let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
    for (name, default) in parameters.as_object().into_iter().flatten() {
        if rolling.get(name).is_none() {
            rolling[name] = default.clone();
        }
    }
}

/// A Job finds its pods by its own uid unless it says otherwise.
fn job(value: &mut Value) {
    let uid = at(value, &["metadata", "uid"]).cloned().unwrap_or_default();
    let name = at(value, &["metadata", "name"])
        .cloned()
        .unwrap_or_default();
    let spec = object_mut(value, "spec");
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "backoffLimit", 6.into());
    set(spec, "suspend", false.into());
    set(spec, "parallelism", 1.into());
    if spec.get("parallelism") == Some(&json!(1)) {
        set(spec, "completions", 1.into());
    }
    set(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
    set(spec, "manualSelector", false.into());
    template(spec);
    if spec.get("manualSelector") == Some(&json!(false)) && !spec.contains_key("selector") {
        let labels = json!({
            "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
            "controller-uid": uid, "job-name": name,
        });
        let template = object_mut_at(spec, "template");
        let meta = template.entry("metadata").or_insert_with(|| json!({}));
        let own = meta
            .as_object_mut()
            .map(|meta| object_mut_at(meta, "labels"));
        if let (Some(own), Value::Object(labels)) = (own, labels) {
            own.extend(labels);
        }
        let selector = json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } });
        spec.insert("selector".to_owned(), selector);
    }
}

fn object_mut_at<'a>(map: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(field).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("made an object just above")
}

fn pod_spec(spec: &mut Map<String, Value>) {
    for list in ["containers", "initContainers"] {
        each(spec, list, container);
    }
    set(spec, "restartPolicy", json!("Always"));
    set(spec, "terminationGracePeriodSeconds", 30.into());
    set(spec, "dnsPolicy", json!("ClusterFirst"));
    set(spec, "securityContext", json!({}));
    set(spec, "schedulerName", json!("default-scheduler"));
}

fn container(container: &mut Map<String, Value>) {
    set(container, "resources", json!({}));
    set(
        container,
        "terminationMessagePath",
        json!("/dev/termination-log"),
    );
    set(container, "terminationMessagePolicy", json!("File"));
    let image = container.get("image").and_then(Value::as_str).unwrap_or("");
    let tag = image.rsplit('/').next().unwrap_or("");
    let is_latest =
        !tag.contains('@') && tag.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    let policy = if is_latest { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", json!(policy));
    each(container, "ports", |port| {
        set(port, "protocol", json!("TCP"));
    });
    let resources = container
        .get_mut("resources")
        .and_then(Value::as_object_mut);
    if let Some(resources) = resources
        && let Some(Value::Object(limits)) = resources.get("limits").cloned()
    {
        // A limit without a request is the request.
        let requests = object_mut_at(resources, "requests");
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}
