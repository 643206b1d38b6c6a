//! Karpenter's packing rules on the dense problem.
//!
//! Pods go, in the order of the queue, to the first existing node that takes them, else to the
//! planned node with the fewest pods, else to a new node of the first NodePool that may open one.
//!
//! Source: provisioning specification 6.5 to 6.8, 6.11, 6.20. Planned nodes with equally many
//! pods keep the order of the previous round and a new one comes last; a node that just took a
//! pod therefore comes *before* all that had one pod more already. Keys reproduce this without
//! sorting: `(pods, turn)`, where a node that took a pod gets a turn lower than all before it and
//! a new node one higher than all before it.
//!
//! What makes it fast: a shape that was refused by a node, planned or existing, is refused for
//! ever, because room and requirements only shrink. So every shape keeps its own heap of the
//! planned nodes that may still take it, and its own cursor into the list of existing nodes; a
//! node is looked at once per shape and then only when it is at the top. Heap keys only grow, so
//! an outdated key is replaced when it surfaces. Shapes under rules between pods go another way,
//! see [`constrained`].

mod constrained;

use std::{cmp::Reverse, collections::BinaryHeap};

use self::constrained::Constrained;
use crate::{
    bits::TypeSet,
    problem::{ClassOrd, NodeOrd, Problem, ShapeOrd, add_times, fits_sum, ord},
    shard::Component,
    signature::{Join, SignatureOrd, Signatures},
};

/// Stands for the host name of a node to be, which no pod can know.
pub(crate) const PLACEHOLDER: &str = "hostname-placeholder";

/// Where a pod went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To an existing node.
    Existing(NodeOrd),
    /// To a planned node of this component.
    Planned(u32),
    /// Nowhere.
    Nowhere,
}

/// A planned node.
#[derive(Clone, Debug)]
pub(crate) struct PlannedNode {
    pub(crate) signature: SignatureOrd,
    pub(crate) pods: u32,
    turn: i64,
}

/// What packing a component led to.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// By position in the component's queue: place, and the shape that the pod was placed with.
    pub(crate) places: Vec<(Place, ShapeOrd)>,
    pub(crate) planned: Vec<PlannedNode>,
    /// What pods on planned nodes ask for, rows.
    pub(crate) used: Vec<i64>,
}

/// What a shape knows about the nodes that may still take it.
#[derive(Debug, Default)]
struct Prospects {
    /// Planned nodes that may take it: pods, turn, node. Keys may be outdated, never too high.
    heap: BinaryHeap<Reverse<(u32, i64, u32)>>,
    /// Planned nodes from here on have not been looked at.
    seen: usize,
    /// Existing nodes before this position of the component's list take it no more.
    cursor: usize,
    /// Planned nodes that lack a label which another pod may define, with their signature then.
    deferred: Vec<(u32, SignatureOrd)>,
    /// Whether a template lacks a label that another pod may define.
    waits: bool,
    /// Pods in the queue that have not been tried yet and may ask in this way.
    pending: u32,
    /// Whether nothing can ever take it again.
    exhausted: bool,
}

/// The packer of one component.
pub(crate) struct FirstFit<'p, 's> {
    problem: &'p Problem<'p>,
    component: &'s Component,
    signatures: &'s mut Signatures<'p>,
    stride: usize,
    /// By existing node of the whole problem: what is left, rows.
    left: Vec<i64>,
    prospects: Vec<Prospects>,
    remaining: Vec<Option<Remaining>>,
    packed: Packed,
    turns: i64,
    /// Counts placements.
    placements: u64,
    constrained: Constrained<'p>,
}

/// What limits leave while nodes are opened.
#[derive(Clone, Debug)]
pub(crate) struct Remaining {
    pub(crate) nodes: Option<i64>,
    pub(crate) resources: Vec<i64>,
}

impl<'p, 's> FirstFit<'p, 's> {
    pub(crate) fn new(
        problem: &'p Problem<'p>,
        component: &'s Component,
        signatures: &'s mut Signatures<'p>,
    ) -> Self {
        let mut prospects = Vec::new();
        prospects.resize_with(problem.shapes.shapes.len(), Prospects::default);
        Self {
            problem,
            component,
            signatures,
            stride: problem.dimensions.stride(),
            left: problem.existing.left.clone(),
            prospects,
            remaining: problem
                .templates
                .iter()
                .map(|t| remaining(t.limits.as_ref()))
                .collect(),
            packed: Packed::default(),
            turns: 0,
            placements: 0,
            constrained: Constrained::new(problem, component),
        }
    }

