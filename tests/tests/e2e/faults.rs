//! What breaks, and what must not follow from it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use millwright_api::{Ec2NodeClass, conditions::Conditioned as _};
use millwright_sim::aws::{Fault, FaultKind, PoolPattern};
use millwright_tests::{Component, eventually};
use serde_json::json;

use crate::fleet::{Fleet, costs, names};

const PODS: u32 = 60;

/// A class, a pool, a controller and [`PODS`] pods of 1 vCPU.
async fn scaled_up(fleet: &Fleet) -> anyhow::Result<millwright_tests::Service> {
    fleet.node_class("default", "e2e").await?;
    fleet.node_pool("pool", "default", 8, json!({})).await?;
    let controller = fleet.controller("controller")?;
    fleet
        .deployment("work", PODS, "1", "1Gi", json!({}))
        .await?;
    Ok(controller)
}

async fn settled(fleet: &Fleet) -> anyhow::Result<()> {
    fleet
        .all_bound(usize::try_from(PODS)?, Duration::from_secs(150))
        .await;
    eventually(
        "every instance belongs to one nodeclaim",
        Duration::from_secs(90),
        async || fleet.instances_match_claims().await,
    )
    .await;
    Ok(())
}

async fn scaled_down(fleet: &Fleet) -> anyhow::Result<()> {
    fleet.scale("work", 0).await?;
    fleet.all_gone(Duration::from_secs(150)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_restarts_in_the_middle_of_a_scale_up() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|_| {}).await? else {
        return Ok(());
    };
    let mut controller = scaled_up(&fleet).await?;
    eventually("a nodeclaim exists", Duration::from_secs(60), async || {
        ensure!(!fleet.claims().await?.is_empty(), "none yet");
        Ok(())
    })
    .await;
    fleet.plane.restart_component(Component::ApiServer).await?;
    settled(&fleet).await?;
    ensure!(controller.is_running()?, "the controller ended");
    scaled_down(&fleet).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_of_all_ec2_calls_are_throttled() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|_| {}).await? else {
        return Ok(());
    };
    for action in [
        "CreateFleet",
        "CreateLaunchTemplate",
        "DescribeInstances",
        "TerminateInstances",
        "CreateTags",
        "DescribeSubnets",
        "DescribeSecurityGroups",
        "DescribeImages",
        "DescribeInstanceTypes",
    ] {
        fleet.aws.world().throttle(action, 300, 7);
    }
    let controller = scaled_up(&fleet).await?;
    settled(&fleet).await?;
    scaled_down(&fleet).await?;
    println!("{}", costs(&controller));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_all_offerings_are_out_of_capacity() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|config| config.empty_pools_per_mille = 500).await? else {
        return Ok(());
    };
    let _controller = scaled_up(&fleet).await?;
    settled(&fleet).await?;
    scaled_down(&fleet).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_dies_between_the_launch_and_its_record_and_nothing_is_launched_twice()
-> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|_| {}).await? else {
        return Ok(());
    };
    fleet.node_class("default", "e2e").await?;
    fleet.node_pool("pool", "default", 8, json!({})).await?;
    let mut first = fleet.controller("controller")?;
    let classes: Api<Ec2NodeClass> = Api::all(fleet.client.clone());
    eventually("the class is ready", Duration::from_secs(60), async || {
        let class = classes.get("default").await?;
        ensure!(class.is_ready_now(), "{:?}", class.conditions());
        Ok(())
    })
    .await;
    // Launches take effect, but nobody hears the answer: the state in which the controller dies.
    // Every launch group and every repetition loses its answer for as long as it lives.
    let lost = Fault {
        action: "CreateFleet".to_owned(),
        kind: FaultKind::LoseAnswer,
        times: 1_000,
    };
    let world = fleet.aws.world();
    ensure!(
        world.fail_next(lost),
        "the simulated AWS does not know the fault"
    );
    fleet
        .deployment("work", PODS, "1", "1Gi", json!({}))
        .await?;
    eventually("instances exist", Duration::from_secs(60), async || {
        ensure!(fleet.alive() > 0, "none yet");
        Ok(())
    })
    .await;
    first.kill()?;
    world.clear_faults();
    let at_death = fleet.claims().await?;
    let recorded = at_death
        .iter()
        .filter_map(|claim| claim.status.as_ref())
        .filter(|status| !status.provider_id.is_empty());
    ensure!(
        recorded.count() == 0,
        "a nodeclaim knows of its instance, though no answer arrived"
    );
    let _second = fleet.controller("second")?;
    settled(&fleet).await?;
    // `settled` saw an instance for each nodeclaim; those of the dead leader are among them...
    let now = names(&fleet.claims().await?);
    let lost: Vec<String> = names(&at_death)
        .into_iter()
        .filter(|name| !now.contains(name))
        .collect();
    ensure!(lost.is_empty(), "{lost:?} did not outlive the first leader");
    // ... and none was launched beside them, not even for a moment.
    let ever = world.instances().len();
    ensure!(
        ever == now.len(),
        "{ever} instances were launched for {} nodeclaims",
        now.len()
    );
    scaled_down(&fleet).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_that_matches_no_subnet_says_so_and_launches_nothing() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|_| {}).await? else {
        return Ok(());
    };
    fleet.node_class("default", "no-such-cluster").await?;
    fleet.node_pool("pool", "default", 8, json!({})).await?;
    let _controller = fleet.controller("controller")?;
    fleet.deployment("work", 5, "1", "1Gi", json!({})).await?;
    let classes: Api<Ec2NodeClass> = Api::all(fleet.client.clone());
    eventually(
        "the class says that no subnet matches",
        Duration::from_secs(60),
        async || {
            let class = classes.get("default").await?;
            let condition = class
                .condition("SubnetsReady")
                .context("no condition yet")?;
            ensure!(
                condition.status == "False" && condition.reason == "SubnetsNotFound",
                "{condition:?}"
            );
            let ready = class.condition("Ready").context("no root condition yet")?;
            ensure!(ready.status == "False", "{ready:?}");
            Ok(())
        },
    )
    .await;
    let events: Api<Event> = Api::all(fleet.client.clone());
    eventually(
        "an event tells of the class and one of the pods",
        Duration::from_secs(60),
        async || {
            let all = events.list(&ListParams::default()).await?.items;
            let about = |kind: &str, text: &str| {
                all.iter().any(|e| {
                    e.involved_object.kind.as_deref() == Some(kind)
                        && e.message
                            .as_deref()
                            .is_some_and(|message| message.contains(text))
                })
            };
            ensure!(
                about("EC2NodeClass", "SubnetsNotFound"),
                "no event of the class"
            );
            ensure!(about("Pod", "Failed to schedule pod"), "no event of a pod");
            Ok(())
        },
    )
    .await;
    ensure!(
        fleet.claims().await?.is_empty() && fleet.alive() == 0,
        "something was launched"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_controllers_one_acts_and_the_other_takes_over() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|_| {}).await? else {
        return Ok(());
    };
    let mut first = scaled_up(&fleet).await?;
    first
        .line_with("became leader", Duration::from_secs(60))
        .await;
    let mut second = fleet.controller("second")?;
    settled(&fleet).await?;
    let acted =
        |log: &str| log.contains("created nodeclaims") || log.contains("launched nodeclaim");
    ensure!(acted(&first.output()?), "the leader did not act");
    ensure!(!acted(&second.output()?), "the follower acted");
    first.kill()?;
    second
        .line_with("became leader", Duration::from_secs(60))
        .await;
    scaled_down(&fleet).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_that_runs_out_is_planned_around() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|_| {}).await? else {
        return Ok(());
    };
    // Whatever is cheapest is gone; the next-best offering must win without waiting for a batch.
    for family in ["c5*", "c6*", "m5*"] {
        fleet.aws.world().set_capacity(
            PoolPattern {
                instance_type: Some(family.into()),
                ..PoolPattern::default()
            },
            Some(0),
        );
    }
    let _controller = scaled_up(&fleet).await?;
    settled(&fleet).await?;
    scaled_down(&fleet).await
}
