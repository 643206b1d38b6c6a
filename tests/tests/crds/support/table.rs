//! The table of admission: for one place of a manifest, neighbours that are admitted and values
//! that are refused, with the words of the refusal.
//!
//! A row changes a manifest that is good as a whole, so a refusal has one cause. Everything is a
//! dry run; only rows about updates and statuses need an object to exist.

use std::collections::BTreeSet;

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::Status;
use kube::{Client, Error};
use serde_json::{Value, json};

use super::coverage;
use super::{api_for, object, renamed};

/// What is done with the changed manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Update,
    UpdateStatus,
}

/// One place and what may stand there.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    verb: Verb,
    at: &'static str,
    /// Other changes first; `None` takes the place away.
    others: Vec<(&'static str, Option<Value>)>,
    good: Vec<Option<Value>>,
    bad: Vec<(Option<Value>, String)>,
}

/// A row about creation.
pub(crate) fn at(pointer: &'static str) -> Row {
    let verb = Verb::Create;
    Row {
        verb,
        at: pointer,
        others: Vec::new(),
        good: Vec::new(),
        bad: Vec::new(),
    }
}

/// A row about changing what was created from the manifest.
pub(crate) fn update(pointer: &'static str) -> Row {
    Row {
        verb: Verb::Update,
        ..at(pointer)
    }
}

/// A row about writing the status of what was created from the manifest.
pub(crate) fn status(pointer: &'static str) -> Row {
    Row {
        verb: Verb::UpdateStatus,
        ..at(pointer)
    }
}

impl Row {
    /// Puts something elsewhere first.
    pub(crate) fn with(mut self, pointer: &'static str, value: impl Into<Value>) -> Self {
        self.others.push((pointer, Some(value.into())));
        self
    }

    /// Takes something elsewhere away first.
    pub(crate) fn without(mut self, pointer: &'static str) -> Self {
        self.others.push((pointer, None));
        self
    }

    /// A value that is admitted.
    pub(crate) fn good(mut self, value: impl Into<Value>) -> Self {
        self.good.push(Some(value.into()));
        self
    }

    /// Values that are admitted.
    pub(crate) fn all_good<V: Into<Value>>(self, values: impl IntoIterator<Item = V>) -> Self {
        values.into_iter().fold(self, Self::good)
    }

    /// A value that is refused with these words.
    pub(crate) fn bad(mut self, value: impl Into<Value>, words: &str) -> Self {
        self.bad.push((Some(value.into()), words.to_owned()));
        self
    }

    /// Values that are refused with these words.
    pub(crate) fn all_bad<V: Into<Value>>(
        self,
        values: impl IntoIterator<Item = V>,
        words: &str,
    ) -> Self {
        values
            .into_iter()
            .fold(self, |row, value| row.bad(value, words))
    }

    /// Absence is admitted.
    pub(crate) fn may_be_absent(mut self) -> Self {
        self.good.push(None);
        self
    }

    /// Absence is refused.
    pub(crate) fn must_be_there(mut self) -> Self {
        self.bad.push((None, "Required value".to_owned()));
        self
    }

    /// Absence is refused with these words.
    pub(crate) fn must_stay(mut self, words: &str) -> Self {
        self.bad.push((None, words.to_owned()));
        self
    }

    fn changed(&self, manifest: &Value, value: Option<&Value>) -> Value {
        let mut manifest = manifest.clone();
        for (pointer, value) in &self.others {
            put(&mut manifest, pointer, value.as_ref());
        }
        put(&mut manifest, self.at, value);
        manifest
    }
}

/// Puts a value at a JSON pointer, or takes it away; makes the objects on the way.
fn put(tree: &mut Value, pointer: &str, value: Option<&Value>) {
    let (parent, name) = pointer
        .rsplit_once('/')
        .expect("a pointer begins with a slash");
    let mut node = tree;
    for step in parent.split('/').skip(1) {
        node = match step.parse::<usize>() {
            Ok(ord) => node.get_mut(ord).expect("an element that the manifest has"),
            Err(_) => &mut node[step],
        };
    }
    // `~1` is JSON pointer's escape of a slash.
    let name = name.replace("~1", "/");
    match (value, node) {
        (Some(value), Value::Array(elements)) => {
            elements[name.parse::<usize>().expect("an ordinal")] = value.clone();
        }
        (Some(value), node) => node[name.as_str()] = value.clone(),
        (None, node) => {
            node.as_object_mut()
                .expect("an object that the manifest has")
                .remove(&name);
        }
    }
}

