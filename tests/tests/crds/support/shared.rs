//! Rows of the building blocks that several kinds share: provisioning specification 1.1.

use serde_json::{Value, json};

use super::{Row, at, requirement, status};

/// Whose requirements: the sets of forbidden keys differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Pool,
    Claim,
    Overlay,
}

const IN: &str = "requirements with operator 'In' must have a value defined";
const NUMBER: &str = "must have a single positive integer value";
const MIN_VALUES: &str = "requirements with 'minValues' must have at least that many values";
const DOMAIN: &str = "label domain \"karpenter.sh\" is restricted";
const AWS_DOMAIN: &str = "label domain \"karpenter.k8s.aws\" is restricted";

fn one(requirement: Value) -> Value {
    Value::Array(vec![requirement])
}

fn in_key(key: &str) -> Value {
    one(requirement(key, "In", &["x"]))
}

fn bare(operator: &str) -> Value {
    one(json!({ "key": "k", "operator": operator }))
}

/// Rows of a list of requirements.
pub(crate) fn requirements(pointer: &'static str, owner: Owner) -> Vec<Row> {
    let mut rows = vec![keys(pointer, owner), shape(pointer), numbers(pointer)];
    let values = at(pointer)
        .all_good(
            [
                requirement("k", "In", &["a"]),
                requirement("k", "In", &["a", "a"]),
            ]
            .map(one),
        )
        .all_good(["Exists", "DoesNotExist"].map(bare))
        .all_bad([bare("In"), one(requirement("k", "In", &[]))], IN);
    let not_in = [bare("NotIn"), one(requirement("k", "NotIn", &[]))];
    if owner == Owner::Overlay {
        rows.push(values.all_bad(
            not_in,
            "requirements with operator 'NotIn' must have a value defined",
        ));
    } else {
        rows.push(values.all_good(not_in));
        rows.push(min_values(pointer));
    }
    rows
}

fn keys(pointer: &'static str, owner: Owner) -> Row {
    let long = format!("{}/{}", vec!["a".repeat(50); 5].join("."), "n".repeat(61));
    assert_eq!(long.len(), 316);
    let row = at(pointer)
        .all_good(["karpenter.sh/capacity-type", "example.com/x", "x", "A-b_c.d"].map(in_key))
        .all_good(["kubernetes.io/os", "node.kubernetes.io/anything", &long].map(in_key))
        // Only the end of the domain counts: another domain with that end is refused too.
        .all_bad(["karpenter.sh/x", "a.karpenter.sh/x", "foo-karpenter.sh/x"].map(in_key), DOMAIN)
        .bad(in_key("karpenter.sh"), DOMAIN)
        .bad(in_key("kubernetes.io/hostname"), "label \"kubernetes.io/hostname\" is restricted")
        .bad(in_key(&format!("{long}n")), "Too long")
        .all_bad(["", "-a", "a-", "a/b/c", "Upper.com/x", "a b", "/x"].map(in_key), "should match");
    let pool = in_key("karpenter.sh/nodepool");
    let row = match owner {
        Owner::Pool => row.bad(pool, "label \"karpenter.sh/nodepool\" is restricted"),
        Owner::Claim | Owner::Overlay => row.good(pool),
    };
    let foreign = in_key("karpenter.k8s.aws/instance-pods");
    let own = [
        "karpenter.k8s.aws/ec2nodeclass",
        "karpenter.k8s.aws/nitro-sandbox",
    ]
    .map(in_key);
    match owner {
        Owner::Pool | Owner::Claim => row.all_good(own).bad(foreign, AWS_DOMAIN),
        Owner::Overlay => row.all_good(own).good(foreign),
    }
}

fn shape(pointer: &'static str) -> Row {
    let many = |count: usize| Value::from(vec![requirement("k", "Exists", &[]); count]);
    at(pointer)
        .good(json!([]))
        .good(many(100))
        .bad(many(101), "must have at most 100 items")
        .bad(one(json!({ "operator": "Exists" })), "Required value")
        .bad(one(json!({ "key": "k" })), "Required value")
        .all_bad([bare("in"), bare("Equals"), bare("")], "Unsupported value")
        .must_be_there()
}

fn numbers(pointer: &'static str) -> Row {
    let mut row = at(pointer);
    for operator in ["Gt", "Lt", "Gte", "Lte"] {
        let with = |values: &[&str]| one(requirement("k", operator, values));
        row = row
            .all_good([with(&["0"]), with(&["7"])])
            .all_bad(
                [bare(operator), with(&[]), with(&["1", "2"]), with(&["-1"])],
                NUMBER,
            )
            .all_bad([with(&["1.5"]), with(&["x"]), with(&[""])], NUMBER);
    }
    row
}

fn min_values(pointer: &'static str) -> Row {
    let with = |operator: &str, values: &[&str], least: i64| {
        let mut requirement = requirement("k", operator, values);
        requirement["minValues"] = least.into();
        one(requirement)
    };
    at(pointer)
        .all_good([with("In", &["a", "b"], 2), with("Exists", &[], 50), with("NotIn", &["a"], 2)])
        // Entries count, not distinct values.
        .good(with("In", &["a", "a"], 2))
        .bad(with("In", &["a", "b"], 3), MIN_VALUES)
        .bad(with("Exists", &[], 0), "should be greater than or equal to 1")
        .bad(with("Exists", &[], 51), "should be less than or equal to 50")
}

