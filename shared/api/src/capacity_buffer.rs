//! CapacityBuffer: room kept free for pods that are yet to come.
//!
//! Source: provisioning specification 1.5; the kind follows the API of the Cluster Autoscaler.

#![expect(
    clippy::duplicated_attributes,
    reason = "columns share types and priorities"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, ResourceList};

/// The only strategy that is carried out.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// How much room is kept, and for what kind of pod.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1beta1",
    kind = "CapacityBuffer",
    plural = "capacitybuffers",
    singular = "capacitybuffer",
    shortname = "cb",
    category = "autoscaling",
    namespaced,
    status = "CapacityBufferStatus",
    derive = "PartialEq",
    doc = "CapacityBuffer keeps room free for pods that are yet to come.",
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.provisioningStrategy"
    ),
    printcolumn(
        name = "PodTemplate",
        type_ = "string",
        json_path = ".status.podTemplateRef.name"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(
        name = "ConditionsType",
        type_ = "string",
        json_path = ".status.conditions[*].type"
    ),
    printcolumn(
        name = "ConditionsStatus",
        type_ = "string",
        json_path = ".status.conditions[*].status"
    ),
    printcolumn(
        name = "ConditionsReason",
        type_ = "string",
        json_path = ".status.conditions[*].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferSpec {
    /// How the room is provided.
    #[serde(default = "default_strategy")]
    pub provisioning_strategy: String,
    /// A PodTemplate of the same namespace that describes one unit of the buffer; excludes
    /// scalableRef.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// A scalable object of the same namespace whose pods describe one unit of the buffer; excludes
    /// podTemplateRef.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableRef>,
    /// Number of units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of units as a percentage of the scalable object's replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<i32>,
    /// Upper bounds on what the units add up to, by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: ResourceList,
}

impl Default for CapacityBufferSpec {
    fn default() -> Self {
        Self {
            provisioning_strategy: default_strategy(),
            pod_template_ref: None,
            scalable_ref: None,
            replicas: None,
            percentage: None,
            limits: ResourceList::new(),
        }
    }
}

fn default_strategy() -> String {
    ACTIVE_CAPACITY.to_owned()
}

/// Names an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectRef {
    /// Name of the object.
    pub name: String,
}

/// Names an object of the same namespace that has the scale subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalableRef {
    /// API group of the object; empty counts as apps.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// What was made of the buffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// The PodTemplate in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// Number of units in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Generation of the PodTemplate in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// The strategy in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// What holds for the buffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
