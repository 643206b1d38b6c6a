//! Scripted faults, and how often what was called.
//!
//! Every call passes here first. A fault is about an action: `CreateFleet`, `ec2:CreateFleet`
//! or `*`. Random faults draw from a seed, so a run can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::error::{ApiError, Service};
use super::id::mix;

/// What happens to a call instead of, or after, its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// It fails without effect, with a code, a message and an HTTP status.
    Error {
        /// `InternalError`.
        code: String,
        /// For people.
        message: String,
        /// 400, 500, 503.
        status: u16,
    },
    /// It takes effect, but the connection breaks before the answer.
    LoseAnswer,
    /// The connection breaks before it takes effect.
    Reset,
}

/// A fault of the next calls of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which action; `*` for all.
    pub action: String,
    /// What happens.
    pub kind: FaultKind,
    /// To how many calls.
    pub times: u32,
}

/// How often an action was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CallCount {
    /// All calls.
    pub calls: u64,
    /// Those that were answered with an error, throttled ones and rehearsals included.
    pub errors: u64,
    /// Those that were throttled.
    pub throttled: u64,
}

/// What is to become of a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Carry it out.
    Proceed,
    /// Carry it out and break the connection.
    LoseAnswer,
    /// Break the connection.
    Reset,
    /// Answer with an error.
    Refuse(ApiError),
}

/// Scripted faults kept at most; more are refused.
const FAULTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    /// Share of calls to refuse, in 1/1000, and the state of the draw.
    throttled: BTreeMap<String, (u32, u64)>,
    latency: BTreeMap<String, Duration>,
    denied: BTreeSet<String>,
    /// By `service:Action`; bounded by the number of actions that clients invent.
    calls: BTreeMap<String, CallCount>,
}

/// Names that a rule about a call can have.
fn names(service: Service, action: &str) -> [String; 3] {
    [
        format!("{}:{action}", service.prefix()),
        action.to_owned(),
        "*".to_owned(),
    ]
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> bool {
        let fits = self.faults.len() < FAULTS_MAX && fault.times > 0;
        if fits {
            self.faults.push(fault);
        }
        fits
    }

    pub(crate) fn clear(&mut self) {
        self.faults.clear();
    }

    pub(crate) fn throttle(&mut self, action: &str, per_mille: u32, seed: u64) {
        if per_mille == 0 {
            self.throttled.remove(action);
        } else {
            self.throttled.insert(action.to_owned(), (per_mille, seed));
        }
    }

    pub(crate) fn delay(&mut self, action: &str, latency: Duration) {
        if latency.is_zero() {
            self.latency.remove(action);
        } else {
            self.latency.insert(action.to_owned(), latency);
        }
    }

    pub(crate) fn deny(&mut self, action: &str, denied: bool) {
        if denied {
            self.denied.insert(action.to_owned());
        } else {
            self.denied.remove(action);
        }
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, CallCount> {
        self.calls.clone()
    }

    /// How long to hold a call back, in real time.
    pub(crate) fn latency(&self, service: Service, action: &str) -> Duration {
        let names = names(service, action);
        names
            .iter()
            .find_map(|name| self.latency.get(name))
            .copied()
            .unwrap_or_default()
    }

    /// Decides about a call.
    pub(crate) fn judge(&mut self, service: Service, action: &str, account: &str) -> Verdict {
        let names = names(service, action);
        if names.iter().any(|name| self.denied.contains(name)) {
            return Verdict::Refuse(ApiError::unauthorized(service, action, account));
        }
        let rule = names.iter().find(|name| self.throttled.contains_key(*name));
        if let Some((per_mille, state)) = rule.and_then(|name| self.throttled.get_mut(name)) {
            *state = state.wrapping_add(1);
            if mix(*state) % 1_000 < u64::from(*per_mille) {
                return Verdict::Refuse(ApiError::throttled(service));
            }
        }
        let Some(at) = self
            .faults
            .iter()
            .position(|fault| names.contains(&fault.action))
        else {
            return Verdict::Proceed;
        };
        let Some(fault) = self.faults.get_mut(at) else {
            return Verdict::Proceed;
        };
        fault.times -= 1;
        let kind = fault.kind.clone();
        if fault.times == 0 {
            self.faults.remove(at);
        }
        match kind {
            FaultKind::Reset => Verdict::Reset,
            FaultKind::LoseAnswer => Verdict::LoseAnswer,
            FaultKind::Error {
                code,
                message,
                status,
            } => Verdict::Refuse(ApiError::new(code, message).with_status(status)),
        }
    }

    /// Counts a finished call.
    pub(crate) fn count(&mut self, service: Service, action: &str, error: Option<&ApiError>) {
        /// Different actions counted; a client that invents names must not fill the memory.
        const ACTIONS_MAX: usize = 1_000;
        let name = format!("{}:{action}", service.prefix());
        if self.calls.len() >= ACTIONS_MAX && !self.calls.contains_key(&name) {
            return;
        }
        let count = self.calls.entry(name).or_default();
        count.calls += 1;
        if let Some(error) = error {
            count.errors += 1;
            count.throttled += u64::from(*error == ApiError::throttled(service));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, FaultKind, Faults, Verdict};
    use crate::aws::error::Service::Ec2;

    #[test]
    fn a_fault_hits_the_next_calls_of_its_action_only() {
        let mut faults = Faults::default();
        let fault = Fault {
            action: "CreateFleet".to_owned(),
            kind: FaultKind::Reset,
            times: 2,
        };
        assert!(faults.add(fault));
        let mut judge = |action| faults.judge(Ec2, action, "1");
        assert_eq!(judge("DescribeInstances"), Verdict::Proceed);
        assert_eq!(judge("CreateFleet"), Verdict::Reset);
        assert_eq!(judge("CreateFleet"), Verdict::Reset);
        assert_eq!(judge("CreateFleet"), Verdict::Proceed);
    }

    #[test]
    fn throttling_hits_the_given_share_and_repeats_with_its_seed() {
        let run = || {
            let mut faults = Faults::default();
            faults.throttle("ec2:CreateTags", 250, 7);
            let refused =
                |_: &usize| matches!(faults.judge(Ec2, "CreateTags", "1"), Verdict::Refuse(_));
            (0..1_000_usize).filter(refused).collect::<Vec<_>>()
        };
        let hits = run();
        assert!((200..300).contains(&hits.len()), "{} of 1,000", hits.len());
        assert_eq!(hits, run());
    }

    #[test]
    fn denied_actions_are_unauthorized_until_allowed() {
        let mut faults = Faults::default();
        faults.deny("CreateFleet", true);
        let Verdict::Refuse(error) = faults.judge(Ec2, "CreateFleet", "1") else {
            panic!("the call was let through");
        };
        assert_eq!((error.status, &*error.code), (403, "UnauthorizedOperation"));
        faults.deny("CreateFleet", false);
        assert_eq!(faults.judge(Ec2, "CreateFleet", "1"), Verdict::Proceed);
    }
}
