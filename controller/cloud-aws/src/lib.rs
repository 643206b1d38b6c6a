//! The AWS adapter: [`AwsProvider`] implements the provider port over the AWS SDK.
//!
//! Ring 4, and the only crate that names `aws-sdk-*`. Policy (which types, which user data, what an
//! error means) is in `millwright-cloud`; here are calls, caches and pacing. No SDK type leaves this
//! crate.

mod catalogue;
mod class;
mod clients;
mod errors;
mod fleet;
mod gather;
mod instances;
mod launch_templates;
mod permissions;
mod settings;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use millwright_api::Ec2NodeClass;
use millwright_cloud::{
    CloudError, CloudErrorKind, Instance, LaunchGroup, NodeClassResolution, Provider,
    instance_types::{Basis, DiscoveredMemory, Market, instance_types},
    shape::{ClassShape, uid_of, zones_of},
    token_bucket::{BucketSettings, TokenBucket},
    unavailable::UnavailableOfferings,
};
use millwright_model::{
    Name, NodeClaimName, ProviderId, Span, Timestamp, instance_type::InstanceTypes,
};
use tokio::sync::OnceCell;

pub use settings::AwsSettings;

use crate::{catalogue::Catalogue, clients::Clients, errors::cloud};

/// CreateFleet's bucket as documented for large accounts; it learns when EC2 says otherwise.
const FLEET_BUCKET: BucketSettings = BucketSettings {
    size: 50,
    refill: 10,
    wait_max: Span::from_secs(60),
};
/// Values of the parameter store are believed for this long; `latest` moves a few times a month.
const PARAMETER_LIFE: Duration = Duration::from_secs(30 * 60);
/// Verdicts of permission checks are believed for this long.
const VERDICT_LIFE: Duration = Duration::from_secs(30 * 60);
/// Entries of each small cache before it is emptied; far above what a cluster has.
const CACHE_MAX: usize = 10_000;

/// The verdict of a permission check.
pub(crate) type Verdict = Result<(), (&'static str, String)>;

/// AWS. Clones share everything.
#[derive(Clone, Debug)]
pub struct AwsProvider {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: AwsSettings,
    clients: Clients,
    catalogue: Mutex<Catalogue>,
    unavailable: Mutex<UnavailableOfferings>,
    epoch: AtomicU64,
    lists: Mutex<HashMap<String, (u64, InstanceTypes)>>,
    parameters: Mutex<HashMap<String, (Instant, Option<String>)>>,
    verdicts: Mutex<HashMap<String, (Instant, Verdict)>>,
    profiles: Mutex<HashSet<String>>,
    templates: Mutex<HashSet<String>>,
    addresses: Mutex<HashMap<String, i64>>,
    groups: Mutex<HashSet<Name>>,
    bucket: Mutex<TokenBucket>,
    cluster: OnceCell<ClusterFacts>,
    looks: gather::Gather<instances::Seen>,
    ends: gather::Gather<instances::Ended>,
}

/// What nodes must know of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFacts {
    pub(crate) endpoint: String,
    pub(crate) ca_bundle: String,
    pub(crate) service_cidr: Option<String>,
    pub(crate) version: String,
}

pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AwsProvider {
    /// A provider by the environment's region, credentials and endpoint.
    pub async fn from_environment(settings: AwsSettings) -> Self {
        Self::with_clients(settings, Clients::from_environment().await)
    }

    /// A provider of a simulated AWS, all of whose services are behind one URL. Tests and the
    /// demonstration run several in one process, so it cannot be an environment variable.
    pub async fn of_endpoint(settings: AwsSettings, url: &str, region: &str) -> Self {
        Self::with_clients(settings, Clients::of_endpoint(url, region).await)
    }

    fn with_clients(settings: AwsSettings, clients: Clients) -> Self {
        Self {
            inner: Arc::new(Inner {
                settings,
                clients,
                catalogue: Mutex::default(),
                unavailable: Mutex::default(),
                epoch: AtomicU64::new(1),
                lists: Mutex::default(),
                parameters: Mutex::default(),
                verdicts: Mutex::default(),
                profiles: Mutex::default(),
                templates: Mutex::default(),
                addresses: Mutex::default(),
                groups: Mutex::default(),
                bucket: Mutex::new(TokenBucket::new(FLEET_BUCKET, now())),
                cluster: OnceCell::new(),
                looks: gather::Gather::default(),
                ends: gather::Gather::default(),
            }),
        }
    }

    pub(crate) fn settings(&self) -> &AwsSettings {
        &self.inner.settings
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.inner.clients
    }

    pub(crate) fn unavailable(&self) -> MutexGuard<'_, UnavailableOfferings> {
        lock(&self.inner.unavailable)
    }

    pub(crate) fn bump_epoch(&self) {
        self.inner.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// The cluster's facts; EKS is asked once.
    pub(crate) async fn cluster(&self) -> Result<&ClusterFacts, CloudError> {
        self.inner
            .cluster
            .get_or_try_init(|| self.read_cluster())
            .await
    }

    async fn read_cluster(&self) -> Result<ClusterFacts, CloudError> {
        let settings = self.settings();
        let answer = self
            .clients()
            .eks
            .describe_cluster()
            .name(&settings.cluster_name)
            .send()
            .await
            .map_err(|e| cloud(&format!("describe cluster {}", settings.cluster_name), e))?;
        let cluster = answer
            .cluster()
            .ok_or_else(|| errors::incomplete("describe cluster"))?;
        let network = cluster.kubernetes_network_config();
        let cidr = network.and_then(|n| n.service_ipv4_cidr().or_else(|| n.service_ipv6_cidr()));
        let own = |setting: &Option<String>, found: Option<&str>| {
            setting
                .clone()
                .or_else(|| found.map(str::to_owned))
                .unwrap_or_default()
        };
        Ok(ClusterFacts {
            endpoint: own(&settings.cluster_endpoint, cluster.endpoint()),
            ca_bundle: own(
                &settings.cluster_ca_bundle,
                cluster.certificate_authority().and_then(|ca| ca.data()),
            ),
            service_cidr: cidr.map(str::to_owned),
            version: own(&settings.kubernetes_version, cluster.version()),
        })
    }

    pub(crate) async fn kubernetes_version(&self) -> Result<String, CloudError> {
        match &self.settings().kubernetes_version {
            Some(version) => Ok(version.clone()),
            None => Ok(self.cluster().await?.version.clone()),
        }
    }

    /// Instance types of a class, the same list until something changes.
    pub(crate) fn types_of(&self, class: &Ec2NodeClass) -> Result<InstanceTypes, CloudError> {
        class::ready(class)?;
        let epoch = self.epoch_now();
        let subnets = class.status.as_ref().map(|status| &status.subnets);
        let key = format!(
            "{}/{:?}/{subnets:?}",
            uid_of(class),
            class.metadata.generation
        );
        if let Some((at, list)) = lock(&self.inner.lists).get(&key)
            && *at == epoch
        {
            return Ok(Arc::clone(list));
        }
        let catalogue = lock(&self.inner.catalogue);
        if catalogue.types.is_empty() {
            let message = "instance types have not been read yet";
            return Err(CloudError::new(
                CloudErrorKind::NodeClassNotReady,
                "InstanceTypesNotReady",
                message,
            ));
        }
        let basis = Basis {
            types: &catalogue.types,
            shape: &ClassShape::from(class),
            settings: self.settings().capacity,
            discovered: &DiscoveredMemory::new(),
        };
        let market = Market {
            region: &self.clients().region,
            class_zones: &zones_of(class),
            prices: &catalogue.prices,
            unavailable: &lock(&self.inner.unavailable),
            now: now(),
        };
        let list = instance_types(basis, market);
        drop(catalogue);
        let mut lists = lock(&self.inner.lists);
        if lists.len() >= CACHE_MAX {
            lists.clear();
        }
        lists.insert(key, (epoch, Arc::clone(&list)));
        Ok(list)
    }

    fn epoch_now(&self) -> u64 {
        let rests = lock(&self.inner.unavailable).sweep(now());
        self.inner.epoch.load(Ordering::Relaxed).wrapping_add(rests)
    }

    /// Waits for a token of CreateFleet's bucket.
    pub(crate) async fn pace(&self) {
        let wait = lock(&self.inner.bucket).reserve(now());
        // A line that is too long is waited for in full: the launch has its own deadline.
        let millis = wait.map_or_else(|too_long| too_long.wait_ms, Span::as_millis);
        tokio::time::sleep(Duration::from_millis(u64::try_from(millis).unwrap_or(0))).await;
    }

    pub(crate) fn was_throttled(&self) {
        lock(&self.inner.bucket).throttled(now());
    }

    /// Whether this process has already looked for earlier instances of a group.
    pub(crate) fn has_looked_for(&self, group: &Name) -> bool {
        lock(&self.inner.groups).contains(group)
    }

    /// Remembers that it has looked, which spares the look before the next launch.
    pub(crate) fn looked_for(&self, group: &Name) {
        let mut groups = lock(&self.inner.groups);
        if groups.len() >= CACHE_MAX {
            groups.clear();
        }
        groups.insert(group.clone());
    }

    pub(crate) fn note_addresses(&self, free: impl Iterator<Item = (String, i64)>) {
        lock(&self.inner.addresses).extend(free);
    }

    pub(crate) fn free_addresses(&self, subnet: &str) -> i64 {
        lock(&self.inner.addresses)
            .get(subnet)
            .copied()
            .unwrap_or(0)
    }

    pub(crate) fn known_parameter(&self, path: &str) -> Option<Option<String>> {
        let parameters = lock(&self.inner.parameters);
        parameters
            .get(path)
            .filter(|(at, _)| at.elapsed() < PARAMETER_LIFE)
            .map(|(_, value)| value.clone())
    }

    pub(crate) fn remember_parameter(&self, path: &str, value: Option<String>) {
        let mut parameters = lock(&self.inner.parameters);
        if parameters.len() >= CACHE_MAX {
            parameters.clear();
        }
        parameters.insert(path.to_owned(), (Instant::now(), value));
    }

    pub(crate) fn known_verdict(&self, key: &str) -> Option<Verdict> {
        let verdicts = lock(&self.inner.verdicts);
        verdicts
            .get(key)
            .filter(|(at, _)| at.elapsed() < VERDICT_LIFE)
            .map(|(_, verdict)| verdict.clone())
    }

    pub(crate) fn remember_verdict(&self, key: String, verdict: Verdict) {
        let mut verdicts = lock(&self.inner.verdicts);
        if verdicts.len() >= CACHE_MAX {
            verdicts.clear();
        }
        verdicts.insert(key, (Instant::now(), verdict));
    }

    pub(crate) fn is_known_profile(&self, name: &str) -> bool {
        lock(&self.inner.profiles).contains(name)
    }

    pub(crate) fn remember_profile(&self, name: &str) {
        lock(&self.inner.profiles).insert(name.to_owned());
    }

    pub(crate) fn forget_profile(&self, name: &str) {
        lock(&self.inner.profiles).remove(name);
    }

    pub(crate) fn is_known_template(&self, name: &str) -> bool {
        lock(&self.inner.templates).contains(name)
    }

    pub(crate) fn remember_template(&self, name: &str) {
        lock(&self.inner.templates).insert(name.to_owned());
    }

    pub(crate) fn forget_template(&self, name: &str) {
        lock(&self.inner.templates).remove(name);
    }

    pub(crate) fn forget_templates(&self) {
        lock(&self.inner.templates).clear();
    }
}

