//! Which constraints of a schema no refusal stands for.
//!
//! The rows of the tables are written from the specification; this is the check in the other
//! direction: nothing is in a schema that no row has run into.

use std::collections::BTreeSet;

use serde_json::Value;

use super::definitions_of_the_chart;
use super::table::Refusal;

/// The constraints of a definition that are not among the refusals.
pub(super) fn untested(definition: &str, refusals: &BTreeSet<Refusal>) -> Vec<String> {
    let crd = definitions_of_the_chart()
        .expect("the chart's definitions")
        .into_iter()
        .find(|crd| crd.metadata.name.as_deref() == Some(definition))
        .expect("a definition of the chart");
    let crd = serde_json::to_value(crd).expect("a definition is plain data");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut constraints = Vec::new();
    collect("", schema, &mut constraints);
    assert!(constraints.len() > 10, "{definition} has constraints");
    constraints
        .into_iter()
        .filter(|constraint| !refusals.iter().any(|refusal| constraint.explains(refusal)))
        .map(|constraint| format!("{} at {}", constraint.words.join(" / "), constraint.path))
        .collect()
}

struct Constraint {
    /// As refusals name it; `{}` for any key of a map.
    path: String,
    /// Any of these is in the refusal's message.
    words: Vec<String>,
}

impl Constraint {
    fn explains(&self, refusal: &Refusal) -> bool {
        let is_here = match self.path.split_once("{}") {
            None => refusal.field == self.path,
            Some((map, _)) => refusal
                .field
                .strip_prefix(map)
                .is_some_and(|key| key.starts_with(['.', '['])),
        };
        is_here
            && self
                .words
                .iter()
                .any(|words| refusal.message.contains(words))
    }
}

fn collect(path: &str, schema: &Value, constraints: &mut Vec<Constraint>) {
    let mut add = |path: &str, words: &[&str]| {
        let words = words.iter().map(ToString::to_string).collect();
        constraints.push(Constraint {
            path: path.to_owned(),
            words,
        });
    };
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        add(
            path,
            &[rule["message"].as_str().expect("every rule has a message")],
        );
    }
    for (keyword, words) in [
        ("pattern", &["should match"][..]),
        ("enum", &["Unsupported value"]),
        ("minimum", &["should be greater than or equal to"]),
        ("maximum", &["should be less than or equal to"]),
        ("minLength", &["should be at least"]),
        ("maxLength", &["may not be more than", "Too long"]),
        ("minItems", &["should have at least"]),
        ("maxItems", &["must have at most"]),
        ("maxProperties", &["must have at most"]),
    ] {
        if !schema[keyword].is_null() {
            add(path, words);
        }
    }
    if ["set", "map"]
        .map(Value::from)
        .contains(&schema["x-kubernetes-list-type"])
    {
        add(&format!("{path}[]"), &["Duplicate value"]);
    }
    let properties = schema["properties"].as_object();
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        // What has a default can not be missing.
        if schema["properties"][name]["default"].is_null() {
            add(&joined(path, name), &["Required value"]);
        }
    }
    for (name, property) in properties.into_iter().flatten() {
        collect(&joined(path, name), property, constraints);
    }
    for (keyword, step) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[keyword].is_object() {
            collect(&format!("{path}{step}"), &schema[keyword], constraints);
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
