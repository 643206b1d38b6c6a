//! Capacity of an instance type under a class, and what the system takes of it.
//!
//! Source: AWS specification 12.

use std::collections::BTreeMap;

use millwright_api::{
    ec2_node_class::{BlockDeviceMapping, InterfaceType},
    tags,
};
use millwright_model::{Quantity, ResourceName, Resources};

use crate::{facts::InstanceTypeFacts, family, shape::ClassShape};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
/// Arm instances reserve this much for the contiguous memory allocator before Linux counts.
const ARM_RESERVED_MIB: u64 = 64;
/// What the kubelet's documentation takes for the runtime: a base and a share for each pod.
const KUBE_RESERVED_BASE_MIB: i64 = 255;
const KUBE_RESERVED_PER_POD_MIB: i64 = 11;
/// Kubernetes' default for `evictionHard["memory.available"]`.
const EVICTION_MEMORY_MIB: i64 = 100;
/// Windows nodes take Kubernetes' default number of pods.
const WINDOWS_PODS: u32 = 110;

/// Settings of the controller that capacity depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacitySettings {
    /// Share of the memory that never reaches the operating system, in millionths
    /// (`VM_MEMORY_OVERHEAD_PERCENT` times 1,000,000).
    pub vm_memory_overhead_ppm: u32,
    /// Interfaces that pods cannot use (`RESERVED_ENIS`).
    pub reserved_enis: u32,
}

impl Default for CapacitySettings {
    /// Karpenter's defaults: 7.5 % and none.
    fn default() -> Self {
        Self {
            vm_memory_overhead_ppm: 75_000,
            reserved_enis: 0,
        }
    }
}

/// Resources of a node of this type before overhead. Extended resources appear only when there is
/// at least one. `discovered_memory` (bytes) replaces the estimate once a node has been seen.
#[must_use]
pub fn capacity(
    facts: &InstanceTypeFacts,
    shape: &ClassShape,
    settings: CapacitySettings,
    discovered_memory: Option<i64>,
) -> Resources {
    let mut capacity = Resources::of(
        i64::from(facts.vcpus) * 1_000,
        discovered_memory.unwrap_or_else(|| memory_bytes(facts, settings)),
    );
    capacity.set(ResourceName::Pods, i64::from(pods(facts, shape, settings)));
    capacity.set(
        ResourceName::EphemeralStorage,
        ephemeral_bytes(facts, shape),
    );
    for (name, count) in extended(facts, shape) {
        if count > 0 {
            capacity.set(ResourceName::Other(name.into()), i64::from(count));
        }
    }
    capacity
}

/// Memory in bytes, before the kubelet's share.
fn memory_bytes(facts: &InstanceTypeFacts, settings: CapacitySettings) -> i64 {
    let reserved = if facts.is_arm() { ARM_RESERVED_MIB } else { 0 };
    let mib = facts.memory_mib.saturating_sub(reserved);
    let overhead = (mib * u64::from(settings.vm_memory_overhead_ppm)).div_ceil(1_000_000);
    i64::try_from(mib.saturating_sub(overhead)).unwrap_or(i64::MAX / MIB) * MIB
}

/// Pods that fit on a node of this type.
#[must_use]
pub fn pods(facts: &InstanceTypeFacts, shape: &ClassShape, settings: CapacitySettings) -> u32 {
    let limit = shape.kubelet.max_pods.unwrap_or_else(|| {
        if family::limits_pods_by_interfaces(shape.family) {
            interface_pods(facts, shape, settings.reserved_enis)
        } else {
            WINDOWS_PODS
        }
    });
    match shape.kubelet.pods_per_core {
        per_core if per_core > 0 && family::honours_pods_per_core(shape.family) => {
            limit.min(per_core.saturating_mul(facts.vcpus))
        }
        _ => limit,
    }
}

/// Pods that the addresses of the default network card's interfaces allow. Two pods on the
/// host's network come on top, because every node runs a network plugin and a proxy.
fn interface_pods(facts: &InstanceTypeFacts, shape: &ClassShape, reserved: u32) -> u32 {
    let efa_only = shape
        .network_interfaces
        .iter()
        .filter(|i| i.network_card_index == 0 && i.interface_type == InterfaceType::EfaOnly)
        .count();
    let efa_only = u32::try_from(efa_only).unwrap_or(u32::MAX);
    let usable = facts
        .default_card_interfaces()
        .saturating_sub(reserved)
        .saturating_sub(efa_only);
    if usable == 0 {
        0
    } else {
        usable
            .saturating_mul(facts.ipv4_per_interface.saturating_sub(1))
            .saturating_add(2)
    }
}

