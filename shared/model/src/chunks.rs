//! A sequence in shared chunks: cloning costs one pointer per chunk, changing k elements copies
//! the chunks they lie in and no more.

use std::sync::Arc;

/// Elements per chunk. Snapshots of 10,000 nodes clone 40 pointers; changing one node copies 256.
const CHUNK: usize = 256;

/// A growable sequence whose clones share all unchanged chunks.
#[derive(Clone, Debug)]
pub struct Chunks<T> {
    chunks: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Clone> Chunks<T> {
    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// All elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Appends an element; copies at most one chunk.
    pub fn push(&mut self, value: T) {
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        if let Some(last) = self.chunks.last_mut() {
            Arc::make_mut(last).push(value);
            self.len += 1;
        }
    }

    /// Replaces the element at `index` and returns the old one; copies at most one chunk. `None`
    /// (and no change) when there is no such element.
    pub fn replace(&mut self, index: usize, value: T) -> Option<T> {
        let chunk = self.chunks.get_mut(index / CHUNK)?;
        if index % CHUNK >= chunk.len() {
            return None;
        }
        Arc::make_mut(chunk)
            .get_mut(index % CHUNK)
            .map(|slot| std::mem::replace(slot, value))
    }

    /// Removes the element at `index` by moving the last one into its place; copies at most two
    /// chunks. `None` when there is no such element.
    pub fn swap_remove(&mut self, index: usize) -> Option<T> {
        if index >= self.len {
            return None;
        }
        let last = Arc::make_mut(self.chunks.last_mut()?).pop()?;
        self.len -= 1;
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.pop();
        }
        if index == self.len {
            Some(last)
        } else {
            self.replace(index, last)
        }
    }
}

impl<T: Clone> FromIterator<T> for Chunks<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        let mut chunks = Self::default();
        for value in iter {
            chunks.push(value);
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_vector_and_never_changes_its_clones(
            start in 0_usize..1200,
            edits in proptest::collection::vec((0_u8..3, 0_usize..1300), 0..60),
        ) {
            let mut chunks: Chunks<usize> = (0..start).collect();
            let mut vector: Vec<usize> = (0..start).collect();
            let frozen = chunks.clone();
            for (kind, index) in edits {
                match kind {
                    0 => { chunks.push(index); vector.push(index); }
                    1 => {
                        let old = chunks.replace(index, 7);
                        prop_assert_eq!(old, vector.get_mut(index).map(|v| std::mem::replace(v, 7)));
                    }
                    _ => {
                        let expected = (index < vector.len()).then(|| vector.swap_remove(index));
                        prop_assert_eq!(chunks.swap_remove(index), expected);
                    }
                }
                prop_assert_eq!(chunks.len(), vector.len());
            }
            prop_assert!(chunks.iter().eq(vector.iter()));
            prop_assert!(frozen.iter().copied().eq(0..start));
        }
    }
}
