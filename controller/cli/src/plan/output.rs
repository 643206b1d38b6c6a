//! What `millwright plan` prints: the JSON object whose field names are a contract, and a table.

use std::fmt::Write as _;

use millwright_model::{
    ClusterSnapshot, NodeClaimProposal, Plan, PodIndex, Requirement, Requirements, Taint,
};
use serde::Serialize;

/// The whole answer; field names and their meaning are a contract with users' scripts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// NodeClaims that would be created.
    pub node_claims: Vec<ClaimOutput>,
    /// Existing nodes that would receive pods.
    pub existing_nodes: Vec<NodeOutput>,
    /// Pods without a place.
    pub unschedulable: Vec<UnschedulableOutput>,
    /// Totals.
    pub summary: Summary,
}

/// One NodeClaim.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOutput {
    /// `POOL-N`; carries no meaning beyond this answer.
    pub name: String,
    /// NodePool.
    pub node_pool: String,
    /// Every type that may be launched, by price.
    pub instance_types: Vec<String>,
    /// The cheapest offering.
    pub cheapest: CheapestOutput,
    /// Requirements of the NodeClaim.
    pub requirements: Vec<RequirementOutput>,
    /// Taints, `key=value:Effect`.
    pub taints: Vec<String>,
    /// What pods and daemons ask for, as quantities.
    pub requests: serde_json::Map<String, serde_json::Value>,
    /// `namespace/name`, sorted.
    pub pods: Vec<String>,
}

/// An offering.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheapestOutput {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: &'static str,
    /// Dollars per hour.
    pub price_per_hour: f64,
}

/// One requirement entry, as a NodeClaim has it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequirementOutput {
    /// Label key.
    pub key: String,
    /// Operator.
    pub operator: &'static str,
    /// Values; absent for `Exists` and `DoesNotExist`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Distinct values that the types must span.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}

/// An existing node with the pods it would receive.
#[derive(Debug, Serialize)]
pub struct NodeOutput {
    /// Node name.
    pub name: String,
    /// `namespace/name`, sorted.
    pub pods: Vec<String>,
}

/// A pod without a place.
#[derive(Debug, Serialize)]
pub struct UnschedulableOutput {
    /// `namespace/name`.
    pub pod: String,
    /// Why; never empty.
    pub reasons: Vec<String>,
}

/// Totals.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Pods that needed a place.
    pub pods: usize,
    /// Pods that got one.
    pub scheduled: usize,
    /// NodeClaims.
    pub new_nodes: usize,
    /// Sum of the cheapest prices, dollars per hour.
    pub price_per_hour: f64,
    /// No plan for the new nodes can cost less than this, dollars per hour.
    pub lower_bound_per_hour: f64,
    /// Time of the solve, microseconds.
    pub solve_micros: u64,
    /// Workers used.
    pub workers: usize,
    /// `cost` or `karpenter`.
    pub packing: &'static str,
    /// Equal plans have equal hashes.
    pub plan_hash: String,
}

/// Renders the plan's parts; `summary` comes from the caller, who measured.
#[must_use]
pub fn output(snapshot: &ClusterSnapshot, plan: &Plan, summary: Summary) -> Output {
    let mut unschedulable: Vec<UnschedulableOutput> = plan
        .unschedulable
        .iter()
        .flat_map(|group| {
            let reasons: Vec<String> = group.reasons.iter().map(ToString::to_string).collect();
            names(snapshot, &group.pods)
                .into_iter()
                .map(move |pod| UnschedulableOutput {
                    pod,
                    reasons: reasons.clone(),
                })
        })
        .collect();
    unschedulable.sort_by(|a, b| a.pod.cmp(&b.pod));
    Output {
        node_claims: plan
            .node_claims
            .iter()
            .map(|claim| claim_output(snapshot, claim))
            .collect(),
        existing_nodes: plan
            .nominations
            .iter()
            .map(|n| NodeOutput {
                name: n.node.to_string(),
                pods: names(snapshot, &n.pods),
            })
            .collect(),
        unschedulable,
        summary,
    }
}

fn names(snapshot: &ClusterSnapshot, pods: &[PodIndex]) -> Vec<String> {
    let mut names: Vec<String> = pods
        .iter()
        .filter_map(|pod| snapshot.pods.get(pod.0 as usize))
        .map(|pod| pod.key.to_string())
        .collect();
    names.sort_unstable();
    names
}

