//! Names and paths of instance profiles.
//!
//! Source: AWS specification 28.

use sha2::{Digest, Sha256};

/// Longest name that IAM takes.
const NAME_LIMIT: usize = 128;

/// The path under which a class's profiles live; finalising the class empties it.
#[must_use]
pub fn class_path(region: &str, cluster: &str, class_uid: &str) -> String {
    format!("{}{class_uid}/", cluster_path(region, cluster))
}

/// The path under which all profiles of a cluster live.
#[must_use]
pub fn cluster_path(region: &str, cluster: &str) -> String {
    format!("/karpenter/{region}/{cluster}/")
}

/// A profile's name for a role of a class. Differs: it follows from its inputs instead of being
/// random, so that a creation that was repeated (lost answer, second leader) finds the first
/// one's result. A changed role gives a changed name, which running claims need.
#[must_use]
pub fn name(cluster: &str, region: &str, class_uid: &str, role: &str) -> String {
    let mut hash = Sha256::new();
    for part in [region, class_uid, role_name(role)] {
        hash.update(part.as_bytes());
        // No name holds a zero byte, so no two lists of parts read the same.
        hash.update([0]);
    }
    let suffix = number(&hash.finalize());
    let room = NAME_LIMIT - suffix.len() - 1;
    let prefix: String = cluster.chars().filter(char::is_ascii).take(room).collect();
    format!("{prefix}_{suffix}")
}

/// The profile name of releases before 1.7, which finalising a class removes too.
#[must_use]
pub fn legacy_name(cluster: &str, region: &str, class_name: &str) -> String {
    let text = format!("{region}{class_name}");
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte)
    });
    format!("{cluster}_{hash}")
}

/// The role's own name, without its path; IAM reports roles by it.
#[must_use]
pub fn role_name(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

/// The first eight bytes of a digest as a decimal number.
pub(crate) fn number(digest: &[u8]) -> String {
    let first = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    first.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable_differ_by_role_and_class_and_fit() {
        let name_of = |uid, role| name("demo", "us-east-1", uid, role);
        assert_eq!(name_of("u1", "r1"), name_of("u1", "r1"));
        assert_ne!(name_of("u1", "r1"), name_of("u1", "r2"));
        assert_ne!(name_of("u1", "r1"), name_of("u2", "r1"));
        assert_eq!(
            name_of("u1", "path/r1"),
            name_of("u1", "r1"),
            "IAM knows roles without path"
        );
        assert!(name_of("u1", "r1").starts_with("demo_"));
        assert!(name(&"c".repeat(200), "us-east-1", "u", "r").len() <= NAME_LIMIT);
    }

    #[test]
    fn paths_nest_the_class_in_the_cluster() {
        assert_eq!(
            class_path("us-east-1", "demo", "u1"),
            "/karpenter/us-east-1/demo/u1/"
        );
        assert!(class_path("r", "c", "u").starts_with(&cluster_path("r", "c")));
    }

    #[test]
    fn the_legacy_name_is_fnv_1_of_region_and_class() {
        // FNV-1 of the empty string is the offset basis.
        assert_eq!(legacy_name("demo", "", ""), "demo_14695981039346656037");
        assert_ne!(
            legacy_name("demo", "us-east-1", "a"),
            legacy_name("demo", "us-east-1", "b")
        );
    }
}
