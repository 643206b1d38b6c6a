//! OpenAPI v3 documents: what `kubectl explain` shows and `kubectl apply` reads.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::api::{ApiServer, Reply};
use super::builtin;
use super::error::ApiError;
use super::registry::Resource;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Answers `/openapi/v3` and the documents it names.
///
/// # Errors
/// 404 for a group or version that is not served.
pub(crate) fn answer(server: &ApiServer, path: &str) -> Result<Reply, ApiError> {
    let registry = server.registry();
    let Some(rest) = path.strip_prefix("/openapi/v3") else {
        return Err(ApiError::no_such_path());
    };
    if rest.is_empty() {
        let mut paths = Map::new();
        for (group, versions) in registry.groups() {
            for version in versions {
                let name = root(&group, &version);
                let url = format!("/openapi/v3{name}");
                paths.insert(name[1..].to_owned(), json!({ "serverRelativeURL": url }));
            }
        }
        return Ok(Reply::json(StatusCode::OK, &json!({ "paths": paths })));
    }
    let resources: Vec<&Resource> = registry
        .all()
        .iter()
        .map(AsRef::as_ref)
        .filter(|resource: &&Resource| root(&resource.group, &resource.version) == rest)
        .collect();
    if resources.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let document = json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": server.config.version },
        "paths": paths(&resources), "components": { "schemas": schemas(&resources) },
    });
    Ok(Reply::json(StatusCode::OK, &document))
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

fn group_version_kind(resource: &Resource) -> Value {
    json!({ "group": resource.group, "version": resource.version, "kind": resource.kind })
}

fn paths(resources: &[&Resource]) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in resources {
        let parameter =
            |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
        let writes: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
            .into_iter()
            .map(parameter)
            .collect();
        let operation = |action: &str, parameters: &[Value]| {
            let schema = json!({ "$ref": format!("#/components/schemas/{}", resource.type_name) });
            json!({
                "x-kubernetes-action": action, "parameters": parameters,
                "x-kubernetes-group-version-kind": group_version_kind(resource),
                "responses": { "200": {
                    "description": "OK", "content": { "application/json": { "schema": schema } },
                } },
            })
        };
        let namespace = if resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let root = root(&resource.group, &resource.version);
        let collection = format!("{root}{namespace}/{}", resource.plural);
        let mut on_collection = json!({ "post": operation("post", &writes) });
        if !resource.create_only {
            on_collection["get"] = operation("list", &[]);
            on_collection["delete"] = operation("deletecollection", &[]);
            let on_object = json!({
                "get": operation("get", &[]), "put": operation("put", &writes),
                "patch": operation("patch", &writes), "delete": operation("delete", &[]),
            });
            paths.insert(format!("{collection}/{{name}}"), on_object);
        }
        paths.insert(collection, on_collection);
    }
    paths
}

fn schemas(resources: &[&Resource]) -> Map<String, Value> {
    let mut generator = builtin::generator();
    let mut custom = Map::new();
    for resource in resources {
        match &resource.custom {
            Some(version) => {
                let mut schema = version.open_api.clone();
                schema["properties"]["apiVersion"] = json!({ "type": "string" });
                schema["properties"]["kind"] = json!({ "type": "string" });
                schema["properties"]["metadata"] =
                    json!({ "$ref": format!("#/components/schemas/{OBJECT_META}") });
                custom.insert(resource.type_name.clone(), schema);
            }
            None => {
                resource.json_schema(&mut generator);
            }
        }
    }
    if !custom.is_empty() {
        generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>();
    }
    let mut all: Map<String, Value> = generator.take_definitions(true).into_iter().collect();
    for (name, schema) in &mut all {
        builtin::annotate(name, schema);
        relocate(schema);
    }
    all.extend(custom);
    for resource in resources {
        if let Some(schema) = all.get_mut(&resource.type_name) {
            schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(resource)]);
        }
    }
    all
}

/// Points references to where OpenAPI keeps definitions.
fn relocate(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref") {
                *reference = reference.replace("#/definitions/", "#/components/schemas/");
                // Beside a reference, other keywords would be ignored: `allOf` keeps both.
                if map.len() > 1 {
                    let reference = map.shift_remove("$ref");
                    map.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
                }
            }
            map.values_mut().for_each(relocate);
        }
        Value::Array(items) => items.iter_mut().for_each(relocate),
        _ => {}
    }
}
