//! What `millwright consolidate` prints: the JSON object whose field names are a contract, and a
//! table.

use std::{collections::BTreeMap, fmt::Write as _};

use millwright_disruption::{Command, Decision, Fleet, Replacement};
use millwright_model::{CapacityType, NodeName, PodKey, labels};
use serde::Serialize;

use crate::plan::output::CheapestOutput;

/// The whole answer; field names and their meaning are a contract with users' scripts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// What would be done now, in order.
    pub commands: Vec<CommandOutput>,
    /// Nodes that each method could choose from.
    pub eligible: EligibleOutput,
    /// Nodes that stay, and why.
    pub skipped: Vec<SkippedOutput>,
    /// Totals.
    pub summary: Summary,
}

/// Nodes to disrupt together.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOutput {
    /// `emptiness`, `multi` or `single`.
    pub method: &'static str,
    /// `Empty` or `Underutilized`.
    pub reason: &'static str,
    /// `delete` or `replace`.
    pub decision: &'static str,
    /// Node names, sorted.
    pub candidates: Vec<String>,
    /// NodeClaims that are created first.
    pub replacements: Vec<ReplacementOutput>,
    /// Dollars per hour.
    pub savings_per_hour: f64,
    /// Pods that leave the candidates.
    pub pods_moved: usize,
    /// Existing nodes with the pods expected there, `namespace/name`.
    pub to_existing_nodes: BTreeMap<String, Vec<String>>,
}

/// A NodeClaim that is created first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementOutput {
    /// NodePool.
    pub node_pool: String,
    /// Every type that may be launched, by price.
    pub instance_types: Vec<String>,
    /// The cheapest offering.
    pub cheapest: CheapestOutput,
    /// Capacity types left in its requirements.
    pub capacity_types: Vec<&'static str>,
    /// `namespace/name`, sorted.
    pub pods: Vec<String>,
}

/// Nodes that pass the rules for candidates and the filter of a method, sorted.
#[derive(Debug, Serialize)]
pub struct EligibleOutput {
    /// Emptiness.
    pub emptiness: Vec<String>,
    /// Multi-node consolidation.
    pub multi: Vec<String>,
    /// Single-node consolidation.
    pub single: Vec<String>,
}

/// A node that stays.
#[derive(Debug, Serialize)]
pub struct SkippedOutput {
    /// Node name.
    pub node: String,
    /// Why.
    pub reasons: Vec<String>,
}

/// Totals.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Nodes of the input.
    pub nodes: usize,
    /// Nodes that the commands disrupt.
    pub disrupted: usize,
    /// NodeClaims that they create.
    pub new_nodes: usize,
    /// Pods that they move.
    pub pods_moved: usize,
    /// What all commands save, dollars per hour.
    pub savings_per_hour: f64,
    /// Time of the decision, microseconds.
    pub decide_micros: u64,
    /// `cost` or `karpenter`.
    pub packing: &'static str,
}

/// Renders a decision; the time comes from the caller, who measured.
#[must_use]
pub fn output(
    fleet: &Fleet,
    decision: &Decision,
    packing: &'static str,
    decide_micros: u64,
) -> Output {
    let commands = &decision.commands;
    let summary = Summary {
        nodes: fleet.len(),
        disrupted: commands.iter().map(|c| c.candidates.len()).sum(),
        new_nodes: commands.iter().map(|c| c.replacements.len()).sum(),
        pods_moved: commands.iter().map(|c| c.pods_moved).sum(),
        savings_per_hour: decision.savings().as_dollars(),
        decide_micros,
        packing,
    };
    let skipped = decision
        .skipped
        .iter()
        .map(|(node, reasons)| SkippedOutput {
            node: node.to_string(),
            reasons: reasons.clone(),
        });
    Output {
        commands: commands.iter().map(command).collect(),
        eligible: EligibleOutput {
            emptiness: nodes(&decision.eligible.emptiness),
            multi: nodes(&decision.eligible.multi_node),
            single: nodes(&decision.eligible.single_node),
        },
        skipped: skipped.collect(),
        summary,
    }
}

