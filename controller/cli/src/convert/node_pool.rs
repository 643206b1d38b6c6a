//! Older pools: NodePool and NodeClaim v1beta1, Provisioner v1alpha5.
//!
//! Source: provisioning specification 1.8.

use serde_json::{Value, json};

use super::{KubeletMove, editor::Editor};

pub(super) const V1: &str = "karpenter.sh/v1";
const REF: &str = "spec.template.spec.nodeClassRef";

/// v1beta1 NodePool -> v1.
pub(super) fn from_v1beta1(editor: &mut Editor) -> Option<KubeletMove> {
    editor.set("apiVersion", V1.into(), "only v1 is served");
    node_class_ref(editor, REF);
    disruption(editor);
    lifetime(editor);
    editor.remove(
        "spec.template.spec.resources",
        "never settable by users; not part of v1",
    );
    strip_annotations(editor);
    editor.take("status");
    kubelet(editor, "spec.template.spec.kubelet", REF)
}

/// v1beta1 NodeClaim -> v1.
pub(super) fn claim_from_v1beta1(editor: &mut Editor) -> Option<KubeletMove> {
    editor.set("apiVersion", V1.into(), "only v1 is served");
    node_class_ref(editor, "spec.nodeClassRef");
    strip_annotations(editor);
    editor.take("status");
    kubelet(editor, "spec.kubelet", "spec.nodeClassRef")
}

/// Takes the kubelet settings out; they move to the class that the reference names.
fn kubelet(editor: &mut Editor, path: &str, reference: &str) -> Option<KubeletMove> {
    let settings = editor.take(path)?;
    let class = editor
        .text(&format!("{reference}.name"))
        .unwrap_or_default()
        .to_owned();
    let shown = super::editor::show(&settings);
    let target = format!("EC2NodeClass/{class} spec.kubelet");
    editor.warn(
        path,
        &shown,
        &target,
        "kubelet settings belong to the node class in v1",
    );
    Some(KubeletMove {
        class,
        settings,
        from: format!("{}: {}", editor.source.file, editor.object),
    })
}

fn node_class_ref(editor: &mut Editor, path: &str) {
    let at = |field: &str| format!("{path}.{field}");
    if let Some(version) = editor.take(&at("apiVersion")) {
        let group = version
            .as_str()
            .and_then(|v| v.split('/').next())
            .unwrap_or("karpenter.k8s.aws")
            .to_owned();
        if editor.get(&at("group")).is_none() {
            editor.set(
                &at("group"),
                group.into(),
                format!("apiVersion {version} became group"),
            );
        } else {
            editor.warn(
                &at("apiVersion"),
                &super::editor::show(&version),
                "(removed)",
                "group says the same",
            );
        }
    }
    if editor.get(&at("group")).is_none() {
        editor.set(&at("group"), "karpenter.k8s.aws".into(), "required in v1");
    }
    match editor.text(&at("kind")) {
        Some("EC2NodeClass") => {}
        Some(kind) => {
            let reason =
                format!("the reference follows the kind {kind}, which is read as EC2NodeClass");
            editor.set(&at("kind"), "EC2NodeClass".into(), reason);
        }
        None => editor.set(&at("kind"), "EC2NodeClass".into(), "required in v1"),
    }
}

fn disruption(editor: &mut Editor) {
    const POLICY: &str = "spec.disruption.consolidationPolicy";
    const AFTER: &str = "spec.disruption.consolidateAfter";
    if editor.text(POLICY) == Some("WhenUnderutilized") {
        editor.set(
            POLICY,
            "WhenEmptyOrUnderutilized".into(),
            "renamed, same meaning",
        );
    }
    if editor.get(AFTER).is_none() {
        let reason =
            "the old behaviour (act at once) written out; a longer value calms the pool down";
        editor.set(AFTER, "0s".into(), reason);
    }
    budgets(editor);
}

