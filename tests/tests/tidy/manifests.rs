//! What a member's manifest may say: nothing of its own about versions and features, so
//! that every dependency has one identity and is compiled once.

use crate::{TextFile, Violation, assert_tidy, manifest_of, packages};

fn check_manifest(file: &TextFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut section = "";
    let mut has_lints = false;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            if let Some(rule) = bad_section(section) {
                violations.push(Violation::new(&file.path, index + 1, rule));
            }
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        has_lints |= section == "lints" && entry == "workspace=true";
        if section.ends_with("dependencies") && !is_inherited(&entry) {
            let rule = format!(
                "a dependency is `NAME.workspace = true`; versions and features stand in the \
                 root manifest: {line}"
            );
            violations.push(Violation::new(&file.path, index + 1, rule));
        }
        let inherited = ["version", "edition", "rust-version", "license", "publish"];
        if section == "package"
            && inherited
                .iter()
                .any(|key| entry.starts_with(&format!("{key}=")))
        {
            let rule = format!("inherit it from the workspace: {line}");
            violations.push(Violation::new(&file.path, index + 1, rule));
        }
    }
    if !has_lints {
        violations.push(Violation::new(
            &file.path,
            1,
            "missing: [lints] workspace = true",
        ));
    }
    violations
}

/// `NAME.workspace=true`, or the same as a table that only adds `optional=true`.
fn is_inherited(entry: &str) -> bool {
    let Some((name, value)) = entry.split_once('=') else {
        return false;
    };
    match value {
        "true" => name.ends_with(".workspace"),
        table => [
            "{workspace=true,optional=true}",
            "{optional=true,workspace=true}",
        ]
        .contains(&table),
    }
}

/// Sections in which a dependency would escape the line rule, and profiles, which cargo
/// ignores outside the root.
fn bad_section(section: &str) -> Option<String> {
    let nested = section.contains("dependencies.");
    (nested || section.starts_with("profile") || section.starts_with("patch"))
        .then(|| format!("no section [{section}] in a member's manifest"))
}

#[test]
fn members_inherit_versions_features_and_lints() {
    let manifests: Vec<TextFile> = packages().iter().map(manifest_of).collect();
    assert!(manifests.len() > 10, "{} manifests", manifests.len());
    assert_tidy(manifests.iter().flat_map(check_manifest).collect());
}

#[test]
fn a_manifest_with_a_mind_of_its_own_is_found() {
    let text = "[package]\nversion = \"1.0.0\"\nedition.workspace = true\n\n[dependencies]\n\
                good.workspace = true\nalso = { workspace = true, optional = true }\n\
                bad = \"1\"\nworse = { workspace = true, features = [\"x\"] }\n\
                # worst = \"1\"\n[dev-dependencies.hidden]\nversion = \"1\"\n";
    let file = TextFile {
        path: "x/Cargo.toml".to_owned(),
        text: text.to_owned(),
    };
    let mut lines: Vec<usize> = check_manifest(&file).iter().map(|v| v.line).collect();
    lines.sort_unstable();
    // 1: no lints; 2: version; 8 and 9: own version, own feature; 11: hidden table.
    assert_eq!(lines, [1, 2, 8, 9, 11]);
}
