//! What the selectors of a class resolved to.
//!
//! Source: AWS specification 4.1, which also fixes the order of each list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, NodeSelectorRequirement, Time};

/// What was seen of the class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ec2NodeClassStatus {
    /// Subnets; those with most free addresses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// Security groups by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// Capacity reservations by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Images; the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// Instance profile in use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance_profile: String,
    /// What holds for the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// Id of the subnet.
    pub id: String,
    /// Name of its zone.
    pub zone: String,
    /// Id of its zone, the same in every account.
    #[serde(default, rename = "zoneID", skip_serializing_if = "String::is_empty")]
    pub zone_id: String,
}

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// Id of the security group.
    pub id: String,
    /// Name of the security group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ami {
    /// Id of the image.
    pub id: String,
    /// Whether its owner has deprecated the image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Name of the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Labels of the instance types that the image runs on.
    pub requirements: Vec<NodeSelectorRequirement>,
}

/// A capacity reservation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Name of its zone.
    pub availability_zone: String,
    /// When the reservation ends; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// Id of the reservation.
    pub id: String,
    /// Whether instances enter the reservation by themselves: open or targeted.
    pub instance_match_criteria: String,
    /// The instance type reserved.
    pub instance_type: String,
    /// Account that owns the reservation.
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// Kind of the reservation.
    #[serde(default)]
    pub reservation_type: CapacityReservationType,
    /// Whether its instances can be taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    /// How far the reservation has come.
    #[serde(default)]
    pub state: CapacityReservationState,
}

/// Kind of a capacity reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CapacityReservationType {
    /// Reserved on demand.
    #[default]
    #[serde(rename = "default")]
    Default,
    /// A block bought for a span of time.
    #[serde(rename = "capacity-block")]
    CapacityBlock,
}

/// How far a capacity reservation has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CapacityReservationState {
    /// Can be launched into.
    #[default]
    #[serde(rename = "active")]
    Active,
    /// About to end.
    #[serde(rename = "expiring")]
    Expiring,
}
