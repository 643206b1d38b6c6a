//! What must hold when calls are throttled, answers are lost and leaders change: no instance is
//! launched twice, and what can be had is had.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use millwright_cloud::{CloudErrorKind, Provider as _};
use millwright_sim::aws::{Fault, FaultKind, Timing};

use crate::rig::{Rig, class, group, ids, kinds, m5};

fn next(rig: &Rig, action: &str, kind: FaultKind, times: u32) {
    let fault = Fault {
        action: action.to_owned(),
        kind,
        times,
    };
    assert!(rig.world.fail_next(fault), "room for a fault");
}

#[tokio::test]
async fn a_lost_answer_launches_nothing_twice() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    next(&rig, "CreateFleet", FaultKind::LoseAnswer, 2);
    let answers = rig.provider.launch(group("g", &class, 7, &m5())).await;
    assert_eq!(kinds(&answers), []);
    assert_eq!(rig.world.instances().len(), 7);
    assert!(rig.fleets() >= 3, "it was asked again");
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_effect_is_tried_again() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    next(&rig, "CreateFleet", FaultKind::Reset, 2);
    let internal = FaultKind::Error {
        code: "InternalError".to_owned(),
        message: "an internal error has occurred".to_owned(),
        status: 500,
    };
    next(&rig, "CreateFleet", internal, 1);
    let answers = rig.provider.launch(group("g", &class, 3, &m5())).await;
    assert_eq!(kinds(&answers), []);
    assert_eq!(rig.world.instances().len(), 3);
}

#[tokio::test]
async fn a_third_of_all_calls_throttled_delays_but_loses_and_doubles_nothing() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    for action in [
        "CreateFleet",
        "CreateLaunchTemplate",
        "DescribeInstances",
        "TerminateInstances",
    ] {
        rig.world.throttle(action, 300, 7);
    }
    let groups = (0..10).map(|n| group(&format!("g{n}"), &class, 5, &m5()));
    let answers = join_all(groups.map(|group| rig.provider.launch(group))).await;
    for answers in &answers {
        assert_eq!(kinds(answers), []);
    }
    let launched: BTreeSet<String> = answers.iter().flat_map(ids).collect();
    assert_eq!((launched.len(), rig.world.instances().len()), (50, 50));
    let throttled = rig
        .world
        .calls()
        .values()
        .map(|count| count.throttled)
        .sum::<u64>();
    assert!(throttled > 0, "the test must have thrown something");
}

#[tokio::test]
async fn two_leaders_that_launch_the_same_group_get_the_same_instances() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let other = rig.another_provider().await;
    let (a, b) = tokio::join!(
        rig.provider.launch(group("g", &class, 6, &m5())),
        other.launch(group("g", &class, 6, &m5())),
    );
    assert_eq!(ids(&a), ids(&b));
    assert_eq!((ids(&a).len(), rig.world.instances().len()), (6, 6));
}

#[tokio::test]
async fn the_next_leader_adopts_what_the_last_one_launched_and_nobody_wrote_down() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let first = rig.provider.launch(group("g", &class, 4, &m5())).await;
    let next = rig.another_provider().await;
    let calls = rig.fleets();
    let second = next.launch(group("g", &class, 4, &m5())).await;
    assert_eq!(ids(&first), ids(&second));
    assert_eq!(rig.fleets(), calls, "it looked before it launched");
    let label = second[0]
        .as_ref()
        .expect("adopted")
        .labels
        .get("karpenter.k8s.aws/instance-family");
    assert_eq!(
        label.map(|family| family.to_string()).as_deref(),
        Some("m5")
    );
}

