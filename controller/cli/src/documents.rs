//! From files to documents: YAML with several documents, JSON, `List` objects and JSON lines.
//!
//! Every document remembers the file and its number in it, so that an error can name both. Input is
//! bounded; nothing here panics on any bytes (the fuzz target feeds this module).

use std::{fmt, fs::File, io::Read, path::Path, sync::Arc};

use serde_json::Value;

/// Largest input file: a dump of 100,000 pods is about 300 MB.
const FILE_LIMIT: u64 = 512 << 20;
/// Deepest nesting of a document; Kubernetes manifests stay below 30.
const DEPTH_LIMIT: usize = 128;

/// Where a document came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path as given on the command line, `-` for standard input.
    pub file: Arc<str>,
    /// Number in the file, counted from 1.
    pub document: usize,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.file, self.document)
    }
}

/// One document.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where it came from.
    pub source: Source,
    /// Its content, always an object.
    pub value: Value,
    /// The text as it stands in the file, with its comments; absent for members of a `List`.
    pub text: Option<String>,
}

/// Why input cannot be read as documents. Each message is one line and names the place.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file cannot be opened or read.
    #[error("{file}: {reason}")]
    Read {
        /// The path.
        file: Arc<str>,
        /// What the system says.
        reason: String,
    },
    /// The file is larger than the limit.
    #[error("{file}: file is larger than {} MiB", FILE_LIMIT >> 20)]
    TooLarge {
        /// The path.
        file: Arc<str>,
    },
    /// The file is not text.
    #[error("{file}: not UTF-8 text (byte {offset})")]
    NotText {
        /// The path.
        file: Arc<str>,
        /// First byte that is no UTF-8.
        offset: usize,
    },
    /// The file has no document.
    #[error("{file}: file holds no document")]
    Empty {
        /// The path.
        file: Arc<str>,
    },
    /// A document is neither YAML nor JSON.
    #[error("{source_}: not valid YAML or JSON: {reason}")]
    Syntax {
        /// The place.
        source_: Source,
        /// What the parser says, on one line.
        reason: String,
    },
    /// A document is something else than an object.
    #[error("{source_}: expected an object with apiVersion and kind, found {found}")]
    NotAnObject {
        /// The place.
        source_: Source,
        /// What it is instead.
        found: &'static str,
    },
}

/// Reads a file (`-` is standard input).
///
/// # Errors
/// The first thing that is wrong with it.
pub fn read(path: &str) -> Result<Vec<Document>, DocumentError> {
    let file: Arc<str> = path.into();
    let failed = |error: &std::io::Error| DocumentError::Read {
        file: file.clone(),
        reason: error.to_string(),
    };
    let mut bytes = Vec::new();
    let read = if path == "-" {
        std::io::stdin()
            .lock()
            .take(FILE_LIMIT + 1)
            .read_to_end(&mut bytes)
    } else {
        File::open(Path::new(path))
            .map_err(|e| failed(&e))?
            .take(FILE_LIMIT + 1)
            .read_to_end(&mut bytes)
    };
    read.map_err(|e| failed(&e))?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(DocumentError::TooLarge { file });
    }
    parse(&file, &bytes)
}

/// Splits bytes into documents.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(file: &Arc<str>, bytes: &[u8]) -> Result<Vec<Document>, DocumentError> {
    let text = std::str::from_utf8(bytes).map_err(|e| DocumentError::NotText {
        file: file.clone(),
        offset: e.valid_up_to(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    if text.trim_start().starts_with('{') && json_stream(file, text, &mut documents).is_ok() {
        // A stream of JSON values; anything that only looks like one is tried as YAML below.
    } else {
        documents.clear();
        for (at, part) in yaml_parts(text).enumerate() {
            let source = Source {
                file: file.clone(),
                document: at + 1,
            };
            let value = yaml_value(&source, part)?;
            if !value.is_null() {
                push(source, value, Some(part), &mut documents)?;
            }
        }
    }
    if documents.is_empty() {
        return Err(DocumentError::Empty { file: file.clone() });
    }
    Ok(documents)
}

fn json_stream(
    file: &Arc<str>,
    text: &str,
    documents: &mut Vec<Document>,
) -> Result<(), DocumentError> {
    let mut start = 0;
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    while let Some(value) = values.next() {
        let source = Source {
            file: file.clone(),
            document: documents.len() + 1,
        };
        let value = value.map_err(|e| DocumentError::Syntax {
            source_: source.clone(),
            reason: one_line(&e.to_string()),
        })?;
        let end = values.byte_offset();
        push(source, value, text.get(start..end), documents)?;
        start = end;
    }
    Ok(())
}

/// Documents of a YAML stream: a line that starts with `---` ends one (the YAML standard gives
/// such a line this meaning even inside block scalars).
fn yaml_parts(text: &str) -> impl Iterator<Item = &str> + '_ {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let current = rest?;
        let mut offset = 0;
        for line in current.split_inclusive('\n') {
            let marker = line.trim_end();
            if marker == "---" || marker.starts_with("--- ") {
                let (part, tail) = current.split_at(offset);
                rest = tail.get(3..);
                return Some(part);
            }
            offset += line.len();
        }
        rest = None;
        Some(current)
    })
    .filter(|part| {
        part.lines()
            .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    })
}

