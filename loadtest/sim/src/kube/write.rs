//! Writing: from a body to a stored object, for creations and updates alike.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::api::{ApiServer, Reply, View};
use super::decode::Decoded;
use super::error::ApiError;
use super::managed::{self, Writer};
use super::object::{
    Object, ObjectKey, finalizers, int_at, is_deleting, meta_str, metadata_mut, now_rfc3339,
    set_or_remove,
};
use super::request::Call;
use super::store::{Expect, Lost};
use super::{admission, decode, events, prepare, validation};

/// Updates that lost a race are tried again so often, if the client did not name a version.
pub(crate) const ATTEMPTS: usize = 16;

/// How an update came about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Means<'a> {
    /// A whole object, or a patch of the stored one.
    Update,
    /// Server-side apply; the configuration as it was applied.
    Apply(&'a Value),
}

/// Why an update has no result.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Another write came first.
    Raced,
    Refused(ApiError),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl ApiServer {
    pub(crate) fn create(&self, call: &Call) -> Result<Reply, ApiError> {
        let decoded = decode::body(call, call.object()?)?;
        if call.resource.create_only {
            return Ok(Reply::json(
                StatusCode::CREATED,
                &admission::review(decoded.value),
            ));
        }
        let value = decoded.value;
        let object = self.insert(call, value, Means::Update)?;
        let reply = Reply::bytes(StatusCode::CREATED, View::new(call).show(&object));
        Ok(reply.with_warnings(decoded.warnings))
    }

    /// Stores a new object.
    ///
    /// # Errors
    /// What the client is told.
    pub(crate) fn insert(
        &self,
        call: &Call,
        mut value: Value,
        means: Means<'_>,
    ) -> Result<Arc<Object>, ApiError> {
        let resource = &call.resource;
        let name = identity(call, &mut value)?;
        self.check_namespace(call)?;
        if !meta_str(&value, "resourceVersion").is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::internal(why));
        }
        let meta = metadata_mut(&mut value);
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            meta.shift_remove(field);
        }
        meta.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
        meta.insert("creationTimestamp".to_owned(), json!(now_rfc3339()));
        if resource.has_generation() {
            meta.insert("generation".to_owned(), json!(1));
        }
        prepare::new_object(resource, &mut value);
        self.admit(resource, &mut value)?;
        validation::check(resource, &value, None, "")?;
        self.check_custom_definition(call, &value)?;
        let writer = Writer::new(call, means);
        managed::track(resource.schema(), &mut value, None, &writer);
        order_fields(&mut value, call);
        let key = ObjectKey::new(call.namespace.as_str(), name.as_str());
        if call.params.dry_run()? {
            if self.store.get(&resource.id, &key).is_some() {
                return Err(ApiError::already_exists(
                    &resource.group,
                    &resource.plural,
                    &name,
                ));
            }
            return Ok(Arc::new(Object::new(key, 0, value)));
        }
        let put = self.store.put(&resource.id, key, Expect::Absent, value);
        let object =
            put.map_err(|_| ApiError::already_exists(&resource.group, &resource.plural, &name))?;
        self.after_write(resource, &object);
        Ok(object)
    }

    pub(crate) fn replace(&self, call: &Call) -> Result<Reply, ApiError> {
        let Decoded { value, warnings } = decode::body(call, call.object()?)?;
        let named = meta_str(&value, "name");
        if !named.is_empty() && named != call.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({named}) does not match the name on the URL ({})",
                call.name
            )));
        }
        let object = self.retrying(call, &value, |old| {
            self.update(call, old, value.clone(), Means::Update)
        })?;
        let reply = Reply::bytes(StatusCode::OK, View::new(call).show(&object));
        Ok(reply.with_warnings(warnings))
    }

    /// Repeats an update of the stored object until no other write comes between, unless
    /// `basis` names the version it is meant for.
    ///
    /// # Errors
    /// What the update answers; 409 for an old version.
    pub(crate) fn retrying(
        &self,
        call: &Call,
        basis: &Value,
        update: impl Fn(&Arc<Object>) -> Result<Arc<Object>, Failed>,
    ) -> Result<Arc<Object>, ApiError> {
        let (group, plural) = (&call.resource.group, &call.resource.plural);
        let stale = || ApiError::stale(group, plural, &call.name);
        let wanted = meta_str(basis, "resourceVersion").to_owned();
        for _ in 0..ATTEMPTS {
            let old = self.stored(call)?;
            if !wanted.is_empty() && wanted != meta_str(&old.value, "resourceVersion") {
                return Err(stale());
            }
            match update(&old) {
                Ok(object) => return Ok(object),
                Err(Failed::Refused(error)) => return Err(error),
                Err(Failed::Raced) => {}
            }
        }
        Err(stale())
    }

    /// Turns `old` into `new`, of which only what the (sub)resource may change is taken.
    ///
    /// # Errors
    /// [`Failed::Raced`] when `old` is no longer what is stored.
    pub(crate) fn update(
        &self,
        call: &Call,
        old: &Arc<Object>,
        mut new: Value,
        means: Means<'_>,
    ) -> Result<Arc<Object>, Failed> {
        let resource = &call.resource;
        let conflict =
            |why: &str| ApiError::conflict(&resource.group, &resource.plural, &call.name, why);
        identity(call, &mut new)?;
        let uid = meta_str(&new, "uid");
        if !uid.is_empty() && uid != old.uid() {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old.uid()
            );
            return Err(conflict(&why).into());
        }
        if meta_str(&new, "resourceVersion").is_empty()
            && matches!(call.method, http::Method::PUT)
            && !resource.allows_unconditional_update()
        {
            let why = "Invalid value: 0: must be specified for an update".to_owned();
            let field = "metadata.resourceVersion".to_owned();
            let causes = vec![("FieldValueInvalid".to_owned(), why, field)];
            let error = ApiError::invalid(&resource.group, &resource.kind, &call.name, causes);
            return Err(error.into());
        }
        prepare::changed_object(call, &old.value, &mut new);
        prepare::generation(resource, &old.value, &mut new);
        if call.subresource.is_empty() {
            self.admit_update(resource, &old.value, &mut new)?;
        }
        validation::check(resource, &new, Some(&old.value), &call.subresource)?;
        self.check_custom_definition(call, &new)?;
        managed::track(
            resource.schema(),
            &mut new,
            Some(&old.value),
            &Writer::new(call, means),
        );
        order_fields(&mut new, call);
        if old.value == new {
            return Ok(Arc::clone(old));
        }
        if call.params.dry_run()? {
            return Ok(Arc::new(Object::new(
                old.key.clone(),
                old.resource_version,
                new,
            )));
        }
        let expect = Expect::Revision(old.resource_version);
        if is_finished(&new) {
            let removed = self.store.remove_as(&resource.id, &old.key, expect, new);
            let object = removed.map_err(raced)?;
            self.after_removal(resource, &object);
            return Ok(object);
        }
        let put = self.store.put(&resource.id, old.key.clone(), expect, new);
        let object = put.map_err(raced)?;
        self.after_write(resource, &object);
        Ok(object)
    }
}

