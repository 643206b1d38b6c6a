//! `millwright plan` as a user runs it: bad input, the article, and worlds whose outcome Karpenter
//! 1.14.1 itself computed.
#![expect(clippy::print_stdout, reason = "says how many worlds were judged")]

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, ensure};
use millwright_tests::tools;
use serde_json::Value;

fn millwright(arguments: &[&str]) -> anyhow::Result<Output> {
    let program =
        tools::workspace_program("millwright").map_err(|absent| anyhow::anyhow!("{absent}"))?;
    Ok(Command::new(program).args(arguments).output()?)
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(path)
}

/// The one line on standard error for input that is refused.
fn refusal(text: &[u8]) -> anyhow::Result<String> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text)?;
    let path = file.path().to_string_lossy().into_owned();
    let output = millwright(&["plan", "-f", &path])?;
    let error = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.code() == Some(2),
        "exit {:?}: {error}",
        output.status.code()
    );
    ensure!(output.stdout.is_empty(), "something was printed");
    ensure!(error.lines().count() == 1, "more than one line: {error}");
    Ok(error.replace(&path, "FILE"))
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, resources: {requests: {cpu: 100m}}}]\n";
const POOL: &str = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: pool}\nspec:\n  template:\n    spec:\n      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]\n      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: missing}\n";

#[test]
fn bad_input_is_one_line_with_file_document_and_field() -> anyhow::Result<()> {
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (
            b"\x00\xff\xfe not yaml".to_vec(),
            "error: FILE: not UTF-8 text",
        ),
        (
            b"a: [".to_vec(),
            "error: FILE: document 1: not valid YAML or JSON",
        ),
        (
            POD.replace("[{name: c", "{name: c")
                .replace("}}}]", "}}}")
                .into(),
            "error: FILE: document 1: Pod: spec.containers",
        ),
        (
            format!(
                "{POD}---\n{}",
                POOL.replace("operator: In", "operator: Near")
            )
            .into(),
            "error: FILE: document 2: NodePool: spec.template.spec.requirements[0].operator: \"Near\" is none of",
        ),
        (
            POD.replace("100m", "-100m").into(),
            "error: FILE: document 1: Pod: spec.containers[0].resources.requests.cpu: \"-100m\": must not be negative",
        ),
        (
            POOL.into(),
            "error: FILE: document 1: NodePool: spec.template.spec.nodeClassRef.name: EC2NodeClass \"missing\" is not in the input",
        ),
        (
            format!("{POD}---\n{POD}").into(),
            "error: FILE: document 2: Pod: metadata.name: duplicate name \"p\"",
        ),
        (Vec::new(), "error: FILE: file holds no document"),
    ];
    for (text, expected) in cases {
        let error = refusal(&text)?;
        ensure!(error.starts_with(expected), "{error}");
    }
    Ok(())
}

#[test]
fn a_hundred_megabytes_of_garbage_are_refused_in_one_line() -> anyhow::Result<()> {
    let mut state = 1_u64;
    let mut garbage = Vec::with_capacity(100 << 20);
    while garbage.len() < 100 << 20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        garbage.extend_from_slice(&state.to_le_bytes());
    }
    ensure!(
        refusal(&garbage)?.starts_with("error: FILE: not UTF-8 text"),
        "another error"
    );
    let words: Vec<u8> = b"key: value, [{ - "
        .iter()
        .copied()
        .cycle()
        .take(100 << 20)
        .collect();
    ensure!(
        refusal(&words)?.starts_with("error: FILE: document 1: not valid YAML or JSON"),
        "another error"
    );
    Ok(())
}