fn yaml_value(source: &Source, text: &str) -> Result<Value, DocumentError> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    serde_saphyr::from_str(text).map_err(|e| DocumentError::Syntax {
        source_: source.clone(),
        reason: one_line(&e.to_string()),
    })
}

/// Adds a document, or the members of a `List`.
fn push(
    source: Source,
    value: Value,
    text: Option<&str>,
    documents: &mut Vec<Document>,
) -> Result<(), DocumentError> {
    if !value.is_object() {
        return Err(DocumentError::NotAnObject {
            source_: source,
            found: type_name(&value),
        });
    }
    if depth(&value) > DEPTH_LIMIT {
        let reason = format!("nested deeper than {DEPTH_LIMIT} levels");
        return Err(DocumentError::Syntax {
            source_: source,
            reason,
        });
    }
    let is_list = value
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"));
    match value {
        Value::Object(mut map) if is_list && map.get("items").is_some_and(Value::is_array) => {
            if let Some(Value::Array(items)) = map.remove("items") {
                for item in items {
                    push(source.clone(), item, None, documents)?;
                }
            }
        }
        value => documents.push(Document {
            source,
            value,
            text: text.map(|t| t.trim().to_owned()),
        }),
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => map.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The kind of a JSON value, in the words of an error message.
#[must_use]
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The first line of a parser's message, bounded: snippets of the input do not belong there.
fn one_line(message: &str) -> String {
    const SHOWN: usize = 200;
    let line = message
        .lines()
        .map(str::trim)
        .find(|l| !l.is_empty())
        .unwrap_or("unknown error");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds(text: &str) -> Vec<String> {
        parse(&"f".into(), text.as_bytes())
            .unwrap()
            .iter()
            .map(|d| {
                format!(
                    "{}:{}",
                    d.source.document,
                    d.value["kind"].as_str().unwrap_or("?")
                )
            })
            .collect()
    }

    #[test]
    fn every_form_of_several_objects_in_a_file_is_read() {
        assert_eq!(
            kinds("kind: A\n---\n# only a comment\n---\nkind: B\n"),
            ["1:A", "2:B"]
        );
        assert_eq!(kinds("---\nkind: A\n--- \nkind: B"), ["1:A", "2:B"]);
        assert_eq!(
            kinds("{\"kind\":\"A\"}\n{\"kind\":\"B\"}\n"),
            ["1:A", "2:B"]
        );
        assert_eq!(
            kinds("{\"kind\":\"List\",\"items\":[{\"kind\":\"A\"},{\"kind\":\"B\"}]}"),
            ["1:A", "1:B"]
        );
        assert_eq!(kinds("{kind: A}"), ["1:A"]);
        assert_eq!(
            kinds("kind: ConfigMap\ndata:\n  x: |\n    --- not a marker\n"),
            ["1:ConfigMap"]
        );
    }

    #[test]
    fn bad_input_is_answered_with_one_line_that_names_the_place() {
        for (text, expected) in [
            (
                &b"kind: A\n---\nkind: [\n"[..],
                "f: document 2: not valid YAML or JSON: ",
            ),
            (b"", "f: file holds no document"),
            (b"# nothing\n", "f: file holds no document"),
            (
                b"just words",
                "f: document 1: expected an object with apiVersion and kind, found a text",
            ),
            (
                b"- kind: A\n",
                "f: document 1: expected an object with apiVersion and kind, found a list",
            ),
            (b"kind: \xff\xfe", "f: not UTF-8 text (byte 6)"),
        ] {
            let error = parse(&"f".into(), text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&"f".into(), &bytes);
        }

        #[test]
        fn anything_that_looks_like_yaml_is_read_or_refused_without_panic(text in "[-:{}\\[\\],&*!|>'\" a\n#0]{0,80}") {
            let _ = parse(&"f".into(), text.as_bytes());
        }
    }
}
