//! Whatever a schema admits, its type reads and writes again: nothing is lost but emptiness,
//! nothing is added but defaults.
//!
//! The objects are generated from the definitions themselves, so a field that a type lacks, or
//! spells differently, is found without anybody thinking of it.

use std::collections::BTreeMap;
use std::fmt::Debug;

use kube::Resource;
use millwright_api::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool, crds};
use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::TestRunner;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The schema of a kind, as JSON.
fn schema_of<K: Resource<DynamicType = ()>>() -> Value {
    let crd = crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == K::kind(&()) && crd.spec.group == K::group(&()))
        .expect("a definition of the kind");
    let crd = serde_json::to_value(crd).expect("a definition is plain data");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Values that a schema admits; its CEL rules and the bounds of its lists do not matter here.
fn values(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(choices) = schema["enum"].as_array() {
        return proptest::sample::select(choices.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        // Numbers are written as texts, which is tested on its own.
        return prop_oneof![Just("7"), Just("100m"), Just("1.5Gi")]
            .prop_map(Value::from)
            .boxed();
    }
    match schema["type"].as_str() {
        Some("string") => texts(schema),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => numbers(schema),
        Some("array") => proptest::collection::vec(values(&schema["items"]), 0..3)
            .prop_map(Value::from)
            .boxed(),
        Some("object") => objects(schema),
        other => panic!("a type that the generator does not know: {other:?}"),
    }
}

fn texts(schema: &Value) -> BoxedStrategy<Value> {
    if schema["format"] == "date-time" {
        let times = vec!["2026-01-02T03:04:05Z", "1999-12-31T23:59:59Z"];
        return proptest::sample::select(times)
            .prop_map(Value::from)
            .boxed();
    }
    // The generator of texts knows no anchors; all our patterns have them only at the ends.
    let pattern = schema["pattern"].as_str().unwrap_or("^.{1,12}$");
    let pattern = pattern.trim_start_matches('^').trim_end_matches('$');
    proptest::string::string_regex(pattern)
        .expect("a pattern that texts can be generated from")
        .prop_map(Value::from)
        .boxed()
}

fn numbers(schema: &Value) -> BoxedStrategy<Value> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "bounds are small whole numbers"
    )]
    let bound = |keyword: &str, else_: i64| schema[keyword].as_f64().map_or(else_, |f| f as i64);
    let widest = if schema["format"] == "int32" {
        i64::from(i32::MAX)
    } else {
        i64::MAX
    };
    (bound("minimum", -widest)..=bound("maximum", widest))
        .prop_map(Value::from)
        .boxed()
}

fn objects(schema: &Value) -> BoxedStrategy<Value> {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        let odd = vec![
            json!({}),
            json!({"a": {"b": [1, null, "x"]}, "c": 1.5}),
            json!({"z": ""}),
        ];
        return proptest::sample::select(odd).boxed();
    }
    let Some(properties) = schema["properties"].as_object() else {
        return match &schema["additionalProperties"] {
            Value::Null => Just(json!({"name": "any"})).boxed(),
            entries => proptest::collection::btree_map("[a-z./]{1,8}", values(entries), 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
                .boxed(),
        };
    };
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut fields: BoxedStrategy<Map<String, Value>> = Just(Map::new()).boxed();
    for (name, property) in properties {
        let present = values(property).prop_map(Some).boxed();
        let is_required = required.contains(&name.as_str()) && property["default"].is_null();
        let value = if is_required {
            present
        } else {
            Union::new_weighted(vec![(1, Just(None).boxed()), (2, present)]).boxed()
        };
        let name = name.clone();
        fields = (fields, value)
            .prop_map(move |(mut fields, value)| {
                if let Some(value) = value {
                    fields.insert(name.clone(), value);
                }
                fields
            })
            .boxed();
    }
    fields.prop_map(Value::Object).boxed()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(elements) => elements.is_empty(),
        Value::Object(entries) => entries.values().all(is_empty),
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Null | Value::Number(_) => false,
    }
}

