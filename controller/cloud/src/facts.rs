//! What EC2 says about an instance type, as policy reads it.
//!
//! The AWS adapter fills this from `DescribeInstanceTypes`; `millwright plan` fills it from the
//! embedded catalogue. Names keep EC2's spelling here; labels translate it.

use millwright_ec2_catalogue::{Architecture, CpuManufacturer, Hypervisor, TypeFacts};
use millwright_model::Name;

/// One instance type of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceTypeFacts {
    /// `m5.large`; unique in a region.
    pub name: Name,
    /// Architectures in EC2's words and order (`x86_64`, `arm64`); the first decides.
    pub architectures: Vec<Name>,
    /// Virtual processors by default.
    pub vcpus: u32,
    /// Memory in MiB, before any overhead.
    pub memory_mib: u64,
    /// Sold on demand.
    pub on_demand: bool,
    /// Sold as Spot.
    pub spot: bool,
    /// `nitro`, `xen`, or empty for bare metal.
    pub hypervisor: Name,
    /// The processor, where EC2 describes it.
    pub processor: Option<ProcessorFacts>,
    /// Traffic between instances is encrypted.
    pub encryption_in_transit: bool,
    /// Nitro Enclaves are supported.
    pub nitro_enclaves: bool,
    /// Groups of equal GPUs; most types have none or one group.
    pub gpus: Vec<GpuFacts>,
    /// Accelerators of the first Inferentia generation, as EC2 reports them.
    pub inference_accelerators: Vec<AcceleratorFacts>,
    /// Neuron devices.
    pub neuron_devices: Vec<NeuronFacts>,
    /// Instance store in GB (10^9 bytes), if there is one.
    pub instance_store_gb: Option<u64>,
    /// The instance store is reachable as NVMe.
    pub instance_store_nvme: bool,
    /// Maximum EBS bandwidth in Mbit/s of a type that is EBS-optimised by default.
    pub ebs_bandwidth_mbps: Option<u64>,
    /// Baseline network bandwidth in Mbit/s.
    pub network_bandwidth_mbps: Option<u64>,
    /// Network interfaces that each network card takes, indexed by card.
    pub network_cards: Vec<u32>,
    /// Which of the cards is the default one.
    pub default_network_card: usize,
    /// IPv4 addresses of one interface.
    pub ipv4_per_interface: u32,
    /// Elastic Fabric Adapter interfaces at most.
    pub max_efa: u32,
    /// Enhanced networking is supported.
    pub ena: bool,
    /// Interfaces for pods that the VPC resource controller can attach; 0 without trunking.
    pub branch_interfaces: u32,
    /// Placement strategies that the type supports (`cluster`, `partition`, `spread`).
    pub placement_strategies: Vec<Name>,
}

/// The processor of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorFacts {
    /// `Intel`, `AMD`, `AWS`.
    pub manufacturer: Name,
    /// Sustained clock speed in MHz, where EC2 gives one.
    pub sustained_clock_mhz: Option<u64>,
    /// Feature names such as `nested-virtualization`.
    pub features: Vec<Name>,
}

/// A group of equal GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// Model.
    pub name: Name,
    /// `NVIDIA`, `AMD`, `Habana`.
    pub manufacturer: Name,
    /// Whole GPUs; 0 for types with a fraction of one.
    pub count: u32,
    /// Memory of one GPU in MiB; 0 where it is not known.
    pub memory_mib: u64,
}

/// A group of equal inference accelerators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceleratorFacts {
    /// Model.
    pub name: Name,
    /// Maker.
    pub manufacturer: Name,
    /// Devices.
    pub count: u32,
}

/// A group of equal Neuron devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeuronFacts {
    /// Model.
    pub name: Name,
    /// Devices.
    pub count: u32,
    /// Cores of one device.
    pub cores: u32,
}

impl InstanceTypeFacts {
    /// The value of the label `kubernetes.io/arch`; EC2's own word where it has no translation.
    #[must_use]
    pub fn kubernetes_arch(&self) -> Name {
        self.architectures
            .iter()
            .find_map(|name| kubernetes_arch(name))
            .map_or_else(|| self.architectures.join(",").into(), Name::from)
    }

