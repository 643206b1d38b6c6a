//! Descriptions, and the services beside EC2.

use http::Method;
use serde_json::{Value, json};

use super::client::Rig;

#[tokio::test]
async fn instance_types_come_in_pages_of_a_hundred() {
    let rig = Rig::new().await;
    let filters = "Filter.1.Name=supported-virtualization-type&Filter.1.Value.1=hvm\
                   &Filter.2.Name=processor-info.supported-architecture\
                   &Filter.2.Value.1=x86_64&Filter.2.Value.2=arm64";
    let mut names: Vec<String> = Vec::new();
    let mut token = String::new();
    loop {
        let form = format!("{filters}&MaxResults=100{token}");
        let answer = rig.ec2("DescribeInstanceTypes", &form).await.ok();
        names.extend(answer.all("instanceType").into_iter().map(str::to_owned));
        match answer.first("nextToken") {
            Some(next) => token = format!("&NextToken={next}"),
            None => break,
        }
    }
    assert_eq!(names.len(), 1_235);
    let unknown = rig
        .ec2("DescribeInstanceTypes", "InstanceType.1=zz.large")
        .await;
    assert_eq!(unknown.code(), "InvalidInstanceType");
    let rehearsal = rig.ec2("DescribeInstanceTypes", "DryRun=true").await;
    assert_eq!(rehearsal.code(), "DryRunOperation");
}

#[tokio::test]
async fn an_instance_type_has_the_members_that_labels_are_made_of() {
    let rig = Rig::new().await;
    let answer = rig
        .ec2("DescribeInstanceTypes", "InstanceType.1=g5.xlarge")
        .await
        .ok();
    for (member, value) in [
        ("defaultVCpus", "4"),
        ("hypervisor", "nitro"),
        ("manufacturer", "AMD"),
        ("totalSizeInGB", "250"),
        ("ebsOptimizedSupport", "default"),
        ("encryptionInTransitSupported", "false"),
        ("name", "A10G"),
    ] {
        assert_eq!(answer.first(member), Some(value), "{member}");
    }
}

#[tokio::test]
async fn spot_prices_are_current_and_stable_within_their_epoch() {
    let rig = Rig::new().await;
    let form = "InstanceType.1=m5.large&ProductDescription.1=Linux%2FUNIX\
                &StartTime=2026-01-01T00:00:00Z&AvailabilityZone=us-east-1a";
    let price = async || {
        let answer = rig.ec2("DescribeSpotPriceHistory", form).await.ok();
        answer
            .first("spotPrice")
            .expect("a price")
            .parse::<f64>()
            .expect("a number")
    };
    let first = price().await;
    assert!((0.028..0.044).contains(&first), "{first}");
    rig.pass(1_800);
    assert_eq!(price().await.to_bits(), first.to_bits());
}

#[tokio::test]
async fn subnets_and_groups_are_discovered_by_tag() {
    let rig = Rig::new().await;
    let filter = "Filter.1.Name=tag:karpenter.sh/discovery&Filter.1.Value.1=c";
    let subnets = rig.ec2("DescribeSubnets", filter).await.ok();
    assert_eq!(subnets.all("subnetId").len(), 6);
    let groups = rig.ec2("DescribeSecurityGroups", filter).await.ok();
    assert_eq!(groups.all("groupId").len(), 2);
    let other = filter.replace("=c", "=d");
    assert!(
        rig.ec2("DescribeSubnets", &other)
            .await
            .ok()
            .all("subnetId")
            .is_empty()
    );
    let zones = rig.ec2("DescribeAvailabilityZones", "").await.ok();
    assert_eq!(zones.all("zoneId").len(), 6);
}

#[tokio::test]
async fn aliases_resolve_to_images_that_exist() {
    let rig = Rig::new().await;
    let image = rig.image("arm64").await;
    let form = format!("Filter.1.Name=image-id&Filter.1.Value.1={image}&IncludeDeprecated=true");
    let answer = rig.ec2("DescribeImages", &form).await.ok();
    assert_eq!(answer.all("architecture"), ["arm64"]);
    rig.world.publish_images("20261101", "1.60.0");
    assert_ne!(rig.image("arm64").await, image);
    let missing = rig
        .target("AmazonSSM.GetParameter", json!({ "Name": "/none" }))
        .await;
    assert_eq!(
        (missing.status, missing.json()["__type"].clone()),
        (400, json!("ParameterNotFound"))
    );
    let both = json!({ "Names": ["/none", "/aws/service/bottlerocket/aws-k8s-1.34/arm64/latest/image_id"] });
    let both = rig
        .target("AmazonSSM.GetParameters", both)
        .await
        .ok()
        .json();
    assert_eq!(both["InvalidParameters"], json!(["/none"]));
    assert_eq!(both["Parameters"].as_array().map(Vec::len), Some(1));
    let gone = rig
        .ec2("DescribeImages", "ImageId.1=ami-0123456789abcdef0")
        .await;
    assert_eq!(gone.code(), "InvalidAMIID.NotFound");
}

