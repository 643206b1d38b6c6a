//! Rollouts as tables: what is wanted, what there is, what is done.

use serde_json::{Value, json};

use super::*;

fn deployment(spec: &Value) -> Deployment {
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 2},
        "spec": {"replicas": 10, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "a", "image": "new"}]}}},
    });
    json_patch::merge(&mut value["spec"], spec);
    serde_json::from_value(value).expect("a Deployment")
}

/// A set of that image with its size and how many of it are available.
fn set(image: &str, revision: u64, size: i32, available: i32) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"name": format!("web-{image}"), "namespace": "default", "uid": image,
            "annotations": {REVISION: revision.to_string()}},
        "spec": {"replicas": size, "selector": {},
            "template": {"metadata": {"labels": {"app": "web", HASH: image}},
                "spec": {"containers": [{"name": "a", "image": image}]}}},
        "status": {"replicas": size, "readyReplicas": available, "availableReplicas": available},
    }))
    .expect("a ReplicaSet")
}

/// The sizes that sets are given; `new` stands for a created one.
fn sizes(deployment: &Deployment, owned: &[ReplicaSet]) -> Vec<(String, i32)> {
    let refs: Vec<&ReplicaSet> = owned.iter().collect();
    let writes = decide(deployment, &refs, |_| false, Timestamp::UNIX_EPOCH).writes;
    let size = |write: Write| match write {
        Write::CreateReplicaSet(set) => Some(("created".to_owned(), size(&set))),
        Write::Patch(target, body) => {
            let size = body["spec"]["replicas"].as_i64()?;
            Some((target.uid, i32::try_from(size).ok()?))
        }
        _ => None,
    };
    writes.into_iter().filter_map(size).collect()
}

/// Checks the sizes that a Deployment of ten gives its sets.
fn check(spec: &Value, owned: &[ReplicaSet], expected: &[(&str, i32)]) {
    let found = sizes(&deployment(spec), owned);
    let found: Vec<(&str, i32)> = found.iter().map(|(set, n)| (set.as_str(), *n)).collect();
    let names: Vec<(String, i32)> = owned
        .iter()
        .map(|set| (set.name_any(), size(set)))
        .collect();
    assert_eq!(found, expected, "{spec} {names:?}");
}

fn rolling(surge: i32, unavailable: i32) -> Value {
    json!({"strategy": {"type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}})
}

#[test]
fn a_single_set_follows_the_deployment() {
    let default = json!({});
    check(&default, &[], &[("created", 10)]);
    check(&default, &[set("new", 1, 10, 0)], &[]);
    check(&default, &[set("new", 1, 4, 4)], &[("new", 10)]);
    let none = json!({"replicas": 0});
    check(&none, &[set("new", 1, 10, 10)], &[("new", 0)]);
}

#[test]
fn a_quarter_more_rounded_up_and_a_quarter_less_rounded_down() {
    let default = json!({});
    let old = |size| set("old", 1, size, size);
    check(&default, &[old(10)], &[("created", 3)]);
    check(&default, &[old(10), set("new", 2, 3, 0)], &[("old", 8)]);
    let both = [("new", 5), ("old", 5)];
    check(&default, &[old(8), set("new", 2, 3, 3)], &both);
    check(&default, &[old(2), set("new", 2, 10, 8)], &[("old", 0)]);
}

#[test]
fn without_surge_the_old_make_room_first() {
    let spec = rolling(0, 0);
    let old = |size| set("old", 1, size, size);
    check(&spec, &[old(10), set("new", 2, 0, 0)], &[("old", 9)]);
    check(&spec, &[old(9), set("new", 2, 0, 0)], &[("new", 1)]);
}

#[test]
fn without_unavailability_the_new_come_first() {
    let spec = rolling(1, 0);
    let old = |size| set("old", 1, size, size);
    check(&spec, &[old(10), set("new", 2, 1, 0)], &[]);
    check(&spec, &[old(10), set("new", 2, 1, 1)], &[("old", 9)]);
    // What is broken anyway goes before what is older.
    let older = set("older", 1, 3, 3);
    let broken = set("old", 2, 7, 5);
    check(&spec, &[older, broken, set("new", 3, 1, 1)], &[("old", 6)]);
}

#[test]
fn recreate_waits_until_the_old_have_gone_and_a_pause_begins_nothing() {
    let spec = json!({"strategy": {"type": "Recreate"}});
    let old = |size| set("old", 1, size, size);
    check(&spec, &[old(10)], &[("created", 0)]);
    check(&spec, &[old(10), set("new", 2, 0, 0)], &[("old", 0)]);
    check(&spec, &[old(0), set("new", 2, 0, 0)], &[("new", 10)]);
    check(&json!({"paused": true}), &[old(10)], &[]);
}

#[test]
fn a_taken_name_is_avoided_and_revisions_go_up() {
    let deployment = deployment(&json!({}));
    let old = set("old", 7, 10, 10);
    let made = |is_taken: &dyn Fn(&str) -> bool| {
        let writes = decide(&deployment, &[&old], is_taken, Timestamp::UNIX_EPOCH).writes;
        let created = writes.into_iter().find_map(|write| match write {
            Write::CreateReplicaSet(set) => Some(*set),
            _ => None,
        });
        created.expect("a ReplicaSet")
    };
    let first = made(&|_| false);
    let name = first.name_any();
    let second = made(&|taken| taken == name);
    assert_ne!(name, second.name_any());
    assert_eq!(
        first.annotations().get(REVISION).map(String::as_str),
        Some("8")
    );
    let hash = first.labels().get(HASH).expect("the hash");
    assert_eq!(name, format!("web-{hash}"));
    assert!(has_template(
        &first,
        &deployment.spec.as_ref().expect("a spec").template
    ));
}

#[test]
fn the_status_tells_availability_and_progress() {
    let mut deployment = deployment(&json!({}));
    let report = |deployment: &Deployment, owned: &[&ReplicaSet]| {
        let writes = decide(deployment, owned, |_| false, Timestamp::UNIX_EPOCH).writes;
        writes.into_iter().find_map(|write| match write {
            Write::Status(_, body) => Some(body["status"].clone()),
            _ => None,
        })
    };
    let full = set("new", 1, 10, 10);
    let status = report(&deployment, &[&full]).expect("a status");
    assert_eq!(status["availableReplicas"], 10);
    assert_eq!(status["observedGeneration"], 2);
    assert_eq!(status["conditions"][0]["status"], "True");
    assert_eq!(status["conditions"][1]["reason"], "NewReplicaSetAvailable");
    deployment.status = serde_json::from_value(status).expect("a status");
    assert_eq!(
        report(&deployment, &[&full]),
        None,
        "nothing new, nothing written"
    );
    let status = report(&deployment, &[&set("new", 1, 10, 7)]).expect("a status");
    assert_eq!(status["unavailableReplicas"], 3);
    assert_eq!(
        status["conditions"][0]["reason"],
        "MinimumReplicasUnavailable"
    );
}

#[test]
fn history_beyond_the_limit_is_deleted() {
    let deployment = deployment(&json!({"revisionHistoryLimit": 1}));
    let sets = [set("a", 1, 0, 0), set("b", 2, 0, 0), set("new", 3, 10, 10)];
    let refs: Vec<&ReplicaSet> = sets.iter().collect();
    let writes = decide(&deployment, &refs, |_| false, Timestamp::UNIX_EPOCH).writes;
    let deleted: Vec<&str> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Delete(target) => Some(target.uid.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(deleted, ["a"]);
}
