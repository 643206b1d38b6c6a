//! Rules between pods: topology spread, affinity, anti-affinity, ports of the host.
//!
//! A *group* counts pods by domain for one rule. What the pods of one shape have to do with groups
//! and ports is its [`Rules`]; shapes without any have [`NO_RULES`] and never come here again.
//! Everything in this module is fixed for the pass; what changes is in [`Ledger`].
//!
//! Source: provisioning specification 6.14 (ports), 6.16 (topology).

mod counts;
mod domains;
mod group;
mod ledger;
mod ports;
mod selection;

use millwright_model::{
    ClusterSnapshot, Name, PodSpec, Requirement, StateNode, Taint,
    snapshot::{BoundPod, Namespaces},
    topology::{PodAffinityTerm, WhenUnsatisfiable},
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use self::{
    counts::{Census, Counts},
    group::Groups,
    ports::PortLists,
    selection::SelectionOrd,
};
pub(crate) use self::{
    domains::{DomainOrd, DomainSet, Key, KeyOrd, Keys},
    group::{Filter, FilterOrd, Group, GroupOrd, Rule},
    ledger::{Host, Ledger, Located, Verdict},
    ports::{PortsOrd, conflict},
    selection::{Selection, asks_for_namespace_labels},
};
use crate::problem::{
    Catalogue, ExistingNodes, Template, ToleranceOrd, Tolerances, Wish, ord, strict_alternatives,
};

pub(crate) type RulesOrd = u32;

/// The rules of shapes that neither obey nor influence any.
pub(crate) const NO_RULES: RulesOrd = 0;

/// A group that a pod must satisfy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Obeyed {
    pub(crate) group: GroupOrd,
    /// Whether the group counts the pod itself.
    pub(crate) counts_itself: bool,
    /// Domains that the pod's own requirements allow; empty for the host name.
    pub(crate) allowed: DomainSet,
    /// For the host name: what the pod's own requirements say about it.
    pub(crate) host: Option<Requirement>,
}

/// What the pods of a shape have to do with others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// Groups to satisfy, those of others that keep the pod away among them.
    pub(crate) obeyed: SmallVec<[Obeyed; 2]>,
    /// Groups that count the pod.
    pub(crate) counted: SmallVec<[GroupOrd; 4]>,
    /// Groups by which the pod keeps others away.
    pub(crate) repels: SmallVec<[GroupOrd; 2]>,
    pub(crate) ports: Option<PortsOrd>,
}

/// The rules of a problem.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) keys: Keys,
    pub(crate) groups: Vec<Group>,
    pub(crate) filters: Vec<Filter>,
    /// The first is [`NO_RULES`].
    pub(crate) rules: Vec<Rules>,
    /// By group: what counts before the pass.
    base: Vec<Counts>,
    /// Distinct lists of ports.
    pub(crate) ports: PortLists,
    /// By existing node: lists of ports that are taken.
    taken_ports: Vec<SmallVec<[PortsOrd; 2]>>,
    /// By kind, then key: the domain.
    domains_of_kinds: Vec<Vec<Option<DomainOrd>>>,
    /// By existing node.
    hostnames: Vec<Name>,
}

impl Topology {
    pub(crate) fn rules(&self, rules: RulesOrd) -> &Rules {
        &self.rules[rules as usize]
    }

    pub(crate) fn group(&self, group: GroupOrd) -> &Group {
        &self.groups[group as usize]
    }

    pub(crate) fn key_of(&self, group: GroupOrd) -> &Key {
        &self.keys[self.group(group).key]
    }

    /// The domain of nodes of a kind.
    pub(crate) fn domain_of_kind(&self, kind: u32, key: KeyOrd) -> Option<DomainOrd> {
        self.domains_of_kinds[kind as usize][key as usize]
    }
}

/// What building the rules needs to know of the problem.
pub(crate) struct Surroundings<'p, 'a> {
    pub(crate) snapshot: &'a ClusterSnapshot,
    pub(crate) templates: &'p [Template],
    pub(crate) catalogues: &'p [Catalogue],
    pub(crate) existing: &'p ExistingNodes<'a>,
    pub(crate) tolerances: &'p Tolerances,
    /// Distinct lists of taints.
    pub(crate) taints: &'p [Vec<Taint>],
}

impl Surroundings<'_, '_> {
    fn tolerates(&self, tolerance: ToleranceOrd, taints: &[Taint]) -> bool {
        self.tolerances.untolerated(tolerance, taints).is_none()
    }
}

/// Gathers the groups of all specs, then makes the rules of each shape.
pub(crate) struct Builder<'a> {
    namespaces: Option<&'a Namespaces>,
    keys: Keys,
    groups: Groups,
    /// By selection: the groups that count by it.
    by_selection: FxHashMap<SelectionOrd, Vec<GroupOrd>>,
    ports: PortLists,
    rules: Vec<Rules>,
    index: FxHashMap<Rules, RulesOrd>,
}

