//! The primitives of the hash: 64-bit FNV-1 over bytes, and how values are combined.

use std::collections::BTreeMap;

/// The hash of a value, not yet written in decimal.
pub(super) type Digest = u64;

/// FNV-1: multiply, then xor. The constants are those of its 64-bit variant.
fn fnv1(bytes: impl IntoIterator<Item = u8>) -> Digest {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.into_iter().fold(OFFSET, |hash, byte| {
        hash.wrapping_mul(PRIME) ^ u64::from(byte)
    })
}

/// Hash of a text.
pub(super) fn text(value: &str) -> Digest {
    fnv1(value.bytes())
}

/// Hash of a truth value.
pub(super) fn boolean(value: bool) -> Digest {
    fnv1([u8::from(value)])
}

/// Hash of a 32-bit integer.
pub(super) fn int32(value: i32) -> Digest {
    fnv1(value.to_le_bytes())
}

/// Hash of a 64-bit integer.
pub(super) fn int64(value: i64) -> Digest {
    fnv1(value.to_le_bytes())
}

/// Hash of a list, taken as a set: equal elements cancel each other out.
pub(super) fn list(elements: impl IntoIterator<Item = Digest>) -> Digest {
    elements.into_iter().fold(0, |hash, element| hash ^ element)
}

/// Hash of a map.
pub(super) fn map(entries: &BTreeMap<String, String>) -> Digest {
    finish(list(
        entries
            .iter()
            .map(|(key, value)| ordered(text(key), text(value))),
    ))
}

fn ordered(a: Digest, b: Digest) -> Digest {
    fnv1(a.to_le_bytes().into_iter().chain(b.to_le_bytes()))
}

fn finish(hash: Digest) -> Digest {
    fnv1(hash.to_le_bytes())
}

/// Hash of a structure: its type's name, then its fields in the order of their declaration.
/// Fields that are zero must not be passed at all.
pub(super) struct Structure(Digest);

impl Structure {
    /// Begins a structure of the type named.
    pub(super) fn new(type_name: &str) -> Self {
        Self(text(type_name))
    }

    /// Adds a field that is there, even if it points to a zero value.
    pub(super) fn field(mut self, name: &str, value: impl Into<Option<Digest>>) -> Self {
        if let Some(value) = value.into() {
            self.0 = finish(self.0 ^ ordered(text(name), value));
        }
        self
    }

    /// Adds a text that is no pointer: empty counts as zero.
    pub(super) fn text(self, name: &str, value: &str) -> Self {
        self.field(name, (!value.is_empty()).then(|| text(value)))
    }

    /// Adds a map: empty counts as zero.
    pub(super) fn map(self, name: &str, value: &BTreeMap<String, String>) -> Self {
        self.field(name, (!value.is_empty()).then(|| map(value)))
    }

    /// Adds a list: empty counts as zero.
    pub(super) fn list<T>(self, name: &str, value: &[T], element: impl Fn(&T) -> Digest) -> Self {
        self.field(
            name,
            (!value.is_empty()).then(|| list(value.iter().map(element))),
        )
    }

    /// The hash.
    pub(super) fn digest(self) -> Digest {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1_multiplies_before_it_mixes() {
        // Published vectors of the 64-bit FNV-1.
        assert_eq!(text(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(text("a"), 0xaf63_bd4c_8601_b7be);
        assert_eq!(text("foobar"), 0x340d_8765_a4dd_a9c2);
    }

    #[test]
    fn lists_are_sets_and_maps_are_not_lists() {
        assert_eq!(list([1, 2, 3]), list([3, 1, 2]));
        assert_eq!(list([1, 2, 2]), 1);
        let one = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        assert_ne!(map(&one), list([ordered(text("a"), text("b"))]));
    }

    #[test]
    fn absent_fields_leave_no_trace_but_the_order_of_the_others_counts() {
        let both = Structure::new("T").field("A", 1).field("B", 2).digest();
        assert_eq!(
            Structure::new("T")
                .field("A", 1)
                .field("X", None)
                .field("B", 2)
                .digest(),
            both
        );
        assert_ne!(
            Structure::new("T").field("B", 2).field("A", 1).digest(),
            both
        );
    }
}
