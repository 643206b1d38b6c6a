//! NodeClaims: what is kept of one.

use std::collections::BTreeMap;

use millwright_api::NodeClaim;
use millwright_model::{
    Name, NodeClaimName, NodePoolName, ProviderId, Requirement, Requirements, Resources, Taint,
    Timestamp, labels,
};

use super::{FieldError, names, requirement, resources, taints, timestamp};

/// A NodeClaim, reduced to what planning needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimFacts {
    /// Name.
    pub name: NodeClaimName,
    /// `metadata.uid`.
    pub uid: Name,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether it is on its way out: a deletion timestamp, or its instance terminates.
    pub deleting: bool,
    /// Provider id, once launched.
    pub provider_id: Option<ProviderId>,
    /// NodePool by its label.
    pub node_pool: Option<NodePoolName>,
    /// Labels.
    pub labels: BTreeMap<Name, Name>,
    /// Requirements of the spec.
    pub requirements: Requirements,
    /// Taints of the spec.
    pub taints: Vec<Taint>,
    /// Startup taints of the spec.
    pub startup_taints: Vec<Taint>,
    /// What its pods and daemons asked for when it was planned.
    pub requests: Resources,
    /// Capacity, once launched.
    pub capacity: Resources,
    /// Allocatable, once launched.
    pub allocatable: Resources,
}

/// Reduces a NodeClaim.
///
/// # Errors
/// The first field that cannot be converted.
pub fn claim_facts(claim: &NodeClaim) -> Result<ClaimFacts, FieldError> {
    let labels = claim
        .metadata
        .labels
        .as_ref()
        .map(names)
        .unwrap_or_default();
    let status = claim.status.clone().unwrap_or_default();
    let terminating = status
        .conditions
        .iter()
        .any(|c| c.type_ == "InstanceTerminating" && c.status == "True");
    let mut requirements = Requirements::new();
    for (at, r) in claim.spec.requirements.iter().enumerate() {
        let path = format!("spec.requirements[{at}]");
        let min_values = r.min_values.and_then(|n| u32::try_from(n).ok());
        requirements
            .add(requirement(&r.key, &r.operator, &r.values, &path)?.with_min_values(min_values));
    }
    for (key, value) in &labels {
        requirements.add(Requirement::label(key, value));
    }
    Ok(ClaimFacts {
        name: claim.metadata.name.as_deref().unwrap_or_default().into(),
        uid: claim.metadata.uid.as_deref().unwrap_or_default().into(),
        created_at: timestamp(claim.metadata.creation_timestamp.as_ref()),
        deleting: terminating || claim.metadata.deletion_timestamp.is_some(),
        provider_id: Some(status.provider_id.as_str())
            .filter(|id| !id.is_empty())
            .map(Into::into),
        node_pool: labels
            .get(labels::NODE_POOL)
            .map(|name| NodePoolName(name.clone())),
        labels,
        requirements,
        taints: taints(&claim.spec.taints, "spec.taints")?,
        startup_taints: taints(&claim.spec.startup_taints, "spec.startupTaints")?,
        requests: resources(&claim.spec.resources.requests, "spec.resources.requests")?,
        capacity: resources(&status.capacity, "status.capacity")?,
        allocatable: resources(&status.allocatable, "status.allocatable")?,
    })
}
