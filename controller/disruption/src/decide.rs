//! One pass: the methods in order, or the search.
//!
//! Source: disruption specification 3.1, 3.7.

use std::collections::{BTreeMap, BTreeSet};

use millwright_lifecycle::{budget::Reason, emptiness};
use millwright_model::{NanoDollarsPerHour, NodeName, NodePoolName};
use millwright_scheduling::{Packing, SolveSettings};

use crate::{
    balanced::Balance,
    candidates::{Candidates, Member, candidates},
    command::{Command, Method},
    fleet::{Budgets, Fleet},
    multi_node, search,
    simulation::Simulator,
    single_node,
};

/// Settings of a pass.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How pods are planned when nodes are thought away.
    pub solve: SolveSettings,
    /// Whether a spot node may be replaced by a cheaper one (gate `SpotToSpotConsolidation`).
    pub spot_to_spot: bool,
    /// Candidates that one scan of single nodes looks at.
    pub scan_max: usize,
    /// Pools that the last scan did not reach; see [`Decision::unseen`].
    pub unseen: BTreeSet<NodePoolName>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            solve: SolveSettings::default(),
            spot_to_spot: false,
            scan_max: usize::MAX,
            unseen: BTreeSet::new(),
        }
    }
}

/// Nodes that pass the candidate rules and a method's filter, in order of name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eligible {
    /// For [`Method::Emptiness`].
    pub emptiness: Vec<NodeName>,
    /// For [`Method::MultiNode`].
    pub multi_node: Vec<NodeName>,
    /// For [`Method::SingleNode`].
    pub single_node: Vec<NodeName>,
}

/// What a pass decided, and why it did not decide more.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// To be carried out, in order: each assumes the ones before it.
    pub commands: Vec<Command>,
    /// What each method had to choose from.
    pub eligible: Eligible,
    /// Every node that no command disrupts and of which it is known why.
    pub skipped: BTreeMap<NodeName, Vec<String>>,
    /// Pools of which the scan of single nodes did not reach a candidate; give them to the next
    /// pass.
    pub unseen: BTreeSet<NodePoolName>,
}

impl Decision {
    /// What all commands save together.
    #[must_use]
    pub fn savings(&self) -> NanoDollarsPerHour {
        self.commands.iter().map(|command| command.savings).sum()
    }
}

/// Decides one pass. Drift is decided elsewhere, from conditions.
///
/// With [`Packing::Karpenter`], by Karpenter's order: emptiness, multi-node, single-node; the first
/// method with a command ends the pass. With [`Packing::Cost`], emptiness and then the commands of
/// the whole-fleet search, which save no less together.
#[must_use]
pub fn decide(fleet: &Fleet, settings: &Settings) -> Decision {
    let found = candidates(fleet);
    let decision = Decision {
        eligible: eligible(&found),
        skipped: found.skipped.clone(),
        ..Decision::default()
    };
    match settings.solve.packing {
        Packing::Karpenter => by_karpenters_order(fleet, settings, &found, decision),
        Packing::Cost => by_search(fleet, settings, &found, decision),
    }
}

fn by_search(
    fleet: &Fleet,
    settings: &Settings,
    found: &Candidates,
    mut decision: Decision,
) -> Decision {
    let mut simulator = Simulator::new(fleet, &settings.solve);
    let mut budgets = fleet.budgets(Reason::Underutilized);
    if let Some(command) = empty_nodes(found, &fleet.budgets(Reason::Empty)) {
        for candidate in &command.candidates {
            // Nodes on their way out consume the budgets of every reason.
            if let Some(left) = budgets.get_mut(&candidate.node_pool) {
                *left = left.saturating_sub(1);
            }
        }
        simulator.drop_nodes(command.candidates.iter().map(|c| &c.node));
        decision.commands.push(command);
    }
    let members = found.consolidatable.iter();
    let members: Vec<&Member> = members.filter_map(|at| found.members.get(*at)).collect();
    let balance = Balance::new(fleet, found);
    let rules = search::Rules {
        balance: &balance,
        spot_to_spot: settings.spot_to_spot,
    };
    let searched = search::rounds(&mut simulator, &members, budgets, &rules);
    decision.commands.extend(searched.commands);
    for (node, why) in searched.refused {
        decision.skipped.entry(node).or_default().push(why);
    }
    decision.finish()
}

fn by_karpenters_order(
    fleet: &Fleet,
    settings: &Settings,
    found: &Candidates,
    mut decision: Decision,
) -> Decision {
    if let Some(command) = empty_nodes(found, &fleet.budgets(Reason::Empty)) {
        decision.commands.push(command);
        return decision.finish();
    }
    let balance = Balance::new(fleet, found);
    let simulator = Simulator::new(fleet, &settings.solve);
    let budgets = fleet.budgets(Reason::Underutilized);
    let several =
        multi_node::longest_prefix(&simulator, found, &balance, &budgets, settings.spot_to_spot);
    if let Some(command) = several {
        decision.commands.push(command);
        return decision.finish();
    }
    let bound = (&settings.unseen, settings.scan_max);
    let scan = single_node::scan(
        &simulator,
        found,
        &balance,
        &budgets,
        settings.spot_to_spot,
        bound,
    );
    decision.commands.extend(scan.command);
    decision.unseen = scan.unseen;
    for (node, why) in scan.refused {
        decision.skipped.entry(node).or_default().push(why);
    }
    decision.finish()
}

impl Decision {
    /// A node that a command disrupts is not skipped.
    fn finish(mut self) -> Self {
        for candidate in self.commands.iter().flat_map(|command| &command.candidates) {
            self.skipped.remove(&candidate.node);
        }
        self
    }
}

/// One command for all empty nodes that budgets permit; nothing has to be planned for them.
fn empty_nodes(found: &Candidates, budgets: &Budgets) -> Option<Command> {
    let empty = found.empty.iter().filter_map(|at| found.members.get(*at));
    let empty = empty.map(|member| member.candidate.clone()).collect();
    let mut candidates = emptiness::select(empty, budgets).chosen;
    if candidates.is_empty() {
        return None;
    }
    candidates.sort_by(|a, b| a.node.cmp(&b.node));
    let going: BTreeSet<&NodeName> = candidates.iter().map(|c| &c.node).collect();
    let goes = |member: &&Member| going.contains(&member.candidate.node);
    let pods_moved = found.members.iter().filter(goes);
    let pods_moved = pods_moved.map(|member| member.pods.len()).sum();
    Some(Command {
        method: Method::Emptiness,
        savings: candidates.iter().map(|c| c.price).sum(),
        candidates,
        replacements: Vec::new(),
        pods_moved,
        to_existing_nodes: BTreeMap::new(),
    })
}

fn eligible(found: &Candidates) -> Eligible {
    let names = |positions: &[usize]| {
        let members = positions.iter().filter_map(|at| found.members.get(*at));
        let mut names: Vec<NodeName> = members.map(|m| m.candidate.node.clone()).collect();
        names.sort_unstable();
        names
    };
    Eligible {
        emptiness: names(&found.empty),
        multi_node: names(&found.consolidatable),
        single_node: names(&found.consolidatable),
    }
}
