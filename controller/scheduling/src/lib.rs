//! The packing core: from a cluster snapshot to a plan, purely.
//!
//! [`solve`] decides for every pod of a [`ClusterSnapshot`] whether it goes to a node that exists
//! or is in flight, to a NodeClaim to be created, or nowhere (and why). [`check`] verifies a plan
//! knowing the rules, but nothing of how plans are made.
//!
//! This crate must not know Kubernetes, AWS, clocks, files, randomness or environment: equal
//! snapshots and settings give equal plans, whatever the number of workers and the order of the
//! snapshot's lists. Time is counted in steps ([`SolveSettings::step_budget`]).
//!
//! The properties P1 (fit) to P9 (explanation) that plans keep, the structure and the arithmetic
//! behind it are in this crate's `README.md`. Property tests are in `tests/`, with worlds and a
//! naive reference from `millwright-testkit`.
//!
//! Not planned for yet, and refused by name ([`millwright_model::plan::RefusalKind::Unsupported`]):
//! volumes of claims, dynamic resource allocation, `minValues`, reserved capacity.

mod assemble;
mod bits;
mod check;
mod cost;
mod digest;
mod draft;
mod explain;
mod first_fit;
mod problem;
mod report;
mod settings;
mod shard;
mod signature;
mod topology;

use millwright_model::{ClusterSnapshot, Plan};

pub use crate::{
    check::{Violation, check},
    report::{PoolStats, SolveReport},
    settings::{MinValuesPolicy, Packing, PreferencePolicy, SolveSettings},
};
use crate::{
    draft::Drafts, first_fit::FirstFit, problem::Problem, shard::Component, signature::Signatures,
};

/// What [`solve`] hands out.
#[derive(Clone, Debug, Default)]
pub struct Solution {
    /// What to do.
    pub plan: Plan,
    /// What the pass says about itself.
    pub report: SolveReport,
}

/// Plans for every pod of `snapshot`.
///
/// Infeasibility is part of the plan, never an error. Cost: about a microsecond per pod and core
/// for the first plan, plus at most [`SolveSettings::step_budget`] steps.
#[must_use]
pub fn solve(snapshot: &ClusterSnapshot, settings: &SolveSettings) -> Solution {
    let problem = Problem::new(snapshot, settings);
    let mut signatures = Signatures::new(&problem);
    let (components, stranded) = shard::split(&problem, &mut signatures);
    let parts = shard::run(
        &components,
        settings.workers,
        signatures,
        || Signatures::new(&problem),
        |component, signatures| work(&problem, component, signatures),
    );
    let workers = settings.workers.clamp(1, components.len().max(1));
    let (plan, mut report) = assemble::assemble(&problem, parts, stranded);
    report.workers = workers;
    Solution { plan, report }
}

/// Plans one component.
fn work<'p>(
    problem: &'p Problem<'p>,
    component: &Component,
    signatures: &mut Signatures<'p>,
) -> Drafts {
    let packed = FirstFit::new(problem, component, signatures).pack();
    let (bins, mut drafts) = draft::sort_out(component, packed, problem.dimensions.stride());
    drafts.lower_bound = cost::lower_bound(problem, component, signatures, &bins);
    let improve = problem.settings.packing == Packing::Cost;
    let again = if improve { bins.clone() } else { Vec::new() };
    drafts.claims = draft::drafts(problem, signatures, bins);
    drafts.incumbent = drafts.claims.iter().map(|claim| claim.cheapest.price).sum();
    if improve {
        cost::improve(problem, signatures, &again, &mut drafts);
    }
    drafts
}
