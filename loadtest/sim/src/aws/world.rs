//! The state of the simulated account, and how it moves with time.
//!
//! One value behind one lock. Whoever takes the lock first lets everything happen that was
//! due by now ([`World::advance`]), so a read never sees a state that time has overtaken, and
//! a test with a manual clock needs no waiting. A background task does the same whenever the
//! next thing falls due, so that subscribers hear of it without a request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast};

use super::capacity::{Capacity, CapacityType};
use super::clock::millis;
use super::config::AwsSimConfig;
use super::ec2::template::Templates;
use super::events::{self, Event};
use super::iam::Iam;
use super::id::{Ids, mix};
use super::image::Images;
use super::instance::{Instance, InstanceState, Instances};
use super::network::Network;
use super::sqs::Queues;
use super::throttle::Buckets;

/// Snapshots that a slow subscriber may be behind before it misses some and has to list again.
const UPDATES_MAX: usize = 16_384;
/// Client tokens remembered; EC2 remembers them for a day.
const TOKENS_MAX: usize = 100_000;

/// The account.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Arc<AwsSimConfig>,
    pub(crate) now_ms: u64,
    /// Of resources. Only changes draw from it, so reads do not shift what comes later.
    pub(crate) ids: Ids,
    /// Of requests, events and messages.
    pub(crate) message_ids: Ids,
    pub(crate) network: Network,
    pub(crate) images: Images,
    pub(crate) templates: Templates,
    pub(crate) instances: Instances,
    pub(crate) capacity: Capacity,
    pub(crate) iam: Iam,
    pub(crate) queues: Queues,
    pub(crate) buckets: Buckets,
    pub(crate) tokens: Tokens,
    /// vCPUs in use, for the quotas.
    vcpus: HashMap<CapacityType, u32>,
    timers: BinaryHeap<Reverse<(u64, u64, Timer)>>,
    timers_made: u64,
    updates: broadcast::Sender<Arc<Instance>>,
    /// Told when something falls due earlier than anything before it.
    pub(crate) wake: Arc<Notify>,
}

/// Something that will happen. Ordered only to live in a heap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// pending to running.
    Run(Arc<str>),
    /// shutting-down to terminated.
    End(Arc<str>),
    /// stopping to stopped.
    Stop(Arc<str>),
    /// Leaves descriptions.
    Forget(Arc<str>),
    /// A spot instance's notice is over.
    Reclaim(Arc<str>),
    /// An event reaches the queue.
    Deliver(String),
}

/// Why an instance ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// TerminateInstances.
    User,
    /// EC2 took a spot instance back.
    Spot,
    /// The machine under it died.
    Failure,
}

impl World {
    pub(crate) fn new(config: Arc<AwsSimConfig>) -> Self {
        let now_ms = config.clock.now_ms();
        Self {
            now_ms,
            ids: Ids::new(config.seed),
            message_ids: Ids::new(!config.seed),
            network: Network::new(&config),
            images: Images::new(config.seed, now_ms),
            templates: Templates::default(),
            instances: Instances::default(),
            capacity: Capacity::new(&config),
            iam: Iam::new(&config, now_ms),
            queues: Queues::new(&config),
            buckets: Buckets::default(),
            tokens: Tokens::default(),
            vcpus: HashMap::new(),
            timers: BinaryHeap::new(),
            timers_made: 0,
            updates: broadcast::Sender::new(UPDATES_MAX),
            wake: Arc::default(),
            config,
        }
    }

    /// Starts over, as if new, on the same clock. Subscribers stay subscribed; they do not
    /// hear of the instances that vanish.
    pub(crate) fn reset(&mut self) {
        let mut queues = std::mem::replace(&mut self.queues, Queues::new(&self.config));
        queues.reset(&self.config);
        let (updates, wake) = (self.updates.clone(), self.wake.clone());
        *self = Self {
            updates,
            wake,
            queues,
            ..Self::new(self.config.clone())
        };
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Instance>> {
        self.updates.subscribe()
    }

    /// When the next thing falls due.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due, _, _))| *due)
    }

