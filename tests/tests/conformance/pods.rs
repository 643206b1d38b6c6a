//! Pods: defaults, admission, binding, graceful deletion, status.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cases;
use crate::world::{World, bind, from, names_field, pod, refused, run_pod};

cases![
    defaults_are_filled_in,
    quality_of_service_is_derived,
    priority_follows_its_class,
    a_pod_is_bound_once,
    a_bound_pod_waits_for_its_kubelet,
    grace_may_be_shortened,
    an_unbound_pod_goes_at_once,
    an_ended_pod_goes_at_once,
    status_is_written_only_through_its_subresource,
    the_specification_is_fixed,
    gated_pods_say_so,
];

async fn defaults_are_filled_in(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    let plain = json!({
        "metadata": { "name": "a" },
        "spec": { "nodeSelector": { "no": "node" }, "containers": [{ "name": "c", "image": "i" }] },
    });
    let created = api.create(&PostParams::default(), &from(plain)).await?;
    let value = serde_json::to_value(&created)?;
    let spec = &value["spec"];
    for (field, expected) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("serviceAccountName", json!("default")),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        ensure!(spec[field] == expected, "{field}: {}", spec[field]);
    }
    let container = &spec["containers"][0];
    ensure!(container["imagePullPolicy"] == "Always", "{container}");
    ensure!(container["terminationMessagePath"] == "/dev/termination-log");
    let tolerations: Vec<(&Value, &Value)> = spec["tolerations"]
        .as_array()
        .context("tolerations")?
        .iter()
        .map(|it| (&it["key"], &it["tolerationSeconds"]))
        .collect();
    let seconds = json!(300);
    let (one, two) = (
        json!("node.kubernetes.io/not-ready"),
        json!("node.kubernetes.io/unreachable"),
    );
    ensure!(
        tolerations == [(&one, &seconds), (&two, &seconds)],
        "{tolerations:?}"
    );
    ensure!(value["status"]["phase"] == "Pending" && value["status"]["qosClass"] == "BestEffort");
    ensure!(
        created.metadata.generation == Some(1),
        "{:?}",
        created.metadata.generation
    );
    Ok(())
}

async fn quality_of_service_is_derived(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    let both = json!({ "cpu": "1", "memory": "1Gi" });
    for (name, resources, expected) in [
        ("a", json!({ "limits": both }), "Guaranteed"),
        ("b", json!({ "requests": both }), "Burstable"),
        (
            "c",
            json!({ "requests": both, "limits": { "cpu": "2" } }),
            "Burstable",
        ),
        ("d", json!({}), "BestEffort"),
    ] {
        let mut value = serde_json::to_value(pod(name, json!({})))?;
        value["spec"]["containers"][0]["resources"] = resources;
        let created = api.create(&PostParams::default(), &from(value)).await?;
        let class = created.status.and_then(|status| status.qos_class);
        ensure!(class.as_deref() == Some(expected), "{name}: {class:?}");
    }
    let limited = api.get("a").await?.spec.context("spec")?;
    let resources = limited.containers[0]
        .resources
        .clone()
        .context("resources")?;
    ensure!(resources.requests == resources.limits, "{resources:?}");
    Ok(())
}

