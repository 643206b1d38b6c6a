//! Names of conditions, and the engine that computes them.
//!
//! A kind has one root condition, `Ready`, which follows from its *dependent* conditions; any other
//! condition is *independent* of it. [`ConditionSet`] is opened over an object's list for one
//! generation and one instant, and keeps the list complete, ordered and its root consistent.
//! Nothing here reads a clock.
//!
//! Source: provisioning specification 1.6; AWS specification 4.3.

use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use crate::common::{Condition, Time};
use crate::{Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};

/// The root condition of every kind; also its reason while true.
pub const READY: &str = "Ready";

/// NodePool, NodeOverlay, EC2NodeClass: runtime validation found nothing.
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// NodePool: its class exists and is ready.
pub const NODE_CLASS_READY: &str = "NodeClassReady";
/// NodePool: recent NodeClaims registered.
pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";

/// NodeClaim: the instance exists.
pub const LAUNCHED: &str = "Launched";
/// NodeClaim: the Node was found and brought in line.
pub const REGISTERED: &str = "Registered";
/// NodeClaim: the Node can run pods.
pub const INITIALIZED: &str = "Initialized";
/// NodeClaim: may be consolidated.
pub const CONSOLIDATABLE: &str = "Consolidatable";
/// NodeClaim: no longer what its pool or class describes.
pub const DRIFTED: &str = "Drifted";
/// NodeClaim: no pod is left to evict.
pub const DRAINED: &str = "Drained";
/// NodeClaim: its volumes are detached.
pub const VOLUMES_DETACHED: &str = "VolumesDetached";
/// NodeClaim: the instance is being terminated.
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
/// NodeClaim: the Node agrees with the claim.
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
/// NodeClaim: why it is being disrupted.
pub const DISRUPTION_REASON: &str = "DisruptionReason";

/// EC2NodeClass: images were found.
pub const AMIS_READY: &str = "AMIsReady";
/// EC2NodeClass: subnets were found.
pub const SUBNETS_READY: &str = "SubnetsReady";
/// EC2NodeClass: security groups were found.
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
/// EC2NodeClass: the instance profile exists.
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
/// EC2NodeClass: the placement group was found, or none is asked for.
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
/// EC2NodeClass: capacity reservations were looked up.
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";

/// CapacityBuffer: the buffer is understood.
pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
/// CapacityBuffer: room is being provided.
pub const PROVISIONING: &str = "Provisioning";
/// CapacityBuffer: reserved by the API, never written.
pub const LIMITED_BY_QUOTAS: &str = "LimitedByQuotas";

/// Status of a condition that holds.
pub const TRUE: &str = "True";
/// Status of a condition that does not hold.
pub const FALSE: &str = "False";
/// Status of a condition that nobody can judge yet.
pub const UNKNOWN: &str = "Unknown";

/// Reasons that the engine and the controllers give.
pub mod reasons {
    /// Nobody has judged the condition yet.
    pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";
    /// Root: at least one dependent is false at the current generation.
    pub const UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
    /// Root: dependents are unknown or were judged at an older generation.
    pub const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";
    /// Launched is unknown: launching failed and is tried again.
    pub const LAUNCH_FAILED: &str = "LaunchFailed";
    /// Registered, Initialized are unknown: there is no Node.
    pub const NODE_NOT_FOUND: &str = "NodeNotFound";
    /// Registered is unknown: a hook of the provider holds it back.
    pub const REGISTRATION_HOOK_PENDING: &str = "RegistrationHookPending";
    /// Registered is false: several Nodes claim the instance.
    pub const MULTIPLE_NODES_FOUND: &str = "MultipleNodesFound";
    /// Initialized is unknown: the kubelet is not ready.
    pub const NODE_NOT_READY: &str = "NodeNotReady";
    /// Initialized is unknown: startup taints remain.
    pub const STARTUP_TAINTS_EXIST: &str = "StartupTaintsExist";
    /// Initialized is unknown: taints of a starting node remain.
    pub const KNOWN_EPHEMERAL_TAINTS_EXIST: &str = "KnownEphemeralTaintsExist";
    /// Initialized is unknown: the Node lacks a requested resource.
    pub const RESOURCE_NOT_REGISTERED: &str = "ResourceNotRegistered";
    /// Initialized is unknown: a driver of dynamic resources has not published its pools.
    pub const DRA_DRIVER_POOLS_NOT_PUBLISHED: &str = "DRADriverPoolsNotPublished";
    /// AMIsReady is false: nothing matches.
    pub const AMI_NOT_FOUND: &str = "AMINotFound";
    /// AMIsReady is false: the alias does not exist for the cluster's version.
    pub const UNSUPPORTED_ALIAS: &str = "UnsupportedAlias";
    /// SubnetsReady is false: nothing matches.
    pub const SUBNETS_NOT_FOUND: &str = "SubnetsNotFound";
    /// SecurityGroupsReady is false: nothing matches.
    pub const SECURITY_GROUPS_NOT_FOUND: &str = "SecurityGroupsNotFound";
    /// PlacementGroupReady is false: the lookup failed.
    pub const PLACEMENT_GROUP_RESOLUTION_FAILED: &str = "PlacementGroupResolutionFailed";
    /// PlacementGroupReady is false: nothing matches.
    pub const PLACEMENT_GROUP_NOT_FOUND: &str = "PlacementGroupNotFound";
    /// ValidationSucceeded is unknown: what it depends on is not ready.
    pub const DEPENDENCIES_NOT_READY: &str = "DependenciesNotReady";
}

