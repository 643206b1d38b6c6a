//! Which resources are served, and what is particular about each.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::builtin;
use super::crd::CustomVersion;
use super::schema::Schema;
use super::store::ResourceId;

/// One resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// API version, for example `v1`.
    pub(crate) version: String,
    /// Name in paths, for example `pods`.
    pub(crate) plural: String,
    /// Singular name, lower case.
    pub(crate) singular: String,
    /// Kind of the objects.
    pub(crate) kind: String,
    /// Kind of lists of them.
    pub(crate) list_kind: String,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Abbreviations kubectl accepts.
    pub(crate) short_names: Vec<String>,
    /// Groups such as `all`.
    pub(crate) categories: Vec<String>,
    /// Whether `status` is written only through its subresource.
    pub(crate) has_status: bool,
    /// Subresources served, besides `status`.
    pub(crate) subresources: Vec<String>,
    /// Whether only `create` exists (reviews).
    pub(crate) create_only: bool,
    /// Table that stores the objects; versions and the two event groups share one.
    pub(crate) id: ResourceId,
    /// Set for resources of a CustomResourceDefinition.
    pub(crate) custom: Option<Arc<CustomVersion>>,
    /// Name of the type in OpenAPI documents.
    pub(crate) type_name: String,
    schema: OnceLock<Arc<Schema>>,
    make_schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The schema that prunes, validates, defaults and merges objects.
    pub(crate) fn schema(&self) -> &Schema {
        if let Some(custom) = &self.custom {
            return &custom.schema;
        }
        self.schema
            .get_or_init(|| builtin::compiled_schema(self.make_schema))
    }

    pub(crate) fn json_schema(
        &self,
        generator: &mut schemars::SchemaGenerator,
    ) -> schemars::Schema {
        (self.make_schema)(generator)
    }

    /// Whether this is one of the built-in kinds `kind` (a CRD of the same kind is not).
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.custom.is_none() && self.group == group && self.plural == plural
    }

    /// Whether objects carry `metadata.generation`.
    pub(crate) fn has_generation(&self) -> bool {
        if self.custom.is_some() {
            return true;
        }
        matches!(
            self.plural.as_str(),
            "pods"
                | "deployments"
                | "replicasets"
                | "statefulsets"
                | "daemonsets"
                | "replicationcontrollers"
                | "jobs"
                | "cronjobs"
                | "poddisruptionbudgets"
                | "customresourcedefinitions"
                | "endpointslices"
                | "networkpolicies"
                | "priorityclasses"
                | "resourceslices"
        )
    }

    /// Whether a PUT may omit the resourceVersion.
    pub(crate) fn allows_unconditional_update(&self) -> bool {
        self.custom.is_none()
            && !matches!(self.plural.as_str(), "leases" | "customresourcedefinitions")
    }

    /// Whether deletion answers the object instead of a `Status`.
    pub(crate) fn returns_deleted_object(&self) -> bool {
        self.custom.is_none()
            && matches!(
                self.plural.as_str(),
                "pods"
                    | "podtemplates"
                    | "persistentvolumes"
                    | "persistentvolumeclaims"
                    | "resourcequotas"
                    | "serviceaccounts"
                    | "services"
                    | "storageclasses"
                    | "csinodes"
                    | "csidrivers"
                    | "volumeattachments"
                    | "resourceclaims"
                    | "resourceclaimtemplates"
                    | "resourceslices"
                    | "deviceclasses"
            )
    }
}

/// What a custom resource needs to be registered.
#[derive(Debug)]
pub(crate) struct CustomNames {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) has_status: bool,
    pub(crate) has_scale: bool,
}

/// An immutable set of resources; a CRD makes a new one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    by_path: FxHashMap<(String, String, String), Arc<Resource>>,
    /// In the order of discovery documents.
    order: Vec<Arc<Resource>>,
}

impl Registry {
    /// The built-in resources.
    pub(crate) fn builtin() -> Self {
        let mut registry = Self::default();
        for row in builtin::ROWS {
            registry.add(Arc::new(from_row(row)));
        }
        registry
    }

