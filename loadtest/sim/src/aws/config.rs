//! What a simulated AWS account looks like and how it behaves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, RealClock};
use super::throttle::ThrottleConfig;

/// Everything that can be chosen. [`AwsSimConfig::new`] has sensible values for all of it.
#[derive(Debug, Clone)]
pub struct AwsSimConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Every identifier, delay and draw follows from it.
    pub seed: u64,
    /// Twelve digits.
    pub account: String,
    /// Instance types and prices are those of us-east-1, whatever the name.
    pub region: String,
    /// Zone letters, a subset of `abcdef` in ascending order.
    pub zones: String,
    /// The one EKS cluster.
    pub cluster: ClusterConfig,
    /// Length of the subnets' prefix, 16 to 28; there is one private subnet per zone. /19 has
    /// 8,187 addresses.
    pub subnet_prefix: u8,
    /// Names of IAM roles that exist.
    pub roles: Vec<String>,
    /// Name of the queue that receives EC2's events; without it there are none.
    pub interruption_queue: Option<String>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// How long things take.
    pub timing: Timing,
    /// Limits of the account.
    pub quotas: Quotas,
    /// Token buckets; without them there is no throttling.
    pub throttle: Option<ThrottleConfig>,
    /// Instances that each pool (type, zone, capacity type) can give; without it any number.
    pub pool_capacity: Option<u32>,
    /// Share of pools, in 1/1000, that have no capacity; which ones follows from the seed.
    pub empty_pools_per_mille: u32,
}

/// The EKS cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Name, also in the discovery tags of subnets and security groups.
    pub name: String,
    /// `1.34`.
    pub version: String,
    /// URL of the Kubernetes API.
    pub endpoint: String,
    /// Base64 of the PEM certificate authority.
    pub certificate_authority: String,
    /// Of services.
    pub service_cidr: String,
}

/// How long things take on the simulator's clock.
#[derive(Debug, Clone)]
pub struct Timing {
    /// pending to running: shortest and longest, drawn per instance.
    pub pending: (Duration, Duration),
    /// shutting-down to terminated: shortest and longest.
    pub shutting_down: (Duration, Duration),
    /// How long a terminated instance stays in descriptions. EC2: about an hour.
    pub terminated_visible: Duration,
    /// From interruption warning to reclaim. EC2: two minutes.
    pub interruption_notice: Duration,
    /// From a change to its event in the queue.
    pub event_delay: Duration,
    /// How long a new instance, launch template or instance profile stays unseen by reads.
    pub read_lag: Duration,
    /// How long a spot price is constant.
    pub spot_price_epoch: Duration,
}

/// Limits of the account. Absent means none.
#[derive(Debug, Clone, Default)]
pub struct Quotas {
    /// vCPUs of running on-demand instances.
    pub on_demand_vcpus: Option<u32>,
    /// vCPUs of running spot instances.
    pub spot_vcpus: Option<u32>,
}

/// Launch templates per region (EC2 quota).
pub(crate) const LAUNCH_TEMPLATES_MAX: usize = 5_000;

impl AwsSimConfig {
    /// An account with one cluster of a name, without throttling, lag or scarcity.
    #[must_use]
    pub fn new(cluster: impl Into<String>) -> Self {
        let name = cluster.into();
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            seed: 1,
            account: "111122223333".to_owned(),
            region: "us-east-1".to_owned(),
            zones: "abcdef".to_owned(),
            roles: vec![format!("KarpenterNodeRole-{name}")],
            interruption_queue: Some(name.clone()),
            cluster: ClusterConfig {
                name,
                version: "1.34".to_owned(),
                endpoint: "https://127.0.0.1:6443".to_owned(),
                certificate_authority: String::new(),
                service_cidr: "172.20.0.0/16".to_owned(),
            },
            subnet_prefix: 19,
            clock: Arc::new(RealClock::new()),
            timing: Timing::default(),
            quotas: Quotas::default(),
            throttle: None,
            pool_capacity: None,
            empty_pools_per_mille: 0,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            pending: (Duration::from_secs(3), Duration::from_secs(8)),
            shutting_down: (Duration::from_secs(5), Duration::from_secs(15)),
            terminated_visible: Duration::from_secs(3_600),
            interruption_notice: Duration::from_secs(120),
            event_delay: Duration::ZERO,
            read_lag: Duration::ZERO,
            spot_price_epoch: Duration::from_secs(3_600),
        }
    }
}

impl Timing {
    /// Everything at once, for tests that do not care about time.
    #[must_use]
    pub fn instant() -> Self {
        Self {
            pending: (Duration::ZERO, Duration::ZERO),
            shutting_down: (Duration::ZERO, Duration::ZERO),
            ..Self::default()
        }
    }
}
