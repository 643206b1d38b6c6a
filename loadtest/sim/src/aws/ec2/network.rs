//! Zones, subnets and security groups.

use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::network::{SecurityGroup, Subnet, Zone};
use super::super::tags::{self, Tags};
use super::{Call, PAGE};

impl Filterable for Zone {
    const NAMES: &'static [&'static str] = &[
        "zone-name",
        "zone-id",
        "zone-type",
        "state",
        "region-name",
        "opt-in-status",
        "group-name",
    ];

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match name {
            "zone-name" => test(&self.name),
            "zone-id" => test(&self.id),
            "zone-type" => test("availability-zone"),
            "state" => test("available"),
            "opt-in-status" => test("opt-in-not-required"),
            _ => test(region(self)),
        }
    }
}

/// A zone's name without its letter.
fn region(zone: &Zone) -> &str {
    zone.name.strip_suffix(zone.letter).unwrap_or(&zone.name)
}

pub(super) fn describe_zones(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Zone>(call.params, false)?;
    let (names, ids) = (call.params.texts("ZoneName"), call.params.texts("ZoneId"));
    let world = call.world();
    if let Some(name) = names
        .iter()
        .chain(&ids)
        .find(|name| world.network.zone(name).is_none())
    {
        return Err(ApiError::value(format!(
            "Invalid availability zone: [{name}]"
        )));
    }
    call.rehearse()?;
    let zones = world.network.zones.iter().filter(|zone| {
        (names.is_empty() || names.contains(&&*zone.name))
            && (ids.is_empty() || ids.contains(&&*zone.id))
            && filters.accept(*zone)
    });
    Ok(call.reply(|xml| {
        xml.list("availabilityZoneInfo", zones, |xml, zone| {
            xml.text("optInStatus", "opt-in-not-required");
            xml.element("messageSet", |_| {});
            xml.text("regionName", region(zone));
            xml.text("zoneName", &zone.name);
            xml.text("zoneId", &zone.id);
            xml.text("groupName", &format!("{}-zg-1", region(zone)));
            xml.text("networkBorderGroup", region(zone));
            xml.text("zoneType", "availability-zone");
            xml.text("zoneState", "available");
        });
    }))
}

impl Filterable for Subnet {
    const NAMES: &'static [&'static str] = &[
        "subnet-id",
        "vpc-id",
        "state",
        "availability-zone",
        "availabilityZone",
        "availability-zone-id",
        "availabilityZoneId",
        "available-ip-address-count",
        "cidr-block",
        "cidr",
        "default-for-az",
        "map-public-ip-on-launch",
    ];

    fn tags(&self) -> Option<&Tags> {
        Some(&self.tags)
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match name {
            "subnet-id" => test(&self.id),
            "vpc-id" => test(&self.vpc_id),
            "state" => test("available"),
            "availability-zone" | "availabilityZone" => test(&self.zone.name),
            "availability-zone-id" | "availabilityZoneId" => test(&self.zone.id),
            "available-ip-address-count" => test(&self.available_addresses().to_string()),
            "cidr-block" | "cidr" => test(&cidr(self)),
            "default-for-az" => test("false"),
            "map-public-ip-on-launch" => test(if self.public { "true" } else { "false" }),
            _ => false,
        }
    }
}

fn cidr(subnet: &Subnet) -> String {
    format!("{}/{}", subnet.cidr.0, subnet.cidr.1)
}

pub(super) fn describe_subnets(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Subnet>(call.params, true)?;
    let page = call.page("DescribeSubnets", PAGE)?;
    let ids = call.params.texts("SubnetId");
    let world = call.world();
    if let Some(id) = ids
        .iter()
        .find(|id| !world.network.subnets.contains_key(**id))
    {
        return Err(ApiError::new(
            "InvalidSubnetID.NotFound",
            format!("The subnet ID '{id}' does not exist"),
        ));
    }
    call.rehearse()?;
    let found =
        world.network.subnets.values().filter(|subnet| {
            (ids.is_empty() || ids.contains(&&*subnet.id)) && filters.accept(*subnet)
        });
    let (subnets, token) = page.of_list(found);
    let (account, region) = (&world.config.account, &world.config.region);
    Ok(call.reply(|xml| {
        xml.list("subnetSet", subnets, |xml, subnet| {
            xml.text("subnetId", &subnet.id);
            xml.text(
                "subnetArn",
                &format!("arn:aws:ec2:{region}:{account}:subnet/{}", subnet.id),
            );
            xml.text("state", "available");
            xml.text("ownerId", account);
            xml.text("vpcId", &subnet.vpc_id);
            xml.text("cidrBlock", &cidr(subnet));
            xml.value("availableIpAddressCount", subnet.available_addresses());
            xml.text("availabilityZone", &subnet.zone.name);
            xml.text("availabilityZoneId", &subnet.zone.id);
            xml.value("defaultForAz", false);
            xml.value("mapPublicIpOnLaunch", subnet.public);
            xml.value("assignIpv6AddressOnCreation", false);
            xml.value("ipv6Native", false);
            tags::write(xml, &subnet.tags);
        });
        xml.optional("nextToken", token.as_deref());
    }))
}

impl Filterable for SecurityGroup {
    const NAMES: &'static [&'static str] = &["group-id", "group-name", "vpc-id", "description"];

    fn tags(&self) -> Option<&Tags> {
        Some(&self.tags)
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match name {
            "group-id" => test(&self.id),
            "group-name" => test(&self.name),
            "vpc-id" => test(&self.vpc_id),
            "description" => test(&self.description),
            _ => false,
        }
    }
}

pub(super) fn describe_groups(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<SecurityGroup>(call.params, true)?;
    let page = call.page("DescribeSecurityGroups", PAGE)?;
    let ids = call.params.texts("GroupId");
    let names = call.params.texts("GroupName");
    let world = call.world();
    if let Some(id) = ids
        .iter()
        .find(|id| !world.network.groups.contains_key(**id))
    {
        return Err(group_not_found(id));
    }
    call.rehearse()?;
    let found = world.network.groups.values().filter(|group| {
        (ids.is_empty() || ids.contains(&group.id.as_str()))
            && (names.is_empty() || names.contains(&group.name.as_str()))
            && filters.accept(*group)
    });
    let (groups, token) = page.of_list(found);
    Ok(call.reply(|xml| {
        xml.list("securityGroupInfo", groups, |xml, group| {
            xml.text("ownerId", &world.config.account);
            xml.text("groupId", &group.id);
            xml.text("groupName", &group.name);
            xml.text("groupDescription", &group.description);
            xml.text("vpcId", &group.vpc_id);
            xml.element("ipPermissions", |_| {});
            xml.element("ipPermissionsEgress", |_| {});
            tags::write(xml, &group.tags);
        });
        xml.optional("nextToken", token.as_deref());
    }))
}

pub(super) fn group_not_found(id: &str) -> ApiError {
    ApiError::new(
        "InvalidGroup.NotFound",
        format!("The security group '{id}' does not exist"),
    )
}
