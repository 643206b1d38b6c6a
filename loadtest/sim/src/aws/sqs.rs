//! SQS: standard queues. JSON 1.0.
//!
//! Visibility and retention run on the simulator's clock; a long poll holds its connection in
//! real time, because that is what its client waits for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::Sim;
use super::config::AwsSimConfig;
use super::error::ApiError;
use super::json::text;
use super::md5;

/// Bytes of a body; messages of a batch or a receive; longest poll (SQS quotas).
const BODY_MAX: usize = 1_048_576;
const BATCH_MAX: usize = 10;
const WAIT_MAX_S: u64 = 20;
const VISIBILITY_MAX_S: u64 = 43_200;
/// Messages in flight in one queue (SQS quota).
const IN_FLIGHT_MAX: usize = 120_000;
/// Messages of one queue; older ones go, so that a queue that nobody reads stays bounded.
const MESSAGES_MAX: usize = 500_000;
/// Visibility timeout and retention, as the interruption queue is usually made.
const VISIBILITY_DEFAULT_MS: u64 = 30_000;
const RETENTION_MS: u64 = 300_000;

#[derive(Debug)]
struct Message {
    id: String,
    body: String,
    sent_ms: u64,
    received: u64,
    first_received_ms: u64,
    /// When it becomes visible again, while in flight.
    hidden_until_ms: Option<u64>,
}

/// A queue. Messages are known by number, in order of arrival.
#[derive(Debug, Default)]
struct Queue {
    messages: BTreeMap<u64, Message>,
    /// Visible ones in order; may name messages that are gone, at most twice as many.
    visible: VecDeque<u64>,
    /// In flight, by the time at which they become visible again.
    in_flight: BTreeSet<(u64, u64)>,
    next: u64,
}

impl Queue {
    /// Adds a message. Forgets old ones first, so that a queue that nobody reads stays small.
    fn push(&mut self, id: String, body: String, now_ms: u64) {
        self.advance(now_ms);
        self.next += 1;
        if self.messages.len() >= MESSAGES_MAX {
            self.drop_first();
        }
        let message = Message {
            id,
            body,
            sent_ms: now_ms,
            received: 0,
            first_received_ms: 0,
            hidden_until_ms: None,
        };
        self.messages.insert(self.next, message);
        self.visible.push_back(self.next);
    }

    fn drop_first(&mut self) {
        if let Some(number) = self.messages.first_key_value().map(|(number, _)| *number) {
            self.delete(number);
        }
    }

    fn delete(&mut self, number: u64) {
        if let Some(Message {
            hidden_until_ms: Some(until),
            ..
        }) = self.messages.remove(&number)
        {
            self.in_flight.remove(&(until, number));
        }
        // Names of deleted messages are skipped by receives; without receives they add up.
        if self.visible.len() > 2 * self.messages.len() + 1_024 {
            let messages = &self.messages;
            self.visible.retain(|number| messages.contains_key(number));
        }
    }

    /// Forgets what is too old, and shows again what was hidden long enough.
    fn advance(&mut self, now_ms: u64) {
        while self
            .messages
            .first_key_value()
            .is_some_and(|(_, m)| m.sent_ms + RETENTION_MS <= now_ms)
        {
            self.drop_first();
        }
        while let Some((until, number)) = self.in_flight.first().copied() {
            if until > now_ms {
                break;
            }
            self.in_flight.remove(&(until, number));
            if let Some(message) = self.messages.get_mut(&number) {
                message.hidden_until_ms = None;
                self.visible.push_back(number);
            }
        }
    }

    /// Takes up to `count` visible messages and hides them.
    fn receive(&mut self, count: usize, hide_ms: u64, now_ms: u64) -> Vec<u64> {
        self.advance(now_ms);
        let mut taken = Vec::new();
        while taken.len() < count {
            let Some(number) = self.visible.pop_front() else {
                break;
            };
            let Some(message) = self.messages.get_mut(&number) else {
                continue;
            };
            message.received += 1;
            if message.received == 1 {
                message.first_received_ms = now_ms;
            }
            let until = now_ms + hide_ms;
            message.hidden_until_ms = Some(until);
            self.in_flight.insert((until, number));
            taken.push(number);
        }
        // With a timeout of zero they are visible again at once, but not to this receive.
        taken
    }

