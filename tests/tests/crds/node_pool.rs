//! Admission of NodePools: provisioning specification 1.2.

use serde_json::{Map, Value, json};

use crate::support::shared::{self, Owner};
use crate::support::{Admission, Row, at, client, manifest, status, update};

fn spec() -> Vec<Row> {
    vec![
        at("/spec").must_be_there(),
        at("/spec/template").must_be_there(),
        at("/spec/template/spec").must_be_there(),
        at("/spec/weight")
            .may_be_absent()
            .all_good([1, 100])
            .bad(0, "should be greater than or equal to 1")
            .bad(101, "should be less than or equal to 100"),
        at("/spec/replicas")
            .without("/spec/weight")
            .without("/spec/limits")
            .all_good([0, 3])
            .bad(-1, "should be greater than or equal to 0"),
        at("/spec/replicas")
            .with("/spec/limits", json!({"nodes": "3"}))
            .without("/spec/weight")
            .good(3),
        at("/spec/replicas")
            .with("/spec/limits", json!({}))
            .without("/spec/weight")
            .good(3),
        at("/spec/replicas")
            .without("/spec/weight")
            .may_be_absent()
            .bad(
                3,
                "only 'limits.nodes' is supported on NodePools with 'replicas'",
            ),
        at("/spec/replicas")
            .without("/spec/weight")
            .with("/spec/limits", json!({"cpu": "1"}))
            .bad(
                3,
                "only 'limits.nodes' is supported on NodePools with 'replicas'",
            ),
        at("/spec/replicas")
            .without("/spec/limits")
            .may_be_absent()
            .bad(3, "'weight' is not supported on NodePools with 'replicas'"),
        shared::quantities(at("/spec/limits").may_be_absent()),
    ]
}

fn labels() -> Vec<Row> {
    let label = |key: &str, value: &str| json!({ key: value });
    let many = |count: usize| -> Value {
        (0..count)
            .map(|n| (format!("k{n}"), Value::from("v")))
            .collect::<Map<_, _>>()
            .into()
    };
    let domain = "label domain \"karpenter.sh\" is restricted";
    vec![
        at("/spec/template/metadata").may_be_absent(),
        at("/spec/template/metadata/annotations")
            .may_be_absent()
            .good(json!({"karpenter.sh/do-not-disrupt": "true"})),
        at("/spec/template/metadata/labels")
            .may_be_absent()
            .all_good([
                label("a", ""),
                label("karpenter.sh/capacity-type", "spot"),
                many(100),
            ])
            .all_good([label("a", &"v".repeat(63)), label("kubernetes.io/x", "v")])
            .good(label("karpenter.k8s.aws/instance-family", "m5"))
            .all_bad(
                ["karpenter.sh/x", "foo-karpenter.sh/x"].map(|k| label(k, "v")),
                domain,
            )
            .bad(
                label("karpenter.sh/nodepool", "v"),
                "label \"karpenter.sh/nodepool\" is restricted",
            )
            .bad(
                label("kubernetes.io/hostname", "v"),
                "label \"kubernetes.io/hostname\" is restricted",
            )
            .bad(
                label("karpenter.k8s.aws/instance-pods", "7"),
                "label domain \"karpenter.k8s.aws\" is restricted",
            )
            .bad(label("a", &"v".repeat(64)), "Too long")
            .all_bad(["-", "a b", "a/b"].map(|v| label("a", v)), "should match")
            .bad(many(101), "must have at most 100 items"),
    ]
}

