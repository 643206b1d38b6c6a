//! Placing pods under rules between pods.
//!
//! What such a pod may do depends on what other pods did, so a refusal need not last. It is told
//! apart by what would have to change:
//!
//! - Room, ports and spread or anti-affinity over host names only get worse: the node is dropped.
//! - Affinity over host names waits for a pod to come to the node: the node is dropped, and taken
//!   up again when the ledger lists it among the arrivals.
//! - Rules over other keys depend on the domains that a node may be in, and those are the same for
//!   all existing nodes of a kind and for all planned nodes of a signature. Nodes are therefore
//!   kept by kind and by signature, and such rules are decided once for each, not for each node.
//!
//! So a pod costs as much as there are kinds and signatures, whatever the number of nodes.

use std::{cmp::Reverse, collections::BinaryHeap};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{FirstFit, Place};
use crate::{
    problem::{KindOrd, NodeOrd, Problem, Shape, ShapeOrd, fits, ord},
    shard::Component,
    signature::{Join, SignatureOrd},
    topology::{GroupOrd, Host, KeyOrd, Ledger, Located, Rule, Rules, Verdict},
};

/// Pods, turn, node: as planned nodes are ordered.
type Key = (u32, i64, u32);

/// What all shapes under rules share.
#[derive(Debug)]
pub(super) struct Constrained<'p> {
    ledger: Ledger<'p>,
    /// Existing nodes by kind, in order.
    lanes: Vec<(KindOrd, Vec<NodeOrd>)>,
    /// Planned nodes that were opened, or that have a new signature, in order of time.
    moves: Vec<u32>,
    shapes: FxHashMap<ShapeOrd, Candidates>,
    /// Whether the component has any shape under rules.
    in_use: bool,
}

/// The nodes that may still take pods of a shape.
#[derive(Debug, Default)]
struct Candidates {
    lanes: Vec<Lane>,
    buckets: Vec<Bucket>,
    bucket_of: FxHashMap<SignatureOrd, usize>,
    /// Moves read so far.
    moves: usize,
    /// Affinity over host names, with the arrivals read so far.
    arrivals: SmallVec<[(GroupOrd, usize); 1]>,
    /// The number of placements when the shape last found no place.
    failed_at: Option<u64>,
}

/// Existing nodes of one kind.
#[derive(Debug)]
struct Lane {
    /// Index into the shared lanes.
    at: usize,
    /// Nodes before this position are dropped.
    cursor: usize,
    /// Dropped nodes that are worth another look.
    again: BinaryHeap<Reverse<NodeOrd>>,
}

/// Planned nodes of one signature; outdated keys are too low, never too high.
#[derive(Debug)]
struct Bucket {
    signature: SignatureOrd,
    heap: BinaryHeap<Reverse<Key>>,
}

/// Why a node does not take a pod.
enum Refused {
    /// It never will, or not before it is listed again.
    Drop,
    /// Not in the domains that rules leave now.
    Keep,
}

impl<'p> Constrained<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, component: &Component) -> Self {
        let has_rules = |position: &u32| {
            let class = problem.queue[*position as usize].class;
            let shapes = &problem.classes[class as usize].shapes;
            shapes.iter().any(|shape| problem.shape(*shape).has_rules())
        };
        let in_use = component.queue.iter().any(has_rules);
        let mut lanes: Vec<(KindOrd, Vec<NodeOrd>)> = Vec::new();
        let mut lane_of: FxHashMap<KindOrd, usize> = FxHashMap::default();
        for node in component.nodes.iter().filter(|_| in_use) {
            let kind = problem.existing.nodes[*node as usize].kind;
            let lane = *lane_of.entry(kind).or_insert_with(|| {
                lanes.push((kind, Vec::new()));
                lanes.len() - 1
            });
            lanes[lane].1.push(*node);
        }
        Self {
            ledger: Ledger::new(&problem.topology, in_use),
            lanes,
            moves: Vec::new(),
            shapes: FxHashMap::default(),
            in_use,
        }
    }

    /// Notes that a planned node was opened or has a new signature.
    pub(super) fn moved(&mut self, node: u32) {
        if self.in_use {
            self.moves.push(node);
        }
    }

    /// What a shape knows before it has looked at anything.
    fn candidates(&self, problem: &Problem<'_>, shape: &Shape) -> Candidates {
        let kinds = self.lanes.iter().enumerate();
        let lanes = kinds
            .filter(|(_, (kind, _))| problem.welcomes(*kind, shape))
            .map(|(at, _)| Lane {
                at,
                cursor: 0,
                again: BinaryHeap::new(),
            })
            .collect();
        let topology = &problem.topology;
        let obeyed = topology.rules(shape.rules).obeyed.iter();
        let follows = obeyed.map(|obeyed| obeyed.group).filter(|group| {
            topology.group(*group).rule == Rule::Affinity && topology.key_of(*group).is_hostname
        });
        Candidates {
            lanes,
            arrivals: follows.map(|group| (group, 0)).collect(),
            ..Candidates::default()
        }
    }
}

