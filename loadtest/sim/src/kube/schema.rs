//! Compiled schemas: one arena of nodes that prunes, validates, defaults and says how lists and
//! maps merge. Built-in types and custom resources share it.

use regex::Regex;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::cel::Rule;

/// Index of a node in its schema's arena.
pub(crate) type NodeId = usize;

/// The JSON type a node admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// Anything.
    Any,
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A whole number or a string (quantities, ports).
    IntOrString,
}

impl Type {
    /// The name OpenAPI uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }

    /// Whether a value has this type.
    pub(crate) fn admits(self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => is_integer(value),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::IntOrString => value.is_string() || value.is_number(),
        }
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// How two versions of a list relate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ListKind {
    /// As one value.
    #[default]
    Atomic,
    /// By value.
    Set,
    /// By the values of these fields.
    Map(Vec<String>),
}

/// What an object may hold besides its properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Additional {
    /// Nothing: unknown fields are pruned.
    None,
    /// Anything.
    Anything,
    /// Values of one schema: the object is a map.
    Schema(NodeId),
}

/// One place of a schema.
#[derive(Debug)]
pub(crate) struct Node {
    /// JSON type.
    pub(crate) kind: Type,
    /// Known fields of an object.
    pub(crate) properties: FxHashMap<String, NodeId>,
    /// Other fields of an object.
    pub(crate) additional: Additional,
    /// Element of an array.
    pub(crate) items: Option<NodeId>,
    /// How the list merges in server-side apply.
    pub(crate) list: ListKind,
    /// Whether the object is one value in server-side apply.
    pub(crate) atomic: bool,
    /// Key by which strategic merge patch finds list elements.
    pub(crate) patch_merge_key: Option<String>,
    /// Strategic merge patch: `merge`, `replace`, `retainKeys` or a combination.
    pub(crate) patch_strategy: String,
    /// Whether the value is a Kubernetes object of its own.
    pub(crate) embedded: bool,
    /// Whether null is a value.
    pub(crate) nullable: bool,
    /// Value given when the field is absent.
    pub(crate) default: Option<Value>,
    /// Everything that only validation reads.
    pub(crate) limits: Limits,
}

/// Value validation of a node.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// Fields that must be present.
    pub(crate) required: Vec<String>,
    /// Admitted values; empty means all.
    pub(crate) enumeration: Vec<Value>,
    /// Regular expression for strings.
    pub(crate) pattern: Option<Regex>,
    /// Lower bound and whether it is exclusive.
    pub(crate) minimum: Option<(f64, bool)>,
    /// Upper bound and whether it is exclusive.
    pub(crate) maximum: Option<(f64, bool)>,
    /// Whole divisor.
    pub(crate) multiple_of: Option<f64>,
    /// Characters of a string.
    pub(crate) length: (Option<u64>, Option<u64>),
    /// Elements of an array.
    pub(crate) items: (Option<u64>, Option<u64>),
    /// Fields of an object.
    pub(crate) properties: (Option<u64>, Option<u64>),
    /// Named format (`int32`, `date-time`, ...).
    pub(crate) format: String,
    /// Schemas of which all, one or more, exactly one hold; and one that must not.
    pub(crate) all_of: Vec<NodeId>,
    /// At least one holds.
    pub(crate) any_of: Vec<NodeId>,
    /// Exactly one holds.
    pub(crate) one_of: Vec<NodeId>,
    /// Does not hold.
    pub(crate) not: Option<NodeId>,
    /// CEL rules.
    pub(crate) rules: Vec<Rule>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Schema {
    nodes: Vec<Node>,
    root: NodeId,
    builtin: bool,
    has_defaults: bool,
}

impl Schema {
    /// Compiles a built-in type: `$ref`s into `definitions`, unknown shapes admit anything.
    pub(crate) fn compile_builtin(root: &Value, definitions: &Map<String, Value>) -> Self {
        let mut compiler = Compiler::new(Some(definitions));
        let root = compiler.compile(root, "");
        compiler.finish(root, true)
    }

