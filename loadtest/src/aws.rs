//! `millwright-loadtest aws`: the simulated AWS account on its own.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use millwright_sim::aws::{AwsSim, AwsSimConfig, RealClock, ThrottleConfig};

use crate::args::AwsArgs;

/// Serves until the process is asked to end.
///
/// # Errors
/// When the address cannot be listened on, or signals cannot be received.
pub(crate) async fn run(args: AwsArgs) -> anyhow::Result<()> {
    let listen = args.listen;
    let config = config(args);
    let (region, seed) = (config.region.clone(), config.seed);
    let sim = AwsSim::start(config)
        .await
        .with_context(|| format!("listen on {listen}"))?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "AWS_ENDPOINT_URL={} AWS_REGION={region} AWS_DEFAULT_REGION={region} \
         AWS_ACCESS_KEY_ID=simulated AWS_SECRET_ACCESS_KEY=simulated",
        sim.endpoint()
    )?;
    writeln!(
        out,
        "ready (seed {seed}); faults are scripted at {}/_sim/help",
        sim.endpoint()
    )?;
    out.flush()?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.context("wait for an interrupt"),
        _ = terminate.recv() => Ok(()),
    }
}

fn config(args: AwsArgs) -> AwsSimConfig {
    let mut config = AwsSimConfig::new(args.cluster_name);
    config.listen = args.listen;
    config.seed = args.seed;
    config.cluster.endpoint = args.cluster_endpoint;
    config.cluster.version = args.cluster_version;
    config.clock = Arc::new(RealClock::scaled(args.speed));
    config.throttle = args.throttle.then(ThrottleConfig::default);
    config.timing.read_lag = Duration::from_millis(args.read_lag);
    config.pool_capacity = args.pool_capacity;
    config.empty_pools_per_mille = args.empty_pools;
    config.quotas.on_demand_vcpus = args.on_demand_vcpus;
    config.quotas.spot_vcpus = args.spot_vcpus;
    config
}
