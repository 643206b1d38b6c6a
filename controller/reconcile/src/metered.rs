//! A provider that measures the provider behind it: durations and errors of every call of the port.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use millwright_api::Ec2NodeClass;
use millwright_cloud::{
    CloudError, CloudErrorKind, Instance, LaunchGroup, NodeClassResolution, Provider,
};
use millwright_model::{NodeClaimName, ProviderId, instance_type::InstanceTypes};
use millwright_telemetry as telemetry;

/// Measures `inner`; behaves exactly like it.
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Provider>,
}

impl Metered {
    /// Wraps a provider.
    #[must_use]
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner }
    }
}

/// Karpenter's controller and method behind a call of the port.
#[derive(Clone, Copy)]
struct Call(&'static str, &'static str);

const CREATE: Call = Call("nodeclaim.lifecycle", "Create");
const DELETE: Call = Call("nodeclaim.lifecycle", "Delete");
const GET: Call = Call("nodeclaim.lifecycle", "Get");
const LIST: Call = Call("nodeclaim.garbagecollection", "List");
const INSTANCE_TYPES: Call = Call("provisioner", "GetInstanceTypes");

fn record<T>(call: Call, started: Instant, result: &Result<T, CloudError>) {
    let error = result.as_ref().err().map(|error| label(error.kind));
    telemetry::cloud_called(call.0, call.1, started.elapsed(), error);
}

const fn label(kind: CloudErrorKind) -> &'static str {
    match kind {
        CloudErrorKind::NodeClaimNotFound => "NodeClaimNotFoundError",
        CloudErrorKind::InsufficientCapacity => "InsufficientCapacityError",
        CloudErrorKind::NodeClassNotReady => "NodeClassNotReadyError",
        CloudErrorKind::Throttled
        | CloudErrorKind::Unauthorized
        | CloudErrorKind::Create
        | CloudErrorKind::Transient
        | CloudErrorKind::Bug => "",
    }
}

#[async_trait]
impl Provider for Metered {
    fn instance_types(&self, class: &Ec2NodeClass) -> Result<InstanceTypes, CloudError> {
        let started = Instant::now();
        let result = self.inner.instance_types(class);
        record(INSTANCE_TYPES, started, &result);
        result
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        self.inner.refresh().await
    }

    async fn resolve_node_class(
        &self,
        class: &Ec2NodeClass,
    ) -> Result<NodeClassResolution, CloudError> {
        self.inner.resolve_node_class(class).await
    }

    async fn finalize_node_class(&self, class: &Ec2NodeClass) -> Result<(), CloudError> {
        self.inner.finalize_node_class(class).await
    }

    async fn launch(&self, group: LaunchGroup) -> Vec<Result<Instance, CloudError>> {
        let started = Instant::now();
        let results = self.inner.launch(group).await;
        results
            .iter()
            .for_each(|result| record(CREATE, started, result));
        results
    }

    async fn tag(
        &self,
        provider_id: &ProviderId,
        node_claim: &NodeClaimName,
    ) -> Result<(), CloudError> {
        self.inner.tag(provider_id, node_claim).await
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, CloudError> {
        let started = Instant::now();
        let result = self.inner.get(provider_id).await;
        record(GET, started, &result);
        result
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let started = Instant::now();
        let result = self.inner.list().await;
        record(LIST, started, &result);
        result
    }

    async fn terminate(&self, provider_id: &ProviderId) -> Result<(), CloudError> {
        let started = Instant::now();
        let result = self.inner.terminate(provider_id).await;
        record(DELETE, started, &result);
        result
    }
}
