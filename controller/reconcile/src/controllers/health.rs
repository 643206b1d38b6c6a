//! Registration health of NodePools: the outcomes of their last launches, and the condition that
//! follows from them.
//!
//! Source: disruption specification 1.6; provisioning specification 8.5.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;
use millwright_api::{
    Ec2NodeClass, NodeClaim, NodePool,
    conditions::{self, ConditionSet, Conditioned, TRUE},
};
use millwright_lifecycle::{Status, registration_health::RegistrationHealth};

/// Outcomes by the uid of the pool, so that a pool that was made anew starts anew. Bounded by the
/// number of NodePools: [`Health::retain`] drops the others.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<HashMap<String, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    ring: RegistrationHealth,
    verdict: Option<Verdict>,
}

/// What the condition has to become; kept until the pool's status says it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Healthy,
    Unhealthy { reason: String, message: String },
}

impl Health {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a NodeClaim registered. Only claims that the pool owns count.
    pub(super) fn succeeded(&self, claim: &NodeClaim, pool: &NodePool) {
        let Some(uid) = owner(claim, pool) else {
            return;
        };
        let mut entries = self.entries();
        let entry = entries.entry(uid).or_default();
        if entry.ring.status_with(true) == Status::True {
            entry.verdict = Some(Verdict::Healthy);
        }
        entry.ring.record(true);
    }

    /// Records that a NodeClaim did not launch or register in time.
    pub(super) fn failed(&self, claim: &NodeClaim, pool: &NodePool) {
        let Some(uid) = owner(claim, pool) else {
            return;
        };
        let mut entries = self.entries();
        let entry = entries.entry(uid).or_default();
        if entry.ring.status_with(false) == Status::False {
            entry.verdict = Some(unhealthy(claim));
        }
        entry.ring.record(false);
    }

    /// Forgets pools that are gone.
    pub(super) fn retain(&self, uids: impl Fn(&str) -> bool) {
        self.entries().retain(|uid, _| uids(uid));
    }

    /// Brings the pool's condition up to date in memory. Without its class nothing is judged.
    pub(super) fn apply(
        &self,
        pool: &mut NodePool,
        class: Option<&Ec2NodeClass>,
        now: k8s_openapi::jiff::Timestamp,
    ) {
        let kind = conditions::NODE_REGISTRATION_HEALTHY;
        let Some(class_generation) = class.map(|class| class.metadata.generation) else {
            return;
        };
        let mut entries = self.entries();
        let entry = entries.entry(pool.uid().unwrap_or_default()).or_default();
        let stored = pool.condition(kind);
        let known = pool
            .status
            .as_ref()
            .and_then(|status| status.node_class_observed_generation);
        let stale = stored
            .is_none_or(|condition| condition.observed_generation != pool.metadata.generation)
            || known != class_generation;
        let status = stored.map(|condition| condition.status.clone());
        entry.ring.prime(match status.as_deref() {
            Some(TRUE) => Status::True,
            Some(conditions::FALSE) => Status::False,
            _ => Status::Unknown,
        });
        pool.status
            .get_or_insert_default()
            .node_class_observed_generation = class_generation;
        let mut set = ConditionSet::open(pool, now);
        if stale {
            // What launches looked like before the change says nothing about those after it.
            entry.ring.reset();
            entry.verdict = None;
            set.set_unknown(kind);
            return;
        }
        match &entry.verdict {
            Some(Verdict::Healthy) if status.as_deref() == Some(TRUE) => entry.verdict = None,
            Some(Verdict::Unhealthy { .. }) if status.as_deref() == Some(conditions::FALSE) => {
                entry.verdict = None;
            }
            Some(Verdict::Healthy) => {
                set.set_true(kind);
            }
            Some(Verdict::Unhealthy { reason, message }) => {
                set.set_false(kind, reason, message);
            }
            None => {}
        }
    }
}

/// The pool's uid, if the claim's owner is this very pool.
fn owner(claim: &NodeClaim, pool: &NodePool) -> Option<String> {
    let uid = pool.uid()?;
    claim
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "NodePool" && owner.uid == uid)
        .then_some(uid)
}

