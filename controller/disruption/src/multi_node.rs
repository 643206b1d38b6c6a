//! Multi-node consolidation as Karpenter does it: the longest prefix of the candidates, in order of
//! saving per disruption, that can go together.
//!
//! Source: disruption specification 3.10.2.

use crate::{
    balanced::Balance,
    candidates::{Candidates, Member},
    command::Command,
    consolidation::{consolidate, filter_same_type},
    fleet::Budgets,
    simulation::Simulator,
};

/// Prefixes are not longer than this, and one.
const CANDIDATES_MAX: usize = 100;

/// Takes members while the budget of their pool lasts.
pub(crate) fn within_budgets<'c>(
    members: impl IntoIterator<Item = &'c Member>,
    budgets: &Budgets,
) -> Vec<&'c Member> {
    let mut left = budgets.clone();
    let mut takes = |member: &&Member| match left.get_mut(&member.candidate.node_pool) {
        Some(budget) if *budget > 0 => {
            *budget -= 1;
            true
        }
        _ => false,
    };
    members.into_iter().filter(|m| takes(m)).collect()
}

/// Searches the prefixes by halving. Success is not monotone in their length, so that this may miss
/// what is possible; at most eight prefixes are judged.
pub(crate) fn longest_prefix(
    simulator: &Simulator,
    candidates: &Candidates,
    balance: &Balance,
    budgets: &Budgets,
    spot_to_spot: bool,
) -> Option<Command> {
    let members = candidates.consolidatable.iter();
    let members = members.filter_map(|at| candidates.members.get(*at));
    let usable = within_budgets(members, budgets);
    search(simulator, &usable, balance, spot_to_spot)
}

/// The same over any order of members that budgets permit together.
pub(crate) fn search(
    simulator: &Simulator,
    usable: &[&Member],
    balance: &Balance,
    spot_to_spot: bool,
) -> Option<Command> {
    if usable.len() < 2 || !simulator.has_usable_pool() {
        return None;
    }
    let (mut low, mut high) = (1, (usable.len() - 1).min(CANDIDATES_MAX));
    let mut best = None;
    while low <= high {
        let middle = usize::midpoint(low, high);
        match judge(simulator, &usable[..=middle], balance, spot_to_spot) {
            Some(command) => {
                best = Some(command);
                low = middle + 1;
            }
            None => high = middle - 1,
        }
    }
    best
}

/// A command for exactly this set of several members, if its rules permit one.
pub(crate) fn judge(
    simulator: &Simulator,
    set: &[&Member],
    balance: &Balance,
    spot_to_spot: bool,
) -> Option<Command> {
    let command = consolidate(simulator, set, spot_to_spot).ok()?;
    let command = filter_same_type(command, set).ok()?;
    balance
        .approves(&command.candidates, command.savings)
        .then_some(command)
}
