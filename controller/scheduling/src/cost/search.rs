//! Choosing patterns: values of items, greedy covers, column generation, ruin and recreate.
//!
//! The configuration LP asks how often each pattern is used so that every pod is covered at least
//! cost. Its dual gives every item a *value* such that no pattern is worth more than it costs. The
//! patterns that matter are found by filling targets with the items that are worth most (column
//! generation with heuristic pricing); whole numbers come from rounding down and covering what is
//! left greedily; then small groups of nodes are taken apart and put together again.

use super::{
    simplex::{Optimum, maximise},
    yard::{Pattern, Style, Target, Yard, real},
};
use crate::signature::SignatureOrd;

/// Beyond this many items the dense master program costs more than it brings.
const ITEMS_MAX: usize = 160;
/// Rounds of column generation, and columns that join per round.
const ROUNDS_MAX: usize = 200;
const COLUMNS_PER_ROUND: usize = 24;
/// A pattern joins when it is worth so much more than its cost; and column generation ends after so
/// many rounds in which none was.
const RATE_MIN: f64 = 1.000_01;
const FRUITLESS_MAX: u32 = 12;
/// Targets tried per signature: when covering, and when recreating a few nodes.
const BREADTH: usize = 40;
const BREADTH_SMALL: usize = 10;
/// At most this many nodes are taken apart at once.
const RUIN_MAX: u64 = 6;
/// Rounds without success after which the search has found what it can find.
const PATIENCE: u64 = 3_000;

/// Patterns with the number of nodes of each.
pub(super) type Cover = Vec<(Pattern, u32)>;

/// The best cover found within the budget, and the values of items that go with it. `None` when
/// not even a first cover was completed.
pub(super) fn search(yard: &mut Yard<'_, '_>, incumbent: &[Pattern], seed: u64) -> Option<Cover> {
    let budget = yard.budget;
    let mut values = resource_values(yard);
    let counts: Vec<u32> = yard.items.iter().map(|item| item.count).collect();
    let mut best = cover(yard, &values, &counts, BREADTH);
    if yard.items.len() <= ITEMS_MAX {
        // A first cover comes before all else; half of what is left then goes into columns.
        yard.budget = yard.steps + budget.saturating_sub(yard.steps) / 2;
        let mut columns: Vec<Pattern> = incumbent.to_vec();
        columns.extend(best.iter().flatten().map(|(pattern, _)| pattern.clone()));
        let optimum = generate(yard, &mut columns, &mut values);
        yard.budget = budget;
        if let Some(optimum) = optimum {
            let rounded = round(yard, &columns, &optimum, &values, &counts);
            best = cheaper(yard, best, rounded);
        }
    }
    let mut nodes = expand(&best?);
    recreate(yard, &values, &mut nodes, seed);
    Some(nodes.into_iter().map(|node| (node, 1)).collect())
}

fn cheaper(yard: &Yard<'_, '_>, a: Option<Cover>, b: Option<Cover>) -> Option<Cover> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if total(yard, &b) < total(yard, &a) {
            b
        } else {
            a
        }),
        (a, b) => a.or(b),
    }
}

fn total(yard: &Yard<'_, '_>, cover: &Cover) -> u128 {
    cover
        .iter()
        .map(|(p, times)| u128::from(yard.cost(p)) * u128::from(*times))
        .sum()
}

fn expand(cover: &Cover) -> Vec<Pattern> {
    let times = |(pattern, times): &(Pattern, u32)| vec![pattern.clone(); *times as usize];
    cover.iter().flat_map(times).collect()
}