    fn hide(&mut self, number: u64, hide_ms: u64, now_ms: u64) -> bool {
        let Some(message) = self.messages.get_mut(&number) else {
            return false;
        };
        let Some(before) = message.hidden_until_ms else {
            return false;
        };
        self.in_flight.remove(&(before, number));
        let until = now_ms + hide_ms;
        message.hidden_until_ms = Some(until);
        self.in_flight.insert((until, number));
        true
    }
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: BTreeMap<String, Queue>,
    /// Told when a message arrives anywhere.
    arrivals: Arc<Notify>,
}

impl Queues {
    pub(crate) fn new(config: &AwsSimConfig) -> Self {
        let queues = config
            .interruption_queue
            .iter()
            .map(|name| (name.clone(), Queue::default()));
        Self {
            queues: queues.collect(),
            arrivals: Arc::default(),
        }
    }

    /// As new, with the same waiting receivers, which look again.
    pub(crate) fn reset(&mut self, config: &AwsSimConfig) {
        self.queues = Self::new(config).queues;
        self.arrivals.notify_waiters();
    }

    /// Adds a message; a queue that does not exist takes none.
    pub(crate) fn deliver(&mut self, queue: &str, id: String, body: String, now_ms: u64) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.push(id, body, now_ms);
            self.arrivals.notify_waiters();
        }
    }

    /// Messages that a queue holds, visible or in flight; `None` without such a queue.
    pub(crate) fn depth(&self, queue: &str) -> Option<usize> {
        Some(self.queues.get(queue)?.messages.len())
    }

    /// The queue that a request's URL names.
    fn of_url(&mut self, input: &Value) -> Result<&mut Queue, ApiError> {
        let url = text(input, "QueueUrl").ok_or_else(|| missing("QueueUrl"))?;
        let name = url.rsplit('/').next().unwrap_or_default();
        self.queues.get_mut(name).ok_or_else(no_queue)
    }
}

fn no_queue() -> ApiError {
    ApiError::new("QueueDoesNotExist", "The specified queue does not exist.")
}

fn missing(name: &str) -> ApiError {
    ApiError::new(
        "MissingParameter",
        format!("The request must contain the parameter {name}."),
    )
}

/// Answers a request.
///
/// # Errors
/// The error to be written in SQS's form.
pub(crate) async fn answer(sim: &Sim, action: &str, input: &Value) -> Result<Value, ApiError> {
    match action {
        "ReceiveMessage" => receive(sim, input).await,
        "SendMessage" => send(sim, input)
            .map(|(id, digest)| json!({ "MessageId": id, "MD5OfMessageBody": digest })),
        "SendMessageBatch" => batch(sim, input, |entry| {
            send(sim, entry)
                .map(|(id, digest)| json!({ "MessageId": id, "MD5OfMessageBody": digest }))
        }),
        "DeleteMessage" => delete(sim, input).map(|()| json!({})),
        "DeleteMessageBatch" => batch(sim, input, |entry| delete(sim, entry).map(|()| json!({}))),
        "ChangeMessageVisibility" => hide(sim, input).map(|()| json!({})),
        "GetQueueUrl" => {
            let name = text(input, "QueueName").ok_or_else(|| missing("QueueName"))?;
            let world = sim.world();
            if !world.queues.queues.contains_key(name) {
                return Err(no_queue());
            }
            Ok(json!({ "QueueUrl": queue_url(sim, &world.config.account, name) }))
        }
        "CreateQueue" => {
            let name = text(input, "QueueName").ok_or_else(|| missing("QueueName"))?;
            let mut world = sim.world();
            world.queues.queues.entry(name.to_owned()).or_default();
            Ok(json!({ "QueueUrl": queue_url(sim, &world.config.account, name) }))
        }
        "PurgeQueue" => {
            *sim.world().queues.of_url(input)? = Queue::default();
            Ok(json!({}))
        }
        "GetQueueAttributes" => attributes(sim, input),
        other => Err(ApiError::new(
            "UnsupportedOperation",
            format!("{other} is not known"),
        )),
    }
}

fn queue_url(sim: &Sim, account: &str, name: &str) -> String {
    format!("{}/{account}/{name}", sim.endpoint())
}

