//! Making instances: what both CreateFleet and RunInstances do for one pool.

use std::collections::HashMap;
use std::sync::Arc;

use millwright_ec2_catalogue::{TypeFacts, by_name};

use super::super::capacity::CapacityType;
use super::super::clock::millis;
use super::super::error::ApiError;
use super::super::image::Image;
use super::super::instance::{Health, Instance, InstanceState, Launch, TemplateRef};
use super::super::network::Zone;
use super::super::spec::LaunchSpec;
use super::super::world::World;
use super::{image, instance_type, network, spot};

/// Where a request would like an instance. Absent members come from the template.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wish<'a> {
    pub(super) instance_type: Option<&'a str>,
    pub(super) subnet_id: Option<&'a str>,
    pub(super) zone: Option<&'a str>,
    pub(super) image_id: Option<&'a str>,
}

/// A pool that a request may launch into, checked.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) facts: &'static TypeFacts,
    pub(super) zone: Zone,
    pub(super) subnet_id: Arc<str>,
    pub(super) vpc_id: Arc<str>,
    pub(super) capacity_type: CapacityType,
    /// Nano-dollars per hour.
    pub(super) price: u64,
    image: Arc<Image>,
    spec: Arc<LaunchSpec>,
}

/// Checks one wish against the world.
///
/// # Errors
/// The error that EC2 gives for this pool. `unsupported` is the code for a type that its zone
/// does not offer, which differs between the two calls.
pub(super) fn resolve(
    world: &World,
    spec: &Arc<LaunchSpec>,
    wish: Wish<'_>,
    capacity_type: CapacityType,
    unsupported: &'static str,
) -> Result<Target, ApiError> {
    let name = wish
        .instance_type
        .or(spec.instance_type.as_deref())
        .ok_or_else(|| ApiError::missing("InstanceType"))?;
    let facts = by_name(name)
        .ok_or_else(|| ApiError::value(format!("Invalid value '{name}' for InstanceType.")))?;
    let subnet_id = wish
        .subnet_id
        .or_else(|| {
            spec.interfaces
                .iter()
                .find_map(|interface| interface.subnet_id.as_deref())
        })
        .ok_or_else(|| ApiError::new("VPCIdNotSpecified", "No default VPC for this user"))?;
    let subnet = world
        .network
        .subnets
        .get(subnet_id)
        .ok_or_else(|| subnet_not_found(subnet_id))?;
    let zone = &subnet.zone;
    if wish.zone.is_some_and(|wished| wished != &*zone.name) {
        return Err(ApiError::value(format!(
            "The subnet '{subnet_id}' is not in the Availability Zone that was requested"
        )));
    }
    let price = spot::price(world, facts, zone, capacity_type).ok_or_else(|| {
        ApiError::new(
            unsupported,
            format!(
                "Your requested instance type ({name}) is not supported in your requested \
                 Availability Zone ({}).",
                zone.name
            ),
        )
    })?;
    let image = image_of(world, spec, wish.image_id, facts)?;
    check_groups(world, spec, subnet_id, &subnet.vpc_id)?;
    profile_of(world, spec)?;
    if capacity_type == CapacityType::OnDemand && spec.tags.contains_key("spot-instances-request") {
        return Err(ApiError::value(
            "You cannot specify tags for Spot instances requests if there are no Spot instances \
             requests being created by the request.",
        ));
    }
    Ok(Target {
        facts,
        zone: zone.clone(),
        subnet_id: subnet.id.clone(),
        vpc_id: subnet.vpc_id.clone(),
        capacity_type,
        price,
        image,
        spec: spec.clone(),
    })
}

pub(super) fn subnet_not_found(id: &str) -> ApiError {
    ApiError::new(
        "InvalidSubnetID.NotFound",
        format!("The subnet ID '{id}' does not exist"),
    )
}

fn image_of(
    world: &World,
    spec: &LaunchSpec,
    wished: Option<&str>,
    facts: &TypeFacts,
) -> Result<Arc<Image>, ApiError> {
    let id = wished
        .or(spec.image_id.as_deref())
        .ok_or_else(|| ApiError::missing("ImageId"))?;
    image::check_id(id)?;
    let image = world
        .images
        .by_id
        .get(id)
        .ok_or_else(|| image::not_found(id))?;
    let architecture = instance_type::architecture(facts);
    if image.architecture != architecture {
        return Err(ApiError::value(format!(
            "The architecture '{architecture}' of the specified instance type does not match the \
             architecture '{}' of the specified AMI.",
            image.architecture
        )));
    }
    Ok(image.clone())
}

