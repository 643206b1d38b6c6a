//! Subresources that are objects of their own: scale, binding.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{ApiServer, Reply};
use super::error::ApiError;
use super::managed::{self, Writer};
use super::object::{
    Object, at, int_at, is_deleting, list_at, meta_str, now_rfc3339, object_mut, str_at,
};
use super::request::Call;
use super::selector::LabelSelector;
use super::store::Expect;
use super::write::{Failed, Means, raced};

/// Where an object keeps the numbers of its scale.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Option<Vec<String>>,
}

impl Paths {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let owned = |path: &[&str]| path.iter().map(|field| (*field).to_owned()).collect();
        match &call.resource.custom {
            None => Ok(Self {
                spec: owned(&["spec", "replicas"]),
                status: owned(&["status", "replicas"]),
                selector: None,
            }),
            Some(custom) => custom
                .scale
                .as_ref()
                .map(|scale| Self {
                    spec: scale.spec_replicas.clone(),
                    status: scale.status_replicas.clone(),
                    selector: scale.label_selector.clone(),
                })
                .ok_or_else(ApiError::no_such_path),
        }
    }

    /// The Scale of an object.
    fn scale(&self, call: &Call, value: &Value) -> Value {
        let number = |path: &[String]| {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            int_at(value, &path).unwrap_or(0)
        };
        let selector = match &self.selector {
            Some(path) => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                str_at(value, &path).to_owned()
            }
            None => at(value, &["spec", "selector"])
                .and_then(|selector| {
                    let plain = LabelSelector::from_map(selector);
                    let typed = LabelSelector::from_object(selector);
                    if selector.get("matchLabels").is_some()
                        || selector.get("matchExpressions").is_some()
                    {
                        typed
                    } else {
                        plain
                    }
                })
                .map(|selector| selector.to_string())
                .unwrap_or_default(),
        };
        let mut status = json!({ "replicas": number(&self.status) });
        if !selector.is_empty() {
            status["selector"] = selector.into();
        }
        let mut metadata = json!({ "name": call.name });
        for field in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(found) = at(value, &["metadata", field]) {
                metadata[field] = found.clone();
            }
        }
        json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": { "replicas": number(&self.spec) }, "status": status,
        })
    }
}

impl ApiServer {
    pub(crate) fn scale(&self, call: &Call) -> Result<Reply, ApiError> {
        let paths = Paths::of(call)?;
        if call.method == Method::GET {
            let object = self.stored(call)?;
            return Ok(Reply::json(
                StatusCode::OK,
                &paths.scale(call, &object.value),
            ));
        }
        let patch = match call.method {
            Method::PUT => None,
            Method::PATCH => Some(serde_json::from_slice::<Value>(&call.body).map_err(
                |error| ApiError::bad_request(format!("error decoding patch: {error}")),
            )?),
            _ => return Err(ApiError::method_not_allowed()),
        };
        let whole = match &patch {
            None => call.object()?,
            Some(_) => json!({}),
        };
        let object = self.retrying(call, &whole, |old| {
            let mut scale = paths.scale(call, &old.value);
            match &patch {
                None => scale = whole.clone(),
                Some(operations @ Value::Array(_)) => {
                    let patch: json_patch::Patch = serde_json::from_value(operations.clone())
                        .map_err(|error| ApiError::bad_request(error.to_string()))?;
                    json_patch::patch(&mut scale, &patch)
                        .map_err(|error| ApiError::bad_request(error.to_string()))?;
                }
                Some(merge) => json_patch::merge(&mut scale, merge),
            }
            let wanted = int_at(&scale, &["spec", "replicas"]).unwrap_or(0);
            if wanted < 0 {
                let why = format!("Invalid value: {wanted}: must be greater than or equal to 0");
                let cause = (
                    "FieldValueInvalid".to_owned(),
                    why,
                    "spec.replicas".to_owned(),
                );
                let error = ApiError::invalid("autoscaling", "Scale", &call.name, vec![cause]);
                return Err(error.into());
            }
            let mut new = old.value.clone();
            let mut slot = &mut new;
            for field in &paths.spec {
                slot = object_mut_field(slot, field);
            }
            *slot = json!(wanted);
            let main = Call::main(call);
            self.update(&main, old, new, Means::Update)
        })?;
        Ok(Reply::json(
            StatusCode::OK,
            &paths.scale(call, &object.value),
        ))
    }

    /// Binds a pod to a node, as the scheduler asks.
    pub(crate) fn bind(&self, call: &Call) -> Result<Reply, ApiError> {
        let binding = call.object()?;
        let node = str_at(&binding, &["target", "name"]).to_owned();
        if node.is_empty() {
            let cause = (
                "FieldValueRequired".to_owned(),
                "Required value".to_owned(),
                "target.name".to_owned(),
            );
            return Err(ApiError::invalid("", "Binding", &call.name, vec![cause]));
        }
        let main = Call::main(call);
        let uid = meta_str(&binding, "uid");
        self.retrying(call, &json!({}), |old| {
            if !uid.is_empty() && uid != old.uid() {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    old.uid()
                );
                return Err(ApiError::conflict("", "pods/binding", &call.name, &why).into());
            }
            self.bind_once(&main, old, &node)
        })?;
        Ok(Reply::json(
            StatusCode::CREATED,
            &json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }),
        ))
    }

    fn bind_once(
        &self,
        call: &Call,
        old: &std::sync::Arc<Object>,
        node: &str,
    ) -> Result<std::sync::Arc<Object>, Failed> {
        let conflict = |why: &str| ApiError::conflict("", "pods/binding", &call.name, why);
        if is_deleting(&old.value) {
            let why = format!(
                "pod {} is being deleted, cannot be assigned to a host",
                call.name
            );
            return Err(conflict(&why).into());
        }
        let assigned = str_at(&old.value, &["spec", "nodeName"]);
        if !assigned.is_empty() {
            let why = format!("pod {} is already assigned to node {assigned:?}", call.name);
            return Err(conflict(&why).into());
        }
        if !list_at(&old.value, &["spec", "schedulingGates"]).is_empty() {
            let why = format!("pod {} has non-empty .spec.schedulingGates", call.name);
            return Err(conflict(&why).into());
        }
        let mut new = old.value.clone();
        object_mut(&mut new, "spec").insert("nodeName".to_owned(), json!(node));
        let conditions = object_mut(&mut new, "status")
            .entry("conditions")
            .or_insert_with(|| json!([]));
        if let Some(list) = conditions.as_array_mut() {
            list.retain(|condition| str_at(condition, &["type"]) != "PodScheduled");
            list.push(json!({
                "type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": now_rfc3339(),
            }));
        }
        managed::track(
            call.resource.schema(),
            &mut new,
            Some(&old.value),
            &Writer::new(call, Means::Update),
        );
        let expect = Expect::Revision(old.resource_version);
        let put = self
            .store
            .put(&call.resource.id, old.key.clone(), expect, new);
        let bound = put.map_err(raced)?;
        self.after_write(&call.resource, &bound);
        Ok(bound)
    }
}

/// The mutable field of a value, which becomes an object if it is none.
fn object_mut_field<'a>(value: &'a mut Value, field: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    &mut value[field]
}
