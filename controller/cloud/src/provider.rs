//! The port: everything the controller asks of a cloud.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use millwright_api::{Ec2NodeClass, Ec2NodeClassStatus};
use millwright_model::{
    CapacityType, Name, NodeClaimName, NodePoolName, ProviderId, Requirements, Resources, Taint,
    Timestamp, instance_type::InstanceTypes,
};

use crate::error::CloudError;

/// One NodeClaim to launch.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// Name of the NodeClaim.
    pub node_claim: NodeClaimName,
    /// `metadata.uid` of the NodeClaim; idempotency tokens derive from it.
    pub uid: Name,
    /// NodePool, absent for a NodeClaim that somebody created by hand.
    pub node_pool: Option<NodePoolName>,
    /// Requirements of the NodeClaim, the instance-type list among them.
    pub requirements: Requirements,
    /// What the instance must at least hold.
    pub requests: Resources,
    /// Labels that the node registers with.
    pub labels: BTreeMap<Name, Name>,
    /// Taints that the node registers with, beside `karpenter.sh/unregistered`.
    pub taints: Vec<Taint>,
    /// Startup taints that the node registers with.
    pub startup_taints: Vec<Taint>,
}

/// NodeClaims with equal launch parameters: one call, one instance for each of them.
///
/// Members are in order of name. A retry with the same `id` and the same members, by this process
/// or by another leader, returns the instances of the first call instead of launching more.
#[derive(Clone, Debug)]
pub struct LaunchGroup {
    /// Stable id: the NodeClaims' `millwright.dev/launch-group` annotation, or the uid of a single one.
    pub id: Name,
    /// Class that all members name.
    pub node_class: Arc<Ec2NodeClass>,
    /// Members, never empty, equal in everything but `node_claim` and `uid`.
    pub members: Vec<LaunchRequest>,
    /// Instances of this group that other NodeClaims have written down: never handed out again.
    pub claimed: BTreeSet<ProviderId>,
}

/// State of an instance, as far as the life of a node depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// Starting.
    Pending,
    /// Running.
    Running,
    /// On its way out.
    ShuttingDown,
    /// Stopped by somebody else; it counts as alive.
    Stopped,
    /// Gone.
    Terminated,
}

/// An instance that exists.
#[derive(Clone, Debug)]
pub struct Instance {
    /// `aws:///ZONE/INSTANCE-ID`.
    pub provider_id: ProviderId,
    /// State at the time of the answer.
    pub state: InstanceState,
    /// Instance type.
    pub instance_type: Name,
    /// Zone.
    pub zone: Name,
    /// How it was bought.
    pub capacity_type: CapacityType,
    /// Image it was started from.
    pub image_id: Name,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// Labels that the instance's type and offering fix, for the NodeClaim and the Node.
    pub labels: BTreeMap<Name, Name>,
    /// Capacity of the type under its class.
    pub capacity: Resources,
    /// Allocatable of the type under its class.
    pub allocatable: Resources,
    /// Name of the NodeClaim, from the instance's tag, once it was tagged.
    pub node_claim: Option<NodeClaimName>,
    /// Launch group, from the instance's tag.
    pub launch_group: Option<Name>,
    /// NodePool, from the instance's tag.
    pub node_pool: Option<NodePoolName>,
}

/// What the cloud made of a class: the status to write, and what instance types it offers.
#[derive(Clone, Debug)]
pub struct NodeClassResolution {
    /// Complete new status with its conditions (other than `Ready`, which is derived) for the
    /// generation that was resolved.
    pub status: Ec2NodeClassStatus,
    /// When to resolve again even if nothing changes, milliseconds from now.
    pub again_after_ms: u64,
}

/// A cloud. Methods may be called concurrently; each is safe to repeat.
#[async_trait]
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Instance types with offerings for a class, unavailable ones marked; from memory, refreshed
    /// by [`Provider::refresh`]. The same list is shared (one `Arc`) until something changes.
    ///
    /// # Errors
    /// `NodeClassNotReady` while the class has no resolved subnets or images, or facts are missing.
    fn instance_types(&self, class: &Ec2NodeClass) -> Result<InstanceTypes, CloudError>;

    /// A number that changes whenever an answer of [`Provider::instance_types`] may have changed
    /// (prices, availability, discovery), so that callers can keep derived data.
    fn epoch(&self) -> u64;

    /// Reads instance types, zones and prices again where they are due; call it periodically.
    ///
    /// # Errors
    /// When a source cannot be read; what was known before stays in use.
    async fn refresh(&self) -> Result<(), CloudError>;

    /// Resolves subnets, security groups, images and the instance profile of a class.
    ///
    /// # Errors
    /// Only for hiccups (`Throttled`, `Transient`); what the user must fix is in the conditions.
    async fn resolve_node_class(
        &self,
        class: &Ec2NodeClass,
    ) -> Result<NodeClassResolution, CloudError>;

    /// Removes what exists in the cloud for a class that is being deleted (instance profile, launch
    /// templates).
    ///
    /// # Errors
    /// When something could not be removed; call again.
    async fn finalize_node_class(&self, class: &Ec2NodeClass) -> Result<(), CloudError>;

    /// Launches one instance per member. The answer has one entry per member, in the same order.
    /// Insufficient capacity marks the offerings and is the answer of the unserved members only.
    async fn launch(&self, group: LaunchGroup) -> Vec<Result<Instance, CloudError>>;

    /// Tags an instance with the name of its NodeClaim (`Name`, `karpenter.sh/nodeclaim`, cluster).
    ///
    /// # Errors
    /// `NodeClaimNotFound` when the instance is gone.
    async fn tag(
        &self,
        provider_id: &ProviderId,
        node_claim: &NodeClaimName,
    ) -> Result<(), CloudError>;

    /// One instance.
    ///
    /// # Errors
    /// `NodeClaimNotFound` when there is none, or it is terminated.
    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, CloudError>;

    /// All instances of this cluster that are not terminated.
    ///
    /// # Errors
    /// When the list could not be read to its end.
    async fn list(&self) -> Result<Vec<Instance>, CloudError>;

    /// Starts the termination of an instance; concurrent calls are batched.
    ///
    /// # Errors
    /// `NodeClaimNotFound` when it is gone, which callers take as success.
    async fn terminate(&self, provider_id: &ProviderId) -> Result<(), CloudError>;
}
