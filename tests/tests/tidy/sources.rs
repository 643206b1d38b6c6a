//! What a source file may say, by its place in the house.

use crate::code::{has_word, is_word, without_comments_and_strings, without_tests};
use crate::third_party::{FEATURE_HOLDERS, PURE};
use crate::{TextFile, Violation, assert_tidy, packages, root, text_files};

/// A file that does not fit here is two concerns.
const LINES_MAX: usize = 800;

/// What a pure crate may not name outside its tests, with the reason.
const IMPURE: &[(&str, &str)] = &[
    ("Instant", "a clock; take a model::Timestamp"),
    ("SystemTime", "a clock; take a model::Timestamp"),
    ("::now", "a clock; take a model::Timestamp"),
    ("std::env", "the environment; take a setting"),
    ("std::fs", "a file; take its content"),
    ("std::net", "a socket"),
    ("std::process", "a process"),
    ("std::io", "input or output; take and return values"),
    ("thread::sleep", "waiting; return when to be called again"),
    ("tokio", "a runtime"),
    ("async", "waiting; decisions are synchronous"),
    ("await", "waiting; decisions are synchronous"),
    ("tracing", "logging; return a report"),
    ("println", "output; return a report"),
    ("eprintln", "output; return a report"),
    ("rand", "randomness; take a seed"),
    (
        "k8s_openapi",
        "a Kubernetes type; state turns objects into model values",
    ),
    (
        "kube",
        "a Kubernetes type; state turns objects into model values",
    ),
];

/// The API types use kube's derive and nothing that talks.
const TALKS: &[(&str, &str)] = &[
    ("kube::Client", "a client"),
    ("kube::Api", "a client"),
    ("kube::client", "a client"),
    ("kube::runtime", "a runtime"),
];

/// Marks of unfinished work; written apart so that this file has none.
const MARKS: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// Folders that exist on one machine only; written apart for the same reason.
const MACHINE: [&str; 4] = [
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
    concat!("/t", "mp/"),
];

fn lines_with<'a>(
    code: &'a str,
    words: &'a [(&str, &str)],
) -> impl Iterator<Item = (usize, &'a str, &'a str)> {
    code.lines().enumerate().flat_map(move |(index, line)| {
        words
            .iter()
            .filter(move |(word, _)| has_word(line, word) || imports_from_group(line, word))
            .map(move |(word, why)| (index + 1, *word, *why))
    })
}

/// `use std::{fs, io}` names `std::fs` as well; rustfmt keeps such a group on one line
/// while it is short, and that is how people write it.
fn imports_from_group(line: &str, path: &str) -> bool {
    let Some((module, name)) = path.split_once("::") else {
        return false;
    };
    line.split_once(&format!("{module}::{{"))
        .is_some_and(|(_, group)| has_word(group, name))
}

fn check_pure(path: &str, text: &str) -> Vec<Violation> {
    let code = without_tests(&without_comments_and_strings(text));
    lines_with(&code, IMPURE)
        .map(|(line, word, why)| {
            Violation::new(path, line, format!("a pure crate names {word}: {why}"))
        })
        .collect()
}

fn check_api(path: &str, text: &str) -> Vec<Violation> {
    let code = without_comments_and_strings(text);
    lines_with(&code, TALKS)
        .map(|(line, word, why)| {
            Violation::new(path, line, format!("the API types name {word}: {why}"))
        })
        .collect()
}

/// A package in the manifest for its features alone must not turn into a used one.
fn check_holder(path: &str, text: &str, held: &[&str]) -> Vec<Violation> {
    let code = without_comments_and_strings(text);
    let names: Vec<String> = held
        .iter()
        .map(|package| format!("{}::", package.replace('-', "_")))
        .collect();
    let mut violations = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for name in names.iter().filter(|name| has_path(line, name)) {
            let rule = format!("{name} is in the manifest only to hold features");
            violations.push(Violation::new(path, index + 1, rule));
        }
    }
    violations
}

/// Whether a path begins with `name` (`kube::`), and does not merely contain it.
fn has_path(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        !line[..at]
            .chars()
            .next_back()
            .is_some_and(|c| is_word(c) || c == ':')
    })
}

