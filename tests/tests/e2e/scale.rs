//! From nothing to a thousand pods and back.

use std::time::Duration;

use anyhow::ensure;
use kube::ResourceExt as _;
use millwright_tests::{Service, eventually};
use serde_json::json;

use crate::fleet::{Fleet, costs, names, pods_by_node};

/// Deployments of mixed sizes on three pools.
const MIX: [(&str, u32, &str, &str, &str); 6] = [
    ("web", 300, "250m", "256Mi", "a"),
    ("api", 150, "500m", "1Gi", "a"),
    ("batch", 200, "1", "2Gi", "b"),
    ("cache", 50, "500m", "4Gi", "b"),
    ("small", 250, "100m", "128Mi", "c"),
    ("large", 50, "3", "6Gi", "c"),
];

/// Nodes that carry no pod.
async fn idle(fleet: &Fleet) -> anyhow::Result<Vec<String>> {
    let used = pods_by_node(&fleet.pods().await?);
    let nodes = names(&fleet.nodes().await?).into_iter();
    Ok(nodes.filter(|node| !used.contains_key(node)).collect())
}

/// Every node carries pods, there is one NodeClaim for each, and one instance. A node that the
/// kube-scheduler had no use for after all is given the time to leave again.
async fn no_surplus(fleet: &Fleet) -> anyhow::Result<()> {
    eventually("no surplus node", Duration::from_secs(60), || async {
        let (claims, nodes) = (fleet.claims().await?, fleet.nodes().await?);
        ensure!(
            claims.len() == nodes.len(),
            "{} nodeclaims for {} nodes",
            claims.len(),
            nodes.len()
        );
        let idle = idle(fleet).await?;
        ensure!(
            idle.is_empty(),
            "{} of {} nodes carry no pod: {idle:?}",
            idle.len(),
            nodes.len()
        );
        fleet.instances_match_claims().await
    })
    .await;
    Ok(())
}

/// Compares what the NodeClaims asked for, which is the plan, with what the kube-scheduler made of
/// it: it may fill nodes in another way. A pod whose planned place another pod took is planned
/// again, perhaps on a node of its own, and may be bound elsewhere before that node is ready: only
/// such pods may leave a node without pods.
async fn plan_and_outcome(fleet: &Fleet, wanted: u32) -> anyhow::Result<()> {
    let claims = fleet.claims().await?;
    let used = pods_by_node(&fleet.pods().await?);
    let mut asked = 0;
    let mut elsewhere = 0;
    for claim in &claims {
        let quantity = claim.spec.resources.requests.get("pods");
        let planned = quantity
            .map(|quantity| quantity.0.parse::<usize>())
            .transpose()?
            .unwrap_or_default();
        let node = claim.status.as_ref().map_or("", |status| &status.node_name);
        asked += planned;
        elsewhere += usize::from(used.get(node).is_none_or(|pods| *pods != planned));
    }
    println!(
        "{wanted} pods on {} nodes; {elsewhere} nodes carry another number of pods than planned, \
         because the kube-scheduler chooses among nodes that fit",
        claims.len()
    );
    let wanted = usize::try_from(wanted)?;
    ensure!(
        asked >= wanted,
        "the plan asked for room for {asked} of {wanted} pods"
    );
    let (again, idle) = (asked - wanted, idle(fleet).await?.len());
    println!(
        "{again} pods found their planned place taken and were planned again; {idle} nodes carry \
         no pod"
    );
    ensure!(
        idle <= again,
        "{idle} nodes carry no pod, but only {again} pods were planned again"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_mixed_pods_on_three_pools_get_planned_nodes_and_everything_leaves_again()
-> anyhow::Result<()> {
    let Some(fleet) = Fleet::start_alone().await? else {
        return Ok(());
    };
    fleet.node_class("default", "e2e").await?;
    for pool in ["a", "b", "c"] {
        fleet
            .node_pool(pool, "default", 16, json!({"pool": pool}))
            .await?;
    }
    let mut controller = fleet.controller("controller")?;
    for (name, replicas, cpu, memory, pool) in MIX {
        fleet
            .deployment(name, replicas, cpu, memory, json!({"pool": pool}))
            .await?;
    }
    let wanted: u32 = MIX.iter().map(|mix| mix.1).sum();
    fleet
        .all_bound(usize::try_from(wanted)?, Duration::from_secs(180))
        .await;
    plan_and_outcome(&fleet, wanted).await?;
    no_surplus(&fleet).await?;
    println!("{}", costs(&controller));
    for (name, ..) in MIX {
        fleet.scale(name, 0).await?;
    }
    fleet.all_gone(Duration::from_secs(180)).await;
    fleet.dismantle(Duration::from_secs(60)).await?;
    println!("{}", costs(&controller));
    controller.terminate(Duration::from_secs(15)).await?;
    Ok(())
}

/// A burst of pods of 1 vCPU, 15 of which fill a node of 16: as many nodes as the optimum has,
/// exactly. The pool offers machines of that size only; were smaller ones allowed, the last ten
/// pods would be cheaper on two of them, and there would be 68 nodes (D-015).
async fn burst(replicas: u32, nodes: usize) -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start_alone().await? else {
        return Ok(());
    };
    fleet.node_class("default", "e2e").await?;
    fleet
        .node_pool_of("burst", "default", ("In", 16), json!({}))
        .await?;
    let mut controller = fleet.controller("controller")?;
    fleet
        .deployment("burst", replicas, "1", "1Gi", json!({}))
        .await?;
    fleet
        .all_bound(usize::try_from(replicas)?, Duration::from_secs(180))
        .await;
    let claims = fleet.claims().await?;
    ensure!(
        claims.len() == nodes,
        "{} nodeclaims instead of {nodes}: {:?}",
        claims.len(),
        names(&claims)
    );
    let rounds = rounds(&controller)?;
    println!(
        "{replicas} pods, {} nodes, {rounds} planning rounds that made nodes; {}",
        claims.len(),
        costs(&controller)
    );
    ensure!(rounds <= 2, "{rounds} planning rounds made nodes");
    controller.terminate(Duration::from_secs(15)).await?;
    Ok(())
}

fn rounds(controller: &Service) -> anyhow::Result<usize> {
    let output = controller.output()?;
    Ok(output
        .lines()
        .filter(|line| line.contains("created nodeclaims"))
        .count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_a_thousand_equal_pods_gets_exactly_sixty_seven_nodes() -> anyhow::Result<()> {
    burst(1000, 67).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_smaller_machines_are_allowed_the_rest_of_a_burst_gets_them() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::start(|_| {}).await? else {
        return Ok(());
    };
    fleet.node_class("default", "e2e").await?;
    fleet.node_pool("burst", "default", 16, json!({})).await?;
    let controller = fleet.controller("controller")?;
    fleet
        .deployment("burst", 100, "1", "1Gi", json!({}))
        .await?;
    fleet.all_bound(100, Duration::from_secs(180)).await;
    let sizes: Vec<String> = fleet
        .claims()
        .await?
        .iter()
        .filter_map(|claim| {
            claim
                .labels()
                .get("karpenter.k8s.aws/instance-size")
                .cloned()
        })
        .collect();
    let of = |size: &str| sizes.iter().filter(|own| *own == size).count();
    // Six machines of 15 pods, and for the other ten half and a quarter of one, not a seventh.
    ensure!(
        (of("4xlarge"), of("2xlarge"), of("xlarge"), sizes.len()) == (6, 1, 1, 8),
        "{sizes:?}"
    );
    ensure!(rounds(&controller)? <= 2, "more than two planning rounds");
    Ok(())
}
