//! Relaxation: the ways in which a pod may ask for a place, most wanted first.
//!
//! Source: provisioning specification 3.5 and 6.17.

use std::cmp::Reverse;

use millwright_model::{
    PodSpec, Requirement, Requirements,
    topology::{PodAffinityTerm, TopologySpread},
};

use crate::{settings::PreferencePolicy, topology::is_hard};

/// One way of asking.
#[derive(Clone, Debug)]
pub(crate) struct Wish<'s> {
    /// Node selector, first required term left, heaviest preferred term left.
    pub(crate) requirements: Requirements,
    /// The same without the preferred term.
    pub(crate) strict: Requirements,
    /// Preferred pod affinity left.
    pub(crate) affinity: Vec<&'s PodAffinityTerm>,
    /// Preferred pod anti-affinity left.
    pub(crate) anti_affinity: Vec<&'s PodAffinityTerm>,
    /// Spread constraints left.
    pub(crate) spread: Vec<&'s TopologySpread>,
    /// Whether taints that merely ask pods to stay away are ignored.
    pub(crate) any_preference: bool,
}

fn with(requirements: &Requirements, term: &[Requirement]) -> Requirements {
    let mut narrowed = requirements.clone();
    term.iter()
        .for_each(|requirement| narrowed.add(requirement.clone()));
    narrowed
}

/// Terms, heaviest first; equal weights keep the order of the manifest.
fn by_weight<T>(terms: &[(u32, T)]) -> Vec<&T> {
    let mut sorted: Vec<&(u32, T)> = terms.iter().collect();
    sorted.sort_by_key(|(weight, _)| Reverse(*weight));
    sorted.into_iter().map(|(_, term)| term).collect()
}

/// The ways in which a pod asks, each less demanding than the one before; never empty.
/// `relax_taints`: whether some NodePool has a `PreferNoSchedule` taint.
pub(crate) fn wishes(
    spec: &PodSpec,
    policy: PreferencePolicy,
    relax_taints: bool,
) -> Vec<Wish<'_>> {
    let selector = Requirements::from_labels(spec.node_selector.iter().map(|(k, v)| (k, v)));
    let respect = policy == PreferencePolicy::Respect;
    let mut terms = spec.required_terms.as_slice();
    let (mut affinity, mut anti_affinity, mut preferred) = (Vec::new(), Vec::new(), Vec::new());
    if respect {
        affinity = by_weight(&spec.preferred_affinity);
        anti_affinity = by_weight(&spec.preferred_anti_affinity);
        preferred = by_weight(&spec.preferred_terms);
    }
    let mut spread: Vec<&TopologySpread> = spec
        .topology_spread
        .iter()
        .filter(|constraint| respect || is_hard(constraint))
        .collect();
    let mut any_preference = false;
    let mut wishes = Vec::new();
    loop {
        let strict = terms
            .first()
            .map_or_else(|| selector.clone(), |term| with(&selector, term));
        wishes.push(Wish {
            requirements: preferred
                .first()
                .map_or_else(|| strict.clone(), |term| with(&strict, term)),
            strict,
            affinity: affinity.clone(),
            anti_affinity: anti_affinity.clone(),
            spread: spread.clone(),
            any_preference,
        });
        if terms.len() > 1 {
            terms = &terms[1..];
        } else if !affinity.is_empty() {
            affinity.remove(0);
        } else if !anti_affinity.is_empty() {
            anti_affinity.remove(0);
        } else if !preferred.is_empty() {
            preferred.remove(0);
        } else if let Some(soft) = spread.iter().position(|constraint| !is_hard(constraint)) {
            // The last constraint takes the place of the one that goes.
            spread.swap_remove(soft);
        } else if relax_taints && !any_preference {
            any_preference = true;
        } else {
            return wishes;
        }
    }
}