fn check_suppressions(path: &str, text: &str) -> Vec<Violation> {
    let code = without_comments_and_strings(text);
    let bare = [concat!("#[al", "low("), concat!("#![al", "low(")];
    let found = code
        .lines()
        .enumerate()
        .filter(|(_, line)| bare.iter().any(|b| line.contains(b)));
    found
        .map(|(index, _)| {
            Violation::new(
                path,
                index + 1,
                "suppress with #[expect(lint, reason = \"...\")]",
            )
        })
        .collect()
}

fn check_size(path: &str, text: &str) -> Option<Violation> {
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| {
        Violation::new(
            path,
            LINES_MAX + 1,
            format!("{lines} lines, at most {LINES_MAX}: split by concern"),
        )
    })
}

fn check_marks(path: &str, text: &str) -> Vec<Violation> {
    let cites_decision = |line: &str| {
        line.match_indices("D-")
            .any(|(at, _)| line[at + 2..].starts_with(|c: char| c.is_ascii_digit()))
    };
    let found = text
        .lines()
        .enumerate()
        .filter(|(_, line)| MARKS.iter().any(|mark| has_word(line, mark)) && !cites_decision(line));
    found
        .map(|(index, _)| {
            Violation::new(
                path,
                index + 1,
                "unfinished work has a decision (D-...) or is finished",
            )
        })
        .collect()
}

fn check_machine_paths(path: &str, text: &str) -> Vec<Violation> {
    let names_machine = |line: &str| {
        MACHINE.iter().any(|folder| {
            line.match_indices(folder).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + folder.len()..].chars().next();
                let continues = before.is_some_and(|c| is_word(c) || ".-}$)".contains(c));
                !continues && after.is_some_and(|c| c.is_ascii_lowercase())
            })
        })
    };
    let found = text
        .lines()
        .enumerate()
        .filter(|(_, line)| names_machine(line));
    found
        .map(|(index, _)| {
            Violation::new(path, index + 1, "a folder of one machine; derive the path")
        })
        .collect()
}

/// Files in which a person writes, as opposed to data and generated text.
fn is_written(file: &TextFile) -> bool {
    ["rs", "go", "sh", "toml", "py"].contains(&file.extension())
        || ["Makefile", "run"].contains(&file.name())
}

fn each_written(check: impl Fn(&TextFile) -> Vec<Violation>) -> Vec<Violation> {
    let files = text_files();
    let written: Vec<&TextFile> = files.iter().filter(|file| is_written(file)).collect();
    assert!(
        written.len() > 30,
        "the walk found {} files only",
        written.len()
    );
    written.into_iter().flat_map(check).collect()
}

/// The folders of some crates' sources, from the repository's root.
fn source_folders(names: &[&str]) -> Vec<String> {
    let folder = |package: &cargo_metadata::Package| {
        let manifest = package.manifest_path.as_std_path();
        let folder = manifest
            .parent()
            .and_then(|f| f.strip_prefix(root()).ok())
            .expect("a member");
        format!("{}/src/", folder.to_string_lossy())
    };
    let packages = packages();
    let wanted = packages.iter().filter(|package| {
        package
            .name
            .strip_prefix("millwright-")
            .is_some_and(|name| names.contains(&name))
    });
    let folders: Vec<String> = wanted.map(folder).collect();
    assert_eq!(
        folders.len(),
        names.len(),
        "a folder for each of {names:?}: {folders:?}"
    );
    folders
}

/// Rust sources of some crates; a module that is only tests (`tests.rs`, `tests/`) is not
/// among them.
fn sources_of(names: &[&str]) -> Vec<TextFile> {
    let folders = source_folders(names);
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let wanted = |file: &TextFile| {
        file.extension() == "rs"
            && folders.iter().any(|folder| {
                file.path
                    .strip_prefix(folder.as_str())
                    .is_some_and(|rest| !is_test(&format!("/{rest}")))
            })
    };
    text_files().into_iter().filter(wanted).collect()
}

#[test]
fn pure_crates_name_no_clock_no_file_and_no_runtime() {
    let files = sources_of(PURE);
    assert!(files.len() > PURE.len(), "{} files", files.len());
    assert_tidy(
        files
            .iter()
            .flat_map(|file| check_pure(&file.path, &file.text))
            .collect(),
    );
}

