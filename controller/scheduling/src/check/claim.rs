//! Rules for NodeClaims to be created.

use std::{collections::HashMap, sync::Arc};

use millwright_model::{
    CapacityType, Effect, InstanceType, NanoDollarsPerHour, NodeClaimProposal, NodePool,
    NodePoolName, Offering, Plan, Pod, Requirement, Requirements, ResourceName, Resources, Taint,
    labels, plan::Launchable, taints,
};

use super::{Checker, Property, Strict, keeps_away, total};
use crate::problem::{strict_alternatives, template};

/// Karpenter's bound on the instance types of a NodeClaim.
const TYPES_MAX: usize = 600;

impl Checker<'_> {
    pub(super) fn check_claims(&mut self, plan: &Plan) {
        let mut strict = Strict::default();
        // What daemons ask for, by NodePool and type: NodeClaims repeat both.
        let mut daemons: HashMap<(NodePoolName, *const InstanceType), Resources> = HashMap::new();
        let mut previous: Option<(&NodeClaimProposal, Resources)> = None;
        for claim in &plan.node_claims {
            let pods: Vec<&Pod> = claim.pods.iter().filter_map(|at| self.pod(*at)).collect();
            let asked = total(pods.iter().copied());
            self.check_pods(claim, &pods, &mut strict);
            // What is wrong with a NodeClaim whatever its pods are is said of the first of its like.
            if previous
                .as_ref()
                .is_some_and(|(like, sum)| like.is_like(claim) && *sum == asked)
            {
                continue;
            }
            let pool = &claim.node_pool;
            if !self
                .snapshot
                .node_pools
                .iter()
                .any(|known| Arc::ptr_eq(known, pool))
            {
                let detail = format!("{}: NodePool {} is unknown", claim.name, pool.name);
                self.report(Property::Requirements, detail);
            }
            if let Err(unused) = template::usable(pool) {
                let detail = format!("{}: NodePool {}: {}", claim.name, pool.name, unused.why);
                self.report(Property::Requirements, detail);
            }
            self.check_template(claim);
            self.check_types(claim, &asked, &mut daemons);
            self.check_price(claim);
            previous = Some((claim, asked));
        }
    }

    /// The NodeClaim promises no more than its NodePool allows. A NodePool whose labels contradict
    /// its requirements allows no value of that label, which no NodeClaim can narrow.
    fn check_template(&mut self, claim: &NodeClaimProposal) {
        let template = claim.node_pool.template_requirements();
        let sensible = template.iter().filter(|wanted| !wanted.is_empty());
        for wanted in sensible.filter(|wanted| !narrows(&claim.requirements, wanted)) {
            let detail = format!(
                "{}: NodePool {} asks for {wanted}",
                claim.name, claim.node_pool.name
            );
            self.report(Property::Requirements, detail);
        }
    }

    fn check_pods(&mut self, claim: &NodeClaimProposal, pods: &[&Pod], strict: &mut Strict) {
        let mut known: HashMap<*const millwright_model::PodSpec, bool> = HashMap::new();
        for pod in pods {
            self.check_placeable(pod);
            if let Some(taint) = keeps_away(&claim.node_pool.taints, &pod.spec) {
                let detail = format!("{} does not tolerate {taint} of {}", pod.key, claim.name);
                self.report(Property::Requirements, detail);
            }
            let welcome = *known.entry(Arc::as_ptr(&pod.spec)).or_insert_with(|| {
                let satisfied = |wanted: &Requirements| {
                    wanted
                        .iter()
                        .all(|wanted| narrows(&claim.requirements, wanted))
                };
                strict.of(pod).iter().any(satisfied)
            });
            if !welcome {
                let detail = format!("{} may not run on every node of {}", pod.key, claim.name);
                self.report(Property::Requirements, detail);
            }
        }
    }

    fn check_types(
        &mut self,
        claim: &NodeClaimProposal,
        asked: &Resources,
        daemons: &mut HashMap<(NodePoolName, *const InstanceType), Resources>,
    ) {
        let types = &claim.instance_types;
        if types.is_empty() || types.len() > TYPES_MAX {
            let detail = format!("{}: {} instance types", claim.name, types.len());
            self.report(Property::Fit, detail);
        }
        for instance_type in types {
            let name = &instance_type.name;
            let listed = |known: &Arc<InstanceType>| Arc::ptr_eq(known, instance_type);
            if !claim.node_pool.instance_types.iter().any(listed) {
                let detail = format!("{}: {name} is not offered to the NodePool", claim.name);
                self.report(Property::Requirements, detail);
            }
            if let Err(conflict) = claim.requirements.intersects(&instance_type.requirements) {
                self.report(
                    Property::Requirements,
                    format!("{}: {name}: {conflict}", claim.name),
                );
            }
            let key = (claim.node_pool.name.clone(), Arc::as_ptr(instance_type));
            let mut need = daemons
                .entry(key)
                .or_insert_with(|| self.daemons_on(claim, instance_type))
                .clone();
            need.add(asked);
            let room = instance_type.allocatable();
            if !need.fits(&room) {
                let detail = format!("{}: {name} has {room}, needed are {need}", claim.name);
                self.report(Property::Fit, detail);
            }
        }
        let enough = asked
            .iter()
            .all(|(resource, amount)| claim.requests.get(resource) >= amount);
        if !enough {
            let detail = format!(
                "{}: requests {} cover not {asked}",
                claim.name, claim.requests
            );
            self.report(Property::Fit, detail);
        }
    }

    fn daemons_on(&self, claim: &NodeClaimProposal, instance_type: &InstanceType) -> Resources {
        let mut requests = Resources::new();
        let soft = |taint: &&Taint| taint.effect != Effect::PreferNoSchedule;
        let hard: Vec<Taint> = claim
            .node_pool
            .taints
            .iter()
            .filter(soft)
            .cloned()
            .collect();
        let template = template::root_requirements(&claim.node_pool);
        for daemon in self.snapshot.daemons.iter() {
            let here = |wanted: &Requirements| {
                template.compatible(wanted, labels::is_well_known).is_ok()
                    && instance_type.requirements.intersects(wanted).is_ok()
            };
            if !daemon.spec.uses_resource_claims
                && taints::untolerated(&hard, &daemon.spec.tolerations).is_none()
                && strict_alternatives(&daemon.spec).iter().any(here)
            {
                requests.add(&daemon.spec.requests);
            }
        }
        requests
    }

    fn check_price(&mut self, claim: &NodeClaimProposal) {
        let prices: Vec<Option<Launchable>> = claim
            .instance_types
            .iter()
            .map(|t| cheapest(claim, t))
            .collect();
        if prices.iter().any(Option::is_none) {
            let detail = format!("{}: a type has no available offering", claim.name);
            self.report(Property::Price, detail);
        }
        let order = |launchable: &Launchable| (launchable.price, launchable.instance_type.clone());
        if !prices.iter().flatten().map(order).is_sorted() {
            let detail = format!("{}: types are not in order of price", claim.name);
            self.report(Property::Price, detail);
        }
        if prices.first().and_then(Option::as_ref) != Some(&claim.cheapest) {
            let detail = format!("{}: {:?} is not the cheapest", claim.name, claim.cheapest);
            self.report(Property::Price, detail);
        }
    }

    /// Whatever of their types NodeClaims become, limits hold.
    pub(super) fn check_limits(&mut self, plan: &Plan) {
        let snapshot = self.snapshot;
        for pool in snapshot.node_pools.iter() {
            let Some(limits) = &pool.limits else { continue };
            let claims: Vec<&NodeClaimProposal> = plan
                .node_claims
                .iter()
                .filter(|claim| claim.node_pool.name == pool.name)
                .collect();
            if !claims.is_empty() {
                for (name, limit) in limits.iter() {
                    self.check_limit(pool, &claims, name, limit);
                }
            }
        }
    }

    fn check_limit(
        &mut self,
        pool: &NodePool,
        claims: &[&NodeClaimProposal],
        name: &ResourceName,
        limit: i64,
    ) {
        let largest = |claim: &&NodeClaimProposal| match name {
            ResourceName::Nodes => 1,
            _ => claim
                .instance_types
                .iter()
                .map(|t| t.capacity.get(name))
                .max()
                .unwrap_or(0),
        };
        let added: i64 = claims.iter().map(largest).sum();
        let sum = added.saturating_add(pool.usage.get(name));
        if sum > limit {
            let detail = format!(
                "NodePool {}: {} {name} would exceed the limit of {}",
                pool.name,
                name.format(sum),
                name.format(limit)
            );
            self.report(Property::Limits, detail);
        }
    }
}

