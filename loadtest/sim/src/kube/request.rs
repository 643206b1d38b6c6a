//! What a request is about: paths, queries and headers of the Kubernetes API.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use serde_json::Value;

use super::error::ApiError;
use super::registry::{Registry, Resource};

/// Query parameters; a parameter that comes twice has its first value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn parse(query: &str) -> Self {
        Self(
            form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// A parameter; empty if absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }

    /// A whole number.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "invalid value for query parameter {name}: {text:?}"
                ))
            }),
        }
    }

    /// Whether the request is to change nothing.
    ///
    /// # Errors
    /// 422 for a value other than `All`.
    pub(crate) fn dry_run(&self) -> Result<bool, ApiError> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let why = format!("Unsupported value: {other:?}: supported values: \"All\"");
                let cause = (
                    "FieldValueNotSupported".to_owned(),
                    why,
                    "dryRun".to_owned(),
                );
                Err(ApiError::invalid(
                    "meta.k8s.io",
                    "CreateOptions",
                    "",
                    vec![cause],
                ))
            }
        }
    }
}

/// What a path names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    /// Empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl Target {
    /// Reads `/api/v1/...` and `/apis/GROUP/VERSION/...`; `None` for other paths and for paths
    /// that end before a resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let decoded = percent_encoding::percent_decode_str(path)
            .decode_utf8()
            .ok()?;
        let mut parts = decoded.split('/').filter(|part| !part.is_empty());
        let mut target = Self::default();
        match parts.next()? {
            "api" => {}
            "apis" => parts.next()?.clone_into(&mut target.group),
            _ => return None,
        }
        parts.next()?.clone_into(&mut target.version);
        let rest: Vec<&str> = parts.collect();
        let rest = match rest[..] {
            // Namespaces themselves have subresources of two names only.
            ["namespaces", _, "status" | "finalize"] => &rest[..],
            ["namespaces", namespace, _, ..] => {
                namespace.clone_into(&mut target.namespace);
                &rest[2..]
            }
            _ => &rest[..],
        };
        let mut rest = rest.iter().map(|part| (*part).to_owned());
        target.plural = rest.next()?;
        target.name = rest.next().unwrap_or_default();
        target.subresource = rest.next().unwrap_or_default();
        rest.next().is_none().then_some(target)
    }
}

/// One request about a resource.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    pub(crate) params: Params,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    /// Whom field ownership is written down for.
    pub(crate) manager: String,
    pub(crate) body: Bytes,
}

impl Call {
    /// Finds the resource that a target names.
    ///
    /// # Errors
    /// 404 for what is not served, 400 for a namespace where none belongs.
    pub(crate) fn new(
        registry: &Registry,
        target: Target,
        head: &Parts,
        body: Bytes,
    ) -> Result<Self, ApiError> {
        let resource = registry
            .find(&target.group, &target.version, &target.plural)
            .ok_or_else(ApiError::no_such_path)?;
        let is_about_all = target.name.is_empty() && head.method == Method::GET;
        if resource.namespaced == target.namespace.is_empty()
            && !(resource.namespaced && (is_about_all || head.method == Method::DELETE))
        {
            return Err(ApiError::no_such_path());
        }
        let known = match target.subresource.as_str() {
            "" => true,
            "status" => resource.has_status,
            other => resource.subresources.iter().any(|name| name == other),
        };
        if !known {
            return Err(ApiError::no_such_path());
        }
        let header = |name: http::header::HeaderName| -> &str {
            let value = head.headers.get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or("")
        };
        let params = Params::parse(head.uri.query().unwrap_or(""));
        let agent = header(http::header::USER_AGENT);
        let manager = match params.text("fieldManager") {
            "" => agent.split('/').next().filter(|name| !name.is_empty()),
            named => Some(named),
        };
        Ok(Self {
            method: head.method.clone(),
            manager: manager.unwrap_or("unknown").to_owned(),
            accept: header(http::header::ACCEPT).to_owned(),
            content_type: header(http::header::CONTENT_TYPE).to_owned(),
            resource,
            namespace: target.namespace,
            name: target.name,
            subresource: target.subresource,
            params,
            body,
        })
    }

    /// The same request to the object itself, which a subresource changes.
    pub(crate) fn main(other: &Self) -> Self {
        Self {
            method: Method::PATCH,
            resource: Arc::clone(&other.resource),
            namespace: other.namespace.clone(),
            name: other.name.clone(),
            subresource: String::new(),
            params: other.params.clone(),
            accept: String::new(),
            content_type: String::new(),
            manager: other.manager.clone(),
            body: Bytes::new(),
        }
    }

    /// The body as a JSON object.
    ///
    /// # Errors
    /// 400 if it is not one, 415 if it says to be something else.
    pub(crate) fn object(&self) -> Result<Value, ApiError> {
        let media = self.content_type.split(';').next().unwrap_or("").trim();
        if !matches!(media, "" | "application/json" | "*/*") {
            return Err(ApiError::unsupported_media_type(media, "application/json"));
        }
        match serde_json::from_slice(&self.body) {
            Ok(value @ Value::Object(_)) => Ok(value),
            Ok(_) => Err(ApiError::bad_request(
                "the body of the request is not a JSON object",
            )),
            Err(error) => Err(ApiError::bad_request(format!(
                "the body of the request is not valid JSON: {error}"
            ))),
        }
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[track_caller]
    fn check(path: &str, expected: [&str; 6]) {
        let target = Target::parse(path).unwrap();
        let found = [
            &target.group,
            &target.version,
            &target.plural,
            &target.namespace,
            &target.name,
            &target.subresource,
        ];
        assert_eq!(found, expected.each_ref(), "{path}");
    }

    #[test]
    fn paths_name_resources() {
        check("/api/v1/pods", ["", "v1", "pods", "", "", ""]);
        check(
            "/api/v1/namespaces/a",
            ["", "v1", "namespaces", "", "a", ""],
        );
        check(
            "/api/v1/namespaces/a/pods/p/status",
            ["", "v1", "pods", "a", "p", "status"],
        );
        check(
            "/api/v1/namespaces/a/finalize",
            ["", "v1", "namespaces", "", "a", "finalize"],
        );
        check(
            "/apis/g.io/v2/things/x%20y",
            ["g.io", "v2", "things", "", "x y", ""],
        );
    }

    #[test]
    fn paths_without_a_resource_name_nothing() {
        for path in [
            "/api/v1",
            "/apis/apps/v1",
            "/healthz",
            "/api/v1/nodes/a/b/c/d",
        ] {
            assert_eq!(Target::parse(path), None, "{path}");
        }
    }
}