/// Values of items from prices of resources: the least that any type asks for what they request.
fn resource_values(yard: &mut Yard<'_, '_>) -> Vec<f64> {
    let width = yard.width();
    let mut gain = vec![0.0; width];
    for item in &yard.items {
        for (gain, share) in gain.iter_mut().zip(&item.share) {
            *gain += share * f64::from(item.count);
        }
    }
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for (_, target) in starts(yard, &vec![1; yard.items.len()]) {
        let cost = nanos(target.cost);
        rows.push(
            yard.room_share(target.at)
                .iter()
                .map(|share| share / cost)
                .collect(),
        );
    }
    let prices = maximise(&gain, &rows, &vec![1.0; rows.len()], 50 * width).prices;
    let worth = |share: &[f64]| -> f64 { share.iter().zip(&prices).map(|(s, p)| s * p).sum() };
    let items: Vec<(SignatureOrd, f64)> = yard
        .items
        .iter()
        .map(|item| (item.home, worth(&item.share)))
        .collect();
    let mut values = Vec::with_capacity(items.len());
    for (home, own) in items {
        // Pods that are bound to dear offerings are worth accordingly more.
        let targets = yard.targets(home);
        let markup = targets
            .iter()
            .map(|target| nanos(target.cost) / worth(yard.room_share(target.at)).max(1e-9))
            .fold(f64::INFINITY, f64::min);
        let markup = if markup.is_finite() { markup } else { 1.0 };
        values.push((own * markup).max(1.0));
    }
    values
}

/// Signatures to start a node with, each with its targets: one signature per kind of item left.
fn starts(yard: &mut Yard<'_, '_>, left: &[u32]) -> Vec<(SignatureOrd, Target)> {
    let mut homes: Vec<SignatureOrd> = Vec::new();
    for (item, left) in yard.items.iter().zip(left) {
        if *left > 0 && !homes.contains(&item.home) {
            homes.push(item.home);
        }
    }
    let mut starts = Vec::new();
    for home in homes {
        starts.extend(yard.targets(home).iter().map(|target| (home, *target)));
    }
    starts
}

/// Starts, best prospects first, with the most value per cost that each can hold.
fn prospects(
    yard: &mut Yard<'_, '_>,
    values: &[f64],
    left: &[u32],
) -> Vec<(f64, SignatureOrd, Target)> {
    let mut densest = vec![0.0_f64; yard.width()];
    let mut everything = 0.0;
    for ((item, value), left) in yard.items.iter().zip(values).zip(left) {
        if *left == 0 {
            continue;
        }
        everything += value * f64::from(*left);
        for (densest, share) in densest.iter_mut().zip(&item.share) {
            *densest = if *share > 0.0 {
                densest.max(value / share)
            } else {
                f64::INFINITY
            };
        }
    }
    let bound = |room: &[f64]| {
        let holds = room.iter().zip(&densest).map(|(room, densest)| {
            // No room times unbounded density is no value.
            if *room > 0.0 { room * densest } else { 0.0 }
        });
        holds.fold(everything, f64::min)
    };
    let mut prospects: Vec<(f64, SignatureOrd, Target)> = starts(yard, left)
        .into_iter()
        .map(|(home, target)| {
            (
                bound(yard.room_share(target.at)) / nanos(target.cost),
                home,
                target,
            )
        })
        .collect();
    // Weighing and sorting four of them takes about a step.
    yard.steps += prospects.len() as u64 / 4;
    // Stable, and without ordinals of signatures, which depend on the order of the snapshot.
    prospects.sort_by(|a, b| {
        b.0.total_cmp(&a.0)
            .then_with(|| (a.2.cost, a.2.at).cmp(&(b.2.cost, b.2.at)))
    });
    prospects
}

fn styles(yard: &Yard<'_, '_>) -> &'static [Style] {
    if yard.items.len() <= ITEMS_MAX {
        &[Style::Balanced, Style::Descending]
    } else {
        &[Style::Descending]
    }
}

