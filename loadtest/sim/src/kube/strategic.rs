//! Strategic merge patches of built-in types: lists with a merge key merge element by element,
//! and the `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and `$setElementOrder`
//! directives are obeyed.

use serde_json::{Map, Value};

use super::schema::{NodeId, Schema};

/// Applies `patch` to `target`.
///
/// # Errors
/// What is wrong with the patch.
pub(crate) fn apply(schema: &Schema, target: &mut Value, patch: &Value) -> Result<(), String> {
    merge(schema, Some(schema.root()), target, patch)
}

fn merge(
    schema: &Schema,
    node: Option<NodeId>,
    target: &mut Value,
    patch: &Value,
) -> Result<(), String> {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match fields.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(without_directives(fields));
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("unknown patch type found: {other}")),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let map = target.as_object_mut().ok_or("target is not an object")?;
    if let Some(keys) = fields.get("$retainKeys").and_then(Value::as_array) {
        map.retain(|field, _| keys.iter().any(|key| key.as_str() == Some(field)));
    }
    for (field, values) in fields {
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            let doomed = values.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(Value::Array(items)) = map.get_mut(list) {
                items.retain(|item| !doomed.contains(item));
            }
        }
    }
    for (field, value) in fields.iter().filter(|(field, _)| !field.starts_with('$')) {
        if value.is_null() {
            map.shift_remove(field);
            continue;
        }
        let child = node.and_then(|node| schema.property(node, field));
        match value {
            Value::Object(_) => {
                let slot = map.entry(field.as_str()).or_insert(Value::Null);
                merge(schema, child, slot, value)?;
            }
            Value::Array(items) => {
                let slot = map
                    .entry(field.as_str())
                    .or_insert_with(|| Value::Array(Vec::new()));
                merge_list(schema, child, slot, items)?;
            }
            other => {
                map.insert(field.clone(), other.clone());
            }
        }
    }
    reorder_lists(schema, node, map, fields);
    Ok(())
}

fn without_directives(fields: &Map<String, Value>) -> Map<String, Value> {
    let plain = fields.iter().filter(|(field, _)| !field.starts_with('$'));
    plain
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

fn merge_list(
    schema: &Schema,
    node: Option<NodeId>,
    target: &mut Value,
    patch: &[Value],
) -> Result<(), String> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let items = target.as_array_mut().ok_or("target is not a list")?;
    let (key, merges, element) = node.map_or((None, false, None), |id| {
        let node = schema.node(id);
        let merges = node.patch_strategy.split(',').any(|word| word == "merge");
        (node.patch_merge_key.as_deref(), merges, node.items)
    });
    let replace = |item: &Value| item.get("$patch").and_then(Value::as_str) == Some("replace");
    if !merges || patch.iter().any(replace) {
        let plain = patch.iter().filter(|item| item.get("$patch").is_none());
        *items = plain.cloned().collect();
        return Ok(());
    }
    let Some(key) = key else {
        // A set of plain values, such as finalizers.
        for item in patch {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
        return Ok(());
    };
    for item in patch {
        let id = item
            .get(key)
            .ok_or_else(|| format!("map: {item} does not contain declared merge key: {key}"))?;
        let found = items
            .iter()
            .position(|existing| existing.get(key) == Some(id));
        match (item.get("$patch").and_then(Value::as_str), found) {
            (Some("delete"), Some(index)) => {
                items.remove(index);
            }
            (Some("delete"), None) => {}
            (_, Some(index)) => merge(schema, element, &mut items[index], item)?,
            (_, None) => {
                let mut fresh = Value::Object(Map::new());
                merge(schema, element, &mut fresh, item)?;
                items.push(fresh);
            }
        }
    }
    Ok(())
}

/// Obeys `$setElementOrder/LIST`: named elements come in that order, others keep their place
/// after them.
fn reorder_lists(
    schema: &Schema,
    node: Option<NodeId>,
    map: &mut Map<String, Value>,
    fields: &Map<String, Value>,
) {
    for (field, order) in fields {
        let Some(list) = field.strip_prefix("$setElementOrder/") else {
            continue;
        };
        let Some(order) = order.as_array() else {
            continue;
        };
        let child = node.and_then(|node| schema.property(node, list));
        let key = child.and_then(|child| schema.node(child).patch_merge_key.as_deref());
        let Some(Value::Array(items)) = map.get_mut(list) else {
            continue;
        };
        let identity = |item: &Value| match key {
            Some(key) => item.get(key).cloned().unwrap_or(Value::Null),
            None => item.clone(),
        };
        let wanted: Vec<Value> = order.iter().map(identity).collect();
        items.sort_by_key(|item| {
            let id = identity(item);
            wanted
                .iter()
                .position(|other| *other == id)
                .unwrap_or(usize::MAX)
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::builtin;

    #[track_caller]
    fn check(before: &Value, patch: &Value, after: &Value) {
        let row = builtin::ROWS.iter().find(|row| row.kind == "Pod").unwrap();
        let schema = builtin::compiled_schema(row.make_schema);
        let mut pod = json!({ "spec": before });
        apply(&schema, &mut pod, &json!({ "spec": patch })).unwrap();
        assert_eq!(pod["spec"], *after);
    }

    #[test]
    fn containers_merge_by_name() {
        check(
            &json!({ "containers": [{ "name": "a", "image": "1", "tty": true }, { "name": "b" }] }),
            &json!({ "containers": [{ "name": "c" }, { "name": "a", "image": "2" }] }),
            &json!({ "containers": [{ "name": "a", "image": "2", "tty": true }, { "name": "b" }, { "name": "c" }] }),
        );
    }

    #[test]
    fn directives_delete_and_replace() {
        check(
            &json!({ "containers": [{ "name": "a" }, { "name": "b" }], "nodeSelector": { "x": "1" } }),
            &json!({ "containers": [{ "name": "a", "$patch": "delete" }], "nodeSelector": { "$patch": "replace", "y": "2" } }),
            &json!({ "containers": [{ "name": "b" }], "nodeSelector": { "y": "2" } }),
        );
    }

    #[test]
    fn lists_without_merge_key_are_replaced_and_nulls_remove() {
        check(
            &json!({ "tolerations": [{ "key": "a" }], "hostname": "h" }),
            &json!({ "tolerations": [{ "key": "b" }], "hostname": null }),
            &json!({ "tolerations": [{ "key": "b" }] }),
        );
    }

    #[test]
    fn the_element_order_a_client_states_is_kept() {
        check(
            &json!({ "containers": [{ "name": "a" }, { "name": "b" }] }),
            &json!({ "$setElementOrder/containers": [{ "name": "c" }, { "name": "b" }, { "name": "a" }], "containers": [{ "name": "c" }] }),
            &json!({ "containers": [{ "name": "c" }, { "name": "b" }, { "name": "a" }] }),
        );
    }
}
