//! The building blocks that several kinds share.
//!
//! Operators and effects stay strings, as in Kubernetes' own types: an API server has checked
//! them, and an object stored before a rule existed must not stop a watch of all the others.
//!
//! Source: provisioning specification 1.1.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use k8s_openapi::api::core::v1::Taint;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Amounts by resource name. A quantity that was spelled as a number is written back as a string.
pub type ResourceList = BTreeMap<String, Quantity>;

/// A constraint on one node label, with a floor for the flexibility that has to remain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirementWithMinValues {
    /// The label key.
    pub key: String,
    /// How the label relates to the values: In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte.
    pub operator: String,
    /// At least one for In, exactly one integer for Gt, Lt, Gte and Lte, none for Exists and
    /// DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many distinct values of the key the instance types offered for launch must cover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i64>,
}

/// A constraint on one node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// The label key.
    pub key: String,
    /// How the label relates to the values: In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte.
    pub operator: String,
    /// At least one for In and NotIn, exactly one integer for Gt, Lt, Gte and Lte, none for Exists
    /// and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Names the provider's object that says how nodes are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassReference {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// API group of the object, without a version.
    pub group: String,
}

/// `expireAfter` when it is absent: thirty days.
pub(crate) fn default_expire_after() -> crate::NillableDuration {
    // Spelled as the schema's default, so that both ways of defaulting give the same text.
    crate::NillableDuration::parse("720h").unwrap_or_default()
}