    /// Packs the component's queue.
    pub(crate) fn pack(mut self) -> Packed {
        let queue = &self.component.queue;
        self.packed.places = vec![(Place::Nowhere, 0); queue.len()];
        self.keep_planned();
        self.reserve_for_daemons();
        self.count_pending();
        let mut failed = Vec::new();
        for at in 0..queue.len() {
            if self.packed.places[at].0 == Place::Nowhere && !self.place(at) {
                failed.push(at);
            }
            self.forget(at);
        }
        // Another round can only help pods that wait for a label to be defined, or for other pods.
        failed.retain(|at| self.waits(self.class(*at)));
        let mut progress = !failed.is_empty();
        while progress {
            let before = failed.len();
            failed.retain(|at| !self.place(*at));
            progress = failed.len() < before && !failed.is_empty();
        }
        self.packed
    }

    fn count_pending(&mut self) {
        for at in 0..self.component.queue.len() {
            for shape in &self.problem.classes[self.class(at) as usize].shapes {
                self.prospects[*shape as usize].pending += 1;
            }
        }
    }

    /// Drops what shapes know when their last pod was tried: sizes come in order, so that few
    /// shapes are in use at a time. Shapes that wait keep it, they may get another round.
    fn forget(&mut self, at: usize) {
        for shape in &self.problem.classes[self.class(at) as usize].shapes {
            let prospects = &mut self.prospects[*shape as usize];
            prospects.pending -= 1;
            // A shape under rules may get another round, too; what it knows is kept elsewhere.
            if prospects.pending == 0 && prospects.deferred.is_empty() && !prospects.waits {
                prospects.heap = BinaryHeap::new();
            }
        }
    }

    fn class(&self, at: usize) -> ClassOrd {
        self.problem.queue[self.component.queue[at] as usize].class
    }

    fn waits(&self, class: ClassOrd) -> bool {
        let class = &self.problem.classes[class as usize];
        class
            .shapes
            .iter()
            .any(|s| self.problem.shape(*s).has_rules() || !self.prospects[*s as usize].exhausted)
    }

    /// Pods that an earlier plan put on a node stay there while there is room: a plan made twice
    /// must not launch twice. The labels of a node that is not launched yet are not known; the
    /// plan that made it has checked them.
    fn keep_planned(&mut self) {
        let problem = self.problem;
        for at in 0..self.component.queue.len() {
            let queued = problem.queue[self.component.queue[at] as usize];
            let Some(node) = problem.planned_on(queued) else {
                continue;
            };
            let existing = &problem.existing.nodes[node as usize];
            let kept = problem.classes[queued.class as usize]
                .shapes
                .iter()
                .copied()
                .find(|shape| {
                    let shape = problem.shape(*shape);
                    let row = &self.left[node as usize * self.stride..][..self.stride];
                    if existing.node.launched {
                        !existing.overcommitted
                            && problem.welcomes(existing.kind, shape)
                            && fits_sum(&existing.reserve, &shape.requests, row)
                    } else {
                        crate::problem::fits(&shape.requests, row)
                    }
                });
            if let Some(shape) = kept {
                self.take(node, shape);
                self.record_existing(node, shape);
                self.packed.places[at] = (Place::Existing(node), shape);
            }
        }
    }

    fn reserve_for_daemons(&mut self) {
        for node in &self.component.nodes {
            let row = &mut self.left[*node as usize * self.stride..][..self.stride];
            add_times(
                row,
                &self.problem.existing.nodes[*node as usize].reserve,
                -1,
            );
        }
    }

    /// Places one pod with the most wanted of its shapes that still finds a place.
    fn place(&mut self, at: usize) -> bool {
        let class = self.class(at);
        let problem = self.problem;
        for shape in problem.classes[class as usize].shapes.iter().copied() {
            if problem.shape(shape).has_rules() {
                if let Some(place) = self.place_constrained(shape) {
                    self.packed.places[at] = (place, shape);
                    return true;
                }
                continue;
            }
            if self.prospects[shape as usize].exhausted {
                continue;
            }
            let place = self.on_existing(shape).or_else(|| self.on_planned(shape));
            if let Some(place) = place.or_else(|| self.on_new(shape)) {
                self.packed.places[at] = (place, shape);
                return true;
            }
            let prospects = &mut self.prospects[shape as usize];
            prospects.exhausted = prospects.deferred.is_empty() && !prospects.waits;
        }
        false
    }

