//! The built-in resources: names, scope, subresources and the Rust type whose schema k8s-openapi
//! generates, plus how their lists merge.
//!
//! k8s-openapi's schemas lack the `x-kubernetes-*` extensions, so those stand in
//! `data/merge_semantics.tsv`: facts of the OpenAPI document of Kubernetes 1.36.

use std::sync::{Arc, OnceLock};

use k8s_openapi as k8s;
use rustc_hash::FxHashMap;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::schema::Schema;

/// One built-in resource.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: &'static str,
    pub(crate) categories: &'static str,
    pub(crate) subresources: &'static str,
    pub(crate) create_only: bool,
    pub(crate) make_schema: fn(&mut SchemaGenerator) -> schemars::Schema,
}

#[expect(
    clippy::too_many_arguments,
    reason = "one argument per column of the table below"
)]
const fn row<T: JsonSchema>(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short_names: &'static str,
    categories: &'static str,
    subresources: &'static str,
    create_only: bool,
) -> Row {
    Row {
        group,
        version,
        plural,
        kind,
        namespaced,
        short_names,
        categories,
        subresources,
        create_only,
        make_schema: subschema::<T>,
    }
}

fn subschema<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<T>()
}

/// The schema of anything: custom resources carry their own.
pub(crate) fn any_schema(_: &mut SchemaGenerator) -> schemars::Schema {
    schemars::Schema::default()
}

