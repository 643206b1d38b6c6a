//! How many instances each pool can still give.
//!
//! A pool is an instance type in a zone with a capacity type. Pools are unlimited unless the
//! configuration or a rule says otherwise; a limited pool falls with launches and rises with
//! terminations. Rules can use `*` and later rules win, so a test can say "no Spot of m5 in
//! zone a" in one line.

use std::collections::HashMap;

use super::config::AwsSimConfig;
use super::id::{hash, mix};

/// How an instance is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CapacityType {
    /// Regular.
    OnDemand,
    /// Can be reclaimed.
    Spot,
}

impl CapacityType {
    /// `on-demand`, `spot`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        }
    }
}

/// Which pools a rule is about; an absent part means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolPattern {
    /// Instance type; a trailing `*` matches a prefix (`m5.*`).
    pub instance_type: Option<String>,
    /// Zone name.
    pub zone: Option<String>,
    /// Capacity type.
    pub capacity_type: Option<CapacityType>,
}

impl PoolPattern {
    fn matches(&self, pool: &PoolKey) -> bool {
        let type_fits =
            self.instance_type
                .as_deref()
                .is_none_or(|pattern| match pattern.strip_suffix('*') {
                    Some(prefix) => pool.0.starts_with(prefix),
                    None => pool.0 == pattern,
                });
        type_fits
            && self.zone.as_deref().is_none_or(|zone| zone == pool.1)
            && self
                .capacity_type
                .is_none_or(|capacity_type| capacity_type == pool.2)
    }
}

