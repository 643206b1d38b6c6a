//! The house's rules as tests: who may know whom, what a manifest and a source file may
//! say, and that the documents' commands exist.
//!
//! The rules are data at the top of each module, the checks are functions from text to
//! violations, and each check is tested on a small bad input: a check that finds nothing
//! because it looks at nothing would be worse than none.

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/rings.rs"]
mod rings;
#[path = "tidy/sources.rs"]
mod sources;
#[path = "tidy/third_party.rs"]
mod third_party;

use std::fmt;
use std::path::{Path, PathBuf};

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    /// Path from the repository's root.
    file: String,
    /// From 1.
    line: usize,
    /// What is wrong, and what is right instead.
    rule: String,
}

impl Violation {
    fn new(file: &str, line: usize, rule: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            rule: rule.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.rule)
    }
}

/// Fails with every violation on a line of its own.
#[track_caller]
fn assert_tidy(mut violations: Vec<Violation>) {
    violations.sort();
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} violations:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is in the repository")
        .to_owned()
}

/// A text file of the repository.
struct TextFile {
    /// From the repository's root, with `/`.
    path: String,
    text: String,
}

impl TextFile {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// What follows the last dot of the name; empty without a dot.
    fn extension(&self) -> &str {
        self.name()
            .rsplit_once('.')
            .map_or("", |(_, extension)| extension)
    }
}

/// Folders that hold what tools made, and version control.
const NOT_OURS: [&str; 8] = [
    ".git",
    "target",
    "node_modules",
    "bin",
    "corpus",
    "artifacts",
    "__pycache__",
    ".venv",
];

/// All text files of the repository, sorted by path.
fn text_files() -> Vec<TextFile> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let entry = entry.expect("a readable entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().expect("a file type");
            if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
                folders.push(entry.path());
            } else if kind.is_file() {
                // What is not text (the catalogue's archive) has no lines to check.
                let Ok(text) = std::fs::read_to_string(entry.path()) else {
                    continue;
                };
                let path = entry.path();
                let path = path.strip_prefix(&root).expect("inside the root");
                found.push(TextFile {
                    path: path.to_string_lossy().into_owned(),
                    text,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The workspace's packages as cargo sees them; needs no network and no lock file.
fn packages() -> Vec<cargo_metadata::Package> {
    cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata")
        .packages
}

/// A package's manifest, from the repository's root.
fn manifest_of(package: &cargo_metadata::Package) -> TextFile {
    let full = package.manifest_path.as_std_path();
    let path = full
        .strip_prefix(root())
        .expect("a member of this workspace");
    TextFile {
        path: path.to_string_lossy().into_owned(),
        text: std::fs::read_to_string(full).expect("a readable manifest"),
    }
}

/// The line on which a manifest names a dependency; 1 when it does not.
fn line_naming(manifest: &str, dependency: &str) -> usize {
    let names = |line: &str| {
        line.strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    manifest
        .lines()
        .position(|line| names(line.trim()))
        .map_or(1, |index| index + 1)
}

#[test]
fn the_walk_sees_this_file_and_nothing_that_tools_made() {
    let files = text_files();
    assert!(
        files
            .iter()
            .any(|f| f.path == "tests/tests/tidy.rs" && f.extension() == "rs")
    );
    assert!(files.iter().all(|f| !f.path.starts_with("target/")));
}

#[test]
fn a_dependency_is_found_on_its_line() {
    let manifest = "[dependencies]\nserde_json.workspace = true\nserde.workspace = true\n";
    assert_eq!(line_naming(manifest, "serde"), 3);
    assert_eq!(line_naming(manifest, "absent"), 1);
}
