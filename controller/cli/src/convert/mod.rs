//! `millwright convert`: manifests of older releases, and of articles that mix them, to v1.
//!
//! Converted documents keep the order of the input; each change leaves one warning that names
//! file, object, field path, old and new value and the reason. A document that is v1 already passes
//! as it stands, comments included, so converting the output again changes nothing. Where a
//! meaning would have to be guessed, there is an error and no document for that object.

mod editor;
mod node_class;
mod node_pool;
mod workload;

#[cfg(test)]
mod tests;

use serde_json::Value;

use editor::Editor;
pub use editor::Warning;

use crate::documents::Document;

/// What came of the input.
#[derive(Debug, Default)]
pub struct Conversion {
    /// Documents in the order of the input, as YAML (or the JSON they were).
    pub documents: Vec<String>,
    /// One per change.
    pub warnings: Vec<Warning>,
    /// Things to know for which nothing was written; one line each.
    pub notes: Vec<String>,
    /// What could not be converted; one line each. The objects are missing from `documents`.
    pub errors: Vec<String>,
}

/// Kubelet settings on their way from a pool to the class it names.
#[derive(Debug)]
struct KubeletMove {
    class: String,
    settings: Value,
    from: String,
}

/// Converts documents.
#[must_use]
pub fn convert(documents: Vec<Document>) -> Conversion {
    let mut editors = Vec::new();
    let mut moves = Vec::new();
    for document in documents {
        convert_one(Editor::new(document), &mut editors, &mut moves);
    }
    let mut conversion = Conversion::default();
    for kubelet in moves {
        move_kubelet(kubelet, &mut editors, &mut conversion.errors);
    }
    for editor in editors {
        if editor.errors.is_empty() {
            conversion.documents.push(editor.render());
            conversion.warnings.extend(editor.warnings);
            conversion.notes.extend(editor.notes);
        } else {
            conversion.errors.extend(editor.errors);
        }
    }
    conversion
}

fn convert_one(mut editor: Editor, editors: &mut Vec<Editor>, moves: &mut Vec<KubeletMove>) {
    let version = editor.text("apiVersion").unwrap_or_default().to_owned();
    let kind = editor.text("kind").unwrap_or_default().to_owned();
    let (group, version) = version.split_once('/').unwrap_or(("", version.as_str()));
    match (group, version, kind.as_str()) {
        ("karpenter.sh", "v1beta1", "NodePool") => {
            moves.extend(node_pool::from_v1beta1(&mut editor));
        }
        ("karpenter.sh", "v1beta1", "NodeClaim") => {
            moves.extend(node_pool::claim_from_v1beta1(&mut editor));
        }
        ("karpenter.sh", "v1alpha5", "Provisioner") => {
            let (kubelet, inline) = node_pool::from_provisioner(&mut editor);
            moves.extend(kubelet);
            if let Some(value) = inline {
                let source = editor.source.clone();
                editors.push(editor);
                let mut class = Editor::new(Document {
                    source,
                    value,
                    text: None,
                });
                node_class::from_template(&mut class);
                editors.push(class);
                return;
            }
        }
        ("karpenter.k8s.aws", "v1alpha1", _) => node_class::from_template(&mut editor),
        ("karpenter.k8s.aws", "v1beta1", _) => node_class::from_v1beta1(&mut editor),
        ("karpenter.k8s.aws", "v1", kind) if kind != "EC2NodeClass" => {
            node_class::rename_kind(&mut editor);
        }
        ("karpenter.sh", "v1", "NodePool" | "NodeClaim") | ("karpenter.k8s.aws", "v1", _) => {}
        ("karpenter.sh", "v1alpha1", "NodeOverlay") => {}
        ("karpenter.sh" | "karpenter.k8s.aws", version, kind) => {
            editor.error(format_args!(
                "apiVersion {group}/{version} has no kind {kind} that can be converted"
            ));
        }
        _ => workload::convert(&mut editor),
    }
    editors.push(editor);
}

/// Puts kubelet settings into the class they belong to; refuses to lose or to mix them.
fn move_kubelet(kubelet: KubeletMove, editors: &mut [Editor], errors: &mut Vec<String>) {
    let class = editors.iter_mut().find(|editor| {
        editor.text("kind") == Some("EC2NodeClass")
            && editor.text("metadata.name") == Some(&kubelet.class)
    });
    let Some(class) = class else {
        errors.push(format!(
            "error: {}: kubelet settings belong to EC2NodeClass/{} in v1, which is not in the input; convert both \
             files together",
            kubelet.from, kubelet.class
        ));
        return;
    };
    match class.get("spec.kubelet") {
        Some(existing) if *existing != kubelet.settings => class.error(format_args!(
            "spec.kubelet: two sources give different settings; the second is {}",
            kubelet.from
        )),
        Some(_) => {}
        None => class.set(
            "spec.kubelet",
            kubelet.settings,
            format!("moved here from {}", kubelet.from),
        ),
    }
}
