//! Writing a status only when it says something new.

use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    cluster::Watched,
    write::{Target, Write},
};

/// A merge patch that makes these fields of the status so; `None` when they are so already. Fields that
/// somebody else keeps are left alone, so name every field of ours, also those that are zero.
pub(super) fn report<K: Watched>(
    object: &K,
    current: Option<&impl Serialize>,
    wanted: &Value,
) -> Option<Write> {
    let current = serde_json::to_value(current).unwrap_or_default();
    let fields = wanted.as_object()?;
    let changed: Map<String, Value> = fields
        .iter()
        .filter(|(field, value)| !is_same(current.get(field.as_str()), value))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let write = || Write::Status(Target::of(object), json!({"status": changed}));
    (!changed.is_empty()).then(write)
}

/// The same, but refused by the API server when somebody has changed the object meanwhile.
pub(super) fn report_exclusively<K: Watched>(
    object: &K,
    current: Option<&impl Serialize>,
    wanted: &Value,
) -> Option<Write> {
    let mut write = report(object, current, wanted)?;
    if let Write::Status(_, body) = &mut write
        && let Some(body) = body.as_object_mut()
    {
        let version = object.resource_version();
        body.insert("metadata".to_owned(), json!({"resourceVersion": version}));
    }
    Some(write)
}

/// The API leaves out zeros and what is empty.
fn is_same(current: Option<&Value>, wanted: &Value) -> bool {
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Array(array) => array.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) => false,
    };
    match current {
        None => is_nothing(wanted),
        Some(current) => current == wanted || is_nothing(current) && is_nothing(wanted),
    }
}

/// A condition with the time of its last transition: kept while the status stays what it was.
pub(super) fn condition(
    current: &Value,
    (kind, status): (&str, bool),
    (reason, message): (&str, &str),
    now: &str,
) -> Value {
    let status = if status { "True" } else { "False" };
    let known = current.as_array().into_iter().flatten();
    let known = known.clone().find(|known| known["type"] == kind);
    if let Some(known) = known
        && known["status"] == status
        && known["reason"] == reason
        && known["message"] == message
    {
        return known.clone();
    }
    let since = known.filter(|known| known["status"] == status);
    let since = since.and_then(|known| known["lastTransitionTime"].as_str());
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or(now),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;

    use super::*;

    #[test]
    fn only_changed_fields_are_written_and_zero_is_nothing() {
        let set = ReplicaSet::default();
        let current = json!({"replicas": 3, "readyReplicas": 2, "other": "kept"});
        let check = |wanted: Value, expected: Option<Value>| {
            let body = report(&set, Some(&current), &wanted).map(|write| match write {
                Write::Status(_, body) => body,
                other => panic!("{other:?}"),
            });
            assert_eq!(body, expected.map(|status| json!({"status": status})));
        };
        check(
            json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 0}),
            None,
        );
        check(
            json!({"replicas": 3, "readyReplicas": 0}),
            Some(json!({"readyReplicas": 0})),
        );
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let first = condition(&Value::Null, ("Available", true), ("A", "a"), "t1");
        assert_eq!(first["lastTransitionTime"], "t1");
        let known = json!([first]);
        let reworded = condition(&known, ("Available", true), ("B", "b"), "t2");
        assert_eq!(
            (&reworded["reason"], &reworded["lastTransitionTime"]),
            (&json!("B"), &json!("t1"))
        );
        let turned = condition(&known, ("Available", false), ("A", "a"), "t2");
        assert_eq!(turned["lastTransitionTime"], "t2");
    }
}
