//! What a cluster has from its first moment.

use serde_json::{Value, json};

use super::api::ApiServer;
use super::defaults;
use super::object::{ObjectKey, meta_str, metadata_mut, now_rfc3339};
use super::store::Expect;

pub(crate) fn fill(server: &ApiServer) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        put(
            server,
            ("", "v1", "namespaces"),
            json!({ "metadata": { "name": name } }),
        );
    }
    for (name, value) in [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ] {
        put(
            server,
            ("scheduling.k8s.io", "v1", "priorityclasses"),
            json!({ "metadata": { "name": name, "generation": 1 }, "value": value }),
        );
    }
}

fn put(server: &ApiServer, (group, version, plural): (&str, &str, &str), mut value: Value) {
    let registry = server.registry();
    let Some(resource) = registry.find(group, version, plural) else {
        return;
    };
    let mut typed = json!({ "kind": resource.kind, "apiVersion": resource.api_version() });
    let meta = metadata_mut(&mut value);
    meta.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
    meta.insert("creationTimestamp".to_owned(), json!(now_rfc3339()));
    if let (Some(typed), Value::Object(fields)) = (typed.as_object_mut(), value) {
        typed.extend(fields);
    }
    defaults::fill(&resource, &mut typed);
    let key = ObjectKey::new("", meta_str(&typed, "name"));
    // The store is empty: nothing can be in the way.
    let _ = server.store.put(&resource.id, key, Expect::Absent, typed);
}
