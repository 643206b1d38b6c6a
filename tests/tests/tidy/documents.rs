//! That what the documents tell people to type exists, and that CI runs the same.

use std::collections::BTreeSet;

use crate::{TextFile, Violation, assert_tidy, root, text_files};

/// The targets of a Makefile: names before a colon at the start of a line.
fn targets(makefile: &str) -> BTreeSet<&str> {
    makefile
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| line.split_once(':'))
        .filter(|(_, rest)| !rest.starts_with('=') && !rest.starts_with(" export"))
        .flat_map(|(names, _)| names.split_whitespace())
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
        .collect()
}

/// The targets that a document's code tells people to make, with their lines.
fn commands(document: &str) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (index, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let code: Vec<&str> = if in_block {
            vec![line]
        } else {
            line.split('`').skip(1).step_by(2).collect()
        };
        for piece in code {
            let command = piece
                .split('#')
                .next()
                .unwrap_or_default()
                .trim_start_matches(['$', ' ']);
            if let Some(arguments) = command.strip_prefix("make ") {
                let named = arguments
                    .split_whitespace()
                    .take_while(|word| !word.starts_with(['-', '|', '&', ';']));
                found.extend(
                    named
                        .filter(|word| !word.contains('='))
                        .map(|word| (index + 1, word)),
                );
            }
        }
    }
    found
}

fn check_document(document: &TextFile, makefile: &str) -> Vec<Violation> {
    let targets = targets(makefile);
    let unknown = commands(&document.text)
        .into_iter()
        .filter(|(_, name)| !targets.contains(name));
    unknown
        .map(|(line, name)| {
            Violation::new(
                &document.path,
                line,
                format!("the Makefile has no target {name}"),
            )
        })
        .collect()
}

fn makefile() -> String {
    std::fs::read_to_string(root().join("Makefile")).expect("the Makefile")
}

/// The recipe of a target, its lines joined.
fn recipe(makefile: &str, target: &str) -> String {
    let begins =
        |line: &&str| line.starts_with(&format!("{target}:")) && !line.contains(": export");
    let after = makefile.lines().skip_while(|line| !begins(line)).skip(1);
    after
        .take_while(|line| line.starts_with('\t'))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_documents_commands_are_targets_of_the_makefile() {
    let makefile = makefile();
    let files = text_files();
    let documents = files
        .iter()
        .filter(|file| file.extension() == "md" && !file.path.contains('/'));
    assert_tidy(
        documents
            .flat_map(|document| check_document(document, &makefile))
            .collect(),
    );
}

#[test]
fn ci_runs_what_people_run() {
    let makefile = makefile();
    let ci = recipe(&makefile, "ci");
    assert!(
        ci.contains("$(MAKE) check") && ci.contains("$(MAKE) test"),
        "the target ci: {ci:?}"
    );
    assert!(recipe(&makefile, "check").contains("-- -D warnings"));
    let run = std::fs::read_to_string(root().join(".ci/run")).expect(".ci/run");
    assert!(
        run.starts_with("#!/usr/bin/env bash\n") && run.contains("make ci"),
        "{run}"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(root().join(".ci/run"))
            .expect(".ci/run")
            .permissions()
            .mode();
        assert!(mode & 0o111 != 0, ".ci/run is not executable: {mode:o}");
    }
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let makefile =
        "X := 1\n.PHONY: demo\ndemo: other ## text\n\techo\nci: export A = 1\nci:\n\techo a: b\n";
    assert_eq!(targets(makefile), BTreeSet::from(["ci", "demo"]));
    let text = "Type `make demo X=1` or `make nothing`; make sure.\n```sh\nmake ci   # all\n$ make gone\n```\n";
    let document = TextFile {
        path: "README.md".to_owned(),
        text: text.to_owned(),
    };
    let lines: Vec<usize> = check_document(&document, makefile)
        .iter()
        .map(|v| v.line)
        .collect();
    assert_eq!(lines, [1, 4]);
    assert_eq!(recipe(makefile, "ci"), "\techo a: b");
}