    /// Compiles a structural schema of a CRD.
    ///
    /// # Errors
    /// One line per CEL rule or pattern that cannot be evaluated, as (field path, why).
    pub(crate) fn compile_structural(root: &Value) -> Result<Self, Vec<(String, String)>> {
        let mut compiler = Compiler::new(None);
        let id = compiler.compile(root, "");
        compiler.add_type_meta(id);
        let errors = std::mem::take(&mut compiler.errors);
        if errors.is_empty() {
            Ok(compiler.finish(id, false))
        } else {
            Err(errors)
        }
    }

    /// The node of whole objects.
    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    /// One node.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// The node of one field: a property, else the map's value schema.
    pub(crate) fn property(&self, id: NodeId, field: &str) -> Option<NodeId> {
        let node = self.node(id);
        node.properties
            .get(field)
            .copied()
            .or(match node.additional {
                Additional::Schema(inner) => Some(inner),
                Additional::None | Additional::Anything => None,
            })
    }

    /// Whether this is the schema of a built-in type.
    pub(crate) fn is_builtin(&self) -> bool {
        self.builtin
    }

    /// Removes fields the schema does not know and nulls it does not admit; answers the paths of
    /// the unknown fields.
    pub(crate) fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        self.prune_node(self.root, value, "", &mut unknown);
        unknown
    }

    fn prune_node(&self, id: NodeId, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
        let node = self.node(id);
        match value {
            Value::Object(map) => {
                if node.kind == Type::Any || !matches!(node.kind, Type::Object) {
                    return;
                }
                let closed = node.additional == Additional::None;
                map.retain(|field, inner| {
                    if !self.keeps_null(id, field, inner) {
                        return false;
                    }
                    let Some(child) = self.property(id, field) else {
                        let keep = !closed || is_type_meta(node.embedded || id == self.root, field);
                        if !keep {
                            unknown.push(join(path, field));
                        }
                        return keep;
                    };
                    if inner.is_object() || inner.is_array() {
                        self.prune_node(child, inner, &join(path, field), unknown);
                    }
                    true
                });
            }
            Value::Array(items) => {
                let Some(child) = node.items else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    if item.is_object() || item.is_array() {
                        self.prune_node(child, item, &format!("{path}[{index}]"), unknown);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a field that may be null stays: typed decoding drops nulls of built-in types.
    fn keeps_null(&self, id: NodeId, field: &str, value: &Value) -> bool {
        if !value.is_null() {
            return true;
        }
        let Some(child) = self.property(id, field) else {
            return !self.builtin;
        };
        let child = self.node(child);
        child.nullable || (child.kind == Type::Any && !self.builtin)
    }

    /// Fills in defaults.
    pub(crate) fn default(&self, value: &mut Value) {
        if self.has_defaults {
            self.default_node(self.root, value);
        }
    }

    fn default_node(&self, id: NodeId, value: &mut Value) {
        let node = self.node(id);
        match value {
            Value::Object(map) => {
                for (field, child) in &node.properties {
                    if let Some(default) = &self.node(*child).default {
                        map.entry(field.as_str()).or_insert_with(|| default.clone());
                    }
                }
                for (field, inner) in map.iter_mut() {
                    if let Some(child) = self.property(id, field) {
                        self.default_node(child, inner);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(child) = node.items {
                    items
                        .iter_mut()
                        .for_each(|item| self.default_node(child, item));
                }
            }
            _ => {}
        }
    }
}

fn is_type_meta(whole_object: bool, field: &str) -> bool {
    whole_object && matches!(field, "apiVersion" | "kind" | "metadata")
}

/// A field path as the API prints it.
pub(crate) fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

struct Compiler<'a> {
    definitions: Option<&'a Map<String, Value>>,
    nodes: Vec<Node>,
    /// Definitions already compiled or being compiled: types may be recursive.
    named: FxHashMap<String, NodeId>,
    errors: Vec<(String, String)>,
    has_defaults: bool,
}

impl<'a> Compiler<'a> {
    fn new(definitions: Option<&'a Map<String, Value>>) -> Self {
        Self {
            definitions,
            nodes: Vec::new(),
            named: FxHashMap::default(),
            errors: Vec::new(),
            has_defaults: false,
        }
    }

    fn finish(self, root: NodeId, builtin: bool) -> Schema {
        Schema {
            nodes: self.nodes,
            root,
            builtin,
            has_defaults: self.has_defaults,
        }
    }

    fn push(&mut self) -> NodeId {
        self.nodes.push(Node {
            kind: Type::Any,
            properties: FxHashMap::default(),
            additional: Additional::Anything,
            items: None,
            list: ListKind::Atomic,
            atomic: false,
            patch_merge_key: None,
            patch_strategy: String::new(),
            embedded: false,
            nullable: false,
            default: None,
            limits: Limits::default(),
        });
        self.nodes.len() - 1
    }

    fn compile(&mut self, schema: &Value, path: &str) -> NodeId {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let name = name.rsplit('/').next().unwrap_or(name);
            return self.compile_named(name, path);
        }
        let id = self.push();
        self.fill(id, schema, path);
        id
    }

    fn compile_named(&mut self, name: &str, path: &str) -> NodeId {
        if let Some(id) = self.named.get(name) {
            return *id;
        }
        let id = self.push();
        self.named.insert(name.to_owned(), id);
        // JSON and RawExtension are declared as objects but hold anything.
        let opaque = name.ends_with(".JSON") || name.ends_with("RawExtension");
        if let Some(definition) = self
            .definitions
            .and_then(|all| all.get(name))
            .filter(|_| !opaque)
        {
            self.fill(id, definition, path);
        }
        id
    }

    fn fill(&mut self, id: NodeId, schema: &Value, path: &str) {
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or("");
        let kind = if flag("x-kubernetes-int-or-string") {
            Type::IntOrString
        } else {
            match text("type") {
                "object" => Type::Object,
                "array" => Type::Array,
                "string" => Type::String,
                "integer" => Type::Integer,
                "number" => Type::Number,
                "boolean" => Type::Boolean,
                _ => Type::Any,
            }
        };
        let mut properties = FxHashMap::default();
        for (field, inner) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let child = self.compile(inner, &join(path, field));
            self.apply_overrides(child, inner);
            properties.insert(field.clone(), child);
        }
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Anything,
            Some(inner @ Value::Object(_)) => {
                Additional::Schema(self.compile(inner, &format!("{path}[*]")))
            }
            _ if flag("x-kubernetes-preserve-unknown-fields") => Additional::Anything,
            // Built-in types without any field (FieldsV1) hold anything.
            _ if properties.is_empty() && self.definitions.is_some() => Additional::Anything,
            _ => Additional::None,
        };
        let items = schema
            .get("items")
            .map(|inner| self.compile(inner, &format!("{path}[*]")));
        let default = schema.get("default").cloned();
        self.has_defaults |= default.is_some();
        let limits = self.limits(schema, path);
        let node = &mut self.nodes[id];
        node.kind = kind;
        node.properties = properties;
        node.additional = additional;
        node.items = items;
        node.embedded = flag("x-kubernetes-embedded-resource");
        node.nullable = flag("nullable");
        node.default = default;
        node.limits = limits;
        merge_semantics(node, schema);
    }

    /// Semantics written beside a `$ref` belong to the field: the shared node gets a copy.
    fn apply_overrides(&mut self, child: NodeId, schema: &Value) {
        if schema.get("$ref").is_some() {
            merge_semantics(&mut self.nodes[child], schema);
        }
    }

    fn limits(&mut self, schema: &Value, path: &str) -> Limits {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let list = |name: &str| {
            schema
                .get(name)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let mut limits = Limits {
            required: list("required")
                .iter()
                .filter_map(|it| it.as_str().map(str::to_owned))
                .collect(),
            enumeration: list("enum"),
            minimum: number("minimum").map(|bound| (bound, flag("exclusiveMinimum"))),
            maximum: number("maximum").map(|bound| (bound, flag("exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            length: (count("minLength"), count("maxLength")),
            items: (count("minItems"), count("maxItems")),
            properties: (count("minProperties"), count("maxProperties")),
            format: schema
                .get("format")
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned(),
            ..Limits::default()
        };
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            match Regex::new(pattern) {
                Ok(regex) => limits.pattern = Some(regex),
                Err(error) => self.errors.push((path.to_owned(), error.to_string())),
            }
        }
        // Built-in schemas use oneOf for shapes, and those nodes admit anything.
        if self.definitions.is_none() {
            limits.all_of = list("allOf")
                .iter()
                .map(|inner| self.compile(inner, path))
                .collect();
            limits.any_of = list("anyOf")
                .iter()
                .map(|inner| self.compile(inner, path))
                .collect();
            limits.one_of = list("oneOf")
                .iter()
                .map(|inner| self.compile(inner, path))
                .collect();
            limits.not = schema.get("not").map(|inner| self.compile(inner, path));
        }
        for (index, rule) in list("x-kubernetes-validations").iter().enumerate() {
            match Rule::compile(rule) {
                Ok(rule) => limits.rules.push(rule),
                Err(error) => self.errors.push((
                    join(path, &format!("x-kubernetes-validations[{index}].rule")),
                    error,
                )),
            }
        }
        limits
    }

    /// Custom resources always have type and object metadata, whatever their schema says.
    fn add_type_meta(&mut self, root: NodeId) {
        let text = self.push();
        self.nodes[text].kind = Type::String;
        let metadata = self.push();
        self.nodes[metadata].kind = Type::Object;
        for (field, list, keys) in [
            ("finalizers", "set", vec![]),
            ("ownerReferences", "map", vec!["uid".to_owned()]),
        ] {
            let child = self.push();
            let item = self.push();
            self.nodes[child].kind = Type::Array;
            self.nodes[child].items = Some(item);
            self.nodes[child].list = if list == "set" {
                ListKind::Set
            } else {
                ListKind::Map(keys)
            };
            self.nodes[metadata]
                .properties
                .insert(field.to_owned(), child);
        }
        for field in ["labels", "annotations"] {
            let child = self.push();
            self.nodes[child].kind = Type::Object;
            self.nodes[child].additional = Additional::Schema(text);
            self.nodes[metadata]
                .properties
                .insert(field.to_owned(), child);
        }
        for field in [
            "name",
            "generateName",
            "namespace",
            "uid",
            "resourceVersion",
        ] {
            self.nodes[metadata]
                .properties
                .insert(field.to_owned(), text);
        }
        let root = &mut self.nodes[root];
        root.properties.insert("apiVersion".to_owned(), text);
        root.properties.insert("kind".to_owned(), text);
        root.properties.insert("metadata".to_owned(), metadata);
    }
}

fn merge_semantics(node: &mut Node, schema: &Value) {
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    match text("x-kubernetes-list-type") {
        Some("set") => node.list = ListKind::Set,
        Some("map") => {
            let keys = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array);
            let keys = keys
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned));
            node.list = ListKind::Map(keys.collect());
        }
        Some(_) => node.list = ListKind::Atomic,
        None => {}
    }
    if text("x-kubernetes-map-type") == Some("atomic") {
        node.atomic = true;
    }
    if let Some(key) = text("x-kubernetes-patch-merge-key") {
        node.patch_merge_key = Some(key.to_owned());
    }
    if let Some(strategy) = text("x-kubernetes-patch-strategy") {
        strategy.clone_into(&mut node.patch_strategy);
    }
}
