//! Prices of a region: what is built in, what was read since, and how price lists are read.
//!
//! Source: AWS specification 15.

use std::collections::BTreeMap;

use millwright_ec2_catalogue as catalogue;
use millwright_model::{Name, NanoDollarsPerHour};
use serde_json::Value;

/// Prices by type, and by type and zone for Spot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    on_demand: BTreeMap<Name, NanoDollarsPerHour>,
    /// Type, then zone.
    spot: BTreeMap<Name, BTreeMap<Name, NanoDollarsPerHour>>,
    /// Whether Spot prices were ever read; before, the on-demand price stands in.
    spot_known: bool,
}

impl Prices {
    /// The built-in list prices (us-east-1), which also stand in for other regions until theirs
    /// have been read.
    #[must_use]
    pub fn of_catalogue() -> Self {
        let on_demand = catalogue::on_demand_prices()
            .iter()
            .map(|(name, nanos)| ((*name).into(), NanoDollarsPerHour(*nanos)))
            .collect();
        Self {
            on_demand,
            ..Self::default()
        }
    }

    /// List price of a type.
    #[must_use]
    pub fn on_demand(&self, instance_type: &str) -> Option<NanoDollarsPerHour> {
        self.on_demand.get(instance_type).copied()
    }

    /// Spot price of a type in a zone. Once Spot prices were read, a pool without one has none.
    #[must_use]
    pub fn spot(&self, instance_type: &str, zone: &str) -> Option<NanoDollarsPerHour> {
        if self.spot_known {
            self.spot.get(instance_type)?.get(zone).copied()
        } else {
            self.on_demand(instance_type)
        }
    }

    /// Takes newer list prices over older ones; answers whether anything changed.
    pub fn merge_on_demand(
        &mut self,
        prices: impl IntoIterator<Item = (Name, NanoDollarsPerHour)>,
    ) -> bool {
        let mut changed = false;
        for (name, price) in prices {
            changed |= self.on_demand.insert(name, price) != Some(price);
        }
        changed
    }

    /// Takes newer Spot prices (type, zone, price) over older ones; answers whether anything
    /// changed.
    pub fn merge_spot(
        &mut self,
        prices: impl IntoIterator<Item = (Name, Name, NanoDollarsPerHour)>,
    ) -> bool {
        let mut changed = !self.spot_known;
        self.spot_known = true;
        for (name, zone, price) in prices {
            changed |= self.spot.entry(name).or_default().insert(zone, price) != Some(price);
        }
        changed
    }
}

/// Currency of a region's price list.
#[must_use]
pub fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "CNY"
    } else {
        "USD"
    }
}

/// Region whose pricing API is asked about `region`.
#[must_use]
pub fn api_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// Whether a region has a pricing API to ask.
#[must_use]
pub fn has_api(region: &str) -> bool {
    !region.starts_with("us-gov-")
}

/// Reads one entry of a price list: the type and its price. `None` for entries that carry no
/// usable price (zero included), which the list has many of.
#[must_use]
pub fn read_entry(json: &str, currency: &str) -> Option<(Name, NanoDollarsPerHour)> {
    let entry: Value = serde_json::from_str(json).ok()?;
    let name = entry
        .pointer("/product/attributes/instanceType")?
        .as_str()?;
    let terms = entry.pointer("/terms/OnDemand")?.as_object()?;
    let price = terms
        .values()
        .filter_map(|term| term.get("priceDimensions")?.as_object())
        .flat_map(|dimensions| dimensions.values())
        .filter_map(|dimension| dimension.get("pricePerUnit")?.get(currency)?.as_str())
        .find_map(parse_price)?;
    Some((name.into(), price))
}

/// Reads a price in decimal notation; `None` for zero, which means "not sold".
#[must_use]
pub fn parse_price(text: &str) -> Option<NanoDollarsPerHour> {
    let price = NanoDollarsPerHour::from_dollars(text.trim().parse().ok()?)?;
    (price > NanoDollarsPerHour::ZERO).then_some(price)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn price(nanos: u64) -> NanoDollarsPerHour {
        NanoDollarsPerHour(nanos)
    }

    #[test]
    fn spot_stands_on_the_list_price_until_spot_prices_were_read() {
        let mut prices = Prices::of_catalogue();
        assert_eq!(
            prices.spot("m5.large", "us-east-1a"),
            Some(price(96_000_000))
        );
        assert!(prices.merge_spot([("m5.large".into(), "us-east-1a".into(), price(40))]));
        assert_eq!(prices.spot("m5.large", "us-east-1a"), Some(price(40)));
        assert_eq!(prices.spot("m5.large", "us-east-1b"), None);
        assert_eq!(prices.on_demand("m5.large"), Some(price(96_000_000)));
    }

    #[test]
    fn merging_keeps_what_the_new_list_does_not_have_and_tells_of_changes() {
        let mut prices = Prices::default();
        assert!(prices.merge_on_demand([("a".into(), price(1)), ("b".into(), price(2))]));
        assert!(!prices.merge_on_demand([("a".into(), price(1))]));
        assert!(prices.merge_on_demand([("a".into(), price(3))]));
        assert_eq!(prices.on_demand("b"), Some(price(2)));
        assert!(prices.merge_spot([]));
        assert!(!prices.merge_spot([]));
    }

    #[test]
    fn price_list_entries_are_read_by_currency() {
        let entry = |usd: &str| {
            json!({
                "product": {"attributes": {"instanceType": "m5.large"}},
                "terms": {"OnDemand": {"X": {"priceDimensions": {"Y": {
                    "pricePerUnit": {"USD": usd}
                }}}}}
            })
            .to_string()
        };
        let expected = Some(("m5.large".into(), price(96_000_000)));
        assert_eq!(read_entry(&entry("0.0960000000"), "USD"), expected);
        for bad in ["0.0000000000", "free", "-1"] {
            assert_eq!(read_entry(&entry(bad), "USD"), None, "{bad}");
        }
        assert_eq!(read_entry(&entry("1"), "CNY"), None);
        assert_eq!(read_entry("{", "USD"), None);
    }

    #[test]
    fn regions_ask_the_pricing_api_near_them() {
        for (region, api) in [
            ("us-east-1", "us-east-1"),
            ("sa-east-1", "us-east-1"),
            ("eu-west-3", "eu-central-1"),
            ("ap-northeast-1", "ap-south-1"),
            ("cn-north-1", "cn-northwest-1"),
        ] {
            assert_eq!(api_region(region), api, "{region}");
        }
        assert_eq!(currency("cn-north-1"), "CNY");
        assert!(!has_api("us-gov-west-1"));
    }
}
