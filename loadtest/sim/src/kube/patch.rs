//! The four kinds of patches.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::api::{ApiServer, Reply, View};
use super::error::ApiError;
use super::object::{Object, meta_str, metadata_mut};
use super::request::Call;
use super::write::{Failed, Means};
use super::{decode, events, managed, strategic};

const KINDS: &str = "application/json-patch+json, application/merge-patch+json, \
    application/strategic-merge-patch+json, application/apply-patch+yaml";

/// Operations of a JSON patch; the real one takes as many.
const OPERATIONS_MAX: usize = 10_000;

/// A patch as it was sent.
enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Patch {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let media = call.content_type.split(';').next().unwrap_or("").trim();
        let invalid = |error: &dyn std::fmt::Display| {
            ApiError::bad_request(format!("error decoding patch: {error}"))
        };
        let json = || serde_json::from_slice::<Value>(&call.body).map_err(|error| invalid(&error));
        match media {
            "application/json-patch+json" => {
                let patch: json_patch::Patch =
                    serde_json::from_slice(&call.body).map_err(|error| invalid(&error))?;
                if patch.0.len() > OPERATIONS_MAX {
                    return Err(ApiError::request_too_large(format!(
                        "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
                        patch.0.len()
                    )));
                }
                Ok(Self::Json(patch))
            }
            "application/merge-patch+json" => Ok(Self::Merge(json()?)),
            "application/strategic-merge-patch+json" if call.resource.custom.is_some() => {
                Err(ApiError::unsupported_media_type(media, KINDS))
            }
            "application/strategic-merge-patch+json" => Ok(Self::Strategic(json()?)),
            "application/apply-patch+yaml" => {
                let text = std::str::from_utf8(&call.body).map_err(|error| invalid(&error))?;
                let value: Value = serde_saphyr::from_str(text).map_err(|error| invalid(&error))?;
                Ok(Self::Apply(value))
            }
            other => Err(ApiError::unsupported_media_type(other, KINDS)),
        }
    }

    /// The stored object with the patch applied.
    fn applied_to(&self, call: &Call, old: &Object) -> Result<Value, ApiError> {
        let mut value = if call.resource.group == events::GROUP {
            events::from_core(&old.value)
        } else {
            old.value.clone()
        };
        match self {
            Self::Json(patch) => {
                json_patch::patch(&mut value, patch).map_err(|error| {
                    let why = format!(
                        "the server rejected our request due to an error in our request: {error}"
                    );
                    let cause = ("FieldValueInvalid".to_owned(), why, String::new());
                    ApiError::invalid(
                        &call.resource.group,
                        &call.resource.kind,
                        &call.name,
                        vec![cause],
                    )
                })?;
            }
            Self::Merge(patch) => json_patch::merge(&mut value, patch),
            Self::Strategic(patch) => {
                strategic::apply(call.resource.schema(), &mut value, patch)
                    .map_err(ApiError::bad_request)?;
            }
            Self::Apply(_) => {}
        }
        Ok(value)
    }
}

impl ApiServer {
    pub(crate) fn patch(&self, call: &Call) -> Result<Reply, ApiError> {
        let patch = Patch::of(call)?;
        if let Patch::Apply(configuration) = patch {
            return self.apply(call, configuration);
        }
        // A patch may state the version it is meant for; without one it is for the present one.
        let none = json!({});
        let object = self.retrying(call, &none, |old| {
            let patched = patch.applied_to(call, old)?;
            let stated = meta_str(&patched, "resourceVersion");
            if stated != meta_str(&old.value, "resourceVersion") && !stated.is_empty() {
                let (group, plural) = (&call.resource.group, &call.resource.plural);
                return Err(ApiError::stale(group, plural, &call.name).into());
            }
            let decoded = decode::body(call, patched)?;
            self.update(call, old, decoded.value, Means::Update)
        })?;
        Ok(Reply::bytes(StatusCode::OK, View::new(call).show(&object)))
    }

    /// Server-side apply.
    fn apply(&self, call: &Call, configuration: Value) -> Result<Reply, ApiError> {
        if call.params.text("fieldManager").is_empty() {
            let why = "Required value: is required for apply patch".to_owned();
            let cause = (
                "FieldValueRequired".to_owned(),
                why,
                "fieldManager".to_owned(),
            );
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "PatchOptions",
                "",
                vec![cause],
            ));
        }
        for field in ["apiVersion", "kind"] {
            if configuration.get(field).is_none_or(Value::is_null) {
                let why = format!(
                    "error decoding YAML: Object '{}' is missing in '{configuration}'",
                    if field == "kind" {
                        "Kind"
                    } else {
                        "apiVersion"
                    }
                );
                return Err(ApiError::bad_request(why));
            }
        }
        let decoded = decode::body(call, configuration)?;
        let configuration = decoded.value;
        if managed::states_managed_fields(&configuration) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let key_of_new = || -> Result<Option<Arc<Object>>, ApiError> {
            match self.stored(call) {
                Err(_) if call.subresource.is_empty() => {
                    let mut value = configuration.clone();
                    metadata_mut(&mut value).insert("name".to_owned(), json!(call.name));
                    self.insert(call, value, Means::Apply(&configuration))
                        .map(Some)
                }
                Err(error) => Err(error),
                Ok(_) => Ok(None),
            }
        };
        let created = key_of_new();
        let (code, object) = match created {
            Ok(Some(object)) => (StatusCode::CREATED, object),
            Err(error) if error.reason != "AlreadyExists" => return Err(error),
            Ok(None) | Err(_) => {
                let object = self.retrying(call, &configuration, |old| {
                    self.apply_once(call, old, &configuration)
                })?;
                (StatusCode::OK, object)
            }
        };
        let reply = Reply::bytes(code, View::new(call).show(&object));
        Ok(reply.with_warnings(decoded.warnings))
    }

    fn apply_once(
        &self,
        call: &Call,
        old: &Arc<Object>,
        configuration: &Value,
    ) -> Result<Arc<Object>, Failed> {
        let force = call.params.flag("force");
        let merged = managed::merge(call, &old.value, configuration, force)?;
        self.update(call, old, merged, Means::Apply(configuration))
    }
}
