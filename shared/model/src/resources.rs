//! Amounts of resources, in integers with fixed units.

use std::{cmp::Ordering, fmt, str::FromStr};

use smallvec::SmallVec;

use crate::{
    ids::Name,
    quantity::{Quantity, format_bytes, format_millis},
};

/// The name of a resource. Orders cpu first, then memory, then the rest by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceName {
    /// `cpu`, in thousandths of a core.
    Cpu,
    /// `memory`, in bytes.
    Memory,
    /// `pods`, a count.
    Pods,
    /// `ephemeral-storage`, in bytes.
    EphemeralStorage,
    /// `nodes`, a count: the pseudo resource of NodePool limits.
    Nodes,
    /// Any other name (`nvidia.com/gpu`, `hugepages-2Mi`, ...), in whole units.
    Other(Name),
}

impl ResourceName {
    /// The name as Kubernetes writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pods => "pods",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Nodes => "nodes",
            Self::Other(name) => name,
        }
    }

    /// Whether amounts are bytes, hence shown with binary suffixes.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        matches!(self, Self::Memory | Self::EphemeralStorage) || self.is_huge_pages()
    }

    /// Whether the resource is a `hugepages-*` one, which is carved out of memory.
    #[must_use]
    pub fn is_huge_pages(&self) -> bool {
        matches!(self, Self::Other(name) if name.starts_with("hugepages-"))
    }

    /// Converts a quantity to the integer unit of this resource, rounding up.
    #[must_use]
    pub fn amount(&self, quantity: Quantity) -> i64 {
        if *self == Self::Cpu {
            quantity.millis_ceil()
        } else {
            quantity.units_ceil()
        }
    }

    /// Formats an amount of this resource as a canonical Kubernetes quantity.
    #[must_use]
    pub fn format(&self, amount: i64) -> String {
        if *self == Self::Cpu {
            format_millis(amount)
        } else if self.is_bytes() {
            format_bytes(amount)
        } else {
            amount.to_string()
        }
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "pods" => Self::Pods,
            "ephemeral-storage" => Self::EphemeralStorage,
            "nodes" => Self::Nodes,
            other => Self::Other(other.into()),
        }
    }
}

impl FromStr for ResourceName {
    type Err = std::convert::Infallible;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(Self::from(name))
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Amounts by resource. Units: cpu in thousandths of a core, memory and storage in bytes, all
/// else in whole units. A resource that is absent counts as zero; entries may be zero (a limit of
/// zero is not the absence of a limit) and may be negative (an overcommitted remainder).
///
/// Shape: sorted by name, each name once. Arithmetic saturates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    entries: SmallVec<[(ResourceName, i64); 4]>,
}

impl Resources {
    /// No resource at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cpu in thousandths and memory in bytes: the two that every pod and node has.
    #[must_use]
    pub fn of(cpu_millis: i64, memory_bytes: i64) -> Self {
        [
            (ResourceName::Cpu, cpu_millis),
            (ResourceName::Memory, memory_bytes),
        ]
        .into_iter()
        .collect()
    }

    /// Adds or replaces one entry, by value (for building).
    #[must_use]
    pub fn with(mut self, name: ResourceName, amount: i64) -> Self {
        self.set(name, amount);
        self
    }

    fn position(&self, name: &ResourceName) -> Result<usize, usize> {
        self.entries.binary_search_by(|(entry, _)| entry.cmp(name))
    }

    /// The amount of `name`, zero when absent.
    #[must_use]
    pub fn get(&self, name: &ResourceName) -> i64 {
        self.find(name).unwrap_or(0)
    }

    /// The amount of `name`, `None` when absent.
    #[must_use]
    pub fn find(&self, name: &ResourceName) -> Option<i64> {
        let at = self.position(name).ok()?;
        self.entries.get(at).map(|(_, amount)| *amount)
    }

