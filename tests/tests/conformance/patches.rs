//! Patches of all kinds, and field ownership.

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cases;
use crate::world::{World, causes, config_map, from, refused};

cases![
    merge_patches,
    json_patches,
    json_patches_that_fail,
    strategic_patches_merge_by_key,
    strategic_directives,
    apply_creates_and_updates,
    apply_removes_what_is_no_longer_applied,
    apply_conflicts_name_manager_and_field,
    force_takes_fields_over,
    equal_values_are_shared,
    updates_take_ownership,
    apply_needs_a_manager,
];

fn data(map: &ConfigMap) -> Value {
    json!(map.data.clone().unwrap_or_default())
}

async fn merge_patches(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map = config_map("a", json!({ "k": "1", "l": "1" }));
    api.create(&PostParams::default(), &map).await?;
    let patch = json!({ "data": { "k": null, "m": "2" } });
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    ensure!(
        data(&patched) == json!({ "l": "1", "m": "2" }),
        "{patched:?}"
    );
    Ok(())
}

async fn json_patch(api: &Api<ConfigMap>, operations: Value) -> kube::Result<ConfigMap> {
    let patch = Patch::<()>::Json(from(operations));
    api.patch("a", &PatchParams::default(), &patch).await
}

async fn json_patches(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    api.create(
        &PostParams::default(),
        &config_map("a", json!({ "k": "1" })),
    )
    .await?;
    let patched = json_patch(
        &api,
        json!([
            { "op": "test", "path": "/data/k", "value": "1" },
            { "op": "replace", "path": "/data/k", "value": "2" },
            { "op": "add", "path": "/data/l", "value": "3" },
        ]),
    );
    ensure!(data(&patched.await?) == json!({ "k": "2", "l": "3" }));
    Ok(())
}

async fn json_patches_that_fail(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    api.create(
        &PostParams::default(),
        &config_map("a", json!({ "k": "1" })),
    )
    .await?;
    let test = json!([{ "op": "test", "path": "/data/k", "value": "2" }]);
    refused(json_patch(&api, test).await, 422)?;
    let absent = json!([{ "op": "remove", "path": "/data/absent" }]);
    refused(json_patch(&api, absent).await, 422)?;
    Ok(())
}

fn deployment() -> Deployment {
    from(json!({
        "metadata": { "name": "a" },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": { "app": "a" } },
            "template": { "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [
                { "name": "one", "image": "i:1", "env": [{ "name": "A", "value": "1" }] },
                { "name": "two", "image": "i:1" },
            ] } },
        },
    }))
}

fn with_containers(containers: Value) -> Value {
    let mut patch = json!({});
    patch["spec"]["template"]["spec"]["containers"] = containers;
    patch
}

fn containers(deployment: &Deployment) -> anyhow::Result<Vec<Value>> {
    let spec = deployment.spec.as_ref().context("spec")?;
    let pod = spec.template.spec.as_ref().context("a pod's spec")?;
    Ok(pod
        .containers
        .iter()
        .map(|it| json!([it.name, it.image]))
        .collect())
}

async fn strategic_patches_merge_by_key(world: World) -> anyhow::Result<()> {
    let api: Api<Deployment> = world.api();
    api.create(&PostParams::default(), &deployment()).await?;
    let patch = with_containers(json!([
        { "name": "one", "env": [{ "name": "B", "value": "2" }] },
        { "name": "two", "image": "i:2" },
    ]));
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Strategic(&patch))
        .await?;
    ensure!(containers(&patched)? == [json!(["one", "i:1"]), json!(["two", "i:2"])]);
    let spec = patched
        .spec
        .and_then(|spec| spec.template.spec)
        .context("spec")?;
    let env = spec.containers[0].env.as_ref().context("env")?;
    let mut names: Vec<&str> = env.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    ensure!(names == ["A", "B"], "{names:?}");
    Ok(())
}

async fn strategic_directives(world: World) -> anyhow::Result<()> {
    let api: Api<Deployment> = world.api();
    api.create(&PostParams::default(), &deployment()).await?;
    let patch = with_containers(json!([{ "name": "two", "$patch": "delete" }]));
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Strategic(&patch))
        .await?;
    ensure!(containers(&patched)? == [json!(["one", "i:1"])]);
    let patch =
        with_containers(json!([{ "name": "three", "image": "i:3" }, { "$patch": "replace" }]));
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Strategic(&patch))
        .await?;
    ensure!(containers(&patched)? == [json!(["three", "i:3"])]);
    Ok(())
}

