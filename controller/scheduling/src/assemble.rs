//! From drafts to the plan: canonical order, names, reasons, hash, figures.
//!
//! The only place that turns ordinals back into names. Nothing is decided here.

use std::sync::Arc;

use millwright_model::{
    CapacityType, ClusterSnapshot, NodeClaimProposal, Nomination, Plan, PodIndex, Refusal,
    Requirement, Requirements, Unschedulable, labels,
    plan::{Launchable, RefusalKind},
};
use rustc_hash::FxHashMap;

use crate::{
    digest::Digest,
    draft::{Draft, Drafts},
    explain::Explainer,
    first_fit::remaining,
    problem::{ClassOrd, Problem},
    report::{PoolStats, SolveReport},
};

/// Merges the components' drafts. `stranded`: positions in the queue of pods outside any component.
pub(crate) fn assemble(
    problem: &Problem<'_>,
    parts: Vec<Drafts>,
    stranded: Vec<u32>,
) -> (Plan, SolveReport) {
    let mut report = SolveReport {
        pods: problem.snapshot.pods.len(),
        classes: problem.classes.len(),
        components: parts.len(),
        ..SolveReport::default()
    };
    let (mut claims, mut existing, mut failed) = (Vec::new(), Vec::new(), stranded);
    for part in parts {
        claims.extend(part.claims);
        existing.extend(part.existing);
        failed.extend(part.failed);
        report.incumbent_price_per_hour = report.incumbent_price_per_hour + part.incumbent;
        report.lower_bound_per_hour = report.lower_bound_per_hour + part.lower_bound;
        report.steps_used += part.steps;
        report.budget_exhausted |= part.exhausted;
    }
    claims.sort_by(|a, b| {
        let pool = |draft: &Draft| &problem.pool(draft.template).name;
        pool(a)
            .cmp(pool(b))
            .then_with(|| a.pods.first().cmp(&b.pods.first()))
    });
    existing.sort_unstable_by_key(|(node, position)| {
        (&problem.existing.nodes[*node as usize].node.name, *position)
    });
    failed.sort_unstable();
    report.plan_hash = digest(problem, &claims, &existing, &failed);
    let unschedulable = unschedulable(problem, &claims, &failed);
    let plan = Plan {
        generation: problem.snapshot.generation,
        node_claims: proposals(problem, claims),
        nominations: nominations(problem, &existing),
        unschedulable,
    };
    figures(problem, &plan, &mut report);
    (plan, report)
}

fn pod(problem: &Problem<'_>, position: u32) -> PodIndex {
    PodIndex(problem.queue[position as usize].pod)
}

fn ascending(mut pods: Vec<PodIndex>) -> Vec<PodIndex> {
    pods.sort_unstable();
    pods
}

fn proposals(problem: &Problem<'_>, claims: Vec<Draft>) -> Vec<NodeClaimProposal> {
    let mut number = vec![0; problem.templates.len()];
    claims
        .into_iter()
        .map(|draft| {
            number[draft.template] += 1;
            proposal(problem, draft, &mut number)
        })
        .collect()
}

fn proposal(problem: &Problem<'_>, draft: Draft, number: &mut [usize]) -> NodeClaimProposal {
    let pool = &problem.snapshot.node_pools[problem.templates[draft.template].pool];
    let catalogue = problem.catalogue(draft.template);
    let market = &catalogue.markets[draft.cheapest.market];
    let cheapest = Launchable {
        price: draft.cheapest.price,
        instance_type: catalogue.types[draft.cheapest.at].name.clone(),
        zone: market.zone.clone(),
        capacity_type: market.capacity_type,
    };
    let instance_types = draft
        .types()
        .map(|at| Arc::clone(&catalogue.types[at]))
        .collect();
    let pods = draft
        .pods
        .iter()
        .map(|position| pod(problem, *position))
        .collect();
    NodeClaimProposal {
        name: format!("{}-{}", pool.name, number[draft.template]).into(),
        node_pool: Arc::clone(pool),
        requirements: written(draft.requirements, &draft.capacity_types),
        cheapest,
        instance_types,
        requests: draft.requests,
        pods: ascending(pods),
    }
}

/// What goes into the NodeClaim: without the labels that exist only during planning, and narrowed
/// to the capacity types that its instance types are offered with.
fn written(mut requirements: Requirements, capacity_types: &[CapacityType]) -> Requirements {
    requirements.remove(labels::REGISTERED);
    requirements.remove(labels::INITIALIZED);
    requirements.add(Requirement::new(
        &labels::CAPACITY_TYPE.into(),
        millwright_model::Operator::In,
        capacity_types
            .iter()
            .map(|capacity_type| capacity_type.as_str().into()),
    ));
    requirements
}

