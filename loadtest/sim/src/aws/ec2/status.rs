//! DescribeInstanceStatus.

use std::sync::Arc;

use super::super::clock::iso;
use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::instance::{Instance, InstanceState};
use super::super::tags::Tags;
use super::super::xml::Xml;
use super::describe_instances::named;
use super::{Call, PAGE};

/// An instance as this call sees it.
struct Status(Arc<Instance>);

impl Status {
    fn system(&self) -> &'static str {
        summary(&self.0, self.0.health.system_impaired_ms)
    }

    fn instance(&self) -> &'static str {
        summary(&self.0, self.0.health.instance_impaired_ms)
    }
}

fn summary(instance: &Instance, impaired_ms: Option<u64>) -> &'static str {
    match (instance.state, impaired_ms) {
        (InstanceState::Pending, _) => "initializing",
        (InstanceState::Running, Some(_)) => "impaired",
        (InstanceState::Running, None) => "ok",
        _ => "not-applicable",
    }
}

impl Filterable for Status {
    const NAMES: &'static [&'static str] = &[
        "availability-zone",
        "availability-zone-id",
        "event.code",
        "event.description",
        "instance-state-name",
        "instance-state-code",
        "instance-status.status",
        "instance-status.reachability",
        "system-status.status",
        "system-status.reachability",
    ];

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        let reachability = |status| {
            if status == "impaired" {
                "failed"
            } else {
                "passed"
            }
        };
        let health = &self.0.health;
        match name {
            "availability-zone" => test(&self.0.zone.name),
            "availability-zone-id" => test(&self.0.zone.id),
            "event.code" => health.events.iter().any(|(code, _, _)| test(code)),
            "event.description" => health.events.iter().any(|(_, text, _)| test(text)),
            "instance-state-name" => test(self.0.state.as_str()),
            "instance-state-code" => test(&self.0.state.code().to_string()),
            "instance-status.status" => test(self.instance()),
            "instance-status.reachability" => test(reachability(self.instance())),
            "system-status.status" => test(self.system()),
            "system-status.reachability" => test(reachability(self.system())),
            _ => false,
        }
    }
}

pub(super) fn describe(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Status>(call.params, false)?;
    let ids = call.params.texts("InstanceId");
    if !ids.is_empty() && call.params.text("MaxResults").is_some() {
        return Err(ApiError::new(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        ));
    }
    let page = call.page("DescribeInstanceStatus", PAGE)?;
    let all = call.params.flag("IncludeAllInstances")?.unwrap_or(false);
    let world = call.world();
    let now_ms = world.now_ms;
    let listed = |instance: &Arc<Instance>| {
        instance.visible_ms <= now_ms && (all || instance.state == InstanceState::Running)
    };
    let found: Vec<Arc<Instance>> = if ids.is_empty() {
        world
            .instances
            .from(page.start)
            .filter(|instance| listed(instance))
            .cloned()
            .collect()
    } else {
        named(&world, &ids)?
            .into_iter()
            .filter(|instance| listed(instance))
            .collect()
    };
    call.rehearse()?;
    drop(world);
    let limit = if ids.is_empty() {
        page.limit
    } else {
        usize::MAX
    };
    let mut statuses: Vec<Status> = found
        .into_iter()
        .map(Status)
        .filter(|status| filters.accept(status))
        .take(limit.saturating_add(1))
        .collect();
    let token = statuses.get(limit).map(|next| page.token(next.0.ordinal));
    statuses.truncate(limit);
    Ok(call.reply(|xml| {
        xml.list("instanceStatusSet", statuses, |xml, status| {
            write(xml, &status);
        });
        xml.optional("nextToken", token.as_deref());
    }))
}

fn write(xml: &mut Xml, status: &Status) {
    let instance = &status.0;
    xml.text("instanceId", &instance.id);
    xml.text("availabilityZone", &instance.zone.name);
    xml.text("availabilityZoneId", &instance.zone.id);
    if !instance.health.events.is_empty() {
        xml.list(
            "eventsSet",
            &instance.health.events,
            |xml, (code, description, not_before)| {
                xml.text("code", code);
                xml.text("description", description);
                xml.text("notBefore", &iso(*not_before));
            },
        );
    }
    xml.element("instanceState", |xml| {
        xml.value("code", instance.state.code());
        xml.text("name", instance.state.as_str());
    });
    for (name, summary, since) in [
        (
            "systemStatus",
            status.system(),
            instance.health.system_impaired_ms,
        ),
        (
            "instanceStatus",
            status.instance(),
            instance.health.instance_impaired_ms,
        ),
    ] {
        xml.element(name, |xml| {
            xml.text("status", summary);
            xml.list("details", [since], |xml, since| {
                xml.text("name", "reachability");
                let detail = match summary {
                    "ok" => "passed",
                    "impaired" => "failed",
                    other => other,
                };
                xml.text("status", detail);
                xml.optional("impairedSince", since.map(iso).as_deref());
            });
        });
    }
}
