//! Splitting a problem into parts that cannot influence each other, and working on them in
//! parallel.
//!
//! Two classes can meet when both may use the same NodePool or the same kind of node, or when a
//! rule between pods concerns both. Union-find
//! over those contacts gives components; packing them one by one or all at once leads to the same
//! plan, because the order of nodes within a component does not depend on other components.
//! Components are gathered into a bounded number of groups, chosen without regard to the number
//! of workers.

use std::sync::Mutex;

use crossbeam::deque::{Injector, Steal};

use crate::{
    problem::{KindOrd, NodeOrd, Problem, Queued, ord},
    signature::{Join, Signatures},
};

/// At most this many groups: four for each of four workers; each costs a copy of the nodes' rows.
const GROUPS_MAX: usize = 16;

/// Pods that are packed together, and all that they may use.
#[derive(Debug, Default)]
pub(crate) struct Component {
    /// Positions in the problem's queue, ascending.
    pub(crate) queue: Vec<u32>,
    /// Existing nodes in order.
    pub(crate) nodes: Vec<NodeOrd>,
    /// Templates in order.
    pub(crate) templates: Vec<usize>,
}

/// Disjoint sets with path halving.
#[derive(Debug)]
struct Sets {
    parent: Vec<usize>,
}

impl Sets {
    fn new(len: usize) -> Self {
        Self {
            parent: (0..len).collect(),
        }
    }

    fn find(&mut self, mut at: usize) -> usize {
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    /// The smaller root becomes the root of both, so that the result has no history.
    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b)] = a.min(b);
    }
}

/// Splits the queue; returns the groups, and the positions of pods that no rule can place.
pub(crate) fn split<'p>(
    problem: &'p Problem<'p>,
    signatures: &mut Signatures<'p>,
) -> (Vec<Component>, Vec<u32>) {
    let (classes, templates) = (problem.classes.len(), problem.templates.len());
    let kinds = problem.existing.kinds.len();
    let mut sets = Sets::new(classes + templates + kinds);
    if problem.is_decided() {
        unite_contacts(problem, signatures, &mut sets);
    } else {
        (1..classes + templates + kinds).for_each(|at| sets.unite(0, at));
    }
    let mut stranded = Vec::new();
    let mut weight = vec![0_usize; classes + templates + kinds];
    for (at, queued) in problem.queue.iter().enumerate() {
        if problem.classes[queued.class as usize].unsupported.is_some() {
            stranded.push(ord(at));
        } else {
            weight[sets.find(queued.class as usize)] += 1;
        }
    }
    let group_of = group(&weight);
    let groups = group_of.iter().flatten().max().map_or(0, |last| last + 1);
    let mut components: Vec<Component> = Vec::new();
    components.resize_with(groups, Component::default);
    for (at, queued) in problem.queue.iter().enumerate() {
        if problem.classes[queued.class as usize].unsupported.is_none() {
            let group = group_of[sets.find(queued.class as usize)];
            if let Some(group) = group {
                components[group].queue.push(ord(at));
            }
        }
    }
    for template in 0..templates {
        if let Some(group) = group_of[sets.find(classes + template)] {
            components[group].templates.push(template);
        }
    }
    for (at, node) in problem.existing.nodes.iter().enumerate() {
        if let Some(group) = group_of[sets.find(classes + templates + node.kind as usize)] {
            components[group].nodes.push(ord(at));
        }
    }
    (components, stranded)
}

/// By set: its group. Heavier sets first, each to the lightest group.
fn group(weight: &[usize]) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..weight.len()).filter(|at| weight[*at] > 0).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(weight[*at]), *at));
    let mut load = vec![0; order.len().min(GROUPS_MAX)];
    let mut group_of = vec![None; weight.len()];
    for at in order {
        let lightest = (0..load.len()).min_by_key(|group| (load[*group], *group));
        if let Some(lightest) = lightest {
            load[lightest] += weight[at];
            group_of[at] = Some(lightest);
        }
    }
    group_of
}

fn unite_contacts<'p>(problem: &'p Problem<'p>, signatures: &mut Signatures<'p>, sets: &mut Sets) {
    let (classes, templates) = (problem.classes.len(), problem.templates.len());
    for (class, of) in problem.classes.iter().enumerate() {
        if of.unsupported.is_some() {
            continue;
        }
        for shape in of.shapes.iter().map(|shape| problem.shape(*shape)) {
            for template in 0..templates {
                let taints = problem.templates[template].taints;
                let Some(root) = signatures.root(template, None) else {
                    continue;
                };
                if problem.tolerates(shape, taints)
                    && signatures.join(root, shape.requirements) != Join::Never
                {
                    sets.unite(class, classes + template);
                }
            }
            for kind in 0..problem.existing.kinds.len() {
                if problem.welcomes(ord(kind), shape) {
                    sets.unite(class, classes + templates + kind);
                }
            }
        }
    }
    unite_rules(problem, sets);
    for queued in &problem.queue {
        if let Some(kind) = planned_kind(problem, *queued) {
            sets.unite(queued.class as usize, classes + templates + kind as usize);
        }
    }
}

/// Classes that obey or influence the same group belong together.
fn unite_rules(problem: &Problem<'_>, sets: &mut Sets) {
    let mut first_of: Vec<Option<usize>> = vec![None; problem.topology.groups.len()];
    for (class, of) in problem.classes.iter().enumerate() {
        for shape in of.shapes.iter().map(|shape| problem.shape(*shape)) {
            let rules = problem.topology.rules(shape.rules);
            let obeyed = rules.obeyed.iter().map(|obeyed| &obeyed.group);
            for group in obeyed.chain(&rules.counted).chain(&rules.repels) {
                let first = *first_of[*group as usize].get_or_insert(class);
                sets.unite(first, class);
            }
        }
    }
}

fn planned_kind(problem: &Problem<'_>, queued: Queued) -> Option<KindOrd> {
    let node = problem.planned_on(queued)?;
    Some(problem.existing.nodes[node as usize].kind)
}

/// Runs `work` for every component and returns the results in the order of the components.
///
/// Each worker makes its own arena with `arena`; the first one is given. Workers take the
/// heaviest component that is left.
pub(crate) fn run<'p, A: Send, R: Send>(
    components: &[Component],
    workers: usize,
    first: A,
    arena: impl Fn() -> A + Sync,
    work: impl Fn(&Component, &mut A) -> R + Sync + 'p,
) -> Vec<R> {
    let workers = workers.min(components.len());
    if workers <= 1 {
        let mut first = first;
        return components
            .iter()
            .map(|component| work(component, &mut first))
            .collect();
    }
    let mut order: Vec<usize> = (0..components.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(components[*at].queue.len()), *at));
    let tasks = Injector::new();
    order.into_iter().for_each(|at| tasks.push(at));
    let done = Mutex::new(Vec::with_capacity(components.len()));
    let drain = |mut arena: A| {
        loop {
            match tasks.steal() {
                Steal::Success(at) => {
                    let result = work(&components[at], &mut arena);
                    // A poisoned lock means that another worker panicked; the scope passes its
                    // panic on, so what is in the list no longer matters.
                    done.lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((at, result));
                }
                Steal::Retry => {}
                Steal::Empty => break,
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|| drain(arena()));
        }
        drain(first);
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
