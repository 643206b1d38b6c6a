//! From a NodeClaim to a node.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millwright_api::{
    Ec2NodeClass, NodeClaim, NodePool, annotations,
    conditions::{self, Conditioned},
};
use millwright_cloud::CloudErrorKind;
use millwright_model::CapacityType;

use crate::world::{BOUND, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_becomes_a_node_with_everything_it_promises() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.create::<NodeClaim>(world.claim("one")).await?;
    let launched = world.claim_is("one", conditions::LAUNCHED).await;
    let status = launched.status.as_ref().context("a status")?;
    assert!(status.provider_id.starts_with("aws:///test-1a/i-"));
    assert_eq!(launched.labels()["topology.kubernetes.io/zone"], "test-1a");
    assert_eq!(
        launched.annotations()[annotations::INSTANCE_PROFILE_NAME],
        "memory"
    );
    assert!(
        launched
            .annotations()
            .contains_key(annotations::EC2_NODE_CLASS_HASH)
    );

    world.join("node-1", &launched).await?;
    let registered = world.claim_is("one", conditions::REGISTERED).await;
    assert_eq!(
        registered.status.as_ref().context("a status")?.node_name,
        "node-1"
    );
    let node: Node = world.get("node-1").await?.context("the node")?;
    assert!(
        node.finalizers()
            .contains(&annotations::TERMINATION_FINALIZER.to_owned())
    );
    assert_eq!(
        node.owner_references()[0].uid,
        registered.uid().unwrap_or_default()
    );
    assert_eq!(node.labels()["karpenter.sh/registered"], "true");
    assert_eq!(node.labels()["karpenter.sh/nodepool"], "default");
    let taints = node.spec.context("a spec")?.taints.unwrap_or_default();
    let keys: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
    assert!(
        keys.contains(&"team") && !keys.contains(&"karpenter.sh/unregistered"),
        "{keys:?}"
    );

    world.make_ready("node-1", true).await?;
    let initialized = world.claim_is("one", conditions::INITIALIZED).await;
    assert!(initialized.is_ready_now());
    world
        .reaches("the instance is tagged", "one", |claim: &NodeClaim| {
            ensure!(claim.annotations().contains_key(annotations::TAGGED));
            Ok(())
        })
        .await;
    assert_eq!(world.cloud.instances()[0].node_claim, Some("one".into()));
    world
        .reaches("the pool counts it", "default", |pool: &NodePool| {
            let status = pool.status.clone().unwrap_or_default();
            ensure!(status.nodes == 1, "{status:?}");
            ensure!(pool.is_condition_true(conditions::NODE_REGISTRATION_HEALTHY));
            Ok(())
        })
        .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_one_launch_and_a_crash_before_its_status_launches_nothing_more()
-> anyhow::Result<()> {
    let Some(mut world) = World::start().await? else {
        return Ok(());
    };
    world.hold_launches(true);
    for name in ["a", "b", "c"] {
        world
            .create::<NodeClaim>(world.grouped(name, "burst/3"))
            .await?;
    }
    millwright_tests::eventually("the instances exist", BOUND, async || {
        let count = world.cloud.instances().len();
        ensure!(count == 3, "{count} of 3");
        Ok(())
    })
    .await;
    assert_eq!(world.cloud.launches(), 1, "one call for the group");
    // The answer is lost together with the process.
    world.kill_controllers().await;
    world.hold_launches(false);
    world.run_controllers();
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        let claim = world.claim_is(name, conditions::LAUNCHED).await;
        ids.push(claim.status.context("a status")?.provider_id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.cloud.instances().len()), (3, 3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_capacity_the_claim_is_given_back_with_an_event() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world
        .cloud
        .stock("m5.xlarge", "test-1a", CapacityType::OnDemand, 0);
    world.create::<NodeClaim>(world.claim("none")).await?;
    world.vanishes::<NodeClaim>("none", BOUND).await;
    let message = world.told("InsufficientCapacityError", "none").await;
    assert!(message.contains("none"), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_launch_says_why_and_succeeds_later() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let before = world.cloud.launches();
    world.cloud.fail_next(CloudErrorKind::Throttled);
    world.create::<NodeClaim>(world.claim("slow")).await?;
    world
        .reaches("the condition says why", "slow", |claim: &NodeClaim| {
            let launched = claim
                .condition(conditions::LAUNCHED)
                .context("no condition")?;
            ensure!(
                launched.reason == "LaunchFailed" || launched.status == "True",
                "{launched:?}"
            );
            Ok(())
        })
        .await;
    world.claim_is("slow", conditions::LAUNCHED).await;
    assert_eq!(
        world.cloud.launches() - before,
        2,
        "the pause between tries is kept"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_is_being_deleted_waits_for_its_claims_and_launches_no_more()
-> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.running("kept").await?;
    world.delete::<Ec2NodeClass>("default").await?;
    let message = world.told("WaitingOnNodeClaimTermination", "default").await;
    assert!(message.contains("kept"), "{message}");
    world
        .reaches("the pool is not ready", "default", |pool: &NodePool| {
            let ready = pool
                .condition(conditions::NODE_CLASS_READY)
                .context("no condition")?;
            ensure!(ready.reason == "NodeClassTerminating", "{ready:?}");
            Ok(())
        })
        .await;
    world.create::<NodeClaim>(world.claim("late")).await?;
    world.vanishes::<NodeClaim>("late", BOUND).await;
    world.delete::<NodeClaim>("kept").await?;
    world.vanishes::<NodeClaim>("kept", BOUND).await;
    world.vanishes::<Ec2NodeClass>("default", BOUND).await;
    Ok(())
}
