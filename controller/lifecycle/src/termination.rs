//! Finalization of Nodes and NodeClaims: the order in which a machine leaves.
//!
//! ```text
//!  Node:   claim deleted -> instance gone already? -> taint and label -> drain -> volumes
//!          -> instance (every 5 s until it is gone) -> finalizer
//!  Claim:  deadline annotation -> Nodes deleted and gone -> instance gone -> finalizer
//! ```
//!
//! Source: disruption specification 1.7 and 4.

use std::time::Duration;

use millwright_model::{Name, NodeName, Span, Timestamp};

use crate::{
    condition::{Change, ConditionType, Status},
    drain::{self, drain},
    names,
    observed::{ObservedClaim, ObservedNode, disrupted_taint},
    pod::ObservedPod,
    register::NodeEdit,
};

/// How often the provider is asked whether an instance is gone.
pub const INSTANCE_POLL: Span = Span::from_secs(5);

/// A claim's deadline annotation that is not RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key} of nodeclaim {claim} is not an RFC 3339 time: {value:?}", key = names::DEADLINE)]
pub struct BadDeadline {
    /// The NodeClaim.
    pub claim: Name,
    /// The value.
    pub value: Name,
}

/// Writes a time as RFC 3339 in UTC, cut to seconds, as Kubernetes does.
#[must_use]
pub fn format_time(at: Timestamp) -> String {
    let Ok(time) = jiff::Timestamp::from_second(at.0.div_euclid(1_000)) else {
        // Beyond the year 9999: no object has such a time.
        return String::new();
    };
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The deadline of a drain, from the claim's annotation.
///
/// # Errors
/// When the annotation is there and is not a time.
pub fn deadline(claim: Option<&ObservedClaim>) -> Result<Option<Timestamp>, BadDeadline> {
    let Some((claim, value)) =
        claim.and_then(|claim| Some((claim, claim.annotations.get(names::DEADLINE)?)))
    else {
        return Ok(None);
    };
    value
        .parse::<jiff::Timestamp>()
        .map(|time| Some(Timestamp(time.as_millisecond())))
        .map_err(|_| BadDeadline {
            claim: claim.name.0.clone(),
            value: value.clone(),
        })
}

/// What finalizing a NodeClaim needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    /// No finalizer of ours.
    Nothing,
    /// A launch is in flight: its instance must be known before it can be terminated.
    AwaitLaunch,
    /// Write the deadline annotation (with the resource version) and tell people, then look again.
    WriteDeadline(Timestamp),
    /// Delete these Nodes (none when all are deleting already), then wait for their events.
    AwaitNodes(Vec<NodeName>),
    /// Ask the provider to terminate the instance. Not found: remove the finalizer. Else set
    /// `InstanceTerminating` and ask again after [`INSTANCE_POLL`].
    TerminateInstance,
    /// Remove the finalizer: there is no instance.
    RemoveFinalizer,
}

/// Decides about a claim that is being deleted.
///
/// `nodes` are all Nodes with the claim's provider id; `launching` says that this process has
/// asked for an instance and has no answer yet.
#[must_use]
pub fn finalize_claim(claim: &ObservedClaim, nodes: &[ObservedNode], launching: bool) -> ClaimStep {
    let Some(deleting_since) = claim.deleting_since.filter(|_| claim.has_finalizer) else {
        return ClaimStep::Nothing;
    };
    if let Some(grace) = claim.termination_grace_period
        && !claim.annotations.contains_key(names::DEADLINE)
    {
        return ClaimStep::WriteDeadline(deleting_since + grace);
    }
    if launching {
        return ClaimStep::AwaitLaunch;
    }
    // The Nodes of a claim that never registered are not ours to delete.
    if claim.is(ConditionType::Registered) && !nodes.is_empty() {
        let alive = nodes.iter().filter(|node| node.deleting_since.is_none());
        return ClaimStep::AwaitNodes(alive.map(|node| node.name.clone()).collect());
    }
    if claim.provider_id.is_some() {
        ClaimStep::TerminateInstance
    } else {
        ClaimStep::RemoveFinalizer
    }
}

/// What finalizing a Node needs now, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStep<'a> {
    /// Delete the claim, so that it gets its deadline.
    pub delete_claim: bool,
    /// When everything must be gone; people are told.
    pub deadline: Option<Timestamp>,
    /// Write this to the Node (with its resource version) before the first eviction.
    pub edit: Option<NodeEdit>,
    /// Pods to hand to the eviction queue.
    pub evict: Vec<&'a ObservedPod>,
    /// Pods that are waited for.
    pub waiting_pods: usize,
    /// Volume attachments that are waited for, by name.
    pub waiting_volumes: Vec<Name>,
    /// Changes of the claim's conditions, for one status write.
    pub changes: Vec<Change>,
    /// What is left when the writes are done.
    pub next: Next,
}

