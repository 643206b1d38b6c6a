use millwright_api::ec2_node_class::{AmiFamily, InterfaceType, NetworkInterface};
use millwright_ec2_catalogue as catalogue;
use millwright_model::{CapacityType, NanoDollarsPerHour, Timestamp, labels::WELL_KNOWN};

use super::*;
use crate::{
    facts::ProcessorFacts, kubelet::KubeletSettings, pricing::Prices, shape::ClassZone,
    unavailable::UnavailableOfferings,
};

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

fn regional(name: &str, zones: &[&str]) -> RegionalType {
    let facts = catalogue::by_name(name).expect("a known type").into();
    RegionalType {
        facts,
        zones: zones.iter().map(|zone| Name::from(*zone)).collect(),
    }
}

fn class_zones(zones: &[&str]) -> Vec<ClassZone> {
    zones
        .iter()
        .map(|zone| ClassZone {
            zone: (*zone).into(),
            zone_id: Some(format!("use1-az{}", &zone[zone.len() - 1..]).into()),
        })
        .collect()
}

/// One type in a class with subnets in zones a and b.
fn build(
    regional: RegionalType,
    shape: &ClassShape,
    unavailable: &UnavailableOfferings,
) -> InstanceType {
    let prices = Prices::of_catalogue();
    let zones = class_zones(&["us-east-1a", "us-east-1b"]);
    let market = Market {
        region: "us-east-1",
        class_zones: &zones,
        prices: &prices,
        unavailable,
        now: Timestamp(0),
    };
    let basis = Basis {
        types: &[regional],
        shape,
        settings: CapacitySettings::default(),
        discovered: &DiscoveredMemory::new(),
    };
    let list = instance_types(basis, market);
    (*list[0]).clone()
}

fn values(instance_type: &InstanceType, key: &str) -> Option<Vec<String>> {
    let requirement = instance_type.requirements.get(key)?;
    Some(
        requirement
            .values()
            .iter()
            .map(|value| value.to_string())
            .collect(),
    )
}

#[test]
fn labels_of_an_ordinary_type_are_those_of_the_specification() {
    let m5 = build(
        regional("m5.large", &["us-east-1a", "us-east-1c"]),
        &shape(AmiFamily::AL2023),
        &UnavailableOfferings::default(),
    );
    for (key, expected) in [
        (keys::INSTANCE_TYPE, vec!["m5.large"]),
        (keys::ARCH, vec!["amd64"]),
        (keys::OS, vec!["linux"]),
        (keys::REGION, vec!["us-east-1"]),
        // Sold in a and c, subnets in a and b.
        (keys::ZONE, vec!["us-east-1a"]),
        (keys::ZONE_ID, vec!["use1-aza"]),
        (keys::CAPACITY_TYPE, vec!["on-demand", "spot"]),
        (keys::INSTANCE_CATEGORY, vec!["m"]),
        (keys::INSTANCE_FAMILY, vec!["m5"]),
        (keys::INSTANCE_GENERATION, vec!["5"]),
        (keys::INSTANCE_SIZE, vec!["large"]),
        (keys::INSTANCE_CPU, vec!["2"]),
        (keys::INSTANCE_MEMORY, vec!["8192"]),
        (keys::INSTANCE_HYPERVISOR, vec!["nitro"]),
        (keys::INSTANCE_CPU_MANUFACTURER, vec!["intel"]),
        (keys::INSTANCE_NETWORK_BANDWIDTH, vec!["750"]),
        (keys::INSTANCE_TENANCY, vec!["dedicated", "default"]),
        (keys::INSTANCE_CAPABILITY_FLEX, vec!["false"]),
        (keys::INSTANCE_GPU_COUNT, vec![]),
        (keys::INSTANCE_ACCELERATOR_COUNT, vec![]),
        (keys::INSTANCE_LOCAL_NVME, vec![]),
        (keys::WINDOWS_BUILD, vec![]),
        (keys::RESERVATION_ID, vec![]),
    ] {
        let found = values(&m5, key).unwrap_or_else(|| panic!("{key} is defined"));
        assert_eq!(found, expected, "{key}");
    }
}

#[test]
fn every_well_known_key_is_defined_but_those_that_others_set() {
    let m5 = build(
        regional("m5.large", &["us-east-1a"]),
        &shape(AmiFamily::AL2023),
        &UnavailableOfferings::default(),
    );
    // NodePool and class are the claim's own; a placement group is added by the class.
    let elsewhere = [
        keys::NODE_POOL,
        keys::EC2_NODE_CLASS,
        keys::PLACEMENT_GROUP_ID,
        keys::PLACEMENT_GROUP_PARTITION,
    ];
    for key in WELL_KNOWN.iter().filter(|key| !elsewhere.contains(key)) {
        assert!(m5.requirements.get(key).is_some(), "{key}");
    }
}

