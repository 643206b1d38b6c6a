//! Annotation keys and finalizers.
//!
//! Source: provisioning specification 2.3, 2.6; AWS specification 1.3, 1.6.

/// Finalizer of NodeClaims and Nodes.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Finalizer of EC2NodeClasses.
pub const EC2_NODE_CLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";

/// On pods, Nodes and NodeClaims: `true` forbids voluntary disruption; on pods also a positive
/// duration in Go's notation, counted from the pod's start.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Static hash of a NodePool's template, decimal; on NodePools and NodeClaims.
pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
/// Version of the algorithm behind [`NODE_POOL_HASH`].
pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
/// Whether minValues had to be relaxed for the NodeClaim: `true` or `false`.
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// Drivers of dynamic resources that the claim's pods request: sorted, comma-separated.
pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
/// When draining must end; RFC 3339.
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// `true` if a candidate instance type carries the price of a NodeOverlay.
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
/// `true` if a candidate instance type carries capacity of a NodeOverlay.
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
/// Compatibility data of the provider, on NodeClaims.
pub const COMPATIBILITY_PROVIDER: &str = "compatibility.karpenter.sh/provider";
/// `true` on the virtual pods of a CapacityBuffer (never stored).
pub const BUFFER_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
/// Name of the CapacityBuffer behind a virtual pod.
pub const BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
/// Namespace of the CapacityBuffer behind a virtual pod.
pub const BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";
/// Input on pods: relative cost of evicting the pod, a signed integer.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Left on a v1 NodePool by a former conversion: the kubelet settings of v1beta1.
pub const V1BETA1_KUBELET_CONVERSION: &str =
    "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
/// Left on a v1 NodePool by a former conversion: the class reference of v1beta1.
pub const V1BETA1_NODE_CLASS_REFERENCE: &str =
    "compatibility.karpenter.sh/v1beta1-nodeclass-reference";
/// Left on a v1 EC2NodeClass by a former conversion of the Ubuntu family.
pub const V1BETA1_UBUNTU: &str = "compatibility.karpenter.k8s.aws/v1beta1-ubuntu";

/// Static hash of an EC2NodeClass, decimal; on classes and NodeClaims.
pub const EC2_NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
/// Version of the algorithm behind [`EC2_NODE_CLASS_HASH`].
pub const EC2_NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
/// `true` on a NodeClaim whose instance carries the tags of the time after launch.
pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
/// `true` on a NodeClaim whose instance certainly carries the cluster's name as a tag.
pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
/// Instance profile that the NodeClaim was launched with.
pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
