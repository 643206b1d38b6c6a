//! `millwright-loadtest burst`: many equal pods at once, timed through the Kubernetes API.
//!
//! Pods of 1 vCPU and 1 GiB on machines of 16 vCPU, of which each holds 15. The fewest nodes are
//! therefore known, and the run fails when there are more, or when a pod stays without a place.

mod picture;
mod timeline;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, watcher},
};
use millwright_api::{NodeClaim, NodePool};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    args::BurstArgs,
    manifests::{Manifest, NAMESPACE},
    parts::{ApiServer, Cloud, Controller},
};
use timeline::{Step, Timeline};

/// Pods on one node.
const PODS_PER_NODE: usize = 15;
/// Bound of the preparation and of the way back to nothing.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between looks at the timeline; times come from the watches, not from these looks.
const LOOK: Duration = Duration::from_millis(200);

/// What came of it.
struct Outcome {
    timeline: Timeline,
    /// Planning passes that created NodeClaims.
    rounds: usize,
    cpu_seconds: f64,
    peak_mib: u64,
}

/// Runs a burst; the last line says how it went.
#[expect(clippy::print_stdout, reason = "the timeline is the program's result")]
pub(crate) async fn run(arguments: BurstArgs) -> anyhow::Result<()> {
    let pods = usize::try_from(arguments.pods)?;
    let outcome = match measure(&arguments, pods).await {
        Ok(outcome) => outcome,
        Err(error) => {
            println!("burst: failed: {error:#}");
            std::process::exit(1);
        }
    };
    let timeline = &outcome.timeline;
    let (bound, nodes) = (timeline.count(Step::Bound), timeline.count(Step::Claimed));
    let complete = bound == pods && nodes == pods.div_ceil(PODS_PER_NODE);
    let bound_after = timeline.times(Step::Bound).last().copied();
    println!("{}", picture::table(timeline));
    println!("{}", picture::plot(timeline));
    println!(
        "burst: {}: {bound}/{pods} pods bound, {nodes} nodes ({} is the fewest), {} planning rounds, \
         all nodeclaims {} ms after the last pod, all pods bound after {:.1} s, controller: {:.1} \
         CPU seconds, {} MiB at its peak",
        if complete { "ok" } else { "failed" },
        pods.div_ceil(PODS_PER_NODE),
        outcome.rounds,
        timeline.claims_after_pods().as_millis(),
        bound_after.unwrap_or_default().as_secs_f64(),
        outcome.cpu_seconds,
        outcome.peak_mib,
    );
    if !complete {
        std::process::exit(1);
    }
    Ok(())
}

async fn measure(arguments: &BurstArgs, pods: usize) -> anyhow::Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let mut burst = Manifest::read("burst.yaml", include_str!("burst.yaml"))?;
    burst.set("/spec/replicas", json!(arguments.pods))?;
    let supply = [
        Manifest::read(
            "nodeclass.yaml",
            include_str!("../demo/manifests/nodeclass.yaml"),
        )?,
        Manifest::read("nodepool.yaml", include_str!("nodepool.yaml"))?,
    ];
    let server = ApiServer::open(arguments.kubeconfig.as_deref(), arguments.control_plane).await?;
    server.install_crds().await?;
    server.namespace("kube-node-lease").await?;
    let cloud = Cloud::start(server.client.clone(), arguments.seed).await?;
    let log: PathBuf = arguments
        .log
        .clone()
        .unwrap_or_else(|| folder.path().join("controller.log"));
    let mut controller = Controller::start(&server, &cloud, log, &[])?;
    for manifest in &supply {
        manifest.apply(&server.client).await?;
    }
    ready(&server.client, &mut controller).await?;
    let watched = Watched::start(&server.client).await;
    burst.apply(&server.client).await?;
    let timeout = Duration::from_secs(arguments.timeout);
    watched.bound(pods, timeout, &mut controller).await?;
    let (cpu_ms, peak_kib) = controller.costs().context("the controller has ended")?;
    let rounds = controller.said("created nodeclaims")?;
    let timeline = watched.stop();
    // A private cluster ends with this program.
    if arguments.kubeconfig.is_some() {
        burst.delete(&server.client).await?;
        for manifest in supply.iter().rev() {
            manifest.delete(&server.client).await?;
        }
        gone(&cloud, &mut controller).await?;
    }
    controller.stop().await;
    #[expect(clippy::cast_precision_loss, reason = "a duration for people")]
    let cpu_seconds = cpu_ms as f64 / 1000.0;
    Ok(Outcome {
        timeline,
        rounds,
        cpu_seconds,
        peak_mib: peak_kib / 1024,
    })
}

