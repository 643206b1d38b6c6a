//! The label keys that decisions depend on, and what is special about them.
//!
//! Source: provisioning specification 2.1 to 2.5, AWS specification 1.2.

use crate::ids::Name;

/// `kubernetes.io/hostname`.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// `topology.kubernetes.io/zone`.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// `topology.kubernetes.io/region`.
pub const REGION: &str = "topology.kubernetes.io/region";
/// `node.kubernetes.io/instance-type`.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// `kubernetes.io/arch`.
pub const ARCH: &str = "kubernetes.io/arch";
/// `kubernetes.io/os`.
pub const OS: &str = "kubernetes.io/os";
/// `node.kubernetes.io/windows-build`.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// `karpenter.sh/nodepool`.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// `karpenter.sh/capacity-type`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// `karpenter.sh/registered`.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// `karpenter.sh/initialized`.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// `topology.k8s.aws/zone-id`.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// `karpenter.k8s.aws/capacity-reservation-id`.
pub const RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";

/// Keys that may be undefined on the provisionable side, where they mean "any value"; sorted.
///
/// The provider's own keys are part of the list: Millwright has one provider.
pub const WELL_KNOWN: &[&str] = &[
    "karpenter.k8s.aws/capacity-reservation-id",
    "karpenter.k8s.aws/capacity-reservation-interruptible",
    "karpenter.k8s.aws/capacity-reservation-type",
    "karpenter.k8s.aws/ec2nodeclass",
    "karpenter.k8s.aws/instance-accelerator-count",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-capability-flex",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-cpu-manufacturer",
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    "karpenter.k8s.aws/instance-ebs-bandwidth",
    "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-generation",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-hypervisor",
    "karpenter.k8s.aws/instance-local-nvme",
    "karpenter.k8s.aws/instance-memory",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "karpenter.k8s.aws/instance-size",
    "karpenter.k8s.aws/instance-tenancy",
    "karpenter.k8s.aws/nitro-sandbox",
    "karpenter.k8s.aws/placement-group-id",
    "karpenter.k8s.aws/placement-group-partition",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "topology.k8s.aws/zone-id",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Whether an undefined `key` on the provisionable side means "any value".
#[must_use]
pub fn is_well_known(key: &str) -> bool {
    WELL_KNOWN.binary_search(&key).is_ok()
}

/// Whether users may not constrain `key`: the domain `karpenter.sh` and its subdomains, and the
/// host name; well-known keys are always allowed.
#[must_use]
pub fn is_restricted(key: &str) -> bool {
    if is_well_known(key) {
        return false;
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    key == HOSTNAME || domain == "karpenter.sh" || domain.ends_with(".karpenter.sh")
}

/// The canonical spelling of a key: deprecated aliases become the key they stand for.
#[must_use]
pub fn normalise(key: &Name) -> Name {
    match &**key {
        "failure-domain.beta.kubernetes.io/zone" | "topology.ebs.csi.aws.com/zone" => ZONE.into(),
        "failure-domain.beta.kubernetes.io/region" => REGION.into(),
        "beta.kubernetes.io/arch" => ARCH.into(),
        "beta.kubernetes.io/os" => OS.into(),
        "beta.kubernetes.io/instance-type" => INSTANCE_TYPE.into(),
        _ => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_keys_are_sorted_for_the_search() {
        assert!(WELL_KNOWN.is_sorted());
    }

    #[test]
    fn only_karpenter_s_own_domain_and_the_host_name_are_restricted() {
        for (key, restricted) in [
            ("karpenter.sh/anything", true),
            ("x.karpenter.sh/anything", true),
            ("foo-karpenter.sh/x", false),
            ("karpenter.sh/capacity-type", false),
            ("kubernetes.io/hostname", true),
            ("kubernetes.io/custom", false),
            ("team", false),
        ] {
            assert_eq!(is_restricted(key), restricted, "{key}");
        }
    }
}