    /// Lets everything happen that is due at a time, in order.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        while let Some(Reverse((due, _, _))) = self.timers.peek() {
            if *due > now_ms {
                break;
            }
            let Some(Reverse((due, _, timer))) = self.timers.pop() else {
                break;
            };
            // A thing that was due earlier happens at its own time, not when it was noticed.
            self.now_ms = self.now_ms.max(due);
            self.fire(timer);
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Run(id) => self.transition(&id, InstanceState::Pending, InstanceState::Running),
            Timer::Stop(id) => {
                self.transition(&id, InstanceState::Stopping, InstanceState::Stopped);
            }
            Timer::End(id) => self.end(&id),
            Timer::Forget(id) => self.instances.remove(&id),
            Timer::Reclaim(id) => {
                self.terminate(&id, Cause::Spot);
            }
            Timer::Deliver(body) => self.deliver(body),
        }
    }

    fn after(&mut self, delay: Duration, timer: Timer) {
        self.timers_made += 1;
        let due = self.now_ms.saturating_add(millis(delay));
        if self.next_due_ms().is_none_or(|next| due < next) {
            self.wake.notify_one();
        }
        self.timers.push(Reverse((due, self.timers_made, timer)));
    }

    /// A delay between two bounds, drawn for one instance and purpose.
    fn drawn(
        &self,
        (shortest, longest): (Duration, Duration),
        ordinal: u64,
        purpose: u64,
    ) -> Duration {
        let span = millis(longest.saturating_sub(shortest)) + 1;
        let draw = mix(self.config.seed ^ mix(ordinal) ^ purpose) % span;
        shortest + Duration::from_millis(draw)
    }

    /// Adds a new, pending instance.
    pub(crate) fn admit(&mut self, instance: Instance) {
        let (id, ordinal) = (instance.id.clone(), instance.ordinal);
        *self.vcpus.entry(instance.capacity_type).or_default() += instance.facts.vcpu;
        let instance = Arc::new(instance);
        self.instances.insert(instance.clone());
        self.announce(instance);
        let delay = self.drawn(self.config.timing.pending, ordinal, 1);
        self.after(delay, Timer::Run(id));
    }

    /// vCPUs that launches of a capacity type may still use; `None`: any number.
    pub(crate) fn vcpus_left(&self, capacity_type: CapacityType) -> Option<u32> {
        let quota = match capacity_type {
            CapacityType::OnDemand => self.config.quotas.on_demand_vcpus,
            CapacityType::Spot => self.config.quotas.spot_vcpus,
        };
        let used = self.vcpus.get(&capacity_type).copied().unwrap_or(0);
        quota.map(|quota| quota.saturating_sub(used))
    }

    fn transition(&mut self, id: &str, from: InstanceState, to: InstanceState) {
        if self
            .instances
            .get(id)
            .is_some_and(|instance| instance.state == from)
        {
            self.set_state(id, to);
        }
    }

    fn set_state(&mut self, id: &str, state: InstanceState) {
        if let Some(instance) = self.instances.update(id, |instance| instance.state = state) {
            self.announce(instance);
        }
    }

    /// Tells subscribers and the queue.
    fn announce(&mut self, instance: Arc<Instance>) {
        self.emit(&instance, Event::State(instance.state.as_str()));
        // Without subscribers nobody needs to know.
        let _nobody_listens = self.updates.send(instance);
    }

    fn emit(&mut self, instance: &Instance, event: Event<'_>) {
        if self.config.interruption_queue.is_none() {
            return;
        }
        let body = events::envelope(self, &instance.id, &instance.zone.name, event);
        let delay = self.config.timing.event_delay;
        if delay.is_zero() {
            self.deliver(body);
        } else {
            self.after(delay, Timer::Deliver(body));
        }
    }

    fn deliver(&mut self, body: String) {
        if let Some(name) = self.config.interruption_queue.clone() {
            let (id, now_ms) = (self.message_ids.uuid(), self.now_ms);
            self.queues.deliver(&name, id, body, now_ms);
        }
    }

    /// Begins to end an instance. Gives the states before and after, or `None` if there is no
    /// such instance. One that is ending already stays as it is.
    pub(crate) fn terminate(
        &mut self,
        id: &str,
        cause: Cause,
    ) -> Option<(InstanceState, InstanceState)> {
        let instance = self.instances.get(id)?.clone();
        let before = instance.state;
        if before.is_ending() {
            return Some((before, before));
        }
        let reason = match cause {
            Cause::User => (
                "Client.UserInitiatedShutdown",
                "Client.UserInitiatedShutdown: User initiated shutdown",
            ),
            Cause::Spot => (
                "Server.SpotInstanceTermination",
                "Server.SpotInstanceTermination: Spot instance termination",
            ),
            Cause::Failure => (
                "Server.InternalError",
                "Server.InternalError: Internal error",
            ),
        };
        self.instances
            .update(id, |instance| instance.state_reason = Some(reason));
        self.set_state(id, InstanceState::ShuttingDown);
        let delay = if cause == Cause::Failure {
            Duration::ZERO
        } else {
            self.drawn(self.config.timing.shutting_down, instance.ordinal, 2)
        };
        self.after(delay, Timer::End(instance.id.clone()));
        Some((before, InstanceState::ShuttingDown))
    }

    /// The instance is gone: what it used is free again.
    fn end(&mut self, id: &str) {
        let Some(instance) = self.instances.get(id).cloned() else {
            return;
        };
        if let Some(address) = instance.private_ip {
            self.network.return_address(&instance.subnet_id, address);
        }
        self.capacity.give_back(
            instance.facts.name,
            &instance.zone.name,
            instance.capacity_type,
        );
        if let Some(used) = self.vcpus.get_mut(&instance.capacity_type) {
            *used = used.saturating_sub(instance.facts.vcpu);
        }
        self.instances
            .update(id, |instance| instance.private_ip = None);
        self.set_state(id, InstanceState::Terminated);
        self.after(
            self.config.timing.terminated_visible,
            Timer::Forget(instance.id.clone()),
        );
    }

    /// Begins to stop an instance, as a user or scheduled maintenance does.
    pub(crate) fn stop(&mut self, id: &str) -> bool {
        let Some(instance) = self.instances.get(id).cloned() else {
            return false;
        };
        if instance.state != InstanceState::Running {
            return false;
        }
        self.set_state(id, InstanceState::Stopping);
        let delay = self.drawn(self.config.timing.shutting_down, instance.ordinal, 3);
        self.after(delay, Timer::Stop(instance.id.clone()));
        true
    }

    /// Warns of an interruption and reclaims the instance when the notice is over.
    pub(crate) fn interrupt(&mut self, id: &str) -> bool {
        let Some(instance) = self.instances.get(id).cloned() else {
            return false;
        };
        self.emit(&instance, Event::SpotInterruption);
        self.after(
            self.config.timing.interruption_notice,
            Timer::Reclaim(instance.id.clone()),
        );
        true
    }

    /// Sends an event about an instance and does nothing else.
    pub(crate) fn notify(&mut self, id: &str, event: Event<'_>) -> bool {
        let Some(instance) = self.instances.get(id).cloned() else {
            return false;
        };
        self.emit(&instance, event);
        true
    }
}

