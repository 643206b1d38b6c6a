//! From a node to nothing.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use millwright_api::{
    NodeClaim, NodePool,
    conditions::{self, Conditioned},
};
use serde_json::{from_value, json};

use crate::world::{BOUND, World};

/// Poll of an instance's end, twice, and the minimum of a drain.
const END: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_claim_takes_node_and_instance_along() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.running("gone").await?;
    world.delete::<NodeClaim>("gone").await?;
    let node = world
        .reaches("the node is cordoned", "gone", |node: &Node| {
            let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
            let cordoned = taints
                .into_iter()
                .flatten()
                .any(|t| t.key == "karpenter.sh/disrupted");
            ensure!(cordoned, "{taints:?}");
            Ok(())
        })
        .await;
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    assert_eq!(node.labels()[label], "karpenter");
    assert_eq!(world.cloud.instances().len(), 1, "pods could still come");
    world.vanishes::<Node>("gone", END).await;
    world.vanishes::<NodeClaim>("gone", END).await;
    assert!(world.cloud.instances().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_takes_its_claim_along() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.running("gone").await?;
    world.delete::<Node>("gone").await?;
    world.vanishes::<NodeClaim>("gone", END).await;
    world.vanishes::<Node>("gone", END).await;
    assert!(world.cloud.instances().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_deleted_during_its_launch_leaves_no_instance() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.hold_launches(true);
    world.create::<NodeClaim>(world.claim("hasty")).await?;
    millwright_tests::eventually("the instance exists", BOUND, async || {
        ensure!(world.cloud.instances().len() == 1);
        Ok(())
    })
    .await;
    world.delete::<NodeClaim>("hasty").await?;
    let held: Option<NodeClaim> = world.get("hasty").await?;
    assert!(held.is_some(), "its instance is not known yet");
    world.hold_launches(false);
    world.vanishes::<NodeClaim>("hasty", END).await;
    assert!(world.cloud.instances().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_instance_is_gone_loses_its_finalizer_in_spite_of_pods() -> anyhow::Result<()>
{
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let claim = world.running("dead").await?;
    world.bind_pod("p", "dead").await?;
    let id = claim.status.context("a status")?.provider_id;
    world.cloud.vanish(&id.as_str().into());
    world.make_ready("dead", false).await?;
    world.delete::<NodeClaim>("dead").await?;
    world.vanishes::<Node>("dead", BOUND).await;
    world.vanishes::<NodeClaim>("dead", BOUND).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disruption_budget_holds_a_drain_until_it_allows() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.running("full").await?;
    world.bind_pod("p", "full").await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.client.clone(), "default");
    let budget = from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    budgets.create(&PostParams::default(), &budget).await?;
    // An evictable pod is a ready or a running one; only then the budget is asked.
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let running = json!({"status": {"phase": "Running", "startTime": "2024-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let (parameters, running) = (PatchParams::default(), Patch::Merge(&running));
    pods.patch_status("p", &parameters, &running).await?;
    world.delete::<NodeClaim>("full").await?;
    let message = world.told("FailedDraining", "full").await;
    assert!(message.contains("Failed to drain node"), "{message}");
    world
        .reaches("the drain is on", "full", |claim: &NodeClaim| {
            let drained = claim
                .condition(conditions::DRAINED)
                .context("no condition")?;
            ensure!(drained.reason == "Draining", "{drained:?}");
            Ok(())
        })
        .await;
    let pod = pods.get("p").await?;
    assert!(
        pod.metadata.deletion_timestamp.is_none(),
        "the budget was ignored"
    );

    budgets.delete("web", &DeleteParams::default()).await?;
    millwright_tests::eventually("the pod is evicted", BOUND, async || {
        let pod = pods.get("p").await?;
        ensure!(pod.metadata.deletion_timestamp.is_some(), "not yet");
        Ok(())
    })
    .await;
    world.told("Evicted", "p").await;
    // The kubelet has stopped it.
    pods.delete("p", &DeleteParams::default().grace_period(0))
        .await?;
    world.vanishes::<Node>("full", END).await;
    world.vanishes::<NodeClaim>("full", END).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_node_goes_after_the_delay_and_one_with_a_pod_stays() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.running("empty").await?;
    world.running("used").await?;
    world.bind_pod("p", "used").await?;
    let pools: Api<NodePool> = Api::all(world.client.clone());
    let patch =
        json!({"spec": {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}});
    let patch = Patch::Merge(&patch);
    pools
        .patch("default", &PatchParams::default(), &patch)
        .await?;
    world.told("DisruptionTerminating", "empty").await;
    world.vanishes::<NodeClaim>("empty", END).await;
    let used: Option<NodeClaim> = world.get("used").await?;
    assert!(used.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_that_a_crash_left_behind_are_taken_off() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    world.running("marked").await?;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let patch =
        json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
    let patch = Patch::Merge(&patch);
    nodes
        .patch("marked", &PatchParams::default(), &patch)
        .await?;
    world
        .reaches("the taint is gone", "marked", |node: &Node| {
            let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
            ensure!(taints.is_none_or(Vec::is_empty), "{taints:?}");
            Ok(())
        })
        .await;
    Ok(())
}
