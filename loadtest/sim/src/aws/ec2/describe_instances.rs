//! DescribeInstances.

use std::sync::Arc;

use super::super::capacity::CapacityType;
use super::super::clock::iso;
use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::id::{ec2_id, hash, mix};
use super::super::instance::Instance;
use super::super::page::Limits;
use super::super::spec::InterfaceSpec;
use super::super::tags::{self, Tags};
use super::super::world::World;
use super::super::xml::Xml;
use super::{Call, PAGE, instance_type};

impl Filterable for Instance {
    const NAMES: &'static [&'static str] = &[
        "instance-id",
        "instance-state-name",
        "instance-state-code",
        "instance-type",
        "instance-lifecycle",
        "availability-zone",
        "availability-zone-id",
        "subnet-id",
        "vpc-id",
        "image-id",
        "private-dns-name",
        "private-ip-address",
        "network-interface.private-dns-name",
        "reservation-id",
        "client-token",
        "architecture",
        "tenancy",
        "launch-time",
        "iam-instance-profile.arn",
        "instance.group-id",
        "spot-instance-request-id",
        "state-reason-code",
        "capacity-reservation-id",
    ];

    fn tags(&self) -> Option<&Tags> {
        Some(&self.tags)
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        let launch = &self.launch;
        match name {
            "instance-id" => test(&self.id),
            "instance-state-name" => test(self.state.as_str()),
            "instance-state-code" => test(&self.state.code().to_string()),
            "instance-type" => test(self.facts.name),
            // There is no word for on-demand.
            "instance-lifecycle" => self.capacity_type == CapacityType::Spot && test("spot"),
            "availability-zone" => test(&self.zone.name),
            "availability-zone-id" => test(&self.zone.id),
            "subnet-id" => test(&self.subnet_id),
            "vpc-id" => test(&self.vpc_id),
            "image-id" => test(&launch.image.id),
            "private-dns-name" | "network-interface.private-dns-name" => {
                test(&self.private_dns_name)
            }
            "private-ip-address" => self.private_ip.is_some_and(|ip| test(&ip.to_string())),
            "reservation-id" => test(&launch.reservation_id),
            "client-token" => test(&launch.client_token),
            "architecture" => test(instance_type::architecture(self.facts)),
            "tenancy" => test(launch.spec.tenancy.as_deref().unwrap_or("default")),
            "launch-time" => test(&iso(self.launched_ms)),
            "iam-instance-profile.arn" => launch.profile.as_ref().is_some_and(|(arn, _)| test(arn)),
            "instance.group-id" => launch.groups.iter().any(|(id, _)| test(id)),
            "spot-instance-request-id" => self.spot_request_id.as_deref().is_some_and(test),
            "state-reason-code" => self.state_reason.is_some_and(|(code, _)| test(code)),
            _ => false,
        }
    }
}

/// The instances that a request names, if it names any.
///
/// # Errors
/// An id that no visible instance has fails the whole call, as in EC2.
pub(super) fn named(world: &World, ids: &[&str]) -> Result<Vec<Arc<Instance>>, ApiError> {
    let mut found = Vec::with_capacity(ids.len());
    let mut unknown = Vec::new();
    for id in ids {
        match world
            .instances
            .get(id)
            .filter(|instance| instance.visible_ms <= world.now_ms)
        {
            Some(instance) => found.push(instance.clone()),
            None if id.starts_with("i-") => unknown.push(*id),
            None => {
                return Err(ApiError::new(
                    "InvalidInstanceID.Malformed",
                    format!("Invalid id: \"{id}\""),
                ));
            }
        }
    }
    if unknown.is_empty() {
        return Ok(found);
    }
    let (noun, verb) = if unknown.len() == 1 {
        ("ID", "does")
    } else {
        ("IDs", "do")
    };
    Err(ApiError::new(
        "InvalidInstanceID.NotFound",
        format!(
            "The instance {noun} '{}' {verb} not exist",
            unknown.join(", ")
        ),
    ))
}

