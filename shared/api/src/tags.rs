//! Keys of EC2 and IAM tags, and names of extended resources.
//!
//! Source: AWS specification 1.4, 1.5.

use crate::labels;

/// Prefix of the ownership tag; the cluster's name follows, the value is [`OWNED`].
pub const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// Value of the ownership tag.
pub const OWNED: &str = "owned";
/// Name of the NodePool; empty for a NodeClaim of no NodePool.
pub const NODE_POOL: &str = labels::NODE_POOL;
/// Name of the EC2NodeClass.
pub const EC2_NODE_CLASS: &str = labels::EC2_NODE_CLASS;
/// Name of the NodeClaim; written after launch, so that claims of one NodePool launch alike.
pub const NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
/// Name of the EKS cluster.
pub const EKS_CLUSTER_NAME: &str = "eks:eks-cluster-name";
/// Name shown by the console; written after launch unless the user set it.
pub const NAME: &str = "Name";

/// Extended resource: NVIDIA GPUs.
pub const RESOURCE_NVIDIA_GPU: &str = "nvidia.com/gpu";
/// Extended resource: AMD GPUs.
pub const RESOURCE_AMD_GPU: &str = "amd.com/gpu";
/// Extended resource: Gaudi accelerators.
pub const RESOURCE_HABANA_GAUDI: &str = "habana.ai/gaudi";
/// Extended resource: Neuron devices.
pub const RESOURCE_AWS_NEURON: &str = "aws.amazon.com/neuron";
/// Extended resource: cores of Neuron devices.
pub const RESOURCE_AWS_NEURON_CORE: &str = "aws.amazon.com/neuroncore";
/// Extended resource: Elastic Fabric Adapters.
pub const RESOURCE_EFA: &str = "vpc.amazonaws.com/efa";
/// Extended resource: branch interfaces for pods.
pub const RESOURCE_POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
/// Extended resource: private addresses, Windows only.
pub const RESOURCE_PRIVATE_IPV4: &str = "vpc.amazonaws.com/PrivateIPv4Address";
/// Extended resource that is never in capacity: a request for it turns on enclave support.
pub const RESOURCE_NITRO_SANDBOX: &str = "eks.amazonaws.com/nitro-sandbox";
/// Pseudo resource of NodePool limits and status: the number of nodes.
pub const RESOURCE_NODES: &str = "nodes";
