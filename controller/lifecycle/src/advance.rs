//! One pass over a NodeClaim that is not being deleted: launch, registration, initialization,
//! liveness, in that order, on one picture of the claim, with as few writes as possible.
//!
//! Source: disruption specification 1.1.

use millwright_model::{NodeName, Span, Timestamp, labels};

use crate::{
    condition::{Change, ConditionType, Status},
    initialize::{Initialization, initialize},
    launch::DeleteCause,
    liveness::{Liveness, judge},
    observed::{NodeMatch, ObservedClaim},
    register::{NodeEdit, Registration, register},
};

/// Everything to do for a NodeClaim now, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Add the finalizer (with its resource version); nothing else before that has succeeded.
    pub add_finalizer: bool,
    /// Ask the provider for an instance.
    pub launch: bool,
    /// Write this to the Node (with its resource version), before the status of the claim.
    pub node: Option<NodeEdit>,
    /// Set `status.nodeName` together with the conditions.
    pub node_name: Option<NodeName>,
    /// Conditions for one status write; none means no write.
    pub changes: Vec<Change>,
    /// The Node joined without its `unregistered` taint: tell people.
    pub taint_missing: bool,
    /// Registration completes with this pass.
    pub registers: bool,
    /// Initialization completes with this pass.
    pub initializes: bool,
    /// Delete the claim, counting this cause.
    pub delete: Option<DeleteCause>,
    /// Look again after this long, even if nothing changes.
    pub again_after: Option<Span>,
}

/// The condition again as it stands, if it was decided.
#[must_use]
pub(crate) fn decided(claim: &ObservedClaim, kind: ConditionType) -> Option<Change> {
    let condition = claim.conditions.get(kind)?;
    (condition.status != Status::Unknown).then(|| Change::restamp(kind, condition))
}

/// Decides what a claim needs now. `nodes` are those with the claim's provider id.
///
/// An unlaunched claim writes no conditions: the first status write of a life says that the
/// launch succeeded, or why it did not.
#[must_use]
pub fn advance(
    claim: &ObservedClaim,
    nodes: NodeMatch<'_>,
    launch_timeout: Span,
    now: Timestamp,
) -> Advance {
    if !claim.has_finalizer {
        return Advance {
            add_finalizer: true,
            ..Advance::default()
        };
    }
    let mut step = Advance::default();
    // A launch that is overdue is not begun any more: its answer would find the claim deleted.
    match judge(claim, launch_timeout, now) {
        Liveness::Alive => {}
        Liveness::Wait(span) => step.again_after = Some(span),
        Liveness::GiveUp(cause) if cause == DeleteCause::LaunchTimeout => {
            step.delete = Some(cause);
            return step;
        }
        Liveness::GiveUp(cause) => step.delete = Some(cause),
    }
    if !claim.is(ConditionType::Launched) {
        step.launch = true;
        return step;
    }
    step.changes.extend(decided(claim, ConditionType::Launched));
    settle(claim, nodes, &mut step);
    if step.registers {
        // It made it in the last moment.
        step.delete = None;
        step.again_after = None;
    }
    step.changes.retain(|change| !is_in_place(claim, change));
    step
}

/// Registration and, when that holds, initialization of a launched claim.
fn settle(claim: &ObservedClaim, nodes: NodeMatch<'_>, step: &mut Advance) {
    let mut edit = NodeEdit::default();
    let registered = match register(claim, nodes) {
        Registration::Decided(change) => {
            step.changes.push(change);
            claim.is(ConditionType::Registered)
        }
        Registration::Waiting(change) => {
            step.changes.push(change);
            false
        }
        Registration::Ready {
            edit: sync,
            change,
            taint_missing,
        } => {
            edit = sync;
            step.changes.push(change);
            step.registers = true;
            step.taint_missing = taint_missing;
            step.node_name = nodes.one().map(|node| node.name.clone());
            true
        }
    };
    if registered {
        // Judged on the Node as it will be after the edit, so that a Node which is ready when it
        // registers costs one patch and one status write instead of two each.
        let after = nodes.one().map(|node| edit.applied_to(node));
        let after = after.as_ref().map_or(nodes, NodeMatch::One);
        match initialize(claim, after) {
            Initialization::Decided(change) | Initialization::Waiting(change) => {
                step.changes.push(change);
            }
            Initialization::Ready(change) => {
                step.changes.push(change);
                step.initializes = true;
                if after.one().is_some_and(|node| !node.is_initialized()) {
                    edit.labels
                        .insert(labels::INITIALIZED.into(), "true".into());
                }
            }
        }
    }
    step.node = (!edit.is_empty()).then_some(edit);
}

/// Whether a change would write what is there already.
fn is_in_place(claim: &ObservedClaim, change: &Change) -> bool {
    let Change::Set {
        kind,
        status,
        reason,
        message,
    } = change
    else {
        return false;
    };
    claim.conditions.get(*kind).is_some_and(|condition| {
        condition.status == *status && condition.reason == *reason && condition.message == *message
    })
}

