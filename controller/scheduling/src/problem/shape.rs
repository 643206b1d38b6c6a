//! From pods to classes and shapes.
//!
//! A *class* is a set of pods that planning cannot tell apart. A *shape* is one way to ask for a
//! place: requests, requirements, tolerations. A class has one shape, or several when it has
//! alternatives (several required node-affinity terms) or preferences: they are tried in order,
//! and a shape that failed once fails for the rest of the pass, because room only shrinks.
//!
//! Source: provisioning specification 3.5, 6.4, 6.17 (relaxation rules 1, 4 and 6 become shapes;
//! rules 2, 3 and 5 drop preferences about other pods, which this build leaves unread).

use std::sync::Arc;

use millwright_model::{
    Effect, Name, PodSpec, Requirement, Requirements, Toleration, labels, taints,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::{Dimensions, ord};
use crate::settings::PreferencePolicy;

pub(crate) type ShapeOrd = u32;
pub(crate) type ClassOrd = u32;
pub(crate) type RequirementsOrd = u32;
pub(crate) type ToleranceOrd = u32;
pub(crate) type TaintsOrd = u32;

/// One way of asking for a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Requests, a row.
    pub(crate) requests: Arc<[i64]>,
    pub(crate) requirements: RequirementsOrd,
    pub(crate) tolerance: ToleranceOrd,
}

/// A set of pods that planning cannot tell apart.
#[derive(Debug)]
pub(crate) struct Class<'a> {
    /// One of the specs, for explanations.
    pub(crate) spec: &'a PodSpec,
    /// Ways of asking, most wanted first; never empty.
    pub(crate) shapes: SmallVec<[ShapeOrd; 1]>,
    /// Why pods of this class are not planned for, if so.
    pub(crate) unsupported: Option<&'static str>,
}

/// Requirements of a pod, apart by target.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// All of them, host name included: what a node with labels must satisfy.
    pub(crate) all: Requirements,
    /// Without the host name: what a node to be made must satisfy. `None` when no node to be made
    /// can: the host name asked for rules out every node that does not exist yet, or the
    /// requirements contradict each other.
    pub(crate) planned: Option<Requirements>,
    /// A key on which the requirements contradict each other.
    pub(crate) contradiction: Option<Name>,
}

impl Wanted {
    fn new(all: Requirements) -> Self {
        let impossible = |r: &&Requirement| r.is_empty() && !r.allows_absence();
        let contradiction = all.iter().find(impossible).map(|r| r.key().clone());
        let mut planned = all.clone();
        // A planned node has a name that no pod can know.
        let host = planned.remove(labels::HOSTNAME);
        let possible = host.is_none_or(|host| host.has("hostname-placeholder"));
        let planned = (possible && contradiction.is_none()).then_some(planned);
        Self {
            all,
            planned,
            contradiction,
        }
    }
}

/// What a pod tolerates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tolerance {
    tolerations: Vec<Toleration>,
    /// Whether taints that merely ask pods to stay away are ignored (relaxation rule 6).
    any_preference: bool,
}

/// All shapes of a problem, each distinct value once.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) wanted: Vec<Wanted>,
    tolerances: Vec<Tolerance>,
    /// Keys that are not well known and that some pod wants to be absent or different: accepting
    /// such a pod defines the key on a planned node.
    pub(crate) definable: FxHashSet<Name>,
    shape_index: FxHashMap<Shape, ShapeOrd>,
    wanted_index: FxHashMap<Requirements, RequirementsOrd>,
    tolerance_index: FxHashMap<Tolerance, ToleranceOrd>,
}

