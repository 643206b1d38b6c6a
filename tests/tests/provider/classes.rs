//! Node classes: what they resolve to, what their conditions say, what is removed with them.

use std::collections::BTreeMap;

use millwright_api::{
    Ec2NodeClass,
    conditions::{
        AMIS_READY, Conditioned as _, INSTANCE_PROFILE_READY, READY, SECURITY_GROUPS_READY,
        SUBNETS_READY, VALIDATION_SUCCEEDED,
    },
    ec2_node_class::{Kubelet, SubnetSelectorTerm},
};
use millwright_cloud::{CloudErrorKind, Provider as _};
use serde_json::json;

use crate::rig::{Rig, alias, class, group, m5};

/// Status and reason of a condition.
fn verdict<'a>(class: &'a Ec2NodeClass, kind: &str) -> (&'a str, &'a str) {
    let condition = class
        .condition(kind)
        .unwrap_or_else(|| panic!("{kind} is set"));
    (&condition.status, &condition.reason)
}

#[tokio::test]
async fn a_sound_class_resolves_to_everything_that_a_launch_needs() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let status = class.status.as_ref().expect("resolved");
    assert_eq!(status.subnets.len(), 6);
    assert!(
        status
            .subnets
            .iter()
            .all(|subnet| subnet.zone_id.starts_with("use1-az"))
    );
    assert!(!status.security_groups.is_empty());
    assert!(status.security_groups.is_sorted_by_key(|group| &group.id));
    // Standard and nvidia for both architectures, neuron for one.
    assert_eq!(status.amis.len(), 5);
    assert_eq!(
        rig.world.instance_profiles(),
        std::slice::from_ref(&status.instance_profile)
    );
}

#[tokio::test]
async fn resolving_again_costs_no_further_writes_and_gives_the_same() {
    let rig = Rig::new().await;
    let first = rig.class().await;
    let again = rig.resolve(class(|_| {})).await;
    assert_eq!(first.status, again.status);
    assert_eq!(rig.world.instance_profiles().len(), 1);
    let other = crate::rig::resolve(&rig.another_provider().await, class(|_| {})).await;
    assert_eq!(
        first.status, other.status,
        "the next leader comes to the same result"
    );
    assert_eq!(rig.world.instance_profiles().len(), 1);
}

#[tokio::test]
async fn aliases_find_the_images_of_their_family() {
    for (version, name, images) in [
        ("1.34", "bottlerocket@latest", 5),
        ("1.32", "al2@latest", 4),
        ("1.34", "al2023@latest", 5),
    ] {
        let rig = Rig::with(|config| version.clone_into(&mut config.cluster.version)).await;
        let class = rig
            .resolve(class(|spec| spec.ami_selector_terms = vec![alias(name)]))
            .await;
        assert_eq!(verdict(&class, AMIS_READY).0, "True", "{name}");
        let status = class.status.as_ref().expect("resolved");
        assert_eq!(status.amis.len(), images, "{name}: {:?}", status.amis);
    }
}

#[tokio::test]
async fn an_alias_that_ended_says_so() {
    let rig = Rig::new().await;
    let class = rig
        .resolve(class(|spec| {
            spec.ami_selector_terms = vec![alias("al2@latest")];
        }))
        .await;
    assert_eq!(verdict(&class, AMIS_READY), ("False", "UnsupportedAlias"));
    assert_eq!(verdict(&class, READY).0, "False");
}

#[tokio::test]
async fn what_is_not_found_has_a_condition_and_the_others_still_resolve() {
    let rig = Rig::new().await;
    let nothing = BTreeMap::from([("no".to_owned(), "such tag".to_owned())]);
    let class = rig
        .resolve(class(|spec| {
            spec.subnet_selector_terms = vec![SubnetSelectorTerm {
                tags: nothing.clone(),
                ..Default::default()
            }];
            spec.security_group_selector_terms[0].tags = nothing;
            spec.ami_selector_terms[0] = millwright_api::ec2_node_class::AmiSelectorTerm {
                id: "ami-0000000000000dead".to_owned(),
                ..Default::default()
            };
        }))
        .await;
    assert_eq!(verdict(&class, SUBNETS_READY), ("False", "SubnetsNotFound"));
    assert_eq!(
        verdict(&class, SECURITY_GROUPS_READY),
        ("False", "SecurityGroupsNotFound")
    );
    assert_eq!(verdict(&class, AMIS_READY), ("False", "AMINotFound"));
    assert_eq!(verdict(&class, INSTANCE_PROFILE_READY).0, "True");
    assert_eq!(
        verdict(&class, VALIDATION_SUCCEEDED),
        ("False", "DependenciesNotReady")
    );
    assert_eq!(verdict(&class, READY).0, "False");
    let answers = rig
        .provider
        .launch(group("g", &class.into(), 1, &m5()))
        .await;
    let error = answers[0].as_ref().expect_err("no subnet");
    assert_eq!(error.kind, CloudErrorKind::NodeClassNotReady);
}

