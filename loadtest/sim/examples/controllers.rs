//! Runs the workload controllers and the scheduler against the API server of the current kubeconfig, until
//! it is stopped. A bare API server becomes a cluster in which pods find their nodes:
//!
//! ```sh
//! cargo run -p millwright-sim --example controllers
//! ```

use kube::Client;
use millwright_sim::{scheduler::Scheduler, workloads::Workloads};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A second installation is refused and harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_default().await?;
    let _workloads = Workloads::start(client.clone());
    let _scheduler = Scheduler::start(client);
    tokio::signal::ctrl_c().await?;
    Ok(())
}
