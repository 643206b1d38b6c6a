//! The control endpoint, throttling, bounds.

use http::Method;
use serde_json::json;

use super::client::{Rig, ids};
use crate::aws::{InstanceState, ThrottleConfig};

#[tokio::test]
async fn the_control_endpoint_steers_capacity_and_faults() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.steer("capacity", json!({ "instance_type": "m5.*", "free": 0 }))
        .await
        .ok();
    let form = rig.fleet(1, "on-demand", &[("m5.large", 'a')]);
    assert!(ids(&rig.ec2("CreateFleet", &form).await.ok()).is_empty());
    rig.steer("capacity", json!({ "instance_type": "m5.*", "free": null }))
        .await
        .ok();
    rig.steer("deny", json!({ "action": "CreateFleet" }))
        .await
        .ok();
    let denied = rig.ec2("CreateFleet", &format!("{form}&DryRun=true")).await;
    assert_eq!(
        (denied.status, denied.code()),
        (403, "UnauthorizedOperation")
    );
    rig.steer("deny", json!({ "action": "CreateFleet", "denied": false }))
        .await
        .ok();
    let fault = json!({ "action": "ec2:CreateFleet", "code": "InternalError", "status": 500 });
    rig.steer("fail", fault).await.ok();
    let failed = rig.ec2("CreateFleet", &form).await;
    assert_eq!((failed.status, failed.code()), (500, "InternalError"));
    let id = ids(&rig.ec2("CreateFleet", &form).await.ok()).remove(0);
    rig.steer("kill", json!({ "instance_id": id })).await.ok();
    assert_eq!(rig.world.instances()[0].state, InstanceState::Terminated);
    let calls = rig.world.calls()["ec2:CreateFleet"];
    assert_eq!((calls.calls, calls.errors), (4, 2));
}

#[tokio::test]
async fn mistakes_to_the_control_endpoint_are_explained() {
    let rig = Rig::new().await;
    let answer = rig
        .steer("capacity", json!({ "instance-type": "m5.large" }))
        .await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("instance-type"), "{}", answer.body);
    assert_eq!(rig.steer("nonsense", json!({})).await.status, 404);
    assert_eq!(
        rig.steer("kill", json!({ "instance_id": "i-0" }))
            .await
            .status,
        404
    );
    let help = rig
        .try_send(Method::GET, "/_sim/help", &[], String::new())
        .await
        .expect("an answer");
    assert!(help.ok().body.contains("capacity"));
}

#[tokio::test]
async fn reset_starts_over_with_the_same_identifiers() {
    let rig = Rig::new().await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        rig.world.reset();
        rig.template("tpl").await;
        runs.push(rig.launch(2).await);
    }
    assert_eq!(runs[0], runs[1]);
    assert_eq!(rig.world.instances().len(), 2);
}

#[tokio::test]
async fn buckets_throttle_bursts_and_refill_with_time() {
    let rig = Rig::with(|config| config.throttle = Some(ThrottleConfig::default())).await;
    let mut refused = 0;
    for _ in 0..110 {
        let answer = rig.ec2("DescribeSubnets", "").await;
        if answer.status != 200 {
            assert_eq!(
                (answer.status, answer.code()),
                (503, "RequestLimitExceeded")
            );
            refused += 1;
        }
    }
    assert_eq!(refused, 10);
    rig.pass(1);
    rig.ec2("DescribeSubnets", "").await.ok();
    assert_eq!(rig.world.calls()["ec2:DescribeSubnets"].throttled, 10);
}

#[tokio::test]
async fn an_oversized_body_is_refused() {
    let rig = Rig::new().await;
    let answer = rig
        .ec2(
            "CreateLaunchTemplate",
            &format!("X={}", "a".repeat(2 << 20)),
        )
        .await;
    assert_eq!((answer.status, answer.code()), (400, "InvalidInput"));
}
