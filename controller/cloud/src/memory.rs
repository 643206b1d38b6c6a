//! A cloud in memory, for tests of everything above the port.
//!
//! Deterministic: ids count upwards, offerings are taken cheapest first, and nothing happens by
//! itself. It keeps the port's promises (a repeated launch gives the same instances, partial
//! answers, offerings marked when they run out), so that tests may rely on them; what real EC2
//! adds (lag, pages, throttling) belongs to the simulated AWS.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use millwright_api::{Ec2NodeClass, Ec2NodeClassStatus, conditions};
use millwright_model::{
    CapacityType, InstanceType, Name, NodeClaimName, ProviderId, Timestamp,
    instance_type::InstanceTypes, labels as keys,
};

use crate::{
    error::{CloudError, CloudErrorKind},
    launch,
    provider::{
        Instance, InstanceState, LaunchGroup, LaunchRequest, NodeClassResolution, Provider,
    },
};

/// (type, zone, capacity type).
type Pool = (Name, Name, CapacityType);

/// A cloud with the instance types it was given. Stock is unlimited until [`MemoryProvider::stock`]
/// limits it.
#[derive(Debug)]
pub struct MemoryProvider {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    types: InstanceTypes,
    /// The list as callers see it, until something changes.
    seen: Option<InstanceTypes>,
    epoch: u64,
    /// Instances left, for pools whose stock is limited.
    stock: BTreeMap<Pool, u32>,
    instances: BTreeMap<ProviderId, Instance>,
    /// Group id with member uids, to the instances of the first call by uid.
    tokens: BTreeMap<(Name, Vec<Name>), BTreeMap<Name, ProviderId>>,
    /// Errors for the next calls, whatever they are.
    faults: VecDeque<CloudErrorKind>,
    launches: u64,
    created: u64,
}

impl MemoryProvider {
    /// A cloud that sells these types.
    #[must_use]
    pub fn new(types: InstanceTypes) -> Self {
        Self {
            state: Mutex::new(State {
                types,
                seen: None,
                epoch: 1,
                stock: BTreeMap::new(),
                instances: BTreeMap::new(),
                tokens: BTreeMap::new(),
                faults: VecDeque::new(),
                launches: 0,
                created: 0,
            }),
        }
    }

    /// Limits a pool to `left` more instances. A pool that runs out becomes unavailable; limiting it
    /// again makes it available again.
    pub fn stock(&self, instance_type: &str, zone: &str, capacity_type: CapacityType, left: u32) {
        let mut state = self.state();
        state
            .stock
            .insert((instance_type.into(), zone.into(), capacity_type), left);
        state.changed();
    }

    /// Lets the next call that asks the cloud fail; repeat for more calls, which fail in order.
    pub fn fail_next(&self, kind: CloudErrorKind) {
        self.state().faults.push_back(kind);
    }

    /// Instances that are not terminated, in order of provider id.
    #[must_use]
    pub fn instances(&self) -> Vec<Instance> {
        self.state().instances.values().cloned().collect()
    }

    /// Removes an instance as if somebody had terminated it by hand.
    pub fn vanish(&self, provider_id: &ProviderId) {
        self.state().instances.remove(provider_id);
    }

