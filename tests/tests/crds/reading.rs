//! Reading what is stored through our types, and writing it back.

use std::fmt::Debug;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use millwright_api::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{api_for, client, manifest, object, renamed};

/// Applies a manifest with its status as a user and a controller would; gives what is stored.
async fn applied(client: &Client, manifest: &Value) -> anyhow::Result<DynamicObject> {
    let api = api_for(client, manifest);
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    let mut desired = manifest.clone();
    desired.as_object_mut().expect("an object").remove("status");
    api.patch(name, &PatchParams::apply("user"), &Patch::Apply(&desired))
        .await?;
    let status = json!({
        "apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "status": manifest["status"],
    });
    Ok(api
        .patch_status(
            name,
            &PatchParams::apply("controller"),
            &Patch::Apply(&status),
        )
        .await?)
}

/// Whatever the manifest says is stored as it says, is read by `K` and written again without any
/// change that the API server would notice.
async fn survives<K>(client: &Client, text: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Debug,
{
    let manifest = renamed(manifest(text));
    let stored = applied(client, &manifest).await?;
    let raw = serde_json::to_value(&stored)?;
    assert_eq!(
        raw["spec"], manifest["spec"],
        "{}: the API server changed the spec",
        manifest["kind"]
    );
    assert_eq!(
        raw["status"], manifest["status"],
        "{}: the status",
        manifest["kind"]
    );

    let typed: K = serde_json::from_value(raw.clone())?;
    let written = serde_json::to_value(&typed)?;
    assert_eq!(
        written, raw,
        "{}: our type changed the object",
        manifest["kind"]
    );

    let api = api_for(client, &manifest);
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    let version = stored.metadata.resource_version.clone();
    let again = api
        .replace(name, &PostParams::default(), &object(&written))
        .await?;
    assert_eq!(
        again.metadata.resource_version, version,
        "writing it back was a change"
    );
    let again = api
        .replace_status(name, &PostParams::default(), &object(&written))
        .await?;
    assert_eq!(
        again.metadata.resource_version, version,
        "writing the status back was a change"
    );
    Ok(())
}

#[tokio::test]
async fn manifests_with_every_field_are_stored_read_and_written_without_loss() -> anyhow::Result<()>
{
    let Some(client) = client().await? else {
        return Ok(());
    };
    survives::<NodePool>(&client, include_str!("node_pool.yaml")).await?;
    survives::<NodePool>(&client, include_str!("node_pool_static.yaml")).await?;
    survives::<NodeClaim>(&client, include_str!("node_claim.yaml")).await?;
    survives::<NodeOverlay>(&client, include_str!("node_overlay.yaml")).await?;
    survives::<CapacityBuffer>(&client, include_str!("capacity_buffer.yaml")).await?;
    survives::<Ec2NodeClass>(&client, include_str!("ec2_node_class.yaml")).await
}

#[tokio::test]
async fn unknown_fields_are_pruned_except_in_the_kubelet_s_settings() -> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let mut class = renamed(manifest(include_str!("ec2_node_class.yaml")));
    let expected = class["spec"].clone();
    class["spec"]["unknown"] = json!(7);
    class["spec"]["blockDeviceMappings"][0]["unknown"] = json!({"a": 1});
    let api = api_for(&client, &class);
    let stored = api.create(&PostParams::default(), &object(&class)).await?;
    assert_eq!(stored.data["spec"], expected);
    assert_eq!(
        stored.data["spec"]["kubelet"]["featureGates"]["Anything"],
        true
    );
    Ok(())
}

/// What the API server makes of a manifest, read; and the manifest, read directly.
async fn both_ways<K: DeserializeOwned>(
    client: &Client,
    manifest: &Value,
) -> anyhow::Result<(K, K)> {
    let dry = PostParams {
        dry_run: true,
        field_manager: None,
    };
    let stored = api_for(client, manifest)
        .create(&dry, &object(manifest))
        .await?;
    let mut stored = serde_json::to_value(stored)?;
    stored["metadata"] = manifest["metadata"].clone();
    Ok((
        serde_json::from_value(stored)?,
        serde_json::from_value(manifest.clone())?,
    ))
}

