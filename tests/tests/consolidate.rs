//! `millwright consolidate` as a user runs it, on running clusters for which Karpenter 1.14.1
//! decided (the README beside the worlds says how).
#![expect(clippy::print_stdout, reason = "says how many worlds were judged")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use millwright_tests::tools;
use serde_json::Value;

/// Prices are decimal; sums of them differ in the last bits.
const CENT_OF_A_MICRO_DOLLAR: f64 = 1e-8;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/parity-consolidation")
}

fn consolidate(name: &str, packing: &str, expected: &Value) -> anyhow::Result<Value> {
    let program =
        tools::workspace_program("millwright").map_err(|absent| anyhow::anyhow!("{absent}"))?;
    let types = expected["instanceTypes"].as_str();
    let output = Command::new(program)
        .arg("consolidate")
        .arg("-f")
        .arg(data().join(format!("{name}.yaml")))
        .arg("--instance-types")
        .arg(data().join(types.context("instanceTypes")?))
        .args(["--packing", packing, "-o", "json"])
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The recorded commands of the method that decided.
fn recorded(expected: &Value) -> &[Value] {
    let methods = list(&expected["methods"]).iter();
    let mut decided = methods.filter(|method| method["method"] == expected["decidedBy"]);
    decided
        .next()
        .map(|method| list(&method["commands"]))
        .unwrap_or_default()
}

fn savings(commands: &[Value]) -> f64 {
    let savings = commands.iter().map(|c| c["savingsPerHour"].as_f64());
    savings.map(Option::unwrap_or_default).sum()
}

fn same_eligible(answer: &Value, expected: &Value) -> anyhow::Result<()> {
    for method in list(&expected["methods"]) {
        let name = method["method"].as_str().context("method")?;
        let own = &answer["eligible"][name];
        ensure!(*own == method["eligible"], "eligible for {name}: {own}");
    }
    Ok(())
}

/// The same candidates and replacements, at the same saving.
fn same_command(own: &Value, theirs: &Value) -> anyhow::Result<()> {
    for key in ["decision", "candidates"] {
        ensure!(own[key] == theirs[key], "{key}: {}", own[key]);
    }
    let both = [own, theirs].map(|command| savings(std::slice::from_ref(command)));
    ensure!(
        (both[0] - both[1]).abs() < CENT_OF_A_MICRO_DOLLAR,
        "saves ${}/h instead of ${}/h",
        both[0],
        both[1]
    );
    let [ours, wanted] = [own, theirs].map(|command| list(&command["replacements"]));
    ensure!(ours.len() == wanted.len(), "{} replacements", ours.len());
    for (own, theirs) in ours.iter().zip(wanted) {
        for key in ["nodePool", "instanceTypes", "capacityTypes"] {
            ensure!(own[key] == theirs[key], "{key}: {}", own[key]);
        }
    }
    Ok(())
}

fn world(name: &str, packing: &str) -> anyhow::Result<()> {
    let expected = std::fs::read(data().join(format!("{name}.expected.json")))?;
    let expected: Value = serde_json::from_slice(&expected)?;
    let answer = consolidate(name, packing, &expected)?;
    same_eligible(&answer, &expected)?;
    let (own, theirs) = (list(&answer["commands"]), recorded(&expected));
    if packing == "karpenter" {
        ensure!(own.len() == theirs.len(), "{} commands", own.len());
        for (own, theirs) in own.iter().zip(theirs) {
            ensure!(own["method"] == expected["decidedBy"], "{}", own["method"]);
            same_command(own, theirs)?;
        }
    } else {
        let [own, theirs] = [own, theirs].map(savings);
        ensure!(
            own >= theirs - CENT_OF_A_MICRO_DOLLAR,
            "saves ${own}/h, less than Karpenter's ${theirs}/h"
        );
    }
    Ok(())
}

fn worlds(packing: &str) -> anyhow::Result<()> {
    let mut names: Vec<String> = std::fs::read_dir(data())?
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_suffix(".yaml").map(str::to_owned)
        })
        .collect();
    names.sort_unstable();
    ensure!(names.len() >= 30, "only {} worlds", names.len());
    let failed: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let error = world(name, packing).err()?;
            Some(format!("{name}: {error:#}"))
        })
        .collect();
    ensure!(
        failed.is_empty(),
        "{} of {} worlds differ:\n{}",
        failed.len(),
        names.len(),
        failed.join("\n")
    );
    println!("{} worlds ({packing} packing)", names.len());
    Ok(())
}

#[test]
fn karpenter_packing_decides_as_karpenter_did() -> anyhow::Result<()> {
    worlds("karpenter")
}

#[test]
fn cost_packing_has_the_same_candidates_and_never_saves_less() -> anyhow::Result<()> {
    worlds("cost")
}
