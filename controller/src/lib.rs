//! The controller: composition of watches, planner, executor, controllers, leader election and the
//! admin server around one provider.
//!
//! Ring 5. `run` is what the binary calls with the AWS provider; tests may call it with another.

mod admin;
pub mod args;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::Client;
use millwright_cloud::Provider;
use millwright_reconcile::{
    Context, controllers,
    events::{Recorder, write_events},
    leader::{Elector, Leadership},
    metered::Metered,
    planner::{self, PlanLog},
};
use millwright_telemetry::{self as telemetry, Metrics};
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::args::Arguments;

/// How often the provider looks whether facts or prices are due.
const REFRESH: Duration = Duration::from_secs(10);

/// Runs until `stop` is cancelled or leadership is lost.
///
/// # Errors
/// When a port is taken, or leadership was lost: the process must end then.
pub async fn run(
    arguments: &Arguments,
    client: Client,
    provider: Arc<dyn Provider>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "millwright".to_owned());
    let mut tasks = JoinSet::new();
    let (recorder, queue) = Recorder::new();
    tasks.spawn(write_events(client.clone(), host.clone(), queue));
    let (elector, leadership) = election(arguments, &client, &host);
    let provider: Arc<dyn Provider> = Arc::new(Metered::new(provider));
    let context = Context::start(
        client,
        provider.clone(),
        recorder,
        leadership,
        arguments.settings(),
        &mut tasks,
    );
    let plans = PlanLog::default();
    let at = |port| SocketAddr::new(arguments.listen_address, port);
    admin::serve(
        at(arguments.metrics_port),
        at(arguments.health_probe_port),
        &context,
        plans.clone(),
        install_metrics(),
        &mut tasks,
    )
    .await?;
    let (tried, first_try) = oneshot::channel();
    tasks.spawn(refresh(provider, context.clone(), tried));
    let planning = context.clone();
    tasks.spawn(async move {
        // Before it knows instance types, the planner would tell every pod that it fits nowhere.
        // An error means that the process is ending.
        let _ = first_try.await;
        tracing::info!("planning begins");
        planner::run(planning, plans).await;
    });
    controllers::start(&context, &mut tasks);
    tracing::info!(cluster = arguments.cluster_name, "started");
    let elected = async {
        match elector {
            Some(elector) => elector
                .run(stop.cancelled())
                .await
                .context("leader election"),
            None => {
                stop.cancelled().await;
                Ok(())
            }
        }
    };
    tokio::select! {
        result = elected => result,
        Some(ended) = tasks.join_next() => {
            // Watches and loops never end by themselves.
            ended.context("a task ended")?;
            anyhow::bail!("a task ended unexpectedly")
        }
    }
}

fn install_metrics() -> Option<Metrics> {
    let metrics = Metrics::install();
    telemetry::build(
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_RUST_VERSION"),
        option_env!("MILLWRIGHT_COMMIT").unwrap_or("unknown"),
    );
    metrics
}

fn election(arguments: &Arguments, client: &Client, host: &str) -> (Option<Elector>, Leadership) {
    if arguments.disable_leader_election {
        return (None, Leadership::always());
    }
    let identity = format!("{host}_{}", uuid::Uuid::new_v4());
    let namespace = arguments.lease_namespace();
    let (elector, leadership) = Elector::new(
        client.clone(),
        namespace,
        &arguments.leader_election_name,
        identity,
    );
    (Some(elector), leadership)
}

/// Keeps types and prices fresh. Followers do it too, so that a new leader can launch at once.
/// `tried` learns of the end of the first attempt, whether it succeeded or not.
async fn refresh(provider: Arc<dyn Provider>, context: Context, tried: oneshot::Sender<()>) {
    let mut tried = Some(tried);
    loop {
        let before = provider.epoch();
        if let Err(error) = provider.refresh().await {
            tracing::warn!(%error, "instance types or prices could not be read, will retry");
        }
        if provider.epoch() != before {
            context.supply_changed();
        }
        let _ = tried.take().map(|tried| tried.send(()));
        tokio::time::sleep(REFRESH).await;
    }
}
