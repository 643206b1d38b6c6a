//! CreateFleet, type instant.
//!
//! A request names pools (launch templates with overrides) and a number of instances. The
//! pools are ranked by the allocation strategy and tried in order; what a pool cannot give is
//! reported as an error of that pool in an answer that is otherwise a success, and the next
//! pool is tried for the rest.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::capacity::CapacityType;
use super::super::error::ApiError;
use super::super::instance::{Instance, TemplateRef};
use super::super::query::Params;
use super::super::spec::LaunchSpec;
use super::super::tags;
use super::super::world::World;
use super::super::xml::Xml;
use super::allocation::{Candidate, Strategy, rank, share};
use super::launch::{Budget, Origin, Target, Wish, launch, resolve, subnet_not_found};
use super::{Call, template};

/// Overrides of one request (EC2 Fleet quotas).
const OVERRIDES_MAX: usize = 300;
/// Instances of one instant fleet.
const CAPACITY_MAX: u32 = 10_000;

/// One override of one launch template.
struct Pool<'a> {
    template: TemplateRef,
    spec: Arc<LaunchSpec>,
    over: &'a Params,
    wish: Wish<'a>,
    priority: Option<f64>,
}

/// A part of the request with one capacity type.
struct Part {
    capacity_type: CapacityType,
    count: u32,
    strategy: Strategy,
    /// Launch at least so many, or none.
    at_least: u32,
    single_type: bool,
    single_zone: bool,
}

/// What a part comes to: instances to be launched, and pools that failed.
#[derive(Default)]
struct Plan {
    grants: Vec<(usize, Target, u32)>,
    errors: Vec<(usize, ApiError)>,
}

impl Plan {
    fn granted(&self) -> u32 {
        self.grants.iter().map(|(_, _, count)| count).sum()
    }
}

pub(super) fn create(call: &Call<'_>) -> Result<String, ApiError> {
    let params = call.params;
    if params.text("Type") != Some("instant") {
        return Err(ApiError::value(
            "The simulator knows fleets of type instant only",
        ));
    }
    let parts = parts(params)?;
    call.once("CreateFleet", |world| {
        let pools = pools(world, params)?;
        call.rehearse()?;
        let total = parts.iter().map(|part| part.count).sum();
        if let Some(throttle) = &world.config.clone().throttle
            && !world.buckets.admit_instances(throttle, total, world.now_ms)
        {
            return Err(ApiError::throttled(super::super::error::Service::Ec2));
        }
        let fleet_id = format!("fleet-{}", world.ids.uuid());
        let (mut launched, mut errors) = (Vec::new(), Vec::new());
        for part in &parts {
            let mut plan = plan(world, &pools, part);
            if plan.granted() < part.at_least {
                plan.grants.clear();
            }
            for (index, target, count) in plan.grants {
                let Some(pool) = pools.get(index) else {
                    continue;
                };
                let origin = Origin {
                    fleet_id: Some(fleet_id.clone()),
                    template: Some(pool.template.clone()),
                    client_token: params.text("ClientToken").unwrap_or_default().to_owned(),
                };
                launched.push((pool, launch(world, &target, origin, count)));
            }
            let lifecycle = part.capacity_type;
            errors.extend(
                plan.errors
                    .into_iter()
                    .map(|(index, error)| (index, lifecycle, error)),
            );
        }
        Ok(call.reply(|xml| {
            xml.text("fleetId", &fleet_id);
            xml.list("errorSet", errors, |xml, (index, lifecycle, error)| {
                write_pool(xml, pools.get(index));
                xml.text("lifecycle", lifecycle.as_str());
                xml.text("errorCode", &error.code);
                xml.text("errorMessage", &error.message);
            });
            xml.list("fleetInstanceSet", launched, |xml, (pool, instances)| {
                write_instances(xml, pool, &instances);
            });
        }))
    })
}

