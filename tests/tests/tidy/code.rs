//! A view of Rust source in which only code is left: comments and the insides of strings
//! are blanks, so that a rule about code does not find a sentence. Line numbers stay.

/// The text with comments, strings and character literals blanked.
pub(crate) fn without_comments_and_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(end) = raw_string(rest).filter(|_| !is_word(previous)) {
            end
        } else if c == '"' {
            quoted(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.extend(
                rest[..skipped]
                    .chars()
                    .map(|c| if c == '\n' { '\n' } else { ' ' }),
            );
            rest = &rest[skipped..];
        }
        previous = c;
    }
    out
}

/// Bytes of a block comment; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_u32;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Bytes of `r"..."`, `r#"..."#`, `br"..."`; `None` when the text starts otherwise.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = text.len() - body.len();
    Some(
        body.find(&end)
            .map_or(text.len(), |at| start + at + end.len()),
    )
}

/// Bytes of a string literal with escapes.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of a character literal, or 0 when the quote begins a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((after, escaped))) => {
            let from = after + escaped.len_utf8();
            text[from..].find('\'').map_or(0, |at| from + at + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// The code without items under `#[cfg(test)]`; takes what the other function returns.
pub(crate) fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..start]);
        let length = item(&rest[start..]);
        out.extend(rest[start..start + length].chars().filter(|c| *c == '\n'));
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}

/// Bytes up to the end of the first item: its closing brace, or its semicolon.
fn item(code: &str) -> usize {
    let mut depth = 0_u32;
    for (at, c) in code.char_indices() {
        match c {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether the text has `word` with no letter, digit or underscore around it; a word that
/// begins with punctuation (`::now`) may follow anything.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let joins_before = word.starts_with(is_word) && before.is_some_and(is_word);
        !joins_before && !after.is_some_and(is_word)
    })
}

#[test]
fn comments_and_strings_are_blanked_and_code_stays() {
    let text =
        "let a = \"std::fs \\\" x\"; // std::env\nlet b = r#\"tokio \" \"#; /* a /* b */\n c */ d";
    let code = without_comments_and_strings(text);
    assert_eq!(code.lines().count(), 3);
    for gone in ["std", "tokio", "x", " a /", "c"] {
        assert!(!has_word(&code, gone), "{gone:?} is left in {code:?}");
    }
    for kept in ["let", "a", "b", "d"] {
        assert!(has_word(&code, kept), "{kept:?} is gone from {code:?}");
    }
}

#[test]
fn quotes_of_characters_and_lifetimes_are_told_apart() {
    let text = "fn f<'a>(x: &'a str) { g('\"', '\\'', 'x', '\\u{1F600}'); h(\"gone\") } kept";
    let code = without_comments_and_strings(text);
    assert!(
        code.contains("<'a>(x: &'a str)") && code.contains("kept"),
        "{code}"
    );
    assert!(!code.contains("gone"), "{code}");
}

#[test]
fn tests_are_left_out_and_what_follows_them_is_not() {
    let code = "use a;\n#[cfg(test)]\nuse b;\n#[cfg(test)]\nmod t {\n fn c() { d }\n}\nfn e() {}\n";
    let left = without_tests(code);
    assert_eq!(left.lines().count(), code.lines().count());
    for (word, is_kept) in [
        ("a", true),
        ("b", false),
        ("c", false),
        ("d", false),
        ("e", true),
    ] {
        assert_eq!(has_word(&left, word), is_kept, "{word} in {left:?}");
    }
}