/// Message of conditions that nobody has judged yet.
pub const AWAITING_MESSAGE: &str = "object is awaiting reconciliation";

/// A kind with conditions.
pub trait Conditioned: Resource<DynamicType = ()> {
    /// Types that `Ready` depends on, in the order in which they are created.
    const DEPENDENTS: &'static [&'static str];

    /// The object's conditions; empty without a status.
    fn conditions(&self) -> &[Condition];

    /// The list to change; makes a status if there is none.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;

    /// The condition of a type.
    fn condition(&self, kind: &str) -> Option<&Condition> {
        find(self.conditions(), kind)
    }

    /// Whether a condition is `True`, whatever generation it was judged at.
    fn is_condition_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c.status == TRUE)
    }

    /// Whether the object is `Ready` at its current generation.
    fn is_ready_now(&self) -> bool {
        self.condition(READY)
            .is_some_and(|c| c.status == TRUE && c.observed_generation == self.meta().generation)
    }
}

macro_rules! conditioned {
    ($kind:ty, $dependents:expr) => {
        impl Conditioned for $kind {
            const DEPENDENTS: &'static [&'static str] = $dependents;

            fn conditions(&self) -> &[Condition] {
                self.status
                    .as_ref()
                    .map_or(&[], |status| &status.conditions)
            }

            fn conditions_mut(&mut self) -> &mut Vec<Condition> {
                &mut self.status.get_or_insert_default().conditions
            }
        }
    };
}

conditioned!(NodePool, &[VALIDATION_SUCCEEDED, NODE_CLASS_READY]);
conditioned!(NodeClaim, &[LAUNCHED, REGISTERED, INITIALIZED]);
conditioned!(NodeOverlay, &[VALIDATION_SUCCEEDED]);
conditioned!(Ec2NodeClass, EC2_NODE_CLASS_DEPENDENTS);

/// Dependents of an EC2NodeClass without the gate `ReservedCapacity`.
pub const EC2_NODE_CLASS_DEPENDENTS: &[&str] = &[
    AMIS_READY,
    SUBNETS_READY,
    SECURITY_GROUPS_READY,
    INSTANCE_PROFILE_READY,
    PLACEMENT_GROUP_READY,
    VALIDATION_SUCCEEDED,
];

/// Dependents of an EC2NodeClass with the gate `ReservedCapacity`.
pub const EC2_NODE_CLASS_DEPENDENTS_RESERVED: &[&str] = &[
    AMIS_READY,
    SUBNETS_READY,
    SECURITY_GROUPS_READY,
    INSTANCE_PROFILE_READY,
    PLACEMENT_GROUP_READY,
    VALIDATION_SUCCEEDED,
    CAPACITY_RESERVATIONS_READY,
];

/// The condition of a type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == kind)
}

/// A verdict by somebody who knows neither the object's generation nor the time: the engine stamps
/// both when it takes the verdict over.
#[must_use]
pub fn verdict(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

/// What the engine has to know of the object besides its list.
#[derive(Clone, Debug)]
pub struct ObjectFacts {
    /// `metadata.generation`; 0 for an object that no API server has seen.
    pub generation: i64,
    /// `metadata.creationTimestamp`; `None` for an object that no API server has seen.
    pub created: Option<Timestamp>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

impl ObjectFacts {
    /// Reads the facts off an object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            generation: object.meta().generation.unwrap_or(0),
            created: object.creation_timestamp().map(|time| time.0),
            deleting: object.meta().deletion_timestamp.is_some(),
        }
    }
}

/// Why a condition could not be cleared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClearError {
    /// The root and its dependents belong to every object of the kind.
    #[error("condition {kind} is the root or one of its dependents and cannot be cleared")]
    Required {
        /// Type of the condition.
        kind: String,
    },
}

/// An object's conditions, open for change at one instant.
///
/// Invariants while open and after: every dependent and the root exist; the root is last and the
/// others are ordered by `lastTransitionTime`; the root follows from the dependents.
#[derive(Debug)]
pub struct ConditionSet<'a> {
    dependents: &'static [&'static str],
    conditions: &'a mut Vec<Condition>,
    facts: ObjectFacts,
    now: Timestamp,
}

impl<'a> ConditionSet<'a> {
    /// Opens the conditions of an object whose dependents are those of its kind.
    pub fn open<K: Conditioned>(object: &'a mut K, now: Timestamp) -> Self {
        let facts = ObjectFacts::of(object);
        Self::over(object.conditions_mut(), K::DEPENDENTS, facts, now)
    }