/// Runs one request per entry; failures of entries are part of a successful answer.
fn batch(
    sim: &Sim,
    input: &Value,
    one: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    sim.world().queues.of_url(input)?;
    let entries = input
        .get("Entries")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if entries.is_empty() {
        return Err(ApiError::new(
            "EmptyBatchRequest",
            "There should be at least one entry in the request.",
        ));
    }
    if entries.len() > BATCH_MAX {
        return Err(ApiError::new(
            "TooManyEntriesInBatchRequest",
            format!("Maximum number of entries per request are {BATCH_MAX}."),
        ));
    }
    let ids: BTreeSet<Option<&str>> = entries.iter().map(|entry| text(entry, "Id")).collect();
    if ids.len() < entries.len() || ids.contains(&None) {
        return Err(ApiError::new(
            "BatchEntryIdsNotDistinct",
            "Entry ids must be distinct.",
        ));
    }
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for mut entry in entries {
        let id = text(&entry, "Id").unwrap_or_default().to_owned();
        if let Some(entry) = entry.as_object_mut() {
            entry.insert(
                "QueueUrl".to_owned(),
                input.get("QueueUrl").cloned().unwrap_or_default(),
            );
        }
        match one(&entry) {
            Ok(mut result) => {
                if let Some(result) = result.as_object_mut() {
                    result.insert("Id".to_owned(), Value::String(id));
                }
                successful.push(result);
            }
            Err(error) => failed.push(json!({
                "Id": id, "Code": error.code, "Message": error.message, "SenderFault": true,
            })),
        }
    }
    Ok(json!({ "Successful": successful, "Failed": failed }))
}

/// Gives the id and the digest of the new message.
fn send(sim: &Sim, input: &Value) -> Result<(String, String), ApiError> {
    let body = text(input, "MessageBody").ok_or_else(|| missing("MessageBody"))?;
    if body.is_empty() || body.len() > BODY_MAX {
        return Err(ApiError::value(format!(
            "One or more parameters are invalid. Reason: Message must be between 1 and {BODY_MAX} bytes."
        )));
    }
    let mut world = sim.world();
    let (id, now_ms) = (world.message_ids.uuid(), world.now_ms);
    world
        .queues
        .of_url(input)?
        .push(id.clone(), body.to_owned(), now_ms);
    world.queues.arrivals.notify_waiters();
    Ok((id, md5::hex(body)))
}

/// A number of a request within bounds.
fn bounded(input: &Value, name: &str, max: u64) -> Result<Option<u64>, ApiError> {
    match input.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().filter(|number| *number <= max).map(Some).ok_or_else(|| {
            ApiError::value(format!(
                "Value {value} for parameter {name} is invalid. Reason: Must be between 0 and {max}."
            ))
        }),
    }
}

