//! `millwright-loadtest demo`: the main job on loopback, as a story in three acts.
//!
//! The controller is its own binary and its real code path: Kubernetes through `kube`, AWS through the
//! SDK. Only what stands around it is simulated.

mod view;
mod watch;

use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    args::DemoArgs,
    manifests::{Manifest, NAMESPACE},
    parts::{ApiServer, Cloud, Controller},
};
use view::{Screen, View};
use watch::Watched;

const DEPLOYMENT: &str = "stress-test";
const MANIFESTS: [(&str, &str); 3] = [
    ("nodeclass.yaml", include_str!("manifests/nodeclass.yaml")),
    ("nodepool.yaml", include_str!("manifests/nodepool.yaml")),
    (
        "stress-test.yaml",
        include_str!("manifests/stress-test.yaml"),
    ),
];
/// Bound of each act.
const ACT: Duration = Duration::from_secs(180);
/// Pause between pictures.
const FRAME: Duration = Duration::from_millis(200);

/// Runs the demo; its last line says how it went.
#[expect(clippy::print_stdout, reason = "the last line is the demo's result")]
pub(crate) async fn run(arguments: DemoArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    match story(&arguments, started).await {
        Ok(summary) => {
            println!(
                "demo: ok: {}/{} pods bound, {} nodes at the peak, ${:.4}/h, {} nodes left, {:.0} s",
                summary.bound,
                summary.pods,
                summary.peak_nodes,
                summary.peak_price,
                summary.nodes_left,
                started.elapsed().as_secs_f64()
            );
            Ok(())
        }
        Err(error) => {
            println!("demo: failed: {error:#}");
            std::process::exit(1);
        }
    }
}

#[derive(Debug, Default)]
struct Summary {
    pods: usize,
    bound: usize,
    peak_nodes: usize,
    peak_price: f64,
    nodes_left: usize,
    bound_after: Duration,
}

struct Stage {
    started: Instant,
    screen: Screen,
    watched: Watched,
    controller: Controller,
    summary: Summary,
}

async fn story(arguments: &DemoArgs, started: Instant) -> anyhow::Result<Summary> {
    let folder = tempfile::tempdir()?;
    let mut screen = Screen::new(10);
    screen.act(started.elapsed(), "starting the parts");
    let server = ApiServer::open(arguments.kubeconfig.as_deref(), arguments.control_plane).await?;
    server.install_crds().await?;
    server.namespace("kube-node-lease").await?;
    let cloud = Cloud::start(server.client.clone(), arguments.seed).await?;
    let log = arguments
        .log
        .clone()
        .unwrap_or_else(|| folder.path().join("controller.log"));
    let controller = Controller::start(&server, &cloud, log, &[])?;
    let watched = Watched::start(&server.client, NAMESPACE);
    let mut stage = Stage {
        started,
        screen,
        watched,
        controller,
        summary: Summary::default(),
    };
    apply_manifests(&server.client, &mut stage).await?;
    scale_up(&mut stage).await?;
    scale_down(&server.client, &mut stage).await?;
    clean_up(&server.client, &cloud, &mut stage).await?;
    stage.screen.finish();
    tell(&stage);
    stage.controller.stop().await;
    Ok(stage.summary)
}

async fn apply_manifests(client: &Client, stage: &mut Stage) -> anyhow::Result<()> {
    let text = "applying the article's node class, NodePool and stress test (10 pods of 4 vCPU)";
    stage.screen.act(stage.started.elapsed(), text);
    for (file, text) in MANIFESTS {
        Manifest::read(file, text)?.apply(client).await?;
    }
    Ok(())
}

impl Stage {
    fn look(&mut self) -> anyhow::Result<View> {
        self.controller.check()?;
        let view = self.watched.view(price);
        let nodes = view.node_count();
        if nodes >= self.summary.peak_nodes && view.price_per_hour >= self.summary.peak_price {
            self.summary.peak_nodes = nodes;
            self.summary.peak_price = view.price_per_hour;
        }
        self.screen.draw(self.started.elapsed(), &view);
        Ok(view)
    }