/// A claim that never launched says why; else the instance came up and did not join.
fn unhealthy(claim: &NodeClaim) -> Verdict {
    match claim.condition(conditions::LAUNCHED) {
        Some(launched) if launched.status != TRUE => Verdict::Unhealthy {
            reason: launched.reason.clone(),
            message: launched.message.clone(),
        },
        Some(_) | None => Verdict::Unhealthy {
            reason: "RegistrationFailed".to_owned(),
            message: "Failed to register node".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn pool(uid: &str, generation: i64) -> NodePool {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "default", "uid": uid, "generation": generation},
            "spec": {"template": {"spec": {"requirements": [], "nodeClassRef":
                {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}},
        }))
        .expect("a pool")
    }

    fn class(generation: i64) -> Ec2NodeClass {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default", "generation": generation},
            "spec": {"subnetSelectorTerms": [], "securityGroupSelectorTerms": [], "amiSelectorTerms": []},
        }))
        .expect("a class")
    }

    fn claim(owner: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "default-1", "ownerReferences":
                [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": owner}]},
            "spec": {"requirements": [], "nodeClassRef":
                {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        }))
        .expect("a claim")
    }

    /// The condition after the pool was reconciled once more.
    fn reconciled(health: &Health, pool: &mut NodePool, class: &Ec2NodeClass) -> String {
        health.apply(pool, Some(class), Timestamp::UNIX_EPOCH);
        let condition = pool.condition(conditions::NODE_REGISTRATION_HEALTHY);
        condition.map(|c| c.status.clone()).unwrap_or_default()
    }

    #[test]
    fn one_failure_says_nothing_two_are_unhealthy_and_one_success_does_not_heal() {
        let (health, mut pool, class) = (Health::default(), pool("u", 1), class(1));
        assert_eq!(reconciled(&health, &mut pool, &class), "Unknown");
        health.failed(&claim("u"), &pool);
        assert_eq!(reconciled(&health, &mut pool, &class), "Unknown");
        health.failed(&claim("u"), &pool);
        assert_eq!(reconciled(&health, &mut pool, &class), "False");
        health.succeeded(&claim("u"), &pool);
        assert_eq!(reconciled(&health, &mut pool, &class), "False");
        (0..3).for_each(|_| health.succeeded(&claim("u"), &pool));
        assert_eq!(reconciled(&health, &mut pool, &class), "True");
    }

    #[test]
    fn claims_of_a_former_pool_of_the_same_name_do_not_count() {
        let (health, mut pool, class) = (Health::default(), pool("new", 1), class(1));
        reconciled(&health, &mut pool, &class);
        (0..4).for_each(|_| health.failed(&claim("old"), &pool));
        assert_eq!(reconciled(&health, &mut pool, &class), "Unknown");
    }

    #[test]
    fn a_change_of_pool_or_class_starts_anew() {
        let (health, mut pool, class_now) = (Health::default(), pool("u", 1), class(1));
        reconciled(&health, &mut pool, &class_now);
        (0..2).for_each(|_| health.failed(&claim("u"), &pool));
        assert_eq!(reconciled(&health, &mut pool, &class_now), "False");
        assert_eq!(reconciled(&health, &mut pool, &class(2)), "Unknown");
        health.failed(&claim("u"), &pool);
        pool.metadata.generation = Some(2);
        assert_eq!(reconciled(&health, &mut pool, &class(2)), "Unknown");
        health.failed(&claim("u"), &pool);
        assert_eq!(
            reconciled(&health, &mut pool, &class(2)),
            "Unknown",
            "one of four"
        );
    }

    #[test]
    fn a_restart_remembers_what_the_status_says() {
        let (health, mut pool, class) = (Health::default(), pool("u", 1), class(1));
        reconciled(&health, &mut pool, &class);
        (0..2).for_each(|_| health.failed(&claim("u"), &pool));
        assert_eq!(reconciled(&health, &mut pool, &class), "False");
        let restarted = Health::default();
        assert_eq!(reconciled(&restarted, &mut pool, &class), "False");
        restarted.succeeded(&claim("u"), &pool);
        assert_eq!(
            reconciled(&restarted, &mut pool, &class),
            "False",
            "two failures are primed"
        );
    }
}