/// The groups exist, and are in the VPC of the subnet.
fn check_groups(
    world: &World,
    spec: &LaunchSpec,
    subnet_id: &str,
    vpc_id: &str,
) -> Result<(), ApiError> {
    for id in spec.all_groups() {
        let group = world
            .network
            .groups
            .get(id)
            .ok_or_else(|| network::group_not_found(id))?;
        if &*group.vpc_id != vpc_id {
            return Err(ApiError::new(
                "InvalidParameter",
                format!("Security group {id} and subnet {subnet_id} belong to different networks."),
            ));
        }
    }
    Ok(())
}

/// ARN and id of the instance profile that the parameters name.
fn profile_of(world: &World, spec: &LaunchSpec) -> Result<Option<(String, String)>, ApiError> {
    let Some(wanted) = &spec.instance_profile else {
        return Ok(None);
    };
    let name = wanted.rsplit('/').next().unwrap_or(wanted);
    let profile = world
        .iam
        .visible_profile(name, world.now_ms)
        .ok_or_else(|| {
            ApiError::value(format!(
                "Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM \
             Instance Profile name"
            ))
        })?;
    Ok(Some((profile.arn.clone(), profile.id.clone())))
}

/// What the pools can give, while several are tried in one request.
#[derive(Debug, Default)]
pub(super) struct Budget {
    addresses: HashMap<Arc<str>, u32>,
    vcpus: HashMap<CapacityType, Option<u32>>,
}

impl Budget {
    /// How many of `wanted` instances a pool gives, and the error if that is not all.
    pub(super) fn grant(
        &mut self,
        world: &mut World,
        target: &Target,
        wanted: u32,
    ) -> (u32, Option<ApiError>) {
        let (name, zone, capacity_type) =
            (target.facts.name, &target.zone.name, target.capacity_type);
        if let Some((code, message)) = world.capacity.scripted_error(name, zone, capacity_type) {
            return (0, Some(ApiError::new(code, message)));
        }
        if target.spec.reservation_preference.as_deref() == Some("capacity-reservations-only") {
            let error = ApiError::new(
                "ReservationCapacityExceeded",
                "The requested reservation does not have sufficient compatible and available \
                 capacity for this request.",
            );
            return (0, Some(error));
        }
        let free = world.capacity.free(name, zone, capacity_type);
        let addresses = self
            .addresses
            .entry(target.subnet_id.clone())
            .or_insert_with(|| {
                let subnet = world.network.subnets.get(&target.subnet_id);
                subnet.map_or(0, super::super::network::Subnet::available_addresses)
            });
        let vcpus = self
            .vcpus
            .entry(capacity_type)
            .or_insert_with(|| world.vcpus_left(capacity_type));
        let by_quota = vcpus.map(|left| left / target.facts.vcpu.max(1));
        let granted = wanted
            .min(free.unwrap_or(u32::MAX))
            .min(*addresses)
            .min(by_quota.unwrap_or(u32::MAX));
        let error = (granted < wanted).then(|| {
            if by_quota == Some(granted) {
                quota_exceeded(capacity_type)
            } else if free == Some(granted) {
                no_capacity(target)
            } else {
                no_addresses(&target.subnet_id)
            }
        });
        *addresses -= granted;
        if let Some(left) = vcpus {
            *left -= granted * target.facts.vcpu;
        }
        (granted, error)
    }
}

fn quota_exceeded(capacity_type: CapacityType) -> ApiError {
    match capacity_type {
        CapacityType::OnDemand => ApiError::new(
            "VcpuLimitExceeded",
            "You have requested more vCPU capacity than your current vCPU limit allows for the \
             instance bucket that the specified instance type belongs to.",
        ),
        CapacityType::Spot => ApiError::new(
            "MaxSpotInstanceCountExceeded",
            "Max spot instance count exceeded",
        ),
    }
}

