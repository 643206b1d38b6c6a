//! What the API server makes of the definitions besides admission: names, columns, subresources.

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use millwright_api::NodePool;
use serde_json::{Value, json};

use crate::support::{api_for, client, manifest, object, renamed};

/// Group version, plural, kind, short names, category, whether namespaced.
type Names = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
    bool,
);

const NAMES: [Names; 5] = [
    (
        "karpenter.sh/v1",
        "nodepools",
        "NodePool",
        &[],
        "karpenter",
        false,
    ),
    (
        "karpenter.sh/v1",
        "nodeclaims",
        "NodeClaim",
        &[],
        "karpenter",
        false,
    ),
    (
        "karpenter.sh/v1alpha1",
        "nodeoverlays",
        "NodeOverlay",
        &["overlays"],
        "karpenter",
        false,
    ),
    (
        "karpenter.k8s.aws/v1",
        "ec2nodeclasses",
        "EC2NodeClass",
        &["ec2nc", "ec2ncs"],
        "karpenter",
        false,
    ),
    (
        "autoscaling.x-k8s.io/v1beta1",
        "capacitybuffers",
        "CapacityBuffer",
        &["cb"],
        "autoscaling",
        true,
    ),
];

#[tokio::test]
async fn the_kinds_have_the_names_that_people_type() -> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    for (version, plural, kind, short, category, is_namespaced) in NAMES {
        let resources = client.list_api_group_resources(version).await?.resources;
        let find = |name: &str| {
            resources
                .iter()
                .find(|resource: &&APIResource| resource.name == name)
        };
        let resource = find(plural).unwrap_or_else(|| panic!("{plural} in {version}"));
        assert_eq!(resource.kind, kind);
        assert_eq!(resource.singular_name, kind.to_lowercase());
        assert_eq!(
            resource.short_names.as_deref().unwrap_or_default(),
            short,
            "{kind}"
        );
        assert_eq!(
            resource.categories.as_deref().unwrap_or_default(),
            [category],
            "{kind}"
        );
        assert_eq!(resource.namespaced, is_namespaced, "{kind}");
        assert!(
            find(&format!("{plural}/status")).is_some(),
            "{kind} has a status"
        );
        let scales = find(&format!("{plural}/scale")).is_some();
        assert_eq!(scales, kind == "NodePool", "{kind} and its scale");
    }
    Ok(())
}

/// The table that kubectl shows for the manifest's object: per column its name, type, priority
/// and the object's cell; without the column Name that every table begins with.
async fn table(client: &Client, text: &str) -> anyhow::Result<Vec<(String, String, i64, Value)>> {
    let manifest = renamed(manifest(text));
    let api = api_for(client, &manifest);
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    api.create(&PostParams::default(), &object(&manifest))
        .await?;
    let status = json!({"status": manifest["status"]});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let request = Request::get(format!("{}/{name}", api.resource_url()))
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = client.request(request).await?;
    let cells = table["rows"][0]["cells"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let columns = table["columnDefinitions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(columns
        .iter()
        .zip(cells)
        .skip(1)
        .map(|(column, cell)| {
            let priority = column["priority"].as_i64().unwrap_or_default();
            (text(&column["name"]), text(&column["type"]), priority, cell)
        })
        .collect())
}

/// Compares names, types, priorities and cells; the age varies.
fn assert_columns(table: &[(String, String, i64, Value)], expected: &[(&str, &str, i64, Value)]) {
    let seen: Vec<_> = table
        .iter()
        .map(|(name, kind, priority, cell)| {
            let cell = if name == "Age" {
                json!("age")
            } else {
                cell.clone()
            };
            (name.as_str(), kind.as_str(), *priority, cell)
        })
        .collect();
    assert_eq!(seen, expected);
}

fn age() -> (&'static str, &'static str, i64, Value) {
    ("Age", "date", 0, json!("age"))
}

fn ready(status: &str) -> (&'static str, &'static str, i64, Value) {
    ("Ready", "string", 0, json!(status))
}

#[tokio::test]
async fn kubectl_shows_the_columns_of_pools_and_claims() -> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    assert_columns(
        &table(&client, include_str!("node_pool.yaml")).await?,
        &[
            ("NodeClass", "string", 0, json!("default")),
            ("Nodes", "string", 0, json!("2")),
            ready("True"),
            age(),
            ("Weight", "integer", 1, json!(10)),
            ("CPU", "string", 1, json!("32")),
            ("Memory", "string", 1, json!("128Gi")),
        ],
    );
    assert_columns(
        &table(&client, include_str!("node_claim.yaml")).await?,
        &[
            ("Type", "string", 0, json!("m5.large")),
            ("Capacity", "string", 0, json!("spot")),
            ("Zone", "string", 0, json!("us-east-1a")),
            ("Node", "string", 0, json!("ip-10-0-0-1.ec2.internal")),
            ready("False"),
            age(),
            ("ImageID", "string", 1, json!("ami-0123456789abcdef0")),
            (
                "ID",
                "string",
                1,
                json!("aws:///us-east-1a/i-0123456789abcdef0"),
            ),
            ("NodePool", "string", 1, json!("general")),
            ("NodeClass", "string", 1, json!("default")),
            ("Drifted", "string", 1, json!("True")),
        ],
    );
    Ok(())
}

