//! Offerings that the provider lately had none of, and for how long they are left alone.
//!
//! Source: AWS specification 14. A pool that fails again soon after it came back rests longer each
//! time, so that a launch does not stumble over the same pool every few minutes.

use std::collections::BTreeMap;

use millwright_model::{CapacityType, Name, Span, Timestamp};

/// First rest of an offering.
const REST_FIRST: Span = Span::from_secs(180);
/// Longest rest: capacity must come back within minutes once it exists.
const REST_LONGEST: Span = Span::from_secs(720);
/// A subnet or capacity type rests for a fixed time.
const REST_OTHERS: Span = REST_FIRST;
/// How long after its rest an offering must stay well for its next failure to count as the first.
const MEMORY: Span = Span::from_secs(600);
/// Offerings remembered at most. A region has about 12,000; more would be a leak.
const LIMIT: usize = 65_536;

/// One offering: (type, zone, capacity type).
type Key = (Name, Name, CapacityType);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    until: Timestamp,
    /// Length of this rest, from which the next one follows.
    length: Span,
    /// Whether the end of this rest has been counted in the epoch.
    over: bool,
}

/// Recent failures. Time comes in with every call; entries end by themselves.
#[derive(Clone, Debug, Default)]
pub struct UnavailableOfferings {
    offerings: BTreeMap<Key, Rest>,
    capacity_types: BTreeMap<CapacityType, Timestamp>,
    subnets: BTreeMap<Name, Timestamp>,
    epoch: u64,
    /// Marks that found the cache full and pushed an older entry out.
    evicted: u64,
}

impl UnavailableOfferings {
    /// Marks an offering as failed at `now`; answers for how long it rests.
    pub fn mark(
        &mut self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        now: Timestamp,
    ) -> Span {
        let key = (instance_type.into(), zone.into(), capacity_type);
        let length = match self.offerings.get(&key) {
            // Several answers about the same stock-out are one failure.
            Some(rest) if now < rest.until => rest.length,
            Some(rest) if now < rest.until + MEMORY => {
                Span::from_millis(rest.length.as_millis().saturating_mul(2)).min(REST_LONGEST)
            }
            Some(_) | None => REST_FIRST,
        };
        self.make_room(now);
        self.offerings.insert(
            key,
            Rest {
                until: now + length,
                length,
                over: false,
            },
        );
        self.epoch += 1;
        length
    }

    /// Marks everything of a capacity type.
    pub fn mark_capacity_type(&mut self, capacity_type: CapacityType, now: Timestamp) {
        self.capacity_types.insert(capacity_type, now + REST_OTHERS);
        self.epoch += 1;
    }

    /// Marks a subnet that has run out of addresses.
    pub fn mark_subnet(&mut self, subnet: &str, now: Timestamp) {
        self.subnets.insert(subnet.into(), now + REST_OTHERS);
        self.epoch += 1;
    }

    /// Whether a launch of the offering should not be tried now.
    #[must_use]
    pub fn is_unavailable(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        now: Timestamp,
    ) -> bool {
        let rests = |until: &Timestamp| now < *until;
        self.capacity_types.get(&capacity_type).is_some_and(rests)
            || (!self.offerings.is_empty() && {
                let key = (instance_type.into(), zone.into(), capacity_type);
                self.offerings
                    .get(&key)
                    .is_some_and(|rest| rests(&rest.until))
            })
    }

    /// Whether a subnet is known to have no addresses.
    #[must_use]
    pub fn is_subnet_exhausted(&self, subnet: &str, now: Timestamp) -> bool {
        self.subnets.get(subnet).is_some_and(|until| now < *until)
    }

    /// Counts rests that have ended and forgets what no longer matters; answers the epoch, which
    /// has changed if and only if an answer of the other methods may have.
    pub fn sweep(&mut self, now: Timestamp) -> u64 {
        let mut ended = 0;
        self.offerings.retain(|_, rest| {
            if rest.until <= now && !rest.over {
                rest.over = true;
                ended += 1;
            }
            now < rest.until + MEMORY
        });
        let before = self.capacity_types.len() + self.subnets.len();
        self.capacity_types.retain(|_, until| now < *until);
        self.subnets.retain(|_, until| now < *until);
        let after = self.capacity_types.len() + self.subnets.len();
        if ended > 0 || before != after {
            self.epoch += 1;
        }
        self.epoch
    }

