//! A cluster with our definitions, the manifests of the tests, and the table of admission.

mod coverage;
pub(crate) mod shared;
mod table;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use millwright_tests::{ControlPlane, ControlPlaneOptions, eventually};
use serde_json::Value;
use tokio::sync::OnceCell;

pub(crate) use table::{Admission, Row, at, requirement, status, update};

const BOUND: Duration = Duration::from_secs(60);

/// The control plane of this binary, with our definitions installed.
struct Cluster {
    plane: ControlPlane,
}

/// A client of the cluster; `None` after printing why the test is skipped.
pub(crate) async fn client() -> anyhow::Result<Option<Client>> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = CLUSTER.get_or_try_init(start).await?;
    match cluster {
        Some(cluster) => Ok(Some(cluster.plane.admin().await?)),
        None => Ok(None),
    }
}

async fn start() -> anyhow::Result<Option<Cluster>> {
    // Nothing of ours is reconciled here, so the API server is enough.
    let options = ControlPlaneOptions {
        scheduler: false,
        controller_manager: false,
        ..ControlPlaneOptions::default()
    };
    let Some(plane) = ControlPlane::start_or_skip(options).await else {
        return Ok(None);
    };
    install(&plane.admin().await?).await?;
    Ok(Some(Cluster { plane }))
}

/// Installs the chart's definitions and waits until every kind is served.
async fn install(client: &Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in definitions_of_the_chart()? {
        let name = crd.name_any();
        definitions
            .patch(&name, &PatchParams::apply("crds"), &Patch::Apply(&crd))
            .await
            .with_context(|| format!("install {name}"))?;
        let version = crd.spec.versions.first().context("a version")?.name.clone();
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        eventually(&format!("{name} served"), BOUND, async || {
            Ok(api.list(&ListParams::default()).await?)
        })
        .await;
    }
    Ok(())
}

/// The definitions as the chart's files spell them.
pub(crate) fn definitions_of_the_chart() -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/crds");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .with_context(|| format!("read {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut crds = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        crds.push(serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?);
    }
    Ok(crds)
}

/// A manifest of `tests/crds`, as JSON.
pub(crate) fn manifest(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("a manifest of the tests is YAML")
}

/// The manifest under a name of its own: all tests share one cluster.
pub(crate) fn renamed(mut manifest: Value) -> Value {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    manifest["metadata"]["name"] = name.into();
    manifest
}

/// The interface for a manifest's kind; namespaced kinds go to the namespace `default`.
pub(crate) fn api_for(client: &Client, manifest: &Value) -> Api<DynamicObject> {
    let text = |pointer: &str| {
        manifest
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or_default();
    let kind = text("/kind");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if kind == "CapacityBuffer" {
        Api::namespaced_with(client.clone(), "default", &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

/// The object that the manifest describes.
pub(crate) fn object(manifest: &Value) -> DynamicObject {
    serde_json::from_value(manifest.clone()).expect("a manifest is an object")
}
