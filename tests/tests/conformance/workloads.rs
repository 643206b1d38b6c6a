//! What the API server itself does for workloads: defaults, generation, scale.

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cases;
use crate::world::{World, from, names_field, refused};

cases![
    deployments_have_defaults,
    the_generation_counts_changes_of_the_specification,
    scale_is_a_subresource,
    selectors_are_fixed_and_match,
    daemon_sets_and_jobs_have_defaults,
    leases_are_objects_like_others,
    secrets_encode_text,
    events_have_two_forms,
];

fn deployment() -> Value {
    json!({
        "metadata": { "name": "a" },
        "spec": {
            "selector": { "matchLabels": { "app": "a" } },
            "template": { "metadata": { "labels": { "app": "a" } }, "spec": {
                "schedulerName": "nobody", "containers": [{ "name": "c", "image": "i" }],
            } },
        },
    })
}

async fn deployments_have_defaults(world: World) -> anyhow::Result<()> {
    let api: Api<Deployment> = world.api();
    let created = api
        .create(&PostParams::default(), &from(deployment()))
        .await?;
    let spec = serde_json::to_value(&created.spec)?;
    ensure!(
        spec["replicas"] == 1 && spec["revisionHistoryLimit"] == 10,
        "{spec}"
    );
    ensure!(spec["progressDeadlineSeconds"] == 600);
    let strategy = json!({
        "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" },
    });
    ensure!(spec["strategy"] == strategy, "{}", spec["strategy"]);
    ensure!(spec["template"]["spec"]["restartPolicy"] == "Always");
    ensure!(spec["template"]["spec"].get("serviceAccountName").is_none());
    Ok(())
}

async fn the_generation_counts_changes_of_the_specification(world: World) -> anyhow::Result<()> {
    let api: Api<Deployment> = world.api();
    let created = api
        .create(&PostParams::default(), &from(deployment()))
        .await?;
    ensure!(created.metadata.generation == Some(1));
    let patch = async |patch: Value| {
        let patched = api
            .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        anyhow::Ok(patched.metadata.generation)
    };
    let labelled = patch(json!({ "metadata": { "labels": { "x": "1" } } })).await?;
    ensure!(labelled == Some(1), "{labelled:?}");
    let scaled = patch(json!({ "spec": { "replicas": 2 } })).await?;
    ensure!(scaled == Some(2), "{scaled:?}");
    let status = json!({ "status": { "observedGeneration": 2 } });
    let written = api
        .patch_status("a", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    ensure!(written.metadata.generation == Some(2));
    Ok(())
}

async fn scale_is_a_subresource(world: World) -> anyhow::Result<()> {
    let api: Api<Deployment> = world.api();
    let created = api
        .create(&PostParams::default(), &from(deployment()))
        .await?;
    let scale = api.get_scale("a").await?;
    ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(1));
    ensure!(scale.metadata.uid == created.metadata.uid);
    let selector = scale.status.and_then(|status| status.selector);
    ensure!(selector.as_deref() == Some("app=a"), "{selector:?}");
    let patch = json!({ "spec": { "replicas": 3 } });
    let scaled = api
        .patch_scale("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    ensure!(scaled.spec.and_then(|spec| spec.replicas) == Some(3));
    let found = api.get("a").await?;
    ensure!(found.spec.and_then(|spec| spec.replicas) == Some(3));
    ensure!(found.metadata.generation == Some(2));
    let patch = json!({ "spec": { "replicas": -1 } });
    let refusal = api
        .patch_scale("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    names_field(
        &*refused(refusal, 422)?,
        "spec.replicas",
        "FieldValueInvalid",
    )
}

async fn selectors_are_fixed_and_match(world: World) -> anyhow::Result<()> {
    let api: Api<Deployment> = world.api();
    let mut other = deployment();
    other["spec"]["selector"]["matchLabels"] = json!({ "app": "b" });
    let created = api.create(&PostParams::default(), &from(other)).await;
    names_field(
        &*refused(created, 422)?,
        "spec.template.metadata.labels",
        "FieldValueInvalid",
    )?;
    api.create(&PostParams::default(), &from(deployment()))
        .await?;
    let patch = json!({ "spec": {
        "selector": { "matchLabels": { "more": "1" } },
        "template": { "metadata": { "labels": { "more": "1" } } },
    } });
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    names_field(
        &*refused(patched, 422)?,
        "spec.selector",
        "FieldValueInvalid",
    )
}

async fn daemon_sets_and_jobs_have_defaults(world: World) -> anyhow::Result<()> {
    let sets: Api<DaemonSet> = world.api();
    let created = sets
        .create(&PostParams::default(), &from(deployment()))
        .await?;
    let spec = serde_json::to_value(&created.spec)?;
    let strategy = json!({
        "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 },
    });
    ensure!(
        spec["updateStrategy"] == strategy,
        "{}",
        spec["updateStrategy"]
    );
    let jobs: Api<Job> = world.api();
    let job = json!({
        "metadata": { "name": "j" },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }],
        } } },
    });
    let created = jobs
        .create(&PostParams::default(), &from(job.clone()))
        .await?;
    let uid = created.uid().context("a uid")?;
    let spec = created.spec.context("spec")?;
    ensure!(
        (spec.completions, spec.parallelism, spec.backoff_limit) == (Some(1), Some(1), Some(6))
    );
    let selector = spec
        .selector
        .and_then(|it| it.match_labels)
        .context("a selector")?;
    ensure!(
        selector["batch.kubernetes.io/controller-uid"] == uid,
        "{selector:?}"
    );
    let mut wrong = job;
    wrong["metadata"]["name"] = json!("k");
    wrong["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    let status = refused(jobs.create(&PostParams::default(), &from(wrong)).await, 422)?;
    names_field(
        &status,
        "spec.template.spec.restartPolicy",
        "FieldValueRequired",
    )
}