fn nodes(names: &[NodeName]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn pods(keys: &[PodKey]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

fn command(command: &Command) -> CommandOutput {
    let to_existing = command.to_existing_nodes.iter();
    CommandOutput {
        method: command.method.as_str(),
        reason: command.reason().as_str(),
        decision: command.decision(),
        candidates: command
            .candidates
            .iter()
            .map(|candidate| candidate.node.to_string())
            .collect(),
        replacements: command.replacements.iter().map(replacement).collect(),
        savings_per_hour: command.savings.as_dollars(),
        pods_moved: command.pods_moved,
        to_existing_nodes: to_existing
            .map(|(node, keys)| (node.to_string(), pods(keys)))
            .collect(),
    }
}

fn replacement(replacement: &Replacement) -> ReplacementOutput {
    let cheapest = &replacement.cheapest;
    let admitted = |capacity_type: &CapacityType| {
        replacement
            .requirements
            .allows(labels::CAPACITY_TYPE, capacity_type.as_str())
    };
    let all = [
        CapacityType::OnDemand,
        CapacityType::Reserved,
        CapacityType::Spot,
    ];
    ReplacementOutput {
        node_pool: replacement.node_pool.name.to_string(),
        instance_types: replacement
            .instance_types
            .iter()
            .map(|t| t.name.to_string())
            .collect(),
        cheapest: CheapestOutput {
            instance_type: cheapest.instance_type.to_string(),
            zone: cheapest.zone.to_string(),
            capacity_type: cheapest.capacity_type.as_str(),
            price_per_hour: cheapest.price.as_dollars(),
        },
        capacity_types: all
            .iter()
            .filter(|c| admitted(c))
            .map(|c| c.as_str())
            .collect(),
        pods: pods(&replacement.pods),
    }
}

/// The table for people: commands, then what stays and why.
#[must_use]
pub fn table(output: &Output) -> String {
    let mut text = String::new();
    for command in &output.commands {
        let _ = writeln!(
            text,
            "{} {} ({}): {}, {} pods move, saves ${:.4}/h",
            command.decision,
            command.candidates.join(", "),
            command.method,
            command.reason,
            command.pods_moved,
            command.savings_per_hour
        );
        for new in &command.replacements {
            let cheapest = &new.cheapest;
            let _ = writeln!(
                text,
                "  by one node of nodepool {} with {} pods: {} {} at ${:.4}/h or one of {} other types",
                new.node_pool,
                new.pods.len(),
                cheapest.instance_type,
                cheapest.capacity_type,
                cheapest.price_per_hour,
                new.instance_types.len().saturating_sub(1)
            );
        }
        for (node, pods) in &command.to_existing_nodes {
            let _ = writeln!(text, "  {} pods to {node}", pods.len());
        }
    }
    for (reasons, nodes) in by_reasons(&output.skipped) {
        let shown: Vec<&str> = nodes.iter().take(3).copied().collect();
        let more = match nodes.len().saturating_sub(3) {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        let _ = writeln!(text, "stays: {}{more}", shown.join(", "));
        for reason in reasons {
            let _ = writeln!(text, "  {reason}");
        }
    }
    let s = &output.summary;
    let _ = writeln!(
        text,
        "{} of {} nodes go, {} come, ${:.4}/h less, {} rules",
        s.disrupted, s.nodes, s.new_nodes, s.savings_per_hour, s.packing
    );
    text
}

fn by_reasons(skipped: &[SkippedOutput]) -> Vec<(&[String], Vec<&str>)> {
    let mut groups: Vec<(&[String], Vec<&str>)> = Vec::new();
    for entry in skipped {
        match groups.iter_mut().find(|group| group.0 == entry.reasons) {
            Some((_, nodes)) => nodes.push(&entry.node),
            None => groups.push((&entry.reasons, vec![&entry.node])),
        }
    }
    groups
}
