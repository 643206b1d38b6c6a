//! What groups count before a pass.
//!
//! Source: provisioning specification 6.16.2 (existing nodes, counting).

use millwright_model::{
    Name, PodKey, PodSpec, Requirement, Requirements, StateNode, labels, pod::Intake,
    snapshot::Namespaces,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Surroundings, bound,
    domains::{DomainSet, KeyOrd, Keys, label},
    group::{FilterOrd, GroupOrd, Groups, Rule},
    selection::SelectionOrd,
};
use crate::problem::{NodeOrd, ord};

/// Pods by domain.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Domains that exist.
    pub(crate) known: DomainSet,
    /// By domain.
    pub(crate) pods: Vec<u32>,
    /// For the host name: by existing node.
    pub(crate) hosts: FxHashMap<NodeOrd, u32>,
    /// For the host name: pods on nodes that are going away.
    pub(crate) leaving: u32,
}

/// Pods that run, by spec.
struct Residents<'a> {
    spec: &'a PodSpec,
    /// The node of each, with its ordinal unless it is going away.
    on: Vec<(&'a StateNode, Option<NodeOrd>)>,
}

/// Counts running pods.
pub(super) struct Census<'p, 'a> {
    keys: &'p Keys,
    groups: &'p Groups,
    around: &'p Surroundings<'p, 'a>,
    namespaces: Option<&'p Namespaces>,
    /// Whether nodes of a kind pass a filter.
    passing: FxHashMap<(FilterOrd, u32), bool>,
    /// Domains of existing nodes that pass a filter.
    present: FxHashMap<(Option<FilterOrd>, KeyOrd), DomainSet>,
}

impl<'p, 'a> Census<'p, 'a> {
    pub(super) fn new(
        keys: &'p Keys,
        groups: &'p Groups,
        around: &'p Surroundings<'p, 'a>,
        namespaces: Option<&'p Namespaces>,
    ) -> Self {
        Self {
            keys,
            groups,
            around,
            namespaces,
            passing: FxHashMap::default(),
            present: FxHashMap::default(),
        }
    }

    /// By group.
    pub(super) fn counts(mut self) -> Vec<Counts> {
        if self.groups.list.is_empty() {
            return Vec::new();
        }
        let mut counts: Vec<Counts> = (0..self.groups.list.len())
            .map(|group| self.empty(group))
            .collect();
        let mut by_selection: FxHashMap<SelectionOrd, Vec<GroupOrd>> = FxHashMap::default();
        let mut repelling: FxHashMap<(SelectionOrd, KeyOrd), GroupOrd> = FxHashMap::default();
        for (at, group) in self.groups.list.iter().enumerate() {
            match group.rule {
                Rule::Repulsion => {
                    repelling.insert((group.selection, group.key), ord(at));
                }
                Rule::Spread { .. } | Rule::Affinity | Rule::AntiAffinity => {
                    by_selection
                        .entry(group.selection)
                        .or_default()
                        .push(ord(at));
                }
            }
        }
        for residents in residents(self.around) {
            let selections = self
                .groups
                .selections
                .selecting(residents.spec, self.namespaces);
            let selected = selections
                .iter()
                .filter_map(|s| by_selection.get(s))
                .flatten();
            let mut counting: Vec<GroupOrd> = selected.copied().collect();
            for term in &residents.spec.anti_affinity {
                let selection = super::Selection::of_term(residents.spec, term);
                let selection = self.groups.selections.known(&selection);
                let key = self.keys.get(&term.topology_key);
                let own = selection.zip(key).and_then(|pair| repelling.get(&pair));
                counting.extend(own);
            }
            counting.sort_unstable();
            counting.dedup();
            for group in counting {
                for (node, ordinal) in &residents.on {
                    self.count(&mut counts[group as usize], group, node, *ordinal);
                }
            }
        }
        counts
    }

