//! The server's state, and which verb a request stands for.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::config::KubeSimConfig;
use super::error::ApiError;
use super::object::{Object, ObjectKey, to_bytes};
use super::registry::{Registry, Resource};
use super::request::Call;
use super::store::{Store, Subscription};
use super::{bootstrap, events, table};

/// What is sent back.
#[derive(Debug)]
pub(crate) enum Reply {
    /// One document.
    Document {
        code: StatusCode,
        body: Bytes,
        content_type: &'static str,
        /// Texts of `Warning` headers.
        warnings: Vec<String>,
    },
    /// A stream of events.
    Watch(Box<WatchReply>),
}

/// A watch that has begun.
#[derive(Debug)]
pub(crate) struct WatchReply {
    pub(crate) view: View,
    pub(crate) subscription: Subscription,
    pub(crate) options: super::watch::WatchOptions,
}

impl Reply {
    pub(crate) fn json(code: StatusCode, value: &Value) -> Self {
        Self::bytes(code, to_bytes(value))
    }

    pub(crate) fn bytes(code: StatusCode, body: Bytes) -> Self {
        Self::Document {
            code,
            body,
            content_type: "application/json",
            warnings: Vec::new(),
        }
    }

    /// Success without an object.
    pub(crate) fn success(details: &Value) -> Self {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        });
        Self::json(StatusCode::OK, &status)
    }

    pub(crate) fn with_warnings(mut self, more: Vec<String>) -> Self {
        if let Self::Document { warnings, .. } = &mut self {
            *warnings = more;
        }
        self
    }

    pub(crate) fn with_type(mut self, media: &'static str) -> Self {
        if let Self::Document { content_type, .. } = &mut self {
            *content_type = media;
        }
        self
    }
}

/// How objects of a resource are shown to one client.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) resource: Arc<Resource>,
    /// As rows of a table, for people.
    pub(crate) as_table: bool,
    /// Only `metadata`.
    pub(crate) metadata_only: bool,
    /// What a table's rows carry: `Metadata` (default), `Object` or `None`.
    pub(crate) include_object: String,
}

impl View {
    pub(crate) fn new(call: &Call) -> Self {
        let first = call.accept.split(',').next().unwrap_or("");
        Self {
            resource: Arc::clone(&call.resource),
            as_table: first.contains("as=Table"),
            metadata_only: first.contains("as=PartialObjectMetadata"),
            include_object: call.params.text("includeObject").to_owned(),
        }
    }

    /// One object's JSON text.
    pub(crate) fn show(&self, object: &Object) -> Bytes {
        if self.as_table {
            return to_bytes(&table::of_objects(self, [object], true));
        }
        self.show_plain(object)
    }

    /// One object's JSON text as an element of a list.
    pub(crate) fn show_plain(&self, object: &Object) -> Bytes {
        if self.metadata_only {
            return to_bytes(&json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": object.value.get("metadata"),
            }));
        }
        if self.resource.group == events::GROUP {
            return to_bytes(&events::from_core(&object.value));
        }
        object.bytes()
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(crate) config: KubeSimConfig,
    pub(crate) store: Store,
    registry: RwLock<Arc<Registry>>,
    delay: Mutex<Duration>,
    /// One eviction at a time: each is counted before the next is judged.
    pub(crate) evictions: Mutex<()>,
    /// Wakes the keeper of the PodDisruptionBudgets.
    pub(crate) disruption: Notify,
}

impl ApiServer {
    pub(crate) fn new(config: KubeSimConfig) -> Self {
        let server = Self {
            store: Store::new(config.history_max, config.watch_buffer_max),
            registry: RwLock::new(Arc::new(Registry::builtin())),
            delay: Mutex::new(Duration::ZERO),
            evictions: Mutex::new(()),
            disruption: Notify::new(),
            config,
        };
        bootstrap::fill(&server);
        server
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change_registry(&self, change: impl FnOnce(&Registry) -> Registry) {
        let mut registry = self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *registry = Arc::new(change(&registry));
    }

    pub(crate) fn delay(&self) -> Duration {
        *self.delay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        *self.delay.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }

    /// The stored object that a call is about.
    ///
    /// # Errors
    /// 404 if there is none.
    pub(crate) fn stored(&self, call: &Call) -> Result<Arc<Object>, ApiError> {
        let key = ObjectKey::new(call.namespace.as_str(), call.name.as_str());
        self.store
            .get(&call.resource.id, &key)
            .ok_or_else(|| call.not_found())
    }

    /// Carries out one request about a resource.
    ///
    /// # Errors
    /// What the client is told.
    pub(crate) fn handle(&self, call: &Call) -> Result<Reply, ApiError> {
        if call.resource.create_only && call.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        match (call.subresource.as_str(), &call.method) {
            ("" | "status", &Method::GET) if !call.name.is_empty() => self.get(call),
            ("", &Method::GET) if call.params.flag("watch") => self.watch(call),
            ("", &Method::GET) => self.list(call),
            ("", &Method::POST) if call.name.is_empty() => self.create(call),
            ("" | "status" | "finalize", &Method::PUT) if !call.name.is_empty() => {
                self.replace(call)
            }
            ("" | "status", &Method::PATCH) if !call.name.is_empty() => self.patch(call),
            ("", &Method::DELETE) if call.name.is_empty() => self.delete_collection(call),
            ("", &Method::DELETE) => self.delete(call),
            ("scale", _) => self.scale(call),
            ("binding", &Method::POST) => self.bind(call),
            ("eviction", &Method::POST) => self.evict(call),
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}