/// Answers to requests that carried a client token.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    answers: HashMap<(&'static str, String), (u64, Arc<str>)>,
    order: VecDeque<(&'static str, String)>,
}

/// What is known about a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    New,
    /// The same request was answered with this.
    Same(Arc<str>),
    /// It was used with other parameters.
    Different,
}

impl Tokens {
    pub(crate) fn look_up(&self, action: &'static str, token: &str, digest: u64) -> Known {
        match self.answers.get(&(action, token.to_owned())) {
            None => Known::New,
            Some((known, answer)) if *known == digest => Known::Same(answer.clone()),
            Some(_) => Known::Different,
        }
    }

    pub(crate) fn remember(
        &mut self,
        action: &'static str,
        token: &str,
        digest: u64,
        answer: &str,
    ) {
        let key = (action, token.to_owned());
        if self
            .answers
            .insert(key.clone(), (digest, answer.into()))
            .is_none()
        {
            self.order.push_back(key);
        }
        if self.order.len() > TOKENS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }
}

#[cfg(test)]
impl World {
    /// Compares everything that is kept by increments with a count from scratch. `pools` are
    /// the pools that were given a capacity, with it.
    pub(crate) fn check(&self, pools: &[(&'static str, &str, CapacityType, u32)]) {
        let holding: Vec<&Arc<Instance>> = self
            .instances
            .from(0)
            .filter(|i| i.state != InstanceState::Terminated)
            .collect();
        let count = |test: &dyn Fn(&Instance) -> bool| {
            u32::try_from(holding.iter().filter(|i| test(i)).count()).unwrap_or(u32::MAX)
        };
        for subnet in self.network.subnets.values() {
            let size = 1 << (32 - u32::from(subnet.cidr.1));
            let used = count(&|i| i.subnet_id == subnet.id);
            assert_eq!(
                subnet.available_addresses(),
                size - 5 - used,
                "addresses of {}",
                subnet.id
            );
        }
        let mut addresses: Vec<_> = holding.iter().map(|i| i.private_ip).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), holding.len(), "no address is used twice");
        for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
            let used: u32 = holding
                .iter()
                .filter(|i| i.capacity_type == capacity_type)
                .map(|i| i.facts.vcpu)
                .sum();
            assert_eq!(
                self.vcpus.get(&capacity_type).copied().unwrap_or(0),
                used,
                "vCPUs"
            );
        }
        for &(name, zone, capacity_type, given) in pools {
            let used = count(&|i| {
                i.facts.name == name && &*i.zone.name == zone && i.capacity_type == capacity_type
            });
            let free = self.capacity.free(name, zone, capacity_type);
            assert_eq!(free, Some(given - used), "capacity of {name} in {zone}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Tokens};

    #[test]
    fn a_token_answers_the_same_request_and_refuses_another() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.look_up("CreateFleet", "t", 1), Known::New);
        tokens.remember("CreateFleet", "t", 1, "answer");
        assert_eq!(
            tokens.look_up("CreateFleet", "t", 1),
            Known::Same("answer".into())
        );
        assert_eq!(tokens.look_up("CreateFleet", "t", 2), Known::Different);
        assert_eq!(tokens.look_up("RunInstances", "t", 1), Known::New);
    }
}
