//! NodePools as the packer sees them: what a new node of each may be, and what is left of limits.
//!
//! Source: provisioning specification 6.1 (assembly), 6.3 (daemons), 6.11 (limits).

use std::cmp::Reverse;

use millwright_model::{
    DaemonPod, Effect, Name, NodePool, NodePoolName, Requirement, Requirements, ResourceName,
    Resources, Taint, labels, pod::HostPort, taints,
};

use super::{Catalogue, Dimensions, shape::TaintsOrd};
use crate::bits::TypeSet;

/// A NodePool that may open nodes.
#[derive(Debug)]
pub(crate) struct Template {
    /// Index into the snapshot's NodePools.
    pub(crate) pool: usize,
    /// Index into the problem's catalogues.
    pub(crate) catalogue: usize,
    /// What every node satisfies before pods narrow it.
    pub(crate) requirements: Requirements,
    pub(crate) taints: TaintsOrd,
    /// Types that may be launched and hold at least their daemons.
    pub(crate) types: TypeSet,
    /// What daemons take, by the set of daemons that run: resources and the types concerned.
    pub(crate) daemons: Vec<(Resources, TypeSet)>,
    /// Ports of the host that daemons take, with the types on which they run.
    pub(crate) daemon_ports: Vec<(Vec<HostPort>, TypeSet)>,
    /// Room for pods by type, rows: allocatable less daemons.
    pub(crate) room: Vec<i64>,
    pub(crate) limits: Option<Limits>,
}

/// What limits leave at the start of the pass.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// New nodes allowed, if limited.
    pub(crate) nodes: Option<i64>,
    /// Limited resources other than `nodes`.
    pub(crate) resources: Vec<Limit>,
}

/// One limited resource.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) name: ResourceName,
    /// What may still be added; may be negative.
    pub(crate) remaining: i64,
    /// Capacity by type.
    pub(crate) capacity: Vec<i64>,
}

/// Why a NodePool opens no nodes in this pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unused {
    pub(crate) pool: NodePoolName,
    pub(crate) why: String,
    /// Whether pods should hear of it: a pool that is static or going away is no place they could
    /// have had.
    pub(crate) concerns_pods: bool,
}

/// Whether `pool` may open nodes at all.
pub(crate) fn usable(pool: &NodePool) -> Result<(), Unused> {
    let unused = |why: &str, concerns_pods| {
        Err(Unused {
            pool: pool.name.clone(),
            why: why.to_owned(),
            concerns_pods,
        })
    };
    if pool.is_static {
        unused("it is static (spec.replicas is set)", false)
    } else if pool.deleting {
        unused("it is being deleted", false)
    } else if !pool.ready {
        unused("it is not ready", false)
    } else if pool.requirements.has_min_values() {
        unused(
            "minValues are not planned for (spec.template.spec.requirements.minValues)",
            true,
        )
    } else if pool.instance_types.is_empty() {
        unused("its node class offers no instance types", true)
    } else {
        Ok(())
    }
}

/// The order in which NodePools are tried: heavier first, then later in the alphabet first.
pub(crate) fn rank(pool: &NodePool) -> impl Ord + use<> {
    (Reverse(pool.weight), Reverse(pool.name.clone()))
}

/// What every node of `pool` satisfies. Daemons may select the two labels that every node gets.
pub(crate) fn root_requirements(pool: &NodePool) -> Requirements {
    let mut requirements = pool.template_requirements();
    let truth = Name::from("true");
    for key in [labels::REGISTERED, labels::INITIALIZED] {
        requirements.add(Requirement::label(&key.into(), &truth));
    }
    requirements
}

impl Template {
    /// Builds the template of `pool`.
    ///
    /// # Errors
    /// When no type of the catalogue satisfies the pool.
    pub(crate) fn new(
        pool: (usize, &NodePool),
        catalogue: (usize, &Catalogue),
        taints: TaintsOrd,
        daemons: &[std::sync::Arc<DaemonPod>],
        dimensions: &Dimensions,
    ) -> Result<Self, Unused> {
        let (pool_at, pool) = pool;
        let (catalogue_at, catalogue) = catalogue;
        let requirements = root_requirements(pool);
        let launchable = launchable(catalogue, &requirements);
        if launchable.is_empty() {
            let why = "its requirements leave no instance type that is offered".to_owned();
            return Err(Unused {
                pool: pool.name.clone(),
                why,
                concerns_pods: true,
            });
        }
        let daemon_ports = daemons
            .iter()
            .filter(|daemon| !daemon.spec.host_ports.is_empty())
            .map(|daemon| {
                let types = daemon_types(catalogue, &requirements, &pool.taints, daemon);
                (daemon.spec.host_ports.clone(), types)
            })
            .collect();
        let daemons = daemon_groups(catalogue, &requirements, &pool.taints, daemons, &launchable);
        let (types, room) = room(catalogue, &daemons, dimensions);
        Ok(Self {
            pool: pool_at,
            catalogue: catalogue_at,
            requirements,
            taints,
            types,
            daemons,
            daemon_ports,
            room,
            limits: limits(pool, catalogue),
        })
    }
}

