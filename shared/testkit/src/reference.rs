//! A naive solver, pod by pod, straight from the provisioning specification: sections 6.1, 6.3,
//! 6.5 to 6.9, 6.11, 6.13, 6.17, 6.21. Slow and obvious; what the packing core is judged by.
//!
//! Covers what worlds of this crate contain: no rules between pods, no volumes, no `minValues`.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use millwright_model::{
    CapacityType, ClusterSnapshot, Effect, InstanceType, NanoDollarsPerHour, NodeClaimProposal,
    NodePool, Nomination, Plan, Pod, PodIndex, PodSpec, Refusal, Requirement, Requirements,
    ResourceName, Resources, StateNode, Taint, Toleration, Unschedulable, labels,
    plan::{Launchable, RefusalKind},
    taints::{TolerationOperator, untolerated},
};

struct Template<'a> {
    pool: &'a Arc<NodePool>,
    requirements: Requirements,
    /// Types with what their daemons ask for.
    types: Vec<(Arc<InstanceType>, Resources)>,
    remaining: Option<Resources>,
}

struct Node<'a> {
    node: &'a StateNode,
    labels: Requirements,
    remaining: Resources,
    pods: Vec<PodIndex>,
}

struct Claim {
    template: usize,
    requirements: Requirements,
    types: Vec<(Arc<InstanceType>, Resources)>,
    requests: Resources,
    pods: Vec<PodIndex>,
}

struct Scheduler<'a> {
    templates: Vec<Template<'a>>,
    nodes: Vec<Node<'a>>,
    claims: Vec<Claim>,
    respect_preferences: bool,
}

/// Plans by Karpenter's rules. `respect_preferences`: the preference policy.
#[must_use]
pub fn solve(snapshot: &ClusterSnapshot, respect_preferences: bool) -> Plan {
    let mut scheduler = Scheduler {
        templates: templates(snapshot),
        nodes: nodes(snapshot),
        claims: Vec::new(),
        respect_preferences,
    };
    let failed = scheduler.run(snapshot);
    scheduler.finish(snapshot, failed)
}

fn templates(snapshot: &ClusterSnapshot) -> Vec<Template<'_>> {
    let mut pools: Vec<&Arc<NodePool>> = snapshot
        .node_pools
        .iter()
        .filter(|p| p.ready && !p.deleting && !p.is_static)
        .collect();
    pools.sort_by_key(|pool| (Reverse(pool.weight), Reverse(pool.name.clone())));
    let build = |pool| {
        let pool: &Arc<NodePool> = pool;
        let mut requirements = pool.template_requirements();
        for key in [labels::REGISTERED, labels::INITIALIZED] {
            requirements.add(Requirement::label(&key.into(), &"true".into()));
        }
        let offered = |t: &&Arc<InstanceType>| {
            requirements.intersects(&t.requirements).is_ok() && cheapest(t, &requirements).is_some()
        };
        let types = pool.instance_types.iter().filter(offered);
        let types: Vec<_> = types
            .map(|t| (t.clone(), daemons_on(snapshot, pool, &requirements, t)))
            .collect();
        let remaining = pool.limits.as_ref().map(|limits| {
            limits
                .iter()
                .map(|(name, limit)| (name.clone(), limit - pool.usage.get(name)))
                .collect()
        });
        (!types.is_empty()).then_some(Template {
            pool,
            requirements,
            types,
            remaining,
        })
    };
    pools.into_iter().filter_map(build).collect()
}

fn daemons_on(
    snapshot: &ClusterSnapshot,
    pool: &NodePool,
    template: &Requirements,
    instance_type: &InstanceType,
) -> Resources {
    let mut requests = Resources::new();
    let soft = tolerate_preferences();
    for daemon in snapshot.daemons.iter() {
        let mut tolerations = daemon.spec.tolerations.clone();
        tolerations.push(soft.clone());
        let here = terms(&daemon.spec).iter().any(|term| {
            let wanted = strict(&daemon.spec, term);
            template.compatible(&wanted, labels::is_well_known).is_ok()
                && instance_type.requirements.intersects(&wanted).is_ok()
        });
        if here && untolerated(&pool.taints, &tolerations).is_none() {
            requests.add(&daemon.spec.requests);
        }
    }
    requests
}

fn tolerate_preferences() -> Toleration {
    Toleration {
        key: "".into(),
        operator: TolerationOperator::Exists,
        value: "".into(),
        effect: Some(Effect::PreferNoSchedule),
    }
}

fn terms(spec: &PodSpec) -> Vec<Vec<Requirement>> {
    if spec.required_terms.is_empty() {
        vec![Vec::new()]
    } else {
        spec.required_terms.clone()
    }
}

fn strict(spec: &PodSpec, term: &[Requirement]) -> Requirements {
    let mut wanted = Requirements::from_labels(spec.node_selector.iter().map(|(k, v)| (k, v)));
    term.iter()
        .for_each(|requirement| wanted.add(requirement.clone()));
    wanted
}

