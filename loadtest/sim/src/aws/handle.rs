//! Starting the simulator, and steering it from Rust.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::Sim;
use super::capacity::PoolPattern;
use super::config::AwsSimConfig;
use super::events::Event;
use super::fault::{CallCount, Fault};
use super::image::{Image, Release};
use super::instance::{Health, Instance};
use super::network::{SecurityGroup, Subnet};
use super::server;
use super::tags::Tags;
use super::world::Cause;

/// Starts simulators.
#[derive(Debug, Clone, Copy)]
pub struct AwsSim;

impl AwsSim {
    /// Listens and serves until the handle is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start(config: AwsSimConfig) -> io::Result<AwsSimHandle> {
        let listener = TcpListener::bind(config.listen).await?;
        let address = listener.local_addr()?;
        let sim = Arc::new(Sim::new(config, address));
        let server = tokio::spawn({
            let sim = sim.clone();
            async move {
                server::accept(listener, sim).await;
            }
        });
        let driver = tokio::spawn(drive(sim.clone()));
        Ok(AwsSimHandle {
            world: AwsWorld { sim },
            address,
            tasks: [server, driver],
        })
    }
}

/// Lets things happen when they fall due, also when nobody asks.
async fn drive(sim: Arc<Sim>) {
    loop {
        let (wake, due_ms) = {
            let world = sim.world();
            (world.wake.clone(), world.next_due_ms())
        };
        match due_ms {
            None => wake.notified().await,
            Some(due_ms) => tokio::select! {
                () = wake.notified() => {}
                () = sim.clock().sleep_until(due_ms) => {}
            },
        }
    }
}

/// A running simulator. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct AwsSimHandle {
    world: AwsWorld,
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl AwsSimHandle {
    /// The URL for `AWS_ENDPOINT_URL`: all services are behind it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.world.sim.endpoint().to_owned()
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The simulated account, to be looked at and steered.
    #[must_use]
    pub fn world(&self) -> AwsWorld {
        self.world.clone()
    }
}

impl Drop for AwsSimHandle {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The simulated account: what tests and the kubelet stand-in see and do. Clones are the same
/// account. Every method first lets happen what is due.
#[derive(Debug, Clone)]
pub struct AwsWorld {
    sim: Arc<Sim>,
}

impl AwsWorld {
    /// All instances that descriptions can show, terminated ones included, in order of launch.
    #[must_use]
    pub fn instances(&self) -> Vec<Arc<Instance>> {
        self.sim.world().instances.from(0).cloned().collect()
    }

    /// One instance.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<Arc<Instance>> {
        self.sim.world().instances.get(id).cloned()
    }

    /// Snapshots of all instances, and a subscription to every later change of state. Nothing
    /// is lost or doubled between the two. A receiver that falls behind gets
    /// `RecvError::Lagged` and should list again.
    #[must_use]
    pub fn watch_instances(&self) -> (Vec<Arc<Instance>>, broadcast::Receiver<Arc<Instance>>) {
        let world = self.sim.world();
        (
            world.instances.from(0).cloned().collect(),
            world.subscribe(),
        )
    }

