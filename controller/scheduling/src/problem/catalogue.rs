//! One provider's list of instance types in dense form: which types a requirement leaves, which
//! are offered where, and for how much.
//!
//! NodePools that share a list share one [`Catalogue`]. Label values are looked at once per
//! distinct value, not once per type: a requirement on `kubernetes.io/arch` is decided by two
//! comparisons for six hundred types.

use millwright_model::{
    CapacityType, InstanceType, Name, NanoDollarsPerHour, Offering, Requirement, Requirements,
    Resources, instance_type::InstanceTypes, labels,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{bits::TypeSet, digest::Digest};

/// A catalogue in dense form. Types keep the order of the provider's list.
#[derive(Debug)]
pub(crate) struct Catalogue {
    /// The provider's list.
    pub(crate) types: InstanceTypes,
    /// Stands for the name of each type in hashes of plans.
    pub(crate) name_digests: Vec<u64>,
    /// Allocatable of each type.
    pub(crate) allocatable: Vec<Resources>,
    /// What is offered, one entry per place and way to buy.
    pub(crate) markets: Vec<Market>,
    /// Types by the value of a label key.
    by_key: FxHashMap<Name, KeyIndex>,
}

/// What one label key says about the types.
#[derive(Debug)]
struct KeyIndex {
    /// Types that do not define the key: nothing to conflict with.
    undefined: TypeSet,
    /// Distinct requirements on the key, with the types that have them. Only united, so that the
    /// map's order has no influence.
    values: FxHashMap<Requirement, TypeSet>,
}

/// All offerings that fix the same requirements: a zone and a capacity type.
#[derive(Debug)]
pub(crate) struct Market {
    pub(crate) zone: Name,
    pub(crate) capacity_type: CapacityType,
    pub(crate) requirements: Requirements,
    /// Types that have an available offering here.
    pub(crate) types: TypeSet,
    /// Price by type; [`NanoDollarsPerHour::MAX`] where there is no available offering.
    pub(crate) prices: Vec<NanoDollarsPerHour>,
}

impl Catalogue {
    /// Indexes `types` by those label keys that are `mentioned` by a pod, a daemon or a NodePool.
    pub(crate) fn new(types: &InstanceTypes, mentioned: &FxHashSet<Name>) -> Self {
        let mut catalogue = Self {
            types: types.clone(),
            name_digests: types.iter().map(|t| Digest::of(&t.name)).collect(),
            allocatable: types.iter().map(|t| t.allocatable()).collect(),
            markets: Vec::new(),
            by_key: FxHashMap::default(),
        };
        // Neighbours in the list are sold in the same places, mostly: try the same market first.
        let mut hints = Vec::new();
        for (at, instance_type) in types.iter().enumerate() {
            catalogue.index_labels(at, instance_type, mentioned);
            catalogue.index_offerings(at, instance_type, &mut hints);
        }
        for index in catalogue.by_key.values_mut() {
            let mut undefined = TypeSet::all(types.len());
            index
                .values
                .values()
                .for_each(|set| undefined.subtract(set));
            index.undefined = undefined;
        }
        catalogue
    }

    fn index_labels(
        &mut self,
        at: usize,
        instance_type: &InstanceType,
        mentioned: &FxHashSet<Name>,
    ) {
        let len = self.types.len();
        for requirement in instance_type.requirements.iter() {
            if !mentioned.contains(requirement.key()) {
                continue;
            }
            let index = self
                .by_key
                .entry(requirement.key().clone())
                .or_insert_with(|| KeyIndex {
                    undefined: TypeSet::none(len),
                    values: FxHashMap::default(),
                });
            if let Some(set) = index.values.get_mut(requirement) {
                set.insert(at);
            } else {
                let mut set = TypeSet::none(len);
                set.insert(at);
                index.values.insert(requirement.clone(), set);
            }
        }
    }

    fn index_offerings(&mut self, at: usize, instance_type: &InstanceType, hints: &mut Vec<usize>) {
        // Reserved capacity is counted per reservation, which this build does not plan.
        let offered = instance_type
            .offerings
            .iter()
            .filter(|o| o.available && o.capacity_type != CapacityType::Reserved);
        for (nth, offering) in offered.enumerate() {
            let hint = hints.get(nth).copied();
            let market = hint
                .filter(|hint| self.markets[*hint].requirements == offering.requirements)
                .unwrap_or_else(|| self.market(offering));
            hints.resize(hints.len().max(nth + 1), market);
            hints[nth] = market;
            let market = &mut self.markets[market];
            market.types.insert(at);
            market.prices[at] = market.prices[at].min(offering.price);
        }
    }

    fn market(&mut self, offering: &Offering) -> usize {
        let known = self
            .markets
            .iter()
            .position(|m| m.requirements == offering.requirements);
        known.unwrap_or_else(|| {
            let len = self.types.len();
            self.markets.push(Market {
                zone: offering.zone.clone(),
                capacity_type: offering.capacity_type,
                requirements: offering.requirements.clone(),
                types: TypeSet::none(len),
                prices: vec![NanoDollarsPerHour::MAX; len],
            });
            self.markets.len() - 1
        })
    }

    /// Number of types.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// The distinct requirements of types on a key, in no particular order.
    pub(crate) fn requirements_on(&self, key: &Name) -> impl Iterator<Item = &Requirement> {
        let index = self.by_key.get(key);
        index.into_iter().flat_map(|index| index.values.keys())
    }

    /// Types whose labels do not conflict with `requirement`.
    pub(crate) fn intersecting(&self, requirement: &Requirement) -> TypeSet {
        let Some(index) = self.by_key.get(requirement.key()) else {
            return TypeSet::all(self.len());
        };
        let mut set = index.undefined.clone();
        for (value, types) in &index.values {
            let absent = value.allows_absence() && requirement.allows_absence();
            if absent || value.has_intersection(requirement) {
                set.unite(types);
            }
        }
        set
    }

    /// Markets that `requirements` allow, in the order of the list.
    pub(crate) fn open_markets(&self, requirements: &Requirements) -> Vec<usize> {
        let open = |market: &Market| {
            requirements
                .compatible(&market.requirements, labels::is_well_known)
                .is_ok()
        };
        (0..self.markets.len())
            .filter(|at| open(&self.markets[*at]))
            .collect()
    }

    /// The cheapest of `markets` for the type at `at`; ties go to the market first by zone, then
    /// by capacity type. `None` when none of them has the type.
    pub(crate) fn cheapest(&self, at: usize, markets: &[usize]) -> Option<usize> {
        let key = |market: &usize| {
            let market = &self.markets[*market];
            (market.prices[at], &market.zone, market.capacity_type)
        };
        let having = markets
            .iter()
            .filter(|market| self.markets[**market].types.contains(at));
        having.min_by_key(|market| key(market)).copied()
    }
}