#[tokio::test]
async fn the_api_server_fills_in_the_defaults_and_reading_a_file_gives_the_same()
-> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"});
    let core = |kind: &str, spec: Value| {
        renamed(
            json!({"apiVersion": "karpenter.sh/v1", "kind": kind, "metadata": {}, "spec": spec}),
        )
    };
    let spec = json!({"requirements": [], "nodeClassRef": reference});
    let (stored, read) = both_ways::<NodePool>(
        &client,
        &core("NodePool", json!({"template": {"spec": spec}})),
    )
    .await?;
    assert_eq!(stored, read);
    let spec_json = serde_json::to_value(&stored.spec)?;
    assert_eq!(spec_json["template"]["spec"]["expireAfter"], "720h");
    assert_eq!(
        spec_json["disruption"],
        json!({
            "consolidateAfter": "0s",
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "budgets": [{"nodes": "10%"}],
        })
    );

    let (stored, read) = both_ways::<NodeClaim>(&client, &core("NodeClaim", spec)).await?;
    assert_eq!(stored, read);
    assert_eq!(serde_json::to_value(&stored.spec)?["expireAfter"], "720h");

    let buffer = renamed(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"namespace": "default"}, "spec": {},
    }));
    let (stored, read) = both_ways::<CapacityBuffer>(&client, &buffer).await?;
    assert_eq!(stored, read);
    assert_eq!(
        stored.spec.provisioning_strategy,
        "buffer.x-k8s.io/active-capacity"
    );

    let class = renamed(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {},
        "spec": {
            "role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
        },
    }));
    let (stored, read) = both_ways::<Ec2NodeClass>(&client, &class).await?;
    assert_eq!(stored, read);
    assert_eq!(
        serde_json::to_value(&stored.spec)?["metadataOptions"],
        json!({
            "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1, "httpTokens": "required",
        })
    );
    Ok(())
}

#[tokio::test]
async fn quantities_spelled_as_numbers_are_stored_as_numbers_and_read_as_text() -> anyhow::Result<()>
{
    let Some(client) = client().await? else {
        return Ok(());
    };
    let mut pool = renamed(manifest(include_str!("node_pool.yaml")));
    pool["spec"]["limits"] = json!({"cpu": 1000, "memory": "1000Gi"});
    let dry = PostParams {
        dry_run: true,
        field_manager: None,
    };
    let stored = api_for(&client, &pool).create(&dry, &object(&pool)).await?;
    assert_eq!(
        stored.data["spec"]["limits"],
        json!({"cpu": 1000, "memory": "1000Gi"})
    );
    let read: NodePool = serde_json::from_value(serde_json::to_value(stored)?)?;
    assert_eq!(read.spec.limits["cpu"].0, "1000");
    Ok(())
}

#[tokio::test]
async fn writers_of_different_conditions_do_not_conflict_and_lists_have_one_owner()
-> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let pool = renamed(manifest(include_str!("node_pool.yaml")));
    applied(&client, &pool).await?;
    let api: Api<DynamicObject> = api_for(&client, &pool);
    let name = pool["metadata"]["name"].as_str().unwrap_or_default();
    let of = |part: &str, value: Value| json!({"apiVersion": pool["apiVersion"], "kind": pool["kind"], part: value});
    let other = json!({"conditions": [{
        "type": "NodeClassReady", "status": "True", "reason": "NodeClassReady", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]});
    let merged = api
        .patch_status(
            name,
            &PatchParams::apply("other"),
            &Patch::Apply(&of("status", other)),
        )
        .await?;
    assert_eq!(
        merged.data["status"]["conditions"].as_array().map(Vec::len),
        Some(3)
    );

    let budgets = json!({"disruption": {"consolidateAfter": "90s", "budgets": [{"nodes": "7"}]}});
    let conflict = api
        .patch(
            name,
            &PatchParams::apply("other"),
            &Patch::Apply(&of("spec", budgets)),
        )
        .await;
    assert!(
        matches!(&conflict, Err(kube::Error::Api(status)) if status.code == 409),
        "{conflict:?}"
    );
    Ok(())
}
