//! Older node classes: EC2NodeClass v1beta1, AWSNodeTemplate v1alpha1, and kinds that never existed.
//!
//! Source: AWS specification section 9.

use serde_json::{Map, Value, json};

use super::editor::Editor;

pub(super) const V1: &str = "karpenter.k8s.aws/v1";

/// v1beta1 -> v1, also for documents that call the kind something else.
pub(super) fn from_v1beta1(editor: &mut Editor) {
    upgrade_version(editor);
    rename_kind(editor);
    default_images(editor);
    if editor
        .get("spec.metadataOptions.httpPutResponseHopLimit")
        .is_none()
    {
        editor.note(
            "spec.metadataOptions.httpPutResponseHopLimit: the default fell from 2 to 1, so pods outside the host \
             network no longer reach instance metadata; set 2 if they must",
        );
    }
}

fn upgrade_version(editor: &mut Editor) {
    if editor.text("apiVersion") != Some(V1) {
        editor.set("apiVersion", V1.into(), "only v1 is served");
    }
}

pub(super) fn rename_kind(editor: &mut Editor) {
    let Some(kind) = editor.text("kind").map(str::to_owned) else {
        return;
    };
    match kind.as_str() {
        "EC2NodeClass" => {}
        "AWSNodeTemplate" => editor.set(
            "kind",
            "EC2NodeClass".into(),
            "AWSNodeTemplate became EC2NodeClass",
        ),
        _ => editor.set(
            "kind",
            "EC2NodeClass".into(),
            format!("the kind {kind} is unknown and was read as EC2NodeClass"),
        ),
    }
}

/// v1 requires `amiSelectorTerms`; before, their absence meant the newest EKS image of the family.
fn default_images(editor: &mut Editor) {
    let empty = editor
        .get("spec.amiSelectorTerms")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty);
    let family = match editor.text("spec.amiFamily") {
        Some(family) => family.to_owned(),
        None => {
            let old_default = "v1beta1 meant AL2 when no family was given; v1 has no default";
            if empty {
                editor.set("spec.amiFamily", "AL2".into(), old_default);
            }
            "AL2".to_owned()
        }
    };
    if !empty {
        return;
    }
    let alias = match family.as_str() {
        "AL2" | "AL2023" | "Bottlerocket" | "Windows2019" | "Windows2022" => {
            format!("{}@latest", family.to_lowercase())
        }
        "Ubuntu" => {
            editor.error(
                "spec.amiFamily: Ubuntu is no longer a family; set amiFamily: AL2 and amiSelectorTerms that select your \
                 Ubuntu images (and a /dev/sda1 block device mapping)",
            );
            return;
        }
        other => {
            editor.error(format_args!(
                "spec.amiSelectorTerms: required in v1, and no image can be derived from amiFamily {other}"
            ));
            return;
        }
    };
    let reason = "required in v1; latest makes nodes drift with each image release: pin a version in production";
    editor.set("spec.amiSelectorTerms", json!([{ "alias": alias }]), reason);
}

/// AWSNodeTemplate (v1alpha1) -> EC2NodeClass v1.
pub(super) fn from_template(editor: &mut Editor) {
    rename_kind(editor);
    selector(
        editor,
        "spec.subnetSelector",
        "spec.subnetSelectorTerms",
        &["id"],
    );
    selector(
        editor,
        "spec.securityGroupSelector",
        "spec.securityGroupSelectorTerms",
        &["id"],
    );
    selector(
        editor,
        "spec.amiSelector",
        "spec.amiSelectorTerms",
        &["id", "name", "owner"],
    );
    if editor.get("spec.launchTemplate").is_some()
        || editor.get("spec.launchTemplateName").is_some()
    {
        editor.error(
            "spec.launchTemplate: unmanaged launch templates are gone; state images, security groups, block devices and \
             userData in the EC2NodeClass instead",
        );
    }
    if editor.get("spec.role").is_none() && editor.get("spec.instanceProfile").is_none() {
        editor.error(
            "spec.role: v1 needs role or instanceProfile; the global default instance profile \
             (karpenter-global-settings) no longer exists",
        );
    }
    from_v1beta1(editor);
}

/// A selector map becomes selector terms. The pseudo keys `aws::ids`, `aws::name`, `aws::owners`
/// hold comma lists; combinations become one term each, ordinary keys are tags of every term.
fn selector(editor: &mut Editor, from: &str, to: &str, fields: &[&str]) {
    let Some(Value::Object(map)) = editor.take(from) else {
        return;
    };
    let mut terms = vec![Map::new()];
    let mut tags = Map::new();
    for (key, value) in &map {
        let listed = || {
            value
                .as_str()
                .unwrap_or_default()
                .split(',')
                .map(str::trim)
                .filter(|v| !v.is_empty())
        };
        let field = match key.as_str() {
            "aws::ids" | "aws-ids" => "id",
            "aws::name" => "name",
            "aws::owners" => "owner",
            _ => {
                tags.insert(key.clone(), value.clone());
                continue;
            }
        };
        if !fields.contains(&field) {
            editor.error(format_args!("{from}.{key}: not a selector of this field"));
            continue;
        }
        terms = terms
            .iter()
            .flat_map(|term| {
                listed().map(|value| {
                    let mut term = term.clone();
                    term.insert(field.to_owned(), value.into());
                    term
                })
            })
            .collect();
    }
    for term in &mut terms {
        if !tags.is_empty() {
            term.insert("tags".to_owned(), Value::Object(tags.clone()));
        }
    }
    let old = Value::Object(map);
    let new: Value = terms.into_iter().map(Value::Object).collect();
    editor.set(
        to,
        new,
        format!(
            "{} {} became selector terms",
            from,
            super::editor::show(&old)
        ),
    );
}