#[tokio::test]
async fn a_class_comes_round_once_its_subnet_exists() {
    let rig = Rig::new().await;
    let tags = BTreeMap::from([("mine".to_owned(), "yes".to_owned())]);
    let wanted = class(|spec| spec.subnet_selector_terms[0].tags = tags);
    let before = rig.resolve(wanted.clone()).await;
    assert_eq!(verdict(&before, SUBNETS_READY).0, "False");
    let tags = [("mine", "yes")]
        .into_iter()
        .map(|(k, v)| (k.into(), v.into()))
        .collect();
    rig.world
        .add_subnet("us-east-1b", None, tags)
        .expect("the zone exists");
    let after = rig.resolve(wanted).await;
    assert!(after.is_ready_now(), "{:?}", after.conditions());
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_a_launch() {
    let rig = Rig::new().await;
    let kubelet = |value: serde_json::Value| match value {
        serde_json::Value::Object(map) => Some(Kubelet(map)),
        _ => None,
    };
    for (reason, broken) in [
        (
            "InvalidKubeletConfiguration",
            class(|spec| spec.kubelet = kubelet(json!({"maxPodz": 3}))),
        ),
        (
            "UnsupportedKubeletConfiguration",
            class(|spec| {
                spec.ami_selector_terms = vec![alias("bottlerocket@latest")];
                spec.kubelet = kubelet(json!({"podsPerCore": 3}));
            }),
        ),
        (
            "TagValidationFailed",
            class(|spec| {
                spec.tags
                    .insert("karpenter.sh/nodepool".to_owned(), "x".to_owned());
            }),
        ),
    ] {
        let class = rig.resolve(broken).await;
        assert_eq!(verdict(&class, VALIDATION_SUCCEEDED), ("False", reason));
    }
}

#[tokio::test]
async fn each_missing_permission_is_found_before_a_launch_and_reported() {
    for action in ["CreateLaunchTemplate", "CreateFleet", "RunInstances"] {
        let rig = Rig::new().await;
        rig.world.deny(action, true);
        let denied = rig.resolve(class(|_| {})).await;
        let reason = format!("{action}AuthCheckFailed");
        assert_eq!(
            verdict(&denied, VALIDATION_SUCCEEDED),
            ("False", reason.as_str())
        );
        let message = &denied.condition(VALIDATION_SUCCEEDED).expect("set").message;
        let start = format!("Controller isn't authorized to call ec2:{action}: ");
        assert!(message.starts_with(&start), "{message}");
        // The verdict is believed for a while; any annotation makes it be asked again.
        rig.world.deny(action, false);
        let still = rig.resolve(class(|_| {})).await;
        assert_eq!(verdict(&still, VALIDATION_SUCCEEDED).0, "False");
        let mut touched = class(|_| {});
        touched.metadata.annotations =
            Some(BTreeMap::from([("check".to_owned(), "again".to_owned())]));
        let allowed = rig.resolve(touched).await;
        assert_eq!(verdict(&allowed, VALIDATION_SUCCEEDED).0, "True");
        assert_eq!(rig.world.launch_templates().len(), 0, "nothing was made");
    }
}

#[tokio::test]
async fn a_new_role_gets_a_new_profile_and_finalising_removes_all_of_the_class() {
    let rig = Rig::new().await;
    rig.world.add_role("second");
    let first = rig.class().await;
    rig.provider.launch(group("g", &first, 1, &m5())).await;
    let second = rig
        .resolve(class(|spec| spec.role = Some("path/second".to_owned())))
        .await;
    let profile = |class: &Ec2NodeClass| {
        class
            .status
            .as_ref()
            .map(|status| status.instance_profile.clone())
            .expect("resolved")
    };
    assert_ne!(profile(&first), profile(&second));
    assert_eq!(
        rig.world.instance_profiles().len(),
        2,
        "running claims need the first one"
    );
    assert_eq!(rig.world.launch_templates().len(), 1);
    rig.provider
        .finalize_node_class(&second)
        .await
        .expect("removed");
    assert!(rig.world.instance_profiles().is_empty());
    assert!(rig.world.launch_templates().is_empty());
    rig.provider
        .finalize_node_class(&second)
        .await
        .expect("repeating it is harmless");
}

#[tokio::test]
async fn a_role_that_does_not_exist_is_named() {
    let rig = Rig::new().await;
    let class = rig
        .resolve(class(|spec| spec.role = Some("nobody".to_owned())))
        .await;
    let condition = class.condition(INSTANCE_PROFILE_READY).expect("set");
    assert_eq!(condition.status, "False");
    assert!(
        condition.message.contains("nobody"),
        "{}",
        condition.message
    );
}
