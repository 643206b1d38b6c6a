//! Validation of objects against compiled schemas, with the messages of the real server where
//! clients are known to read them.

use serde_json::Value;

use super::schema::{Limits, ListKind, NodeId, Schema, Type, join};

/// One finding: (reason, message, field).
pub(crate) type Cause = (String, String, String);

pub(crate) fn cause(reason: &str, message: String, field: &str) -> Cause {
    (reason.to_owned(), message, field.to_owned())
}

/// A cause for a field with a wrong value.
pub(crate) fn invalid_value(field: &str, value: &Value, why: &str) -> Cause {
    cause(
        "FieldValueInvalid",
        format!("Invalid value: {}: {why}", shown(value)),
        field,
    )
}

/// A cause for a field that must be present.
pub(crate) fn required_value(field: &str, why: &str) -> Cause {
    let message = if why.is_empty() {
        "Required value".to_owned()
    } else {
        format!("Required value: {why}")
    };
    cause("FieldValueRequired", message, field)
}

/// A cause for a field that may not be set or changed.
pub(crate) fn forbidden_value(field: &str, why: &str) -> Cause {
    cause("FieldValueForbidden", format!("Forbidden: {why}"), field)
}

fn shown(value: &Value) -> String {
    match value {
        // The real one prints composite values as Go structures; nobody reads those.
        Value::Object(_) => "\"object\"".to_owned(),
        Value::Array(_) => "\"array\"".to_owned(),
        other => other.to_string(),
    }
}

/// Validates `value`; `old` is the stored version, for transition rules.
pub(crate) fn validate(schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, schema.root(), value, old, "", &mut causes);
    causes
}

/// Why a value cannot be held by a built-in type at all.
pub(crate) fn type_error(schema: &Schema, value: &Value) -> Option<String> {
    let causes = validate(schema, value, None);
    let (_, message, field) = causes.into_iter().find(|(reason, ..)| {
        matches!(
            reason.as_str(),
            "FieldValueTypeInvalid" | "FieldValueInvalid"
        )
    })?;
    Some(format!("json: cannot unmarshal {field}: {message}"))
}

/// Fields that a built-in type needs. Of the status and of lists none is: the real server decodes
/// an absent one as empty, and looks closer only where it says so.
pub(crate) fn missing_fields(schema: &Schema, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (field, inner) in value.as_object().into_iter().flatten() {
        if let Some(child) = schema
            .property(schema.root(), field)
            .filter(|_| field != "status")
        {
            missing(schema, child, inner, field, &mut causes);
        }
    }
    for field in schema
        .node(schema.root())
        .limits
        .required
        .iter()
        .filter(|it| *it != "metadata")
    {
        if value.get(field).is_none() {
            causes.push(required_value(field, ""));
        }
    }
    causes
}

