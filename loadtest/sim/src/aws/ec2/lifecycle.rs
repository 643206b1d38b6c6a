//! TerminateInstances, and kinds of resources that the account does not have.

use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::tags::Tags;
use super::super::world::Cause;
use super::super::xml::Xml;
use super::describe_instances::named;
use super::{Call, PAGE};
use crate::aws::instance::InstanceState;

/// Instances of one call.
const TERMINATE_MAX: usize = 1_000;

pub(super) fn terminate(call: &Call<'_>) -> Result<String, ApiError> {
    let ids = call.params.texts("InstanceId");
    if ids.is_empty() {
        return Err(ApiError::missing("InstanceId"));
    }
    if ids.len() > TERMINATE_MAX {
        return Err(ApiError::value(format!(
            "At most {TERMINATE_MAX} instances at a time"
        )));
    }
    let mut world = call.world();
    // One unknown id, and none is terminated.
    named(&world, &ids)?;
    call.rehearse()?;
    let changes: Vec<_> = ids
        .iter()
        .filter_map(|id| Some((*id, world.terminate(id, Cause::User)?)))
        .collect();
    Ok(call.reply(|xml| {
        xml.list("instancesSet", changes, |xml, (id, (before, after))| {
            xml.text("instanceId", id);
            xml.element("currentState", |xml| write_state(xml, after));
            xml.element("previousState", |xml| write_state(xml, before));
        });
    }))
}

fn write_state(xml: &mut Xml, state: InstanceState) {
    xml.value("code", state.code());
    xml.text("name", state.as_str());
}

/// A resource that never exists, with the filters that its kind has.
struct Reservation;

impl Filterable for Reservation {
    const NAMES: &'static [&'static str] = &[
        "state",
        "instance-type",
        "owner-id",
        "availability-zone",
        "availability-zone-id",
        "instance-match-criteria",
        "tenancy",
        "end-date-type",
        "reservation-type",
    ];

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn any(&self, _name: &str, _test: &mut dyn FnMut(&str) -> bool) -> bool {
        false
    }
}

pub(super) fn describe_reservations(call: &Call<'_>) -> Result<String, ApiError> {
    Filters::of::<Reservation>(call.params, true)?;
    call.page(
        "DescribeCapacityReservations",
        super::super::page::Limits { min: 1, ..PAGE },
    )?;
    if let Some(id) = call.params.texts("CapacityReservationId").first() {
        return Err(ApiError::new(
            "InvalidCapacityReservationId.NotFound",
            format!("The capacity reservation ID '{id}' does not exist"),
        ));
    }
    call.rehearse()?;
    Ok(call.reply(|xml| xml.element("capacityReservationSet", |_| {})))
}

/// As [`Reservation`].
struct PlacementGroup;

impl Filterable for PlacementGroup {
    const NAMES: &'static [&'static str] = &[
        "group-name",
        "group-arn",
        "state",
        "strategy",
        "spread-level",
    ];

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn any(&self, _name: &str, _test: &mut dyn FnMut(&str) -> bool) -> bool {
        false
    }
}

pub(super) fn describe_placement_groups(call: &Call<'_>) -> Result<String, ApiError> {
    Filters::of::<PlacementGroup>(call.params, true)?;
    let (ids, names) = (call.params.texts("GroupId"), call.params.texts("GroupName"));
    if let Some(name) = ids.iter().chain(&names).next() {
        return Err(ApiError::new(
            "InvalidPlacementGroup.Unknown",
            format!("The Placement Group '{name}' is unknown."),
        ));
    }
    call.rehearse()?;
    Ok(call.reply(|xml| xml.element("placementGroupSet", |_| {})))
}
