//! Kubernetes objects to the observed values that the rules of lifecycle and disruption read.
//!
//! Total: a field that cannot be converted counts as absent, because admission has checked it and a
//! node must be drained even when one of its pods is strange.

use std::{collections::BTreeMap, sync::Arc};

use crate::convert;
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, Time},
        util::intstr::IntOrString,
    },
};
use millwright_api::{
    NodeClaim, NodePool, annotations,
    node_pool::{self, DisruptionReason},
};
use millwright_lifecycle::{
    Condition, ConditionType, Conditions, ConsolidationPolicy, DisruptionRules, ObservedClaim,
    ObservedNode, ObservedPod, Status,
    budget::{Budget, Reason},
    consolidatable::ConsolidateAfter,
    pdb::ObservedPdb,
    pod::DoNotDisrupt,
};
use millwright_model::{
    Effect, Name, Operator, Span, Timestamp, Toleration, taints::TolerationOperator,
    topology::LabelSelector,
};

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| Timestamp(time.0.as_millisecond()))
}

fn names(map: Option<&BTreeMap<String, String>>) -> BTreeMap<Name, Name> {
    map.map(convert::names).unwrap_or_default()
}

fn text(text: Option<&String>) -> Name {
    text.map(String::as_str).unwrap_or_default().into()
}

fn has_finalizer(metadata: &ObjectMeta) -> bool {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    finalizers
        .iter()
        .any(|f| f == annotations::TERMINATION_FINALIZER)
}

/// A NodeClaim. Fields that cannot be converted count as absent: admission has checked them.
#[must_use]
pub fn claim(claim: &NodeClaim) -> ObservedClaim {
    let status = claim.status.clone().unwrap_or_default();
    let created = time(claim.metadata.creation_timestamp.as_ref()).unwrap_or_default();
    let mut conditions = Conditions::default();
    for condition in &status.conditions {
        // Conditions of an older generation count as unknown; the spec is immutable, so there are none.
        let Some(kind) = ConditionType::parse(&condition.type_) else {
            continue;
        };
        conditions.insert(
            kind,
            Condition {
                status: parse_status(&condition.status),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
                since: Timestamp(condition.last_transition_time.0.as_millisecond()),
            },
        );
    }
    ObservedClaim {
        deleting_since: time(claim.metadata.deletion_timestamp.as_ref()),
        has_finalizer: has_finalizer(&claim.metadata),
        labels: names(claim.metadata.labels.as_ref()),
        annotations: names(claim.metadata.annotations.as_ref()),
        taints: convert::taints(&claim.spec.taints, "spec.taints").unwrap_or_default(),
        startup_taints: convert::taints(&claim.spec.startup_taints, "spec.startupTaints")
            .unwrap_or_default(),
        requests: convert::resources(&claim.spec.resources.requests, "spec.resources.requests")
            .unwrap_or_default(),
        expire_after: claim.spec.expire_after.0.as_ref().map(|d| Span(d.millis())),
        termination_grace_period: claim
            .spec
            .termination_grace_period
            .as_ref()
            .map(|d| Span(d.millis())),
        provider_id: Some(status.provider_id.as_str())
            .filter(|id| !id.is_empty())
            .map(Into::into),
        capacity: convert::resources(&status.capacity, "status.capacity").unwrap_or_default(),
        last_pod_event: time(status.last_pod_event_time.as_ref()),
        conditions,
        ..ObservedClaim::new(
            text(claim.metadata.name.as_ref()).into(),
            text(claim.metadata.uid.as_ref()),
            created,
        )
    }
}

fn parse_status(text: &str) -> Status {
    match text {
        "True" => Status::True,
        "False" => Status::False,
        _ => Status::Unknown,
    }
}

/// A Node.
#[must_use]
pub fn node(node: &Node) -> ObservedNode {
    let created = time(node.metadata.creation_timestamp.as_ref()).unwrap_or_default();
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let resources = |list: Option<&BTreeMap<_, _>>| {
        list.and_then(|list| convert::resources(list, "status").ok())
            .unwrap_or_default()
    };
    let conditions = status
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    ObservedNode {
        deleting_since: time(node.metadata.deletion_timestamp.as_ref()),
        has_finalizer: has_finalizer(&node.metadata),
        owner_uids: node
            .metadata
            .owner_references
            .iter()
            .flatten()
            .map(|owner| owner.uid.as_str().into())
            .collect(),
        provider_id: spec
            .and_then(|s| s.provider_id.as_deref())
            .filter(|id| !id.is_empty())
            .map(Into::into),
        ready: conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True"),
        labels: names(node.metadata.labels.as_ref()),
        annotations: names(node.metadata.annotations.as_ref()),
        taints: convert::taints(
            spec.and_then(|s| s.taints.as_deref()).unwrap_or_default(),
            "spec.taints",
        )
        .unwrap_or_default(),
        capacity: resources(status.and_then(|s| s.capacity.as_ref())),
        allocatable: resources(status.and_then(|s| s.allocatable.as_ref())),
        ..ObservedNode::new(text(node.metadata.name.as_ref()).into(), created)
    }
}

