//! Which pods a rule means: namespaces and labels.
//!
//! Source: provisioning specification 6.16.2 (namespaces, `matchLabelKeys`, absent selectors).

use std::collections::{BTreeMap, BTreeSet};

use millwright_model::{
    Name, Operator, PodSpec,
    snapshot::Namespaces,
    topology::{LabelSelector, PodAffinityTerm, TopologySpread},
};
use rustc_hash::FxHashMap;

use crate::problem::ord;

pub(crate) type SelectionOrd = u32;

/// The label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The namespaces of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    All,
    /// By name, and those whose labels match.
    Some {
        names: BTreeSet<Name>,
        labelled: Option<LabelSelector>,
    },
}

/// The pods that a rule means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Selection {
    scope: Scope,
    /// Sorted, without repetitions; `None` selects nothing.
    selector: Option<LabelSelector>,
}

impl Selection {
    pub(crate) fn of_spread(spec: &PodSpec, constraint: &TopologySpread) -> Self {
        Self {
            scope: own_namespace(spec),
            selector: refined(
                spec,
                constraint.selector.as_ref(),
                &constraint.match_label_keys,
                &[],
            ),
        }
    }

    /// Label-key refinements are what the API server writes into the selector; written twice they
    /// mean the same.
    pub(crate) fn of_term(spec: &PodSpec, term: &PodAffinityTerm) -> Self {
        let scope = match &term.namespace_selector {
            Some(selector) if is_everything(selector) => Scope::All,
            None if term.namespaces.is_empty() => own_namespace(spec),
            labelled => Scope::Some {
                names: term.namespaces.iter().cloned().collect(),
                labelled: labelled.as_ref().map(canonical),
            },
        };
        Self {
            scope,
            selector: refined(
                spec,
                term.selector.as_ref(),
                &term.match_label_keys,
                &term.mismatch_label_keys,
            ),
        }
    }

    /// Whether it means pods with this spec. Where namespaces are not watched, a selector over
    /// their labels counts as matching: pods that ask so are not planned for, and a running pod
    /// keeps away rather too many.
    pub(crate) fn selects(&self, spec: &PodSpec, namespaces: Option<&Namespaces>) -> bool {
        let here = match &self.scope {
            Scope::All => true,
            Scope::Some { names, labelled } => {
                names.contains(&spec.namespace)
                    || labelled.as_ref().is_some_and(|selector| {
                        namespaces.is_none_or(|known| {
                            let mut labels =
                                known.get(&spec.namespace).cloned().unwrap_or_default();
                            labels.insert(NAMESPACE_NAME.into(), spec.namespace.clone());
                            selector.selects(&labels)
                        })
                    })
            }
        };
        here && self
            .selector
            .as_ref()
            .is_some_and(|selector| selector.selects(&spec.labels))
    }

    /// A label that every selected pod has, to find selections by.
    fn handle(&self) -> Option<(Name, Name)> {
        let selector = self.selector.as_ref()?;
        let single = || {
            let mut single = selector.match_expressions.iter();
            single.find(|(_, operator, values)| *operator == Operator::In && values.len() == 1)
        };
        let pair = selector.match_labels.first().cloned();
        pair.or_else(|| single().map(|(key, _, values)| (key.clone(), values[0].clone())))
    }
}

/// Whether a term's namespaces depend on labels of namespaces.
pub(crate) fn asks_for_namespace_labels(term: &PodAffinityTerm) -> bool {
    let selector = term.namespace_selector.as_ref();
    selector.is_some_and(|selector| !is_everything(selector))
}

fn is_everything(selector: &LabelSelector) -> bool {
    selector.match_labels.is_empty() && selector.match_expressions.is_empty()
}

fn own_namespace(spec: &PodSpec) -> Scope {
    Scope::Some {
        names: BTreeSet::from([spec.namespace.clone()]),
        labelled: None,
    }
}

fn refined(
    spec: &PodSpec,
    selector: Option<&LabelSelector>,
    equal: &[Name],
    different: &[Name],
) -> Option<LabelSelector> {
    let mut selector = selector?.clone();
    let mut refine = |keys: &[Name], operator| {
        for key in keys {
            if let Some(value) = spec.labels.get(key) {
                selector
                    .match_expressions
                    .push((key.clone(), operator, vec![value.clone()]));
            }
        }
    };
    refine(equal, Operator::In);
    refine(different, Operator::NotIn);
    Some(canonical(&selector))
}

/// The same selector, written in the one way that makes equal ones equal.
fn canonical(selector: &LabelSelector) -> LabelSelector {
    let mut canonical = selector.clone();
    canonical.match_labels.sort_unstable();
    canonical.match_labels.dedup();
    for (_, _, values) in &mut canonical.match_expressions {
        values.sort_unstable();
        values.dedup();
    }
    canonical.match_expressions.sort_unstable();
    canonical.match_expressions.dedup();
    canonical
}

/// All selections, findable by the labels of a pod.
#[derive(Debug, Default)]
pub(crate) struct Selections {
    list: Vec<Selection>,
    index: FxHashMap<Selection, SelectionOrd>,
    by_label: BTreeMap<(Name, Name), Vec<SelectionOrd>>,
    /// Selections that no single label leads to.
    others: Vec<SelectionOrd>,
}

impl Selections {
    pub(crate) fn intern(&mut self, selection: Selection) -> SelectionOrd {
        let next = ord(self.list.len());
        *self.index.entry(selection).or_insert_with_key(|selection| {
            self.list.push(selection.clone());
            match selection.handle() {
                Some(label) => self.by_label.entry(label).or_default().push(next),
                None => self.others.push(next),
            }
            next
        })
    }

    /// The ordinal of a selection, if anybody has it.
    pub(crate) fn known(&self, selection: &Selection) -> Option<SelectionOrd> {
        self.index.get(selection).copied()
    }

    /// The selections that mean pods with this spec, ascending.
    pub(crate) fn selecting(
        &self,
        spec: &PodSpec,
        namespaces: Option<&Namespaces>,
    ) -> Vec<SelectionOrd> {
        let mut found = self.others.clone();
        for (key, value) in &spec.labels {
            let label = (key.clone(), value.clone());
            found.extend(self.by_label.get(&label).into_iter().flatten());
        }
        found.retain(|at| self.list[*at as usize].selects(spec, namespaces));
        found.sort_unstable();
        found
    }
}
