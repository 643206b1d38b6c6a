//! Sets of fields as `FieldsV1` writes them: trees whose keys are `f:FIELD`, `k:KEYS` (an element
//! of a list of maps) and `v:VALUE` (an element of a set). `.` stands for the element itself.

use serde_json::{Map, Value};

use super::schema::{ListKind, NodeId, Schema, Type};

/// A set of fields; an empty tree is a leaf.
pub(crate) type Tree = Map<String, Value>;

/// Metadata that belongs to no manager.
const UNMANAGED_META: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "generateName",
];

/// How a value merges: what its place in the schema says.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    schema: &'a Schema,
    node: Option<NodeId>,
    depth: Depth,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Root,
    Metadata,
    Below,
}

impl<'a> Place<'a> {
    /// The place of whole objects.
    pub(crate) fn root(schema: &'a Schema) -> Self {
        Self {
            schema,
            node: Some(schema.root()),
            depth: Depth::Root,
        }
    }

    pub(crate) fn field(self, name: &str) -> Self {
        let is_metadata = self.depth == Depth::Root && name == "metadata";
        Self {
            node: self.node.and_then(|node| self.schema.property(node, name)),
            depth: if is_metadata {
                Depth::Metadata
            } else {
                Depth::Below
            },
            ..self
        }
    }

    pub(crate) fn element(self) -> Self {
        Self {
            node: self.node.and_then(|node| self.schema.node(node).items),
            depth: Depth::Below,
            ..self
        }
    }

    pub(crate) fn is_managed(self, field: &str) -> bool {
        match self.depth {
            Depth::Root => !matches!(field, "apiVersion" | "kind"),
            Depth::Metadata => !UNMANAGED_META.contains(&field),
            Depth::Below => true,
        }
    }

    /// Whether fields of an object have managers of their own.
    pub(crate) fn is_granular(self) -> bool {
        self.node.is_none_or(|node| {
            let node = self.schema.node(node);
            !(node.atomic || node.kind == Type::Any && self.schema.is_builtin())
        })
    }

    pub(crate) fn list(self) -> &'a ListKind {
        self.node
            .map_or(&ListKind::Atomic, |node| &self.schema.node(node).list)
    }

    /// How an element of a list is told from the others; `None` in an atomic list.
    pub(crate) fn key_of(self, item: &Value) -> Option<String> {
        match self.list() {
            ListKind::Atomic => None,
            ListKind::Set => Some(format!("v:{item}")),
            ListKind::Map(keys) => {
                let mut pairs: Vec<(&str, Value)> = keys
                    .iter()
                    .map(|key| (key.as_str(), self.key_field(item, key)))
                    .collect();
                pairs.sort_by_key(|(key, _)| *key);
                let text: Tree = pairs
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect();
                Some(format!("k:{}", Value::Object(text)))
            }
        }
    }

    fn key_field(self, item: &Value, key: &str) -> Value {
        if let Some(found) = item.get(key) {
            return found.clone();
        }
        let node = self.element().field(key).node;
        let default = node.and_then(|node| self.schema.node(node).default.clone());
        // The one key of built-in lists that has a default.
        default.unwrap_or_else(|| {
            if key == "protocol" {
                "TCP".into()
            } else {
                Value::Null
            }
        })
    }
}

/// All fields of a value.
pub(crate) fn of(place: Place<'_>, value: &Value) -> Tree {
    let mut tree = Tree::new();
    match value {
        Value::Object(map) if place.is_granular() => {
            for (name, inner) in map.iter().filter(|(name, _)| place.is_managed(name)) {
                tree.insert(format!("f:{name}"), of(place.field(name), inner).into());
            }
        }
        Value::Array(items) => {
            for item in items {
                let Some(key) = place.key_of(item) else { break };
                let mut inner = of(place.element(), item);
                if item.is_object() {
                    inner.insert(".".to_owned(), Tree::new().into());
                }
                tree.insert(key, inner.into());
            }
        }
        _ => {}
    }
    tree
}

