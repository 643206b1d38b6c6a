//! NodePools: hash, validation, readiness, usage, registration health.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use millwright_api::{
    NodeClaim, NodePool, annotations,
    conditions::{self, ConditionSet, Conditioned},
    hash,
};
use millwright_lifecycle::{
    Status,
    node_pool::{ClassState, RawRequirement, Template, class_readiness, validate},
};
use millwright_model::{ResourceName, Resources, labels};
use millwright_state::convert;
use serde_json::json;

use super::{
    Shared,
    write::{self, Error, Written, api_time},
};
use crate::{context::now, workqueue::Next};

const WORKERS: usize = 10;
/// Usage is written at least this often.
const COUNT: Duration = Duration::from_secs(5);
const STALE: Next = Next::After(Duration::from_millis(50));

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    let queue = shared.pools.clone();
    let work = move |key: String| {
        let shared = shared.clone();
        async move { reconcile(&shared, &key).await }
    };
    queue.run(WORKERS, std::future::pending(), work).await;
}

async fn reconcile(shared: &Shared, key: &str) -> Result<Next, Error> {
    let context = &shared.context;
    if !context.leadership.is_leader() {
        return Ok(Next::Done);
    }
    let Some(pool) = context.node_pools.get(key) else {
        let pools = context.node_pools.list();
        shared
            .health
            .retain(|uid| pools.iter().any(|pool| pool.uid().as_deref() == Some(uid)));
        return Ok(Next::Done);
    };
    if pool.metadata.deletion_timestamp.is_some() {
        return Ok(Next::Done);
    }
    if write_hash(shared, &pool).await? == Written::Stale {
        return Ok(STALE);
    }
    let mut changed = (*pool).clone();
    set_conditions(shared, &mut changed);
    set_usage(shared, &mut changed);
    if changed.status != pool.status {
        let written = write::status(&context.client, &*pool, &changed.status).await?;
        if written == Written::Stale {
            return Ok(STALE);
        }
        write::publish_transitions(
            &context.recorder,
            &*pool,
            pool.conditions(),
            changed.conditions(),
        );
    }
    Ok(Next::After(COUNT))
}

/// Keeps the static hash on the pool; when its version changes, NodeClaims that have not drifted move
/// over first.
async fn write_hash(shared: &Shared, pool: &NodePool) -> Result<Written, Error> {
    let hash = hash::node_pool_hash(pool);
    let stored = |key: &str| pool.annotations().get(key).map(String::as_str);
    if stored(annotations::NODE_POOL_HASH) == Some(&hash)
        && stored(annotations::NODE_POOL_HASH_VERSION) == Some(hash::NODE_POOL_HASH_VERSION)
    {
        return Ok(Written::Yes);
    }
    if stored(annotations::NODE_POOL_HASH_VERSION) != Some(hash::NODE_POOL_HASH_VERSION) {
        let name = pool.name_any();
        let of_pool = |claim: &NodeClaim| claim.labels().get(labels::NODE_POOL) == Some(&name);
        let keys = (
            annotations::NODE_POOL_HASH,
            annotations::NODE_POOL_HASH_VERSION,
        );
        let values = (hash.as_str(), hash::NODE_POOL_HASH_VERSION);
        if migrate_claims(shared, of_pool, keys, values).await? == Written::Stale {
            return Ok(Written::Stale);
        }
    }
    let patch = json!({"metadata": {"annotations": {
        annotations::NODE_POOL_HASH: hash,
        annotations::NODE_POOL_HASH_VERSION: hash::NODE_POOL_HASH_VERSION,
    }}});
    write::merge(&shared.context.client, pool, patch).await?;
    // The store shows the version that was written when the watch brings it.
    Ok(Written::Stale)
}