/// Covers `left` greedily: again and again the pattern that gives most value for its cost, as
/// often as there are pods for it. `None` when the budget ends or nothing is allowed to fit.
fn cover(yard: &mut Yard<'_, '_>, values: &[f64], left: &[u32], breadth: usize) -> Option<Cover> {
    let mut left = left.to_vec();
    let mut cover = Cover::new();
    while left.iter().any(|left| *left > 0) {
        if yard.is_spent() {
            return None;
        }
        let pattern = best_pattern(yard, values, &left, breadth)
            // What is left may fit into none of the most promising types.
            .or_else(|| best_pattern(yard, values, &left, usize::MAX))?;
        let times = pattern
            .contents
            .iter()
            .map(|(item, count)| left[*item] / count)
            .min()?;
        for (item, count) in &pattern.contents {
            left[*item] -= count * times;
        }
        cover.push((pattern, times));
    }
    Some(cover)
}

fn best_pattern(
    yard: &mut Yard<'_, '_>,
    values: &[f64],
    left: &[u32],
    breadth: usize,
) -> Option<Pattern> {
    let mut best: Option<(f64, Pattern)> = None;
    for (bound, home, target) in prospects(yard, values, left).into_iter().take(breadth) {
        if best.as_ref().is_some_and(|(rate, _)| *rate >= bound) {
            break;
        }
        for style in styles(yard) {
            let Some(pattern) = yard.fill(values, left, (home, target), *style) else {
                continue;
            };
            let rate = value(&pattern, values) / nanos(yard.cost(&pattern));
            if best.as_ref().is_none_or(|(kept, _)| rate > *kept) {
                best = Some((rate, pattern));
            }
        }
    }
    best.map(|(_, pattern)| pattern)
}

fn value(pattern: &Pattern, values: &[f64]) -> f64 {
    pattern
        .contents
        .iter()
        .map(|(item, count)| values[*item] * f64::from(*count))
        .sum()
}

/// Column generation: adds patterns that are worth more than they cost until none is found, and
/// leaves the values of the last master program in `values`.
fn generate(
    yard: &mut Yard<'_, '_>,
    columns: &mut Vec<Pattern>,
    values: &mut Vec<f64>,
) -> Option<Optimum> {
    let counts: Vec<u32> = yard.items.iter().map(|item| item.count).collect();
    // In units of the most that a pod can be worth, so that no row of the program is tiny.
    let steady = values.clone();
    let scale: Vec<f64> = (0..counts.len())
        .map(|item| dearest(yard, columns, item))
        .collect::<Option<_>>()?;
    let mut random = Random(1);
    let mut fruitless = 0;
    let mut optimum = master(yard, columns, &scale, &counts);
    for _ in 0..ROUNDS_MAX {
        *values = optimum
            .prices
            .iter()
            .zip(&scale)
            .map(|(price, scale)| price * scale)
            .collect();
        if yard.is_spent() || fruitless == FRUITLESS_MAX {
            break;
        }
        let before = columns.len();
        price_out(yard, (values, &steady), &counts, columns, &mut random);
        if columns.len() == before {
            fruitless += 1;
        } else {
            fruitless = 0;
            optimum = master(yard, columns, &scale, &counts);
        }
    }
    *values = optimum
        .prices
        .iter()
        .zip(&scale)
        .map(|(price, scale)| price * scale)
        .collect();
    Some(optimum)
}

/// What a pod of an item costs at most: in the column that spends least on each. `None` when no
/// column has it; the master program would have no bound.
fn dearest(yard: &Yard<'_, '_>, columns: &[Pattern], item: usize) -> Option<f64> {
    let of = |column: &Pattern| {
        let (_, count) = column.contents.iter().find(|(of, _)| *of == item)?;
        Some(nanos(yard.cost(column)) / f64::from(*count))
    };
    columns.iter().filter_map(of).reduce(f64::min)
}

