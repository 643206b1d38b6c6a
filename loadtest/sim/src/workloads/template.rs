//! The hash that tells one revision of a pod template from another.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Letters that cannot spell anything, as Kubernetes uses them in generated names.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Short text for a template; `attempt` makes another one when the first is taken.
pub(super) fn hash(template: &PodTemplateSpec, attempt: u32) -> String {
    // The type's own serialisation has a fixed order of fields.
    let text = serde_json::to_vec(template).unwrap_or_default();
    let mut number = text
        .iter()
        .chain(attempt.to_be_bytes().iter())
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
    let base = 27;
    let mut name = String::new();
    for _ in 0..7 {
        let letter = ALPHABET.get((number % base) as usize).copied();
        name.push(char::from(letter.unwrap_or(b'b')));
        number /= base;
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_and_attempts_have_hashes_of_their_own() {
        let template = |image: &str| -> PodTemplateSpec {
            serde_json::from_value(json!({"spec": {"containers": [{"name": "a", "image": image}]}}))
                .expect("a template")
        };
        let first = hash(&template("a:1"), 0);
        assert_eq!(first, hash(&template("a:1"), 0));
        assert_ne!(first, hash(&template("a:2"), 0));
        assert_ne!(first, hash(&template("a:1"), 1));
        assert_eq!(first.len(), 7);
    }
}
