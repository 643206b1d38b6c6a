//! What working on one component leads to, in ordinals of the problem: drafts of NodeClaims, room
//! taken on existing nodes, pods without a place.
//!
//! Drafts do not refer to the arena that they were made with, so that they can leave the worker.

use millwright_model::{CapacityType, NanoDollarsPerHour, Requirements, Resources};

use crate::{
    first_fit::{Packed, Place},
    problem::{NodeOrd, Problem, ShapeOrd, ord},
    shard::Component,
    signature::{Priced, Signature, SignatureOrd, Signatures},
};

/// Karpenter's bound on the types of one NodeClaim; CreateFleet would refuse more.
pub(crate) const TYPES_MAX: usize = 600;

/// A NodeClaim to be.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) template: usize,
    pub(crate) requirements: Requirements,
    /// Types with room, as positions in the catalogue, cheapest first; never empty, at most
    /// [`TYPES_MAX`].
    pub(crate) types: Vec<u32>,
    /// The first of them, with its price and market.
    pub(crate) cheapest: Priced,
    /// How these types are sold under the requirements.
    pub(crate) capacity_types: Vec<CapacityType>,
    /// What pods and daemons ask for.
    pub(crate) requests: Resources,
    /// Positions in the problem's queue, ascending.
    pub(crate) pods: Vec<u32>,
}

impl Draft {
    /// The types as positions.
    pub(crate) fn types(&self) -> impl Iterator<Item = usize> + '_ {
        self.types.iter().map(|at| *at as usize)
    }
}

/// What working on one component led to.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    pub(crate) claims: Vec<Draft>,
    /// Existing node and position in the queue.
    pub(crate) existing: Vec<(NodeOrd, u32)>,
    /// Positions in the queue.
    pub(crate) failed: Vec<u32>,
    /// Price of the drafts that Karpenter's rules lead to.
    pub(crate) incumbent: NanoDollarsPerHour,
    pub(crate) lower_bound: NanoDollarsPerHour,
    /// Steps spent on improving the cost, and whether there were too few.
    pub(crate) steps: u64,
    pub(crate) exhausted: bool,
}

/// A planned node with its pods, before it becomes a draft.
#[derive(Clone, Debug)]
pub(crate) struct Bin {
    pub(crate) signature: SignatureOrd,
    /// What its pods ask for, a row.
    pub(crate) used: Vec<i64>,
    /// Positions in the problem's queue, with the shape that the pod was placed with.
    pub(crate) pods: Vec<(u32, ShapeOrd)>,
}

/// Sorts what packing decided by target.
pub(crate) fn sort_out(component: &Component, packed: Packed, stride: usize) -> (Vec<Bin>, Drafts) {
    let mut drafts = Drafts::default();
    let mut bins: Vec<Bin> = packed
        .planned
        .iter()
        .zip(packed.used.chunks_exact(stride))
        .map(|(node, used)| Bin {
            signature: node.signature,
            used: used.to_vec(),
            pods: Vec::with_capacity(node.pods as usize),
        })
        .collect();
    for (position, (place, shape)) in component.queue.iter().zip(packed.places) {
        match place {
            Place::Planned(node) => bins[node as usize].pods.push((*position, shape)),
            Place::Existing(node) => drafts.existing.push((node, *position)),
            Place::Nowhere => drafts.failed.push(*position),
        }
    }
    (bins, drafts)
}

/// Turns a planned node into a draft. `allowed` cuts the list of types further (limits); `None`
/// when it leaves none.
pub(crate) fn draft(
    problem: &Problem<'_>,
    signatures: &mut Signatures<'_>,
    bin: Bin,
    allowed: impl Fn(usize) -> bool,
) -> Option<Draft> {
    let mut cheapest = None;
    let mut types: Vec<u32> = Vec::new();
    for priced in signatures
        .fitting(bin.signature, &bin.used)
        .filter(|p| allowed(p.at))
    {
        cheapest = cheapest.or(Some(priced));
        types.push(ord(priced.at));
    }
    let signature = signatures.get(bin.signature);
    let template = signature.template;
    let mut requests = problem.dimensions.resources(&bin.used);
    requests.add(&least_daemons(problem, template, &types));
    types.truncate(TYPES_MAX);
    let mut pods: Vec<u32> = bin.pods.into_iter().map(|(position, _)| position).collect();
    pods.sort_unstable();
    Some(Draft {
        template,
        requirements: signature.requirements.clone(),
        cheapest: cheapest?,
        capacity_types: capacity_types(problem, signature, &types),
        types,
        requests,
        pods,
    })
}

/// How the types are sold where the signature allows.
fn capacity_types(
    problem: &Problem<'_>,
    signature: &Signature,
    types: &[u32],
) -> Vec<CapacityType> {
    let catalogue = problem.catalogue(signature.template);
    let mut capacity_types = Vec::new();
    for market in signature.markets.iter().map(|at| &catalogue.markets[*at]) {
        let sold = || types.iter().any(|at| market.types.contains(*at as usize));
        if !capacity_types.contains(&market.capacity_type) && sold() {
            capacity_types.push(market.capacity_type);
        }
    }
    capacity_types
}

/// Turns planned nodes into drafts, one for one: a planned node has room on some type, always.
pub(crate) fn drafts(
    problem: &Problem<'_>,
    signatures: &mut Signatures<'_>,
    bins: Vec<Bin>,
) -> Vec<Draft> {
    let draft = |bin| draft(problem, signatures, bin, |_| true);
    bins.into_iter().filter_map(draft).collect()
}

/// What daemons take at least, by resource, over the groups of types that are left. A resource
/// that is missing in one group counts as zero there.
fn least_daemons(problem: &Problem<'_>, template: usize, types: &[u32]) -> Resources {
    let groups = &problem.templates[template].daemons;
    let mut left = groups
        .iter()
        .filter(|(_, members)| types.iter().any(|at| members.contains(*at as usize)))
        .map(|(requests, _)| requests);
    let Some(first) = left.next() else {
        return Resources::new();
    };
    left.fold(first.clone(), |least, other| {
        least
            .iter()
            .map(|(name, amount)| (name.clone(), amount.min(other.get(name))))
            .collect()
    })
}
