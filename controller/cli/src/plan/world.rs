//! From documents to a cluster: what `millwright plan` plans for and `millwright consolidate` shrinks.
//!
//! Owners become pods by their replicas or parallelism; pods with a node are bound, others wait. Every
//! error is one line with file, document and field.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::Job,
        core::v1::{
            LimitRange, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplateSpec,
        },
        node::v1::RuntimeClass,
        policy::v1::PodDisruptionBudget,
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use millwright_api::{Ec2NodeClass, NodeClaim, NodePool};
use millwright_lifecycle::{ObservedClaim, ObservedNode, ObservedPod, pdb::ObservedPdb};
use millwright_model::NodeName;
use millwright_state::{ClusterState, convert, observe};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::documents::{Document, Source};

/// Pods that one document may ask for; above the largest cluster that Kubernetes supports.
const REPLICAS_MAX: i32 = 500_000;
/// Kinds that planning does not need, accepted without a word.
const SILENT: [&str; 7] = [
    "NodeOverlay",
    "CSINode",
    "PriorityClass",
    "Service",
    "ServiceAccount",
    "ConfigMap",
    "Secret",
];

/// What the documents describe.
#[derive(Debug, Default)]
pub struct World {
    /// The cluster.
    pub state: ClusterState,
    /// Node classes by name.
    pub classes: BTreeMap<String, Ec2NodeClass>,
    /// NodePools with their place in the input.
    pub pools: Vec<(Source, NodePool)>,
    /// What disruption reads of the objects, beyond what planning does.
    pub observed: Observed,
    /// Things to say on standard error.
    pub warnings: Vec<String>,
}

/// Objects as disruption sees them, in the order of the input.
#[derive(Debug, Default)]
pub struct Observed {
    /// NodeClaims.
    pub claims: Vec<ObservedClaim>,
    /// Nodes.
    pub nodes: Vec<ObservedNode>,
    /// Bound pods, finished ones too, with their node.
    pub pods: Vec<(NodeName, ObservedPod)>,
    /// PodDisruptionBudgets.
    pub budgets: Vec<ObservedPdb>,
}

/// Everything typed, before order matters.
#[derive(Default)]
struct Sorted {
    pods: Vec<(Source, Pod)>,
    templates: Vec<(Source, Owner)>,
    limits: Vec<LimitRange>,
    runtimes: BTreeMap<String, RuntimeClass>,
}

/// An owner of pods, reduced.
struct Owner {
    kind: &'static str,
    metadata: ObjectMeta,
    template: Option<PodTemplateSpec>,
    replicas: i32,
}

/// Reads documents into a world.
///
/// # Errors
/// The first thing that is wrong, as one line.
pub fn read(documents: Vec<Document>) -> Result<World, String> {
    let mut world = World::default();
    // A file is the whole cluster: namespaces that it does not mention have no labels of their own.
    world.state.know_namespaces();
    let mut sorted = Sorted::default();
    let mut seen = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    for document in documents {
        let text = |pointer: &str| {
            document
                .value
                .pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let kind = text("/kind").ok_or_else(|| format!("{}: kind: is missing", document.source))?;
        let version = text("/apiVersion")
            .ok_or_else(|| format!("{}: apiVersion: is missing", document.source))?;
        let name = text("/metadata/name").unwrap_or_default();
        if name.is_empty() && text("/metadata/generateName").is_none() {
            return Err(format!(
                "{}: {kind}: metadata.name: is missing",
                document.source
            ));
        }
        let key = (
            kind.clone(),
            text("/metadata/namespace").unwrap_or_default(),
            name.clone(),
        );
        if !name.is_empty() && !seen.insert(key) {
            return Err(format!(
                "{}: {kind}: metadata.name: duplicate name \"{name}\"",
                document.source
            ));
        }
        take(
            &mut world,
            &mut sorted,
            &mut unknown,
            &document,
            &kind,
            &version,
        )?;
    }
    world.warnings.extend(
        unknown
            .into_iter()
            .map(|kind| format!("warning: kind {kind} is not known here and was skipped")),
    );
    for (source, owner) in std::mem::take(&mut sorted.templates) {
        expand(&source, &owner, &mut sorted)?;
    }
    for (source, pod) in &sorted.pods {
        let checked = convert::pod_spec(pod).map_err(|e| format!("{source}: Pod: {e}"))?;
        drop(checked);
        world.state.apply_pod(pod);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            let seen = (node.into(), observe::pod(pod));
            world.observed.pods.push(seen);
        }
    }
    Ok(world)
}

