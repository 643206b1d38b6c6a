//! What is refused, and in which words.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::cases;
use crate::world::{World, config_map, from, names_field, refused};

cases![
    names_are_required,
    names_have_a_form,
    labels_have_a_form,
    another_kind_is_refused,
    another_namespace_is_refused,
    a_wrong_type_is_refused,
    unknown_fields_are_refused_on_request,
    unknown_fields_are_dropped_otherwise,
    malformed_json_is_refused,
    unknown_paths_and_verbs,
    unknown_media_types,
    containers_need_name_and_image,
    selectors_that_cannot_be_understood,
];

async fn names_are_required(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map: ConfigMap = from(json!({ "metadata": {} }));
    let status = refused(api.create(&PostParams::default(), &map).await, 422)?;
    ensure!(status.reason == "Invalid");
    names_field(&status, "metadata.name", "FieldValueRequired")?;
    ensure!(
        status.message
            == "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        "{}",
        status.message
    );
    Ok(())
}

async fn names_have_a_form(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let created = api
        .create(&PostParams::default(), &config_map("A_b", json!({})))
        .await;
    let status = refused(created, 422)?;
    names_field(&status, "metadata.name", "FieldValueInvalid")?;
    let starts = "ConfigMap \"A_b\" is invalid: metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain";
    ensure!(status.message.starts_with(starts), "{}", status.message);
    let details = status.details.context("details")?;
    ensure!((details.kind.as_str(), details.name.as_str()) == ("ConfigMap", "A_b"));
    Ok(())
}

async fn labels_have_a_form(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    for labels in [json!({ "a": "no spaces" }), json!({ "no spaces": "a" })] {
        let map: ConfigMap = from(json!({ "metadata": { "name": "a", "labels": labels } }));
        let status = refused(api.create(&PostParams::default(), &map).await, 422)?;
        names_field(&status, "metadata.labels", "FieldValueInvalid")?;
    }
    Ok(())
}

async fn post(world: &World, path: &str, body: &Value) -> kube::Result<Value> {
    world
        .request("POST", &world.path(path), "application/json", body)
        .await
}

async fn another_kind_is_refused(world: World) -> anyhow::Result<()> {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } });
    let status = refused(post(&world, "configmaps", &secret).await, 400)?;
    ensure!(status.reason == "BadRequest", "{status:?}");
    Ok(())
}

async fn another_namespace_is_refused(world: World) -> anyhow::Result<()> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "other" },
    });
    let status = refused(post(&world, "configmaps", &map).await, 400)?;
    ensure!(
        status
            .message
            .contains("does not match the namespace sent on the request"),
        "{}",
        status.message
    );
    Ok(())
}

async fn a_wrong_type_is_refused(world: World) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
        "spec": { "containers": "none" },
    });
    let status = refused(post(&world, "pods", &pod).await, 400)?;
    let starts = "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal";
    ensure!(status.message.starts_with(starts), "{}", status.message);
    Ok(())
}

fn with_unknown_field() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
        "spec": { "containers": [{ "name": "a", "image": "b", "imaeg": "c" }] },
    })
}

async fn unknown_fields_are_refused_on_request(world: World) -> anyhow::Result<()> {
    let refusal = post(&world, "pods?fieldValidation=Strict", &with_unknown_field()).await;
    let status = refused(refusal, 400)?;
    let message = "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: \
                   unknown field \"spec.containers[0].imaeg\"";
    ensure!(status.message == message, "{}", status.message);
    Ok(())
}

async fn unknown_fields_are_dropped_otherwise(world: World) -> anyhow::Result<()> {
    let created = post(&world, "pods", &with_unknown_field()).await?;
    ensure!(created["spec"]["containers"][0]["name"] == "a");
    ensure!(created["spec"]["containers"][0].get("imaeg").is_none());
    Ok(())
}

async fn malformed_json_is_refused(world: World) -> anyhow::Result<()> {
    let request = http::Request::post(world.path("configmaps"))
        .header("content-type", "application/json")
        .body(b"{\"kind\":".to_vec())?;
    refused(world.client.request::<Value>(request).await, 400)?;
    Ok(())
}

async fn unknown_paths_and_verbs(world: World) -> anyhow::Result<()> {
    let get = |path: String| {
        let request = http::Request::get(path).body(Vec::new());
        let client = world.client.clone();
        async move {
            client
                .request::<Value>(request.map_err(kube::Error::HttpError)?)
                .await
        }
    };
    refused(get(world.path("nothings")).await, 404)?;
    refused(get("/apis/nothing.io/v1".to_owned()).await, 404)?;
    refused(get(world.path("configmaps/a/scale")).await, 404)?;
    let (path, none) = (world.path("configmaps"), json!({}));
    let put = world.request("PUT", &path, "application/json", &none).await;
    refused(put, 405)?;
    Ok(())
}

async fn unknown_media_types(world: World) -> anyhow::Result<()> {
    let map = json!({ "data": {} });
    let path = world.path("configmaps/a");
    let patched = world
        .request("PATCH", &path, "application/json", &map)
        .await;
    let status = refused(patched, 415)?;
    ensure!(status.reason == "UnsupportedMediaType");
    Ok(())
}

async fn containers_need_name_and_image(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    let mut pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [] } });
    let created = api.create(&PostParams::default(), &from(pod.clone())).await;
    names_field(
        &*refused(created, 422)?,
        "spec.containers",
        "FieldValueRequired",
    )?;
    pod["spec"]["containers"] = json!([{ "name": "" }, { "name": "b" }]);
    let created = api.create(&PostParams::default(), &from(pod)).await;
    let status = refused(created, 422)?;
    names_field(&status, "spec.containers[0].name", "FieldValueRequired")?;
    names_field(&status, "spec.containers[0].image", "FieldValueRequired")?;
    names_field(&status, "spec.containers[1].image", "FieldValueRequired")?;
    let twice = json!([{ "name": "a", "image": "i" }, { "name": "a", "image": "i" }]);
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": twice } });
    let created = api.create(&PostParams::default(), &from(pod)).await;
    names_field(
        &*refused(created, 422)?,
        "spec.containers[1].name",
        "FieldValueDuplicate",
    )
}

async fn selectors_that_cannot_be_understood(world: World) -> anyhow::Result<()> {
    for query in [
        "labelSelector=a%20b",
        "fieldSelector=spec.colour%3Dred",
        "limit=many",
    ] {
        let request = http::Request::get(world.path(&format!("pods?{query}"))).body(Vec::new())?;
        let status = refused(world.client.request::<Value>(request).await, 400)
            .with_context(|| query.to_owned())?;
        ensure!(status.reason == "BadRequest", "{query}: {status:?}");
    }
    Ok(())
}
