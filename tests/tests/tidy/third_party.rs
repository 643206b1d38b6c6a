//! Which crates may name which third-party packages.

use cargo_metadata::{DependencyKind, Package};

use crate::{Violation, assert_tidy, line_naming, manifest_of, packages};

struct Row {
    /// Names; a trailing `*` stands for any rest.
    packages: &'static [&'static str],
    /// Who may name them, without the prefix.
    users: &'static [&'static str],
    why: &'static str,
}

/// Crates that decide: no clock, no file, no network, no Kubernetes, no AWS.
pub(crate) const PURE: &[&str] = &[
    "model",
    "scheduling",
    "lifecycle",
    "disruption",
    "ec2-catalogue",
];

/// All that a pure crate may name outside its tests. A short list is the point: what is
/// not on it is a decision.
const PURE_MAY_USE: &[&str] = &[
    "crossbeam",
    "flate2",
    "rustc-hash",
    "serde",
    "smallvec",
    "thiserror",
];

/// What one pure crate may name beyond that.
const PURE_EXCEPTIONS: &[(&str, &str)] = &[
    // The schedules of disruption budgets: calendar arithmetic over a given time.
    ("lifecycle", "croner"),
    ("lifecycle", "jiff"),
];

/// Packages that a crate names without using them, to hold the features that the whole
/// workspace gives to what stands below the AWS SDK; sources.rs sees that they are unused.
pub(crate) const FEATURE_HOLDERS: &[(&str, &[&str])] = &[(
    "cloud-aws",
    &[
        "getrandom",
        "kube",
        "log",
        "tokio-util",
        "tracing-subscriber",
        "uuid",
    ],
)];

/// Packages that only tests need.
const FOR_TESTS: &[&str] = &["proptest", "insta", "tempfile", "cargo_metadata"];

const TABLE: &[Row] = &[
    Row {
        packages: &["aws-*"],
        users: &["cloud-aws"],
        why: "the AWS SDK is compiled once and known in one place",
    },
    Row {
        packages: &["kube"],
        // api has it for the derive alone; sources.rs sees to that.
        users: &[
            "api",
            "reconcile",
            "controller",
            "cli",
            "sim",
            "loadtest",
            "tests",
        ],
        why: "only the outer ring talks to an API server",
    },
    Row {
        packages: &["k8s-openapi"],
        users: &[
            "api",
            "state",
            "reconcile",
            "controller",
            "cli",
            "sim",
            "testkit",
            "loadtest",
            "tests",
        ],
        why: "Kubernetes objects become model values in state",
    },
    Row {
        packages: &["schemars"],
        users: &["api", "sim", "cli"],
        why: "schemas are made from the API types",
    },
    Row {
        packages: &["tokio", "tokio-*", "futures", "async-trait"],
        users: &[
            "cloud",
            "cloud-aws",
            "reconcile",
            "controller",
            "cli",
            "telemetry",
            "sim",
            "loadtest",
            "tests",
        ],
        why: "only the outer rings wait",
    },
    Row {
        packages: &[
            "axum",
            "hyper",
            "hyper-util",
            "http",
            "http-body-util",
            "tower",
        ],
        users: &[
            "cloud-aws",
            "reconcile",
            "controller",
            "telemetry",
            "sim",
            "loadtest",
            "tests",
        ],
        why: "only the outer rings have sockets",
    },
    Row {
        packages: &["rustls"],
        users: &[
            "cloud-aws",
            "reconcile",
            "controller",
            "cli",
            "sim",
            "loadtest",
            "tests",
        ],
        why: "one TLS provider, installed by the programs",
    },
    Row {
        packages: &["crossbeam"],
        users: &["scheduling", "state", "sim"],
        why: "threads share memory in few places",
    },
    Row {
        packages: &["dashmap"],
        users: &["state", "sim"],
        why: "a sharded map is easy to deadlock: few places, guards never held across an await",
    },
    Row {
        packages: &["mimalloc"],
        users: &["controller", "cli", "loadtest"],
        why: "a program chooses its allocator, a library does not",
    },
    Row {
        packages: &["metrics", "metrics-*"],
        users: &["telemetry"],
        why: "metrics are named once, in telemetry's catalogue",
    },
    Row {
        packages: &["tracing-subscriber"],
        users: &["telemetry", "controller", "cli", "loadtest", "tests"],
        why: "a program chooses where its log goes",
    },
    Row {
        packages: &["clap", "anyhow", "indicatif"],
        users: &["controller", "cli", "loadtest", "tests"],
        why: "for programs; a library has typed errors and no command line",
    },
    Row {
        packages: &["rand", "uuid"],
        users: &[
            // Its identity in the Lease.
            "controller",
            "cloud",
            "cloud-aws",
            "reconcile",
            "sim",
            "testkit",
            "loadtest",
            "tests",
        ],
        why: "pure crates receive a seed",
    },
    Row {
        packages: &["cel", "json-patch"],
        users: &["sim", "tests", "reconcile"],
        why: "what an API server does is simulated in one place",
    },
];

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Why `user` must not name `package`, or `None` when it may.
fn objection(user: &str, package: &str, kind: DependencyKind) -> Option<String> {
    let for_tests = kind == DependencyKind::Development;
    if FOR_TESTS.contains(&package) {
        // The load test is a test that ships: its control planes live in folders that go with them.
        let throwaway = user == "loadtest" && package == "tempfile";
        let may = for_tests || throwaway || ["testkit", "tests"].contains(&user);
        return (!may).then(|| format!("{package} is for tests: a dev-dependency of {user}"));
    }
    let is_pure_enough =
        PURE_MAY_USE.contains(&package) || PURE_EXCEPTIONS.contains(&(user, package));
    if PURE.contains(&user) && !for_tests && !is_pure_enough {
        return Some(format!(
            "{user} decides purely and may name {PURE_MAY_USE:?}, not {package}"
        ));
    }
    if FEATURE_HOLDERS
        .iter()
        .any(|(holder, held)| *holder == user && held.contains(&package))
    {
        return None;
    }
    let row = TABLE
        .iter()
        .find(|row| row.packages.iter().any(|pattern| matches(pattern, package)))?;
    // Tests of a crate may set a runtime up and use errors without types.
    let may = row.users.contains(&user) || (for_tests && matches_any(IN_ANY_TEST, package));
    (!may).then(|| {
        format!(
            "{package} may be named by {:?}, not {user}: {}",
            row.users, row.why
        )
    })
}

