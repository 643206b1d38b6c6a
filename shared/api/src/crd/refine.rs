//! What derive cannot express: named transformations of a schema.
//!
//! [`Schema::of`] applies those that hold for every kind; [`Schema::at`] reaches one node by path,
//! and [`Node`] has one method per keyword. A path names properties with dots, `[]` goes to the
//! elements of a list, `{}` to the values of a map: `spec.template.metadata.labels{}`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Map, Value, json};

/// Kubernetes' grammar of quantities.
const QUANTITY: &str = concat!(
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)",
    r"([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$"
);

/// The schema of one kind, being refined.
#[derive(Debug)]
pub(super) struct Schema(Value);

impl Schema {
    /// Takes what derive made and brings it into the house style.
    pub(super) fn of(derived: &JSONSchemaProps) -> Self {
        let mut root = serde_json::to_value(derived).expect("a schema is plain data");
        if let Some(root) = root.as_object_mut() {
            // The kind's name once more; no use to anybody.
            root.remove("title");
        }
        walk(&mut root, &mut |node| {
            unwrap_description(node);
            drop_null(node);
            drop_formats_unknown_to_kubernetes(node);
            write_quantities_out(node);
        });
        Self(root)
    }

    /// The node at a path.
    ///
    /// # Panics
    /// When there is none: a rule names a field that the type does not have.
    pub(super) fn at(&mut self, path: &str) -> Node<'_> {
        let mut node = &mut self.0;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let name = step.trim_end_matches(['[', ']', '{', '}']);
            node = child(node, "properties", path)
                .get_mut(name)
                .unwrap_or_else(|| missing(path));
            let mut rest = step.get(name.len()..).unwrap_or_default();
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(2);
                let keyword = if head == "[]" {
                    "items"
                } else {
                    "additionalProperties"
                };
                node = child(node, keyword, path);
                rest = tail;
            }
        }
        Node(node.as_object_mut().unwrap_or_else(|| missing(path)))
    }

    /// The finished schema.
    pub(super) fn into_props(self) -> JSONSchemaProps {
        serde_json::from_value(self.0).expect("refining keeps a schema a schema")
    }
}

fn child<'a>(node: &'a mut Value, keyword: &str, path: &str) -> &'a mut Value {
    node.get_mut(keyword).unwrap_or_else(|| missing(path))
}

fn missing<T>(path: &str) -> T {
    panic!("the schema has no node {path}")
}

/// Calls `change` for every schema below and including `node`.
fn walk(node: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(object) = node.as_object_mut() else {
        return;
    };
    change(object);
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = object.get_mut(keyword) {
            walk(below, change);
        }
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut() {
            walk(property, change);
        }
    }
}

/// Comments are wrapped where the source is; `kubectl explain` wraps by itself.
fn unwrap_description(node: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = node.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

/// Derive lets every optional field be null. Karpenter's schemas do not: a null would be stored
/// and would switch the default off.
fn drop_null(node: &mut Map<String, Value>) {
    node.remove("nullable");
    if let Some(values) = node.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
}

/// Formats of Rust's integers mean nothing to an API server.
fn drop_formats_unknown_to_kubernetes(node: &mut Map<String, Value>) {
    let known = ["int32", "int64", "date-time"];
    if node
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| !known.contains(&format))
    {
        node.remove("format");
    }
}

/// A quantity is a number or a text of a certain form.
fn write_quantities_out(node: &mut Map<String, Value>) {
    if node.contains_key("x-kubernetes-int-or-string") {
        node.remove("type");
        node.remove("description");
        node.insert(
            "anyOf".to_owned(),
            json!([{ "type": "integer" }, { "type": "string" }]),
        );
        node.insert("pattern".to_owned(), QUANTITY.into());
    }
}

/// A node of a schema; each method sets one keyword.
#[derive(Debug)]
pub(super) struct Node<'a>(&'a mut Map<String, Value>);

