//! Owners of pods: how many pods each wants, how many exist, and so whether a batch is complete
//! (decision D-007).

use std::collections::HashMap;

use k8s_openapi::api::{
    apps::v1::{ReplicaSet, StatefulSet},
    batch::v1::Job,
};
use millwright_model::Name;

/// Whether more pods are to come from the owners of the pods that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Every owner of a waiting pod has as many pods as it wants.
    Complete,
    /// Some owner has fewer pods than it wants.
    Incomplete,
    /// No owner is known to be short, but some pods have an owner that we know nothing about.
    Unknown,
}

/// Wanted and seen pods by the owner's uid.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    wanted: HashMap<Name, i64>,
    seen: HashMap<Name, i64>,
    /// Waiting pods by owner; only owners with at least one are present.
    waiting: HashMap<Option<Name>, i64>,
}

impl Owners {
    pub(crate) fn want(&mut self, uid: &str, pods: i64) {
        self.wanted.insert(uid.into(), pods);
    }

    pub(crate) fn forget(&mut self, uid: &str) {
        self.wanted.remove(uid);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.wanted.retain(|uid, _| keep(uid));
    }

    /// Counts a pod of `owner` in or out.
    pub(crate) fn count(&mut self, owner: Option<&Name>, is_waiting: bool, by: i64) {
        if let Some(uid) = owner {
            add(&mut self.seen, uid.clone(), by);
        }
        if is_waiting {
            add(&mut self.waiting, owner.cloned(), by);
        }
    }

    /// Whether the counts are those of these pods.
    pub(crate) fn counts<'a>(&self, pods: impl Iterator<Item = (Option<&'a Name>, bool)>) -> bool {
        let mut counted = Self::default();
        for (owner, is_waiting) in pods {
            counted.count(owner, is_waiting, 1);
        }
        counted.seen == self.seen && counted.waiting == self.waiting
    }

    pub(crate) fn completeness(&self) -> Completeness {
        let mut result = Completeness::Complete;
        for owner in self.waiting.keys() {
            let counts = owner
                .as_ref()
                .and_then(|uid| Some((self.wanted.get(uid)?, self.seen.get(uid).unwrap_or(&0))));
            match counts {
                Some((wanted, seen)) if seen < wanted => return Completeness::Incomplete,
                Some(_) => {}
                None => result = Completeness::Unknown,
            }
        }
        result
    }
}

fn add<K: std::hash::Hash + Eq>(map: &mut HashMap<K, i64>, key: K, by: i64) {
    let count = map.entry(key);
    if let std::collections::hash_map::Entry::Occupied(mut entry) = count {
        *entry.get_mut() += by;
        if *entry.get() == 0 {
            entry.remove();
        }
    } else {
        count.or_insert(by);
    }
}

/// Pods that a ReplicaSet wants at once.
#[must_use]
pub fn wanted_by_replica_set(set: &ReplicaSet) -> i64 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
        .into()
}

/// Pods that a StatefulSet wants at once; one that starts its pods in order wants no more than it
/// has, because the next pod comes only when the last one runs.
#[must_use]
pub fn wanted_by_stateful_set(set: &StatefulSet) -> i64 {
    let parallel = set
        .spec
        .as_ref()
        .and_then(|spec| spec.pod_management_policy.as_deref())
        == Some("Parallel");
    if parallel {
        set.spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1)
            .into()
    } else {
        0
    }
}

/// Pods that a Job wants at once.
#[must_use]
pub fn wanted_by_job(job: &Job) -> i64 {
    let spec = job.spec.as_ref();
    if spec.and_then(|spec| spec.suspend) == Some(true) {
        return 0;
    }
    let parallelism: i64 = spec.and_then(|spec| spec.parallelism).unwrap_or(1).into();
    let done: i64 = job
        .status
        .as_ref()
        .and_then(|status| status.succeeded)
        .unwrap_or(0)
        .into();
    match spec.and_then(|spec| spec.completions) {
        Some(completions) => parallelism.min(i64::from(completions) - done).max(0),
        None => parallelism,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_complete_when_every_owner_has_the_pods_it_wants() {
        let mut owners = Owners::default();
        let set: Name = "set".into();
        owners.want("set", 2);
        owners.count(Some(&set), true, 1);
        assert_eq!(owners.completeness(), Completeness::Incomplete);
        owners.count(Some(&set), false, 1);
        assert_eq!(owners.completeness(), Completeness::Complete);
        owners.count(None, true, 1);
        assert_eq!(owners.completeness(), Completeness::Unknown);
        owners.count(None, true, -1);
        owners.count(Some(&set), true, -1);
        owners.count(Some(&set), false, -1);
        assert_eq!(owners.completeness(), Completeness::Complete);
    }
}
