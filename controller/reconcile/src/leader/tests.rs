//! Elections against a Lease in memory, in virtual time, with faults between each candidate and it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::json;
use tokio::task::JoinHandle;

use super::*;

/// The API server's side: one Lease with optimistic concurrency.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Option<Lease>>>);

/// What lies between a candidate and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Good,
    /// Requests get no answer and have no effect.
    Cut,
    /// Requests have their effect, and the answer is lost.
    Deaf,
    /// Every request is answered with an error.
    Failing,
    /// Every write meets the write of somebody else who does not touch the holder.
    Contended,
}

fn answer(code: u16, body: &serde_json::Value) -> Response<Body> {
    let body = Body::from(body.to_string().into_bytes());
    Response::builder().status(code).body(body).unwrap()
}

fn refusal(code: u16, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
    answer(code, &status)
}

impl Server {
    fn holder(&self) -> String {
        let lease = self.0.lock().unwrap();
        lease
            .as_ref()
            .map_or_else(String::new, |lease| holder(lease).to_owned())
    }

    fn transitions(&self) -> i32 {
        let lease = self.0.lock().unwrap();
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone());
        spec.and_then(|spec| spec.lease_transitions).unwrap_or(0)
    }

    fn version(lease: &Lease) -> u64 {
        let version = lease.metadata.resource_version.as_deref();
        version.unwrap_or("0").parse().unwrap()
    }

    fn serve(&self, method: &Method, body: &[u8]) -> Response<Body> {
        let mut stored = self.0.lock().unwrap();
        if *method == Method::GET {
            return stored.as_ref().map_or_else(
                || refusal(404, "NotFound"),
                |lease| answer(200, &serde_json::to_value(lease).unwrap()),
            );
        }
        let mut lease: Lease = serde_json::from_slice(body).unwrap();
        let current = stored.as_ref().map_or(0, Self::version);
        let creates = *method == Method::POST;
        if creates != stored.is_none() || (!creates && Self::version(&lease) != current) {
            return refusal(409, "Conflict");
        }
        lease.metadata.resource_version = Some((current + 1).to_string());
        let reply = answer(
            if creates { 201 } else { 200 },
            &serde_json::to_value(&lease).unwrap(),
        );
        *stored = Some(lease);
        reply
    }

    fn client(&self, link: &Arc<Mutex<Link>>) -> Client {
        let (server, link) = (self.clone(), Arc::clone(link));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, link) = (server.clone(), Arc::clone(&link));
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let link = *link.lock().unwrap();
                let reply = match link {
                    Link::Failing => refusal(503, "ServiceUnavailable"),
                    Link::Contended if parts.method != Method::GET => refusal(409, "Conflict"),
                    Link::Cut => std::future::pending().await,
                    Link::Good | Link::Contended => server.serve(&parts.method, &body),
                    Link::Deaf => {
                        server.serve(&parts.method, &body);
                        std::future::pending().await
                    }
                };
                Ok::<_, Infallible>(reply)
            }
        });
        Client::new(service, "karpenter")
    }
}

