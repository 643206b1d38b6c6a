//! Edits of one document that leave a warning for each change.

use std::fmt;

use serde_json::{Map, Value};

use crate::documents::{Document, Source};

/// One change, for standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// File and document.
    pub source: Source,
    /// `Kind/name`, as the input has it.
    pub object: String,
    /// Path of the field, `spec.disruption.budgets[0].duration`.
    pub path: String,
    /// What stood there, `(absent)` if nothing did.
    pub old: String,
    /// What stands there now, `(removed)` if nothing does.
    pub new: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            object,
            path,
            old,
            new,
            reason,
        } = self;
        write!(
            f,
            "warning: {}: {object}: {path}: {old} -> {new}: {reason}",
            source.file
        )
    }
}

/// A document under conversion.
#[derive(Debug)]
pub(super) struct Editor {
    pub(super) source: Source,
    pub(super) object: String,
    pub(super) value: Value,
    pub(super) warnings: Vec<Warning>,
    pub(super) notes: Vec<String>,
    pub(super) errors: Vec<String>,
    /// The text to print when nothing changed.
    original: Option<String>,
}

impl Editor {
    pub(super) fn new(document: Document) -> Self {
        let text = |pointer: &str| {
            document
                .value
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("(unnamed)")
        };
        let object = format!("{}/{}", text("/kind"), text("/metadata/name"));
        Self {
            object,
            source: document.source,
            value: document.value,
            warnings: Vec::new(),
            notes: Vec::new(),
            errors: Vec::new(),
            original: document.text,
        }
    }

    /// The document's text: as it stood if nothing changed, else written anew.
    pub(super) fn render(&self) -> String {
        match &self.original {
            Some(text) if self.warnings.is_empty() => text.clone(),
            _ => serde_saphyr::to_string(&self.value).map_or_else(
                |_| self.value.to_string(),
                |text| text.trim_end().to_owned(),
            ),
        }
    }

    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.value
            .pointer(&pointer(path))
            .filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.get(path).and_then(Value::as_str)
    }

    pub(super) fn warn(&mut self, path: &str, old: &str, new: &str, reason: impl Into<String>) {
        self.warnings.push(Warning {
            source: self.source.clone(),
            object: self.object.clone(),
            path: path.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
            reason: reason.into(),
        });
    }

    pub(super) fn error(&mut self, message: impl fmt::Display) {
        self.errors.push(format!(
            "error: {}: {}: {message}",
            self.source.file, self.object
        ));
    }

    pub(super) fn note(&mut self, message: impl fmt::Display) {
        self.notes.push(format!(
            "note: {}: {}: {message}",
            self.source.file, self.object
        ));
    }

    /// Puts `new` at `path` (objects on the way are made) and warns.
    pub(super) fn set(&mut self, path: &str, new: Value, reason: impl Into<String>) {
        let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
        let Some(target) = ensure(&mut self.value, parent) else {
            self.error(format_args!("{parent}: expected an object"));
            return;
        };
        let shown = show(&new);
        let old = target.insert(key.to_owned(), new);
        let old = old
            .filter(|value| !value.is_null())
            .map_or_else(|| "(absent)".to_owned(), |value| show(&value));
        self.warn(path, &old, &shown, reason);
    }

    /// Takes the value out of `path` without a warning.
    pub(super) fn take(&mut self, path: &str) -> Option<Value> {
        let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
        let parent = self.value.pointer_mut(&pointer(parent))?;
        parent
            .as_object_mut()?
            .shift_remove(key)
            .filter(|value| !value.is_null())
    }

    /// Removes `path` and warns, if it is there.
    pub(super) fn remove(&mut self, path: &str, reason: impl Into<String>) {
        if let Some(old) = self.take(path) {
            self.warn(path, &show(&old), "(removed)", reason);
        }
    }

    /// Moves a value to another path and warns, if it is there.
    pub(super) fn relocate(&mut self, from: &str, to: &str, reason: impl Into<String>) {
        if let Some(value) = self.take(from) {
            let shown = show(&value);
            let (parent, key) = to.rsplit_once('.').unwrap_or(("", to));
            if let Some(target) = ensure(&mut self.value, parent) {
                target.insert(key.to_owned(), value);
            }
            self.warn(from, &shown, &format!("{to}: {shown}"), reason);
        }
    }
}

/// `a.b[0].c` as a JSON pointer. Keys with dots or slashes are reached through their parent.
fn pointer(path: &str) -> String {
    path.replace('[', ".")
        .replace(']', "")
        .split('.')
        .filter(|part| !part.is_empty())
        .flat_map(|part| ["/", part])
        .collect()
}

/// The object at `path`; missing objects on the way are made. `None` when something else is there.
fn ensure<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let mut current = value;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let entry = current.as_object_mut()?.entry(part).or_insert(Value::Null);
        if entry.is_null() {
            *entry = Value::Object(Map::new());
        }
        current = entry;
    }
    current.as_object_mut()
}

/// A value for a message: texts bare, the rest as JSON, bounded.
pub(super) fn show(value: &Value) -> String {
    const SHOWN: usize = 120;
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