    /// Draws until a picture satisfies the condition.
    async fn until(&mut self, what: &str, reached: impl Fn(&View) -> bool) -> anyhow::Result<View> {
        let deadline = Instant::now() + ACT;
        loop {
            let view = self.look()?;
            if reached(&view) {
                return Ok(view);
            }
            if Instant::now() > deadline {
                bail!("{what}: not reached within {} s ({view:?})", ACT.as_secs());
            }
            tokio::time::sleep(FRAME).await;
        }
    }
}

/// The offering's price in dollars per hour, from the same tables as the simulated cloud.
fn price(instance_type: &str, zone: &str, capacity_type: &str) -> f64 {
    let Some(facts) = millwright_ec2_catalogue::by_name(instance_type) else {
        return 0.0;
    };
    let nanos = match (capacity_type, zone.chars().last()) {
        ("spot", Some(letter)) => {
            millwright_ec2_catalogue::spot_price(facts, letter, 0).unwrap_or(0)
        }
        _ => facts.on_demand_price,
    };
    #[expect(clippy::cast_precision_loss, reason = "a price for people")]
    let dollars = nanos as f64 / 1e9;
    dollars
}

async fn scale_up(stage: &mut Stage) -> anyhow::Result<()> {
    stage
        .screen
        .act(stage.started.elapsed(), "pods without a place get nodes");
    let began = Instant::now();
    let view = stage
        .until("10 pods run", |view| view.running == 10)
        .await?;
    stage.summary.pods = view.pods;
    stage.summary.bound = view.bound;
    stage.summary.bound_after = began.elapsed();
    Ok(())
}

async fn scale_down(client: &Client, stage: &mut Stage) -> anyhow::Result<()> {
    stage.screen.act(
        stage.started.elapsed(),
        "scaling the stress test to zero: empty nodes leave",
    );
    let api: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = json!({"spec": {"replicas": 0}});
    api.patch(DEPLOYMENT, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    stage
        .until("no pod and no NodeClaim is left", |view| {
            view.pods == 0 && view.node_count() == 0
        })
        .await?;
    Ok(())
}

/// Deletes what the demo made and makes sure that nothing is left behind.
async fn clean_up(client: &Client, cloud: &Cloud, stage: &mut Stage) -> anyhow::Result<()> {
    stage.screen.act(
        stage.started.elapsed(),
        "deleting the NodePool and its class: nothing may stay behind",
    );
    for (file, text) in MANIFESTS {
        Manifest::read(file, text)?.delete(client).await?;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let world = cloud.aws.world();
    let deadline = Instant::now() + ACT;
    loop {
        stage.controller.check()?;
        let ours = "karpenter.sh/nodepool";
        let list = nodes
            .list(&kube::api::ListParams::default().labels(ours))
            .await?;
        let alive = world
            .instances()
            .iter()
            .filter(|instance| !instance.state.is_ending())
            .count();
        let templates = world.launch_templates().len();
        stage.summary.nodes_left = list.items.len();
        if list.items.is_empty() && alive == 0 && templates == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "left behind: {} nodes, {alive} instances, {templates} launch templates",
                list.items.len()
            );
        }
        tokio::time::sleep(FRAME).await;
    }
}

fn tell(stage: &Stage) {
    let summary = &stage.summary;
    let say = |text: String| stage.screen.say(&text);
    say(format!(
        "all pods ran {:.1} s after they were created",
        summary.bound_after.as_secs_f64()
    ));
    say(format!(
        "{} nodes at the peak for ${:.4}/h; one t3.2xlarge holds one such pod, because two miss its 7,910m by 90m",
        summary.peak_nodes, summary.peak_price
    ));
    if let Some((cpu_ms, peak_kib)) = stage.controller.costs() {
        say(format!(
            "the controller used {:.1} CPU seconds and {} MiB at its peak",
            cpu_seconds(cpu_ms),
            peak_kib / 1024
        ));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn cpu_seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}