    fn on_existing(&mut self, ordinal: ShapeOrd) -> Option<Place> {
        let nodes = &self.component.nodes;
        let shape = self.problem.shape(ordinal);
        let mut cursor = self.prospects[ordinal as usize].cursor;
        while cursor < nodes.len() {
            let node = nodes[cursor];
            let existing = &self.problem.existing.nodes[node as usize];
            let row = &self.left[node as usize * self.stride..][..self.stride];
            if !existing.overcommitted
                && crate::problem::fits(&shape.requests, row)
                && self.problem.welcomes(existing.kind, shape)
            {
                break;
            }
            cursor += 1;
        }
        self.prospects[ordinal as usize].cursor = cursor;
        let node = *nodes.get(cursor)?;
        self.take(node, ordinal);
        Some(Place::Existing(node))
    }

    fn take(&mut self, node: NodeOrd, shape: ShapeOrd) {
        let row = &mut self.left[node as usize * self.stride..][..self.stride];
        add_times(row, &self.problem.shape(shape).requests, -1);
        self.placements += 1;
    }

    fn on_planned(&mut self, ordinal: ShapeOrd) -> Option<Place> {
        self.look_at_new_ones(ordinal);
        loop {
            let Reverse((pods, turn, node)) = self.prospects[ordinal as usize].heap.pop()?;
            let Some(signature) = self.accepts(node, ordinal) else {
                continue;
            };
            let planned = &self.packed.planned[node as usize];
            if (planned.pods, planned.turn) != (pods, turn) {
                let key = Reverse((planned.pods, planned.turn, node));
                self.prospects[ordinal as usize].heap.push(key);
                continue;
            }
            self.put(node, ordinal, signature);
            let planned = &self.packed.planned[node as usize];
            let key = Reverse((planned.pods, planned.turn, node));
            self.prospects[ordinal as usize].heap.push(key);
            return Some(Place::Planned(node));
        }
    }

    /// Adds the planned nodes that the shape has not met yet, if they take it.
    fn look_at_new_ones(&mut self, ordinal: ShapeOrd) {
        let deferred = std::mem::take(&mut self.prospects[ordinal as usize].deferred);
        for (node, signature) in deferred {
            if self.packed.planned[node as usize].signature == signature {
                self.prospects[ordinal as usize]
                    .deferred
                    .push((node, signature));
            } else {
                self.consider(node, ordinal);
            }
        }
        let from = self.prospects[ordinal as usize].seen;
        self.prospects[ordinal as usize].seen = self.packed.planned.len();
        for node in from..self.packed.planned.len() {
            self.consider(ord(node), ordinal);
        }
    }

    fn consider(&mut self, node: u32, ordinal: ShapeOrd) {
        if self.accepts(node, ordinal).is_some() {
            let planned = &self.packed.planned[node as usize];
            let key = Reverse((planned.pods, planned.turn, node));
            self.prospects[ordinal as usize].heap.push(key);
        }
    }

    /// The signature that a planned node would have with one pod of this shape more; `None` when
    /// it does not take it.
    fn accepts(&mut self, node: u32, ordinal: ShapeOrd) -> Option<SignatureOrd> {
        let shape = self.problem.shape(ordinal);
        let signature = self.packed.planned[node as usize].signature;
        let template = self.signatures.get(signature).template;
        if !self
            .problem
            .tolerates(shape, self.problem.templates[template].taints)
        {
            return None;
        }
        match self.signatures.join(signature, shape.requirements) {
            Join::Into(joined) => {
                let used = &self.packed.used[node as usize * self.stride..][..self.stride];
                self.signatures
                    .has_room(joined, used, &shape.requests)
                    .then_some(joined)
            }
            Join::NotYet => {
                self.prospects[ordinal as usize]
                    .deferred
                    .push((node, signature));
                None
            }
            Join::Never | Join::Unknown => None,
        }
    }

    fn put(&mut self, node: u32, shape: ShapeOrd, signature: SignatureOrd) {
        let used = &mut self.packed.used[node as usize * self.stride..][..self.stride];
        add_times(used, &self.problem.shape(shape).requests, 1);
        self.turns += 1;
        self.placements += 1;
        let planned = &mut self.packed.planned[node as usize];
        if planned.signature != signature || planned.pods == 0 {
            self.constrained.moved(node);
        }
        planned.signature = signature;
        planned.pods += 1;
        planned.turn = -self.turns;
    }

