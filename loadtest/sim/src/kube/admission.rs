//! What admission does to objects before they are stored: namespaces that are going away, the
//! priority, default tolerations and the quality of service of pods.

use serde_json::{Map, Value, json};

use super::api::ApiServer;
use super::error::ApiError;
use super::object::{ObjectKey, at, is_deleting, list_at, meta_str, object_mut, str_at};
use super::registry::Resource;
use super::request::Call;

/// How long a pod stays on a node that is not ready or not reachable, unless it says otherwise.
const EVICTION_SECONDS: u32 = 300;

impl ApiServer {
    /// Whether the namespace of a new object takes it.
    pub(crate) fn check_namespace(&self, call: &Call) -> Result<(), ApiError> {
        if !call.resource.namespaced {
            return Ok(());
        }
        let namespace = call.namespace.as_str();
        let key = ObjectKey::new("", namespace);
        let Some(found) = self.store.get("namespaces", &key) else {
            return Err(ApiError::not_found("", "namespaces", namespace));
        };
        if is_deleting(&found.value) {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let (group, plural) = (&call.resource.group, &call.resource.plural);
            let mut error = ApiError::forbidden(group, plural, &call.name, &why);
            error.details.causes.push((
                "NamespaceTerminating".to_owned(),
                format!("namespace {namespace} is being terminated"),
                "metadata.namespace".to_owned(),
            ));
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn admit(&self, resource: &Resource, value: &mut Value) -> Result<(), ApiError> {
        if !resource.is("", "pods") {
            return Ok(());
        }
        let name = meta_str(value, "name").to_owned();
        let is_gated = !list_at(value, &["spec", "schedulingGates"]).is_empty();
        let class = quality_of_service(value);
        object_mut(value, "status").insert("qosClass".to_owned(), json!(class));
        if is_gated {
            object_mut(value, "status").insert(
                "conditions".to_owned(),
                json!([{
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": null, "lastTransitionTime": super::object::now_rfc3339(),
                }]),
            );
        }
        let spec = object_mut(value, "spec");
        let account = spec
            .entry("serviceAccountName")
            .or_insert_with(|| json!("default"))
            .clone();
        spec.entry("serviceAccount").or_insert(account);
        default_tolerations(spec);
        self.prioritise(spec, &name)
    }

    pub(crate) fn admit_update(
        &self,
        resource: &Resource,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        if resource.is("", "pods") {
            // What admission and defaults filled in stays, also for a client that leaves it out.
            let before = old.get("spec").and_then(Value::as_object);
            let spec = object_mut(new, "spec");
            for field in [
                "priority",
                "preemptionPolicy",
                "serviceAccount",
                "serviceAccountName",
            ] {
                if let Some(kept) = before.and_then(|before| before.get(field)) {
                    spec.entry(field).or_insert_with(|| kept.clone());
                }
            }
        }
        Ok(())
    }

    /// Resolves the class of a pod's priority.
    fn prioritise(&self, spec: &mut Map<String, Value>, name: &str) -> Result<(), ApiError> {
        let named = spec
            .get("priorityClassName")
            .and_then(Value::as_str)
            .unwrap_or("");
        let class = if named.is_empty() {
            let (classes, _) = self.store.list("priorityclasses.scheduling.k8s.io", "");
            let is_default =
                |class: &Value| class.get("globalDefault").and_then(Value::as_bool) == Some(true);
            classes.into_iter().find(|class| is_default(&class.value))
        } else {
            let key = ObjectKey::new("", named);
            let found = self.store.get("priorityclasses.scheduling.k8s.io", &key);
            if found.is_none() {
                let why = format!("no PriorityClass with name {named} was found");
                return Err(ApiError::forbidden("", "pods", name, &why));
            }
            found
        };
        let number = class
            .as_ref()
            .and_then(|class| class.value.get("value").cloned());
        let number = number.unwrap_or_else(|| json!(0));
        let stated = spec.get("priority");
        if stated.is_some_and(|stated| *stated != number) {
            let why = "the integer value of priority must not be provided in pod spec; priority \
                       admission controller computed the priority from the given PriorityClass name";
            return Err(ApiError::forbidden("", "pods", name, why));
        }
        let policy = class
            .as_ref()
            .map(|class| str_at(&class.value, &["preemptionPolicy"]));
        let policy = policy
            .filter(|text| !text.is_empty())
            .unwrap_or("PreemptLowerPriority");
        if let Some(class) = &class {
            spec.insert("priorityClassName".to_owned(), json!(class.key.name));
        }
        spec.insert("priority".to_owned(), number);
        spec.entry("preemptionPolicy")
            .or_insert_with(|| json!(policy));
        Ok(())
    }
}

fn default_tolerations(spec: &mut Map<String, Value>) {
    let own = spec
        .get("tolerations")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut all = own.clone();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerates = |toleration: &Value| {
            let stated = str_at(toleration, &["key"]);
            let effect = str_at(toleration, &["effect"]);
            (stated == key || stated.is_empty()) && matches!(effect, "" | "NoExecute")
        };
        if !own.iter().any(tolerates) {
            all.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": EVICTION_SECONDS,
            }));
        }
    }
    if !all.is_empty() {
        spec.insert("tolerations".to_owned(), all.into());
    }
}

/// The class that CPU and memory of all containers make together.
fn quality_of_service(pod: &Value) -> &'static str {
    let mut containers = Vec::new();
    for list in ["containers", "initContainers"] {
        containers.extend(list_at(pod, &["spec", list]));
    }
    let amount = |container: &Value, which: &str, name: &str| {
        at(container, &["resources", which, name]).cloned()
    };
    let counted = ["cpu", "memory"];
    let is_free = |container: &&Value| {
        let of = |which| {
            counted
                .iter()
                .all(|name| amount(container, which, name).is_none())
        };
        of("requests") && of("limits")
    };
    let is_guaranteed = |container: &&Value| {
        counted.iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some() && limit == amount(container, "requests", name)
        })
    };
    if containers.iter().all(is_free) {
        "BestEffort"
    } else if containers.iter().all(is_guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Answers an access review: nobody is refused anything here.
pub(crate) fn review(mut value: Value) -> Value {
    value["status"] = json!({ "allowed": true });
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(resources: &Value, class: &str) {
        let pod = json!({ "spec": { "containers": [{ "resources": resources }] } });
        assert_eq!(quality_of_service(&pod), class, "{resources}");
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        check(&json!({}), "BestEffort");
        check(&json!({ "requests": { "cpu": "1" } }), "Burstable");
        let both = json!({ "cpu": "1", "memory": "1Gi" });
        check(&json!({ "requests": both, "limits": both }), "Guaranteed");
        check(
            &json!({ "requests": both, "limits": { "cpu": "2", "memory": "1Gi" } }),
            "Burstable",
        );
    }

    #[test]
    fn a_pod_that_tolerates_everything_gets_no_more_tolerations() {
        let mut spec = Map::new();
        spec.insert("tolerations".to_owned(), json!([{ "operator": "Exists" }]));
        default_tolerations(&mut spec);
        assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(1));
        let mut plain = Map::new();
        default_tolerations(&mut plain);
        assert_eq!(plain["tolerations"].as_array().map(Vec::len), Some(2));
    }
}