#[tokio::test]
async fn kubectl_shows_the_columns_of_overlays_classes_and_buffers() -> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    assert_columns(
        &table(&client, include_str!("node_overlay.yaml")).await?,
        &[
            ready("True"),
            age(),
            ("Weight", "integer", 1, json!(10_000)),
        ],
    );
    assert_columns(
        &table(&client, include_str!("ec2_node_class.yaml")).await?,
        &[
            ready("True"),
            age(),
            ("Role", "string", 1, json!("NodeRole-example")),
        ],
    );
    assert_columns(
        &table(&client, include_str!("capacity_buffer.yaml")).await?,
        &[
            (
                "Strategy",
                "string",
                0,
                json!("buffer.x-k8s.io/active-capacity"),
            ),
            ("PodTemplate", "string", 0, json!("unit")),
            ("Replicas", "integer", 0, json!(3)),
            ("ConditionsType", "string", 0, json!("ReadyForProvisioning")),
            ("ConditionsStatus", "string", 0, json!("True")),
            ("ConditionsReason", "string", 0, json!("Ready")),
            age(),
        ],
    );
    Ok(())
}

#[tokio::test]
async fn a_static_node_pool_can_be_scaled_and_a_dynamic_one_can_not() -> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let fixed = renamed(manifest(include_str!("node_pool_static.yaml")));
    let name = fixed["metadata"]["name"].as_str().unwrap_or_default();
    let pools: Api<NodePool> = Api::all(client.clone());
    pools
        .create(
            &PostParams::default(),
            &serde_json::from_value(fixed.clone())?,
        )
        .await?;
    let status = json!({"status": {"nodes": 2}});
    pools
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let scale = pools.get_scale(name).await?;
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(3));
    assert_eq!(scale.status.map(|status| status.replicas), Some(2));

    let five = json!({"spec": {"replicas": 5}});
    pools
        .patch_scale(name, &PatchParams::default(), &Patch::Merge(&five))
        .await?;
    assert_eq!(pools.get(name).await?.spec.replicas, Some(5));

    let dynamic = renamed(manifest(include_str!("node_pool.yaml")));
    let name = dynamic["metadata"]["name"].as_str().unwrap_or_default();
    pools
        .create(
            &PostParams::default(),
            &serde_json::from_value(dynamic.clone())?,
        )
        .await?;
    let refused = pools
        .patch_scale(name, &PatchParams::default(), &Patch::Merge(&five))
        .await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(pools.get(name).await?.spec.replicas, None);
    Ok(())
}

#[tokio::test]
async fn older_versions_and_kinds_of_the_past_are_refused() -> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    for (version, kind) in [
        ("karpenter.sh/v1beta1", "NodePool"),
        ("karpenter.sh/v1beta1", "NodeClaim"),
        ("karpenter.sh/v1alpha5", "Provisioner"),
        ("karpenter.sh/v1", "Machine"),
        ("karpenter.sh/v1", "NodeOverlay"),
        ("karpenter.k8s.aws/v1beta1", "EC2NodeClass"),
        ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
    ] {
        let old = renamed(json!({
            "apiVersion": version, "kind": kind, "metadata": {}, "spec": {},
        }));
        let answer = api_for(&client, &old)
            .create(&PostParams::default(), &object(&old))
            .await;
        assert!(
            matches!(&answer, Err(Error::Api(status)) if status.code == 404),
            "{version} {kind}: {answer:?}"
        );
    }
    Ok(())
}
