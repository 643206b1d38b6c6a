//! Stored objects, and accessors for the metadata of untyped ones.
//!
//! Objects are untyped JSON on purpose: an API server stores what clients wrote, including
//! fields that a typed struct of ours would lose.

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value};

/// Namespace (empty for cluster-scoped objects) and name; the order of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Unique within the namespace.
    pub(crate) name: String,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// One immutable version of an object, serialised at most once.
#[derive(Debug)]
pub(crate) struct Object {
    /// Where it is stored.
    pub(crate) key: ObjectKey,
    /// The store revision that wrote it; equal to `metadata.resourceVersion`.
    pub(crate) resource_version: u64,
    /// The whole object, with `apiVersion` and `kind`.
    pub(crate) value: Value,
    bytes: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(key: ObjectKey, resource_version: u64, value: Value) -> Self {
        Self {
            key,
            resource_version,
            value,
            bytes: OnceLock::new(),
        }
    }

    /// The object as JSON text; every list and watch that shows it shares these bytes.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.get_or_init(|| to_bytes(&self.value)).clone()
    }

    /// `metadata.uid`.
    pub(crate) fn uid(&self) -> &str {
        meta_str(&self.value, "uid")
    }
}

/// JSON text of any value.
pub(crate) fn to_bytes(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("a JSON value always serialises"))
}

/// The string at `/metadata/FIELD`, empty if absent.
pub(crate) fn meta_str<'a>(value: &'a Value, field: &str) -> &'a str {
    value
        .get("metadata")
        .and_then(|meta| meta.get(field))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// The string at a path of plain field names, empty if absent.
pub(crate) fn str_at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or("")
}

/// The integer at a path of plain field names.
pub(crate) fn int_at(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// The boolean at a path, false if absent.
pub(crate) fn bool_at(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or(false)
}

/// The value at a path of plain field names.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |inner, field| inner.get(field))
}

/// The elements of the list at a path; empty if absent or not a list.
pub(crate) fn list_at<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether deletion has been asked for.
pub(crate) fn is_deleting(value: &Value) -> bool {
    at(value, &["metadata", "deletionTimestamp"]).is_some_and(|stamp| !stamp.is_null())
}

/// The finalizers, in order.
pub(crate) fn finalizers(value: &Value) -> Vec<&str> {
    list_at(value, &["metadata", "finalizers"])
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// The owner reference with `controller: true`.
pub(crate) fn controller_of(value: &Value) -> Option<&Value> {
    list_at(value, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| bool_at(owner, &["controller"]))
}

/// The mutable map at `field` of `value`, created if absent or not a map.
pub(crate) fn object_mut<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let map = value.as_object_mut().expect("made an object just above");
    let inner = map
        .entry(field)
        .or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    inner.as_object_mut().expect("made an object just above")
}

/// The mutable `metadata`.
pub(crate) fn metadata_mut(value: &mut Value) -> &mut Map<String, Value> {
    object_mut(value, "metadata")
}

/// Sets or removes one field.
pub(crate) fn set_or_remove(map: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            map.insert(field.to_owned(), value);
        }
        None => {
            map.shift_remove(field);
        }
    }
}

/// The present time as `metav1.Time` writes it: RFC 3339, whole seconds.
pub(crate) fn now_rfc3339() -> String {
    rfc3339_seconds(jiff::Timestamp::now())
}

/// A time as `metav1.Time` writes it.
pub(crate) fn rfc3339_seconds(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second())
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_string()
}