/// A budget window needs both `schedule` and `duration`; half of one never had a meaning.
pub(super) fn budgets(editor: &mut Editor) {
    let count = editor
        .get("spec.disruption.budgets")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    for at in 0..count {
        let path = format!("spec.disruption.budgets[{at}]");
        let has = |editor: &Editor, field: &str| editor.get(&format!("{path}.{field}")).is_some();
        let (lonely, missing) = match (has(editor, "schedule"), has(editor, "duration")) {
            (true, false) => ("schedule", "duration"),
            (false, true) => ("duration", "schedule"),
            _ => continue,
        };
        let Some(old) = editor
            .value
            .pointer_mut(&format!("/spec/disruption/budgets/{at}"))
            .and_then(Value::as_object_mut)
            .and_then(|budget| budget.shift_remove(lonely))
        else {
            continue;
        };
        let reason = format!(
            "{lonely} without {missing} has no meaning; the budget now always holds (make it a window by setting both \
             schedule and duration)"
        );
        editor.warn(
            &format!("{path}.{lonely}"),
            &super::editor::show(&old),
            "(removed)",
            reason,
        );
    }
}

/// `expireAfter` moved from `disruption` to the template. Two different values are never guessed.
fn lifetime(editor: &mut Editor) {
    const OLD: &str = "spec.disruption.expireAfter";
    const NEW: &str = "spec.template.spec.expireAfter";
    let (old, new) = (editor.get(OLD).cloned(), editor.get(NEW).cloned());
    match (old, new) {
        (None, _) => {}
        (Some(_), None) => editor.relocate(OLD, NEW, "moved to the template in v1"),
        (Some(old), Some(new)) if same_span(&old, &new) => {
            let holds = format!(
                "duplicate dropped; {NEW}: {} holds",
                super::editor::show(&new)
            );
            editor.remove(OLD, holds);
        }
        (Some(old), Some(new)) => {
            let (old, new) = (super::editor::show(&old), super::editor::show(&new));
            editor.error(format_args!(
                "{OLD} is {old} but {NEW} is {new}; keep the one that you mean"
            ));
        }
    }
}

/// Whether two spellings (`720h`, `43200m`) mean the same lifetime.
fn same_span(a: &Value, b: &Value) -> bool {
    let seconds = |value: &Value| -> Option<u64> {
        let mut total = 0_u64;
        let mut rest = value.as_str()?;
        while let Some(end) = rest.find(|c: char| !c.is_ascii_digit()) {
            let (number, tail) = rest.split_at(end);
            let scale = match tail.as_bytes().first()? {
                b'h' => 3600,
                b'm' => 60,
                b's' => 1,
                _ => return None,
            };
            total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(scale)?)?;
            rest = tail.get(1..)?;
        }
        rest.is_empty().then_some(total)
    };
    a == b || matches!((seconds(a), seconds(b)), (Some(a), Some(b)) if a == b)
}

fn strip_annotations(editor: &mut Editor) {
    const OLD: [&str; 2] = [
        "compatibility.karpenter.sh/v1beta1-kubelet-conversion",
        "compatibility.karpenter.sh/v1beta1-nodeclass-reference",
    ];
    for key in OLD {
        let removed = editor
            .value
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut)
            .and_then(|annotations| annotations.shift_remove(key));
        if let Some(old) = removed {
            let path = format!("metadata.annotations[{key}]");
            editor.warn(
                &path,
                &super::editor::show(&old),
                "(removed)",
                "left over from an earlier conversion",
            );
        }
    }
}

