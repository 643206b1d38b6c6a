//! CustomResourceDefinitions and the resources they define.

use anyhow::{Context, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, ResourceExt as _};
use millwright_tests::eventually;
use serde_json::{Value, json};

use crate::cases;
use crate::world::{SOON, World, from, names_field, refused};

cases![
    definitions_are_served_once_established,
    defaults_and_pruning,
    values_are_validated,
    rules_are_evaluated,
    transition_rules_compare_with_what_was,
    status_has_a_subresource,
    generation_and_scale,
    unknown_fields_are_refused_on_request,
    strategic_patches_are_refused,
    custom_resources_are_applied,
    finalizers_outlive_definitions,
    wrong_definitions_are_refused,
    the_projects_own_resources_are_served,
];

/// The group of one case's own definition.
fn group(world: &World) -> String {
    format!("{}.test.io", world.namespace)
}

fn definition(world: &World) -> Value {
    let spec = json!({
        "type": "object", "required": ["colour"],
        "x-kubernetes-validations": [
            { "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
              "message": "low may not exceed high" },
        ],
        "properties": {
            "colour": {
                "type": "string", "enum": ["red", "green"],
                "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "colour is fixed" }],
            },
            "size": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3 },
            "code": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5 },
            "low": { "type": "integer" }, "high": { "type": "integer" },
            "replicas": { "type": "integer", "default": 1 },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "parts": {
                "type": "array", "maxItems": 2, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object", "required": ["name"],
                    "properties": { "name": { "type": "string" }, "weight": { "type": "integer", "default": 1 } },
                },
            },
            "amount": { "x-kubernetes-int-or-string": true },
        },
    });
    let status = json!({
        "type": "object", "properties": { "phase": { "type": "string" }, "replicas": { "type": "integer" } },
    });
    json!({
        "metadata": { "name": format!("things.{}", group(world)) },
        "spec": {
            "group": group(world), "scope": "Namespaced",
            "names": { "plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all-things"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": spec, "status": status },
                } },
            }],
        },
    })
}

fn resource(world: &World) -> ApiResource {
    ApiResource {
        group: group(world),
        version: "v1".to_owned(),
        api_version: format!("{}/v1", group(world)),
        kind: "Thing".to_owned(),
        plural: "things".to_owned(),
    }
}

fn thing(world: &World, name: &str, spec: Value) -> DynamicObject {
    let version = resource(world).api_version;
    let mut object =
        json!({ "apiVersion": version, "kind": "Thing", "metadata": { "name": name } });
    object["spec"] = spec;
    from(object)
}

/// Installs the definition and waits until objects can be listed.
async fn things(world: &World) -> anyhow::Result<Api<DynamicObject>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions
        .create(&PostParams::default(), &from(definition(world)))
        .await?;
    let api = Api::namespaced_with(world.client.clone(), &world.namespace, &resource(world));
    eventually("the resource to be served", SOON, || async {
        // For a moment after it is established, writes may still be refused.
        api.list(&ListParams::default()).await?;
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        api.create(&dry, &thing(world, "probe", json!({ "colour": "red" })))
            .await?;
        Ok(())
    })
    .await;
    Ok(api)
}

async fn create(api: &Api<DynamicObject>, object: &DynamicObject) -> kube::Result<DynamicObject> {
    api.create(&PostParams::default(), object).await
}

