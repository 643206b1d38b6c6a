//! The fleet as dense columns, to ask many times whether pods fit elsewhere.
//!
//! Built once per round: pods with equal specs are one class, room and requests are rows of
//! integers, and every class has the list of nodes that may take it. A question places pods
//! tentatively and logs each placement; the answer no takes them back. Nothing is copied.
//!
//! The board proposes, it does not decide: rules between pods (spread, affinity, ports, volumes)
//! are not on it. Pods that have any keep their node from being proposed, and what is proposed is
//! planned by the scheduler's own rules before it becomes a command.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use millwright_model::{
    ClusterSnapshot, NodeName, PodSpec, ResourceName, StateNode, topology::WhenUnsatisfiable,
};
use rustc_hash::FxHashMap;

use super::kinds::Kinds;
use crate::candidates::Member;

/// A kind of pod.
#[derive(Debug)]
struct Class {
    /// Requests, a row.
    row: Vec<i64>,
    /// Nodes that may take one at the start, those that are likely to stay first.
    nodes: Vec<u32>,
    /// Whether the board knows all its rules.
    is_plain: bool,
}

/// Columns by node, in the order in which pods are placed.
#[derive(Debug)]
pub(crate) struct Board {
    stride: usize,
    classes: Vec<Class>,
    /// What is left, rows.
    left: Vec<i64>,
    /// Whether nothing may be placed: it goes away.
    closed: Vec<bool>,
    /// By node: classes of the pods that must move when it goes, guests included.
    residents: Vec<Vec<u32>>,
    /// By member: its node.
    node_of: Vec<Option<u32>>,
    /// Placements since the last answer: node and class.
    log: Vec<(u32, u32)>,
}

impl Board {
    /// `members` are in order of saving per disruption: the last of them stays longest, and nodes
    /// that cannot go at all are the best place for pods.
    pub(crate) fn new(snapshot: &ClusterSnapshot, members: &[&Member]) -> Self {
        let nodes = order(snapshot, members);
        let (specs, mut pods) = classify(members);
        let names = specs.iter().flat_map(|spec| spec.requests.iter());
        let dimensions: BTreeSet<&ResourceName> = names.map(|(name, _)| name).collect();
        let kinds = Kinds::new(snapshot, &specs, &nodes);
        let rooms = nodes.iter().zip(&kinds.of_node).flat_map(|(node, kind)| {
            let room = kinds.room(node, *kind);
            dimensions
                .iter()
                .map(move |name| room.get(name))
                .collect::<Vec<_>>()
        });
        let mut board = Self {
            stride: dimensions.len(),
            left: rooms.collect(),
            classes: Vec::with_capacity(specs.len()),
            closed: vec![false; nodes.len()],
            residents: vec![Vec::new(); nodes.len()],
            node_of: Vec::with_capacity(members.len()),
            log: Vec::new(),
        };
        let repelling = repelling(snapshot);
        for spec in &specs {
            let row: Vec<i64> = dimensions.iter().map(|n| spec.requests.get(n)).collect();
            let welcome = kinds.welcoming(spec);
            let takes = |(at, kind): (usize, &u32)| {
                let at = ordinal(at);
                (welcome[*kind as usize] && board.has_room(at, &row)).then_some(at)
            };
            let nodes = kinds.of_node.iter().enumerate().filter_map(takes).collect();
            let repelled = |other: &&PodSpec| repels(other, spec);
            let is_plain = has_only_plain_rules(spec) && !repelling.iter().any(repelled);
            board.classes.push(Class {
                row,
                nodes,
                is_plain,
            });
        }
        let position: FxHashMap<&NodeName, u32> = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (&node.name, ordinal(at)))
            .collect();
        for (member, own) in members.iter().zip(&mut pods) {
            let node = position.get(&member.candidate.node).copied();
            // The largest first: what fails, fails early.
            own.sort_by_key(|class| Reverse(&board.classes[*class as usize].row));
            if let Some(node) = node {
                board.residents[node as usize] = std::mem::take(own);
            }
            board.node_of.push(node);
        }
        board
    }

    /// Whether the pods of a member fit elsewhere. The board is as before.
    pub(crate) fn can_go(&mut self, member: usize) -> bool {
        let Some(node) = self.node_of[member] else {
            return false;
        };
        let goes = self.place_residents(node);
        self.undo(node);
        goes
    }

    /// Takes a member away if its pods fit elsewhere; whether it did. They are residents of their
    /// new nodes from now on, and move again if those go.
    pub(crate) fn remove(&mut self, member: usize) -> bool {
        let Some(node) = self.node_of[member] else {
            return false;
        };
        if !self.place_residents(node) {
            self.undo(node);
            return false;
        }
        self.residents[node as usize].clear();
        for (to, class) in std::mem::take(&mut self.log) {
            self.residents[to as usize].push(class);
        }
        true
    }

    fn has_room(&self, node: u32, row: &[i64]) -> bool {
        let left = &self.left[node as usize * self.stride..][..self.stride];
        row.iter().zip(left).all(|(want, left)| want <= left)
    }

    fn change(&mut self, node: u32, class: u32, sign: i64) {
        let left = &mut self.left[node as usize * self.stride..][..self.stride];
        for (left, want) in left.iter_mut().zip(&self.classes[class as usize].row) {
            *left += sign * want;
        }
    }

    /// Places the pods of a node on others and logs it; whether there was room for all.
    fn place_residents(&mut self, node: u32) -> bool {
        self.closed[node as usize] = true;
        for at in 0..self.residents[node as usize].len() {
            let class = self.residents[node as usize][at];
            let kind = &self.classes[class as usize];
            let takes = |to: &&u32| !self.closed[**to as usize] && self.has_room(**to, &kind.row);
            let place = kind.nodes.iter().find(takes).copied();
            let Some(to) = place.filter(|_| kind.is_plain) else {
                return false;
            };
            self.change(to, class, -1);
            self.log.push((to, class));
        }
        true
    }

    fn undo(&mut self, node: u32) {
        while let Some((to, class)) = self.log.pop() {
            self.change(to, class, 1);
        }
        self.closed[node as usize] = false;
    }
}

