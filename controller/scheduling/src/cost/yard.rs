//! What searching for cheap nodes of one NodePool works with: items, targets, patterns.
//!
//! An *item* is a shape with the number of its pods. A *target* is an instance type that is worth
//! filling: nothing at most as dear has more room. A *pattern* is a filled node: so many of each
//! item, priced at the cheapest type that holds them.

use std::{rc::Rc, sync::Arc};

use millwright_model::{CapacityType, Name};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    problem::{Problem, RequirementsOrd, ShapeOrd, add_times, copies, fits},
    signature::{Join, Priced, SignatureOrd, Signatures},
};

/// A Spot node should be launchable as so many types, in so many zones: a single Spot pool may
/// vanish at any time.
const SPOT_TYPES: usize = 15;
const SPOT_ZONES: usize = 2;

/// A shape with its pods.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) shape: ShapeOrd,
    wanted: RequirementsOrd,
    requests: Arc<[i64]>,
    /// Requests as shares of the largest room that any type has, by dimension in use.
    pub(super) share: Vec<f64>,
    pub(super) count: u32,
    /// Signature of a node that holds only this item.
    pub(super) home: SignatureOrd,
    /// Types that hold one pod of it.
    alone: usize,
}

/// An instance type that is worth filling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Position in the catalogue.
    pub(super) at: usize,
    /// Price and charge, nano-dollars per hour.
    pub(super) cost: u64,
}

/// A filled node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) signature: SignatureOrd,
    pub(super) used: Vec<i64>,
    /// Items with their numbers, by item, none zero.
    pub(super) contents: Vec<(usize, u32)>,
    /// Price of the cheapest type that holds it, nano-dollars per hour.
    pub(super) price: u64,
}

/// In which order a node is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Most valuable items first, as many as fit.
    Descending,
    /// Again and again what is worth most for its share of what is left.
    Balanced,
}

/// The work on one NodePool.
pub(super) struct Yard<'p, 's> {
    pub(super) problem: &'p Problem<'p>,
    pub(super) signatures: &'s mut Signatures<'p>,
    template: usize,
    pub(super) items: Vec<Item>,
    pub(super) charge: u64,
    /// Dimensions that some item uses.
    dimensions: Vec<usize>,
    /// Room of each type as shares, rows.
    room_share: Vec<f64>,
    targets: FxHashMap<SignatureOrd, Rc<[Target]>>,
    /// Attempts made, and how many may be made.
    pub(super) steps: u64,
    pub(super) budget: u64,
}

impl<'p, 's> Yard<'p, 's> {
    /// `counts`: shapes with the number of their pods. `None` when some shape cannot be placed on
    /// an untouched node, which limits on earlier nodes may have made possible.
    pub(super) fn new(
        problem: &'p Problem<'p>,
        signatures: &'s mut Signatures<'p>,
        template: usize,
        counts: &[(ShapeOrd, u32)],
        budget: u64,
    ) -> Option<Self> {
        let mut yard = Self {
            problem,
            signatures,
            template,
            items: Vec::new(),
            charge: problem.settings.per_node_charge.0,
            dimensions: Vec::new(),
            room_share: Vec::new(),
            targets: FxHashMap::default(),
            steps: 0,
            budget,
        };
        let root = yard.signatures.root(template, None)?;
        for (ordinal, count) in counts {
            let shape = problem.shape(*ordinal);
            let Join::Into(home) = yard.signatures.join(root, shape.requirements) else {
                return None;
            };
            let alone = yard.signatures.fitting(home, &shape.requests).count();
            yard.items.push(Item {
                shape: *ordinal,
                wanted: shape.requirements,
                requests: shape.requests.clone(),
                share: Vec::new(),
                count: *count,
                home,
                alone,
            });
        }
        yard.measure();
        Some(yard)
    }