/// Moves NodeClaims over to the present version of a static hash: those that have drifted keep their
/// old hash, hence stay drifted. Stale when one of them has to be looked at again first.
pub(super) async fn migrate_claims(
    shared: &Shared,
    concerned: impl Fn(&NodeClaim) -> bool,
    (hash_key, version_key): (&str, &str),
    (hash, version): (&str, &str),
) -> Result<Written, Error> {
    let mut outcome = Written::Yes;
    for claim in shared.context.node_claims.list() {
        let known = claim.annotations().get(version_key).map(String::as_str);
        if !concerned(&claim) || known == Some(version) {
            continue;
        }
        let mut wanted = json!({version_key: version});
        if claim.condition(conditions::DRIFTED).is_none() {
            wanted[hash_key] = hash.into();
        }
        let patch = json!({"metadata": {"annotations": wanted}});
        if write::merge(&shared.context.client, &*claim, patch).await? == Written::Stale {
            outcome = Written::Stale;
        }
    }
    Ok(outcome)
}

fn set_conditions(shared: &Shared, pool: &mut NodePool) {
    let errors = validate(&template(pool));
    let class = shared
        .context
        .node_classes
        .get(&pool.spec.template.spec.node_class_ref.name);
    let (ready, reason, message) = class_readiness(&class_state(class.as_deref()));
    shared.health.apply(pool, class.as_deref(), api_time(now()));
    let mut set = ConditionSet::open(pool, api_time(now()));
    if errors.is_empty() {
        set.set_true(conditions::VALIDATION_SUCCEEDED);
    } else {
        set.set_false(
            conditions::VALIDATION_SUCCEEDED,
            "NodePoolValidationFailed",
            &errors.join("; "),
        );
    }
    match ready {
        Status::True => set.set_true(conditions::NODE_CLASS_READY),
        Status::False | Status::Unknown => {
            set.set_false(conditions::NODE_CLASS_READY, &reason, &message)
        }
    };
}

fn class_state(class: Option<&millwright_api::Ec2NodeClass>) -> ClassState {
    let Some(class) = class else {
        return ClassState::NotFound;
    };
    if class.metadata.deletion_timestamp.is_some() {
        return ClassState::Terminating;
    }
    let ready = class.condition(conditions::READY);
    let status = match ready.map(|c| c.status.as_str()) {
        Some("True") if class.is_ready_now() => Status::True,
        Some("False") => Status::False,
        _ => Status::Unknown,
    };
    ClassState::Present {
        ready: status,
        reason: ready.map(|c| c.reason.clone()).unwrap_or_default(),
        message: ready.map(|c| c.message.clone()).unwrap_or_default(),
    }
}

fn template(pool: &NodePool) -> Template {
    let template = &pool.spec.template;
    Template {
        labels: template
            .metadata
            .labels
            .iter()
            .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
            .collect(),
        taints: convert::taints(&template.spec.taints, "spec.template.spec.taints")
            .unwrap_or_default(),
        startup_taints: convert::taints(
            &template.spec.startup_taints,
            "spec.template.spec.startupTaints",
        )
        .unwrap_or_default(),
        requirements: template
            .spec
            .requirements
            .iter()
            .map(|r| RawRequirement {
                key: r.key.clone(),
                operator: r.operator.clone(),
                values: r.values.clone(),
                min_values: r.min_values.and_then(|n| u32::try_from(n).ok()),
            })
            .collect(),
    }
}

fn set_usage(shared: &Shared, pool: &mut NodePool) {
    let mut state = shared.context.state();
    // Brings the usage up to date; the snapshot itself is not needed.
    drop(state.snapshot(now(), shared.context.settings.anticipation, |_| [].into()));
    let usage = state.usage(&pool.name_any());
    drop(state);
    let mut total = Resources::new();
    for name in [
        ResourceName::Cpu,
        ResourceName::Memory,
        ResourceName::Pods,
        ResourceName::EphemeralStorage,
        ResourceName::Nodes,
    ] {
        total.set(name, 0);
    }
    total.add(&usage);
    let status = pool.status.get_or_insert_default();
    status.nodes = usage.get(&ResourceName::Nodes);
    status.resources = total
        .iter()
        .map(|(name, amount)| (name.to_string(), Quantity(name.format(amount))))
        .collect();
}
