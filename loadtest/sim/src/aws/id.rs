//! Identifiers and pseudo-random draws, all from the seed.
//!
//! The n-th identifier of a run depends only on the seed and n, so a run that makes the same
//! calls in the same order gives the same identifiers.

/// Makes identifiers.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    seed: u64,
    next: u64,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    /// `i-0123456789abcdef0`: the prefix and 17 hexadecimal digits, as EC2 has them.
    pub(crate) fn ec2(&mut self, prefix: &str) -> String {
        ec2_id(prefix, self.draw())
    }

    /// Lower-case UUID.
    pub(crate) fn uuid(&mut self) -> String {
        let (high, low) = (self.draw(), self.draw());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            0x8000 | low >> 48 & 0x3fff,
            low & 0xffff_ffff_ffff
        )
    }

    /// IAM's unique ids: a prefix of four letters and 17 capitals or digits.
    pub(crate) fn iam(&mut self, prefix: &str) -> String {
        const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let (mut high, mut low) = (self.draw(), self.draw());
        let mut id = prefix.to_owned();
        for _ in 0..17 {
            id.push(char::from(ALPHABET[usize::try_from(low & 31).unwrap_or(0)]));
            low = low >> 5 | high << 59;
            high >>= 5;
        }
        id
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.next += 1;
        mix(self.seed ^ mix(self.next))
    }
}

/// An EC2 identifier from a number, for things whose id follows from another's.
pub(crate) fn ec2_id(prefix: &str, number: u64) -> String {
    format!("{prefix}-0{number:016x}")
}

/// Scrambles a number; the finaliser of splitmix64.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stable hash of text (FNV-1a, mixed).
pub(crate) fn hash(text: &str) -> u64 {
    mix(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn the_same_seed_gives_the_same_ids_in_the_right_shape() {
        let (mut one, mut two) = (Ids::new(7), Ids::new(7));
        let id = one.ec2("i");
        assert_eq!(id, two.ec2("i"));
        assert_eq!(id.len(), 2 + 17);
        assert_ne!(id, one.ec2("i"));
        assert_eq!(one.uuid().len(), 36);
        assert_eq!(one.iam("AIPA").len(), 21);
        assert_ne!(Ids::new(8).ec2("i"), id);
    }
}
