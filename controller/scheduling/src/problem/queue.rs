//! The order in which pods are placed: larger first, then older, then by uid.
//!
//! Source: provisioning specification 6.5. The order depends on nothing but the pods themselves,
//! so the plan does not depend on the order of the snapshot's list.

use std::sync::Arc;

use millwright_model::{ClusterSnapshot, Pod, PodSpec, ResourceName};
use rustc_hash::FxHashMap;

use super::{Class, ClassOrd, ord};
use crate::digest::Digest;

/// A pod that waits for a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    /// Index in the snapshot.
    pub(crate) pod: u32,
    pub(crate) class: ClassOrd,
    /// Stands for the uid in hashes of plans.
    pub(crate) uid_digest: u64,
    /// Whether an earlier plan gave it a node.
    pub(crate) planned: bool,
}

/// The pods of a snapshot by distinct spec.
#[derive(Debug)]
pub(crate) struct Intake<'a> {
    snapshot: &'a ClusterSnapshot,
    /// Distinct specs.
    pub(crate) specs: Vec<&'a PodSpec>,
    /// By pod: index of its spec.
    spec_of_pod: Vec<u32>,
}

/// Sorts by size, age, uid. The uid's first bytes decide almost always; the whole text is read
/// when they are equal.
type Key = (u32, i64, u64, u32);

impl<'a> Intake<'a> {
    /// Groups by pointer first, because ingest interns specs; by value where it did not.
    pub(crate) fn new(snapshot: &'a ClusterSnapshot) -> Self {
        let mut by_pointer: FxHashMap<*const PodSpec, u32> = FxHashMap::default();
        let mut by_value: FxHashMap<&PodSpec, u32> = FxHashMap::default();
        let mut specs = Vec::new();
        let mut spec_of_pod = Vec::with_capacity(snapshot.pods.len());
        for pod in snapshot.pods.iter() {
            let spec: &'a PodSpec = &pod.spec;
            let at = *by_pointer.entry(Arc::as_ptr(&pod.spec)).or_insert_with(|| {
                *by_value.entry(spec).or_insert_with(|| {
                    specs.push(spec);
                    ord(specs.len() - 1)
                })
            });
            spec_of_pod.push(at);
        }
        Self {
            snapshot,
            specs,
            spec_of_pod,
        }
    }

    /// The queue, and the pods that are invalid.
    pub(crate) fn queue(
        self,
        classes: &[Class<'_>],
        class_of_spec: &[ClassOrd],
    ) -> (Vec<Queued>, Vec<u32>) {
        let ranks = size_ranks(classes);
        let mut rejected = Vec::new();
        let mut keys: Vec<(Key, Queued)> = Vec::with_capacity(self.spec_of_pod.len());
        for (at, pod) in self.snapshot.pods.iter().enumerate() {
            if !pod.rejections.is_empty() {
                rejected.push(ord(at));
                continue;
            }
            let class = class_of_spec[self.spec_of_pod[at] as usize];
            let key = (
                ranks[class as usize],
                pod.created_at.0,
                uid_prefix(pod),
                ord(at),
            );
            let planned = pod.planned_on.is_some();
            let uid_digest = Digest::of(&pod.uid);
            keys.push((
                key,
                Queued {
                    pod: ord(at),
                    class,
                    uid_digest,
                    planned,
                },
            ));
        }
        let uid = |at: u32| self.snapshot.pods.get(at as usize).map(|pod| &pod.uid);
        keys.sort_unstable_by(|(a, _), (b, _)| {
            let decided = (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2));
            decided.then_with(|| uid(a.3).cmp(&uid(b.3)))
        });
        (
            keys.into_iter().map(|(_, queued)| queued).collect(),
            rejected,
        )
    }
}

/// By class: the rank of its size, larger sizes first; equal sizes have equal ranks.
fn size_ranks(classes: &[Class<'_>]) -> Vec<u32> {
    let size = |class: &Class<'_>| {
        let requests = &class.spec.requests;
        (
            requests.get(&ResourceName::Cpu),
            requests.get(&ResourceName::Memory),
        )
    };
    let mut sizes: Vec<(i64, i64)> = classes.iter().map(size).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    let rank = |class| {
        let own = size(class);
        ord(sizes.partition_point(|other| *other > own))
    };
    classes.iter().map(rank).collect()
}

fn uid_prefix(pod: &Pod) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(pod.uid.as_str().bytes()) {
        *to = from;
    }
    u64::from_be_bytes(bytes)
}