fn ordinal(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Nodes that may take pods: first those that cannot go, then members from the last to the first.
fn order<'s>(snapshot: &'s ClusterSnapshot, members: &[&Member]) -> Vec<&'s StateNode> {
    let rank: FxHashMap<&NodeName, usize> = members
        .iter()
        .enumerate()
        .map(|(at, member)| (&member.candidate.node, at))
        .collect();
    let mut nodes: Vec<&StateNode> = snapshot
        .nodes
        .iter()
        .map(AsRef::as_ref)
        .filter(|node| !node.deleting && node.initialized)
        .collect();
    nodes.sort_by_key(|node| {
        let rank = rank.get(&node.name).copied();
        (rank.is_some(), Reverse(rank), &node.name)
    });
    nodes
}

/// Distinct specs, and by member the classes of its pods.
fn classify<'m>(members: &[&'m Member]) -> (Vec<&'m PodSpec>, Vec<Vec<u32>>) {
    let mut specs: Vec<&PodSpec> = Vec::new();
    let mut known: FxHashMap<*const PodSpec, u32> = FxHashMap::default();
    let pods = members.iter().map(|member| {
        let own = member.pods.iter().map(|pod| {
            *known.entry(Arc::as_ptr(&pod.spec)).or_insert_with(|| {
                specs.push(&pod.spec);
                ordinal(specs.len() - 1)
            })
        });
        own.collect()
    });
    let pods = pods.collect();
    (specs, pods)
}

/// Specs of running pods with required anti-affinity, each once.
fn repelling(snapshot: &ClusterSnapshot) -> Vec<&PodSpec> {
    let mut found: FxHashMap<*const PodSpec, &PodSpec> = FxHashMap::default();
    for pod in snapshot.nodes.iter().flat_map(|node| node.pods.iter()) {
        if !pod.spec.anti_affinity.is_empty() {
            found.insert(Arc::as_ptr(&pod.spec), &pod.spec);
        }
    }
    found.into_values().collect()
}

/// Whether a term of `other` may select such pods; namespaces are not looked at.
fn repels(other: &PodSpec, spec: &PodSpec) -> bool {
    let selects =
        |selector: &millwright_model::topology::LabelSelector| selector.selects(&spec.labels);
    let terms = &mut other.anti_affinity.iter();
    terms.any(|term| term.selector.as_ref().is_some_and(selects))
}

fn has_only_plain_rules(spec: &PodSpec) -> bool {
    let hard = |when: WhenUnsatisfiable| when == WhenUnsatisfiable::DoNotSchedule;
    let spreads = &mut spec.topology_spread.iter();
    !spreads.any(|spread| hard(spread.when_unsatisfiable))
        && spec.affinity.is_empty()
        && spec.anti_affinity.is_empty()
        && spec.host_ports.is_empty()
        && spec.claim_volumes == 0
        && !spec.uses_resource_claims
}
