//! In which order a fleet tries its pools.
//!
//! Pure. The strategies are those of EC2 Fleet's documentation; how EC2 judges the depth of a
//! Spot pool is not public, so the simulator gives each pool a depth and weighs it in.

use std::str::FromStr;

use super::super::error::ApiError;

/// An allocation strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    LowestPrice,
    Prioritized,
    Diversified,
    CapacityOptimized,
    CapacityOptimizedPrioritized,
    PriceCapacityOptimized,
}

impl FromStr for Strategy {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Self, ApiError> {
        Ok(match text {
            "lowest-price" | "lowestPrice" => Self::LowestPrice,
            "prioritized" => Self::Prioritized,
            "diversified" => Self::Diversified,
            "capacity-optimized" | "capacityOptimized" => Self::CapacityOptimized,
            "capacity-optimized-prioritized" | "capacityOptimizedPrioritized" => {
                Self::CapacityOptimizedPrioritized
            }
            "price-capacity-optimized" | "priceCapacityOptimized" => Self::PriceCapacityOptimized,
            other => {
                return Err(ApiError::value(format!(
                    "Invalid allocation strategy: {other}"
                )));
            }
        })
    }
}

/// What is known about a pool when it is ranked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Position in the request, which breaks ties.
    pub(super) index: usize,
    /// Nano-dollars per hour.
    pub(super) price: u64,
    /// Lower comes first; a pool without one comes last.
    pub(super) priority: Option<f64>,
    /// 1 (shallow) to 8 (deep).
    pub(super) depth: u64,
}

/// Sorts pools into the order in which a strategy tries them.
pub(super) fn rank(strategy: Strategy, candidates: &mut [Candidate]) {
    let priority = |candidate: &Candidate| candidate.priority.unwrap_or(f64::INFINITY);
    candidates.sort_by(|a, b| {
        let order = match strategy {
            Strategy::LowestPrice => a.price.cmp(&b.price),
            Strategy::Prioritized => priority(a).total_cmp(&priority(b)),
            // In order of the request; the spreading is done by the share of each pool.
            Strategy::Diversified => std::cmp::Ordering::Equal,
            Strategy::CapacityOptimized => b.depth.cmp(&a.depth),
            // Priorities are honoured among pools of similar depth: halves of the scale.
            Strategy::CapacityOptimizedPrioritized => (b.depth > 4)
                .cmp(&(a.depth > 4))
                .then(priority(a).total_cmp(&priority(b))),
            Strategy::PriceCapacityOptimized => weighted(a).cmp(&weighted(b)),
        };
        order.then(a.index.cmp(&b.index))
    });
}

/// The price, made up to 16/9 as high for a shallow pool.
fn weighted(candidate: &Candidate) -> u64 {
    candidate.price * 16 / (8 + candidate.depth)
}

/// Most instances that one pool gets in the first round.
pub(super) fn share(strategy: Strategy, target: u32, pools: usize) -> u32 {
    match strategy {
        Strategy::Diversified => target.div_ceil(u32::try_from(pools.max(1)).unwrap_or(u32::MAX)),
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Strategy, rank, share};

    fn ranked(strategy: &str) -> Vec<usize> {
        let candidate = |index, price, priority, depth| Candidate {
            index,
            price,
            priority,
            depth,
        };
        let mut candidates = [
            candidate(0, 100, Some(2.0), 8),
            candidate(1, 60, Some(3.0), 1),
            candidate(2, 80, Some(1.0), 5),
            candidate(3, 200, None, 8),
        ];
        rank(strategy.parse().expect("a strategy"), &mut candidates);
        candidates.iter().map(|candidate| candidate.index).collect()
    }

    #[test]
    fn each_strategy_ranks_by_its_own_measure() {
        assert_eq!(ranked("lowest-price"), [1, 2, 0, 3]);
        assert_eq!(ranked("prioritized"), [2, 0, 1, 3]);
        assert_eq!(ranked("capacity-optimized"), [0, 3, 2, 1]);
        assert_eq!(ranked("capacity-optimized-prioritized"), [2, 0, 3, 1]);
        assert_eq!(ranked("price-capacity-optimized"), [2, 0, 1, 3]);
        assert!("cheapest".parse::<Strategy>().is_err());
    }

    #[test]
    fn only_diversified_spreads() {
        assert_eq!(share(Strategy::Diversified, 10, 4), 3);
        assert_eq!(share(Strategy::LowestPrice, 10, 4), 10);
    }
}
