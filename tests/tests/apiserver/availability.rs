//! Components that go away and come back. These tests start their own control plane.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use millwright_tests::{
    Component, ControlPlane, ControlPlaneError, ControlPlaneOptions, eventually,
};
use serde_json::{from_value, json};

const BOUND: Duration = Duration::from_secs(60);

fn config_map(name: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": name}})).expect("a ConfigMap")
}

#[tokio::test]
async fn a_restarted_api_server_has_kept_everything_and_the_others_find_it_again()
-> anyhow::Result<()> {
    let options = ControlPlaneOptions::default();
    let Some(plane) = ControlPlane::start_or_skip(options).await else {
        return Ok(());
    };
    let admin = plane.admin().await?;
    let namespace = plane.namespace(&admin, "restart").await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), &namespace);
    maps.create(&PostParams::default(), &config_map("before"))
        .await?;

    plane.stop_component(Component::ApiServer).await?;
    assert!(
        maps.get("before").await.is_err(),
        "a stopped API server answered"
    );
    let twice = plane.stop_component(Component::ApiServer).await;
    assert!(
        matches!(&twice, Err(ControlPlaneError::Failed(why)) if why.contains("stopped already")),
        "{twice:?}"
    );
    plane.start_component(Component::ApiServer).await?;
    // The same client, the same address, the same certificates.
    eventually("what was stored before", BOUND, async || {
        Ok(maps.get("before").await?)
    })
    .await;

    plane.restart_component(Component::ApiServer).await?;
    eventually("a second restart", BOUND, async || {
        Ok(maps.get("before").await?)
    })
    .await;
    // The controller manager lives on and works: it makes a new namespace's account.
    let later = plane.namespace(&admin, "later").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, &later);
    eventually(
        "the default ServiceAccount of a new namespace",
        BOUND,
        async || Ok(accounts.get("default").await?),
    )
    .await;
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_control_plane_takes_its_files_and_processes_along() -> anyhow::Result<()> {
    let options = ControlPlaneOptions {
        scheduler: false,
        controller_manager: false,
        ..ControlPlaneOptions::default()
    };
    let Some(plane) = ControlPlane::start_or_skip(options).await else {
        return Ok(());
    };
    let costs = plane.costs_of(Component::ApiServer).await?;
    assert!(costs.memory_bytes_peak > 50_000_000, "{costs}");
    let absent = plane.restart_component(Component::Scheduler).await;
    assert!(
        matches!(absent, Err(ControlPlaneError::Failed(_))),
        "{absent:?}"
    );

    let kubeconfig = plane.kubeconfig().to_owned();
    let address = plane.server().trim_start_matches("https://").to_owned();
    assert!(kubeconfig.exists());
    tokio::task::spawn_blocking(move || drop(plane)).await?;
    assert!(
        !kubeconfig.exists(),
        "{} is still there",
        kubeconfig.display()
    );
    eventually("nobody listens any more", BOUND, async || {
        ensure!(
            tokio::net::TcpStream::connect(&address).await.is_err(),
            "{address} listens"
        );
        Ok(())
    })
    .await;
    Ok(())
}