/// v1alpha5 Provisioner -> NodePool v1. An inline provider becomes an AWSNodeTemplate, which the
/// caller converts on its own.
pub(super) fn from_provisioner(editor: &mut Editor) -> (Option<KubeletMove>, Option<Value>) {
    editor.set("apiVersion", V1.into(), "only v1 is served");
    editor.set("kind", "NodePool".into(), "Provisioner became NodePool");
    for field in ["labels", "annotations"] {
        let to = format!("spec.template.metadata.{field}");
        editor.relocate(
            &format!("spec.{field}"),
            &to,
            "node metadata moved into the template",
        );
    }
    for field in ["taints", "startupTaints", "requirements"] {
        let to = format!("spec.template.spec.{field}");
        editor.relocate(&format!("spec.{field}"), &to, "moved into the template");
    }
    let inline = provider(editor);
    default_requirements(editor);
    if let Some(resources) = editor.take("spec.limits.resources") {
        editor.take("spec.limits");
        editor.set(
            "spec.limits",
            resources,
            "spec.limits.resources became spec.limits",
        );
    }
    provisioner_lifetimes(editor);
    editor.take("status");
    (kubelet(editor, "spec.kubeletConfiguration", REF), inline)
}

fn provider(editor: &mut Editor) -> Option<Value> {
    let name = editor.text("metadata.name").unwrap_or("default").to_owned();
    let inline = editor.take("spec.provider");
    let referenced = editor.take("spec.providerRef");
    let class = referenced
        .as_ref()
        .and_then(|reference| reference.get("name"))
        .and_then(Value::as_str)
        .unwrap_or(&name)
        .to_owned();
    let reason = if inline.is_some() {
        "the inline provider became an EC2NodeClass of the Provisioner's name"
    } else {
        "providerRef became nodeClassRef"
    };
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class});
    editor.set(REF, reference, reason);
    inline.map(|spec| {
        json!({
            "apiVersion": "karpenter.k8s.aws/v1alpha1",
            "kind": "AWSNodeTemplate",
            "metadata": {"name": class},
            "spec": spec,
        })
    })
}

/// v1 adds no requirements of its own; the old provider's defaults are written out.
fn default_requirements(editor: &mut Editor) {
    const PATH: &str = "spec.template.spec.requirements";
    let mut requirements = editor
        .get(PATH)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let before = requirements.len();
    for (key, value) in [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("karpenter.sh/capacity-type", "on-demand"),
    ] {
        let stated = requirements
            .iter()
            .any(|r| r.get("key").and_then(Value::as_str) == Some(key));
        if !stated {
            requirements.push(json!({"key": key, "operator": "In", "values": [value]}));
        }
    }
    if requirements.len() > before {
        editor.set(
            PATH,
            requirements.into(),
            "the old defaults for os, arch and capacity type written out",
        );
    }
}

fn provisioner_lifetimes(editor: &mut Editor) {
    const LIFETIME: &str = "spec.template.spec.expireAfter";
    match editor.take("spec.ttlSecondsUntilExpired") {
        Some(seconds) => {
            editor.set(
                LIFETIME,
                format!("{seconds}s").into(),
                "ttlSecondsUntilExpired became expireAfter",
            );
        }
        None => editor.set(
            LIFETIME,
            "Never".into(),
            "nodes did not expire before; the default of v1 is 720h",
        ),
    }
    let consolidates = editor
        .take("spec.consolidation")
        .is_some_and(|c| c.get("enabled") == Some(&Value::Bool(true)));
    let after_empty = editor.take("spec.ttlSecondsAfterEmpty");
    let (policy, after, reason) = match (consolidates, after_empty) {
        (true, None) => (
            "WhenEmptyOrUnderutilized",
            "0s".to_owned(),
            "consolidation.enabled became a policy",
        ),
        (false, Some(seconds)) => (
            "WhenEmpty",
            format!("{seconds}s"),
            "ttlSecondsAfterEmpty became a policy",
        ),
        (false, None) => (
            "WhenEmpty",
            "Never".to_owned(),
            "nodes were never removed before",
        ),
        (true, Some(_)) => {
            editor.error(
                "spec.ttlSecondsAfterEmpty and spec.consolidation.enabled exclude each other; keep one",
            );
            return;
        }
    };
    let disruption = json!({"consolidationPolicy": policy, "consolidateAfter": after});
    editor.set("spec.disruption", disruption, reason);
}