/// Rows of a list of taints.
pub(crate) fn taints(pointer: &'static str) -> Vec<Row> {
    let taint = |key: &str, value: &str, effect: &str| json!([{ "key": key, "value": value, "effect": effect }]);
    vec![
        at(pointer)
            .may_be_absent()
            .all_good(["NoSchedule", "PreferNoSchedule", "NoExecute"].map(|e| taint("k", "v", e)))
            .good(json!([{ "key": "example.com/k", "effect": "NoExecute" }]))
            .good(
                json!([{ "key": "k", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z" }]),
            )
            .all_bad(
                ["noschedule", "Evict", ""].map(|e| taint("k", "v", e)),
                "Unsupported value",
            )
            .bad(
                taint("", "v", "NoExecute"),
                "should be at least 1 chars long",
            )
            .all_bad(
                ["-k", "a/b/c", "k!"].map(|k| taint(k, "v", "NoExecute")),
                "should match",
            )
            .all_bad(
                ["v ", "-"].map(|v| taint("k", v, "NoExecute")),
                "should match",
            )
            .bad(json!([{ "effect": "NoExecute" }]), "Required value")
            .bad(json!([{ "key": "k" }]), "Required value"),
    ]
}

/// Rows of a reference to a class.
pub(crate) fn node_class_ref(pointers: [&'static str; 4]) -> Vec<Row> {
    let [reference, kind, name, group] = pointers;
    vec![
        at(reference).must_be_there(),
        at(kind)
            .good("Anything")
            .bad("", "kind may not be empty")
            .must_be_there(),
        at(name)
            .good("anything")
            .bad("", "name may not be empty")
            .must_be_there(),
        at(group)
            .good("example.com")
            .bad("", "group may not be empty")
            .bad("karpenter.k8s.aws/v1", "should match")
            .must_be_there(),
    ]
}

/// Rows of `terminationGracePeriod`.
pub(crate) fn duration(pointer: &'static str) -> Row {
    at(pointer)
        .may_be_absent()
        .all_good(["0s", "60m", "1h30m", "1m1h", "3s"])
        .all_bad(
            ["Never", "-5m", "5d", "5hr", "5 m", "5", "", "1.5h", "300ms"],
            "should match",
        )
}

/// Rows of `expireAfter` and `consolidateAfter`.
pub(crate) fn nillable_duration(pointer: &'static str) -> Row {
    at(pointer)
        .may_be_absent()
        .all_good(["Never", "0s", "60m", "1h30m"])
        .all_bad(
            ["never", "Never1h", "1hNever", "-5m", "5d", "5", ""],
            "should match",
        )
}

/// Rows of a map of quantities.
pub(crate) fn quantities(row: Row) -> Row {
    let cpu = |value: Value| json!({ "example.com/x": value });
    row.all_good(["1", "100m", "1.5Gi", "1e3", "+2", "1k", "12E"].map(|v| cpu(v.into())))
        .all_good([cpu(7.into()), json!({})])
        .all_bad(
            ["1KB", "one", "", "1 Gi", "--1"].map(|v| cpu(v.into())),
            "should match",
        )
        .bad(cpu(json!(true)), "Invalid value")
}

/// Rows of the conditions; `is_relaxed` for a NodeClaim.
pub(crate) fn conditions(is_relaxed: bool) -> Vec<Row> {
    let time = "2026-01-02T03:04:05Z";
    let good = json!({
        "type": "T", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time
    });
    let with = |field: &str, value: Value| {
        let mut condition = good.clone();
        condition[field] = value;
        json!([condition])
    };
    let lacking = |field: &str| {
        let mut condition = good.clone();
        condition.as_object_mut().expect("an object").remove(field);
        json!([condition])
    };
    let row = status("/status/conditions")
        .may_be_absent()
        .good(json!([good]))
        .all_good([
            with("type", "example.com/T".into()),
            with("observedGeneration", 0.into()),
        ])
        .all_good([
            with("message", "m".repeat(32_768).into()),
            with("reason", "A,b:c_D".into()),
        ])
        .all_good(["True", "False", "Unknown"].map(|s| with("status", s.into())))
        .bad(with("status", "true".into()), "Unsupported value")
        .bad(
            with("observedGeneration", (-1).into()),
            "should be greater than or equal to 0",
        )
        .bad(with("message", "m".repeat(32_769).into()), "Too long")
        .bad(with("reason", "r".repeat(1_025).into()), "Too long")
        .bad(with("reason", "two words".into()), "should match")
        .bad(with("type", "t".repeat(317).into()), "Too long")
        .bad(with("type", "two words".into()), "should match")
        .bad(json!([good, good]), "Duplicate value")
        .all_bad(
            ["lastTransitionTime", "status", "type"].map(lacking),
            "Required value",
        );
    let (reason, message) = (lacking("reason"), lacking("message"));
    let empty = with("reason", "".into());
    vec![if is_relaxed {
        row.all_good([reason, message, empty])
    } else {
        row.all_bad([reason, message], "Required value")
            .bad(empty, "should be at least 1 chars")
    }]
}
