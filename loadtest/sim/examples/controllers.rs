//! Runs the workload controllers against the API server of the current kubeconfig, until
//! it is stopped. A bare API server becomes one that keeps Deployments:
//!
//! ```sh
//! cargo run -p millwright-sim --example controllers
//! ```

use kube::Client;
use millwright_sim::workloads::Workloads;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A second installation is refused and harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_default().await?;
    let _workloads = Workloads::start(client.clone());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