fn nominations(problem: &Problem<'_>, existing: &[(u32, u32)]) -> Vec<Nomination> {
    existing
        .chunk_by(|a, b| a.0 == b.0)
        .map(|taken| Nomination {
            node: problem.existing.nodes[taken[0].0 as usize]
                .node
                .name
                .clone(),
            pods: ascending(
                taken
                    .iter()
                    .map(|(_, position)| pod(problem, *position))
                    .collect(),
            ),
        })
        .collect()
}

fn unschedulable(problem: &Problem<'_>, claims: &[Draft], failed: &[u32]) -> Vec<Unschedulable> {
    let explainer = Explainer {
        problem,
        remaining: left_of_limits(problem, claims),
    };
    let mut of_class: FxHashMap<ClassOrd, usize> = FxHashMap::default();
    let mut groups: Vec<Unschedulable> = Vec::new();
    for position in failed {
        let class = problem.queue[*position as usize].class;
        let group = *of_class.entry(class).or_insert_with(|| {
            let reasons = explainer.explain(&problem.classes[class as usize]);
            group_for(&mut groups, reasons)
        });
        groups[group].pods.push(pod(problem, *position));
    }
    let mut rejected: Vec<(Vec<Refusal>, PodIndex)> = Vec::new();
    for at in &problem.rejected {
        let Some(pod) = problem.snapshot.pods.get(*at as usize) else {
            continue;
        };
        let refusal = |detail: &String| Refusal {
            node_pool: None,
            kind: RefusalKind::Rejected,
            detail: detail.clone(),
        };
        rejected.push((pod.rejections.iter().map(refusal).collect(), PodIndex(*at)));
    }
    // By text, because invalid pods have no place in the queue that could order them.
    rejected.sort();
    for (reasons, at) in rejected {
        let group = group_for(&mut groups, reasons);
        groups[group].pods.push(at);
    }
    groups
        .iter_mut()
        .for_each(|group| group.pods.sort_unstable());
    groups
}

fn group_for(groups: &mut Vec<Unschedulable>, reasons: Vec<Refusal>) -> usize {
    groups
        .iter()
        .position(|group| group.reasons == reasons)
        .unwrap_or_else(|| {
            groups.push(Unschedulable {
                pods: Vec::new(),
                reasons,
            });
            groups.len() - 1
        })
}

fn left_of_limits(
    problem: &Problem<'_>,
    claims: &[Draft],
) -> Vec<Option<crate::first_fit::Remaining>> {
    let limits = problem
        .templates
        .iter()
        .map(|template| remaining(template.limits.as_ref()));
    let mut left: Vec<_> = limits.collect();
    for claim in claims {
        if let Some(left) = &mut left[claim.template] {
            left.spend(problem, claim.template, claim.types());
        }
    }
    left
}

fn digest(problem: &Problem<'_>, claims: &[Draft], existing: &[(u32, u32)], failed: &[u32]) -> u64 {
    let mut digest = Digest::new();
    let uid = |position: &u32| problem.queue[*position as usize].uid_digest;
    for claim in claims {
        let catalogue = problem.catalogue(claim.template);
        digest.text(&problem.pool(claim.template).name);
        digest.requirements(&claim.requirements);
        digest.word(claim.cheapest.price.0);
        claim
            .types()
            .for_each(|at| digest.word(catalogue.name_digests[at]));
        digest.word(claim.pods.len() as u64);
        claim
            .pods
            .iter()
            .for_each(|position| digest.word(uid(position)));
    }
    for (node, position) in existing {
        digest.text(&problem.existing.nodes[*node as usize].node.name);
        digest.word(uid(position));
    }
    failed
        .iter()
        .for_each(|position| digest.word(uid(position)));
    digest.finish()
}

fn figures(problem: &Problem<'_>, plan: &Plan, report: &mut SolveReport) {
    let unplaced: usize = plan
        .unschedulable
        .iter()
        .map(|group| group.pods.len())
        .sum();
    report.scheduled = report.pods - unplaced;
    report.new_nodes = plan.node_claims.len();
    report.price_per_hour = plan
        .node_claims
        .iter()
        .map(|claim| claim.cheapest.price)
        .sum();
    report.node_pools = pool_stats(problem.snapshot, plan);
    report.unused_node_pools = problem
        .unused
        .iter()
        .map(|unused| (unused.pool.clone(), unused.why.clone()))
        .collect();
}

fn pool_stats(snapshot: &ClusterSnapshot, plan: &Plan) -> Vec<PoolStats> {
    let stats = |pool: &Arc<millwright_model::NodePool>| {
        let claims = || {
            plan.node_claims
                .iter()
                .filter(|c| c.node_pool.name == pool.name)
        };
        PoolStats {
            name: pool.name.clone(),
            new_nodes: claims().count(),
            pods: claims().map(|claim| claim.pods.len()).sum(),
            price_per_hour: claims().map(|claim| claim.cheapest.price).sum(),
        }
    };
    let mut stats: Vec<PoolStats> = snapshot.node_pools.iter().map(stats).collect();
    stats.sort_by(|a, b| a.name.cmp(&b.name));
    stats
}
