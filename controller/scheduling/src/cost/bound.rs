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
use rustc_hash::FxHashMap;

use super::simplex::maximise;
use crate::{
    draft::Bin,
    problem::{Problem, ShapeOrd, fits},
    shard::Component,
    signature::{Join, Priced, SignatureOrd, Signatures},
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
    let mut bargains = Bargains {
        prices: &prices,
        by_signature: FxHashMap::default(),
    };
    let mut bound: i128 = 0;
    for (shape, count) in &counts {
        let worth = bargains.worth(problem, component, signatures, *shape);
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

/// The types of each signature, best bargain first: least price for the worth of their room.
struct Bargains<'b> {
    prices: &'b [i128],
    by_signature: FxHashMap<SignatureOrd, Vec<Bargain>>,
}

#[derive(Clone, Copy)]
struct Bargain {
    at: usize,
    price: i128,
    /// What the room is worth, in units of 2^-20 nano-dollars, rounded up.
    worth: i128,
}

impl Bargains<'_> {
    fn dot(&self, row: &[i64]) -> i128 {
        row.iter()
            .zip(self.prices)
            .map(|(amount, price)| i128::from(*amount) * price)
            .sum()
    }

    /// What one pod of a shape is worth, in nano-dollars, rounded down: its share of the best
    /// bargain that can hold it.
    fn worth<'p>(
        &mut self,
        problem: &'p Problem<'p>,
        component: &Component,
        signatures: &mut Signatures<'p>,
        shape: ShapeOrd,
    ) -> i128 {
        let shape = problem.shape(shape);
        let own = self.dot(&shape.requests) >> 20;
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
            let holds = |b: &&Bargain| fits(&shape.requests, room(problem, template, b.at));
            let bargains = self.of(problem, template, signatures, home);
            if let Some(best) = bargains.iter().find(holds) {
                let share = own.saturating_mul(best.price) / best.worth;
                least = Some(least.map_or(share, |least| least.min(share)));
            }
        }
        least.unwrap_or(0)
    }

    fn of<'p>(
        &mut self,
        problem: &'p Problem<'p>,
        template: usize,
        signatures: &mut Signatures<'p>,
        home: SignatureOrd,
    ) -> &[Bargain] {
        if !self.by_signature.contains_key(&home) {
            let bargain = |priced: &Priced| Bargain {
                at: priced.at,
                price: i128::from(priced.price.0),
                worth: (self.dot(room(problem, template, priced.at)) >> 20) + 1,
            };
            let mut list: Vec<Bargain> = signatures.by_price(home).iter().map(bargain).collect();
            list.sort_by(|a, b| {
                a.price
                    .saturating_mul(b.worth)
                    .cmp(&b.price.saturating_mul(a.worth))
            });
            self.by_signature.insert(home, list);
        }
        &self.by_signature[&home]
    }
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