fn no_capacity(target: &Target) -> ApiError {
    let message = match target.capacity_type {
        CapacityType::OnDemand => format!(
            "We currently do not have sufficient {} capacity in the Availability Zone you \
             requested ({}). Our system will be working on provisioning additional capacity.",
            target.facts.name, target.zone.name
        ),
        CapacityType::Spot => {
            "There is no Spot capacity available that matches your request.".to_owned()
        }
    };
    ApiError::new("InsufficientInstanceCapacity", message)
}

fn no_addresses(subnet_id: &str) -> ApiError {
    ApiError::new(
        "InsufficientFreeAddressesInSubnet",
        format!(
            "There are not enough free addresses in subnet '{subnet_id}' to satisfy the requested \
             number of instances."
        ),
    )
}

/// Who launches.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    pub(super) fleet_id: Option<String>,
    pub(super) template: Option<TemplateRef>,
    pub(super) client_token: String,
}

/// Makes instances that [`Budget::grant`] granted. Gives them in order.
pub(super) fn launch(
    world: &mut World,
    target: &Target,
    origin: Origin,
    count: u32,
) -> Vec<Arc<Instance>> {
    let profile = profile_of(world, &target.spec).ok().flatten();
    let mut tags = target
        .spec
        .tags
        .get("instance")
        .cloned()
        .unwrap_or_default();
    if let Some(fleet) = &origin.fleet_id {
        tags.insert("aws:ec2:fleet-id".to_owned(), fleet.clone());
    }
    if let Some(template) = &origin.template {
        tags.insert("aws:ec2launchtemplate:id".to_owned(), template.id.clone());
        tags.insert(
            "aws:ec2launchtemplate:version".to_owned(),
            template.version.to_string(),
        );
    }
    let shared = Arc::new(Launch {
        groups: groups_of(world, target),
        spec: target.spec.clone(),
        image: target.image.clone(),
        template: origin.template,
        fleet_id: origin.fleet_id,
        reservation_id: world.ids.ec2("r"),
        profile,
        client_token: origin.client_token,
    });
    world.capacity.take(
        target.facts.name,
        &target.zone.name,
        target.capacity_type,
        count,
    );
    let made: Vec<_> = (0..count)
        .map_while(|_| {
            let address = world.network.take_address(&target.subnet_id)?;
            let spot = target.capacity_type == CapacityType::Spot;
            Some(Instance {
                id: world.ids.ec2("i").into(),
                ordinal: world.instances.next_ordinal(),
                facts: target.facts,
                zone: target.zone.clone(),
                subnet_id: target.subnet_id.clone(),
                vpc_id: target.vpc_id.clone(),
                capacity_type: target.capacity_type,
                spot_request_id: spot.then(|| world.ids.ec2("sir")),
                state: InstanceState::Pending,
                state_reason: None,
                launched_ms: world.now_ms,
                visible_ms: world.now_ms + millis(world.config.timing.read_lag),
                private_ip: Some(address),
                private_dns_name: dns_name(&world.config.region, address).into(),
                tags: tags.clone(),
                health: Health::default(),
                launch: shared.clone(),
            })
        })
        .collect();
    made.into_iter()
        .filter_map(|instance| {
            let id = instance.id.clone();
            world.admit(instance);
            world.instances.get(&id).cloned()
        })
        .collect()
}

/// Id and name of the primary interface's groups.
fn groups_of(world: &World, target: &Target) -> Vec<(String, String)> {
    let primary = target.spec.interfaces.first();
    let ids = match primary {
        Some(interface) if !interface.security_group_ids.is_empty() => {
            &interface.security_group_ids
        }
        _ => &target.spec.security_group_ids,
    };
    ids.iter()
        .filter_map(|id| world.network.groups.get(id))
        .map(|group| (group.id.clone(), group.name.clone()))
        .collect()
}

/// us-east-1 has a domain of its own, older than the regions.
fn dns_name(region: &str, address: std::net::Ipv4Addr) -> String {
    let host = address.to_string().replace('.', "-");
    if region == "us-east-1" {
        format!("ip-{host}.ec2.internal")
    } else {
        format!("ip-{host}.{region}.compute.internal")
    }
}
