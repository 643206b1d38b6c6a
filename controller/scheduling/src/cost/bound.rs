//! A lower bound on what the pods of a plan's new nodes cost.
//!
//! Prices for resources under which no type of any NodePool is a bargain give a bound by weak
//! duality: a node is worth at most what it costs, so all pods together are worth at most what
//! their nodes cost. Prices come from a linear program in doubles, the proof is in integers.
//!
//! Pods that are bound to dear offerings count more: a pod's worth may be raised until, for every
//! type that can hold it, a node full of such worth costs what the type costs *for this pod*. A
//! node costs at least what its most restricted pod makes it cost, so the bound stays true.

use std::collections::BTreeMap;

use millwright_model::NanoDollarsPerHour;

use super::simplex::maximise;
use crate::{
    draft::Bin,
    problem::{Problem, ShapeOrd},
    shard::Component,
    signature::{Join, Signatures},
};

/// Resource prices are held in units of 2^-40 nano-dollars: bytes are cheap.
const SCALE_BITS: u32 = 40;

/// A type of a template, with its least price.
struct Row {
    template: usize,
    at: usize,
    price: u64,
}

/// No set of new nodes, of any NodePool, that holds the pods of `bins` costs less per hour.
pub(crate) fn lower_bound<'p>(
    problem: &'p Problem<'p>,
    component: &Component,
    signatures: &mut Signatures<'p>,
    bins: &[Bin],
) -> NanoDollarsPerHour {
    let mut counts: BTreeMap<ShapeOrd, i128> = BTreeMap::new();
    for (_, shape) in bins.iter().flat_map(|bin| &bin.pods) {
        *counts.entry(*shape).or_default() += 1;
    }
    let mut rows: Vec<Row> = Vec::new();
    for template in component.templates.iter().copied() {
        let Some(root) = signatures.root(template, None) else {
            continue;
        };
        let priced = signatures.by_price(root);
        rows.extend(priced.iter().map(|p| Row {
            template,
            at: p.at,
            price: p.price.0,
        }));
    }
    let prices = resource_prices(problem, &counts, &rows);
    let mut bound: i128 = 0;
    for (shape, count) in &counts {
        let worth = worth(problem, component, signatures, *shape, &prices);
        bound = bound.saturating_add(worth.saturating_mul(*count));
    }
    NanoDollarsPerHour(u64::try_from(bound).unwrap_or(0))
}

fn room<'p>(problem: &'p Problem<'_>, template: usize, at: usize) -> &'p [i64] {
    let stride = problem.dimensions.stride();
    &problem.templates[template].room[at * stride..][..stride]
}

/// By dimension, in units of 2^-40 nano-dollars.
fn resource_prices(
    problem: &Problem<'_>,
    counts: &BTreeMap<ShapeOrd, i128>,
    rows: &[Row],
) -> Vec<i128> {
    let stride = problem.dimensions.stride();
    let mut demand = vec![0_i128; stride];
    for (shape, count) in counts {
        for (demand, amount) in demand.iter_mut().zip(problem.shape(*shape).requests.iter()) {
            *demand += i128::from(*amount) * count;
        }
    }
    let used: Vec<usize> = (0..stride).filter(|at| demand[*at] > 0).collect();
    let scale: Vec<f64> = used.iter().map(|at| wide(demand[*at])).collect();
    let dearest = rows
        .iter()
        .map(|row| wide(row.price.into()))
        .fold(1.0, f64::max);
    // Undominated rows suffice for the program; the proof looks at what pods may really use.
    let lines: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let room = room(problem, row.template, row.at);
            let price = wide(row.price.into()).max(1.0) / dearest;
            let share = |(at, scale): (&usize, &f64)| wide(room[*at].into()) / scale / price;
            used.iter().zip(&scale).map(share).collect()
        })
        .collect();
    let optimum = maximise(
        &vec![1.0; used.len()],
        &lines,
        &vec![1.0; lines.len()],
        50 * stride,
    );
    let mut prices = vec![0; stride];
    for ((at, scale), price) in used.iter().zip(&scale).zip(&optimum.prices) {
        prices[*at] = whole(price * dearest / scale * wide(1 << SCALE_BITS));
    }
    prices
}

/// What one pod of a shape is worth under resource prices, in nano-dollars, rounded down.
fn worth<'p>(
    problem: &'p Problem<'p>,
    component: &Component,
    signatures: &mut Signatures<'p>,
    shape: ShapeOrd,
    prices: &[i128],
) -> i128 {
    let dot = |row: &[i64]| -> i128 {
        row.iter()
            .zip(prices)
            .map(|(amount, price)| i128::from(*amount) * price)
            .sum()
    };
    let shape = problem.shape(shape);
    let own = dot(&shape.requests);
    let mut least: Option<i128> = None;
    for template in component.templates.iter().copied() {
        let Some(root) = signatures.root(template, None) else {
            continue;
        };
        let home = match signatures.join(root, shape.requirements) {
            Join::Into(home) => home,
            // Some other pod may open this template for it, at a price that nobody knows here.
            Join::NotYet => return 0,
            Join::Never | Join::Unknown => continue,
        };
        for priced in signatures.fitting(home, &shape.requests) {
            let whole = dot(room(problem, template, priced.at));
            // `own <= whole`, and prices of nodes are far below 2^40 nano-dollars.
            let share =
                (own >> 20).saturating_mul(i128::from(priced.price.0)) / ((whole >> 20) + 1);
            least = Some(least.map_or(share, |least| least.min(share)));
        }
    }
    least.unwrap_or(0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the program is approximate, the proof is exact"
)]
const fn wide(amount: i128) -> f64 {
    amount as f64
}

#[expect(clippy::cast_possible_truncation, reason = "casts of doubles saturate")]
const fn whole(amount: f64) -> i128 {
    amount as i128
}
