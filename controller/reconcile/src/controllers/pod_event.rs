//! `status.lastPodEventTime` of NodeClaims: when a pod last came to or left the node.
//!
//! Differs: pools with `consolidateAfter: 0s` or `Never` do not read it, so it is not written for
//! them (decision D-010); in a burst it would double the writes per node.

use std::time::Duration;

use kube::ResourceExt;
use millwright_api::NodeClaim;
use millwright_lifecycle::consolidatable::{ConsolidateAfter, stores_pod_event};
use millwright_model::{Span, labels};

use super::{
    Shared, observe,
    write::{self, Error, api_time},
};
use crate::context::now;

/// Changes are gathered this long.
const GATHER: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: Shared) {
    shared.ready().await;
    loop {
        tokio::time::sleep(GATHER).await;
        let touched = shared.context.state().take_touched_nodes();
        if !shared.context.leadership.is_leader() {
            continue;
        }
        for name in touched {
            let Some(node) = shared.context.nodes.get(name.as_str()) else {
                continue;
            };
            let Some(claim) = shared.claim_of(&node) else {
                continue;
            };
            if let Err(error) = store(&shared, &claim).await {
                tracing::debug!(nodeclaim = claim.name_any(), %error, "pod event could not be stored");
            }
        }
    }
}

async fn store(shared: &Shared, claim: &NodeClaim) -> Result<(), Error> {
    let pool = claim
        .labels()
        .get(labels::NODE_POOL)
        .and_then(|name| shared.context.node_pools.get(name));
    let counts = pool.is_some_and(|pool| {
        matches!(observe::disruption_rules(&pool).consolidate_after, ConsolidateAfter::After(span) if span > Span::from_millis(0))
    });
    if !counts || !stores_pod_event(observe::claim(claim).last_pod_event, now()) {
        return Ok(());
    }
    let mut changed = claim.clone();
    changed.status.get_or_insert_default().last_pod_event_time =
        Some(millwright_api::Time(api_time(now())));
    write::status(&shared.context.client, claim, &changed.status).await?;
    Ok(())
}