/// Instance type, zone, capacity type.
type PoolKey = (&'static str, String, CapacityType);

/// An error that a pool answers with instead of instances.
#[derive(Debug, Clone)]
struct PoolError {
    pattern: PoolPattern,
    code: String,
    message: String,
    /// Launches that still fail; `None`: until removed.
    left: Option<u32>,
}

/// Most rules and scripted errors kept; older ones are dropped.
const RULES_MAX: usize = 10_000;

/// The pools.
#[derive(Debug)]
pub(crate) struct Capacity {
    rules: Vec<(PoolPattern, Option<u32>)>,
    errors: Vec<PoolError>,
    /// Free instances of limited pools that were used; at most one entry per offering.
    free: HashMap<PoolKey, u32>,
    default: Option<u32>,
    empty_per_mille: u64,
    seed: u64,
}

impl Capacity {
    pub(crate) fn new(config: &AwsSimConfig) -> Self {
        Self {
            rules: Vec::new(),
            errors: Vec::new(),
            free: HashMap::new(),
            default: config.pool_capacity,
            empty_per_mille: u64::from(config.empty_pools_per_mille),
            seed: config.seed,
        }
    }

    /// Sets what the matching pools can give from now on; `None` is unlimited.
    pub(crate) fn set(&mut self, pattern: PoolPattern, free: Option<u32>) {
        self.free.retain(|pool, _| !pattern.matches(pool));
        self.rules.retain(|(known, _)| *known != pattern);
        if self.rules.len() >= RULES_MAX {
            self.rules.remove(0);
        }
        self.rules.push((pattern, free));
    }

    /// Makes launches from the matching pools fail with a code.
    pub(crate) fn fail(
        &mut self,
        pattern: PoolPattern,
        code: String,
        message: String,
        times: Option<u32>,
    ) {
        if times == Some(0) {
            return;
        }
        if self.errors.len() >= RULES_MAX {
            self.errors.remove(0);
        }
        self.errors.push(PoolError {
            pattern,
            code,
            message,
            left: times,
        });
    }

    /// The scripted error of a pool, if there is one; counts it.
    pub(crate) fn scripted_error(
        &mut self,
        instance_type: &'static str,
        zone: &str,
        capacity_type: CapacityType,
    ) -> Option<(String, String)> {
        let pool = (instance_type, zone.to_owned(), capacity_type);
        let at = self
            .errors
            .iter()
            .position(|error| error.pattern.matches(&pool))?;
        let error = self.errors.get_mut(at)?;
        let answer = (error.code.clone(), error.message.clone());
        if let Some(left) = &mut error.left {
            *left -= 1;
            if *left == 0 {
                self.errors.remove(at);
            }
        }
        Some(answer)
    }

    /// Instances that a pool can give now; `None`: any number.
    pub(crate) fn free(
        &self,
        instance_type: &'static str,
        zone: &str,
        capacity_type: CapacityType,
    ) -> Option<u32> {
        let pool = (instance_type, zone.to_owned(), capacity_type);
        self.free
            .get(&pool)
            .copied()
            .or_else(|| self.initial(&pool))
    }

    fn initial(&self, pool: &PoolKey) -> Option<u32> {
        if let Some((_, free)) = self
            .rules
            .iter()
            .rev()
            .find(|(pattern, _)| pattern.matches(pool))
        {
            return *free;
        }
        let draw = mix(self.seed ^ hash(pool.0) ^ hash(&pool.1).rotate_left(9) ^ pool.2 as u64);
        if draw % 1_000 < self.empty_per_mille {
            Some(0)
        } else {
            self.default
        }
    }

    /// Takes instances from a pool; the caller has looked at [`Capacity::free`].
    pub(crate) fn take(
        &mut self,
        instance_type: &'static str,
        zone: &str,
        capacity_type: CapacityType,
        count: u32,
    ) {
        if let Some(free) = self.free(instance_type, zone, capacity_type) {
            let pool = (instance_type, zone.to_owned(), capacity_type);
            self.free.insert(pool, free.saturating_sub(count));
        }
    }

    /// Gives one instance back to its pool.
    pub(crate) fn give_back(
        &mut self,
        instance_type: &'static str,
        zone: &str,
        capacity_type: CapacityType,
    ) {
        if let Some(free) = self
            .free
            .get_mut(&(instance_type, zone.to_owned(), capacity_type))
        {
            *free += 1;
        }
    }

    /// How deep a pool is, 1 (shallow) to 8 (deep), for the strategies that weigh capacity.
    /// A limited pool's depth is what is left of it.
    pub(crate) fn depth(
        &self,
        instance_type: &'static str,
        zone: &str,
        capacity_type: CapacityType,
    ) -> u64 {
        match self.free(instance_type, zone, capacity_type) {
            Some(free) => u64::from((free + 1).ilog2() + 1).min(8),
            None => 1 + mix(self.seed ^ hash(instance_type).rotate_left(3) ^ hash(zone)) % 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CapacityType::{OnDemand, Spot};
    use super::{Capacity, PoolPattern};
    use crate::aws::config::AwsSimConfig;

    fn pattern(instance_type: &str) -> PoolPattern {
        PoolPattern {
            instance_type: Some(instance_type.to_owned()),
            ..PoolPattern::default()
        }
    }

    #[test]
    fn pools_fall_and_rise_and_later_rules_win() {
        let mut capacity = Capacity::new(&AwsSimConfig::new("c"));
        assert_eq!(capacity.free("m5.large", "z", Spot), None);
        capacity.set(pattern("m5.*"), Some(0));
        capacity.set(pattern("m5.large"), Some(3));
        assert_eq!(capacity.free("m5.xlarge", "z", Spot), Some(0));
        capacity.take("m5.large", "z", Spot, 2);
        assert_eq!(capacity.free("m5.large", "z", Spot), Some(1));
        assert_eq!(capacity.free("m5.large", "z", OnDemand), Some(3));
        capacity.give_back("m5.large", "z", Spot);
        assert_eq!(capacity.free("m5.large", "z", Spot), Some(2));
        capacity.set(PoolPattern::default(), None);
        assert_eq!(capacity.free("m5.large", "z", Spot), None);
    }

    #[test]
    fn scripted_errors_end_after_their_number() {
        let mut capacity = Capacity::new(&AwsSimConfig::new("c"));
        capacity.fail(
            pattern("m5.large"),
            "UnfulfillableCapacity".to_owned(),
            String::new(),
            Some(2),
        );
        let mut failed = || capacity.scripted_error("m5.large", "z", Spot).is_some();
        assert_eq!([failed(), failed(), failed()], [true, true, false]);
    }

    #[test]
    fn scarcity_follows_from_the_seed() {
        let config = AwsSimConfig {
            empty_pools_per_mille: 300,
            ..AwsSimConfig::new("c")
        };
        let capacity = Capacity::new(&config);
        let zones: Vec<String> = (0..1_000).map(|n| format!("zone-{n}")).collect();
        let empty = zones
            .iter()
            .filter(|z| capacity.free("m5.large", z, Spot) == Some(0))
            .count();
        assert!(
            (200..400).contains(&empty),
            "{empty} of 1,000 pools are empty"
        );
    }
}