/// What a lost race means for the caller.
pub(crate) fn raced(_: Lost) -> Failed {
    Failed::Raced
}

/// Whether nothing holds back an object that is being deleted.
fn is_finished(value: &Value) -> bool {
    let grace = int_at(value, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    is_deleting(value) && grace == 0 && finalizers(value).is_empty() && !holds_content(value)
}

/// A namespace's own finalizers stand in its spec.
fn holds_content(value: &Value) -> bool {
    value.get("kind").and_then(Value::as_str) == Some("Namespace")
        && value.get("apiVersion").and_then(Value::as_str) == Some("v1")
        && value
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
}

/// Settles namespace and name of a body, and gives the name.
fn identity(call: &Call, value: &mut Value) -> Result<String, ApiError> {
    let namespace = meta_str(value, "namespace").to_owned();
    if !namespace.is_empty() && namespace != call.namespace {
        let why = if call.resource.namespaced {
            "the namespace of the provided object does not match the namespace sent on the request"
        } else {
            "namespace must not be set for cluster-scoped objects"
        };
        return Err(ApiError::bad_request(why));
    }
    let mut name = if call.name.is_empty() {
        meta_str(value, "name").to_owned()
    } else {
        call.name.clone()
    };
    let prefix = meta_str(value, "generateName");
    if name.is_empty() && !prefix.is_empty() {
        name = generated_name(prefix);
    }
    let meta = metadata_mut(value);
    if !name.is_empty() {
        meta.insert("name".to_owned(), json!(name));
    }
    let namespaced = call.resource.namespaced.then(|| json!(call.namespace));
    set_or_remove(meta, "namespace", namespaced);
    Ok(name)
}

/// A prefix with five random characters, without vowels and what looks like others.
fn generated_name(prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    /// Longest prefix that leaves room for the characters.
    const PREFIX_MAX: usize = 58;
    let random = uuid::Uuid::new_v4();
    // The last bytes of a version 4 UUID are random.
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    let suffix: String = random.as_bytes()[11..].iter().map(letter).collect();
    let kept: String = prefix.chars().take(PREFIX_MAX).collect();
    format!("{kept}{suffix}")
}

/// Puts the type first and `metadata` after it: lists cut the type off by its text.
fn order_fields(value: &mut Value, call: &Call) {
    let Value::Object(map) = value else { return };
    let mut ordered = serde_json::Map::with_capacity(map.len() + 2);
    let resource = &call.resource;
    let version = if resource.group == events::GROUP {
        "v1".to_owned()
    } else {
        resource.api_version()
    };
    ordered.insert("kind".to_owned(), json!(resource.kind));
    ordered.insert("apiVersion".to_owned(), json!(version));
    ordered.insert(
        "metadata".to_owned(),
        map.remove("metadata").unwrap_or_default(),
    );
    for (field, inner) in std::mem::take(map) {
        if !matches!(field.as_str(), "kind" | "apiVersion") {
            ordered.insert(field, inner);
        }
    }
    *map = ordered;
}

#[cfg(test)]
mod tests {
    use super::generated_name;

    #[test]
    fn generated_names_keep_the_prefix_and_fit_a_label() {
        assert_eq!(generated_name("web-").len(), 9);
        assert!(generated_name("web-").starts_with("web-"));
        assert_eq!(generated_name(&"x".repeat(80)).len(), 63);
        assert_ne!(generated_name("a"), generated_name("a"));
    }
}
