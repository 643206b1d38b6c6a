//! Claim-backed volumes: whether they can be used, where, and through which driver.
//!
//! Source: provisioning specification 4.7 (validation) and 6.15 (topology alternatives, drivers).

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume as KubeVolume},
    storage::v1::StorageClass,
};
use millwright_model::{Name, Requirement, labels, pod::Volume};

use super::{FieldError, affinity::node_term, pod_key, requirement};

/// Where claims, volumes and classes are looked up.
#[derive(Clone, Copy, Debug)]
pub struct ClaimSources<'a> {
    /// By `namespace/name`.
    pub claims: &'a BTreeMap<String, PersistentVolumeClaim>,
    /// By name.
    pub volumes: &'a BTreeMap<String, PersistentVolume>,
    /// By name.
    pub classes: &'a BTreeMap<String, StorageClass>,
}

/// What came of a pod's volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeOutcome {
    /// The usable ones.
    pub volumes: Vec<Volume>,
    /// Why the others are not; such a pod is not planned for.
    pub rejections: Vec<String>,
}

/// A volume of a pod that a claim backs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    /// Name of the volume in the pod.
    pub volume: String,
    /// `namespace/name` of the claim.
    pub claim: String,
}

/// The claim-backed volumes of a pod, in the pod's order.
#[must_use]
pub fn claim_refs(pod: &Pod) -> Box<[ClaimRef]> {
    let namespace = pod_key(pod).namespace;
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| {
            Some(ClaimRef {
                volume: volume.name.clone(),
                claim: format!("{namespace}/{}", claim_name(pod, volume)?),
            })
        })
        .collect()
}

/// Resolves claim-backed volumes.
#[must_use]
pub fn resolve_claims(claims: &[ClaimRef], sources: ClaimSources<'_>) -> VolumeOutcome {
    let mut outcome = VolumeOutcome::default();
    for ClaimRef { volume, claim } in claims {
        match resolve(claim, sources) {
            Ok(resolved) => outcome.volumes.push(resolved),
            Err(reason) => outcome
                .rejections
                .push(format!("volume {volume}: claim {claim} {reason}")),
        }
    }
    outcome
}

fn claim_name(pod: &Pod, volume: &KubeVolume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    volume
        .ephemeral
        .as_ref()
        .map(|_| format!("{pod_name}-{}", volume.name))
}

fn resolve(key: &str, sources: ClaimSources<'_>) -> Result<Volume, String> {
    let claim = sources.claims.get(key).ok_or("does not exist")?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("is being deleted".to_owned());
    }
    if claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost") {
        return Err("has lost its volume".to_owned());
    }
    let spec = claim.spec.as_ref();
    match spec
        .and_then(|spec| spec.volume_name.as_deref())
        .filter(|name| !name.is_empty())
    {
        Some(volume) => bound(key, claim, volume, sources),
        None => unbound(
            key,
            spec.and_then(|spec| spec.storage_class_name.as_deref()),
            sources,
        ),
    }
}

fn bound(
    key: &str,
    claim: &PersistentVolumeClaim,
    name: &str,
    sources: ClaimSources<'_>,
) -> Result<Volume, String> {
    let volume = sources
        .volumes
        .get(name)
        .filter(|volume| volume.metadata.deletion_timestamp.is_none())
        .ok_or_else(|| {
            format!("is bound to volume {name}, which does not exist or is being deleted")
        })?;
    let completed =
        |map: &BTreeMap<String, String>| map.contains_key("pv.kubernetes.io/bind-completed");
    if !claim.metadata.annotations.as_ref().is_some_and(completed) {
        return Err(format!("is not yet bound to volume {name}"));
    }
    let spec = volume.spec.as_ref();
    let local = spec.is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some());
    let driver = spec.and_then(|spec| {
        let ebs = spec
            .aws_elastic_block_store
            .as_ref()
            .map(|_| "ebs.csi.aws.com");
        spec.csi.as_ref().map(|csi| csi.driver.as_str()).or(ebs)
    });
    let terms = spec.and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let mut alternatives = Vec::new();
    for term in terms
        .iter()
        .flat_map(|required| &required.node_selector_terms)
    {
        let expressions =
            node_term(term, "spec.nodeAffinity").map_err(|e: FieldError| e.to_string())?;
        if expressions.is_empty() {
            continue;
        }
        let pinned = |r: &Requirement| local && &**r.key() == labels::HOSTNAME;
        alternatives.push(expressions.into_iter().filter(|r| !pinned(r)).collect());
    }
    Ok(Volume {
        claim: key.into(),
        driver: driver.map(Name::from),
        alternatives,
    })
}

fn unbound(key: &str, class: Option<&str>, sources: ClaimSources<'_>) -> Result<Volume, String> {
    let name = class
        .filter(|name| !name.is_empty())
        .ok_or("is unbound and names no storage class")?;
    let class = sources
        .classes
        .get(name)
        .ok_or_else(|| format!("names storage class {name}, which does not exist"))?;
    if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
        return Err(format!(
            "is unbound and storage class {name} binds immediately"
        ));
    }
    let mut alternatives = Vec::new();
    for term in class.allowed_topologies.iter().flatten() {
        let expressions = term
            .match_label_expressions
            .iter()
            .flatten()
            .map(|e| {
                requirement(&e.key, "In", &e.values, "allowedTopologies").map_err(|e| e.to_string())
            })
            .collect::<Result<Vec<_>, _>>()?;
        alternatives.push(expressions);
    }
    let driver = match class.provisioner.as_str() {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        other => other,
    };
    Ok(Volume {
        claim: key.into(),
        driver: Some(driver.into()),
        alternatives,
    })
}
