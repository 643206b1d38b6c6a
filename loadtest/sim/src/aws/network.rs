//! Zones, subnets with their addresses, and security groups.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::config::AwsSimConfig;
use super::id::{ec2_id, hash, mix};
use super::tags::Tags;

/// An availability zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// `us-east-1a`.
    pub name: Arc<str>,
    /// `use1-az1`.
    pub id: Arc<str>,
    /// `a`, the key into the catalogue.
    pub letter: char,
}

/// A subnet.
#[derive(Debug, Clone)]
pub struct Subnet {
    /// `subnet-...`.
    pub id: Arc<str>,
    /// Its VPC.
    pub vpc_id: Arc<str>,
    /// Its zone.
    pub zone: Zone,
    /// First address and prefix length.
    pub cidr: (Ipv4Addr, u8),
    /// Instances get public addresses.
    pub public: bool,
    /// Tags.
    pub tags: Tags,
    addresses: Addresses,
}

/// A security group.
#[derive(Debug, Clone)]
pub struct SecurityGroup {
    /// `sg-...`.
    pub id: String,
    /// Unique in its VPC.
    pub name: String,
    /// For people.
    pub description: String,
    /// Its VPC.
    pub vpc_id: Arc<str>,
    /// Tags.
    pub tags: Tags,
}

/// The addresses of a subnet, all but the five that AWS keeps.
#[derive(Debug, Clone)]
struct Addresses {
    base: u32,
    size: u32,
    /// Offset of the next address that was never used.
    next: u32,
    returned: VecDeque<u32>,
}

impl Addresses {
    fn new(base: Ipv4Addr, prefix: u8) -> Self {
        let size = 1 << (32 - u32::from(prefix.clamp(16, 28)));
        // The first four and the last one are AWS's.
        Self {
            base: base.into(),
            size,
            next: 4,
            returned: VecDeque::new(),
        }
    }

    fn available(&self) -> u32 {
        // At most 65,536 addresses to a subnet.
        (self.size - 1 - self.next) + u32::try_from(self.returned.len()).unwrap_or(u32::MAX)
    }

    fn take(&mut self) -> Option<Ipv4Addr> {
        if self.next < self.size - 1 {
            self.next += 1;
            return Some(Ipv4Addr::from(self.base + self.next - 1));
        }
        self.returned.pop_front().map(Ipv4Addr::from)
    }
}

impl Subnet {
    /// Addresses that instances can still get.
    #[must_use]
    pub fn available_addresses(&self) -> u32 {
        self.addresses.available()
    }
}

/// Zones, subnets and security groups of the account.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) zones: Vec<Zone>,
    pub(crate) subnets: BTreeMap<Arc<str>, Subnet>,
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
    pub(crate) vpc_id: Arc<str>,
    seed: u64,
    subnet_prefix: u8,
}

impl Network {
    /// One VPC with a private subnet per zone and two security groups, all tagged for
    /// discovery by the cluster's name.
    pub(crate) fn new(config: &AwsSimConfig) -> Self {
        let short = short_region(&config.region);
        let zones = config.zones.chars().map(|letter| Zone {
            name: format!("{}{letter}", config.region).into(),
            id: format!(
                "{short}-az{}",
                u32::from(letter).saturating_sub(u32::from('a')) + 1
            )
            .into(),
            letter,
        });
        let mut network = Self {
            zones: zones.collect(),
            subnets: BTreeMap::new(),
            groups: BTreeMap::new(),
            vpc_id: ec2_id("vpc", mix(config.seed ^ hash("vpc"))).into(),
            seed: config.seed,
            subnet_prefix: config.subnet_prefix,
        };
        let cluster = &config.cluster.name;
        let discovery = |name: String| {
            Tags::from([
                ("Name".to_owned(), name),
                ("karpenter.sh/discovery".to_owned(), cluster.clone()),
                (
                    format!("kubernetes.io/cluster/{cluster}"),
                    "owned".to_owned(),
                ),
            ])
        };
        let vpc = network.vpc_id.clone();
        for zone in network.zones.clone() {
            network.add_subnet(
                &zone,
                &vpc,
                discovery(format!("{cluster}-private-{}", zone.letter)),
            );
        }
        for name in [
            format!("eks-cluster-sg-{cluster}"),
            format!("{cluster}-node"),
        ] {
            network.add_group(&name, &vpc, discovery(name.clone()));
        }
        network
    }