fn typed<T: DeserializeOwned>(document: &Document, kind: &str) -> Result<T, String> {
    serde_path_to_error::deserialize(&document.value)
        .map_err(|e| format!("{}: {kind}: {}: {}", document.source, e.path(), e.inner()))
}

fn take(
    world: &mut World,
    sorted: &mut Sorted,
    unknown: &mut BTreeSet<String>,
    document: &Document,
    kind: &str,
    version: &str,
) -> Result<(), String> {
    let source = document.source.clone();
    let wrong = |e: convert::FieldError| format!("{source}: {kind}: {e}");
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if ["karpenter.sh", "karpenter.k8s.aws"].contains(&group)
        && !["v1", "v1alpha1"].contains(&version.rsplit('/').next().unwrap_or_default())
    {
        return Err(format!(
            "{source}: {kind}: apiVersion: {version} is not served; run millwright convert first"
        ));
    }
    match kind {
        "Pod" => sorted.pods.push((source, typed(document, kind)?)),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "Job" => {
            let owner = owner(document, kind)?;
            sorted.templates.push((source, owner));
        }
        "CronJob" => world.warnings.push(format!(
            "note: {source}: CronJob is ignored: its Jobs make pods"
        )),
        "DaemonSet" => world
            .state
            .apply_daemon_set(typed::<DaemonSet>(document, kind)?)
            .map_err(wrong)?,
        "Node" | "NodeClaim" | "PodDisruptionBudget" => take_observed(world, document, kind)?,
        "NodePool" => {
            let mut pool: NodePool = typed(document, kind)?;
            convert::node_pool(&pool, [].into(), millwright_model::Resources::new())
                .map_err(wrong)?;
            assume_ready(&mut pool);
            world.state.apply_pool(pool.clone());
            world.pools.push((source, pool));
        }
        "EC2NodeClass" => {
            let class: Ec2NodeClass = typed(document, kind)?;
            world
                .classes
                .insert(class.metadata.name.clone().unwrap_or_default(), class);
        }
        "PersistentVolumeClaim" => world
            .state
            .apply_volume_claim(typed::<PersistentVolumeClaim>(document, kind)?),
        "PersistentVolume" => world
            .state
            .apply_volume(typed::<PersistentVolume>(document, kind)?),
        "StorageClass" => world
            .state
            .apply_storage_class(typed::<StorageClass>(document, kind)?),
        "Namespace" => world.state.apply_namespace(&typed(document, kind)?),
        "LimitRange" => sorted.limits.push(typed(document, kind)?),
        "RuntimeClass" => {
            let class: RuntimeClass = typed(document, kind)?;
            sorted
                .runtimes
                .insert(class.metadata.name.clone().unwrap_or_default(), class);
        }
        kind if SILENT.contains(&kind) => {}
        kind => {
            unknown.insert(kind.to_owned());
        }
    }
    Ok(())
}

/// Kinds that disruption reads more of than planning does.
fn take_observed(world: &mut World, document: &Document, kind: &str) -> Result<(), String> {
    let wrong = |e: convert::FieldError| format!("{}: {kind}: {e}", document.source);
    match kind {
        "Node" => {
            let node: Node = typed(document, kind)?;
            world.state.apply_node(&node).map_err(wrong)?;
            world.observed.nodes.push(observe::node(&node));
        }
        "NodeClaim" => {
            let claim: NodeClaim = typed(document, kind)?;
            world.state.apply_claim(&claim).map_err(wrong)?;
            world.observed.claims.push(observe::claim(&claim));
        }
        _ => {
            let budget: PodDisruptionBudget = typed(document, kind)?;
            let applied = world.state.apply_disruption_budget(&budget);
            applied.map_err(wrong)?;
            world.observed.budgets.push(observe::budget(&budget));
        }
    }
    Ok(())
}

