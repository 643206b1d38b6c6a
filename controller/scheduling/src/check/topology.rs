//! Rules between pods: host ports, anti-affinity, affinity, spread.
//!
//! Judged on the outcome, where the order of placements is not known: what is reported could not
//! have come about in any order. Pods that stay where an earlier plan put them are not judged.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use millwright_model::{
    Effect, Name, Plan, PodKey, PodSpec, Requirement, Requirements, StateNode, Taint, labels,
    pod::Intake,
    taints::untolerated,
    topology::{PodAffinityTerm, TopologySpread},
};

use super::{Checker, Property};
use crate::{
    problem::{strict_alternatives, template},
    topology::{Selection, conflict, is_hard},
};

/// A node, or a NodeClaim to be.
struct Site<'a> {
    name: String,
    labels: Requirements,
    taints: &'a [Taint],
    /// Whether a label that is not there may still come.
    is_open: bool,
}

/// The domains that a site may be in.
enum Domains {
    These(Vec<Name>),
    Any,
    None,
}

/// Pods with one spec, by site; whether this plan put them there.
struct Group<'a> {
    spec: &'a PodSpec,
    at: Vec<(usize, bool)>,
}

/// Every pod that counts, with its place.
#[derive(Default)]
struct Census<'a> {
    sites: Vec<Site<'a>>,
    groups: Vec<Group<'a>>,
    by_spec: HashMap<*const PodSpec, usize>,
}

impl<'a> Census<'a> {
    fn put(&mut self, spec: &'a Arc<PodSpec>, site: usize, is_new: bool) {
        let group = *self.by_spec.entry(Arc::as_ptr(spec)).or_insert_with(|| {
            self.groups.push(Group {
                spec,
                at: Vec::new(),
            });
            self.groups.len() - 1
        });
        self.groups[group].at.push((site, is_new));
    }

    fn domains(&self, site: usize, key: &Name) -> Domains {
        let site = &self.sites[site];
        match site.labels.get(key) {
            Some(requirement) if !requirement.is_complement() => {
                Domains::These(requirement.values().to_vec())
            }
            _ if site.is_open => Domains::Any,
            _ => Domains::None,
        }
    }
}

impl Site<'_> {
    fn of_node(node: &StateNode) -> Site<'_> {
        let mut labels = Requirements::from_labels(node.labels.iter());
        labels.replace(Requirement::label(&labels::HOSTNAME.into(), &node.hostname));
        Site {
            name: format!("node {}", node.name),
            labels,
            taints: &node.taints,
            is_open: !node.launched,
        }
    }
}

impl<'a> Checker<'a> {
    pub(super) fn check_topology(&mut self, plan: &'a Plan) {
        let census = self.census(plan);
        self.check_ports(plan);
        for (at, group) in census.groups.iter().enumerate() {
            for term in &group.spec.anti_affinity {
                self.check_anti_affinity(&census, at, term);
            }
            for term in &group.spec.affinity {
                self.check_affinity(&census, at, term);
            }
            for constraint in group.spec.topology_spread.iter().filter(|c| is_hard(c)) {
                self.check_spread(&census, at, constraint);
            }
        }
    }