    /// Computes shares.
    fn measure(&mut self) {
        let stride = self.problem.dimensions.stride();
        let used = |at: &usize| self.items.iter().any(|item| item.requests[*at] > 0);
        self.dimensions = (0..stride).filter(used).collect();
        let room = &self.problem.templates[self.template].room;
        let largest = |at: usize| {
            room.iter()
                .skip(at)
                .step_by(stride)
                .copied()
                .max()
                .unwrap_or(0)
        };
        let scale: Vec<f64> = self
            .dimensions
            .iter()
            .map(|at| 1.0 / real(largest(*at).max(1)))
            .collect();
        let share = |row: &[i64]| -> Vec<f64> {
            self.dimensions
                .iter()
                .zip(&scale)
                .map(|(at, scale)| real(row[*at]) * scale)
                .collect()
        };
        self.room_share = room.chunks_exact(stride).flat_map(share).collect();
        let shares: Vec<Vec<f64>> = self
            .items
            .iter()
            .map(|item| share(&item.requests))
            .collect();
        for (item, share) in self.items.iter_mut().zip(shares) {
            item.share = share;
        }
    }

    /// Room of a type as shares.
    pub(super) fn room_share(&self, at: usize) -> &[f64] {
        let width = self.dimensions.len();
        &self.room_share[at * width..][..width]
    }

    /// Number of dimensions in use.
    pub(super) fn width(&self) -> usize {
        self.dimensions.len()
    }