#[async_trait]
impl Provider for AwsProvider {
    fn instance_types(&self, class: &Ec2NodeClass) -> Result<InstanceTypes, CloudError> {
        self.types_of(class)
    }

    fn epoch(&self) -> u64 {
        self.epoch_now()
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        let due = lock(&self.inner.catalogue).due();
        if due == (false, false) {
            return Ok(());
        }
        let refreshed = catalogue::read(self.clients(), due, self.settings().isolated_vpc).await?;
        if lock(&self.inner.catalogue).merge(refreshed) {
            self.bump_epoch();
        }
        Ok(())
    }

    async fn resolve_node_class(
        &self,
        class: &Ec2NodeClass,
    ) -> Result<NodeClassResolution, CloudError> {
        self.resolve(class).await
    }

    async fn finalize_node_class(&self, class: &Ec2NodeClass) -> Result<(), CloudError> {
        self.finalize(class).await
    }

    async fn launch(&self, group: LaunchGroup) -> Vec<Result<Instance, CloudError>> {
        self.launch_group(&group).await
    }

    async fn tag(
        &self,
        provider_id: &ProviderId,
        node_claim: &NodeClaimName,
    ) -> Result<(), CloudError> {
        self.tag_instance(provider_id, node_claim).await
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, CloudError> {
        self.get_instance(provider_id).await
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        Ok(self
            .describe(Vec::new())
            .await?
            .iter()
            .filter_map(instances::convert)
            .collect())
    }

    async fn terminate(&self, provider_id: &ProviderId) -> Result<(), CloudError> {
        self.end_instance(provider_id).await
    }
}
