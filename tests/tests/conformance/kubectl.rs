//! kubectl on the simulated server, as a person uses it.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use millwright_sim::kube::{KubeSim, KubeSimConfig};
use millwright_tests::tools;
use serde_json::json;

/// Runs kubectl with `input`; what it said on both streams, and whether it succeeded.
fn run(kubeconfig: &Path, arguments: &[&str], input: &str) -> anyhow::Result<(bool, String)> {
    let program = tools::kubectl().map_err(|absent| anyhow::anyhow!("{absent}"))?;
    let mut child = Command::new(program)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // Dropped at once: kubectl reads to the end.
    child
        .stdin
        .take()
        .context("no standard input")?
        .write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

fn node_pool(values: &serde_json::Value) -> String {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": values}],
        }}},
    })
    .to_string()
}

/// What a person looks at once a NodePool is there, and what must be in the answer.
const LOOKS: &[(&str, &[&str])] = &[
    ("get namespaces", &["STATUS", "kube-system", "Active"]),
    ("get nodepools -o wide", &["NODECLASS", "WEIGHT", "default"]),
    (
        "get nodepools -o yaml",
        &["consolidationPolicy: WhenEmptyOrUnderutilized"],
    ),
    ("describe nodepool default", &["Expire After:", "720h"]),
    (
        "explain nodepools.spec.disruption",
        &["KIND:       NodePool", "budgets"],
    ),
    (
        "api-resources",
        &["nodeclaims", "deployments", "poddisruptionbudgets"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works_on_the_simulated_server() -> anyhow::Result<()> {
    let sim = KubeSim::start(KubeSimConfig::default()).await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, serde_json::to_vec(&sim.kubeconfig())?)?;
    let must = |arguments: &[&str], input: &str, wanted: &[&str]| -> anyhow::Result<()> {
        let (succeeded, said) = run(&kubeconfig, arguments, input)?;
        ensure!(succeeded, "kubectl {arguments:?}: {said}");
        for part in wanted {
            ensure!(
                said.contains(part),
                "kubectl {arguments:?} without {part:?}: {said}"
            );
        }
        Ok(())
    };
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart/crds");
    let served = "crd/nodepools.karpenter.sh";
    must(&["apply", "--server-side", "-f", crds], "", &["nodepools"])?;
    must(
        &["wait", "--for=condition=Established", served],
        "",
        &["condition met"],
    )?;
    let pool = node_pool(&json!(["amd64"]));
    must(&["apply", "-f", "-"], &pool, &["default created"])?;
    must(&["apply", "-f", "-"], &pool, &["default unchanged"])?;
    for (look, wanted) in LOOKS {
        let arguments: Vec<&str> = look.split(' ').collect();
        must(&arguments, "", wanted)?;
    }
    must(&["delete", "nodepool", "default"], "", &["deleted"])?;
    let (succeeded, said) = run(&kubeconfig, &["apply", "-f", "-"], &node_pool(&json!(5)))?;
    ensure!(
        !succeeded && said.contains("spec.template.spec.requirements[0].values"),
        "a wrong type was not refused by its field: {said}"
    );
    Ok(())
}
