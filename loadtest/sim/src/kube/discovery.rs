//! Discovery: which groups, versions and resources there are, in both forms that clients ask for.

use http::StatusCode;
use http::header::ACCEPT;
use http::request::Parts;
use serde_json::{Value, json};

use super::api::{ApiServer, Reply};
use super::error::ApiError;
use super::registry::{Registry, Resource};

const READ_WRITE: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// `/version` of a version like `v1.36.3`.
pub(crate) fn version(version: &str) -> Value {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    json!({
        "major": major, "minor": minor, "gitVersion": version, "gitCommit": "simulated",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// Answers the paths of discovery.
///
/// # Errors
/// 404 for a group or version that is not served.
pub(crate) fn answer(server: &ApiServer, path: &str, head: &Parts) -> Result<Reply, ApiError> {
    let accept = head
        .headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok());
    let is_aggregated = accept.is_some_and(|accept| {
        accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2")
    });
    let registry = server.registry();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let document = match parts[..] {
        ["api"] if is_aggregated => return Ok(aggregated(&registry, true)),
        ["apis"] if is_aggregated => return Ok(aggregated(&registry, false)),
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        ["apis"] => {
            let groups: Vec<Value> = registry
                .groups()
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions))
                .collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        ["api", version] => resources(&registry, "", version)?,
        ["apis", name] => {
            let groups = registry.groups();
            let found = groups.iter().find(|(group, _)| group == name);
            let (name, versions) = found.ok_or_else(ApiError::no_such_path)?;
            let mut document = group(name, versions);
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            document
        }
        ["apis", group, version] => resources(&registry, group, version)?,
        [""] => {
            json!({ "paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"] })
        }
        _ => return Err(ApiError::no_such_path()),
    };
    Ok(Reply::json(StatusCode::OK, &document))
}

fn group(name: &str, versions: &[String]) -> Value {
    let version = |version: &String| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({ "name": name, "preferredVersion": versions.first(), "versions": versions })
}

fn served<'a>(registry: &'a Registry, group: &'a str, version: &'a str) -> Vec<&'a Resource> {
    registry
        .all()
        .iter()
        .map(AsRef::as_ref)
        .filter(|resource: &&Resource| resource.group == group && resource.version == version)
        .collect()
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    if resource.create_only {
        &["create"]
    } else {
        READ_WRITE
    }
}

/// A subresource: its kind as (group, version, kind), and its verbs.
fn subresource(resource: &Resource, name: &str) -> (Value, &'static [&'static str]) {
    let kind = |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    match name {
        "scale" => (
            kind("autoscaling", "v1", "Scale"),
            &["get", "patch", "update"],
        ),
        "eviction" => (kind("policy", "v1", "Eviction"), &["create"]),
        "binding" => (kind("", "v1", "Binding"), &["create"]),
        "finalize" => (
            kind(&resource.group, &resource.version, &resource.kind),
            &["update"],
        ),
        _ => (
            kind(&resource.group, &resource.version, &resource.kind),
            &["get", "patch", "update"],
        ),
    }
}

fn subresources(resource: &Resource) -> Vec<&str> {
    let mut names: Vec<&str> = resource.subresources.iter().map(String::as_str).collect();
    if resource.has_status {
        names.push("status");
    }
    names
}

fn resources(registry: &Registry, group: &str, version: &str) -> Result<Value, ApiError> {
    let mut list = Vec::new();
    for resource in served(registry, group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular,
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs(resource),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        list.push(entry);
        for name in subresources(resource) {
            let (kind, verbs) = subresource(resource, name);
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind["kind"], "verbs": verbs,
            });
            if matches!(name, "scale" | "eviction") {
                entry["group"] = kind["group"].clone();
                entry["version"] = kind["version"].clone();
            }
            list.push(entry);
        }
    }
    if list.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": list,
    }))
}

fn aggregated(registry: &Registry, core: bool) -> Reply {
    let mut items = Vec::new();
    for (group, versions) in registry.groups() {
        if group.is_empty() != core {
            continue;
        }
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let resources = served(registry, &group, version);
                let resources: Vec<Value> =
                    resources.into_iter().map(aggregated_resource).collect();
                json!({ "version": version, "freshness": "Current", "resources": resources })
            })
            .collect();
        let metadata = if core {
            json!({ "creationTimestamp": null })
        } else {
            json!({ "name": group, "creationTimestamp": null })
        };
        items.push(json!({ "metadata": metadata, "versions": versions }));
    }
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items,
    });
    Reply::json(StatusCode::OK, &document)
        .with_type("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
}

fn aggregated_resource(resource: &Resource) -> Value {
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|name| {
            let (kind, verbs) = subresource(resource, name);
            json!({ "subresource": name, "responseKind": kind, "verbs": verbs })
        })
        .collect();
    let kind = json!({
        "group": resource.group, "version": resource.version, "kind": resource.kind,
    });
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": verbs(resource),
    });
    for (field, list) in [
        ("shortNames", json!(resource.short_names)),
        ("categories", json!(resource.categories)),
        ("subresources", json!(subresources)),
    ] {
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            entry[field] = list;
        }
    }
    entry
}
