//! The blend of an introductory article, and the rules one by one.

use serde_json::{Value, json};

use super::{Conversion, convert};
use crate::documents::parse;

const ARTICLE: [&str; 3] = [
    include_str!("../../../../tests/data/article/nodeclass.yaml"),
    include_str!("../../../../tests/data/article/nodepool.yaml"),
    include_str!("../../../../tests/data/article/stress-test.yaml"),
];

fn run(texts: &[&str]) -> Conversion {
    let documents = texts
        .iter()
        .enumerate()
        .flat_map(|(at, text)| parse(&format!("{at}.yaml").into(), text.as_bytes()).unwrap())
        .collect();
    convert(documents)
}

fn values(conversion: &Conversion) -> Vec<Value> {
    conversion
        .documents
        .iter()
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect()
}

fn warned(conversion: &Conversion) -> Vec<(&str, &str, &str)> {
    conversion
        .warnings
        .iter()
        .map(|w| (w.path.as_str(), w.old.as_str(), w.new.as_str()))
        .collect()
}

/// What the article's NodePool means in v1.
fn article_pool() -> Value {
    let requirement =
        |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    requirement("karpenter.k8s.aws/instance-category", "t"),
                    requirement("karpenter.k8s.aws/instance-family", "t3"),
                    requirement("karpenter.sh/capacity-type", "spot"),
                ],
                "expireAfter": "720h",
            }},
            "limits": {"cpu": 1000},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
                "budgets": [{"nodes": "10%"}],
            },
        },
    })
}

#[test]
fn the_article_s_blend_becomes_what_its_author_meant() {
    let conversion = run(&ARTICLE);
    assert_eq!(conversion.errors, Vec::<String>::new());
    let selector = json!([{"tags": {"karpenter.sh/discovery": "your-cluster-name"}}]);
    let documents = values(&conversion);
    assert_eq!(
        documents[0],
        json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {
                "amiFamily": "AL2023", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "role": "karpenter-node-role",
                "subnetSelectorTerms": selector, "securityGroupSelectorTerms": selector,
            },
        })
    );
    assert_eq!(documents[1], article_pool());
    assert_eq!(conversion.documents[2], ARTICLE[2].trim());
    assert_eq!(
        warned(&conversion),
        [
            (
                "apiVersion",
                "karpenter.k8s.aws/v1beta1",
                "karpenter.k8s.aws/v1"
            ),
            ("kind", "AWSNodeClass", "EC2NodeClass"),
            (
                "spec.amiSelectorTerms",
                "(absent)",
                r#"[{"alias":"al2023@latest"}]"#
            ),
            ("apiVersion", "karpenter.sh/v1beta1", "karpenter.sh/v1"),
            (
                "spec.template.spec.nodeClassRef.kind",
                "AWSNodeClass",
                "EC2NodeClass"
            ),
            (
                "spec.disruption.consolidationPolicy",
                "WhenUnderutilized",
                "WhenEmptyOrUnderutilized"
            ),
            ("spec.disruption.consolidateAfter", "(absent)", "0s"),
            ("spec.disruption.budgets[0].duration", "1h", "(removed)"),
            ("spec.disruption.expireAfter", "720h", "(removed)"),
        ]
    );
    assert_eq!(conversion.notes.len(), 1, "{:?}", conversion.notes);
    assert!(conversion.notes[0].contains("httpPutResponseHopLimit"));
}

#[test]
fn converting_the_output_again_changes_nothing_and_warns_of_nothing() {
    let first = run(&ARTICLE);
    let texts: Vec<&str> = first.documents.iter().map(String::as_str).collect();
    let second = run(&texts);
    assert_eq!(second.documents, first.documents);
    assert!(
        second.warnings.is_empty() && second.notes.is_empty() && second.errors.is_empty(),
        "{second:?}"
    );
}

fn pool(spec: Value) -> String {
    let mut pool = json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "p"}});
    pool["spec"] = spec;
    pool.to_string()
}