struct Candidate {
    leadership: Leadership,
    link: Arc<Mutex<Link>>,
    run: JoinHandle<Result<(), LeadershipLost>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Candidate {
    fn start(server: &Server, identity: &str) -> Self {
        let link = Arc::new(Mutex::new(Link::Good));
        let (elector, leadership) = Elector::new(
            server.client(&link),
            "karpenter",
            "lease",
            identity.to_owned(),
        );
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let run = tokio::spawn(elector.run(async move {
            let _ = stopped.await;
        }));
        Self {
            leadership,
            link,
            run,
            stop: Some(stop),
        }
    }

    fn set(&self, link: Link) {
        *self.link.lock().unwrap() = link;
    }

    fn leads(&self) -> bool {
        self.leadership.is_leader()
    }
}

/// Lets virtual time pass until `done`, and says how much did; never more than `limit`.
async fn passes(limit: Duration, done: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limit, "nothing happened for {limit:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    start.elapsed()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_the_next_takes_over_when_it_vanishes() {
    let server = Server::default();
    let first = Candidate::start(&server, "first");
    passes(LONG, || first.leads()).await;
    let second = Candidate::start(&server, "second");
    tokio::time::sleep(LONG).await;
    assert!(first.leads() && !second.leads());
    assert_eq!(
        (server.holder().as_str(), server.transitions()),
        ("first", 0)
    );
    first.run.abort();
    let taken = passes(LONG, || second.leads()).await;
    assert!(taken > LEASE_DURATION - RETRY_PERIOD, "{taken:?}");
    assert!(taken < LEASE_DURATION + 2 * RETRY_PERIOD, "{taken:?}");
    assert_eq!(
        (server.holder().as_str(), server.transitions()),
        ("second", 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_stopped_hands_over_without_a_wait() {
    let server = Server::default();
    let mut first = Candidate::start(&server, "first");
    passes(LONG, || first.leads()).await;
    let second = Candidate::start(&server, "second");
    tokio::time::sleep(RETRY_PERIOD).await;
    drop(first.stop.take());
    let taken = passes(LONG, || second.leads()).await;
    assert!(
        taken <= RETRY_PERIOD + Duration::from_millis(100),
        "{taken:?}"
    );
    assert!(!first.leads());
    first.run.await.unwrap().expect("stopping is no loss");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_writing_after_ten_seconds_and_ends() {
    for fault in [Link::Cut, Link::Failing, Link::Contended] {
        let server = Server::default();
        let first = Candidate::start(&server, "first");
        passes(LONG, || first.leads()).await;
        first.set(fault);
        let led = passes(LONG, || !first.leads()).await;
        assert!(
            led <= RENEW_DEADLINE + Duration::from_millis(50),
            "{fault:?}: {led:?}"
        );
        let lost = first.run.await.unwrap();
        assert!(
            matches!(lost, Err(LeadershipLost::NotRenewed)),
            "{fault:?}: {lost:?}"
        );
    }
}

/// The process may be stopped as a whole: then nobody runs the elector, and time has passed when it
/// goes on.
#[tokio::test(start_paused = true)]
async fn leadership_ends_by_itself_when_the_elector_does_not_run() {
    let server = Server::default();
    let first = Candidate::start(&server, "first");
    passes(LONG, || first.leads()).await;
    first.run.abort();
    tokio::time::sleep(RENEW_DEADLINE).await;
    assert!(!first.leads());
}

#[tokio::test(start_paused = true)]
async fn a_short_fault_costs_nothing() {
    let server = Server::default();
    let first = Candidate::start(&server, "first");
    passes(LONG, || first.leads()).await;
    for fault in [Link::Cut, Link::Failing, Link::Contended, Link::Deaf] {
        first.set(fault);
        tokio::time::sleep(Duration::from_secs(4)).await;
        first.set(Link::Good);
        tokio::time::sleep(RENEW_DEADLINE).await;
        assert!(first.leads(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_else_took_ends_leadership_at_once() {
    let server = Server::default();
    let first = Candidate::start(&server, "first");
    passes(LONG, || first.leads()).await;
    if let Some(lease) = server.0.lock().unwrap().as_mut() {
        lease.metadata.resource_version = Some("100".to_owned());
        lease.spec.as_mut().unwrap().holder_identity = Some("thief".to_owned());
    }
    let led = passes(LONG, || !first.leads()).await;
    assert!(led <= RETRY_PERIOD + Duration::from_millis(100), "{led:?}");
    let lost = first.run.await.unwrap();
    assert!(matches!(lost, Err(LeadershipLost::Taken { holder }) if holder == "thief"));
}

/// Random faults between three candidates and the lease: at no time do two lead, and with good links
/// somebody does.
#[tokio::test(start_paused = true)]
async fn there_are_never_two_leaders_whatever_the_network_does() {
    for seed in 0..20_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let server = Server::default();
        let mut candidates: Vec<Candidate> = (0..3)
            .map(|n| Candidate::start(&server, &format!("c{n}")))
            .collect();
        let mut born = candidates.len();
        for step in 0..1200 {
            for candidate in &mut candidates {
                if candidate.run.is_finished() {
                    // The process ended; its replacement is a new candidate.
                    *candidate = Candidate::start(&server, &format!("c{born}"));
                    born += 1;
                }
                if draw(40) == 0 {
                    let links = [
                        Link::Good,
                        Link::Cut,
                        Link::Deaf,
                        Link::Failing,
                        Link::Contended,
                    ];
                    candidate.set(links[usize::try_from(draw(5)).unwrap()]);
                }
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
            let leaders = candidates
                .iter()
                .filter(|candidate| candidate.leads())
                .count();
            assert!(leaders <= 1, "seed {seed}, step {step}: {leaders} leaders");
        }
        candidates
            .iter()
            .for_each(|candidate| candidate.set(Link::Good));
        passes(LONG, || candidates.iter().any(Candidate::leads)).await;
        candidates
            .iter()
            .for_each(|candidate| candidate.run.abort());
    }
}

#[test]
fn without_an_election_leadership_is_for_ever() {
    assert!(Leadership::always().is_leader());
}
