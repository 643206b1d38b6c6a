//! Instance types without an account: the embedded us-east-1 list, for planning offline.

use millwright_api::Ec2NodeClass;
use millwright_ec2_catalogue as catalogue;
use millwright_model::{Name, NanoDollarsPerHour, Timestamp, instance_type::InstanceTypes};

use crate::{
    instance_types::{
        Basis, CapacitySettings, DiscoveredMemory, Market, RegionalType, instance_types,
    },
    pricing::Prices,
    shape::{ClassShape, ClassZone},
    unavailable::UnavailableOfferings,
};

/// Region of the embedded list.
pub const REGION: &str = "us-east-1";
/// Suffix letters of the region's zones. Zone `a` has the id `use1-az1`, and so on.
pub const ZONE_LETTERS: &str = "abcdef";
/// Spot prices of the list are made by hashing; offline plans use one epoch, so that the same
/// manifests cost the same tomorrow.
const SPOT_EPOCH: u64 = 0;

/// The embedded types as a class sees them: all zones of us-east-1, list prices, synthetic Spot
/// prices, everything in stock. Sorted by name. A type whose zones are not known has no offerings.
#[must_use]
pub fn embedded_instance_types(class: &Ec2NodeClass) -> InstanceTypes {
    let types = regional_types();
    let mut prices = Prices::of_catalogue();
    prices.merge_spot(spot_prices());
    let zones: Vec<ClassZone> = (1..)
        .zip(ZONE_LETTERS.chars())
        .map(|(number, letter)| ClassZone {
            zone: zone(letter),
            zone_id: Some(format!("use1-az{number}").into()),
        })
        .collect();
    let basis = Basis {
        types: &types,
        shape: &ClassShape::from(class),
        settings: CapacitySettings::default(),
        discovered: &DiscoveredMemory::new(),
    };
    let market = Market {
        region: REGION,
        class_zones: &zones,
        prices: &prices,
        unavailable: &UnavailableOfferings::default(),
        now: Timestamp(0),
    };
    instance_types(basis, market)
}

/// The embedded types with the zones that sell them, sorted by name.
#[must_use]
pub fn regional_types() -> Vec<RegionalType> {
    catalogue::facts()
        .iter()
        .map(|facts| RegionalType {
            facts: facts.into(),
            zones: facts.zones.chars().map(zone).collect(),
        })
        .collect()
}

fn spot_prices() -> impl Iterator<Item = (Name, Name, NanoDollarsPerHour)> {
    catalogue::facts().iter().flat_map(|facts| {
        facts.zones.chars().filter_map(|letter| {
            let nanos = catalogue::spot_price(facts, letter, SPOT_EPOCH)?;
            Some((facts.name.into(), zone(letter), NanoDollarsPerHour(nanos)))
        })
    })
}

fn zone(letter: char) -> Name {
    format!("{REGION}{letter}").into()
}

#[cfg(test)]
mod tests {
    use millwright_api::{Ec2NodeClassSpec, ec2_node_class::AmiSelectorTerm};
    use millwright_model::{CapacityType, Requirements};

    use super::*;

    fn class() -> Ec2NodeClass {
        let term = AmiSelectorTerm {
            alias: "al2023@latest".to_owned(),
            ..Default::default()
        };
        let spec = Ec2NodeClassSpec {
            ami_selector_terms: vec![term],
            ..Default::default()
        };
        Ec2NodeClass::new("default", spec)
    }

    #[test]
    fn the_list_is_sorted_complete_and_for_sale() {
        let types = embedded_instance_types(&class());
        assert_eq!(types.len(), catalogue::facts().len());
        assert!(types.windows(2).all(|pair| pair[0].name < pair[1].name));
        let offerings = types.iter().flat_map(|t| &t.offerings).count();
        assert_eq!(offerings, 11_238);
        for instance_type in types.iter().filter(|t| !t.name.starts_with("a1.")) {
            assert!(
                instance_type.offerings.iter().all(|o| o.available),
                "{}",
                instance_type.name
            );
            assert!(
                instance_type
                    .allocatable()
                    .iter()
                    .all(|(_, amount)| amount >= 0)
            );
        }
    }

    #[test]
    fn spot_is_cheaper_than_on_demand_everywhere() {
        let types = embedded_instance_types(&class());
        let m5 = types
            .iter()
            .find(|t| &*t.name == "m5.large")
            .expect("m5.large");
        let cheapest = m5.cheapest(&Requirements::new()).expect("sold");
        assert_eq!(cheapest.capacity_type, CapacityType::Spot);
        for offering in &m5.offerings {
            let list = NanoDollarsPerHour(96_000_000);
            match offering.capacity_type {
                CapacityType::Spot => assert!(offering.price < list),
                _ => assert_eq!(offering.price, list),
            }
        }
    }

    #[test]
    fn two_calls_give_equal_lists() {
        assert_eq!(
            embedded_instance_types(&class()),
            embedded_instance_types(&class())
        );
    }
}