    fn add(&mut self, resource: Arc<Resource>) {
        let path = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.by_path.insert(path, Arc::clone(&resource));
        self.order.push(resource);
    }

    /// Adds the served versions of a CRD in place of those it had.
    pub(crate) fn with_custom(
        &self,
        id: &str,
        versions: Vec<(CustomNames, Arc<CustomVersion>)>,
    ) -> Self {
        let mut registry = self.without(id);
        for (names, custom) in versions {
            registry.add(Arc::new(from_custom(id, names, custom)));
        }
        registry
    }

    /// Removes all versions of a resource.
    pub(crate) fn without(&self, id: &str) -> Self {
        let mut registry = self.clone();
        registry.order.retain(|resource| &*resource.id != id);
        registry.by_path.retain(|_, resource| &*resource.id != id);
        registry
    }

    /// The resource at a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
            .cloned()
    }

    /// The resource of an object's apiVersion and kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.order
            .iter()
            .find(|it| it.kind == kind && it.group == group && it.version == version)
            .cloned()
    }

    /// All resources in the order of discovery documents.
    pub(crate) fn all(&self) -> &[Arc<Resource>] {
        &self.order
    }

    /// Groups (the core group first), each with its versions in order of preference.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for resource in &self.order {
            match groups
                .iter_mut()
                .find(|(group, _)| *group == resource.group)
            {
                Some((_, versions)) if versions.contains(&resource.version) => {}
                Some((_, versions)) => versions.push(resource.version.clone()),
                None => groups.push((resource.group.clone(), vec![resource.version.clone()])),
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        }
        groups
    }
}

/// Kubernetes' order of versions: stable before beta before alpha, higher numbers first.
fn version_priority(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.parse().unwrap_or(0);
    let rest = version.strip_prefix('v').unwrap_or(version);
    if let Some((major, minor)) = rest.split_once("beta") {
        (1, number(major), number(minor))
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        (0, number(major), number(minor))
    } else {
        (2, number(rest), 0)
    }
}

fn from_row(row: &builtin::Row) -> Resource {
    let words = |text: &str| -> Vec<String> {
        text.split(',')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let all = words(row.subresources);
    let id: ResourceId = match (row.group, row.plural) {
        ("", plural) => plural.into(),
        ("events.k8s.io", "events") => "events".into(),
        (group, plural) => format!("{plural}.{group}").into(),
    };
    let type_name = builtin::type_name(row.make_schema);
    Resource {
        group: row.group.to_owned(),
        version: row.version.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.kind.to_lowercase(),
        kind: row.kind.to_owned(),
        list_kind: format!("{}List", row.kind),
        namespaced: row.namespaced,
        short_names: words(row.short_names),
        categories: words(row.categories),
        has_status: all.iter().any(|name| name == "status"),
        subresources: all.into_iter().filter(|name| name != "status").collect(),
        create_only: row.create_only,
        id,
        custom: None,
        type_name,
        schema: OnceLock::new(),
        make_schema: row.make_schema,
    }
}

fn from_custom(id: &str, names: CustomNames, custom: Arc<CustomVersion>) -> Resource {
    let mut reversed: Vec<&str> = names.group.split('.').collect();
    reversed.reverse();
    let type_name = format!("{}.{}.{}", reversed.join("."), names.version, names.kind);
    Resource {
        subresources: if names.has_scale {
            vec!["scale".to_owned()]
        } else {
            Vec::new()
        },
        group: names.group,
        version: names.version,
        plural: names.plural,
        singular: names.singular,
        kind: names.kind,
        list_kind: names.list_kind,
        namespaced: names.namespaced,
        short_names: names.short_names,
        categories: names.categories,
        has_status: names.has_status,
        create_only: false,
        id: id.into(),
        custom: Some(custom),
        type_name,
        schema: OnceLock::new(),
        make_schema: builtin::any_schema,
    }
}
