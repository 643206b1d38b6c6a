//! Keys, values and finalizers that the rules of this crate read or write.
//!
//! Source: disruption specification 0.1.

/// Finalizer of NodeClaims and Nodes.
pub const FINALIZER: &str = "karpenter.sh/termination";
/// Taint key of a node that is being disrupted or drained, effect `NoSchedule`.
pub const DISRUPTED: &str = "karpenter.sh/disrupted";
/// Taint key that a node joins with, effect `NoExecute`.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
/// Label on a Node: the value `true` keeps registration from copying taints.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// Annotation of pods and nodes that protects from voluntary disruption.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Annotation on a NodeClaim: RFC 3339 deadline of the drain.
pub const DEADLINE: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// Label that takes a draining Node out of load balancers, value [`EXCLUDE_BALANCERS_VALUE`].
pub const EXCLUDE_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Value of [`EXCLUDE_BALANCERS`].
pub const EXCLUDE_BALANCERS_VALUE: &str = "karpenter";
/// Annotation of pods: an integer-like cost of deleting them.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
