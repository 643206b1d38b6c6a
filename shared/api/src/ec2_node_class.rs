//! EC2NodeClass: how nodes are made on AWS.
//!
//! Values that only pass through to EC2 stay strings; what the controller branches on is an enum.
//! Selectors and block devices are in `ec2_node_class/` parts of their own.
//!
//! Source: AWS specification 1.1, 2, 4.1.

#![expect(
    clippy::duplicated_attributes,
    reason = "columns share types and priorities"
)]

mod devices;
mod selectors;
mod status;

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use devices::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, InstanceStorePolicy,
    InterfaceType, MetadataOptions, NetworkInterface,
};
pub use selectors::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
pub use status::{
    Ami, CapacityReservation, CapacityReservationState, CapacityReservationType,
    Ec2NodeClassStatus, SecurityGroup, Subnet,
};

/// How nodes of the class are made.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    root = "Ec2NodeClass",
    plural = "ec2nodeclasses",
    singular = "ec2nodeclass",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    category = "karpenter",
    status = "Ec2NodeClassStatus",
    derive = "PartialEq",
    doc = "EC2NodeClass says how nodes are made on AWS.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Role",
        type_ = "string",
        json_path = ".spec.role",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct Ec2NodeClassSpec {
    /// Selects subnets; a subnet that any term selects may be used.
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Selects security groups; the union of all terms is used.
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Selects capacity reservations; a reservation that any term selects may be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// Selects the placement group that instances are launched into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Whether instances get a public address; absent leaves it to the subnet.
    #[serde(
        rename = "associatePublicIPAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub associate_public_ip_address: Option<bool>,
    /// Number of address prefixes of the primary network interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_prefix_count: Option<i32>,
    /// Selects images; an image that any term selects may be used.
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// How images are configured at boot; follows from the alias when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// User data, merged with what the family needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Role of the instances, by name or path; excludes instanceProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Instance profile made by the user; excludes role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Tags of everything that a launch creates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Settings of the kubelet, as in its own configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Kubelet>,
    /// Block devices; the family's own when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// What is done with local disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Network interfaces; one primary interface when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Whether measurements are taken every minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// How instances reach their metadata.
    #[serde(default = "MetadataOptions::default_of_schema")]
    pub metadata_options: Option<MetadataOptions>,
    /// Timeouts of tracked connections; restricts instances to the Nitro hypervisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// Context passed along with the launch request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Options of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
}

impl Ec2NodeClassSpec {
    /// The family that decides: the one stated, else the one of the alias, else `Custom`.
    ///
    /// Source: AWS specification 2.1, 7.1.
    #[must_use]
    pub fn resolved_ami_family(&self) -> AmiFamily {
        self.ami_family
            .or_else(|| {
                self.ami_selector_terms
                    .iter()
                    .find_map(AmiSelectorTerm::alias_family)
            })
            .unwrap_or(AmiFamily::Custom)
    }
}

/// How images are configured at boot.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum AmiFamily {
    /// Amazon Linux 2.
    AL2,
    /// Amazon Linux 2023.
    AL2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Nothing is configured; user data does it.
    Custom,
    /// Windows Server 2019.
    Windows2019,
    /// Windows Server 2022.
    Windows2022,
    /// Windows Server 2025.
    Windows2025,
}

impl AmiFamily {
    /// Every family.
    pub const ALL: [Self; 7] = [
        Self::AL2,
        Self::AL2023,
        Self::Bottlerocket,
        Self::Custom,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
    ];

    /// The name in manifests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AL2 => "AL2",
            Self::AL2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Custom => "Custom",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
        }
    }

    /// The family's name in aliases; `None` for `Custom`, which has no alias.
    #[must_use]
    pub fn alias(self) -> Option<String> {
        (self != Self::Custom).then(|| self.as_str().to_lowercase())
    }

    /// Whether nodes run Windows.
    #[must_use]
    pub const fn is_windows(self) -> bool {
        matches!(
            self,
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025
        )
    }
}

/// Settings of the kubelet: an open object, kept as it was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Kubelet(pub Map<String, Value>);
