//! Where other pods draw a pod to or keep it from: affinity between pods, and spread.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

use super::{
    filter::Reason,
    ledger::{Ledger, NodeFacts},
    node_affinity,
    pod::{PodInfo, identity},
};

type Labels = BTreeMap<String, String>;

/// Which pods a term is about.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    /// The same for matchers that match the same.
    pub(super) id: String,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<Selector>,
    /// `None` matches nothing, an empty one everything.
    selector: Option<Selector>,
    skips_going: bool,
}

impl Matcher {
    pub(super) fn new(
        namespaces: Vec<String>,
        namespace_selector: Option<LabelSelector>,
        selector: Option<LabelSelector>,
    ) -> Self {
        let namespaces: BTreeSet<String> = namespaces.into_iter().collect();
        Self {
            id: identity(&(&namespaces, &namespace_selector, &selector)),
            namespaces,
            namespace_selector: namespace_selector.and_then(|selector| selector.try_into().ok()),
            selector: selector.and_then(|selector| selector.try_into().ok()),
            skips_going: false,
        }
    }

    /// The same, without pods that are on their way out.
    pub(super) fn without_going(mut self) -> Self {
        self.skips_going = true;
        self.id.push('*');
        self
    }

    pub(super) fn matches(&self, pod: &PodInfo, namespaces: &HashMap<String, Labels>) -> bool {
        let is_there = self.namespaces.contains(&pod.namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                let labels = namespaces.get(&pod.namespace);
                selector.matches(labels.unwrap_or(&Labels::new()))
            });
        let is_selected = |selector: &Selector| selector.matches(&pod.labels);
        is_there
            && !(self.skips_going && pod.is_going)
            && self.selector.as_ref().is_some_and(is_selected)
    }
}

/// Pods of a kind, within a domain.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) topology_key: String,
    pub(super) matcher: Matcher,
}

/// A spread constraint.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    pub(super) topology_key: String,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    pub(super) honours_affinity: bool,
    pub(super) honours_taints: bool,
    pub(super) matcher: Matcher,
}

/// All that a pod says about other pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub(super) affinity: Vec<Arc<Term>>,
    pub(super) anti_affinity: Vec<Arc<Term>>,
    /// Weights below zero keep away.
    pub(super) preferred: Vec<(i64, Term)>,
    pub(super) spread: Vec<Spread>,
    pub(super) soft_spread: Vec<Spread>,
}

/// How many pods there are in the domains of one key.
#[derive(Debug, Default)]
struct Domains(BTreeMap<String, i64>);

impl Domains {
    fn count(&self, key: &str, node: &NodeFacts) -> i64 {
        let value = node.labels.get(key);
        let count = value.and_then(|value| self.0.get(value)).copied();
        count.unwrap_or_default()
    }
}

/// What holds for one pod on every node; made once for each attempt.
#[derive(Debug)]
pub(super) struct Topology<'a> {
    pod: &'a PodInfo,
    /// Domains that pods which are there keep this one out of.
    closed: BTreeSet<(&'a str, &'a str)>,
    affinity: Vec<Domains>,
    /// The first pod of a group that wants to be together may go anywhere.
    is_first: bool,
    anti_affinity: Vec<Domains>,
    spread: Vec<(Domains, i64, i64)>,
    preferred: Vec<Domains>,
    soft_spread: Vec<Domains>,
}

impl<'a> Topology<'a> {
    pub(super) fn new(pod: &'a PodInfo, ledger: &'a Ledger) -> Self {
        let terms = &pod.terms;
        let namespaces = ledger.namespaces();
        // Only a pod that all terms mean is somebody to be near to.
        let all: Vec<&Matcher> = terms.affinity.iter().map(|term| &term.matcher).collect();
        let affinity: Vec<Domains> = terms
            .affinity
            .iter()
            .map(|term| domains(ledger, &all, &term.topology_key, |_| true))
            .collect();
        let is_first = affinity.iter().all(|domains| domains.0.is_empty())
            && all.iter().all(|matcher| matcher.matches(pod, namespaces));
        let one = |term: &Term| domains(ledger, &[&term.matcher], &term.topology_key, |_| true);
        let soft =
            |spread: &Spread| domains(ledger, &[&spread.matcher], &spread.topology_key, |_| true);
        Self {
            pod,
            closed: closed(pod, ledger),
            affinity,
            is_first,
            anti_affinity: terms.anti_affinity.iter().map(|term| one(term)).collect(),
            spread: terms
                .spread
                .iter()
                .map(|spread| skew(pod, ledger, spread))
                .collect(),
            preferred: terms.preferred.iter().map(|(_, term)| one(term)).collect(),
            soft_spread: terms.soft_spread.iter().map(soft).collect(),
        }
    }

