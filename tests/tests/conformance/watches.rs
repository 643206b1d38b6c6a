//! Watches: what is sent, in which order, and how they end.

use std::pin::pin;

use anyhow::{Context, bail, ensure};
use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cases;
use crate::world::{World, bind, config_map, from, pod};

cases![
    a_watch_without_version_begins_with_what_is_there,
    a_watch_replays_from_a_version,
    deletions_carry_the_last_state,
    selectors_turn_changes_into_additions_and_deletions,
    watches_end_in_time,
    bookmarks_carry_a_version,
    initial_events_end_with_a_bookmark,
    lost_history_is_gone,
    one_object_is_watched_by_name,
];

const ENDS_AFTER: u32 = 5;

fn soon() -> WatchParams {
    WatchParams::default().timeout(ENDS_AFTER)
}

/// The events of a watch up to its end, in short form.
async fn all(
    events: impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>>,
) -> anyhow::Result<Vec<String>> {
    let mut seen = Vec::new();
    let mut events = pin!(events);
    while let Some(event) = events.try_next().await? {
        seen.push(short(&event));
    }
    Ok(seen)
}

fn short(event: &WatchEvent<ConfigMap>) -> String {
    let value = |map: &ConfigMap| {
        let data = map.data.clone().unwrap_or_default();
        format!(
            "{}={}",
            map.name_any(),
            data.get("k").cloned().unwrap_or_default()
        )
    };
    match event {
        WatchEvent::Added(map) => format!("added {}", value(map)),
        WatchEvent::Modified(map) => format!("modified {}", value(map)),
        WatchEvent::Deleted(map) => format!("deleted {}", value(map)),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

async fn set(api: &Api<ConfigMap>, name: &str, value: &str) -> kube::Result<ConfigMap> {
    let patch = json!({ "data": { "k": value } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

/// Watches only what a case makes itself.
fn labelled(name: &str, value: &str) -> ConfigMap {
    from(
        json!({ "metadata": { "name": name, "labels": { "own": "yes" } }, "data": { "k": value } }),
    )
}

async fn a_watch_without_version_begins_with_what_is_there(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    api.create(&PostParams::default(), &labelled("a", "1"))
        .await?;
    let mut events = pin!(
        api.watch(&soon().labels("own").disable_bookmarks(), "0")
            .await?
    );
    let first = events.try_next().await?.context("an event")?;
    ensure!(short(&first) == "added a=1", "{first:?}");
    set(&api, "a", "2").await?;
    let second = events.try_next().await?.context("an event")?;
    ensure!(short(&second) == "modified a=2", "{second:?}");
    Ok(())
}

async fn a_watch_replays_from_a_version(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let a = api
        .create(&PostParams::default(), &labelled("a", "1"))
        .await?;
    let from_here = a.resource_version().context("a version")?;
    set(&api, "a", "2").await?;
    api.create(&PostParams::default(), &labelled("b", "1"))
        .await?;
    api.delete("a", &DeleteParams::default()).await?;
    let seen = all(api
        .watch(&soon().labels("own").disable_bookmarks(), &from_here)
        .await?)
    .await?;
    ensure!(
        seen == ["modified a=2", "added b=1", "deleted a=2"],
        "{seen:?}"
    );
    Ok(())
}

async fn deletions_carry_the_last_state(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let a = api
        .create(&PostParams::default(), &labelled("a", "1"))
        .await?;
    let from_here = a.resource_version().context("a version")?;
    api.delete("a", &DeleteParams::default()).await?;
    let mut events = pin!(api.watch(&soon().labels("own"), &from_here).await?);
    let Some(WatchEvent::Deleted(last)) = events.try_next().await? else {
        bail!("no deletion");
    };
    ensure!(last.uid() == a.uid() && last.data == a.data);
    let (before, after) = (version(&a)?, version(&last)?);
    ensure!(after > before, "{after} is not after {before}");
    Ok(())
}

fn version(map: &ConfigMap) -> anyhow::Result<u64> {
    Ok(map.resource_version().context("a version")?.parse()?)
}

async fn selectors_turn_changes_into_additions_and_deletions(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    let first = api
        .create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    let from_here = first.resource_version().context("a version")?;
    let on_node = soon().fields("spec.nodeName=nowhere").disable_bookmarks();
    let pending = soon().fields("spec.nodeName=").disable_bookmarks();
    bind(&world, "a").await?;
    let mut events = pin!(api.watch(&on_node, &from_here).await?);
    let event = events.try_next().await?.context("an event")?;
    ensure!(
        matches!(&event, WatchEvent::Added(pod) if pod.name_any() == "a"),
        "{event:?}"
    );
    let mut events = pin!(api.watch(&pending, &from_here).await?);
    let event = events.try_next().await?.context("an event")?;
    ensure!(
        matches!(&event, WatchEvent::Deleted(pod) if pod.name_any() == "a"),
        "{event:?}"
    );
    Ok(())
}

async fn watches_end_in_time(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let list = api.list(&ListParams::default()).await?;
    let from_here = list.metadata.resource_version.context("a version")?;
    let params = WatchParams::default()
        .timeout(1)
        .labels("own")
        .disable_bookmarks();
    let seen = all(api.watch(&params, &from_here).await?).await?;
    ensure!(seen.is_empty(), "{seen:?}");
    Ok(())
}

async fn bookmarks_carry_a_version(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let list = api.list(&ListParams::default()).await?;
    let from_here = list.metadata.resource_version.context("a version")?;
    let params = WatchParams::default().timeout(10).labels("own");
    let mut events = pin!(api.watch(&params, &from_here).await?);
    let map = api
        .create(&PostParams::default(), &labelled("a", "1"))
        .await?;
    let mut bookmark = 0;
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Bookmark(mark) = event {
            bookmark = mark.metadata.resource_version.parse::<u64>()?;
        }
    }
    let created = version(&map)?;
    ensure!(bookmark >= created, "{bookmark} is before {created}");
    Ok(())
}

async fn initial_events_end_with_a_bookmark(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    api.create(&PostParams::default(), &labelled("a", "1"))
        .await?;
    let params = soon().labels("own").initial_events();
    let mut events = pin!(api.watch(&params, "0").await?);
    let first = events.try_next().await?.context("an event")?;
    ensure!(short(&first) == "added a=1", "{first:?}");
    let second = events.try_next().await?.context("an event")?;
    let WatchEvent::Bookmark(mark) = second else {
        bail!("{second:?} is no bookmark");
    };
    let ends = mark.metadata.annotations.get("k8s.io/initial-events-end");
    ensure!(ends.is_some_and(|ends| ends == "true"));
    Ok(())
}

async fn lost_history_is_gone(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    api.create(&PostParams::default(), &config_map("a", json!({})))
        .await?;
    if !world.forget_history() {
        return Ok(());
    }
    let mut events = pin!(api.watch(&soon(), "1").await?);
    let event = events.try_next().await?.context("an event")?;
    let WatchEvent::Error(status) = event else {
        bail!("{event:?} is no error");
    };
    ensure!(
        status.code == 410 && status.reason == "Expired",
        "{status:?}"
    );
    ensure!(events.try_next().await?.is_none(), "the watch goes on");
    Ok(())
}

async fn one_object_is_watched_by_name(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &labelled(name, "1"))
            .await?;
    }
    let path = world.path("configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Db");
    let request = http::Request::get(path).body(Vec::new())?;
    let text = world.client.request_text(request).await?;
    let events: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let names: Vec<&Value> = events
        .iter()
        .map(|event| &event["object"]["metadata"]["name"])
        .collect();
    ensure!(names == ["b"], "{names:?}");
    Ok(())
}
