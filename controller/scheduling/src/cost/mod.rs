//! Improving the cost: other nodes for the pods that Karpenter's rules gave new nodes.
//!
//! Karpenter's rules let a NodeClaim grow until only the largest types still hold it, whatever
//! they cost. Here the pods on new nodes are packed again, NodePool by NodePool: which pods are
//! placed, on which existing nodes, in which NodePool and with which of their preferences stays
//! as it is, so that weights, preferences and taints need no second look. The result replaces the
//! first plan only if it is cheaper, with and without the charge per node, and keeps the limits.
//!
//! Source of the method: Gilmore and Gomory's column generation for cutting stock; ruin and
//! recreate after Schrimpf et al. (2000).

mod bound;
mod search;
mod simplex;
mod yard;

use std::collections::{BTreeMap, BTreeSet};

use millwright_model::NanoDollarsPerHour;

use self::yard::{Pattern, Yard};
use crate::{
    draft::{self, Bin, Draft, Drafts},
    first_fit::remaining,
    problem::{Problem, ShapeOrd},
    signature::Signatures,
};

pub(crate) use bound::lower_bound;

/// Packs the pods of `bins` again; `drafts.claims` are the drafts of `bins`, one for one.
pub(crate) fn improve<'p>(
    problem: &'p Problem<'p>,
    signatures: &mut Signatures<'p>,
    bins: &[Bin],
    drafts: &mut Drafts,
) {
    let mut by_template: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut bound_by_limits: BTreeSet<usize> = BTreeSet::new();
    for (at, bin) in bins.iter().enumerate() {
        let template = signatures.get(bin.signature).template;
        let mut shapes = bin.pods.iter().map(|(_, shape)| problem.shape(*shape));
        if shapes.any(crate::problem::Shape::has_rules) {
            // Rules between pods hold where the pods are: such a node stays as it is. What limits
            // leave the others is then not known here.
            if problem.templates[template].limits.is_some() {
                bound_by_limits.insert(template);
            }
        } else {
            by_template.entry(template).or_default().push(at);
        }
    }
    by_template.retain(|template, _| !bound_by_limits.contains(template));
    let mut kept: Vec<Option<Draft>> = std::mem::take(&mut drafts.claims)
        .into_iter()
        .map(Some)
        .collect();
    let everybody = problem.queue.len().max(1) as u64;
    for (template, members) in by_template {
        let pods: usize = members.iter().map(|at| bins[*at].pods.len()).sum();
        // Shares do not depend on how the work is spread over workers.
        let budget =
            u128::from(problem.settings.step_budget) * pods as u128 / u128::from(everybody);
        let budget = u64::try_from(budget).unwrap_or(u64::MAX);
        let ours: Vec<&Bin> = members.iter().map(|at| &bins[*at]).collect();
        let old: Vec<&Draft> = members.iter().filter_map(|at| kept[*at].as_ref()).collect();
        let mut attempt = Attempt {
            problem,
            signatures,
            template,
            budget,
            steps: 0,
        };
        let better = attempt.improve(&ours, &old);
        drafts.steps += attempt.steps;
        drafts.exhausted |= attempt.steps >= budget;
        if let Some(better) = better {
            members.iter().for_each(|at| kept[*at] = None);
            drafts.claims.extend(better);
        }
    }
    drafts.claims.extend(kept.into_iter().flatten());
}

/// The attempt at one NodePool.
struct Attempt<'p, 's> {
    problem: &'p Problem<'p>,
    signatures: &'s mut Signatures<'p>,
    template: usize,
    budget: u64,
    steps: u64,
}

/// The pods of each shape, in the order of the queue.
type Pods = BTreeMap<ShapeOrd, Vec<u32>>;

impl Attempt<'_, '_> {
    /// Cheaper drafts for the pods of `bins`, whose drafts are `old`; `None` when there are none.
    fn improve(&mut self, bins: &[&Bin], old: &[&Draft]) -> Option<Vec<Draft>> {
        let mut pods = Pods::new();
        for (position, shape) in bins.iter().flat_map(|bin| &bin.pods) {
            pods.entry(*shape).or_default().push(*position);
        }
        pods.values_mut().for_each(|list| list.sort_unstable());
        // Ordinals of shapes depend on the order of the snapshot; positions in the queue do not.
        let mut order: Vec<(u32, ShapeOrd, u32)> = pods
            .iter()
            .map(|(shape, list)| (list[0], *shape, crate::problem::ord(list.len())))
            .collect();
        order.sort_unstable();
        let counts: Vec<(ShapeOrd, u32)> = order.iter().map(|(_, s, n)| (*s, *n)).collect();
        let mut yard = Yard::new(
            self.problem,
            self.signatures,
            self.template,
            &counts,
            self.budget,
        )?;
        let incumbent = patterns(&mut yard, bins);
        let found = search::search(&mut yard, &incumbent, self.problem.settings.seed);
        self.steps = yard.steps;
        let nodes: Vec<Pattern> = found?.into_iter().map(|(pattern, _)| pattern).collect();
        let shapes: Vec<ShapeOrd> = counts.iter().map(|(shape, _)| *shape).collect();
        let new = self.drafts(to_bins(nodes, &shapes, pods))?;
        self.is_better(&new, old).then_some(new)
    }

