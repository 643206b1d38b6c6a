//! What groups count while pods are placed, and what that allows the next pod.
//!
//! Counts only grow. A host that spread or anti-affinity over host names refuses is therefore
//! refused for ever, and one that affinity refuses is worth another look only when a selected pod
//! has come to it: [`Ledger::arrivals`] lists those hosts.
//!
//! Source: provisioning specification 6.16.4 and 6.16.5. Ties between domains go to the first by
//! name.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    DomainSet, GroupOrd, KeyOrd, Obeyed, PortsOrd, Rule, Rules, Topology, conflict,
    group::FilterOrd,
};
use crate::{first_fit::PLACEHOLDER, problem::NodeOrd};

/// A node, as a domain of the host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    Existing(NodeOrd),
    /// A planned node of the component.
    Planned(u32),
}

/// Whether a host takes a pod, as far as rules over host names go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Yes,
    /// Not before a pod comes that affinity selects.
    NotYet,
    /// Never again in this pass.
    Never,
}

/// Where a placed pod may end up, by one key.
#[derive(Debug)]
pub(crate) enum Located {
    /// In one of these.
    In(DomainSet),
    /// In any domain: what was decided before this pass leaves it open.
    Anywhere,
    /// In none.
    Nowhere,
}

/// What rules narrow a node to: domains by key.
pub(crate) type Pins = SmallVec<[(KeyOrd, DomainSet); 2]>;

/// The counts of one group.
#[derive(Debug)]
struct Live {
    known: DomainSet,
    pods: Vec<u32>,
    /// Pods that this pass added, by host.
    hosts: FxHashMap<Host, u32>,
    /// Hosts that got their first pod in this pass.
    arrivals: Vec<Host>,
}

/// The counts of one component.
#[derive(Debug)]
pub(crate) struct Ledger<'p> {
    topology: &'p Topology,
    groups: Vec<Live>,
    ports: FxHashMap<Host, SmallVec<[PortsOrd; 2]>>,
}

impl<'p> Ledger<'p> {
    /// The counts before the pass. Without a pod under rules (`in_use`), nothing is counted.
    pub(crate) fn new(topology: &'p Topology, in_use: bool) -> Self {
        let live = |base: &super::Counts| Live {
            known: base.known.clone(),
            pods: base.pods.clone(),
            hosts: FxHashMap::default(),
            arrivals: Vec::new(),
        };
        Self {
            topology,
            groups: topology.base.iter().filter(|_| in_use).map(live).collect(),
            ports: FxHashMap::default(),
        }
    }

    /// The domains that a node must be narrowed to for a pod with `rules`. `open` gives those that
    /// the node, with the pod's own requirements, may still be in; `None` when it lacks the label.
    /// `None` when some rule leaves no domain.
    pub(crate) fn pins(
        &self,
        rules: &Rules,
        mut open: impl FnMut(KeyOrd) -> Option<DomainSet>,
    ) -> Option<Pins> {
        let mut pins = Pins::new();
        for obeyed in &rules.obeyed {
            let key = self.topology.group(obeyed.group).key;
            if self.topology.keys[key].is_hostname {
                continue;
            }
            let left = self.allowed(obeyed, &open(key)?);
            let at = pins.iter().position(|(pinned, _)| *pinned == key);
            let pinned = match at {
                Some(at) => {
                    pins[at].1.intersect(&left);
                    &pins[at].1
                }
                None => {
                    pins.push((key, left));
                    &pins[pins.len() - 1].1
                }
            };
            if pinned.is_empty() {
                return None;
            }
        }
        Some(pins)
    }

    /// The domains among `open` that a group allows.
    fn allowed(&self, obeyed: &Obeyed, open: &DomainSet) -> DomainSet {
        let live = &self.groups[obeyed.group as usize];
        let mut known = live.known.clone();
        known.intersect(open);
        match self.topology.group(obeyed.group).rule {
            Rule::Spread {
                max_skew,
                min_domains,
            } => {
                let least = self.least(obeyed, min_domains);
                let own = u32::from(obeyed.counts_itself);
                let within = |at: &usize| {
                    live.pods[*at].saturating_add(own) <= least.saturating_add(max_skew)
                };
                let best = known.iter().filter(within).min_by_key(|at| live.pods[*at]);
                only(best, &known)
            }
            Rule::Affinity => {
                known.intersect(&obeyed.allowed);
                let mut occupied = known.clone();
                retain(&mut occupied, |at| live.pods[at] > 0);
                if occupied.is_empty() && self.may_begin(obeyed) {
                    return only(known.iter().next(), &known);
                }
                occupied
            }
            Rule::AntiAffinity | Rule::Repulsion => {
                known.intersect(&obeyed.allowed);
                retain(&mut known, |at| live.pods[at] == 0);
                known
            }
        }
    }

    /// The pods in the emptiest domain that the pod could be in.
    fn least(&self, obeyed: &Obeyed, min_domains: u32) -> u32 {
        let live = &self.groups[obeyed.group as usize];
        let mut eligible = live.known.clone();
        eligible.intersect(&obeyed.allowed);
        if eligible.len() < min_domains as usize {
            return 0;
        }
        let counts = eligible.iter().map(|at| live.pods[at]);
        counts.min().unwrap_or(u32::MAX)
    }