#[tokio::test]
async fn instance_profiles_live_and_die_with_the_right_codes() {
    let rig = Rig::new().await;
    let name = "InstanceProfileName=p";
    let role = format!("{name}&RoleName=KarpenterNodeRole-c");
    let steps: [(&str, String, &str); 12] = [
        ("GetInstanceProfile", name.to_owned(), "NoSuchEntity"),
        (
            "CreateInstanceProfile",
            format!(
                "{name}&Path=/karpenter/us-east-1/c/u/&Tags.member.1.Key=a&Tags.member.1.Value=b"
            ),
            "",
        ),
        (
            "CreateInstanceProfile",
            name.to_owned(),
            "EntityAlreadyExists",
        ),
        (
            "AddRoleToInstanceProfile",
            format!("{name}&RoleName=none"),
            "NoSuchEntity",
        ),
        ("AddRoleToInstanceProfile", role.clone(), ""),
        ("AddRoleToInstanceProfile", role.clone(), "LimitExceeded"),
        ("DeleteInstanceProfile", name.to_owned(), "DeleteConflict"),
        ("GetInstanceProfile", name.to_owned(), ""),
        ("RemoveRoleFromInstanceProfile", role.clone(), ""),
        (
            "RemoveRoleFromInstanceProfile",
            role.clone(),
            "NoSuchEntity",
        ),
        ("DeleteInstanceProfile", name.to_owned(), ""),
        ("GetInstanceProfile", name.to_owned(), "NoSuchEntity"),
    ];
    for (action, parameters, code) in steps {
        assert_eq!(
            rig.iam(action, &parameters).await.code(),
            code,
            "{action} {parameters}"
        );
    }
    assert_eq!(
        rig.iam("GetRole", "RoleName=KarpenterNodeRole-c")
            .await
            .code(),
        ""
    );
}

#[tokio::test]
async fn profiles_are_listed_by_path() {
    let rig = Rig::new().await;
    for (name, path) in [("a", "/x/"), ("b", "/x/y/"), ("c", "/z/")] {
        rig.iam(
            "CreateInstanceProfile",
            &format!("InstanceProfileName={name}&Path={path}"),
        )
        .await
        .ok();
    }
    let answer = rig
        .iam("ListInstanceProfiles", "PathPrefix=/x/&MaxItems=1")
        .await
        .ok();
    assert_eq!(answer.all("InstanceProfileName"), ["a"]);
    assert_eq!(answer.first("IsTruncated"), Some("true"));
    let marker = answer.first("Marker").expect("more").to_owned();
    let next = format!("PathPrefix=/x/&MaxItems=1&Marker={marker}");
    let answer = rig.iam("ListInstanceProfiles", &next).await.ok();
    assert_eq!(answer.all("InstanceProfileName"), ["b"]);
    assert_eq!(answer.first("IsTruncated"), Some("false"));
}

#[tokio::test]
async fn the_cluster_is_described() {
    let rig = Rig::new().await;
    let get = async |path| {
        rig.try_send(Method::GET, path, &[], String::new())
            .await
            .expect("an answer")
    };
    let cluster = get("/clusters/c").await.ok().json();
    assert_eq!(cluster["cluster"]["version"], "1.34");
    assert_eq!(get("/clusters/d").await.status, 404);
}

#[tokio::test]
async fn prices_are_listed_as_json_in_json() {
    let rig = Rig::new().await;
    let filter = |field, value| json!({ "Type": "TERM_MATCH", "Field": field, "Value": value });
    let mut token = Value::Null;
    let mut prices = std::collections::BTreeMap::new();
    loop {
        let input = json!({ "ServiceCode": "AmazonEC2", "MaxResults": 100, "NextToken": token, "Filters": [
            filter("regionCode", "us-east-1"), filter("serviceCode", "AmazonEC2"),
            filter("preInstalledSw", "NA"), filter("operatingSystem", "Linux"),
            filter("capacitystatus", "Used"), filter("marketoption", "OnDemand"),
            filter("tenancy", "Shared"), filter("productFamily", "Compute Instance"),
        ]});
        let page = rig
            .target("AWSPriceListService.GetProducts", input)
            .await
            .ok()
            .json();
        for text in page["PriceList"].as_array().expect("a list") {
            let product: Value = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
            let name = product["product"]["attributes"]["instanceType"]
                .as_str()
                .expect("a name");
            let term = product["terms"]["OnDemand"]
                .as_object()
                .expect("terms")
                .values()
                .next();
            let dimension = term.expect("one")["priceDimensions"]
                .as_object()
                .expect("dimensions");
            let price = &dimension.values().next().expect("one")["pricePerUnit"]["USD"];
            prices.insert(name.to_owned(), price.as_str().expect("text").to_owned());
        }
        token = page["NextToken"].clone();
        if token.is_null() {
            break;
        }
    }
    assert_eq!(prices["m5.large"], "0.0960000000");
    assert!(prices.len() > 1_000 && !prices.contains_key("m5.metal"));
}

#[tokio::test]
async fn the_caller_is_identified() {
    let rig = Rig::new().await;
    let form = "Action=GetCallerIdentity&Version=2011-06-15".to_owned();
    let answer = rig
        .try_send(Method::POST, "/", &[], form)
        .await
        .expect("an answer")
        .ok();
    assert_eq!(answer.first("Account"), Some("111122223333"));
}

#[tokio::test]
async fn empty_kinds_have_the_right_shape() {
    let rig = Rig::new().await;
    let active = "Filter.1.Name=state&Filter.1.Value.1=active";
    let answer = rig.ec2("DescribeCapacityReservations", active).await.ok();
    assert!(
        answer
            .body
            .contains("<capacityReservationSet></capacityReservationSet>")
    );
    let answer = rig
        .ec2(
            "DescribeCapacityReservations",
            "CapacityReservationId.1=cr-1",
        )
        .await;
    assert_eq!(answer.code(), "InvalidCapacityReservationId.NotFound");
    let answer = rig.ec2("DescribePlacementGroups", "GroupName.1=g").await;
    assert_eq!(answer.code(), "InvalidPlacementGroup.Unknown");
    assert_eq!(rig.ec2("DescribeNothing", "").await.code(), "InvalidAction");
}
