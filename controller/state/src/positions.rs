//! Where each key stands in a chunked list, so that a change touches one chunk.

use std::{collections::HashMap, hash::Hash};

use millwright_model::Chunks;

/// Index of a [`Chunks`] by key.
#[derive(Debug)]
pub(crate) struct Positions<K> {
    by_key: HashMap<K, usize>,
}

impl<K> Default for Positions<K> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Positions<K> {
    /// The element of `key`.
    pub(crate) fn get<'a, T: Clone>(&self, list: &'a Chunks<T>, key: &K) -> Option<&'a T> {
        list.get(*self.by_key.get(key)?)
    }

    /// Makes `value` the element of `key`: adds, replaces or removes it.
    pub(crate) fn set<T: Clone>(
        &mut self,
        list: &mut Chunks<T>,
        key: K,
        value: Option<T>,
        key_of: impl Fn(&T) -> K,
    ) {
        match (self.by_key.get(&key).copied(), value) {
            (Some(at), Some(value)) => {
                list.replace(at, value);
            }
            (None, Some(value)) => {
                self.by_key.insert(key, list.len());
                list.push(value);
            }
            (Some(at), None) => {
                self.by_key.remove(&key);
                list.swap_remove(at);
                if let Some(moved) = list.get(at) {
                    self.by_key.insert(key_of(moved), at);
                }
            }
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_keeps_the_index_of_the_element_that_moved() {
        let mut list = Chunks::default();
        let mut positions = Positions::default();
        for n in 0..5 {
            positions.set(&mut list, n, Some((n, "old")), |e| e.0);
        }
        positions.set(&mut list, 1, None, |e: &(i32, &str)| e.0);
        positions.set(&mut list, 4, Some((4, "new")), |e| e.0);
        let mut left: Vec<_> = list.iter().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [(0, "old"), (2, "old"), (3, "old"), (4, "new")]);
    }
}
