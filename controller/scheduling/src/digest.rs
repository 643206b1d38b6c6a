//! A hash that is the same on every machine and in every release: plans are compared by it, in
//! tests and between a leader and its followers. Not meant to withstand an adversary.

use millwright_model::Requirements;

/// The offset and prime of 64-bit FNV, applied to words instead of bytes for speed; the shift
/// carries high bits down, which whole words need.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) const fn new() -> Self {
        Self(OFFSET)
    }

    /// The hash of one text.
    pub(crate) fn of(text: &str) -> u64 {
        let mut digest = Self::new();
        digest.text(text);
        digest.finish()
    }

    pub(crate) const fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(PRIME);
        self.0 ^= self.0 >> 32;
    }

    /// Hashes the length too, so that adjacent texts cannot run into each other.
    pub(crate) fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(bytes));
        }
    }

    pub(crate) fn requirements(&mut self, requirements: &Requirements) {
        for requirement in requirements.iter() {
            self.text(requirement.key());
            self.word(u64::from(requirement.is_complement()));
            requirement
                .values()
                .iter()
                .for_each(|value| self.text(value));
            let (gte, lte) = requirement.bounds();
            for bound in [gte, lte] {
                // `None` and every number differ.
                self.text(&bound.map_or_else(String::new, |bound| bound.to_string()));
            }
        }
    }

    pub(crate) const fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(texts: &[&str]) -> u64 {
        let mut digest = Digest::new();
        texts.iter().for_each(|text| digest.text(text));
        digest.finish()
    }

    #[test]
    fn neighbouring_texts_do_not_run_into_each_other() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_ne!(digest(&["", "a"]), digest(&["a", ""]));
    }

    #[test]
    fn the_hash_is_the_same_in_every_release() {
        assert_eq!(
            digest(&["default-1", "web/web-0"]),
            1_911_179_024_445_575_817
        );
    }
}
