//! Why a class has no place: one refusal per NodePool, with the nearest miss.
//!
//! Built once per class and only for classes that failed. Follows the failure classes of
//! provisioning specification 6.9; the wording is ours.

use millwright_model::{
    NodePoolName, Requirements, ResourceName, Resources, labels,
    plan::{Refusal, RefusalKind},
};

use crate::{
    bits::TypeSet,
    first_fit::Remaining,
    problem::{Class, Problem, Shape},
    topology::Rule,
};

/// From this many cores on, a request is more likely a slip of the unit than a wish.
const ABSURD_CPU_MILLIS: i64 = 1_000_000 * 1000;

/// Explains failures against the state in which the pass ended.
pub(crate) struct Explainer<'p> {
    pub(crate) problem: &'p Problem<'p>,
    /// What limits leave after the plan, by template.
    pub(crate) remaining: Vec<Option<Remaining>>,
}

/// The types of a NodePool by what excludes them.
struct Verdict {
    /// All that the NodePool may launch.
    all: TypeSet,
    /// Labels go together.
    compatible: TypeSet,
    /// Offered where the requirements allow.
    offered: TypeSet,
    /// Large enough, daemons included.
    large_enough: TypeSet,
}

impl Explainer<'_> {
    /// Why pods of `class` have no place; never empty.
    pub(crate) fn explain(&self, class: &Class<'_>) -> Vec<Refusal> {
        let own = |kind, detail: String| {
            vec![Refusal {
                node_pool: None,
                kind,
                detail,
            }]
        };
        if let Some(rule) = class.unsupported {
            return own(RefusalKind::Unsupported, rule.to_owned());
        }
        let mut reasons: Vec<Refusal> = Vec::new();
        for template in 0..self.problem.templates.len() {
            let shapes = class.shapes.iter().map(|shape| self.problem.shape(*shape));
            let refusals = shapes.map(|shape| self.refusal(template, class, shape));
            // The alternative that came nearest; the last, which asks for least, among equals.
            reasons.extend(refusals.max_by_key(|refusal| nearness(refusal.kind)));
        }
        for unused in self
            .problem
            .unused
            .iter()
            .filter(|unused| unused.concerns_pods)
        {
            reasons.push(Refusal {
                node_pool: Some(unused.pool.clone()),
                kind: RefusalKind::Unsupported,
                detail: unused.why.clone(),
            });
        }
        if reasons.is_empty() {
            return own(
                RefusalKind::NoNodePool,
                "no NodePool may open nodes".to_owned(),
            );
        }
        reasons.sort();
        reasons
    }

    fn refusal(&self, template: usize, class: &Class<'_>, shape: &Shape) -> Refusal {
        let pool = &self.problem.pool(template).name;
        let (kind, detail) = self.reason(template, class, shape, pool);
        Refusal {
            node_pool: Some(pool.clone()),
            kind,
            detail,
        }
    }

    fn reason(
        &self,
        template: usize,
        class: &Class<'_>,
        shape: &Shape,
        pool: &NodePoolName,
    ) -> (RefusalKind, String) {
        let problem = self.problem;
        let taints = &problem.taints[problem.templates[template].taints as usize];
        if let Some(taint) = problem.tolerances.untolerated(shape.tolerance, taints) {
            return (
                RefusalKind::Taint,
                format!("taint {taint} is not tolerated"),
            );
        }
        let wanted = &problem.shapes.wanted[shape.requirements as usize];
        if let Some(key) = &wanted.contradiction {
            let detail = format!("the pod's own requirements leave no value for label {key}");
            return (RefusalKind::Requirements, detail);
        }
        let Some(wanted) = &wanted.planned else {
            let detail = "the pod asks for the host name of a node, which a new node cannot have";
            return (RefusalKind::Requirements, detail.to_owned());
        };
        let root = &problem.templates[template].requirements;
        if let Err(conflict) = root.compatible(wanted, labels::is_well_known) {
            return (RefusalKind::Requirements, conflict.to_string());
        }
        let mut merged = root.clone();
        merged.extend_from(wanted);
        let verdict = self.verdict(template, &merged, &class.spec.requests);
        let mut possible = verdict.compatible.clone();
        possible.intersect(&verdict.offered);
        let mut fitting = possible.clone();
        fitting.intersect(&verdict.large_enough);
        if !fitting.is_empty() {
            return match self.rules(shape) {
                Some(rules) if self.within_limits(template, &fitting) => {
                    (RefusalKind::Topology, rules)
                }
                _ => (RefusalKind::Limits, self.limits(template, &fitting)),
            };
        }
        // Every node gets these two labels; nobody asked for them.
        merged.remove(labels::REGISTERED);
        merged.remove(labels::INITIALIZED);
        let suffix = format!("; requirements={merged}, resources={}", class.spec.requests);
        let (kind, text) = classify(&verdict, &possible);
        let text = match kind {
            RefusalKind::Resources if !possible.is_empty() => {
                self.nearest_miss(template, &possible, &class.spec.requests, pool)
            }
            _ => text.to_owned(),
        };
        (kind, text + &suffix)
    }

    /// The rules between pods that the shape must satisfy; `None` when there are none.
    fn rules(&self, shape: &Shape) -> Option<String> {
        let topology = &self.problem.topology;
        let rules = topology.rules(shape.rules);
        let mut texts: Vec<String> = Vec::new();
        for obeyed in &rules.obeyed {
            let key = &topology.key_of(obeyed.group).name;
            texts.push(match topology.group(obeyed.group).rule {
                Rule::Spread { max_skew, .. } => {
                    format!("topology spread over {key} (maxSkew {max_skew})")
                }
                Rule::Affinity => format!("pod affinity over {key}"),
                Rule::AntiAffinity => format!("pod anti-affinity over {key}"),
                Rule::Repulsion => format!("anti-affinity of other pods over {key}"),
            });
        }
        if let Some(ports) = rules.ports {
            let ports = topology.ports.get(ports).iter();
            let ports: Vec<String> = ports
                .map(|p| format!("{}/{}", p.port, p.protocol))
                .collect();
            texts.push(format!("free host ports {}", ports.join(", ")));
        }
        texts.sort_unstable();
        texts.dedup();
        (!texts.is_empty()).then(|| {
            let one = if texts.len() == 1 { "" } else { "all of: " };
            format!("no node, old or new, satisfies {one}{}", texts.join("; "))
        })
    }

    fn within_limits(&self, template: usize, fitting: &TypeSet) -> bool {
        let Some(remaining) = &self.remaining[template] else {
            return true;
        };
        let mut left = fitting.clone();
        let allowed = remaining.allowed(self.problem, template);
        allowed.is_some_and(|allowed| {
            left.intersect(&allowed);
            !left.is_empty()
        })
    }

    fn verdict(&self, template: usize, merged: &Requirements, requests: &Resources) -> Verdict {
        let catalogue = self.problem.catalogue(template);
        let template = &self.problem.templates[template];
        let all = crate::problem::launchable(catalogue, &template.requirements);
        let mut compatible = all.clone();
        for requirement in merged.iter() {
            compatible.intersect(&catalogue.intersecting(requirement));
        }
        let mut offered = TypeSet::none(catalogue.len());
        for market in catalogue.open_markets(merged) {
            offered.unite(&catalogue.markets[market].types);
        }
        offered.intersect(&all);
        let mut large_enough = TypeSet::none(catalogue.len());
        for (overhead, types) in &template.daemons {
            let mut need = requests.clone();
            need.add(overhead);
            let large = types
                .iter()
                .filter(|at| need.fits(&catalogue.allocatable[*at]));
            large.for_each(|at| large_enough.insert(at));
        }
        Verdict {
            all,
            compatible,
            offered,
            large_enough,
        }
    }

    /// The resource that no type has enough of, or that none has together with the others.
    fn nearest_miss(
        &self,
        template: usize,
        possible: &TypeSet,
        requests: &Resources,
        pool: &NodePoolName,
    ) -> String {
        let catalogue = self.problem.catalogue(template);
        let daemons = &self.problem.templates[template].daemons;
        let room = |at: usize, name: &ResourceName| {
            let overhead = daemons.iter().find(|(_, types)| types.contains(at));
            let taken = overhead.map_or(0, |(overhead, _)| overhead.get(name));
            catalogue.allocatable[at].get(name).saturating_sub(taken)
        };
        for (name, need) in requests.iter() {
            let Some(most) = possible.iter().max_by_key(|at| room(*at, name)) else {
                continue;
            };
            let most_room = room(most, name);
            if most_room >= need {
                continue;
            }
            let absurd = *name == ResourceName::Cpu && need >= ABSURD_CPU_MILLIS;
            let hint = if absurd {
                " (was the suffix m meant, not M?)"
            } else {
                ""
            };
            let largest = &catalogue.types[most].name;
            return format!(
                "needs {} {name}{hint}; the largest type allowed by NodePool {pool}, {largest}, \
                 has {} allocatable to pods",
                readable(name, need),
                readable(name, most_room.max(0)),
            );
        }
        let count = possible.len();
        format!(
            "none of the {count} types allowed by NodePool {pool} has room for all of it at once"
        )
    }

    fn limits(&self, template: usize, fitting: &TypeSet) -> String {
        let problem = self.problem;
        let remaining = self.remaining[template].as_ref();
        let limits = problem.templates[template].limits.as_ref();
        let (Some(remaining), Some(limits)) = (remaining, limits) else {
            return "no node was opened".to_owned();
        };
        if remaining.nodes.is_some_and(|nodes| nodes <= 0) {
            return "limits: nodes are exhausted".to_owned();
        }
        let catalogue = problem.catalogue(template);
        for (limit, left) in limits.resources.iter().zip(&remaining.resources) {
            let Some(smallest) = fitting.iter().min_by_key(|at| limit.capacity[*at]) else {
                continue;
            };
            if limit.capacity[smallest] > *left {
                return format!(
                    "limits: {} more {} would be needed for {}, the smallest type with room; {} is \
                     left",
                    readable(&limit.name, limit.capacity[smallest]),
                    limit.name,
                    catalogue.types[smallest].name,
                    readable(&limit.name, *left),
                );
            }
        }
        "limits: what is left allows no type with room".to_owned()
    }
}

