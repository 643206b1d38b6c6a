//! The snapshot as a dense integer problem.
//!
//! Built once per pass; everything after it works with ordinals and rows. Texts are touched again
//! only when the plan is assembled and when refusals are explained.
//!
//! ```text
//! pods ── spec pointer ──> class ──> shapes (requests row, requirements, tolerance)
//! NodePools ──> templates ──> catalogue (types as bits)          nodes ──> kinds, rows
//! ```

mod catalogue;
mod dimension;
mod node;
mod queue;
mod shape;
mod support;
pub(crate) mod template;
mod wish;

pub(crate) use catalogue::Catalogue;
pub(crate) use dimension::{Dimensions, add_times, copies, fits, fits_sum};
pub(crate) use node::{ExistingNodes, Kind, KindOrd, NodeOrd, may_run};
pub(crate) use queue::Queued;
pub(crate) use shape::{
    Class, ClassOrd, RequirementsOrd, Shape, ShapeOrd, Shapes, TaintsOrd, ToleranceOrd, Tolerances,
};
pub(crate) use support::unsupported;
pub(crate) use template::{Template, Unused, launchable, strict_alternatives};
pub(crate) use wish::{Wish, wishes};

use millwright_model::{ClusterSnapshot, Effect, Name, NodePool, PodSpec, Taint, labels};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{
    settings::SolveSettings,
    topology::{self, Topology},
};

/// Up to this many (kind of node, requirements) pairs are decided in advance; beyond it, on
/// demand. A megabyte and some 20 ms.
const STATIC_PAIRS_MAX: usize = 1 << 18;

/// A position as ordinal.
pub(crate) fn ord(at: usize) -> u32 {
    // 4 billion pods do not fit into memory.
    u32::try_from(at).expect("ordinals stay below 2^32")
}

/// One planning pass in dense form.
#[derive(Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) snapshot: &'a ClusterSnapshot,
    pub(crate) settings: &'a SolveSettings,
    pub(crate) dimensions: Dimensions,
    pub(crate) classes: Vec<Class<'a>>,
    pub(crate) shapes: Shapes,
    pub(crate) tolerances: Tolerances,
    pub(crate) topology: Topology,
    pub(crate) catalogues: Vec<Catalogue>,
    /// In the order in which they are tried.
    pub(crate) templates: Vec<Template>,
    pub(crate) unused: Vec<Unused>,
    pub(crate) existing: ExistingNodes<'a>,
    /// Pods to place, in the order of the queue.
    pub(crate) queue: Vec<Queued>,
    /// Invalid pods: not to be placed, by index in the snapshot.
    pub(crate) rejected: Vec<u32>,
    /// Distinct lists of taints.
    pub(crate) taints: Vec<Vec<Taint>>,
    /// By tolerance, then taint list: whether every taint is tolerated.
    tolerated: Vec<bool>,
    /// By kind, then requirements: whether nodes of the kind satisfy them. Empty when there are
    /// too many pairs.
    satisfied: Vec<bool>,
}

/// Numbers distinct lists of taints.
#[derive(Default)]
struct TaintLists {
    lists: Vec<Vec<Taint>>,
    index: FxHashMap<Vec<Taint>, TaintsOrd>,
}

impl TaintLists {
    fn intern(&mut self, taints: &[Taint]) -> TaintsOrd {
        if let Some(known) = self.index.get(taints) {
            return *known;
        }
        let next = ord(self.lists.len());
        self.lists.push(taints.to_vec());
        self.index.insert(taints.to_vec(), next);
        next
    }
}