    /// Sets one entry.
    pub fn set(&mut self, name: ResourceName, amount: i64) {
        match self.position(&name) {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.1 = amount;
                }
            }
            Err(at) => self.entries.insert(at, (name, amount)),
        }
    }

    /// Entries in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, i64)> + '_ {
        self.entries.iter().map(|(name, amount)| (name, *amount))
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds `other` times `count`, entry by entry.
    pub fn add_times(&mut self, other: &Self, count: i64) {
        for (name, amount) in other.iter() {
            let sum = self.get(name).saturating_add(amount.saturating_mul(count));
            self.set(name.clone(), sum);
        }
    }

    /// Adds `other`, entry by entry.
    pub fn add(&mut self, other: &Self) {
        self.add_times(other, 1);
    }

    /// Subtracts `other`, entry by entry; results may be negative.
    pub fn subtract(&mut self, other: &Self) {
        self.add_times(other, -1);
    }

    /// Raises each entry to at least that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if self.find(name).is_none_or(|own| own < amount) {
                self.set(name.clone(), amount);
            }
        }
    }

    /// Raises negative entries to zero.
    pub fn clamp_to_zero(&mut self) {
        for (_, amount) in &mut self.entries {
            *amount = (*amount).max(0);
        }
    }

    /// Drops entries that are zero.
    pub fn drop_zeros(&mut self) {
        self.entries.retain(|(_, amount)| *amount != 0);
    }

    /// Whether a request of `self` fits into `total`. Nothing fits when any entry of `total` is
    /// negative, even one that is not asked for.
    ///
    /// Parity: provisioning specification 6.4, "effective requests".
    #[must_use]
    pub fn fits(&self, total: &Self) -> bool {
        total.iter().all(|(_, amount)| amount >= 0)
            && self.iter().all(|(name, amount)| amount <= total.get(name))
    }

    /// The resources of which `self` asks for more than `total` has.
    pub fn exceeding<'a>(&'a self, total: &'a Self) -> impl Iterator<Item = &'a ResourceName> + 'a {
        self.iter()
            .filter(|(name, amount)| *amount > total.get(name))
            .map(|(name, _)| name)
    }

    /// Order by cpu, then memory: larger requests come first in a packing queue.
    #[must_use]
    pub fn cmp_by_size(&self, other: &Self) -> Ordering {
        self.get(&ResourceName::Cpu)
            .cmp(&other.get(&ResourceName::Cpu))
            .then_with(|| {
                self.get(&ResourceName::Memory)
                    .cmp(&other.get(&ResourceName::Memory))
            })
    }
}

impl FromIterator<(ResourceName, i64)> for Resources {
    /// Later entries of a name replace earlier ones.
    fn from_iter<I: IntoIterator<Item = (ResourceName, i64)>>(iter: I) -> Self {
        let mut resources = Self::new();
        for (name, amount) in iter {
            resources.set(name, amount);
        }
        resources
    }
}

impl fmt::Display for Resources {
    /// `cpu=1900m, memory=512Mi, pods=3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name}={}", name.format(amount))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_fits_into_a_total_that_is_overcommitted_anywhere() {
        let request = Resources::of(100, 100);
        let total = Resources::of(1000, 1000);
        assert!(request.fits(&total));
        assert!(!request.fits(&total.clone().with(ResourceName::Other("x.io/y".into()), -1)));
        assert!(!request.clone().with(ResourceName::Pods, 1).fits(&total));
        assert!(request.with(ResourceName::Pods, 0).fits(&total));
    }

    #[test]
    fn displays_in_canonical_quantities_with_cpu_first() {
        let resources = Resources::of(1900, 512 << 20)
            .with(ResourceName::Pods, 3)
            .with(ResourceName::from("nvidia.com/gpu"), 1);
        assert_eq!(
            resources.to_string(),
            "cpu=1900m, memory=512Mi, pods=3, nvidia.com/gpu=1"
        );
    }
}
