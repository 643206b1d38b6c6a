//! `millwright-loadtest kube`: the simulated Kubernetes API on its own.

use std::io::Write as _;

use anyhow::Context as _;
use millwright_sim::kube::{KubeSim, KubeSimConfig};

use crate::args::KubeArgs;

/// Serves until the process is asked to end.
///
/// # Errors
/// When the address cannot be listened on, or signals cannot be received.
pub(crate) async fn run(args: KubeArgs) -> anyhow::Result<()> {
    let config = KubeSimConfig {
        listen: args.listen,
        ..KubeSimConfig::default()
    };
    let sim = KubeSim::start(config)
        .await
        .with_context(|| format!("listen on {}", args.listen))?;
    let mut out = std::io::stdout();
    if let Some(path) = &args.write_kubeconfig {
        let text = serde_saphyr::to_string(&sim.kubeconfig())?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        writeln!(out, "KUBECONFIG={}", path.display())?;
    }
    writeln!(out, "ready at {}", sim.endpoint())?;
    out.flush()?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.context("wait for an interrupt"),
        _ = terminate.recv() => Ok(()),
    }
}
