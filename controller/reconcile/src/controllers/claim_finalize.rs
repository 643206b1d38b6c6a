//! The end of a NodeClaim: deadline, Nodes, instance, finalizer.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt};
use millwright_api::{NodeClaim, annotations};
use millwright_cloud::CloudErrorKind;
use millwright_lifecycle::{
    Change, ConditionType, ObservedClaim, ObservedNode,
    termination::{ClaimStep, INSTANCE_POLL, finalize_claim, format_time, pause},
};
use millwright_model::ProviderId;
use millwright_telemetry as telemetry;
use serde_json::json;

use super::{
    Shared, claim, observe,
    write::{self, Error, Written},
};
use crate::{
    context::now,
    events::{Event, Severity},
    workqueue::Next,
};

/// A launch in flight ends within this time or so; then the instance can be ended.
const AWAIT_LAUNCH: Duration = Duration::from_millis(500);
/// Nodes report their end through the watch; this is for what the watch does not tell.
const AWAIT_NODES: Duration = Duration::from_secs(5);

/// One step towards the end.
pub(super) async fn finalize(
    shared: &Shared,
    claim: &NodeClaim,
    mut observed: ObservedClaim,
    nodes: &[Arc<Node>],
) -> Result<Next, Error> {
    let uid = claim.uid().unwrap_or_default();
    // A launch whose result no status says yet has an instance all the same.
    if observed.provider_id.is_none()
        && let Some(Ok(instance)) = shared.launcher.outcome(&uid)
    {
        observed.provider_id = Some(instance.provider_id);
    }
    let seen: Vec<ObservedNode> = nodes.iter().map(|node| observe::node(node)).collect();
    let client = &shared.context.client;
    match finalize_claim(&observed, &seen, shared.launcher.is_busy(&uid)) {
        ClaimStep::Nothing => {
            shared.launcher.forget(&uid);
            Ok(Next::Done)
        }
        ClaimStep::AwaitLaunch => Ok(Next::After(AWAIT_LAUNCH)),
        ClaimStep::WriteDeadline(deadline) => {
            let patch = json!({"metadata": {"annotations": {annotations::TERMINATION_TIMESTAMP: format_time(deadline)}}});
            if write::merge(client, claim, patch).await? == Written::Yes {
                shared
                    .context
                    .recorder
                    .publish(expiring(claim, &format_time(deadline)));
            }
            Ok(Next::After(Duration::from_millis(50)))
        }
        ClaimStep::AwaitNodes(alive) => {
            for node in nodes
                .iter()
                .filter(|node| alive.iter().any(|name| name.as_str() == node.name_any()))
            {
                write::delete(client, &**node).await?;
            }
            Ok(Next::After(AWAIT_NODES))
        }
        ClaimStep::TerminateInstance => {
            let Some(id) = observed.provider_id.clone() else {
                return Ok(Next::Done);
            };
            if terminate(shared, &id).await? == Gone::Yes {
                return remove(shared, claim).await;
            }
            mark_terminating(shared, claim).await?;
            Ok(Next::After(pause(INSTANCE_POLL)))
        }
        ClaimStep::RemoveFinalizer => remove(shared, claim).await,
    }
}

/// Tells that everything on a node ends at its deadline, whatever protects it.
pub(super) fn expiring<K: Resource<DynamicType = ()>>(object: &K, deadline: &str) -> Event {
    let message = format!("All pods will be deleted by {deadline}");
    Event::new(
        object,
        Severity::Warning,
        "TerminationGracePeriodExpiring",
        message,
    )
    .keyed(vec![object.name_any()])
}

/// Whether an instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    Yes,
    NotYet,
}

/// Asks for the end of an instance.
pub(super) async fn terminate(shared: &Shared, id: &ProviderId) -> Result<Gone, Error> {
    match shared.context.provider.terminate(id).await {
        Ok(()) => Ok(Gone::NotYet),
        Err(error) if error.kind == CloudErrorKind::NodeClaimNotFound => Ok(Gone::Yes),
        Err(error) => Err(error.into()),
    }
}

async fn mark_terminating(shared: &Shared, claim: &NodeClaim) -> Result<Written, Error> {
    let mut changed = claim.clone();
    let changes = [Change::holds(ConditionType::InstanceTerminating)];
    if !write::apply_changes(&mut changed, &changes, now()) {
        return Ok(Written::Yes);
    }
    write::status(&shared.context.client, claim, &changed.status).await
}

async fn remove(shared: &Shared, object: &NodeClaim) -> Result<Next, Error> {
    let written = write::remove_finalizer(
        &shared.context.client,
        object,
        annotations::TERMINATION_FINALIZER,
    )
    .await?;
    if written == Written::Stale {
        return Ok(Next::After(Duration::from_millis(50)));
    }
    let uid = object.uid().unwrap_or_default();
    shared.launcher.forget(&uid);
    shared.scans.forget(&uid);
    telemetry::nodeclaim_terminated(&claim::pool_of(object), claim::capacity_type(object));
    tracing::info!(nodeclaim = object.name_any(), "deleted nodeclaim");
    Ok(Next::Done)
}
