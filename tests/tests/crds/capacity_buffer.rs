//! Admission of CapacityBuffers: provisioning specification 1.5.

use serde_json::json;

use crate::support::{Admission, Row, at, client, manifest, shared, status};

fn rows() -> Vec<Row> {
    let short = "should be at least 1 chars long";
    let scalable = || at("/spec/scalableRef").without("/spec/podTemplateRef");
    vec![
        at("/spec").must_be_there(),
        at("/spec/provisioningStrategy")
            .may_be_absent()
            .all_good(["anything", ""]),
        // Neither reference is admitted; the controller reports it.
        at("/spec/podTemplateRef")
            .may_be_absent()
            .good(json!({"name": "x"})),
        at("/spec/podTemplateRef/name")
            .bad("", short)
            .must_be_there(),
        at("/spec/replicas")
            .without("/spec/limits")
            .good(0)
            .must_stay("'podTemplateRef' needs"),
        at("/spec/limits")
            .without("/spec/replicas")
            .good(json!({}))
            .must_stay("'podTemplateRef' needs"),
        at("/spec/replicas")
            .good(0)
            .bad(-1, "should be greater than or equal to 0"),
        at("/spec/percentage")
            .may_be_absent()
            .all_good([0, 250])
            .bad(-1, "should be greater than or equal to 0"),
        shared::quantities(at("/spec/limits").may_be_absent()),
        at("/spec/scalableRef").bad(
            json!({"kind": "Deployment", "name": "x"}),
            "cannot set both 'podTemplateRef' and 'scalableRef'",
        ),
        scalable()
            .good(json!({"kind": "Deployment", "name": "x"}))
            .good(json!({"kind": "Deployment", "name": "x", "apiGroup": ""}))
            .bad(json!({"kind": "", "name": "x"}), short)
            .bad(json!({"kind": "Deployment", "name": ""}), short)
            .bad(json!({"kind": "Deployment"}), "Required value")
            .bad(json!({"name": "x"}), "Required value"),
        status("/status/podTemplateRef/name")
            .bad("", short)
            .must_be_there(),
    ]
}

#[tokio::test]
async fn every_rule_of_a_capacity_buffer_refuses_what_it_must_and_nothing_beside_it()
-> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let buffer = manifest(include_str!("capacity_buffer.yaml"));
    let mut admission = Admission::of(&client, buffer).await?;
    admission.try_all(&rows()).await;
    admission.try_all(&shared::conditions(false)).await;
    admission.assert_complete("capacitybuffers.autoscaling.x-k8s.io");
    Ok(())
}