/// How many instances of which capacity type, and by which strategy.
fn parts(params: &Params) -> Result<Vec<Part>, ApiError> {
    let target = "TargetCapacitySpecification";
    let number = |name: &str| params.number::<u32>(&format!("{target}.{name}"));
    let total = number("TotalTargetCapacity")?
        .ok_or_else(|| ApiError::missing("TargetCapacitySpecification.TotalTargetCapacity"))?;
    if !(1..=CAPACITY_MAX).contains(&total) {
        return Err(ApiError::value(format!(
            "TotalTargetCapacity must be between 1 and {CAPACITY_MAX}"
        )));
    }
    let (on_demand, spot) = (
        number("OnDemandTargetCapacity")?.unwrap_or(0),
        number("SpotTargetCapacity")?.unwrap_or(0),
    );
    let rest = total
        .checked_sub(on_demand.saturating_add(spot))
        .ok_or_else(|| {
            ApiError::value("The parts of the target capacity are more than the total")
        })?;
    let (on_demand, spot) = match params.text(&format!("{target}.DefaultTargetCapacityType")) {
        None | Some("on-demand") => (on_demand + rest, spot),
        Some("spot") => (on_demand, spot + rest),
        Some(other @ ("capacity-block" | "reserved-capacity")) => {
            return Err(ApiError::new(
                "UnfulfillableCapacity",
                format!("There is no {other} in this account"),
            ));
        }
        Some(other) => {
            return Err(ApiError::value(format!(
                "Invalid default target capacity type: {other}"
            )));
        }
    };
    [
        (CapacityType::OnDemand, on_demand, "OnDemandOptions"),
        (CapacityType::Spot, spot, "SpotOptions"),
    ]
    .into_iter()
    .filter(|(_, count, _)| *count > 0)
    .map(|(capacity_type, count, options)| {
        let flag = |name: &str| params.flag(&format!("{options}.{name}"));
        Ok(Part {
            capacity_type,
            count,
            strategy: params
                .text(&format!("{options}.AllocationStrategy"))
                .unwrap_or("lowest-price")
                .parse()?,
            at_least: params
                .number(&format!("{options}.MinTargetCapacity"))?
                .unwrap_or(0),
            single_type: flag("SingleInstanceType")?.unwrap_or(false),
            single_zone: flag("SingleAvailabilityZone")?.unwrap_or(false),
        })
    })
    .collect()
}

/// The pools of a request, in its order.
///
/// # Errors
/// What EC2 refuses as a whole: unknown templates and subnets, too many or equal pools.
fn pools<'a>(world: &World, params: &'a Params) -> Result<Vec<Pool<'a>>, ApiError> {
    static NONE: std::sync::LazyLock<Params> = std::sync::LazyLock::new(Params::default);
    let request_tags = tags::specifications(params)?;
    let configs = params.list("LaunchTemplateConfigs");
    if configs.is_empty() {
        return Err(ApiError::missing("LaunchTemplateConfigs"));
    }
    let mut pools = Vec::new();
    for config in configs {
        let Some(named) = config.get("LaunchTemplateSpecification") else {
            return Err(ApiError::missing("LaunchTemplateSpecification"));
        };
        let found = template::find(world, named)?;
        template::check_version(named)?;
        let over = LaunchSpec {
            tags: request_tags.clone(),
            ..LaunchSpec::default()
        };
        let spec = Arc::new(found.spec.overlaid_by(&over));
        let reference = TemplateRef {
            id: found.id.clone(),
            name: found.name.clone(),
            version: template::VERSION,
        };
        let mut overrides = config.list("Overrides");
        if overrides.is_empty() {
            overrides.push(&NONE);
        }
        for over in overrides {
            pools.push(pool(world, &reference, &spec, over)?);
        }
    }
    if pools.len() > OVERRIDES_MAX {
        return Err(ApiError::value(format!(
            "Your request contains more than the maximum allowed number of launch template \
             overrides ({OVERRIDES_MAX})"
        )));
    }
    let mut seen = HashSet::new();
    let zone = |pool: &Pool<'_>| {
        let subnet = pool
            .wish
            .subnet_id
            .and_then(|id| world.network.subnets.get(id));
        subnet.map(|subnet| subnet.zone.name.clone())
    };
    if pools
        .iter()
        .any(|pool| !seen.insert((pool.wish.instance_type, zone(pool))))
    {
        return Err(ApiError::new(
            "InvalidFleetConfig",
            "The fleet configuration contains duplicate instance pools.",
        ));
    }
    Ok(pools)
}

fn pool<'a>(
    world: &World,
    template: &TemplateRef,
    spec: &Arc<LaunchSpec>,
    over: &'a Params,
) -> Result<Pool<'a>, ApiError> {
    if over.get("InstanceRequirements").is_some() || over.get("WeightedCapacity").is_some() {
        return Err(ApiError::value(
            "The simulator knows neither InstanceRequirements nor WeightedCapacity",
        ));
    }
    let subnet_id = over.text("SubnetId");
    if let Some(id) = subnet_id.filter(|id| !world.network.subnets.contains_key(*id)) {
        return Err(subnet_not_found(id));
    }
    Ok(Pool {
        template: template.clone(),
        spec: spec.clone(),
        over,
        wish: Wish {
            instance_type: over.text("InstanceType"),
            subnet_id,
            zone: over.text("AvailabilityZone"),
            image_id: over.text("ImageId"),
        },
        priority: over.number("Priority")?,
    })
}

