//! CreateFleet and launch templates.

use super::client::{Rig, ids};
use crate::aws::{CapacityType, Fault, FaultKind, PoolPattern};

fn pool(instance_type: &str, letter: char) -> PoolPattern {
    PoolPattern {
        instance_type: Some(instance_type.to_owned()),
        zone: Some(format!("us-east-1{letter}")),
        capacity_type: None,
    }
}

#[tokio::test]
async fn a_fleet_launches_from_the_cheapest_pool() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let form = rig.fleet(
        3,
        "on-demand",
        &[("m5.xlarge", 'a'), ("m5.large", 'b'), ("m5.2xlarge", 'a')],
    );
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(ids(&answer).len(), 3);
    assert!(answer.all("errorCode").is_empty());
    let instances = rig.world.instances();
    assert!(
        instances
            .iter()
            .all(|instance| instance.facts.name == "m5.large")
    );
    assert!(
        instances
            .iter()
            .all(|instance| &*instance.zone.name == "us-east-1b")
    );
    let tags = &instances[0].tags;
    assert_eq!(tags["pool"], "p");
    assert_eq!(
        tags["aws:ec2:fleet-id"],
        answer.first("fleetId").expect("an id")
    );
    assert_eq!(tags["aws:ec2launchtemplate:version"], "1");
    assert!(tags["aws:ec2launchtemplate:id"].starts_with("lt-"));
    assert_eq!(instances[0].user_data(), Some("QUJD"));
}

#[tokio::test]
async fn a_dry_pool_is_reported_and_the_next_one_serves_the_rest() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.world.set_capacity(pool("m5.large", 'a'), Some(2));
    let form = rig.fleet(5, "on-demand", &[("m5.large", 'a'), ("m5.xlarge", 'a')]);
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(ids(&answer).len(), 5);
    assert_eq!(answer.all("errorCode"), ["InsufficientInstanceCapacity"]);
    assert_eq!(answer.first("availabilityZone"), Some("us-east-1a"));
    let large = rig
        .world
        .instances()
        .iter()
        .filter(|i| i.facts.name == "m5.large")
        .count();
    assert_eq!(large, 2);
}

#[tokio::test]
async fn a_fleet_without_any_capacity_is_a_success_without_instances() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.world.set_capacity(PoolPattern::default(), Some(0));
    let form = rig.fleet(1, "spot", &[("m5.large", 'a'), ("m5.xlarge", 'b')]);
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert!(ids(&answer).is_empty());
    assert_eq!(answer.all("errorCode").len(), 2);
    assert!(answer.body.contains("<lifecycle>spot</lifecycle>"));
}

#[tokio::test]
async fn partial_fulfilment_gives_what_there_is() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.world.set_capacity(pool("m5.large", 'a'), Some(2));
    let form = rig.fleet(5, "on-demand", &[("m5.large", 'a')]);
    assert_eq!(ids(&rig.ec2("CreateFleet", &form).await.ok()).len(), 2);
    // All or nothing, if asked for.
    rig.world.set_capacity(pool("m5.large", 'a'), Some(2));
    let form = format!("{form}&OnDemandOptions.MinTargetCapacity=5");
    assert!(ids(&rig.ec2("CreateFleet", &form).await.ok()).is_empty());
}

#[tokio::test]
async fn capacity_comes_back_when_instances_end() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.world.set_capacity(pool("m5.large", 'a'), Some(1));
    let first = rig.launch(1).await;
    assert!(rig.launch(1).await.is_empty());
    rig.ec2("TerminateInstances", &format!("InstanceId.1={}", first[0]))
        .await
        .ok();
    rig.pass(60);
    assert_eq!(rig.launch(1).await.len(), 1);
}

#[tokio::test]
async fn a_subnet_without_addresses_is_named_as_such() {
    let rig = Rig::with(|config| config.subnet_prefix = 28).await;
    rig.template("tpl").await;
    let form = rig.fleet(20, "on-demand", &[("m5.large", 'a')]);
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(ids(&answer).len(), 11);
    assert_eq!(
        answer.all("errorCode"),
        ["InsufficientFreeAddressesInSubnet"]
    );
    let subnets = rig
        .ec2(
            "DescribeSubnets",
            &format!("SubnetId.1={}", rig.subnet('a')),
        )
        .await
        .ok();
    assert_eq!(subnets.first("availableIpAddressCount"), Some("0"));
}

