//! NodePools: what may be launched, how much, at which preference.

use millwright_api::{NodePool as ApiNodePool, hash};
use millwright_model::{
    NodeClassRef, NodePool, Requirements, Resources, Span, instance_type::InstanceTypes,
};

use super::{FieldError, names, requirement, resources, taints};

/// A NodePool with the instance types of its class and what it uses of its limits.
///
/// # Errors
/// The first field that cannot be converted.
pub fn node_pool(
    pool: &ApiNodePool,
    instance_types: InstanceTypes,
    usage: Resources,
) -> Result<NodePool, FieldError> {
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;
    let mut requirements = Requirements::new();
    for (at, r) in template.spec.requirements.iter().enumerate() {
        let path = format!("spec.template.spec.requirements[{at}]");
        let min_values = r.min_values.and_then(|n| u32::try_from(n).ok());
        requirements
            .add(requirement(&r.key, &r.operator, &r.values, &path)?.with_min_values(min_values));
    }
    Ok(NodePool {
        name: pool.metadata.name.as_deref().unwrap_or_default().into(),
        uid: pool.metadata.uid.as_deref().unwrap_or_default().into(),
        weight: pool
            .spec
            .weight
            .and_then(|w| u32::try_from(w).ok())
            .unwrap_or(0),
        ready: is_ready(pool),
        deleting: pool.metadata.deletion_timestamp.is_some(),
        is_static: pool.spec.replicas.is_some(),
        labels: names(&template.metadata.labels),
        annotations: names(&template.metadata.annotations),
        requirements,
        taints: taints(&template.spec.taints, "spec.template.spec.taints")?,
        startup_taints: taints(
            &template.spec.startup_taints,
            "spec.template.spec.startupTaints",
        )?,
        node_class: NodeClassRef {
            group: class.group.as_str().into(),
            kind: class.kind.as_str().into(),
            name: class.name.as_str().into(),
        },
        termination_grace_period: template
            .spec
            .termination_grace_period
            .as_ref()
            .map(|d| Span(d.millis())),
        expire_after: template
            .spec
            .expire_after
            .0
            .as_ref()
            .map(|d| Span(d.millis())),
        limits: match &pool.spec.limits {
            limits if limits.is_empty() => None,
            limits => Some(resources(limits, "spec.limits")?),
        },
        usage,
        hash: hash::node_pool_hash(pool).into(),
        instance_types,
    })
}

/// Whether the `Ready` condition is true at the current generation.
fn is_ready(pool: &ApiNodePool) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let generation = pool.metadata.generation;
    conditions.into_iter().any(|c| {
        c.type_ == "Ready"
            && c.status == "True"
            && c.observed_generation
                .is_none_or(|seen| Some(seen) == generation)
    })
}