/// The groups of one wish.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    /// Spread, affinity, anti-affinity.
    pub(crate) groups: Vec<GroupOrd>,
    /// Keeping others away.
    pub(crate) repels: Vec<GroupOrd>,
}

/// Every label key that rules of pods count by.
pub(crate) fn topology_keys(spec: &PodSpec) -> impl Iterator<Item = &Name> {
    let terms = pod_terms(spec).map(|term| &term.topology_key);
    terms.chain(spec.topology_spread.iter().map(|s| &s.topology_key))
}

/// Every term of pod affinity and anti-affinity.
pub(crate) fn pod_terms(spec: &PodSpec) -> impl Iterator<Item = &PodAffinityTerm> {
    let required = spec.affinity.iter().chain(&spec.anti_affinity);
    let preferred = spec.preferred_affinity.iter();
    let preferred = preferred.chain(&spec.preferred_anti_affinity);
    required.chain(preferred.map(|(_, term)| term))
}

/// Keys of required anti-affinity of pods that run: those whom it selects must obey it.
pub(crate) fn repelling_keys(snapshot: &ClusterSnapshot) -> impl Iterator<Item = &Name> {
    bound(snapshot).flat_map(|(_, pod)| pod.spec.anti_affinity.iter().map(|t| &t.topology_key))
}

fn bound(snapshot: &ClusterSnapshot) -> impl Iterator<Item = (&StateNode, &BoundPod)> {
    let nodes = snapshot.nodes.iter().map(AsRef::as_ref);
    nodes.flat_map(|node: &StateNode| node.pods.iter().map(move |pod| (node, pod)))
}

