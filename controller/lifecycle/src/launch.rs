//! What an answer of the provider to a launch means for the NodeClaim.
//!
//! Source: disruption specification 1.2.

use std::collections::BTreeMap;

use millwright_model::Name;

use crate::condition::{Change, ConditionType};

/// Longest error text that a condition carries, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 300;

/// Why a launch failed, reduced to what decides the reaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchFailure {
    /// The provider has none of what was asked for.
    InsufficientCapacity,
    /// The class cannot be used now.
    NodeClassNotReady,
    /// Refused, with a reason and a message for the condition.
    Refused {
        /// CamelCase.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// Anything else.
    Other {
        /// For people; cut to [`MESSAGE_BYTES_MAX`].
        message: String,
    },
}

/// Why Millwright deletes a NodeClaim by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeleteCause {
    /// The provider has none of what was asked for.
    InsufficientCapacity,
    /// The class cannot be used now.
    NodeClassNotReady,
    /// Not launched in time.
    LaunchTimeout,
    /// Not registered in time.
    RegistrationTimeout,
    /// The instance vanished.
    GarbageCollected,
    /// Older than `expireAfter`.
    Expired,
    /// No pod needs it.
    Empty,
}

impl DeleteCause {
    /// The value of the metric label `reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InsufficientCapacity => "insufficient_capacity",
            Self::NodeClassNotReady => "nodeclass_not_ready",
            Self::LaunchTimeout => "launch_timeout",
            Self::RegistrationTimeout => "registration_timeout",
            Self::GarbageCollected => "garbage_collected",
            Self::Expired => "expired",
            Self::Empty => "empty",
        }
    }
}

/// What to do after a failed launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Delete the NodeClaim: its pods are planned again at once, elsewhere.
    GiveBack(DeleteCause),
    /// Keep it, say why, try again with back-off.
    Retry(Change),
}

/// The reaction to a failed launch. `Launched` never becomes False: a retry may still succeed.
#[must_use]
pub fn react(failure: LaunchFailure) -> Reaction {
    match failure {
        LaunchFailure::InsufficientCapacity => {
            Reaction::GiveBack(DeleteCause::InsufficientCapacity)
        }
        LaunchFailure::NodeClassNotReady => Reaction::GiveBack(DeleteCause::NodeClassNotReady),
        LaunchFailure::Refused { reason, message } => {
            Reaction::Retry(Change::unknown(ConditionType::Launched, reason, message))
        }
        LaunchFailure::Other { message } => Reaction::Retry(Change::unknown(
            ConditionType::Launched,
            "LaunchFailed",
            truncate(&message),
        )),
    }
}

/// Cuts a text to [`MESSAGE_BYTES_MAX`] bytes (at a character boundary) and marks the cut.
#[must_use]
pub fn truncate(message: &str) -> String {
    if message.len() < MESSAGE_BYTES_MAX {
        return message.to_owned();
    }
    let end = (0..=MESSAGE_BYTES_MAX)
        .rev()
        .find(|end| message.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}...", &message[..end])
}

/// Labels after a launch: the provider's, overlaid by the NodeClaim's own. Returns only what has
/// to be added.
#[must_use]
pub fn labels_to_add(
    own: &BTreeMap<Name, Name>,
    provider: &BTreeMap<Name, Name>,
) -> BTreeMap<Name, Name> {
    provider
        .iter()
        .filter(|(key, _)| !own.contains_key(*key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Status;

    #[test]
    fn stock_outs_and_unready_classes_give_the_claim_back_all_else_retries() {
        let give_back = Reaction::GiveBack;
        assert_eq!(
            react(LaunchFailure::InsufficientCapacity),
            give_back(DeleteCause::InsufficientCapacity)
        );
        assert_eq!(
            react(LaunchFailure::NodeClassNotReady),
            give_back(DeleteCause::NodeClassNotReady)
        );
        for (failure, reason, message) in [
            (
                LaunchFailure::Refused {
                    reason: "BadRole",
                    message: "m".into(),
                },
                "BadRole",
                "m",
            ),
            (
                LaunchFailure::Other {
                    message: "boom".into(),
                },
                "LaunchFailed",
                "boom",
            ),
        ] {
            let Reaction::Retry(Change::Set {
                status,
                reason: r,
                message: m,
                ..
            }) = react(failure)
            else {
                panic!("must be tried again");
            };
            assert_eq!((status, &*r, &*m), (Status::Unknown, reason, message));
        }
    }

    #[test]
    fn long_errors_are_cut_at_300_bytes_and_marked() {
        assert_eq!(truncate(&"x".repeat(299)), "x".repeat(299));
        assert_eq!(truncate(&"x".repeat(300)), "x".repeat(300) + "...");
        assert_eq!(truncate(&"x".repeat(400)).len(), 303);
        // Two bytes per character, one in front: byte 300 lies inside a character.
        let text = format!("x{}", "\u{e9}".repeat(200));
        assert_eq!(truncate(&text).len(), 299 + 3);
    }

    #[test]
    fn the_claim_s_own_labels_win_over_the_provider_s() {
        let own = [("zone".into(), "a".into())].into();
        let provider = [("zone".into(), "b".into()), ("type".into(), "m5".into())].into();
        assert_eq!(
            labels_to_add(&own, &provider),
            [("type".into(), "m5".into())].into()
        );
    }
}