#[tokio::test]
async fn quotas_end_a_launch_with_their_own_codes() {
    let rig = Rig::with(|config| {
        config.quotas.on_demand_vcpus = Some(4);
        config.quotas.spot_vcpus = Some(2);
    })
    .await;
    rig.template("tpl").await;
    for (capacity_type, launched, code) in [
        ("on-demand", 2, "VcpuLimitExceeded"),
        ("spot", 1, "MaxSpotInstanceCountExceeded"),
    ] {
        let form = rig.fleet(3, capacity_type, &[("m5.large", 'a')]);
        let answer = rig.ec2("CreateFleet", &form).await.ok();
        assert_eq!(ids(&answer).len(), launched);
        assert_eq!(answer.all("errorCode"), [code]);
    }
}

#[tokio::test]
async fn priorities_decide_for_the_prioritized_strategy() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    // The rig gives the last pool the lowest number.
    let form = rig.fleet(1, "on-demand", &[("m5.large", 'a'), ("m5.4xlarge", 'a')]);
    let form = format!("{form}&OnDemandOptions.AllocationStrategy=prioritized");
    rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(rig.world.instances()[0].facts.name, "m5.4xlarge");
}

#[tokio::test]
async fn the_same_token_gives_the_same_instances() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let form = format!(
        "{}&ClientToken=x",
        rig.fleet(2, "spot", &[("m5.large", 'a')])
    );
    let first = rig.ec2("CreateFleet", &form).await.ok();
    let second = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(ids(&first), ids(&second));
    assert_eq!(rig.world.instances().len(), 2);
    let other = format!(
        "{}&ClientToken=x",
        rig.fleet(3, "spot", &[("m5.large", 'a')])
    );
    assert_eq!(
        rig.ec2("CreateFleet", &other).await.code(),
        "IdempotentParameterMismatch"
    );
}

#[tokio::test]
async fn a_lost_answer_is_found_again_by_its_token() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let fault = |kind| Fault {
        action: "CreateFleet".to_owned(),
        kind,
        times: 1,
    };
    let form = format!(
        "{}&ClientToken=x",
        rig.fleet(1, "on-demand", &[("m5.large", 'a')])
    );
    assert!(rig.world.fail_next(fault(FaultKind::Reset)));
    assert!(rig.try_ec2("CreateFleet", &form).await.is_none());
    assert!(rig.world.instances().is_empty());
    assert!(rig.world.fail_next(fault(FaultKind::LoseAnswer)));
    assert!(rig.try_ec2("CreateFleet", &form).await.is_none());
    let instances = rig.world.instances();
    assert_eq!(instances.len(), 1);
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(ids(&answer), [instances[0].id.to_string()]);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_as_a_whole() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let good = rig.fleet(1, "on-demand", &[("m5.large", 'a')]);
    let twice = rig.fleet(1, "on-demand", &[("m5.large", 'a'), ("m5.large", 'a')]);
    let many: String = (1..=301)
        .map(|n| format!("&LaunchTemplateConfigs.1.Overrides.{n}.InstanceType=x{n}.large"))
        .collect();
    for (form, code) in [
        (
            good.replace("Name=tpl", "Name=u"),
            "InvalidLaunchTemplateName.NotFoundException",
        ),
        (
            good.replace(&rig.subnet('a'), "subnet-0"),
            "InvalidSubnetID.NotFound",
        ),
        (
            good.replace("Type=instant", "Type=maintain"),
            "InvalidParameterValue",
        ),
        (
            good.replace("Capacity=1", "Capacity=0"),
            "InvalidParameterValue",
        ),
        (twice, "InvalidFleetConfig"),
        (format!("{good}{many}"), "InvalidParameterValue"),
        (format!("{good}&DryRun=true"), "DryRunOperation"),
    ] {
        assert_eq!(rig.ec2("CreateFleet", &form).await.code(), code);
    }
    assert!(rig.world.instances().is_empty());
}

