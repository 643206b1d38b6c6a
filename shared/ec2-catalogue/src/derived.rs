//! What follows from a type's name.
//!
//! EC2 tells these per type; the table has no column for them, but the naming scheme fixes
//! them: `c7gd.xlarge` is family `c7gd` = category `c`, generation 7, attributes `gd`.

use crate::{Architecture, Hypervisor, TypeFacts};

/// Who made the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CpuManufacturer {
    /// AMD: attribute `a`.
    Amd,
    /// AWS: Graviton, every 64-bit Arm type.
    Aws,
    /// Intel: the others.
    Intel,
}

impl TypeFacts {
    /// The part before the dot: `c7gd` of `c7gd.xlarge`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        self.name
            .split_once('.')
            .map_or(self.name, |(family, _)| family)
    }

    /// The part after the dot: `xlarge`, `metal-24xl`.
    #[must_use]
    pub fn size(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(_, size)| size)
    }

    /// The number after the category: 7 of `c7gd`; 0 where the name has none.
    #[must_use]
    pub fn generation(&self) -> u32 {
        let (_, rest) = self.split_family();
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest.get(..digits)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    }

    /// The letters after the generation: `gd` of `c7gd`; without a suffix such as `-flex`.
    fn attributes(&self) -> &'static str {
        let (_, rest) = self.split_family();
        let attributes = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        attributes
            .split_once('-')
            .map_or(attributes, |(letters, _)| letters)
    }

    /// Category letters, and what follows them.
    fn split_family(&self) -> (&'static str, &'static str) {
        let family = self.family();
        family.split_at(
            family
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(family.len()),
        )
    }

    /// Who made the processor.
    #[must_use]
    pub fn cpu_manufacturer(&self) -> CpuManufacturer {
        match self.architecture {
            Architecture::Arm64 => CpuManufacturer::Aws,
            Architecture::Amd64 if self.attributes().contains('a') => CpuManufacturer::Amd,
            // Three accelerated families are AMD without saying so.
            Architecture::Amd64 if matches!(self.family(), "g5" | "g6" | "g6e" | "p5" | "g4ad") => {
                CpuManufacturer::Amd
            }
            Architecture::Amd64 => CpuManufacturer::Intel,
        }
    }

    /// Traffic between instances is encrypted by the network card: Nitro types of generation 6
    /// and later, and those of generation 5 with the attribute `n`.
    #[must_use]
    pub fn encrypts_in_transit(&self) -> bool {
        let nitro = self.bare_metal || self.hypervisor == Some(Hypervisor::Nitro);
        let generation = self.generation();
        nitro
            && !self.burstable
            && (generation >= 6 || generation == 5 && self.attributes().contains('n'))
    }

    /// Can start Nitro enclaves: virtual Nitro types with at least four vCPUs (two on Graviton),
    /// none of the burstable ones.
    #[must_use]
    pub fn supports_enclaves(&self) -> bool {
        let smallest = if self.architecture == Architecture::Arm64 {
            2
        } else {
            4
        };
        self.hypervisor == Some(Hypervisor::Nitro) && !self.burstable && self.vcpu >= smallest
    }

    /// Elastic Fabric Adapter interfaces that the type can have: for the largest sizes of
    /// network-optimised (`n`), high-performance and accelerated families.
    #[must_use]
    pub fn max_efa(&self) -> u32 {
        let network = self.network_mbps.unwrap_or(0);
        let (category, _) = self.split_family();
        let family_has_it =
            self.attributes().contains('n') || matches!(category, "hpc" | "p" | "trn" | "dl");
        match network {
            100_000.. if family_has_it && matches!(category, "p" | "trn" | "dl") => {
                // One adapter for each 100 Gbit/s, up to the 32 cards of p5.
                u32::try_from(network / 100_000).unwrap_or(1).min(32)
            }
            50_000.. if family_has_it => 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CpuManufacturer::{Amd, Aws, Intel};
    use crate::by_name;

    #[test]
    fn names_tell_family_generation_and_manufacturer() {
        for (name, family, size, generation, manufacturer) in [
            ("m5.large", "m5", "large", 5, Intel),
            ("m5a.large", "m5a", "large", 5, Amd),
            ("c7gd.xlarge", "c7gd", "xlarge", 7, Aws),
            ("m7i-flex.large", "m7i-flex", "large", 7, Intel),
            ("c6a.48xlarge", "c6a", "48xlarge", 6, Amd),
            ("m7a.metal-48xl", "m7a", "metal-48xl", 7, Amd),
        ] {
            let facts = by_name(name).unwrap_or_else(|| panic!("{name} is in the table"));
            assert_eq!((facts.family(), facts.size()), (family, size));
            assert_eq!(facts.generation(), generation, "{name}");
            assert_eq!(facts.cpu_manufacturer(), manufacturer, "{name}");
        }
    }

    #[test]
    fn only_newer_nitro_types_encrypt_in_transit() {
        let encrypts = |name| by_name(name).is_some_and(crate::TypeFacts::encrypts_in_transit);
        assert!(encrypts("m6i.large") && encrypts("c5n.18xlarge"));
        assert!(!encrypts("m5.large") && !encrypts("m4.large") && !encrypts("t3.large"));
    }
}