/// A pod.
#[must_use]
pub fn pod(pod: &Pod) -> ObservedPod {
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let owned_by = |kind: &str| {
        pod.metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.kind == kind)
    };
    let annotation = |key: &str| {
        let annotations = pod.metadata.annotations.as_ref();
        annotations?.get(key).map(String::as_str)
    };
    let class = spec.and_then(|spec| spec.priority_class_name.as_deref());
    let conditions = status
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    let claims = spec
        .and_then(|s| s.volumes.as_deref())
        .unwrap_or_default()
        .iter()
        .filter_map(|volume| {
            let named = volume
                .persistent_volume_claim
                .as_ref()
                .map(|claim| claim.claim_name.clone());
            named.or_else(|| {
                volume
                    .ephemeral
                    .as_ref()
                    .map(|_| format!("{}-{}", text(pod.metadata.name.as_ref()), volume.name))
            })
        });
    ObservedPod {
        labels: Arc::new(names(pod.metadata.labels.as_ref())),
        terminal: convert::is_terminal(pod),
        deleting_at: time(pod.metadata.deletion_timestamp.as_ref()),
        grace: spec
            .and_then(|s| s.termination_grace_period_seconds)
            .map(Span::from_secs),
        started_at: time(status.and_then(|s| s.start_time.as_ref())),
        unready: conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "False"),
        is_daemon: convert::is_daemon(pod),
        is_mirror: convert::is_mirror(pod),
        is_stateful: owned_by("StatefulSet"),
        is_critical: matches!(
            class,
            Some("system-cluster-critical" | "system-node-critical")
        ),
        priority: spec.and_then(|s| s.priority),
        deletion_cost: annotation(annotations::POD_DELETION_COST).and_then(deletion_cost),
        do_not_disrupt: DoNotDisrupt::parse(annotation(annotations::DO_NOT_DISRUPT)),
        tolerations: spec
            .and_then(|s| s.tolerations.as_deref())
            .unwrap_or_default()
            .iter()
            .map(toleration)
            .collect(),
        volume_claims: claims.map(|name| Name::from(name.as_str())).collect(),
        ..ObservedPod::new(convert::pod_key(pod), convert::pod_uid(pod))
    }
}

/// The cost as written, which upstream reads as a float; cut to whole numbers.
fn deletion_cost(text: &str) -> Option<i64> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    text.parse::<f64>().ok()?;
    whole.parse().ok()
}

fn toleration(toleration: &k8s_openapi::api::core::v1::Toleration) -> Toleration {
    Toleration {
        key: text(toleration.key.as_ref()),
        operator: match toleration.operator.as_deref() {
            Some("Exists") => TolerationOperator::Exists,
            Some("Lt") => TolerationOperator::Lt,
            Some("Gt") => TolerationOperator::Gt,
            _ => TolerationOperator::Equal,
        },
        value: text(toleration.value.as_ref()),
        effect: toleration.effect.as_deref().and_then(Effect::parse),
    }
}

/// A PodDisruptionBudget.
#[must_use]
pub fn budget(budget: &PodDisruptionBudget) -> ObservedPdb {
    let spec = budget.spec.as_ref();
    let is = |value: Option<&IntOrString>, number: Option<i32>, text: &str| match value {
        Some(IntOrString::Int(n)) => Some(*n) == number,
        Some(IntOrString::String(s)) => s == text,
        None => false,
    };
    ObservedPdb {
        namespace: match &budget.metadata.namespace {
            Some(namespace) => namespace.as_str().into(),
            None => "default".into(),
        },
        name: text(budget.metadata.name.as_ref()),
        selector: spec
            .and_then(|s| s.selector.as_ref())
            .map(|selector| LabelSelector {
                match_labels: names(selector.match_labels.as_ref()).into_iter().collect(),
                match_expressions: selector
                    .match_expressions
                    .iter()
                    .flatten()
                    .filter_map(|e| {
                        let values = e
                            .values
                            .iter()
                            .flatten()
                            .map(|v| Name::from(v.as_str()))
                            .collect();
                        Some((
                            Name::from(e.key.as_str()),
                            Operator::parse(&e.operator)?,
                            values,
                        ))
                    })
                    .collect(),
            }),
        disruptions_allowed: budget
            .status
            .as_ref()
            .and_then(|status| status.disruptions_allowed)
            .unwrap_or(0),
        fully_blocking: spec.is_some_and(|s| {
            is(s.max_unavailable.as_ref(), Some(0), "0%")
                || is(s.min_available.as_ref(), None, "100%")
        }),
        unhealthy_always_allowed: spec.and_then(|s| s.unhealthy_pod_eviction_policy.as_deref())
            == Some("AlwaysAllow"),
    }
}

/// What a NodePool says about disruption.
#[must_use]
pub fn disruption_rules(pool: &NodePool) -> DisruptionRules {
    let disruption = &pool.spec.disruption;
    DisruptionRules {
        is_static: pool.spec.replicas.is_some(),
        consolidate_after: match &disruption.consolidate_after.0 {
            Some(duration) => ConsolidateAfter::After(Span(duration.millis())),
            None => ConsolidateAfter::Never,
        },
        policy: match disruption.consolidation_policy {
            node_pool::ConsolidationPolicy::WhenEmpty => ConsolidationPolicy::WhenEmpty,
            node_pool::ConsolidationPolicy::WhenEmptyOrUnderutilized => {
                ConsolidationPolicy::WhenEmptyOrUnderutilized
            }
            node_pool::ConsolidationPolicy::Balanced => ConsolidationPolicy::Balanced,
        },
        budgets: disruption.budgets.iter().map(node_budget).collect(),
    }
}

/// A budget for the nodes of a NodePool.
fn node_budget(budget: &node_pool::Budget) -> Budget {
    let reason = |reason: &DisruptionReason| match reason {
        DisruptionReason::Underutilized => Reason::Underutilized,
        DisruptionReason::Empty => Reason::Empty,
        DisruptionReason::Drifted => Reason::Drifted,
    };
    Budget {
        nodes: budget.nodes.clone(),
        reasons: budget
            .reasons
            .as_ref()
            .map(|reasons| reasons.iter().map(reason).collect()),
        schedule: budget.schedule.clone(),
        duration: budget
            .duration
            .as_ref()
            .map(|duration| Span(duration.millis())),
    }
}