async fn leases_are_objects_like_others(world: World) -> anyhow::Result<()> {
    let api: Api<Lease> = world.api();
    let lease: Lease = from(json!({
        "metadata": { "name": "l" }, "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15 },
    }));
    let mut held = api.create(&PostParams::default(), &lease).await?;
    let stale = held.clone();
    held.spec.get_or_insert_default().holder_identity = Some("b".to_owned());
    api.replace("l", &PostParams::default(), &held).await?;
    refused(api.replace("l", &PostParams::default(), &stale).await, 409)?;
    Ok(())
}

async fn secrets_encode_text(world: World) -> anyhow::Result<()> {
    let api: Api<Secret> = world.api();
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "k": "hello" } });
    let created = api.create(&PostParams::default(), &from(secret)).await?;
    ensure!(created.type_.as_deref() == Some("Opaque") && created.string_data.is_none());
    ensure!(created.data.is_some_and(|data| data["k"].0 == b"hello"));
    Ok(())
}

async fn events_have_two_forms(world: World) -> anyhow::Result<()> {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "test.io/c",
        "reportingInstance": "one", "action": "Testing", "reason": "Tested", "type": "Normal",
        "note": "it works",
        "regarding": { "kind": "Pod", "name": "p", "namespace": world.namespace },
    });
    let path = format!(
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        world.namespace
    );
    let created = world
        .request("POST", &path, "application/json", &event)
        .await?;
    ensure!(
        created["regarding"]["name"] == "p" && created["note"] == "it works",
        "{created}"
    );
    let core: Api<Event> = world.api();
    let selected = ListParams::default().fields("involvedObject.name=p,involvedObject.kind=Pod");
    let found = core.list(&selected).await?;
    ensure!(found.items.len() == 1, "{} events", found.items.len());
    let found = &found.items[0];
    ensure!(found.message.as_deref() == Some("it works"), "{found:?}");
    ensure!(
        found.reporting_component.as_deref() == Some("test.io/c"),
        "{found:?}"
    );
    Ok(())
}