async fn merge(api: &Api<DynamicObject>, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

async fn definitions_are_served_once_established(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = format!("things.{}", group(&world));
    let found = definitions.get(&name).await?;
    let status = found.status.context("status")?;
    let conditions: Vec<(String, String)> = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .map(|it| (it.type_, it.status))
        .collect();
    for kind in ["NamesAccepted", "Established"] {
        ensure!(
            conditions.contains(&(kind.to_owned(), "True".to_owned())),
            "{conditions:?}"
        );
    }
    ensure!(status.stored_versions == Some(vec!["v1".to_owned()]));
    let names = status.accepted_names.context("names")?;
    ensure!(
        (names.singular.as_deref(), names.list_kind.as_deref())
            == (Some("thing"), Some("ThingList"))
    );
    create(&api, &thing(&world, "a", json!({ "colour": "red" }))).await?;
    definitions.delete(&name, &DeleteParams::default()).await?;
    eventually("the definition to go", SOON, || async {
        ensure!(definitions.get_opt(&name).await?.is_none());
        Ok(())
    })
    .await;
    eventually("the resource to be served no more", SOON, || async {
        refused(api.list(&ListParams::default()).await, 404)?;
        Ok(())
    })
    .await;
    Ok(())
}

async fn defaults_and_pruning(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    let spec = json!({
        "colour": "red", "unknown": 1, "free": { "any": { "thing": 1 } },
        "parts": [{ "name": "p", "unknown": 1 }], "amount": "5%",
    });
    let created = create(&api, &thing(&world, "a", spec)).await?;
    let expected = json!({
        "colour": "red", "size": 3, "replicas": 1, "free": { "any": { "thing": 1 } },
        "parts": [{ "name": "p", "weight": 1 }], "amount": "5%",
    });
    ensure!(created.data["spec"] == expected, "{}", created.data["spec"]);
    let nulled = merge(
        &api,
        "a",
        json!({ "spec": { "size": null, "parts": null } }),
    )
    .await?;
    ensure!(nulled.data["spec"]["size"] == 3, "{}", nulled.data);
    ensure!(nulled.data["spec"].get("parts").is_none());
    Ok(())
}

async fn values_are_validated(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    for (spec, field, reason) in [
        (json!({}), "spec.colour", "FieldValueRequired"),
        (
            json!({ "colour": "blue" }),
            "spec.colour",
            "FieldValueNotSupported",
        ),
        (
            json!({ "colour": "red", "size": 0 }),
            "spec.size",
            "FieldValueInvalid",
        ),
        (
            json!({ "colour": "red", "size": 10 }),
            "spec.size",
            "FieldValueInvalid",
        ),
        (
            json!({ "colour": "red", "size": "1" }),
            "spec.size",
            "FieldValueTypeInvalid",
        ),
        (
            json!({ "colour": "red", "code": "A" }),
            "spec.code",
            "FieldValueInvalid",
        ),
        (
            json!({ "colour": "red", "code": "abcdef" }),
            "spec.code",
            "FieldValueTooLong",
        ),
        (
            json!({ "colour": "red", "amount": true }),
            "spec.amount",
            "FieldValueTypeInvalid",
        ),
        (
            json!({ "colour": "red", "parts": [{}] }),
            "spec.parts[0].name",
            "FieldValueRequired",
        ),
        (
            json!({ "colour": "red", "parts": [{ "name": "a" }, { "name": "a" }] }),
            "spec.parts[1]",
            "FieldValueDuplicate",
        ),
        (
            json!({ "colour": "red", "parts": [{ "name": "a" }, { "name": "b" }, { "name": "c" }] }),
            "spec.parts",
            "FieldValueTooMany",
        ),
    ] {
        let created = create(&api, &thing(&world, "a", spec.clone())).await;
        let status = refused(created, 422).with_context(|| spec.to_string())?;
        ensure!(status.reason == "Invalid");
        names_field(&status, field, reason)?;
    }
    Ok(())
}

async fn rules_are_evaluated(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    let spec = json!({ "colour": "red", "low": 2, "high": 1 });
    let status = refused(create(&api, &thing(&world, "a", spec)).await, 422)?;
    names_field(&status, "spec", "FieldValueInvalid")?;
    ensure!(
        status.message.contains("low may not exceed high"),
        "{}",
        status.message
    );
    let spec = json!({ "colour": "red", "low": 1, "high": 1 });
    create(&api, &thing(&world, "a", spec)).await?;
    refused(merge(&api, "a", json!({ "spec": { "low": 2 } })).await, 422)?;
    Ok(())
}

async fn transition_rules_compare_with_what_was(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    create(&api, &thing(&world, "a", json!({ "colour": "red" }))).await?;
    merge(&api, "a", json!({ "spec": { "size": 4 } })).await?;
    let status = refused(
        merge(&api, "a", json!({ "spec": { "colour": "green" } })).await,
        422,
    )?;
    names_field(&status, "spec.colour", "FieldValueInvalid")?;
    let message = "spec.colour: Invalid value: \"green\": colour is fixed";
    ensure!(status.message.contains(message), "{}", status.message);
    Ok(())
}

async fn status_has_a_subresource(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    let mut object = thing(&world, "a", json!({ "colour": "red" }));
    object.data["status"] = json!({ "phase": "early" });
    let created = create(&api, &object).await?;
    ensure!(created.data.get("status").is_none(), "{}", created.data);
    let both = json!({
        "metadata": { "labels": { "x": "1" } }, "spec": { "size": 5 }, "status": { "phase": "ready" },
    });
    let written = api
        .patch_status("a", &PatchParams::default(), &Patch::Merge(&both))
        .await?;
    ensure!(written.data["status"]["phase"] == "ready" && written.data["spec"]["size"] == 3);
    ensure!(written.labels().is_empty(), "{:?}", written.labels());
    ensure!(written.metadata.generation == Some(1));
    let both = json!({ "spec": { "size": 5 }, "status": { "phase": "lost" } });
    let written = merge(&api, "a", both).await?;
    ensure!(written.data["status"]["phase"] == "ready" && written.data["spec"]["size"] == 5);
    ensure!(written.metadata.generation == Some(2));
    Ok(())
}

async fn generation_and_scale(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    let created = create(&api, &thing(&world, "a", json!({ "colour": "red" }))).await?;
    ensure!(created.metadata.generation == Some(1));
    let labelled = merge(&api, "a", json!({ "metadata": { "labels": { "x": "1" } } })).await?;
    ensure!(labelled.metadata.generation == Some(1));
    let patch = json!({ "spec": { "replicas": 4 } });
    let scaled = api
        .patch_scale("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    ensure!(scaled.spec.and_then(|spec| spec.replicas) == Some(4));
    let found = api.get("a").await?;
    ensure!(found.data["spec"]["replicas"] == 4 && found.metadata.generation == Some(2));
    let held = merge(
        &api,
        "a",
        json!({ "metadata": { "finalizers": ["test.io/hold"] } }),
    )
    .await?;
    ensure!(held.metadata.generation == Some(2));
    let marked = api
        .delete("a", &DeleteParams::default())
        .await?
        .left()
        .context("the object")?;
    ensure!(
        marked.metadata.generation == Some(3),
        "{:?}",
        marked.metadata.generation
    );
    merge(&api, "a", json!({ "metadata": { "finalizers": null } })).await?;
    Ok(())
}

async fn unknown_fields_are_refused_on_request(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    drop(api);
    let body = serde_json::to_value(thing(&world, "a", json!({ "colour": "red", "colr": 1 })))?;
    let path = format!(
        "/apis/{}/v1/namespaces/{}/things?fieldValidation=Strict",
        group(&world),
        world.namespace
    );
    let status = refused(
        world
            .request("POST", &path, "application/json", &body)
            .await,
        400,
    )?;
    ensure!(
        status.message.contains("unknown field \"spec.colr\""),
        "{}",
        status.message
    );
    Ok(())
}

async fn strategic_patches_are_refused(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    create(&api, &thing(&world, "a", json!({ "colour": "red" }))).await?;
    let patch = json!({ "spec": { "size": 4 } });
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Strategic(&patch))
        .await;
    refused(patched, 415)?;
    Ok(())
}

async fn custom_resources_are_applied(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    let apply = async |manager: &str, spec: Value| {
        let object = thing(&world, "a", spec);
        api.patch("a", &PatchParams::apply(manager), &Patch::Apply(&object))
            .await
    };
    apply(
        "one",
        json!({ "colour": "red", "parts": [{ "name": "a" }] }),
    )
    .await?;
    let both = apply(
        "two",
        json!({ "colour": "red", "parts": [{ "name": "b", "weight": 2 }] }),
    )
    .await?;
    let parts = json!([{ "name": "a", "weight": 1 }, { "name": "b", "weight": 2 }]);
    ensure!(both.data["spec"]["parts"] == parts, "{}", both.data);
    let status = refused(
        apply(
            "two",
            json!({ "colour": "red", "parts": [{ "name": "a", "weight": 3 }] }),
        )
        .await,
        409,
    );
    // The first manager did not apply the weight: it is a default, and nobody's.
    ensure!(status.is_err(), "{status:?}");
    let left = apply("one", json!({ "colour": "red" })).await?;
    let parts = json!([{ "name": "a", "weight": 3 }]);
    ensure!(left.data["spec"]["parts"] == parts, "{}", left.data);
    Ok(())
}

async fn finalizers_outlive_definitions(world: World) -> anyhow::Result<()> {
    let api = things(&world).await?;
    let mut object = thing(&world, "a", json!({ "colour": "red" }));
    object.metadata.finalizers = Some(vec!["test.io/hold".to_owned()]);
    create(&api, &object).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = format!("things.{}", group(&world));
    definitions.delete(&name, &DeleteParams::default()).await?;
    eventually("the object to be marked", SOON, || async {
        ensure!(api.get("a").await?.metadata.deletion_timestamp.is_some());
        Ok(())
    })
    .await;
    ensure!(definitions.get_opt(&name).await?.is_some());
    merge(&api, "a", json!({ "metadata": { "finalizers": null } })).await?;
    eventually("the definition to go", SOON, || async {
        ensure!(definitions.get_opt(&name).await?.is_none());
        Ok(())
    })
    .await;
    Ok(())
}

async fn wrong_definitions_are_refused(world: World) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let mut wrong = definition(&world);
    wrong["metadata"]["name"] = json!("others.test.io");
    let status = refused(
        definitions
            .create(&PostParams::default(), &from(wrong))
            .await,
        422,
    )?;
    names_field(&status, "metadata.name", "FieldValueInvalid")?;
    let mut wrong = definition(&world);
    let spec = &mut wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"][0]["rule"] = json!("self.(");
    let status = refused(
        definitions
            .create(&PostParams::default(), &from(wrong))
            .await,
        422,
    )?;
    ensure!(
        status.message.contains("x-kubernetes-validations[0].rule"),
        "{}",
        status.message
    );
    Ok(())
}

async fn the_projects_own_resources_are_served(world: World) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for definition in millwright_api::crds() {
        let name = definition.metadata.name.clone().context("a name")?;
        let params = PatchParams::apply("conformance").force();
        definitions
            .patch(&name, &params, &Patch::Apply(&definition))
            .await?;
        eventually("a definition to be established", SOON, || async {
            let status = definitions.get(&name).await?.status.context("status")?;
            let conditions = status.conditions.unwrap_or_default();
            ensure!(
                conditions
                    .iter()
                    .any(|it| it.type_ == "Established" && it.status == "True")
            );
            Ok(())
        })
        .await;
    }
    Ok(())
}
