//! Multipart user data: the user's parts first, the generated one last.

use super::UserDataError;

const BOUNDARY: &str = "//";

/// One part: header lines and a body.
#[derive(Clone, Debug)]
pub(super) struct Part {
    header: String,
    body: String,
}

impl Part {
    pub(super) fn script(body: String) -> Self {
        Self {
            header: "Content-Type: text/x-shellscript; charset=\"us-ascii\"".to_owned(),
            body,
        }
    }

    pub(super) fn node_config(body: String) -> Self {
        Self {
            header: "Content-Type: application/node.eks.aws".to_owned(),
            body,
        }
    }
}

/// Joins the user's data and the generated part. Data that is a multipart document gives its parts;
/// anything else is one part, made by `wrap`.
pub(super) fn join(
    custom: Option<&str>,
    generated: Part,
    wrap: impl Fn(String) -> Part,
) -> Result<String, UserDataError> {
    let mut parts = match custom.map(str::trim).filter(|text| !text.is_empty()) {
        None => Vec::new(),
        Some(text) if text.starts_with("MIME-Version:") || text.starts_with("Content-Type:") => {
            split(text)?
        }
        Some(text) => vec![wrap(format!("{text}\n"))],
    };
    parts.push(generated);
    let mut text =
        format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n\n");
    for part in parts {
        text.push_str(&format!("--{BOUNDARY}\n{}\n\n{}", part.header, part.body));
        if !part.body.ends_with('\n') {
            text.push('\n');
        }
    }
    text.push_str(&format!("--{BOUNDARY}--\n"));
    Ok(text)
}

fn split(text: &str) -> Result<Vec<Part>, UserDataError> {
    let text = text.replace("\r\n", "\n");
    let wrong = |reason: &str| UserDataError::Custom(format!("not a multipart document: {reason}"));
    let (head, body) = text
        .split_once("\n\n")
        .ok_or_else(|| wrong("no empty line after the header"))?;
    let boundary = head
        .split(['\n', ';'])
        .map(str::trim)
        .find_map(|field| field.strip_prefix("boundary="))
        .map(|boundary| boundary.trim_matches('"'))
        .filter(|boundary| !boundary.is_empty())
        .ok_or_else(|| wrong("the header names no boundary"))?;
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    let mut closed = false;
    for line in body.lines() {
        if line == format!("{delimiter}--") {
            closed = true;
            break;
        }
        if line == delimiter {
            parts.extend(current.replace(Vec::new()));
        } else if let Some(lines) = &mut current {
            lines.push(line);
        }
    }
    if !closed {
        return Err(wrong("the last boundary is missing"));
    }
    parts.extend(current);
    parts
        .into_iter()
        .map(|lines| part(&lines.join("\n")).ok_or_else(|| wrong("a part has no header")))
        .collect()
}

fn part(text: &str) -> Option<Part> {
    let (header, body) = text.split_once("\n\n")?;
    Some(Part {
        header: header.trim().to_owned(),
        body: format!("{body}\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multipart_document_gives_its_parts_and_a_broken_one_is_refused() {
        let custom = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"X\"\n\n--X\nContent-Type: text/cloud-config\n\npackages: []\n--X--\n";
        let text = join(Some(custom), Part::script("echo\n".into()), Part::script).unwrap();
        assert!(
            text.contains("--//\nContent-Type: text/cloud-config\n\npackages: []\n--//\n"),
            "{text}"
        );
        for broken in [
            "MIME-Version: 1.0\n\nbody",
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"X\"\n\n--X\nA: b\n\nc\n",
        ] {
            assert!(
                join(Some(broken), Part::script(String::new()), Part::script).is_err(),
                "{broken}"
            );
        }
    }

    proptest::proptest! {
        /// Whatever parts a user has, they come first, in order and unchanged, and ours comes last.
        #[test]
        fn merged_documents_split_into_the_parts_that_went_in(
            bodies in proptest::collection::vec("[a-zA-Z0-9 #:=_\\-\n]{1,60}", 0..5),
            crlf: bool,
        ) {
            let mut custom = String::from(
                "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"==B==\"\n\n",
            );
            for body in &bodies {
                custom.push_str(&format!("--==B==\nContent-Type: text/plain\n\n{body}\n"));
            }
            custom.push_str("--==B==--\n");
            if crlf {
                custom = custom.replace('\n', "\r\n");
            }
            let merged = join(Some(&custom), Part::script("ours\n".into()), Part::script).unwrap();
            proptest::prop_assert!(!merged.contains('\r'));
            // Merging is idempotent: our own output is a document that splits again.
            let parts = split(&merged).unwrap();
            let found: Vec<&str> = parts.iter().map(|part| part.body.as_str()).collect();
            let mut expected: Vec<String> = bodies.iter().map(|body| format!("{body}\n")).collect();
            expected.push("ours\n".to_owned());
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
