//! Admission of EC2NodeClasses: AWS specification 2 and 3.

use serde_json::{Map, Value, json};

use crate::support::{Admission, Row, at, client, manifest, shared, status};

fn top_level() -> Vec<Row> {
    let exactly_one = "must specify exactly one of ['role', 'instanceProfile']";
    let family = "/spec/amiFamily";
    vec![
        at("/spec").must_be_there(),
        at("/spec/role")
            .good("path/name")
            .bad("", "role cannot be empty")
            .must_stay(exactly_one),
        at("/spec/instanceProfile")
            .may_be_absent()
            .bad("profile", exactly_one),
        at("/spec/instanceProfile")
            .without("/spec/role")
            .good("profile")
            .bad("", "instanceProfile cannot be empty"),
        at("/spec/ipPrefixCount")
            .may_be_absent()
            .all_good([0, 16])
            .bad(-1, "should be greater than or equal to 0"),
        at("/spec/kubelet")
            .may_be_absent()
            .good(json!({}))
            .good(json!({"anything": [{"at": "all"}]})),
        at("/spec/instanceStorePolicy")
            .may_be_absent()
            .good("RAID0")
            .bad("RAID1", "Unsupported value"),
        at(family)
            .all_good(["AL2", "AL2023", "Bottlerocket", "Custom"])
            .all_good(["Windows2019", "Windows2022", "Windows2025"])
            .all_bad(["Ubuntu", "al2023", ""], "Unsupported value")
            .must_stay("must specify amiFamily if amiSelectorTerms does not contain an alias"),
        at("/spec/cpuOptions").may_be_absent().good(json!({})),
        at("/spec/cpuOptions/nestedVirtualization")
            .all_good(["enabled", "disabled"])
            .bad("on", "Unsupported value"),
    ]
}

/// Tags of a selector's term, in a list with one term.
fn tags_of_terms(pointer: &'static str) -> Row {
    let term = |tags: Value| json!([{ "tags": tags }]);
    let many = |count: usize| -> Value {
        (0..count)
            .map(|n| (format!("k{n}"), Value::from("v")))
            .collect::<Map<_, _>>()
            .into()
    };
    let empty = "empty tag keys or values aren't supported";
    at(pointer)
        .all_good([term(json!({"a": "*"})), term(many(20))])
        .all_bad([term(json!({"": "v"})), term(json!({"k": ""}))], empty)
        .bad(term(many(21)), "must have at most 20 items")
}

fn subnets() -> Vec<Row> {
    let exclusive = "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term";
    let both = json!({"id": "subnet-1", "tags": {"a": "b"}});
    let id = json!({"id": "subnet-1"});
    vec![
        tags_of_terms("/spec/subnetSelectorTerms"),
        at("/spec/subnetSelectorTerms")
            .must_be_there()
            .bad(json!([]), "subnetSelectorTerms cannot be empty")
            .good(vec![id.clone(); 30])
            .bad(vec![id.clone(); 31], "must have at most 30 items")
            .bad(json!([{}]), "expected at least one, got none, ['tags', 'id']")
            .bad(json!([both]), exclusive)
            // One good term makes up for a bad one.
            .good(json!([both, id]))
            .good(json!([{"id": "xsubnet-1!"}]))
            .bad(json!([{"id": "subnet_1"}]), "should match"),
    ]
}

fn security_groups() -> Vec<Row> {
    let exclusive = |field: &str| {
        format!(
            "'{field}' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term"
        )
    };
    let id = json!({"id": "sg-1"});
    vec![
        tags_of_terms("/spec/securityGroupSelectorTerms"),
        at("/spec/securityGroupSelectorTerms")
            .must_be_there()
            .bad(json!([]), "securityGroupSelectorTerms cannot be empty")
            .good(vec![id.clone(); 30])
            .bad(vec![id.clone(); 31], "must have at most 30 items")
            .bad(
                json!([{}]),
                "expected at least one, got none, ['tags', 'id', 'name']",
            )
            .bad(
                json!([{"id": "sg-1", "tags": {"a": "b"}}]),
                &exclusive("id"),
            )
            .bad(json!([{"id": "sg-1", "name": "n"}]), &exclusive("id"))
            .bad(
                json!([{"name": "n", "tags": {"a": "b"}}]),
                &exclusive("name"),
            )
            .bad(json!([{"id": "sg-1", "name": "n"}]), &exclusive("name"))
            .good(json!([{"id": "sg-1", "name": "n"}, id]))
            .good(json!([{"name": "example-*"}]))
            .bad(json!([{"id": "group"}]), "should match"),
    ]
}