fn nodes(snapshot: &ClusterSnapshot) -> Vec<Node<'_>> {
    let mut nodes: Vec<&StateNode> = snapshot
        .nodes
        .iter()
        .map(AsRef::as_ref)
        .filter(|node| !node.deleting)
        .collect();
    nodes.sort_by_key(|node| (!node.initialized, node.name.clone()));
    let build = |node| {
        let node: &StateNode = node;
        let mut labels = Requirements::from_labels(node.labels.iter());
        labels.replace(Requirement::label(&labels::HOSTNAME.into(), &node.hostname));
        let mut reserve = Resources::new();
        for daemon in snapshot.daemons.iter() {
            let first = terms(&daemon.spec).swap_remove(0);
            let wanted = strict(&daemon.spec, &first);
            if labels.compatible(&wanted, |_| false).is_ok()
                && untolerated(&node.taints, &daemon.spec.tolerations).is_none()
            {
                reserve.add(&daemon.spec.requests);
            }
        }
        reserve.subtract(&node.daemon_requested);
        reserve.clamp_to_zero();
        let mut remaining = node.available();
        remaining.subtract(&reserve);
        Node {
            node,
            labels,
            remaining,
            pods: Vec::new(),
        }
    };
    nodes.into_iter().map(build).collect()
}

/// The cheapest offering that `requirements` allow.
fn cheapest(instance_type: &InstanceType, requirements: &Requirements) -> Option<Launchable> {
    let offered = instance_type.offerings.iter().filter(|offering| {
        offering.available
            && offering.capacity_type != CapacityType::Reserved
            && requirements
                .compatible(&offering.requirements, labels::is_well_known)
                .is_ok()
    });
    let named = |offering: &millwright_model::Offering| Launchable {
        price: offering.price,
        instance_type: instance_type.name.clone(),
        zone: offering.zone.clone(),
        capacity_type: offering.capacity_type,
    };
    offered.map(named).min()
}