/// How a Node's finalization goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do.
    #[default]
    Nothing,
    /// Look again after this long.
    Again(Span),
    /// Ask the provider to terminate the instance. Not found: remove the Node's finalizer. Else
    /// again after [`INSTANCE_POLL`].
    TerminateInstance,
    /// Remove the Node's finalizer.
    RemoveFinalizer,
}

/// Whether the provider must be asked if the instance exists before anything else: a Node that is
/// not Ready and whose instance is gone loses its finalizer at once. A Ready Node never does.
#[must_use]
pub const fn asks_for_instance(node: &ObservedNode) -> bool {
    node.deleting_since.is_some() && node.has_finalizer && !node.ready
}

/// Decides about a Node that is being deleted.
///
/// `claim` is the one NodeClaim with its provider id (two count as none); `pods` are all pods bound
/// to it; `volumes` the attachments that [`crate::volumes::awaited`] names.
///
/// # Errors
/// When the claim's deadline cannot be read: nothing is decided without it.
pub fn finalize_node<'a>(
    node: &ObservedNode,
    claim: Option<&ObservedClaim>,
    pods: &'a [ObservedPod],
    volumes: &[&Name],
    now: Timestamp,
) -> Result<NodeStep<'a>, BadDeadline> {
    if node.deleting_since.is_none() || !node.has_finalizer {
        return Ok(NodeStep::default());
    }
    let deadline = deadline(claim)?;
    let mut step = NodeStep {
        delete_claim: claim.is_some_and(|claim| claim.deleting_since.is_none()),
        deadline,
        edit: cordon(node),
        ..NodeStep::default()
    };
    let passed =
        drained(claim, pods, &mut step, now) && volumes_detached(claim, volumes, &mut step, now);
    step.next = match claim {
        _ if !passed => Next::Again(drain::POLL),
        Some(claim) => {
            push(
                &mut step,
                claim,
                Change::holds(ConditionType::InstanceTerminating),
            );
            Next::TerminateInstance
        }
        None => Next::RemoveFinalizer,
    };
    Ok(step)
}

/// The taint that keeps new pods off and the label that keeps new connections off.
fn cordon(node: &ObservedNode) -> Option<NodeEdit> {
    let mut edit = NodeEdit::default();
    if !node.has_taint(&disrupted_taint()) {
        // The same key with another effect would leave two taints of one meaning.
        edit.remove_taints = node
            .taints
            .iter()
            .filter(|taint| &*taint.key == names::DISRUPTED)
            .cloned()
            .collect();
        edit.add_taints = vec![disrupted_taint()];
    }
    if !node.has_label(names::EXCLUDE_BALANCERS, names::EXCLUDE_BALANCERS_VALUE) {
        edit.labels.insert(
            names::EXCLUDE_BALANCERS.into(),
            names::EXCLUDE_BALANCERS_VALUE.into(),
        );
    }
    (!edit.is_empty()).then_some(edit)
}

/// The drain stage; whether it has passed.
fn drained<'a>(
    claim: Option<&ObservedClaim>,
    pods: &'a [ObservedPod],
    step: &mut NodeStep<'a>,
    now: Timestamp,
) -> bool {
    let kind = ConditionType::Drained;
    let drain = drain(pods, step.deadline, now);
    step.evict = drain.evict;
    step.waiting_pods = drain.waiting;
    let Some(claim) = claim else {
        return step.waiting_pods == 0;
    };
    if claim.is(kind) {
        return step.waiting_pods == 0;
    }
    let draining_since = match claim.conditions.get(kind) {
        Some(condition) if condition.status == Status::Unknown => condition.since,
        _ => now,
    };
    if step.waiting_pods > 0 || now.since(draining_since) < drain::MINIMUM {
        push(step, claim, Change::unknown(kind, "Draining", "Draining"));
        return false;
    }
    push(step, claim, Change::holds(kind));
    true
}

/// The volume stage; whether it has passed.
fn volumes_detached(
    claim: Option<&ObservedClaim>,
    volumes: &[&Name],
    step: &mut NodeStep<'_>,
    now: Timestamp,
) -> bool {
    let kind = ConditionType::VolumesDetached;
    let overdue = step.deadline.is_some_and(|deadline| now > deadline);
    let (change, passed) = if volumes.is_empty() {
        (Change::holds(kind), true)
    } else if overdue {
        (
            Change::fails(
                kind,
                "TerminationGracePeriodElapsed",
                "TerminationGracePeriodElapsed",
            ),
            true,
        )
    } else {
        step.waiting_volumes = volumes.iter().map(|name| (*name).clone()).collect();
        (
            Change::unknown(kind, "AwaitingVolumeDetachment", "AwaitingVolumeDetachment"),
            false,
        )
    };
    if let Some(claim) = claim {
        push(step, claim, change);
    }
    passed
}

