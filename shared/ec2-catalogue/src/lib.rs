//! Facts about EC2 instance types, embedded: shapes, network limits, list prices, zones.
//!
//! It is the static price fallback of the AWS provider, the stock of the simulated EC2, and
//! the yardstick of tests (documented allocatable resources). It must not know Kubernetes,
//! the AWS SDK, clocks or files: the table is part of the binary and is parsed once, on
//! first use.
//!
//! Properties: [`facts`] is sorted by name without duplicates; every number is an integer
//! with its unit in its name; the same arguments give the same spot price on every machine.
//! The table's origin and licence stand beside it in `data/NOTICE`.

mod derived;
mod spot;
mod table;

pub use derived::CpuManufacturer;
pub use spot::spot_price;
pub use table::{Accelerator, Allocatable, Architecture, Gpu, Hypervisor, TypeFacts};

use std::sync::LazyLock;

struct Catalogue {
    /// Types of known shape, sorted by name.
    types: Vec<TypeFacts>,
    /// Every priced type, sorted by name, with its price.
    prices: Vec<(&'static str, u64)>,
}

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    let (types, prices) = table::parse(include_str!("../data/us-east-1.csv"));
    Catalogue { types, prices }
});

/// Every type whose shape is known, sorted by name.
///
/// Retired types of which only the price is known are left out; see [`on_demand_price`].
#[must_use]
pub fn facts() -> &'static [TypeFacts] {
    &CATALOGUE.types
}

/// The facts about one type, for example `m5.large`. Cost: a binary search.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static TypeFacts> {
    let types = facts();
    let at = types.binary_search_by(|facts| facts.name.cmp(name)).ok()?;
    types.get(at)
}

/// On-demand Linux list prices of us-east-1 in nano-dollars per hour, sorted by type name.
///
/// Has more types than [`facts`]: the price of a retired type is known although its shape is not.
#[must_use]
pub fn on_demand_prices() -> &'static [(&'static str, u64)] {
    &CATALOGUE.prices
}

/// The on-demand Linux list price of one type in nano-dollars per hour.
#[must_use]
pub fn on_demand_price(name: &str) -> Option<u64> {
    let prices = on_demand_prices();
    let at = prices
        .binary_search_by(|(known, _)| (*known).cmp(name))
        .ok()?;
    prices.get(at).map(|(_, price)| *price)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_sorted_and_unique() {
        assert!(facts().windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(
            on_demand_prices()
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0)
        );
    }

    #[test]
    fn counts_are_those_of_the_table() {
        assert_eq!(on_demand_prices().len(), 1_367);
        assert_eq!(facts().len(), 1_346);
        let zoned: Vec<_> = facts()
            .iter()
            .filter(|facts| !facts.zones.is_empty())
            .collect();
        assert_eq!(zoned.len(), 1_235);
        let pools: usize = zoned.iter().map(|facts| facts.zones.len()).sum();
        assert_eq!(pools, 5_658);
        let spot: usize = zoned
            .iter()
            .filter(|facts| facts.spot_supported)
            .map(|facts| facts.zones.len())
            .sum();
        assert_eq!(pools + spot, 11_238);
        let arm = facts()
            .iter()
            .filter(|facts| facts.architecture == Architecture::Arm64)
            .count();
        assert_eq!(arm, 396);
    }

    #[test]
    fn well_known_types_have_their_documented_values() {
        let m5 = by_name("m5.large").expect("m5.large is in the table");
        assert_eq!(
            (m5.vcpu, m5.memory_mib, m5.network_mbps),
            (2, 8_192, Some(750))
        );
        assert_eq!(m5.on_demand_price, 96_000_000);
        assert_eq!(
            m5.allocatable,
            Some(Allocatable {
                cpu_millis: 1_930,
                memory_mib: 6_903,
                pods: 29
            })
        );
        let millis = |name| {
            by_name(name)
                .and_then(|facts| facts.allocatable)
                .map(|a| a.cpu_millis)
        };
        assert_eq!(millis("t3.xlarge"), Some(3_920));
        assert_eq!(millis("t3.2xlarge"), Some(7_910));
    }

    #[test]
    fn accelerators_keep_their_kind() {
        let gpu = by_name("p4d.24xlarge")
            .and_then(|facts| facts.gpu)
            .expect("p4d has GPUs");
        assert_eq!((gpu.name, gpu.count), ("a100", 8));
        let neuron = by_name("inf2.xlarge").and_then(|facts| facts.accelerator);
        assert_eq!(
            neuron,
            Some(Accelerator {
                name: "inferentia2",
                count: 1
            })
        );
    }

    #[test]
    fn a_retired_type_has_a_price_but_no_shape() {
        assert!(by_name("p2.xlarge").is_none());
        assert_eq!(on_demand_price("p2.xlarge"), Some(900_000_000));
        assert_eq!(on_demand_price("zz.large"), None);
    }
}
