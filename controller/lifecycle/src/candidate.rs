//! Candidates for voluntary disruption: which nodes may be disrupted at all.
//!
//! Source: disruption specification 3.2.

use millwright_model::{NanoDollarsPerHour, NodeName, NodePoolName, ProviderId, Timestamp};

use crate::{
    names,
    observed::{ObservedClaim, ObservedNode},
    pdb::{ObservedPdb, PdbTest, blocking},
    pod::ObservedPod,
};

/// Costs are in units of 2^-27, so that a pod's deletion cost counts exactly.
pub const COST_ONE: i64 = 1 << 27;

/// Everything about one node that decides whether it is a candidate.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    /// The NodeClaim, if there is exactly one.
    pub claim: Option<&'a ObservedClaim>,
    /// The Node, if there is exactly one.
    pub node: Option<&'a ObservedNode>,
    /// Part of a command that is under way.
    pub queued: bool,
    /// Marked for deletion, or deleting.
    pub deleting: bool,
    /// Planned pods are expected to bind here.
    pub nominated: bool,
    /// Whether its NodePool exists and offers instance types; `None` without a pool label.
    pub pool_usable: Option<bool>,
    /// All pods bound to it.
    pub pods: &'a [ObservedPod],
    /// What it costs; zero where unknown.
    pub price: NanoDollarsPerHour,
}

/// A node that may be disrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Node.
    pub node: NodeName,
    /// Provider id.
    pub provider_id: ProviderId,
    /// NodePool.
    pub node_pool: NodePoolName,
    /// What it costs.
    pub price: NanoDollarsPerHour,
    /// `1 + the sum of its reschedulable pods' eviction costs`, in units of 2^-27.
    pub reschedule_cost: i64,
}

impl Candidate {
    /// Whether no reschedulable pod has a positive eviction cost.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.reschedule_cost <= COST_ONE
    }

    /// Orders by savings ratio (price by reschedule cost), dearest and emptiest first; ties by
    /// name, so that equal inputs give equal orders.
    #[must_use]
    pub fn by_savings(&self, other: &Self) -> std::cmp::Ordering {
        let cross = |price: NanoDollarsPerHour, cost: i64| {
            u128::from(price.0) * u128::from(cost.unsigned_abs())
        };
        cross(other.price, self.reschedule_cost)
            .cmp(&cross(self.price, other.reschedule_cost))
            .then_with(|| self.node.cmp(&other.node))
    }
}

/// Why a node is no candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Nobody is told: the node is not ours, or is being dealt with.
    Silent,
    /// The cause for the `DisruptionBlocked` event, a sentence.
    Told(String),
}

/// How much protection a method respects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Protected pods block.
    Graceful,
    /// A claim with a termination grace period is not protected by its pods.
    Eventual,
}

/// Judges a node.
///
/// # Errors
/// The first reason that keeps the node from being a candidate.
pub fn candidate(
    facts: NodeFacts<'_>,
    pdbs: &[ObservedPdb],
    class: Class,
    now: Timestamp,
) -> Result<Candidate, Block> {
    let told = |text: String| Err(Block::Told(text));
    let Some(claim) = facts.claim.filter(|_| !facts.queued) else {
        return Err(Block::Silent);
    };
    let Some(node) = facts.node else {
        return told("Nodeclaim does not have an associated node".into());
    };
    if !node.is_initialized() {
        return told("Node isn't initialized".into());
    }
    if facts.deleting {
        return told("Node is deleting or marked for deletion".into());
    }
    if facts.nominated {
        return told("Node is nominated for a pending pod".into());
    }
    if node
        .annotations
        .get(names::DO_NOT_DISRUPT)
        .is_some_and(|value| &**value == "true")
    {
        return told(format!(
            "Disruption is blocked through the \"{}\" annotation",
            names::DO_NOT_DISRUPT
        ));
    }
    let (Some(node_pool), Some(pool_usable)) = (claim.node_pool(), facts.pool_usable) else {
        return told("Node doesn't have required label \"karpenter.sh/nodepool\"".into());
    };
    if !pool_usable {
        return told(format!(
            "NodePool \"{node_pool}\" not found or without instance types"
        ));
    }
    let excused = class == Class::Eventual && claim.termination_grace_period.is_some();
    if !excused {
        protected_by_pods(facts.pods, pdbs, now)?;
    }
    let Some(provider_id) = node.provider_id.clone() else {
        return Err(Block::Silent);
    };
    Ok(Candidate {
        node: node.name.clone(),
        provider_id,
        node_pool,
        price: facts.price,
        reschedule_cost: reschedule_cost(facts.pods),
    })
}

