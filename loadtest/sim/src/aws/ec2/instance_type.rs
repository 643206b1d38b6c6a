//! Instance types and where they are offered.

use millwright_ec2_catalogue::{
    Architecture, CpuManufacturer, Hypervisor, TypeFacts, by_name, facts,
};

use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::network::Zone;
use super::super::page::Limits;
use super::super::tags::Tags;
use super::super::xml::Xml;
use super::{Call, PAGE};

impl Filterable for TypeFacts {
    const NAMES: &'static [&'static str] = &[
        "instance-type",
        "supported-virtualization-type",
        "processor-info.supported-architecture",
        "current-generation",
        "bare-metal",
        "hypervisor",
        "burstable-performance-supported",
        "supported-usage-class",
        "vcpu-info.default-vcpus",
        "memory-info.size-in-mib",
        "instance-storage-supported",
        "network-info.efa-supported",
        "network-info.maximum-network-interfaces",
    ];

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        let mut flag = |value: bool| test(if value { "true" } else { "false" });
        match name {
            "current-generation" => flag(self.current_generation),
            "bare-metal" => flag(self.bare_metal),
            "burstable-performance-supported" => flag(self.burstable),
            "instance-storage-supported" => flag(self.nvme_gb > 0),
            "network-info.efa-supported" => flag(self.max_efa() > 0),
            "instance-type" => test(self.name),
            "supported-virtualization-type" => test("hvm"),
            "processor-info.supported-architecture" => test(architecture(self)),
            "hypervisor" => self.hypervisor.is_some_and(|h| test(hypervisor(h))),
            "supported-usage-class" => test("on-demand") || self.spot_supported && test("spot"),
            "vcpu-info.default-vcpus" => test(&self.vcpu.to_string()),
            "memory-info.size-in-mib" => test(&self.memory_mib.to_string()),
            "network-info.maximum-network-interfaces" => test(&self.max_eni.to_string()),
            _ => false,
        }
    }
}

/// EC2's word for an architecture.
pub(super) fn architecture(facts: &TypeFacts) -> &'static str {
    match facts.architecture {
        Architecture::Amd64 => "x86_64",
        Architecture::Arm64 => "arm64",
    }
}

fn hypervisor(hypervisor: Hypervisor) -> &'static str {
    match hypervisor {
        Hypervisor::Nitro => "nitro",
        Hypervisor::Xen => "xen",
    }
}

/// The types that some zone of the region offers.
fn offered(zones: &[Zone]) -> impl Iterator<Item = &'static TypeFacts> {
    facts()
        .iter()
        .filter(|facts| zones.iter().any(|zone| facts.zones.contains(zone.letter)))
}

pub(super) fn describe(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<TypeFacts>(call.params, false)?;
    let page = call.page(
        "DescribeInstanceTypes",
        Limits {
            min: 5,
            max: 100,
            default: 100,
        },
    )?;
    let names = call.params.texts("InstanceType");
    let zones = call.world().network.zones.clone();
    let unknown: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| by_name(name).is_none())
        .collect();
    if !unknown.is_empty() {
        return Err(ApiError::new(
            "InvalidInstanceType",
            format!(
                "The following supplied instance types do not exist: [{}]",
                unknown.join(", ")
            ),
        ));
    }
    call.rehearse()?;
    let found = offered(&zones)
        .filter(|facts| names.is_empty() || names.contains(&facts.name))
        .filter(|facts| filters.accept(*facts));
    let (types, token) = page.of_list(found);
    Ok(call.reply(|xml| {
        xml.list("instanceTypeSet", types, write);
        xml.optional("nextToken", token.as_deref());
    }))
}