pub(super) fn describe(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Instance>(call.params, true)?;
    let ids = call.params.texts("InstanceId");
    if !ids.is_empty() && call.params.text("MaxResults").is_some() {
        return Err(ApiError::new(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        ));
    }
    // Without a page size everything comes at once.
    let page = call.page(
        "DescribeInstances",
        Limits {
            default: usize::MAX,
            ..PAGE
        },
    )?;
    let world = call.world();
    let account = world.config.account.clone();
    let mut instances: Vec<Arc<Instance>> = if ids.is_empty() {
        let visible = |instance: &&Arc<Instance>| instance.visible_ms <= world.now_ms;
        let found = world.instances.from(page.start).filter(visible);
        let found = found.filter(|instance| filters.accept(&***instance));
        found.take(page.limit.saturating_add(1)).cloned().collect()
    } else {
        let found = named(&world, &ids)?;
        found
            .into_iter()
            .filter(|instance| filters.accept(&**instance))
            .collect()
    };
    call.rehearse()?;
    // The snapshots are written without holding up everybody else.
    drop(world);
    let token = instances
        .get(page.limit)
        .map(|next| page.token(next.ordinal));
    instances.truncate(page.limit);
    Ok(call.reply(|xml| {
        let reservations =
            instances.chunk_by(|a, b| a.launch.reservation_id == b.launch.reservation_id);
        xml.list("reservationSet", reservations, |xml, instances| {
            write_reservation(xml, instances, &account);
        });
        xml.optional("nextToken", token.as_deref());
    }))
}

/// A reservation with its instances, which is also the answer of RunInstances.
pub(super) fn write_reservation(xml: &mut Xml, instances: &[Arc<Instance>], account: &str) {
    let Some(first) = instances.first() else {
        return;
    };
    xml.text("reservationId", &first.launch.reservation_id);
    xml.text("ownerId", account);
    xml.element("groupSet", |_| {});
    xml.list("instancesSet", instances, |xml, instance| {
        write(xml, instance, account);
    });
}

fn write(xml: &mut Xml, instance: &Instance, account: &str) {
    let launch = &instance.launch;
    let launched = iso(instance.launched_ms);
    xml.text("instanceId", &instance.id);
    xml.text("imageId", &launch.image.id);
    xml.element("instanceState", |xml| {
        xml.value("code", instance.state.code());
        xml.text("name", instance.state.as_str());
    });
    xml.text("privateDnsName", &instance.private_dns_name);
    xml.text("dnsName", "");
    xml.text(
        "reason",
        instance.state_reason.map_or("", |(_, message)| message),
    );
    xml.optional("keyName", launch.spec.key_name.as_deref());
    xml.value("amiLaunchIndex", 0);
    xml.text("instanceType", instance.facts.name);
    xml.text("launchTime", &launched);
    xml.element("placement", |xml| write_placement(xml, instance));
    if launch.image.windows {
        xml.text("platform", "windows");
    }
    let monitoring = if launch.spec.monitoring {
        "enabled"
    } else {
        "disabled"
    };
    xml.element("monitoring", |xml| xml.text("state", monitoring));
    if let Some(address) = instance.private_ip {
        xml.text("subnetId", &instance.subnet_id);
        xml.text("vpcId", &instance.vpc_id);
        xml.value("privateIpAddress", address);
    }
    xml.value("sourceDestCheck", true);
    xml.list("groupSet", &launch.groups, write_group);
    if let Some((code, message)) = instance.state_reason {
        xml.element("stateReason", |xml| {
            xml.text("code", code);
            xml.text("message", message);
        });
    }
    xml.text("architecture", instance_type::architecture(instance.facts));
    xml.text("rootDeviceType", "ebs");
    xml.text("rootDeviceName", launch.image.root_device());
    write_volumes(xml, instance, &launched);
    xml.text("virtualizationType", "hvm");
    if instance.capacity_type == CapacityType::Spot {
        xml.text("instanceLifecycle", "spot");
        xml.optional("spotInstanceRequestId", instance.spot_request_id.as_deref());
    }
    xml.text("clientToken", &launch.client_token);
    tags::write(xml, &instance.tags);
    xml.text("hypervisor", "xen");
    if instance.private_ip.is_some() {
        write_interfaces(xml, instance, account, &launched);
    }
    if let Some((arn, id)) = &launch.profile {
        xml.element("iamInstanceProfile", |xml| {
            xml.text("arn", arn);
            xml.text("id", id);
        });
    }
    xml.value("ebsOptimized", launch.spec.ebs_optimized);
    xml.value("enaSupport", true);
    write_options(xml, instance);
}

fn write_group(xml: &mut Xml, (id, name): &(String, String)) {
    xml.text("groupId", id);
    xml.text("groupName", name);
}