/// Types that `requirements` leave and that are offered somewhere they allow.
pub(crate) fn launchable(catalogue: &Catalogue, requirements: &Requirements) -> TypeSet {
    let mut offered = TypeSet::none(catalogue.len());
    for market in catalogue.open_markets(requirements) {
        offered.unite(&catalogue.markets[market].types);
    }
    for requirement in requirements.iter() {
        offered.intersect(&catalogue.intersecting(requirement));
    }
    offered
}

fn limits(pool: &NodePool, catalogue: &Catalogue) -> Option<Limits> {
    let limits = pool.limits.as_ref().filter(|limits| !limits.is_empty())?;
    let remaining = |name: &ResourceName, limit: i64| limit.saturating_sub(pool.usage.get(name));
    let counted = limits
        .iter()
        .filter(|(name, _)| **name != ResourceName::Nodes);
    Some(Limits {
        nodes: limits
            .find(&ResourceName::Nodes)
            .map(|n| remaining(&ResourceName::Nodes, n)),
        resources: counted
            .map(|(name, limit)| Limit {
                name: name.clone(),
                remaining: remaining(name, limit),
                capacity: catalogue
                    .types
                    .iter()
                    .map(|t| t.capacity.get(name))
                    .collect(),
            })
            .collect(),
    })
}

/// Types by the set of daemons that would run on them, with what those daemons ask for.
fn daemon_groups(
    catalogue: &Catalogue,
    requirements: &Requirements,
    taints: &[Taint],
    daemons: &[std::sync::Arc<DaemonPod>],
    launchable: &TypeSet,
) -> Vec<(Resources, TypeSet)> {
    let mut groups = vec![(Resources::new(), launchable.clone())];
    for daemon in daemons {
        let here = daemon_types(catalogue, requirements, taints, daemon);
        let mut split = Vec::with_capacity(groups.len() + 1);
        for (requests, types) in groups {
            let (mut with, mut without) = (types.clone(), types);
            with.intersect(&here);
            without.subtract(&here);
            if !with.is_empty() {
                let mut more = requests.clone();
                more.add(&daemon.spec.requests);
                split.push((more, with));
            }
            if !without.is_empty() {
                split.push((requests, without));
            }
        }
        groups = split;
    }
    groups
}

/// The types on which a daemon would run: some required term fits the template and the type.
fn daemon_types(
    catalogue: &Catalogue,
    requirements: &Requirements,
    taints: &[Taint],
    daemon: &DaemonPod,
) -> TypeSet {
    let none = TypeSet::none(catalogue.len());
    // A DaemonSet controller ignores preferences to stay away.
    let hard = taints
        .iter()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule);
    let hard: Vec<Taint> = hard.cloned().collect();
    if daemon.spec.uses_resource_claims
        || taints::untolerated(&hard, &daemon.spec.tolerations).is_some()
    {
        return none;
    }
    let mut types = none;
    for wanted in strict_alternatives(&daemon.spec) {
        if requirements
            .compatible(&wanted, labels::is_well_known)
            .is_err()
        {
            continue;
        }
        let mut here = TypeSet::all(catalogue.len());
        for requirement in wanted.iter() {
            here.intersect(&catalogue.intersecting(requirement));
        }
        types.unite(&here);
    }
    types
}

/// Node selector with each required term in turn; the selector alone when there is no term.
pub(crate) fn strict_alternatives(spec: &millwright_model::PodSpec) -> Vec<Requirements> {
    let selector = Requirements::from_labels(spec.node_selector.iter().map(|(k, v)| (k, v)));
    if spec.required_terms.is_empty() {
        return vec![selector];
    }
    let with = |term: &Vec<Requirement>| {
        let mut wanted = selector.clone();
        term.iter()
            .for_each(|requirement| wanted.add(requirement.clone()));
        wanted
    };
    spec.required_terms.iter().map(with).collect()
}

/// Rows of what daemons leave of each type, and the types that hold their daemons at all.
fn room(
    catalogue: &Catalogue,
    groups: &[(Resources, TypeSet)],
    dimensions: &Dimensions,
) -> (TypeSet, Vec<i64>) {
    let stride = dimensions.stride();
    let mut rows = vec![0; stride * catalogue.len()];
    let mut holding = TypeSet::none(catalogue.len());
    for (overhead, types) in groups {
        for at in types.iter() {
            let mut left = catalogue.allocatable[at].clone();
            if !overhead.fits(&left) {
                continue;
            }
            left.subtract(overhead);
            holding.insert(at);
            rows[at * stride..][..stride].copy_from_slice(&dimensions.row(&left));
        }
    }
    (holding, rows)
}