fn write(xml: &mut Xml, facts: &TypeFacts) {
    xml.text("instanceType", facts.name);
    xml.value("currentGeneration", facts.current_generation);
    xml.value(
        "freeTierEligible",
        matches!(facts.name, "t2.micro" | "t3.micro"),
    );
    let classes: &[&str] = if facts.spot_supported {
        &["on-demand", "spot"]
    } else {
        &["on-demand"]
    };
    xml.texts("supportedUsageClasses", classes.iter().copied());
    xml.texts("supportedRootDeviceTypes", ["ebs"]);
    xml.texts("supportedVirtualizationTypes", ["hvm"]);
    xml.value("bareMetal", facts.bare_metal);
    xml.optional("hypervisor", facts.hypervisor.map(hypervisor));
    write_processor(xml, facts);
    xml.element("memoryInfo", |xml| xml.value("sizeInMiB", facts.memory_mib));
    write_storage(xml, facts);
    write_network(xml, facts);
    write_accelerators(xml, facts);
    xml.element("placementGroupInfo", |xml| {
        let strategies: &[&str] = if facts.burstable {
            &["partition", "spread"]
        } else {
            &["cluster", "partition", "spread"]
        };
        xml.texts("supportedStrategies", strategies.iter().copied());
    });
    xml.value("hibernationSupported", false);
    xml.value("burstablePerformanceSupported", facts.burstable);
    xml.value("dedicatedHostsSupported", !facts.burstable);
    xml.value(
        "autoRecoverySupported",
        !facts.bare_metal && facts.nvme_gb == 0,
    );
    xml.texts("supportedBootModes", ["uefi"]);
    let enclaves = if facts.supports_enclaves() {
        "supported"
    } else {
        "unsupported"
    };
    xml.text("nitroEnclavesSupport", enclaves);
}

fn write_processor(xml: &mut Xml, facts: &TypeFacts) {
    let manufacturer = match facts.cpu_manufacturer() {
        CpuManufacturer::Amd => "AMD",
        CpuManufacturer::Aws => "AWS",
        CpuManufacturer::Intel => "Intel",
    };
    xml.element("processorInfo", |xml| {
        xml.texts("supportedArchitectures", [architecture(facts)]);
        // The table has no clock speeds; this is a usual one for each make.
        let clock = if manufacturer == "AWS" { "2.6" } else { "3.1" };
        xml.text("sustainedClockSpeedInGhz", clock);
        xml.text("manufacturer", manufacturer);
    });
    // Graviton, and AMD from generation 7 on, have one thread to a core.
    let single = manufacturer == "AWS" || manufacturer == "AMD" && facts.generation() >= 7;
    let threads = if single || facts.vcpu == 1 { 1 } else { 2 };
    xml.element("vCpuInfo", |xml| {
        xml.value("defaultVCpus", facts.vcpu);
        xml.value("defaultCores", facts.vcpu / threads);
        xml.value("defaultThreadsPerCore", threads);
    });
}

fn write_storage(xml: &mut Xml, facts: &TypeFacts) {
    xml.value("instanceStorageSupported", facts.nvme_gb > 0);
    if facts.nvme_gb > 0 {
        xml.element("instanceStorageInfo", |xml| {
            xml.value("totalSizeInGB", facts.nvme_gb);
            xml.list("disks", [facts.nvme_gb], |xml, size| {
                xml.value("sizeInGB", size);
                xml.value("count", 1);
                xml.text("type", "ssd");
            });
            let nvme = if facts.hypervisor == Some(Hypervisor::Xen) {
                "unsupported"
            } else {
                "required"
            };
            xml.text("nvmeSupport", nvme);
            xml.text(
                "encryptionSupport",
                if nvme == "required" {
                    "required"
                } else {
                    "unsupported"
                },
            );
        });
    }
    xml.element("ebsInfo", |xml| {
        let optimized = if facts.ebs_mbps.is_some() {
            "default"
        } else {
            "unsupported"
        };
        xml.text("ebsOptimizedSupport", optimized);
        xml.text("encryptionSupport", "supported");
        if let Some(maximum) = facts.ebs_mbps {
            let baseline = facts.ebs_baseline_mbps.unwrap_or(maximum);
            xml.element("ebsOptimizedInfo", |xml| {
                xml.value("baselineBandwidthInMbps", baseline);
                xml.value("maximumBandwidthInMbps", maximum);
            });
        }
        let xen = facts.hypervisor == Some(Hypervisor::Xen);
        xml.text("nvmeSupport", if xen { "unsupported" } else { "required" });
    });
}