#[test]
fn a_lifetime_moves_and_two_that_differ_are_never_guessed() {
    let moved = run(&[&pool(
        json!({"disruption": {"expireAfter": "24h"}, "template": {"spec": {}}}),
    )]);
    assert_eq!(
        values(&moved)[0].pointer("/spec/template/spec/expireAfter"),
        Some(&json!("24h"))
    );
    let spec =
        json!({"disruption": {"expireAfter": "24h"}, "template": {"spec": {"expireAfter": "48h"}}});
    let refused = run(&[&pool(spec)]);
    assert!(refused.documents.is_empty());
    let error = &refused.errors[0];
    for part in [
        "spec.disruption.expireAfter",
        "24h",
        "spec.template.spec.expireAfter",
        "48h",
        "NodePool/p",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let spelt = json!({"disruption": {"expireAfter": "1h30m"}, "template": {"spec": {"expireAfter": "90m"}}});
    assert!(run(&[&pool(spelt)]).errors.is_empty());
}

#[test]
fn a_schedule_without_a_duration_is_dropped_like_a_duration_without_a_schedule() {
    let budgets = json!([{"nodes": "1", "schedule": "@daily"}, {"nodes": "2", "schedule": "@daily", "duration": "1h"}]);
    let conversion = run(&[&pool(json!({"disruption": {"budgets": budgets}}))]);
    let expected = json!([{"nodes": "1"}, {"nodes": "2", "schedule": "@daily", "duration": "1h"}]);
    assert_eq!(
        values(&conversion)[0].pointer("/spec/disruption/budgets"),
        Some(&expected)
    );
}

#[test]
fn kubelet_settings_move_to_the_class_or_are_refused_when_it_is_absent() {
    let pool = pool(
        json!({"template": {"spec": {"kubelet": {"maxPods": 20}, "nodeClassRef": {"name": "c"}}}}),
    );
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "metadata": {"name": "c"},
        "spec": {"amiFamily": "Bottlerocket", "metadataOptions": {"httpPutResponseHopLimit": 1}},
    })
    .to_string();
    let both = run(&[&pool, &class]);
    assert!(both.errors.is_empty(), "{:?}", both.errors);
    assert_eq!(
        values(&both)[1].pointer("/spec/kubelet/maxPods"),
        Some(&json!(20))
    );
    assert_eq!(
        values(&both)[1].pointer("/spec/amiSelectorTerms/0/alias"),
        Some(&json!("bottlerocket@latest"))
    );
    assert!(both.notes.is_empty());
    let alone = run(&[&pool]);
    assert!(
        alone.errors[0].contains("EC2NodeClass/c"),
        "{:?}",
        alone.errors
    );
}

#[test]
fn a_provisioner_becomes_a_pool_with_its_defaults_written_out() {
    let provisioner = json!({
        "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "old"},
        "spec": {
            "labels": {"team": "a"}, "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}],
            "limits": {"resources": {"cpu": "10"}}, "ttlSecondsAfterEmpty": 30, "weight": 5,
            "provider": {"subnetSelector": {"aws::ids": "subnet-1, subnet-2"}, "securityGroupSelector": {"Name": "x"},
                         "amiFamily": "AL2", "instanceProfile": "profile"},
        },
    })
    .to_string();
    let conversion = run(&[&provisioner]);
    assert!(conversion.errors.is_empty(), "{:?}", conversion.errors);
    let [pool, class] = &values(&conversion)[..] else {
        panic!("two documents")
    };
    for (pointer, expected) in [
        ("/kind", json!("NodePool")),
        ("/spec/weight", json!(5)),
        ("/spec/limits", json!({"cpu": "10"})),
        ("/spec/template/metadata/labels/team", json!("a")),
        ("/spec/template/spec/expireAfter", json!("Never")),
        ("/spec/template/spec/nodeClassRef/name", json!("old")),
        (
            "/spec/disruption",
            json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}),
        ),
    ] {
        assert_eq!(pool.pointer(pointer), Some(&expected), "{pointer}");
    }
    let keys: Vec<&str> = pool["spec"]["template"]["spec"]["requirements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "kubernetes.io/arch",
            "kubernetes.io/os",
            "karpenter.sh/capacity-type"
        ]
    );
    assert_eq!(
        class["spec"]["subnetSelectorTerms"],
        json!([{"id": "subnet-1"}, {"id": "subnet-2"}])
    );
    assert_eq!(
        class["spec"]["securityGroupSelectorTerms"],
        json!([{"tags": {"Name": "x"}}])
    );
    assert_eq!(
        class["spec"]["amiSelectorTerms"],
        json!([{"alias": "al2@latest"}])
    );
}

#[test]
fn workloads_lose_the_keys_that_v1_renamed_and_nothing_else() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "x", "annotations": {"karpenter.sh/do-not-evict": "true", "other": "1"}},
        "spec": {
            "nodeSelector": {"karpenter.sh/provisioner-name": "p"},
            "tolerations": [{"key": "karpenter.sh/disruption", "value": "disrupting"}],
        },
    })
    .to_string();
    let value = &values(&run(&[&pod]))[0];
    assert_eq!(
        value["metadata"]["annotations"],
        json!({"other": "1", "karpenter.sh/do-not-disrupt": "true"})
    );
    assert_eq!(
        value["spec"]["nodeSelector"],
        json!({"karpenter.sh/nodepool": "p"})
    );
    assert_eq!(
        value["spec"]["tolerations"],
        json!([{"key": "karpenter.sh/disrupted", "operator": "Exists"}])
    );
}