    /// Whether the first architecture is Arm, which reserves memory for contiguous allocation.
    #[must_use]
    pub fn is_arm(&self) -> bool {
        self.architectures
            .first()
            .is_some_and(|name| &**name == "arm64")
    }

    /// The part of the name before the only dot.
    #[must_use]
    pub fn family(&self) -> Option<&str> {
        self.halves().map(|(family, _)| family)
    }

    /// The part of the name after the only dot.
    #[must_use]
    pub fn size(&self) -> Option<&str> {
        self.halves().map(|(_, size)| size)
    }

    fn halves(&self) -> Option<(&str, &str)> {
        self.name
            .split_once('.')
            .filter(|(_, size)| !size.contains('.'))
    }

    /// Category and generation by the naming scheme: leading letters, an optional memory size
    /// as in `u-6tb1`, and the first digits after them.
    #[must_use]
    pub fn category_and_generation(&self) -> Option<(&str, &str)> {
        let name: &str = &self.name;
        let letters = name.find(|c: char| !c.is_ascii_lowercase())?;
        let (category, rest) = name
            .split_at_checked(letters)
            .filter(|(c, _)| !c.is_empty())?;
        let rest = skip_memory_size(rest);
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let generation = rest.get(..digits).filter(|digits| !digits.is_empty())?;
        rest.contains('.').then_some((category, generation))
    }

    /// Interfaces that the default network card takes.
    #[must_use]
    pub fn default_card_interfaces(&self) -> u32 {
        self.network_cards
            .get(self.default_network_card)
            .copied()
            .unwrap_or(0)
    }
}

/// `-6tb1.metal` without its `-6tb`; anything else unchanged.
fn skip_memory_size(rest: &str) -> &str {
    rest.strip_prefix('-')
        .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        .and_then(|rest| rest.strip_prefix("tb"))
        .unwrap_or(rest)
}

/// Kubernetes' word for an architecture of EC2.
#[must_use]
pub fn kubernetes_arch(ec2: &str) -> Option<&'static str> {
    match ec2 {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    }
}

impl From<&TypeFacts> for InstanceTypeFacts {
    fn from(facts: &TypeFacts) -> Self {
        let manufacturer = match facts.cpu_manufacturer() {
            CpuManufacturer::Amd => "AMD",
            CpuManufacturer::Aws => "AWS",
            CpuManufacturer::Intel => "Intel",
        };
        let hypervisor = match facts.hypervisor {
            Some(Hypervisor::Nitro) => "nitro",
            Some(Hypervisor::Xen) => "xen",
            None => "",
        };
        let neuron = facts.accelerator.iter().map(|accelerator| NeuronFacts {
            name: accelerator.name.into(),
            count: accelerator.count,
            cores: cores_of_neuron_device(accelerator.name),
        });
        let gpu = facts.gpu.iter().map(|gpu| GpuFacts {
            name: gpu.name.into(),
            manufacturer: gpu_manufacturer(facts.family(), gpu.name).into(),
            count: gpu.count,
            memory_mib: gpu.memory_mib.unwrap_or(0),
        });
        Self {
            name: facts.name.into(),
            architectures: vec![
                match facts.architecture {
                    Architecture::Amd64 => "x86_64",
                    Architecture::Arm64 => "arm64",
                }
                .into(),
            ],
            vcpus: facts.vcpu,
            memory_mib: facts.memory_mib,
            on_demand: true,
            spot: facts.spot_supported,
            hypervisor: hypervisor.into(),
            processor: Some(ProcessorFacts {
                manufacturer: manufacturer.into(),
                sustained_clock_mhz: None,
                features: Vec::new(),
            }),
            encryption_in_transit: facts.encrypts_in_transit(),
            nitro_enclaves: facts.supports_enclaves(),
            gpus: gpu.collect(),
            inference_accelerators: Vec::new(),
            neuron_devices: neuron.collect(),
            instance_store_gb: (facts.nvme_gb > 0).then_some(facts.nvme_gb),
            instance_store_nvme: facts.nvme_gb > 0,
            ebs_bandwidth_mbps: facts.ebs_mbps,
            network_bandwidth_mbps: facts.network_mbps,
            network_cards: vec![default_card_interfaces(facts)],
            default_network_card: 0,
            ipv4_per_interface: facts.ipv4_per_eni,
            max_efa: facts.max_efa(),
            ena: facts.hypervisor != Some(Hypervisor::Xen),
            branch_interfaces: 0,
            placement_strategies: Vec::new(),
        }
    }
}