    /// Number of launch calls, repetitions included.
    #[must_use]
    pub fn launches(&self) -> u64 {
        self.state().launches
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere must not hide its cause behind a poisoned lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn changed(&mut self) {
        self.epoch += 1;
        self.seen = None;
    }

    fn fault(&mut self, operation: &str) -> Result<(), CloudError> {
        match self.faults.pop_front() {
            None => Ok(()),
            Some(kind) => Err(CloudError::new(
                kind,
                "Injected",
                format!("{operation}: injected fault"),
            )),
        }
    }

    fn is_out(&self, pool: &Pool) -> bool {
        self.stock.get(pool) == Some(&0)
    }

    fn list(&mut self) -> InstanceTypes {
        if let Some(seen) = &self.seen {
            return Arc::clone(seen);
        }
        let list: InstanceTypes = self.types.iter().map(|t| self.as_sold(t)).collect();
        self.seen = Some(Arc::clone(&list));
        list
    }

    fn as_sold(&self, instance_type: &Arc<InstanceType>) -> Arc<InstanceType> {
        let pool = |zone: &Name, kind| (instance_type.name.clone(), zone.clone(), kind);
        if !instance_type
            .offerings
            .iter()
            .any(|o| self.is_out(&pool(&o.zone, o.capacity_type)))
        {
            return Arc::clone(instance_type);
        }
        let mut changed = (**instance_type).clone();
        for offering in &mut changed.offerings {
            offering.available &= !self.is_out(&pool(&offering.zone, offering.capacity_type));
        }
        Arc::new(changed)
    }

    /// One instance for a member, from the cheapest pool that has one.
    fn create(&mut self, group: &Name, member: &LaunchRequest) -> Result<ProviderId, CloudError> {
        let list = self.list();
        let selection = launch::select(&list, &member.requirements, &member.requests);
        let mut pools: Vec<(u64, Pool, Arc<InstanceType>)> = Vec::new();
        for choice in selection.iter().flat_map(|selection| &selection.choices) {
            for offering in choice.offerings() {
                let kind = &choice.instance_type;
                let pool = (
                    kind.name.clone(),
                    offering.zone.clone(),
                    offering.capacity_type,
                );
                pools.push((offering.price.0, pool, Arc::clone(kind)));
            }
        }
        pools.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let Some((_, pool, kind)) = pools.into_iter().next() else {
            return Err(CloudError::new(
                CloudErrorKind::InsufficientCapacity,
                "InsufficientInstanceCapacity",
                format!(
                    "launch {}: all requested instance types were unavailable",
                    member.node_claim
                ),
            ));
        };
        if let Some(left) = self.stock.get_mut(&pool) {
            *left -= 1;
            if *left == 0 {
                self.changed();
            }
        }
        self.created += 1;
        let id = ProviderId::from(format!("aws:///{}/i-{:017x}", pool.1, self.created));
        let instance = instance(&id, &pool, &kind, group, member);
        self.instances.insert(id.clone(), instance);
        Ok(id)
    }

    fn launch(&mut self, group: &LaunchGroup) -> Vec<Result<Instance, CloudError>> {
        self.launches += 1;
        if let Err(error) = self.fault("launch") {
            return group.members.iter().map(|_| Err(error.clone())).collect();
        }
        let uids: Vec<Name> = group
            .members
            .iter()
            .map(|member| member.uid.clone())
            .collect();
        let token = (group.id.clone(), uids);
        let mut served = match self.tokens.get(&token) {
            Some(served) => served.clone(),
            None => BTreeMap::new(),
        };
        served.retain(|_, id| self.instances.contains_key(id));
        let mut answers = Vec::new();
        for member in &group.members {
            let id = match served
                .get(&member.uid)
                .cloned()
                .or_else(|| self.orphan(group, &served))
            {
                Some(id) => Ok(id),
                None => self.create(&group.id, member),
            };
            if let Ok(id) = &id {
                served.insert(member.uid.clone(), id.clone());
            }
            answers.push(id.and_then(|id| self.get(&id)));
        }
        self.tokens.insert(token, served);
        answers
    }

    /// An instance of the group that no token and no claim knows: a call whose answer was lost.
    fn orphan(
        &self,
        group: &LaunchGroup,
        served: &BTreeMap<Name, ProviderId>,
    ) -> Option<ProviderId> {
        let handed_out = |id: &ProviderId| {
            served
                .values()
                .chain(self.tokens.values().flat_map(BTreeMap::values))
                .any(|s| s == id)
        };
        self.instances
            .values()
            .find(|i| {
                i.launch_group.as_ref() == Some(&group.id)
                    && i.node_claim.is_none()
                    && !group.claimed.contains(&i.provider_id)
                    && !handed_out(&i.provider_id)
            })
            .map(|i| i.provider_id.clone())
    }

    fn get(&self, id: &ProviderId) -> Result<Instance, CloudError> {
        self.instances.get(id).cloned().ok_or_else(|| {
            let message = format!("instance {id} does not exist");
            CloudError::new(
                CloudErrorKind::NodeClaimNotFound,
                "NodeClaimNotFound",
                message,
            )
        })
    }
}

fn instance(
    id: &ProviderId,
    (_, zone, capacity_type): &Pool,
    kind: &InstanceType,
    group: &Name,
    member: &LaunchRequest,
) -> Instance {
    let fixed = kind
        .requirements
        .iter()
        .filter_map(|r| Some((r.key().clone(), r.single()?.clone())));
    let mut labels: BTreeMap<Name, Name> = fixed.collect();
    labels.insert(keys::ZONE.into(), zone.clone());
    labels.insert(keys::CAPACITY_TYPE.into(), capacity_type.as_str().into());
    labels.insert(keys::INSTANCE_TYPE.into(), kind.name.clone());
    Instance {
        provider_id: id.clone(),
        state: InstanceState::Running,
        instance_type: kind.name.clone(),
        zone: zone.clone(),
        capacity_type: *capacity_type,
        image_id: "ami-memory".into(),
        launched_at: Timestamp(0),
        labels,
        capacity: kind.capacity.clone(),
        allocatable: kind.allocatable(),
        node_claim: None,
        launch_group: Some(group.clone()),
        node_pool: member.node_pool.as_ref().map(|pool| pool.0.clone().into()),
    }
}

#[async_trait]
impl Provider for MemoryProvider {
    fn instance_types(&self, _class: &Ec2NodeClass) -> Result<InstanceTypes, CloudError> {
        Ok(self.state().list())
    }