    /// Why the pod must not be on this node, as far as other pods are concerned.
    pub(super) fn objection(&self, node: &NodeFacts) -> Option<Reason> {
        let terms = &self.pod.terms;
        for (spread, (domains, least, own)) in terms.spread.iter().zip(&self.spread) {
            if !node.labels.contains_key(&spread.topology_key) {
                return Some(Reason::SpreadLabel);
            }
            let count = domains.count(&spread.topology_key, node);
            if count + own - least > spread.max_skew {
                return Some(Reason::Spread);
            }
        }
        let is_near = |(term, domains): (&Arc<Term>, &Domains)| {
            node.labels.contains_key(&term.topology_key)
                && (self.is_first || domains.count(&term.topology_key, node) > 0)
        };
        if !terms.affinity.iter().zip(&self.affinity).all(is_near) {
            return Some(Reason::Affinity);
        }
        let is_close =
            |(term, domains): (&Arc<Term>, &Domains)| domains.count(&term.topology_key, node) > 0;
        if terms
            .anti_affinity
            .iter()
            .zip(&self.anti_affinity)
            .any(is_close)
        {
            return Some(Reason::AntiAffinity);
        }
        let mut closed = self.closed.iter();
        closed
            .any(|(key, value)| node.labels.get(*key).is_some_and(|own| own == value))
            .then_some(Reason::ExistingAntiAffinity)
    }

    /// How much the pod would rather be here than elsewhere.
    pub(super) fn preference(&self, node: &NodeFacts) -> i64 {
        let terms = &self.pod.terms;
        let drawn = terms.preferred.iter().zip(&self.preferred);
        let drawn =
            drawn.map(|((weight, term), domains)| weight * domains.count(&term.topology_key, node));
        let crowded = terms.soft_spread.iter().zip(&self.soft_spread);
        let crowded = crowded.map(|(spread, domains)| domains.count(&spread.topology_key, node));
        drawn.sum::<i64>() - crowded.sum::<i64>()
    }
}

/// Pods that all matchers mean, by domain, on the nodes that count.
fn domains(
    ledger: &Ledger,
    matchers: &[&Matcher],
    key: &str,
    counts: impl Fn(&NodeFacts) -> bool,
) -> Domains {
    let mut domains = Domains::default();
    for (node, count) in ledger.matching(matchers) {
        let facts = ledger.facts(&node).filter(|facts| counts(facts));
        if let Some(value) = facts.and_then(|facts| facts.labels.get(key)) {
            *domains.0.entry(value.clone()).or_default() += count;
        }
    }
    domains
}

/// The counts of a spread constraint, the smallest of them, and what the pod itself adds.
fn skew(pod: &PodInfo, ledger: &Ledger, spread: &Spread) -> (Domains, i64, i64) {
    let counts = |node: &NodeFacts| {
        let mut keys = pod.terms.spread.iter();
        keys.all(|spread| node.labels.contains_key(&spread.topology_key))
            && (!spread.honours_affinity
                || node_affinity::admits(&pod.spec, &node.name, &node.labels))
            && (!spread.honours_taints || {
                let tolerations = pod.spec.tolerations.as_deref().unwrap_or_default();
                let effects = ["NoSchedule", "NoExecute"];
                node_affinity::untolerated(&node.taints, &effects, tolerations).is_none()
            })
    };
    let mut domains = domains(ledger, &[&spread.matcher], &spread.topology_key, counts);
    for node in ledger.nodes().filter(|node| counts(node)) {
        if let Some(value) = node.labels.get(&spread.topology_key)
            && !domains.0.contains_key(value)
        {
            domains.0.insert(value.clone(), 0);
        }
    }
    let least = if domains.0.len() < spread.min_domains {
        0
    } else {
        domains.0.values().copied().min().unwrap_or_default()
    };
    let own = spread.matcher.matches(pod, ledger.namespaces());
    (domains, least, i64::from(own))
}

/// Domains in which there is a pod that does not want to be together with this one.
fn closed<'a>(pod: &PodInfo, ledger: &'a Ledger) -> BTreeSet<(&'a str, &'a str)> {
    let mut closed = BTreeSet::new();
    for (term, nodes) in ledger.anti_affinity() {
        if !term.matcher.matches(pod, ledger.namespaces()) {
            continue;
        }
        for facts in nodes.filter_map(|node| ledger.facts(node)) {
            if let Some(value) = facts.labels.get(&term.topology_key) {
                closed.insert((term.topology_key.as_str(), value.as_str()));
            }
        }
    }
    closed
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