async fn receive(sim: &Sim, input: &Value) -> Result<Value, ApiError> {
    let count = bounded(input, "MaxNumberOfMessages", BATCH_MAX as u64)?
        .unwrap_or(1)
        .max(1);
    let count = usize::try_from(count).unwrap_or(BATCH_MAX);
    let wait = Duration::from_secs(bounded(input, "WaitTimeSeconds", WAIT_MAX_S)?.unwrap_or(0));
    let hide_ms = bounded(input, "VisibilityTimeout", VISIBILITY_MAX_S)?
        .map_or(VISIBILITY_DEFAULT_MS, |seconds| seconds * 1_000);
    let deadline = tokio::time::sleep(wait);
    tokio::pin!(deadline);
    loop {
        let arrivals = sim.world().queues.arrivals.clone();
        let arrival = arrivals.notified();
        tokio::pin!(arrival);
        // Registered before looking, so that nothing slips in between.
        arrival.as_mut().enable();
        let (messages, reappears_ms) = take(sim, input, count, hide_ms)?;
        if !messages.is_empty() {
            return Ok(json!({ "Messages": messages }));
        }
        let reappears = async {
            match reappears_ms {
                Some(due_ms) => sim.clock().sleep_until(due_ms).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut deadline => return Ok(json!({})),
            () = arrival => {}
            () = reappears => {}
        }
    }
}

/// Messages for one receive, and when the next hidden one becomes visible.
fn take(
    sim: &Sim,
    input: &Value,
    count: usize,
    hide_ms: u64,
) -> Result<(Vec<Value>, Option<u64>), ApiError> {
    let mut world = sim.world();
    let now_ms = world.now_ms;
    let queue = world.queues.of_url(input)?;
    if queue.in_flight.len() >= IN_FLIGHT_MAX {
        return Err(ApiError::new("OverLimit", "Too many messages in flight.").with_status(403));
    }
    let wanted: Vec<&str> = ["AttributeNames", "MessageSystemAttributeNames"]
        .iter()
        .filter_map(|name| input.get(*name)?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let numbers = queue.receive(count, hide_ms, now_ms);
    let messages = numbers
        .into_iter()
        .filter_map(|number| Some(render(number, queue.messages.get(&number)?, &wanted)))
        .collect();
    Ok((messages, queue.in_flight.first().map(|(until, _)| *until)))
}

fn render(number: u64, message: &Message, wanted: &[&str]) -> Value {
    let attributes: Map<String, Value> = [
        ("SenderId", "AIDASIMULATED".to_owned()),
        ("SentTimestamp", message.sent_ms.to_string()),
        ("ApproximateReceiveCount", message.received.to_string()),
        (
            "ApproximateFirstReceiveTimestamp",
            message.first_received_ms.to_string(),
        ),
    ]
    .into_iter()
    .filter(|(name, _)| wanted.contains(name) || wanted.contains(&"All"))
    .map(|(name, value)| (name.to_owned(), Value::String(value)))
    .collect();
    let handle = URL_SAFE_NO_PAD.encode(format!("sqs:{number}:{}", message.received));
    let mut rendered = json!({
        "MessageId": message.id,
        "ReceiptHandle": handle,
        "MD5OfBody": md5::hex(&message.body),
        "Body": message.body,
    });
    if let (Some(rendered), false) = (rendered.as_object_mut(), attributes.is_empty()) {
        rendered.insert("Attributes".to_owned(), Value::Object(attributes));
    }
    rendered
}

/// The message that a request's receipt handle names.
fn number_of(input: &Value) -> Result<u64, ApiError> {
    let handle = text(input, "ReceiptHandle").ok_or_else(|| missing("ReceiptHandle"))?;
    let invalid = || {
        ApiError::new(
            "ReceiptHandleIsInvalid",
            format!("The input receipt handle \"{handle}\" is not a valid receipt handle."),
        )
    };
    let bytes = URL_SAFE_NO_PAD.decode(handle).map_err(|_| invalid())?;
    let decoded = String::from_utf8(bytes).map_err(|_| invalid())?;
    let number = decoded
        .strip_prefix("sqs:")
        .and_then(|rest| rest.split(':').next());
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(invalid)
}

fn delete(sim: &Sim, input: &Value) -> Result<(), ApiError> {
    let mut world = sim.world();
    let queue = world.queues.of_url(input)?;
    // Deleting twice is fine, as in SQS.
    queue.delete(number_of(input)?);
    Ok(())
}

fn hide(sim: &Sim, input: &Value) -> Result<(), ApiError> {
    let seconds = bounded(input, "VisibilityTimeout", VISIBILITY_MAX_S)?
        .ok_or_else(|| missing("VisibilityTimeout"))?;
    let mut world = sim.world();
    let now_ms = world.now_ms;
    let queue = world.queues.of_url(input)?;
    queue.advance(now_ms);
    if queue.hide(number_of(input)?, seconds * 1_000, now_ms) {
        // Perhaps it is visible at once, and somebody waits.
        world.queues.arrivals.notify_waiters();
        return Ok(());
    }
    Err(ApiError::new(
        "MessageNotInflight",
        "The message referred to is not in flight.",
    ))
}

fn attributes(sim: &Sim, input: &Value) -> Result<Value, ApiError> {
    let mut world = sim.world();
    let now_ms = world.now_ms;
    let queue = world.queues.of_url(input)?;
    queue.advance(now_ms);
    let hidden = queue.in_flight.len();
    let visible = queue.messages.len() - hidden;
    let name = text(input, "QueueUrl")
        .and_then(|url| url.rsplit('/').next())
        .unwrap_or_default();
    let arn = format!(
        "arn:aws:sqs:{}:{}:{name}",
        world.config.region, world.config.account
    );
    let wanted: Vec<&str> = input
        .get("AttributeNames")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let attributes: Map<String, Value> = [
        ("QueueArn", arn),
        ("ApproximateNumberOfMessages", visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", hidden.to_string()),
        ("ApproximateNumberOfMessagesDelayed", "0".to_owned()),
        (
            "VisibilityTimeout",
            (VISIBILITY_DEFAULT_MS / 1_000).to_string(),
        ),
        ("MessageRetentionPeriod", (RETENTION_MS / 1_000).to_string()),
    ]
    .into_iter()
    .filter(|(name, _)| wanted.contains(name) || wanted.contains(&"All"))
    .map(|(name, value)| (name.to_owned(), Value::String(value)))
    .collect();
    Ok(json!({ "Attributes": attributes }))
}
