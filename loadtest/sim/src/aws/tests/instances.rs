//! Instances, their states, tags and statuses.

use super::client::Rig;
use crate::aws::{Health, InstanceState};

#[tokio::test]
async fn an_instance_passes_through_its_states_on_the_clock() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let (_, mut updates) = rig.world.watch_instances();
    let id = rig.launch(1).await.remove(0);
    let state = async || {
        let answer = rig
            .ec2("DescribeInstances", &format!("InstanceId.1={id}"))
            .await;
        answer
            .first("name")
            .unwrap_or_else(|| answer.code())
            .to_owned()
    };
    assert_eq!(state().await, "pending");
    rig.pass(8);
    assert_eq!(state().await, "running");
    let answer = rig
        .ec2("TerminateInstances", &format!("InstanceId.1={id}"))
        .await
        .ok();
    assert_eq!(answer.all("name"), ["shutting-down", "running"]);
    assert_eq!(state().await, "shutting-down");
    rig.pass(15);
    assert_eq!(state().await, "terminated");
    rig.pass(3_600);
    assert_eq!(state().await, "InvalidInstanceID.NotFound");
    let mut seen = Vec::new();
    while let Ok(update) = updates.try_recv() {
        assert_eq!(*update.id, *id);
        seen.push(update.state);
    }
    use InstanceState::{Pending, Running, ShuttingDown, Terminated};
    assert_eq!(seen, [Pending, Running, ShuttingDown, Terminated]);
}

#[tokio::test]
async fn subscribers_hear_of_changes_without_a_request() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let id = rig.launch(1).await.remove(0);
    let (listed, mut updates) = rig.world.watch_instances();
    assert_eq!(listed[0].state, InstanceState::Pending);
    rig.pass(8);
    let bound = std::time::Duration::from_secs(20);
    let update = tokio::time::timeout(bound, updates.recv())
        .await
        .expect("an update within the bound");
    let update = update.expect("the channel is open");
    assert_eq!(
        (&*update.id, update.state),
        (id.as_str(), InstanceState::Running)
    );
}

#[tokio::test]
async fn descriptions_have_what_the_template_said() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.launch(1).await;
    let answer = rig.ec2("DescribeInstances", "").await.ok();
    assert_eq!(answer.first("httpTokens"), Some("required"));
    assert_eq!(answer.first("deviceName"), Some("/dev/xvda"));
    assert_eq!(
        answer.first("groupId"),
        Some(rig.world.security_groups()[0].id.as_str())
    );
    assert_eq!(answer.first("availabilityZoneId"), Some("use1-az1"));
    let name = answer.first("privateDnsName").expect("a name");
    assert!(
        name.starts_with("ip-10-0-") && name.ends_with(".ec2.internal"),
        "{name}"
    );
}

#[tokio::test]
async fn pages_cover_all_instances_once() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let mut launched = rig.launch(12).await;
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let parameters = format!("MaxResults=5{token}");
        let answer = rig.ec2("DescribeInstances", &parameters).await.ok();
        let page: Vec<String> = answer
            .all("instanceId")
            .into_iter()
            .map(str::to_owned)
            .collect();
        assert!(page.len() <= 5);
        seen.extend(page);
        match answer.first("nextToken") {
            Some(next) => token = format!("&NextToken={next}"),
            None => break,
        }
    }
    launched.sort();
    seen.sort();
    assert_eq!(seen, launched);
    let invented = rig
        .ec2("DescribeInstances", "MaxResults=5&NextToken=abc")
        .await;
    assert_eq!(invented.code(), "InvalidParameterValue");
    let both = rig
        .ec2("DescribeInstances", "MaxResults=5&InstanceId.1=i-1")
        .await;
    assert_eq!(both.code(), "InvalidParameterCombination");
}

