//! SQS, and EC2's events in it.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::Rig;
use crate::aws::InstanceState;

async fn call(rig: &Rig, action: &str, mut input: Value) -> super::client::Answer {
    input["QueueUrl"] = json!("http://anything/111122223333/c");
    rig.target(&format!("AmazonSQS.{action}"), input).await
}

async fn receive(rig: &Rig, input: Value) -> Vec<Value> {
    let answer = call(rig, "ReceiveMessage", input).await.ok().json();
    answer["Messages"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_spot_interruption_warns_two_minutes_ahead() {
    let rig = Rig::new().await;
    rig.template("tpl").await;
    rig.ec2("CreateFleet", &rig.fleet(1, "spot", &[("m5.large", 'a')]))
        .await
        .ok();
    rig.pass(10);
    let id = rig.world.instances()[0].id.to_string();
    assert!(rig.world.interrupt(&id));
    let details: Vec<Value> = receive(&rig, json!({ "MaxNumberOfMessages": 10 }))
        .await
        .iter()
        .map(|m| serde_json::from_str(m["Body"].as_str().expect("text")).expect("an envelope"))
        .collect();
    let states: Vec<_> = details
        .iter()
        .filter_map(|e| e["detail"]["state"].as_str())
        .collect();
    assert_eq!(states, ["pending", "running"]);
    let warning = &details[2];
    assert_eq!(
        warning["detail-type"],
        "EC2 Spot Instance Interruption Warning"
    );
    assert_eq!(warning["source"], "aws.ec2");
    assert_eq!(warning["version"], "0");
    assert_eq!(
        warning["detail"],
        json!({ "instance-id": id, "instance-action": "terminate" })
    );
    rig.pass(119);
    assert_eq!(rig.world.instances()[0].state, InstanceState::Running);
    rig.pass(1);
    assert_eq!(rig.world.instances()[0].state, InstanceState::ShuttingDown);
}

#[tokio::test]
async fn a_message_is_hidden_until_its_timeout_and_gone_when_deleted() {
    let rig = Rig::new().await;
    call(&rig, "SendMessage", json!({ "MessageBody": "abc" }))
        .await
        .ok();
    let first = receive(
        &rig,
        json!({ "VisibilityTimeout": 20, "AttributeNames": ["All"] }),
    )
    .await;
    assert_eq!(first[0]["MD5OfBody"], "900150983cd24fb0d6963f7d28e17f72");
    assert_eq!(
        first[0]["Attributes"]["SentTimestamp"],
        rig.world.now_ms().to_string()
    );
    assert!(receive(&rig, json!({})).await.is_empty());
    rig.pass(20);
    let again = receive(&rig, json!({ "AttributeNames": ["All"] })).await;
    assert_eq!(again[0]["Attributes"]["ApproximateReceiveCount"], "2");
    let handle = again[0]["ReceiptHandle"].clone();
    for _ in 0..2 {
        call(&rig, "DeleteMessage", json!({ "ReceiptHandle": handle }))
            .await
            .ok();
    }
    rig.pass(60);
    assert!(receive(&rig, json!({})).await.is_empty());
    assert_eq!(rig.world.queue_depth(), 0);
}

#[tokio::test]
async fn a_long_poll_ends_when_a_message_arrives() {
    let rig = std::sync::Arc::new(Rig::new().await);
    let poll = tokio::spawn({
        let rig = rig.clone();
        async move { receive(&rig, json!({ "WaitTimeSeconds": 20 })).await }
    });
    // Whether the poll or the message comes first, the poll ends with the message.
    call(&rig, "SendMessage", json!({ "MessageBody": "wake" }))
        .await
        .ok();
    let received = tokio::time::timeout(Duration::from_secs(15), poll).await;
    let received = received
        .expect("the poll ends before its time")
        .expect("no panic");
    assert_eq!(received[0]["Body"], "wake");
}

#[tokio::test]
async fn batches_report_each_entry() {
    let rig = Rig::new().await;
    let entries = json!([{ "Id": "a", "MessageBody": "1" }, { "Id": "b", "MessageBody": "" }]);
    let answer = call(&rig, "SendMessageBatch", json!({ "Entries": entries }))
        .await
        .ok()
        .json();
    assert_eq!(answer["Successful"][0]["Id"], "a");
    assert_eq!(answer["Failed"][0]["Id"], "b");
    let received = receive(&rig, json!({ "MaxNumberOfMessages": 10 })).await;
    let handle = received[0]["ReceiptHandle"].clone();
    let entries =
        json!([{ "Id": "x", "ReceiptHandle": handle }, { "Id": "y", "ReceiptHandle": "no" }]);
    let answer = call(&rig, "DeleteMessageBatch", json!({ "Entries": entries }))
        .await
        .ok()
        .json();
    assert_eq!(answer["Successful"][0]["Id"], "x");
    assert_eq!(answer["Failed"][0]["Code"], "ReceiptHandleIsInvalid");
}

#[tokio::test]
async fn an_unknown_queue_has_a_code_of_its_own() {
    let rig = Rig::new().await;
    let found = rig
        .target("AmazonSQS.GetQueueUrl", json!({ "QueueName": "c" }))
        .await
        .ok()
        .json();
    assert!(
        found["QueueUrl"]
            .as_str()
            .is_some_and(|url| url.ends_with("/111122223333/c"))
    );
    let answer = rig
        .target("AmazonSQS.GetQueueUrl", json!({ "QueueName": "none" }))
        .await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json()["__type"],
        "com.amazonaws.sqs#QueueDoesNotExist"
    );
}

#[tokio::test]
async fn a_queue_that_nobody_reads_forgets_old_messages() {
    let rig = Rig::new().await;
    for round in 0..20 {
        for _ in 0..100 {
            assert!(rig.world.send_message(format!("round {round}")));
        }
        rig.pass(100);
    }
    // Retention is 300 seconds: three rounds, and the one that is just running out.
    assert!(
        (300..=400).contains(&rig.world.queue_depth()),
        "{}",
        rig.world.queue_depth()
    );
}