fn claim_output(snapshot: &ClusterSnapshot, claim: &NodeClaimProposal) -> ClaimOutput {
    ClaimOutput {
        name: claim.name.to_string(),
        node_pool: claim.node_pool.name.to_string(),
        instance_types: claim
            .instance_types
            .iter()
            .map(|t| t.name.to_string())
            .collect(),
        cheapest: CheapestOutput {
            instance_type: claim.cheapest.instance_type.to_string(),
            zone: claim.cheapest.zone.to_string(),
            capacity_type: claim.cheapest.capacity_type.as_str(),
            price_per_hour: claim.cheapest.price.as_dollars(),
        },
        requirements: requirement_output(&claim.requirements),
        taints: claim
            .node_pool
            .taints
            .iter()
            .map(Taint::to_string)
            .collect(),
        requests: claim
            .requests
            .iter()
            .map(|(n, amount)| (n.to_string(), n.format(amount).into()))
            .collect(),
        pods: names(snapshot, &claim.pods),
    }
}

fn requirement_output(requirements: &Requirements) -> Vec<RequirementOutput> {
    requirements.iter().flat_map(entries).collect()
}

fn entries(requirement: &Requirement) -> impl Iterator<Item = RequirementOutput> + '_ {
    requirement
        .to_entries()
        .into_iter()
        .map(|(operator, values)| RequirementOutput {
            key: requirement.key().to_string(),
            operator: operator.as_str(),
            values: values.iter().map(ToString::to_string).collect(),
            min_values: requirement.min_values(),
        })
}

/// The table for people: nodes grouped by pool and cheapest offering, then what has no place.
#[must_use]
pub fn table(output: &Output) -> String {
    let mut text = String::new();
    let rows = rows(output);
    if !rows.is_empty() {
        text.push_str(&render(
            &[
                "NODEPOOL", "CHEAPEST", "CAPACITY", "NODES", "TYPES", "PODS", "$/HOUR",
            ],
            &rows,
        ));
    }
    for node in &output.existing_nodes {
        let _ = writeln!(
            text,
            "existing node {}: {} pods",
            node.name,
            node.pods.len()
        );
    }
    for (reasons, pods) in grouped(output) {
        let more = if pods.len() > 3 {
            format!(" and {} others", pods.len() - 3)
        } else {
            String::new()
        };
        let shown: Vec<&str> = pods.iter().take(3).copied().collect();
        let _ = writeln!(text, "no place for {}{more}:", shown.join(", "));
        for reason in reasons {
            let _ = writeln!(text, "  {reason}");
        }
    }
    let s = &output.summary;
    let _ = writeln!(
        text,
        "{} of {} pods placed, {} new nodes, ${:.4}/h (no plan costs less than ${:.4}/h), {} packing in {:.1} ms",
        s.scheduled,
        s.pods,
        s.new_nodes,
        s.price_per_hour,
        s.lower_bound_per_hour,
        s.packing,
        millis(s.solve_micros)
    );
    text
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a duration for people; 2^53 microseconds are 285 years"
)]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// Equal claims become one row: pool, cheapest type, capacity type.
fn rows(output: &Output) -> Vec<[String; 7]> {
    let mut rows: Vec<(String, String, &str, usize, usize, usize, f64)> = Vec::new();
    for claim in &output.node_claims {
        let cheapest = &claim.cheapest;
        let found = rows.iter_mut().find(|row| {
            row.0 == claim.node_pool
                && row.1 == cheapest.instance_type
                && row.2 == cheapest.capacity_type
        });
        match found {
            Some(row) => {
                row.3 += 1;
                row.4 = row.4.min(claim.instance_types.len());
                row.5 += claim.pods.len();
                row.6 += cheapest.price_per_hour;
            }
            None => rows.push((
                claim.node_pool.clone(),
                cheapest.instance_type.clone(),
                cheapest.capacity_type,
                1,
                claim.instance_types.len(),
                claim.pods.len(),
                cheapest.price_per_hour,
            )),
        }
    }
    rows.into_iter()
        .map(|(pool, kind, capacity, nodes, types, pods, price)| {
            let price = format!("{price:.4}");
            [
                pool,
                kind,
                capacity.to_owned(),
                nodes.to_string(),
                types.to_string(),
                pods.to_string(),
                price,
            ]
        })
        .collect()
}

fn grouped(output: &Output) -> Vec<(&[String], Vec<&str>)> {
    let mut groups: Vec<(&[String], Vec<&str>)> = Vec::new();
    for entry in &output.unschedulable {
        match groups
            .iter_mut()
            .find(|(reasons, _)| *reasons == entry.reasons.as_slice())
        {
            Some((_, pods)) => pods.push(&entry.pod),
            None => groups.push((&entry.reasons, vec![&entry.pod])),
        }
    }
    groups
}

/// Columns padded with two spaces between them, like kubectl's.
fn render<const N: usize>(header: &[&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(String::len);
        cells
            .chain(header.get(column).map(|h| h.len()))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}