/// The catalogue counts the interfaces of all network cards together. Only the default card's
/// count for pods; the documented number of pods tells how many those are.
fn default_card_interfaces(facts: &TypeFacts) -> u32 {
    let per_interface = facts.ipv4_per_eni.saturating_sub(1);
    facts
        .allocatable
        .and_then(|documented| documented.pods.checked_sub(2)?.checked_div(per_interface))
        .filter(|interfaces| *interfaces > 0)
        .map_or(facts.max_eni, |interfaces| interfaces.min(facts.max_eni))
}

/// Source: AWS Neuron documentation, "Architecture": Inferentia has four cores, the later two.
fn cores_of_neuron_device(name: &str) -> u32 {
    if name == "inferentia" { 4 } else { 2 }
}

fn gpu_manufacturer(family: &str, gpu: &str) -> &'static str {
    if gpu.starts_with("gaudi") {
        "Habana"
    } else if family == "g4ad" {
        "AMD"
    } else {
        "NVIDIA"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_and_generation_follow_the_naming_scheme() {
        for (name, expected) in [
            ("m5.large", Some(("m", "5"))),
            ("c7i-flex.large", Some(("c", "7"))),
            ("inf2.xlarge", Some(("inf", "2"))),
            ("hpc6a.48xlarge", Some(("hpc", "6"))),
            ("u-6tb1.metal", Some(("u", "1"))),
            ("u7i-12tb.224xlarge", Some(("u", "7"))),
            ("x2gd.medium", Some(("x", "2"))),
            ("mac.metal", None),
            ("m5", None),
        ] {
            let facts = InstanceTypeFacts {
                name: name.into(),
                ..InstanceTypeFacts::default()
            };
            assert_eq!(facts.category_and_generation(), expected, "{name}");
        }
    }

    #[test]
    fn family_and_size_need_exactly_one_dot() {
        let named = |name: &str| InstanceTypeFacts {
            name: name.into(),
            ..Default::default()
        };
        assert_eq!(named("m5.large").family(), Some("m5"));
        assert_eq!(named("m5.metal-24xl").size(), Some("metal-24xl"));
        assert_eq!(named("a.b.c").family(), None);
        assert_eq!(named("weird").size(), None);
    }

    #[test]
    fn only_types_with_several_network_cards_have_fewer_interfaces_on_the_default_card() {
        let mut several = std::collections::BTreeSet::new();
        for facts in millwright_ec2_catalogue::facts() {
            if InstanceTypeFacts::from(facts).default_card_interfaces() != facts.max_eni {
                several.insert(facts.family());
            }
        }
        assert!(
            several.contains("p4d") && several.contains("trn1"),
            "{several:?}"
        );
        assert!(
            !several.contains("m5") && !several.contains("c7g"),
            "{several:?}"
        );
    }

    #[test]
    fn an_architecture_without_translation_keeps_its_own_words() {
        let with = |list: &[&str]| InstanceTypeFacts {
            architectures: list.iter().map(|name| Name::from(*name)).collect(),
            ..Default::default()
        };
        assert_eq!(&*with(&["i386", "x86_64"]).kubernetes_arch(), "amd64");
        assert_eq!(&*with(&["arm64"]).kubernetes_arch(), "arm64");
        assert_eq!(&*with(&["arm64_mac"]).kubernetes_arch(), "arm64_mac");
    }
}