/// Waits until the controller leads, knows instance types, and can use the NodePool, so that only
/// the burst is timed.
async fn ready(client: &Client, controller: &mut Controller) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while controller.said("planning begins")? == 0 {
        controller.check()?;
        ensure!(Instant::now() < deadline, "the controller does not plan");
        tokio::time::sleep(LOOK).await;
    }
    let pools: Api<NodePool> = Api::all(client.clone());
    let is_ready = |pool: Option<&NodePool>| {
        let conditions = pool.iter().flat_map(|pool| &pool.status);
        let mut conditions = conditions.flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let usable = kube::runtime::wait::await_condition(pools, "burst", is_ready);
    tokio::time::timeout(PATIENCE, usable)
        .await
        .context("the NodePool did not become ready")??;
    Ok(())
}

/// Waits until no instance is left.
async fn gone(cloud: &Cloud, controller: &mut Controller) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        controller.check()?;
        let instances = cloud.aws.world().instances();
        let alive = instances.iter().filter(|i| !i.state.is_ending()).count();
        if alive == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{alive} instances stayed behind");
        tokio::time::sleep(LOOK).await;
    }
}

/// The timeline in the making.
struct Watched {
    timeline: Arc<Mutex<Timeline>>,
    _tasks: JoinSet<()>,
}

impl Watched {
    /// Watches the burst's pods and all NodeClaims; returns when both are watched.
    async fn start(client: &Client) -> Self {
        let timeline = Arc::new(Mutex::new(Timeline::default()));
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let claims: Api<NodeClaim> = Api::all(client.clone());
        let (pods_timeline, claims_timeline) = (timeline.clone(), timeline.clone());
        let listed = [
            follow(&mut tasks, pods, "app=burst", move |pod| {
                lock(&pods_timeline).pod(pod, started.elapsed());
            }),
            follow(
                &mut tasks,
                claims,
                "karpenter.sh/nodepool=burst",
                move |claim| {
                    lock(&claims_timeline).claim(claim, started.elapsed());
                },
            ),
        ];
        for listed in listed {
            // An error means that the watch has ended, which it does not.
            let _ = listed.await;
        }
        Self {
            timeline,
            _tasks: tasks,
        }
    }

    /// Waits until so many pods have a node, or the time is over.
    async fn bound(
        &self,
        pods: usize,
        timeout: Duration,
        controller: &mut Controller,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + timeout;
        while lock(&self.timeline).count(Step::Bound) < pods && Instant::now() < deadline {
            controller.check()?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn stop(self) -> Timeline {
        std::mem::take(&mut lock(&self.timeline))
    }
}

fn lock(timeline: &Mutex<Timeline>) -> MutexGuard<'_, Timeline> {
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches the objects with a label; the answer comes when the first list is complete.
fn follow<K>(
    tasks: &mut JoinSet<()>,
    api: Api<K>,
    labels: &str,
    mut each: impl FnMut(&K) + Send + 'static,
) -> oneshot::Receiver<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let (listed, answer) = oneshot::channel();
    let mut listed = Some(listed);
    let events = watcher(api, watcher::Config::default().labels(labels)).default_backoff();
    tasks.spawn(async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    each(&object);
                }
                Ok(watcher::Event::InitDone) => {
                    // Nobody listens any more when a list is made again.
                    let _ = listed.take().map(|listed| listed.send(()));
                }
                Ok(watcher::Event::Init | watcher::Event::Delete(_)) => {}
                Err(error) => tracing::warn!(%error, "watch interrupted, resuming"),
            }
        }
    });
    answer
}