/// What the tests of any crate but a pure one may name.
const IN_ANY_TEST: &[&str] = &[
    "tokio",
    "futures",
    "anyhow",
    "http",
    "http-body-util",
    "k8s-openapi",
];

fn matches_any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

fn check_package(package: &Package) -> Vec<Violation> {
    let manifest = manifest_of(package);
    let user = package
        .name
        .strip_prefix("millwright-")
        .unwrap_or(&package.name);
    // Our own crates have a table of their own (rings.rs).
    let foreign = package
        .dependencies
        .iter()
        .filter(|d| !d.name.starts_with("millwright-"));
    foreign
        .filter_map(|dependency| {
            let rule = objection(user, &dependency.name, dependency.kind)?;
            let line = line_naming(&manifest.text, &dependency.name);
            Some(Violation::new(&manifest.path, line, rule))
        })
        .collect()
}

#[test]
fn third_party_packages_stay_where_they_belong() {
    assert_tidy(packages().iter().flat_map(check_package).collect());
}

#[test]
fn the_table_knows_good_from_bad() {
    use DependencyKind::{Development, Normal};
    let good = [
        ("cloud-aws", "aws-sdk-ec2", Normal),
        ("reconcile", "kube", Normal),
        ("model", "smallvec", Normal),
        ("model", "proptest", Development),
        ("lifecycle", "jiff", Normal),
        ("cloud-aws", "kube", Normal),
        ("state", "tokio", Development),
        ("state", "some-new-package", Normal),
    ];
    for (user, package, kind) in good {
        assert_eq!(objection(user, package, kind), None, "{user} -> {package}");
    }
    let bad = [
        ("reconcile", "aws-sdk-sqs", Normal),
        ("cloud", "aws-smithy-types", Development),
        ("state", "kube", Normal),
        ("scheduling", "tokio", Normal),
        ("scheduling", "jiff", Normal),
        ("scheduling", "some-new-package", Normal),
        ("state", "tokio", Normal),
        ("reconcile", "mimalloc", Normal),
        ("reconcile", "metrics", Normal),
        ("sim", "proptest", Normal),
        ("reconcile", "anyhow", Normal),
    ];
    for (user, package, kind) in bad {
        assert!(
            objection(user, package, kind).is_some(),
            "{user} -> {package}"
        );
    }
}
