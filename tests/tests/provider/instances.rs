//! Instances that exist: found in pages, tagged, ended together.

use std::collections::BTreeSet;

use futures::future::join_all;
use millwright_cloud::{CloudErrorKind, InstanceState, Provider as _};
use millwright_model::ProviderId;
use millwright_sim::aws::{ManualClock, Timing};

use crate::rig::{Rig, group, ids, kinds, m5};

#[tokio::test]
async fn five_thousand_instances_are_listed_in_pages() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let groups = (0..5).map(|n| group(&format!("g{n}"), &class, 1_000, &m5()));
    let answers = join_all(groups.map(|group| rig.provider.launch(group))).await;
    assert!(answers.iter().all(|answers| kinds(answers).is_empty()));
    let launched: BTreeSet<String> = answers.iter().flat_map(ids).collect();
    assert_eq!(launched.len(), 5_000);
    let before = rig.calls("DescribeInstances");
    let listed = rig.provider.list().await.expect("a list");
    let listed: BTreeSet<String> = listed.iter().map(|i| i.provider_id.to_string()).collect();
    assert!(listed == launched, "{} of 5,000 listed", listed.len());
    assert!(rig.calls("DescribeInstances") - before >= 5);
}

#[tokio::test]
async fn instances_of_other_clusters_are_not_ours() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    rig.provider.launch(group("g", &class, 3, &m5())).await;
    let listed = rig.provider.list().await.expect("a list");
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|i| {
        i.node_pool
            .as_ref()
            .is_some_and(|pool| pool.as_str() == "pool")
    }));
}

#[tokio::test]
async fn an_instance_goes_through_its_states_and_ends_as_not_found() {
    let clock = ManualClock::default();
    let rig = Rig::with(|config| {
        config.clock = std::sync::Arc::new(clock.clone());
        config.timing = Timing::default();
    })
    .await;
    let class = rig.class().await;
    let answers = rig.provider.launch(group("g", &class, 1, &m5())).await;
    let id = answers[0].as_ref().expect("launched").provider_id.clone();
    let state = async || rig.provider.get(&id).await.map(|instance| instance.state);
    assert_eq!(state().await.expect("exists"), InstanceState::Pending);
    clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(state().await.expect("exists"), InstanceState::Running);
    rig.provider.terminate(&id).await.expect("running");
    assert_eq!(state().await.expect("exists"), InstanceState::ShuttingDown);
    let calls = rig.calls("TerminateInstances");
    rig.provider.terminate(&id).await.expect("on its way");
    assert_eq!(rig.calls("TerminateInstances"), calls, "it is told once");
    clock.advance(std::time::Duration::from_secs(20));
    let gone = state().await.expect_err("terminated");
    assert_eq!(gone.kind, CloudErrorKind::NodeClaimNotFound);
    let gone = rig.provider.terminate(&id).await.expect_err("terminated");
    assert_eq!(gone.kind, CloudErrorKind::NodeClaimNotFound);
    assert!(rig.provider.list().await.expect("a list").is_empty());
}

#[tokio::test]
async fn terminations_at_the_same_time_share_calls_and_strangers_do_no_harm() {
    let rig = Rig::with(|_| {}).await;
    let class = rig.class().await;
    let answers = rig.provider.launch(group("g", &class, 100, &m5())).await;
    let mut wanted: Vec<ProviderId> = answers
        .iter()
        .flatten()
        .map(|instance| instance.provider_id.clone())
        .collect();
    wanted.push("aws:///us-east-1a/i-0000000000000dead".into());
    let results = join_all(wanted.iter().map(|id| rig.provider.terminate(id))).await;
    let (ended, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(ended.len(), 100);
    let kind = refused[0].as_ref().err().map(|error| error.kind);
    assert_eq!(
        (refused.len(), kind),
        (1, Some(CloudErrorKind::NodeClaimNotFound))
    );
    assert!(
        rig.calls("TerminateInstances") <= 3,
        "{}",
        rig.calls("TerminateInstances")
    );
}

#[tokio::test]
async fn looking_at_many_instances_at_the_same_time_shares_calls() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let answers = rig.provider.launch(group("g", &class, 200, &m5())).await;
    let before = rig.calls("DescribeInstances");
    let wanted: Vec<ProviderId> = answers
        .iter()
        .flatten()
        .map(|instance| instance.provider_id.clone())
        .collect();
    let found = join_all(wanted.iter().map(|id| rig.provider.get(id))).await;
    for (id, found) in wanted.iter().zip(found) {
        assert_eq!(found.expect("exists").provider_id, *id);
    }
    let calls = rig.calls("DescribeInstances") - before;
    assert!(calls <= 5, "{calls} calls for 200 instances");
}

#[tokio::test]
async fn a_name_of_the_user_s_stays() {
    let rig = Rig::new().await;
    let named = crate::rig::class(|spec| {
        spec.tags.insert("Name".to_owned(), "mine".to_owned());
    });
    let class = std::sync::Arc::new(rig.resolve(named).await);
    let answers = rig.provider.launch(group("g", &class, 1, &m5())).await;
    let id = answers[0].as_ref().expect("launched").provider_id.clone();
    rig.provider
        .tag(&id, &"claim-1".into())
        .await
        .expect("exists");
    let tags = rig.world.instances().remove(0).tags.clone();
    let value = |key: &str| tags.get(key).map(|value| value.to_string());
    assert_eq!(value("Name").as_deref(), Some("mine"));
    assert_eq!(value("karpenter.sh/nodeclaim").as_deref(), Some("claim-1"));
}

#[tokio::test]
async fn a_tagged_instance_names_its_claim() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let answers = rig.provider.launch(group("g", &class, 1, &m5())).await;
    let id = answers[0].as_ref().expect("launched").provider_id.clone();
    rig.provider
        .tag(&id, &"claim-1".into())
        .await
        .expect("exists");
    let calls = rig.calls("CreateTags");
    rig.provider
        .tag(&id, &"claim-1".into())
        .await
        .expect("repeating it is harmless");
    assert_eq!(rig.calls("CreateTags"), calls, "nothing was missing");
    let found = rig.provider.get(&id).await.expect("exists");
    assert_eq!(found.node_claim, Some("claim-1".into()));
    let stranger = "aws:///us-east-1a/i-0000000000000dead".into();
    let error = rig
        .provider
        .tag(&stranger, &"claim-1".into())
        .await
        .expect_err("unknown");
    assert_eq!(error.kind, CloudErrorKind::NodeClaimNotFound);
}
