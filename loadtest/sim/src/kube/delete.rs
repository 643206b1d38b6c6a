//! Deletion: preconditions, grace of pods, finalizers, collections, and what goes along with a
//! namespace or a CustomResourceDefinition.

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api::{ApiServer, Reply, View};
use super::error::ApiError;
use super::object::{
    Object, finalizers, int_at, is_deleting, meta_str, metadata_mut, rfc3339_seconds, str_at,
};
use super::read::Selection;
use super::registry::Resource;
use super::request::Call;
use super::store::Expect;
use super::write::ATTEMPTS;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// `Background`, `Foreground` or `Orphan`; empty if not stated.
    pub(crate) propagation: String,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Reads the body, else the query.
    ///
    /// # Errors
    /// 400 or 422 for options that do not exist.
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let body = if call.body.is_empty() {
            json!({})
        } else {
            call.object()?
        };
        let text = |path: &[&str]| {
            let found = str_at(&body, path);
            (!found.is_empty()).then(|| found.to_owned())
        };
        let in_query = call.params.text("gracePeriodSeconds").parse().ok();
        let propagation = text(&["propagationPolicy"]);
        let propagation =
            propagation.unwrap_or_else(|| call.params.text("propagationPolicy").to_owned());
        if !matches!(
            propagation.as_str(),
            "" | "Background" | "Foreground" | "Orphan"
        ) {
            let why = format!(
                "Unsupported value: {propagation:?}: supported values: \"Foreground\", \
                 \"Background\", \"Orphan\", \"nil\""
            );
            let cause = (
                "FieldValueNotSupported".to_owned(),
                why,
                "propagationPolicy".to_owned(),
            );
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                vec![cause],
            ));
        }
        Ok(Self {
            grace_seconds: int_at(&body, &["gracePeriodSeconds"]).or(in_query),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            propagation,
            dry_run: call.params.dry_run()?
                || body.get("dryRun").is_some_and(|it| *it == json!(["All"])),
        })
    }
}

impl ApiServer {
    pub(crate) fn delete(&self, call: &Call) -> Result<Reply, ApiError> {
        let options = DeleteOptions::of(call)?;
        for _ in 0..ATTEMPTS {
            let object = self.stored(call)?;
            if let Some((object, is_gone)) =
                self.delete_object(&call.resource, &object, &options)?
            {
                return Ok(answer(call, &object, is_gone));
            }
        }
        Err(ApiError::stale(
            &call.resource.group,
            &call.resource.plural,
            &call.name,
        ))
    }

    pub(crate) fn delete_collection(&self, call: &Call) -> Result<Reply, ApiError> {
        let options = DeleteOptions::of(call)?;
        let selection = Selection::of(call)?;
        let (objects, _) = self.store.list(&call.resource.id, &call.namespace);
        for object in objects
            .iter()
            .filter(|object| selection.matches(&object.value))
        {
            self.delete_present(&call.resource, object, &options)?;
        }
        self.list(call)
    }

