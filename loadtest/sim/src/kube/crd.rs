//! CustomResourceDefinitions: from the object to the resources it makes the server serve.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::object::{at, bool_at, list_at, meta_str, now_rfc3339, object_mut, str_at};
use super::registry::CustomNames;
use super::schema::Schema;

/// One version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// Prunes, defaults, validates and merges the objects.
    pub(crate) schema: Schema,
    /// The schema as written, for OpenAPI documents.
    pub(crate) open_api: Value,
    /// `additionalPrinterColumns`.
    pub(crate) printer_columns: Vec<PrinterColumn>,
    /// Dotted paths field selectors may name.
    pub(crate) selectable_fields: Vec<String>,
    /// Where the scale subresource finds its numbers.
    pub(crate) scale: Option<ScalePaths>,
}

/// One column of `kubectl get`.
#[derive(Debug, Clone)]
pub(crate) struct PrinterColumn {
    /// Heading.
    pub(crate) name: String,
    /// `string`, `integer`, `date`, ...
    pub(crate) kind: String,
    /// OpenAPI format.
    pub(crate) format: String,
    /// For people.
    pub(crate) description: String,
    /// 0 is shown always; more only with `-o wide`.
    pub(crate) priority: i64,
    /// Where the value is.
    pub(crate) json_path: String,
}

/// JSON paths of the scale subresource, as lists of field names.
#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    /// Wanted replicas, below `spec`.
    pub(crate) spec_replicas: Vec<String>,
    /// Present replicas, below `status`.
    pub(crate) status_replicas: Vec<String>,
    /// Text form of the label selector.
    pub(crate) label_selector: Option<Vec<String>>,
}

/// What a CRD object asks for.
pub(crate) type Served = Vec<(CustomNames, Arc<CustomVersion>)>;

/// Reads a CRD; each served version with its names.
///
/// # Errors
/// 422 with one cause per field that is wrong or cannot be evaluated here (CEL).
pub(crate) fn served_versions(crd: &Value) -> Result<Served, ApiError> {
    let name = meta_str(crd, "name");
    let (group, plural) = (
        str_at(crd, &["spec", "group"]),
        str_at(crd, &["spec", "names", "plural"]),
    );
    let mut causes = Vec::new();
    if name != format!("{plural}.{group}") {
        let why = format!("Invalid value: {name:?}: must be spec.names.plural+\".\"+spec.group");
        causes.push((
            "FieldValueInvalid".to_owned(),
            why,
            "metadata.name".to_owned(),
        ));
    }
    let mut served = Vec::new();
    let versions = list_at(crd, &["spec", "versions"]);
    if versions
        .iter()
        .filter(|version| bool_at(version, &["storage"]))
        .count()
        != 1
    {
        let why =
            "Invalid value: must have exactly one version marked as storage version".to_owned();
        causes.push((
            "FieldValueInvalid".to_owned(),
            why,
            "spec.versions".to_owned(),
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let at_version = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match custom_version(version) {
            Ok(custom) if bool_at(version, &["served"]) => {
                served.push((names(crd, version), Arc::new(custom)));
            }
            Ok(_) => {}
            Err(errors) => {
                tracing::error!(
                    crd = name,
                    ?errors,
                    "schema that this server can not evaluate"
                );
                causes.extend(errors.into_iter().map(|(path, why)| {
                    let field = if path.is_empty() {
                        at_version.clone()
                    } else {
                        format!("{at_version}.{path}")
                    };
                    (
                        "FieldValueInvalid".to_owned(),
                        format!("Invalid value: {why}"),
                        field,
                    )
                }));
            }
        }
    }
    if causes.is_empty() {
        return Ok(served);
    }
    Err(ApiError::invalid(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        name,
        causes,
    ))
}

fn names(crd: &Value, version: &Value) -> CustomNames {
    let name = |field: &str| str_at(crd, &["spec", "names", field]).to_owned();
    let words = |field: &str| -> Vec<String> {
        let list = list_at(crd, &["spec", "names", field]).iter();
        list.filter_map(|word| word.as_str().map(str::to_owned))
            .collect()
    };
    let kind = name("kind");
    let or = |text: String, default: String| if text.is_empty() { default } else { text };
    CustomNames {
        group: str_at(crd, &["spec", "group"]).to_owned(),
        version: str_at(version, &["name"]).to_owned(),
        plural: name("plural"),
        singular: or(name("singular"), kind.to_lowercase()),
        list_kind: or(name("listKind"), format!("{kind}List")),
        kind,
        namespaced: str_at(crd, &["spec", "scope"]) == "Namespaced",
        short_names: words("shortNames"),
        categories: words("categories"),
        has_status: at(version, &["subresources", "status"]).is_some(),
        has_scale: at(version, &["subresources", "scale"]).is_some(),
    }
}

fn custom_version(version: &Value) -> Result<CustomVersion, Vec<(String, String)>> {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let open_api = at(version, &["schema", "openAPIV3Schema"])
        .cloned()
        .unwrap_or(any);
    let schema = Schema::compile_structural(&open_api)?;
    let column = |column: &Value| PrinterColumn {
        name: str_at(column, &["name"]).to_owned(),
        kind: str_at(column, &["type"]).to_owned(),
        format: str_at(column, &["format"]).to_owned(),
        description: str_at(column, &["description"]).to_owned(),
        priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
        json_path: str_at(column, &["jsonPath"]).to_owned(),
    };
    let selectable = list_at(version, &["selectableFields"]).iter();
    let fields = |path: &str| -> Vec<String> {
        path.split('.')
            .filter(|field| !field.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let scale = at(version, &["subresources", "scale"]).map(|scale| ScalePaths {
        spec_replicas: fields(str_at(scale, &["specReplicasPath"])),
        status_replicas: fields(str_at(scale, &["statusReplicasPath"])),
        label_selector: scale
            .get("labelSelectorPath")
            .and_then(Value::as_str)
            .map(fields),
    });
    Ok(CustomVersion {
        schema,
        open_api,
        printer_columns: list_at(version, &["additionalPrinterColumns"])
            .iter()
            .map(column)
            .collect(),
        selectable_fields: selectable
            .map(|field| {
                str_at(field, &["jsonPath"])
                    .trim_start_matches('.')
                    .to_owned()
            })
            .collect(),
        scale,
    })
}

/// Fills in what the real server adds to a CRD: default names, and conditions at once
/// (the real one takes some milliseconds for them).
pub(crate) fn complete(crd: &mut Value) {
    let kind = str_at(crd, &["spec", "names", "kind"]).to_owned();
    let Some(spec) = crd.get_mut("spec") else {
        return;
    };
    let names = object_mut(spec, "names");
    names
        .entry("listKind")
        .or_insert_with(|| json!(format!("{kind}List")));
    names
        .entry("singular")
        .or_insert_with(|| json!(kind.to_lowercase()));
    let accepted = names.clone();
    let conversion = object_mut(spec, "conversion");
    conversion
        .entry("strategy")
        .or_insert_with(|| json!("None"));
    let stored: Vec<Value> = list_at(crd, &["spec", "versions"])
        .iter()
        .filter(|version| bool_at(version, &["storage"]))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    let since = list_at(crd, &["status", "conditions"])
        .first()
        .and_then(|condition| condition.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| json!(now_rfc3339()));
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": since,
        })
    };
    crd["status"] = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": accepted,
        "storedVersions": stored,
    });
}