fn capacity_reservations() -> Vec<Row> {
    let exclusive = "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term";
    let none = "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']";
    let with_id = |field: &str, value: Value| json!([{ "id": "cr-1", field: value }]);
    let id = json!({"id": "cr-1"});
    vec![
        tags_of_terms("/spec/capacityReservationSelectorTerms"),
        at("/spec/capacityReservationSelectorTerms")
            .may_be_absent()
            .good(json!([]))
            .good(vec![id.clone(); 30])
            .bad(vec![id.clone(); 31], "must have at most 30 items")
            .bad(json!([{}]), none)
            // The owner alone selects nothing.
            .bad(json!([{"ownerID": "012345678901"}]), none)
            .good(json!([{"ownerID": "012345678901", "instanceMatchCriteria": "open"}]))
            .bad(with_id("tags", json!({"a": "b"})), exclusive)
            .bad(with_id("ownerID", "012345678901".into()), exclusive)
            .bad(with_id("instanceMatchCriteria", "open".into()), exclusive)
            .good(json!([{"id": "cr-1", "tags": {"a": "b"}}, id]))
            .all_bad(["cr-", "xcr-1", "cr-A"].map(|id| json!([{ "id": id }])), "should match")
            .bad(json!([{"tags": {"a": "b"}, "ownerID": "12345"}]), "should match")
            .bad(json!([{"instanceMatchCriteria": "closed"}]), "Unsupported value"),
        at("/spec/placementGroupSelector")
            .may_be_absent()
            .good(json!({"name": "n"}))
            .good(json!({"id": "pg-1"}))
            .bad(json!({}), "expected at least one, got none, ['name', 'id']")
            .bad(
                json!({"name": "n", "id": "pg-1"}),
                "'name' and 'id' are mutually exclusive",
            )
            .bad(json!({"name": ""}), "should be at least 1 chars long")
            .bad(json!({"id": "group"}), "should match"),
    ]
}

fn amis() -> Vec<Row> {
    let none = "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']";
    let exclusive = |field: &str, what: &str| {
        format!("'{field}' is mutually exclusive, cannot be set with a combination of other {what}")
    };
    let fields = [
        ("tags", json!({"a": "b"})),
        ("name", "n".into()),
        ("owner", "self".into()),
    ];
    let id = json!({"id": "ami-1"});
    let mut row = at("/spec/amiSelectorTerms")
        .must_be_there()
        .bad(json!([]), "should have at least 1 items")
        .good(vec![id.clone(); 30])
        .bad(vec![id.clone(); 31], "must have at most 30 items")
        .all_bad([json!([{}]), json!([{"owner": "self"}])], none)
        .good(json!([{"ssmParameter": "/a/b"}]))
        // The parameter excludes nothing.
        .good(json!([{"ssmParameter": "/a/b", "id": "ami-1"}]))
        .good(json!([{"ssmParameter": "/a/b", "name": "n"}]))
        .bad(json!([{"id": "image"}]), "should match")
        .good(json!([{"name": "n", "tags": {"a": "b"}, "owner": "amazon"}]));
    for (field, value) in fields {
        let (own, alias) = (exclusive("id", "fields"), exclusive("alias", "fields"));
        row = row
            .bad(json!([{ "id": "ami-1", field: value }, id]), &own)
            .bad(json!([{ "alias": "al2023@latest", field: value }]), &alias);
    }
    row = row
        .bad(
            json!([{"id": "ami-1", "alias": "al2023@latest"}]),
            &exclusive("id", "fields"),
        )
        .bad(
            json!([{"id": "ami-1", "alias": "al2023@latest"}]),
            &exclusive("alias", "fields"),
        )
        .bad(
            json!([{"alias": "al2023@latest"}, id]),
            &exclusive("alias", "amiSelectorTerms"),
        );
    vec![tags_of_terms("/spec/amiSelectorTerms"), row]
}

fn aliases() -> Vec<Row> {
    let alias = |text: &str| json!([{ "alias": text }]);
    let form = "'alias' is improperly formatted, must match the format 'family@version'";
    let unknown = "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'";
    let windows = "windows families may only specify version 'latest'";
    let mut rows = vec![
        at("/spec/amiSelectorTerms")
            .without("/spec/amiFamily")
            .all_good(["al2@latest", "al2023@v20240807", "bottlerocket@1.20.4"].map(alias))
            .all_good(
                [
                    "windows2019@latest",
                    "windows2022@latest",
                    "windows2025@latest",
                ]
                .map(alias),
            )
            .all_bad(["al2023", "@latest", "al2023@", "al-2@x"].map(alias), form)
            .all_bad(
                ["ubuntu@latest", "AL2023@latest", "al2022@x"].map(alias),
                unknown,
            )
            .all_bad(
                ["windows2019@v1", "windows2025@latest2"].map(alias),
                windows,
            )
            .good(alias(&format!("al2023@{}", "v".repeat(23))))
            .bad(alias(&format!("al2023@{}", "v".repeat(24))), "Too long"),
    ];
    for (name, family) in [
        ("al2", "AL2"),
        ("al2023", "AL2023"),
        ("bottlerocket", "Bottlerocket"),
        ("windows2019", "Windows2019"),
        ("windows2022", "Windows2022"),
        ("windows2025", "Windows2025"),
    ] {
        let other = if family == "AL2" { "AL2023" } else { "AL2" };
        let words = format!("if set, amiFamily must be '{family}' or 'Custom' when using a");
        rows.push(
            at("/spec/amiFamily")
                .with("/spec/amiSelectorTerms", alias(&format!("{name}@latest")))
                .may_be_absent()
                .all_good([family, "Custom"])
                .bad(other, &words),
        );
    }
    rows
}