    /// Adds a private subnet and gives its id.
    pub(crate) fn add_subnet(&mut self, zone: &Zone, vpc_id: &Arc<str>, tags: Tags) -> Arc<str> {
        let ordinal = u32::try_from(self.subnets.len()).unwrap_or(u32::MAX);
        let id: Arc<str> = ec2_id(
            "subnet",
            mix(self.seed ^ hash("subnet") ^ u64::from(ordinal)),
        )
        .into();
        let prefix = self.subnet_prefix.clamp(16, 28);
        let first =
            Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (ordinal << (32 - prefix)));
        let subnet = Subnet {
            id: id.clone(),
            vpc_id: vpc_id.clone(),
            zone: zone.clone(),
            cidr: (first, prefix),
            public: false,
            tags,
            addresses: Addresses::new(first, prefix),
        };
        self.subnets.insert(id.clone(), subnet);
        id
    }

    /// Adds a security group and gives its id.
    pub(crate) fn add_group(&mut self, name: &str, vpc_id: &Arc<str>, tags: Tags) -> String {
        let id = ec2_id("sg", mix(self.seed ^ hash(name) ^ hash(vpc_id)));
        let group = SecurityGroup {
            id: id.clone(),
            name: name.to_owned(),
            description: format!("security group {name}"),
            vpc_id: vpc_id.clone(),
            tags,
        };
        self.groups.insert(id.clone(), group);
        id
    }

    pub(crate) fn zone(&self, name: &str) -> Option<&Zone> {
        self.zones
            .iter()
            .find(|zone| &*zone.name == name || &*zone.id == name)
    }

    /// Takes an address; `None` when the subnet has no more.
    pub(crate) fn take_address(&mut self, subnet: &str) -> Option<Ipv4Addr> {
        self.subnets.get_mut(subnet)?.addresses.take()
    }

    /// Gives an address back.
    pub(crate) fn return_address(&mut self, subnet: &str, address: Ipv4Addr) {
        if let Some(subnet) = self.subnets.get_mut(subnet) {
            subnet.addresses.returned.push_back(address.into());
        }
    }
}

/// `us-east-1` to `use1`, as in zone ids.
fn short_region(region: &str) -> String {
    let parts: Vec<&str> = region.split('-').collect();
    let (Some((number, names)), Some(area)) = (parts.split_last(), parts.first()) else {
        return region.to_owned();
    };
    let direction: String = names
        .iter()
        .skip(1)
        .flat_map(|name| match *name {
            "northeast" => "ne".chars(),
            "northwest" => "nw".chars(),
            "southeast" => "se".chars(),
            "southwest" => "sw".chars(),
            other => other.get(..1).unwrap_or_default().chars(),
        })
        .collect();
    format!("{area}{direction}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_ids_follow_the_region() {
        for (region, short) in [
            ("us-east-1", "use1"),
            ("ap-southeast-2", "apse2"),
            ("us-gov-west-1", "usgw1"),
        ] {
            assert_eq!(short_region(region), short);
        }
    }

    #[test]
    fn addresses_run_out_and_come_back() {
        let config = AwsSimConfig {
            subnet_prefix: 28,
            ..AwsSimConfig::new("c")
        };
        let mut network = Network::new(&config);
        let id = network.subnets.keys().next().expect("a subnet").clone();
        assert_eq!(network.subnets[&id].available_addresses(), 11);
        let taken: Vec<_> = std::iter::from_fn(|| network.take_address(&id)).collect();
        assert_eq!(taken.len(), 11);
        assert_eq!(network.subnets[&id].available_addresses(), 0);
        network.return_address(&id, taken[3]);
        assert_eq!(network.subnets[&id].available_addresses(), 1);
        assert_eq!(network.take_address(&id), Some(taken[3]));
    }

    #[test]
    fn subnets_do_not_overlap_and_carry_the_discovery_tag() {
        let network = Network::new(&AwsSimConfig::new("c"));
        let firsts: std::collections::BTreeSet<_> = network
            .subnets
            .values()
            .map(|subnet| u32::from(subnet.cidr.0) >> 13)
            .collect();
        assert_eq!(firsts.len(), 6);
        let found = |subnet: &Subnet| {
            subnet
                .tags
                .get("karpenter.sh/discovery")
                .is_some_and(|v| v == "c")
        };
        assert!(network.subnets.values().all(found));
    }
}
