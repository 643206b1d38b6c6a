//! The labels that a node of an instance type can carry, as requirements.
//!
//! Source: AWS specification 11. Every well-known key is defined; `DoesNotExist` says that nodes of
//! this type do not carry it, which is what lets "no GPU" match a type without one.

use millwright_api::labels as keys;
use millwright_model::{Name, Operator, Requirement, Requirements};

use crate::{facts::InstanceTypeFacts, family, shape::ClassShape};

/// Keys that are absent unless a value is found below.
const ABSENT_BY_DEFAULT: &[&str] = &[
    keys::INSTANCE_ACCELERATOR_COUNT,
    keys::INSTANCE_ACCELERATOR_MANUFACTURER,
    keys::INSTANCE_ACCELERATOR_NAME,
    keys::INSTANCE_CATEGORY,
    keys::INSTANCE_CPU_MANUFACTURER,
    keys::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
    keys::INSTANCE_EBS_BANDWIDTH,
    keys::INSTANCE_FAMILY,
    keys::INSTANCE_GENERATION,
    keys::INSTANCE_GPU_COUNT,
    keys::INSTANCE_GPU_MANUFACTURER,
    keys::INSTANCE_GPU_MEMORY,
    keys::INSTANCE_GPU_NAME,
    keys::INSTANCE_LOCAL_NVME,
    keys::INSTANCE_NETWORK_BANDWIDTH,
    keys::INSTANCE_SIZE,
    keys::RESERVATION_ID,
    keys::RESERVATION_INTERRUPTIBLE,
    keys::RESERVATION_TYPE,
    keys::WINDOWS_BUILD,
];

/// Collects requirements; a later value replaces an earlier absence.
#[derive(Default)]
struct Labels(Requirements);

impl Labels {
    fn set(&mut self, key: &str, value: impl AsRef<str>) {
        self.values(key, [Name::from(value.as_ref())]);
    }

    fn values(&mut self, key: &str, values: impl IntoIterator<Item = Name>) {
        self.0
            .replace(Requirement::new(&key.into(), Operator::In, values));
    }
}

/// Requirements of the type other than zones, zone ids and capacity types, which follow from its
/// offerings.
#[must_use]
pub(super) fn fixed(facts: &InstanceTypeFacts, shape: &ClassShape, region: &str) -> Requirements {
    let mut labels = Labels::default();
    for key in ABSENT_BY_DEFAULT {
        labels.values(key, []);
    }
    let arch = facts.kubernetes_arch();
    labels.set(keys::INSTANCE_TYPE, &*facts.name);
    labels.set(keys::ARCH, &*arch);
    labels.set(keys::REGION, region);
    match family::windows_build(shape.family) {
        Some(build) => {
            labels.set(keys::WINDOWS_BUILD, build);
            // Windows runs on one architecture; the empty set keeps the others out.
            labels.values(keys::OS, (&*arch == "amd64").then(|| "windows".into()));
        }
        None => labels.set(keys::OS, "linux"),
    }
    by_name(&mut labels, facts);
    by_shape(&mut labels, facts);
    accelerators(&mut labels, facts);
    labels.0
}

fn by_name(labels: &mut Labels, facts: &InstanceTypeFacts) {
    if let Some((category, generation)) = facts.category_and_generation() {
        labels.set(keys::INSTANCE_CATEGORY, category);
        labels.set(keys::INSTANCE_GENERATION, generation);
    }
    if let (Some(family), Some(size)) = (facts.family(), facts.size()) {
        labels.set(keys::INSTANCE_FAMILY, family);
        labels.set(keys::INSTANCE_SIZE, size);
    }
    let family = facts.name.split('.').next().unwrap_or_default();
    labels.set(
        keys::INSTANCE_CAPABILITY_FLEX,
        text(family.contains("-flex")),
    );
}

fn by_shape(labels: &mut Labels, facts: &InstanceTypeFacts) {
    labels.set(keys::INSTANCE_CPU, facts.vcpus.to_string());
    labels.set(keys::INSTANCE_MEMORY, facts.memory_mib.to_string());
    labels.set(keys::INSTANCE_HYPERVISOR, &*facts.hypervisor);
    labels.set(
        keys::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
        text(facts.encryption_in_transit),
    );
    labels.set(keys::NITRO_SANDBOX, text(facts.nitro_enclaves));
    labels.values(
        keys::INSTANCE_TENANCY,
        ["default".into(), "dedicated".into()],
    );
    if let Some(processor) = &facts.processor {
        labels.set(
            keys::INSTANCE_CPU_MANUFACTURER,
            kebab(&processor.manufacturer),
        );
        if let Some(mhz) = processor.sustained_clock_mhz {
            labels.set(
                keys::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
                mhz.to_string(),
            );
        }
    }
    if let Some(gigabytes) = facts
        .instance_store_gb
        .filter(|_| facts.instance_store_nvme)
    {
        labels.set(keys::INSTANCE_LOCAL_NVME, gigabytes.to_string());
    }
    if let Some(mbps) = facts.ebs_bandwidth_mbps {
        labels.set(keys::INSTANCE_EBS_BANDWIDTH, mbps.to_string());
    }
    if let Some(mbps) = facts.network_bandwidth_mbps {
        labels.set(keys::INSTANCE_NETWORK_BANDWIDTH, mbps.to_string());
    }
}

fn accelerators(labels: &mut Labels, facts: &InstanceTypeFacts) {
    if let [gpu] = facts.gpus.as_slice() {
        labels.set(keys::INSTANCE_GPU_NAME, kebab(&gpu.name));
        labels.set(keys::INSTANCE_GPU_MANUFACTURER, kebab(&gpu.manufacturer));
        labels.set(keys::INSTANCE_GPU_COUNT, gpu.count.to_string());
        labels.set(keys::INSTANCE_GPU_MEMORY, gpu.memory_mib.to_string());
    }
    // Inferentia is reported twice, as an inference accelerator and as a Neuron device; the newer
    // description wins.
    let accelerator = match (
        facts.neuron_devices.as_slice(),
        facts.inference_accelerators.as_slice(),
    ) {
        ([device], _) => Some((&device.name, "aws".to_owned(), device.count)),
        ([], [one]) => Some((&one.name, kebab(&one.manufacturer), one.count)),
        _ => None,
    };
    if let Some((name, manufacturer, count)) = accelerator {
        labels.set(keys::INSTANCE_ACCELERATOR_NAME, kebab(name));
        labels.set(keys::INSTANCE_ACCELERATOR_MANUFACTURER, manufacturer);
        labels.set(keys::INSTANCE_ACCELERATOR_COUNT, count.to_string());
    }
}

fn kebab(text: &str) -> String {
    text.to_lowercase().replace(' ', "-")
}

const fn text(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}
