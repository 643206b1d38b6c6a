//! Synthetic spot prices.
//!
//! Real ones cannot be embedded (they change by the hour and differ by account), but tests,
//! the simulated EC2 and offline plans need prices of the right size that differ between zones and
//! move slowly. So they are made by hashing: a base discount per type and zone, and a small
//! step per epoch.

use crate::TypeFacts;

/// The share of the on-demand price, in 1/1000: lowest base, number of bases, and the
/// largest step to either side in one epoch. Together 300 to 450, which is where the bulk of
/// real spot prices lies.
const BASE_MIN_PER_MILLE: u64 = 310;
const BASE_SPAN_PER_MILLE: u64 = 131;
const STEP_MAX_PER_MILLE: u64 = 10;

/// The spot price of a type in a zone (suffix letter) during an epoch, in nano-dollars per
/// hour; `None` when the type is not offered there as Spot.
///
/// Deterministic. Lies between 30 % and 45 % of the on-demand price, moves by at most two
/// points from epoch to epoch, and is constant within one. The caller defines what an epoch is.
#[must_use]
pub fn spot_price(facts: &TypeFacts, zone: char, epoch: u64) -> Option<u64> {
    if !facts.spot_supported || !facts.zones.contains(zone) {
        return None;
    }
    let pool = hash(
        facts
            .name
            .bytes()
            .chain(zone.encode_utf8(&mut [0; 4]).bytes()),
    );
    let step = hash(pool.to_le_bytes().into_iter().chain(epoch.to_le_bytes()));
    let per_mille =
        BASE_MIN_PER_MILLE + pool % BASE_SPAN_PER_MILLE + step % (2 * STEP_MAX_PER_MILLE + 1)
            - STEP_MAX_PER_MILLE;
    Some(facts.on_demand_price / 1_000 * per_mille)
}

/// FNV-1a with a final mix: stable across machines and releases, unlike the standard hasher.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    let folded = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (folded ^ (folded >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::spot_price;
    use crate::{by_name, facts};

    #[test]
    fn every_pool_costs_between_30_and_45_percent_of_on_demand() {
        for facts in facts().iter().filter(|facts| facts.spot_supported) {
            for (zone, epoch) in facts
                .zones
                .chars()
                .flat_map(|zone| [(zone, 0), (zone, 480_000)])
            {
                let price = spot_price(facts, zone, epoch).expect("offered");
                let per_mille = price * 1_000 / facts.on_demand_price;
                assert!(
                    (299..=450).contains(&per_mille),
                    "{} {zone}: {per_mille}",
                    facts.name
                );
            }
        }
    }

    #[test]
    fn prices_differ_by_zone_and_move_with_the_epoch() {
        let m5 = by_name("m5.large").expect("known");
        let at = |zone, epoch| spot_price(m5, zone, epoch);
        assert_eq!(at('a', 7), at('a', 7));
        assert!(m5.zones.chars().any(|zone| at(zone, 7) != at('a', 7)));
        assert!((8..40).any(|epoch| at('a', epoch) != at('a', 7)));
    }

    #[test]
    fn a_zone_without_the_type_has_no_price() {
        let m5 = by_name("m5.large").expect("known");
        assert_eq!(spot_price(m5, 'z', 1), None);
    }
}