fn tags() -> Vec<Row> {
    let tag = |key: &str| json!({ key: "v" });
    let restricted = |key: &str| format!("tag contains a restricted tag matching {key}");
    let mut row = at("/spec/tags")
        .may_be_absent()
        .all_good([
            tag("Name"),
            json!({"k": ""}),
            tag("karpenter.sh/other"),
            tag("kubernetes.io/x"),
        ])
        .bad(tag(""), "empty tag keys aren't supported")
        .bad(
            tag("kubernetes.io/cluster/x"),
            &restricted("kubernetes.io/cluster"),
        )
        .bad(
            tag("kubernetes.io/cluster"),
            &restricted("kubernetes.io/cluster"),
        );
    for key in [
        "eks:eks-cluster-name",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
    ] {
        row = row
            .bad(tag(key), &restricted(key))
            .good(tag(&format!("{key}x")));
    }
    vec![row]
}

fn block_devices() -> Vec<Row> {
    let one = |ebs: Value| json!([{ "ebs": ebs }]);
    let size = |size: &str| one(json!({ "volumeSize": size }));
    let rate = |rate: i64| one(json!({"snapshotID": "snap-1", "volumeInitializationRate": rate}));
    let root = |count: usize| Value::from(vec![json!({"rootVolume": true}); count]);
    let from_snapshot = "snapshotID must be set when volumeInitializationRate is set";
    vec![
        at("/spec/blockDeviceMappings")
            .may_be_absent()
            .good(vec![json!({}); 50])
            .bad(vec![json!({}); 51], "must have at most 50 items")
            .good(root(1))
            .good(json!([{"rootVolume": true}, {"rootVolume": false}]))
            .bad(
                root(2),
                "must have only one blockDeviceMappings with rootVolume",
            )
            .bad(one(json!({})), "snapshotID or volumeSize must be defined")
            .good(one(json!({"snapshotID": "snap-1"})))
            .bad(
                one(json!({"volumeSize": "1Gi", "volumeInitializationRate": 100})),
                from_snapshot,
            )
            .bad(
                one(
                    json!({"volumeSize": "1Gi", "snapshotID": "", "volumeInitializationRate": 100}),
                ),
                from_snapshot,
            )
            .all_good([rate(100), rate(300)])
            .bad(rate(99), "should be greater than or equal to 100")
            .bad(rate(301), "should be less than or equal to 300"),
        at("/spec/blockDeviceMappings")
            .all_good(["1Gi", "59000Gi", "1G", "64000G", "1Ti", "58Ti", "1T", "64T"].map(size))
            .all_bad(["0Gi", "59001Gi", "64001G", "59Ti", "65T", "1Mi", "1", "1.5Gi"].map(size), "should match")
            // The published pattern has this gap and this opening.
            .bad(size("18Ti"), "should match")
            .good(size("Ti"))
            .all_good(
                ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]
                    .map(|kind| one(json!({"volumeSize": "1Gi", "volumeType": kind}))),
            )
            .bad(one(json!({"volumeSize": "1Gi", "volumeType": "gp1"})), "Unsupported value"),
    ]
}

