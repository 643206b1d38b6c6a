//! Token buckets of the API.
//!
//! EC2 counts requests per account and region in groups of actions. Each group has a bucket:
//! a size, and a rate at which it refills.

use std::collections::HashMap;

/// Size and refill of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Most tokens, which is also the content at the start.
    pub size: u32,
    /// Tokens per second.
    pub refill_per_second: u32,
}

/// The buckets. The defaults are those of EC2 for an account that never asked for more
/// (EC2 developer guide, "Request throttling").
#[derive(Debug, Clone)]
pub struct ThrottleConfig {
    /// Describe calls, together.
    pub non_mutating: Bucket,
    /// CreateFleet, CreateLaunchTemplate and other changes, together.
    pub mutating: Bucket,
    /// RunInstances calls.
    pub run_instances: Bucket,
    /// TerminateInstances calls.
    pub terminate_instances: Bucket,
    /// CreateTags calls.
    pub create_tags: Bucket,
    /// Instances launched, by RunInstances and CreateFleet; absent: not counted.
    pub launched_instances: Option<Bucket>,
}

impl Default for ThrottleConfig {
    fn default() -> Self {
        let bucket = |size, refill_per_second| Bucket {
            size,
            refill_per_second,
        };
        Self {
            non_mutating: bucket(100, 20),
            mutating: bucket(50, 5),
            run_instances: bucket(5, 2),
            terminate_instances: bucket(100, 5),
            create_tags: bucket(100, 10),
            launched_instances: None,
        }
    }
}

impl ThrottleConfig {
    /// The bucket that an EC2 action draws on, with the group's name.
    fn group(&self, action: &str) -> (&'static str, Bucket) {
        match action {
            "RunInstances" => ("run-instances", self.run_instances),
            "TerminateInstances" => ("terminate-instances", self.terminate_instances),
            "CreateTags" => ("create-tags", self.create_tags),
            _ if action.starts_with("Describe") || action.starts_with("Get") => {
                ("non-mutating", self.non_mutating)
            }
            _ => ("mutating", self.mutating),
        }
    }
}

/// The buckets' contents.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// Thousandths of tokens, and when they were counted last. At most one entry per group.
    levels: HashMap<&'static str, (u64, u64)>,
}

impl Buckets {
    /// Takes one token for a call. `false`: the call is to be refused.
    pub(crate) fn admit(&mut self, config: &ThrottleConfig, action: &str, now_ms: u64) -> bool {
        let (group, bucket) = config.group(action);
        self.take(group, bucket, 1, now_ms)
    }

    /// Takes tokens for a number of instances, all or none.
    pub(crate) fn admit_instances(
        &mut self,
        config: &ThrottleConfig,
        count: u32,
        now_ms: u64,
    ) -> bool {
        config
            .launched_instances
            .is_none_or(|bucket| self.take("launched-instances", bucket, count, now_ms))
    }

    fn take(&mut self, group: &'static str, bucket: Bucket, tokens: u32, now_ms: u64) -> bool {
        let full = u64::from(bucket.size) * 1_000;
        let (level, counted_ms) = self.levels.entry(group).or_insert((full, now_ms));
        // A token per second is a thousandth per millisecond.
        let refill = now_ms.saturating_sub(*counted_ms) * u64::from(bucket.refill_per_second);
        *level = (*level + refill).min(full);
        *counted_ms = now_ms.max(*counted_ms);
        let price = u64::from(tokens) * 1_000;
        let admitted = *level >= price;
        if admitted {
            *level -= price;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::{Buckets, ThrottleConfig};

    #[test]
    fn a_bucket_gives_its_size_at_once_and_then_its_rate() {
        let (config, mut buckets) = (ThrottleConfig::default(), Buckets::default());
        let mut admitted = |count: u32, now| {
            (0..count)
                .filter(|_| buckets.admit(&config, "CreateFleet", now))
                .count()
        };
        assert_eq!(admitted(60, 0), 50);
        assert_eq!(admitted(60, 1_000), 5);
        assert_eq!(admitted(60, 1_100), 0);
        assert_eq!(admitted(60, 1_200), 1);
        assert_eq!(admitted(60, 1_000_000), 50);
    }

    #[test]
    fn groups_do_not_share_tokens_but_their_actions_do() {
        let (config, mut buckets) = (ThrottleConfig::default(), Buckets::default());
        for _ in 0..100 {
            assert!(buckets.admit(&config, "DescribeInstances", 0));
        }
        assert!(!buckets.admit(&config, "DescribeSubnets", 0));
        assert!(buckets.admit(&config, "CreateTags", 0));
    }
}
