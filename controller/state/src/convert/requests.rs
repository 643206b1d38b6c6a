//! What a pod asks for, as the kube-scheduler counts it.
//!
//! Source: provisioning specification 6.4, "effective requests".

use k8s_openapi::api::core::v1::{Container, PodSpec};
use millwright_model::{ResourceName, Resources};

use super::{FieldError, resources};

/// Requests of containers, sidecars, init containers and the pod level, plus overhead, plus one of
/// `pods`. Limits stand in for requests that are missing, as the API server's defaulting does.
///
/// # Errors
/// The first quantity that cannot be read.
pub fn effective_requests(spec: &PodSpec) -> Result<Resources, FieldError> {
    let mut total = Resources::new();
    for (at, container) in spec.containers.iter().enumerate() {
        total.add(&container_requests(
            container,
            &format!("spec.containers[{at}]"),
        )?);
    }
    let mut sidecars = Resources::new();
    let mut initial = Resources::new();
    for (at, container) in spec.init_containers.iter().flatten().enumerate() {
        let own = container_requests(container, &format!("spec.initContainers[{at}]"))?;
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&own);
        } else {
            let mut needed = own;
            needed.add(&sidecars);
            initial.raise_to(&needed);
        }
    }
    total.add(&sidecars);
    total.raise_to(&initial);
    pod_level(spec, &mut total)?;
    if let Some(overhead) = &spec.overhead {
        total.add(&resources(overhead, "spec.overhead")?);
    }
    total.set(ResourceName::Pods, 1);
    Ok(total)
}

fn container_requests(container: &Container, path: &str) -> Result<Resources, FieldError> {
    let Some(requirements) = &container.resources else {
        return Ok(Resources::new());
    };
    let mut requests = match &requirements.limits {
        Some(limits) => resources(limits, &format!("{path}.resources.limits"))?,
        None => Resources::new(),
    };
    if let Some(stated) = &requirements.requests {
        for (name, amount) in resources(stated, &format!("{path}.resources.requests"))?.iter() {
            requests.set(name.clone(), amount);
        }
    }
    Ok(requests)
}

/// Pod-level requests replace the sum for the resources that the pod level supports.
fn pod_level(spec: &PodSpec, total: &mut Resources) -> Result<(), FieldError> {
    let Some(requirements) = &spec.resources else {
        return Ok(());
    };
    let limits = requirements
        .limits
        .as_ref()
        .map(|l| resources(l, "spec.resources.limits"))
        .transpose()?;
    let stated = requirements
        .requests
        .as_ref()
        .map(|r| resources(r, "spec.resources.requests"))
        .transpose()?;
    let supported = |name: &ResourceName| {
        matches!(name, ResourceName::Cpu | ResourceName::Memory) || name.is_huge_pages()
    };
    // A pod-level limit is the request only where neither the pod level nor a container states one.
    for (name, amount) in limits
        .iter()
        .flat_map(Resources::iter)
        .filter(|(name, _)| supported(name))
    {
        if total.find(name).is_none() {
            total.set(name.clone(), amount);
        }
    }
    for (name, amount) in stated
        .iter()
        .flat_map(Resources::iter)
        .filter(|(name, _)| supported(name))
    {
        total.set(name.clone(), amount);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn requests(spec: Value) -> String {
        effective_requests(&serde_json::from_value(spec).unwrap())
            .unwrap()
            .to_string()
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn init_containers_count_as_the_largest_and_sidecars_stay() {
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        for (init, expected) in [
            (json!([container("3")]), "cpu=3, pods=1"),
            (json!([container("1")]), "cpu=2, pods=1"),
            (json!([sidecar, container("1900m")]), "cpu=2100m, pods=1"),
            (
                json!([container("1950m"), sidecar, container("2500m")]),
                "cpu=2600m, pods=1",
            ),
        ] {
            let spec =
                json!({"containers": [container("1"), container("1")], "initContainers": init});
            assert_eq!(requests(spec), expected);
        }
    }

    #[test]
    fn pod_level_requests_replace_sums_and_overhead_comes_last() {
        let spec = json!({
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}}],
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
            "overhead": {"cpu": "250m"},
        });
        assert_eq!(
            requests(spec),
            "cpu=750m, memory=1Gi, pods=1, ephemeral-storage=1Gi"
        );
    }

    #[test]
    fn limits_stand_in_for_missing_requests() {
        let limits = json!({"cpu": "2", "nvidia.com/gpu": "1"});
        let spec = json!({"containers": [{"name": "c", "resources": {"limits": limits, "requests": {"cpu": "1"}}}]});
        assert_eq!(requests(spec), "cpu=1, pods=1, nvidia.com/gpu=1");
    }

    #[test]
    fn a_bad_quantity_names_its_field() {
        let spec = json!({"containers": [container("1"), container("-1")]});
        let error = effective_requests(&serde_json::from_value(spec).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.containers[1].resources.requests.cpu: \"-1\": must not be negative"
        );
    }
}