    fn room(&self, at: usize) -> &'p [i64] {
        let stride = self.problem.dimensions.stride();
        &self.problem.templates[self.template].room[at * stride..][..stride]
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.steps >= self.budget
    }

    pub(super) const fn cost(&self, pattern: &Pattern) -> u64 {
        pattern.price.saturating_add(self.charge)
    }

    /// Types worth filling under a signature, cheapest first.
    pub(super) fn targets(&mut self, signature: SignatureOrd) -> Rc<[Target]> {
        if let Some(known) = self.targets.get(&signature) {
            return Rc::clone(known);
        }
        let priced = self.signatures.by_price(signature).to_vec();
        let catalogue = self.problem.catalogue(self.template);
        let flexible = self.flexibility(signature);
        let mut targets: Vec<Target> = Vec::new();
        for candidate in &priced {
            let room = self.room(candidate.at);
            if targets.iter().any(|kept| fits(room, self.room(kept.at))) {
                continue;
            }
            // What fits here fits wherever there is at least as much room.
            let spot = catalogue.markets[candidate.market].capacity_type == CapacityType::Spot;
            let launchable = || {
                priced
                    .iter()
                    .filter(|p| fits(room, self.room(p.at)))
                    .count()
            };
            if !spot || launchable() >= flexible {
                let cost = candidate.price.0.saturating_add(self.charge);
                targets.push(Target {
                    at: candidate.at,
                    cost,
                });
            }
        }
        let targets: Rc<[Target]> = targets.into();
        self.targets.insert(signature, Rc::clone(&targets));
        targets
    }

    /// Types that a Spot node of this signature should be launchable as.
    fn flexibility(&self, signature: SignatureOrd) -> usize {
        let at_home = self.items.iter().filter(|item| item.home == signature);
        at_home
            .map(|item| item.alone)
            .min()
            .map_or(SPOT_TYPES, |alone| alone.min(SPOT_TYPES))
    }

    /// Fills a node of type `target`, starting under `signature`, with what is `left`. `None` when
    /// nothing fits, or when the result would be too inflexible.
    pub(super) fn fill(
        &mut self,
        values: &[f64],
        left: &[u32],
        start: (SignatureOrd, Target),
        style: Style,
    ) -> Option<Pattern> {
        let (signature, target) = start;
        let mut node = Filling {
            signature,
            target,
            used: vec![0; self.problem.dimensions.stride()],
            counts: vec![0; self.items.len()],
        };
        match style {
            Style::Descending => self.fill_descending(&mut node, values, left),
            Style::Balanced => self.fill_balanced(&mut node, values, left),
        }
        self.finish(node)
    }

    fn finish(&mut self, node: Filling) -> Option<Pattern> {
        let contents = node
            .counts
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0);
        self.pattern(node.signature, node.used, contents.collect())
    }

    /// Exchanges pods of a filled node while that makes it worth more: a few of one item, or of
    /// two, go out, and whatever is worth most for its share of the room comes in.
    pub(super) fn polish(
        &mut self,
        values: &[f64],
        left: &[u32],
        start: (SignatureOrd, Target),
        pattern: Pattern,
    ) -> Pattern {
        let worth = |counts: &[u32]| -> f64 {
            counts
                .iter()
                .zip(values)
                .map(|(count, value)| f64::from(*count) * value)
                .sum()
        };
        let mut best = vec![0; self.items.len()];
        pattern
            .contents
            .iter()
            .for_each(|(item, count)| best[*item] = *count);
        let mut most = worth(&best);
        let mut kept = pattern;
        let kinds: Vec<usize> = kept.contents.iter().map(|(item, _)| *item).collect();
        let singles = kinds
            .iter()
            .flat_map(|a| [(*a, None, 1), (*a, None, 2), (*a, None, 4)]);
        let pairs = kinds
            .iter()
            .enumerate()
            .flat_map(|(at, a)| kinds[at + 1..].iter().map(move |b| (*a, Some(*b), 1)));
        for (a, b, out) in singles.chain(pairs) {
            if best[a] < out || b.is_some_and(|b| best[b] < out) {
                continue;
            }
            let mut base = best.clone();
            base[a] -= out;
            if let Some(b) = b {
                base[b] -= out;
            }
            let Some(mut node) = self.refill(start, &base) else {
                continue;
            };
            // What went out stays out, or it would come right back.
            let mut open = left.to_vec();
            open[a] = base[a];
            if let Some(b) = b {
                open[b] = base[b];
            }
            self.fill_balanced(&mut node, values, &open);
            if worth(&node.counts) > most * (1.0 + 1e-9) {
                let counts = node.counts.clone();
                if let Some(better) = self.finish(node) {
                    most = worth(&counts);
                    best = counts;
                    kept = better;
                }
            }
        }
        kept
    }

    /// A node with given contents, to be filled further.
    fn refill(&mut self, start: (SignatureOrd, Target), counts: &[u32]) -> Option<Filling> {
        let (signature, target) = start;
        let used = vec![0; self.problem.dimensions.stride()];
        let mut node = Filling {
            signature,
            target,
            used,
            counts: vec![0; counts.len()],
        };
        for (item, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (joined, most) = self.takes(&node, item)?;
            self.put(&mut node, item, joined, (*count).min(most));
        }
        Some(node)
    }

    fn fill_descending(&mut self, node: &mut Filling, values: &[f64], left: &[u32]) {
        let mut order: Vec<usize> = (0..self.items.len()).filter(|at| left[*at] > 0).collect();
        order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
        for item in order {
            if let Some((joined, most)) = self.takes(node, item) {
                self.put(node, item, joined, most.min(left[item]));
            }
        }
    }

    fn fill_balanced(&mut self, node: &mut Filling, values: &[f64], left: &[u32]) {
        let mut open: Vec<usize> = (0..self.items.len()).filter(|at| left[*at] > 0).collect();
        let mut rest = self.room_share(node.target.at).to_vec();
        for (item, count) in self.items.iter().zip(&node.counts) {
            for (rest, share) in rest.iter_mut().zip(&item.share) {
                *rest -= share * f64::from(*count);
            }
        }
        loop {
            let mut best: Option<(f64, usize, SignatureOrd, u32)> = None;
            open.retain(|item| {
                let Some((joined, most)) = self.takes(node, *item) else {
                    return false;
                };
                let most = most.min(left[*item].saturating_sub(node.counts[*item]));
                if most == 0 {
                    return false;
                }
                let score = values[*item] / load(&self.items[*item].share, &rest);
                if best.is_none_or(|(kept, ..)| score > kept) {
                    best = Some((score, *item, joined, most));
                }
                true
            });
            let Some((_, item, joined, most)) = best else {
                break;
            };
            // A part at a time: the best item changes as the node fills.
            let part = most.div_ceil(4);
            self.put(node, item, joined, part);
            for (rest, share) in rest.iter_mut().zip(&self.items[item].share) {
                *rest -= share * f64::from(part);
            }
        }
    }

    /// Whether a node that is being filled takes an item, and how many: the type must stay
    /// possible at its price.
    fn takes(&mut self, node: &Filling, item: usize) -> Option<(SignatureOrd, u32)> {
        self.steps += 1;
        let of = &self.items[item];
        let most = copies(&node.used, &of.requests, self.room(node.target.at));
        if most <= 0 {
            return None;
        }
        let Join::Into(joined) = self.signatures.join(node.signature, of.wanted) else {
            return None;
        };
        let same = joined == node.signature
            || self.signatures.prices(joined)[node.target.at]
                .0
                .saturating_add(self.charge)
                <= node.target.cost;
        same.then(|| (joined, u32::try_from(most).unwrap_or(u32::MAX)))
    }

    fn put(&self, node: &mut Filling, item: usize, joined: SignatureOrd, count: u32) {
        node.signature = joined;
        node.counts[item] += count;
        add_times(&mut node.used, &self.items[item].requests, i64::from(count));
    }

    /// The pattern of given contents at its price; `None` when it is empty or too inflexible.
    pub(super) fn pattern(
        &mut self,
        signature: SignatureOrd,
        used: Vec<i64>,
        contents: Vec<(usize, u32)>,
    ) -> Option<Pattern> {
        // Looking through the types takes about as long as a few attempts.
        self.steps += 8;
        let alone = contents
            .iter()
            .map(|(item, _)| self.items[*item].alone)
            .min()?;
        let catalogue = self.problem.catalogue(self.template);
        // At most as many as a Spot node needs, and the cheapest in any case.
        let needed = SPOT_TYPES.min(alone).max(1);
        let fitting: SmallVec<[Priced; SPOT_TYPES]> = self
            .signatures
            .fitting(signature, &used)
            .take(needed)
            .collect();
        let cheapest = fitting.first()?;
        if catalogue.markets[cheapest.market].capacity_type == CapacityType::Spot
            && (fitting.len() < needed || !self.spans_zones(signature, &fitting))
        {
            return None;
        }
        let price = cheapest.price.0;
        Some(Pattern {
            signature,
            used,
            contents,
            price,
        })
    }

    /// Whether a Spot node can start in two zones, if its requirements allow two.
    fn spans_zones(&self, signature: SignatureOrd, fitting: &[Priced]) -> bool {
        let signature = self.signatures.get(signature);
        let catalogue = self.problem.catalogue(self.template);
        let (mut allowed, mut reached): (Vec<&Name>, Vec<&Name>) = (Vec::new(), Vec::new());
        let add = |zones: &mut Vec<&'p Name>, zone: &'p Name| {
            if !zones.contains(&zone) {
                zones.push(zone);
            }
        };
        for market in signature.markets.iter().map(|at| &catalogue.markets[*at]) {
            if market.capacity_type != CapacityType::Spot {
                continue;
            }
            add(&mut allowed, &market.zone);
            if fitting
                .iter()
                .any(|priced| market.types.contains(priced.at))
            {
                add(&mut reached, &market.zone);
            }
            if reached.len() >= SPOT_ZONES {
                return true;
            }
        }
        reached.len() >= allowed.len().min(SPOT_ZONES)
    }
}

/// A node while it is being filled.
struct Filling {
    signature: SignatureOrd,
    target: Target,
    used: Vec<i64>,
    counts: Vec<u32>,
}

/// What an item takes of what is left, summed over dimensions.
fn load(share: &[f64], rest: &[f64]) -> f64 {
    let mut load = 1e-12;
    for (share, rest) in share.iter().zip(rest) {
        // Subtracting shares leaves rounding errors where a dimension is used up.
        load += share / rest.max(1e-12);
    }
    load
}

/// An amount as a double; exact below 2^53, which is nine petabytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "shares steer the search, they decide nothing"
)]
pub(super) const fn real(amount: i64) -> f64 {
    amount as f64
}
