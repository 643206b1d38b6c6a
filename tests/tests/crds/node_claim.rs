//! Admission of NodeClaims: provisioning specification 1.3.

use serde_json::json;

use crate::support::shared::{self, Owner};
use crate::support::{Admission, Row, at, client, manifest, status, update};

fn rows() -> Vec<Row> {
    let immutable = "spec is immutable";
    vec![
        at("/spec").must_be_there(),
        at("/spec/resources").may_be_absent().good(json!({})),
        shared::quantities(at("/spec/resources/requests").may_be_absent()),
        shared::duration("/spec/terminationGracePeriod"),
        shared::nillable_duration("/spec/expireAfter"),
        update("/metadata/labels").good(json!({"karpenter.sh/nodepool": "other"})),
        update("/spec/expireAfter")
            .good("30m")
            .all_bad(["31m", "1800s"], immutable),
        update("/spec/terminationGracePeriod").must_stay(immutable),
        update("/spec/nodeClassRef/name").bad("other", immutable),
        update("/spec/resources").bad(json!({}), immutable),
        shared::quantities(status("/status/capacity").may_be_absent()),
        shared::quantities(status("/status/allocatable").may_be_absent()),
        status("/status/lastPodEventTime")
            .may_be_absent()
            .bad("yesterday", "Invalid value"),
    ]
}

#[tokio::test]
async fn every_rule_of_a_node_claim_refuses_what_it_must_and_nothing_beside_it()
-> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let mut admission = Admission::of(&client, manifest(include_str!("node_claim.yaml"))).await?;
    admission.try_all(&rows()).await;
    admission
        .try_all(&shared::requirements("/spec/requirements", Owner::Claim))
        .await;
    admission.try_all(&shared::taints("/spec/taints")).await;
    admission
        .try_all(&shared::taints("/spec/startupTaints"))
        .await;
    let reference = [
        "/spec/nodeClassRef",
        "/spec/nodeClassRef/kind",
        "/spec/nodeClassRef/name",
        "/spec/nodeClassRef/group",
    ];
    admission.try_all(&shared::node_class_ref(reference)).await;
    admission.try_all(&shared::conditions(true)).await;
    admission.assert_complete("nodeclaims.karpenter.sh");
    Ok(())
}