impl<'a> Problem<'a> {
    pub(crate) fn new(snapshot: &'a ClusterSnapshot, settings: &'a SolveSettings) -> Self {
        let intake = queue::Intake::new(snapshot);
        let planned = |spec: &&PodSpec| unsupported(spec, snapshot).is_none();
        let dimensions = Dimensions::new(requested(intake.specs.iter().copied().filter(planned)));
        let mut unused = Vec::new();
        let mut pools: Vec<(usize, &NodePool)> = Vec::new();
        for (at, pool) in snapshot.node_pools.iter().enumerate() {
            match template::usable(pool) {
                Ok(()) => pools.push((at, pool)),
                Err(why) => unused.push(why),
            }
        }
        pools.sort_by_key(|(_, pool)| template::rank(pool));

        let mentioned = mentioned(&intake.specs, &pools, snapshot);
        let mut taints = TaintLists::default();
        let (catalogues, templates) = templates(
            &pools,
            &mentioned,
            &mut taints,
            snapshot,
            &dimensions,
            &mut unused,
        );
        let soft = |taint: &Taint| taint.effect == Effect::PreferNoSchedule;
        let relax_taints = templates
            .iter()
            .any(|t| taints.lists[t.taints as usize].iter().any(soft));
        let existing = ExistingNodes::new(snapshot, &mentioned, &dimensions, |list| {
            taints.intern(list)
        });
        let (ways, tolerances) = ways(&intake.specs, settings, relax_taints);
        let around = topology::Surroundings {
            snapshot,
            templates: &templates,
            catalogues: &catalogues,
            existing: &existing,
            tolerances: &tolerances,
            taints: &taints.lists,
        };
        let (ways, topology) = rules(&intake.specs, ways, &around);
        let (classes, class_of_spec, shapes) = classify(&intake.specs, ways, snapshot, &dimensions);
        let (queue, rejected) = intake.queue(&classes, &class_of_spec);
        unused.sort_by(|a, b| a.pool.cmp(&b.pool));
        let mut problem = Self {
            snapshot,
            settings,
            dimensions,
            classes,
            shapes,
            tolerances,
            topology,
            catalogues,
            templates,
            unused,
            existing,
            queue,
            rejected,
            taints: taints.lists,
            tolerated: Vec::new(),
            satisfied: Vec::new(),
        };
        problem.decide_pairs();
        problem
    }

    fn decide_pairs(&mut self) {
        for tolerance in 0..ord(self.tolerances.len()) {
            for taints in &self.taints {
                let untolerated = self.tolerances.untolerated(tolerance, taints);
                self.tolerated.push(untolerated.is_none());
            }
        }
        let (kinds, wanted) = (self.existing.kinds.len(), self.shapes.wanted.len());
        if kinds * wanted <= STATIC_PAIRS_MAX {
            let pairs = (0..ord(kinds)).flat_map(|k| (0..ord(wanted)).map(move |w| (k, w)));
            self.satisfied = pairs.map(|(k, w)| self.labels_satisfy(k, w)).collect();
        }
    }

    pub(crate) fn shape(&self, shape: ShapeOrd) -> &Shape {
        &self.shapes.shapes[shape as usize]
    }

    /// Whether a pod of this shape tolerates the list of taints.
    pub(crate) fn tolerates(&self, shape: &Shape, taints: TaintsOrd) -> bool {
        self.tolerated[shape.tolerance as usize * self.taints.len() + taints as usize]
    }

    /// Whether pods of this shape may run on nodes of this kind, as far as labels and taints go.
    pub(crate) fn welcomes(&self, kind: KindOrd, shape: &Shape) -> bool {
        let wanted = shape.requirements;
        let labels = if self.satisfied.is_empty() {
            self.labels_satisfy(kind, wanted)
        } else {
            self.satisfied[kind as usize * self.shapes.wanted.len() + wanted as usize]
        };
        labels && self.tolerates(shape, self.existing.kinds[kind as usize].taints)
    }

    /// Whether [`Self::welcomes`] is a look-up.
    pub(crate) fn is_decided(&self) -> bool {
        !self.satisfied.is_empty() || self.existing.kinds.is_empty()
    }

