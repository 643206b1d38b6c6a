//! Single-node consolidation as Karpenter does it: the first candidate that can go.
//!
//! Source: disruption specification 3.10.5.

use std::collections::{BTreeMap, BTreeSet};

use millwright_model::{NodeName, NodePoolName};

use crate::{
    balanced::Balance,
    candidates::{Candidates, Member},
    command::Command,
    consolidation::consolidate,
    fleet::Budgets,
    simulation::Simulator,
};

/// What a scan of the candidates led to.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The first command that its rules permit.
    pub(crate) command: Option<Command>,
    /// Why candidates that were looked at stay.
    pub(crate) refused: BTreeMap<NodeName, String>,
    /// Pools of which no candidate was reached before the scan's bound; the next scan begins with
    /// them.
    pub(crate) unseen: BTreeSet<NodePoolName>,
}

/// Looks at candidates until one can go, at most at `most` of them.
pub(crate) fn scan(
    simulator: &Simulator,
    candidates: &Candidates,
    balance: &Balance,
    budgets: &Budgets,
    spot_to_spot: bool,
    (unseen, most): (&BTreeSet<NodePoolName>, usize),
) -> Scan {
    let mut scan = Scan::default();
    if !simulator.has_usable_pool() {
        return scan;
    }
    let members = candidates.consolidatable.iter();
    let members = members.filter_map(|at| candidates.members.get(*at));
    let order = interleave(members, unseen);
    let pools = |order: &[&Member]| -> BTreeSet<NodePoolName> {
        order
            .iter()
            .map(|m| m.candidate.node_pool.clone())
            .collect()
    };
    for (at, member) in order.iter().enumerate() {
        if at >= most {
            let seen = pools(&order[..at]);
            let rest = pools(&order[at..]);
            scan.unseen = rest.difference(&seen).cloned().collect();
            return scan;
        }
        match look(simulator, member, balance, budgets, spot_to_spot) {
            Ok(command) => {
                scan.command = Some(command);
                // What was not seen before still was not.
                scan.unseen.clone_from(unseen);
                return scan;
            }
            Err(why) => {
                scan.refused.insert(member.candidate.node.clone(), why);
            }
        }
    }
    scan
}

fn look(
    simulator: &Simulator,
    member: &Member,
    balance: &Balance,
    budgets: &Budgets,
    spot_to_spot: bool,
) -> Result<Command, String> {
    let pool = &member.candidate.node_pool;
    if budgets.get(pool).copied().unwrap_or(0) == 0 {
        return Err(format!(
            "No allowed disruptions for disruption reason Underutilized due to blocking budget of NodePool \"{pool}\""
        ));
    }
    let unbalanced = || "Saving isn't worth the disruption by the policy Balanced".to_owned();
    if !balance.may_approve(&member.candidate) {
        return Err(unbalanced());
    }
    let command = consolidate(simulator, &[member], spot_to_spot)?;
    if balance.approves(&command.candidates, command.savings) {
        Ok(command)
    } else {
        Err(unbalanced())
    }
}

/// The best of each pool, then the second best of each, and so on; pools that went unseen the last
/// time come first. Members keep their order within a pool.
fn interleave<'c>(
    members: impl Iterator<Item = &'c Member>,
    unseen: &BTreeSet<NodePoolName>,
) -> Vec<&'c Member> {
    let mut by_pool: BTreeMap<(bool, &NodePoolName), usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, bool, &NodePoolName, &Member)> = members
        .map(|member| {
            let pool = &member.candidate.node_pool;
            let seen = !unseen.contains(pool);
            let rank = by_pool.entry((seen, pool)).or_default();
            *rank += 1;
            (*rank, seen, pool, member)
        })
        .collect();
    ranked.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    ranked.into_iter().map(|(_, _, _, member)| member).collect()
}
