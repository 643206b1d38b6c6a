//! Which of our crates may know which: the ring table of ARCHITECTURE.md as data.

use cargo_metadata::{DependencyKind, Package};

use crate::{Violation, assert_tidy, line_naming, manifest_of, packages};

/// Where a crate stands. Arrows point to a smaller ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Ring(u8),
    /// Beside the rings, usable from this ring outward.
    FromRing(u8),
    /// Beside the rings, for dev-dependencies and for crates that are tests or
    /// demonstrations as a whole.
    Testing,
}

struct Member {
    /// Without the prefix `millwright-`.
    name: &'static str,
    place: Place,
    /// The only ones of ours that it may use outside its tests; `None`: whatever its place
    /// permits.
    only: Option<&'static [&'static str]>,
}

const fn member(name: &'static str, place: Place, only: Option<&'static [&'static str]>) -> Member {
    Member { name, place, only }
}

/// Every crate of the workspace. A new crate without a row is a violation.
const MEMBERS: &[Member] = &[
    member("model", Place::Ring(0), Some(&[])),
    // The API types are a contract with users: of ours they know the keys of labels.
    member("api", Place::Ring(1), Some(&["model"])),
    member("ec2-catalogue", Place::Ring(1), Some(&["model"])),
    member("scheduling", Place::Ring(2), Some(&["model"])),
    member("lifecycle", Place::Ring(2), Some(&["model"])),
    member(
        "disruption",
        Place::Ring(2),
        Some(&["lifecycle", "model", "scheduling"]),
    ),
    member("state", Place::Ring(3), None),
    member("cloud", Place::Ring(3), None),
    // Thin and without policy: it fills the port.
    member(
        "cloud-aws",
        Place::Ring(4),
        Some(&["api", "cloud", "ec2-catalogue", "model", "telemetry"]),
    ),
    member("reconcile", Place::Ring(4), None),
    member("controller", Place::Ring(5), None),
    // `millwright plan` works on files: it links neither the AWS SDK nor the watches.
    member(
        "cli",
        Place::Ring(5),
        Some(&[
            "api",
            "cloud",
            "disruption",
            "ec2-catalogue",
            "lifecycle",
            "model",
            "scheduling",
            "state",
            "telemetry",
        ]),
    ),
    member("loadtest", Place::Ring(6), None),
    member("tests", Place::Ring(7), None),
    member("telemetry", Place::FromRing(3), Some(&[])),
    // A simulator is held to reality from outside, so it must not share the controller's
    // understanding of it.
    member(
        "sim",
        Place::Testing,
        Some(&["api", "ec2-catalogue", "model"]),
    ),
    // The reference solver judges the real one and must not call it.
    member(
        "testkit",
        Place::Testing,
        Some(&["api", "ec2-catalogue", "model"]),
    ),
];

/// Arrows within one ring, each with its reason in DECISIONS.md.
const WITHIN_A_RING: &[(&str, &str)] = &[
    // Consolidation is a simulated scheduling run.
    ("disruption", "scheduling"),
    // Candidates, budgets and emptiness are rules of a node's life.
    ("disruption", "lifecycle"),
];

/// Crates that are tests or demonstrations as a whole.
const FOR_TESTING: &[&str] = &["loadtest", "tests", "sim", "testkit"];

fn find(name: &str) -> Option<&'static Member> {
    MEMBERS.iter().find(|member| member.name == name)
}

/// Why `from` must not depend on `to`, or `None` when it may.
fn objection(from: &str, to: &str, kind: DependencyKind) -> Option<String> {
    let Some(user) = find(from) else {
        return Some(format!("{from} has no row in the ring table"));
    };
    let Some(used) = find(to) else {
        return Some(format!("{to} has no row in the ring table"));
    };
    let for_tests = kind == DependencyKind::Development;
    if let (false, Some(only)) = (for_tests, user.only)
        && !only.contains(&to)
    {
        return Some(format!("{from} may use of ours only {only:?}, not {to}"));
    }
    match (user.place, used.place) {
        (_, Place::Testing) => (!for_tests && !FOR_TESTING.contains(&from))
            .then(|| format!("{to} is for tests: {from} may have it as a dev-dependency")),
        (Place::Ring(ring), Place::FromRing(first)) => (ring < first)
            .then(|| format!("{to} is usable from ring {first} outward, {from} is in ring {ring}")),
        (Place::Ring(outer), Place::Ring(inner)) => {
            let allowed = inner < outer || WITHIN_A_RING.contains(&(from, to));
            (!allowed).then(|| {
                format!(
                    "arrows point inward: {from} (ring {outer}) may not use {to} (ring {inner})"
                )
            })
        }
        // What stands beside the rings is confined by its `only`, checked above.
        (Place::FromRing(_) | Place::Testing, _) => None,
    }
}

fn check_package(package: &Package) -> Vec<Violation> {
    let manifest = manifest_of(package);
    let short = |name: &str| name.strip_prefix("millwright-").map(str::to_owned);
    let Some(from) = short(&package.name) else {
        let rule = format!("a package's name starts with millwright-: {}", package.name);
        return vec![Violation::new(
            &manifest.path,
            line_naming(&manifest.text, "name"),
            rule,
        )];
    };
    let mut violations = Vec::new();
    if find(&from).is_none() {
        violations.push(Violation::new(
            &manifest.path,
            1,
            format!("{from} has no row in the ring table"),
        ));
    }
    for dependency in &package.dependencies {
        let Some(to) = short(&dependency.name) else {
            continue;
        };
        if let Some(rule) = objection(&from, &to, dependency.kind) {
            let line = line_naming(&manifest.text, &dependency.name);
            violations.push(Violation::new(&manifest.path, line, rule));
        }
    }
    violations
}

#[test]
fn arrows_between_our_crates_point_inward() {
    let packages = packages();
    assert!(
        packages.len() >= MEMBERS.len(),
        "cargo metadata saw {} packages",
        packages.len()
    );
    assert_tidy(packages.iter().flat_map(check_package).collect());
}

#[test]
fn the_ring_table_knows_good_arrows_from_bad() {
    use DependencyKind::{Development, Normal};
    let good = [
        ("scheduling", "model", Normal),
        ("disruption", "scheduling", Normal),
        ("reconcile", "state", Normal),
        ("reconcile", "telemetry", Normal),
        ("controller", "cloud-aws", Normal),
        ("loadtest", "controller", Normal),
        ("loadtest", "sim", Normal),
        ("scheduling", "testkit", Development),
        ("scheduling", "ec2-catalogue", Development),
        ("cloud-aws", "sim", Development),
    ];
    for (from, to, kind) in good {
        assert_eq!(objection(from, to, kind), None, "{from} -> {to}");
    }
    let bad = [
        ("model", "api", Normal, "only"),
        ("scheduling", "api", Normal, "only"),
        ("state", "reconcile", Normal, "inward"),
        ("state", "cloud", Normal, "inward"),
        ("scheduling", "state", Development, "inward"),
        ("lifecycle", "scheduling", Development, "inward"),
        ("reconcile", "cloud-aws", Normal, "inward"),
        ("controller", "sim", Normal, "for tests"),
        ("scheduling", "telemetry", Normal, "only"),
        ("lifecycle", "telemetry", Development, "ring 3 outward"),
        ("sim", "state", Normal, "only"),
        ("cli", "cloud-aws", Normal, "only"),
        ("scheduling", "novelty", Normal, "no row"),
    ];
    for (from, to, kind, why) in bad {
        let found = objection(from, to, kind).unwrap_or_default();
        assert!(found.contains(why), "{from} -> {to}: {found:?}");
    }
}
