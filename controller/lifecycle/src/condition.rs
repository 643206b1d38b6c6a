//! Conditions as the rules see and change them.
//!
//! The engine that stores them (transition times, the derived `Ready`, order) belongs to the API
//! types; here is only what decisions read and what they ask to be changed.
//!
//! Source: disruption specification 0.3 and 0.4.

use std::{borrow::Cow, collections::BTreeMap};

use millwright_model::Timestamp;

/// Reason of a condition that nobody has decided yet.
pub const AWAITING: &str = "AwaitingReconciliation";

/// Condition types of NodeClaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The instance was created.
    Launched,
    /// The Node joined and was synced.
    Registered,
    /// The Node is ready for pods.
    Initialized,
    /// `consolidateAfter` has elapsed.
    Consolidatable,
    /// The node must be replaced.
    Drifted,
    /// The node's shape matches what was promised.
    ConsistentStateFound,
    /// A voluntary disruption has begun; the reason says why.
    DisruptionReason,
    /// Pods are gone.
    Drained,
    /// Volumes are detached.
    VolumesDetached,
    /// The instance is being terminated.
    InstanceTerminating,
}

impl ConditionType {
    /// All types, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Launched,
        Self::Registered,
        Self::Initialized,
        Self::Consolidatable,
        Self::Drifted,
        Self::ConsistentStateFound,
        Self::DisruptionReason,
        Self::Drained,
        Self::VolumesDetached,
        Self::InstanceTerminating,
    ];

    /// The type as the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Launched => "Launched",
            Self::Registered => "Registered",
            Self::Initialized => "Initialized",
            Self::Consolidatable => "Consolidatable",
            Self::Drifted => "Drifted",
            Self::ConsistentStateFound => "ConsistentStateFound",
            Self::DisruptionReason => "DisruptionReason",
            Self::Drained => "Drained",
            Self::VolumesDetached => "VolumesDetached",
            Self::InstanceTerminating => "InstanceTerminating",
        }
    }

    /// Reads the API's spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether `Ready` derives from it: such a condition is never cleared, and while it is
    /// missing it reads as Unknown since the object's creation.
    #[must_use]
    pub const fn is_dependent(self) -> bool {
        matches!(self, Self::Launched | Self::Registered | Self::Initialized)
    }
}

/// Truth of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not decided.
    Unknown,
}

/// A condition as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Truth.
    pub status: Status,
    /// Reason for machines.
    pub reason: String,
    /// Message for people.
    pub message: String,
    /// Since when the status is what it is.
    pub since: Timestamp,
}

/// The conditions of one object. A missing one reads as Unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    entries: BTreeMap<ConditionType, Condition>,
}

impl Conditions {
    /// The condition, if it is stored.
    #[must_use]
    pub fn get(&self, kind: ConditionType) -> Option<&Condition> {
        self.entries.get(&kind)
    }

    /// The status; Unknown when missing.
    #[must_use]
    pub fn status(&self, kind: ConditionType) -> Status {
        self.get(kind)
            .map_or(Status::Unknown, |condition| condition.status)
    }

    /// Whether the condition is True.
    #[must_use]
    pub fn is_true(&self, kind: ConditionType) -> bool {
        self.status(kind) == Status::True
    }

    /// Since when the status holds; `created_at` of the object while the condition is missing.
    #[must_use]
    pub fn since(&self, kind: ConditionType, created_at: Timestamp) -> Timestamp {
        self.get(kind)
            .map_or(created_at, |condition| condition.since)
    }

    /// Stores a condition.
    pub fn insert(&mut self, kind: ConditionType, condition: Condition) {
        self.entries.insert(kind, condition);
    }

    /// Applies a change the way the engine will, so that later rules of one pass see it.
    pub fn apply(&mut self, change: &Change, now: Timestamp) {
        match change {
            Change::Clear(kind) => {
                self.entries.remove(kind);
            }
            Change::Set {
                kind,
                status,
                reason,
                message,
            } => {
                let since = match self.entries.get(kind) {
                    Some(old) if old.status == *status => old.since,
                    _ => now,
                };
                let condition = Condition {
                    status: *status,
                    reason: reason.to_string(),
                    message: message.clone(),
                    since,
                };
                self.entries.insert(*kind, condition);
            }
        }
    }
}

/// A change to make. Setting what is already set is harmless: the engine ignores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Set a condition at the object's present generation.
    Set {
        /// Which.
        kind: ConditionType,
        /// Truth.
        status: Status,
        /// Reason, CamelCase.
        reason: Cow<'static, str>,
        /// Message.
        message: String,
    },
    /// Remove an independent condition.
    Clear(ConditionType),
}

impl Change {
    /// Sets True with the type as reason and no message.
    #[must_use]
    pub const fn holds(kind: ConditionType) -> Self {
        Self::Set {
            kind,
            status: Status::True,
            reason: Cow::Borrowed(kind.as_str()),
            message: String::new(),
        }
    }

    /// Sets Unknown with a reason.
    #[must_use]
    pub fn unknown(
        kind: ConditionType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self::Set {
            kind,
            status: Status::Unknown,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Sets False with a reason.
    #[must_use]
    pub fn fails(
        kind: ConditionType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self::Set {
            kind,
            status: Status::False,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Sets a decided condition again as it stands: refreshes its observed generation.
    #[must_use]
    pub fn restamp(kind: ConditionType, condition: &Condition) -> Self {
        Self::Set {
            kind,
            status: condition.status,
            reason: condition.reason.clone().into(),
            message: condition.message.clone(),
        }
    }

    /// The type that changes.
    #[must_use]
    pub const fn kind(&self) -> ConditionType {
        match self {
            Self::Set { kind, .. } | Self::Clear(kind) => *kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_reads_back_and_only_the_three_of_ready_are_dependent() {
        for kind in ConditionType::ALL {
            assert_eq!(ConditionType::parse(kind.as_str()), Some(kind));
        }
        let dependent = ConditionType::ALL
            .into_iter()
            .filter(|kind| kind.is_dependent())
            .count();
        assert_eq!(dependent, 3);
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = Conditions::default();
        let kind = ConditionType::Registered;
        conditions.apply(&Change::unknown(kind, "A", ""), Timestamp(1));
        conditions.apply(&Change::unknown(kind, "B", ""), Timestamp(2));
        assert_eq!(conditions.since(kind, Timestamp(0)), Timestamp(1));
        conditions.apply(&Change::holds(kind), Timestamp(3));
        assert_eq!(conditions.since(kind, Timestamp(0)), Timestamp(3));
    }
}