#[tokio::test]
async fn filters_choose_by_tag_state_and_lifecycle() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.launch(2).await;
    rig.pass(10);
    rig.ec2("CreateFleet", &rig.fleet(1, "spot", &[("m5.large", 'b')]))
        .await
        .ok();
    let count = async |filter: &str| {
        rig.ec2("DescribeInstances", filter)
            .await
            .ok()
            .all("instanceId")
            .len()
    };
    assert_eq!(
        count("Filter.1.Name=instance-state-name&Filter.1.Value.1=running").await,
        2
    );
    assert_eq!(
        count("Filter.1.Name=instance-lifecycle&Filter.1.Value.1=spot").await,
        1
    );
    assert_eq!(count("Filter.1.Name=tag:pool&Filter.1.Value.1=p*").await, 3);
    assert_eq!(
        count("Filter.1.Name=tag-key&Filter.1.Value.1=absent").await,
        0
    );
    let unknown = rig
        .ec2(
            "DescribeInstances",
            "Filter.1.Name=nonsense&Filter.1.Value.1=x",
        )
        .await;
    assert_eq!(unknown.code(), "InvalidParameterValue");
}

#[tokio::test]
async fn one_unknown_id_spares_all() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let id = rig.launch(1).await.remove(0);
    let both = format!("InstanceId.1={id}&InstanceId.2=i-0123456789abcdef0");
    assert_eq!(
        rig.ec2("TerminateInstances", &both).await.code(),
        "InvalidInstanceID.NotFound"
    );
    assert_eq!(
        rig.world.instance(&id).map(|i| i.state),
        Some(InstanceState::Pending)
    );
    let tags = "Tag.1.Key=Name&Tag.1.Value=n";
    let answer = rig
        .ec2(
            "CreateTags",
            &format!("ResourceId.1={id}&ResourceId.2=i-0&{tags}"),
        )
        .await;
    assert_eq!(answer.code(), "InvalidInstanceID.NotFound");
    rig.ec2("CreateTags", &format!("ResourceId.1={id}&{tags}"))
        .await
        .ok();
    assert_eq!(rig.world.instance(&id).expect("launched").tags["Name"], "n");
}

#[tokio::test]
async fn impaired_instances_are_found_by_their_status() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let ids = rig.launch(3).await;
    rig.pass(10);
    let now = rig.world.now_ms();
    let impaired = Health {
        system_impaired_ms: Some(now),
        ..Health::default()
    };
    assert!(rig.world.set_health(&ids[1], impaired));
    let event = (
        "instance-retirement".to_owned(),
        "gone soon".to_owned(),
        now,
    );
    assert!(rig.world.set_health(
        &ids[2],
        Health {
            events: vec![event],
            ..Health::default()
        }
    ));
    for (filter, value, found) in [
        ("system-status.status", "impaired", &ids[1]),
        ("event.code", "instance-retirement", &ids[2]),
    ] {
        let filter = format!("Filter.1.Name={filter}&Filter.1.Value.1={value}");
        let answer = rig.ec2("DescribeInstanceStatus", &filter).await.ok();
        assert_eq!(answer.all("instanceId"), [found.as_str()]);
    }
    let ok = "Filter.1.Name=instance-status.status&Filter.1.Value.1=ok";
    assert_eq!(
        rig.ec2("DescribeInstanceStatus", ok)
            .await
            .ok()
            .all("instanceId")
            .len(),
        3
    );
}

#[tokio::test]
async fn run_instances_rehearses_and_launches() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    let base = format!(
        "LaunchTemplate.LaunchTemplateName=tpl&MinCount=1&MaxCount=1&InstanceType=m5.large\
         &NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId={}",
        rig.subnet('a')
    );
    let rehearsal = rig
        .ec2("RunInstances", &format!("{base}&DryRun=true"))
        .await;
    assert_eq!(
        (rehearsal.status, rehearsal.code()),
        (412, "DryRunOperation")
    );
    let profile = format!("{base}&DryRun=true&IamInstanceProfile.Name=none");
    let answer = rig.ec2("RunInstances", &profile).await;
    assert_eq!(answer.code(), "InvalidParameterValue");
    assert!(answer.body.contains("Invalid IAM Instance Profile name"));
    let answer = rig.ec2("RunInstances", &base).await.ok();
    assert_eq!(answer.all("instanceId").len(), 1);
    rig.world
        .set_capacity(crate::aws::PoolPattern::default(), Some(0));
    let answer = rig.ec2("RunInstances", &base).await;
    assert_eq!(
        (answer.status, answer.code()),
        (500, "InsufficientInstanceCapacity")
    );
}