/// The dual of the configuration LP over the columns there are; prices in units of `scale`.
fn master(yard: &mut Yard<'_, '_>, columns: &[Pattern], scale: &[f64], counts: &[u32]) -> Optimum {
    let items = scale.len();
    let gain: Vec<f64> = scale
        .iter()
        .zip(counts)
        .map(|(s, count)| s * f64::from(*count))
        .collect();
    let largest = gain.iter().copied().fold(1.0, f64::max);
    let gain: Vec<f64> = gain.iter().map(|gain| gain / largest).collect();
    let row = |pattern: &Pattern| {
        let mut row = vec![0.0; items];
        let cost = nanos(yard.cost(pattern));
        for (item, count) in &pattern.contents {
            row[*item] = scale[*item] * f64::from(*count) / cost;
        }
        row
    };
    let rows: Vec<Vec<f64>> = columns.iter().map(row).collect();
    // Equal limits make the simplex stall on ties; unequal in the sixth digit, they do not.
    let mut random = Random(0);
    let limits: Vec<f64> = rows.iter().map(|_| 1.0 + 1e-6 * random.unit()).collect();
    let mut optimum = maximise(&gain, &rows, &limits, 20 * items + 200);
    for (multiplier, pattern) in optimum.multipliers.iter_mut().zip(columns) {
        *multiplier *= largest / nanos(yard.cost(pattern));
    }
    // A step is about 50 ns; so is a pivot of 64 cells.
    yard.steps += optimum.pivots * (rows.len() * items / 64 + 1) as u64;
    optimum
}

/// Adds the patterns that are worth most above their cost.
///
/// `values` are those of the master program, which swing from round to round; `steady` are the
/// resource prices' ones. Nodes are filled under mixtures of both, with some noise, and judged by
/// the former: stabilisation, in the words of the trade.
fn price_out(
    yard: &mut Yard<'_, '_>,
    (values, steady): (&[f64], &[f64]),
    counts: &[u32],
    columns: &mut Vec<Pattern>,
    random: &mut Random,
) {
    let mut mixtures = vec![values.to_vec()];
    for part in [0.3, 0.6, 0.9] {
        let mixed = values.iter().zip(steady).map(|(value, steady)| {
            let noise = 0.75 + 0.5 * random.unit();
            (value * (1.0 - part) + steady * part) * noise
        });
        mixtures.push(mixed.collect());
    }
    let mut found: Vec<(f64, Pattern)> = Vec::new();
    for (bound, home, target) in prospects(yard, values, counts) {
        if bound <= 1.0 || yard.is_spent() {
            break;
        }
        let pure = [(0, Style::Balanced), (0, Style::Descending)];
        let mixed = (1..mixtures.len()).map(|at| (at, Style::Balanced));
        let mut best: Option<(f64, Pattern)> = None;
        for (mixture, style) in pure.into_iter().chain(mixed) {
            let filled = yard.fill(&mixtures[mixture], counts, (home, target), style);
            let Some(pattern) = filled else { continue };
            let worth = value(&pattern, values);
            if best.as_ref().is_none_or(|(kept, _)| worth > *kept) {
                best = Some((worth, pattern));
            }
        }
        let Some((_, pattern)) = best else { continue };
        let pattern = yard.polish(values, counts, (home, target), pattern);
        let rate = value(&pattern, values) / nanos(yard.cost(&pattern));
        if rate > RATE_MIN
            && !found
                .iter()
                .any(|(_, known)| known.contents == pattern.contents)
        {
            found.push((rate, pattern));
        }
    }
    // Stable: equal rates stay in the order of prospects.
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(COLUMNS_PER_ROUND);
    for (_, pattern) in found {
        if !columns.contains(&pattern) {
            columns.push(pattern);
        }
    }
}