fn write_network(xml: &mut Xml, facts: &TypeFacts) {
    // One adapter to a card where there are several; otherwise everything is on one card.
    let cards = facts.max_efa().max(1);
    let performance = match facts.network_mbps {
        Some(mbps) if mbps >= 1_000 => format!("{} Gigabit", mbps / 1_000),
        Some(_) => "Up to 1 Gigabit".to_owned(),
        None => "Moderate".to_owned(),
    };
    xml.element("networkInfo", |xml| {
        xml.text("networkPerformance", &performance);
        xml.value("maximumNetworkInterfaces", facts.max_eni);
        xml.value("maximumNetworkCards", cards);
        xml.value("defaultNetworkCardIndex", 0);
        xml.list("networkCards", 0..cards, |xml, card| {
            xml.value("networkCardIndex", card);
            xml.text("networkPerformance", &performance);
            xml.value("maximumNetworkInterfaces", (facts.max_eni / cards).max(1));
            if let Some(mbps) = facts.network_mbps {
                let per_card = mbps / u64::from(cards);
                let gbps = format!("{}.{:03}", per_card / 1_000, per_card % 1_000);
                xml.text("baselineBandwidthInGbps", &gbps);
                xml.text("peakBandwidthInGbps", &gbps);
            }
        });
        xml.value("ipv4AddressesPerInterface", facts.ipv4_per_eni);
        xml.value("ipv6AddressesPerInterface", facts.ipv4_per_eni);
        xml.value("ipv6Supported", true);
        let xen = facts.hypervisor == Some(Hypervisor::Xen);
        xml.text("enaSupport", if xen { "supported" } else { "required" });
        xml.value("efaSupported", facts.max_efa() > 0);
        if facts.max_efa() > 0 {
            xml.element("efaInfo", |xml| {
                xml.value("maximumEfaInterfaces", facts.max_efa());
            });
        }
        xml.value("encryptionInTransitSupported", facts.encrypts_in_transit());
    });
}

fn write_accelerators(xml: &mut Xml, facts: &TypeFacts) {
    if let Some(gpu) = facts.gpu {
        let manufacturer = match gpu.name {
            name if name.starts_with("gaudi") => "Habana",
            name if name.starts_with("radeon") => "AMD",
            name if name.starts_with("qualcomm") => "Qualcomm",
            _ => "NVIDIA",
        };
        let memory_mib = gpu.memory_mib.unwrap_or(0);
        xml.element("gpuInfo", |xml| {
            xml.list("gpus", [gpu], |xml, gpu| {
                xml.text("name", &gpu.name.to_uppercase().replace('-', " "));
                xml.text("manufacturer", manufacturer);
                xml.value("count", gpu.count);
                xml.element("memoryInfo", |xml| xml.value("sizeInMiB", memory_mib));
            });
            xml.value("totalGpuMemoryInMiB", memory_mib * u64::from(gpu.count));
        });
    }
    if let Some(accelerator) = facts.accelerator {
        let mut name = accelerator.name.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        xml.element("neuronInfo", |xml| {
            xml.list("neuronDevices", [accelerator], |xml, device| {
                xml.value("count", device.count);
                xml.text("name", &name);
            });
        });
    }
}

/// A type in a location.
struct Offering {
    facts: &'static TypeFacts,
    location: String,
}

impl Filterable for Offering {
    const NAMES: &'static [&'static str] = &["instance-type", "location"];

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        test(if name == "location" {
            &self.location
        } else {
            self.facts.name
        })
    }
}

pub(super) fn describe_offerings(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Offering>(call.params, false)?;
    let page = call.page("DescribeInstanceTypeOfferings", PAGE)?;
    let kind = call.params.text("LocationType").unwrap_or("region");
    let (zones, region) = {
        let world = call.world();
        (world.network.zones.clone(), world.config.region.clone())
    };
    let location = |zone: &Zone| match kind {
        "availability-zone" => Ok(zone.name.to_string()),
        "availability-zone-id" => Ok(zone.id.to_string()),
        other => Err(ApiError::value(format!("Invalid location type: {other}"))),
    };
    let mut offerings = Vec::new();
    for facts in offered(&zones) {
        if kind == "region" {
            offerings.push(Offering {
                facts,
                location: region.clone(),
            });
            continue;
        }
        for zone in zones
            .iter()
            .filter(|zone| facts.zones.contains(zone.letter))
        {
            offerings.push(Offering {
                facts,
                location: location(zone)?,
            });
        }
    }
    call.rehearse()?;
    let (found, token) = page.of_list(
        offerings
            .into_iter()
            .filter(|offering| filters.accept(offering)),
    );
    Ok(call.reply(|xml| {
        xml.list("instanceTypeOfferingSet", found, |xml, offering| {
            xml.text("instanceType", offering.facts.name);
            xml.text("locationType", kind);
            xml.text("location", &offering.location);
        });
        xml.optional("nextToken", token.as_deref());
    }))
}