#[tokio::test]
async fn pools_that_cannot_work_fail_one_by_one() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let form = rig.fleet(
        2,
        "on-demand",
        &[("zz.large", 'a'), ("m6g.large", 'a'), ("m5.large", 'a')],
    );
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(ids(&answer).len(), 2);
    assert_eq!(answer.all("errorCode"), ["InvalidParameterValue"; 2]);
    assert!(answer.body.contains("does not match the architecture"));
    // p4d is not offered in every zone.
    let zones = rig
        .ec2(
            "DescribeInstanceTypeOfferings",
            "LocationType=availability-zone&Filter.1.Name=instance-type&Filter.1.Value.1=p4d.24xlarge",
        )
        .await
        .ok();
    let missing = ('a'..='f').find(|z| {
        !zones
            .all("location")
            .contains(&format!("us-east-1{z}").as_str())
    });
    let form = rig.fleet(
        1,
        "on-demand",
        &[("p4d.24xlarge", missing.expect("a zone without"))],
    );
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(answer.all("errorCode"), ["InvalidFleetConfiguration"]);
}

#[tokio::test]
async fn scripted_pool_errors_appear_in_the_answer() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let pattern = PoolPattern {
        capacity_type: Some(CapacityType::Spot),
        ..PoolPattern::default()
    };
    rig.world.fail_pools(
        pattern,
        "UnfulfillableCapacity",
        "Unable to fulfill capacity",
        Some(1),
    );
    let form = rig.fleet(1, "spot", &[("m5.large", 'a')]);
    let answer = rig.ec2("CreateFleet", &form).await.ok();
    assert_eq!(answer.all("errorCode"), ["UnfulfillableCapacity"]);
    assert_eq!(ids(&rig.ec2("CreateFleet", &form).await.ok()).len(), 1);
}

#[tokio::test]
async fn launch_templates_have_names_tags_and_an_end() {
    let rig = Rig::new().await;
    rig.template("a/b").await;
    let again = rig.ec2(
        "CreateLaunchTemplate",
        "LaunchTemplateName=a/b&LaunchTemplateData.KeyName=k",
    );
    assert_eq!(
        again.await.code(),
        "InvalidLaunchTemplateName.AlreadyExistsException"
    );
    let found = "Filter.1.Name=tag:team&Filter.1.Value.1=a";
    let answer = rig.ec2("DescribeLaunchTemplates", found).await.ok();
    assert_eq!(answer.all("launchTemplateName"), ["a/b"]);
    rig.ec2("DeleteLaunchTemplate", "LaunchTemplateName=a/b")
        .await
        .ok();
    for action in ["DeleteLaunchTemplate", "DescribeLaunchTemplates"] {
        let parameter = if action.starts_with("Delete") {
            ""
        } else {
            ".1"
        };
        let answer = rig
            .ec2(action, &format!("LaunchTemplateName{parameter}=a/b"))
            .await;
        assert_eq!(answer.code(), "InvalidLaunchTemplateName.NotFoundException");
    }
}

#[tokio::test]
async fn reads_lag_behind_writes_when_asked_to() {
    let rig = Rig::with(|config| config.timing.read_lag = std::time::Duration::from_secs(2)).await;
    rig.template("tpl").await;
    let form = rig.fleet(1, "on-demand", &[("m5.large", 'a')]);
    let early = rig.ec2("CreateFleet", &form).await;
    assert_eq!(early.code(), "InvalidLaunchTemplateName.NotFoundException");
    rig.pass(2);
    let id = ids(&rig.ec2("CreateFleet", &form).await.ok()).remove(0);
    let describe = format!("InstanceId.1={id}");
    assert_eq!(
        rig.ec2("DescribeInstances", &describe).await.code(),
        "InvalidInstanceID.NotFound"
    );
    rig.pass(2);
    assert_eq!(rig.ec2("DescribeInstances", &describe).await.code(), "");
}
