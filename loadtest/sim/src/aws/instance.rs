//! An instance, and all of them.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use millwright_ec2_catalogue::TypeFacts;

use super::capacity::CapacityType;
use super::image::Image;
use super::network::Zone;
use super::spec::LaunchSpec;
use super::tags::Tags;

/// The states of an instance's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// Accepted, not yet started.
    Pending,
    /// Started.
    Running,
    /// On the way to terminated.
    ShuttingDown,
    /// Gone; stays in descriptions for a while.
    Terminated,
    /// On the way to stopped.
    Stopping,
    /// Stopped.
    Stopped,
}

impl InstanceState {
    /// EC2's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }

    /// EC2's number.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Pending => 0,
            Self::Running => 16,
            Self::ShuttingDown => 32,
            Self::Terminated => 48,
            Self::Stopping => 64,
            Self::Stopped => 80,
        }
    }

    /// Shutting down or terminated: there is no way back.
    #[must_use]
    pub fn is_ending(self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Terminated)
    }
}

/// What the instances of one launch have in common.
#[derive(Debug)]
pub struct Launch {
    /// Parameters, the launch template's and the request's merged.
    pub spec: Arc<LaunchSpec>,
    /// Image.
    pub image: Arc<Image>,
    /// Where the parameters came from.
    pub template: Option<TemplateRef>,
    /// Absent for RunInstances.
    pub fleet_id: Option<String>,
    /// `r-...`.
    pub reservation_id: String,
    /// ARN and id of the instance profile.
    pub profile: Option<(String, String)>,
    /// Security groups, id and name, of the primary interface.
    pub groups: Vec<(String, String)>,
    /// The request's token.
    pub client_token: String,
}

/// A launch template in a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRef {
    /// `lt-...`.
    pub id: String,
    /// Name.
    pub name: String,
    /// Number.
    pub version: u64,
}

/// Result of a status check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Since when the system check fails.
    pub system_impaired_ms: Option<u64>,
    /// Since when the instance check fails.
    pub instance_impaired_ms: Option<u64>,
    /// Code, description and earliest time of scheduled events.
    pub events: Vec<(String, String, u64)>,
}

/// An instance. A snapshot: changes make a new value.
#[derive(Debug, Clone)]
pub struct Instance {
    /// `i-...`.
    pub id: Arc<str>,
    /// Position in order of launch; unique.
    pub ordinal: u64,
    /// Its type.
    pub facts: &'static TypeFacts,
    /// Its zone.
    pub zone: Zone,
    /// `subnet-...`.
    pub subnet_id: Arc<str>,
    /// `vpc-...`.
    pub vpc_id: Arc<str>,
    /// Spot or not.
    pub capacity_type: CapacityType,
    /// `sir-...` of a spot instance.
    pub spot_request_id: Option<String>,
    /// State.
    pub state: InstanceState,
    /// Why it ended: code and message.
    pub state_reason: Option<(&'static str, &'static str)>,
    /// When it was launched, milliseconds since the epoch.
    pub launched_ms: u64,
    /// From when on reads see it.
    pub visible_ms: u64,
    /// Private address; absent once terminated.
    pub private_ip: Option<Ipv4Addr>,
    /// `ip-10-0-0-1.ec2.internal`.
    pub private_dns_name: Arc<str>,
    /// Tags, those that AWS sets included.
    pub tags: Tags,
    /// Status checks.
    pub health: Health,
    /// What it shares with its siblings.
    pub launch: Arc<Launch>,
}

impl Instance {
    /// User data in base64, as given at launch.
    #[must_use]
    pub fn user_data(&self) -> Option<&str> {
        self.launch.spec.user_data.as_deref()
    }

    /// `aws:///us-east-1a/i-...`, as the Node object has it.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone.name, self.id)
    }
}

/// All instances that descriptions can still show, in order of launch.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    by_ordinal: BTreeMap<u64, Arc<Instance>>,
    ordinals: HashMap<Arc<str>, u64>,
    next: u64,
}

impl Instances {
    pub(crate) fn next_ordinal(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn insert(&mut self, instance: Arc<Instance>) {
        self.ordinals.insert(instance.id.clone(), instance.ordinal);
        self.by_ordinal.insert(instance.ordinal, instance);
    }

    pub(crate) fn remove(&mut self, id: &str) {
        if let Some(ordinal) = self.ordinals.remove(id) {
            self.by_ordinal.remove(&ordinal);
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<Instance>> {
        self.by_ordinal.get(self.ordinals.get(id)?)
    }

    /// Changes one instance; snapshots taken before keep their state. Gives the new snapshot.
    pub(crate) fn update(
        &mut self,
        id: &str,
        change: impl FnOnce(&mut Instance),
    ) -> Option<Arc<Instance>> {
        let instance = self.by_ordinal.get_mut(self.ordinals.get(id)?)?;
        change(Arc::make_mut(instance));
        Some(instance.clone())
    }

    /// Those from an ordinal on, in order.
    pub(crate) fn from(&self, ordinal: u64) -> impl Iterator<Item = &Arc<Instance>> {
        self.by_ordinal
            .range(ordinal..)
            .map(|(_, instance)| instance)
    }
}