async fn apply(
    api: &Api<ConfigMap>,
    manager: &str,
    force: bool,
    data: Value,
) -> kube::Result<ConfigMap> {
    let mut params = PatchParams::apply(manager);
    params.force = force;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data,
    });
    api.patch("a", &params, &Patch::Apply(&map)).await
}

async fn apply_creates_and_updates(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let created = apply(&api, "one", false, json!({ "k": "1" })).await?;
    let entries = created
        .metadata
        .managed_fields
        .clone()
        .context("managed fields")?;
    ensure!(entries.len() == 1, "{entries:?}");
    ensure!(entries[0].manager.as_deref() == Some("one"));
    ensure!(entries[0].operation.as_deref() == Some("Apply"));
    let fields = entries[0].fields_v1.as_ref().context("fields")?;
    ensure!(
        fields.0 == json!({ "f:data": { "f:k": {} } }),
        "{}",
        fields.0
    );
    let same = apply(&api, "one", false, json!({ "k": "1" })).await?;
    ensure!(same.metadata.resource_version == created.metadata.resource_version);
    let updated = apply(&api, "one", false, json!({ "k": "2" })).await?;
    ensure!(data(&updated) == json!({ "k": "2" }));
    Ok(())
}

async fn apply_removes_what_is_no_longer_applied(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    apply(&api, "one", false, json!({ "k": "1", "l": "1" })).await?;
    apply(&api, "two", false, json!({ "m": "1" })).await?;
    let patch = json!({ "data": { "n": "1" } });
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    let left = apply(&api, "one", false, json!({ "k": "1" })).await?;
    ensure!(
        data(&left) == json!({ "k": "1", "m": "1", "n": "1" }),
        "{left:?}"
    );
    Ok(())
}

async fn apply_conflicts_name_manager_and_field(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    apply(&api, "one", false, json!({ "k": "1" })).await?;
    let status = refused(apply(&api, "two", false, json!({ "k": "2" })).await, 409)?;
    ensure!(status.reason == "Conflict");
    ensure!(
        status.message == "Apply failed with 1 conflict: conflict with \"one\": .data.k",
        "{}",
        status.message
    );
    let expected = (".data.k".to_owned(), "FieldManagerConflict".to_owned());
    ensure!(causes(&status) == [expected], "{:?}", causes(&status));
    Ok(())
}

async fn force_takes_fields_over(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    apply(&api, "one", false, json!({ "k": "1" })).await?;
    let taken = apply(&api, "two", true, json!({ "k": "2" })).await?;
    ensure!(data(&taken) == json!({ "k": "2" }));
    let managers = taken.metadata.managed_fields.context("managed fields")?;
    let names: Vec<&str> = managers
        .iter()
        .filter_map(|it| it.manager.as_deref())
        .collect();
    ensure!(names == ["two"], "{names:?}");
    Ok(())
}

async fn equal_values_are_shared(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    apply(&api, "one", false, json!({ "k": "1" })).await?;
    apply(&api, "two", false, json!({ "k": "1" })).await?;
    let left = apply(&api, "one", false, json!({})).await?;
    ensure!(data(&left) == json!({ "k": "1" }), "{left:?}");
    Ok(())
}

async fn updates_take_ownership(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    apply(&api, "one", false, json!({ "k": "1" })).await?;
    let params = PatchParams {
        field_manager: Some("hand".to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({ "data": { "k": "2" } });
    api.patch("a", &params, &Patch::Merge(&patch)).await?;
    let status = refused(apply(&api, "one", false, json!({ "k": "1" })).await, 409)?;
    let starts = "Apply failed with 1 conflict: conflict with \"hand\" using v1";
    ensure!(status.message.starts_with(starts), "{}", status.message);
    Ok(())
}

async fn apply_needs_a_manager(world: World) -> anyhow::Result<()> {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let path = world.path("configmaps/a");
    let applied = world
        .request("PATCH", &path, "application/apply-patch+yaml", &map)
        .await;
    let status = refused(applied, 422)?;
    ensure!(
        status.message.contains("fieldManager"),
        "{}",
        status.message
    );
    Ok(())
}
