//! Resources as rows of integers: one column per resource that some pod asks for.

use millwright_model::{ResourceName, Resources};

/// Columns are padded to a multiple of this, so that rows compare in whole vector registers.
const LANES: usize = 4;

/// Amounts beyond this (an exbibyte) are cut, so that the sum of two never overflows.
const CEILING: i64 = 1 << 60;

/// The columns of all rows of one problem. Units are those of [`Resources`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Dimensions {
    names: Vec<ResourceName>,
    stride: usize,
}

impl Dimensions {
    /// One column for each name; the order of names is the order of columns.
    pub(crate) fn new(mut names: Vec<ResourceName>) -> Self {
        names.sort_unstable();
        names.dedup();
        let stride = names.len().next_multiple_of(LANES).max(LANES);
        Self { names, stride }
    }

    /// Length of every row.
    pub(crate) const fn stride(&self) -> usize {
        self.stride
    }

    /// The row of `resources`; resources without a column are left out.
    pub(crate) fn row(&self, resources: &Resources) -> Vec<i64> {
        let mut row: Vec<i64> = self
            .names
            .iter()
            .map(|name| resources.get(name).clamp(-CEILING, CEILING))
            .collect();
        row.resize(self.stride, 0);
        row
    }

    /// Resources named again, zero entries left out.
    pub(crate) fn resources(&self, row: &[i64]) -> Resources {
        self.names
            .iter()
            .zip(row)
            .filter(|(_, amount)| **amount != 0)
            .map(|(name, amount)| (name.clone(), *amount))
            .collect()
    }
}

/// Whether `used` and `more` together stay within `total`, column by column.
#[inline]
pub(crate) fn fits_sum(used: &[i64], more: &[i64], total: &[i64]) -> bool {
    let mut over = false;
    for ((used, more), total) in used.iter().zip(more).zip(total) {
        // No early exit: the loop then has no branch and is vectorised.
        over |= used + more > *total;
    }
    !over
}

/// Whether `need` stays within `total`, column by column.
#[inline]
pub(crate) fn fits(need: &[i64], total: &[i64]) -> bool {
    let mut over = false;
    for (need, total) in need.iter().zip(total) {
        over |= need > total;
    }
    !over
}

/// How many times `item` fits into `total` on top of `used`.
#[inline]
pub(crate) fn copies(used: &[i64], item: &[i64], total: &[i64]) -> i64 {
    let mut most = i64::MAX;
    for ((used, item), total) in used.iter().zip(item).zip(total) {
        let rest = total - used;
        if rest < 0 {
            return 0;
        }
        if *item > 0 {
            most = most.min(rest / item);
        }
    }
    most
}

/// Adds `item` times `count` to `row`.
#[inline]
pub(crate) fn add_times(row: &mut [i64], item: &[i64], count: i64) {
    for (own, item) in row.iter_mut().zip(item) {
        *own += item * count;
    }
}
