//! Signatures: what a planned node may still become.
//!
//! A planned node starts as its NodePool's template and is narrowed by every pod it takes. Nodes
//! that were narrowed alike share one [`Signature`], so that "may this pod join" is a look-up in a
//! table of (signature, requirements), and the types that remain are computed once.
//!
//! What a planned node holds is tested against the *frontier* of its signature: the room of those
//! types that no other type exceeds in every resource. When the frontier has no room, no type has.
//! Prices play no part here, so a handful of rows stands for hundreds of types.
//!
//! Every worker has its own arena; nothing is shared and nothing is locked.

use millwright_model::{NanoDollarsPerHour, Operator, Requirement, Requirements, Taint, labels};
use rustc_hash::FxHashMap;

use crate::{
    bits::TypeSet,
    problem::{Problem, RequirementsOrd, fits, ord},
    topology::{DomainSet, FilterOrd, KeyOrd, PortsOrd, conflict},
};

pub(crate) type SignatureOrd = u32;

/// Types that limits left when a node was opened; 0 is "all of the template's".
pub(crate) type OpeningOrd = u32;

/// What a planned node may still become.
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) template: usize,
    opening: OpeningOrd,
    pub(crate) requirements: Requirements,
    /// Types that may be launched, whatever the node holds; never empty.
    pub(crate) types: TypeSet,
    /// Markets that the requirements allow.
    pub(crate) markets: Vec<usize>,
    /// Room of the types that no other exceeds, rows.
    frontier: Vec<i64>,
    /// By requirements: what becomes of the node when it takes a pod with them.
    joins: Vec<Join>,
    /// The types by price, filled on first use.
    by_price: Vec<Priced>,
    /// Least price by type, filled on first use.
    prices: Vec<NanoDollarsPerHour>,
}

/// A type with the least that it costs under a signature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priced {
    pub(crate) price: NanoDollarsPerHour,
    /// Type, as position in the catalogue.
    pub(crate) at: usize,
    /// Market, as position in the catalogue.
    pub(crate) market: usize,
}

/// Whether a pod's requirements go together with a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Unknown,
    /// They do, and the node has this signature afterwards.
    Into(SignatureOrd),
    /// They never will: signatures only become narrower.
    Never,
    /// They ask for a label that is undefined now, but that another pod may define.
    NotYet,
}

/// The signatures of one component.
#[derive(Debug)]
pub(crate) struct Signatures<'p> {
    problem: &'p Problem<'p>,
    list: Vec<Signature>,
    index: FxHashMap<(usize, OpeningOrd, Requirements), Option<SignatureOrd>>,
    /// By template: the distinct sets that limits have left.
    openings: Vec<Vec<TypeSet>>,
    /// By template: the signature of an untouched node, by opening.
    roots: Vec<Vec<Option<SignatureOrd>>>,
    /// By catalogue and requirement: the types left.
    sets: Vec<FxHashMap<Requirement, TypeSet>>,
    /// By signature and key: the domains left.
    domains: FxHashMap<(SignatureOrd, KeyOrd), DomainSet>,
    /// What becomes of a node that is narrowed to some domains of a key.
    pins: FxHashMap<(SignatureOrd, KeyOrd, DomainSet), Option<SignatureOrd>>,
    /// What becomes of a node that takes a pod with these ports.
    freed: FxHashMap<(SignatureOrd, PortsOrd), Option<SignatureOrd>>,
    /// Whether nodes of a signature count for a spread constraint.
    passing: FxHashMap<(SignatureOrd, FilterOrd), bool>,
}

impl<'p> Signatures<'p> {
    pub(crate) fn new(problem: &'p Problem<'p>) -> Self {
        let openings = problem
            .templates
            .iter()
            .map(|t| vec![t.types.clone()])
            .collect();
        let mut this = Self {
            problem,
            list: Vec::new(),
            index: FxHashMap::default(),
            openings,
            roots: vec![Vec::new(); problem.templates.len()],
            sets: vec![FxHashMap::default(); problem.catalogues.len()],
            domains: FxHashMap::default(),
            pins: FxHashMap::default(),
            freed: FxHashMap::default(),
            passing: FxHashMap::default(),
        };
        for template in 0..problem.templates.len() {
            let root = this.intern(
                template,
                0,
                problem.templates[template].requirements.clone(),
            );
            this.roots[template].push(root);
        }
        this
    }

    pub(crate) fn get(&self, signature: SignatureOrd) -> &Signature {
        &self.list[signature as usize]
    }

    /// The signature of an untouched node of `template` whose types limits have cut to `types`.
    /// `None` when no type is left.
    pub(crate) fn root(&mut self, template: usize, types: Option<TypeSet>) -> Option<SignatureOrd> {
        let Some(types) = types else {
            return self.roots[template][0];
        };
        let opening = self.opening(template, types);
        self.roots[template][opening as usize]
    }

