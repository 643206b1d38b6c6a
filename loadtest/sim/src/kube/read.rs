//! Reading: one object, or a list by pages and selectors.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};

use super::api::{ApiServer, Reply, View};
use super::error::ApiError;
use super::object::{Object, ObjectKey, to_bytes};
use super::request::Call;
use super::selector::{FieldSelector, LabelSelector};
use super::table;

/// What a list or watch selects.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selection {
    /// Reads the parameters `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// 400 if one cannot be understood.
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let custom = call.resource.custom.as_ref();
        let selectable = custom.map_or(&[][..], |custom| &custom.selectable_fields);
        let fields = call.params.text("fieldSelector");
        Ok(Self {
            labels: LabelSelector::parse(call.params.text("labelSelector"))?,
            fields: FieldSelector::parse(fields, &call.resource, selectable)?,
        })
    }

    pub(crate) fn matches(&self, value: &Value) -> bool {
        self.labels.matches(value) && self.fields.matches(value)
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// Where the next page begins, and which state all pages show.
struct Continue {
    revision: u64,
    after: ObjectKey,
}

impl Continue {
    fn token(&self) -> String {
        let text = json!([self.revision, self.after.namespace, self.after.name]).to_string();
        URL_SAFE_NO_PAD.encode(text)
    }

    fn parse(token: &str) -> Result<Self, ApiError> {
        let invalid = || ApiError::bad_request("continue key is not valid");
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let (revision, namespace, name): (u64, String, String) =
            serde_json::from_slice(&text).map_err(|_| invalid())?;
        Ok(Self {
            revision,
            after: ObjectKey::new(namespace, name),
        })
    }
}

impl ApiServer {
    pub(crate) fn get(&self, call: &Call) -> Result<Reply, ApiError> {
        let object = self.stored(call)?;
        Ok(Reply::bytes(StatusCode::OK, View::new(call).show(&object)))
    }

    pub(crate) fn list(&self, call: &Call) -> Result<Reply, ApiError> {
        let selection = Selection::of(call)?;
        let params = &call.params;
        let limit = params.number("limit")?.filter(|limit| *limit > 0);
        let (resource, namespace) = (&call.resource.id, call.namespace.as_str());
        let start = match params.text("continue") {
            "" => None,
            token => Some(Continue::parse(token)?),
        };
        let exact = match (&start, params.text("resourceVersionMatch")) {
            (Some(start), _) => Some(start.revision),
            (None, "Exact") => params.number("resourceVersion")?,
            _ => None,
        };
        let (mut objects, revision) = match exact {
            None => self.store.list(resource, namespace),
            Some(revision) => {
                let listed = self.store.list_at(resource, namespace, revision);
                (listed.map_err(|_| too_old(start.is_some()))?, revision)
            }
        };
        if exact.is_none()
            && let Some(asked) = params.number("resourceVersion")?
            && asked > revision
        {
            return Err(ApiError::too_large_resource_version(asked, revision));
        }
        if let Some(start) = &start {
            objects.retain(|object| object.key > start.after);
        }
        if !selection.is_everything() {
            objects.retain(|object| selection.matches(&object.value));
        }
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let total = objects.len();
        let mut meta = json!({ "resourceVersion": revision.to_string() });
        if let Some(limit) = limit.filter(|limit| *limit < total) {
            objects.truncate(limit);
            if let Some(last) = objects.last() {
                let after = last.key.clone();
                meta["continue"] = Continue { revision, after }.token().into();
            }
            if selection.is_everything() {
                meta["remainingItemCount"] = (total - limit).into();
            }
        }
        let body = list_document(&View::new(call), &objects, &meta);
        Ok(Reply::bytes(StatusCode::OK, body))
    }
}

fn too_old(is_page: bool) -> ApiError {
    if is_page {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter.",
        )
    } else {
        ApiError::expired("The resourceVersion for the provided list is too old.")
    }
}

fn list_document(view: &View, objects: &[Arc<Object>], meta: &Value) -> Bytes {
    if view.as_table {
        let mut table = table::of_objects(view, objects.iter().map(Arc::as_ref), true);
        table["metadata"] = meta.clone();
        return to_bytes(&table);
    }
    let (kind, version) = if view.metadata_only {
        ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned())
    } else {
        (
            view.resource.list_kind.as_str(),
            view.resource.api_version(),
        )
    };
    // Elements of built-in lists do not repeat their type.
    let type_meta = format!(
        "{{\"kind\":{},\"apiVersion\":{},",
        Value::from(view.resource.kind.as_str()),
        Value::from(view.resource.api_version())
    );
    let is_custom = view.resource.custom.is_some();
    let mut body = BytesMut::with_capacity(256 + objects.len() * 1_024);
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{meta},\"items\":[",
        Value::from(kind),
        Value::from(version)
    );
    body.put_slice(head.as_bytes());
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        let text = view.show_plain(object);
        match text.strip_prefix(type_meta.as_bytes()) {
            Some(rest) if !is_custom => {
                body.put_u8(b'{');
                body.put_slice(rest);
            }
            _ => body.put_slice(&text),
        }
    }
    body.put_slice(b"]}");
    body.freeze()
}
