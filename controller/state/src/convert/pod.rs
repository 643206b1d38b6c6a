//! Pods: what decides where they may run, and whether they are ours to plan for.
//!
//! Source: provisioning specification 4.3 (provisionable), 4.6 (validation).

use k8s_openapi::api::core::v1::{Pod, Toleration as KubeToleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use millwright_model::{
    Effect, Name, Operator, PodKey, PodSpec, PodUid, Requirement, Toleration, labels,
    pod::{HostPort, Owner},
    taints::TolerationOperator,
};

use super::{FieldError, affinity, effective_requests, names};

/// Namespace and name; the namespace is `default` when a manifest leaves it out.
#[must_use]
pub fn pod_key(pod: &Pod) -> PodKey {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    PodKey::new(namespace, pod.metadata.name.as_deref().unwrap_or_default())
}

/// `metadata.uid`, or a stand-in from the name where a manifest has none.
#[must_use]
pub fn pod_uid(pod: &Pod) -> PodUid {
    match pod.metadata.uid.as_deref() {
        Some(uid) => uid.into(),
        None => pod_key(pod).to_string().into(),
    }
}

fn owners(pod: &Pod) -> &[OwnerReference] {
    pod.metadata.owner_references.as_deref().unwrap_or_default()
}

/// Whether a DaemonSet makes the pod.
#[must_use]
pub fn is_daemon(pod: &Pod) -> bool {
    owners(pod)
        .iter()
        .any(|o| o.kind == "DaemonSet" && o.api_version == "apps/v1")
}

/// Whether the pod is static: the kubelet's mirror of a file on its node.
#[must_use]
pub fn is_mirror(pod: &Pod) -> bool {
    owners(pod)
        .iter()
        .any(|o| o.kind == "Node" && o.api_version == "v1")
}

/// Whether the pod has ended.
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the condition Ready is False (not missing, not Unknown).
#[must_use]
pub fn is_unready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "False")
}

/// The controlling owner.
#[must_use]
pub fn controller_owner(pod: &Pod) -> Option<Owner> {
    let owner = owners(pod).iter().find(|o| o.controller == Some(true))?;
    Some(Owner {
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
        uid: owner.uid.as_str().into(),
    })
}

/// Whether the pod is unbound, is not about to preempt, and belongs neither to a DaemonSet nor to a
/// node: what both kinds of intake share.
#[must_use]
pub fn is_waiting(pod: &Pod) -> bool {
    let bound = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .is_some_and(|n| !n.is_empty());
    let nominated = pod
        .status
        .as_ref()
        .and_then(|s| s.nominated_node_name.as_deref())
        .is_some_and(|n| !n.is_empty());
    !bound && !nominated && !is_daemon(pod) && !is_mirror(pod)
}

/// Whether the kube-scheduler has found no node for the pod.
#[must_use]
pub fn is_provisionable(pod: &Pod) -> bool {
    is_waiting(pod) && scheduled_reasons(pod).any(|reason| reason == Some("Unschedulable"))
}

/// Whether nobody has tried to schedule the pod yet, though somebody will: no verdict, no gate, not
/// ended, not being deleted.
#[must_use]
pub fn is_untried(pod: &Pod) -> bool {
    let gated = pod
        .spec
        .as_ref()
        .and_then(|s| s.scheduling_gates.as_ref())
        .is_some_and(|g| !g.is_empty());
    is_waiting(pod)
        && !gated
        && !is_terminal(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && scheduled_reasons(pod).next().is_none()
}

fn scheduled_reasons(pod: &Pod) -> impl Iterator<Item = Option<&str>> + '_ {
    pod.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .filter(|condition| condition.type_ == "PodScheduled")
        .map(|condition| condition.reason.as_deref())
}

/// Everything that decides where the pod may run.
///
/// # Errors
/// The first field that cannot be converted.
pub fn pod_spec(pod: &Pod) -> Result<PodSpec, FieldError> {
    let Some(source) = &pod.spec else {
        return Err(FieldError::new("spec", "is missing"));
    };
    let mut spec = PodSpec {
        namespace: pod_key(pod).namespace,
        labels: names(
            pod.metadata
                .labels
                .as_ref()
                .unwrap_or(&std::collections::BTreeMap::new()),
        ),
        requests: effective_requests(source)?,
        node_selector: source
            .node_selector
            .iter()
            .flatten()
            .map(|(key, value)| (Name::from(key.as_str()), Name::from(value.as_str())))
            .collect(),
        tolerations: tolerations(source.tolerations.as_deref().unwrap_or_default())?,
        topology_spread: affinity::spread(
            source
                .topology_spread_constraints
                .as_deref()
                .unwrap_or_default(),
        )?,
        host_ports: host_ports(source),
        claim_volumes: claim_volumes(source),
        uses_resource_claims: source
            .resource_claims
            .as_ref()
            .is_some_and(|claims| !claims.is_empty()),
        ..PodSpec::default()
    };
    if let Some(source) = &source.affinity {
        affinity::affinity(source, &mut spec)?;
    }
    Ok(spec)
}

