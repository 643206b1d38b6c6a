//! The end of a Node: cordon, drain, volumes, instance, finalizer.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    storage::v1::VolumeAttachment,
};
use kube::{Api, ResourceExt, api::ListParams};
use millwright_api::{NodeClaim, annotations};
use millwright_cloud::CloudErrorKind;
use millwright_lifecycle::{
    ObservedPod,
    termination::{self, INSTANCE_POLL, asks_for_instance, finalize_node, pause},
    volumes::{self, ObservedAttachment},
};
use millwright_telemetry as telemetry;

use super::{
    Shared,
    claim_finalize::{Gone, terminate},
    observe,
    write::{self, Error, Written},
};
use crate::{
    context::now,
    events::{Event, Severity},
    workqueue::Next,
};

/// Nodes worked on at once.
const WORKERS: usize = 64;
const STALE: Next = Next::After(Duration::from_millis(50));

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    let queue = shared.nodes.clone();
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
    let Some(node) = context
        .nodes
        .get(key)
        .filter(|node| node.metadata.deletion_timestamp.is_some())
    else {
        return Ok(Next::Done);
    };
    let observed = observe::node(&node);
    if !observed.has_finalizer {
        return Ok(Next::Done);
    }
    let claim = shared.claim_of(&node);
    // The instance of a Node that is not ready may be gone; then there is nothing to drain.
    if asks_for_instance(&observed)
        && let Some(id) = &observed.provider_id
        && let Err(error) = context.provider.get(id).await
        && error.kind == CloudErrorKind::NodeClaimNotFound
    {
        return remove(shared, &node).await;
    }
    let pods = pods_on(shared, key).await?;
    let attachments = attachments(shared, key).await?;
    let volumes = volumes::awaited(
        &attachments,
        &pods,
        |namespace, name| context.state().volume_of_claim(namespace, name),
        now(),
    );
    let seen = claim.as_ref().map(|claim| observe::claim(claim));
    let step = finalize_node(&observed, seen.as_ref(), &pods, &volumes, now())?;
    carry_out(shared, &node, claim.as_deref(), step).await
}

async fn carry_out(
    shared: &Shared,
    node: &Node,
    claim: Option<&NodeClaim>,
    step: termination::NodeStep<'_>,
) -> Result<Next, Error> {
    let context = &shared.context;
    if let Some(claim) = claim.filter(|_| step.delete_claim) {
        write::delete(&context.client, claim).await?;
    }
    if let Some(edit) = &step.edit
        && write::edit_node(&context.client, node, None, edit).await? == Written::Stale
    {
        return Ok(STALE);
    }
    for pod in &step.evict {
        shared
            .evictions
            .add(pod, &node.name_any().into(), step.deadline);
    }
    if step.waiting_pods > 0 {
        let message = format!(
            "Failed to drain node, {} pods are waiting to be evicted",
            step.waiting_pods
        );
        context.recorder.publish(Event::new(
            node,
            Severity::Warning,
            "FailedDraining",
            message,
        ));
    }
    if !step.waiting_volumes.is_empty() {
        let shown: Vec<&str> = step
            .waiting_volumes
            .iter()
            .take(5)
            .map(|name| &**name)
            .collect();
        let message = format!(
            "Awaiting deletion of bound volumeattachments ({})",
            shown.join(", ")
        );
        context.recorder.publish(Event::new(
            node,
            Severity::Normal,
            "AwaitingVolumeDetachment",
            message,
        ));
    }
    if let Some(claim) = claim.filter(|_| !step.changes.is_empty()) {
        let mut changed = claim.clone();
        if write::apply_changes(&mut changed, &step.changes, now())
            && write::status(&context.client, claim, &changed.status).await? == Written::Stale
        {
            return Ok(STALE);
        }
    }
    match step.next {
        termination::Next::Nothing => Ok(Next::Done),
        termination::Next::Again(span) => Ok(Next::After(pause(span))),
        termination::Next::RemoveFinalizer => remove(shared, node).await,
        termination::Next::TerminateInstance => {
            let id = node
                .spec
                .as_ref()
                .and_then(|spec| spec.provider_id.as_deref())
                .unwrap_or_default();
            match terminate(shared, &id.into()).await? {
                Gone::Yes => remove(shared, node).await,
                Gone::NotYet => Ok(Next::After(pause(INSTANCE_POLL))),
            }
        }
    }
}

async fn remove(shared: &Shared, node: &Node) -> Result<Next, Error> {
    let written = write::remove_finalizer(
        &shared.context.client,
        node,
        annotations::TERMINATION_FINALIZER,
    )
    .await?;
    if written == Written::Stale {
        return Ok(STALE);
    }
    let pool = node
        .labels()
        .get(millwright_model::labels::NODE_POOL)
        .cloned()
        .unwrap_or_default();
    telemetry::node_terminated(&pool);
    tracing::info!(node = node.name_any(), "deleted node");
    Ok(Next::Done)
}

/// All pods bound to a node, from the API server: what a drain is decided on must be fresh.
pub(super) async fn pods_on(shared: &Shared, node: &str) -> Result<Vec<ObservedPod>, Error> {
    let api: Api<Pod> = Api::all(shared.context.client.clone());
    let filter = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = api.list(&filter).await.map_err(|source| Error::Api {
        what: format!("list pods of node {node}"),
        source: Box::new(source),
    })?;
    Ok(pods.items.iter().map(observe::pod).collect())
}

/// VolumeAttachments of a node. There is no field selector for them; a drain asks once a second and
/// the list is small.
async fn attachments(shared: &Shared, node: &str) -> Result<Vec<ObservedAttachment>, Error> {
    let api: Api<VolumeAttachment> = Api::all(shared.context.client.clone());
    let all = api
        .list(&ListParams::default())
        .await
        .map_err(|source| Error::Api {
            what: "list volume attachments".to_owned(),
            source: Box::new(source),
        })?;
    Ok(all
        .items
        .iter()
        .filter(|a| a.spec.node_name == node)
        .map(observe::attachment)
        .collect())
}
