//! Equal pod specs share one allocation, so that the replicas of a Deployment are one class
//! (decision D-003).

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Weak},
};

use millwright_model::PodSpec;

/// Entries beyond which dead ones are swept; doubles as the table grows.
const FIRST_SWEEP: usize = 1024;

/// Interned specs. Holds them weakly: a spec lives as long as a pod of it does.
#[derive(Debug)]
pub struct Interner {
    by_hash: HashMap<u64, Vec<Weak<PodSpec>>>,
    hasher: RandomState,
    entries: usize,
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Self {
            by_hash: HashMap::new(),
            hasher: RandomState::new(),
            entries: 0,
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl Interner {
    /// The one allocation for `spec`.
    pub fn intern(&mut self, spec: PodSpec) -> Arc<PodSpec> {
        let hash = self.hasher.hash_one(&spec);
        let bucket = self.by_hash.entry(hash).or_default();
        if let Some(known) = bucket
            .iter()
            .filter_map(Weak::upgrade)
            .find(|known| **known == spec)
        {
            return known;
        }
        let spec = Arc::new(spec);
        bucket.push(Arc::downgrade(&spec));
        self.entries += 1;
        if self.entries > self.sweep_at {
            self.sweep();
        }
        spec
    }

    /// Number of specs in use, dead ones that were not swept yet included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether nothing was interned.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    fn sweep(&mut self) {
        self.by_hash.retain(|_, bucket| {
            bucket.retain(|spec| spec.strong_count() > 0);
            !bucket.is_empty()
        });
        self.entries = self.by_hash.values().map(Vec::len).sum();
        self.sweep_at = FIRST_SWEEP.max(self.entries.saturating_mul(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_specs_share_one_allocation_and_dead_ones_are_swept() {
        let mut interner = Interner::default();
        let spec = |n: u32| PodSpec {
            claim_volumes: n,
            ..PodSpec::default()
        };
        let kept = interner.intern(spec(0));
        assert!(Arc::ptr_eq(&kept, &interner.intern(spec(0))));
        for n in 1..5000 {
            drop(interner.intern(spec(n)));
        }
        assert!(interner.len() <= FIRST_SWEEP + 1, "{}", interner.len());
        assert!(Arc::ptr_eq(&kept, &interner.intern(spec(0))));
    }
}
