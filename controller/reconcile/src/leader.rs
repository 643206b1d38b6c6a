//! Leader election on Karpenter's own Lease, so that of Karpenter and all replicas of Millwright only
//! one ever acts.
//!
//! Timing is that of controller-runtime: a lease lasts 15 s, its holder gives up after 10 s without a
//! renewal, everybody looks every 2 s. A holder that gives up stops writing at once and the process
//! ends: half a leader is worse than none.

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

/// What an election ended with.
#[derive(Debug, thiserror::Error)]
#[error("leadership was lost: the lease could not be renewed for {} s", RENEW_DEADLINE.as_secs())]
pub struct LeadershipLost;

/// Whether this process leads. Clones see the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    leads: watch::Receiver<bool>,
}

impl Leadership {
    /// Whether this process leads now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        *self.leads.borrow()
    }

    /// Resolves when this process leads.
    pub async fn acquired(&self) {
        let mut leads = self.leads.clone();
        if leads.wait_for(|leads| *leads).await.is_err() {
            // The elector is gone: the process is ending and will never lead.
            std::future::pending::<()>().await;
        }
    }

    /// A leadership that is held from the start, for `--disable-leader-election`.
    #[must_use]
    pub fn always() -> Self {
        let (sender, leads) = watch::channel(true);
        // The channel stays open for the life of the process.
        std::mem::forget(sender);
        Self { leads }
    }
}

/// Takes part in the election.
#[derive(Debug)]
pub struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
    leads: watch::Sender<bool>,
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
        let (leads, receiver) = watch::channel(false);
        let leases = Api::namespaced(client, namespace);
        let elector = Self {
            leases,
            name: name.to_owned(),
            identity,
            leads,
            observed: None,
        };
        (elector, Leadership { leads: receiver })
    }

    /// Runs until `stop` resolves (the lease is then released) or leadership is lost.
    ///
    /// # Errors
    /// When leadership was held and lost.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), LeadershipLost> {
        tokio::pin!(stop);
        let mut renewed: Option<Instant> = None;
        loop {
            let attempt = tokio::time::timeout(RETRY_PERIOD * 2, self.try_hold());
            let held = tokio::select! {
                () = &mut stop => {
                    self.release(renewed.is_some()).await;
                    return Ok(());
                }
                attempt = attempt => attempt,
            };
            match held {
                Ok(Ok(true)) => {
                    renewed = Some(Instant::now());
                    if !self.leads.send_replace(true) {
                        tracing::info!(
                            lease = self.name,
                            identity = self.identity,
                            "became leader"
                        );
                    }
                }
                Ok(Ok(false)) if renewed.is_some() => return Err(self.lose()),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, %error, "lease could not be read or written")
                }
                Err(_) => tracing::warn!(lease = self.name, "lease request timed out"),
            }
            if renewed.is_some_and(|at| at.elapsed() > RENEW_DEADLINE) {
                return Err(self.lose());
            }
            tokio::select! {
                () = &mut stop => {
                    self.release(renewed.is_some()).await;
                    return Ok(());
                }
                () = tokio::time::sleep(RETRY_PERIOD) => {}
            }
        }
    }

    fn lose(&self) -> LeadershipLost {
        self.leads.send_replace(false);
        LeadershipLost
    }

    /// Creates, takes over or renews the lease; says whether we hold it.
    async fn try_hold(&mut self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.record(None)),
            };
            return absorb_conflict(self.leases.create(&PostParams::default(), &lease).await);
        };
        let ours = lease
            .spec
            .as_ref()
            .and_then(|s| s.holder_identity.as_deref())
            == Some(&self.identity);
        if !ours && !self.has_expired(&lease) {
            return Ok(false);
        }
        lease.spec = Some(self.record(lease.spec.as_ref()));
        absorb_conflict(
            self.leases
                .replace(&self.name, &PostParams::default(), &lease)
                .await,
        )
    }

    fn has_expired(&mut self, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        if spec
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default()
            .is_empty()
        {
            return true;
        }
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
    async fn release(&self, held: bool) {
        self.leads.send_replace(false);
        if !held {
            return;
        }
        let released = async {
            let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
                return Ok(());
            };
            let ours = lease
                .spec
                .as_ref()
                .and_then(|s| s.holder_identity.as_deref())
                == Some(&self.identity);
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
    }
}

/// Somebody else wrote first: not held, and no error.
fn absorb_conflict<T>(result: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
