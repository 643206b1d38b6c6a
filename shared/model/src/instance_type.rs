//! What the provider sells: instance types, and their offerings by zone and capacity type.
//!
//! Source: provisioning specification 6.2.

use std::{fmt, sync::Arc};

use crate::{
    ids::Name,
    labels,
    money::NanoDollarsPerHour,
    requirement::Requirement,
    requirements::Requirements,
    resources::{ResourceName, Resources},
};

/// How capacity is bought. Ordered as launches prefer it: reserved, spot, on-demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityType {
    /// Paid already, through a capacity reservation.
    Reserved,
    /// Spare capacity that may be taken back.
    Spot,
    /// List price, kept until given back.
    OnDemand,
}

impl CapacityType {
    /// The value of the label `karpenter.sh/capacity-type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// Reads the label value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Reserved, Self::Spot, Self::OnDemand]
            .into_iter()
            .find(|c| c.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An instance type in one zone with one capacity type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offering {
    /// Zone name, the value of `topology.kubernetes.io/zone`.
    pub zone: Name,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Everything the offering fixes or allows: zone, capacity type, zone id, reservation id.
    pub requirements: Requirements,
    /// Price per hour.
    pub price: NanoDollarsPerHour,
    /// Whether a launch may be tried: false while the provider is known to have none.
    pub available: bool,
    /// Instances left in the reservation, for reserved offerings.
    pub reservation_capacity: Option<u32>,
}

impl Offering {
    /// An offering that fixes zone and capacity type and nothing else.
    #[must_use]
    pub fn new(zone: Name, capacity_type: CapacityType, price: NanoDollarsPerHour) -> Self {
        let requirements = [
            Requirement::label(&labels::ZONE.into(), &zone),
            Requirement::label(
                &labels::CAPACITY_TYPE.into(),
                &capacity_type.as_str().into(),
            ),
        ]
        .into_iter()
        .collect();
        Self {
            zone,
            capacity_type,
            requirements,
            price,
            available: true,
            reservation_capacity: None,
        }
    }
}

/// A shape that can be bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceType {
    /// Name, unique in a catalogue.
    pub name: Name,
    /// The labels a node of this type can carry; every well-known key is defined, as
    /// `DoesNotExist` where it does not apply.
    pub requirements: Requirements,
    /// Resources before overhead.
    pub capacity: Resources,
    /// What system daemons and the eviction threshold take.
    pub overhead: Resources,
    /// Where and how it is sold; ordered by zone, then capacity type.
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// What pods can use: capacity less overhead, and less huge pages in the case of memory,
    /// never below zero.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        let mut allocatable = self.capacity.clone();
        allocatable.subtract(&self.overhead);
        let huge: i64 = self
            .capacity
            .iter()
            .filter(|(n, _)| n.is_huge_pages())
            .map(|(_, a)| a)
            .sum();
        if huge > 0 {
            let memory = allocatable.get(&ResourceName::Memory).saturating_sub(huge);
            allocatable.set(ResourceName::Memory, memory);
        }
        allocatable.clamp_to_zero();
        allocatable
    }

    /// The cheapest available offering that `requirements` allow; ties go to the first.
    #[must_use]
    pub fn cheapest(&self, requirements: &Requirements) -> Option<&Offering> {
        self.offerings
            .iter()
            .filter(|offering| {
                offering.available
                    && requirements
                        .compatible(&offering.requirements, labels::is_well_known)
                        .is_ok()
            })
            .min_by_key(|offering| offering.price)
    }
}

/// A provider's list for one NodePool, shared by every snapshot that uses it.
pub type InstanceTypes = Arc<[Arc<InstanceType>]>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocatable_loses_overhead_and_huge_pages_but_never_goes_below_zero() {
        let instance_type = InstanceType {
            name: "x".into(),
            requirements: Requirements::new(),
            capacity: Resources::of(2000, 4 << 30).with("hugepages-2Mi".into(), 1 << 30),
            overhead: Resources::of(2100, 1 << 30),
            offerings: Vec::new(),
        };
        let allocatable = instance_type.allocatable();
        assert_eq!(allocatable.get(&ResourceName::Cpu), 0);
        assert_eq!(allocatable.get(&ResourceName::Memory), 2 << 30);
    }
}
