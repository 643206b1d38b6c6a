//! Events in EventBridge's envelope.

use serde_json::{Value, json};

use super::clock::iso_seconds;
use super::world::World;

/// What happened to an instance.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<'a> {
    /// The state changed.
    State(&'a str),
    /// EC2 wants a spot instance back.
    SpotInterruption,
    /// A spot instance is at elevated risk.
    Rebalance,
    /// Scheduled maintenance: an event type code such as
    /// `AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED`.
    ScheduledChange(&'a str),
}

/// The message body for an event of an instance.
pub(crate) fn envelope(
    world: &mut World,
    instance_id: &str,
    zone: &str,
    event: Event<'_>,
) -> String {
    let region = world.config.region.clone();
    let account = world.config.account.clone();
    let (source, detail_type, detail) = match event {
        Event::State(state) => (
            "aws.ec2",
            "EC2 Instance State-change Notification",
            json!({ "instance-id": instance_id, "state": state }),
        ),
        Event::SpotInterruption => (
            "aws.ec2",
            "EC2 Spot Instance Interruption Warning",
            json!({ "instance-id": instance_id, "instance-action": "terminate" }),
        ),
        Event::Rebalance => (
            "aws.ec2",
            "EC2 Instance Rebalance Recommendation",
            json!({ "instance-id": instance_id }),
        ),
        Event::ScheduledChange(code) => (
            "aws.health",
            "AWS Health Event",
            scheduled_change(world, instance_id, code),
        ),
    };
    let resource = match event {
        // Spot events name the zone where the others name the region and account.
        Event::SpotInterruption | Event::Rebalance => {
            format!("arn:aws:ec2:{zone}:instance/{instance_id}")
        }
        _ => format!("arn:aws:ec2:{region}:{account}:instance/{instance_id}"),
    };
    json!({
        "version": "0",
        "id": world.message_ids.uuid(),
        "detail-type": detail_type,
        "source": source,
        "account": account,
        "time": iso_seconds(world.now_ms),
        "region": region,
        "resources": [resource],
        "detail": detail,
    })
    .to_string()
}

fn scheduled_change(world: &mut World, instance_id: &str, code: &str) -> Value {
    json!({
        "eventArn": format!("arn:aws:health:{}::event/EC2/{code}/{}", world.config.region, world.message_ids.uuid()),
        "service": "EC2",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "startTime": iso_seconds(world.now_ms),
        "eventDescription": [{ "language": "en_US", "latestDescription": "simulated" }],
        "affectedEntities": [{ "entityValue": instance_id }],
    })
}