fn write_placement(xml: &mut Xml, instance: &Instance) {
    let spec = &instance.launch.spec;
    xml.text("availabilityZone", &instance.zone.name);
    xml.text("availabilityZoneId", &instance.zone.id);
    xml.text("groupName", "");
    xml.optional("groupId", spec.placement_group.as_deref());
    xml.text("tenancy", spec.tenancy.as_deref().unwrap_or("default"));
    if let Some(partition) = spec.partition {
        xml.value("partitionNumber", partition);
    }
}

/// The id of something that belongs to an instance.
fn part_id(instance: &Instance, prefix: &str, number: usize) -> String {
    ec2_id(
        prefix,
        mix(hash(&instance.id) ^ hash(prefix) ^ number as u64),
    )
}

fn write_volumes(xml: &mut Xml, instance: &Instance, attached: &str) {
    let root = super::super::spec::BlockDevice {
        device: instance.launch.image.root_device().to_owned(),
        delete_on_termination: true,
        ..Default::default()
    };
    let devices = &instance.launch.spec.block_devices;
    let devices = if devices.is_empty() {
        std::slice::from_ref(&root)
    } else {
        devices
    };
    let gone = instance.private_ip.is_none();
    let devices = if gone { &[] } else { devices };
    xml.list(
        "blockDeviceMapping",
        devices.iter().enumerate(),
        |xml, (number, device)| {
            xml.text("deviceName", &device.device);
            xml.element("ebs", |xml| {
                xml.text("volumeId", &part_id(instance, "vol", number));
                xml.text("status", "attached");
                xml.text("attachTime", attached);
                xml.value("deleteOnTermination", device.delete_on_termination);
            });
        },
    );
}

fn write_interfaces(xml: &mut Xml, instance: &Instance, account: &str, attached: &str) {
    let primary = InterfaceSpec::default();
    let interfaces = &instance.launch.spec.interfaces;
    let interfaces = if interfaces.is_empty() {
        std::slice::from_ref(&primary)
    } else {
        interfaces
    };
    xml.list(
        "networkInterfaceSet",
        interfaces.iter().enumerate(),
        |xml, (number, interface)| {
            xml.text("networkInterfaceId", &part_id(instance, "eni", number));
            xml.text("subnetId", &instance.subnet_id);
            xml.text("vpcId", &instance.vpc_id);
            xml.text("ownerId", account);
            xml.text("status", "in-use");
            xml.text(
                "interfaceType",
                interface.kind.as_deref().unwrap_or("interface"),
            );
            xml.value("sourceDestCheck", true);
            // Only the first has the instance's address; the others' do not matter to anybody.
            if number == 0 {
                xml.text("privateDnsName", &instance.private_dns_name);
                if let Some(address) = instance.private_ip {
                    xml.value("privateIpAddress", address);
                }
            }
            xml.list("groupSet", &instance.launch.groups, write_group);
            xml.element("attachment", |xml| {
                xml.text("attachmentId", &part_id(instance, "eni-attach", number));
                xml.value("deviceIndex", interface.device);
                xml.value("networkCardIndex", interface.card);
                xml.text("status", "attached");
                xml.text("attachTime", attached);
                xml.value("deleteOnTermination", true);
            });
        },
    );
}

fn write_options(xml: &mut Xml, instance: &Instance) {
    let spec = &instance.launch.spec;
    xml.element("metadataOptions", |xml| {
        xml.text("state", "applied");
        for (name, default) in [
            ("httpTokens", "optional"),
            ("httpPutResponseHopLimit", "1"),
            ("httpEndpoint", "enabled"),
            ("httpProtocolIpv6", "disabled"),
            ("instanceMetadataTags", "disabled"),
        ] {
            xml.text(
                name,
                spec.metadata_options
                    .get(name)
                    .map_or(default, String::as_str),
            );
        }
    });
    xml.element("enclaveOptions", |xml| xml.value("enabled", spec.enclave));
    xml.element("capacityReservationSpecification", |xml| {
        let preference = spec.reservation_preference.as_deref().unwrap_or("open");
        xml.text("capacityReservationPreference", preference);
    });
    xml.text(
        "platformDetails",
        if instance.launch.image.windows {
            "Windows"
        } else {
            "Linux/UNIX"
        },
    );
    xml.element("privateDnsNameOptions", |xml| {
        xml.text("hostnameType", "ip-name");
        xml.value("enableResourceNameDnsARecord", false);
        xml.value("enableResourceNameDnsAAAARecord", false);
    });
}
