//! From a proposal to the NodeClaim object.
//!
//! Source: provisioning specification 7.1.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{ObjectMeta, OwnerReference},
};
use millwright_api::{
    Duration, NillableDuration, NodeClaim, NodeClaimSpec, NodeClassReference,
    NodeSelectorRequirementWithMinValues, ResourceList, Taint as ApiTaint, annotations, hash,
    node_claim::ResourceRequirements,
};
use millwright_model::{
    Name, NodeClaimProposal, Operator, Requirement, Requirements, Resources, Taint, labels,
};

pub use millwright_lifecycle::launch_group::ANNOTATION as LAUNCH_GROUP;

/// Keys that exist only while planning.
const SIMULATION_ONLY: [&str; 3] = [labels::HOSTNAME, labels::REGISTERED, labels::INITIALIZED];

/// The NodeClaim of a proposal, without its launch group. The API server completes the name.
#[must_use]
pub fn node_claim(proposal: &NodeClaimProposal) -> NodeClaim {
    let pool = &proposal.node_pool;
    let mut annotations: BTreeMap<String, String> = pool
        .annotations
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    for (key, value) in [
        (annotations::NODE_POOL_HASH, pool.hash.to_string()),
        (
            annotations::NODE_POOL_HASH_VERSION,
            hash::NODE_POOL_HASH_VERSION.to_owned(),
        ),
        (annotations::MIN_VALUES_RELAXED, "false".to_owned()),
    ] {
        annotations.insert(key.to_owned(), value);
    }
    let mut claim = NodeClaim::new("", spec(proposal));
    claim.metadata = ObjectMeta {
        generate_name: Some(format!("{}-", pool.name)),
        // From the start: one write less for each node, just when hundreds are being created.
        finalizers: Some(vec![annotations::TERMINATION_FINALIZER.to_owned()]),
        labels: Some(claim_labels(proposal)),
        annotations: Some(annotations),
        owner_references: Some(vec![OwnerReference {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodePool".to_owned(),
            name: pool.name.to_string(),
            uid: pool.uid.to_string(),
            block_owner_deletion: Some(true),
            controller: None,
        }]),
        ..ObjectMeta::default()
    };
    claim
}

fn spec(proposal: &NodeClaimProposal) -> NodeClaimSpec {
    let pool = &proposal.node_pool;
    NodeClaimSpec {
        taints: pool.taints.iter().map(taint).collect(),
        startup_taints: pool.startup_taints.iter().map(taint).collect(),
        requirements: requirements(proposal),
        resources: ResourceRequirements {
            requests: resource_list(&proposal.requests),
        },
        node_class_ref: NodeClassReference {
            kind: pool.node_class.kind.to_string(),
            name: pool.node_class.name.to_string(),
            group: pool.node_class.group.to_string(),
        },
        termination_grace_period: pool
            .termination_grace_period
            .map(|span| Duration::from_nanos(span.as_millis().saturating_mul(1_000_000))),
        expire_after: NillableDuration(
            pool.expire_after
                .map(|span| Duration::from_nanos(span.as_millis().saturating_mul(1_000_000))),
        ),
    }
}

fn taint(taint: &Taint) -> ApiTaint {
    ApiTaint {
        key: taint.key.to_string(),
        value: (!taint.value.is_empty()).then(|| taint.value.to_string()),
        effect: taint.effect.as_str().to_owned(),
        time_added: None,
    }
}

fn resource_list(resources: &Resources) -> ResourceList {
    resources
        .iter()
        .map(|(name, amount)| (name.to_string(), Quantity(name.format(amount))))
        .collect()
}

/// Template labels, and one per requirement on a custom key.
fn claim_labels(proposal: &NodeClaimProposal) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = proposal
        .node_pool
        .node_labels()
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    for requirement in proposal.requirements.iter() {
        let key = requirement.key();
        let custom = !labels::is_well_known(key)
            && !labels::is_restricted(key)
            && !SIMULATION_ONLY.contains(&&**key);
        if custom && let Some(value) = any_value(requirement) {
            labels.entry(key.to_string()).or_insert(value);
        }
    }
    labels
}

/// Some allowed value: the first listed one, or for an open set the smallest allowed integer.
/// `None` when the label must be absent.
fn any_value(requirement: &Requirement) -> Option<String> {
    if !requirement.is_complement() {
        return requirement.values().first().map(ToString::to_string);
    }
    let first = requirement.bounds().0.unwrap_or(0).max(0);
    // One of n + 1 integers is not among n excluded values, unless the upper bound forbids it.
    let tries = i64::try_from(requirement.values().len())
        .unwrap_or(i64::MAX)
        .saturating_add(1);
    (first..first.saturating_add(tries))
        .map(|n| n.to_string())
        .find(|value| requirement.has(value))
}

