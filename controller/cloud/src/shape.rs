//! What a class decides about instance types, read from its spec once.

use millwright_api::{
    Ec2NodeClass,
    ec2_node_class::{AmiFamily, BlockDeviceMapping, NetworkInterface},
};
use millwright_model::Name;
use serde_json::Map;

use crate::kubelet::KubeletSettings;

/// The part of a class that instance types depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassShape {
    /// Resolved family.
    pub family: AmiFamily,
    /// Typed view of the kubelet settings.
    pub kubelet: KubeletSettings,
    /// Block devices as the class names them, possibly none.
    pub block_devices: Vec<BlockDeviceMapping>,
    /// The instance store backs ephemeral storage.
    pub raid0: bool,
    /// Network interfaces as the class names them, possibly none.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Connection tracking is set, which needs the Nitro hypervisor.
    pub connection_tracking: bool,
    /// Virtual machines shall run inside.
    pub nested_virtualization: bool,
}

impl From<&Ec2NodeClass> for ClassShape {
    fn from(class: &Ec2NodeClass) -> Self {
        let spec = &class.spec;
        let empty = Map::new();
        let raw = spec.kubelet.as_ref().map_or(&empty, |kubelet| &kubelet.0);
        Self {
            family: spec.resolved_ami_family(),
            kubelet: KubeletSettings::read(raw),
            block_devices: spec.block_device_mappings.clone(),
            raid0: spec.instance_store_policy.is_some(),
            network_interfaces: spec.network_interfaces.clone(),
            connection_tracking: spec.connection_tracking.is_some(),
            nested_virtualization: spec
                .cpu_options
                .as_ref()
                .and_then(|options| options.nested_virtualization.as_deref())
                == Some("enabled"),
        }
    }
}

/// Name of a class; empty for one that no API server has seen.
#[must_use]
pub fn name_of(class: &Ec2NodeClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

/// Uid of a class; empty for one that no API server has seen.
#[must_use]
pub fn uid_of(class: &Ec2NodeClass) -> &str {
    class.metadata.uid.as_deref().unwrap_or_default()
}

/// A zone that the class can launch into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassZone {
    /// Name, the value of `topology.kubernetes.io/zone`.
    pub zone: Name,
    /// Id, the same in every account, where it is known.
    pub zone_id: Option<Name>,
}

/// The zones of a class's resolved subnets, sorted, without duplicates.
#[must_use]
pub fn zones_of(class: &Ec2NodeClass) -> Vec<ClassZone> {
    let subnets = class
        .status
        .as_ref()
        .map(|status| status.subnets.as_slice());
    let mut zones: Vec<ClassZone> = subnets
        .unwrap_or_default()
        .iter()
        .map(|subnet| ClassZone {
            zone: subnet.zone.as_str().into(),
            zone_id: (!subnet.zone_id.is_empty()).then(|| subnet.zone_id.as_str().into()),
        })
        .collect();
    zones.sort_unstable();
    zones.dedup_by(|later, first| later.zone == first.zone);
    zones
}