/// Where `written` lacks something of `read`, or has something that is no default.
fn differences(path: &str, schema: &Value, read: &Value, written: &Value) -> Vec<String> {
    if read == written {
        return Vec::new();
    }
    match (read, written) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let items = &schema["items"];
            a.iter()
                .zip(b)
                .flat_map(|(a, b)| differences(path, items, a, b))
                .collect()
        }
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeMap<&String, ()> = a.keys().chain(b.keys()).map(|k| (k, ())).collect();
            names
                .keys()
                .flat_map(|name| {
                    let path = format!("{path}.{name}");
                    let below = &schema["properties"][name.as_str()];
                    match (a.get(*name), b.get(*name)) {
                        (Some(a), Some(b)) => differences(&path, below, a, b),
                        (Some(a), None) if is_empty(a) => Vec::new(),
                        (Some(a), None) => vec![format!("{path} = {a} was lost")],
                        // The default itself may lack what nested defaults fill in.
                        (None, Some(b)) if !below["default"].is_null() => {
                            differences(&path, below, &below["default"], b)
                        }
                        // Old conditions without reason or message are written with empty ones, as
                        // Karpenter writes them.
                        (None, Some(b))
                            if is_empty(b) && path.starts_with(".status.conditions") =>
                        {
                            Vec::new()
                        }
                        (None, Some(b)) => vec![format!("{path} = {b} was added")],
                        (None, None) => Vec::new(),
                    }
                })
                .collect()
        }
        _ => vec![format!("{path}: {read} became {written}")],
    }
}

/// Checks one kind. A failure prints the smallest object that fails.
fn check<K>()
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + PartialEq + Debug,
{
    let schema = schema_of::<K>();
    let header = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": "any"},
    });
    let config = ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..Default::default()
    };
    let result = TestRunner::new(config).run(&values(&schema), |mut object| {
        for (name, value) in header.as_object().into_iter().flatten() {
            object[name] = value.clone();
        }
        let typed: K = serde_json::from_value(object.clone())
            .map_err(|error| TestCaseError::fail(format!("cannot be read: {error}")))?;
        let written = serde_json::to_value(&typed)
            .map_err(|error| TestCaseError::fail(format!("cannot be written: {error}")))?;
        let found = differences("", &schema, &object, &written);
        prop_assert!(found.is_empty(), "{}", found.join("\n"));
        let again: K = serde_json::from_value(written)
            .map_err(|error| TestCaseError::fail(format!("cannot be read again: {error}")))?;
        prop_assert_eq!(again, typed);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{}: {failure}", K::kind(&()));
    }
}

#[test]
fn a_node_pool_is_read_and_written_without_loss() {
    check::<NodePool>();
}

#[test]
fn a_node_claim_is_read_and_written_without_loss() {
    check::<NodeClaim>();
}

#[test]
fn a_node_overlay_is_read_and_written_without_loss() {
    check::<NodeOverlay>();
}

#[test]
fn a_capacity_buffer_is_read_and_written_without_loss() {
    check::<CapacityBuffer>();
}

#[test]
fn an_ec2_node_class_is_read_and_written_without_loss() {
    check::<Ec2NodeClass>();
}

#[test]
fn the_comparison_notices_loss_addition_and_change() {
    let schema = schema_of::<NodePool>();
    let read = json!({"spec": {"weight": 7, "limits": {}}});
    let found = |written: Value| differences("", &schema, &read, &written);
    assert!(found(json!({"spec": {"weight": 7}})).is_empty());
    assert_eq!(found(json!({"spec": {}})), [".spec.weight = 7 was lost"]);
    assert_eq!(
        found(json!({"spec": {"weight": 8}})),
        [".spec.weight: 7 became 8"]
    );
    let more = json!({"spec": {"weight": 7, "replicas": 0}});
    assert_eq!(found(more), [".spec.replicas = 0 was added"]);
    let wrong = json!({"spec": {"weight": 7, "disruption": {"consolidateAfter": "1s"}}});
    assert_eq!(
        found(wrong),
        [".spec.disruption.consolidateAfter: \"0s\" became \"1s\""]
    );
}