#[test]
fn accelerated_types_carry_their_devices_labels() {
    let none = UnavailableOfferings::default();
    let gpu = build(
        regional("p4d.24xlarge", &["us-east-1a"]),
        &shape(AmiFamily::AL2023),
        &none,
    );
    assert_eq!(
        values(&gpu, keys::INSTANCE_GPU_NAME),
        Some(vec!["a100".into()])
    );
    assert_eq!(
        values(&gpu, keys::INSTANCE_GPU_COUNT),
        Some(vec!["8".into()])
    );
    let neuron = build(
        regional("inf2.xlarge", &["us-east-1a"]),
        &shape(AmiFamily::AL2023),
        &none,
    );
    assert_eq!(
        values(&neuron, keys::INSTANCE_ACCELERATOR_MANUFACTURER),
        Some(vec!["aws".into()])
    );
    assert_eq!(values(&neuron, keys::INSTANCE_GPU_COUNT), Some(vec![]));
}

#[test]
fn windows_runs_on_one_architecture() {
    let none = UnavailableOfferings::default();
    let windows = shape(AmiFamily::Windows2022);
    let intel = build(regional("m5.large", &["us-east-1a"]), &windows, &none);
    assert_eq!(values(&intel, keys::OS), Some(vec!["windows".into()]));
    assert_eq!(
        values(&intel, keys::WINDOWS_BUILD),
        Some(vec!["10.0.20348".into()])
    );
    let arm = build(regional("m6g.large", &["us-east-1a"]), &windows, &none);
    assert_eq!(values(&arm, keys::OS), Some(vec![]));
}

#[test]
fn an_offering_is_available_where_it_has_subnet_price_and_no_recent_failure() {
    let mut unavailable = UnavailableOfferings::default();
    unavailable.mark("m5.large", "us-east-1b", CapacityType::Spot, Timestamp(0));
    let m5 = build(
        regional("m5.large", &["us-east-1a", "us-east-1b", "us-east-1c"]),
        &shape(AmiFamily::AL2023),
        &unavailable,
    );
    let found: Vec<_> = m5
        .offerings
        .iter()
        .map(|o| (&*o.zone, o.capacity_type, o.available))
        .collect();
    assert_eq!(
        found,
        [
            ("us-east-1a", CapacityType::Spot, true),
            ("us-east-1a", CapacityType::OnDemand, true),
            ("us-east-1b", CapacityType::Spot, false),
            ("us-east-1b", CapacityType::OnDemand, true),
            ("us-east-1c", CapacityType::Spot, false),
            ("us-east-1c", CapacityType::OnDemand, false),
        ]
    );
    assert!(
        m5.offerings
            .iter()
            .all(|o| o.price == NanoDollarsPerHour(96_000_000))
    );
}

#[test]
fn a_type_without_a_price_cannot_be_launched() {
    let mut unpriced = regional("m5.large", &["us-east-1a"]);
    unpriced.facts.name = "zz9.large".into();
    let built = build(
        unpriced,
        &shape(AmiFamily::AL2023),
        &UnavailableOfferings::default(),
    );
    assert!(!built.offerings.is_empty());
    assert!(built.offerings.iter().all(|offering| !offering.available));
}

#[test]
fn a_class_rules_types_out_that_cannot_do_what_it_asks() {
    let m5 = regional("m5.large", &[]).facts;
    let old = regional("m4.large", &[]).facts;
    let a1 = regional("a1.large", &[]).facts;
    let plain = shape(AmiFamily::AL2023);
    assert!(is_compatible(&m5, &plain));
    assert!(!is_compatible(&a1, &plain));
    assert!(is_compatible(&a1, &shape(AmiFamily::AL2)));
    let tracking = ClassShape {
        connection_tracking: true,
        ..plain.clone()
    };
    assert!(is_compatible(&m5, &tracking) && !is_compatible(&old, &tracking));
    let nested = ClassShape {
        nested_virtualization: true,
        ..plain.clone()
    };
    assert!(!is_compatible(&m5, &nested));
    let feature = InstanceTypeFacts {
        processor: Some(ProcessorFacts {
            features: vec!["nested-virtualization".into()],
            ..ProcessorFacts::default()
        }),
        ..m5.clone()
    };
    assert!(is_compatible(&feature, &nested));
    for (card, device, interface_type, fits) in [
        (0, 0, InterfaceType::Interface, true),
        (0, 2, InterfaceType::Interface, true),
        (0, 3, InterfaceType::Interface, false),
        (1, 0, InterfaceType::Interface, false),
        (0, 0, InterfaceType::EfaOnly, false),
    ] {
        let with = ClassShape {
            network_interfaces: vec![NetworkInterface {
                network_card_index: card,
                device_index: device,
                interface_type,
            }],
            ..plain.clone()
        };
        assert_eq!(
            is_compatible(&m5, &with),
            fits,
            "{card} {device} {interface_type:?}"
        );
    }
}
