//! The real controllers make pods, the real scheduler judges them.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use millwright_tests::{ControlPlane, eventually};
use serde_json::{from_value, json};

const BOUND: Duration = Duration::from_secs(60);

fn deployment(name: &str, replicas: u32, pool: &str) -> Deployment {
    from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"test/pool": pool},
                    "containers": [{
                        "name": "main",
                        "image": "example.test/none",
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                    }],
                },
            },
        },
    }))
    .expect("a Deployment")
}

/// The message of a pod's condition `PodScheduled=False` for the reason `Unschedulable`.
fn unschedulable(pod: &Pod) -> Option<&str> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|c| c.type_ == "PodScheduled" && c.status == "False")
        .filter(|c| c.reason.as_deref() == Some("Unschedulable"))?
        .message
        .as_deref()
}

#[tokio::test]
async fn pods_of_a_deployment_appear_and_the_scheduler_finds_them_unschedulable()
-> anyhow::Result<()> {
    let Some(plane) = ControlPlane::shared().await else {
        return Ok(());
    };
    let admin = plane.admin().await?;
    let namespace = plane.namespace(&admin, "unschedulable").await?;
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), &namespace);
    deployments
        .create(&PostParams::default(), &deployment("web", 3, "nowhere"))
        .await?;

    let pods: Api<Pod> = Api::namespaced(admin, &namespace);
    eventually(
        "3 pods that the scheduler calls unschedulable",
        BOUND,
        async || {
            let list = pods
                .list(&ListParams::default().labels("app=web"))
                .await?
                .items;
            ensure!(list.len() == 3, "{} pods", list.len());
            let marked = list.iter().filter_map(unschedulable).count();
            ensure!(marked == 3, "{marked} of 3 are marked");
            ensure!(
                list.iter()
                    .all(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_none()))
            );
            Ok(())
        },
    )
    .await;
    Ok(())
}

#[tokio::test]
async fn a_ready_node_with_room_gets_the_pods_that_were_unschedulable() -> anyhow::Result<()> {
    let Some(plane) = ControlPlane::shared().await else {
        return Ok(());
    };
    let admin = plane.admin().await?;
    let namespace = plane.namespace(&admin, "binding").await?;
    let pool = namespace.clone();
    Api::<Deployment>::namespaced(admin.clone(), &namespace)
        .create(&PostParams::default(), &deployment("web", 3, &pool))
        .await?;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), &namespace);
    eventually("3 unschedulable pods", BOUND, async || {
        let list = pods.list(&ListParams::default()).await?.items;
        let marked = list.iter().filter_map(unschedulable).count();
        ensure!(marked == 3, "{marked} of 3 are marked");
        Ok(())
    })
    .await;

    // Room for two of the three: what the third is told shows that the fit was counted.
    let nodes: Api<Node> = Api::all(admin);
    let node: Node = from_value(json!({
        "metadata": {"name": pool, "labels": {"test/pool": pool}},
    }))?;
    nodes.create(&PostParams::default(), &node).await?;
    let status = json!({"status": {
        "capacity": {"cpu": "2", "memory": "8Gi", "pods": "10"},
        "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
            "lastHeartbeatTime": null, "lastTransitionTime": null}],
    }});
    nodes
        .patch_status(&pool, &PatchParams::default(), &Patch::Merge(&status))
        .await?;

    eventually(
        "two pods on the node, the third without room",
        BOUND,
        async || {
            let list = pods.list(&ListParams::default()).await?.items;
            let on_node =
                |p: &&Pod| p.spec.as_ref().and_then(|s| s.node_name.as_ref()) == Some(&pool);
            let bound = list.iter().filter(on_node).count();
            ensure!(bound == 2, "{bound} bound");
            let waiting = list.iter().find(|p| !on_node(p)).context("a third pod")?;
            let why = unschedulable(waiting).context("no reason yet")?;
            ensure!(why.contains("Insufficient cpu"), "{why}");
            Ok(())
        },
    )
    .await;
    Ok(())
}
