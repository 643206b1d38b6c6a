//! What follows from a write: definitions start and stop being served, namespaces and definitions
//! that are going away end when they are empty, and disruption budgets are counted anew.

use std::sync::Arc;

use serde_json::Value;

use super::api::ApiServer;
use super::crd;
use super::error::ApiError;
use super::object::{Object, ObjectKey, is_deleting};
use super::registry::Resource;
use super::request::Call;

impl ApiServer {
    /// Whether a definition can be served.
    pub(crate) fn check_custom_definition(
        &self,
        call: &Call,
        value: &Value,
    ) -> Result<(), ApiError> {
        if call
            .resource
            .is("apiextensions.k8s.io", "customresourcedefinitions")
        {
            crd::served_versions(value)?;
        }
        Ok(())
    }

    pub(crate) fn after_write(&self, resource: &Resource, object: &Arc<Object>) {
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.serve(object);
        }
        self.wake_disruption(resource);
    }

    pub(crate) fn after_removal(&self, resource: &Resource, object: &Arc<Object>) {
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.change_registry(|registry| registry.without(&object.key.name));
            self.store.end_watches(&object.key.name);
        }
        self.wake_disruption(resource);
        let registry = self.registry();
        let namespace = object.key.namespace.as_str();
        let holders = [
            ("", "namespaces", namespace),
            (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                &*resource.id,
            ),
        ];
        for (group, plural, name) in holders {
            let Some(holder) = registry.find(group, "v1", plural) else {
                continue;
            };
            if let Some(held) = self.store.get(&holder.id, &ObjectKey::new("", name))
                && is_deleting(&held.value)
            {
                self.finish_if_empty(&holder, &held);
            }
        }
    }

    fn serve(&self, definition: &Object) {
        match crd::served_versions(&definition.value) {
            Ok(versions) => {
                let id = definition.key.name.as_str();
                self.change_registry(|registry| registry.with_custom(id, versions));
            }
            // It was checked before it was stored.
            Err(error) => tracing::error!(%error, "a stored definition cannot be served"),
        }
    }

    fn wake_disruption(&self, resource: &Resource) {
        if matches!(&*resource.id, "pods" | "poddisruptionbudgets.policy") {
            self.disruption.notify_one();
        }
    }
}
