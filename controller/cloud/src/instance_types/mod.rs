//! Instance types as a class sees them: facts in, [`InstanceType`] values out.
//!
//! ```text
//! facts + class shape ──> labels, capacity, overhead ─┐
//! zones + subnets + prices + failures ──> offerings ──┴─> InstanceType
//! ```
//!
//! Source: AWS specification 10.2 to 13; the documented allocatable resources of all types are a
//! test here.

mod capacity;
mod labels;
mod offerings;

use std::sync::Arc;

use millwright_api::labels as keys;
use millwright_model::{
    InstanceType, Name, Operator, Requirement, Requirements, instance_type::InstanceTypes,
};

use crate::{facts::InstanceTypeFacts, shape::ClassShape};

pub use capacity::{CapacitySettings, capacity, kube_reserved, overhead, pods};
pub use offerings::{Market, is_compatible};

/// A type of the region and the zones that sell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionalType {
    /// Facts.
    pub facts: InstanceTypeFacts,
    /// Zone names, sorted.
    pub zones: Vec<Name>,
}

/// Bytes of memory seen on real nodes, by type.
pub type DiscoveredMemory = std::collections::BTreeMap<Name, i64>;

/// What instance types are computed from, beside the market.
#[derive(Clone, Copy, Debug)]
pub struct Basis<'a> {
    /// Types of the region, sorted by name.
    pub types: &'a [RegionalType],
    /// The class.
    pub shape: &'a ClassShape,
    /// Settings of the controller.
    pub settings: CapacitySettings,
    /// What nodes were found to have.
    pub discovered: &'a DiscoveredMemory,
}

/// All types of the region for a class, sorted by name. A type that the class cannot use is listed
/// with all offerings unavailable, so that explanations can name it.
#[must_use]
pub fn instance_types(basis: Basis<'_>, market: Market<'_>) -> InstanceTypes {
    let mut shared = offerings::OfferingRequirements::new();
    basis
        .types
        .iter()
        .map(|regional| Arc::new(one(basis, market, regional, &mut shared)))
        .collect()
}

fn one(
    basis: Basis<'_>,
    market: Market<'_>,
    regional: &RegionalType,
    shared: &mut offerings::OfferingRequirements,
) -> InstanceType {
    let facts = &regional.facts;
    let mut requirements = labels::fixed(facts, basis.shape, market.region);
    add_zones_and_capacity_types(&mut requirements, regional, &market);
    let discovered = basis.discovered.get(&facts.name).copied();
    InstanceType {
        name: facts.name.clone(),
        requirements,
        capacity: capacity(facts, basis.shape, basis.settings, discovered),
        overhead: overhead(facts, basis.shape, basis.settings),
        offerings: offerings::offerings(facts, basis.shape, &regional.zones, &market, shared),
    }
}

fn add_zones_and_capacity_types(
    requirements: &mut Requirements,
    regional: &RegionalType,
    market: &Market<'_>,
) {
    let usable: Vec<_> = market
        .class_zones
        .iter()
        .filter(|known| regional.zones.binary_search(&known.zone).is_ok())
        .collect();
    let zones = usable.iter().map(|known| known.zone.clone());
    requirements.replace(Requirement::new(&keys::ZONE.into(), Operator::In, zones));
    let ids: Vec<Name> = usable
        .iter()
        .filter_map(|known| known.zone_id.clone())
        .collect();
    if !ids.is_empty() {
        requirements.replace(Requirement::new(&keys::ZONE_ID.into(), Operator::In, ids));
    }
    let sold = [
        (keys::CAPACITY_TYPE_ON_DEMAND, regional.facts.on_demand),
        (keys::CAPACITY_TYPE_SPOT, regional.facts.spot),
    ];
    let names = sold
        .into_iter()
        .filter(|(_, sold)| *sold)
        .map(|(name, _)| Name::from(name));
    requirements.replace(Requirement::new(
        &keys::CAPACITY_TYPE.into(),
        Operator::In,
        names,
    ));
}

#[cfg(test)]
mod tests;