    fn labels_satisfy(&self, kind: KindOrd, wanted: RequirementsOrd) -> bool {
        let wanted = &self.shapes.wanted[wanted as usize].all;
        // A label that the node lacks is no value: nothing may be undefined.
        let labels = &self.existing.kinds[kind as usize].labels;
        wanted.is_empty() || labels.compatible(wanted, |_| false).is_ok()
    }

    /// Whether nodes of this kind count for a spread constraint.
    pub(crate) fn passes(&self, kind: KindOrd, filter: topology::FilterOrd) -> bool {
        let kind = &self.existing.kinds[kind as usize];
        let taints = &self.taints[kind.taints as usize];
        self.topology.filters[filter as usize].accepts(&kind.labels, taints, |tolerance, taints| {
            self.tolerances.untolerated(tolerance, taints).is_none()
        })
    }

    /// The node that an earlier plan gave to a pod, if it is still there.
    pub(crate) fn planned_on(&self, queued: Queued) -> Option<NodeOrd> {
        if !queued.planned {
            return None;
        }
        let pod = self.snapshot.pods.get(queued.pod as usize)?;
        self.existing.by_name.get(pod.planned_on.as_ref()?).copied()
    }

    pub(crate) fn pool(&self, template: usize) -> &NodePool {
        &self.snapshot.node_pools[self.templates[template].pool]
    }

    pub(crate) fn catalogue(&self, template: usize) -> &Catalogue {
        &self.catalogues[self.templates[template].catalogue]
    }
}