fn disruption() -> Vec<Row> {
    let budget = |field: &str, value: Value| json!([{ "nodes": "1", "schedule": "@daily", "duration": "1h", field: value }]);
    let set = |field: &'static str| move |value: &str| budget(field, value.into());
    vec![
        at("/spec/disruption").may_be_absent().good(json!({})),
        at("/spec/disruption/consolidationPolicy")
            .may_be_absent()
            .all_good(["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"])
            .all_bad(["whenempty", "WhenUnderutilized", ""], "Unsupported value"),
        shared::nillable_duration("/spec/disruption/consolidateAfter"),
        at("/spec/disruption/budgets")
            .may_be_absent()
            .good(json!([]))
            .good(vec![json!({"nodes": "1"}); 50])
            .bad(
                vec![json!({"nodes": "1"}); 51],
                "must have at most 50 items",
            )
            .good(json!([{}]))
            .all_good(["0", "0%", "9%", "99%", "100%", "7", "1000"].map(set("nodes")))
            .all_bad(
                ["101%", "-1", "1.5", "10 %", "all", ""].map(set("nodes")),
                "should match",
            )
            .all_good(
                ["@annually", "@yearly", "@monthly", "@weekly", "@daily"].map(set("schedule")),
            )
            .all_good(
                ["@midnight", "@hourly", "0 0 1 * *", "*/5  9-17 * * mon-fri"].map(set("schedule")),
            )
            .all_bad(
                ["@never", "@daily x", "* * * *", "* * * * * *", ""].map(set("schedule")),
                "should match",
            )
            .all_good(["8h", "90m", "1h30m", "1h0s", "5m0s"].map(set("duration")))
            .all_bad(
                ["30s", "1m1h", "1h30m5s", "1d", "Never", ""].map(set("duration")),
                "should match",
            ),
        at("/spec/disruption/budgets")
            .all_good(["Underutilized", "Empty", "Drifted"].map(|r| budget("reasons", json!([r]))))
            .good(budget("reasons", json!([])))
            .all_bad(
                ["Expired", "empty"].map(|r| budget("reasons", json!([r]))),
                "Unsupported value",
            )
            .bad(
                budget("reasons", json!(["Empty", "Empty"])),
                "Duplicate value",
            )
            .bad(
                budget("reasons", vec!["Empty"; 51].into()),
                "must have at most 50 items",
            )
            .bad(
                json!([{"nodes": "1", "schedule": "@daily"}]),
                "'schedule' must be set with 'duration'",
            )
            .bad(
                json!([{"nodes": "1", "duration": "1h"}]),
                "'schedule' must be set with 'duration'",
            ),
    ]
}

fn updates() -> Vec<Row> {
    let fixed = "cannot change between static and dynamic";
    vec![
        update("/spec/template/spec/nodeClassRef/name").good("other"),
        update("/spec/template/spec/nodeClassRef/group")
            .bad("example.com", "nodeClassRef.group is immutable"),
        update("/spec/template/spec/nodeClassRef/kind")
            .bad("Other", "nodeClassRef.kind is immutable"),
        update("/spec/replicas")
            .without("/spec/weight")
            .without("/spec/limits")
            .bad(1, fixed),
        shared::quantities(status("/status/resources").may_be_absent()),
    ]
}

#[tokio::test]
async fn every_rule_of_a_node_pool_refuses_what_it_must_and_nothing_beside_it() -> anyhow::Result<()>
{
    let Some(client) = client().await? else {
        return Ok(());
    };
    let mut admission = Admission::of(&client, manifest(include_str!("node_pool.yaml"))).await?;
    admission.try_all(&spec()).await;
    admission.try_all(&labels()).await;
    admission.try_all(&disruption()).await;
    let requirements = "/spec/template/spec/requirements";
    admission
        .try_all(&shared::requirements(requirements, Owner::Pool))
        .await;
    admission
        .try_all(&shared::taints("/spec/template/spec/taints"))
        .await;
    admission
        .try_all(&shared::taints("/spec/template/spec/startupTaints"))
        .await;
    let reference = [
        "/spec/template/spec/nodeClassRef",
        "/spec/template/spec/nodeClassRef/kind",
        "/spec/template/spec/nodeClassRef/name",
        "/spec/template/spec/nodeClassRef/group",
    ];
    admission.try_all(&shared::node_class_ref(reference)).await;
    let grace = shared::duration("/spec/template/spec/terminationGracePeriod");
    admission
        .try_all(&[
            grace,
            shared::nillable_duration("/spec/template/spec/expireAfter"),
        ])
        .await;
    admission.try_all(&updates()).await;
    admission.try_all(&shared::conditions(false)).await;
    admission.assert_complete("nodepools.karpenter.sh");
    Ok(())
}

#[tokio::test]
async fn a_static_node_pool_stays_static_and_may_change_its_replicas() -> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let pool = manifest(include_str!("node_pool_static.yaml"));
    let mut admission = Admission::of(&client, pool).await?;
    let replicas = update("/spec/replicas").all_good([0, 4]);
    let gone = update("/spec/replicas").must_stay("cannot change between static and dynamic");
    admission.try_all(&[replicas, gone]).await;
    admission.assert_as_said();
    Ok(())
}