    /// Numbers a set of types that nodes of `template` are opened with.
    fn opening(&mut self, template: usize, types: TypeSet) -> OpeningOrd {
        let openings = &mut self.openings[template];
        if let Some(known) = openings.iter().position(|opening| *opening == types) {
            return ord(known);
        }
        let opening = ord(openings.len());
        openings.push(types);
        let requirements = self.problem.templates[template].requirements.clone();
        let root = self.intern(template, opening, requirements);
        self.roots[template].push(root);
        opening
    }

    /// The domains of a key that nodes of this signature may be in.
    pub(crate) fn domains(&mut self, signature: SignatureOrd, key: KeyOrd) -> &DomainSet {
        let of = &self.problem.topology.keys[key];
        let requirements = &self.list[signature as usize].requirements;
        self.domains
            .entry((signature, key))
            .or_insert_with(|| of.allowed(requirements.get(&of.name)))
    }

    /// What becomes of a node that is narrowed to `domains` of a key; `None` when nothing is left,
    /// or when it does not define the label.
    pub(crate) fn pin(
        &mut self,
        signature: SignatureOrd,
        key: KeyOrd,
        domains: &DomainSet,
    ) -> Option<SignatureOrd> {
        let at = (signature, key, domains.clone());
        if let Some(known) = self.pins.get(&at) {
            return *known;
        }
        let of = &self.problem.topology.keys[key];
        let values = domains.iter().map(|at| of.domains[at].clone());
        let wanted = Requirement::new(&of.name, Operator::In, values);
        let (template, opening) = self.origin(signature);
        let mut merged = self.get(signature).requirements.clone();
        let defined = merged.get(&of.name).is_some() || labels::is_well_known(&of.name);
        let pinned = if defined {
            merged.add(wanted);
            self.intern(template, opening, merged)
        } else {
            None
        };
        self.pins.insert(at, pinned);
        pinned
    }

    /// What becomes of a node that takes a pod with these ports: it is of no type whose daemons
    /// take one of them.
    pub(crate) fn with_ports(
        &mut self,
        signature: SignatureOrd,
        ports: PortsOrd,
    ) -> Option<SignatureOrd> {
        if let Some(known) = self.freed.get(&(signature, ports)) {
            return *known;
        }
        let problem = self.problem;
        let (template, opening) = self.origin(signature);
        let wanted = problem.topology.ports.get(ports);
        let mut types = self.openings[template][opening as usize].clone();
        for (taken, of) in &problem.templates[template].daemon_ports {
            if conflict(taken, wanted) {
                types.subtract(of);
            }
        }
        let opening = self.opening(template, types);
        let requirements = self.get(signature).requirements.clone();
        let freed = self.intern(template, opening, requirements);
        self.freed.insert((signature, ports), freed);
        freed
    }

    /// Whether nodes of this signature count for a spread constraint.
    pub(crate) fn passes(&mut self, signature: SignatureOrd, filter: FilterOrd) -> bool {
        let problem = self.problem;
        let of = &self.list[signature as usize];
        *self.passing.entry((signature, filter)).or_insert_with(|| {
            let taints = problem.templates[of.template].taints;
            let taints = &problem.taints[taints as usize];
            let tolerates = |tolerance, taints: &[Taint]| {
                problem.tolerances.untolerated(tolerance, taints).is_none()
            };
            let filter = &problem.topology.filters[filter as usize];
            filter.accepts(&of.requirements, taints, tolerates)
        })
    }

    fn origin(&self, signature: SignatureOrd) -> (usize, OpeningOrd) {
        let signature = self.get(signature);
        (signature.template, signature.opening)
    }

    /// What becomes of a node of this signature when it takes a pod with these requirements.
    #[inline]
    pub(crate) fn join(&mut self, signature: SignatureOrd, wanted: RequirementsOrd) -> Join {
        match self.list[signature as usize].joins[wanted as usize] {
            Join::Unknown => self.join_anew(signature, wanted),
            known => known,
        }
    }

    #[cold]
    fn join_anew(&mut self, at: SignatureOrd, wanted: RequirementsOrd) -> Join {
        let join = self.compute_join(at, wanted);
        self.list[at as usize].joins[wanted as usize] = join;
        join
    }

    fn compute_join(&mut self, at: SignatureOrd, wanted: RequirementsOrd) -> Join {
        use millwright_model::requirements::Incompatible::Undefined;
        let shapes = &self.problem.shapes;
        let Some(incoming) = &shapes.wanted[wanted as usize].planned else {
            return Join::Never;
        };
        if incoming.is_empty() {
            return Join::Into(at);
        }
        let signature = self.get(at);
        match signature
            .requirements
            .compatible(incoming, labels::is_well_known)
        {
            Ok(()) => {}
            Err(Undefined { key, .. }) if shapes.definable.contains(&key) => return Join::NotYet,
            Err(_) => return Join::Never,
        }
        let mut merged = signature.requirements.clone();
        merged.extend_from(incoming);
        let (template, opening) = (signature.template, signature.opening);
        self.intern(template, opening, merged)
            .map_or(Join::Never, Join::Into)
    }

