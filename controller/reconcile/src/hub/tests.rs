//! Watches against a scripted API server, in virtual time.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    sync::Mutex,
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::*;

/// What the server does with the next request.
#[derive(Clone, Debug)]
enum Reply {
    /// One page of a list: names, resource version, and how to go on.
    Page(&'static [&'static str], &'static str, Option<&'static str>),
    /// A watch that sends these events and is closed.
    Closes(Vec<Value>),
    /// A watch that sends these events and stays open.
    Stays(Vec<Value>),
}

/// Answers requests in the order of a script and notes their query strings; when the script is over,
/// requests wait for ever.
#[derive(Clone)]
struct Script(Arc<Mutex<(VecDeque<Reply>, Vec<String>)>>);

fn node(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "resourceVersion": version,
            "managedFields": [{"manager": "kubelet", "operation": "Update"}],
        },
    })
}

fn event(kind: &str, name: &str, version: &str) -> Value {
    json!({"type": kind, "object": node(name, version)})
}

fn gone() -> Value {
    json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version",
    }})
}

fn frames(events: &[Value]) -> Vec<Result<Frame<Bytes>, Infallible>> {
    let line = |event: &Value| Ok(Frame::data(Bytes::from(format!("{event}\n"))));
    events.iter().map(line).collect()
}

impl Script {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self(Arc::new(Mutex::new((
            replies.into_iter().collect(),
            Vec::new(),
        ))))
    }

    fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }

    fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let reply = {
                let mut script = script.0.lock().unwrap();
                script.1.push(query);
                script.0.pop_front()
            };
            async move {
                let Some(reply) = reply else {
                    return std::future::pending().await;
                };
                let (frames, stays) = match reply {
                    Reply::Page(names, version, next) => {
                        let items: Vec<Value> = names.iter().map(|name| node(name, "1")).collect();
                        let metadata =
                            json!({"resourceVersion": version, "continue": next.unwrap_or("")});
                        let list = json!({
                            "apiVersion": "v1", "kind": "NodeList",
                            "metadata": metadata, "items": items,
                        });
                        (frames(&[list]), false)
                    }
                    Reply::Closes(events) => (frames(&events), false),
                    Reply::Stays(events) => (frames(&events), true),
                };
                let sent = stream::iter(frames);
                let body = if stays {
                    StreamBody::new(sent.chain(stream::pending())).boxed_unsync()
                } else {
                    StreamBody::new(sent).boxed_unsync()
                };
                Ok::<_, Infallible>(Response::new(body))
            }
        });
        Client::new(service, "default")
    }
}

/// A running watch, with what ingest was told.
struct Running {
    kind: Kind<Node>,
    told: Arc<Mutex<Vec<String>>>,
    news: broadcast::Receiver<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn run(script: &Script) -> Running {
    let (kind, watch) = watch_kind::<Node>(Api::all(script.client()));
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let news = kind.news.subscribe();
    let log = Arc::clone(&told);
    let task = tokio::spawn(watch.run(move |change| {
        let text = match change {
            Change::Applied(node) => {
                assert_eq!(node.metadata.managed_fields, None, "trimmed before ingest");
                format!("+{}", key_of(node))
            }
            Change::Deleted(node) => format!("-{}", key_of(node)),
            Change::Listed(keys) => {
                let sorted: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
                format!("={}", sorted.into_iter().collect::<Vec<_>>().join(","))
            }
        };
        log.lock().unwrap().push(text);
    }));
    Running {
        kind,
        told,
        news,
        task,
    }
}

impl Running {
    /// Waits until ingest was told this much.
    async fn told(&self, expected: &[&str]) {
        let wait = async {
            while self.told.lock().unwrap().len() < expected.len() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let done = tokio::time::timeout(Duration::from_secs(120), wait).await;
        let told = self.told.lock().unwrap().clone();
        assert!(done.is_ok(), "told only {told:?}");
        assert_eq!(told, expected);
    }

    fn stored(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .kind
            .list()
            .iter()
            .map(|node| key_of(&**node))
            .collect();
        names.sort_unstable();
        names
    }

    fn news(&mut self) -> BTreeSet<String> {
        std::iter::from_fn(|| self.news.try_recv().ok()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_closed_resumes_where_it_stopped_without_a_list() {
    let script = Script::new([
        Reply::Page(&["a"], "10", None),
        Reply::Closes(vec![event("ADDED", "b", "11")]),
        Reply::Stays(vec![event("DELETED", "a", "12")]),
    ]);
    let running = run(&script);
    running.told(&["+a", "=a", "+b", "-a"]).await;
    assert_eq!(running.stored(), ["b"]);
    let requests = script.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert!(requests[1].contains("resourceVersion=10"), "{requests:?}");
    assert!(requests[2].contains("resourceVersion=11"), "{requests:?}");
    assert!(requests[2].contains("watch=true"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn after_410_gone_the_kind_is_listed_again_and_what_is_missing_is_news() {
    let script = Script::new([
        Reply::Page(&["a", "b"], "10", None),
        Reply::Closes(vec![gone()]),
        Reply::Page(&["b", "c"], "90", None),
        Reply::Stays(vec![event("MODIFIED", "c", "91")]),
    ]);
    let mut running = run(&script);
    running
        .told(&["+a", "+b", "=a,b", "+b", "+c", "=b,c", "+c"])
        .await;
    assert_eq!(running.stored(), ["b", "c"]);
    let expected: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
    assert_eq!(
        running.news(),
        expected,
        "a controller of a must learn that it is gone"
    );
    assert!(
        script.requests()[3].contains("resourceVersion=90"),
        "{:?}",
        script.requests()
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_counts_as_complete_only_after_the_last_page() {
    let script = Script::new([
        Reply::Page(&["a"], "10", Some("more")),
        Reply::Page(&["b"], "10", None),
        Reply::Stays(vec![]),
    ]);
    let running = run(&script);
    running.told(&["+a", "+b", "=a,b"]).await;
    assert!(running.kind.is_synced());
    let requests = script.requests();
    assert!(
        requests[0].contains("limit=500") && requests[1].contains("continue=more"),
        "{requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_sees_every_key_at_first_and_changes_afterwards() {
    let script = Script::new([
        Reply::Page(&["a"], "10", None),
        Reply::Stays(vec![event("ADDED", "b", "11")]),
    ]);
    let running = run(&script);
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (kind, log) = (running.kind.clone(), Arc::clone(&seen));
    let subscriber = tokio::spawn(async move {
        kind.for_each_key(|key| {
            log.lock().unwrap().insert(key.to_owned());
        })
        .await;
    });
    running.told(&["+a", "=a", "+b"]).await;
    let wait = async {
        while seen.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait)
        .await
        .expect("both keys within the bound");
    subscriber.abort();
}
