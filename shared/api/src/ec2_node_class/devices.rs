//! Disks, network interfaces and switches of an instance.
//!
//! Absent and zero differ in the static hash, so every optional field is an `Option`.
//!
//! Source: AWS specification 2.3 to 2.8.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A block device of the instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// Name of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The volume behind the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether the volume holds the kubelet's root directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDevice {
    /// Whether the volume goes with the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether the volume is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// Key of the encryption: id, alias or ARN.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot that the volume is made from.
    #[serde(rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Throughput, MiB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// How fast the snapshot is loaded, MiB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// Size of the volume, with the suffix Gi, G, Ti or T.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<String>,
    /// Type of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}

/// What is done with local disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum InstanceStorePolicy {
    /// One array of all of them holds what the kubelet and containers write.
    #[serde(rename = "RAID0")]
    Raid0,
}

/// A network interface of the instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Index of the network card.
    pub network_card_index: i32,
    /// Index of the device on its card.
    pub device_index: i32,
    /// Kind of the interface.
    pub interface_type: InterfaceType,
}

/// Kind of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum InterfaceType {
    /// An ordinary interface.
    #[serde(rename = "interface")]
    Interface,
    /// An Elastic Fabric Adapter without an address.
    #[serde(rename = "efa-only")]
    EfaOnly,
}

impl InterfaceType {
    /// The name in manifests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::EfaOnly => "efa-only",
        }
    }
}

/// How instances reach their metadata.
///
/// A stored class always has the object, through the schema's default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether metadata can be reached at all: enabled or disabled.
    #[serde(rename = "httpEndpoint", default = "enabled")]
    pub http_endpoint: String,
    /// Whether metadata can be reached by IPv6: enabled or disabled.
    #[serde(rename = "httpProtocolIPv6", default = "disabled")]
    pub http_protocol_ipv6: String,
    /// How many hops an answer may travel; 1 keeps it from containers.
    #[serde(default = "one_hop")]
    pub http_put_response_hop_limit: i64,
    /// Whether requests need a session token: required or optional.
    #[serde(default = "required")]
    pub http_tokens: String,
}

impl MetadataOptions {
    #[expect(clippy::unnecessary_wraps, reason = "serde wants the field's type")]
    pub(super) fn default_of_schema() -> Option<Self> {
        Some(Self::default())
    }
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            http_endpoint: enabled(),
            http_protocol_ipv6: disabled(),
            http_put_response_hop_limit: one_hop(),
            http_tokens: required(),
        }
    }
}

fn enabled() -> String {
    "enabled".to_owned()
}

fn disabled() -> String {
    "disabled".to_owned()
}

fn required() -> String {
    "required".to_owned()
}

fn one_hop() -> i64 {
    1
}

/// Timeouts of tracked connections, seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionTracking {
    /// Of idle established TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// Of idle UDP flows that saw more than one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// Of idle UDP flows that saw one direction, or one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// Options of the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// Whether virtual machines may run inside: enabled or disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<String>,
}
