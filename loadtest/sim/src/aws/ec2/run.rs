//! RunInstances: the controller only rehearses it, but it launches, too.

use std::sync::Arc;

use super::super::capacity::CapacityType;
use super::super::error::{ApiError, Service};
use super::super::instance::TemplateRef;
use super::super::spec::LaunchSpec;
use super::describe_instances::write_reservation;
use super::launch::{Budget, Origin, Wish, launch, resolve};
use super::{Call, template};

pub(super) fn run(call: &Call<'_>) -> Result<String, ApiError> {
    let params = call.params;
    let count = |name: &str| {
        params
            .number::<u32>(name)?
            .ok_or_else(|| ApiError::missing(name))
    };
    let (at_least, at_most) = (count("MinCount")?, count("MaxCount")?);
    if at_least == 0 || at_least > at_most || at_most > 1_000 {
        return Err(ApiError::value("Invalid value for MinCount or MaxCount"));
    }
    let request = LaunchSpec::parse(params)?;
    let capacity_type = match params.text("InstanceMarketOptions.MarketType") {
        None => CapacityType::OnDemand,
        Some("spot") => CapacityType::Spot,
        Some(other) => return Err(ApiError::value(format!("Invalid market type: {other}"))),
    };
    call.once("RunInstances", |world| {
        let named = params.get("LaunchTemplate");
        let (spec, template) = match named {
            None => (request, None),
            Some(named) => {
                let found = template::find(world, named)?;
                template::check_version(named)?;
                let reference = TemplateRef {
                    id: found.id.clone(),
                    name: found.name.clone(),
                    version: template::VERSION,
                };
                (found.spec.overlaid_by(&request), Some(reference))
            }
        };
        let wish = Wish {
            subnet_id: params.text("SubnetId"),
            zone: params.text("Placement.AvailabilityZone"),
            ..Wish::default()
        };
        let target = resolve(world, &Arc::new(spec), wish, capacity_type, "Unsupported")?;
        call.rehearse()?;
        let (granted, error) = Budget::default().grant(world, &target, at_most);
        if granted < at_least {
            // Lack of capacity is a fault of the server, unlike every other refusal.
            return Err(error.map_or_else(
                || ApiError::new("InternalError", "nothing was granted").with_status(500),
                |error| match &*error.code {
                    "InsufficientInstanceCapacity" => error.with_status(500),
                    _ => error,
                },
            ));
        }
        if let Some(throttle) = &world.config.clone().throttle
            && !world
                .buckets
                .admit_instances(throttle, granted, world.now_ms)
        {
            return Err(ApiError::throttled(Service::Ec2));
        }
        let client_token = params.text("ClientToken").unwrap_or_default().to_owned();
        let origin = Origin {
            fleet_id: None,
            template,
            client_token,
        };
        let instances = launch(world, &target, origin, granted);
        Ok(call.reply(|xml| write_reservation(xml, &instances, &world.config.account)))
    })
}
