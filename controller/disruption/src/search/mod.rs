//! The whole-fleet search: commands that Karpenter's walk over prefixes does not see.
//!
//! A round finds the command that saves most: Karpenter's own is the floor, sets that the [`Board`]
//! proposes and sets that grow and shrink by one node compete with it. Every command is judged by
//! the same rules, whoever proposed it. Rounds follow each other on what the commands before leave.
//! Nodes that receive pods stay for the rest of the pass: no pod moves twice.

mod board;
mod kinds;

use std::{cmp::Reverse, collections::BTreeMap};

use millwright_model::NodeName;

pub(crate) use board::Board;

use crate::{
    balanced::Balance,
    candidates::Member,
    command::Command,
    consolidation::consolidate,
    fleet::Budgets,
    multi_node::{judge, search, within_budgets},
    simulation::Simulator,
};

/// Commands of one pass.
const ROUNDS_MAX: usize = 16;
/// Nodes that all simulations of a round may plan for together, which bounds its time.
const NODES_SIMULATED: usize = 100_000;
/// Simulations of a round, whatever the size of the fleet.
const SIMULATIONS: std::ops::RangeInclusive<usize> = 4..=128;

/// What a search asks beside the members.
pub(crate) struct Rules<'r> {
    pub(crate) balance: &'r Balance,
    pub(crate) spot_to_spot: bool,
}

/// What a search led to.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) commands: Vec<Command>,
    /// Why members stay, where it is known.
    pub(crate) refused: BTreeMap<NodeName, String>,
}

/// Rounds until nothing is found. `members` are in order of saving per disruption.
pub(crate) fn rounds(
    simulator: &mut Simulator,
    members: &[&Member],
    mut budgets: Budgets,
    rules: &Rules<'_>,
) -> Found {
    let mut found = Found::default();
    if !simulator.has_usable_pool() {
        return found;
    }
    let mut open: Vec<&Member> = members.to_vec();
    while found.commands.len() < ROUNDS_MAX {
        let mut round = Round::new(simulator, rules);
        let Some(command) = round.best(&open, &budgets) else {
            found.refused.append(&mut round.refused);
            break;
        };
        for candidate in &command.candidates {
            if let Some(left) = budgets.get_mut(&candidate.node_pool) {
                *left = left.saturating_sub(1);
            }
        }
        let goes = |member: &&Member| {
            let node = &member.candidate.node;
            let going = command.candidates.iter().any(|c| c.node == *node);
            let receives = command.to_existing_nodes.contains_key(node);
            if receives {
                found
                    .refused
                    .insert(node.clone(), "Node receives pods of disrupted nodes".into());
            }
            !going && !receives
        };
        open.retain(goes);
        simulator.apply(&command, members);
        found.commands.push(command);
    }
    found
}

struct Round<'s> {
    simulator: &'s Simulator,
    rules: &'s Rules<'s>,
    simulations: usize,
    refused: BTreeMap<NodeName, String>,
}

impl<'s> Round<'s> {
    fn new(simulator: &'s Simulator, rules: &'s Rules<'s>) -> Self {
        let affordable = NODES_SIMULATED / simulator.len().max(1);
        Self {
            simulator,
            rules,
            simulations: affordable.clamp(*SIMULATIONS.start(), *SIMULATIONS.end()),
            refused: BTreeMap::new(),
        }
    }

    /// The command that saves most; of equals the one that moves fewer pods.
    fn best(&mut self, open: &[&Member], budgets: &Budgets) -> Option<Command> {
        let usable = within_budgets(open.iter().copied(), budgets);
        let (balance, spot) = (self.rules.balance, self.rules.spot_to_spot);
        let prefix = search(self.simulator, &usable, balance, spot);
        let walks_singles = prefix.is_none();
        let mut best = prefix;
        for order in orders(open) {
            let set = propose(self.simulator, &order, budgets);
            if set.len() < 2 {
                continue;
            }
            let command = judge(self.simulator, &set, balance, spot);
            let command = command.or_else(|| search(self.simulator, &set, balance, spot));
            best = better(best, command);
        }
        if walks_singles {
            // What Karpenter would come to next is part of the floor.
            let allowed = |member: &&Member| budgets.get(&member.candidate.node_pool) > Some(&0);
            let singles: Vec<&Member> = open.iter().copied().filter(allowed).collect();
            best = better(best, self.first_single(&singles));
        }
        self.climb(best?, open, budgets)
    }

