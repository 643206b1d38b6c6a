//! Label keys of the API: what the controller writes, and what users may constrain.
//!
//! Keys that decisions depend on live in `millwright_model::labels` and are re-exported here, so
//! that each key is spelled in one place.
//!
//! Source: provisioning specification 2.1, 2.2; AWS specification 1.2.

pub use millwright_model::labels::{
    ARCH, CAPACITY_TYPE, HOSTNAME, INITIALIZED, INSTANCE_TYPE, NODE_POOL, OS, REGION, REGISTERED,
    RESERVATION_ID, WELL_KNOWN, WINDOWS_BUILD, ZONE, ZONE_ID,
};

/// API group, and label domain, of NodePool, NodeClaim and NodeOverlay.
pub const GROUP: &str = "karpenter.sh";
/// API group, and label domain, of EC2NodeClass.
pub const AWS_GROUP: &str = "karpenter.k8s.aws";

/// `true` on a Node whose taints shall not be brought in line with its NodeClaim (set by users).
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";

/// Value of [`CAPACITY_TYPE`]: pay as you go.
pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
/// Value of [`CAPACITY_TYPE`]: spare capacity that can be taken back.
pub const CAPACITY_TYPE_SPOT: &str = "spot";
/// Value of [`CAPACITY_TYPE`]: capacity of a reservation.
pub const CAPACITY_TYPE_RESERVED: &str = "reserved";

/// Value of [`ARCH`]: x86, 64 bits.
pub const ARCH_AMD64: &str = "amd64";
/// Value of [`ARCH`]: Arm, 64 bits.
pub const ARCH_ARM64: &str = "arm64";

/// Name of the EC2NodeClass, on NodeClaims and Nodes.
pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
/// `nitro`, `xen`, or empty for bare metal.
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
/// Whether traffic between such instances is encrypted: `true` or `false`.
pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str =
    "karpenter.k8s.aws/instance-encryption-in-transit-supported";
/// Whether the type supports Nitro Enclaves: `true` or `false`.
pub const NITRO_SANDBOX: &str = "karpenter.k8s.aws/nitro-sandbox";
/// The letters of the family: `m` of `m5.large`.
pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
/// Whether the type is a flex type: `true` or `false`.
pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
/// The family: `m5` of `m5.large`.
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
/// The generation: `5` of `m5.large`.
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
/// The size: `large` of `m5.large`.
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
/// Local NVMe storage, gigabytes.
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
/// Virtual processors.
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
/// `intel`, `amd` or `aws`.
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
/// Sustained clock speed, megahertz.
pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
/// Memory, mebibytes.
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
/// Bandwidth to block storage, megabits per second.
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
/// Baseline network bandwidth, megabits per second.
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
/// GPU model.
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
/// GPU maker.
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
/// Number of GPUs.
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
/// Memory of one GPU, mebibytes.
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
/// Accelerator model.
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
/// Accelerator maker.
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str =
    "karpenter.k8s.aws/instance-accelerator-manufacturer";
/// Number of accelerators.
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
/// `default` or `dedicated`.
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
/// `default` or `capacity-block`.
pub const RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
/// Whether the reservation's instances can be taken back: `true` or `false`.
pub const RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
/// The placement group that the class resolves to.
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
/// Partition of a partition placement group, `1` to `7`.
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

/// The keys of the AWS domain that users may constrain; sorted. Every other key of it is reserved.
#[must_use]
pub fn aws_domain() -> Vec<&'static str> {
    WELL_KNOWN
        .iter()
        .copied()
        .filter(|key| {
            key.split_once('/')
                .is_some_and(|(domain, _)| domain == AWS_GROUP)
        })
        .collect()
}

/// The label that names the NodeClass on NodeClaims and Nodes: the class's group and its kind in
/// lower case.
#[must_use]
pub fn node_class_key(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_label_is_group_and_lower_case_kind() {
        assert_eq!(node_class_key(AWS_GROUP, "EC2NodeClass"), EC2_NODE_CLASS);
    }

    #[test]
    fn aws_domain_holds_every_aws_key_of_this_module_and_nothing_else() {
        let keys = aws_domain();
        assert_eq!(keys.len(), 29);
        for key in [
            EC2_NODE_CLASS,
            INSTANCE_HYPERVISOR,
            INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
            NITRO_SANDBOX,
            INSTANCE_CATEGORY,
            INSTANCE_CAPABILITY_FLEX,
            INSTANCE_FAMILY,
            INSTANCE_GENERATION,
            INSTANCE_SIZE,
            INSTANCE_LOCAL_NVME,
            INSTANCE_CPU,
            INSTANCE_CPU_MANUFACTURER,
            INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
            INSTANCE_MEMORY,
            INSTANCE_EBS_BANDWIDTH,
            INSTANCE_NETWORK_BANDWIDTH,
            INSTANCE_GPU_NAME,
            INSTANCE_GPU_MANUFACTURER,
            INSTANCE_GPU_COUNT,
            INSTANCE_GPU_MEMORY,
            INSTANCE_ACCELERATOR_NAME,
            INSTANCE_ACCELERATOR_MANUFACTURER,
            INSTANCE_ACCELERATOR_COUNT,
            INSTANCE_TENANCY,
            RESERVATION_ID,
            RESERVATION_TYPE,
            RESERVATION_INTERRUPTIBLE,
            PLACEMENT_GROUP_ID,
            PLACEMENT_GROUP_PARTITION,
        ] {
            assert!(keys.contains(&key), "{key}");
        }
    }
}
