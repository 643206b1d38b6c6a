//! Carrying out plans: the only place that creates NodeClaims.

mod claim;
mod provision;

pub use claim::{LAUNCH_GROUP, node_claim};
pub use provision::{Provisioned, confirm_claims, provision, withdraw_idle_claims};

#[cfg(test)]
mod tests;
