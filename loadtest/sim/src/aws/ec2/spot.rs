//! Prices, and DescribeSpotPriceHistory.

use millwright_ec2_catalogue::{TypeFacts, facts, spot_price};

use super::super::capacity::CapacityType;
use super::super::clock::{iso, millis};
use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::network::Zone;
use super::super::page::Limits;
use super::super::tags::Tags;
use super::super::world::World;
use super::Call;

/// Products that a pool has a price for.
const PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

/// Epochs of history that can be asked for at most: enough for a day of hours.
const HISTORY_MAX: u64 = 24;

/// A price that a pool had from a time on.
struct Price {
    facts: &'static TypeFacts,
    zone: Zone,
    product: &'static str,
    nano_dollars: u64,
    since_ms: u64,
}

impl Filterable for Price {
    const NAMES: &'static [&'static str] = &[
        "availability-zone",
        "availability-zone-id",
        "instance-type",
        "product-description",
        "spot-price",
        "timestamp",
    ];

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match name {
            "availability-zone" => test(&self.zone.name),
            "availability-zone-id" => test(&self.zone.id),
            "instance-type" => test(self.facts.name),
            "product-description" => test(self.product),
            "spot-price" => test(&dollars(self.nano_dollars)),
            _ => test(&iso(self.since_ms)),
        }
    }
}

/// Six decimals, as EC2 writes prices, rounded down.
fn dollars(nano_dollars: u64) -> String {
    format!(
        "{}.{:06}",
        nano_dollars / 1_000_000_000,
        nano_dollars % 1_000_000_000 / 1_000
    )
}

/// What an instance of a pool costs now, in nano-dollars per hour; `None` if the pool does not
/// exist.
pub(crate) fn price(
    world: &World,
    facts: &'static TypeFacts,
    zone: &Zone,
    capacity_type: CapacityType,
) -> Option<u64> {
    match capacity_type {
        CapacityType::OnDemand => facts
            .zones
            .contains(zone.letter)
            .then_some(facts.on_demand_price),
        CapacityType::Spot => spot_price(facts, zone.letter, world.now_ms / epoch_ms(world)),
    }
}

fn epoch_ms(world: &World) -> u64 {
    millis(world.config.timing.spot_price_epoch).max(1)
}

/// The epochs a request asks for: the current one, and older ones back to StartTime.
fn epochs(
    call: &Call<'_>,
    now_ms: u64,
    epoch_ms: u64,
) -> Result<std::ops::RangeInclusive<u64>, ApiError> {
    let current = now_ms / epoch_ms;
    let Some(start) = call.params.text("StartTime") else {
        return Ok(current.saturating_sub(HISTORY_MAX - 1)..=current);
    };
    let start: jiff::Timestamp = start
        .parse()
        .map_err(|_| ApiError::value(format!("Invalid value '{start}' for StartTime.")))?;
    let start_ms = u64::try_from(start.as_millisecond()).unwrap_or(0);
    // The price in force at the start is part of the answer.
    let first = (start_ms / epoch_ms).min(current);
    Ok(first.max(current.saturating_sub(HISTORY_MAX - 1))..=current)
}

pub(super) fn describe_price_history(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Price>(call.params, false)?;
    // EC2 takes larger sizes, and gives pages of a thousand.
    let mut page = call.page(
        "DescribeSpotPriceHistory",
        Limits {
            min: 1,
            max: usize::MAX,
            default: 1_000,
        },
    )?;
    page.limit = page.limit.min(1_000);
    let types = call.params.texts("InstanceType");
    let products = call.params.texts("ProductDescription");
    let (zones, now_ms, epoch_ms) = {
        let world = call.world();
        (world.network.zones.clone(), world.now_ms, epoch_ms(&world))
    };
    let zone_name = call.params.text("AvailabilityZone");
    let epochs = epochs(call, now_ms, epoch_ms)?;
    call.rehearse()?;
    let pools = facts()
        .iter()
        .filter(|facts| types.is_empty() || types.contains(&facts.name))
        .flat_map(|facts| zones.iter().map(move |zone| (facts, zone)))
        .filter(|(_, zone)| zone_name.is_none_or(|name| name == &*zone.name));
    let prices = pools.flat_map(|(facts, zone)| {
        let products = &products;
        epochs.clone().rev().flat_map(move |epoch| {
            let price = spot_price(facts, zone.letter, epoch);
            PRODUCTS
                .into_iter()
                .filter(|product| products.is_empty() || products.contains(product))
                .filter_map(move |product| {
                    let (nano_dollars, since_ms) = (price?, epoch * epoch_ms);
                    Some(Price {
                        facts,
                        zone: zone.clone(),
                        product,
                        nano_dollars,
                        since_ms,
                    })
                })
        })
    });
    let (prices, token) = page.of_list(prices.filter(|price| filters.accept(price)));
    Ok(call.reply(|xml| {
        xml.list("spotPriceHistorySet", prices, |xml, price| {
            xml.text("instanceType", price.facts.name);
            xml.text("productDescription", price.product);
            xml.text("spotPrice", &dollars(price.nano_dollars));
            xml.text("timestamp", &iso(price.since_ms));
            xml.text("availabilityZone", &price.zone.name);
            xml.text("availabilityZoneId", &price.zone.id);
        });
        // This call ends with an empty token, not without one.
        xml.text("nextToken", token.as_deref().unwrap_or_default());
    }))
}

#[cfg(test)]
mod tests {
    use super::dollars;

    #[test]
    fn prices_have_six_decimals() {
        assert_eq!(dollars(36_480_000), "0.036480");
        assert_eq!(dollars(12_000_000_999), "12.000000");
    }
}