#[tokio::test]
async fn instances_that_claims_have_written_down_are_not_handed_out_again() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    let first = rig.provider.launch(group("g", &class, 4, &m5())).await;
    let taken: Vec<_> = first
        .iter()
        .flatten()
        .map(|i| i.provider_id.clone())
        .collect();
    let mut rest = group("g", &class, 4, &m5());
    // The claims of the first two wrote their instances down before the leader died.
    rest.members.drain(..2);
    rest.claimed = taken[..2].iter().cloned().collect();
    let next = rig.another_provider().await;
    let second = next.launch(rest).await;
    assert_eq!(ids(&second), ids(&first)[2..]);
    assert_eq!(rig.world.instances().len(), 4);
}

#[tokio::test]
async fn a_token_that_was_used_with_other_parameters_leads_to_the_instances_of_its_first_use() {
    // Reads lag behind the launch, so the next leader does not see the instances at first.
    let rig = Rig::with(|config| {
        config.timing = Timing {
            read_lag: Duration::from_millis(1_500),
            ..Timing::instant()
        };
    })
    .await;
    let class_of_all_zones = rig.class().await;
    let first = rig
        .provider
        .launch(group("g", &class_of_all_zones, 3, &m5()))
        .await;
    assert_eq!(kinds(&first), []);
    let next = rig.another_provider().await;
    let mut changed = class(|_| {});
    changed.status = class_of_all_zones.status.clone();
    changed
        .status
        .as_mut()
        .expect("resolved")
        .subnets
        .truncate(2);
    let second = next.launch(group("g", &changed.into(), 3, &m5())).await;
    assert_eq!(kinds(&second), []);
    assert_eq!(ids(&first), ids(&second));
    assert_eq!(rig.world.instances().len(), 3);
}

#[tokio::test]
async fn launch_templates_that_were_deleted_behind_our_back_are_made_again() {
    let rig = Rig::new().await;
    let ready = rig.class().await;
    let profile = ready
        .status
        .as_ref()
        .expect("resolved")
        .instance_profile
        .clone();
    // A class with a profile of its own: finalising it touches launch templates only.
    let class = std::sync::Arc::new(
        rig.resolve(class(|spec| {
            spec.role = None;
            spec.instance_profile = Some(profile);
        }))
        .await,
    );
    assert_eq!(
        kinds(&rig.provider.launch(group("a", &class, 1, &m5())).await),
        []
    );
    let stranger = rig.another_provider().await;
    stranger.finalize_node_class(&class).await.expect("deleted");
    assert!(rig.world.launch_templates().is_empty());
    assert_eq!(
        kinds(&rig.provider.launch(group("b", &class, 2, &m5())).await),
        []
    );
    assert_eq!(rig.world.launch_templates().len(), 1);
}

#[tokio::test]
async fn a_launch_that_is_not_allowed_says_so_and_is_not_repeated() {
    let rig = Rig::new().await;
    let class = rig.class().await;
    rig.world.deny("CreateFleet", true);
    let answers = rig.provider.launch(group("g", &class, 2, &m5())).await;
    assert_eq!(kinds(&answers), [CloudErrorKind::Unauthorized; 2]);
    assert_eq!(rig.fleets(), 1);
}

#[tokio::test]
async fn a_class_is_resolved_through_throttling_or_reports_the_hiccup() {
    let rig = Rig::new().await;
    for action in [
        "DescribeSubnets",
        "DescribeSecurityGroups",
        "DescribeImages",
        "GetParameter",
    ] {
        rig.world.throttle(action, 300, 3);
    }
    let mut resolved = false;
    // A hiccup is an answer; it must never be mistaken for "not found".
    for _ in 0..10 {
        match rig.provider.resolve_node_class(&class(|_| {})).await {
            Ok(resolution) => {
                assert_eq!(resolution.status.subnets.len(), 6);
                assert_eq!(resolution.status.amis.len(), 5);
                resolved = true;
            }
            Err(error) => assert!(
                matches!(
                    error.kind,
                    CloudErrorKind::Throttled | CloudErrorKind::Transient
                ),
                "{error}"
            ),
        }
    }
    assert!(resolved);
}
