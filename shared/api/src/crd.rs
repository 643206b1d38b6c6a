//! The CustomResourceDefinitions, generated from the types.
//!
//! ```text
//! Rust types ──derive──> shape: properties, types, required, defaults, descriptions
//!            ──refine──> house style that derive cannot express (refine.rs)
//!            ──rules───> limits, patterns and CEL rules, one file per kind
//!            ──write───> YAML, one file per kind, the same text every time
//! ```
//!
//! Every list, map and text that a CEL rule walks has a bound: an API server refuses a definition
//! whose rules might cost too much.
//!
//! Source: provisioning specification 1; AWS specification 2, 3.

mod capacity_buffer;
mod ec2_node_class;
mod node_claim;
mod node_overlay;
mod node_pool;
mod refine;
mod shared;

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use serde_json::Value;

use refine::Schema;

/// First line of every generated file.
const HEADER: &str = "# Generated from the types of millwright-api by `millwright crds`.\n";

/// Why definitions could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A definition has no form as YAML.
    #[error("cannot render definition {name} as YAML")]
    Render {
        /// Name of the definition.
        name: String,
        /// What the YAML library says.
        source: serde_saphyr::ser::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: String,
        /// What the operating system says.
        source: std::io::Error,
    },
}

/// One file of definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdFile {
    /// File name: group, underscore, plural, `.yaml`.
    pub name: String,
    /// YAML text, ending in a line break.
    pub text: String,
}

/// The definitions of all kinds, ordered by name.
///
/// # Panics
/// When a rule names a field that its type does not have; a test calls this.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        refined(NodePool::crd(), node_pool::refine),
        refined(NodeClaim::crd(), node_claim::refine),
        refined(NodeOverlay::crd(), node_overlay::refine),
        refined(Ec2NodeClass::crd(), ec2_node_class::refine),
        refined(CapacityBuffer::crd(), capacity_buffer::refine),
    ];
    crds.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    crds
}

/// The definitions as files, ordered by definition; the same text every time.
///
/// # Errors
/// When a definition has no form as YAML.
pub fn crd_files() -> Result<Vec<CrdFile>, WriteError> {
    crds()
        .into_iter()
        .map(|crd| {
            let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            let body =
                serde_saphyr::to_string(&tree_of(&crd)).map_err(|source| WriteError::Render {
                    name: name.clone(),
                    source,
                })?;
            Ok(CrdFile {
                name,
                text: format!("{HEADER}{}\n", body.trim_end()),
            })
        })
        .collect()
}

/// The definition as a tree, ready to be written.
fn tree_of(crd: &CustomResourceDefinition) -> Value {
    let mut tree = serde_json::to_value(crd).expect("a definition is plain data");
    write_whole_numbers_whole(&mut tree);
    tree
}

/// Bounds are floating-point numbers in the definition's type, but people write `1`, not `1.0`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "only whole numbers of a small size"
)]
fn write_whole_numbers_whole(tree: &mut Value) {
    match tree {
        Value::Number(number) => {
            if let Some(float) = number
                .as_f64()
                .filter(|f| number.is_f64() && f.fract() == 0.0)
                && float.abs() < 1e15
            {
                *tree = Value::from(float as i64);
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(write_whole_numbers_whole),
        Value::Object(entries) => entries.values_mut().for_each(write_whole_numbers_whole),
        _ => {}
    }
}

/// All definitions as one YAML stream.
///
/// # Errors
/// When a definition has no form as YAML.
pub fn crds_yaml() -> Result<String, WriteError> {
    Ok(crd_files()?
        .into_iter()
        .map(|file| format!("---\n{}", file.text))
        .collect())
}

/// Writes one file per definition into an existing folder.
///
/// # Errors
/// When a file cannot be written.
pub fn write_crds(folder: &Path) -> Result<(), WriteError> {
    for file in crd_files()? {
        let path = folder.join(&file.name);
        std::fs::write(&path, file.text).map_err(|source| WriteError::Write {
            path: path.display().to_string(),
            source,
        })?;
    }
    Ok(())
}

/// Applies the rules of one kind to what derive made of its type.
fn refined(
    mut crd: CustomResourceDefinition,
    rules: impl Fn(&mut Schema),
) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let derived = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut());
        let derived = derived.expect("kube's derive gives every version a schema");
        let mut schema = Schema::of(derived);
        rules(&mut schema);
        *derived = schema.into_props();
    }
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the chart takes the definitions from.
    fn chart_folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/crds")
    }

    /// Regenerate with: UPDATE_CRDS=1 cargo test -p millwright-api chart_carries
    #[test]
    fn chart_carries_exactly_what_the_types_generate() {
        if std::env::var_os("UPDATE_CRDS").is_some() {
            write_crds(&chart_folder()).unwrap();
        }
        let files = crd_files().unwrap();
        for file in &files {
            let text = std::fs::read_to_string(chart_folder().join(&file.name)).unwrap();
            assert!(
                text == file.text,
                "{} is stale; run: UPDATE_CRDS=1 cargo test -p millwright-api chart_carries",
                file.name
            );
        }
        let count = std::fs::read_dir(chart_folder()).unwrap().count();
        assert_eq!(count, files.len(), "the folder holds nothing else");
    }

    #[test]
    fn files_are_read_back_as_the_definitions_they_were_made_from() {
        for (file, crd) in crd_files().unwrap().iter().zip(crds()) {
            let read: CustomResourceDefinition = serde_saphyr::from_str(&file.text).unwrap();
            assert_eq!(read, crd, "{}", file.name);
        }
    }

    #[test]
    fn generating_twice_gives_the_same_text() {
        assert_eq!(crds_yaml().unwrap(), crds_yaml().unwrap());
    }

    #[test]
    fn writing_fills_a_folder_with_one_file_per_kind() {
        let folder = tempfile::tempdir().unwrap();
        write_crds(folder.path()).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "autoscaling.x-k8s.io_capacitybuffers.yaml",
                "karpenter.k8s.aws_ec2nodeclasses.yaml",
                "karpenter.sh_nodeclaims.yaml",
                "karpenter.sh_nodeoverlays.yaml",
                "karpenter.sh_nodepools.yaml",
            ]
        );
        assert!(write_crds(&folder.path().join("missing")).is_err());
    }
}
