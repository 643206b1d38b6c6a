//! Tables: what `kubectl get` shows of objects.

use serde_json::{Value, json};

use super::api::View;
use super::columns::{self, Column};
use super::crd::PrinterColumn;
use super::events;
use super::json_path;
use super::object::{Object, at, str_at};

/// A table of objects.
pub(crate) fn of_objects<'a>(
    view: &View,
    objects: impl IntoIterator<Item = &'a Object>,
    with_headers: bool,
) -> Value {
    let layout = Layout::of(view);
    let rows: Vec<Value> = objects
        .into_iter()
        .map(
            |object| json!({ "cells": layout.cells(&object.value), "object": shown(view, object) }),
        )
        .collect();
    let headers = if with_headers {
        layout.headers()
    } else {
        Vec::new()
    };
    let last = rows.len() == 1;
    let version = rows.first().filter(|_| last);
    let version = version.and_then(|row| row.pointer("/object/metadata/resourceVersion"));
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "resourceVersion": version.cloned().unwrap_or_else(|| json!("")) },
        "columnDefinitions": headers, "rows": rows,
    })
}

/// The object that goes along with a row.
fn shown(view: &View, object: &Object) -> Value {
    match view.include_object.as_str() {
        "None" => Value::Null,
        "Object" if view.resource.group == events::GROUP => events::from_core(&object.value),
        "Object" => object.value.clone(),
        _ => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": object.value.get("metadata"),
        }),
    }
}

enum Layout<'a> {
    Builtin(&'static [Column]),
    Custom(&'a [PrinterColumn]),
}

impl<'a> Layout<'a> {
    fn of(view: &'a View) -> Self {
        match &view.resource.custom {
            Some(custom) => Self::Custom(&custom.printer_columns),
            None => Self::Builtin(columns::of(&view.resource.plural)),
        }
    }

    fn headers(&self) -> Vec<Value> {
        let name = header(
            "Name",
            "string",
            "name",
            0,
            "Name must be unique within a namespace.",
        );
        let mut headers = vec![name];
        match self {
            Self::Builtin(columns) => {
                headers.extend(columns.iter().map(|column| {
                    header(column.name, column.kind, "", column.priority, column.name)
                }));
            }
            Self::Custom([]) => headers.push(header("Age", "date", "", 0, "Time of creation.")),
            Self::Custom(columns) => {
                headers.extend(columns.iter().map(|column| {
                    let PrinterColumn {
                        name,
                        kind,
                        format,
                        description,
                        priority,
                        ..
                    } = column;
                    header(name, kind, format, *priority, description)
                }));
            }
        }
        headers
    }

    fn cells(&self, value: &Value) -> Vec<Value> {
        let mut cells = vec![json!(str_at(value, &["metadata", "name"]))];
        match self {
            Self::Builtin(columns) => {
                cells.extend(columns.iter().map(|column| (column.cell)(value)));
            }
            Self::Custom([]) => cells.push(json!(columns::age(value))),
            Self::Custom(columns) => {
                cells.extend(columns.iter().map(|column| custom_cell(column, value)));
            }
        }
        cells
    }
}

fn header(name: &str, kind: &str, format: &str, priority: i64, description: &str) -> Value {
    json!({
        "name": name, "type": kind, "format": format, "priority": priority,
        "description": description,
    })
}

fn custom_cell(column: &PrinterColumn, value: &Value) -> Value {
    let Some(found) = json_path::first(value, &column.json_path) else {
        return Value::Null;
    };
    match column.kind.as_str() {
        "date" => {
            let text = found.as_str().map(columns::since);
            json!(text.unwrap_or_else(|| "<unknown>".to_owned()))
        }
        "string" => match found {
            Value::String(_) => found.clone(),
            other => json!(other.to_string()),
        },
        _ => found.clone(),
    }
}

/// Whether an object has a time of creation.
pub(crate) fn created(value: &Value) -> Option<&str> {
    at(value, &["metadata", "creationTimestamp"]).and_then(Value::as_str)
}
