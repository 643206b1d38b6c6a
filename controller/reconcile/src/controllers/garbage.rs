//! Garbage in both directions: instances that belong to no NodeClaim, NodeClaims whose instance is gone.

use std::{collections::BTreeSet, time::Instant};

use futures::{StreamExt, stream};
use kube::{Api, ResourceExt, api::ListParams};
use millwright_api::NodeClaim;
use millwright_cloud::{Instance, InstanceState};
use millwright_lifecycle::{
    ObservedClaim, ObservedNode,
    garbage::{
        CLAIMS_EVERY, FIRST_ROUNDS, INSTANCES_EVERY, INSTANCES_EVERY_AT_FIRST, ObservedInstance,
        is_vanished, leaked, suspects,
    },
    launch::DeleteCause,
    launch_group::ANNOTATION,
    observed::NodeMatch,
    termination::pause,
};
use millwright_model::{NodeClaimName, ProviderId};

use super::{
    Shared, observe,
    write::{self, Error, Written},
};
use crate::context::now;

/// Instances ended at once.
const INSTANCES_AT_ONCE: usize = 100;
/// NodeClaims deleted at once.
const CLAIMS_AT_ONCE: usize = 20;

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    let mut round = 0_u32;
    let mut claims_due = Instant::now() + pause(CLAIMS_EVERY);
    loop {
        let every = if round < FIRST_ROUNDS {
            INSTANCES_EVERY_AT_FIRST
        } else {
            INSTANCES_EVERY
        };
        round = round.saturating_add(1);
        tokio::time::sleep(pause(every)).await;
        if !shared.context.leadership.is_leader() {
            continue;
        }
        let check_claims = Instant::now() >= claims_due;
        if let Err(error) = collect(&shared, check_claims).await {
            tracing::warn!(%error, "garbage could not be collected, will retry");
        } else if check_claims {
            claims_due = Instant::now() + pause(CLAIMS_EVERY);
        }
    }
}

async fn collect(shared: &Shared, check_claims: bool) -> Result<(), Error> {
    // Instances first, NodeClaims after: a NodeClaim written in between is then seen.
    let instances = shared.context.provider.list().await?;
    let api: Api<NodeClaim> = Api::all(shared.context.client.clone());
    let claims = api
        .list(&ListParams::default())
        .await
        .map_err(|source| Error::Api {
            what: "list nodeclaims".to_owned(),
            source: Box::new(source),
        })?
        .items;
    end_leaked(shared, &instances, &claims).await;
    if check_claims {
        delete_vanished(shared, &instances, &claims).await;
    }
    Ok(())
}

async fn end_leaked(shared: &Shared, instances: &[Instance], claims: &[NodeClaim]) {
    let mut claimed: BTreeSet<ProviderId> = claims
        .iter()
        .filter_map(|claim| claim.status.as_ref())
        .map(|status| ProviderId::from(status.provider_id.as_str()))
        .collect();
    claimed.extend(
        shared
            .launcher
            .unwritten()
            .into_iter()
            .map(ProviderId::from),
    );
    // An instance whose launch group still has members without one is about to be written down.
    let open: BTreeSet<&str> = claims
        .iter()
        .filter(|claim| {
            claim
                .status
                .as_ref()
                .is_none_or(|status| status.provider_id.is_empty())
        })
        .filter_map(|claim| {
            claim
                .annotations()
                .get(ANNOTATION)?
                .rsplit_once('/')
                .map(|(id, _)| id)
        })
        .collect();
    let observed: Vec<ObservedInstance> = instances
        .iter()
        .filter(|instance| {
            instance
                .launch_group
                .as_ref()
                .is_none_or(|group| !open.contains(&**group))
        })
        .map(|instance| ObservedInstance {
            provider_id: instance.provider_id.clone(),
            launched_at: instance.launched_at,
            leaving: matches!(
                instance.state,
                InstanceState::ShuttingDown | InstanceState::Terminated
            ),
        })
        .collect();
    // All at once, because the provider makes few calls of many; one failure stops no other.
    stream::iter(leaked(&observed, &claimed, now()))
        .for_each_concurrent(INSTANCES_AT_ONCE, |instance| async move {
            if let Err(error) = end(shared, &instance.provider_id).await {
                tracing::warn!(provider_id = %instance.provider_id, %error, "leaked instance could not be ended, will retry");
            }
        })
        .await;
}

/// Ends an instance and the Node that it may have become.
async fn end(shared: &Shared, id: &ProviderId) -> Result<(), Error> {
    tracing::warn!(provider_id = %id, "garbage collected cloudprovider instance");
    super::claim_finalize::terminate(shared, id).await?;
    for node in shared.nodes_of(id) {
        write::delete(&shared.context.client, &*node).await?;
    }
    Ok(())
}

async fn delete_vanished(shared: &Shared, instances: &[Instance], claims: &[NodeClaim]) {
    let alive: BTreeSet<ProviderId> = instances
        .iter()
        .filter(|i| {
            !matches!(
                i.state,
                InstanceState::Terminated | InstanceState::ShuttingDown
            )
        })
        .map(|i| i.provider_id.clone())
        .collect();
    let observed: Vec<ObservedClaim> = claims.iter().map(observe::claim).collect();
    let suspects: BTreeSet<NodeClaimName> = suspects(&observed, &alive).into_iter().collect();
    let suspects = claims
        .iter()
        .filter(|claim| suspects.contains(&NodeClaimName::from(claim.name_any())));
    stream::iter(suspects)
        .for_each_concurrent(CLAIMS_AT_ONCE, |claim| async move {
            let name = claim.name_any();
            if let Err(error) = delete_if_vanished(shared, claim).await {
                tracing::warn!(nodeclaim = name, %error, "nodeclaim without instance could not be deleted, will retry");
            }
        })
        .await;
}

async fn delete_if_vanished(shared: &Shared, claim: &NodeClaim) -> Result<(), Error> {
    let id = claim
        .status
        .as_ref()
        .map(|s| s.provider_id.as_str())
        .unwrap_or_default();
    let nodes: Vec<ObservedNode> = shared
        .nodes_of(id)
        .iter()
        .map(|node| observe::node(node))
        .collect();
    if !is_vanished(NodeMatch::of(&nodes)) {
        return Ok(());
    }
    if write::delete_as_seen(&shared.context.client, claim).await? == Written::Yes {
        tracing::warn!(
            nodeclaim = claim.name_any(),
            "deleted a nodeclaim whose instance is gone"
        );
        super::claim::count_disruption(shared, claim, DeleteCause::GarbageCollected);
    }
    Ok(())
}
