//! NodePool: which nodes may be made, how many, and when they may be disrupted.
//!
//! Defaults are filled in on reading too, so that a manifest read from a file means what the API
//! server would make of it.
//!
//! Source: provisioning specification 1.2.

#![expect(
    clippy::duplicated_attributes,
    reason = "columns share types and priorities"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    Condition, NodeClassReference, NodeSelectorRequirementWithMinValues, ResourceList, Taint,
    default_expire_after,
};
use crate::duration::{Duration, NillableDuration};

/// What the user wants of the nodes of one pool.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    singular = "nodepool",
    category = "karpenter",
    status = "NodePoolStatus",
    derive = "PartialEq",
    doc = "NodePool says which nodes may be made, how many of them, and when they may be disrupted.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.nodes"
    ),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.template.spec.nodeClassRef.name"
    ),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
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
        name = "Weight",
        type_ = "integer",
        json_path = ".spec.weight",
        priority = 1
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.resources.cpu",
        priority = 1
    ),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".status.resources.memory",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// What the nodes of the pool are made from.
    pub template: NodeClaimTemplate,
    /// When and how fast nodes may be disrupted.
    #[serde(default)]
    pub disruption: Disruption,
    /// Upper bounds on what the pool's nodes add up to, by resource; the resource `nodes` bounds
    /// their number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: ResourceList,
    /// Pools of higher weight are tried first; absent counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Makes the pool static: it keeps this many nodes whatever the pods need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

/// What NodeClaims of the pool are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the nodes.
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_empty")]
    pub metadata: TemplateMetadata,
    /// The rest of the nodes' description.
    pub spec: NodeClaimTemplateSpec,
}

/// Labels and annotations that go to every NodeClaim and Node of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl TemplateMetadata {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// What a NodeClaim of the pool asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Taints of the nodes; pods must tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that something removes from a node while it starts; they do not decide whether a pod
    /// may run there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Constraints on the labels of the nodes; all of them hold together.
    pub requirements: Vec<NodeSelectorRequirementWithMinValues>,
    /// The object that says how nodes are made; its group and kind cannot be changed.
    pub node_class_ref: NodeClassReference,
    /// The longest time that draining a node may take, counted from its deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<Duration>,
    /// The age at which a node is replaced, or Never.
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
}

impl Default for NodeClaimTemplateSpec {
    fn default() -> Self {
        Self {
            taints: Vec::new(),
            startup_taints: Vec::new(),
            requirements: Vec::new(),
            node_class_ref: NodeClassReference::default(),
            termination_grace_period: None,
            expire_after: default_expire_after(),
        }
    }
}

/// When and how fast nodes may be disrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// How long a node must have been without change of its pods before it is consolidated, or
    /// Never; not used by static pools.
    #[serde(default = "default_consolidate_after")]
    pub consolidate_after: NillableDuration,
    /// Which nodes are consolidated; not used by static pools.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
    /// How many nodes may be disrupted at a time; the strictest active budget counts.
    // Written even when empty: an empty list lifts every bound, an absent one means the default.
    #[serde(default = "default_budgets")]
    pub budgets: Vec<Budget>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidate_after: default_consolidate_after(),
            consolidation_policy: ConsolidationPolicy::default(),
            budgets: default_budgets(),
        }
    }
}

fn default_consolidate_after() -> NillableDuration {
    NillableDuration::from_secs(0)
}

fn default_budgets() -> Vec<Budget> {
    vec![Budget::default()]
}

/// Which nodes are consolidated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConsolidationPolicy {
    /// Only nodes without pods that would have to move.
    WhenEmpty,
    /// Also nodes whose pods fit elsewhere, or on something cheaper.
    #[default]
    WhenEmptyOrUnderutilized,
    /// As WhenEmptyOrUnderutilized, weighing savings against disruption.
    Balanced,
}

/// How many nodes may be disrupted at a time, and when that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// The reasons that the budget bounds; absent means every reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// A number of nodes, or a percentage of the pool's nodes, rounded up.
    #[serde(default = "default_budget_nodes")]
    pub nodes: String,
    /// When the budget becomes active, as a cron expression in UTC; needs a duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// How long the budget stays active, in hours and minutes; needs a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            reasons: None,
            nodes: default_budget_nodes(),
            schedule: None,
            duration: None,
        }
    }
}

fn default_budget_nodes() -> String {
    "10%".to_owned()
}

/// Why a node is disrupted of our own accord.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum DisruptionReason {
    /// Its pods fit elsewhere, or on something cheaper.
    Underutilized,
    /// It has no pods that would have to move.
    Empty,
    /// It no longer is what its pool or class describes.
    Drifted,
}

/// What was seen of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Capacity of the pool's nodes, added up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: ResourceList,
    /// Number of the pool's nodes.
    #[serde(default)]
    pub nodes: i64,
    /// Generation of the NodeClass at which the health of registration was last judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// What holds for the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
