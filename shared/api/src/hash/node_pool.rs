//! Hash of a NodePool's template.

use k8s_openapi::api::core::v1::Taint;

use super::digest::{Digest, Structure, int64};
use crate::common::NodeClassReference;
use crate::duration::{Duration, NillableDuration};
use crate::node_pool::{NodeClaimTemplate, NodeClaimTemplateSpec, NodePool, TemplateMetadata};

/// Value of the annotation `karpenter.sh/nodepool-hash-version`.
pub const NODE_POOL_HASH_VERSION: &str = "v3";

/// The value of the annotation `karpenter.sh/nodepool-hash`: decimal, unsigned, 64 bits.
///
/// Requirements take no part (their drift is judged by the node's labels), nor does anything
/// outside the template. `timeAdded` of taints takes no part either: it means nothing in a template.
#[must_use]
pub fn node_pool_hash(pool: &NodePool) -> String {
    template(&pool.spec.template).to_string()
}

fn template(template: &NodeClaimTemplate) -> Digest {
    let TemplateMetadata {
        labels,
        annotations,
    } = &template.metadata;
    let has_metadata = !labels.is_empty() || !annotations.is_empty();
    Structure::new("NodeClaimTemplate")
        .field(
            "ObjectMeta",
            has_metadata.then(|| {
                Structure::new("ObjectMeta")
                    .map("Labels", labels)
                    .map("Annotations", annotations)
                    .digest()
            }),
        )
        .field("Spec", spec(&template.spec))
        .digest()
}

fn spec(spec: &NodeClaimTemplateSpec) -> Digest {
    Structure::new("NodeClaimTemplateSpec")
        .list("Taints", &spec.taints, taint)
        .list("StartupTaints", &spec.startup_taints, taint)
        .field("NodeClassRef", class_reference(&spec.node_class_ref))
        .field(
            "TerminationGracePeriod",
            spec.termination_grace_period.as_ref().map(duration),
        )
        .field("ExpireAfter", nillable_duration(&spec.expire_after))
        .digest()
}

fn taint(taint: &Taint) -> Digest {
    Structure::new("Taint")
        .text("Key", &taint.key)
        .text("Value", taint.value.as_deref().unwrap_or_default())
        .text("Effect", &taint.effect)
        .digest()
}

fn class_reference(reference: &NodeClassReference) -> Digest {
    Structure::new("NodeClassReference")
        .text("Kind", &reference.kind)
        .text("Name", &reference.name)
        .text("Group", &reference.group)
        .digest()
}

/// Behind a pointer, so that zero is there; but the number inside is a plain value and skipped.
fn duration(duration: &Duration) -> Digest {
    let nanos = duration.nanos();
    Structure::new("Duration")
        .field("Duration", (nanos != 0).then(|| int64(nanos)))
        .digest()
}

