//! What a node alone objects to, as a table.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{
    ledger::Ledger,
    test_objects::{node, pod},
};
use super::*;

/// The objections of a node with one CPU taken, port 80 of 10.0.0.1 too.
fn check(pod_more: &Value, node_more: &Value, expected: &[&str]) {
    let taken = json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}},
        "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]}]}});
    let mut ledger = Ledger::default();
    ledger.set_node(NodeFacts::read(&node("n", node_more)));
    ledger.place(Arc::new(pod("taken", &taken)), "n");
    let facts = ledger.facts("n").expect("the node");
    let found = objections(&pod("p", pod_more), facts, ledger.usage("n"));
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{pod_more} on {node_more}");
}

fn requests(list: &Value) -> Value {
    json!({"spec": {"containers": [{"name": "a", "resources": {"requests": list}}]}})
}

#[test]
fn resources() {
    let node = json!({"status": {"allocatable": {"nvidia.com/gpu": "1"}}});
    check(&requests(&json!({"cpu": "7"})), &node, &[]);
    check(
        &requests(&json!({"cpu": "7001m"})),
        &node,
        &["Insufficient cpu"],
    );
    let both = ["Insufficient cpu", "Insufficient memory"];
    check(
        &requests(&json!({"cpu": "9", "memory": "17Gi"})),
        &node,
        &both,
    );
    check(&requests(&json!({"nvidia.com/gpu": "1"})), &node, &[]);
    check(
        &requests(&json!({"nvidia.com/gpu": "2"})),
        &node,
        &["Insufficient nvidia.com/gpu"],
    );
    let storage = ["Insufficient ephemeral-storage"];
    check(
        &requests(&json!({"ephemeral-storage": "1Gi"})),
        &node,
        &storage,
    );
    let full = json!({"status": {"allocatable": {"pods": "1"}}});
    check(&json!({}), &full, &["Too many pods"]);
    // Who asks for no CPU is not kept out by a node that has none left.
    let small = json!({"status": {"allocatable": {"cpu": "500m"}}});
    check(&requests(&json!({})), &small, &[]);
}

#[test]
fn cordon_and_taints() {
    let cordoned = json!({"spec": {"unschedulable": true}});
    check(&json!({}), &cordoned, &["node(s) were unschedulable"]);
    let everything = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    check(&everything, &cordoned, &[]);
    let tainted =
        |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let untolerated = ["node(s) had untolerated taint {k: v}"];
    check(&json!({}), &tainted("NoSchedule"), &untolerated);
    check(&json!({}), &tainted("NoExecute"), &untolerated);
    check(&json!({}), &tainted("PreferNoSchedule"), &[]);
    check(&everything, &tainted("NoSchedule"), &[]);
}

#[test]
fn selectors() {
    let selects = |value: &str| json!({"spec": {"nodeSelector": {"zone": value}}});
    let labelled = json!({"metadata": {"labels": {"zone": "a"}}});
    check(&selects("a"), &labelled, &[]);
    let unmatched = ["node(s) didn't match Pod's node affinity/selector"];
    check(&selects("b"), &labelled, &unmatched);
    check(&selects("a"), &json!({}), &unmatched);
}

#[test]
fn host_ports() {
    let port = |port: Value| json!({"spec": {"containers": [{"name": "a", "ports": [port]}]}});
    let taken = ["node(s) didn't have free ports for the requested pod ports"];
    for (wanted, expected) in [
        (json!({"containerPort": 80, "hostPort": 80}), &taken[..]),
        (
            json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}),
            &taken,
        ),
        (
            json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2"}),
            &[],
        ),
        (
            json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"}),
            &[],
        ),
        (json!({"containerPort": 80, "hostPort": 81}), &[]),
        (json!({"containerPort": 80}), &[]),
    ] {
        check(&port(wanted), &json!({}), expected);
    }
}