    /// The time on the simulator's clock, milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.sim.world().now_ms
    }

    /// The subnets.
    #[must_use]
    pub fn subnets(&self) -> Vec<Subnet> {
        self.sim.world().network.subnets.values().cloned().collect()
    }

    /// The security groups.
    #[must_use]
    pub fn security_groups(&self) -> Vec<SecurityGroup> {
        self.sim.world().network.groups.values().cloned().collect()
    }

    /// The machine images.
    #[must_use]
    pub fn images(&self) -> Vec<Arc<Image>> {
        self.sim.world().images.by_id.values().cloned().collect()
    }

    /// Names of the instance profiles, sorted.
    #[must_use]
    pub fn instance_profiles(&self) -> Vec<String> {
        self.sim.world().iam.profile_names()
    }

    /// Names of the launch templates, in order of creation.
    #[must_use]
    pub fn launch_templates(&self) -> Vec<String> {
        self.sim.world().templates.names()
    }

    /// Sets how many instances the matching pools can give from now on; `None` is any number.
    pub fn set_capacity(&self, pattern: PoolPattern, free: Option<u32>) {
        self.sim.world().capacity.set(pattern, free);
    }

    /// Makes the matching pools fail with an error of CreateFleet's list: a number of times,
    /// or until [`AwsWorld::reset`].
    pub fn fail_pools(
        &self,
        pattern: PoolPattern,
        code: impl Into<String>,
        message: impl Into<String>,
        times: Option<u32>,
    ) {
        self.sim
            .world()
            .capacity
            .fail(pattern, code.into(), message.into(), times);
    }

    /// Warns of a spot interruption, and reclaims the instance when the notice is over.
    /// `false` without such an instance; so for the following.
    pub fn interrupt(&self, id: &str) -> bool {
        self.sim.world().interrupt(id)
    }

    /// Sends a rebalance recommendation.
    pub fn recommend_rebalance(&self, id: &str) -> bool {
        self.sim.world().notify(id, Event::Rebalance)
    }

    /// Sends a scheduled-change event of AWS Health, for example
    /// `AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED`.
    pub fn announce_scheduled_change(&self, id: &str, event_type_code: &str) -> bool {
        self.sim
            .world()
            .notify(id, Event::ScheduledChange(event_type_code))
    }

    /// The machine under an instance dies: it is terminated without notice.
    pub fn kill(&self, id: &str) -> bool {
        self.sim.world().terminate(id, Cause::Failure).is_some()
    }

    /// Stops a running instance.
    pub fn stop(&self, id: &str) -> bool {
        self.sim.world().stop(id)
    }

    /// Sets what the status checks say.
    pub fn set_health(&self, id: &str, health: Health) -> bool {
        self.sim
            .world()
            .instances
            .update(id, |instance| instance.health = health)
            .is_some()
    }

    /// Puts a message into the interruption queue as it is. `false` without a queue.
    pub fn send_message(&self, body: impl Into<String>) -> bool {
        let mut world = self.sim.world();
        let Some(queue) = world.config.interruption_queue.clone() else {
            return false;
        };
        let (id, now_ms) = (world.message_ids.uuid(), world.now_ms);
        world.queues.deliver(&queue, id, body.into(), now_ms);
        true
    }

    /// Messages in the interruption queue, visible or in flight; 0 without a queue.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        let world = self.sim.world();
        let queue = world.config.interruption_queue.as_deref();
        queue
            .and_then(|queue| world.queues.depth(queue))
            .unwrap_or(0)
    }

    /// Publishes images of all families; `latest` and `recommended` point to them from now on.
    pub fn publish_images(&self, date: &str, bottlerocket: &str) {
        let mut world = self.sim.world();
        let at_ms = world.now_ms;
        world.images.publish(Release {
            date,
            bottlerocket,
            at_ms,
        });
    }

    /// Adds or replaces an image.
    pub fn put_image(&self, image: Image) {
        self.sim
            .world()
            .images
            .by_id
            .insert(image.id.clone(), Arc::new(image));
    }

    /// Sets a parameter of the parameter store.
    pub fn put_parameter(&self, name: &str, value: &str) {
        let mut world = self.sim.world();
        let now_ms = world.now_ms;
        world.images.put_parameter(name, value, now_ms);
    }

    /// Adds a role.
    pub fn add_role(&self, name: &str) {
        let mut world = self.sim.world();
        let (id, now_ms) = (world.ids.iam("AROA"), world.now_ms);
        world.iam.add_role(name, id, now_ms);
    }

    /// Adds a private subnet to a zone (by name or id), in the account's VPC or another one.
    /// Gives its id; `None` without such a zone.
    pub fn add_subnet(&self, zone: &str, vpc_id: Option<&str>, tags: Tags) -> Option<Arc<str>> {
        let mut world = self.sim.world();
        let zone = world.network.zone(zone)?.clone();
        let vpc = vpc_id.map_or_else(|| world.network.vpc_id.clone(), Arc::from);
        Some(world.network.add_subnet(&zone, &vpc, tags))
    }

    /// Adds a security group to the account's VPC or another one, and gives its id.
    pub fn add_security_group(&self, name: &str, vpc_id: Option<&str>, tags: Tags) -> String {
        let mut world = self.sim.world();
        let vpc = vpc_id.map_or_else(|| world.network.vpc_id.clone(), Arc::from);
        world.network.add_group(name, &vpc, tags)
    }

    /// Makes the next calls of an action fail. `false` when there are too many faults already.
    pub fn fail_next(&self, fault: Fault) -> bool {
        self.sim.faults().add(fault)
    }

    /// Forgets the faults that [`Self::fail_next`] scripted and no call has met yet.
    pub fn clear_faults(&self) {
        self.sim.faults().clear();
    }

    /// Throttles a share of an action's calls (in 1/1000, 0 ends it), by draws from a seed.
    pub fn throttle(&self, action: &str, per_mille: u32, seed: u64) {
        self.sim.faults().throttle(action, per_mille, seed);
    }

    /// Holds an action's calls back in real time; zero ends it.
    pub fn set_latency(&self, action: &str, latency: Duration) {
        self.sim.faults().delay(action, latency);
    }

    /// Takes the permission for an action away, or gives it back.
    pub fn deny(&self, action: &str, denied: bool) {
        self.sim.faults().deny(action, denied);
    }

    /// How often each action (`ec2:CreateFleet`) was called.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, CallCount> {
        self.sim.faults().calls()
    }

    /// Compares what is kept by increments with a count from scratch.
    #[cfg(test)]
    pub(crate) fn check(&self, pools: &[(&'static str, &str, super::CapacityType, u32)]) {
        self.sim.world().check(pools);
    }

    /// Starts over: no instances, templates, profiles, messages, faults or counts.
    pub fn reset(&self) {
        self.sim.reset();
    }
}
