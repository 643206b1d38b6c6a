//! Objects: creation, versions, conflicts, deletion, finalizers.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::cases;
use crate::world::{SOON, World, config_map, from, names_field, refused};

cases![
    create_read_update_delete,
    system_metadata_is_set,
    an_old_version_is_refused,
    an_update_without_version_is_accepted,
    a_write_that_changes_nothing_keeps_the_version,
    generated_names,
    a_second_object_of_the_same_name,
    absent_objects,
    dry_runs_change_nothing,
    finalizers_hold_an_object,
    no_finalizer_is_added_during_deletion,
    deletion_has_preconditions,
    collections_are_deleted_by_selector,
    a_namespace_takes_its_content_along,
    absent_namespaces_take_nothing,
    node_status_is_accepted_on_creation,
];

async fn create_read_update_delete(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let created = api
        .create(
            &PostParams::default(),
            &config_map("a", json!({ "k": "1" })),
        )
        .await?;
    let mut read = api.get("a").await?;
    ensure!(read == created, "{read:?} is not {created:?}");
    read.data = Some([("k".to_owned(), "2".to_owned())].into());
    let updated = api.replace("a", &PostParams::default(), &read).await?;
    ensure!(updated.data == read.data);
    ensure!(updated.resource_version() != created.resource_version());
    ensure!(updated.uid() == created.uid());
    let deleted = api.delete("a", &DeleteParams::default()).await?;
    let status = deleted.right().context("a Status for a ConfigMap")?;
    ensure!(status.is_success(), "{status:?}");
    let details = status.details.context("details")?;
    ensure!(
        details.name == "a" && details.kind == "configmaps",
        "{details:?}"
    );
    ensure!(Some(details.uid) == created.uid());
    ensure!(api.get_opt("a").await?.is_none());
    Ok(())
}

async fn system_metadata_is_set(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map: ConfigMap = from(json!({
        "metadata": { "name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z" },
    }));
    let created = api.create(&PostParams::default(), &map).await?;
    let meta = &created.metadata;
    ensure!(
        meta.uid.as_ref().is_some_and(|uid| uid.len() == 36),
        "{:?}",
        meta.uid
    );
    ensure!(meta.namespace.as_ref() == Some(&world.namespace));
    ensure!(
        meta.resource_version
            .as_ref()
            .is_some_and(|it| it.parse::<u64>().is_ok())
    );
    ensure!(
        meta.creation_timestamp
            .as_ref()
            .is_some_and(|it| it.0.as_second() > 1_000_000_000)
    );
    ensure!(meta.generation.is_none(), "{:?}", meta.generation);
    Ok(())
}

async fn an_old_version_is_refused(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let first = api
        .create(
            &PostParams::default(),
            &config_map("a", json!({ "k": "1" })),
        )
        .await?;
    let mut second = first.clone();
    second.data = Some([("k".to_owned(), "2".to_owned())].into());
    api.replace("a", &PostParams::default(), &second).await?;
    let status = refused(api.replace("a", &PostParams::default(), &first).await, 409)?;
    ensure!(status.reason == "Conflict", "{status:?}");
    ensure!(
        status.message.contains("the object has been modified"),
        "{status:?}"
    );
    let patch = json!({ "metadata": { "resourceVersion": first.resource_version() }, "data": { "k": "3" } });
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    ensure!(refused(patched, 409)?.reason == "Conflict");
    Ok(())
}

async fn an_update_without_version_is_accepted(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map = config_map("a", json!({ "k": "1" }));
    api.create(&PostParams::default(), &map).await?;
    let map = config_map("a", json!({ "k": "2" }));
    let updated = api.replace("a", &PostParams::default(), &map).await?;
    ensure!(updated.data == map.data);
    Ok(())
}