/// The resources that any of the specs asks for.
fn requested<'s>(specs: impl Iterator<Item = &'s PodSpec>) -> Vec<millwright_model::ResourceName> {
    let mut names = Vec::new();
    for spec in specs {
        for (name, amount) in spec.requests.iter() {
            if amount > 0 && !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// The ways in which each spec asks, with what each tolerates.
fn ways<'s>(
    specs: &[&'s PodSpec],
    settings: &SolveSettings,
    relax_taints: bool,
) -> (Vec<Vec<(Wish<'s>, ToleranceOrd)>>, Tolerances) {
    let mut tolerances = Tolerances::default();
    let mut tolerant = |spec: &'s PodSpec, wish: Wish<'s>| {
        let tolerance = tolerances.intern(&spec.tolerations, wish.any_preference);
        (wish, tolerance)
    };
    let ways = specs.iter().map(|spec| {
        let wishes = wishes(spec, settings.preference_policy, relax_taints).into_iter();
        wishes.map(|wish| tolerant(spec, wish)).collect()
    });
    let ways = ways.collect();
    (ways, tolerances)
}

/// What shapes are made of: requirements, tolerance, rules.
type Way = (
    millwright_model::Requirements,
    ToleranceOrd,
    topology::RulesOrd,
);

/// The rules between pods, and the ways of each spec with theirs.
fn rules<'a>(
    specs: &[&'a PodSpec],
    ways: Vec<Vec<(Wish<'a>, ToleranceOrd)>>,
    around: &topology::Surroundings<'_, 'a>,
) -> (Vec<Vec<Way>>, Topology) {
    let mut builder = topology::Builder::new(specs, around);
    builder.add_running(around);
    let mut owned = Vec::with_capacity(specs.len());
    for (spec, ways) in specs.iter().zip(&ways) {
        let is_planned = unsupported(spec, around.snapshot).is_none();
        let own = |(wish, tolerance): &(Wish<'_>, ToleranceOrd)| {
            is_planned.then(|| builder.own(spec, wish, *tolerance, around))
        };
        owned.push(ways.iter().map(own).collect::<Vec<_>>());
    }
    let mut with_rules = Vec::with_capacity(specs.len());
    for ((spec, ways), owned) in specs.iter().zip(ways).zip(&owned) {
        let rules = |((wish, tolerance), owned): ((Wish<'_>, _), &Option<topology::Owned>)| {
            let rules = owned.as_ref().map_or(topology::NO_RULES, |owned| {
                builder.rules(spec, &wish, owned)
            });
            (wish.requirements, tolerance, rules)
        };
        with_rules.push(ways.into_iter().zip(owned).map(rules).collect());
    }
    let topology = builder.finish(around);
    (with_rules, topology)
}

/// Classes, the class of each spec, and all shapes. `ways`: those of each spec.
fn classify<'a>(
    specs: &[&'a PodSpec],
    ways: Vec<Vec<Way>>,
    snapshot: &ClusterSnapshot,
    dimensions: &Dimensions,
) -> (Vec<Class<'a>>, Vec<ClassOrd>, Shapes) {
    let mut shapes = Shapes::default();
    let mut classes: Vec<Class<'a>> = Vec::new();
    let mut index: FxHashMap<(SmallVec<[ShapeOrd; 1]>, Option<&'static str>), ClassOrd> =
        FxHashMap::default();
    let of_spec = specs.iter().zip(ways).map(|(spec, ways)| {
        let refusal = unsupported(spec, snapshot);
        let shapes = shapes.of(spec, dimensions, ways.into_iter());
        *index
            .entry((shapes, refusal))
            .or_insert_with_key(|(shapes, refusal)| {
                classes.push(Class {
                    spec,
                    shapes: shapes.clone(),
                    unsupported: *refusal,
                });
                ord(classes.len() - 1)
            })
    });
    let of_spec = of_spec.collect();
    (classes, of_spec, shapes)
}

/// Every label key that a pod, a daemon or a NodePool constrains.
fn mentioned(
    specs: &[&PodSpec],
    pools: &[(usize, &NodePool)],
    snapshot: &ClusterSnapshot,
) -> FxHashSet<Name> {
    let mut keys = FxHashSet::default();
    let mut add = |key: &Name| {
        if !keys.contains(key) {
            keys.insert(key.clone());
        }
    };
    let daemons = snapshot.daemons.iter().map(|daemon| daemon.spec.as_ref());
    for spec in specs.iter().copied().chain(daemons) {
        spec.node_selector
            .iter()
            .for_each(|(key, _)| add(&labels::normalise(key)));
        let preferred = spec.preferred_terms.iter().map(|(_, term)| term);
        for requirement in spec.required_terms.iter().chain(preferred).flatten() {
            add(requirement.key());
        }
    }
    // Host names would make every node a kind of its own.
    let counted = specs.iter().flat_map(|spec| topology::topology_keys(spec));
    let counted = counted.chain(topology::repelling_keys(snapshot));
    counted
        .filter(|key| &***key != labels::HOSTNAME)
        .for_each(&mut add);
    for (_, pool) in pools {
        template::root_requirements(pool)
            .iter()
            .for_each(|requirement| add(requirement.key()));
    }
    keys
}

fn templates(
    pools: &[(usize, &NodePool)],
    mentioned: &FxHashSet<Name>,
    taints: &mut TaintLists,
    snapshot: &ClusterSnapshot,
    dimensions: &Dimensions,
    unused: &mut Vec<Unused>,
) -> (Vec<Catalogue>, Vec<Template>) {
    let mut catalogues: Vec<Catalogue> = Vec::new();
    let mut templates = Vec::new();
    for (at, pool) in pools {
        let shared = |c: &Catalogue| std::sync::Arc::ptr_eq(&c.types, &pool.instance_types);
        let catalogue = catalogues.iter().position(shared).unwrap_or_else(|| {
            catalogues.push(Catalogue::new(&pool.instance_types, mentioned));
            catalogues.len() - 1
        });
        let template = Template::new(
            (*at, pool),
            (catalogue, &catalogues[catalogue]),
            taints.intern(&pool.taints),
            &snapshot.daemons,
            dimensions,
        );
        match template {
            Ok(template) => templates.push(template),
            Err(why) => unused.push(why),
        }
    }
    (catalogues, templates)
}
