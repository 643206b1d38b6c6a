//! What can go wrong at the provider, in kinds that decide what happens next.

use std::{error::Error, sync::Arc};

/// The closed list of kinds; each has one reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloudErrorKind {
    /// The instance does not exist (any more): a deletion has succeeded.
    NodeClaimNotFound,
    /// The provider has none of what was asked for: give the claim back, plan around it at once.
    InsufficientCapacity,
    /// The node class cannot be used now: give the claim back, wait for the class.
    NodeClassNotReady,
    /// Too many calls: slow down, try again.
    Throttled,
    /// The credentials do not allow the call: report it, try again slowly.
    Unauthorized,
    /// The launch was refused for a reason that a retry will not change by itself.
    Create,
    /// A hiccup of network or service: try again with back-off.
    Transient,
    /// An answer that the adapter does not understand.
    Bug,
}

/// An error of the provider.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    /// Decides the reaction.
    pub kind: CloudErrorKind,
    /// Condition reason for people, CamelCase (`InsufficientFreeAddressesInSubnet`, ...).
    pub reason: &'static str,
    /// Names the operation and the thing; lower case, no full stop.
    pub message: String,
    /// The cause, if there is one; its text is not repeated in `message`.
    #[source]
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl CloudError {
    /// An error without a deeper cause.
    pub fn new(kind: CloudErrorKind, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            reason,
            message: message.into(),
            source: None,
        }
    }
}
