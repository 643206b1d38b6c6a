//! A pod as planning sees it: identity apart, everything that decides where it may run is in one
//! shared value, so that the replicas of a Deployment are one class.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ids::{Name, NodeName, PodKey, PodUid},
    requirement::Requirement,
    resources::Resources,
    taints::Toleration,
    time::Timestamp,
    topology::{PodAffinityTerm, TopologySpread},
};

/// Everything about a pod that decides where it may run.
///
/// Ingest interns these: pods with equal specs share one allocation, and the packing core treats
/// pointer equality (with value equality as fallback) as "same class".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSpec {
    /// Namespace, because selectors of other pods depend on it.
    pub namespace: Name,
    /// Labels, because selectors of other pods depend on them.
    pub labels: BTreeMap<Name, Name>,
    /// Effective requests including overhead and `pods: 1` (provisioning specification 6.4).
    pub requests: Resources,
    /// `spec.nodeSelector`, sorted by key.
    pub node_selector: Vec<(Name, Name)>,
    /// Required node-affinity terms, ORed; each is a conjunction. `matchFields` make a pod
    /// invalid and are reported in [`Pod::rejections`].
    pub required_terms: Vec<Vec<Requirement>>,
    /// Preferred node-affinity terms with their weights, in manifest order.
    pub preferred_terms: Vec<(u32, Vec<Requirement>)>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Spread constraints, with the cluster's defaults already applied.
    pub topology_spread: Vec<TopologySpread>,
    /// Required pod affinity.
    pub affinity: Vec<PodAffinityTerm>,
    /// Preferred pod affinity with weights.
    pub preferred_affinity: Vec<(u32, PodAffinityTerm)>,
    /// Required pod anti-affinity.
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// Preferred pod anti-affinity with weights.
    pub preferred_anti_affinity: Vec<(u32, PodAffinityTerm)>,
    /// Host ports of regular containers.
    pub host_ports: Vec<HostPort>,
    /// Number of volumes backed by claims; their resolution is in [`Pod::volumes`].
    pub claim_volumes: u32,
    /// Whether the pod uses Dynamic Resource Allocation claims.
    pub uses_resource_claims: bool,
}

/// A port of the host that a container claims for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Address as text; `0.0.0.0` and `::` conflict with every address.
    pub ip: Name,
    /// Port, 1..65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Name,
}

/// A claim-backed volume of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    /// `namespace/name` of the claim; a claim shared by two pods attaches once per node.
    pub claim: Name,
    /// CSI driver (in-tree names translated), if known: it may limit attachments.
    pub driver: Option<Name>,
    /// Where the volume can be used: alternatives, ORed; empty means anywhere.
    pub alternatives: Vec<Vec<Requirement>>,
}

/// How a pod came into the planning pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intake {
    /// The kube-scheduler marked it unschedulable.
    Marked,
    /// Nobody has tried it yet; planned in anticipation (design note D-007). It first takes room
    /// that exists.
    Anticipated,
    /// It is bound to a node that is going away and will need a new home.
    Rescheduled {
        /// The node it still runs on.
        from: NodeName,
    },
}

/// The controller that makes pods of this kind, as far as batching and preferences care.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// `ReplicaSet`, `Job`, `StatefulSet`, ...
    pub kind: Name,
    /// Name in the pod's namespace.
    pub name: Name,
    /// `metadata.uid`.
    pub uid: Name,
}

/// A pod that needs a place.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// Unique id; the last tie-break of every order.
    pub uid: PodUid,
    /// Creation time; older pods come first among equals.
    pub created_at: Timestamp,
    /// Where it may run; shared by equal pods.
    pub spec: Arc<PodSpec>,
    /// Its claim-backed volumes.
    pub volumes: Arc<[Volume]>,
    /// The controller that made it, if any.
    pub owner: Option<Arc<Owner>>,
    /// How it came here.
    pub intake: Intake,
    /// The in-flight NodeClaim or node that an earlier plan gave it, while that still exists.
    pub planned_on: Option<NodeName>,
    /// Why the pod is invalid for planning (provisioning specification 4.6 and 4.7); empty when
    /// it is valid. Texts are complete sentences for the pod's owner.
    pub rejections: Arc<[String]>,
}
