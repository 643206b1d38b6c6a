//! Which nodes look alike to every pod, and which pods they welcome.

use std::collections::{BTreeMap, BTreeSet};

use millwright_model::{
    ClusterSnapshot, Name, PodSpec, Requirement, Resources, StateNode, Taint, labels, taints,
};
use rustc_hash::FxHashMap;

/// The labels that anybody asks about, and the taints.
type Kind = (BTreeMap<Name, Name>, Vec<Taint>);

/// Kinds of nodes.
#[derive(Debug)]
pub(super) struct Kinds {
    kinds: Vec<Kind>,
    /// By node.
    pub(super) of_node: Vec<u32>,
    /// By kind: what its daemons ask for together.
    daemons: Vec<Resources>,
}

impl Kinds {
    /// `specs` are the pods that will be asked about.
    pub(super) fn new(
        snapshot: &ClusterSnapshot,
        specs: &[&PodSpec],
        nodes: &[&StateNode],
    ) -> Self {
        let daemons = snapshot.daemons.iter().map(|daemon| &*daemon.spec);
        let mentioned = mentioned(specs.iter().copied().chain(daemons));
        let mut known: FxHashMap<Kind, u32> = FxHashMap::default();
        let mut kinds: Vec<Kind> = Vec::new();
        let of_node = nodes.iter().map(|node| {
            let kind = (project(node, &mentioned), node.taints.to_vec());
            *known.entry(kind).or_insert_with_key(|kind| {
                kinds.push(kind.clone());
                u32::try_from(kinds.len() - 1).unwrap_or(u32::MAX)
            })
        });
        let of_node = of_node.collect();
        let daemons = kinds.iter().map(|kind| {
            let mut total = Resources::new();
            let run = snapshot.daemons.iter().map(|daemon| &*daemon.spec);
            run.filter(|spec| welcomes(kind, spec))
                .for_each(|spec| total.add(&spec.requests));
            total
        });
        Self {
            daemons: daemons.collect(),
            of_node,
            kinds,
        }
    }

    /// What a node has for pods: daemons that have not arrived are expected.
    pub(super) fn room(&self, node: &StateNode, kind: u32) -> Resources {
        let mut awaited = self.daemons[kind as usize].clone();
        awaited.subtract(&node.daemon_requested);
        awaited.clamp_to_zero();
        let mut room = node.available();
        room.subtract(&awaited);
        room
    }

    /// By kind, whether pods of this spec may run there.
    pub(super) fn welcoming(&self, spec: &PodSpec) -> Vec<bool> {
        self.kinds.iter().map(|kind| welcomes(kind, spec)).collect()
    }
}

fn mentioned<'s>(specs: impl Iterator<Item = &'s PodSpec>) -> BTreeSet<Name> {
    let mut keys = BTreeSet::new();
    for spec in specs {
        let selected = spec.node_selector.iter().map(|(key, _)| key);
        let required = spec.required_terms.iter().flatten().map(Requirement::key);
        keys.extend(selected.chain(required).map(labels::normalise));
    }
    keys
}

fn project(node: &StateNode, mentioned: &BTreeSet<Name>) -> BTreeMap<Name, Name> {
    let own = node
        .labels
        .iter()
        .map(|(key, value)| (labels::normalise(key), value));
    own.filter(|(key, _)| mentioned.contains(key))
        .map(|(key, value)| (key, value.clone()))
        .collect()
}

fn welcomes((own, taint_list): &Kind, spec: &PodSpec) -> bool {
    let value = |key: &Name| own.get(&labels::normalise(key));
    let selected = spec
        .node_selector
        .iter()
        .all(|(key, v)| value(key) == Some(v));
    let holds = |requirement: &Requirement| match value(requirement.key()) {
        Some(value) => requirement.has(value),
        None => requirement.allows_absence(),
    };
    let required = spec.required_terms.is_empty()
        || spec
            .required_terms
            .iter()
            .any(|term| term.iter().all(holds));
    selected && required && taints::untolerated(taint_list, &spec.tolerations).is_none()
}