impl<'a> Builder<'a> {
    /// `specs`: those of the pods to be placed.
    pub(crate) fn new(specs: &[&'a PodSpec], around: &Surroundings<'_, 'a>) -> Self {
        let snapshot = around.snapshot;
        let mut names: std::collections::BTreeSet<_> =
            specs.iter().flat_map(|spec| topology_keys(spec)).collect();
        names.extend(repelling_keys(snapshot));
        let nodes: Vec<&StateNode> = snapshot.nodes.iter().map(AsRef::as_ref).collect();
        Self {
            namespaces: snapshot.namespaces.as_ref(),
            keys: Keys::new(names, specs, &nodes, around.templates, around.catalogues),
            groups: Groups::default(),
            by_selection: FxHashMap::default(),
            ports: PortLists::default(),
            rules: vec![Rules::default()],
            index: FxHashMap::from_iter([(Rules::default(), NO_RULES)]),
        }
    }

    /// The groups of a spec that asks as `wish` says.
    pub(crate) fn own(
        &mut self,
        spec: &PodSpec,
        wish: &Wish<'_>,
        tolerance: ToleranceOrd,
        around: &Surroundings<'_, '_>,
    ) -> Owned {
        let mut owned = Owned::default();
        for constraint in &wish.spread {
            let Some(key) = self.keys.get(&constraint.topology_key) else {
                continue;
            };
            // All terms, whatever relaxation dropped: the kube-scheduler counts where the pod as
            // it was written may run.
            let filter = self.groups.filter(Filter {
                alternatives: if constraint.honor_node_affinity {
                    strict_alternatives(spec)
                } else {
                    Vec::new()
                },
                tolerance: constraint.honor_node_taints.then_some(tolerance),
            });
            let honoured = constraint.honor_node_taints.then_some(tolerance);
            let universe = self.universe(key, honoured, around);
            let selection = Selection::of_spread(spec, constraint);
            let rule = Rule::Spread {
                max_skew: constraint.max_skew,
                min_domains: constraint.min_domains.unwrap_or(0),
            };
            owned
                .groups
                .push(self.group(key, rule, selection, filter, universe));
        }
        let affinity = spec.affinity.iter().chain(wish.affinity.iter().copied());
        let terms = affinity.map(|term| (term, Rule::Affinity));
        let anti = spec
            .anti_affinity
            .iter()
            .chain(wish.anti_affinity.iter().copied());
        for (term, rule) in terms.chain(anti.map(|term| (term, Rule::AntiAffinity))) {
            let Some(key) = self.keys.get(&term.topology_key) else {
                continue;
            };
            let universe = self.universe(key, Some(tolerance), around);
            let selection = Selection::of_term(spec, term);
            owned
                .groups
                .push(self.group(key, rule, selection, None, universe));
        }
        owned.repels = self.repel(spec, around);
        owned.groups.sort_unstable();
        owned.groups.dedup();
        owned
    }

    /// The groups by which required anti-affinity of `spec` keeps others away.
    fn repel(&mut self, spec: &PodSpec, around: &Surroundings<'_, '_>) -> Vec<GroupOrd> {
        let mut repels = Vec::new();
        for term in &spec.anti_affinity {
            if let Some(key) = self.keys.get(&term.topology_key) {
                let universe = self.universe(key, None, around);
                let selection = Selection::of_term(spec, term);
                repels.push(self.group(key, Rule::Repulsion, selection, None, universe));
            }
        }
        repels.sort_unstable();
        repels.dedup();
        repels
    }

    /// Domains that new nodes may be in; with a tolerance, of NodePools that it covers.
    fn universe(
        &self,
        key: KeyOrd,
        tolerance: Option<ToleranceOrd>,
        around: &Surroundings<'_, '_>,
    ) -> DomainSet {
        let key = &self.keys[key];
        let mut universe = key.none();
        for (reachable, template) in key.reachable.iter().zip(around.templates) {
            let taints = &around.taints[template.taints as usize];
            if tolerance.is_none_or(|tolerance| around.tolerates(tolerance, taints)) {
                universe.unite(reachable);
            }
        }
        universe
    }

    fn group(
        &mut self,
        key: KeyOrd,
        rule: Rule,
        selection: Selection,
        filter: Option<FilterOrd>,
        universe: DomainSet,
    ) -> GroupOrd {
        let selection = self.groups.selections.intern(selection);
        let (group, is_new) = self.groups.intern(Group {
            key,
            rule,
            selection,
            filter,
            universe,
        });
        if is_new {
            self.by_selection.entry(selection).or_default().push(group);
        }
        group
    }

    /// Adds the groups by which running pods keep others away.
    pub(crate) fn add_running(&mut self, around: &Surroundings<'_, '_>) {
        let mut seen = FxHashSet::default();
        for (_, pod) in bound(around.snapshot) {
            if !pod.spec.anti_affinity.is_empty() && seen.insert(std::sync::Arc::as_ptr(&pod.spec))
            {
                self.repel(&pod.spec, around);
            }
        }
    }

    /// The rules of a spec that asks as `wish` says; call it when all groups are known.
    pub(crate) fn rules(&mut self, spec: &PodSpec, wish: &Wish<'_>, owned: &Owned) -> RulesOrd {
        let mut rules = Rules {
            repels: owned.repels.iter().copied().collect(),
            ports: self.ports.intern(&spec.host_ports),
            ..Rules::default()
        };
        let selecting = self.groups.selections.selecting(spec, self.namespaces);
        let mut obeyed = owned.groups.clone();
        for selection in &selecting {
            for group in self.by_selection.get(selection).into_iter().flatten() {
                match self.groups.list[*group as usize].rule {
                    Rule::Repulsion => obeyed.push(*group),
                    Rule::Spread { .. } | Rule::Affinity | Rule::AntiAffinity => {
                        rules.counted.push(*group);
                    }
                }
            }
        }
        rules.counted.sort_unstable();
        for group in obeyed {
            let of = &self.groups.list[group as usize];
            let key = &self.keys[of.key];
            let own = wish.strict.get(&key.name);
            rules.obeyed.push(Obeyed {
                group,
                counts_itself: selecting.binary_search(&of.selection).is_ok(),
                allowed: key.allowed(own),
                host: own.filter(|_| key.is_hostname).cloned(),
            });
        }
        let next = ord(self.rules.len());
        *self.index.entry(rules).or_insert_with_key(|rules| {
            self.rules.push(rules.clone());
            next
        })
    }

    /// Counts what runs already.
    pub(crate) fn finish(mut self, around: &Surroundings<'_, '_>) -> Topology {
        let existing = around.existing;
        let mut taken_ports = Vec::new();
        if !self.ports.is_empty() {
            for node in &existing.nodes {
                let taken = node.node.pods.iter();
                let taken = taken.filter_map(|pod| self.ports.intern(&pod.spec.host_ports));
                taken_ports.push(taken.collect());
            }
        }
        let domains = |kind: &crate::problem::Kind| {
            let domain = |key: &Key| key.domain(kind.labels.get(&key.name)?.single()?);
            self.keys.list.iter().map(domain).collect()
        };
        let domains_of_kinds = existing.kinds.iter().map(domains).collect();
        let base = Census::new(&self.keys, &self.groups, around, self.namespaces).counts();
        Topology {
            keys: self.keys,
            groups: self.groups.list,
            filters: self.groups.filters,
            rules: self.rules,
            base,
            ports: self.ports,
            taken_ports,
            domains_of_kinds,
            hostnames: existing
                .nodes
                .iter()
                .map(|n| n.node.hostname.clone())
                .collect(),
        }
    }
}

/// Whether a constraint is more than a wish.
pub(crate) fn is_hard(spread: &millwright_model::topology::TopologySpread) -> bool {
    spread.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule
}