/// Nobody reconciles a file: a pool that does not say otherwise counts as ready.
fn assume_ready(pool: &mut NodePool) {
    let conditions = &mut pool.status.get_or_insert_default().conditions;
    if conditions
        .iter()
        .any(|condition| condition.type_ == "Ready")
    {
        return;
    }
    let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"});
    conditions.extend(serde_json::from_value::<millwright_api::Condition>(ready).ok());
}

fn owner(document: &Document, kind: &str) -> Result<Owner, String> {
    let owner = match kind {
        "Deployment" => {
            let typed: Deployment = typed(document, kind)?;
            let spec = typed.spec.unwrap_or_default();
            Owner {
                kind: "Deployment",
                metadata: typed.metadata,
                template: Some(spec.template),
                replicas: spec.replicas.unwrap_or(1),
            }
        }
        "ReplicaSet" => {
            let typed: ReplicaSet = typed(document, kind)?;
            let spec = typed.spec.unwrap_or_default();
            Owner {
                kind: "ReplicaSet",
                metadata: typed.metadata,
                template: spec.template,
                replicas: spec.replicas.unwrap_or(1),
            }
        }
        "StatefulSet" => {
            let typed: StatefulSet = typed(document, kind)?;
            let spec = typed.spec.unwrap_or_default();
            Owner {
                kind: "StatefulSet",
                metadata: typed.metadata,
                template: Some(spec.template),
                replicas: spec.replicas.unwrap_or(1),
            }
        }
        _ => {
            let typed: Job = typed(document, kind)?;
            let replicas = i32::try_from(millwright_state::wanted_by_job(&typed)).unwrap_or(0);
            let spec = typed.spec.unwrap_or_default();
            Owner {
                kind: "Job",
                metadata: typed.metadata,
                template: Some(spec.template),
                replicas,
            }
        }
    };
    if !(0..=REPLICAS_MAX).contains(&owner.replicas) {
        let field = if kind == "Job" {
            "spec.parallelism"
        } else {
            "spec.replicas"
        };
        return Err(format!(
            "{}: {kind}: {field}: {} is not between 0 and {REPLICAS_MAX}",
            document.source, owner.replicas
        ));
    }
    Ok(owner)
}

