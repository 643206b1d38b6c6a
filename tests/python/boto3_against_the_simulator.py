"""Drives the simulated AWS with boto3, as any user of the real one would.

Takes the endpoint, region and keys from the environment. Every section is a function that
asserts; the first failure ends the script with a traceback.
"""

import base64
import json
import os
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

CLUSTER = "demo"
AL2023 = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"


def client(service, **options):
    return boto3.client(service, config=Config(parameter_validation=True, **options))


ec2 = client("ec2")


def steer(path, **document):
    """Scripts the simulator."""
    request = urllib.request.Request(
        f"{os.environ['AWS_ENDPOINT_URL']}/_sim/{path}", json.dumps(document).encode()
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def refused(code, call, **arguments):
    """The call must fail with a code."""
    try:
        answer = call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found} instead of {code}: {error}"
        return error.response
    raise AssertionError(f"{code} expected, but: {answer}")


def tag_filter(key, value):
    return [{"Name": f"tag:{key}", "Values": [value]}]


def subnet_of(zone):
    found = ec2.describe_subnets(
        Filters=[*tag_filter("karpenter.sh/discovery", CLUSTER), {"Name": "availability-zone", "Values": [zone]}]
    )
    return found["Subnets"][0]["SubnetId"]


def fleet(template, pools, count=1, capacity_type="on-demand", **more):
    return dict(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
                "Overrides": [
                    {"InstanceType": kind, "SubnetId": subnet_of(zone), "AvailabilityZone": zone, "Priority": 0.1}
                    for kind, zone in pools
                ],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": capacity_type},
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "karpenter.sh/nodepool", "Value": "p"}]}],
        **more,
    )


def identity_and_cluster():
    assert client("sts").get_caller_identity()["Account"] == "111122223333"
    eks = client("eks")
    cluster = eks.describe_cluster(name=CLUSTER)["cluster"]
    assert cluster["status"] == "ACTIVE" and cluster["version"] == "1.34"
    refused("ResourceNotFoundException", eks.describe_cluster, name="none")


