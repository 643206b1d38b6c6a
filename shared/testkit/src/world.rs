//! Random cluster worlds, small enough to shrink and crowded enough that rules meet.
//!
//! Names and values are drawn from tiny pools, so that selectors hit, taints are tolerated and
//! limits bind in a good part of the cases.

use std::{collections::BTreeMap, fmt, sync::Arc};

use millwright_model::{
    CapacityType, ClusterSnapshot, DaemonPod, Effect, InstanceType, Name, NanoDollarsPerHour,
    NodeClassRef, NodePool, Offering, Operator, Pod, PodKey, PodSpec, Requirement, Requirements,
    ResourceName, Resources, StateNode, Taint, Timestamp, Toleration, instance_type::InstanceTypes,
    labels, pod::Intake, taints::TolerationOperator,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

const GI: i64 = 1 << 30;
/// Zones of every world.
pub const ZONES: [&str; 3] = ["z-a", "z-b", "z-c"];
const FAMILY: &str = "karpenter.k8s.aws/instance-family";
const CPU: &str = "karpenter.k8s.aws/instance-cpu";
/// A label key that nobody but users knows.
pub const TEAM: &str = "example.com/team";

/// A type of `cpu` cores and `memory` GiB that every zone sells at `price` on demand, and for 40 %
/// of that as Spot.
#[must_use]
pub fn instance_type(name: &str, arch: &str, cpu: i64, memory: i64, price: u64) -> InstanceType {
    let sold = ZONES.iter().flat_map(|zone| {
        let spot = NanoDollarsPerHour(price / 5 * 2);
        [
            Offering::new((*zone).into(), CapacityType::Spot, spot),
            Offering::new(
                (*zone).into(),
                CapacityType::OnDemand,
                NanoDollarsPerHour(price),
            ),
        ]
    });
    let is = |key: &str, value: &str| Requirement::label(&key.into(), &value.into());
    let all = |key: &str, values: &[&str]| {
        Requirement::new(
            &key.into(),
            Operator::In,
            values.iter().map(|v| Name::from(*v)),
        )
    };
    let family = name.split('.').next().unwrap_or(name);
    InstanceType {
        name: name.into(),
        requirements: [
            is(labels::INSTANCE_TYPE, name),
            is(labels::ARCH, arch),
            is(labels::OS, "linux"),
            is(FAMILY, family),
            is(CPU, &cpu.to_string()),
            all(labels::ZONE, &ZONES),
            all(labels::CAPACITY_TYPE, &["on-demand", "spot"]),
        ]
        .into_iter()
        .collect(),
        capacity: Resources::of(cpu * 1000, memory * GI).with(ResourceName::Pods, 4 + cpu * 4),
        overhead: Resources::of(100, GI / 8),
        offerings: sold.collect(),
    }
}

/// A NodePool without constraints.
#[must_use]
pub fn node_pool(name: &str, instance_types: InstanceTypes) -> NodePool {
    NodePool {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        weight: 0,
        ready: true,
        deleting: false,
        is_static: false,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        requirements: Requirements::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        node_class: NodeClassRef {
            group: "karpenter.k8s.aws".into(),
            kind: "EC2NodeClass".into(),
            name: "default".into(),
        },
        termination_grace_period: None,
        expire_after: None,
        limits: None,
        usage: Resources::new(),
        hash: "0".into(),
        instance_types,
    }
}

/// A pending pod.
#[must_use]
pub fn pod(name: &str, spec: Arc<PodSpec>, created_at: i64) -> Pod {
    Pod {
        key: PodKey::new("default", name),
        uid: format!("uid-{name}").into(),
        created_at: Timestamp(created_at),
        spec,
        volumes: Arc::new([]),
        owner: None,
        intake: Intake::Marked,
        planned_on: None,
        rejections: Arc::new([]),
    }
}

/// A spec that asks for `cpu` thousandths and `memory` MiB.
#[must_use]
pub fn spec(cpu: i64, memory: i64) -> PodSpec {
    PodSpec {
        namespace: "default".into(),
        requests: Resources::of(cpu, memory << 20).with(ResourceName::Pods, 1),
        ..PodSpec::default()
    }
}

/// An initialised, unmanaged node of a type, empty.
#[must_use]
pub fn node(name: &str, instance_type: &InstanceType, zone: &str) -> StateNode {
    let mut labels: BTreeMap<Name, Name> = instance_type
        .requirements
        .iter()
        .filter_map(|requirement| Some((requirement.key().clone(), requirement.single()?.clone())))
        .collect();
    labels.insert(labels::ZONE.into(), zone.into());
    labels.insert(labels::CAPACITY_TYPE.into(), "on-demand".into());
    StateNode {
        name: name.into(),
        provider_id: Some(format!("provider-{name}").as_str().into()),
        node_claim: None,
        node_pool: None,
        launched: true,
        registered: true,
        initialized: true,
        deleting: false,
        nominated_until: None,
        created_at: Timestamp(0),
        labels: Arc::new(labels),
        taints: Arc::new([]),
        hostname: name.into(),
        capacity: instance_type.capacity.clone(),
        allocatable: instance_type.allocatable(),
        requested: Resources::new(),
        daemon_requested: Resources::new(),
        workload_pods: 0,
        pods: Arc::new([]),
        price: None,
    }
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let of = |key: &'static str, values: &'static [&'static str]| {
        let operator = select(vec![
            Operator::In,
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
        ]);
        (
            operator,
            proptest::sample::subsequence(values.to_vec(), 1..=values.len().min(2)),
        )
            .prop_map(move |(operator, values)| {
                let values = if operator == Operator::Exists {
                    Vec::new()
                } else {
                    values
                };
                Requirement::new(&key.into(), operator, values.into_iter().map(Name::from))
            })
    };
    let bound = (
        select(vec![
            Operator::Gt,
            Operator::Lt,
            Operator::Gte,
            Operator::Lte,
        ]),
        select(vec!["2", "4", "8"]),
    )
        .prop_map(|(operator, value)| Requirement::new(&CPU.into(), operator, [value.into()]));
    prop_oneof![
        3 => of(labels::ZONE, &ZONES),
        2 => of(labels::ARCH, &["amd64", "arm64"]),
        2 => of(labels::CAPACITY_TYPE, &["spot", "on-demand"]),
        1 => of(FAMILY, &["a", "b", "c"]),
        2 => of(TEAM, &["red", "blue"]),
        1 => Just(Requirement::new(&TEAM.into(), Operator::DoesNotExist, [])),
        1 => Just(Requirement::new(&labels::HOSTNAME.into(), Operator::NotIn, ["n0".into()])),
        1 => bound,
    ]
}

fn taint() -> impl Strategy<Value = Taint> {
    let effect = select(vec![
        Effect::NoSchedule,
        Effect::NoSchedule,
        Effect::NoExecute,
        Effect::PreferNoSchedule,
    ]);
    (
        select(vec!["dedicated", "gpu"]),
        select(vec!["x", "y"]),
        effect,
    )
        .prop_map(|(key, value, effect)| Taint::new(key, value, effect))
}

fn toleration() -> impl Strategy<Value = Toleration> {
    let operator = select(vec![TolerationOperator::Exists, TolerationOperator::Equal]);
    (
        select(vec!["dedicated", "gpu", ""]),
        operator,
        select(vec!["x", "y"]),
    )
        .prop_map(|(key, operator, value)| Toleration {
            key: key.into(),
            operator: if key.is_empty() {
                TolerationOperator::Exists
            } else {
                operator
            },
            value: value.into(),
            effect: None,
        })
}

fn pod_spec() -> impl Strategy<Value = PodSpec> {
    let sizes = (
        select(vec![100_i64, 250, 500, 1000, 1500, 3000, 7000]),
        select(vec![100_i64, 512, 1024, 2048, 6000, 20_000]),
    );
    let selector = option::weighted(
        0.2,
        (select(vec![labels::ZONE, TEAM]), select(vec!["z-a", "red"])),
    );
    let terms = prop_oneof![
        5 => Just(Vec::new()),
        3 => vec(vec(requirement(), 1..3), 1..3),
    ];
    let preferred = prop_oneof![
        5 => Just(Vec::new()),
        2 => vec((1_u32..4, vec(requirement(), 1..2)), 1..3),
    ];
    let tolerations = prop_oneof![2 => Just(Vec::new()), 1 => vec(toleration(), 1..3)];
    (
        sizes,
        selector,
        terms,
        preferred,
        tolerations,
        proptest::bool::weighted(0.1),
    )
        .prop_map(
            |((cpu, memory), selector, required_terms, preferred_terms, tolerations, widget)| {
                let mut spec = spec(cpu, memory);
                if widget {
                    spec.requests.set("example.com/widget".into(), 1);
                }
                spec.node_selector
                    .extend(selector.map(|(key, value)| (key.into(), value.into())));
                PodSpec {
                    required_terms,
                    preferred_terms,
                    tolerations,
                    ..spec
                }
            },
        )
}

fn catalogue() -> impl Strategy<Value = InstanceTypes> {
    let one = (
        select(vec!["a", "b", "c"]),
        select(vec!["amd64", "amd64", "arm64"]),
        select(vec![1_i64, 2, 4, 8, 16]),
        select(vec![2_i64, 4, 8]),
        80_u64..120,
        vec(proptest::bool::weighted(0.85), 6),
        proptest::bool::weighted(0.2),
    );
    vec(one, 1..10).prop_map(|types| {
        let build = |(nth, (family, arch, cpu, ratio, dear, available, widget)): (usize, _)| {
            let (cpu, available): (i64, Vec<bool>) = (cpu, available);
            let price = u64::try_from(cpu).unwrap_or(1) * 500_000 * dear;
            let name = format!("{family}.{cpu}x{nth}");
            let mut built = instance_type(&name, arch, cpu, cpu * ratio, price);
            if widget {
                built.capacity.set("example.com/widget".into(), 2);
            }
            for (offering, available) in built.offerings.iter_mut().zip(available) {
                offering.available = available;
            }
            Arc::new(built)
        };
        types.into_iter().enumerate().map(build).collect()
    })
}

/// What a NodePool has beyond its types.
#[derive(Clone, Debug)]
struct PoolTraits {
    weight: u32,
    requirements: Vec<Requirement>,
    team: Option<&'static str>,
    taints: Vec<Taint>,
    limit: Option<(i64, i64)>,
    ready: bool,
}

fn pool_traits() -> impl Strategy<Value = PoolTraits> {
    let requirements = vec(
        requirement().prop_filter("no pool may name hosts", |r| &**r.key() != labels::HOSTNAME),
        0..2,
    );
    let team = option::weighted(0.3, select(vec!["red", "blue"]));
    let taints = prop_oneof![3 => Just(Vec::new()), 1 => vec(taint(), 1..2)];
    let limit = option::weighted(0.4, (0_i64..40, 0_i64..5));
    (
        0_u32..3,
        requirements,
        team,
        taints,
        limit,
        proptest::bool::weighted(0.95),
    )
        .prop_map(
            |(weight, requirements, team, taints, limit, ready)| PoolTraits {
                weight,
                requirements,
                team,
                taints,
                limit,
                ready,
            },
        )
}

fn build_pool(nth: usize, traits: PoolTraits, types: &InstanceTypes) -> NodePool {
    let mut pool = node_pool(&format!("pool-{nth}"), types.clone());
    pool.weight = traits.weight;
    pool.requirements = traits.requirements.into_iter().collect();
    pool.labels
        .extend(traits.team.map(|team| (TEAM.into(), team.into())));
    pool.taints = traits.taints;
    pool.ready = traits.ready;
    pool.limits = traits.limit.map(|(cpu, nodes)| {
        let limits: Resources = [(ResourceName::Cpu, cpu * 1000)].into_iter().collect();
        if nodes > 0 {
            limits.with(ResourceName::Nodes, nodes)
        } else {
            limits
        }
    });
    pool
}

/// What a node has beyond its type.
type NodeTraits = (
    usize,
    &'static str,
    Option<&'static str>,
    Vec<Taint>,
    (bool, bool),
    i64,
);

fn node_traits() -> impl Strategy<Value = NodeTraits> {
    let taints = prop_oneof![4 => Just(Vec::new()), 1 => vec(taint(), 1..2)];
    let flags = (proptest::bool::weighted(0.8), proptest::bool::weighted(0.1));
    let team = option::weighted(0.3, select(vec!["red", "blue"]));
    (
        0_usize..10,
        select(ZONES.to_vec()),
        team,
        taints,
        flags,
        0_i64..9,
    )
}

fn build_node(nth: usize, traits: NodeTraits, types: &InstanceTypes) -> StateNode {
    let (at, zone, team, taints, (initialized, deleting), tenths) = traits;
    let of = &types[at % types.len()];
    let mut node = node(&format!("n{nth}"), of, zone);
    Arc::make_mut(&mut node.labels).extend(team.map(|team| (TEAM.into(), team.into())));
    node.taints = taints.into();
    node.initialized = initialized;
    node.deleting = deleting;
    let used = node.allocatable.get(&ResourceName::Cpu) / 10 * tenths;
    node.requested =
        Resources::of(used, used << 20).with(ResourceName::Pods, i64::from(tenths > 0));
    node
}

fn daemon() -> impl Strategy<Value = PodSpec> {
    let terms = prop_oneof![3 => Just(Vec::new()), 1 => vec(vec(requirement(), 1..2), 1..3)];
    let tolerations = prop_oneof![1 => Just(Vec::new()), 1 => vec(toleration(), 1..3)];
    (select(vec![100_i64, 400]), terms, tolerations).prop_map(
        |(cpu, required_terms, tolerations)| PodSpec {
            required_terms,
            tolerations,
            ..spec(cpu, 128)
        },
    )
}

/// A snapshot that prints itself on a screen, for failing cases.
#[derive(Clone)]
pub struct World(pub ClusterSnapshot);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for pool in self.0.node_pools.iter() {
            let taints: Vec<String> = pool.taints.iter().map(ToString::to_string).collect();
            let (name, weight, ready) = (&pool.name, pool.weight, pool.ready);
            let limits = pool
                .limits
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            let requirements = pool.template_requirements();
            write!(
                f,
                "pool {name} weight {weight} ready {ready} limits [{limits}] {taints:?} "
            )?;
            writeln!(f, "{requirements}")?;
        }
        for of in self
            .0
            .node_pools
            .iter()
            .take(1)
            .flat_map(|pool| pool.instance_types.iter())
        {
            write!(f, "type {} {} {}:", of.name, of.capacity, of.requirements)?;
            for offering in of.offerings.iter().filter(|offering| offering.available) {
                write!(
                    f,
                    " {}/{} {}",
                    offering.zone, offering.capacity_type, offering.price.0
                )?;
            }
            writeln!(f)?;
        }
        for node in self.0.nodes.iter() {
            let taints: Vec<String> = node.taints.iter().map(ToString::to_string).collect();
            let state = (node.launched, node.initialized, node.deleting);
            let (name, available) = (&node.name, node.available());
            writeln!(
                f,
                "node {name} {state:?} {available} {taints:?} {:?}",
                node.labels
            )?;
        }
        for daemon in self.0.daemons.iter() {
            writeln!(f, "{} {}", daemon.name, in_short(&daemon.spec))?;
        }
        for pod in self.0.pods.iter() {
            let (key, age) = (&pod.key, pod.created_at.0);
            writeln!(
                f,
                "pod {key} age {age} on {:?} {}",
                pod.planned_on,
                in_short(&pod.spec)
            )?;
        }
        Ok(())
    }
}

