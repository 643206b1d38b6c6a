//! MD5 (RFC 1321), because SQS answers with digests of bodies that some clients check.
//! Nothing secret depends on it.

/// Rotations, four per round.
const ROTATIONS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The digest of a text in lower-case hexadecimal.
pub(crate) fn hex(text: &str) -> String {
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = text.as_bytes().to_vec();
    let bits = (padded.len() as u64).wrapping_mul(8);
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - text.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&bits.to_le_bytes());
    for block in padded.chunks_exact(64) {
        add_block(&mut state, block);
    }
    state
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn add_block(state: &mut [u32; 4], block: &[u8]) {
    let mut words = [0_u32; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (mix, word) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a
            .wrapping_add(mix)
            .wrapping_add(sine(step + 1))
            .wrapping_add(words[word % 16]);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(ROTATIONS[step / 16][step % 4]));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

/// The integer part of 2^32 times the absolute sine, the algorithm's table.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the definition: a number from 1 to 64 in, a value in 0..2^32 out"
)]
fn sine(step: usize) -> u32 {
    ((step as f64).sin().abs() * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn digests_are_those_of_the_standard() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(text), digest, "{text}");
        }
        // Lengths around the padding's edges.
        assert_eq!(hex(&"a".repeat(55)), "ef1772b6dff9a122358552954ad0df65");
        assert_eq!(hex(&"a".repeat(56)), "3b0c8ac703f828b04c6c197006d17218");
        assert_eq!(hex(&"a".repeat(64)), "014842d480b571495a4a0363793f7367");
    }
}