def catalogue():
    types = [
        kind
        for page in ec2.get_paginator("describe_instance_types").paginate(
            Filters=[{"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]}],
            PaginationConfig={"PageSize": 100},
        )
        for kind in page["InstanceTypes"]
    ]
    by_name = {kind["InstanceType"]: kind for kind in types}
    assert len(by_name) == len(types) > 1000
    m5 = by_name["m5.large"]
    assert m5["VCpuInfo"]["DefaultVCpus"] == 2 and m5["MemoryInfo"]["SizeInMiB"] == 8192
    assert m5["NetworkInfo"]["NetworkCards"][0]["BaselineBandwidthInGbps"] == 0.75
    assert by_name["g5.xlarge"]["GpuInfo"]["Gpus"][0]["Manufacturer"] == "NVIDIA"
    assert by_name["inf2.xlarge"]["NeuronInfo"]["NeuronDevices"][0]["Count"] == 1
    offerings = [
        offering
        for page in ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", PaginationConfig={"PageSize": 1000}
        )
        for offering in page["InstanceTypeOfferings"]
    ]
    assert len(offerings) == 5658
    wild = ec2.describe_instance_type_offerings(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": ["m5.*"]}]
    )["InstanceTypeOfferings"]
    assert wild and all(o["Location"].startswith("use1-az") for o in wild)
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    assert [zone["ZoneName"][-1] for zone in zones] == list("abcdef")
    refused(
        "InvalidParameterValue", ec2.describe_instance_types, Filters=[{"Name": "nonsense", "Values": ["x"]}]
    )


def prices():
    rows = [
        row
        for page in ec2.get_paginator("describe_spot_price_history").paginate(
            ProductDescriptions=["Linux/UNIX"], InstanceTypes=["m5.large", "c5.large"],
            StartTime="2100-01-01T00:00:00Z",  # in the future: current prices only
        )
        for row in page["SpotPriceHistory"]
    ]
    assert {row["InstanceType"] for row in rows} == {"m5.large", "c5.large"}
    assert all(0.02 < float(row["SpotPrice"]) < 0.05 for row in rows)
    pricing = client("pricing")
    match = lambda field, value: {"Type": "TERM_MATCH", "Field": field, "Value": value}
    texts = [
        text
        for page in pricing.get_paginator("get_products").paginate(
            ServiceCode="AmazonEC2",
            Filters=[match("tenancy", "Shared"), match("productFamily", "Compute Instance")],
        )
        for text in page["PriceList"]
    ]
    assert len(texts) > 1000 and json.loads(texts[0])["product"]["sku"]


def images_and_parameters():
    ssm = client("ssm")
    image = ssm.get_parameter(Name=AL2023)["Parameter"]["Value"]
    found = ec2.describe_images(Filters=[{"Name": "image-id", "Values": [image]}], IncludeDeprecated=True)["Images"]
    assert found[0]["Architecture"] == "x86_64" and found[0]["CreationDate"]
    refused("ParameterNotFound", ssm.get_parameter, Name="/none")
    refused("InvalidAMIID.NotFound", ec2.describe_images, ImageIds=["ami-0123456789abcdef0"])
    refused("InvalidAMIID.Malformed", ec2.describe_images, ImageIds=["nonsense"])
    return image


def instance_profiles():
    iam = client("iam")
    path = f"/karpenter/us-east-1/{CLUSTER}/uid/"
    iam.create_instance_profile(InstanceProfileName="p", Path=path, Tags=[{"Key": "a", "Value": "b"}])
    refused("EntityAlreadyExists", iam.create_instance_profile, InstanceProfileName="p")
    role = f"KarpenterNodeRole-{CLUSTER}"
    assert iam.get_role(RoleName=role)["Role"]["Arn"].endswith(role)
    refused("NoSuchEntity", iam.add_role_to_instance_profile, InstanceProfileName="p", RoleName="none")
    iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName=role)
    refused("LimitExceeded", iam.add_role_to_instance_profile, InstanceProfileName="p", RoleName=role)
    refused("DeleteConflict", iam.delete_instance_profile, InstanceProfileName="p")
    profile = iam.get_instance_profile(InstanceProfileName="p")["InstanceProfile"]
    assert profile["Roles"][0]["RoleName"] == role and profile["Tags"] == [{"Key": "a", "Value": "b"}]
    listed = [
        found["InstanceProfileName"]
        for page in iam.get_paginator("list_instance_profiles").paginate(PathPrefix=path, PaginationConfig={"PageSize": 1})
        for found in page["InstanceProfiles"]
    ]
    assert listed == ["p"]
    iam.get_waiter("instance_profile_exists").wait(InstanceProfileName="p")


def launch_templates(image):
    group = ec2.describe_security_groups(Filters=tag_filter("karpenter.sh/discovery", CLUSTER))["SecurityGroups"][0]
    arguments = dict(
        LaunchTemplateName="karpenter.k8s.aws/1",
        LaunchTemplateData={
            "ImageId": image,
            "UserData": base64.b64encode(b"#!/bin/sh").decode(),
            "IamInstanceProfile": {"Name": "p"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [group["GroupId"]]}],
            "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
            "Monitoring": {"Enabled": True},
        },
        TagSpecifications=[
            {"ResourceType": "launch-template", "Tags": [{"Key": "eks:eks-cluster-name", "Value": CLUSTER}]}
        ],
    )
    refused("DryRunOperation", ec2.create_launch_template, DryRun=True, **arguments)
    ec2.create_launch_template(**arguments)
    refused("InvalidLaunchTemplateName.AlreadyExistsException", ec2.create_launch_template, **arguments)
    found = ec2.describe_launch_templates(Filters=tag_filter("eks:eks-cluster-name", CLUSTER))["LaunchTemplates"]
    assert [template["LaunchTemplateName"] for template in found] == ["karpenter.k8s.aws/1"]
    refused(
        "InvalidLaunchTemplateName.NotFoundException", ec2.describe_launch_templates, LaunchTemplateNames=["none"]
    )
    return found[0]["LaunchTemplateName"], group["GroupId"]


