//! Affinity between pods and spread, on four nodes in two zones.

use serde_json::{Value, json};

use super::super::test_objects::{node, pod};
use super::*;

/// Nodes `a1`, `a2` in zone `a`, `b1` in zone `b`, and `none` without a zone; and these pods (name,
/// what it is, node).
fn ledger(pods: &[(&str, Value, &str)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let zone = json!({"metadata": {"labels": {"zone": zone}}});
        ledger.set_node(NodeFacts::read(&node(name, &zone)));
    }
    ledger.set_node(NodeFacts::read(&node("none", &json!({}))));
    for (name, more, on) in pods {
        ledger.place(Arc::new(pod(name, more)), on);
    }
    ledger
}

/// The nodes that take the pod.
fn open(ledger: &Ledger, more: &Value) -> Vec<String> {
    let pod = pod("incoming", more);
    let topology = Topology::new(&pod, ledger);
    let open = ledger
        .nodes()
        .filter(|node| topology.objection(node).is_none());
    open.map(|node| node.name.clone()).collect()
}

fn app(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}})
}

fn term(kind: &str, app: &str, key: &str) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}})
}

fn both(one: &Value, other: &Value) -> Value {
    let mut all = one.clone();
    json_patch::merge(&mut all, other);
    all
}

#[test]
fn affinity_goes_where_such_pods_are() {
    let near = term("podAffinity", "db", "zone");
    assert_eq!(
        open(&ledger(&[("db", app("db"), "a1")]), &near),
        ["a1", "a2"]
    );
    assert!(open(&ledger(&[]), &near).is_empty());
    // The first of a group goes anywhere where there is a domain.
    let first = both(&near, &app("db"));
    assert_eq!(open(&ledger(&[]), &first), ["a1", "a2", "b1"]);
}

#[test]
fn anti_affinity_keeps_away_in_both_directions() {
    let web = ledger(&[("web", app("web"), "a1")]);
    let away = term("podAntiAffinity", "web", "zone");
    assert_eq!(open(&web, &away), ["b1", "none"]);
    let by_host = term("podAntiAffinity", "web", "kubernetes.io/hostname");
    assert_eq!(open(&web, &by_host), ["a2", "b1", "none"]);
    let shy = ledger(&[("shy", term("podAntiAffinity", "web", "zone"), "a1")]);
    assert_eq!(open(&shy, &app("web")), ["b1", "none"]);
    assert_eq!(open(&shy, &app("db")).len(), 4);
}

#[test]
fn terms_mean_the_pods_own_namespace_unless_they_say_otherwise() {
    let elsewhere = both(&app("db"), &json!({"metadata": {"namespace": "other"}}));
    let mut ledger = ledger(&[("db", elsewhere, "a1")]);
    ledger.set_namespace(
        "other".to_owned(),
        [("team".to_owned(), "x".to_owned())].into(),
    );
    let near = term("podAffinity", "db", "zone");
    assert!(open(&ledger, &near).is_empty());
    let named = |extra: Value| {
        let mut term = near.clone();
        let terms = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
        json_patch::merge(term.pointer_mut(terms).expect("the term"), &extra);
        term
    };
    assert_eq!(
        open(&ledger, &named(json!({"namespaces": ["other"]}))).len(),
        2
    );
    let by_label = json!({"namespaceSelector": {"matchLabels": {"team": "x"}}});
    assert_eq!(open(&ledger, &named(by_label)).len(), 2);
}

fn spread(extra: &Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    json_patch::merge(&mut constraint, extra);
    both(
        &app("web"),
        &json!({"spec": {"topologySpreadConstraints": [constraint]}}),
    )
}

#[test]
fn spread_keeps_the_difference_small() {
    let one = ledger(&[("w1", app("web"), "a1")]);
    assert_eq!(open(&one, &spread(&json!({}))), ["b1"]);
    assert_eq!(
        open(&one, &spread(&json!({"maxSkew": 2}))),
        ["a1", "a2", "b1"]
    );
    let even = ledger(&[("w1", app("web"), "a1"), ("w2", app("web"), "b1")]);
    assert_eq!(open(&even, &spread(&json!({}))), ["a1", "a2", "b1"]);
    // A preference is no objection.
    let soft = spread(&json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    assert_eq!(open(&one, &soft).len(), 4);
}

#[test]
fn spread_counts_the_domains_that_the_pod_may_use() {
    let one = ledger(&[("w1", app("web"), "a1")]);
    let in_a = json!({"spec": {"nodeSelector": {"zone": "a"}}});
    let confined = both(&spread(&json!({})), &in_a);
    // Zone b does not count, so zone a is even; the selector keeps the pod out of b elsewhere.
    assert_eq!(open(&one, &confined), ["a1", "a2", "b1"]);
    let ignoring = both(&spread(&json!({"nodeAffinityPolicy": "Ignore"})), &in_a);
    assert_eq!(open(&one, &ignoring), ["b1"]);
    // With fewer domains than wanted the smallest counts as empty.
    let even = ledger(&[("w1", app("web"), "a1"), ("w2", app("web"), "b1")]);
    assert!(open(&even, &spread(&json!({"minDomains": 3}))).is_empty());
    // Pods on their way out do not count.
    let going = both(
        &app("web"),
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let left = ledger(&[("w1", going, "a1")]);
    assert_eq!(open(&left, &spread(&json!({}))), ["a1", "a2", "b1"]);
}

#[test]
fn keys_whose_values_the_pod_gives_tell_revisions_apart() {
    let revision = |hash: &str| json!({"metadata": {"labels": {"app": "web", "hash": hash}}});
    let ledger = ledger(&[("w1", revision("old"), "a1")]);
    let keyed = spread(&json!({"matchLabelKeys": ["hash"]}));
    assert_eq!(
        open(&ledger, &both(&keyed, &revision("new"))),
        ["a1", "a2", "b1"]
    );
    assert_eq!(open(&ledger, &both(&keyed, &revision("old"))), ["b1"]);
}
