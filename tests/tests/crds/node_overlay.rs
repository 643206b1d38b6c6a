//! Admission of NodeOverlays: provisioning specification 1.4.

use serde_json::json;

use crate::support::shared::{self, Owner};
use crate::support::{Admission, Row, at, client, manifest};

fn rows() -> Vec<Row> {
    let own = "capacity must not contain 'cpu', 'memory', 'ephemeral-storage' or 'pods'";
    vec![
        at("/spec").must_be_there(),
        at("/spec/price")
            .without("/spec/priceAdjustment")
            .may_be_absent()
            .all_good(["0", "1", "0.05", "12.5"])
            .all_bad(["-1", "+1", ".5", "1.", "1e3", "$1", ""], "should match"),
        at("/spec/price").bad("1", "cannot set both 'price' and 'priceAdjustment'"),
        at("/spec/priceAdjustment")
            .may_be_absent()
            .all_good(["+0.5", "-1", "+.5", "-12.25", "+10%", "+150.5%", "+1000%"])
            .all_good(["-0%", "-99.99%", "-100%", "-5%"])
            .all_bad(
                ["10%", "5", "0.5", "-101%", "-100.5%", "-150%", "+", "+%"],
                "should match",
            )
            .all_bad(["+1 %", "+1%%", "1+", ""], "should match"),
        at("/spec/priceAdjustment")
            .without("/spec/capacity")
            .may_be_absent(),
        shared::quantities(at("/spec/capacity").may_be_absent()),
        at("/spec/capacity")
            .good(json!({"hugepages-2Mi": "1Gi"}))
            .all_bad(
                ["cpu", "memory", "ephemeral-storage", "pods"]
                    .map(|name| json!({ name: "1", "example.com/x": "1" })),
                own,
            ),
        at("/spec/weight")
            .may_be_absent()
            .all_good([1, 10_000])
            .bad(0, "should be greater than or equal to 1")
            .bad(10_001, "should be less than or equal to 10000"),
    ]
}

#[tokio::test]
async fn every_rule_of_a_node_overlay_refuses_what_it_must_and_nothing_beside_it()
-> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let mut admission = Admission::of(&client, manifest(include_str!("node_overlay.yaml"))).await?;
    admission.try_all(&rows()).await;
    admission
        .try_all(&shared::requirements("/spec/requirements", Owner::Overlay))
        .await;
    admission.try_all(&shared::conditions(false)).await;
    admission.assert_complete("nodeoverlays.karpenter.sh");
    Ok(())
}