fn network_interfaces() -> Vec<Row> {
    let interface = |card: i64, device: i64, kind: &str| json!({"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind});
    let primary = interface(0, 0, "interface");
    let and = |more: Value| json!([primary, more]);
    let many = |count: i64| -> Value { (0..count).map(|n| interface(0, n, "interface")).collect() };
    let lacking = |field: &str| {
        let mut interface = interface(1, 1, "interface");
        interface.as_object_mut().expect("an object").remove(field);
        and(interface)
    };
    let main = "networkInterfaces must include a primary interface with interfaceType='interface'";
    let twice = "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card";
    vec![
        at("/spec/networkInterfaces")
            .may_be_absent()
            .good(json!([]))
            .good(json!([primary]))
            .good(many(150))
            .bad(many(151), "must have at most 150 items")
            .bad(json!([interface(0, 0, "efa-only")]), main)
            .bad(json!([interface(0, 1, "interface")]), main)
            .bad(json!([interface(1, 0, "interface")]), main)
            .bad(and(primary.clone()), twice)
            .bad(and(interface(0, 0, "efa-only")), twice)
            .good(and(interface(0, 1, "efa-only")))
            .bad(
                json!([
                    primary,
                    interface(1, 0, "efa-only"),
                    interface(1, 1, "efa-only")
                ]),
                twice,
            )
            .good(json!([
                primary,
                interface(1, 0, "efa-only"),
                interface(2, 0, "efa-only")
            ]))
            .good(json!([
                primary,
                interface(1, 0, "interface"),
                interface(1, 1, "efa-only")
            ]))
            .bad(
                and(interface(-1, 1, "interface")),
                "should be greater than or equal to 0",
            )
            .bad(
                and(interface(1, -1, "interface")),
                "should be greater than or equal to 0",
            )
            .bad(and(interface(1, 1, "efa")), "Unsupported value")
            .all_bad(
                ["networkCardIndex", "deviceIndex", "interfaceType"].map(lacking),
                "Required value",
            ),
    ]
}

fn options() -> Vec<Row> {
    let (few, many) = (
        "should be greater than or equal to",
        "should be less than or equal to",
    );
    let tracking = |field: &str, seconds: i64| json!({ field: seconds });
    let mut timeouts = at("/spec/connectionTracking").may_be_absent().bad(
        json!({}),
        "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
    );
    for (field, least, most) in [
        ("tcpEstablishedTimeout", 60, 432_000),
        ("udpStreamTimeout", 60, 180),
        ("udpTimeout", 30, 60),
    ] {
        timeouts = timeouts
            .all_good([tracking(field, least), tracking(field, most)])
            .bad(tracking(field, least - 1), few)
            .bad(tracking(field, most + 1), many);
    }
    let unsupported = "Unsupported value";
    vec![
        timeouts,
        at("/spec/metadataOptions").may_be_absent().good(json!({})),
        at("/spec/metadataOptions/httpEndpoint")
            .all_good(["enabled", "disabled"])
            .bad("on", unsupported),
        at("/spec/metadataOptions/httpProtocolIPv6")
            .all_good(["enabled", "disabled"])
            .bad("on", unsupported),
        at("/spec/metadataOptions/httpPutResponseHopLimit")
            .all_good([1, 64])
            .bad(0, few)
            .bad(65, many),
        at("/spec/metadataOptions/httpTokens")
            .all_good(["required", "optional"])
            .bad("Required", unsupported),
    ]
}

fn statuses() -> Vec<Row> {
    let required = |pointer: &'static str| status(pointer).must_be_there();
    vec![
        required("/status/subnets/0/id"),
        required("/status/subnets/0/zone"),
        required("/status/securityGroups/0/id"),
        required("/status/amis/0/id"),
        required("/status/amis/0/requirements"),
        required("/status/amis/0/requirements/0/key"),
        required("/status/amis/0/requirements/0/operator"),
        required("/status/capacityReservations/0/availabilityZone"),
        required("/status/capacityReservations/0/instanceType"),
        status("/status/capacityReservations/0/id")
            .bad("x", "should match")
            .must_be_there(),
        status("/status/capacityReservations/0/ownerID")
            .bad("x", "should match")
            .must_be_there(),
        status("/status/capacityReservations/0/instanceMatchCriteria")
            .all_good(["open", "targeted"])
            .bad("x", "Unsupported value")
            .must_be_there(),
        status("/status/capacityReservations/0/reservationType")
            .all_good(["default", "capacity-block"])
            .may_be_absent()
            .bad("x", "Unsupported value"),
        status("/status/capacityReservations/0/state")
            .all_good(["active", "expiring"])
            .may_be_absent()
            .bad("x", "Unsupported value"),
    ]
}

#[tokio::test]
async fn every_rule_of_an_ec2_node_class_refuses_what_it_must_and_nothing_beside_it()
-> anyhow::Result<()> {
    let Some(client) = client().await? else {
        return Ok(());
    };
    let class = manifest(include_str!("ec2_node_class.yaml"));
    let mut admission = Admission::of(&client, class).await?;
    for rows in [
        top_level(),
        subnets(),
        security_groups(),
        capacity_reservations(),
        amis(),
        aliases(),
        tags(),
        block_devices(),
        network_interfaces(),
        options(),
        statuses(),
        shared::conditions(false),
    ] {
        admission.try_all(&rows).await;
    }
    admission.assert_complete("ec2nodeclasses.karpenter.k8s.aws");
    Ok(())
}
