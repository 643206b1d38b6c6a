//! Nodes: the taint that a node carries while it is not ready.
//!
//! The API server puts it on every new node; it is the controllers' to take away.

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::json;

use super::{
    Decision,
    cluster::Cluster,
    write::{Target, Write},
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const NO_SCHEDULE: &str = "NoSchedule";

pub(super) fn reconcile(cluster: &Cluster, uid: &str) -> Decision {
    let node = cluster.nodes.get(uid);
    Decision::from(
        node.and_then(|node| decide(node))
            .into_iter()
            .collect::<Vec<_>>(),
    )
}

fn decide(node: &Node) -> Option<Write> {
    let conditions = node.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions
        .flatten()
        .find(|condition| condition.type_ == "Ready")?;
    let is_ready = ready.status == "True";
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let is_ours = |taint: &&Taint| taint.key == NOT_READY && taint.effect == NO_SCHEDULE;
    let (ours, mut others): (Vec<&Taint>, Vec<&Taint>) = taints.partition(is_ours);
    if ours.is_empty() == is_ready {
        return None;
    }
    let taint = Taint {
        key: NOT_READY.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    };
    if !is_ready {
        others.push(&taint);
    }
    // The list is written as a whole: not over what somebody else has changed meanwhile.
    let version = &node.metadata.resource_version;
    let body = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": others}});
    Some(Write::Patch(Target::of(node), body))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_taint_follows_the_condition_and_others_stay() {
        let other = json!({"key": "k", "effect": NO_SCHEDULE});
        let ours = json!({"key": NOT_READY, "effect": NO_SCHEDULE});
        let check = |ready: &str, taints: Value, expected: Option<Value>| {
            let node = json!({"metadata": {"name": "n"}, "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            let node: Node = serde_json::from_value(node).expect("a node");
            let written = decide(&node).map(|write| match write {
                Write::Patch(_, body) => body["spec"]["taints"].clone(),
                other => panic!("{other:?}"),
            });
            assert_eq!(written, expected, "{ready} {taints}");
        };
        check("True", json!([other, ours]), Some(json!([other])));
        check("True", json!([other]), None);
        check("False", json!([other]), Some(json!([other, ours])));
        check("Unknown", json!([ours]), None);
    }
}
