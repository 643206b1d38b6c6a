//! Evictions, which PodDisruptionBudgets may refuse.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use millwright_tests::eventually;
use serde_json::{Value, json};

use crate::cases;
use crate::world::{SOON, World, from, names_field, pod, refused, run_pod};

cases![
    pods_without_budget_are_evicted,
    budgets_are_counted,
    a_budget_refuses_evictions,
    pending_pods_need_no_budget,
    two_budgets_are_one_too_many,
    budgets_of_both_kinds_are_refused,
];

async fn evict(world: &World, name: &str) -> kube::Result<Value> {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": name, "namespace": world.namespace },
    });
    let path = world.path(&format!("pods/{name}/eviction"));
    world
        .request("POST", &path, "application/json", &eviction)
        .await
}

fn budget(name: &str, minimum: u32) -> PodDisruptionBudget {
    from(json!({
        "metadata": { "name": name },
        "spec": { "minAvailable": minimum, "selector": { "matchLabels": { "app": "web" } } },
    }))
}

async fn running(world: &World, names: &[&str]) -> anyhow::Result<Api<Pod>> {
    let api: Api<Pod> = world.api();
    for name in names {
        api.create(&PostParams::default(), &pod(name, json!({ "app": "web" })))
            .await?;
        run_pod(world, name).await?;
    }
    Ok(api)
}

/// Waits until a budget has been counted so.
async fn counted(world: &World, name: &str, allowed: i32, healthy: i32) {
    let budgets: Api<PodDisruptionBudget> = world.api();
    eventually("a budget to be counted", SOON, || async {
        let status = budgets.get(name).await?.status.context("status")?;
        let counts = (status.disruptions_allowed, status.current_healthy);
        ensure!(counts == (Some(allowed), Some(healthy)), "{counts:?}");
        ensure!(
            status.observed_generation == Some(1),
            "{:?}",
            status.observed_generation
        );
        Ok(())
    })
    .await;
}

async fn pods_without_budget_are_evicted(world: World) -> anyhow::Result<()> {
    let api = running(&world, &["a"]).await?;
    let answer = evict(&world, "a").await?;
    ensure!(
        answer["status"] == "Success" && answer["code"] == 201,
        "{answer}"
    );
    ensure!(api.get("a").await?.metadata.deletion_timestamp.is_some());
    refused(evict(&world, "absent").await, 404)?;
    Ok(())
}

async fn budgets_are_counted(world: World) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = world.api();
    budgets
        .create(&PostParams::default(), &budget("b", 1))
        .await?;
    counted(&world, "b", 0, 0).await;
    running(&world, &["p", "q"]).await?;
    counted(&world, "b", 1, 2).await;
    let found = budgets.get("b").await?.status.context("status")?;
    ensure!(
        (found.desired_healthy, found.expected_pods) == (Some(1), Some(2)),
        "{found:?}"
    );
    let conditions = found.conditions.context("conditions")?;
    ensure!(conditions[0].type_ == "DisruptionAllowed" && conditions[0].status == "True");
    Ok(())
}

async fn a_budget_refuses_evictions(world: World) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = world.api();
    budgets
        .create(&PostParams::default(), &budget("b", 1))
        .await?;
    let api = running(&world, &["p", "q"]).await?;
    counted(&world, "b", 1, 2).await;
    evict(&world, "p").await?;
    let status = refused(evict(&world, "q").await, 429)?;
    ensure!(status.reason == "TooManyRequests", "{status:?}");
    ensure!(
        status.message == "Cannot evict pod as it would violate the pod's disruption budget.",
        "{}",
        status.message
    );
    names_field(&status, "", "DisruptionBudget")?;
    ensure!(api.get("q").await?.metadata.deletion_timestamp.is_none());
    // The last pod may go when the budget does.
    budgets.delete("b", &DeleteParams::default()).await?;
    eventually("an eviction without budget", SOON, || async {
        evict(&world, "q").await?;
        Ok(())
    })
    .await;
    Ok(())
}

async fn pending_pods_need_no_budget(world: World) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = world.api();
    budgets
        .create(&PostParams::default(), &budget("b", 5))
        .await?;
    let api: Api<Pod> = world.api();
    api.create(&PostParams::default(), &pod("p", json!({ "app": "web" })))
        .await?;
    evict(&world, "p").await?;
    ensure!(api.get_opt("p").await?.is_none());
    Ok(())
}

async fn two_budgets_are_one_too_many(world: World) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = world.api();
    for name in ["b", "c"] {
        let created = budgets
            .create(&PostParams::default(), &budget(name, 0))
            .await?;
        ensure!(created.name_any() == name);
    }
    running(&world, &["p"]).await?;
    let status = refused(evict(&world, "p").await, 500)?;
    ensure!(
        status.message.contains("more than one PodDisruptionBudget"),
        "{}",
        status.message
    );
    Ok(())
}

async fn budgets_of_both_kinds_are_refused(world: World) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = world.api();
    let both = from(json!({
        "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "maxUnavailable": 1 },
    }));
    let status = refused(budgets.create(&PostParams::default(), &both).await, 422)?;
    names_field(&status, "spec", "FieldValueInvalid")
}
