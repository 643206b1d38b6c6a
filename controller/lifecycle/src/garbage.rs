//! Garbage collection in both directions: NodeClaims whose instance vanished, and instances that
//! belong to no NodeClaim.
//!
//! Source: disruption specification 1.8, AWS specification 27.

use std::collections::BTreeSet;

use millwright_model::{NodeClaimName, ProviderId, Span, Timestamp};

use crate::{
    condition::ConditionType,
    observed::{NodeMatch, ObservedClaim},
};

/// How often NodeClaims are compared with instances.
pub const CLAIMS_EVERY: Span = Span::from_secs(2 * 60);
/// Instances younger than this are left alone: their NodeClaim may not carry the id yet.
pub const INSTANCE_AGE_MIN: Span = Span::from_secs(30);
/// How often instances are compared with NodeClaims, for the first rounds of a process.
pub const INSTANCES_EVERY_AT_FIRST: Span = Span::from_secs(10);
/// How often later on.
pub const INSTANCES_EVERY: Span = Span::from_secs(2 * 60);
/// Number of first rounds.
pub const FIRST_ROUNDS: u32 = 20;

/// An instance, as far as garbage collection reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedInstance {
    /// Provider id.
    pub provider_id: ProviderId,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// Whether it is on its way out already.
    pub leaving: bool,
}

/// NodeClaims that have registered and whose instance is not in `alive`, in the order given: still
/// to be checked against their Node with [`is_vanished`].
///
/// `alive` must have been read after the claims, completely.
#[must_use]
pub fn suspects<'a>(
    claims: impl IntoIterator<Item = &'a ObservedClaim>,
    alive: &BTreeSet<ProviderId>,
) -> Vec<NodeClaimName> {
    claims
        .into_iter()
        .filter(|claim| claim.is(ConditionType::Registered) && claim.deleting_since.is_none())
        .filter(|claim| {
            claim
                .provider_id
                .as_ref()
                .is_some_and(|id| !alive.contains(id))
        })
        .map(|claim| claim.name.clone())
        .collect()
}

/// Whether a suspect is to be deleted: a Node that is Ready has a kubelet, hence an instance,
/// whatever the provider's list says.
#[must_use]
pub fn is_vanished(nodes: NodeMatch<'_>) -> bool {
    nodes.one().is_none_or(|node| !node.ready)
}

/// Instances to terminate: older than [`INSTANCE_AGE_MIN`], not leaving, in no NodeClaim.
///
/// `instances` must have been read before `claimed`, so that a claim which got its instance in
/// between is seen.
#[must_use]
pub fn leaked<'a>(
    instances: &'a [ObservedInstance],
    claimed: &BTreeSet<ProviderId>,
    now: Timestamp,
) -> Vec<&'a ObservedInstance> {
    instances
        .iter()
        .filter(|instance| !instance.leaving && !claimed.contains(&instance.provider_id))
        .filter(|instance| now.since(instance.launched_at) > INSTANCE_AGE_MIN)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{T0, at, claim, node},
        observed::ObservedNode,
    };

    #[test]
    fn only_registered_claims_without_instance_are_suspects() {
        let registered = claim(&[ConditionType::Registered]);
        let young = claim(&[ConditionType::Launched]);
        let deleting = ObservedClaim {
            deleting_since: Some(T0),
            ..registered.clone()
        };
        let nothing = BTreeSet::new();
        assert_eq!(
            suspects([&registered, &young, &deleting], &nothing),
            ["default-1".into()]
        );
        let alive = registered.provider_id.clone().into_iter().collect();
        assert!(suspects([&registered], &alive).is_empty());
    }

    #[test]
    fn a_ready_node_saves_its_claim_and_a_missing_one_does_not() {
        let ready = ObservedNode {
            ready: true,
            ..node()
        };
        assert!(!is_vanished(NodeMatch::One(&ready)));
        assert!(is_vanished(NodeMatch::One(&node())));
        assert!(is_vanished(NodeMatch::None));
        assert!(is_vanished(NodeMatch::Several));
    }

    #[test]
    fn an_instance_without_claim_is_terminated_after_thirty_seconds() {
        let instance = ObservedInstance {
            provider_id: "a".into(),
            launched_at: T0,
            leaving: false,
        };
        let leaving = ObservedInstance {
            provider_id: "b".into(),
            launched_at: T0,
            leaving: true,
        };
        let all = [instance, leaving];
        let none = BTreeSet::new();
        assert!(leaked(&all, &none, at(30)).is_empty());
        assert_eq!(leaked(&all, &none, at(31)), [&all[0]]);
        assert!(leaked(&all, &["a".into()].into(), at(31)).is_empty());
    }
}