/// Columns: group, version, plural, kind, namespaced, short names, categories, subresources,
/// create only. The order is that of the real discovery document.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row::<k8s::api::core::v1::ConfigMap>("", "v1", "configmaps", "ConfigMap", true, "cm", "", "", false),
    row::<k8s::api::core::v1::Endpoints>("", "v1", "endpoints", "Endpoints", true, "ep", "", "", false),
    row::<k8s::api::core::v1::Event>("", "v1", "events", "Event", true, "ev", "", "", false),
    row::<k8s::api::core::v1::LimitRange>("", "v1", "limitranges", "LimitRange", true, "limits", "", "", false),
    row::<k8s::api::core::v1::Namespace>("", "v1", "namespaces", "Namespace", false, "ns", "", "finalize,status", false),
    row::<k8s::api::core::v1::Node>("", "v1", "nodes", "Node", false, "no", "", "status", false),
    row::<k8s::api::core::v1::PersistentVolumeClaim>("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, "pvc", "", "status", false),
    row::<k8s::api::core::v1::PersistentVolume>("", "v1", "persistentvolumes", "PersistentVolume", false, "pv", "", "status", false),
    row::<k8s::api::core::v1::Pod>("", "v1", "pods", "Pod", true, "po", "all", "binding,eviction,status", false),
    row::<k8s::api::core::v1::PodTemplate>("", "v1", "podtemplates", "PodTemplate", true, "", "", "", false),
    row::<k8s::api::core::v1::ReplicationController>("", "v1", "replicationcontrollers", "ReplicationController", true, "rc", "all", "scale,status", false),
    row::<k8s::api::core::v1::ResourceQuota>("", "v1", "resourcequotas", "ResourceQuota", true, "quota", "", "status", false),
    row::<k8s::api::core::v1::Secret>("", "v1", "secrets", "Secret", true, "", "", "", false),
    row::<k8s::api::core::v1::ServiceAccount>("", "v1", "serviceaccounts", "ServiceAccount", true, "sa", "", "token", false),
    row::<k8s::api::core::v1::Service>("", "v1", "services", "Service", true, "svc", "all", "status", false),
    row::<k8s::api::apps::v1::ControllerRevision>("apps", "v1", "controllerrevisions", "ControllerRevision", true, "", "", "", false),
    row::<k8s::api::apps::v1::DaemonSet>("apps", "v1", "daemonsets", "DaemonSet", true, "ds", "all", "status", false),
    row::<k8s::api::apps::v1::Deployment>("apps", "v1", "deployments", "Deployment", true, "deploy", "all", "scale,status", false),
    row::<k8s::api::apps::v1::ReplicaSet>("apps", "v1", "replicasets", "ReplicaSet", true, "rs", "all", "scale,status", false),
    row::<k8s::api::apps::v1::StatefulSet>("apps", "v1", "statefulsets", "StatefulSet", true, "sts", "all", "scale,status", false),
    row::<k8s::api::events::v1::Event>("events.k8s.io", "v1", "events", "Event", true, "ev", "", "", false),
    row::<k8s::api::authorization::v1::SelfSubjectAccessReview>("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false, "", "", "", true),
    row::<k8s::api::authorization::v1::SubjectAccessReview>("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false, "", "", "", true),
    row::<k8s::api::batch::v1::CronJob>("batch", "v1", "cronjobs", "CronJob", true, "cj", "all", "status", false),
    row::<k8s::api::batch::v1::Job>("batch", "v1", "jobs", "Job", true, "", "all", "status", false),
    row::<k8s::api::networking::v1::NetworkPolicy>("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true, "netpol", "", "", false),
    row::<k8s::api::policy::v1::PodDisruptionBudget>("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, "pdb", "", "status", false),
    row::<k8s::api::rbac::v1::ClusterRoleBinding>("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false, "", "", "", false),
    row::<k8s::api::rbac::v1::ClusterRole>("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false, "", "", "", false),
    row::<k8s::api::rbac::v1::RoleBinding>("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true, "", "", "", false),
    row::<k8s::api::rbac::v1::Role>("rbac.authorization.k8s.io", "v1", "roles", "Role", true, "", "", "", false),
    row::<k8s::api::storage::v1::CSIDriver>("storage.k8s.io", "v1", "csidrivers", "CSIDriver", false, "", "", "", false),
    row::<k8s::api::storage::v1::CSINode>("storage.k8s.io", "v1", "csinodes", "CSINode", false, "", "", "", false),
    row::<k8s::api::storage::v1::CSIStorageCapacity>("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", true, "", "", "", false),
    row::<k8s::api::storage::v1::StorageClass>("storage.k8s.io", "v1", "storageclasses", "StorageClass", false, "sc", "", "", false),
    row::<k8s::api::storage::v1::VolumeAttachment>("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false, "", "", "status", false),
    row::<k8s::api::admissionregistration::v1::MutatingWebhookConfiguration>("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false, "", "api-extensions", "", false),
    row::<k8s::api::admissionregistration::v1::ValidatingWebhookConfiguration>("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false, "", "api-extensions", "", false),
    row::<k8s::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false, "crd,crds", "api-extensions", "status", false),
    row::<k8s::api::scheduling::v1::PriorityClass>("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false, "pc", "", "", false),
    row::<k8s::api::coordination::v1::Lease>("coordination.k8s.io", "v1", "leases", "Lease", true, "", "", "", false),
    row::<k8s::api::node::v1::RuntimeClass>("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", false, "", "", "", false),
    row::<k8s::api::discovery::v1::EndpointSlice>("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true, "", "", "", false),
    row::<k8s::api::resource::v1::DeviceClass>("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", false, "", "", "", false),
    row::<k8s::api::resource::v1::ResourceClaim>("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", true, "", "", "status", false),
    row::<k8s::api::resource::v1::ResourceClaimTemplate>("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", true, "", "", "", false),
    row::<k8s::api::resource::v1::ResourceSlice>("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", false, "", "", "", false),
];

/// A generator whose definitions are keyed by the names OpenAPI uses.
pub(crate) fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft07().with(|settings| {
        // They would wrap references in `allOf`; the compiler reads what stands beside them.
        settings.transforms.clear();
    });
    settings.into_generator()
}

/// The OpenAPI name of a type, from the reference its schema makes.
pub(crate) fn type_name(make: fn(&mut SchemaGenerator) -> schemars::Schema) -> String {
    let schema = make(&mut generator());
    let reference = schema.get("$ref").and_then(Value::as_str).unwrap_or("");
    reference.rsplit('/').next().unwrap_or("").to_owned()
}

/// Compiles the schema of a built-in type together with its merge semantics.
pub(crate) fn compiled_schema(make: fn(&mut SchemaGenerator) -> schemars::Schema) -> Arc<Schema> {
    let mut generator = generator();
    let root = make(&mut generator).to_value();
    let mut definitions: Map<String, Value> =
        generator.take_definitions(true).into_iter().collect();
    for (name, definition) in &mut definitions {
        annotate(name, definition);
    }
    Arc::new(Schema::compile_builtin(&root, &definitions))
}

/// Adds the `x-kubernetes-*` extensions to one definition of a built-in type.
pub(crate) fn annotate(type_name: &str, definition: &mut Value) {
    let Some(entries) = semantics().get(type_name) else {
        return;
    };
    for entry in entries {
        let target = if entry.field == "*" {
            Some(&mut *definition)
        } else {
            definition
                .get_mut("properties")
                .and_then(|properties| properties.get_mut(&entry.field))
        };
        if let Some(target) = target.and_then(Value::as_object_mut) {
            target.extend(entry.extensions.clone());
        }
    }
}

#[derive(Debug)]
struct Semantics {
    field: String,
    extensions: Map<String, Value>,
}

fn semantics() -> &'static FxHashMap<String, Vec<Semantics>> {
    static TABLE: OnceLock<FxHashMap<String, Vec<Semantics>>> = OnceLock::new();
    TABLE.get_or_init(|| parse_semantics(include_str!("data/merge_semantics.tsv")))
}

fn parse_semantics(text: &str) -> FxHashMap<String, Vec<Semantics>> {
    let mut table: FxHashMap<String, Vec<Semantics>> = FxHashMap::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [name, field, list_type, keys, merge_key, strategy, map_type] = columns[..] else {
            continue;
        };
        let mut extensions = Map::new();
        let texts = [
            ("x-kubernetes-list-type", list_type),
            ("x-kubernetes-patch-merge-key", merge_key),
            ("x-kubernetes-patch-strategy", strategy),
            ("x-kubernetes-map-type", map_type),
        ];
        for (extension, value) in texts.into_iter().filter(|(_, value)| *value != "-") {
            extensions.insert(extension.to_owned(), value.into());
        }
        if keys != "-" {
            let keys: Vec<Value> = keys.split(',').map(Value::from).collect();
            extensions.insert("x-kubernetes-list-map-keys".to_owned(), keys.into());
        }
        let entry = Semantics {
            field: field.to_owned(),
            extensions,
        };
        table.entry(name.to_owned()).or_default().push(entry);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_merge_semantics_is_read() {
        let text = include_str!("data/merge_semantics.tsv");
        let rows = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(semantics().values().map(Vec::len).sum::<usize>(), rows);
    }

    #[test]
    fn containers_merge_by_name_and_tolerations_are_atomic() {
        let pod = ROWS.iter().find(|row| row.kind == "Pod").unwrap();
        let schema = compiled_schema(pod.make_schema);
        let spec = schema.property(schema.root(), "spec").unwrap();
        let containers = schema.property(spec, "containers").unwrap();
        assert_eq!(
            schema.node(containers).patch_merge_key.as_deref(),
            Some("name")
        );
        let tolerations = schema.property(spec, "tolerations").unwrap();
        assert_eq!(schema.node(tolerations).patch_merge_key, None);
    }
}
