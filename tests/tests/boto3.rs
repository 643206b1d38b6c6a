//! The simulated AWS, driven by boto3: a client that we did not write, with its own parsers,
//! paginators, waiters and retries. The script `python/boto3_against_the_simulator.py` does
//! the checking; each section of it says what it checks.

use std::process::Command;
use std::time::Duration;

use millwright_tests::{Service, present_or_skip, tools};

/// For a loaded machine; the script takes seconds.
const BOUND: Duration = Duration::from_secs(120);

fn simulator(folder: &tempfile::TempDir) -> Option<Service> {
    let program = present_or_skip(tools::workspace_program("millwright-loadtest"))?;
    let mut command = Command::new(program);
    // Fast time: instances start within a fraction of a second.
    command.args([
        "aws",
        "--listen",
        "127.0.0.1:0",
        "--cluster-name",
        "demo",
        "--speed",
        "20",
    ]);
    Some(Service::spawn("aws", command, folder.path()).expect("the program was just found"))
}

#[tokio::test]
async fn boto3_accepts_the_simulated_aws() {
    let Some(python) = present_or_skip(tools::python_with_boto3()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(mut simulator) = simulator(&folder) else {
        return;
    };
    let line = simulator.line_with("AWS_ENDPOINT_URL=", BOUND).await;
    let mut command = Command::new(python);
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/python/boto3_against_the_simulator.py"))
        .envs(line.split(' ').filter_map(|pair| pair.split_once('=')))
        // Nothing of the person who runs the tests may leak in.
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let script = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(BOUND, script)
        .await
        .expect("the script ends within the bound")
        .expect("Python starts");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), "all sections passed");
    simulator
        .terminate(BOUND)
        .await
        .expect("a signal can be sent");
}