/// Decides what a part gets from which pools. Changes nothing but scripted errors' counts.
fn plan(world: &mut World, pools: &[Pool<'_>], part: &Part) -> Plan {
    let mut invalid = Vec::new();
    let mut targets: Vec<Option<Target>> = Vec::with_capacity(pools.len());
    for (index, pool) in pools.iter().enumerate() {
        let resolved = resolve(
            world,
            &pool.spec,
            pool.wish,
            part.capacity_type,
            "InvalidFleetConfiguration",
        );
        targets.push(resolved.map_err(|error| invalid.push((index, error))).ok());
    }
    let mut candidates: Vec<Candidate> = targets
        .iter()
        .enumerate()
        .filter_map(|(index, target)| {
            let target = target.as_ref()?;
            Some(Candidate {
                index,
                price: target.price,
                priority: pools.get(index)?.priority,
                depth: world.capacity.depth(
                    target.facts.name,
                    &target.zone.name,
                    part.capacity_type,
                ),
            })
        })
        .collect();
    rank(part.strategy, &mut candidates);
    let mut best = Plan::default();
    for group in groups(part, &candidates, &targets) {
        let plan = try_pools(world, part, &group, &targets);
        let full = plan.granted() >= part.count;
        if plan.granted() > best.granted() || best.grants.is_empty() {
            best = plan;
        }
        if full {
            break;
        }
    }
    best.errors.extend(invalid);
    best
}

/// Pools that may serve the part together: all, or those of one type, or of one zone.
fn groups(
    part: &Part,
    candidates: &[Candidate],
    targets: &[Option<Target>],
) -> Vec<Vec<Candidate>> {
    let mut groups: Vec<((&str, &str), Vec<Candidate>)> = Vec::new();
    for candidate in candidates {
        let Some(Some(target)) = targets.get(candidate.index) else {
            continue;
        };
        let key = (
            if part.single_type {
                target.facts.name
            } else {
                ""
            },
            if part.single_zone {
                &*target.zone.name
            } else {
                ""
            },
        );
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(*candidate),
            None => groups.push((key, vec![*candidate])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Tries pools in order until the part has what it wants.
fn try_pools(
    world: &mut World,
    part: &Part,
    candidates: &[Candidate],
    targets: &[Option<Target>],
) -> Plan {
    let (mut budget, mut plan, mut left) = (Budget::default(), Plan::default(), part.count);
    let share = share(part.strategy, part.count, candidates.len());
    for candidate in candidates {
        if left == 0 {
            break;
        }
        let Some(Some(target)) = targets.get(candidate.index) else {
            continue;
        };
        let (granted, error) = budget.grant(world, target, left.min(share));
        left -= granted;
        if granted > 0 {
            plan.grants.push((candidate.index, target.clone(), granted));
        }
        plan.errors
            .extend(error.map(|error| (candidate.index, error)));
    }
    plan
}

fn write_pool(xml: &mut Xml, pool: Option<&Pool<'_>>) {
    let Some(pool) = pool else { return };
    xml.element("launchTemplateAndOverrides", |xml| {
        xml.element("launchTemplateSpecification", |xml| {
            xml.text("launchTemplateId", &pool.template.id);
            xml.value("version", pool.template.version);
        });
        xml.element("overrides", |xml| {
            for (name, member) in [
                ("instanceType", "InstanceType"),
                ("maxPrice", "MaxPrice"),
                ("subnetId", "SubnetId"),
                ("availabilityZone", "AvailabilityZone"),
                ("priority", "Priority"),
                ("imageId", "ImageId"),
            ] {
                xml.optional(name, pool.over.text(member));
            }
        });
    });
}

fn write_instances(xml: &mut Xml, pool: &Pool<'_>, instances: &[Arc<Instance>]) {
    write_pool(xml, Some(pool));
    if let Some(first) = instances.first() {
        xml.text("lifecycle", first.capacity_type.as_str());
        xml.texts(
            "instanceIds",
            instances.iter().map(|instance| &*instance.id),
        );
        xml.text("instanceType", first.facts.name);
        if first.launch.image.windows {
            xml.text("platform", "windows");
        }
    }
}
