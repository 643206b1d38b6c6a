//! Topology keys and their domains as ordinals.
//!
//! A domain is a value of a label that rules between pods count by. All values that can occur in
//! a pass are known before it: what NodePools and types allow, what nodes carry, what pods ask
//! for. Domains are numbered in order of name, so ordinals do not depend on the snapshot's order.
//! Host names are domains too, one for each node; they are counted by node and not listed.
//!
//! Source: provisioning specification 6.16.2 (universe).

use std::collections::BTreeSet;

use millwright_model::{Name, PodSpec, Requirement, StateNode, labels};
use rustc_hash::FxHashMap;

use crate::{
    bits::TypeSet,
    problem::{Catalogue, Template, ord},
};

pub(crate) type KeyOrd = u32;
pub(crate) type DomainOrd = u32;

/// A set of domains of one key; bits like those of instance types.
pub(crate) type DomainSet = TypeSet;

/// A label key that rules between pods count by.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: Name,
    /// Whether every node is a domain of its own.
    pub(crate) is_hostname: bool,
    /// Domains in order; empty for the host name.
    pub(crate) domains: Vec<Name>,
    /// By template: the domains that its nodes may be in.
    pub(crate) reachable: Vec<DomainSet>,
}

impl Key {
    pub(crate) fn none(&self) -> DomainSet {
        DomainSet::none(self.domains.len())
    }

    pub(crate) fn domain(&self, value: &Name) -> Option<DomainOrd> {
        self.domains.binary_search(value).ok().map(ord)
    }

    /// The domains that `requirement` allows; all when there is none.
    pub(crate) fn allowed(&self, requirement: Option<&Requirement>) -> DomainSet {
        let Some(requirement) = requirement else {
            return DomainSet::all(self.domains.len());
        };
        let mut allowed = self.none();
        for (at, domain) in self.domains.iter().enumerate() {
            if requirement.has(domain) {
                allowed.insert(at);
            }
        }
        allowed
    }
}

/// The keys of a problem.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pub(crate) list: Vec<Key>,
    index: FxHashMap<Name, KeyOrd>,
}

impl Keys {
    pub(crate) fn new(
        names: BTreeSet<&Name>,
        specs: &[&PodSpec],
        nodes: &[&StateNode],
        templates: &[Template],
        catalogues: &[Catalogue],
    ) -> Self {
        let mut keys = Self::default();
        for name in names {
            let is_hostname = &**name == labels::HOSTNAME;
            let mut key = Key {
                name: name.clone(),
                is_hostname,
                domains: Vec::new(),
                reachable: Vec::new(),
            };
            if !is_hostname {
                let universes: Vec<BTreeSet<Name>> = templates
                    .iter()
                    .map(|template| universe(template, &catalogues[template.catalogue], name))
                    .collect();
                let mut domains: BTreeSet<Name> = universes.iter().flatten().cloned().collect();
                domains.extend(nodes.iter().filter_map(|node| label(node, name).cloned()));
                specs
                    .iter()
                    .for_each(|spec| mention(spec, name, &mut domains));
                key.domains = domains.into_iter().collect();
                for universe in universes {
                    let mut reachable = key.none();
                    let known = universe.iter().filter_map(|domain| key.domain(domain));
                    known.for_each(|domain| reachable.insert(domain as usize));
                    key.reachable.push(reachable);
                }
            }
            keys.index.insert(name.clone(), ord(keys.list.len()));
            keys.list.push(key);
        }
        keys
    }

    pub(crate) fn get(&self, name: &Name) -> Option<KeyOrd> {
        self.index.get(name).copied()
    }
}

impl std::ops::Index<KeyOrd> for Keys {
    type Output = Key;

    fn index(&self, key: KeyOrd) -> &Key {
        &self.list[key as usize]
    }
}

/// The label of a node by canonical key; the host name is that of the node.
pub(crate) fn label<'n>(node: &'n StateNode, key: &Name) -> Option<&'n Name> {
    if &**key == labels::HOSTNAME {
        return Some(&node.hostname);
    }
    let alias = || {
        let mut all = node.labels.iter();
        all.find(|(own, _)| labels::normalise(own) == *key)
    };
    node.labels
        .get(key)
        .or_else(|| alias().map(|(_, value)| value))
}

/// The values of `key` that nodes of a template may have, as its requirements and its types say.
fn universe(template: &Template, catalogue: &Catalogue, key: &Name) -> BTreeSet<Name> {
    let own = template.requirements.get(key);
    let mut values = BTreeSet::new();
    let mut add = |requirement: &Requirement| {
        if !requirement.is_complement() {
            values.extend(requirement.values().iter().cloned());
        }
    };
    own.into_iter().for_each(&mut add);
    for of_type in catalogue.requirements_on(key) {
        match own {
            Some(own) => add(&own.intersection(of_type)),
            None => add(of_type),
        }
    }
    values
}

/// The values of `key` that a pod asks for: they may become a label of a node.
fn mention(spec: &PodSpec, key: &Name, values: &mut BTreeSet<Name>) {
    let selector = spec.node_selector.iter();
    let selected = selector.filter(|(own, _)| labels::normalise(own) == *key);
    values.extend(selected.map(|(_, value)| value.clone()));
    let preferred = spec.preferred_terms.iter().map(|(_, term)| term);
    for requirement in spec.required_terms.iter().chain(preferred).flatten() {
        if requirement.key() == key && !requirement.is_complement() {
            values.extend(requirement.values().iter().cloned());
        }
    }
}
