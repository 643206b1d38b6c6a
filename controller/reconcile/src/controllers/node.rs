//! The end of a Node: cordon, drain, volumes, instance, finalizer.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    storage::v1::VolumeAttachment,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use millwright_api::{NodeClaim, annotations, conditions::Conditioned};
use millwright_cloud::CloudErrorKind;
use millwright_lifecycle::{
    Change, ConditionType, ObservedPod,
    termination::{self, INSTANCE_POLL, asks_for_instance, finalize_node, format_time, pause},
    volumes::{self, ObservedAttachment},
};
use millwright_model::labels;
use millwright_telemetry as telemetry;
use tokio::sync::Mutex;

use super::{
    Shared,
    claim_finalize::{Gone, expiring, terminate},
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
/// How old the known VolumeAttachments may be.
const ATTACHMENTS_TTL: Duration = Duration::from_secs(1);
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
    {
        return match error.kind {
            CloudErrorKind::NodeClaimNotFound => remove(shared, &node).await,
            _ => Err(error.into()),
        };
    }
    let pods = context.bound_pods.on(key);
    let seen = claim.as_ref().map(|claim| observe::claim(claim));
    let mut step = finalize_node(&observed, seen.as_ref(), &pods, &[], now())?;
    // Volumes matter once the pods are gone; until then nobody has to ask for them.
    if matches!(
        step.next,
        termination::Next::TerminateInstance | termination::Next::RemoveFinalizer
    ) {
        let attachments = shared.attachments.of(&context.client, key).await?;
        let volumes = volumes::awaited(
            &attachments,
            &pods,
            |namespace, name| context.state().volume_of_claim(namespace, name),
            now(),
        );
        step = finalize_node(&observed, seen.as_ref(), &pods, &volumes, now())?;
    }
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
        let name = node.name_any().into();
        shared.evictions.add(pod, &name, step.deadline);
    }
    tell(shared, node, &step);
    if let Some(claim) = claim.filter(|_| !step.changes.is_empty()) {
        let mut changed = claim.clone();
        if write::apply_changes(&mut changed, &step.changes, now()) {
            if write::status(&context.client, claim, &changed.status).await? == Written::Stale {
                return Ok(STALE);
            }
            let (before, after) = (claim.conditions(), changed.conditions());
            write::publish_transitions(&context.recorder, claim, before, after);
            let drained = Change::holds(ConditionType::Drained);
            if step.changes.contains(&drained) {
                telemetry::node_drained(&pool_of(node));
            }
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

/// Tells what the end of the node waits for.
fn tell(shared: &Shared, node: &Node, step: &termination::NodeStep<'_>) {
    let recorder = &shared.context.recorder;
    let by_name = |event: Event| event.keyed(vec![node.name_any()]);
    if let Some(deadline) = step.deadline {
        recorder.publish(expiring(node, &format_time(deadline)));
    }
    if step.waiting_pods > 0 {
        let message = format!(
            "Failed to drain node, {} pods are waiting to be evicted",
            step.waiting_pods
        );
        let event = Event::new(node, Severity::Warning, "FailedDraining", message);
        recorder.publish(by_name(event));
    }
    if !step.waiting_volumes.is_empty() {
        let shown: Vec<&str> = step.waiting_volumes.iter().take(5).map(|n| &**n).collect();
        let others = match step.waiting_volumes.len() - shown.len() {
            0 => String::new(),
            others => format!(" and {others} other(s)"),
        };
        let message = format!(
            "Awaiting deletion of bound volumeattachments ({}{others})",
            shown.join(", ")
        );
        let event = Event::new(node, Severity::Normal, "AwaitingVolumeDetachment", message);
        recorder.publish(by_name(event));
    }
}

async fn remove(shared: &Shared, node: &Node) -> Result<Next, Error> {
    let client = &shared.context.client;
    let finalizer = annotations::TERMINATION_FINALIZER;
    if write::remove_finalizer(client, node, finalizer).await? == Written::Stale {
        return Ok(STALE);
    }
    telemetry::node_terminated(&pool_of(node));
    tracing::info!(node = node.name_any(), "deleted node");
    Ok(Next::Done)
}

fn pool_of(node: &Node) -> String {
    node.labels()
        .get(labels::NODE_POOL)
        .cloned()
        .unwrap_or_default()
}

/// All pods bound to a node, from the API server, for decisions that cannot be taken back.
pub(super) async fn pods_on(shared: &Shared, node: &str) -> Result<Vec<ObservedPod>, Error> {
    let api: Api<Pod> = Api::all(shared.context.client.clone());
    let filter = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = api.list(&filter).await.map_err(|source| Error::Api {
        what: format!("list pods of node {node}"),
        source: Box::new(source),
    })?;
    Ok(pods.items.iter().map(observe::pod).collect())
}

/// VolumeAttachments by node, read at most once in [`ATTACHMENTS_TTL`] for all nodes that leave.
/// They have no field selector for the node, so each read is a list of all.
#[derive(Debug, Default)]
pub(super) struct Attachments(Mutex<Option<(Instant, ByNode)>>);

type ByNode = Arc<HashMap<String, Vec<ObservedAttachment>>>;

impl Attachments {
    /// Those of one node. The lock is held while they are read, so that everybody who asks
    /// meanwhile shares the answer.
    async fn of(&self, client: &Client, node: &str) -> Result<Vec<ObservedAttachment>, Error> {
        let mut known = self.0.lock().await;
        let by_node = match &*known {
            Some((at, by_node)) if at.elapsed() < ATTACHMENTS_TTL => by_node.clone(),
            _ => {
                let by_node = read_attachments(client).await?;
                *known = Some((Instant::now(), by_node.clone()));
                by_node
            }
        };
        Ok(by_node.get(node).cloned().unwrap_or_default())
    }
}

async fn read_attachments(client: &Client) -> Result<ByNode, Error> {
    let api: Api<VolumeAttachment> = Api::all(client.clone());
    let all = api
        .list(&ListParams::default())
        .await
        .map_err(|source| Error::Api {
            what: "list volume attachments".to_owned(),
            source: Box::new(source),
        })?;
    let mut by_node: HashMap<String, Vec<ObservedAttachment>> = HashMap::new();
    for attachment in &all.items {
        by_node
            .entry(attachment.spec.node_name.clone())
            .or_default()
            .push(observe::attachment(attachment));
    }
    Ok(Arc::new(by_node))
}
