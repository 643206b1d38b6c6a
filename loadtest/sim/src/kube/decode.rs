//! From a body to an object of the resource's type: its declared type, unknown fields, and values
//! that the type cannot hold.

use serde_json::Value;

use super::error::ApiError;
use super::request::Call;
use super::schema::Schema;
use super::{events, validate};

/// An object that fits its type.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// What the client should know, as texts of `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

/// Checks a body's type and fields, and prunes what the type does not have.
///
/// # Errors
/// 400 for another type, a value of the wrong kind, or an unknown field under
/// `fieldValidation=Strict`.
pub(crate) fn body(call: &Call, value: Value) -> Result<Decoded, ApiError> {
    check_type(call, &value)?;
    let mut decoded = fields(call, value)?;
    if call.resource.group == events::GROUP {
        decoded.value = events::to_core(&decoded.value);
    }
    Ok(decoded)
}

/// A body may leave its type out; it may not state another one.
fn check_type(call: &Call, value: &Value) -> Result<(), ApiError> {
    let declared = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("");
    let (kind, version) = (declared("kind"), declared("apiVersion"));
    let resource = &call.resource;
    let served = resource.api_version();
    if !version.is_empty() && version != served {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({served})"
        )));
    }
    if !kind.is_empty() && kind != resource.kind {
        let shown = if version.is_empty() { &served } else { version };
        return Err(ApiError::bad_request(format!(
            "{kind} in version {shown:?} cannot be handled as a {}: converting is not possible",
            resource.kind
        )));
    }
    Ok(())
}

fn fields(call: &Call, mut value: Value) -> Result<Decoded, ApiError> {
    let resource = &call.resource;
    let schema = resource.schema();
    let cannot = |why: &str| {
        ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {why}",
            resource.kind, resource.version, resource.kind
        ))
    };
    if schema.is_builtin()
        && let Some(why) = validate::type_error(schema, &value)
    {
        return Err(cannot(&why));
    }
    let unknown = prune(schema, &mut value);
    let named: Vec<String> = unknown
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect();
    match call.params.text("fieldValidation") {
        "Strict" if !named.is_empty() => {
            let why = format!("strict decoding error: {}", named.join(", "));
            Err(cannot(&why))
        }
        "Ignore" | "Strict" => Ok(Decoded {
            value,
            warnings: Vec::new(),
        }),
        _ => Ok(Decoded {
            value,
            warnings: named,
        }),
    }
}

fn prune(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut unknown = schema.prune(value);
    unknown.sort_unstable();
    unknown
}