/// Whether every node that `promised` allows satisfies `wanted`.
fn narrows(promised: &Requirements, wanted: &Requirement) -> bool {
    if &**wanted.key() == labels::HOSTNAME {
        // The name of a node to be is unlike any that a pod can know.
        return wanted.has("a host name that nobody has");
    }
    let Some(promised) = promised.get(wanted.key()) else {
        return false;
    };
    let both = promised.intersection(wanted);
    let subset = both.values() == promised.values()
        && both.is_complement() == promised.is_complement()
        && both.bounds() == promised.bounds();
    subset && (!promised.is_empty() || wanted.allows_absence())
}

/// Whether a pool has a type that is offered.
pub(super) fn launches(pool: &NodePool) -> bool {
    let root = template::root_requirements(pool);
    let sold = |offering: &Offering| {
        offering.available
            && offering.capacity_type != CapacityType::Reserved
            && root
                .compatible(&offering.requirements, labels::is_well_known)
                .is_ok()
    };
    let mut types = pool.instance_types.iter();
    types.any(|t| root.intersects(&t.requirements).is_ok() && t.offerings.iter().any(sold))
}

fn cheapest(claim: &NodeClaimProposal, instance_type: &InstanceType) -> Option<Launchable> {
    let sold = |offering: &&Offering| {
        offering.available
            && offering.capacity_type != CapacityType::Reserved
            && claim
                .requirements
                .compatible(&offering.requirements, labels::is_well_known)
                .is_ok()
    };
    let named = |offering: &Offering| Launchable {
        price: offering.price,
        instance_type: instance_type.name.clone(),
        zone: offering.zone.clone(),
        capacity_type: offering.capacity_type,
    };
    let offered = instance_type.offerings.iter().filter(sold).map(named);
    offered
        .min()
        .filter(|launchable| launchable.price < NanoDollarsPerHour::MAX)
}
