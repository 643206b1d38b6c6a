//! What a client may rely on, checked against the simulated API server and against the real one.
//! When the two disagree, the real one is right.

#[path = "conformance/budgets.rs"]
mod budgets;
#[path = "conformance/definitions.rs"]
mod definitions;
#[path = "conformance/errors.rs"]
mod errors;
#[path = "conformance/kubectl.rs"]
mod kubectl;
#[path = "conformance/lists.rs"]
mod lists;
#[path = "conformance/objects.rs"]
mod objects;
#[path = "conformance/patches.rs"]
mod patches;
#[path = "conformance/pods.rs"]
mod pods;
#[path = "conformance/watches.rs"]
mod watches;
#[path = "conformance/workloads.rs"]
mod workloads;
#[path = "conformance/world.rs"]
mod world;

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream;
use millwright_sim::kube::{KubeSim, KubeSimConfig};
use millwright_tests::{ControlPlane, ControlPlaneOptions};

use world::World;

/// One thing that both servers must do.
struct Case {
    name: &'static str,
    run: fn(World) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// Makes the list of a module's cases, each named after its function.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[crate::Case] = &[$(crate::Case {
            name: concat!(module_path!(), "::", stringify!($name)),
            run: |world| Box::pin($name(world)),
        }),*];
    };
}
pub(crate) use cases;

const ALL: &[&[Case]] = &[
    objects::CASES,
    errors::CASES,
    lists::CASES,
    watches::CASES,
    patches::CASES,
    pods::CASES,
    budgets::CASES,
    workloads::CASES,
    definitions::CASES,
];

/// No case takes longer.
const BOUND: Duration = Duration::from_secs(60);
/// Cases in flight at once.
const CONCURRENT: usize = 8;

/// Runs every case in a namespace of its own, and fails with the list of those that failed.
async fn run_all(open: impl Fn(&'static str) -> BoxFuture<'static, anyhow::Result<World>>) {
    let failures: Vec<String> = stream::iter(ALL.iter().copied().flatten())
        .map(|case| {
            let world = open(case.name);
            async move {
                let ran = tokio::time::timeout(BOUND, async { (case.run)(world.await?).await });
                match ran.await {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(format!("{}: {error:#}", case.name)),
                    Err(_) => Some(format!("{}: not done in time", case.name)),
                }
            }
        })
        .buffer_unordered(CONCURRENT)
        .filter_map(|failure| async { failure })
        .collect()
        .await;
    let count = ALL.iter().copied().flatten().count();
    assert!(
        failures.is_empty(),
        "{} of {count} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulated_server_conforms() {
    run_all(|_| {
        Box::pin(async {
            let sim = KubeSim::start(KubeSimConfig::default()).await?;
            World::simulated(sim).await
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_server_conforms() {
    let options = ControlPlaneOptions::default();
    let Some(plane) = ControlPlane::start_or_skip(options).await else {
        return;
    };
    let config = plane
        .admin_config()
        .await
        .expect("the kubeconfig is usable");
    // Pods need their namespace's ServiceAccount, which a controller makes.
    run_all(move |_| Box::pin(World::real(config.clone()))).await;
    drop(plane);
}