impl FirstFit<'_, '_> {
    /// Places a pod of a shape under rules, if it finds a place now.
    pub(super) fn place_constrained(&mut self, ordinal: ShapeOrd) -> Option<Place> {
        let shape = self.problem.shape(ordinal);
        let known = self.constrained.shapes.remove(&ordinal);
        let mut candidates =
            known.unwrap_or_else(|| self.constrained.candidates(self.problem, shape));
        // Nothing happened since the last pod of this shape failed.
        let place = if candidates.failed_at == Some(self.placements) {
            None
        } else {
            self.read_news(&mut candidates);
            let place = self
                .on_existing_constrained(ordinal, &mut candidates)
                .or_else(|| self.on_planned_constrained(ordinal, &mut candidates));
            place.or_else(|| self.on_new_constrained(ordinal))
        };
        candidates.failed_at = place.is_none().then_some(self.placements);
        self.constrained.shapes.insert(ordinal, candidates);
        place
    }

    /// Takes up nodes that were opened, that changed, or that pods came to.
    fn read_news(&self, candidates: &mut Candidates) {
        let from = std::mem::replace(&mut candidates.moves, self.constrained.moves.len());
        for node in &self.constrained.moves[from..] {
            self.list(candidates, *node);
        }
        for nth in 0..candidates.arrivals.len() {
            let (group, from) = candidates.arrivals[nth];
            let arrivals = self.constrained.ledger.arrivals(group);
            candidates.arrivals[nth].1 = arrivals.len();
            for host in &arrivals[from..] {
                match host {
                    Host::Planned(node) => self.list(candidates, *node),
                    Host::Existing(node) => self.list_again(candidates, *node),
                }
            }
        }
    }

    fn list(&self, candidates: &mut Candidates, node: u32) {
        let planned = &self.packed.planned[node as usize];
        let buckets = &mut candidates.buckets;
        let bucket = *candidates
            .bucket_of
            .entry(planned.signature)
            .or_insert_with(|| {
                buckets.push(Bucket {
                    signature: planned.signature,
                    heap: BinaryHeap::new(),
                });
                buckets.len() - 1
            });
        let key = (planned.pods, planned.turn, node);
        candidates.buckets[bucket].heap.push(Reverse(key));
    }

    fn list_again(&self, candidates: &mut Candidates, node: NodeOrd) {
        let kind = self.problem.existing.nodes[node as usize].kind;
        let lanes = &self.constrained.lanes;
        let lane = candidates
            .lanes
            .iter_mut()
            .find(|lane| lanes[lane.at].0 == kind);
        if let Some(lane) = lane {
            lane.again.push(Reverse(node));
        }
    }

    fn on_existing_constrained(
        &mut self,
        ordinal: ShapeOrd,
        candidates: &mut Candidates,
    ) -> Option<Place> {
        let shape = self.problem.shape(ordinal);
        let mut best: Option<NodeOrd> = None;
        for lane in &mut candidates.lanes {
            let (kind, nodes) = &self.constrained.lanes[lane.at];
            while let Some(node) = nodes.get(lane.cursor)
                && !self.existing_takes(*node, shape)
            {
                lane.cursor += 1;
            }
            while let Some(Reverse(node)) = lane.again.peek()
                && !self.existing_takes(*node, shape)
            {
                lane.again.pop();
            }
            let next = nodes.get(lane.cursor).copied();
            let first = next
                .into_iter()
                .chain(lane.again.peek().map(|again| again.0))
                .min();
            if let Some(first) = first
                && best.is_none_or(|best| first < best)
                && self.kind_takes(*kind, shape)
            {
                best = Some(first);
            }
        }
        let node = best?;
        self.take(node, ordinal);
        self.record_existing(node, ordinal);
        Some(Place::Existing(node))
    }

