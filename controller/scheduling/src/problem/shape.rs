//! From pods to classes and shapes.
//!
//! A *class* is a set of pods that planning cannot tell apart. A *shape* is one way to ask for a
//! place: requests, requirements, tolerations, rules between pods. A class has one shape, or
//! several when it has alternatives (several required node-affinity terms) or preferences: they
//! are tried in order. A shape without rules that failed once fails for the rest of the pass,
//! because room only shrinks.
//!
//! Source: provisioning specification 3.5, 6.4, 6.17.

use std::sync::Arc;

use millwright_model::{
    Effect, Name, PodSpec, Requirement, Requirements, Taint, Toleration, labels,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::{Dimensions, ord};
use crate::{
    first_fit::PLACEHOLDER,
    topology::{NO_RULES, RulesOrd},
};

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
    pub(crate) rules: RulesOrd,
}

impl Shape {
    /// Whether rules between pods concern it.
    pub(crate) const fn has_rules(&self) -> bool {
        self.rules != NO_RULES
    }
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
        let possible = host.is_none_or(|host| host.has(PLACEHOLDER));
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

/// Distinct tolerations.
#[derive(Debug, Default)]
pub(crate) struct Tolerances {
    list: Vec<Tolerance>,
    index: FxHashMap<Tolerance, ToleranceOrd>,
}

impl Tolerances {
    pub(crate) fn intern(
        &mut self,
        tolerations: &[Toleration],
        any_preference: bool,
    ) -> ToleranceOrd {
        let tolerance = Tolerance {
            tolerations: tolerations.to_vec(),
            any_preference,
        };
        let next = ord(self.list.len());
        *self.index.entry(tolerance).or_insert_with_key(|tolerance| {
            self.list.push(tolerance.clone());
            next
        })
    }

    /// Number of distinct tolerations.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The first taint that `tolerance` does not cover.
    pub(crate) fn untolerated<'t>(
        &self,
        tolerance: ToleranceOrd,
        taints: &'t [Taint],
    ) -> Option<&'t Taint> {
        let tolerance = &self.list[tolerance as usize];
        taints.iter().find(|taint| {
            let soft = tolerance.any_preference && taint.effect == Effect::PreferNoSchedule;
            !soft && !tolerance.tolerations.iter().any(|t| t.tolerates(taint))
        })
    }
}

/// All shapes of a problem, each distinct value once.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) wanted: Vec<Wanted>,
    /// Keys that are not well known and that some pod wants to be absent or different: accepting
    /// such a pod defines the key on a planned node.
    pub(crate) definable: FxHashSet<Name>,
    shape_index: FxHashMap<Shape, ShapeOrd>,
    wanted_index: FxHashMap<Requirements, RequirementsOrd>,
}

impl Shapes {
    /// The shapes of a spec that asks in these ways: requirements, tolerance, rules.
    pub(crate) fn of(
        &mut self,
        spec: &PodSpec,
        dimensions: &Dimensions,
        ways: impl Iterator<Item = (Requirements, ToleranceOrd, RulesOrd)>,
    ) -> SmallVec<[ShapeOrd; 1]> {
        let requests: Arc<[i64]> = dimensions.row(&spec.requests).into();
        let mut shapes: SmallVec<[ShapeOrd; 1]> = ways
            .map(|(wish, tolerance, rules)| {
                let requirements = self.wanted(wish);
                self.shape(Shape {
                    requests: requests.clone(),
                    requirements,
                    tolerance,
                    rules,
                })
            })
            .collect();
        shapes.dedup();
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
}