async fn a_write_that_changes_nothing_keeps_the_version(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let created = api
        .create(
            &PostParams::default(),
            &config_map("a", json!({ "k": "1" })),
        )
        .await?;
    let same = api.replace("a", &PostParams::default(), &created).await?;
    ensure!(same.resource_version() == created.resource_version());
    let patch = json!({ "data": { "k": "1" } });
    let same = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    ensure!(same.resource_version() == created.resource_version());
    Ok(())
}

async fn generated_names(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map: ConfigMap = from(json!({ "metadata": { "generateName": "web-" } }));
    let one = api.create(&PostParams::default(), &map).await?.name_any();
    let two = api.create(&PostParams::default(), &map).await?.name_any();
    ensure!(one != two);
    for name in [one, two] {
        ensure!(name.starts_with("web-") && name.len() == 9, "{name}");
    }
    Ok(())
}

async fn a_second_object_of_the_same_name(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map = config_map("a", json!({}));
    api.create(&PostParams::default(), &map).await?;
    let status = refused(api.create(&PostParams::default(), &map).await, 409)?;
    ensure!(status.reason == "AlreadyExists");
    ensure!(
        status.message == "configmaps \"a\" already exists",
        "{}",
        status.message
    );
    let details = status.details.context("details")?;
    ensure!((details.name.as_str(), details.kind.as_str()) == ("a", "configmaps"));
    Ok(())
}

async fn absent_objects(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let status = refused(api.get("a").await, 404)?;
    ensure!(status.reason == "NotFound");
    ensure!(
        status.message == "configmaps \"a\" not found",
        "{}",
        status.message
    );
    refused(api.delete("a", &DeleteParams::default()).await, 404)?;
    let map = config_map("a", json!({}));
    refused(api.replace("a", &PostParams::default(), &map).await, 404)?;
    let patch = json!({ "data": { "k": "1" } });
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    refused(patched, 404)?;
    Ok(())
}

async fn dry_runs_change_nothing(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let shown = api
        .create(&dry, &config_map("a", json!({ "k": "1" })))
        .await?;
    ensure!(shown.uid().is_some());
    ensure!(api.get_opt("a").await?.is_none());
    let created = api
        .create(
            &PostParams::default(),
            &config_map("a", json!({ "k": "1" })),
        )
        .await?;
    refused(api.create(&dry, &config_map("a", json!({}))).await, 409)?;
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = json!({ "data": { "k": "2" } });
    let shown = api.patch("a", &params, &Patch::Merge(&patch)).await?;
    ensure!(shown.data.is_some_and(|data| data["k"] == "2"));
    let delete = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    api.delete("a", &delete).await?;
    ensure!(api.get("a").await? == created);
    Ok(())
}

async fn finalizers_hold_an_object(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map: ConfigMap =
        from(json!({ "metadata": { "name": "a", "finalizers": ["test.io/hold"] } }));
    api.create(&PostParams::default(), &map).await?;
    let deleted = api.delete("a", &DeleteParams::default()).await?;
    let marked = deleted.left().context("the object, which is still there")?;
    ensure!(marked.metadata.deletion_timestamp.is_some());
    ensure!(marked.metadata.deletion_grace_period_seconds == Some(0));
    let again = api.delete("a", &DeleteParams::default()).await?;
    let again = again.left().context("the object, which is still there")?;
    ensure!(again.metadata.deletion_timestamp == marked.metadata.deletion_timestamp);
    ensure!(again.resource_version() == marked.resource_version());
    let patch = json!({ "metadata": { "finalizers": null } });
    let last = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    ensure!(last.metadata.finalizers.is_none());
    ensure!(api.get_opt("a").await?.is_none());
    Ok(())
}

async fn no_finalizer_is_added_during_deletion(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let map: ConfigMap =
        from(json!({ "metadata": { "name": "a", "finalizers": ["test.io/hold"] } }));
    api.create(&PostParams::default(), &map).await?;
    api.delete("a", &DeleteParams::default()).await?;
    let patch = json!({ "metadata": { "finalizers": ["test.io/hold", "test.io/more"] } });
    let patched = api
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    let status = refused(patched, 422)?;
    names_field(&status, "metadata.finalizers", "FieldValueForbidden")
}

