//! Where and how a type is sold to a class, at what price, and whether a launch may be tried.
//!
//! Source: AWS specification 13.

use std::collections::BTreeMap;

use millwright_api::{
    ec2_node_class::{AmiFamily, InterfaceType},
    labels as keys,
};
use millwright_model::{
    CapacityType, Name, NanoDollarsPerHour, Offering, Operator, Requirement, Requirements,
    Timestamp,
};

use crate::{
    facts::InstanceTypeFacts,
    pricing::Prices,
    shape::{ClassShape, ClassZone},
    unavailable::UnavailableOfferings,
};

/// The market that offerings are read from, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Market<'a> {
    /// Region name.
    pub region: &'a str,
    /// Zones that the class can launch into, sorted.
    pub class_zones: &'a [ClassZone],
    /// Prices.
    pub prices: &'a Prices,
    /// Offerings that failed lately.
    pub unavailable: &'a UnavailableOfferings,
    /// The moment.
    pub now: Timestamp,
}

/// Requirements of offerings, one per (zone, capacity type): equal for all types of a list, so
/// they are built once.
pub(super) struct OfferingRequirements {
    by_pool: BTreeMap<(Name, CapacityType), Requirements>,
}

impl OfferingRequirements {
    pub(super) fn new() -> Self {
        Self {
            by_pool: BTreeMap::new(),
        }
    }

    fn get(
        &mut self,
        zone: &Name,
        capacity_type: CapacityType,
        zone_id: Option<&Name>,
    ) -> Requirements {
        self.by_pool
            .entry((zone.clone(), capacity_type))
            .or_insert_with(|| requirements(zone, capacity_type, zone_id))
            .clone()
    }
}

fn requirements(zone: &Name, capacity_type: CapacityType, zone_id: Option<&Name>) -> Requirements {
    let absent = |key: &str| Requirement::new(&key.into(), Operator::DoesNotExist, []);
    let mut requirements: Requirements = [
        Requirement::label(&keys::ZONE.into(), zone),
        Requirement::label(&keys::CAPACITY_TYPE.into(), &capacity_type.as_str().into()),
        absent(keys::RESERVATION_ID),
        absent(keys::RESERVATION_INTERRUPTIBLE),
        absent(keys::RESERVATION_TYPE),
    ]
    .into_iter()
    .collect();
    if let Some(zone_id) = zone_id {
        requirements.add(Requirement::label(&keys::ZONE_ID.into(), zone_id));
    }
    requirements
}

/// Offerings of one type, ordered by zone, then capacity type. `sold_in`: zones of the region that
/// sell the type, sorted. An offering in a zone without a subnet of the class is listed as
/// unavailable, and so is one without a price.
pub(super) fn offerings(
    facts: &InstanceTypeFacts,
    shape: &ClassShape,
    sold_in: &[Name],
    market: &Market<'_>,
    shared: &mut OfferingRequirements,
) -> Vec<Offering> {
    let usable = is_compatible(facts, shape);
    let capacity_types = [
        (CapacityType::Spot, facts.spot),
        (CapacityType::OnDemand, facts.on_demand),
    ];
    let mut offerings = Vec::with_capacity(sold_in.len() * 2);
    for zone in sold_in {
        let class_zone = market.class_zones.iter().find(|known| known.zone == *zone);
        let zone_id = class_zone.and_then(|known| known.zone_id.as_ref());
        for (capacity_type, sold) in capacity_types {
            if !sold {
                continue;
            }
            let price = match capacity_type {
                CapacityType::Spot => market.prices.spot(&facts.name, zone),
                CapacityType::OnDemand | CapacityType::Reserved => {
                    market.prices.on_demand(&facts.name)
                }
            };
            let failed_lately =
                market
                    .unavailable
                    .is_unavailable(&facts.name, zone, capacity_type, market.now);
            offerings.push(Offering {
                zone: zone.clone(),
                capacity_type,
                requirements: shared.get(zone, capacity_type, zone_id),
                price: price.unwrap_or(NanoDollarsPerHour::MAX),
                available: usable && class_zone.is_some() && price.is_some() && !failed_lately,
                reservation_capacity: None,
            });
        }
    }
    offerings
}

/// Whether the class can be launched on the type at all.
#[must_use]
pub fn is_compatible(facts: &InstanceTypeFacts, shape: &ClassShape) -> bool {
    // The first Arm generation has no image of the newer Amazon Linux.
    let has_image = !(shape.family == AmiFamily::AL2023 && facts.name.starts_with("a1."));
    let nests = !shape.nested_virtualization
        || facts
            .processor
            .as_ref()
            .is_some_and(|p| p.features.iter().any(|f| &**f == "nested-virtualization"));
    let tracks = !shape.connection_tracking || &*facts.hypervisor == "nitro";
    has_image && nests && tracks && takes_interfaces(facts, shape)
}

fn takes_interfaces(facts: &InstanceTypeFacts, shape: &ClassShape) -> bool {
    if shape.network_interfaces.is_empty() {
        return true;
    }
    let slots = shape.network_interfaces.iter().all(|interface| {
        let card = usize::try_from(interface.network_card_index).ok();
        let limit = card
            .and_then(|card| facts.network_cards.get(card))
            .copied()
            .unwrap_or(0);
        u32::try_from(interface.device_index).is_ok_and(|device| device < limit)
    });
    let efa_only = InterfaceType::EfaOnly;
    let adapters = shape
        .network_interfaces
        .iter()
        .filter(|i| i.interface_type == efa_only)
        .count();
    facts.ena && slots && u32::try_from(adapters).is_ok_and(|count| count <= facts.max_efa)
}
