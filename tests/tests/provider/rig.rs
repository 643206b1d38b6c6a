//! A simulated account, a provider for it, and short words for what tests say about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use millwright_api::{
    Ec2NodeClass, Ec2NodeClassSpec, Ec2NodeClassStatus,
    conditions::{self, ConditionSet, Conditioned as _},
    ec2_node_class::{AmiSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm},
};
use millwright_cloud::{
    CloudError, CloudErrorKind, Instance, LaunchGroup, LaunchRequest, Provider as _,
    instance_types::CapacitySettings,
};
use millwright_cloud_aws::{AwsProvider, AwsSettings};
use millwright_model::{Name, Operator, Requirement, Requirements, Resources, labels};
use millwright_sim::aws::{AwsSim, AwsSimConfig, AwsSimHandle, AwsWorld, Timing};

pub(crate) const CLUSTER: &str = "demo";
const REGION: &str = "us-east-1";

pub(crate) type Answers = Vec<Result<Instance, CloudError>>;

pub(crate) struct Rig {
    handle: AwsSimHandle,
    pub(crate) world: AwsWorld,
    pub(crate) provider: AwsProvider,
}

impl Rig {
    /// An account where nothing takes time, and a provider that has read the instance types.
    pub(crate) async fn new() -> Self {
        Self::with(|config| config.timing = Timing::instant()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut AwsSimConfig)) -> Self {
        let mut config = AwsSimConfig::new(CLUSTER);
        config.cluster.certificate_authority = "Y2E=".to_owned();
        change(&mut config);
        let handle = AwsSim::start(config)
            .await
            .expect("a free port on loopback");
        let provider = provider(&handle.endpoint()).await;
        provider.refresh().await.expect("the account can be read");
        Self {
            world: handle.world(),
            handle,
            provider,
        }
    }

    /// Another process with the same settings, such as the next leader.
    pub(crate) async fn another_provider(&self) -> AwsProvider {
        let provider = provider(&self.handle.endpoint()).await;
        provider.refresh().await.expect("the account can be read");
        provider
    }

    /// Calls of an action so far.
    pub(crate) fn calls(&self, action: &str) -> u64 {
        self.world
            .calls()
            .get(&format!("ec2:{action}"))
            .map_or(0, |count| count.calls)
    }

    /// Fleets asked for so far; every resolution of a class rehearsed one of them.
    pub(crate) fn fleets(&self) -> u64 {
        self.calls("CreateFleet") - self.calls("RunInstances")
    }

    /// A ready class.
    pub(crate) async fn class(&self) -> Arc<Ec2NodeClass> {
        let class = self.resolve(class(|_| {})).await;
        assert!(class.is_ready_now(), "{:?}", class.conditions());
        Arc::new(class)
    }

    /// A class as the controller stores it after a resolution.
    pub(crate) async fn resolve(&self, class: Ec2NodeClass) -> Ec2NodeClass {
        resolve(&self.provider, class).await
    }
}

pub(crate) async fn resolve(provider: &AwsProvider, mut class: Ec2NodeClass) -> Ec2NodeClass {
    let resolution = provider
        .resolve_node_class(&class)
        .await
        .expect("no hiccup");
    assert!(resolution.again_after_ms > 0);
    let Ec2NodeClassStatus {
        conditions: verdicts,
        ..
    } = resolution.status.clone();
    class.status = Some(Ec2NodeClassStatus {
        conditions: Vec::new(),
        ..resolution.status
    });
    let mut set = ConditionSet::open(&mut class, Timestamp::UNIX_EPOCH);
    for verdict in verdicts {
        match verdict.status.as_str() {
            conditions::TRUE => set.set_true(&verdict.type_),
            conditions::FALSE => set.set_false(&verdict.type_, &verdict.reason, &verdict.message),
            _ => set.set_unknown(&verdict.type_),
        };
    }
    class
}

async fn provider(endpoint: &str) -> AwsProvider {
    let settings = AwsSettings {
        cluster_name: CLUSTER.to_owned(),
        cluster_endpoint: None,
        cluster_ca_bundle: None,
        kubernetes_version: None,
        cluster_dns: Some("172.20.0.10".to_owned()),
        capacity: CapacitySettings::default(),
        isolated_vpc: false,
        disable_dry_run: false,
        image_refresh_ms: 60_000,
        subnet_refresh_ms: 60_000,
    };
    AwsProvider::of_endpoint(settings, endpoint, REGION).await
}

/// A class of the cluster's subnets, security groups and role, with changes.
pub(crate) fn class(change: impl FnOnce(&mut Ec2NodeClassSpec)) -> Ec2NodeClass {
    let discovery = BTreeMap::from([("karpenter.sh/discovery".to_owned(), CLUSTER.to_owned())]);
    let mut spec = Ec2NodeClassSpec {
        subnet_selector_terms: vec![SubnetSelectorTerm {
            tags: discovery.clone(),
            ..Default::default()
        }],
        security_group_selector_terms: vec![SecurityGroupSelectorTerm {
            tags: discovery,
            ..Default::default()
        }],
        ami_selector_terms: vec![alias("al2023@latest")],
        role: Some(format!("KarpenterNodeRole-{CLUSTER}")),
        ..Default::default()
    };
    change(&mut spec);
    let mut class = Ec2NodeClass::new("default", spec);
    class.metadata.uid = Some("0a0a0a0a-0000-4000-8000-000000000001".to_owned());
    class.metadata.generation = Some(1);
    class
}

pub(crate) fn alias(alias: &str) -> AmiSelectorTerm {
    AmiSelectorTerm {
        alias: alias.to_owned(),
        ..Default::default()
    }
}

/// `key In values` for all pairs.
pub(crate) fn requirements(pairs: &[(&str, &[&str])]) -> Requirements {
    pairs
        .iter()
        .map(|(key, values)| {
            let values = values.iter().map(|value| Name::from(*value));
            Requirement::new(&(*key).into(), Operator::In, values)
        })
        .collect()
}

/// On-demand m5.large.
pub(crate) fn m5() -> Requirements {
    requirements(&[
        (labels::INSTANCE_TYPE, &["m5.large"]),
        (labels::CAPACITY_TYPE, &["on-demand"]),
    ])
}

/// A group of `size` claims, named and numbered after the group.
pub(crate) fn group(
    id: &str,
    class: &Arc<Ec2NodeClass>,
    size: usize,
    requirements: &Requirements,
) -> LaunchGroup {
    let member = |number: usize| LaunchRequest {
        node_claim: format!("{id}-{number:04}").into(),
        uid: format!("uid-{id}-{number:04}").into(),
        node_pool: Some("pool".into()),
        requirements: requirements.clone(),
        requests: Resources::of(1_000, 1 << 30),
        labels: BTreeMap::from([
            (labels::NODE_POOL.into(), "pool".into()),
            ("team".into(), "a".into()),
        ]),
        taints: Vec::new(),
        startup_taints: Vec::new(),
    };
    LaunchGroup {
        id: id.into(),
        node_class: Arc::clone(class),
        members: (0..size).map(member).collect(),
        claimed: BTreeSet::new(),
    }
}

/// Provider ids of the instances in an answer, in order of the members.
pub(crate) fn ids(answers: &Answers) -> Vec<String> {
    answers
        .iter()
        .flatten()
        .map(|instance| instance.provider_id.to_string())
        .collect()
}

/// Kinds of the errors in an answer, in order of the members.
pub(crate) fn kinds(answers: &Answers) -> Vec<CloudErrorKind> {
    answers
        .iter()
        .filter_map(|answer| answer.as_ref().err())
        .map(|error| error.kind)
        .collect()
}