fn missing(schema: &Schema, id: NodeId, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let node = schema.node(id);
    match value {
        Value::Object(map) => {
            for field in node
                .limits
                .required
                .iter()
                .filter(|field| !map.contains_key(*field))
            {
                let child = schema.property(id, field);
                if child.is_none_or(|child| schema.node(child).kind != Type::Array) {
                    causes.push(required_value(&join(path, field), ""));
                }
            }
            for (field, inner) in map {
                if let Some(child) = schema.property(id, field) {
                    missing(schema, child, inner, &join(path, field), causes);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Some(child) = node.items {
                    missing(schema, child, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn walk(
    schema: &Schema,
    id: NodeId,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let node = schema.node(id);
    if value.is_null() && (node.nullable || node.kind == Type::Any || schema.is_builtin()) {
        return;
    }
    if !node.kind.admits(value) {
        let name = node.kind.name();
        let found = match value {
            Value::Object(_) => "object".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Bool(_) => "boolean".to_owned(),
            Value::Number(number) if number.is_f64() => "number".to_owned(),
            Value::Number(_) => "integer".to_owned(),
            Value::Null => "null".to_owned(),
        };
        let message = format!(
            "Invalid value: \"{found}\": {path} in body must be of type {name}: \"{found}\""
        );
        causes.push(cause("FieldValueTypeInvalid", message, path));
        return;
    }
    check_limits(schema, &node.limits, value, path, causes);
    match value {
        Value::Object(map) => {
            for (field, inner) in map {
                let Some(child) = schema.property(id, field) else {
                    continue;
                };
                let old = old.and_then(|old| old.get(field));
                walk(schema, child, inner, old, &join(path, field), causes);
            }
        }
        Value::Array(items) => {
            check_keys(&node.list, items, path, causes);
            for (index, item) in items.iter().enumerate() {
                let Some(child) = node.items else { break };
                let old = old.and_then(|old| correlated(&node.list, old, item));
                walk(
                    schema,
                    child,
                    item,
                    old,
                    &format!("{path}[{index}]"),
                    causes,
                );
            }
        }
        _ => {}
    }
    for rule in &node.limits.rules {
        if let Some(violation) = rule.violation(value, old) {
            let field = format!("{path}{}", violation.field_path);
            let message = if violation.reason == "FieldValueRequired" {
                format!("Required value: {}", violation.message)
            } else if violation.reason == "FieldValueForbidden" {
                format!("Forbidden: {}", violation.message)
            } else {
                format!("Invalid value: {}: {}", shown(value), violation.message)
            };
            causes.push((violation.reason, message, field));
        }
    }
}

/// The old element with the same keys: only map lists say which belong together.
fn correlated<'a>(list: &ListKind, old: &'a Value, item: &Value) -> Option<&'a Value> {
    let ListKind::Map(keys) = list else {
        return None;
    };
    let same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
    old.as_array()?.iter().find(same)
}

fn check_keys(list: &ListKind, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let same = |a: &Value, b: &Value| match list {
        ListKind::Atomic => false,
        ListKind::Set => a == b,
        ListKind::Map(keys) => keys.iter().all(|key| a.get(key) == b.get(key)),
    };
    for (index, item) in items.iter().enumerate() {
        if items[..index].iter().any(|earlier| same(earlier, item)) {
            let value = match list {
                ListKind::Map(keys) => {
                    let pairs = keys
                        .iter()
                        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                    Value::Object(pairs.collect()).to_string()
                }
                _ => item.to_string(),
            };
            let field = format!("{path}[{index}]");
            causes.push(cause(
                "FieldValueDuplicate",
                format!("Duplicate value: {value}"),
                &field,
            ));
        }
    }
}

fn check_limits(
    schema: &Schema,
    limits: &Limits,
    value: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    check_sizes(limits, value, path, causes);
    let mut push =
        |why: String| causes.push(invalid_value(path, value, &format!("{path} in body {why}")));
    if let Some(text) = value.as_str() {
        if let Some(pattern) = limits
            .pattern
            .as_ref()
            .filter(|pattern| !pattern.is_match(text))
        {
            push(format!("should match '{}'", pattern.as_str()));
        }
        if limits.format == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
            push(format!("must be of type date-time: {text:?}"));
        }
    }
    if let Some(number) = value.as_f64() {
        check_number(limits, number, &mut push);
    }
    if !limits.enumeration.is_empty() && !limits.enumeration.contains(value) {
        let supported: Vec<String> = limits.enumeration.iter().map(Value::to_string).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown(value),
            supported.join(", ")
        );
        causes.push(cause("FieldValueNotSupported", message, path));
    }
    if let Value::Object(map) = value {
        for field in limits
            .required
            .iter()
            .filter(|field| !map.contains_key(*field))
        {
            causes.push(required_value(&join(path, field), ""));
        }
    }
    check_junctors(schema, limits, value, path, causes);
}

/// Bounds of how much a string, list or map holds.
fn check_sizes(limits: &Limits, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (bounds, found, unit) = match value {
        Value::String(text) => (limits.length, text.chars().count(), "chars long"),
        Value::Array(items) => (limits.items, items.len(), "items"),
        Value::Object(map) => (limits.properties, map.len(), "properties"),
        _ => return,
    };
    let count = u64::try_from(found).unwrap_or(u64::MAX);
    if let Some(minimum) = bounds.0.filter(|minimum| count < *minimum) {
        let why = format!("{path} in body should have at least {minimum} {unit}");
        causes.push(invalid_value(path, value, &why));
    }
    let Some(maximum) = bounds.1.filter(|maximum| count > *maximum) else {
        return;
    };
    causes.push(if value.is_string() {
        let message = format!("Too long: may not be more than {maximum} bytes");
        cause("FieldValueTooLong", message, path)
    } else {
        let message = format!("Too many: {count}: must have at most {maximum} items");
        cause("FieldValueTooMany", message, path)
    });
}

fn check_number(limits: &Limits, number: f64, push: &mut impl FnMut(String)) {
    if let Some((bound, exclusive)) = limits.minimum
        && (number < bound || (exclusive && number <= bound))
    {
        let than = if exclusive {
            "greater than"
        } else {
            "greater than or equal to"
        };
        push(format!("should be {than} {bound}"));
    }
    if let Some((bound, exclusive)) = limits.maximum
        && (number > bound || (exclusive && number >= bound))
    {
        let than = if exclusive {
            "less than"
        } else {
            "less than or equal to"
        };
        push(format!("should be {than} {bound}"));
    }
    if let Some(divisor) = limits
        .multiple_of
        .filter(|divisor| (number / divisor).fract().abs() > 1e-9)
    {
        push(format!("should be a multiple of {divisor}"));
    }
    let in_i32 = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    if limits.format == "int32" && !in_i32 {
        push("must be of type int32".to_owned());
    }
}

fn check_junctors(
    schema: &Schema,
    limits: &Limits,
    value: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let holds = |id: &NodeId| {
        let mut inner = Vec::new();
        walk(schema, *id, value, None, path, &mut inner);
        inner.is_empty()
    };
    for id in &limits.all_of {
        walk(schema, *id, value, None, path, causes);
    }
    if !limits.any_of.is_empty() && !limits.any_of.iter().any(holds) {
        let why = format!("{path} in body must validate at least one schema (anyOf)");
        causes.push(invalid_value(path, value, &why));
    }
    if !limits.one_of.is_empty() && limits.one_of.iter().filter(|id| holds(id)).count() != 1 {
        let why = format!("{path} in body must validate one and only one schema (oneOf)");
        causes.push(invalid_value(path, value, &why));
    }
    if limits.not.as_ref().is_some_and(holds) {
        let why = format!("{path} in body must not validate the schema (not)");
        causes.push(invalid_value(path, value, &why));
    }
}