/// How near a refusal is to success: ever less would have to change in the pod.
const fn nearness(kind: RefusalKind) -> u8 {
    match kind {
        RefusalKind::Topology => 6,
        RefusalKind::Limits => 5,
        RefusalKind::Offering => 4,
        RefusalKind::Resources => 3,
        RefusalKind::NoInstanceType => 2,
        RefusalKind::Requirements => 1,
        _ => 0,
    }
}

/// The failure class when no type satisfies all criteria.
fn classify(verdict: &Verdict, possible: &TypeSet) -> (RefusalKind, &'static str) {
    let none = TypeSet::is_empty;
    let Verdict {
        all,
        compatible,
        offered,
        large_enough,
    } = verdict;
    debug_assert!(!none(all), "templates without types are dropped");
    match (none(compatible), none(large_enough), none(offered)) {
        (true, true, true) => (
            RefusalKind::NoInstanceType,
            "no instance type meets the requirements, has the resources or is offered",
        ),
        (true, true, false) => (
            RefusalKind::NoInstanceType,
            "no instance type meets the requirements, and none has the resources",
        ),
        (true, false, true) => (
            RefusalKind::NoInstanceType,
            "no instance type meets the requirements, and none is offered under them",
        ),
        (false, true, true) => (
            RefusalKind::NoInstanceType,
            "no instance type has the resources, and none is offered under the requirements",
        ),
        (true, false, false) => (
            RefusalKind::Requirements,
            "no instance type meets the requirements",
        ),
        (false, true, false) => (RefusalKind::Resources, "no instance type has the resources"),
        (false, false, true) => (
            RefusalKind::Offering,
            "no instance type is offered under the requirements",
        ),
        (false, false, false) if !none(possible) => (
            RefusalKind::Resources,
            "no instance type under the requirements has the resources",
        ),
        (false, false, false) => (
            RefusalKind::NoInstanceType,
            "no single instance type meets the requirements, has the resources and is offered",
        ),
    }
}

/// An amount for people: bytes with one decimal, all else as Kubernetes writes it.
fn readable(name: &ResourceName, amount: i64) -> String {
    const UNITS: [(i64, &str); 4] = [
        (1 << 40, "Ti"),
        (1 << 30, "Gi"),
        (1 << 20, "Mi"),
        (1 << 10, "Ki"),
    ];
    if !name.is_bytes() {
        return name.format(amount);
    }
    let unit = UNITS.into_iter().find(|(size, _)| amount.abs() >= *size);
    let Some((size, suffix)) = unit else {
        return amount.to_string();
    };
    let tenths = i128::from(amount) * 10 / i128::from(size);
    match tenths % 10 {
        0 => format!("{}{suffix}", tenths / 10),
        rest => format!("{}.{}{suffix}", tenths / 10, rest.abs()),
    }
}