fn protected_by_pods(
    pods: &[ObservedPod],
    pdbs: &[ObservedPdb],
    now: Timestamp,
) -> Result<(), Block> {
    if let Some(pod) = pods.iter().find(|pod| !pod.is_disruptable(now)) {
        return Err(Block::Told(format!(
            "Pod has \"{}\" annotation (Pod={})",
            names::DO_NOT_DISRUPT,
            pod.key
        )));
    }
    for pod in pods {
        let blocked_by = blocking(pod, pdbs, PdbTest::ZeroNow, now);
        if !blocked_by.is_empty() {
            return Err(Block::Told(format!(
                "Pdb prevents pod evictions (PodDisruptionBudget=[{}])",
                blocked_by.join(", ")
            )));
        }
    }
    Ok(())
}

fn reschedule_cost(pods: &[ObservedPod]) -> i64 {
    let pods = pods.iter().filter(|pod| pod.is_reschedulable());
    COST_ONE + pods.map(|pod| pod.eviction_cost().max(0)).sum::<i64>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millwright_model::{Span, labels, topology::LabelSelector};

    use super::*;
    use crate::{
        condition::ConditionType,
        fixtures::{T0, claim, node, pod},
        pod::DoNotDisrupt,
    };

    fn initialized() -> ObservedNode {
        let mut node = node();
        node.labels
            .insert(labels::INITIALIZED.into(), "true".into());
        node
    }

    fn facts<'a>(
        claim: &'a ObservedClaim,
        node: &'a ObservedNode,
        pods: &'a [ObservedPod],
    ) -> NodeFacts<'a> {
        NodeFacts {
            claim: Some(claim),
            node: Some(node),
            queued: false,
            deleting: false,
            nominated: false,
            pool_usable: Some(true),
            pods,
            price: NanoDollarsPerHour(7),
        }
    }

    fn judge(facts: NodeFacts<'_>) -> Result<Candidate, Block> {
        candidate(facts, &[], Class::Graceful, T0)
    }

    #[test]
    fn each_block_has_its_cause_in_order() {
        let (claim, node) = (claim(&[ConditionType::Initialized]), initialized());
        let good = facts(&claim, &node, &[]);
        let mut annotated = initialized();
        annotated
            .annotations
            .insert(names::DO_NOT_DISRUPT.into(), "true".into());
        let raw = crate::fixtures::node();
        for (facts, cause) in [
            (NodeFacts { node: None, ..good }, "associated node"),
            (
                NodeFacts {
                    node: Some(&raw),
                    ..good
                },
                "initialized",
            ),
            (
                NodeFacts {
                    deleting: true,
                    nominated: true,
                    ..good
                },
                "deleting",
            ),
            (
                NodeFacts {
                    nominated: true,
                    ..good
                },
                "nominated",
            ),
            (
                NodeFacts {
                    node: Some(&annotated),
                    ..good
                },
                "karpenter.sh/do-not-disrupt",
            ),
            (
                NodeFacts {
                    pool_usable: None,
                    ..good
                },
                "karpenter.sh/nodepool",
            ),
            (
                NodeFacts {
                    pool_usable: Some(false),
                    ..good
                },
                "\"default\"",
            ),
        ] {
            let Err(Block::Told(text)) = judge(facts) else {
                panic!("{cause}: not told")
            };
            assert!(text.contains(cause), "{text}");
            assert!(text.starts_with(char::is_uppercase), "{text}");
        }
    }

    #[test]
    fn nobody_is_told_of_nodes_that_are_not_ours_or_are_being_dealt_with() {
        let (claim, node) = (claim(&[]), initialized());
        let good = facts(&claim, &node, &[]);
        assert!(judge(good).is_ok());
        for facts in [
            NodeFacts {
                queued: true,
                ..good
            },
            NodeFacts {
                claim: None,
                ..good
            },
        ] {
            assert_eq!(judge(facts), Err(Block::Silent));
        }
    }

    #[test]
    fn the_annotation_false_does_not_block_a_node() {
        let (claim, mut node) = (claim(&[]), initialized());
        node.annotations
            .insert(names::DO_NOT_DISRUPT.into(), "false".into());
        assert!(judge(facts(&claim, &node, &[])).is_ok());
    }

    #[test]
    fn protected_pods_block_daemons_and_mirrors_too_but_not_finished_ones() {
        let (claim, node) = (claim(&[]), initialized());
        let kept = |pod| ObservedPod {
            do_not_disrupt: DoNotDisrupt::Always,
            ..pod
        };
        for (pod, blocked) in [
            (kept(pod("p")), true),
            (
                kept(ObservedPod {
                    is_daemon: true,
                    ..pod("d")
                }),
                true,
            ),
            (
                kept(ObservedPod {
                    is_mirror: true,
                    ..pod("m")
                }),
                true,
            ),
            (
                kept(ObservedPod {
                    terminal: true,
                    ..pod("f")
                }),
                false,
            ),
            (
                kept(ObservedPod {
                    deleting_at: Some(T0),
                    ..pod("t")
                }),
                false,
            ),
        ] {
            let pods = [pod];
            assert_eq!(
                judge(facts(&claim, &node, &pods)).is_err(),
                blocked,
                "{}",
                pods[0].key
            );
        }
    }

    #[test]
    fn a_termination_grace_period_overrides_pods_for_eventual_methods_only() {
        let grace = Some(Span::from_secs(60));
        let (claim, node) = (
            ObservedClaim {
                termination_grace_period: grace,
                ..claim(&[])
            },
            initialized(),
        );
        let pods = [ObservedPod {
            do_not_disrupt: DoNotDisrupt::Always,
            ..pod("p")
        }];
        let facts = facts(&claim, &node, &pods);
        assert!(candidate(facts, &[], Class::Eventual, T0).is_ok());
        assert!(candidate(facts, &[], Class::Graceful, T0).is_err());
    }

    #[test]
    fn a_budget_of_pods_that_allows_nothing_blocks_and_is_named() {
        let (claim, node) = (claim(&[]), initialized());
        let pdb = ObservedPdb {
            namespace: "default".into(),
            name: "web".into(),
            selector: Some(LabelSelector::default()),
            disruptions_allowed: 0,
            fully_blocking: false,
            unhealthy_always_allowed: false,
        };
        let pods = [ObservedPod {
            labels: Arc::default(),
            ..pod("p")
        }];
        let blocked = candidate(facts(&claim, &node, &pods), &[pdb], Class::Graceful, T0);
        assert!(matches!(blocked, Err(Block::Told(text)) if text.contains("default/web")));
    }

    #[test]
    fn emptiness_counts_eviction_costs_of_reschedulable_pods() {
        let (claim, node) = (claim(&[]), initialized());
        for (pod, empty) in [
            (pod("p"), false),
            (
                ObservedPod {
                    is_daemon: true,
                    ..pod("d")
                },
                true,
            ),
            (
                ObservedPod {
                    terminal: true,
                    ..pod("f")
                },
                true,
            ),
            (
                ObservedPod {
                    deleting_at: Some(T0),
                    ..pod("t")
                },
                true,
            ),
            (
                ObservedPod {
                    deleting_at: Some(T0),
                    is_stateful: true,
                    ..pod("s")
                },
                false,
            ),
            (
                ObservedPod {
                    priority: Some(-(1 << 25)),
                    ..pod("cheap")
                },
                true,
            ),
        ] {
            let pods = [pod];
            let candidate = judge(facts(&claim, &node, &pods)).expect("a candidate");
            assert_eq!(candidate.is_empty(), empty, "{}", pods[0].key);
        }
    }

    #[test]
    fn candidates_order_by_price_for_the_cost_of_moving() {
        let candidate = |name: &str, price, cost| Candidate {
            node: name.into(),
            provider_id: name.into(),
            node_pool: "default".into(),
            price: NanoDollarsPerHour(price),
            reschedule_cost: cost * COST_ONE,
        };
        let mut all = [
            candidate("b", 10, 1),
            candidate("c", 30, 2),
            candidate("a", 10, 1),
        ];
        all.sort_by(Candidate::by_savings);
        let order: Vec<&str> = all.iter().map(|c| c.node.as_str()).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }
}
