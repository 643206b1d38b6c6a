//! Who a client is: versions, tokens, RBAC, and the clients that people use.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Error};
use millwright_tests::{
    ControlPlane, ControlPlaneOptions, StaticToken, eventually, present_or_skip, tools,
};
use serde_json::{from_value, json};

const BOUND: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_version_is_the_one_of_the_modules() -> anyhow::Result<()> {
    let Some(plane) = ControlPlane::shared().await else {
        return Ok(());
    };
    if std::env::var_os("KUBEBUILDER_ASSETS").is_some() {
        return Ok(()); // then the version is the user's choice
    }
    let version = plane.admin().await?.apiserver_version().await?;
    assert_eq!(
        (version.major.as_str(), version.minor.as_str()),
        ("1", "36")
    );
    Ok(())
}

#[tokio::test]
async fn a_service_account_may_do_what_rbac_grants_and_nothing_else() -> anyhow::Result<()> {
    let Some(plane) = ControlPlane::shared().await else {
        return Ok(());
    };
    let admin = plane.admin().await?;
    let namespace = plane.namespace(&admin, "rbac").await?;
    let account: ServiceAccount = from_value(json!({"metadata": {"name": "reader"}}))?;
    Api::namespaced(admin.clone(), &namespace)
        .create(&PostParams::default(), &account)
        .await?;
    let role: k8s_openapi::api::rbac::v1::Role = from_value(json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    }))?;
    Api::namespaced(admin.clone(), &namespace)
        .create(&PostParams::default(), &role)
        .await?;

    let token = plane
        .service_account_token(&admin, &namespace, "reader")
        .await?;
    let reader = plane.with_token(&token).await?;
    let refused = Api::<Node>::all(reader.clone())
        .list(&ListParams::default())
        .await;
    let Err(Error::Api(status)) = refused else {
        panic!("nodes were listed: {refused:?}")
    };
    assert_eq!(status.code, 403, "{status:?}");
    let who = format!("system:serviceaccount:{namespace}:reader");
    assert!(status.message.contains(&who), "{}", status.message);

    let binding: k8s_openapi::api::rbac::v1::RoleBinding = from_value(json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }))?;
    Api::namespaced(admin, &namespace)
        .create(&PostParams::default(), &binding)
        .await?;
    let pods: Api<Pod> = Api::namespaced(reader, &namespace);
    eventually("the granted list of pods", BOUND, async || {
        Ok(pods.list(&ListParams::default()).await?)
    })
    .await;
    let pod: Pod = from_value(json!({
        "metadata": {"name": "refused"}, "spec": {"containers": [{"name": "a", "image": "b"}]},
    }))?;
    let refused = pods.create(&PostParams::default(), &pod).await;
    assert!(
        matches!(&refused, Err(Error::Api(s)) if s.code == 403),
        "{refused:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_static_token_is_its_user_and_a_wrong_one_is_nobody() -> anyhow::Result<()> {
    let options = ControlPlaneOptions {
        scheduler: false,
        controller_manager: false,
        tokens: vec![StaticToken {
            token: "sesame".to_owned(),
            user: "ali".to_owned(),
            groups: vec!["system:masters".to_owned()],
        }],
        ..ControlPlaneOptions::default()
    };
    let Some(plane) = ControlPlane::start_or_skip(options).await else {
        return Ok(());
    };
    let nodes: Api<Node> = Api::all(plane.with_token("sesame").await?);
    assert!(nodes.list(&ListParams::default()).await?.items.is_empty());
    let nodes: Api<Node> = Api::all(plane.with_token("barley").await?);
    let refused = nodes.list(&ListParams::default()).await;
    assert!(
        matches!(&refused, Err(Error::Api(s)) if s.code == 401),
        "{refused:?}"
    );
    Ok(())
}

#[tokio::test]
async fn kubectl_works_with_the_kubeconfig() -> anyhow::Result<()> {
    let Some(plane) = ControlPlane::shared().await else {
        return Ok(());
    };
    let Some(kubectl) = present_or_skip(tools::kubectl()) else {
        return Ok(());
    };
    let output = plane
        .command(&kubectl)
        .args(["get", "namespaces", "-o", "name"])
        .output()?;
    let text = String::from_utf8(output.stdout).context("UTF-8")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.lines().any(|line| line == "namespace/kube-system"),
        "{text}"
    );
    Ok(())
}