/// Something that the API server refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    /// Where, with `[]` for any element.
    pub(crate) field: String,
    /// Why.
    pub(crate) message: String,
}

/// The admission table of one kind.
pub(crate) struct Admission {
    api: Api<DynamicObject>,
    /// Good as a whole, with a status.
    manifest: Value,
    /// What was created from it.
    stored: Value,
    faults: Vec<String>,
    refusals: BTreeSet<Refusal>,
}

impl Admission {
    /// Creates the manifest's object.
    pub(crate) async fn of(client: &Client, manifest: Value) -> anyhow::Result<Self> {
        let manifest = renamed(manifest);
        let api = api_for(client, &manifest);
        let created = api
            .create(&PostParams::default(), &object(&manifest))
            .await?;
        let stored = serde_json::to_value(created)?;
        let (faults, refusals) = (Vec::new(), BTreeSet::new());
        Ok(Self {
            api,
            manifest,
            stored,
            faults,
            refusals,
        })
    }

    /// Tries every value of the rows.
    pub(crate) async fn try_all(&mut self, rows: &[Row]) {
        for row in rows {
            for value in &row.good {
                let answer = self.send(row, value.as_ref()).await;
                if let Err(error) = answer {
                    self.faults
                        .push(format!("{} = {} refused: {error}", row.at, shown(value)));
                }
            }
            for (value, words) in &row.bad {
                match self.send(row, value.as_ref()).await {
                    Ok(_) => {
                        self.faults
                            .push(format!("{} = {} admitted", row.at, shown(value)));
                    }
                    Err(Error::Api(status)) if status.message.contains(words.as_str()) => {
                        self.refusals.extend(refusals(&status));
                    }
                    Err(error) => self.faults.push(format!(
                        "{} = {} refused without saying {words:?}: {error:?}",
                        row.at,
                        shown(value)
                    )),
                }
            }
        }
    }

    async fn send(&self, row: &Row, value: Option<&Value>) -> Result<DynamicObject, Error> {
        let dry = PostParams {
            dry_run: true,
            field_manager: None,
        };
        let name = self.manifest["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        match row.verb {
            Verb::Create => {
                let changed = renamed(row.changed(&self.manifest, value));
                self.api.create(&dry, &object(&changed)).await
            }
            Verb::Update => {
                let changed = row.changed(&self.stored, value);
                self.api.replace(name, &dry, &object(&changed)).await
            }
            Verb::UpdateStatus => {
                let mut stored = self.stored.clone();
                stored["status"] = self.manifest["status"].clone();
                let changed = row.changed(&stored, value);
                self.api.replace_status(name, &dry, &object(&changed)).await
            }
        }
    }

    /// Fails with everything that was not as the rows say.
    #[track_caller]
    pub(crate) fn assert_as_said(self) {
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
    }

    /// Fails with everything that was not as the rows say, and with every constraint of the
    /// schema that no row has run into.
    #[track_caller]
    pub(crate) fn assert_complete(mut self, definition: &str) {
        let untested = coverage::untested(definition, &self.refusals);
        self.faults.extend(
            untested
                .into_iter()
                .map(|constraint| format!("no row: {constraint}")),
        );
        self.assert_as_said();
    }
}

fn shown(value: &Option<Value>) -> String {
    let text = value
        .as_ref()
        .map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() <= 200 {
        return text;
    }
    format!(
        "{}... ({} bytes)",
        text.chars().take(200).collect::<String>(),
        text.len()
    )
}

fn refusals(status: &Status) -> Vec<Refusal> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .map(|cause| Refusal {
            field: without_ordinals(&cause.field),
            message: cause.message.clone(),
        })
        .collect()
}

/// `a[3].b` becomes `a[].b`; the key of a map entry in brackets stays.
fn without_ordinals(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((inside, tail)) = after.split_once(']') else {
            break;
        };
        out.push_str(before);
        out.push('[');
        if !inside.bytes().all(|byte| byte.is_ascii_digit()) {
            out.push_str(inside);
        }
        out.push(']');
        rest = tail;
    }
    out + rest
}

/// A requirement.
pub(crate) fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": operator, "values": values })
}