/// Adds a change unless the condition has that status and reason already.
fn push(step: &mut NodeStep<'_>, claim: &ObservedClaim, change: Change) {
    let in_place = match &change {
        Change::Set {
            kind,
            status,
            reason,
            ..
        } => claim
            .conditions
            .get(*kind)
            .is_some_and(|own| own.status == *status && own.reason == *reason),
        Change::Clear(kind) => claim.conditions.get(*kind).is_none(),
    };
    if !in_place {
        step.changes.push(change);
    }
}

/// The pause as the outer ring counts it.
#[must_use]
pub fn pause(span: Span) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use millwright_model::{Effect, Taint};

    use super::*;
    use crate::fixtures::{T0, at, claim, node, pod};
    use ConditionType::{Drained, InstanceTerminating, Launched, Registered, VolumesDetached};

    fn deleting_claim(holds: &[ConditionType]) -> ObservedClaim {
        ObservedClaim {
            deleting_since: Some(T0),
            ..claim(holds)
        }
    }

    fn deleting_node() -> ObservedNode {
        ObservedNode {
            deleting_since: Some(T0),
            has_finalizer: true,
            ready: true,
            taints: Vec::new(),
            ..node()
        }
    }

    fn step<'a>(
        claim: Option<&ObservedClaim>,
        pods: &'a [ObservedPod],
        seconds: i64,
    ) -> NodeStep<'a> {
        finalize_node(&deleting_node(), claim, pods, &[], at(seconds)).expect("no deadline is bad")
    }

    fn draining_since(seconds: i64) -> ObservedClaim {
        let mut claim = deleting_claim(&[Launched, Registered]);
        claim.conditions.apply(
            &Change::unknown(Drained, "Draining", "Draining"),
            at(seconds),
        );
        claim
    }

    #[test]
    fn a_claim_writes_its_deadline_then_waits_for_nodes_then_for_the_instance() {
        let grace = Some(Span::from_secs(300));
        let mut claim = ObservedClaim {
            termination_grace_period: grace,
            ..deleting_claim(&[Launched, Registered])
        };
        let nodes = [node()];
        assert_eq!(
            finalize_claim(&claim, &nodes, false),
            ClaimStep::WriteDeadline(at(300))
        );
        claim
            .annotations
            .insert(names::DEADLINE.into(), format_time(at(10)).into());
        let expected = ClaimStep::AwaitNodes(vec!["ip-10-0-0-1".into()]);
        assert_eq!(
            finalize_claim(&claim, &nodes, false),
            expected,
            "an existing deadline is kept"
        );
        let leaving = [deleting_node()];
        assert_eq!(
            finalize_claim(&claim, &leaving, false),
            ClaimStep::AwaitNodes(Vec::new())
        );
        assert_eq!(
            finalize_claim(&claim, &[], false),
            ClaimStep::TerminateInstance
        );
    }

    #[test]
    fn every_node_with_the_provider_id_is_deleted() {
        let twin = ObservedNode {
            name: "twin".into(),
            ..node()
        };
        let step = finalize_claim(
            &deleting_claim(&[Launched, Registered]),
            &[node(), twin],
            false,
        );
        assert!(matches!(step, ClaimStep::AwaitNodes(names) if names.len() == 2));
    }

    #[test]
    fn nodes_of_an_unregistered_claim_are_left_alone() {
        let step = finalize_claim(&deleting_claim(&[Launched]), &[node()], false);
        assert_eq!(step, ClaimStep::TerminateInstance);
    }

    #[test]
    fn a_claim_that_never_launched_loses_its_finalizer_unless_a_launch_is_in_flight() {
        let claim = ObservedClaim {
            provider_id: None,
            ..deleting_claim(&[])
        };
        assert_eq!(
            finalize_claim(&claim, &[], false),
            ClaimStep::RemoveFinalizer
        );
        assert_eq!(finalize_claim(&claim, &[], true), ClaimStep::AwaitLaunch);
        let foreign = ObservedClaim {
            has_finalizer: false,
            ..claim
        };
        assert_eq!(finalize_claim(&foreign, &[], false), ClaimStep::Nothing);
    }

    #[test]
    fn deadlines_read_back_and_a_bad_one_decides_nothing() {
        let mut claim = deleting_claim(&[Registered]);
        assert_eq!(deadline(Some(&claim)), Ok(None));
        claim
            .annotations
            .insert(names::DEADLINE.into(), format_time(at(300)).into());
        assert_eq!(
            format_time(Timestamp(1_700_000_000_999)),
            "2023-11-14T22:13:20Z"
        );
        assert_eq!(deadline(Some(&claim)), Ok(Some(at(300))));
        claim
            .annotations
            .insert(names::DEADLINE.into(), "2023-11-15T00:13:20+02:00".into());
        assert_eq!(deadline(Some(&claim)), Ok(Some(T0)));
        claim
            .annotations
            .insert(names::DEADLINE.into(), "soon".into());
        let error = finalize_node(&deleting_node(), Some(&claim), &[], &[], T0).expect_err("bad");
        assert!(error.to_string().contains("\"soon\""), "{error}");
    }

    #[test]
    fn the_first_pass_taints_labels_deletes_the_claim_and_starts_draining() {
        let claim = claim(&[Launched, Registered]);
        let pods = [pod("p")];
        let step = step(Some(&claim), &pods, 0);
        assert!(step.delete_claim);
        let edit = step.edit.expect("cordoned");
        assert_eq!(edit.add_taints, [disrupted_taint()]);
        assert_eq!(
            edit.labels,
            [(
                names::EXCLUDE_BALANCERS.into(),
                names::EXCLUDE_BALANCERS_VALUE.into()
            )]
            .into()
        );
        assert_eq!((step.evict.len(), step.waiting_pods), (1, 1));
        assert_eq!(
            step.changes,
            [Change::unknown(Drained, "Draining", "Draining")]
        );
        assert_eq!(step.next, Next::Again(drain::POLL));
    }

    #[test]
    fn a_cordoned_node_is_not_cordoned_again_and_a_taint_of_another_effect_is_replaced() {
        let mut node = deleting_node();
        let edit = cordon(&node).expect("cordoned");
        node = edit.applied_to(&node);
        assert_eq!(cordon(&node), None);
        node.taints = vec![Taint::new(names::DISRUPTED, "old", Effect::NoExecute)];
        let edit = cordon(&node).expect("replaced");
        assert_eq!(edit.applied_to(&node).taints, [disrupted_taint()]);
    }

    #[test]
    fn an_empty_node_still_drains_for_five_seconds() {
        let claim = draining_since(0);
        assert_eq!(step(Some(&claim), &[], 4).next, Next::Again(drain::POLL));
        let done = step(Some(&claim), &[], 5);
        assert_eq!(done.next, Next::TerminateInstance);
        assert_eq!(
            done.changes,
            [
                Change::holds(Drained),
                Change::holds(VolumesDetached),
                Change::holds(InstanceTerminating)
            ]
        );
    }

    #[test]
    fn without_a_claim_there_is_no_minimum_and_no_instance() {
        assert_eq!(step(None, &[], 0).next, Next::RemoveFinalizer);
        assert_eq!(step(None, &[pod("p")], 0).next, Next::Again(drain::POLL));
    }

    #[test]
    fn volumes_are_waited_for_until_the_deadline() {
        let names = [Name::from("attachment")];
        let volumes: Vec<&Name> = names.iter().collect();
        let mut claim = draining_since(0);
        claim.conditions.apply(&Change::holds(Drained), at(5));
        let at_volumes = |claim: &ObservedClaim, seconds| {
            finalize_node(&deleting_node(), Some(claim), &[], &volumes, at(seconds)).expect("good")
        };
        let waiting = at_volumes(&claim, 1_000_000);
        assert_eq!(waiting.next, Next::Again(drain::POLL));
        assert_eq!(waiting.waiting_volumes, names);
        assert!(matches!(
            &waiting.changes[..],
            [Change::Set {
                status: Status::Unknown,
                ..
            }]
        ));
        claim
            .annotations
            .insert(names::DEADLINE.into(), format_time(at(300)).into());
        assert_eq!(at_volumes(&claim, 300).next, Next::Again(drain::POLL));
        let over = at_volumes(&claim, 301);
        assert_eq!(over.next, Next::TerminateInstance);
        assert!(matches!(
            &over.changes[0],
            Change::Set { status: Status::False, reason, .. } if reason == "TerminationGracePeriodElapsed"
        ));
    }

    #[test]
    fn waiting_for_the_instance_writes_nothing_again() {
        let claim = deleting_claim(&[Registered, Drained, VolumesDetached, InstanceTerminating]);
        let step = step(Some(&claim), &[], 60);
        assert!(step.changes.is_empty());
        assert_eq!(step.next, Next::TerminateInstance);
    }

    #[test]
    fn only_a_node_that_is_not_ready_is_asked_about() {
        assert!(!asks_for_instance(&deleting_node()));
        assert!(asks_for_instance(&ObservedNode {
            ready: false,
            ..deleting_node()
        }));
        assert!(!asks_for_instance(&node()));
    }

    #[test]
    fn a_node_that_is_not_deleting_or_not_ours_is_left_alone() {
        for node in [
            node(),
            ObservedNode {
                has_finalizer: false,
                ..deleting_node()
            },
        ] {
            let step = finalize_node(&node, None, &[], &[], T0).expect("good");
            assert_eq!(step, NodeStep::default());
        }
    }
}
