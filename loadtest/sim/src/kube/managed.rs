//! Who manages which field: `metadata.managedFields`, and the merge of server-side apply.
//!
//! Simplified against the real one: ownership is not converted between versions of a resource,
//! and a manager owns the fields inside a map or structure, not the structure itself.

use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::{self, Place, Tree};
use super::object::{at, list_at, metadata_mut, now_rfc3339, str_at};
use super::request::Call;
use super::schema::Schema;
use super::write::Means;

/// Managers by update that an object remembers; older ones are put together.
const UPDATERS_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// Who writes, and how.
#[derive(Debug)]
pub(crate) struct Writer {
    manager: String,
    api_version: String,
    subresource: String,
    /// The fields that were applied.
    applied: Option<Tree>,
    has_status: bool,
}

impl Writer {
    pub(crate) fn new(call: &Call, means: Means<'_>) -> Self {
        let schema = call.resource.schema();
        let applied = match means {
            Means::Update => None,
            Means::Apply(configuration) => Some(applied_fields(call, schema, configuration)),
        };
        Self {
            manager: call.manager.clone(),
            api_version: call.resource.api_version(),
            subresource: call.subresource.clone(),
            applied,
            has_status: call.resource.has_status,
        }
    }

    fn operation(&self) -> &'static str {
        if self.applied.is_some() {
            "Apply"
        } else {
            "Update"
        }
    }

    fn is_author(&self, entry: &Value) -> bool {
        str_at(entry, &["manager"]) == self.manager
            && str_at(entry, &["operation"]) == self.operation()
            && str_at(entry, &["subresource"]) == self.subresource
    }

    fn entry(&self, tree: &Tree) -> Value {
        let mut entry = json!({
            "manager": self.manager, "operation": self.operation(), "apiVersion": self.api_version,
            "time": now_rfc3339(), "fieldsType": "FieldsV1", "fieldsV1": tree,
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }
}

/// What a configuration claims at this (sub)resource.
fn applied_fields(call: &Call, schema: &Schema, configuration: &Value) -> Tree {
    let mut tree = fields::of(Place::root(schema), configuration);
    if call.subresource == "status" {
        tree.retain(|key, _| key == "f:status");
    } else if call.resource.has_status {
        tree.shift_remove("f:status");
    }
    if tree
        .get("f:metadata")
        .is_some_and(|meta| *meta == json!({}))
    {
        tree.shift_remove("f:metadata");
    }
    tree
}

fn entries(value: &Value) -> &[Value] {
    list_at(value, &["metadata", "managedFields"])
}

fn tree_of(entry: &Value) -> Tree {
    entry
        .get("fieldsV1")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// Whether a configuration states what only the server writes.
pub(crate) fn states_managed_fields(configuration: &Value) -> bool {
    !entries(configuration).is_empty()
}

/// Writes down whose the fields are that differ between `old` and `new`.
pub(crate) fn track(schema: &Schema, new: &mut Value, old: Option<&Value>, writer: &Writer) {
    let nothing = json!({});
    let (mut set, gone) = fields::difference(Place::root(schema), old.unwrap_or(&nothing), new);
    if writer.has_status && writer.subresource.is_empty() {
        set.shift_remove("f:status");
    }
    let mut kept = Vec::new();
    let mut own = None;
    for entry in old.map_or(&[][..], entries) {
        if writer.is_author(entry) {
            own = Some(entry.clone());
            continue;
        }
        let before = tree_of(entry);
        let mut tree = before.clone();
        fields::subtract(&mut tree, &set);
        fields::subtract(&mut tree, &gone);
        if tree == before {
            kept.push(entry.clone());
        } else if !tree.is_empty() {
            let mut entry = entry.clone();
            entry["fieldsV1"] = tree.into();
            kept.push(entry);
        }
    }
    let before = own.as_ref().map(tree_of).unwrap_or_default();
    let tree = match &writer.applied {
        Some(applied) => applied.clone(),
        None => {
            let mut tree = before.clone();
            fields::subtract(&mut tree, &gone);
            fields::add(&mut tree, &set);
            tree
        }
    };
    match own {
        Some(entry) if tree == before => kept.push(entry),
        _ if tree.is_empty() => {}
        _ => kept.push(writer.entry(&tree)),
    }
    bound(&mut kept);
    let meta = metadata_mut(new);
    if kept.is_empty() {
        meta.shift_remove("managedFields");
    } else {
        meta.insert("managedFields".to_owned(), kept.into());
    }
}

/// Puts the oldest managers by update together when there are too many.
fn bound(entries: &mut Vec<Value>) {
    let is_update = |entry: &Value| str_at(entry, &["operation"]) == "Update";
    while entries.iter().filter(|entry| is_update(entry)).count() > UPDATERS_MAX {
        let mut oldest = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| is_update(entry));
        let (Some((first, _)), Some((second, _))) = (oldest.next(), oldest.next()) else {
            return;
        };
        let mut tree = tree_of(&entries[first]);
        fields::add(&mut tree, &tree_of(&entries[second]));
        entries[first]["manager"] = json!(ANCIENT);
        entries[first]["fieldsV1"] = tree.into();
        entries.remove(second);
    }
}

/// The stored object with a configuration applied: fields that this manager applied earlier and
/// nobody else has are removed, fields of others are not touched without `force`.
///
/// # Errors
/// 409 naming the fields that others manage with other values.
pub(crate) fn merge(
    call: &Call,
    old: &Value,
    configuration: &Value,
    force: bool,
) -> Result<Value, ApiError> {
    let schema = call.resource.schema();
    let place = Place::root(schema);
    let writer = Writer::new(call, Means::Apply(configuration));
    let applied = writer.applied.clone().unwrap_or_default();
    let others: Vec<&Value> = entries(old)
        .iter()
        .filter(|entry| !writer.is_author(entry))
        .collect();
    if !force {
        refuse_conflicts(place, old, configuration, &applied, &others)?;
    }
    let mut abandoned = entries(old)
        .iter()
        .find(|entry| writer.is_author(entry))
        .map(tree_of)
        .unwrap_or_default();
    fields::subtract(&mut abandoned, &applied);
    for entry in &others {
        fields::subtract(&mut abandoned, &tree_of(entry));
    }
    let mut merged = old.clone();
    fields::remove(place, &mut merged, &abandoned);
    fields::overlay(place, &mut merged, configuration);
    Ok(merged)
}

fn refuse_conflicts(
    place: Place<'_>,
    old: &Value,
    configuration: &Value,
    applied: &Tree,
    others: &[&Value],
) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for entry in others {
        let mut paths = Vec::new();
        for path in fields::common_leaves(applied, &tree_of(entry)) {
            if fields::value_at(place, old, &path) != fields::value_at(place, configuration, &path)
            {
                paths.push(fields::shown(&path));
            }
        }
        if paths.is_empty() {
            continue;
        }
        let who = described(entry);
        for path in &paths {
            let message = format!("conflict with {who}");
            causes.push(("FieldManagerConflict".to_owned(), message, path.clone()));
        }
        lines.push(if let [path] = paths.as_slice() {
            format!("conflict with {who}: {path}")
        } else {
            let listed: Vec<String> = paths.iter().map(|path| format!("- {path}")).collect();
            format!("conflicts with {who}:\n{}", listed.join("\n"))
        });
    }
    if causes.is_empty() {
        return Ok(());
    }
    let count = causes.len();
    let noun = if count == 1 { "conflict" } else { "conflicts" };
    let message = format!("Apply failed with {count} {noun}: {}", lines.join("\n"));
    Err(ApiError::apply_conflict(message, causes))
}

fn described(entry: &Value) -> String {
    let manager = str_at(entry, &["manager"]);
    let subresource = str_at(entry, &["subresource"]);
    let mut text = format!("{manager:?}");
    if !subresource.is_empty() {
        text.push_str(&format!(" with subresource {subresource:?}"));
    }
    if str_at(entry, &["operation"]) == "Update" {
        let version = str_at(entry, &["apiVersion"]);
        let time = at(entry, &["time"]).and_then(Value::as_str).unwrap_or("");
        text.push_str(&format!(" using {version}"));
        if !time.is_empty() {
            text.push_str(&format!(" at {time}"));
        }
    }
    text
}