    /// Karpenter's single-node walk, on all candidates.
    fn first_single(&mut self, open: &[&Member]) -> Option<Command> {
        let mut board = Board::new(self.simulator.base(), open);
        for (at, member) in open.iter().enumerate() {
            let node = &member.candidate.node;
            if at >= self.simulations && !board.can_go(at) {
                // Not worth a simulation in a fleet of this size.
                let why = "Not all pods would schedule on other nodes".to_owned();
                self.refused.insert(node.clone(), why);
                continue;
            }
            match self.judge_one(member) {
                Ok(command) => return Some(command),
                Err(why) => {
                    self.refused.insert(node.clone(), why);
                }
            }
        }
        None
    }

    fn judge_one(&self, member: &Member) -> Result<Command, String> {
        let unbalanced = || "Saving isn't worth the disruption by the policy Balanced".to_owned();
        let balance = self.rules.balance;
        if !balance.may_approve(&member.candidate) {
            return Err(unbalanced());
        }
        let command = consolidate(self.simulator, &[member], self.rules.spot_to_spot)?;
        let approved = balance.approves(&command.candidates, command.savings);
        if approved {
            Ok(command)
        } else {
            Err(unbalanced())
        }
    }

    fn judge(&self, set: &[&Member]) -> Option<Command> {
        match set {
            [] => None,
            [member] => self.judge_one(member).ok(),
            several => judge(
                self.simulator,
                several,
                self.rules.balance,
                self.rules.spot_to_spot,
            ),
        }
    }

    /// Adds or takes out one node at a time while that saves more.
    fn climb(&self, start: Command, open: &[&Member], budgets: &Budgets) -> Option<Command> {
        let mut best = start;
        let mut left = self.simulations;
        let mut improved = true;
        while improved && left > 0 {
            improved = false;
            for member in open {
                if left == 0 {
                    break;
                }
                let Some(set) = toggled(&best, member, open, budgets) else {
                    continue;
                };
                left -= 1;
                let Some(command) = self.judge(&set) else {
                    continue;
                };
                if command.savings > best.savings {
                    best = command;
                    improved = true;
                }
            }
        }
        Some(best)
    }
}

/// The command's set with `member` added or taken out; `None` where budgets forbid it.
fn toggled<'m>(
    command: &Command,
    member: &'m Member,
    open: &[&'m Member],
    budgets: &Budgets,
) -> Option<Vec<&'m Member>> {
    let is_in = |other: &Member| {
        let node = &other.candidate.node;
        command
            .candidates
            .iter()
            .any(|candidate| candidate.node == *node)
    };
    let is_this = |other: &Member| other.candidate.node == member.candidate.node;
    let wanted = |other: &&&'m Member| is_in(other) != is_this(other);
    let set: Vec<&Member> = open.iter().filter(wanted).copied().collect();
    (within_budgets(set.iter().copied(), budgets).len() == set.len()).then_some(set)
}

fn better(a: Option<Command>, b: Option<Command>) -> Option<Command> {
    let rank = |command: &Command| (command.savings, Reverse(command.pods_moved));
    match (a, b) {
        (Some(a), Some(b)) if rank(&b) > rank(&a) => Some(b),
        (None, b) => b,
        (a, _) => a,
    }
}

/// Orders in which nodes are tried: by saving per disruption, by price, by number of pods.
fn orders<'m>(open: &[&'m Member]) -> [Vec<&'m Member>; 3] {
    let mut by_price = open.to_vec();
    by_price.sort_by_key(|member| Reverse(member.candidate.price));
    let mut by_pods = open.to_vec();
    by_pods.sort_by_key(|member| (member.pods.len(), Reverse(member.candidate.price)));
    [open.to_vec(), by_price, by_pods]
}

/// Nodes that can go together without replacement, as far as the board knows.
fn propose<'m>(simulator: &Simulator, order: &[&'m Member], budgets: &Budgets) -> Vec<&'m Member> {
    let mut board = Board::new(simulator.base(), order);
    let mut left = budgets.clone();
    let mut set = Vec::new();
    for (at, member) in order.iter().enumerate() {
        let Some(budget) = left
            .get_mut(&member.candidate.node_pool)
            .filter(|b| **b > 0)
        else {
            continue;
        };
        if board.remove(at) {
            *budget -= 1;
            set.push(*member);
        }
    }
    set
}