/// Makes the pods of an owner, as the API server would return them: with limit-range defaults and the
/// overhead of their runtime class.
fn expand(source: &Source, owner: &Owner, sorted: &mut Sorted) -> Result<(), String> {
    let Some(template) = &owner.template else {
        return Ok(());
    };
    let namespace = owner
        .metadata
        .namespace
        .clone()
        .unwrap_or_else(|| "default".to_owned());
    let name = owner.metadata.name.clone().unwrap_or_default();
    let mut spec = template.spec.clone().unwrap_or_default();
    default_requests(&mut spec, &namespace, &sorted.limits);
    if let Some(class) = spec
        .runtime_class_name
        .as_ref()
        .and_then(|name| sorted.runtimes.get(name))
        && spec.overhead.is_none()
    {
        spec.overhead = class
            .overhead
            .as_ref()
            .and_then(|overhead| overhead.pod_fixed.clone());
    }
    let metadata = ObjectMeta {
        namespace: Some(namespace.clone()),
        creation_timestamp: owner.metadata.creation_timestamp.clone(),
        owner_references: Some(vec![OwnerReference {
            api_version: if owner.kind == "Job" {
                "batch/v1"
            } else {
                "apps/v1"
            }
            .to_owned(),
            kind: owner.kind.to_owned(),
            name: name.clone(),
            uid: owner
                .metadata
                .uid
                .clone()
                .unwrap_or_else(|| format!("{}/{namespace}/{name}", owner.kind)),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..template.metadata.clone().unwrap_or_default()
    };
    let first = Pod {
        metadata,
        spec: Some(spec),
        status: None,
    };
    convert::pod_spec(&first)
        .map_err(|e| format!("{source}: {}: spec.template.{e}", owner.kind))?;
    for at in 0..owner.replicas {
        let mut pod = first.clone();
        pod.metadata.name = Some(format!("{name}-{at}"));
        sorted.pods.push((source.clone(), pod));
    }
    Ok(())
}

/// LimitRange defaults of type Container, for containers that state nothing.
fn default_requests(
    spec: &mut k8s_openapi::api::core::v1::PodSpec,
    namespace: &str,
    limits: &[LimitRange],
) {
    let ours =
        |range: &&LimitRange| range.metadata.namespace.as_deref().unwrap_or("default") == namespace;
    let items = limits
        .iter()
        .filter(ours)
        .filter_map(|range| range.spec.as_ref())
        .flat_map(|spec| &spec.limits);
    for item in items.filter(|item| item.type_ == "Container") {
        let containers = spec
            .containers
            .iter_mut()
            .chain(spec.init_containers.iter_mut().flatten());
        for container in containers {
            let resources = container.resources.get_or_insert_default();
            for (name, quantity) in item.default.iter().flatten() {
                resources
                    .limits
                    .get_or_insert_default()
                    .entry(name.clone())
                    .or_insert_with(|| quantity.clone());
            }
            for (name, quantity) in item.default_request.iter().flatten() {
                let limited = resources
                    .limits
                    .as_ref()
                    .is_some_and(|limits| limits.contains_key(name))
                    && item
                        .default
                        .as_ref()
                        .is_none_or(|default| !default.contains_key(name));
                if !limited {
                    resources
                        .requests
                        .get_or_insert_default()
                        .entry(name.clone())
                        .or_insert_with(|| quantity.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::parse;

    fn world(text: &str) -> Result<World, String> {
        read(parse(&"f".into(), text.as_bytes()).map_err(|e| e.to_string())?)
    }

    #[test]
    fn owners_become_pods_and_bad_fields_are_named_with_file_document_and_path() {
        let good = "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: web}\nspec:\n  replicas: 3\n  selector: {}\n  template:\n    spec:\n      containers: [{name: c, resources: {requests: {cpu: 100m}}}]\n";
        assert_eq!(world(good).unwrap().state.waiting_pods(), 3);
        for (from, to, expected) in [
            (
                "replicas: 3",
                "replicas: three",
                "f: document 1: Deployment: spec.replicas: invalid type",
            ),
            (
                "replicas: 3",
                "replicas: -3",
                "f: document 1: Deployment: spec.replicas: -3 is not between",
            ),
            (
                "cpu: 100m",
                "cpu: -100m",
                "f: document 1: Deployment: spec.template.spec.containers[0].resources.requests.cpu: \"-100m\": must not be negative",
            ),
            (
                "cpu: 100m",
                "cpu: 100q",
                "f: document 1: Deployment: spec.template.spec.containers[0].resources.requests.cpu: \"100q\": quantity has an unknown suffix",
            ),
            (
                "name: web",
                "nom: web",
                "f: document 1: Deployment: metadata.name: is missing",
            ),
            (
                "kind: Deployment",
                "knd: Deployment",
                "f: document 1: kind: is missing",
            ),
        ] {
            let error = world(&good.replace(from, to)).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let twice = format!("{good}---\n{good}");
        assert_eq!(
            world(&twice).unwrap_err(),
            "f: document 2: Deployment: metadata.name: duplicate name \"web\""
        );
        assert_eq!(
            world("kind: Gadget\napiVersion: v1\nmetadata: {name: x}")
                .unwrap()
                .warnings
                .len(),
            1
        );
        assert!(
            world("kind: NodePool\napiVersion: karpenter.sh/v1beta1\nmetadata: {name: x}")
                .unwrap_err()
                .contains("millwright convert")
        );
    }
}