#[test]
fn the_article_converted_gets_ten_spot_nodes_of_its_one_type() -> anyhow::Result<()> {
    let [class, pool, pods] =
        ["nodeclass", "nodepool", "stress-test"].map(|name| data(&format!("article/{name}.yaml")));
    let files: Vec<String> = [class, pool, pods]
        .iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let converted = millwright(&["convert", "-f", &files[0], "-f", &files[1], "-f", &files[2]])?;
    ensure!(
        converted.status.success(),
        "{}",
        String::from_utf8_lossy(&converted.stderr)
    );
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(&converted.stdout)?;
    let output = millwright(&["plan", "-f", &file.path().to_string_lossy(), "-o", "json"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let plan: Value = serde_json::from_slice(&output.stdout)?;
    let claims = plan["nodeClaims"].as_array().context("nodeClaims")?;
    ensure!(claims.len() == 10, "{} nodeclaims", claims.len());
    for claim in claims {
        ensure!(claim["cheapest"]["instanceType"] == "t3.2xlarge", "{claim}");
        ensure!(claim["cheapest"]["capacityType"] == "spot", "{claim}");
        ensure!(
            claim["pods"].as_array().is_some_and(|pods| pods.len() == 1),
            "{claim}"
        );
    }
    Ok(())
}

/// Pods by class: the longest class that, followed by a dash, starts the pod's name.
fn count(pods: impl Iterator<Item = String>, classes: &[&String]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        let name = pod.split_once('/').map_or(pod.as_str(), |(_, name)| name);
        let class = classes
            .iter()
            .filter(|class| {
                name.strip_prefix(class.as_str())
                    .is_some_and(|rest| rest.starts_with('-'))
            })
            .max_by_key(|class| class.len());
        *counts
            .entry(class.map_or_else(|| name.to_owned(), |class| (*class).clone()))
            .or_insert(0) += 1;
    }
    counts
}

fn pods_of<'a>(list: &'a Value) -> impl Iterator<Item = String> + 'a {
    let entries = list.as_array().into_iter().flatten();
    entries
        .flat_map(|entry| entry["pods"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .map(str::to_owned)
}

/// Plans a recorded world under the flags that Karpenter had.
fn plan_world(name: &str, packing: &str, expected: &Value) -> anyhow::Result<Value> {
    let path = |file: &str| data("parity").join(file).to_string_lossy().into_owned();
    let flag = |key: &str| expected["flags"][key].as_str().unwrap_or_default();
    let types = expected["instanceTypes"]
        .as_str()
        .context("instanceTypes")?;
    let output = millwright(&[
        "plan",
        "-f",
        &path(&format!("{name}.yaml")),
        "--instance-types",
        &path(types),
        "--packing",
        packing,
        "--preference-policy",
        flag("preferencePolicy"),
        "--min-values-policy",
        flag("minValuesPolicy"),
        "-o",
        "json",
    ])?;
    ensure!(
        matches!(output.status.code(), Some(0 | 3)),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Holds a plan to Karpenter's: the same pods placed, and as many left over.
fn same_pods(plan: &Value, expected: &Value) -> anyhow::Result<()> {
    let classes: Vec<&String> = expected["classes"]
        .as_object()
        .context("classes")?
        .keys()
        .collect();
    let wanted = |key: &str| -> BTreeMap<String, u64> {
        let entries = expected[key].as_object().into_iter().flatten();
        entries
            .filter_map(|(class, n)| Some((class.clone(), n.as_u64().filter(|n| *n > 0)?)))
            .collect()
    };
    let placed = count(
        pods_of(&plan["nodeClaims"]).chain(pods_of(&plan["existingNodes"])),
        &classes,
    );
    ensure!(
        placed == wanted("placed"),
        "placed {placed:?} instead of {:?}",
        wanted("placed")
    );
    let without = plan["unschedulable"].as_array().into_iter().flatten();
    let without = without.filter_map(|entry| entry["pod"].as_str().map(str::to_owned));
    let without = count(without, &classes);
    for (class, n) in wanted("unschedulable") {
        ensure!(
            without.get(&class) == Some(&n),
            "{class}: {:?} instead of {n} unschedulable",
            without.get(&class)
        );
    }
    Ok(())
}

fn world(name: &str, packing: &str) -> anyhow::Result<()> {
    let expected = std::fs::read(data("parity").join(format!("{name}.expected.json")))?;
    let expected: Value = serde_json::from_slice(&expected)?;
    let plan = plan_world(name, packing, &expected)?;
    same_pods(&plan, &expected)?;
    if packing == "karpenter" {
        let nodes = plan["nodeClaims"]
            .as_array()
            .map(Vec::len)
            .and_then(|n| u64::try_from(n).ok());
        ensure!(
            nodes == expected["newNodes"].as_u64(),
            "{nodes:?} nodes instead of {}",
            expected["newNodes"]
        );
    } else {
        let (price, most) = (
            plan["summary"]["pricePerHour"].as_f64(),
            expected["pricePerHour"]["max"].as_f64(),
        );
        let (price, most) = (price.context("price")?, most.context("price")?);
        ensure!(
            price <= most + 1e-9,
            "${price}/h is more than Karpenter's ${most}/h"
        );
    }
    Ok(())
}

fn worlds(packing: &str) -> anyhow::Result<()> {
    let mut names: Vec<String> = std::fs::read_dir(data("parity"))?
        .filter_map(Result::ok)
        .filter_map(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .strip_suffix(".yaml")
                .map(str::to_owned)
        })
        .collect();
    names.sort_unstable();
    ensure!(names.len() > 70, "only {} worlds", names.len());
    let failed: Vec<String> = names
        .iter()
        .filter_map(|name| {
            world(name, packing)
                .err()
                .map(|error| format!("{name}: {error:#}"))
        })
        .collect();
    ensure!(
        failed.is_empty(),
        "{} of {} worlds differ:\n{}",
        failed.len(),
        names.len(),
        failed.join("\n")
    );
    println!(
        "{} worlds as Karpenter planned them ({packing} packing)",
        names.len()
    );
    Ok(())
}

#[test]
fn karpenter_packing_places_and_counts_as_karpenter_did() -> anyhow::Result<()> {
    worlds("karpenter")
}

#[test]
fn cost_packing_places_the_same_pods_and_never_pays_more() -> anyhow::Result<()> {
    worlds("cost")
}