    /// Whether a pod that selects itself may be the first of its kind.
    fn may_begin(&self, obeyed: &Obeyed) -> bool {
        let live = &self.groups[obeyed.group as usize];
        obeyed.counts_itself
            && (live.pods.iter().all(|pods| *pods == 0)
                || obeyed.allowed.iter().all(|at| live.pods[at] == 0))
    }

    /// Whether rules over host names allow a pod on `host`.
    pub(crate) fn on_host(&self, rules: &Rules, host: Host) -> Verdict {
        let mut verdict = Verdict::Yes;
        for obeyed in &rules.obeyed {
            let group = self.topology.group(obeyed.group);
            if !self.topology.keys[group.key].is_hostname {
                continue;
            }
            let pods = self.pods_on(obeyed.group, host);
            match group.rule {
                Rule::Spread { max_skew, .. } => {
                    if pods.saturating_add(u32::from(obeyed.counts_itself)) > max_skew {
                        return Verdict::Never;
                    }
                }
                Rule::AntiAffinity | Rule::Repulsion => {
                    if pods > 0 {
                        return Verdict::Never;
                    }
                }
                Rule::Affinity => {
                    if pods == 0 && !self.may_begin_on_a_host(obeyed) {
                        verdict = Verdict::NotYet;
                    }
                }
            }
        }
        verdict
    }

    fn pods_on(&self, group: GroupOrd, host: Host) -> u32 {
        let added = self.groups[group as usize].hosts.get(&host).copied();
        let before = match host {
            Host::Existing(node) => {
                let base = &self.topology.base[group as usize];
                base.hosts.get(&node).copied().unwrap_or(0)
            }
            Host::Planned(_) => 0,
        };
        before + added.unwrap_or(0)
    }

    fn may_begin_on_a_host(&self, obeyed: &Obeyed) -> bool {
        let base = &self.topology.base[obeyed.group as usize];
        let live = &self.groups[obeyed.group as usize];
        if !obeyed.counts_itself {
            return false;
        }
        if base.hosts.is_empty() && base.leaving == 0 && live.hosts.is_empty() {
            return true;
        }
        let Some(wanted) = &obeyed.host else {
            return false;
        };
        let allowed = |host: &Host| match host {
            Host::Existing(node) => wanted.has(&self.topology.hostnames[*node as usize]),
            Host::Planned(_) => wanted.has(PLACEHOLDER),
        };
        let before = base.hosts.keys().map(|node| Host::Existing(*node));
        !before
            .chain(live.hosts.keys().copied())
            .any(|host| allowed(&host))
    }

    /// Whether ports are free on `host`; once taken, they stay taken.
    pub(crate) fn has_ports(&self, rules: &Rules, host: Host) -> bool {
        let Some(wanted) = rules.ports else {
            return true;
        };
        let lists = &self.topology.ports;
        let before = match host {
            Host::Existing(node) => self.topology.taken_ports.get(node as usize),
            Host::Planned(_) => None,
        };
        let mut taken = before.into_iter().chain(self.ports.get(&host)).flatten();
        !taken.any(|ports| conflict(lists.get(wanted), lists.get(*ports)))
    }

    /// Hosts that got their first pod that `group` counts, in order.
    pub(crate) fn arrivals(&self, group: GroupOrd) -> &[Host] {
        &self.groups[group as usize].arrivals
    }

    /// Counts a pod that was placed on `host`.
    pub(crate) fn record(
        &mut self,
        rules: &Rules,
        host: Host,
        mut located: impl FnMut(KeyOrd) -> Located,
        mut passes: impl FnMut(FilterOrd) -> bool,
    ) {
        for group in rules.counted.iter().chain(&rules.repels) {
            let of = self.topology.group(*group);
            let live = &mut self.groups[*group as usize];
            if of.filter.is_some_and(|filter| !passes(filter)) {
                continue;
            }
            if self.topology.keys[of.key].is_hostname {
                let pods = live.hosts.entry(host).or_default();
                *pods += 1;
                if *pods == 1 {
                    live.arrivals.push(host);
                }
                continue;
            }
            let keeps_away = matches!(of.rule, Rule::AntiAffinity | Rule::Repulsion);
            let domains = match located(of.key) {
                Located::In(domains) if keeps_away || domains.len() == 1 => domains,
                Located::Anywhere if keeps_away => live.known.clone(),
                Located::In(_) | Located::Anywhere | Located::Nowhere => continue,
            };
            live.known.unite(&domains);
            domains.iter().for_each(|at| live.pods[at] += 1);
        }
        if let Some(ports) = rules.ports {
            self.ports.entry(host).or_default().push(ports);
        }
    }
}

/// The set of `at` alone, as large as `like`.
fn only(at: Option<usize>, like: &DomainSet) -> DomainSet {
    let mut set = like.clone();
    set.subtract(like);
    if let Some(at) = at {
        set.insert(at);
    }
    set
}

fn retain(set: &mut DomainSet, keep: impl Fn(usize) -> bool) {
    let mut left = set.clone();
    left.subtract(set);
    set.iter()
        .filter(|at| keep(*at))
        .for_each(|at| left.insert(at));
    *set = left;
}
