//! Groups: one rule, the pods it counts, the nodes it counts on.
//!
//! Source: provisioning specification 6.16.1 and 6.16.3. Two pods share a group when everything
//! about it is equal; Karpenter leaves some of it out of the comparison.

use millwright_model::{Requirements, Taint};
use rustc_hash::FxHashMap;

use super::{
    domains::{DomainSet, KeyOrd},
    selection::{SelectionOrd, Selections},
};
use crate::problem::{ToleranceOrd, ord};

pub(crate) type GroupOrd = u32;
pub(crate) type FilterOrd = u32;

/// What a group asks of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// No domain may be ahead of the emptiest by more than `max_skew` pods.
    Spread { max_skew: u32, min_domains: u32 },
    /// Some selected pod is there.
    Affinity,
    /// No selected pod is there.
    AntiAffinity,
    /// No pod is there that keeps the selected ones away.
    Repulsion,
}

/// A rule with everything that decides what it counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub(crate) key: KeyOrd,
    pub(crate) rule: Rule,
    /// Whom it counts; with [`Rule::Repulsion`], whom it keeps away.
    pub(crate) selection: SelectionOrd,
    /// Nodes on which it counts; `None` is all.
    pub(crate) filter: Option<FilterOrd>,
    /// Domains that new nodes may be in.
    pub(crate) universe: DomainSet,
}

/// Nodes on which a spread constraint counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// One of these, if there are any.
    pub(crate) alternatives: Vec<Requirements>,
    /// Nodes whose taints it covers.
    pub(crate) tolerance: Option<ToleranceOrd>,
}

impl Filter {
    /// Whether nodes with these labels and taints count. A label must be there to be wanted, also
    /// on nodes to be made.
    pub(crate) fn accepts(
        &self,
        labels: &Requirements,
        taints: &[Taint],
        tolerates: impl Fn(ToleranceOrd, &[Taint]) -> bool,
    ) -> bool {
        let mut wanted = self.alternatives.iter();
        let here = self.alternatives.is_empty()
            || wanted.any(|wanted| labels.compatible(wanted, |_| false).is_ok());
        here && self
            .tolerance
            .is_none_or(|tolerance| tolerates(tolerance, taints))
    }
}

/// All groups of a problem, each distinct value once.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) list: Vec<Group>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) selections: Selections,
    index: FxHashMap<Group, GroupOrd>,
    filter_index: FxHashMap<Filter, FilterOrd>,
}

impl Groups {
    /// The ordinal of a group, and whether it was not known.
    pub(crate) fn intern(&mut self, group: Group) -> (GroupOrd, bool) {
        if let Some(known) = self.index.get(&group) {
            return (*known, false);
        }
        let next = ord(self.list.len());
        self.list.push(group.clone());
        self.index.insert(group, next);
        (next, true)
    }

    /// The ordinal of a filter; `None` for one that accepts every node.
    pub(crate) fn filter(&mut self, filter: Filter) -> Option<FilterOrd> {
        let indifferent = filter.alternatives.iter().all(Requirements::is_empty);
        if indifferent && filter.tolerance.is_none() {
            return None;
        }
        let next = ord(self.filters.len());
        Some(
            *self
                .filter_index
                .entry(filter)
                .or_insert_with_key(|filter| {
                    self.filters.push(filter.clone());
                    next
                }),
        )
    }
}
