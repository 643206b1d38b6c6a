//! The control endpoint: `/_sim/...`, for tests and demonstrations outside this process.
//!
//! What [`super::AwsWorld`] can do, as JSON over HTTP. `GET /_sim/help` lists it.

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Sim;
use super::capacity::{CapacityType, PoolPattern};
use super::events::Event;
use super::fault::{Fault, FaultKind};
use super::instance::{Health, Instance};
use super::world::Cause;

/// What each path takes.
const HELP: &[(&str, &str)] = &[
    ("GET help", "this"),
    (
        "GET calls",
        "counts of calls, errors and throttled calls per action",
    ),
    ("GET instances", "all instances"),
    (
        "POST capacity",
        "{instance_type?, zone?, capacity_type?, free: number or null}",
    ),
    (
        "POST pool-error",
        "{instance_type?, zone?, capacity_type?, code, message?, times?}",
    ),
    (
        "POST fail",
        "{action, times?, code, message?, status?} or {action, times?, answer: lost|reset}",
    ),
    ("POST throttle", "{action, per_mille, seed?}"),
    ("POST latency", "{action, ms}"),
    ("POST deny", "{action, denied?}"),
    ("POST interrupt | rebalance | kill | stop", "{instance_id}"),
    ("POST scheduled-change", "{instance_id, code?}"),
    (
        "POST health",
        "{instance_id, system_impaired?, instance_impaired?, event?}",
    ),
    ("POST message", "{body}: into the interruption queue"),
    ("POST images", "{date, bottlerocket}: publish a release"),
    ("POST reset", "start over"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<PoolCapacityType>,
    #[serde(default)]
    free: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolError {
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<PoolCapacityType>,
    code: String,
    #[serde(default)]
    message: String,
    times: Option<u32>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum PoolCapacityType {
    OnDemand,
    Spot,
}

fn pattern(
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<PoolCapacityType>,
) -> PoolPattern {
    let capacity_type = capacity_type.map(|capacity_type| match capacity_type {
        PoolCapacityType::OnDemand => CapacityType::OnDemand,
        PoolCapacityType::Spot => CapacityType::Spot,
    });
    PoolPattern {
        instance_type,
        zone,
        capacity_type,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    action: String,
    #[serde(default = "once")]
    times: u32,
    code: Option<String>,
    #[serde(default)]
    message: String,
    status: Option<u16>,
    answer: Option<LostAnswer>,
}

fn once() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum LostAnswer {
    Lost,
    Reset,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Throttle {
    action: String,
    per_mille: u32,
    #[serde(default)]
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Latency {
    action: String,
    ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    action: String,
    denied: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfInstance {
    instance_id: String,
    code: Option<String>,
    #[serde(default)]
    system_impaired: bool,
    #[serde(default)]
    instance_impaired: bool,
    event: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    body: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Images {
    date: String,
    bottlerocket: String,
}

/// An HTTP status and a document.
type Answer = (u16, Value);

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Answer> {
    serde_json::from_slice(body).map_err(|error| (400, json!({ "error": error.to_string() })))
}

fn done(found: bool) -> Answer {
    if found {
        (200, json!({ "ok": true }))
    } else {
        (404, json!({ "error": "no such instance" }))
    }
}

/// Answers a request to the control endpoint.
pub(crate) fn answer(sim: &Sim, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
    let result = if method == Method::GET {
        Ok(look(sim, path))
    } else {
        steer(sim, path, body)
    };
    result.unwrap_or_else(|refused| refused)
}

fn look(sim: &Sim, path: &str) -> Answer {
    match path {
        "help" => (
            200,
            HELP.iter().map(|(path, takes)| (*path, *takes)).collect(),
        ),
        "calls" => (200, json!(sim.faults().calls())),
        "instances" => {
            let world = sim.world();
            (
                200,
                world
                    .instances
                    .from(0)
                    .map(|instance| summary(instance))
                    .collect(),
            )
        }
        _ => unknown(path),
    }
}

fn unknown(path: &str) -> Answer {
    (
        404,
        json!({ "error": format!("no such path: {path}; see GET /_sim/help") }),
    )
}

fn summary(instance: &Instance) -> Value {
    json!({
        "id": &*instance.id,
        "type": instance.facts.name,
        "zone": &*instance.zone.name,
        "capacity_type": instance.capacity_type.as_str(),
        "state": instance.state.as_str(),
        "private_dns_name": &*instance.private_dns_name,
        "tags": instance.tags,
    })
}

fn steer(sim: &Sim, path: &str, body: &[u8]) -> Result<Answer, Answer> {
    match path {
        "capacity" => {
            let Pool {
                instance_type,
                zone,
                capacity_type,
                free,
            } = read(body)?;
            sim.world()
                .capacity
                .set(pattern(instance_type, zone, capacity_type), free);
        }
        "pool-error" => {
            let PoolError {
                instance_type,
                zone,
                capacity_type,
                code,
                message,
                times,
            } = read(body)?;
            let pattern = pattern(instance_type, zone, capacity_type);
            sim.world().capacity.fail(pattern, code, message, times);
        }
        "fail" => return fail(sim, read(body)?),
        "throttle" => {
            let Throttle {
                action,
                per_mille,
                seed,
            } = read(body)?;
            sim.faults().throttle(&action, per_mille, seed);
        }
        "latency" => {
            let Latency { action, ms } = read(body)?;
            sim.faults().delay(&action, Duration::from_millis(ms));
        }
        "deny" => {
            let Deny { action, denied } = read(body)?;
            sim.faults().deny(&action, denied.unwrap_or(true));
        }
        "message" => {
            let Body { body } = read(body)?;
            let mut world = sim.world();
            let queue = world.config.interruption_queue.clone().unwrap_or_default();
            let (id, now_ms) = (world.message_ids.uuid(), world.now_ms);
            world.queues.deliver(&queue, id, body, now_ms);
        }
        "images" => {
            let Images { date, bottlerocket } = read(body)?;
            let mut world = sim.world();
            let at_ms = world.now_ms;
            let release = super::image::Release {
                date: &date,
                bottlerocket: &bottlerocket,
                at_ms,
            };
            world.images.publish(release);
        }
        "reset" => sim.reset(),
        _ => return steer_instance(sim, path, body),
    }
    Ok(done(true))
}

fn fail(sim: &Sim, fail: Fail) -> Result<Answer, Answer> {
    let kind = match (fail.answer, fail.code) {
        (Some(LostAnswer::Lost), None) => FaultKind::LoseAnswer,
        (Some(LostAnswer::Reset), None) => FaultKind::Reset,
        (None, Some(code)) => FaultKind::Error {
            code,
            message: fail.message,
            status: fail.status.unwrap_or(400),
        },
        _ => {
            return Err((
                400,
                json!({ "error": "either code or answer must be given" }),
            ));
        }
    };
    let fault = Fault {
        action: fail.action,
        kind,
        times: fail.times,
    };
    if sim.faults().add(fault) {
        Ok(done(true))
    } else {
        Err((
            400,
            json!({ "error": "too many faults, or none (times is 0)" }),
        ))
    }
}

fn steer_instance(sim: &Sim, path: &str, body: &[u8]) -> Result<Answer, Answer> {
    if ![
        "interrupt",
        "rebalance",
        "kill",
        "stop",
        "scheduled-change",
        "health",
    ]
    .contains(&path)
    {
        return Err(unknown(path));
    }
    let request: OfInstance = read(body)?;
    let id = request.instance_id.as_str();
    let mut world = sim.world();
    let now_ms = world.now_ms;
    let found = match path {
        "interrupt" => world.interrupt(id),
        "rebalance" => world.notify(id, Event::Rebalance),
        "kill" => world.terminate(id, Cause::Failure).is_some(),
        "stop" => world.stop(id),
        "scheduled-change" => {
            let code = request
                .code
                .as_deref()
                .unwrap_or("AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED");
            world.notify(id, Event::ScheduledChange(code))
        }
        _ => {
            let event = request
                .event
                .map(|code| (code, "simulated".to_owned(), now_ms));
            let health = Health {
                system_impaired_ms: request.system_impaired.then_some(now_ms),
                instance_impaired_ms: request.instance_impaired.then_some(now_ms),
                events: event.into_iter().collect(),
            };
            world
                .instances
                .update(id, |instance| instance.health = health)
                .is_some()
        }
    };
    Ok(done(found))
}