    /// Deletes an object as it is at this moment; one that is gone is well.
    fn delete_present(
        &self,
        resource: &Resource,
        object: &Arc<Object>,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        for _ in 0..ATTEMPTS {
            let Some(present) = self.store.get(&resource.id, &object.key) else {
                break;
            };
            if self.delete_object(resource, &present, options)?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Deletes one version of an object, or marks it. Answers its last state and whether it is
    /// gone; `None` when another write came first.
    ///
    /// # Errors
    /// 409 for a precondition that does not hold.
    pub(crate) fn delete_object(
        &self,
        resource: &Resource,
        object: &Arc<Object>,
        options: &DeleteOptions,
    ) -> Result<Option<(Arc<Object>, bool)>, ApiError> {
        check_preconditions(resource, object, options)?;
        let old = &object.value;
        let mut new = old.clone();
        propagate(&mut new, &options.propagation);
        let grace = grace_seconds(resource, old, options.grace_seconds);
        let waits =
            grace > 0 || !finalizers(&new).is_empty() || self.holds_content(resource, object);
        if options.dry_run {
            return Ok(Some((Arc::clone(object), !waits)));
        }
        let expect = Expect::Revision(object.resource_version);
        if !waits {
            let removed = self.store.remove_as(&resource.id, &object.key, expect, new);
            return Ok(removed.ok().map(|removed| {
                self.after_removal(resource, &removed);
                (removed, true)
            }));
        }
        mark(resource, &mut new, grace);
        if new == *old {
            return Ok(Some((Arc::clone(object), false)));
        }
        let put = self
            .store
            .put(&resource.id, object.key.clone(), expect, new);
        let Ok(marked) = put else { return Ok(None) };
        self.after_write(resource, &marked);
        if resource.is("", "namespaces")
            || resource.is("apiextensions.k8s.io", "customresourcedefinitions")
        {
            self.delete_content(resource, &marked)?;
        }
        // Its content may have gone at once, and the object with it.
        let is_gone = self.store.get(&resource.id, &marked.key).is_none();
        Ok(Some((marked, is_gone)))
    }

    /// Whether objects live in this namespace, or are defined by this definition.
    fn holds_content(&self, resource: &Resource, object: &Object) -> bool {
        if resource.is("", "namespaces") {
            let registry = self.registry();
            let mut namespaced = registry.all().iter().filter(|resource| resource.namespaced);
            return namespaced.any(|inner| self.store.has_any(&inner.id, &object.key.name));
        }
        resource.is("apiextensions.k8s.io", "customresourcedefinitions")
            && self.store.has_any(&object.key.name, "")
    }

    /// Deletes what lives in a namespace, or what a definition defines.
    fn delete_content(&self, resource: &Resource, object: &Object) -> Result<(), ApiError> {
        let registry = self.registry();
        let name = object.key.name.as_str();
        let options = DeleteOptions::default();
        for inner in registry.all() {
            let namespace = if resource.is("", "namespaces") && inner.namespaced {
                name
            } else if resource.is("apiextensions.k8s.io", "customresourcedefinitions")
                && &*inner.id == name
            {
                ""
            } else {
                continue;
            };
            for object in self.store.list(&inner.id, namespace).0 {
                self.delete_present(inner, &object, &options)?;
            }
        }
        self.finish_if_empty(resource, object);
        Ok(())
    }

    /// Removes a namespace or definition that is being deleted and holds nothing any more.
    pub(crate) fn finish_if_empty(&self, resource: &Resource, object: &Object) {
        for _ in 0..ATTEMPTS {
            let Some(present) = self.store.get(&resource.id, &object.key) else {
                return;
            };
            let waits = !is_deleting(&present.value)
                || !finalizers(&present.value).is_empty()
                || self.holds_content(resource, &present);
            if waits {
                return;
            }
            let expect = Expect::Revision(present.resource_version);
            let value = present.value.clone();
            if let Ok(removed) = self
                .store
                .remove_as(&resource.id, &present.key, expect, value)
            {
                self.after_removal(resource, &removed);
                return;
            }
        }
    }
}

fn answer(call: &Call, object: &Object, is_gone: bool) -> Reply {
    let resource = &call.resource;
    if !is_gone || resource.returns_deleted_object() {
        return Reply::bytes(StatusCode::OK, View::new(call).show(object));
    }
    let mut details = json!({ "name": object.key.name });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details["kind"] = json!(resource.plural);
    details["uid"] = json!(object.uid());
    Reply::success(&details)
}

fn check_preconditions(
    resource: &Resource,
    object: &Object,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let differs = |what: &str, wanted: &Option<String>, found: &str, hint: &str| {
        let wanted = wanted.as_deref().filter(|wanted| *wanted != found)?;
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record \
             ({found}). {hint}"
        );
        let (group, kind) = (&resource.group, &resource.kind);
        Some(ApiError::conflict(group, kind, &object.key.name, &why))
    };
    let version = meta_str(&object.value, "resourceVersion");
    let failed = differs(
        "UID",
        &options.uid,
        object.uid(),
        "The object might have been deleted and then recreated",
    )
    .or_else(|| {
        differs(
            "ResourceVersion",
            &options.resource_version,
            version,
            "The object might have been modified",
        )
    });
    failed.map_or(Ok(()), Err)
}

/// What becomes of dependents is written into the finalizers.
fn propagate(value: &mut Value, policy: &str) {
    let own = match policy {
        "Foreground" => Some(FOREGROUND),
        "Orphan" => Some(ORPHAN),
        "Background" => None,
        _ => return,
    };
    let mut names: Vec<String> = finalizers(value).into_iter().map(str::to_owned).collect();
    let before = names.clone();
    names.retain(|name| name != FOREGROUND && name != ORPHAN);
    names.extend(own.map(str::to_owned));
    if names == before {
        return;
    }
    let meta = metadata_mut(value);
    if names.is_empty() {
        meta.shift_remove("finalizers");
    } else {
        meta.insert("finalizers".to_owned(), json!(names));
    }
}

/// How long a pod may take to end; everything else goes at once.
fn grace_seconds(resource: &Resource, value: &Value, asked: Option<i64>) -> i64 {
    let is_bound = !str_at(value, &["spec", "nodeName"]).is_empty();
    let has_ended = matches!(str_at(value, &["status", "phase"]), "Succeeded" | "Failed");
    if !resource.is("", "pods") || !is_bound || has_ended {
        return 0;
    }
    let own = int_at(value, &["spec", "terminationGracePeriodSeconds"]);
    let wanted = asked.or(own).unwrap_or(30).max(0);
    // A second request may shorten the time, never lengthen it.
    match int_at(value, &["metadata", "deletionGracePeriodSeconds"]) {
        Some(running) if is_deleting(value) => match asked {
            Some(asked) => asked.max(0).min(running),
            None => running,
        },
        _ => wanted,
    }
}

fn mark(resource: &Resource, value: &mut Value, grace: i64) {
    let before = int_at(value, &["metadata", "deletionGracePeriodSeconds"]);
    if is_deleting(value) && before == Some(grace) {
        return;
    }
    let generation = int_at(value, &["metadata", "generation"]);
    let first = !is_deleting(value);
    let at = Timestamp::now() + SignedDuration::from_secs(grace);
    let meta = metadata_mut(value);
    meta.insert("deletionTimestamp".to_owned(), json!(rfc3339_seconds(at)));
    meta.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
    if let Some(generation) = generation.filter(|_| first) {
        meta.insert("generation".to_owned(), json!(generation + 1));
    }
    if resource.is("", "namespaces") {
        value["status"]["phase"] = json!("Terminating");
    }
}