    /// Opens a list of conditions with the dependents given; creates what is missing.
    ///
    /// `now` is cut to whole seconds, which is all that the API stores.
    pub fn over(
        conditions: &'a mut Vec<Condition>,
        dependents: &'static [&'static str],
        facts: ObjectFacts,
        now: Timestamp,
    ) -> Self {
        let now = whole_seconds(now);
        let mut set = Self {
            dependents,
            conditions,
            facts,
            now,
        };
        // The root comes last: setting a dependent already creates and computes it.
        for kind in dependents.iter().chain(&[READY]) {
            if set.get(kind).is_none() {
                set.set_unknown(kind);
            }
        }
        set
    }

    /// The condition of a type.
    #[must_use]
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        find(self.conditions, kind)
    }

    /// The root.
    ///
    /// # Panics
    /// Never: opening creates it, and it cannot be cleared.
    #[must_use]
    pub fn root(&self) -> &Condition {
        self.get(READY)
            .expect("opening a condition set creates the root")
    }

    /// Whether every condition given is `True`.
    #[must_use]
    pub fn is_true(&self, kinds: &[&str]) -> bool {
        kinds
            .iter()
            .all(|kind| self.get(kind).is_some_and(|c| c.status == TRUE))
    }

    /// Sets a condition `True`, its type being the reason. Whether anything changed.
    pub fn set_true(&mut self, kind: &str) -> bool {
        self.set(kind, TRUE, kind, "")
    }

    /// Sets a condition `True` for a reason. Whether anything changed.
    pub fn set_true_with_reason(&mut self, kind: &str, reason: &str, message: &str) -> bool {
        self.set(kind, TRUE, reason, message)
    }

    /// Sets a condition `False`. Whether anything changed.
    pub fn set_false(&mut self, kind: &str, reason: &str, message: &str) -> bool {
        self.set(kind, FALSE, reason, message)
    }

    /// Sets a condition `Unknown`, as one that nobody has judged. Whether anything changed.
    pub fn set_unknown(&mut self, kind: &str) -> bool {
        self.set(
            kind,
            UNKNOWN,
            reasons::AWAITING_RECONCILIATION,
            AWAITING_MESSAGE,
        )
    }

    /// Sets a condition `Unknown` for a reason. Whether anything changed.
    pub fn set_unknown_with_reason(&mut self, kind: &str, reason: &str, message: &str) -> bool {
        self.set(kind, UNKNOWN, reason, message)
    }

    /// Removes an independent condition. Whether it existed.
    ///
    /// # Errors
    /// When the condition is the root or one of its dependents.
    pub fn clear(&mut self, kind: &str) -> Result<bool, ClearError> {
        if self.is_required(kind) {
            return Err(ClearError::Required {
                kind: kind.to_owned(),
            });
        }
        let before = self.conditions.len();
        self.conditions.retain(|c| c.type_ != kind);
        Ok(self.conditions.len() < before)
    }

    fn is_required(&self, kind: &str) -> bool {
        kind == READY || self.dependents.contains(&kind)
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) -> bool {
        let mut condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: Some(self.facts.generation),
            last_transition_time: Time(self.now),
        };
        match self.conditions.iter().position(|c| c.type_ == kind) {
            Some(ord) => {
                let old = &self.conditions[ord];
                if old.status == condition.status {
                    condition.last_transition_time = old.last_transition_time.clone();
                }
                if *old == condition {
                    return false;
                }
                self.conditions.remove(ord);
            }
            // A required condition was unknown from the object's beginning.
            None if self.is_required(kind) => {
                if let Some(created) = self.facts.created {
                    condition.last_transition_time = Time(created);
                }
            }
            None => {}
        }
        // At the end, so that among equal times the one set last comes last.
        self.conditions.push(condition);
        if self.facts.deleting {
            for other in self.conditions.iter_mut() {
                other.observed_generation = Some(self.facts.generation);
            }
        }
        self.sort();
        if kind != READY {
            self.recompute_root();
        }
        true
    }

    fn sort(&mut self) {
        self.conditions.sort_by(|a, b| {
            (a.type_ == READY, &a.last_transition_time)
                .cmp(&(b.type_ == READY, &b.last_transition_time))
        });
    }

    fn recompute_root(&mut self) {
        let generation = Some(self.facts.generation);
        let mut unhealthy: Vec<&Condition> = self
            .conditions
            .iter()
            .filter(|c| self.dependents.contains(&c.type_.as_str()))
            .filter(|c| c.status != TRUE || c.observed_generation != generation)
            .collect();
        if unhealthy.is_empty() {
            self.set_true(READY);
            return;
        }
        unhealthy.sort_by(|a, b| b.last_transition_time.cmp(&a.last_transition_time));
        let message = unhealthy
            .iter()
            .map(|c| format!("{}={}", c.type_, c.status))
            .collect::<Vec<_>>()
            .join(", ");
        let failed = unhealthy
            .iter()
            .any(|c| c.status == FALSE && c.observed_generation == generation);
        if failed {
            self.set(READY, FALSE, reasons::UNHEALTHY_DEPENDENTS, &message);
        } else {
            self.set(READY, UNKNOWN, reasons::RECONCILING_DEPENDENTS, &message);
        }
    }
}

fn whole_seconds(now: Timestamp) -> Timestamp {
    // Truncation never leaves the range; the instant itself is a harmless answer if it did.
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
