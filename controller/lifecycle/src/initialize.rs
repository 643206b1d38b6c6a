//! Initialization: when a registered Node is ready for pods.
//!
//! Source: disruption specification 1.4.

use millwright_model::Taint;

use crate::{
    condition::{Change, ConditionType},
    observed::{NodeMatch, ObservedClaim, ObservedNode},
};

/// Where initialization stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initialization {
    /// Decided before: only refresh the condition.
    Decided(Change),
    /// Not yet: the condition says what is missing.
    Waiting(Change),
    /// Label the Node, then set the condition.
    Ready(Change),
}

/// Decides about initialization of a claim that is registered (or becomes so in this pass).
#[must_use]
pub fn initialize(claim: &ObservedClaim, nodes: NodeMatch<'_>) -> Initialization {
    let kind = ConditionType::Initialized;
    if let Some(decided) = crate::advance::decided(claim, kind) {
        return Initialization::Decided(decided);
    }
    let wait = |reason: &'static str, message: String| {
        Initialization::Waiting(Change::unknown(kind, reason, message))
    };
    let Some(node) = nodes.one() else {
        return wait(
            "NodeNotFound",
            "Node not registered with cluster".to_owned(),
        );
    };
    if !node.ready {
        return wait("NodeNotReady", "Node status is NotReady".to_owned());
    }
    if let Some(taint) = startup_taint(claim, node) {
        return wait(
            "StartupTaintsExist",
            format!("StartupTaint \"{taint}\" still exists"),
        );
    }
    if let Some(taint) = node.taints.iter().find(|taint| taint.is_ephemeral()) {
        return wait(
            "KnownEphemeralTaintsExist",
            format!("KnownEphemeralTaint \"{taint}\" still exists"),
        );
    }
    let unregistered = claim
        .requests
        .iter()
        .find(|(name, amount)| *amount != 0 && node.allocatable.get(name) == 0);
    if let Some((name, _)) = unregistered {
        return wait(
            "ResourceNotRegistered",
            format!("Resource \"{name}\" was requested but not registered"),
        );
    }
    Initialization::Ready(Change::holds(kind))
}

fn startup_taint<'a>(claim: &'a ObservedClaim, node: &ObservedNode) -> Option<&'a Taint> {
    claim
        .startup_taints
        .iter()
        .find(|taint| node.has_taint(taint))
}

#[cfg(test)]
mod tests {
    use millwright_model::{Effect, Resources};

    use super::*;
    use crate::fixtures::{claim, node};

    fn healthy() -> ObservedNode {
        ObservedNode {
            ready: true,
            taints: Vec::new(),
            ..node()
        }
    }

    fn with_taint(key: &str, effect: Effect) -> ObservedNode {
        ObservedNode {
            taints: vec![Taint::new(key, "", effect)],
            ..healthy()
        }
    }

    fn reason(node: &ObservedNode) -> Option<(String, String)> {
        match initialize(&claim(&[ConditionType::Registered]), NodeMatch::One(node)) {
            Initialization::Waiting(Change::Set {
                reason, message, ..
            }) => Some((reason.to_string(), message)),
            Initialization::Ready(_) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_ready_node_without_waiting_taints_and_with_its_resources_is_initialized() {
        assert_eq!(reason(&healthy()), None);
    }

    #[test]
    fn each_missing_thing_has_its_reason_and_is_named() {
        for (node, expected, named) in [
            (
                ObservedNode {
                    ready: false,
                    ..healthy()
                },
                "NodeNotReady",
                "NotReady",
            ),
            (
                with_taint("cni", Effect::NoExecute),
                "StartupTaintsExist",
                "\"cni:NoExecute\"",
            ),
            (
                with_taint("node.kubernetes.io/not-ready", Effect::NoSchedule),
                "KnownEphemeralTaintsExist",
                "not-ready:NoSchedule",
            ),
            (
                with_taint("readiness.k8s.io/gpu", Effect::NoExecute),
                "KnownEphemeralTaintsExist",
                "readiness.k8s.io/gpu",
            ),
            (
                ObservedNode {
                    allocatable: Resources::of(0, 1 << 30),
                    ..healthy()
                },
                "ResourceNotRegistered",
                "\"cpu\"",
            ),
        ] {
            let (reason, message) = reason(&node).expect("must wait");
            assert_eq!(reason, expected);
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn a_taint_that_is_no_startup_taint_does_not_hold_it_up() {
        assert_eq!(reason(&with_taint("team", Effect::NoSchedule)), None);
        // Key and effect decide; the same key with another effect is another taint.
        assert_eq!(reason(&with_taint("cni", Effect::NoSchedule)), None);
    }

    #[test]
    fn two_nodes_count_as_none() {
        let claim = claim(&[ConditionType::Registered]);
        for nodes in [NodeMatch::None, NodeMatch::Several] {
            assert!(matches!(
                initialize(&claim, nodes),
                Initialization::Waiting(Change::Set { reason, .. }) if reason == "NodeNotFound"
            ));
        }
    }

    #[test]
    fn once_true_it_never_reverts() {
        let claim = claim(&[ConditionType::Registered, ConditionType::Initialized]);
        assert!(matches!(
            initialize(&claim, NodeMatch::None),
            Initialization::Decided(_)
        ));
    }
}