def launches(template, group):
    pools = [("m5.large", "us-east-1a"), ("m5.xlarge", "us-east-1b")]
    refused("DryRunOperation", ec2.create_fleet, DryRun=True, **fleet(template, pools))
    first = ec2.create_fleet(**fleet(template, pools, 3, ClientToken="once"))
    assert first["Errors"] == []
    ids = first["Instances"][0]["InstanceIds"]
    assert len(ids) == 3 and first["Instances"][0]["Lifecycle"] == "on-demand"
    assert first["Instances"][0]["LaunchTemplateAndOverrides"]["Overrides"]["Priority"] == 0.1
    again = ec2.create_fleet(**fleet(template, pools, 3, ClientToken="once"))
    assert again["Instances"] == first["Instances"]
    refused("IdempotentParameterMismatch", ec2.create_fleet, **fleet(template, pools, 4, ClientToken="once"))
    waiter = ec2.get_waiter("instance_running")
    waiter.config.delay = 1
    waiter.wait(InstanceIds=ids)
    instance = ec2.describe_instances(InstanceIds=ids[:1])["Reservations"][0]["Instances"][0]
    assert instance["InstanceType"] == "m5.large"
    assert instance["SecurityGroups"] == [{"GroupId": group, "GroupName": instance["SecurityGroups"][0]["GroupName"]}]
    assert instance["IamInstanceProfile"]["Arn"].endswith("/p")
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["BlockDeviceMappings"][0]["DeviceName"] == "/dev/xvda"
    assert instance["Monitoring"]["State"] == "enabled"
    assert instance["Placement"]["AvailabilityZoneId"] == "use1-az1"
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["karpenter.sh/nodepool"] == "p" and tags["aws:ec2:fleet-id"] == first["FleetId"]
    ec2.create_tags(Resources=ids, Tags=[{"Key": "Name", "Value": "n"}])
    refused("InvalidInstanceID.NotFound", ec2.create_tags, Resources=["i-0123456789abcdef0"], Tags=[{"Key": "a", "Value": "b"}])
    return ids


def shortage(template):
    pools = [("c5.large", "us-east-1a"), ("c5.xlarge", "us-east-1b")]
    steer("capacity", instance_type="c5.large", free=1)
    arguments = fleet(template, pools, 3, "spot", SpotOptions={"AllocationStrategy": "lowest-price"})
    answer = ec2.create_fleet(**arguments)
    counts = {group["InstanceType"]: len(group["InstanceIds"]) for group in answer["Instances"]}
    assert counts == {"c5.large": 1, "c5.xlarge": 2}
    error = answer["Errors"][0]
    assert error["ErrorCode"] == "InsufficientInstanceCapacity" and error["Lifecycle"] == "spot"
    assert error["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == "us-east-1a"
    steer("pool-error", code="UnfulfillableCapacity", times=2)
    answer = ec2.create_fleet(**arguments)
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"UnfulfillableCapacity"}
    assert answer["Instances"] == []
    many = [(f"m5.{n}", "us-east-1a") for n in range(301)]
    refused("InvalidParameterValue", ec2.create_fleet, **{
        **arguments,
        "LaunchTemplateConfigs": [{
            "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
            "Overrides": [{"InstanceType": kind} for kind, _ in many],
        }],
    })


def pages_and_end(template, ids):
    ec2.create_fleet(**fleet(template, [("m5.large", "us-east-1c")], 12))
    pages = list(
        ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "tag-key", "Values": ["karpenter.sh/nodepool"]}], PaginationConfig={"PageSize": 5}
        )
    )
    seen = [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]
    assert len(seen) == len(set(seen)) >= 15 and len(pages) == -(-len(seen) // 5)
    status = ec2.describe_instance_status(InstanceIds=ids)["InstanceStatuses"]
    assert all(one["SystemStatus"]["Status"] == "ok" for one in status)
    refused("InvalidInstanceID.NotFound", ec2.terminate_instances, InstanceIds=[ids[0], "i-0123456789abcdef0"])
    changes = ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]
    assert {change["CurrentState"]["Name"] for change in changes} == {"shutting-down"}
    waiter = ec2.get_waiter("instance_terminated")
    waiter.config.delay = 1
    waiter.wait(InstanceIds=ids)