impl Scheduler<'_> {
    /// The queue: failed pods go to the end, until a whole round brings nothing.
    fn run(&mut self, snapshot: &ClusterSnapshot) -> Vec<PodIndex> {
        let mut pods: Vec<(PodIndex, &Pod)> = (0..)
            .map(PodIndex)
            .zip(snapshot.pods.iter().map(AsRef::as_ref))
            .collect();
        pods.sort_by(|(_, a), (_, b)| {
            let size = b.spec.requests.cmp_by_size(&a.spec.requests);
            size.then_with(|| (a.created_at, &a.uid).cmp(&(b.created_at, &b.uid)))
        });
        let mut queue: VecDeque<(PodIndex, &Pod, usize)> = pods
            .into_iter()
            .map(|(at, pod)| (at, pod, usize::MAX))
            .collect();
        while let Some((at, pod, length)) = queue.pop_front() {
            if length == queue.len() + 1 {
                queue.push_front((at, pod, length));
                break;
            }
            if !self.place(at, &pod.spec) {
                let length = queue.len() + 1;
                queue.push_back((at, pod, length));
            }
        }
        queue.into_iter().map(|(at, _, _)| at).collect()
    }

    /// Tries, relaxes one preference, and tries again until there is none left.
    fn place(&mut self, at: PodIndex, spec: &PodSpec) -> bool {
        let mut spec = spec.clone();
        if !self.respect_preferences {
            spec.preferred_terms.clear();
        }
        spec.preferred_terms
            .sort_by_key(|(weight, _)| Reverse(*weight));
        let soft = |t: &Template<'_>| {
            t.pool
                .taints
                .iter()
                .any(|taint| taint.effect == Effect::PreferNoSchedule)
        };
        let mut soften = self.templates.iter().any(soft);
        loop {
            if self.add(at, &spec) {
                return true;
            }
            if spec.required_terms.len() > 1 {
                spec.required_terms.remove(0);
            } else if !spec.preferred_terms.is_empty() {
                spec.preferred_terms.remove(0);
            } else if soften {
                spec.tolerations.push(tolerate_preferences());
                soften = false;
            } else {
                return false;
            }
        }
    }

    fn add(&mut self, at: PodIndex, spec: &PodSpec) -> bool {
        let first = terms(spec).swap_remove(0);
        let mut wanted = strict(spec, &first);
        if let Some((_, preferred)) = spec.preferred_terms.first() {
            preferred
                .iter()
                .for_each(|requirement| wanted.add(requirement.clone()));
        }
        let impossible = |r: &Requirement| r.is_empty() && !r.allows_absence();
        if wanted.iter().any(impossible) {
            return false;
        }
        let on_node = self.nodes.iter_mut().find(|node| {
            untolerated(&node.node.taints, &spec.tolerations).is_none()
                && spec.requests.fits(&node.remaining)
                && node.labels.compatible(&wanted, |_| false).is_ok()
        });
        if let Some(node) = on_node {
            node.remaining.subtract(&spec.requests);
            node.pods.push(at);
            return true;
        }
        if let Some(host) = wanted.remove(labels::HOSTNAME)
            && !host.has("hostname-placeholder-0001")
        {
            return false;
        }
        self.claims.sort_by_key(|claim| claim.pods.len());
        for claim in &mut self.claims {
            let taints: &[Taint] = &self.templates[claim.template].pool.taints;
            if untolerated(taints, &spec.tolerations).is_none()
                && let Some((requirements, types, requests)) = narrow(claim, spec, &wanted)
            {
                (claim.requirements, claim.types, claim.requests) = (requirements, types, requests);
                claim.pods.push(at);
                return true;
            }
        }
        (0..self.templates.len()).any(|template| self.open(template, at, spec, &wanted))
    }

    fn open(&mut self, at: usize, pod: PodIndex, spec: &PodSpec, wanted: &Requirements) -> bool {
        let template = &mut self.templates[at];
        if untolerated(&template.pool.taints, &spec.tolerations).is_some() {
            return false;
        }
        let mut types = template.types.clone();
        if let Some(remaining) = &template.remaining {
            if remaining
                .find(&ResourceName::Nodes)
                .is_some_and(|nodes| nodes <= 0)
            {
                return false;
            }
            types.retain(|(t, _)| {
                remaining
                    .iter()
                    .all(|(name, left)| t.capacity.get(name) <= left)
            });
        }
        let requirements = template.requirements.clone();
        let empty = Claim {
            template: at,
            requirements,
            types,
            requests: Resources::new(),
            pods: vec![pod],
        };
        let Some((requirements, types, requests)) = narrow(&empty, spec, wanted) else {
            return false;
        };
        if let Some(remaining) = &mut template.remaining {
            let names: Vec<ResourceName> = remaining.iter().map(|(name, _)| name.clone()).collect();
            for name in names {
                let largest = types
                    .iter()
                    .map(|(t, _)| t.capacity.get(&name))
                    .max()
                    .unwrap_or(0);
                let spent = if name == ResourceName::Nodes {
                    1
                } else {
                    largest
                };
                remaining.set(name.clone(), remaining.get(&name) - spent);
            }
        }
        self.claims.push(Claim {
            requirements,
            types,
            requests,
            ..empty
        });
        true
    }

    fn finish(self, snapshot: &ClusterSnapshot, failed: Vec<PodIndex>) -> Plan {
        let templates = &self.templates;
        let proposal = |claim: Claim| {
            let by_price = |t: &InstanceType| {
                let price = cheapest(t, &claim.requirements).map(|launchable| launchable.price);
                (price.unwrap_or(NanoDollarsPerHour::MAX), t.name.clone())
            };
            let mut instance_types: Vec<_> = claim.types.iter().map(|(t, _)| t.clone()).collect();
            instance_types.sort_by_key(|t| by_price(t));
            instance_types.truncate(600);
            NodeClaimProposal {
                name: templates[claim.template].pool.name.0.clone(),
                node_pool: templates[claim.template].pool.clone(),
                cheapest: cheapest(&instance_types[0], &claim.requirements)
                    .expect("a type stays only while it is offered"),
                instance_types,
                requirements: claim.requirements,
                requests: claim.requests,
                pods: claim.pods,
            }
        };
        let reason = Refusal {
            node_pool: None,
            kind: RefusalKind::NoInstanceType,
            detail: "no place".to_owned(),
        };
        let unschedulable = Unschedulable {
            pods: failed,
            reasons: vec![reason],
        };
        let taken = self.nodes.into_iter().filter(|node| !node.pods.is_empty());
        Plan {
            generation: snapshot.generation,
            nominations: taken
                .map(|node| Nomination {
                    node: node.node.name.clone(),
                    pods: node.pods,
                })
                .collect(),
            node_claims: self.claims.into_iter().map(proposal).collect(),
            unschedulable: Some(unschedulable)
                .into_iter()
                .filter(|u| !u.pods.is_empty())
                .collect(),
        }
    }
}

type Narrowed = (Requirements, Vec<(Arc<InstanceType>, Resources)>, Resources);

/// What a NodeClaim becomes with one pod more; `None` when no type is left.
fn narrow(claim: &Claim, spec: &PodSpec, wanted: &Requirements) -> Option<Narrowed> {
    claim
        .requirements
        .compatible(wanted, labels::is_well_known)
        .ok()?;
    let mut requirements = claim.requirements.clone();
    requirements.extend_from(wanted);
    let mut requests = claim.requests.clone();
    requests.add(&spec.requests);
    let left = claim.types.iter().filter(|(instance_type, daemons)| {
        let mut need = requests.clone();
        need.add(daemons);
        requirements.intersects(&instance_type.requirements).is_ok()
            && cheapest(instance_type, &requirements).is_some()
            && need.fits(&instance_type.allocatable())
    });
    let left: Vec<_> = left.cloned().collect();
    (!left.is_empty()).then_some((requirements, left, requests))
}