impl Shapes {
    /// The shapes of one spec, most wanted first. `relax_taints`: whether some NodePool has a
    /// `PreferNoSchedule` taint, which adds a last shape that ignores such taints.
    pub(crate) fn of(
        &mut self,
        spec: &PodSpec,
        dimensions: &Dimensions,
        policy: PreferencePolicy,
        relax_taints: bool,
    ) -> SmallVec<[ShapeOrd; 1]> {
        let requests: Arc<[i64]> = dimensions.row(&spec.requests).into();
        let mut wishes = wishes(spec, policy);
        let strict = self.tolerance(&spec.tolerations, false);
        let last = wishes.last().cloned().unwrap_or_default();
        let mut shapes: SmallVec<[ShapeOrd; 1]> = SmallVec::new();
        for wish in wishes.drain(..) {
            let requirements = self.wanted(wish);
            shapes.push(self.shape(Shape {
                requests: requests.clone(),
                requirements,
                tolerance: strict,
            }));
        }
        if relax_taints {
            let requirements = self.wanted(last);
            let tolerance = self.tolerance(&spec.tolerations, true);
            shapes.push(self.shape(Shape {
                requests,
                requirements,
                tolerance,
            }));
        }
        shapes
    }

    fn shape(&mut self, shape: Shape) -> ShapeOrd {
        let next = ord(self.shapes.len());
        *self.shape_index.entry(shape).or_insert_with_key(|shape| {
            self.shapes.push(shape.clone());
            next
        })
    }

    fn wanted(&mut self, wish: Requirements) -> RequirementsOrd {
        if let Some(known) = self.wanted_index.get(&wish) {
            return *known;
        }
        for requirement in wish.iter() {
            let absent = requirement.allows_absence() && requirement.is_complement();
            if absent && !labels::is_well_known(requirement.key()) {
                self.definable.insert(requirement.key().clone());
            }
        }
        let next = ord(self.wanted.len());
        self.wanted.push(Wanted::new(wish.clone()));
        self.wanted_index.insert(wish, next);
        next
    }

    fn tolerance(&mut self, tolerations: &[Toleration], any_preference: bool) -> ToleranceOrd {
        let tolerance = Tolerance {
            tolerations: tolerations.to_vec(),
            any_preference,
        };
        let next = ord(self.tolerances.len());
        *self
            .tolerance_index
            .entry(tolerance)
            .or_insert_with_key(|tolerance| {
                self.tolerances.push(tolerance.clone());
                next
            })
    }

    /// Number of distinct tolerations.
    pub(crate) fn tolerances(&self) -> usize {
        self.tolerances.len()
    }

    /// The first taint that `tolerance` does not cover.
    pub(crate) fn untolerated<'t>(
        &self,
        tolerance: ToleranceOrd,
        taints: &'t [taints::Taint],
    ) -> Option<&'t taints::Taint> {
        let tolerance = &self.tolerances[tolerance as usize];
        taints.iter().find(|taint| {
            let soft = tolerance.any_preference && taint.effect == Effect::PreferNoSchedule;
            !soft && !tolerance.tolerations.iter().any(|t| t.tolerates(taint))
        })
    }
}

/// The requirement sets that a pod asks for, most wanted first; never empty.
fn wishes(spec: &PodSpec, policy: PreferencePolicy) -> Vec<Requirements> {
    let selector = Requirements::from_labels(spec.node_selector.iter().map(|(k, v)| (k, v)));
    let with = |terms: &[&[Requirement]]| {
        let mut wish = selector.clone();
        terms
            .iter()
            .flat_map(|t| t.iter())
            .for_each(|requirement| wish.add(requirement.clone()));
        wish
    };
    let mut preferred: Vec<&(u32, Vec<Requirement>)> = match policy {
        PreferencePolicy::Respect => spec.preferred_terms.iter().collect(),
        PreferencePolicy::Ignore => Vec::new(),
    };
    // Stable: equal weights keep the order of the manifest.
    preferred.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let none: &[Requirement] = &[];
    let heaviest = preferred.first().map_or(none, |(_, term)| term);
    let last = spec.required_terms.last().map_or(none, Vec::as_slice);
    let mut wishes: Vec<Requirements> = spec
        .required_terms
        .iter()
        .map(|term| with(&[term, heaviest]))
        .collect();
    if wishes.is_empty() {
        wishes.push(with(&[heaviest]));
    }
    let lighter = preferred.iter().skip(1).map(|(_, term)| term.as_slice());
    wishes.extend(lighter.map(|term| with(&[last, term])));
    if !preferred.is_empty() {
        wishes.push(with(&[last]));
    }
    wishes.dedup();
    wishes
}
