//! The part of JSONPath that printer columns use: fields (with `\.` for a dot in a name),
//! `[INDEX]`, `[*]` (the first), `['NAME']` and filters of the form `[?(@.FIELD=="VALUE")]`.

use serde_json::Value;

/// The first value at a path; `None` if there is none, or the path is of another form.
pub(crate) fn first<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = value;
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let end = bracket_end(after)?;
            found = select(found, &after[..end])?;
            rest = &after[end + 1..];
        } else {
            let after = rest.strip_prefix('.').unwrap_or(rest);
            let end = field_end(after);
            if end == 0 {
                return None;
            }
            found = found.get(after[..end].replace("\\.", "."))?;
            rest = &after[end..];
        }
    }
    Some(found)
}

fn field_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'.' | b'[' => return at,
            _ => {}
        }
    }
    text.len()
}

/// Where the bracket closes, outside quotes.
fn bracket_end(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b']') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}

fn select<'a>(value: &'a Value, inside: &str) -> Option<&'a Value> {
    if let Some(filter) = inside.strip_prefix("?(") {
        let (field, wanted) = filter.strip_suffix(')')?.split_once("==")?;
        let field = field.trim().strip_prefix("@.")?;
        let wanted = unquoted(wanted);
        let matches = |item: &&Value| item.get(field).and_then(Value::as_str) == Some(wanted);
        return value.as_array()?.iter().find(matches);
    }
    if inside == "*" {
        return value.as_array()?.first();
    }
    match inside.parse::<usize>() {
        Ok(index) => value.get(index),
        Err(_) => value.get(unquoted(inside)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::first;

    #[test]
    fn paths_of_printer_columns_are_followed() {
        let value = json!({
            "metadata": { "labels": { "topology.kubernetes.io/zone": "a" } },
            "status": { "conditions": [{ "type": "A" }, { "type": "Ready", "status": "True" }] },
        });
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(
                first(&value, path).and_then(|found| found.as_str()),
                expected,
                "{path}"
            );
        };
        check(
            ".metadata.labels.topology\\.kubernetes\\.io/zone",
            Some("a"),
        );
        check(".metadata.labels['topology.kubernetes.io/zone']", Some("a"));
        check(
            ".status.conditions[?(@.type==\"Ready\")].status",
            Some("True"),
        );
        check(".status.conditions[1].status", Some("True"));
        check(".status.absent.deeper", None);
        check(".status.conditions[?(@.type", None);
    }
}
