//! Launches of groups: what is asked for, what comes back, what is learned from it.

use std::collections::BTreeSet;

use millwright_cloud::{CloudErrorKind, InstanceState, Provider as _};
use millwright_model::{CapacityType, labels};
use millwright_sim::aws::PoolPattern;

use crate::rig::{Rig, group, ids, kinds, m5, requirements};

#[tokio::test]
async fn a_group_is_one_call_and_every_member_gets_its_own_instance() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let answers = rig.provider.launch(group("g", &class, 20, &m5())).await;
    assert_eq!(kinds(&answers), []);
    assert_eq!(ids(&answers).into_iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(rig.fleets(), 1);
    assert_eq!(rig.world.launch_templates().len(), 1);
    let instance = answers[0].as_ref().expect("launched");
    assert_eq!(&*instance.instance_type, "m5.large");
    assert_eq!(instance.capacity_type, CapacityType::OnDemand);
    assert!(
        instance
            .provider_id
            .starts_with(&format!("aws:///{}/i-", instance.zone))
    );
    let label = |key: &str| instance.labels.get(key).map(|value| value.to_string());
    assert_eq!(label(labels::INSTANCE_TYPE).as_deref(), Some("m5.large"));
    assert_eq!(label(labels::ZONE), Some(instance.zone.to_string()));
    assert!(label(labels::ZONE_ID).is_some_and(|id| id.starts_with("use1-az")));
    assert_eq!(
        label("karpenter.k8s.aws/instance-family").as_deref(),
        Some("m5")
    );
    assert_eq!(instance.allocatable.get(&"cpu".into()), 1_930);
}

#[tokio::test]
async fn instances_carry_the_tags_that_permissions_and_garbage_collection_depend_on() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    rig.provider.launch(group("g", &class, 1, &m5())).await;
    let instance = rig.world.instances().remove(0);
    for (key, value) in [
        ("kubernetes.io/cluster/demo", "owned"),
        ("karpenter.sh/nodepool", "pool"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("eks:eks-cluster-name", "demo"),
        ("millwright.dev/launch-group", "g"),
    ] {
        let found = instance.tags.get(key).map(|text| text.to_string());
        assert_eq!(found.as_deref(), Some(value), "{key}");
    }
    let listed = rig.provider.list().await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].launch_group.as_deref(), Some("g"));
    assert_eq!(listed[0].node_claim, None);
    assert_eq!(listed[0].state, InstanceState::Running);
}

#[tokio::test]
async fn spot_is_preferred_where_it_is_allowed() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let either = requirements(&[(
        labels::INSTANCE_TYPE,
        &["m5.large", "m5a.large", "m6i.large"],
    )]);
    let answers = rig.provider.launch(group("g", &class, 3, &either)).await;
    assert_eq!(kinds(&answers), []);
    assert!(
        answers
            .iter()
            .flatten()
            .all(|i| i.capacity_type == CapacityType::Spot)
    );
}

#[tokio::test]
async fn a_partly_filled_group_tells_the_others_and_marks_only_what_was_refused() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let a = requirements(&[
        (labels::INSTANCE_TYPE, &["m5.large"]),
        (labels::CAPACITY_TYPE, &["on-demand"]),
        (labels::ZONE, &["us-east-1a"]),
    ]);
    let pattern = PoolPattern {
        zone: Some("us-east-1a".to_owned()),
        ..PoolPattern::default()
    };
    rig.world.set_capacity(pattern, Some(3));
    let before = rig.provider.epoch();
    let answers = rig.provider.launch(group("g", &class, 5, &a)).await;
    assert_eq!(ids(&answers).len(), 3);
    assert_eq!(kinds(&answers), [CloudErrorKind::InsufficientCapacity; 2]);
    assert!(
        rig.provider.epoch() > before,
        "callers must see that offerings have changed"
    );
    let types = rig.provider.instance_types(&class).expect("a ready class");
    let m5 = types
        .iter()
        .find(|t| &*t.name == "m5.large")
        .expect("listed");
    let out: Vec<_> = m5
        .offerings
        .iter()
        .filter(|offering| !offering.available)
        .map(|offering| (&*offering.zone, offering.capacity_type))
        .collect();
    assert_eq!(out, [("us-east-1a", CapacityType::OnDemand)]);
    // The same wish does not run into the same wall, and a wider one goes around it.
    let calls = rig.fleets();
    let again = rig.provider.launch(group("h", &class, 1, &a)).await;
    assert_eq!(kinds(&again), [CloudErrorKind::InsufficientCapacity]);
    assert_eq!(rig.fleets(), calls);
    let wider = rig
        .provider
        .launch(group("i", &class, 2, &crate::rig::m5()))
        .await;
    assert_eq!(ids(&wider).len(), 2);
}

#[tokio::test]
async fn a_list_of_types_is_shared_until_something_changes() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let first = rig.provider.instance_types(&class).expect("a ready class");
    let second = rig.provider.instance_types(&class).expect("a ready class");
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert!(first.len() > 1_000, "{} types", first.len());
    let spot = first
        .iter()
        .flat_map(|t| &t.offerings)
        .filter(|o| o.available && o.capacity_type == CapacityType::Spot);
    assert!(spot.count() > 4_000, "prices were read");
    let calls = rig.calls("DescribeInstanceTypes");
    rig.provider.refresh().await.expect("nothing is due");
    assert_eq!(rig.calls("DescribeInstanceTypes"), calls);
}

#[tokio::test]
async fn more_types_and_zones_than_a_request_may_name_still_launch() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let open = requirements(&[
        (labels::CAPACITY_TYPE, &["on-demand"]),
        (labels::ARCH, &["amd64"]),
    ]);
    let answers = rig.provider.launch(group("g", &class, 2, &open)).await;
    assert_eq!(kinds(&answers), []);
    assert_eq!(rig.fleets(), 1);
}

#[tokio::test]
async fn a_class_that_is_not_ready_launches_nothing() {
    let rig = Rig::new().await;
    let mut class = (*rig.class().await).clone();
    // The spec changed after the status was written.
    class.metadata.generation = Some(2);
    let answers = rig
        .provider
        .launch(group("g", &class.into(), 2, &m5()))
        .await;
    assert_eq!(kinds(&answers), [CloudErrorKind::NodeClassNotReady; 2]);
    assert_eq!(rig.world.instances().len(), 0);
}
