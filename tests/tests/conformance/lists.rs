//! Lists: pages, selectors, versions.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cases;
use crate::world::{World, bind, config_map, from, pod, refused};

cases![
    pages_show_one_state,
    labels_select,
    fields_select,
    all_namespaces_are_listed,
    elements_of_builtin_lists_have_no_type,
    continue_tokens_are_checked,
    the_future_is_refused,
];

async fn pages_show_one_state(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    for name in ["a", "b", "c", "d", "e"] {
        let map: ConfigMap =
            from(json!({ "metadata": { "name": name, "labels": { "page": "yes" } } }));
        api.create(&PostParams::default(), &map).await?;
    }
    let params = ListParams::default().labels("page=yes").limit(2);
    let first = api.list(&params).await?;
    let token = first
        .metadata
        .continue_
        .clone()
        .context("a continue token")?;
    // What happens between two pages is not seen.
    api.delete("d", &DeleteParams::default()).await?;
    let mut names: Vec<String> = first.iter().map(|map| map.name_any()).collect();
    let mut token = Some(token);
    while let Some(next) = token.filter(|token| !token.is_empty()) {
        let page = api.list(&params.clone().continue_token(&next)).await?;
        ensure!(page.metadata.resource_version == first.metadata.resource_version);
        names.extend(page.iter().map(|map| map.name_any()));
        token = page.metadata.continue_.clone();
    }
    ensure!(names == ["a", "b", "c", "d", "e"], "{names:?}");
    Ok(())
}

async fn names(api: &Api<Pod>, params: &ListParams) -> kube::Result<Vec<String>> {
    Ok(api
        .list(params)
        .await?
        .iter()
        .map(|pod| pod.name_any())
        .collect())
}

async fn labels_select(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    for (name, labels) in [
        ("a", json!({ "app": "web", "tier": "front" })),
        ("b", json!({ "app": "web" })),
        ("c", json!({ "app": "db" })),
    ] {
        api.create(&PostParams::default(), &pod(name, labels))
            .await?;
    }
    for (selector, expected) in [
        ("app=web", &["a", "b"][..]),
        ("app!=web", &["c"]),
        ("app in (web,db),!tier", &["b", "c"]),
        ("app notin (web)", &["c"]),
        ("tier", &["a"]),
    ] {
        let found = names(&api, &ListParams::default().labels(selector)).await?;
        ensure!(found == expected, "{selector}: {found:?}");
    }
    Ok(())
}

async fn fields_select(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &pod(name, json!({})))
            .await?;
    }
    bind(&world, "a").await?;
    for (selector, expected) in [
        ("metadata.name=b", &["b"][..]),
        ("spec.nodeName=nowhere", &["a"]),
        ("spec.nodeName=", &["b"]),
        ("status.phase=Pending,spec.nodeName!=nowhere", &["b"]),
        ("spec.schedulerName=nobody", &["a", "b"]),
        ("status.phase!=Pending", &[]),
    ] {
        let found = names(&api, &ListParams::default().fields(selector)).await?;
        ensure!(found == expected, "{selector}: {found:?}");
    }
    Ok(())
}

async fn all_namespaces_are_listed(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let name = world.unique("map");
    api.create(&PostParams::default(), &config_map(&name, json!({})))
        .await?;
    let all: Api<ConfigMap> = Api::all(world.client.clone());
    let found = all
        .list(&ListParams::default().fields(&format!("metadata.name={name}")))
        .await?;
    ensure!(found.items.len() == 1, "{}", found.items.len());
    Ok(())
}

async fn elements_of_builtin_lists_have_no_type(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    api.create(&PostParams::default(), &config_map("a", json!({})))
        .await?;
    let request = http::Request::get(world.path("configmaps")).body(Vec::new())?;
    let list: Value = world.client.request(request).await?;
    ensure!(
        list["kind"] == "ConfigMapList" && list["apiVersion"] == "v1",
        "{list}"
    );
    let items = list["items"].as_array().context("items")?;
    ensure!(
        items
            .iter()
            .all(|item| item.get("kind").is_none() && item.get("apiVersion").is_none())
    );
    Ok(())
}

async fn continue_tokens_are_checked(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let params = ListParams::default().limit(1).continue_token("nonsense");
    refused(api.list(&params).await, 400)?;
    Ok(())
}

async fn the_future_is_refused(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let params = ListParams::default()
        .at("9000000000")
        .matching(kube::api::VersionMatch::NotOlderThan);
    let status = refused(api.list(&params).await, 504)?;
    ensure!(status.reason == "Timeout", "{status:?}");
    Ok(())
}
