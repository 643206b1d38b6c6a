//! Leader election on Karpenter's own Lease, so that of Karpenter and all replicas of Millwright only
//! one ever acts.
//!
//! Timing is that of controller-runtime: a lease lasts 15 s, its holder gives up after 10 s without a
//! renewal, everybody looks every 2 s. A holder that gives up stops writing at once and the process
//! ends: half a leader is worse than none.
//!
//! Leadership is a deadline, not a flag: it ends by itself 10 s after the *start* of the last renewal
//! that succeeded, even if this process was stopped meanwhile and nobody told it. Others take over
//! when they saw no renewal for 15 s, so between two leaders there are at least 5 s.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::watch, time::Instant};

const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Longest time for one request; half the deadline, so that a lost answer leaves a second try.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What an election ended with.
#[derive(Debug, thiserror::Error)]
pub enum LeadershipLost {
    /// No renewal succeeded in time.
    #[error("leadership was lost: the lease could not be renewed for {} s", RENEW_DEADLINE.as_secs())]
    NotRenewed,
    /// Another process holds the lease that was ours.
    #[error("leadership was lost: {holder} holds the lease")]
    Taken {
        /// Identity in the lease.
        holder: String,
    },
}

/// Until when this process leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    Follower,
    Until(Instant),
    Always,
}

/// Whether this process leads. Clones see the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: watch::Receiver<Term>,
}

impl Leadership {
    /// Whether this process leads now. Ask right before each write.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        match *self.term.borrow() {
            Term::Follower => false,
            Term::Until(end) => Instant::now() < end,
            Term::Always => true,
        }
    }

    /// Resolves when this process leads.
    pub async fn acquired(&self) {
        let mut term = self.term.clone();
        if term.wait_for(|term| *term != Term::Follower).await.is_err() {
            // The elector is gone: the process is ending and will never lead.
            std::future::pending::<()>().await;
        }
    }

    /// A leadership that is held from the start, for `--disable-leader-election`.
    #[must_use]
    pub fn always() -> Self {
        // The last value outlives its sender.
        let (_, term) = watch::channel(Term::Always);
        Self { term }
    }
}

/// What one attempt found.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// The lease is ours, freshly written.
    Held,
    /// Somebody else's lease has not expired.
    Theirs(String),
    /// Somebody wrote between our read and our write; who holds it is not known.
    Contended,
}

/// Takes part in the election.
#[derive(Debug)]
pub struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
    term: watch::Sender<Term>,
    /// The record of another holder as last seen, and when it was first seen so: a lease has expired
    /// when its record did not change for its duration by *our* clock, whatever the holder's says.
    observed: Option<(Option<LeaseSpec>, Instant)>,
}

impl Elector {
    /// A candidate by the given identity (`HOSTNAME_UUID`).
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
    ) -> (Self, Leadership) {
        let (term, receiver) = watch::channel(Term::Follower);
        let leases = Api::namespaced(client, namespace);
        let elector = Self {
            leases,
            name: name.to_owned(),
            identity,
            term,
            observed: None,
        };
        (elector, Leadership { term: receiver })
    }

    /// Runs until `stop` resolves (the lease is then released) or leadership is lost.
    ///
    /// # Errors
    /// When leadership was held and lost; the process must end.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), LeadershipLost> {
        tokio::pin!(stop);
        let mut end: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let give_up = end.unwrap_or(now + RENEW_DEADLINE);
            let answer_by = give_up.min(now + REQUEST_TIMEOUT);
            let attempt = tokio::select! {
                () = &mut stop => return self.release(end.is_some()).await,
                attempt = tokio::time::timeout_at(answer_by, self.attempt()) => attempt,
            };
            match attempt {
                Ok(Ok(Attempt::Held)) => {
                    if end.replace(now + RENEW_DEADLINE).is_none() {
                        tracing::info!(
                            lease = self.name,
                            identity = self.identity,
                            "became leader"
                        );
                    }
                    self.term.send_replace(Term::Until(now + RENEW_DEADLINE));
                }
                Ok(Ok(Attempt::Theirs(holder))) if end.is_some() => {
                    self.term.send_replace(Term::Follower);
                    return Err(LeadershipLost::Taken { holder });
                }
                Ok(Ok(Attempt::Theirs(_) | Attempt::Contended)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, %error, "lease could not be read or written");
                }
                Err(_) => tracing::warn!(lease = self.name, "lease request timed out"),
            }
            let next = Instant::now() + RETRY_PERIOD;
            tokio::select! {
                () = &mut stop => return self.release(end.is_some()).await,
                () = tokio::time::sleep_until(end.map_or(next, |end| end.min(next))) => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                self.term.send_replace(Term::Follower);
                return Err(LeadershipLost::NotRenewed);
            }
        }
    }

    /// Creates, takes over or renews the lease.
    async fn attempt(&mut self) -> Result<Attempt, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.record(None)),
            };
            return written(self.leases.create(&PostParams::default(), &lease).await);
        };
        let holder = holder(&lease);
        if holder != self.identity && !self.has_expired(&lease) {
            return Ok(Attempt::Theirs(holder.to_owned()));
        }
        lease.spec = Some(self.record(lease.spec.as_ref()));
        let replaced = self
            .leases
            .replace(&self.name, &PostParams::default(), &lease)
            .await;
        written(replaced)
    }

    fn has_expired(&mut self, lease: &Lease) -> bool {
        if holder(lease).is_empty() {
            return true;
        }
        let spec = lease.spec.as_ref();
        let now = Instant::now();
        let since = match &self.observed {
            Some((seen, since)) if seen.as_ref() == spec => *since,
            _ => {
                self.observed = Some((lease.spec.clone(), now));
                now
            }
        };
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or(15);
        now.duration_since(since) > Duration::from_secs(u64::try_from(seconds).unwrap_or(15))
    }

    fn record(&self, previous: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours =
            previous.and_then(|spec| spec.holder_identity.as_deref()) == Some(&self.identity);
        let transitions = previous
            .and_then(|spec| spec.lease_transitions)
            .unwrap_or(0);
        let acquired = previous
            .filter(|_| ours)
            .and_then(|spec| spec.acquire_time.clone());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: acquired.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours || previous.is_none() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }
    }

    /// Gives the lease back, so that the next leader need not wait for it to expire.
    async fn release(&self, held: bool) -> Result<(), LeadershipLost> {
        self.term.send_replace(Term::Follower);
        if !held {
            return Ok(());
        }
        let released = async {
            let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
                return Ok(());
            };
            let ours = holder(&lease) == self.identity;
            if let Some(spec) = lease.spec.as_mut().filter(|_| ours) {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.leases
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await?;
            }
            Ok::<(), kube::Error>(())
        };
        match tokio::time::timeout(RETRY_PERIOD, released).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "lease could not be released"),
            Err(_) => tracing::warn!("releasing the lease timed out"),
        }
        Ok(())
    }
}

fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

/// A conflict means that somebody else wrote first, which is no error.
fn written(result: Result<Lease, kube::Error>) -> Result<Attempt, kube::Error> {
    match result {
        Ok(_) => Ok(Attempt::Held),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Contended),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