fn claim_volumes(spec: &k8s_openapi::api::core::v1::PodSpec) -> u32 {
    let volumes = spec.volumes.iter().flatten();
    let claims = volumes.filter(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    u32::try_from(claims.count()).unwrap_or(u32::MAX)
}

fn tolerations(list: &[KubeToleration]) -> Result<Vec<Toleration>, FieldError> {
    list.iter()
        .enumerate()
        .map(|(at, t)| {
            let wrong = |field: &str, value: &str, known: &str| {
                let message = format_args!("\"{value}\" is none of {known}");
                FieldError::new(format!("spec.tolerations[{at}].{field}"), message)
            };
            let operator = match t.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => TolerationOperator::Equal,
                "Exists" => TolerationOperator::Exists,
                "Lt" => TolerationOperator::Lt,
                "Gt" => TolerationOperator::Gt,
                other => return Err(wrong("operator", other, "Equal, Exists, Lt, Gt")),
            };
            let effect = match t.effect.as_deref().unwrap_or_default() {
                "" => None,
                text => Some(Effect::parse(text).ok_or_else(|| {
                    wrong("effect", text, "NoSchedule, PreferNoSchedule, NoExecute")
                })?),
            };
            Ok(Toleration {
                key: t.key.as_deref().unwrap_or_default().into(),
                operator,
                value: t.value.as_deref().unwrap_or_default().into(),
                effect,
            })
        })
        .collect()
}

/// Host ports of regular containers; init containers are not looked at, as upstream.
fn host_ports(spec: &k8s_openapi::api::core::v1::PodSpec) -> Vec<HostPort> {
    let ports = spec
        .containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = u16::try_from(port.host_port?).ok().filter(|n| *n != 0)?;
            let ip = port
                .host_ip
                .as_deref()
                .filter(|ip| !ip.is_empty())
                .unwrap_or("0.0.0.0");
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            Some(HostPort {
                ip: ip.into(),
                port: number,
                protocol: protocol.into(),
            })
        })
        .collect()
}

/// Why a pending pod is invalid for planning, volumes aside; empty when it is valid.
#[must_use]
pub fn rejections(pod: &Pod, spec: &PodSpec) -> Vec<String> {
    let mut rejections = Vec::new();
    if opts_out(spec) {
        rejections.push(format!(
            "the pod asks for no NodePool ({} DoesNotExist)",
            labels::NODE_POOL
        ));
    }
    let selector = spec
        .node_selector
        .iter()
        .map(|(key, value)| Requirement::label(key, value));
    let terms = spec.required_terms.iter().flatten().cloned();
    rejections.extend(
        selector
            .chain(terms)
            .filter_map(|requirement| invalid(&requirement)),
    );
    let required = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref())
        .and_then(|node| {
            node.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    if required.is_some_and(|r| {
        r.node_selector_terms
            .iter()
            .any(|t| t.match_fields.as_ref().is_some_and(|f| !f.is_empty()))
    }) {
        rejections.push("node affinity with matchFields is not supported".to_owned());
    }
    rejections
}

/// Whether the pod's strict or heaviest preferred requirements exclude every NodePool.
fn opts_out(spec: &PodSpec) -> bool {
    let excludes =
        |r: &Requirement| &**r.key() == labels::NODE_POOL && r.operator() == Operator::DoesNotExist;
    let heaviest = spec
        .preferred_terms
        .iter()
        .max_by_key(|(weight, _)| *weight)
        .map(|(_, term)| term);
    spec.required_terms
        .first()
        .into_iter()
        .chain(heaviest)
        .flatten()
        .any(excludes)
}

fn invalid(requirement: &Requirement) -> Option<String> {
    if labels::is_restricted(requirement.key()) {
        return Some(format!("label {} is restricted", requirement.key()));
    }
    let unknown = &**requirement.key() == labels::CAPACITY_TYPE
        && requirement.operator() == Operator::In
        && !["on-demand", "spot", "reserved"]
            .iter()
            .any(|known| requirement.has(known));
    unknown.then(|| format!("{requirement} allows no known capacity type"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn marked(mut extra: Value) -> Pod {
        let conditions =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
        extra["status"]["conditions"] = conditions;
        pod(extra)
    }

    #[test]
    fn only_pods_that_the_scheduler_gave_up_on_are_provisionable() {
        assert!(is_provisionable(&marked(
            json!({"spec": {"containers": []}, "status": {}})
        )));
        for excluded in [
            json!({"spec": {"containers": [], "nodeName": "n"}, "status": {}}),
            json!({"spec": {"containers": []}, "status": {"nominatedNodeName": "n"}}),
            json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]},
                   "spec": {"containers": []}, "status": {}}),
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
                   "spec": {"containers": []}, "status": {}}),
        ] {
            assert!(!is_provisionable(&marked(excluded.clone())), "{excluded}");
        }
        assert!(!is_provisionable(&pod(json!({"spec": {"containers": []}}))));
    }

    #[test]
    fn untried_pods_have_no_verdict_and_no_gate() {
        assert!(is_untried(&pod(json!({"spec": {"containers": []}}))));
        assert!(!is_untried(&pod(
            json!({"spec": {"containers": [], "schedulingGates": [{"name": "g"}]}})
        )));
        assert!(!is_untried(&marked(
            json!({"spec": {"containers": []}, "status": {}})
        )));
    }

    #[test]
    fn invalid_pods_carry_every_reason() {
        let pod = pod(json!({"spec": {
            "containers": [],
            "nodeSelector": {"karpenter.sh/custom": "x", "karpenter.sh/capacity-type": "cheap"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                 "matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]},
            ]}}},
        }}));
        let spec = pod_spec(&pod).unwrap();
        assert_eq!(rejections(&pod, &spec).len(), 4);
    }

    #[test]
    fn an_unknown_operator_names_its_field() {
        let pod = pod(json!({"spec": {"containers": [], "tolerations": [{"operator": "Near"}]}}));
        assert_eq!(
            pod_spec(&pod).unwrap_err().to_string(),
            "spec.tolerations[0].operator: \"Near\" is none of Equal, Exists, Lt, Gt"
        );
    }
}
