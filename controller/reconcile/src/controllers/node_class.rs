//! Node classes: hash, resolution of what they name, finalizer.

use std::time::Duration;

use kube::ResourceExt;
use millwright_api::{
    Ec2NodeClass, NodeClaim, annotations,
    conditions::{ConditionSet, Conditioned},
    hash,
};
use serde_json::json;

use super::{
    Shared, node_pool,
    write::{self, Error, Written, api_time},
};
use crate::{
    context::now,
    events::{Event, Severity},
    workqueue::Next,
};

const WORKERS: usize = 10;
const STALE: Next = Next::After(Duration::from_millis(50));
/// How often a class that is being deleted looks for NodeClaims that still use it.
const AWAIT_CLAIMS: Duration = Duration::from_secs(10);

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    let queue = shared.classes.clone();
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
    let Some(class) = context.node_classes.get(key) else {
        return Ok(Next::Done);
    };
    let client = &context.client;
    if class.metadata.deletion_timestamp.is_some() {
        return finalize(shared, &class).await;
    }
    if !class
        .finalizers()
        .iter()
        .any(|f| f == annotations::EC2_NODE_CLASS_FINALIZER)
    {
        write::add_finalizer(client, &*class, annotations::EC2_NODE_CLASS_FINALIZER).await?;
        return Ok(STALE);
    }
    if write_hash(shared, &class).await? == Written::Stale {
        return Ok(STALE);
    }
    let resolution = context.provider.resolve_node_class(&class).await?;
    let changed = with_status(&class, resolution.status);
    if changed.status != class.status {
        if write::status(client, &*class, &changed.status).await? == Written::Stale {
            return Ok(STALE);
        }
        write::publish_transitions(
            &context.recorder,
            &*class,
            class.conditions(),
            changed.conditions(),
        );
        context.arrivals.notify_one();
    }
    Ok(Next::After(Duration::from_millis(
        resolution.again_after_ms.max(1000),
    )))
}

/// The class with a new status: resolved fields as they are, conditions through the engine, so that
/// transition times and the derived `Ready` are right.
fn with_status(class: &Ec2NodeClass, resolved: millwright_api::Ec2NodeClassStatus) -> Ec2NodeClass {
    let mut changed = class.clone();
    let kept = class.conditions().to_vec();
    let wanted = resolved.conditions.clone();
    changed.status = Some(millwright_api::Ec2NodeClassStatus {
        conditions: kept,
        ..resolved
    });
    let mut set = ConditionSet::open(&mut changed, api_time(now()));
    for condition in &wanted {
        let (kind, reason, message) = (&condition.type_, &condition.reason, &condition.message);
        match condition.status.as_str() {
            "True" => set.set_true_with_reason(kind, reason, message),
            "False" => set.set_false(kind, reason, message),
            _ => set.set_unknown_with_reason(kind, reason, message),
        };
    }
    changed
}

async fn write_hash(shared: &Shared, class: &Ec2NodeClass) -> Result<Written, Error> {
    let hash = hash::node_class_hash(&class.spec, "");
    let stored = |key: &str| class.annotations().get(key).map(String::as_str);
    if stored(annotations::EC2_NODE_CLASS_HASH) == Some(&hash)
        && stored(annotations::EC2_NODE_CLASS_HASH_VERSION) == Some(hash::NODE_CLASS_HASH_VERSION)
    {
        return Ok(Written::Yes);
    }
    if stored(annotations::EC2_NODE_CLASS_HASH_VERSION) != Some(hash::NODE_CLASS_HASH_VERSION) {
        let name = class.name_any();
        let of_class = |claim: &NodeClaim| claim.spec.node_class_ref.name == name;
        let keys = (
            annotations::EC2_NODE_CLASS_HASH,
            annotations::EC2_NODE_CLASS_HASH_VERSION,
        );
        let values = (hash.as_str(), hash::NODE_CLASS_HASH_VERSION);
        if node_pool::migrate_claims(shared, of_class, keys, values).await? == Written::Stale {
            return Ok(Written::Stale);
        }
    }
    let patch = json!({"metadata": {"annotations": {
        annotations::EC2_NODE_CLASS_HASH: hash,
        annotations::EC2_NODE_CLASS_HASH_VERSION: hash::NODE_CLASS_HASH_VERSION,
    }}});
    write::merge(&shared.context.client, class, patch).await?;
    Ok(Written::Stale)
}

async fn finalize(shared: &Shared, class: &Ec2NodeClass) -> Result<Next, Error> {
    if !class
        .finalizers()
        .iter()
        .any(|f| f == annotations::EC2_NODE_CLASS_FINALIZER)
    {
        return Ok(Next::Done);
    }
    let name = class.name_any();
    let claims = shared.context.node_claims.list();
    let users: Vec<String> = claims
        .iter()
        .filter(|claim| claim.spec.node_class_ref.name == name)
        .map(|claim| claim.name_any())
        .collect();
    if !users.is_empty() {
        let shown: Vec<&str> = users.iter().take(5).map(String::as_str).collect();
        let others = match users.len() - shown.len() {
            0 => String::new(),
            others => format!(" and {others} other(s)"),
        };
        let message = format!(
            "Waiting on NodeClaim termination for {}{others}",
            shown.join(", ")
        );
        shared.context.recorder.publish(Event::new(
            class,
            Severity::Normal,
            "WaitingOnNodeClaimTermination",
            message,
        ));
        return Ok(Next::After(AWAIT_CLAIMS));
    }
    shared.context.provider.finalize_node_class(class).await?;
    let written = write::remove_finalizer(
        &shared.context.client,
        class,
        annotations::EC2_NODE_CLASS_FINALIZER,
    )
    .await?;
    Ok(if written == Written::Stale {
        STALE
    } else {
        Next::Done
    })
}