    /// Number of offerings remembered, and how many were pushed out by the limit so far.
    #[must_use]
    pub fn size(&self) -> (usize, u64) {
        (self.offerings.len(), self.evicted)
    }

    fn make_room(&mut self, now: Timestamp) {
        if self.offerings.len() < LIMIT {
            return;
        }
        self.sweep(now);
        if self.offerings.len() >= LIMIT {
            let first = self.offerings.iter().min_by_key(|(_, rest)| rest.until);
            if let Some(key) = first.map(|(key, _)| key.clone()) {
                self.offerings.remove(&key);
                self.evicted += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPOT: CapacityType = CapacityType::Spot;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000)
    }

    fn is_out(cache: &UnavailableOfferings, seconds: i64) -> bool {
        cache.is_unavailable("m5.large", "a", SPOT, at(seconds))
    }

    #[test]
    fn a_marked_offering_rests_and_comes_back_and_its_neighbours_stay() {
        let mut cache = UnavailableOfferings::default();
        cache.mark("m5.large", "a", SPOT, at(0));
        assert!(is_out(&cache, 0) && is_out(&cache, 179) && !is_out(&cache, 180));
        assert!(!cache.is_unavailable("m5.large", "b", SPOT, at(0)));
        assert!(!cache.is_unavailable("m5.xlarge", "a", SPOT, at(0)));
        assert!(!cache.is_unavailable("m5.large", "a", CapacityType::OnDemand, at(0)));
    }

    #[test]
    fn repeated_failures_rest_longer_up_to_the_limit_and_are_forgiven_in_time() {
        let mut cache = UnavailableOfferings::default();
        let mut mark = |seconds| cache.mark("m5.large", "a", SPOT, at(seconds)).as_millis() / 1_000;
        assert_eq!(mark(0), 180);
        assert_eq!(mark(10), 180, "the same stock-out, seen twice");
        assert_eq!(mark(200), 360);
        assert_eq!(mark(600), 720);
        assert_eq!(mark(1_400), 720);
        assert_eq!(mark(1_400 + 720 + 601), 180);
    }

    #[test]
    fn the_epoch_moves_with_every_mark_and_every_end_and_not_otherwise() {
        let mut cache = UnavailableOfferings::default();
        let start = cache.sweep(at(0));
        cache.mark("m5.large", "a", SPOT, at(0));
        let marked = cache.sweep(at(1));
        assert!(marked > start);
        assert_eq!(cache.sweep(at(179)), marked);
        let ended = cache.sweep(at(180));
        assert!(ended > marked);
        assert_eq!(cache.sweep(at(10_000)), ended);
        assert_eq!(cache.size().0, 0);
    }

    #[test]
    fn capacity_types_and_subnets_rest_as_a_whole() {
        let mut cache = UnavailableOfferings::default();
        cache.mark_capacity_type(SPOT, at(0));
        cache.mark_subnet("subnet-1", at(0));
        assert!(is_out(&cache, 1));
        assert!(!cache.is_unavailable("m5.large", "a", CapacityType::OnDemand, at(1)));
        assert!(cache.is_subnet_exhausted("subnet-1", at(1)));
        assert!(!cache.is_subnet_exhausted("subnet-2", at(1)));
        let before = cache.sweep(at(1));
        assert!(cache.sweep(at(181)) > before);
        assert!(!is_out(&cache, 181) && !cache.is_subnet_exhausted("subnet-1", at(181)));
    }

    #[test]
    fn the_cache_never_holds_more_than_its_limit() {
        let mut cache = UnavailableOfferings::default();
        for n in 0..i64::try_from(LIMIT).expect("small") + 3 {
            cache.mark(&format!("t{n}"), "a", SPOT, Timestamp(n));
        }
        assert_eq!(cache.size(), (LIMIT, 3));
        assert!(!cache.is_unavailable("t0", "a", SPOT, Timestamp(70_000)));
        assert!(cache.is_unavailable("t70", "a", SPOT, Timestamp(70_000)));
    }
}