fn ephemeral_bytes(facts: &InstanceTypeFacts, shape: &ClassShape) -> i64 {
    if let (true, Some(gigabytes)) = (shape.raid0, facts.instance_store_gb) {
        return i64::try_from(gigabytes)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000_000);
    }
    let devices = &shape.block_devices;
    let root = devices
        .iter()
        .find(|device| device.root_volume)
        .and_then(volume_bytes);
    if let Some(bytes) = root {
        return bytes;
    }
    let by_family = match family::ephemeral_device(shape.family) {
        // An image of the user's own: the last device is taken for the data volume.
        None => devices.last().and_then(volume_bytes),
        Some(device) => devices
            .iter()
            .filter(|mapping| mapping.device_name.as_deref() == Some(device))
            .find_map(volume_bytes),
    };
    by_family.unwrap_or_else(|| family::default_ephemeral_bytes(shape.family))
}

/// Size of the volume behind a device, if the class states one.
pub(crate) fn volume_bytes(mapping: &BlockDeviceMapping) -> Option<i64> {
    let text = mapping.ebs.as_ref()?.volume_size.as_deref()?;
    Quantity::parse(text).ok().map(Quantity::units_ceil)
}

fn extended(facts: &InstanceTypeFacts, shape: &ClassShape) -> [(&'static str, u32); 8] {
    let gpus = |maker: &str| -> u32 {
        facts
            .gpus
            .iter()
            .filter(|gpu| &*gpu.manufacturer == maker)
            .map(|gpu| gpu.count)
            .sum()
    };
    let efa = if shape.network_interfaces.is_empty() {
        facts.max_efa
    } else {
        let kind = InterfaceType::EfaOnly;
        let count = shape
            .network_interfaces
            .iter()
            .filter(|i| i.interface_type == kind)
            .count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let private_addresses = if shape.family.is_windows() {
        facts.ipv4_per_interface.saturating_sub(1)
    } else {
        0
    };
    [
        (tags::RESOURCE_NVIDIA_GPU, gpus("NVIDIA")),
        (tags::RESOURCE_AMD_GPU, gpus("AMD")),
        (tags::RESOURCE_HABANA_GAUDI, gpus("Habana")),
        (
            tags::RESOURCE_AWS_NEURON,
            facts.neuron_devices.iter().map(|n| n.count).sum(),
        ),
        (
            tags::RESOURCE_AWS_NEURON_CORE,
            facts
                .neuron_devices
                .first()
                .map_or(0, |n| n.count.saturating_mul(n.cores)),
        ),
        (tags::RESOURCE_EFA, efa),
        (tags::RESOURCE_POD_ENI, facts.branch_interfaces),
        (tags::RESOURCE_PRIVATE_IPV4, private_addresses),
    ]
}

/// What system daemons and the eviction threshold take of `capacity`.
#[must_use]
pub fn overhead(
    facts: &InstanceTypeFacts,
    shape: &ClassShape,
    settings: CapacitySettings,
) -> Resources {
    let mut total = kube_reserved(facts, shape, settings);
    total.add(&reserved(&shape.kubelet.system_reserved));
    // A percentage refers to the estimate even where a discovered value replaced it.
    let estimated = Resources::of(0, memory_bytes(facts, settings)).with(
        ResourceName::EphemeralStorage,
        ephemeral_bytes(facts, shape),
    );
    total.add(&eviction_threshold(
        &estimated,
        &shape.kubelet.eviction_hard,
    ));
    total
}

/// Resources kept for the kubelet and the container runtime; what the class sets replaces the
/// computed amount of that resource. This is also what user data tells the kubelet.
#[must_use]
pub fn kube_reserved(
    facts: &InstanceTypeFacts,
    shape: &ClassShape,
    settings: CapacitySettings,
) -> Resources {
    let counted = if family::reserves_memory_by_interfaces(shape.family) {
        interface_pods(facts, shape, 0)
    } else {
        pods(facts, shape, settings)
    };
    let mib = KUBE_RESERVED_PER_POD_MIB * i64::from(counted) + KUBE_RESERVED_BASE_MIB;
    let mut result = Resources::of(cpu_reserved_millis(facts.vcpus), mib * MIB)
        .with(ResourceName::EphemeralStorage, GIB);
    for (name, amount) in reserved(&shape.kubelet.kube_reserved).iter() {
        result.set(name.clone(), amount);
    }
    result
}

/// A class's reserved amounts. Process ids are no resource that pods request.
fn reserved(settings: &BTreeMap<String, String>) -> Resources {
    settings
        .iter()
        .filter(|(key, _)| *key != "pid")
        .filter_map(|(key, text)| {
            let name = ResourceName::from(key.as_str());
            let amount = name.amount(Quantity::parse(text).ok()?);
            Some((name, amount))
        })
        .collect()
}

/// 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the others, each band
/// truncated to whole millicores.
fn cpu_reserved_millis(vcpus: u32) -> i64 {
    /// End of the band in cores, and its share in 1/10,000.
    const BANDS: [(i64, i64); 4] = [(1, 600), (2, 100), (4, 50), (i64::MAX / 1_000, 25)];
    let cores = i64::from(vcpus);
    let mut start = 0;
    let mut millis = 0;
    for (end, share) in BANDS {
        millis += (cores.min(end) - start).max(0) * 1_000 * share / 10_000;
        start = end;
    }
    millis
}

fn eviction_threshold(capacity: &Resources, hard: &BTreeMap<String, String>) -> Resources {
    let memory = hard
        .get("memory.available")
        .and_then(|text| threshold(text, capacity.get(&ResourceName::Memory)))
        .unwrap_or(EVICTION_MEMORY_MIB * MIB);
    let storage_total = capacity.get(&ResourceName::EphemeralStorage);
    let storage = hard
        .get("nodefs.available")
        .and_then(|text| threshold(text, storage_total))
        .unwrap_or_else(|| ceil_share(storage_total, 100_000));
    Resources::of(0, memory).with(ResourceName::EphemeralStorage, storage)
}

/// A threshold in bytes: a quantity, or a share of `total`, where 100 % switches the signal off.
fn threshold(text: &str, total: i64) -> Option<i64> {
    let Some(percent) = text.strip_suffix('%') else {
        return Quantity::parse(text).ok().map(Quantity::units_ceil);
    };
    // Percent with four decimals as millionths: exact for everything that people write.
    let ppm = Quantity::parse(percent)
        .ok()?
        .millis_ceil()
        .checked_mul(10)?;
    match ppm {
        1_000_000 => Some(0),
        0..1_000_000 => Some(ceil_share(total, ppm)),
        _ => None,
    }
}

fn ceil_share(total: i64, ppm: i64) -> i64 {
    let product = i128::from(total) * i128::from(ppm);
    let share = (product + 999_999) / 1_000_000;
    i64::try_from(share).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use millwright_api::ec2_node_class::{AmiFamily, BlockDevice, NetworkInterface};
    use millwright_ec2_catalogue as catalogue;
    use serde_json::json;

    use super::*;
    use crate::kubelet::KubeletSettings;

    fn shape(family: AmiFamily) -> ClassShape {
        ClassShape {
            family,
            kubelet: KubeletSettings::default(),
            block_devices: Vec::new(),
            raid0: false,
            network_interfaces: Vec::new(),
            connection_tracking: false,
            nested_virtualization: false,
        }
    }

    fn kubelet(value: &serde_json::Value) -> KubeletSettings {
        KubeletSettings::read(value.as_object().expect("an object"))
    }

    fn named(name: &str) -> InstanceTypeFacts {
        catalogue::by_name(name).expect("a known type").into()
    }

    fn allocatable(facts: &InstanceTypeFacts, shape: &ClassShape) -> Resources {
        let mut left = capacity(facts, shape, CapacitySettings::default(), None);
        left.subtract(&overhead(facts, shape, CapacitySettings::default()));
        left
    }

    #[test]
    fn every_documented_allocatable_is_met_exactly() {
        let shape = shape(AmiFamily::AL2023);
        let mut compared = 0;
        for facts in catalogue::facts() {
            let Some(documented) = facts.allocatable else {
                continue;
            };
            let left = allocatable(&facts.into(), &shape);
            let found = (
                left.get(&ResourceName::Cpu).unsigned_abs(),
                left.get(&ResourceName::Memory).unsigned_abs() >> 20,
                left.get(&ResourceName::Pods).unsigned_abs(),
            );
            let expected = (
                documented.cpu_millis,
                documented.memory_mib,
                u64::from(documented.pods),
            );
            assert_eq!(found, expected, "{}", facts.name);
            compared += 1;
        }
        assert_eq!(compared, 1_345);
    }

    #[test]
    fn check_values_of_the_documentation_are_met() {
        let shape = shape(AmiFamily::AL2023);
        let large = allocatable(&named("m5.large"), &shape);
        assert_eq!(large.get(&ResourceName::Cpu), 1_930);
        assert_eq!(large.get(&ResourceName::Memory), 6_903 * MIB);
        assert_eq!(large.get(&ResourceName::Pods), 29);
        assert_eq!(large.get(&ResourceName::EphemeralStorage), 17 * GIB);
        let xlarge = allocatable(&named("m5.xlarge"), &shape);
        assert_eq!(xlarge.get(&ResourceName::Memory), 14_162 * MIB);
    }

    #[test]
    fn pods_follow_the_class_then_the_interfaces() {
        let facts = named("m5.large");
        let settings = CapacitySettings::default();
        for (family, value, expected) in [
            (AmiFamily::AL2023, json!({}), 29),
            (AmiFamily::AL2023, json!({"maxPods": 110}), 110),
            (AmiFamily::AL2023, json!({"podsPerCore": 4}), 8),
            (
                AmiFamily::AL2023,
                json!({"maxPods": 5, "podsPerCore": 4}),
                5,
            ),
            (AmiFamily::Bottlerocket, json!({"podsPerCore": 4}), 29),
            (AmiFamily::Windows2022, json!({}), 110),
            (AmiFamily::Custom, json!({"podsPerCore": 4}), 8),
        ] {
            let shape = ClassShape {
                kubelet: kubelet(&value),
                ..shape(family)
            };
            assert_eq!(
                pods(&facts, &shape, settings),
                expected,
                "{family:?} {value}"
            );
        }
        let reserved = CapacitySettings {
            reserved_enis: 1,
            ..settings
        };
        assert_eq!(pods(&facts, &shape(AmiFamily::AL2023), reserved), 20);
        let all = CapacitySettings {
            reserved_enis: 9,
            ..settings
        };
        assert_eq!(pods(&facts, &shape(AmiFamily::AL2023), all), 0);
    }

    #[test]
    fn an_efa_only_interface_on_the_first_card_costs_addresses() {
        let interface = |card, interface_type| NetworkInterface {
            network_card_index: card,
            device_index: 0,
            interface_type,
        };
        let shape = ClassShape {
            network_interfaces: vec![
                interface(0, InterfaceType::Interface),
                interface(0, InterfaceType::EfaOnly),
                interface(1, InterfaceType::EfaOnly),
            ],
            ..shape(AmiFamily::AL2023)
        };
        let facts = named("m5.large");
        let capacity = capacity(&facts, &shape, CapacitySettings::default(), None);
        assert_eq!(capacity.get(&ResourceName::Pods), 20);
        assert_eq!(capacity.get(&tags::RESOURCE_EFA.into()), 2);
    }

    /// `DEVICE`, `DEVICE=SIZE`, or with a trailing `*` for the root volume.
    fn devices(list: &[&str]) -> Vec<BlockDeviceMapping> {
        list.iter()
            .map(|text| {
                let plain = text.trim_end_matches('*');
                let (name, size) = plain
                    .split_once('=')
                    .map_or((plain, None), |(n, s)| (n, Some(s)));
                BlockDeviceMapping {
                    device_name: Some(name.to_owned()),
                    ebs: size.map(|size| BlockDevice {
                        volume_size: Some(size.to_owned()),
                        ..BlockDevice::default()
                    }),
                    root_volume: plain != *text,
                }
            })
            .collect()
    }

    #[test]
    fn ephemeral_storage_takes_the_first_rule_that_applies() {
        use AmiFamily::{AL2023, Bottlerocket, Custom};
        let disk = named("m5d.large");
        let cases: [(AmiFamily, &[&str], bool, i64); 10] = [
            (AL2023, &[], true, 75_000_000_000),
            (AL2023, &[], false, 20 * GIB),
            (
                AL2023,
                &["/dev/xvda=50Gi", "/dev/xvdb=7Gi*"],
                false,
                7 * GIB,
            ),
            (AL2023, &["/dev/xvda=50Gi"], false, 50 * GIB),
            (AL2023, &["/dev/sdf=50Gi"], false, 20 * GIB),
            (Bottlerocket, &["/dev/xvda=50Gi"], false, 20 * GIB),
            (Bottlerocket, &["/dev/xvdb=1Ti"], false, 1024 * GIB),
            (Custom, &["/dev/a=9Gi", "/dev/b=8G"], false, 8_000_000_000),
            (Custom, &["/dev/a"], false, 20 * GIB),
            (AL2023, &["/dev/xvda*"], false, 20 * GIB),
        ];
        for (family, list, raid0, expected) in cases {
            let shape = ClassShape {
                block_devices: devices(list),
                raid0,
                ..shape(family)
            };
            assert_eq!(
                ephemeral_bytes(&disk, &shape),
                expected,
                "{family:?} {list:?}"
            );
        }
    }

    #[test]
    fn eviction_thresholds_are_quantities_or_shares_and_a_whole_share_means_off() {
        let total = 1_000 * MIB;
        for (text, expected) in [
            ("5%", Some(50 * MIB)),
            ("0.5%", Some(5 * MIB)),
            ("100%", Some(0)),
            ("0%", Some(0)),
            ("500Mi", Some(500 * MIB)),
            ("101%", None),
            ("much", None),
        ] {
            assert_eq!(threshold(text, total), expected, "{text}");
        }
        assert_eq!(threshold("10%", 15), Some(2));
    }

    #[test]
    fn what_the_class_reserves_replaces_kube_reserved_and_adds_system_reserved() {
        let shape = ClassShape {
            kubelet: kubelet(&json!({
                "kubeReserved": {"cpu": "200m", "pid": "100"},
                "systemReserved": {"memory": "1Gi"},
                "evictionHard": {"memory.available": "200Mi", "nodefs.available": "0%"},
            })),
            ..shape(AmiFamily::AL2023)
        };
        let overhead = overhead(&named("m5.large"), &shape, CapacitySettings::default());
        assert_eq!(overhead.get(&ResourceName::Cpu), 200);
        assert_eq!(
            overhead.get(&ResourceName::Memory),
            (574 + 1024 + 200) * MIB
        );
        assert_eq!(overhead.get(&ResourceName::EphemeralStorage), GIB);
        assert_eq!(overhead.find(&"pid".into()), None);
    }

    #[test]
    fn kubelet_memory_follows_interfaces_or_pods_by_family() {
        let facts = named("m5.large");
        let few = kubelet(&json!({"maxPods": 10}));
        for (family, pods) in [
            (AmiFamily::AL2023, 29),
            (AmiFamily::AL2, 29),
            (AmiFamily::Bottlerocket, 10),
            (AmiFamily::Windows2022, 10),
        ] {
            let shape = ClassShape {
                kubelet: few.clone(),
                ..shape(family)
            };
            let reserved = kube_reserved(&facts, &shape, CapacitySettings::default());
            assert_eq!(
                reserved.get(&ResourceName::Memory),
                (11 * pods + 255) * MIB,
                "{family:?}"
            );
        }
    }

    #[test]
    fn accelerators_are_resources_by_maker() {
        let shape = shape(AmiFamily::AL2023);
        for (name, resource, count) in [
            ("p4d.24xlarge", tags::RESOURCE_NVIDIA_GPU, 8),
            ("g4ad.xlarge", tags::RESOURCE_AMD_GPU, 1),
            ("inf2.xlarge", tags::RESOURCE_AWS_NEURON, 1),
            ("inf2.xlarge", tags::RESOURCE_AWS_NEURON_CORE, 2),
            ("m5.large", tags::RESOURCE_NVIDIA_GPU, 0),
        ] {
            let capacity = capacity(&named(name), &shape, CapacitySettings::default(), None);
            assert_eq!(capacity.get(&resource.into()), count, "{name} {resource}");
        }
    }

    #[test]
    fn a_discovered_memory_replaces_the_estimate() {
        let shape = shape(AmiFamily::AL2023);
        let capacity = capacity(
            &named("m5.large"),
            &shape,
            CapacitySettings::default(),
            Some(7_700 * MIB),
        );
        assert_eq!(capacity.get(&ResourceName::Memory), 7_700 * MIB);
    }
}