    fn epoch(&self) -> u64 {
        self.state().epoch
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        self.state().fault("refresh")
    }

    async fn resolve_node_class(
        &self,
        _: &Ec2NodeClass,
    ) -> Result<NodeClassResolution, CloudError> {
        self.state().fault("resolve node class")?;
        let status = Ec2NodeClassStatus {
            instance_profile: "memory".to_owned(),
            conditions: conditions::EC2_NODE_CLASS_DEPENDENTS
                .iter()
                .map(|kind| conditions::verdict(kind, conditions::TRUE, kind, ""))
                .collect(),
            ..Ec2NodeClassStatus::default()
        };
        Ok(NodeClassResolution {
            status,
            again_after_ms: 60_000,
        })
    }

    async fn finalize_node_class(&self, _class: &Ec2NodeClass) -> Result<(), CloudError> {
        self.state().fault("finalize node class")
    }

    async fn launch(&self, group: LaunchGroup) -> Vec<Result<Instance, CloudError>> {
        self.state().launch(&group)
    }

    async fn tag(
        &self,
        provider_id: &ProviderId,
        node_claim: &NodeClaimName,
    ) -> Result<(), CloudError> {
        let mut state = self.state();
        state.fault("tag")?;
        state.get(provider_id)?;
        if let Some(instance) = state.instances.get_mut(provider_id) {
            instance.node_claim = Some(node_claim.clone());
        }
        Ok(())
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, CloudError> {
        let mut state = self.state();
        state.fault("get")?;
        state.get(provider_id)
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let mut state = self.state();
        state.fault("list")?;
        Ok(state.instances.values().cloned().collect())
    }

    async fn terminate(&self, provider_id: &ProviderId) -> Result<(), CloudError> {
        let mut state = self.state();
        state.fault("terminate")?;
        state.get(provider_id)?;
        state.instances.remove(provider_id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use millwright_model::{NanoDollarsPerHour, Offering, Requirements, Resources};

    use super::*;

    /// Nothing here waits, so one poll completes.
    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("a cloud in memory never waits"),
        }
    }

    fn cloud() -> MemoryProvider {
        let offerings = [("a", 10), ("b", 20)]
            .map(|(zone, price)| {
                Offering::new(
                    zone.into(),
                    CapacityType::OnDemand,
                    NanoDollarsPerHour(price),
                )
            })
            .to_vec();
        MemoryProvider::new(
            [Arc::new(InstanceType {
                name: "m5.large".into(),
                requirements: Requirements::new(),
                capacity: Resources::of(2_000, 8 << 30),
                overhead: Resources::new(),
                offerings,
            })]
            .into(),
        )
    }

    fn group(id: &str, members: &[&str]) -> LaunchGroup {
        LaunchGroup {
            id: id.into(),
            node_class: Arc::new(Ec2NodeClass::new("default", Default::default())),
            claimed: BTreeSet::new(),
            members: members
                .iter()
                .map(|name| LaunchRequest {
                    node_claim: (*name).into(),
                    uid: format!("uid-{name}").into(),
                    node_pool: Some("default".into()),
                    requirements: Requirements::new(),
                    requests: Resources::of(1_000, 0),
                    labels: BTreeMap::new(),
                    taints: Vec::new(),
                    startup_taints: Vec::new(),
                })
                .collect(),
        }
    }

    fn ids(answers: &[Result<Instance, CloudError>]) -> Vec<Option<&str>> {
        answers
            .iter()
            .map(|a| a.as_ref().ok().map(|i| i.provider_id.as_str()))
            .collect()
    }

    #[test]
    fn a_repeated_launch_gives_the_same_instances() {
        let cloud = cloud();
        let first = now(cloud.launch(group("g", &["x", "y"])));
        let again = now(cloud.launch(group("g", &["x", "y"])));
        assert_eq!(ids(&first), ids(&again));
        assert_eq!(cloud.instances().len(), 2);
        assert_eq!(&*first[0].as_ref().expect("launched").zone, "a");
    }

    #[test]
    fn an_empty_pool_is_marked_and_the_next_best_serves_until_nothing_is_left() {
        let cloud = cloud();
        cloud.stock("m5.large", "a", CapacityType::OnDemand, 1);
        cloud.stock("m5.large", "b", CapacityType::OnDemand, 1);
        let before = cloud.epoch();
        let answers = now(cloud.launch(group("g", &["x", "y", "z"])));
        let zones: Vec<_> = answers
            .iter()
            .flatten()
            .map(|i| i.zone.to_string())
            .collect();
        assert_eq!(zones, ["a", "b"]);
        let error = answers[2].as_ref().expect_err("nothing left");
        assert_eq!(error.kind, CloudErrorKind::InsufficientCapacity);
        assert!(cloud.epoch() > before);
        let class = Ec2NodeClass::new("default", Default::default());
        let types = cloud.instance_types(&class).expect("a list");
        assert!(
            types[0]
                .offerings
                .iter()
                .all(|offering| !offering.available)
        );
        cloud.stock("m5.large", "b", CapacityType::OnDemand, 5);
        assert!(now(cloud.launch(group("h", &["z"])))[0].is_ok());
    }

    #[test]
    fn faults_hit_the_next_call_only() {
        let cloud = cloud();
        cloud.fail_next(CloudErrorKind::Throttled);
        let answers = now(cloud.launch(group("g", &["x"])));
        assert_eq!(
            answers[0].as_ref().expect_err("injected").kind,
            CloudErrorKind::Throttled
        );
        assert!(now(cloud.launch(group("g", &["x"])))[0].is_ok());
    }

    #[test]
    fn the_life_of_an_instance_ends_in_not_found() {
        let cloud = cloud();
        let answers = now(cloud.launch(group("g", &["x"])));
        let id = answers[0].as_ref().expect("launched").provider_id.clone();
        now(cloud.tag(&id, &"x".into())).expect("alive");
        let listed = now(cloud.list()).expect("a list");
        assert_eq!(listed[0].node_claim, Some("x".into()));
        now(cloud.terminate(&id)).expect("alive");
        let error = now(cloud.terminate(&id)).expect_err("gone");
        assert_eq!(error.kind, CloudErrorKind::NodeClaimNotFound);
        assert!(now(cloud.list()).expect("a list").is_empty());
    }
}