#[test]
fn the_api_types_do_not_talk() {
    let files = sources_of(&["api"]);
    assert_tidy(
        files
            .iter()
            .flat_map(|file| check_api(&file.path, &file.text))
            .collect(),
    );
}

#[test]
fn packages_that_hold_features_are_not_used() {
    for (user, held) in FEATURE_HOLDERS {
        let files = sources_of(&[user]);
        assert_tidy(
            files
                .iter()
                .flat_map(|f| check_holder(&f.path, &f.text, held))
                .collect(),
        );
    }
}

#[test]
fn lints_are_suppressed_with_a_reason() {
    assert_tidy(each_written(|file| match file.extension() {
        "rs" => check_suppressions(&file.path, &file.text),
        _ => Vec::new(),
    }));
}

#[test]
fn no_file_is_longer_than_can_be_read() {
    assert_tidy(each_written(|file| {
        check_size(&file.path, &file.text).into_iter().collect()
    }));
}

#[test]
fn no_work_is_left_unfinished_without_a_decision() {
    assert_tidy(each_written(|file| check_marks(&file.path, &file.text)));
}

#[test]
fn nothing_names_a_folder_of_one_machine() {
    assert_tidy(each_written(|file| {
        check_machine_paths(&file.path, &file.text)
    }));
}

#[test]
fn every_crate_says_what_it_is() {
    let roots = each_written(|file| {
        let is_root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        let lacks = is_root && !file.text.starts_with("//!");
        lacks
            .then(|| Violation::new(&file.path, 1, "begin with //! what the crate is"))
            .into_iter()
            .collect()
    });
    assert_tidy(roots);
}

#[test]
fn impure_code_is_found_and_impure_sentences_and_tests_are_not() {
    let bad = "use std::{fmt, fs};\nfn f() { let t = Zoned::now(); }\nasync fn g() {}\n";
    let lines: Vec<usize> = check_pure("x.rs", bad).iter().map(|v| v.line).collect();
    assert_eq!(lines, [1, 2, 3]);
    let good = "//! Reads no std::fs.\nfn f() { g(\"tokio\") }\n#[cfg(test)]\nmod t { use std::fs; }\n\
                struct InstantLike;\n";
    assert_eq!(check_pure("x.rs", good), []);
    assert_eq!(
        check_api(
            "x.rs",
            "use kube::CustomResource;\nuse kube::{Api, Resource};\n"
        )
        .len(),
        1
    );
}

#[test]
fn a_feature_holder_in_use_is_found() {
    let text = "use kube::Api;\nuse our::kube::Sim; // kube::Api\nfn f() { cube::g() }\n";
    let lines: Vec<usize> = check_holder("x.rs", text, &["kube"])
        .iter()
        .map(|v| v.line)
        .collect();
    assert_eq!(lines, [1]);
}

#[test]
fn bare_suppressions_marks_machine_paths_and_long_files_are_found() {
    let allow = concat!(
        "#[al",
        "low(dead_code)]\n#[expect(dead_code, reason = \"x\")]\n"
    );
    assert_eq!(check_suppressions("x.rs", allow).len(), 1);
    assert_eq!(check_suppressions("x.rs", &format!("// {allow}")).len(), 0);

    let marks = format!(
        "// {m}: later\n// {m} D-017: later\n// {m}S are no mark\n",
        m = MARKS[0]
    );
    let lines: Vec<usize> = check_marks("x.rs", &marks).iter().map(|v| v.line).collect();
    assert_eq!(lines, [1]);

    let paths = format!(
        "open(\"{f}me/x\")\n\"a{f}me\"\n\"${{DIR}}{f}me\"\n\"{f}\"\n",
        f = MACHINE[1]
    );
    let lines: Vec<usize> = check_machine_paths("x.rs", &paths)
        .iter()
        .map(|v| v.line)
        .collect();
    assert_eq!(lines, [1]);

    assert!(check_size("x.rs", &"x\n".repeat(LINES_MAX)).is_none());
    assert!(check_size("x.rs", &"x\n".repeat(LINES_MAX + 1)).is_some());
}
