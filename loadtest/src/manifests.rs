//! Applying manifests, as `kubectl apply --server-side` does.

use anyhow::Context as _;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

/// The namespace of everything that has one.
pub(crate) const NAMESPACE: &str = "default";

/// A manifest, read.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    file: &'static str,
    value: Value,
}

impl Manifest {
    /// Reads one YAML document; `file` is its name in messages.
    pub(crate) fn read(file: &'static str, text: &str) -> anyhow::Result<Self> {
        let value = serde_saphyr::from_str(text).with_context(|| format!("read {file}"))?;
        Ok(Self { file, value })
    }

    /// Replaces the value at a JSON pointer, which must be there.
    pub(crate) fn set(&mut self, pointer: &str, value: Value) -> anyhow::Result<()> {
        let place = self.value.pointer_mut(pointer);
        *place.with_context(|| format!("{} has no {pointer}", self.file))? = value;
        Ok(())
    }

    fn name(&self) -> &str {
        let name = self.value.pointer("/metadata/name").and_then(Value::as_str);
        name.unwrap_or_default()
    }

    fn api(&self, client: &Client) -> anyhow::Result<Api<DynamicObject>> {
        let field = |key: &str| {
            let text = self.value.get(key).and_then(Value::as_str);
            text.with_context(|| format!("{} has no {key}", self.file))
        };
        let (version, kind) = (field("apiVersion")?, field("kind")?);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        // Workloads are all in one namespace; the other kinds have none.
        Ok(if group == "apps" {
            Api::namespaced_with(client.clone(), NAMESPACE, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        })
    }

    /// Applies it.
    pub(crate) async fn apply(&self, client: &Client) -> anyhow::Result<()> {
        let parameters = PatchParams::apply("millwright-loadtest").force();
        self.api(client)?
            .patch(self.name(), &parameters, &Patch::Apply(&self.value))
            .await
            .with_context(|| format!("apply {}", self.file))?;
        Ok(())
    }

    /// Deletes what it describes.
    pub(crate) async fn delete(&self, client: &Client) -> anyhow::Result<()> {
        self.api(client)?
            .delete(self.name(), &DeleteParams::default())
            .await
            .with_context(|| format!("delete {}", self.file))?;
        Ok(())
    }
}
