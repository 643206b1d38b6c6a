//! API errors and their wire form, the `Status` object.

use http::StatusCode;
use serde_json::{Value, json};

/// A failed request, with everything the `Status` object tells a client.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    /// HTTP status of the answer.
    pub(crate) code: StatusCode,
    /// Machine-readable reason, for example `NotFound`.
    pub(crate) reason: &'static str,
    /// Sentence for people.
    pub(crate) message: String,
    /// Further facts (boxed because errors travel in `Result`s everywhere).
    pub(crate) details: Box<Details>,
}

/// The `details` of a `Status`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Details {
    /// Name of the object the request was about.
    pub(crate) name: String,
    /// API group of the resource.
    pub(crate) group: String,
    /// Resource (plural) or kind.
    pub(crate) kind: String,
    /// Seconds after which a retry is sensible; 0 means unset.
    pub(crate) retry_after_seconds: u32,
    /// Causes as (reason, message, field).
    pub(crate) causes: Vec<(String, String, String)>,
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            details: Box::default(),
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details.group = group.to_owned();
        self.details.kind = kind.to_owned();
        self.details.name = name.to_owned();
        self
    }

    fn qualified(group: &str, plural: &str) -> String {
        if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        }
    }

    /// 404: the object does not exist.
    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", Self::qualified(group, plural));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(group, plural, name)
    }

    /// 404: nothing is served at this path.
    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    /// 409: an object of this name exists.
    pub(crate) fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists",
            Self::qualified(group, plural)
        );
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(group, plural, name)
    }

    /// 409: optimistic concurrency failed.
    pub(crate) fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            Self::qualified(group, plural)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(group, plural, name)
    }

    /// 409 for a write based on an old resourceVersion.
    pub(crate) fn stale(group: &str, plural: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(group, plural, name, why)
    }

    /// 409 of server-side apply: other managers own fields with other values.
    pub(crate) fn apply_conflict(message: String, causes: Vec<(String, String, String)>) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "Conflict", message);
        error.details.causes = causes;
        error
    }

    /// 422: the object is not valid; `causes` as (reason, message, field).
    pub(crate) fn invalid(
        group: &str,
        kind: &str,
        name: &str,
        causes: Vec<(String, String, String)>,
    ) -> Self {
        let rendered: Vec<String> = causes
            .iter()
            .map(|(_, message, field)| format!("{field}: {message}"))
            .collect();
        let errors = if rendered.len() == 1 {
            rendered.concat()
        } else {
            format!("[{}]", rendered.join(", "))
        };
        let message = format!(
            "{} \"{name}\" is invalid: {errors}",
            Self::qualified(group, kind)
        );
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
            .about(group, kind, name);
        error.details.causes = causes;
        error
    }

    /// 400: the request cannot be understood.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message.into())
    }

    /// 403: the request is understood and refused.
    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "{} \"{name}\" is forbidden: {why}",
            Self::qualified(group, plural)
        );
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(group, plural, name)
    }

    /// 405: the verb does not exist here.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// 410: the history asked for is gone.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message.into())
    }

    /// 413: the body has no bound that is served.
    pub(crate) fn request_too_large(why: impl Into<String>) -> Self {
        let message = format!("Request entity too large: {}", why.into());
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
        )
    }

    /// 415: the body's media type is not understood here.
    pub(crate) fn unsupported_media_type(got: &str, accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {accepted} (was {got})"
        );
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// 429 of the eviction subresource, with the cause a client looks for.
    pub(crate) fn disruption_budget(message: String, cause: String) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error
            .details
            .causes
            .push(("DisruptionBudget".to_owned(), cause, String::new()));
        error
    }

    /// 504: the resourceVersion asked for lies in the future.
    pub(crate) fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        error.details.retry_after_seconds = 1;
        error.details.causes.push((
            "ResourceVersionTooLarge".to_owned(),
            "Too large resource version".to_owned(),
            String::new(),
        ));
        error
    }

    /// 500: a fault of the simulator itself.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            message.into(),
        )
    }

    /// The `Status` object of this error.
    pub(crate) fn to_status(&self) -> Value {
        let mut details = serde_json::Map::new();
        let Details {
            name,
            group,
            kind,
            retry_after_seconds,
            causes,
        } = &*self.details;
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        if !causes.is_empty() {
            let causes: Vec<Value> = causes.iter().map(cause_to_json).collect();
            details.insert("causes".to_owned(), json!(causes));
        }
        if *retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".to_owned(), json!(retry_after_seconds));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason,
        });
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status["code"] = json!(self.code.as_u16());
        status
    }
}

fn cause_to_json((reason, message, field): &(String, String, String)) -> Value {
    let mut cause = json!({ "reason": reason, "message": message });
    if !field.is_empty() {
        cause["field"] = json!(field);
    }
    cause
}