async fn priority_follows_its_class(world: World) -> anyhow::Result<()> {
    let classes: Api<PriorityClass> = Api::all(world.client.clone());
    let name = world.unique("high");
    let class: PriorityClass = from(json!({
        "metadata": { "name": name }, "value": 1_000, "preemptionPolicy": "Never",
    }));
    classes.create(&PostParams::default(), &class).await?;
    let api: Api<Pod> = world.api();
    let mut value = serde_json::to_value(pod("a", json!({})))?;
    value["spec"]["priorityClassName"] = json!(name);
    let spec = api
        .create(&PostParams::default(), &from(value.clone()))
        .await?
        .spec;
    let spec = spec.context("spec")?;
    ensure!(spec.priority == Some(1_000), "{:?}", spec.priority);
    ensure!(spec.preemption_policy.as_deref() == Some("Never"));
    value["metadata"]["name"] = json!("b");
    value["spec"]["priorityClassName"] = json!("absent");
    let status = refused(api.create(&PostParams::default(), &from(value)).await, 403)?;
    ensure!(
        status
            .message
            .contains("no PriorityClass with name absent was found"),
        "{}",
        status.message
    );
    classes.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

async fn a_pod_is_bound_once(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    api.create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    let answer = bind(&world, "a").await?;
    ensure!(answer["status"] == "Success", "{answer}");
    let bound = api.get("a").await?;
    ensure!(
        bound
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            == Some("nowhere")
    );
    let conditions = bound
        .status
        .and_then(|status| status.conditions)
        .context("conditions")?;
    let scheduled = conditions.iter().find(|it| it.type_ == "PodScheduled");
    ensure!(
        scheduled.is_some_and(|it| it.status == "True"),
        "{conditions:?}"
    );
    let status = refused(bind(&world, "a").await, 409)?;
    ensure!(
        status.message.contains("is already assigned to node"),
        "{}",
        status.message
    );
    refused(bind(&world, "absent").await, 404)?;
    Ok(())
}

async fn a_bound_pod_waits_for_its_kubelet(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    api.create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    run_pod(&world, "a").await?;
    let before = api.get("a").await?;
    let marked = api
        .delete("a", &DeleteParams::default())
        .await?
        .left()
        .context("the pod")?;
    ensure!(marked.metadata.deletion_grace_period_seconds == Some(30));
    let (at, since) = (
        marked.metadata.deletion_timestamp.clone(),
        before.metadata.creation_timestamp,
    );
    let (at, since) = (at.context("a time")?, since.context("a time")?);
    ensure!(
        at.0.as_second() >= since.0.as_second() + 30,
        "the grace is added to the time"
    );
    ensure!(api.get_opt("a").await?.is_some());
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    api.delete("a", &now).await?;
    ensure!(api.get_opt("a").await?.is_none());
    Ok(())
}

async fn grace_may_be_shortened(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    api.create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    run_pod(&world, "a").await?;
    let within = |seconds| DeleteParams {
        grace_period_seconds: Some(seconds),
        ..DeleteParams::default()
    };
    for (asked, expected) in [(60, 60), (20, 20)] {
        let marked = api
            .delete("a", &within(asked))
            .await?
            .left()
            .context("the pod")?;
        let grace = marked.metadata.deletion_grace_period_seconds;
        ensure!(grace == Some(expected), "{asked}: {grace:?}");
    }
    Ok(())
}

async fn an_unbound_pod_goes_at_once(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    let created = api
        .create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    let last = api
        .delete("a", &DeleteParams::default())
        .await?
        .left()
        .context("the pod")?;
    ensure!(last.uid() == created.uid());
    ensure!(api.get_opt("a").await?.is_none());
    Ok(())
}

async fn an_ended_pod_goes_at_once(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    api.create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    bind(&world, "a").await?;
    let status = json!({ "status": { "phase": "Succeeded" } });
    api.patch_status("a", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    api.delete("a", &DeleteParams::default()).await?;
    ensure!(api.get_opt("a").await?.is_none());
    Ok(())
}

async fn status_is_written_only_through_its_subresource(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    api.create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    let both = json!({
        "metadata": { "labels": { "x": "1" } }, "status": { "message": "hello" },
    });
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&both))
        .await?;
    ensure!(patched.labels().contains_key("x"));
    ensure!(patched.status.is_none_or(|status| status.message.is_none()));
    let both = json!({ "spec": { "activeDeadlineSeconds": 9 }, "status": { "message": "hello" } });
    let patched = api
        .patch_status("a", &PatchParams::default(), &Patch::Merge(&both))
        .await?;
    ensure!(
        patched
            .spec
            .is_some_and(|spec| spec.active_deadline_seconds.is_none())
    );
    ensure!(patched.status.and_then(|status| status.message).as_deref() == Some("hello"));
    Ok(())
}

async fn the_specification_is_fixed(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    api.create(&PostParams::default(), &pod("a", json!({})))
        .await?;
    let change = async |patch: Value| {
        api.patch(
            "a",
            &PatchParams::default(),
            &Patch::Strategic(&json!({ "spec": patch })),
        )
        .await
    };
    let status = refused(change(json!({ "hostname": "h" })).await, 422)?;
    names_field(&status, "spec", "FieldValueForbidden")?;
    refused(change(json!({ "nodeName": "n" })).await, 422)?;
    let image = change(json!({ "containers": [{ "name": "main", "image": "i:2" }] })).await?;
    ensure!(
        image
            .spec
            .is_some_and(|spec| spec.containers[0].image.as_deref() == Some("i:2"))
    );
    ensure!(
        image.metadata.generation == Some(2),
        "{:?}",
        image.metadata.generation
    );
    Ok(())
}

async fn gated_pods_say_so(world: World) -> anyhow::Result<()> {
    let api: Api<Pod> = world.api();
    let mut value = serde_json::to_value(pod("a", json!({})))?;
    value["spec"]["schedulingGates"] = json!([{ "name": "test.io/gate" }]);
    let created = api.create(&PostParams::default(), &from(value)).await?;
    let conditions = created
        .status
        .and_then(|status| status.conditions)
        .context("conditions")?;
    ensure!(
        conditions[0].reason.as_deref() == Some("SchedulingGated"),
        "{conditions:?}"
    );
    let status = refused(bind(&world, "a").await, 409)?;
    ensure!(
        status.message.contains("non-empty .spec.schedulingGates"),
        "{}",
        status.message
    );
    let patch = json!({ "spec": { "schedulingGates": [] } });
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    bind(&world, "a").await?;
    Ok(())
}
