//! Whether a set of nodes can go, and what would replace them.
//!
//! Source: disruption specification 3.10.1, 3.10.3, 3.10.4.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use millwright_model::{
    CapacityType, InstanceType, Name, NanoDollarsPerHour, NodeClaimProposal, Operator, Requirement,
    Requirements, labels, plan::Launchable,
};

use crate::{
    candidates::Member,
    command::{Command, Method, Replacement},
    price,
    simulation::{Simulation, Simulator},
};

/// Cheaper types that replacing one spot node by another needs, and the most that are launched:
/// with fewer, or with more, the replacement would soon be consolidated again.
pub(crate) const SPOT_TYPES_MIN: usize = 15;

/// Judges a set of candidates: a command that saves something, or why there is none.
pub(crate) fn consolidate(
    simulator: &Simulator,
    set: &[&Member],
    spot_to_spot: bool,
) -> Result<Command, String> {
    let mut simulation = simulator.without(set);
    if let Some(problem) = simulation.problem() {
        return Err(problem);
    }
    let claims = std::mem::take(&mut simulation.claims);
    match claims.len() {
        0 => Ok(command(set, &simulation, None)),
        1 => {
            let mut replacement = None;
            for claim in claims {
                let pods = simulation.keys(&claim);
                replacement = Some(Replacement {
                    pods,
                    ..cheaper(claim, set, spot_to_spot)?
                });
            }
            Ok(command(set, &simulation, replacement))
        }
        several => Err(format!(
            "Can't remove without creating {several} candidates"
        )),
    }
}

/// The price of the candidates together.
pub(crate) fn price_of(set: &[&Member]) -> NanoDollarsPerHour {
    set.iter().map(|member| member.candidate.price).sum()
}

fn command(set: &[&Member], simulation: &Simulation, new: Option<Replacement>) -> Command {
    let mut candidates: Vec<_> = set.iter().map(|member| member.candidate.clone()).collect();
    candidates.sort_by(|a, b| a.node.cmp(&b.node));
    let mut command = Command {
        method: Method::for_count(set.len()),
        candidates,
        replacements: new.into_iter().collect(),
        savings: NanoDollarsPerHour::ZERO,
        pods_moved: set.iter().map(|member| member.pods.len()).sum(),
        to_existing_nodes: simulation.to_existing.clone(),
    };
    command.savings = savings(&command);
    command
}

fn savings(command: &Command) -> NanoDollarsPerHour {
    let after: NanoDollarsPerHour = command.replacements.iter().map(|r| r.cheapest.price).sum();
    NanoDollarsPerHour(command.price().0.saturating_sub(after.0))
}

/// Narrows the only new NodeClaim until any launch of it costs less than the candidates do.
fn cheaper(
    claim: NodeClaimProposal,
    set: &[&Member],
    spot_to_spot: bool,
) -> Result<Replacement, String> {
    let price = price_of(set);
    let mut requirements = claim.requirements;
    let mut types = claim.instance_types;
    let is_spot = |member: &&Member| member.capacity_type == Some(CapacityType::Spot);
    if set.iter().all(is_spot) && admits(&requirements, CapacityType::Spot) {
        if !spot_to_spot {
            return Err(
                "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
                    .to_owned(),
            );
        }
        restrict_to_spot(&mut requirements);
        types = below(types, &requirements, price)?;
        if set.len() == 1 {
            types = few_spot_types(types, &requirements)?;
        }
    } else {
        types = below(types, &requirements, price)?;
        // The prices above are those of spot: a launch that gets none must fail, not fall back to
        // something dearer.
        if admits(&requirements, CapacityType::Spot)
            && admits(&requirements, CapacityType::OnDemand)
        {
            restrict_to_spot(&mut requirements);
        }
    }
    let cheapest = cheapest(&types, &requirements).ok_or_else(no_cheaper)?;
    Ok(Replacement {
        node_pool: claim.node_pool,
        requirements,
        instance_types: types,
        cheapest,
        requests: claim.requests,
        pods: Vec::new(),
    })
}

fn no_cheaper() -> String {
    "Can't replace with a cheaper node".to_owned()
}

fn admits(requirements: &Requirements, capacity_type: CapacityType) -> bool {
    requirements.allows(labels::CAPACITY_TYPE, capacity_type.as_str())
}