    fn census(&self, plan: &'a Plan) -> Census<'a> {
        let snapshot = self.snapshot;
        let mut census = Census::default();
        let moving: HashSet<&PodKey> = snapshot
            .pods
            .iter()
            .filter(|pod| matches!(pod.intake, Intake::Rescheduled { .. }))
            .map(|pod| &pod.key)
            .collect();
        let mut site_of = HashMap::new();
        for node in snapshot.nodes.iter() {
            let site = census.sites.len();
            census.sites.push(Site::of_node(node));
            site_of.insert(&node.name, site);
            let counting = node
                .pods
                .iter()
                .filter(|p| !p.is_terminating && !moving.contains(&p.key));
            counting.for_each(|pod| census.put(&pod.spec, site, false));
        }
        for nomination in &plan.nominations {
            let Some(site) = site_of.get(&nomination.node) else {
                continue;
            };
            for pod in nomination.pods.iter().filter_map(|at| self.pod(*at)) {
                let is_new = pod.planned_on.as_ref() != Some(&nomination.node);
                census.put(&pod.spec, *site, is_new);
            }
        }
        for claim in &plan.node_claims {
            let site = census.sites.len();
            let mut labels = claim.requirements.clone();
            labels.replace(Requirement::label(&labels::HOSTNAME.into(), &claim.name));
            census.sites.push(Site {
                name: claim.name.to_string(),
                labels,
                taints: &claim.node_pool.taints,
                is_open: true,
            });
            let pods = claim.pods.iter().filter_map(|at| self.pod(*at));
            pods.for_each(|pod| census.put(&pod.spec, site, true));
        }
        census
    }

    fn check_ports(&mut self, plan: &Plan) {
        let snapshot = self.snapshot;
        let of_nodes = plan.nominations.iter().map(|nomination| {
            let node = snapshot
                .nodes
                .iter()
                .find(|node| node.name == nomination.node);
            let running = node.into_iter().flat_map(|node| node.pods.iter());
            let running: Vec<&PodSpec> = running.map(|pod| pod.spec.as_ref()).collect();
            (nomination.node.to_string(), running, &nomination.pods)
        });
        let of_claims = plan.node_claims.iter();
        let of_claims = of_claims.map(|claim| (claim.name.to_string(), Vec::new(), &claim.pods));
        for (name, mut taken, pods) in of_nodes.chain(of_claims).collect::<Vec<_>>() {
            taken.retain(|spec| !spec.host_ports.is_empty());
            let placed: Vec<_> = pods.iter().filter_map(|at| self.pod(*at)).collect();
            for pod in placed
                .into_iter()
                .filter(|pod| !pod.spec.host_ports.is_empty())
            {
                if taken
                    .iter()
                    .any(|other| conflict(&other.host_ports, &pod.spec.host_ports))
                {
                    let detail = format!("{}: a host port is taken on {name}", pod.key);
                    self.report(Property::Topology, detail);
                }
                taken.push(&pod.spec);
            }
        }
    }

    fn selects(&self, selection: &Selection, spec: &PodSpec) -> bool {
        selection.selects(spec, self.snapshot.namespaces.as_ref())
    }

    /// No domain has a pod of the group and another that the term selects, one of them new.
    fn check_anti_affinity(&mut self, census: &Census<'_>, at: usize, term: &PodAffinityTerm) {
        let selection = Selection::of_term(census.groups[at].spec, term);
        let key = &term.topology_key;
        // By domain: new and old pods of the group, new and old others.
        let mut counts: HashMap<Name, [usize; 4]> = HashMap::new();
        let mut anywhere = [0; 4];
        for (nth, group) in census.groups.iter().enumerate() {
            if nth != at && !self.selects(&selection, group.spec) {
                continue;
            }
            for (site, is_new) in &group.at {
                let slot = usize::from(!is_new) + if nth == at { 0 } else { 2 };
                match census.domains(*site, key) {
                    Domains::These(domains) => {
                        for domain in domains {
                            counts.entry(domain).or_default()[slot] += 1;
                        }
                    }
                    Domains::Any => anywhere[slot] += 1,
                    Domains::None => {}
                }
            }
        }
        let itself = self.selects(&selection, census.groups[at].spec);
        let clash = |[own_new, own_old, new, old]: [usize; 4]| {
            let among = itself && own_new > 0 && own_new + own_old > 1;
            let others = own_new > 0 && new + old > 0 || own_old > 0 && new > 0;
            among || others
        };
        let add = |a: &[usize; 4]| std::array::from_fn(|slot| a[slot] + anywhere[slot]);
        counts.entry("any domain".into()).or_default();
        for (domain, pods) in &counts {
            if clash(add(pods)) {
                let group = &census.groups[at];
                let where_ = group.at.first().map(|(site, _)| &census.sites[*site].name);
                let detail = format!(
                    "anti-affinity over {key} is broken in {domain} (a pod on {})",
                    where_.map_or("", String::as_str)
                );
                self.report(Property::Topology, detail);
            }
        }
    }

    /// Every new pod of the group has a selected pod in whatever domain it ends up in, or is the
    /// first of its kind where it may be.
    fn check_affinity(&mut self, census: &Census<'_>, at: usize, term: &PodAffinityTerm) {
        let group = &census.groups[at];
        let selection = Selection::of_term(group.spec, term);
        let key = &term.topology_key;
        let mut occupied: HashMap<Name, (usize, usize)> = HashMap::new();
        for other in census
            .groups
            .iter()
            .filter(|g| self.selects(&selection, g.spec))
        {
            for (site, is_new) in &other.at {
                if let Domains::These(domains) = census.domains(*site, key)
                    && let [only] = domains.as_slice()
                {
                    let pods = occupied.entry(only.clone()).or_default();
                    pods.0 += 1;
                    pods.1 += usize::from(!is_new);
                }
            }
        }
        let itself = self.selects(&selection, group.spec);
        let strict = strict_alternatives(group.spec);
        // Relaxation may have dropped the terms that allow the domains of others.
        let begun = strict.iter().all(|wanted| {
            let mut old = occupied.iter().filter(|(_, (_, old))| *old > 0);
            old.any(|(domain, _)| wanted.allows(key, domain))
        });
        let mut lost = BTreeSet::new();
        for (site, _) in group.at.iter().filter(|(_, is_new)| *is_new) {
            let fine = match census.domains(*site, key) {
                Domains::These(domains) => {
                    !domains.is_empty()
                        && domains.iter().all(|domain| {
                            let (all, old) = occupied.get(domain).copied().unwrap_or_default();
                            let others = all - usize::from(itself && all > 0);
                            old > 0 || others > 0 || (itself && all > 0 && !begun)
                        })
                }
                Domains::Any | Domains::None => false,
            };
            if !fine {
                lost.insert(&census.sites[*site].name);
            }
        }
        for site in lost {
            let detail = format!("affinity over {key} is not met on {site}");
            self.report(Property::Topology, detail);
        }
    }

    /// No domain got more pods of the group than the constraint allows over the emptiest one. Which
    /// nodes count depends on what relaxation dropped; one of the possibilities has to hold.
    fn check_spread(&mut self, census: &Census<'_>, at: usize, constraint: &TopologySpread) {
        let group = &census.groups[at];
        let key = &constraint.topology_key;
        let mut domains: HashMap<Name, usize> = HashMap::new();
        for (site, _) in group.at.iter().filter(|(_, is_new)| *is_new) {
            match census.domains(*site, key) {
                Domains::These(one) if one.len() == 1 => {
                    *domains.entry(one[0].clone()).or_default() += 1;
                }
                _ => {
                    let name = &census.sites[*site].name;
                    let detail = format!("spread over {key} is left open on {name}");
                    self.report(Property::Topology, detail);
                    return;
                }
            }
        }
        if domains.is_empty() {
            return;
        }
        let terms = group.spec.required_terms.len().max(1);
        let possible = (0..terms).any(|dropped| {
            [false, true].into_iter().any(|soft| {
                let spread = Spread::new(self, census, group.spec, constraint, dropped, soft);
                domains
                    .iter()
                    .all(|(domain, new)| spread.allows(domain, *new))
            })
        });
        if !possible {
            let site = group
                .at
                .first()
                .map_or("", |(site, _)| &census.sites[*site].name);
            let detail = format!("spread over {key} is broken: {domains:?} (a pod on {site})");
            self.report(Property::Topology, detail);
        }
    }
}

/// One reading of a spread constraint.
struct Spread {
    /// Pods that ran before, and all pods, by domain.
    counts: HashMap<Name, (usize, usize)>,
    least: usize,
    max_skew: usize,
    counts_itself: bool,
}

impl Spread {
    /// `dropped`: required terms that relaxation dropped; `soft`: whether it tolerates preferences.
    fn new(
        checker: &Checker<'_>,
        census: &Census<'_>,
        spec: &PodSpec,
        constraint: &TopologySpread,
        dropped: usize,
        soft: bool,
    ) -> Self {
        let key = &constraint.topology_key;
        let selection = Selection::of_spread(spec, constraint);
        let alternatives = strict_alternatives(spec);
        let tolerated = |taints: &[Taint]| {
            let hard = |taint: &&Taint| !soft || taint.effect != Effect::PreferNoSchedule;
            let hard: Vec<Taint> = taints.iter().filter(hard).cloned().collect();
            untolerated(&hard, &spec.tolerations).is_none()
        };
        let passes = |site: &Site<'_>| {
            let fits = |wanted: &Requirements| site.labels.compatible(wanted, |_| false).is_ok();
            (!constraint.honor_node_affinity || alternatives.iter().any(fits))
                && (!constraint.honor_node_taints || tolerated(site.taints))
        };
        let mut counts: HashMap<Name, (usize, usize)> = HashMap::new();
        for pool in checker.snapshot.node_pools.iter() {
            let reachable = template::usable(pool).is_ok()
                && super::claim::launches(pool)
                && (!constraint.honor_node_taints || tolerated(&pool.taints));
            if reachable {
                for domain in universe(pool, key) {
                    counts.entry(domain).or_default();
                }
            }
        }
        for site in census.sites.iter().filter(|site| passes(site)) {
            if let Some(domain) = site.labels.get(key).and_then(Requirement::single) {
                counts.entry(domain.clone()).or_default();
            }
        }
        for group in census
            .groups
            .iter()
            .filter(|g| checker.selects(&selection, g.spec))
        {
            for (site, is_new) in group
                .at
                .iter()
                .filter(|(site, _)| passes(&census.sites[*site]))
            {
                if let Domains::These(domains) = census.domains(*site, key)
                    && let [only] = domains.as_slice()
                {
                    let pods = counts.entry(only.clone()).or_default();
                    pods.0 += usize::from(!is_new);
                    pods.1 += 1;
                }
            }
        }
        let strict = alternatives.get(dropped);
        let eligible = counts
            .iter()
            .filter(|(domain, _)| strict.is_none_or(|s| s.allows(key, domain)));
        let eligible: Vec<usize> = eligible.map(|(_, (_, all))| *all).collect();
        let too_few = eligible.len() < constraint.min_domains.unwrap_or(0) as usize;
        let least = if &**key == labels::HOSTNAME || too_few {
            0
        } else {
            eligible.into_iter().min().unwrap_or(usize::MAX)
        };
        Self {
            counts,
            least,
            max_skew: constraint.max_skew as usize,
            counts_itself: checker.selects(&selection, spec),
        }
    }

    fn allows(&self, domain: &Name, new: usize) -> bool {
        let before = self.counts.get(domain).map_or(0, |pods| pods.0);
        let now = if self.counts_itself {
            before + new
        } else {
            before
        };
        now <= self.least.saturating_add(self.max_skew)
    }
}

/// The values of `key` that nodes of a pool may have.
fn universe(pool: &millwright_model::NodePool, key: &Name) -> BTreeSet<Name> {
    let requirements = template::root_requirements(pool);
    let own = requirements.get(key);
    let concrete = |r: &Requirement| {
        if r.is_complement() {
            Vec::new()
        } else {
            r.values().to_vec()
        }
    };
    let mut values: BTreeSet<Name> = own.into_iter().flat_map(concrete).collect();
    for of_type in pool
        .instance_types
        .iter()
        .filter_map(|t| t.requirements.get(key))
    {
        let both = own.map_or_else(|| of_type.clone(), |own| own.intersection(of_type));
        values.extend(concrete(&both));
    }
    values
}