    fn on_new(&mut self, ordinal: ShapeOrd) -> Option<Place> {
        let shape = self.problem.shape(ordinal);
        for template in self.component.templates.iter().copied() {
            if !self
                .problem
                .tolerates(shape, self.problem.templates[template].taints)
            {
                continue;
            }
            let Some(root) = self.open(template) else {
                continue;
            };
            let joined = match self.signatures.join(root, shape.requirements) {
                Join::Into(joined) => joined,
                Join::NotYet => {
                    self.prospects[ordinal as usize].waits = true;
                    continue;
                }
                Join::Never | Join::Unknown => continue,
            };
            let nothing = vec![0; self.stride];
            if !self.signatures.has_room(joined, &nothing, &shape.requests) {
                continue;
            }
            // Its own heap learns of the node at the next look, like all others.
            return Some(Place::Planned(self.plan(template, joined, ordinal)));
        }
        None
    }

    /// Opens a node for a pod of this shape.
    fn plan(&mut self, template: usize, signature: SignatureOrd, shape: ShapeOrd) -> u32 {
        let node = ord(self.packed.planned.len());
        self.packed.planned.push(PlannedNode {
            signature,
            pods: 0,
            turn: 0,
        });
        let stride = self.packed.used.len() + self.stride;
        self.packed.used.resize(stride, 0);
        self.put(node, shape, signature);
        // A new node comes after all others with one pod.
        self.packed.planned[node as usize].turn = self.turns;
        self.spend(template, node);
        node
    }

    /// The signature of a node that limits still allow to open.
    fn open(&mut self, template: usize) -> Option<SignatureOrd> {
        let Some(remaining) = &self.remaining[template] else {
            return self.signatures.root(template, None);
        };
        let types = remaining.allowed(self.problem, template)?;
        let untouched = types == self.problem.templates[template].types;
        self.signatures
            .root(template, (!untouched).then_some(types))
    }

    /// Books a new node at the largest of the types that it may become.
    fn spend(&mut self, template: usize, node: u32) {
        let Some(remaining) = &mut self.remaining[template] else {
            return;
        };
        let used = &self.packed.used[node as usize * self.stride..][..self.stride];
        let signature = self.packed.planned[node as usize].signature;
        let fitting = self
            .signatures
            .fitting(signature, used)
            .map(|priced| priced.at);
        remaining.spend(self.problem, template, fitting);
    }
}

/// What limits leave at the start.
pub(crate) fn remaining(limits: Option<&crate::problem::template::Limits>) -> Option<Remaining> {
    limits.map(|limits| Remaining {
        nodes: limits.nodes,
        resources: limits
            .resources
            .iter()
            .map(|limit| limit.remaining)
            .collect(),
    })
}

impl Remaining {
    /// The template's types that still fit under the limits; `None` when there is none.
    pub(crate) fn allowed(&self, problem: &Problem<'_>, template: usize) -> Option<TypeSet> {
        if self.nodes.is_some_and(|nodes| nodes <= 0) {
            return None;
        }
        let template = &problem.templates[template];
        let limits = template.limits.as_ref()?;
        let within = |at: usize| {
            let mut pairs = limits.resources.iter().zip(&self.resources);
            pairs.all(|(limit, remaining)| limit.capacity[at] <= *remaining)
        };
        let mut allowed = TypeSet::none(problem.catalogues[template.catalogue].len());
        template
            .types
            .iter()
            .filter(|at| within(*at))
            .for_each(|at| allowed.insert(at));
        (!allowed.is_empty()).then_some(allowed)
    }

    /// Takes off the largest capacity among `types`, and one node.
    pub(crate) fn spend(
        &mut self,
        problem: &Problem<'_>,
        template: usize,
        types: impl Iterator<Item = usize>,
    ) {
        let Some(limits) = &problem.templates[template].limits else {
            return;
        };
        let mut largest = vec![0; limits.resources.len()];
        for at in types {
            for (largest, limit) in largest.iter_mut().zip(&limits.resources) {
                *largest = limit.capacity[at].max(*largest);
            }
        }
        for (remaining, largest) in self.resources.iter_mut().zip(largest) {
            *remaining = remaining.saturating_sub(largest);
        }
        if let Some(nodes) = &mut self.nodes {
            *nodes -= 1;
        }
    }
}