def rehearsals(template):
    arguments = dict(
        LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"},
        MinCount=1, MaxCount=1, InstanceType="m5.large", DryRun=True,
        NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": subnet_of("us-east-1a")}],
    )
    refused("DryRunOperation", ec2.run_instances, **arguments)
    steer("deny", action="RunInstances")
    refused("UnauthorizedOperation", ec2.run_instances, **arguments)
    steer("deny", action="RunInstances", denied=False)
    assert ec2.describe_capacity_reservations()["CapacityReservations"] == []
    assert ec2.describe_placement_groups()["PlacementGroups"] == []


def queue(template):
    sqs = client("sqs")
    # boto3 still calls this one by its name from before SQS spoke JSON.
    refused("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName="none")
    url = sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"]
    sqs.purge_queue(QueueUrl=url)
    answer = ec2.create_fleet(**fleet(template, [("m5.large", "us-east-1a")], 1, "spot"))
    instance = answer["Instances"][0]["InstanceIds"][0]
    steer("interrupt", instance_id=instance)
    kinds = set()
    for _ in range(10):
        received = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5, VisibilityTimeout=600,
            MessageSystemAttributeNames=["SentTimestamp"],
        ).get("Messages", [])
        for message in received:
            body = json.loads(message["Body"])
            assert int(message["Attributes"]["SentTimestamp"]) > 0
            if body["detail"]["instance-id"] == instance:
                kinds.add(body["detail-type"])
        if received:
            entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(received)]
            assert len(sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == len(received)
        if "EC2 Spot Instance Interruption Warning" in kinds:
            break
    assert kinds == {"EC2 Instance State-change Notification", "EC2 Spot Instance Interruption Warning"}, kinds
    sqs.purge_queue(QueueUrl=url)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
    assert int(attributes["ApproximateNumberOfMessages"]) >= 1


def faults():
    steer("fail", action="DescribeSubnets", code="RequestLimitExceeded", status=503, times=2)
    answer = client("ec2", retries={"mode": "standard", "max_attempts": 5}).describe_subnets()
    assert answer["ResponseMetadata"]["RetryAttempts"] == 2
    steer("throttle", action="DescribeSubnets", per_mille=1000)
    impatient = client("ec2", retries={"mode": "standard", "max_attempts": 1})
    refused("RequestLimitExceeded", impatient.describe_subnets)
    steer("throttle", action="DescribeSubnets", per_mille=0)
    impatient.describe_subnets()


def lost_answer(template):
    """The client repeats a call whose answer was lost; the token it made prevents a second launch."""
    arguments = fleet(template, [("r5.large", "us-east-1d")])
    steer("fail", action="CreateFleet", answer="lost")
    answer = client("ec2", retries={"mode": "standard", "max_attempts": 3}).create_fleet(**arguments)
    found = ec2.describe_instances(Filters=[{"Name": "instance-type", "Values": ["r5.large"]}])["Reservations"]
    ids = [instance["InstanceId"] for reservation in found for instance in reservation["Instances"]]
    assert ids == answer["Instances"][0]["InstanceIds"], ids


def main():
    identity_and_cluster()
    catalogue()
    prices()
    image = images_and_parameters()
    instance_profiles()
    template, group = launch_templates(image)
    ids = launches(template, group)
    shortage(template)
    pages_and_end(template, ids)
    rehearsals(template)
    queue(template)
    faults()
    lost_answer(template)
    ec2.delete_launch_template(LaunchTemplateName=template)
    print("all sections passed", flush=True)


main()