    /// No pods, on the domains that exist.
    fn empty(&mut self, group: usize) -> Counts {
        let group = &self.groups.list[group];
        let mut known = group.universe.clone();
        known.unite(&self.present(group.filter, group.key));
        Counts {
            known,
            pods: vec![0; self.keys[group.key].domains.len()],
            hosts: FxHashMap::default(),
            leaving: 0,
        }
    }

    fn present(&mut self, filter: Option<FilterOrd>, key: KeyOrd) -> DomainSet {
        if let Some(known) = self.present.get(&(filter, key)) {
            return known.clone();
        }
        let of = &self.keys[key];
        let mut present = of.none();
        if !of.is_hostname {
            for (at, node) in self.around.existing.nodes.iter().enumerate() {
                if node.node.registered
                    && let Some(value) = label(node.node, &of.name)
                    && let Some(domain) = of.domain(value)
                    && self.passes(filter, node.node, Some(ord(at)))
                {
                    present.insert(domain as usize);
                }
            }
        }
        self.present.insert((filter, key), present.clone());
        present
    }

    fn count(
        &mut self,
        counts: &mut Counts,
        group: GroupOrd,
        node: &StateNode,
        ordinal: Option<NodeOrd>,
    ) {
        let group = &self.groups.list[group as usize];
        if !self.passes(group.filter, node, ordinal) {
            return;
        }
        let key = &self.keys[group.key];
        if key.is_hostname {
            match ordinal {
                Some(node) => *counts.hosts.entry(node).or_default() += 1,
                None => counts.leaving += 1,
            }
        } else if let Some(domain) = label(node, &key.name).and_then(|value| key.domain(value)) {
            counts.known.insert(domain as usize);
            counts.pods[domain as usize] += 1;
        }
    }

    fn passes(
        &mut self,
        filter: Option<FilterOrd>,
        node: &StateNode,
        ordinal: Option<NodeOrd>,
    ) -> bool {
        let Some(filter) = filter else {
            return true;
        };
        let decide = |labels: &Requirements| {
            let filter = &self.groups.filters[filter as usize];
            filter.accepts(labels, &node.taints, |tolerance, taints| {
                self.around.tolerates(tolerance, taints)
            })
        };
        let Some(ordinal) = ordinal else {
            return decide(&all_labels(node));
        };
        let existing = self.around.existing;
        let kind = existing.nodes[ordinal as usize].kind;
        let labels = &existing.kinds[kind as usize].labels;
        *self
            .passing
            .entry((filter, kind))
            .or_insert_with(|| decide(labels))
    }
}

fn all_labels(node: &StateNode) -> Requirements {
    let mut all = Requirements::from_labels(node.labels.iter());
    let host: Name = labels::HOSTNAME.into();
    all.replace(Requirement::label(&host, &node.hostname));
    all
}

/// Running pods that stay: neither on their way out nor to be placed in this pass.
fn residents<'a>(around: &Surroundings<'_, 'a>) -> Vec<Residents<'a>> {
    let moving: FxHashSet<&PodKey> = around
        .snapshot
        .pods
        .iter()
        .filter(|pod| matches!(pod.intake, Intake::Rescheduled { .. }))
        .map(|pod| &pod.key)
        .collect();
    let mut by_pointer: FxHashMap<*const PodSpec, usize> = FxHashMap::default();
    let mut residents: Vec<Residents<'a>> = Vec::new();
    for (node, pod) in bound(around.snapshot) {
        if pod.is_terminating || moving.contains(&pod.key) {
            continue;
        }
        let at = *by_pointer
            .entry(std::sync::Arc::as_ptr(&pod.spec))
            .or_insert_with(|| {
                residents.push(Residents {
                    spec: &pod.spec,
                    on: Vec::new(),
                });
                residents.len() - 1
            });
        let ordinal = around.existing.by_name.get(&node.name).copied();
        residents[at].on.push((node, ordinal));
    }
    residents
}