/// The fields in which two values differ: those set or changed in `new`, and those that only
/// `old` has.
pub(crate) fn difference(place: Place<'_>, old: &Value, new: &Value) -> (Tree, Tree) {
    let (mut set, mut gone) = (Tree::new(), Tree::new());
    match (old, new) {
        (Value::Object(before), Value::Object(after)) if place.is_granular() => {
            for (name, inner) in after.iter().filter(|(name, _)| place.is_managed(name)) {
                let (key, inner_place) = (format!("f:{name}"), place.field(name));
                match before.get(name) {
                    Some(earlier) => {
                        descend(inner_place, key, earlier, inner, (&mut set, &mut gone));
                    }
                    None => {
                        set.insert(key, of(inner_place, inner).into());
                    }
                }
            }
            for (name, inner) in before.iter().filter(|(name, _)| place.is_managed(name)) {
                if !after.contains_key(name) {
                    gone.insert(format!("f:{name}"), of(place.field(name), inner).into());
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if *place.list() != ListKind::Atomic => {
            let keyed = |items: &'_ [Value]| -> Vec<(String, Value)> {
                items
                    .iter()
                    .filter_map(|item| Some((place.key_of(item)?, item.clone())))
                    .collect()
            };
            let (before, after) = (keyed(before), keyed(after));
            for (key, item) in &after {
                match before.iter().find(|(other, _)| other == key) {
                    Some((_, earlier)) => {
                        descend(
                            place.element(),
                            key.clone(),
                            earlier,
                            item,
                            (&mut set, &mut gone),
                        );
                    }
                    None => {
                        set.insert(key.clone(), element_tree(place, item).into());
                    }
                }
            }
            for (key, item) in &before {
                if !after.iter().any(|(other, _)| other == key) {
                    gone.insert(key.clone(), element_tree(place, item).into());
                }
            }
        }
        _ => {}
    }
    (set, gone)
}

fn element_tree(place: Place<'_>, item: &Value) -> Tree {
    let mut tree = of(place.element(), item);
    if item.is_object() {
        tree.insert(".".to_owned(), Tree::new().into());
    }
    tree
}

fn descend(
    place: Place<'_>,
    key: String,
    old: &Value,
    new: &Value,
    (set, gone): (&mut Tree, &mut Tree),
) {
    if old == new {
        return;
    }
    let (inner_set, inner_gone) = difference(place, old, new);
    if inner_set.is_empty() && inner_gone.is_empty() {
        // A leaf, or a value that became another kind of value.
        set.insert(key, of(place, new).into());
        return;
    }
    if !inner_set.is_empty() {
        set.insert(key.clone(), inner_set.into());
    }
    if !inner_gone.is_empty() {
        gone.insert(key, inner_gone.into());
    }
}

/// Adds the fields of `more`.
pub(crate) fn add(tree: &mut Tree, more: &Tree) {
    for (key, inner) in more {
        let slot = tree
            .entry(key.as_str())
            .or_insert_with(|| Tree::new().into());
        if let (Value::Object(slot), Value::Object(inner)) = (slot, inner) {
            add(slot, inner);
        }
    }
}

/// Takes the fields of `less` away, and what is empty then.
pub(crate) fn subtract(tree: &mut Tree, less: &Tree) {
    for (key, inner) in less {
        let Some(Value::Object(own)) = tree.get_mut(key) else {
            continue;
        };
        let Value::Object(inner) = inner else {
            continue;
        };
        if !own.is_empty() {
            subtract(own, inner);
            if !own.is_empty() {
                continue;
            }
        }
        tree.shift_remove(key);
    }
}

/// The leaves that both trees have, as paths.
pub(crate) fn common_leaves(one: &Tree, other: &Tree) -> Vec<Vec<String>> {
    let mut leaves = Vec::new();
    for (key, inner) in one {
        let (Value::Object(a), Some(Value::Object(b))) = (inner, other.get(key)) else {
            continue;
        };
        if key == "." {
            continue;
        }
        if a.is_empty() != b.is_empty() {
            // An empty map is not the fields that another has in it.
            continue;
        }
        if a.is_empty() {
            leaves.push(vec![key.clone()]);
            continue;
        }
        for mut below in common_leaves(a, b) {
            below.insert(0, key.clone());
            leaves.push(below);
        }
    }
    leaves
}

/// The value at a path.
pub(crate) fn value_at<'a>(
    place: Place<'_>,
    value: &'a Value,
    path: &[String],
) -> Option<&'a Value> {
    let Some((first, rest)) = path.split_first() else {
        return Some(value);
    };
    if let Some(name) = first.strip_prefix("f:") {
        return value_at(place.field(name), value.get(name)?, rest);
    }
    let found = value
        .as_array()?
        .iter()
        .find(|item| place.key_of(item).as_ref() == Some(first))?;
    value_at(place.element(), found, rest)
}

/// Removes the fields of a tree from a value; containers that this empties go, too.
pub(crate) fn remove(place: Place<'_>, value: &mut Value, tree: &Tree) {
    for (key, inner) in tree {
        let Value::Object(inner) = inner else {
            continue;
        };
        if let Some(name) = key.strip_prefix("f:") {
            let Value::Object(map) = &mut *value else {
                continue;
            };
            let Some(slot) = map.get_mut(name) else {
                continue;
            };
            if !inner.is_empty() {
                remove(place.field(name), slot, inner);
            }
            let is_empty = match &*slot {
                Value::Object(map) => map.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            if inner.is_empty() || is_empty {
                map.shift_remove(name);
            }
        } else if let Value::Array(items) = &mut *value {
            let found = items
                .iter()
                .position(|item| place.key_of(item).as_ref() == Some(key));
            let Some(index) = found else { continue };
            if inner.is_empty() || inner.contains_key(".") {
                items.remove(index);
            } else {
                remove(place.element(), &mut items[index], inner);
            }
        }
    }
}

/// Writes a configuration into a value, as its places merge.
pub(crate) fn overlay(place: Place<'_>, value: &mut Value, configuration: &Value) {
    match (&mut *value, configuration) {
        (Value::Object(map), Value::Object(fields)) if place.is_granular() => {
            for (name, inner) in fields.iter().filter(|(name, _)| place.is_managed(name)) {
                let slot = map.entry(name.as_str()).or_insert(Value::Null);
                overlay(place.field(name), slot, inner);
            }
        }
        (Value::Array(items), Value::Array(wanted)) if *place.list() != ListKind::Atomic => {
            for item in wanted {
                let key = place.key_of(item);
                match items.iter_mut().find(|own| place.key_of(own) == key) {
                    Some(own) => overlay(place.element(), own, item),
                    None => items.push(item.clone()),
                }
            }
        }
        (slot, configuration) => *slot = configuration.clone(),
    }
}

/// A path as messages print it: `.spec.containers[name="a"].image`.
pub(crate) fn shown(path: &[String]) -> String {
    let mut text = String::new();
    for part in path {
        if let Some(name) = part.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(keys) = part.strip_prefix("k:") {
            let keys: Tree = serde_json::from_str(keys).unwrap_or_default();
            let pairs: Vec<String> = keys
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            text.push_str(&format!("[{}]", pairs.join(",")));
        } else if let Some(value) = part.strip_prefix("v:") {
            text.push_str(&format!("[={value}]"));
        }
    }
    text
}
