//! The demo as a stranger runs it, on its embedded parts: nothing but our own programs.

use std::{process::Command, time::Duration};

use anyhow::ensure;
use millwright_tests::{Service, tools};

use crate::fleet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_on_embedded_parts_binds_every_pod_and_leaves_no_node() -> anyhow::Result<()> {
    let _turn = fleet::turn().await?;
    let program = tools::workspace_program("millwright-loadtest")
        .map_err(|absent| anyhow::anyhow!("{absent}"))?;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.args(["demo", "--control-plane", "embedded"]);
    let mut demo = Service::spawn("demo", command, folder.path())?;
    let verdict = demo.line_with("demo: ", Duration::from_secs(240)).await;
    ensure!(
        verdict.starts_with("demo: ok: 10/10 pods bound") && verdict.contains(", 0 nodes left"),
        "{verdict}"
    );
    Ok(())
}