/// A spec on one line.
fn in_short(spec: &PodSpec) -> String {
    let one = |term: &Vec<Requirement>| {
        term.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" and ")
    };
    let wanted: Vec<String> = spec.required_terms.iter().map(one).collect();
    let liked: Vec<String> = spec
        .preferred_terms
        .iter()
        .map(|(_, term)| one(term))
        .collect();
    let (requests, selector, tolerations) =
        (&spec.requests, &spec.node_selector, &spec.tolerations);
    format!("{requests} {selector:?} wants {wanted:?} likes {liked:?} {tolerations:?}")
}

/// A whole world: up to ten types, three NodePools, two DaemonSets, four nodes and forty pods.
pub fn world() -> impl Strategy<Value = World> {
    let pods = vec((pod_spec(), vec(0_i64..3, 1..10)), 1..6);
    (
        catalogue(),
        vec(pool_traits(), 1..4),
        vec(daemon(), 0..3),
        vec(node_traits(), 0..4),
        pods,
    )
        .prop_map(|(types, pools, daemons, nodes, pods)| {
            let numbered = |nth: usize, kind: &str| format!("{kind}-{nth}");
            World(ClusterSnapshot {
                generation: 1,
                taken_at: Timestamp(0),
                pods: pods
                    .into_iter()
                    .enumerate()
                    .flat_map(|(class, (spec, ages))| {
                        let spec = Arc::new(spec);
                        ages.into_iter().enumerate().map(move |(nth, age)| {
                            Arc::new(pod(&format!("class{class}-{nth}"), spec.clone(), age))
                        })
                    })
                    .collect(),
                nodes: nodes
                    .into_iter()
                    .enumerate()
                    .map(|(nth, traits)| Arc::new(build_node(nth, traits, &types)))
                    .collect(),
                node_pools: pools
                    .into_iter()
                    .enumerate()
                    .map(|(nth, traits)| Arc::new(build_pool(nth, traits, &types)))
                    .collect(),
                daemons: daemons
                    .into_iter()
                    .enumerate()
                    .map(|(nth, spec)| {
                        let name = numbered(nth, "daemon").into();
                        Arc::new(DaemonPod {
                            name,
                            spec: Arc::new(spec),
                        })
                    })
                    .collect(),
                namespaces: None,
            })
        })
}
