//! Sets of instance types as bits: one word holds 64 types.

use smallvec::SmallVec;

/// A set of type ordinals of one catalogue. Sets of the same catalogue have the same length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeSet {
    words: SmallVec<[u64; 10]>,
}

impl TypeSet {
    /// No type, out of `len`.
    pub(crate) fn none(len: usize) -> Self {
        Self {
            words: SmallVec::from_elem(0, len.div_ceil(64)),
        }
    }

    /// All types, out of `len`.
    pub(crate) fn all(len: usize) -> Self {
        let mut set = Self::none(len);
        for at in 0..len {
            set.insert(at);
        }
        set
    }

    pub(crate) fn insert(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
    }

    pub(crate) fn contains(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Keeps what both have.
    pub(crate) fn intersect(&mut self, other: &Self) {
        for (own, theirs) in self.words.iter_mut().zip(&other.words) {
            *own &= theirs;
        }
    }

    /// Adds what the other has.
    pub(crate) fn unite(&mut self, other: &Self) {
        for (own, theirs) in self.words.iter_mut().zip(&other.words) {
            *own |= theirs;
        }
    }

    /// Removes what the other has.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (own, theirs) in self.words.iter_mut().zip(&other.words) {
            *own &= !theirs;
        }
    }

    /// Members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    at * 64 + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_listed_across_words_in_order() {
        let mut set = TypeSet::none(130);
        for at in [129, 0, 63, 64] {
            set.insert(at);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(set.len(), 4);
        let mut all = TypeSet::all(130);
        assert_eq!(all.len(), 130);
        all.intersect(&set);
        assert_eq!(all, set);
    }
}
