//! A simulated AWS account.
//!
//! Speaks the real wire protocols on one loopback port, so that the real SDKs can be pointed
//! at it with `AWS_ENDPOINT_URL`: EC2 (Query), IAM and STS (AWS Query), SSM, Pricing and SQS
//! (JSON), EKS (REST). It behaves where behaviour matters to a node autoscaler: pools run
//! dry, fleets are filled in part, instances take time, events reach a queue, calls are
//! throttled and repeated, answers get lost.
//!
//! ```text
//!   SDK --HTTP--> server --> fault (scripted faults, counts)
//!                   |----> ec2/*, iam, json, sqs      one function per action
//!                   |            |
//!   AwsWorld -------+----------> world (one lock) <-- clock: advance() before every look
//!   (tests, kubelet)             |--> broadcast of instance snapshots
//!                                '--> events --> sqs
//! ```
//!
//! Properties: the same seed and the same calls in the same order give the same identifiers
//! and the same behaviour; everything that grows has a bound; nothing happens later than the
//! next look after it was due. It must not know Kubernetes or the controller. Signatures are not
//! checked: whoever reaches the port is the account's owner.

mod capacity;
mod clock;
mod config;
mod control;
mod ec2;
mod error;
mod events;
mod fault;
mod filter;
mod handle;
mod iam;
mod id;
mod image;
mod instance;
mod json;
mod md5;
mod network;
mod page;
mod query;
mod server;
mod spec;
mod sqs;
mod tags;
#[cfg(test)]
mod tests;
mod throttle;
mod world;
mod xml;

pub use capacity::{CapacityType, PoolPattern};
pub use clock::{Clock, ManualClock, RealClock};
pub use config::{AwsSimConfig, ClusterConfig, Quotas, Timing};
pub use fault::{CallCount, Fault, FaultKind};
pub use handle::{AwsSim, AwsSimHandle, AwsWorld};
pub use image::Image;
pub use instance::{Health, Instance, InstanceState, Launch, TemplateRef};
pub use network::{SecurityGroup, Subnet, Zone};
pub use spec::{BlockDevice, InterfaceSpec, LaunchSpec};
pub use tags::Tags;
pub use throttle::{Bucket, ThrottleConfig};

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use error::{ApiError, Service};
use fault::Faults;
use world::World;

/// Everything behind the port.
#[derive(Debug)]
pub(crate) struct Sim {
    config: Arc<AwsSimConfig>,
    endpoint: String,
    world: Mutex<World>,
    faults: Mutex<Faults>,
}

impl Sim {
    fn new(config: AwsSimConfig, address: SocketAddr) -> Self {
        let config = Arc::new(config);
        Self {
            endpoint: format!("http://{address}"),
            world: Mutex::new(World::new(config.clone())),
            faults: Mutex::default(),
            config,
        }
    }

    fn config(&self) -> &AwsSimConfig {
        &self.config
    }

    fn clock(&self) -> &dyn Clock {
        &*self.config.clock
    }

    /// The URL it is reached at.
    fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The account, as it is now. A panic under the lock is a bug of one handler; the others
    /// go on with what is there.
    fn world(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.advance(self.config.clock.now_ms());
        world
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a token for an EC2 call.
    fn admit(&self, action: &str) -> Result<(), ApiError> {
        let Some(throttle) = &self.config.throttle else {
            return Ok(());
        };
        let mut world = self.world();
        let now_ms = world.now_ms;
        if world.buckets.admit(throttle, action, now_ms) {
            return Ok(());
        }
        Err(ApiError::throttled(Service::Ec2))
    }

    fn reset(&self) {
        self.world().reset();
        *self.faults() = Faults::default();
    }
}