/// A plain value around a pointer: never is skipped, zero is not.
fn nillable_duration(duration: &NillableDuration) -> Option<Digest> {
    let nanos = duration.nanos()?;
    Some(
        Structure::new("NillableDuration")
            .field("Duration", int64(nanos))
            .digest(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::NodeSelectorRequirementWithMinValues;
    use crate::node_pool::NodePoolSpec;

    fn pool() -> NodePool {
        let spec = serde_json::json!({"template": {
            "metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}},
            "spec": {
                "requirements": [],
                "taints": [
                    {"key": "x", "value": "y", "effect": "NoSchedule"},
                    {"key": "z", "effect": "NoExecute"}
                ],
                "startupTaints": [{"key": "s", "effect": "NoSchedule"}],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"},
                "terminationGracePeriod": "1h"
            }
        }});
        NodePool::new(
            "default",
            serde_json::from_value::<NodePoolSpec>(spec).unwrap(),
        )
    }

    /// The hash after a change of the template.
    fn changed(change: impl FnOnce(&mut NodeClaimTemplate)) -> String {
        let mut pool = pool();
        change(&mut pool.spec.template);
        node_pool_hash(&pool)
    }

    #[test]
    fn what_belongs_to_the_node_changes_the_hash() {
        let base = node_pool_hash(&pool());
        let mut seen = vec![
            base,
            changed(|t| t.metadata.labels.clear()),
            changed(|t| t.metadata.annotations.clear()),
            changed(|t| t.metadata = TemplateMetadata::default()),
            changed(|t| t.spec.taints.truncate(1)),
            changed(|t| t.spec.taints[0].value = None),
            changed(|t| t.spec.startup_taints.clear()),
            changed(|t| std::mem::swap(&mut t.spec.taints, &mut t.spec.startup_taints)),
            changed(|t| t.spec.node_class_ref.name = "e".into()),
            changed(|t| t.spec.node_class_ref.kind = "E".into()),
            changed(|t| t.spec.node_class_ref.group = "e".into()),
            changed(|t| t.spec.termination_grace_period = None),
            changed(|t| t.spec.termination_grace_period = Some(Duration::from_secs(0))),
            changed(|t| t.spec.expire_after = NillableDuration::NEVER),
            changed(|t| t.spec.expire_after = NillableDuration::from_secs(0)),
        ];
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn what_does_not_belong_to_the_node_leaves_the_hash_alone() {
        let base = node_pool_hash(&pool());
        let mut other = pool();
        other.spec.weight = Some(7);
        other.spec.replicas = Some(7);
        other.spec.disruption.budgets.clear();
        other
            .spec
            .limits
            .insert("cpu".into(), "7".to_owned().into_quantity());
        assert_eq!(node_pool_hash(&other), base);
        assert_eq!(changed(|t| t.spec.requirements = vec![requirement()]), base);
        assert_eq!(changed(|t| t.spec.taints.reverse()), base);
        let respelled = || Some("60m".parse().unwrap());
        assert_eq!(
            changed(|t| t.spec.termination_grace_period = respelled()),
            base
        );
    }

    fn requirement() -> NodeSelectorRequirementWithMinValues {
        NodeSelectorRequirementWithMinValues {
            key: "k".into(),
            ..Default::default()
        }
    }

    trait IntoQuantity {
        fn into_quantity(self) -> k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    }

    impl IntoQuantity for String {
        fn into_quantity(self) -> k8s_openapi::apimachinery::pkg::api::resource::Quantity {
            k8s_openapi::apimachinery::pkg::api::resource::Quantity(self)
        }
    }

    /// The rules of the specification, applied by hand to the smallest template, with nothing but
    /// the published hash function: guards the order and the names, which no other test would.
    #[test]
    fn hash_of_a_small_template_follows_the_rules_written_out() {
        fn h(bytes: &[u8]) -> u64 {
            let mut hash: u64 = 14_695_981_039_346_656_037;
            for byte in bytes {
                hash = hash.wrapping_mul(1_099_511_628_211);
                hash ^= u64::from(*byte);
            }
            hash
        }
        fn step(hash: u64, name: &str, value: u64) -> u64 {
            let pair = [h(name.as_bytes()).to_le_bytes(), value.to_le_bytes()].concat();
            h(&(hash ^ h(&pair)).to_le_bytes())
        }
        let mut reference = h(b"NodeClassReference");
        reference = step(reference, "Kind", h(b"K"));
        reference = step(reference, "Name", h(b"N"));
        reference = step(reference, "Group", h(b"G"));
        let nanos = 720 * 3_600 * 1_000_000_000_i64;
        let expire = step(h(b"NillableDuration"), "Duration", h(&nanos.to_le_bytes()));
        let mut spec = step(h(b"NodeClaimTemplateSpec"), "NodeClassRef", reference);
        spec = step(spec, "ExpireAfter", expire);
        let expected = step(h(b"NodeClaimTemplate"), "Spec", spec);

        let mut pool = NodePool::new("p", NodePoolSpec::default());
        pool.spec.template.spec.node_class_ref = NodeClassReference {
            kind: "K".into(),
            name: "N".into(),
            group: "G".into(),
        };
        assert_eq!(node_pool_hash(&pool), expected.to_string());
    }
}
