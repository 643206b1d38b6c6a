//! When each NodeClaim was last compared with its Node.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millwright_api::NodeClaim;
use millwright_lifecycle::{
    ObservedClaim,
    consistency::{Consistency, SCAN_EVERY, check},
};
use millwright_model::Timestamp;

use super::observe;
use crate::context::now;

/// Times of the last scans by uid; bounded by the number of NodeClaims.
#[derive(Debug, Default)]
pub(super) struct Scans(Mutex<HashMap<String, Timestamp>>);

impl Scans {
    /// Compares a claim with its Node, at most once in [`SCAN_EVERY`]. The time counts even if
    /// there is no Node, so that a claim without one waits a full period.
    pub(super) fn check(
        &self,
        claim: &NodeClaim,
        observed: &ObservedClaim,
        nodes: &[Arc<Node>],
    ) -> Consistency {
        let nothing = Consistency {
            issues: Vec::new(),
            change: None,
        };
        if observed.provider_id.is_none() || !self.is_due(&claim.uid().unwrap_or_default()) {
            return nothing;
        }
        match nodes {
            [node] => check(observed, &observe::node(node)),
            _ => nothing,
        }
    }

    fn is_due(&self, uid: &str) -> bool {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = times
            .get(uid)
            .is_none_or(|last| now().since(*last) >= SCAN_EVERY);
        if due {
            times.insert(uid.to_owned(), now());
        }
        due
    }

    /// Forgets a claim that is gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.remove(uid);
    }
}