impl Node<'_> {
    fn with(self, keyword: &str, value: impl Into<Value>) -> Self {
        self.0.insert(keyword.to_owned(), value.into());
        self
    }

    /// Adds a CEL rule and the message of its violation.
    pub(super) fn rule(self, message: &str, rule: &str) -> Self {
        let rules = self
            .0
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(json!({ "message": message, "rule": rule }));
        }
        self
    }

    /// Replaces the schema but keeps the description.
    pub(super) fn replace(self, schema: Value) -> Self {
        let description = self.0.remove("description");
        *self.0 = match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        };
        if let Some(description) = description {
            self.0.entry("description").or_insert(description);
        }
        self
    }

    /// What the node is, for people.
    pub(super) fn describe(self, text: &str) -> Self {
        self.with("description", text)
    }

    /// Smallest and largest number.
    pub(super) fn range(self, minimum: i64, maximum: i64) -> Self {
        self.with("minimum", minimum).with("maximum", maximum)
    }

    /// Smallest number.
    pub(super) fn minimum(self, minimum: i64) -> Self {
        self.with("minimum", minimum)
    }

    /// Regular expression that a text must match.
    pub(super) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    /// Texts allowed.
    pub(super) fn one_of(self, values: &[&str]) -> Self {
        self.with("enum", values.to_vec())
    }

    /// Shortest text, in characters.
    pub(super) fn min_length(self, length: u32) -> Self {
        self.with("minLength", length)
    }

    /// Longest text, in characters.
    pub(super) fn max_length(self, length: u32) -> Self {
        self.with("maxLength", length)
    }

    /// Fewest elements.
    pub(super) fn min_items(self, count: u32) -> Self {
        self.with("minItems", count)
    }

    /// Most elements.
    pub(super) fn max_items(self, count: u32) -> Self {
        self.with("maxItems", count)
    }

    /// Most entries.
    pub(super) fn max_properties(self, count: u32) -> Self {
        self.with("maxProperties", count)
    }

    /// Properties that must be there, besides those that must be there already.
    pub(super) fn require(self, names: &[&str]) -> Self {
        let required = self.0.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.extend(names.iter().map(|name| Value::from(*name)));
        }
        self
    }

    /// Value of an absent field.
    pub(super) fn default(self, value: Value) -> Self {
        self.with("default", value)
    }

    /// A list that is owned as a whole.
    pub(super) fn atomic_list(self) -> Self {
        self.with("x-kubernetes-list-type", "atomic")
    }

    /// A list without duplicates.
    pub(super) fn set(self) -> Self {
        self.with("x-kubernetes-list-type", "set")
    }

    /// A map, or an object, that is owned as a whole.
    pub(super) fn atomic_map(self) -> Self {
        self.with("x-kubernetes-map-type", "atomic")
    }

    /// An object whose unknown fields are kept.
    pub(super) fn open(self) -> Self {
        self.0.remove("additionalProperties");
        self.with("x-kubernetes-preserve-unknown-fields", true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let props = serde_json::from_value(json!({
            "type": "object",
            "properties": {
                "list": {"type": "array", "nullable": true, "items": {
                    "type": "object",
                    "properties": {"size": {"x-kubernetes-int-or-string": true, "nullable": true}}
                }},
                "map": {"type": "object", "additionalProperties": {"type": "integer", "format": "uint8"}},
                "choice": {"type": "string", "enum": ["a", null], "nullable": true}
            }
        }))
        .unwrap();
        Schema::of(&props)
    }

    #[test]
    fn null_and_foreign_formats_vanish_everywhere() {
        let text = serde_json::to_string(&schema().into_props()).unwrap();
        assert!(!text.contains("null") && !text.contains("uint8"), "{text}");
    }

    #[test]
    fn quantities_are_numbers_or_texts_of_the_right_form() {
        let mut schema = schema();
        let node = schema.at("list[].size");
        assert_eq!(
            node.0["anyOf"],
            json!([{"type": "integer"}, {"type": "string"}])
        );
        assert_eq!(node.0["pattern"], QUANTITY);
    }

    #[test]
    fn a_path_reaches_properties_elements_and_values() {
        let mut schema = schema();
        schema.at("").rule("m", "r");
        schema.at("map{}").minimum(3);
        schema.at("list[]").require(&["size"]);
        let value = serde_json::to_value(schema.into_props()).unwrap();
        assert_eq!(
            value["properties"]["map"]["additionalProperties"]["minimum"],
            3.0
        );
        assert_eq!(
            value["properties"]["list"]["items"]["required"],
            json!(["size"])
        );
        assert_eq!(
            value["x-kubernetes-validations"],
            json!([{"message": "m", "rule": "r"}])
        );
    }

    #[test]
    #[should_panic(expected = "the schema has no node list[].length")]
    fn a_rule_for_a_field_that_does_not_exist_is_noticed() {
        schema().at("list[].length");
    }
}
