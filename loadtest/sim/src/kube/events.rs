//! Events are stored in the form of the core group; `events.k8s.io` shows the same objects under
//! other field names.

use serde_json::{Map, Value, json};

/// The group with the other form.
pub(crate) const GROUP: &str = "events.k8s.io";

/// Field of the core form, field of the other form.
const FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// The stored field that a field selector of `group` means.
pub(crate) fn stored_field(group: &str, field: &str) -> String {
    if group != GROUP {
        return field.to_owned();
    }
    let (head, rest) = field.split_once('.').unwrap_or((field, ""));
    match FIELDS.iter().find(|(_, other)| *other == head) {
        Some((core, _)) if rest.is_empty() => (*core).to_owned(),
        Some((core, _)) => format!("{core}.{rest}"),
        None => field.to_owned(),
    }
}

fn renamed(event: &Value, version: &str, name: impl Fn(&str) -> String) -> Value {
    let mut out = Map::new();
    out.insert("kind".to_owned(), json!("Event"));
    out.insert("apiVersion".to_owned(), json!(version));
    for (field, value) in event.as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "kind" | "apiVersion") {
            out.insert(name(field), value.clone());
        }
    }
    Value::Object(out)
}

/// The form of `events.k8s.io/v1`.
pub(crate) fn from_core(event: &Value) -> Value {
    renamed(event, "events.k8s.io/v1", |field| {
        let found = FIELDS.iter().find(|(core, _)| *core == field);
        found.map_or(field, |(_, other)| other).to_owned()
    })
}

/// The form of the core group.
pub(crate) fn to_core(event: &Value) -> Value {
    renamed(event, "v1", |field| {
        let found = FIELDS.iter().find(|(_, other)| *other == field);
        found.map_or(field, |(core, _)| core).to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_hold_the_same_facts() {
        let core = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": { "name": "e" }, "reason": "Launched",
            "involvedObject": { "kind": "Node", "name": "n" }, "message": "m", "count": 2,
        });
        let other = from_core(&core);
        assert_eq!(other["regarding"]["name"], "n");
        assert_eq!(
            (&other["note"], &other["deprecatedCount"]),
            (&json!("m"), &json!(2))
        );
        assert_eq!(to_core(&other), core);
        assert_eq!(stored_field(GROUP, "regarding.name"), "involvedObject.name");
    }
}