    /// Drafts within the NodePool's limits: with all types that fit, else with no type larger
    /// than the cheapest.
    fn drafts(&mut self, bins: Vec<Bin>) -> Option<Vec<Draft>> {
        let limits = &self.problem.templates[self.template].limits;
        let whole = draft::drafts(self.problem, self.signatures, bins.clone());
        let Some(limits) = limits else {
            return Some(whole);
        };
        if self.within_limits(&whole) {
            return Some(whole);
        }
        let mut cut = Vec::with_capacity(bins.len());
        for (bin, whole) in bins.into_iter().zip(whole) {
            let cheapest = whole.cheapest.at;
            let small = |at: usize| {
                limits
                    .resources
                    .iter()
                    .all(|l| l.capacity[at] <= l.capacity[cheapest])
            };
            cut.push(draft::draft(self.problem, self.signatures, bin, small)?);
        }
        self.within_limits(&cut).then_some(cut)
    }

    fn within_limits(&self, drafts: &[Draft]) -> bool {
        let Some(mut left) = remaining(self.problem.templates[self.template].limits.as_ref())
        else {
            return true;
        };
        for draft in drafts {
            left.spend(self.problem, self.template, draft.types());
        }
        left.nodes.is_none_or(|nodes| nodes >= 0) && left.resources.iter().all(|left| *left >= 0)
    }

    /// Cheaper with the charge for each node, and not dearer without it.
    fn is_better(&self, new: &[Draft], old: &[&Draft]) -> bool {
        let charge = self.problem.settings.per_node_charge.0;
        let charged = |price: NanoDollarsPerHour, nodes: usize| {
            u128::from(price.0) + u128::from(charge) * nodes as u128
        };
        let new_price: NanoDollarsPerHour = new.iter().map(|draft| draft.cheapest.price).sum();
        let old_price: NanoDollarsPerHour = old.iter().map(|draft| draft.cheapest.price).sum();
        new_price <= old_price && charged(new_price, new.len()) < charged(old_price, old.len())
    }
}

/// The first plan's nodes as patterns; those that are too inflexible are left out.
fn patterns(yard: &mut Yard<'_, '_>, bins: &[&Bin]) -> Vec<Pattern> {
    let item_of: BTreeMap<ShapeOrd, usize> = yard
        .items
        .iter()
        .enumerate()
        .map(|(at, item)| (item.shape, at))
        .collect();
    let mut patterns: Vec<Pattern> = Vec::new();
    for bin in bins {
        let mut contents: BTreeMap<usize, u32> = BTreeMap::new();
        for (_, shape) in &bin.pods {
            *contents.entry(item_of[shape]).or_default() += 1;
        }
        let contents = contents.into_iter().collect();
        let pattern = yard.pattern(bin.signature, bin.used.clone(), contents);
        patterns.extend(pattern.filter(|pattern| !patterns.contains(pattern)));
    }
    patterns
}

/// Gives patterns their pods. Canonical: dearest first, then by contents.
fn to_bins(mut nodes: Vec<Pattern>, shapes: &[ShapeOrd], pods: Pods) -> Vec<Bin> {
    nodes.sort_by(|a, b| (b.price, &a.contents).cmp(&(a.price, &b.contents)));
    let mut lists: BTreeMap<ShapeOrd, std::vec::IntoIter<u32>> = pods
        .into_iter()
        .map(|(shape, list)| (shape, list.into_iter()))
        .collect();
    let fill = |pattern: Pattern| {
        let mut pods: Vec<(u32, ShapeOrd)> = Vec::new();
        for (item, count) in &pattern.contents {
            let shape = shapes[*item];
            if let Some(list) = lists.get_mut(&shape) {
                pods.extend(list.by_ref().take(*count as usize).map(|pod| (pod, shape)));
            }
        }
        Bin {
            signature: pattern.signature,
            used: pattern.used,
            pods,
        }
    };
    nodes.into_iter().map(fill).collect()
}

#[cfg(test)]
mod tests;