fn restrict_to_spot(requirements: &mut Requirements) {
    let spot: Name = CapacityType::Spot.as_str().into();
    requirements.add(Requirement::new(
        &labels::CAPACITY_TYPE.into(),
        Operator::In,
        [spot],
    ));
}

/// The types whose every launch costs less than `price`, cheapest first.
fn below(
    types: Vec<Arc<InstanceType>>,
    requirements: &Requirements,
    price: NanoDollarsPerHour,
) -> Result<Vec<Arc<InstanceType>>, String> {
    let mut priced: Vec<(NanoDollarsPerHour, Arc<InstanceType>)> = types
        .into_iter()
        .filter(|t| price::worst_launch(t, requirements).is_some_and(|worst| worst < price))
        .filter_map(|t| Some((t.cheapest(requirements)?.price, t)))
        .collect();
    // Stable: equal prices keep the order of the plan.
    priced.sort_by_key(|(price, _)| *price);
    let types: Vec<_> = priced.into_iter().map(|(_, t)| t).collect();
    if types.is_empty() {
        return Err(no_cheaper());
    }
    min_values_hold(&types, requirements).map_err(|why| format!("Filtering by price, {why}"))?;
    Ok(types)
}

/// Whether the types still span the values that the requirements ask for; a price must not buy
/// flexibility away, so this is strict under every policy.
fn min_values_hold(types: &[Arc<InstanceType>], requirements: &Requirements) -> Result<(), String> {
    for requirement in requirements.iter() {
        let Some(wanted) = requirement.min_values() else {
            continue;
        };
        let values: BTreeSet<&Name> = types
            .iter()
            .filter_map(|t| t.requirements.get(requirement.key()))
            .flat_map(Requirement::values)
            .filter(|value| requirement.has(value))
            .collect();
        if values.len() < usize::try_from(wanted).unwrap_or(usize::MAX) {
            return Err(format!(
                "minValues requirement is not met for label(s) (label(s)=[{}])",
                requirement.key()
            ));
        }
    }
    Ok(())
}

/// For one spot node: enough cheaper types, and no more than are needed, so that what is launched
/// is among the cheapest and is not consolidated again at once.
fn few_spot_types(
    mut types: Vec<Arc<InstanceType>>,
    requirements: &Requirements,
) -> Result<Vec<Arc<InstanceType>>, String> {
    if types.len() < SPOT_TYPES_MIN {
        return Err(format!(
            "SpotToSpotConsolidation requires {SPOT_TYPES_MIN} cheaper instance type options than \
             the current candidate to consolidate, got {}",
            types.len()
        ));
    }
    let spans = |count: &usize| min_values_hold(&types[..*count], requirements).is_ok();
    let needed = (SPOT_TYPES_MIN..=types.len()).find(spans);
    types.truncate(needed.unwrap_or(types.len()));
    Ok(types)
}

fn cheapest(types: &[Arc<InstanceType>], requirements: &Requirements) -> Option<Launchable> {
    // Of the first type, as launches prefer it; a type that the last restriction left without an
    // offering is passed over.
    types.iter().find_map(|t| {
        let offering = t.cheapest(requirements)?;
        Some(Launchable {
            price: offering.price,
            instance_type: t.name.clone(),
            zone: offering.zone.clone(),
            capacity_type: offering.capacity_type,
        })
    })
}

/// For several nodes: replacing them by one of a type that is among them already is no better than
/// deleting the others, so the replacement must cost less than the cheapest such node.
pub(crate) fn filter_same_type(mut command: Command, set: &[&Member]) -> Result<Command, String> {
    let mut own: BTreeMap<&Name, NanoDollarsPerHour> = BTreeMap::new();
    for member in set {
        let Some(instance_type) = &member.instance_type else {
            continue;
        };
        let price = member.candidate.price;
        own.entry(&instance_type.name)
            .and_modify(|known| *known = price.min(*known))
            .or_insert(price);
    }
    for replacement in &mut command.replacements {
        let types = std::mem::take(&mut replacement.instance_types);
        let most = types.iter().filter_map(|t| own.get(&t.name)).min();
        let most = most.copied().unwrap_or(NanoDollarsPerHour::MAX);
        replacement.instance_types = below(types, &replacement.requirements, most)?;
        let left = cheapest(&replacement.instance_types, &replacement.requirements);
        replacement.cheapest = left.ok_or_else(no_cheaper)?;
    }
    command.savings = savings(&command);
    Ok(command)
}