    fn intern(
        &mut self,
        template: usize,
        opening: OpeningOrd,
        requirements: Requirements,
    ) -> Option<SignatureOrd> {
        let key = (template, opening, requirements);
        if let Some(known) = self.index.get(&key) {
            return *known;
        }
        let catalogue = self.problem.catalogue(template);
        let markets = catalogue.open_markets(&key.2);
        let types = self.types(&key, &markets);
        let ordinal = (!types.is_empty()).then(|| {
            let frontier = frontier(self.problem, template, &types);
            self.list.push(Signature {
                template,
                opening,
                requirements: key.2.clone(),
                types,
                markets,
                frontier,
                joins: vec![Join::Unknown; self.problem.shapes.wanted.len()],
                by_price: Vec::new(),
                prices: Vec::new(),
            });
            ord(self.list.len() - 1)
        });
        self.index.insert(key, ordinal);
        ordinal
    }

    /// Types of the opening that the requirements leave and that are offered under them.
    fn types(&mut self, key: &(usize, OpeningOrd, Requirements), markets: &[usize]) -> TypeSet {
        let (template, opening, requirements) = key;
        let at = self.problem.templates[*template].catalogue;
        let catalogue = &self.problem.catalogues[at];
        let mut types = self.openings[*template][*opening as usize].clone();
        for requirement in requirements.iter() {
            match self.sets[at].get(requirement) {
                Some(set) => types.intersect(set),
                None => {
                    let set = catalogue.intersecting(requirement);
                    types.intersect(&set);
                    self.sets[at].insert(requirement.clone(), set);
                }
            }
        }
        let mut offered = TypeSet::none(catalogue.len());
        for market in markets {
            offered.unite(&catalogue.markets[*market].types);
        }
        types.intersect(&offered);
        types
    }

    /// Whether some type of the signature has room for `need`.
    #[inline]
    pub(crate) fn has_room(&self, signature: SignatureOrd, used: &[i64], more: &[i64]) -> bool {
        let frontier = &self.list[signature as usize].frontier;
        frontier
            .chunks_exact(used.len())
            .any(|room| crate::problem::fits_sum(used, more, room))
    }

    /// Types of the signature, cheapest first, ties by name.
    pub(crate) fn by_price(&mut self, signature: SignatureOrd) -> &[Priced] {
        if self.list[signature as usize].by_price.is_empty() {
            let priced = price(self.problem, self.get(signature));
            self.list[signature as usize].by_price = priced;
        }
        &self.list[signature as usize].by_price
    }

    /// The least that each type of the catalogue costs under the signature;
    /// [`NanoDollarsPerHour::MAX`] for types that it does not leave.
    pub(crate) fn prices(&mut self, signature: SignatureOrd) -> &[NanoDollarsPerHour] {
        if self.list[signature as usize].prices.is_empty() {
            let len = self.problem.catalogue(self.get(signature).template).len();
            let mut prices = vec![NanoDollarsPerHour::MAX; len];
            for priced in self.by_price(signature) {
                prices[priced.at] = priced.price;
            }
            self.list[signature as usize].prices = prices;
        }
        &self.list[signature as usize].prices
    }

    /// Types of the signature with room for `used`, cheapest first.
    pub(crate) fn fitting<'s>(
        &'s mut self,
        signature: SignatureOrd,
        used: &'s [i64],
    ) -> impl Iterator<Item = Priced> + 's {
        let template = &self.problem.templates[self.get(signature).template];
        let stride = used.len();
        let priced = self.by_price(signature).iter().copied();
        priced.filter(move |priced| fits(used, &template.room[priced.at * stride..][..stride]))
    }
}

/// Rows of the types that no other type exceeds or equals in every resource.
fn frontier(problem: &Problem<'_>, template: usize, types: &TypeSet) -> Vec<i64> {
    let stride = problem.dimensions.stride();
    let room = &problem.templates[template].room;
    let row = |at: usize| &room[at * stride..][..stride];
    let mut order: Vec<usize> = types.iter().collect();
    // A row can only be dominated by rows that come before it in this order.
    order.sort_unstable_by(|a, b| row(*b).cmp(row(*a)));
    let mut frontier: Vec<i64> = Vec::new();
    for at in order {
        if !frontier
            .chunks_exact(stride)
            .any(|kept| fits(row(at), kept))
        {
            frontier.extend_from_slice(row(at));
        }
    }
    frontier
}

fn price(problem: &Problem<'_>, signature: &Signature) -> Vec<Priced> {
    let catalogue = problem.catalogue(signature.template);
    let cheapest = |at: usize| {
        let market = catalogue.cheapest(at, &signature.markets)?;
        Some(Priced {
            price: catalogue.markets[market].prices[at],
            at,
            market,
        })
    };
    let mut priced: Vec<Priced> = signature.types.iter().filter_map(cheapest).collect();
    priced.sort_unstable_by(|a, b| {
        let name = |p: &Priced| &catalogue.types[p.at].name;
        a.price.cmp(&b.price).then_with(|| name(a).cmp(name(b)))
    });
    priced
}