    /// Whether an existing node has room and ports, and rules over host names allow it.
    fn existing_takes(&self, node: NodeOrd, shape: &Shape) -> bool {
        let existing = &self.problem.existing.nodes[node as usize];
        let row = &self.left[node as usize * self.stride..][..self.stride];
        let rules = self.problem.topology.rules(shape.rules);
        let (ledger, host) = (&self.constrained.ledger, Host::Existing(node));
        !existing.overcommitted
            && fits(&shape.requests, row)
            && ledger.has_ports(rules, host)
            && ledger.on_host(rules, host) == Verdict::Yes
    }

    /// Whether rules over labels allow nodes of a kind, which are in one domain of each key.
    fn kind_takes(&self, kind: KindOrd, shape: &Shape) -> bool {
        let topology = &self.problem.topology;
        let rules = topology.rules(shape.rules);
        let domain = |key: KeyOrd| {
            let mut only = topology.keys[key].none();
            only.insert(topology.domain_of_kind(kind, key)? as usize);
            Some(only)
        };
        self.constrained.ledger.pins(rules, domain).is_some()
    }

    fn on_planned_constrained(
        &mut self,
        ordinal: ShapeOrd,
        candidates: &mut Candidates,
    ) -> Option<Place> {
        let mut best: Option<(Key, SignatureOrd)> = None;
        for bucket in &mut candidates.buckets {
            let better = |key: &Key| best.is_none_or(|(best, _)| *key < best);
            // An outdated key is too low: if it is too high already, so is the true one.
            if !bucket.heap.peek().is_some_and(|top| better(&top.0)) {
                continue;
            }
            let shape = self.problem.shape(ordinal);
            let Some(joined) = self.join_constrained(bucket.signature, shape) else {
                // The nodes that stay as they are will never take it.
                bucket.heap.clear();
                continue;
            };
            let Some(pinned) = self.pin(joined, shape) else {
                continue;
            };
            if let Some(key) = self.first_of(bucket, shape, joined, pinned)
                && better(&key)
            {
                best = Some((key, pinned));
            }
        }
        let ((_, _, node), signature) = best?;
        self.put(node, ordinal, signature);
        self.record_planned(node, ordinal);
        Some(Place::Planned(node))
    }

    /// The first node of a bucket that takes the pod; it stays in the bucket.
    fn first_of(
        &self,
        bucket: &mut Bucket,
        shape: &Shape,
        joined: SignatureOrd,
        pinned: SignatureOrd,
    ) -> Option<Key> {
        let mut kept: Vec<Key> = Vec::new();
        let mut first = None;
        while let Some(Reverse(key)) = bucket.heap.pop() {
            let planned = &self.packed.planned[key.2 as usize];
            if planned.signature != bucket.signature {
                continue;
            }
            let current = (planned.pods, planned.turn, key.2);
            if current != key {
                bucket.heap.push(Reverse(current));
                continue;
            }
            match self.planned_takes(key.2, shape, joined, pinned) {
                Ok(()) => {
                    kept.push(key);
                    first = Some(key);
                    break;
                }
                Err(Refused::Keep) => kept.push(key),
                Err(Refused::Drop) => {}
            }
        }
        bucket.heap.extend(kept.into_iter().map(Reverse));
        first
    }

    fn planned_takes(
        &self,
        node: u32,
        shape: &Shape,
        joined: SignatureOrd,
        pinned: SignatureOrd,
    ) -> Result<(), Refused> {
        let rules = self.problem.topology.rules(shape.rules);
        let (ledger, host) = (&self.constrained.ledger, Host::Planned(node));
        if !ledger.has_ports(rules, host) || ledger.on_host(rules, host) != Verdict::Yes {
            return Err(Refused::Drop);
        }
        let used = &self.packed.used[node as usize * self.stride..][..self.stride];
        if self.signatures.has_room(pinned, used, &shape.requests) {
            Ok(())
        } else if pinned != joined && self.signatures.has_room(joined, used, &shape.requests) {
            Err(Refused::Keep)
        } else {
            Err(Refused::Drop)
        }
    }

