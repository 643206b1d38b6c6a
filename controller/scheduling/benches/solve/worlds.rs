//! What is packed: pods without a place, and EC2's instance types at list prices.

use std::sync::Arc;

use millwright_ec2_catalogue::{Architecture, Hypervisor, TypeFacts, facts, spot_price};
use millwright_model::{
    CapacityType, ClusterSnapshot, InstanceType, NanoDollarsPerHour, Offering, Operator, PodSpec,
    Requirement, ResourceName, Resources, instance_type::InstanceTypes, labels,
};
use millwright_testkit::world;

const ZONES: [char; 3] = ['a', 'b', 'c'];
/// Requests of Karpenter's scheduling benchmark, each pair equally often.
const CPU_MILLIS: [i64; 5] = [100, 250, 500, 1000, 1500];
const MEMORY_MIB: [i64; 6] = [100, 256, 512, 1024, 2048, 4096];
const LABELS: usize = 7;

/// The amd64 types of families c, m and r from generation 3 on: Nitro, virtual, for sale in
/// us-east-1.
pub(crate) fn catalogue() -> InstanceTypes {
    let plain = |facts: &&TypeFacts| {
        let generation = facts
            .name
            .chars()
            .nth(1)
            .and_then(|digit| digit.to_digit(10));
        facts.name.starts_with(['c', 'm', 'r'])
            && generation.is_some_and(|generation| generation >= 3)
            && facts.architecture == Architecture::Amd64
            && facts.hypervisor == Some(Hypervisor::Nitro)
            && !facts.bare_metal
            && !facts.zones.is_empty()
    };
    facts()
        .iter()
        .filter(plain)
        .filter_map(instance_type)
        .map(Arc::new)
        .collect()
}

fn instance_type(facts: &TypeFacts) -> Option<InstanceType> {
    let allocatable = facts.allocatable?;
    let vcpu = i64::from(facts.vcpu);
    let mut built = world::instance_type(facts.name, "amd64", vcpu, 1, facts.on_demand_price);
    built.overhead = Resources::new();
    built.capacity = Resources::of(
        i64::try_from(allocatable.cpu_millis).ok()?,
        i64::try_from(allocatable.memory_mib).ok()? << 20,
    )
    .with(ResourceName::Pods, i64::from(allocatable.pods));
    let offer = |zone: &str, capacity_type, price| {
        Offering::new(zone.into(), capacity_type, NanoDollarsPerHour(price))
    };
    built.offerings.clear();
    for (zone, letter) in world::ZONES.into_iter().zip(ZONES) {
        built
            .offerings
            .push(offer(zone, CapacityType::OnDemand, facts.on_demand_price));
        let spot = spot_price(facts, letter, 0);
        built
            .offerings
            .extend(spot.map(|price| offer(zone, CapacityType::Spot, price)));
    }
    Some(built)
}

/// Pods that only ask for resources: 30 sizes, 7 labels.
pub(crate) fn plain(count: usize, types: &InstanceTypes) -> ClusterSnapshot {
    snapshot(count, types, 1)
}

/// Pods of the same sizes of which four in five also constrain their node: 1,050 distinct specs.
pub(crate) fn constrained(count: usize, types: &InstanceTypes) -> ClusterSnapshot {
    snapshot(count, types, 5)
}

fn snapshot(count: usize, types: &InstanceTypes, kinds: usize) -> ClusterSnapshot {
    let mut specs = Vec::new();
    for cpu in CPU_MILLIS {
        for memory in MEMORY_MIB {
            for label in 0..LABELS {
                specs.extend((0..kinds).map(|kind| Arc::new(spec(cpu, memory, label, kind))));
            }
        }
    }
    let mut state = 42_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let pod = |nth: usize| {
        let spec = &specs[usize::try_from(random()).unwrap_or(0) % specs.len()];
        let age = i64::try_from(random() % 60_000).unwrap_or(0);
        let mut pod = world::pod(&format!("p-{nth}"), Arc::clone(spec), age);
        pod.uid = format!("{:016x}-{:016x}", random(), random()).into();
        Arc::new(pod)
    };
    ClusterSnapshot {
        pods: (0..count).map(pod).collect(),
        node_pools: [Arc::new(world::node_pool("default", types.clone()))].into(),
        ..ClusterSnapshot::default()
    }
}

fn spec(cpu: i64, memory: i64, label: usize, kind: usize) -> PodSpec {
    let mut spec = world::spec(cpu, memory);
    spec.labels
        .insert("my-label".into(), format!("value-{label}").into());
    match kind {
        1 => {
            let zone = world::ZONES[label % 3].into();
            spec.node_selector = vec![(labels::ZONE.into(), zone)];
        }
        2 => spec.node_selector = vec![(labels::CAPACITY_TYPE.into(), "on-demand".into())],
        3 => {
            let values = ["amd64".into(), "arm64".into()];
            let either = Requirement::new(&labels::ARCH.into(), Operator::In, values);
            spec.required_terms = vec![vec![either]];
        }
        4 => {
            let zones = world::ZONES[..2].iter().map(|zone| (*zone).into());
            let not_c = Requirement::new(&labels::ZONE.into(), Operator::In, zones);
            spec.preferred_terms = vec![(1, vec![not_c])];
        }
        _ => {}
    }
    spec
}