async fn deletion_has_preconditions(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    let created = api
        .create(&PostParams::default(), &config_map("a", json!({})))
        .await?;
    let only = |uid: Option<String>, resource_version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version,
        }),
        ..DeleteParams::default()
    };
    let other = only(
        Some("00000000-0000-0000-0000-000000000000".to_owned()),
        None,
    );
    let status = refused(api.delete("a", &other).await, 409)?;
    ensure!(status.reason == "Conflict", "{status:?}");
    ensure!(
        status.message.contains("does not match the UID in record"),
        "{}",
        status.message
    );
    let other = only(None, Some("1".to_owned()));
    refused(api.delete("a", &other).await, 409)?;
    let own = only(created.uid(), created.resource_version());
    api.delete("a", &own).await?;
    ensure!(api.get_opt("a").await?.is_none());
    Ok(())
}

async fn collections_are_deleted_by_selector(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = world.api();
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let map: ConfigMap =
            from(json!({ "metadata": { "name": name, "labels": { "tier": tier } } }));
        api.create(&PostParams::default(), &map).await?;
    }
    let selected = ListParams::default().labels("tier=x");
    api.delete_collection(&DeleteParams::default(), &selected)
        .await?;
    let left = api.list(&ListParams::default().labels("tier")).await?;
    let names: Vec<String> = left.iter().map(|map| map.name_any()).collect();
    ensure!(names == ["c"], "{names:?}");
    Ok(())
}

async fn a_namespace_takes_its_content_along(world: World) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let api: Api<ConfigMap> = world.api();
    let map: ConfigMap =
        from(json!({ "metadata": { "name": "a", "finalizers": ["test.io/hold"] } }));
    api.create(&PostParams::default(), &map).await?;
    let name = world.namespace.as_str();
    namespaces.delete(name, &DeleteParams::default()).await?;
    let phase = namespaces
        .get(name)
        .await?
        .status
        .and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Terminating"), "{phase:?}");
    let more = api
        .create(&PostParams::default(), &config_map("b", json!({})))
        .await;
    ensure!(refused(more, 403)?.reason == "Forbidden");
    millwright_tests::eventually("the content to be deleted", SOON, || async {
        let map = api.get("a").await?;
        ensure!(map.metadata.deletion_timestamp.is_some());
        Ok(())
    })
    .await;
    let patch = json!({ "metadata": { "finalizers": null } });
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    millwright_tests::eventually("the namespace to go", SOON, || async {
        ensure!(namespaces.get_opt(name).await?.is_none());
        Ok(())
    })
    .await;
    Ok(())
}

async fn absent_namespaces_take_nothing(world: World) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(world.client.clone(), "absent");
    let created = api
        .create(&PostParams::default(), &config_map("a", json!({})))
        .await;
    let status = refused(created, 404)?;
    ensure!(
        status.message == "namespaces \"absent\" not found",
        "{}",
        status.message
    );
    ensure!(api.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

async fn node_status_is_accepted_on_creation(world: World) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let name = world.unique("node");
    let node: Node = from(json!({
        "metadata": { "name": name },
        "spec": { "providerID": "test:///1" },
        "status": {
            "capacity": { "cpu": "4", "memory": "8Gi" },
            "conditions": [{ "type": "Ready", "status": "False", "reason": "Starting" }],
        },
    }));
    let created = nodes.create(&PostParams::default(), &node).await?;
    ensure!(created.metadata.generation.is_none());
    let status = created.status.context("status")?;
    ensure!(
        status
            .capacity
            .is_some_and(|capacity| capacity["cpu"].0 == "4")
    );
    let patch = json!({ "spec": { "providerID": "test:///2" } });
    let patched = nodes
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    let status = refused(patched, 422)?;
    names_field(&status, "spec.providerID", "FieldValueForbidden")?;
    nodes.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}