/// All requirements of the NodeClaim, with the list of types and the capacity types that are for sale.
fn requirements(proposal: &NodeClaimProposal) -> Vec<NodeSelectorRequirementWithMinValues> {
    let mut all: Requirements = proposal
        .requirements
        .iter()
        .filter(|requirement| !SIMULATION_ONLY.contains(&&**requirement.key()))
        .cloned()
        .collect();
    let of = |key: &str, values: BTreeSet<Name>, all: &Requirements| {
        let min_values = all.get(key).and_then(Requirement::min_values);
        Requirement::new(&key.into(), Operator::In, values).with_min_values(min_values)
    };
    let types = proposal
        .instance_types
        .iter()
        .map(|t| t.name.clone())
        .collect();
    let capacity_types = proposal
        .instance_types
        .iter()
        .flat_map(|t| &t.offerings)
        .filter(|o| {
            o.available
                && all
                    .compatible(&o.requirements, labels::is_well_known)
                    .is_ok()
        })
        .map(|o| Name::from(o.capacity_type.as_str()))
        .collect();
    let types = of(labels::INSTANCE_TYPE, types, &all);
    let capacity_types = of(labels::CAPACITY_TYPE, capacity_types, &all);
    all.replace(types);
    all.replace(capacity_types);
    all.iter().flat_map(entries).collect()
}

fn entries(
    requirement: &Requirement,
) -> impl Iterator<Item = NodeSelectorRequirementWithMinValues> + '_ {
    requirement
        .to_entries()
        .into_iter()
        .map(|(operator, values)| NodeSelectorRequirementWithMinValues {
            key: requirement.key().to_string(),
            operator: operator.as_str().to_owned(),
            values: values.iter().map(ToString::to_string).collect(),
            min_values: requirement.min_values().map(i64::from),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millwright_model::{
        CapacityType, InstanceType, NanoDollarsPerHour, NodeClassRef, NodePool, Offering, PodIndex,
        ResourceName, Span, plan::Launchable,
    };
    use std::sync::Arc;

    fn proposal(requirements: Requirements) -> NodeClaimProposal {
        let offering = Offering::new("z-a".into(), CapacityType::Spot, NanoDollarsPerHour(5));
        let unavailable = Offering {
            available: false,
            ..Offering::new("z-a".into(), CapacityType::OnDemand, NanoDollarsPerHour(9))
        };
        let instance_type = Arc::new(InstanceType {
            name: "c5.large".into(),
            requirements: Requirements::new(),
            capacity: Resources::of(2000, 4 << 30),
            overhead: Resources::new(),
            offerings: vec![offering, unavailable],
        });
        let pool = NodePool {
            name: "batch".into(),
            uid: "uid".into(),
            weight: 0,
            ready: true,
            deleting: false,
            is_static: false,
            labels: [(Name::from("team"), Name::from("a"))].into(),
            annotations: BTreeMap::new(),
            requirements: Requirements::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            node_class: NodeClassRef {
                group: "karpenter.k8s.aws".into(),
                kind: "EC2NodeClass".into(),
                name: "c".into(),
            },
            termination_grace_period: None,
            expire_after: Some(Span::from_secs(60)),
            limits: None,
            usage: Resources::new(),
            hash: "42".into(),
            instance_types: [].into(),
        };
        NodeClaimProposal {
            name: "batch-1".into(),
            node_pool: Arc::new(pool),
            requirements,
            instance_types: vec![instance_type],
            cheapest: Launchable {
                price: NanoDollarsPerHour(5),
                instance_type: "c5.large".into(),
                zone: "z-a".into(),
                capacity_type: CapacityType::Spot,
            },
            requests: Resources::of(1500, 1 << 30).with(ResourceName::Pods, 2),
            pods: vec![PodIndex(0)],
        }
    }

    #[test]
    fn a_claim_carries_types_capacity_types_hash_owner_and_custom_labels() {
        let requirements = [
            Requirement::new(&"rack".into(), Operator::Gt, ["4".into()]),
            Requirement::new(
                &labels::HOSTNAME.into(),
                Operator::In,
                ["placeholder".into()],
            ),
            Requirement::new(
                &labels::CAPACITY_TYPE.into(),
                Operator::In,
                ["spot".into(), "on-demand".into()],
            ),
        ];
        let claim = node_claim(&proposal(requirements.into_iter().collect()));
        let labels = claim.metadata.labels.unwrap();
        assert_eq!(
            (labels["rack"].as_str(), labels["team"].as_str()),
            ("5", "a")
        );
        assert_eq!(labels["karpenter.sh/nodepool"], "batch");
        assert_eq!(labels["karpenter.k8s.aws/ec2nodeclass"], "c");
        assert_eq!(
            claim.metadata.annotations.unwrap()["karpenter.sh/nodepool-hash"],
            "42"
        );
        let shown: Vec<String> = claim
            .spec
            .requirements
            .iter()
            .map(|r| format!("{} {} {}", r.key, r.operator, r.values.join(",")))
            .collect();
        assert_eq!(
            shown,
            [
                "karpenter.sh/capacity-type In spot",
                "node.kubernetes.io/instance-type In c5.large",
                "rack Gte 5",
            ]
        );
        assert_eq!(claim.spec.resources.requests["cpu"].0, "1500m");
        assert_eq!(
            claim.metadata.owner_references.unwrap()[0].block_owner_deletion,
            Some(true)
        );
    }
}
