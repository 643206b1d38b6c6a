//! Selector terms: terms of a list are alternatives, the fields of one term hold together.
//!
//! Source: AWS specification 2.2.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AmiFamily;

/// Selects subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSelectorTerm {
    /// Tags that the subnet has; the value * stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Id of the subnet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// Selects security groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroupSelectorTerm {
    /// Tags that the security group has; the value * stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Id of the security group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Name of the security group itself, not its Name tag.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Selects capacity reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// Tags that the reservation has; the value * stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Id of the reservation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Account that owns the reservation.
    #[serde(default, rename = "ownerID", skip_serializing_if = "String::is_empty")]
    pub owner_id: String,
    /// Whether instances enter the reservation by themselves: open or targeted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance_match_criteria: String,
}

/// Selects one placement group, by name or by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementGroupSelector {
    /// Name of the placement group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Id of the placement group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// Selects images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// Family and version of an image published for EKS, such as al2023@latest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// Tags that the image has; the value * stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Id of the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Name of the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Owner of the image: an account, self, amazon or aws-marketplace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Name or ARN of a parameter of Systems Manager that holds the image's id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ssm_parameter: String,
}

impl AmiSelectorTerm {
    /// The family that the alias names; `None` without an alias or for an unknown family.
    #[must_use]
    pub fn alias_family(&self) -> Option<AmiFamily> {
        let (name, _) = self.alias.split_once('@')?;
        AmiFamily::ALL
            .into_iter()
            .find(|family| family.alias().is_some_and(|alias| alias == name))
    }

    /// The version that the alias names; `None` without an alias.
    #[must_use]
    pub fn alias_version(&self) -> Option<&str> {
        self.alias.split_once('@').map(|(_, version)| version)
    }
}
