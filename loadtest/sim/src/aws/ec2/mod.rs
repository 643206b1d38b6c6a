//! EC2: Query requests, XML answers, API version 2016-11-15.
//!
//! One function per action, in files by subject. Each checks its parameters first, then
//! `DryRun` (a rehearsal reports bad parameters, too), then looks at or changes the world.

mod allocation;
mod describe_instances;
mod fleet;
mod image;
mod instance_type;
mod launch;
mod lifecycle;
mod network;
mod run;
mod spot;
mod status;
mod tagging;
pub(crate) mod template;

use std::sync::MutexGuard;

use super::Sim;
use super::error::ApiError;
use super::page::{Limits, Page};
use super::query::Params;
use super::world::{Known, World};
use super::xml::Xml;

const NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";

/// Bounds of most paginated calls.
const PAGE: Limits = Limits {
    min: 5,
    max: 1_000,
    default: 1_000,
};

/// One request.
pub(crate) struct Call<'a> {
    pub(crate) sim: &'a Sim,
    pub(crate) action: &'a str,
    pub(crate) params: &'a Params,
    pub(crate) request_id: &'a str,
}

impl Call<'_> {
    fn world(&self) -> MutexGuard<'_, World> {
        self.sim.world()
    }

    /// The document of a successful answer.
    fn reply(&self, content: impl FnOnce(&mut Xml)) -> String {
        Xml::document(&format!("{}Response", self.action), NAMESPACE, |xml| {
            xml.text("requestId", self.request_id);
            content(xml);
        })
    }

    /// Ends a rehearsal, to be called when everything that can be checked was checked.
    fn rehearse(&self) -> Result<(), ApiError> {
        match self.params.flag("DryRun")? {
            Some(true) => Err(ApiError::dry_run()),
            _ => Ok(()),
        }
    }

    fn page(&self, kind: &'static str, limits: Limits) -> Result<Page, ApiError> {
        Page::of(kind, self.params, limits)
    }

    /// Runs a change at most once per client token.
    fn once(
        &self,
        action: &'static str,
        change: impl FnOnce(&mut World) -> Result<String, ApiError>,
    ) -> Result<String, ApiError> {
        let mut world = self.world();
        let token = self
            .params
            .text("ClientToken")
            .filter(|token| !token.is_empty());
        let Some(token) = token else {
            return change(&mut world);
        };
        let digest = self.params.digest(&["ClientToken"]);
        match world.tokens.look_up(action, token, digest) {
            Known::Same(answer) => Ok(answer.as_ref().to_owned()),
            Known::Different => Err(ApiError::new(
                "IdempotentParameterMismatch",
                "The client token has already been used with different parameters.",
            )),
            Known::New => {
                let answer = change(&mut world)?;
                world.tokens.remember(action, token, digest, &answer);
                Ok(answer)
            }
        }
    }
}

/// Answers a request.
///
/// # Errors
/// The error to be written in EC2's form.
pub(crate) fn answer(call: &Call<'_>) -> Result<String, ApiError> {
    match call.action {
        "DescribeInstanceTypes" => instance_type::describe(call),
        "DescribeInstanceTypeOfferings" => instance_type::describe_offerings(call),
        "DescribeAvailabilityZones" => network::describe_zones(call),
        "DescribeSubnets" => network::describe_subnets(call),
        "DescribeSecurityGroups" => network::describe_groups(call),
        "DescribeImages" => image::describe(call),
        "DescribeSpotPriceHistory" => spot::describe_price_history(call),
        "DescribeLaunchTemplates" => template::describe(call),
        "CreateLaunchTemplate" => template::create(call),
        "DeleteLaunchTemplate" => template::delete(call),
        "CreateFleet" => fleet::create(call),
        "RunInstances" => run::run(call),
        "DescribeInstances" => describe_instances::describe(call),
        "DescribeInstanceStatus" => status::describe(call),
        "TerminateInstances" => lifecycle::terminate(call),
        "CreateTags" => tagging::create(call),
        "DeleteTags" => tagging::delete(call),
        "DescribeCapacityReservations" => lifecycle::describe_reservations(call),
        "DescribePlacementGroups" => lifecycle::describe_placement_groups(call),
        other => Err(ApiError::new(
            "InvalidAction",
            format!("The action {other} is not valid for this web service."),
        )),
    }
}

/// The document of an error.
pub(crate) fn error_document(error: &ApiError, request_id: &str) -> String {
    Xml::document("Response", "", |xml| {
        xml.element("Errors", |xml| {
            xml.element("Error", |xml| {
                xml.text("Code", &error.code);
                xml.text("Message", &error.message);
            });
        });
        xml.text("RequestID", request_id);
    })
}
