//! Old keys in workloads: annotations, tolerations and selectors that v1 knows under other names.

use serde_json::{Map, Value};

use super::editor::Editor;

/// Where pod templates hang in the kinds that have one.
fn template_path(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod" => "",
        "Deployment"
        | "ReplicaSet"
        | "StatefulSet"
        | "DaemonSet"
        | "Job"
        | "ReplicationController" => "spec.template",
        "CronJob" => "spec.jobTemplate.spec.template",
        _ => return None,
    })
}

/// Replaces what v1 no longer knows; leaves everything else alone.
pub(super) fn convert(editor: &mut Editor) {
    let Some(template) = editor.text("kind").and_then(template_path) else {
        return;
    };
    let join = |rest: &str| {
        if template.is_empty() {
            rest.to_owned()
        } else {
            format!("{template}.{rest}")
        }
    };
    rename_key(
        editor,
        &join("metadata.annotations"),
        "karpenter.sh/do-not-evict",
        "karpenter.sh/do-not-disrupt",
    );
    rename_key(
        editor,
        &join("spec.nodeSelector"),
        "karpenter.sh/provisioner-name",
        "karpenter.sh/nodepool",
    );
    tolerations(editor, &join("spec.tolerations"));
}

fn object<'a>(editor: &'a mut Editor, path: &str) -> Option<&'a mut Map<String, Value>> {
    editor
        .value
        .pointer_mut(&format!("/{}", path.replace('.', "/")))?
        .as_object_mut()
}

fn rename_key(editor: &mut Editor, path: &str, old: &str, new: &str) {
    let Some(map) = object(editor, path) else {
        return;
    };
    let Some(value) = map.shift_remove(old) else {
        return;
    };
    map.entry(new).or_insert(value);
    editor.warn(&format!("{path}[{old}]"), old, new, "renamed in v1");
}

fn tolerations(editor: &mut Editor, path: &str) {
    let Some(Value::Array(list)) = editor
        .value
        .pointer_mut(&format!("/{}", path.replace('.', "/")))
    else {
        return;
    };
    let mut changed = Vec::new();
    for (at, toleration) in list.iter_mut().enumerate() {
        let Some(map) = toleration.as_object_mut() else {
            continue;
        };
        if map.get("key").and_then(Value::as_str) != Some("karpenter.sh/disruption") {
            continue;
        }
        map.insert("key".into(), "karpenter.sh/disrupted".into());
        if map.shift_remove("value").is_some() {
            map.insert("operator".into(), "Exists".into());
        }
        changed.push(at);
    }
    for at in changed {
        let reason = "the taint is karpenter.sh/disrupted:NoSchedule, without a value, in v1";
        editor.warn(
            &format!("{path}[{at}].key"),
            "karpenter.sh/disruption",
            "karpenter.sh/disrupted",
            reason,
        );
    }
}