    fn on_new_constrained(&mut self, ordinal: ShapeOrd) -> Option<Place> {
        let shape = self.problem.shape(ordinal);
        let rules = self.problem.topology.rules(shape.rules);
        let host = Host::Planned(ord(self.packed.planned.len()));
        if self.constrained.ledger.on_host(rules, host) != Verdict::Yes {
            return None;
        }
        for template in self.component.templates.iter().copied() {
            let Some(root) = self.open(template) else {
                continue;
            };
            let Some(joined) = self.join_constrained(root, shape) else {
                continue;
            };
            let Some(pinned) = self.pin(joined, shape) else {
                continue;
            };
            let nothing = vec![0; self.stride];
            if self.signatures.has_room(pinned, &nothing, &shape.requests) {
                let node = self.plan(template, pinned, ordinal);
                self.record_planned(node, ordinal);
                return Some(Place::Planned(node));
            }
        }
        None
    }

    /// What becomes of a node that takes the pod, before rules narrow it; `None` when nothing does
    /// unless it changes.
    fn join_constrained(&mut self, signature: SignatureOrd, shape: &Shape) -> Option<SignatureOrd> {
        let problem = self.problem;
        let template = self.signatures.get(signature).template;
        if !problem.tolerates(shape, problem.templates[template].taints) {
            return None;
        }
        let Join::Into(joined) = self.signatures.join(signature, shape.requirements) else {
            return None;
        };
        match problem.topology.rules(shape.rules).ports {
            Some(ports) => self.signatures.with_ports(joined, ports),
            None => Some(joined),
        }
    }

    /// Narrows a node to the domains that rules leave.
    fn pin(&mut self, signature: SignatureOrd, shape: &Shape) -> Option<SignatureOrd> {
        let rules: &Rules = self.problem.topology.rules(shape.rules);
        let signatures = &mut *self.signatures;
        let open = |key: KeyOrd| Some(signatures.domains(signature, key).clone());
        let pins = self.constrained.ledger.pins(rules, open)?;
        let mut pinned = signature;
        for (key, domains) in &pins {
            pinned = self.signatures.pin(pinned, *key, domains)?;
        }
        Some(pinned)
    }

    /// Counts a pod on an existing node.
    pub(super) fn record_existing(&mut self, node: NodeOrd, ordinal: ShapeOrd) {
        let problem = self.problem;
        let shape = problem.shape(ordinal);
        if !shape.has_rules() {
            return;
        }
        let existing = &problem.existing.nodes[node as usize];
        let topology = &problem.topology;
        let located = |key: KeyOrd| match topology.domain_of_kind(existing.kind, key) {
            Some(domain) => {
                let mut only = topology.keys[key].none();
                only.insert(domain as usize);
                Located::In(only)
            }
            // What it will be is not known before it is launched.
            None if !existing.node.launched => Located::Anywhere,
            None => Located::Nowhere,
        };
        let passes = |filter| problem.passes(existing.kind, filter);
        let rules = topology.rules(shape.rules);
        self.constrained
            .ledger
            .record(rules, Host::Existing(node), located, passes);
    }

    /// Counts a pod on a planned node, which has taken it.
    fn record_planned(&mut self, node: u32, ordinal: ShapeOrd) {
        let topology = &self.problem.topology;
        let rules = topology.rules(self.problem.shape(ordinal).rules);
        let signature = self.packed.planned[node as usize].signature;
        let signatures = std::cell::RefCell::new(&mut *self.signatures);
        let located = |key: KeyOrd| {
            let mut signatures = signatures.borrow_mut();
            let name = &topology.keys[key].name;
            let requirement = signatures.get(signature).requirements.get(name);
            if requirement.is_some_and(|requirement| !requirement.is_complement()) {
                Located::In(signatures.domains(signature, key).clone())
            } else {
                Located::Nowhere
            }
        };
        let passes = |filter| signatures.borrow_mut().passes(signature, filter);
        self.constrained
            .ledger
            .record(rules, Host::Planned(node), located, passes);
    }
}