/// Whole numbers: every column as often as the LP uses it, rounded down; then columns by their
/// fraction while all their pods are left; then a greedy cover of the rest.
fn round(
    yard: &mut Yard<'_, '_>,
    columns: &[Pattern],
    optimum: &Optimum,
    values: &[f64],
    counts: &[u32],
) -> Option<Cover> {
    let mut left = counts.to_vec();
    let mut rounded = Cover::new();
    let mut fractions: Vec<(f64, usize)> = Vec::new();
    for (at, (pattern, times)) in columns.iter().zip(&optimum.multipliers).enumerate() {
        let whole = times.floor();
        fractions.push((times - whole, at));
        take(&mut rounded, &mut left, pattern, whole_number(whole));
    }
    let mut down = rounded.clone();
    down.extend(cover(yard, values, &left, BREADTH)?);
    fractions.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (fraction, at) in fractions {
        if fraction >= 0.3 {
            take(&mut rounded, &mut left, &columns[at], 1);
        }
    }
    rounded.extend(cover(yard, values, &left, BREADTH)?);
    cheaper(yard, Some(down), Some(rounded))
}

/// Adds a pattern up to `times` times, as far as its pods are left.
fn take(cover: &mut Cover, left: &mut [u32], pattern: &Pattern, times: u32) {
    let possible = pattern
        .contents
        .iter()
        .map(|(item, count)| left[*item] / count)
        .min();
    let times = times.min(possible.unwrap_or(0));
    if times > 0 {
        for (item, count) in &pattern.contents {
            left[*item] -= count * times;
        }
        cover.push((pattern.clone(), times));
    }
}

/// Takes a few nodes apart and covers their pods anew, under values that differ a little each
/// time; keeps what is cheaper. Stops with the budget, or when nothing was found for long.
fn recreate(yard: &mut Yard<'_, '_>, values: &[f64], nodes: &mut Vec<Pattern>, seed: u64) {
    let mut random = Random(seed);
    let mut idle = 0;
    while !yard.is_spent() && idle < PATIENCE && nodes.len() > 1 {
        idle += 1;
        let taken = ruin(yard, values, nodes, &mut random);
        let mut left = vec![0; yard.items.len()];
        let mut old = 0_u128;
        for node in taken.iter().map(|at| &nodes[*at]) {
            old += u128::from(yard.cost(node));
            node.contents
                .iter()
                .for_each(|(item, count)| left[*item] += count);
        }
        let swayed: Vec<f64> = values
            .iter()
            .map(|v| v * (0.85 + 0.3 * random.unit()))
            .collect();
        let Some(new) = cover(yard, &swayed, &left, BREADTH_SMALL) else {
            continue;
        };
        if total(yard, &new) < old {
            // From the back, so that positions stay valid.
            taken.iter().rev().for_each(|at| {
                nodes.remove(*at);
            });
            nodes.extend(expand(&new));
            idle = 0;
        }
    }
}

/// Positions of nodes to take apart, ascending: one of the worst, and others at random.
fn ruin(yard: &Yard<'_, '_>, values: &[f64], nodes: &[Pattern], random: &mut Random) -> Vec<usize> {
    const SAMPLE: usize = 6;
    let waste = |at: usize| nanos(yard.cost(&nodes[at])) - value(&nodes[at], values);
    let mut worst = random.below(nodes.len());
    for _ in 1..SAMPLE {
        let other = random.below(nodes.len());
        if waste(other) > waste(worst) {
            worst = other;
        }
    }
    let mut taken = vec![worst];
    for _ in 0..=random.next() % (RUIN_MAX - 1) {
        taken.push(random.below(nodes.len()));
    }
    taken.sort_unstable();
    taken.dedup();
    taken
}

/// Sebastiano Vigna's `SplitMix64`: one state word, good enough to pick nodes with.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A position below `len`, which is not zero.
    fn below(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % len as u64).unwrap_or(0)
    }

    /// A number of [0, 1).
    fn unit(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 40).unwrap_or(0)) / f64::from(1_u32 << 24)
    }
}

/// Nano-dollars as a double.
fn nanos(amount: u64) -> f64 {
    real(i64::try_from(amount).unwrap_or(i64::MAX))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole, non-negative number of nodes; casts of doubles saturate"
)]
const fn whole_number(number: f64) -> u32 {
    number as u32
}
