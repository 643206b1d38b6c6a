//! AMI families: what an image of each expects, and what follows for capacity.
//!
//! Source: AWS specification 12.4, 12.6 and 19.3.

use millwright_api::ec2_node_class::AmiFamily;

const GIB: i64 = 1 << 30;

/// The value of `node.kubernetes.io/windows-build`; `None` for Linux.
#[must_use]
pub const fn windows_build(family: AmiFamily) -> Option<&'static str> {
    match family {
        AmiFamily::Windows2019 => Some("10.0.17763"),
        AmiFamily::Windows2022 => Some("10.0.20348"),
        AmiFamily::Windows2025 => Some("10.0.26100"),
        AmiFamily::AL2 | AmiFamily::AL2023 | AmiFamily::Bottlerocket | AmiFamily::Custom => None,
    }
}

/// Whether the number of pods follows from the network interfaces.
#[must_use]
pub const fn limits_pods_by_interfaces(family: AmiFamily) -> bool {
    !family.is_windows()
}

/// Whether the image applies `podsPerCore`.
#[must_use]
pub const fn honours_pods_per_core(family: AmiFamily) -> bool {
    !matches!(family, AmiFamily::Bottlerocket)
}

/// Whether the memory reserved for the kubelet follows from the interfaces rather than from the
/// number of pods.
#[must_use]
pub const fn reserves_memory_by_interfaces(family: AmiFamily) -> bool {
    matches!(
        family,
        AmiFamily::AL2 | AmiFamily::AL2023 | AmiFamily::Custom
    )
}

/// Whether kubelet fields other than the managed ones reach the node, or are at least not the
/// provider's business.
#[must_use]
pub const fn passes_any_kubelet_field(family: AmiFamily) -> bool {
    matches!(family, AmiFamily::AL2023 | AmiFamily::Custom)
}

/// The device that holds pods' ephemeral storage.
#[must_use]
pub const fn ephemeral_device(family: AmiFamily) -> Option<&'static str> {
    match family {
        AmiFamily::AL2 | AmiFamily::AL2023 => Some("/dev/xvda"),
        AmiFamily::Bottlerocket => Some("/dev/xvdb"),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            Some("/dev/sda1")
        }
        AmiFamily::Custom => None,
    }
}

/// Devices of a class that names none: device and size in GiB, all gp3 and encrypted.
#[must_use]
pub const fn default_devices(family: AmiFamily) -> &'static [(&'static str, i64)] {
    match family {
        AmiFamily::AL2 | AmiFamily::AL2023 => &[("/dev/xvda", 20)],
        AmiFamily::Bottlerocket => &[("/dev/xvda", 4), ("/dev/xvdb", 20)],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            &[("/dev/sda1", 50)]
        }
        AmiFamily::Custom => &[],
    }
}

/// Bytes of ephemeral storage when the class does not say.
#[must_use]
pub fn default_ephemeral_bytes(family: AmiFamily) -> i64 {
    default_devices(family)
        .iter()
        .find(|(device, _)| Some(*device) == ephemeral_device(family))
        .map_or(20, |(_, gib)| *gib)
        * GIB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ephemeral_storage_without_devices_is_the_default_of_the_family() {
        for (family, gib) in [
            (AmiFamily::AL2, 20),
            (AmiFamily::Bottlerocket, 20),
            (AmiFamily::Windows2022, 50),
            (AmiFamily::Custom, 20),
        ] {
            assert_eq!(default_ephemeral_bytes(family), gib * GIB, "{family:?}");
        }
    }
}