#[cfg(test)]
mod tests {
    use millwright_model::Effect;

    use super::*;
    use crate::{
        fixtures::{at, claim, node},
        liveness::{LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT},
        observed::ObservedNode,
    };
    use ConditionType::{Initialized, Launched, Registered};

    fn pass(claim: &ObservedClaim, node: Option<&ObservedNode>, seconds: i64) -> Advance {
        let nodes = node.map_or(NodeMatch::None, NodeMatch::One);
        advance(claim, nodes, LAUNCH_TIMEOUT, at(seconds))
    }

    #[test]
    fn nothing_is_launched_before_the_finalizer_is_written() {
        let bare = ObservedClaim {
            has_finalizer: false,
            ..claim(&[])
        };
        let step = pass(&bare, None, 0);
        assert_eq!(
            step,
            Advance {
                add_finalizer: true,
                ..Advance::default()
            }
        );
    }

    #[test]
    fn an_unlaunched_claim_asks_for_a_launch_and_writes_nothing() {
        let step = pass(&claim(&[]), None, 1);
        assert!(step.launch && step.changes.is_empty() && step.delete.is_none());
        assert_eq!(step.again_after, Some(Span::from_secs(299)));
    }

    #[test]
    fn an_overdue_launch_is_given_up_and_not_begun() {
        let step = pass(&claim(&[]), None, 300);
        assert_eq!(step.delete, Some(DeleteCause::LaunchTimeout));
        assert!(!step.launch);
    }

    #[test]
    fn a_launched_claim_waits_for_its_node_and_says_so_once() {
        let mut claim = claim(&[Launched]);
        let step = pass(&claim, None, 10);
        assert_eq!(step.changes.len(), 1);
        assert_eq!(
            step.again_after,
            Some(Span(REGISTRATION_TIMEOUT.0 - 10_000))
        );
        claim.conditions.apply(&step.changes[0], at(10));
        assert!(pass(&claim, None, 11).changes.is_empty());
    }

    #[test]
    fn a_node_that_is_ready_when_it_registers_costs_one_patch_and_one_status_write() {
        let ready = ObservedNode {
            ready: true,
            ..node()
        };
        let claim = ObservedClaim {
            startup_taints: Vec::new(),
            ..claim(&[Launched])
        };
        let step = pass(&claim, Some(&ready), 30);
        assert!(step.registers && step.initializes);
        let edit = step.node.expect("the node is patched");
        assert!(edit.labels.contains_key(labels::REGISTERED));
        assert!(edit.labels.contains_key(labels::INITIALIZED));
        assert_eq!(
            step.changes,
            [Change::holds(Registered), Change::holds(Initialized)]
        );
        assert_eq!(step.node_name, Some("ip-10-0-0-1".into()));
    }

    #[test]
    fn startup_taints_that_registration_adds_hold_initialization_up() {
        let ready = ObservedNode {
            ready: true,
            ..node()
        };
        let step = pass(&claim(&[Launched]), Some(&ready), 30);
        assert!(step.registers && !step.initializes);
    }

    #[test]
    fn a_removed_startup_taint_is_not_put_back() {
        let mut node = ObservedNode {
            ready: true,
            taints: Vec::new(),
            ..node()
        };
        node.labels.insert(labels::REGISTERED.into(), "true".into());
        let step = pass(&claim(&[Launched, Registered]), Some(&node), 30);
        let edit = step.node.expect("the node is labelled");
        assert!(edit.add_taints.is_empty());
        assert!(step.initializes);
    }

    #[test]
    fn a_finished_claim_needs_nothing() {
        let mut node = ObservedNode {
            ready: true,
            taints: Vec::new(),
            ..node()
        };
        node.labels
            .insert(labels::INITIALIZED.into(), "true".into());
        node.taints.push(Taint::new(
            "node.kubernetes.io/not-ready",
            "",
            Effect::NoSchedule,
        ));
        let step = pass(
            &claim(&[Launched, Registered, Initialized]),
            Some(&node),
            100_000,
        );
        assert_eq!(step, Advance::default());
    }

    #[test]
    fn a_node_that_registers_in_the_last_moment_is_kept() {
        let step = pass(&claim(&[Launched]), Some(&node()), 900);
        assert!(step.registers && step.delete.is_none());
        let step = pass(&claim(&[Launched]), None, 900);
        assert_eq!(step.delete, Some(DeleteCause::RegistrationTimeout));
    }

    #[test]
    fn a_pass_after_its_own_writes_has_nothing_left_to_write() {
        let mut claim = claim(&[Launched]);
        let mut node = ObservedNode {
            ready: true,
            ..node()
        };
        claim.startup_taints.clear();
        let step = pass(&claim, Some(&node), 30);
        node = step.node.as_ref().expect("patched").applied_to(&node);
        node.owner_uids.push(claim.uid.clone());
        for change in &step.changes {
            claim.conditions.apply(change, at(30));
        }
        assert_eq!(pass(&claim, Some(&node), 31), Advance::default());
    }

    use millwright_model::Taint;
}
