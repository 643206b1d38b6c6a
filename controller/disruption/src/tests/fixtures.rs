//! A small world: machines `c2`, `c4`, `c8`, `c16` in one zone, and nodes of them with pods.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use millwright_lifecycle::{
    Change, ConditionType, ConsolidationPolicy, DisruptionRules, ObservedClaim, ObservedNode,
    ObservedPod, budget::Budget, consolidatable::ConsolidateAfter, pdb::ObservedPdb,
};
use millwright_model::{
    CapacityType, ClusterSnapshot, InstanceType, Name, NanoDollarsPerHour, NodeClassRef, NodeName,
    NodePool, NodePoolName, Offering, Operator, Pod, PodKey, PodSpec, Requirement, Requirements,
    ResourceName, Resources, Span, StateNode, Timestamp, labels, pod::Intake,
};

use crate::{Decision, Fleet, FleetNode, Settings, decide};

pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000);
const ZONE: &str = "z-a";

/// Dollars with three decimals.
pub(super) const fn milli(dollars: u64) -> NanoDollarsPerHour {
    NanoDollarsPerHour(dollars * 1_000_000)
}

/// A machine with that many cores: 50 thousandths of a dollar per core, spot 20.
pub(super) fn machine(cores: i64) -> Arc<InstanceType> {
    let name = format!("c{cores}");
    let price = cores.unsigned_abs();
    let offering =
        |capacity_type, cents| Offering::new(ZONE.into(), capacity_type, milli(price * cents));
    let known = [
        (labels::INSTANCE_TYPE, name.clone()),
        (labels::ARCH, "amd64".into()),
        (labels::OS, "linux".into()),
        (labels::ZONE, ZONE.into()),
    ];
    let mut requirements: Requirements = labels::WELL_KNOWN
        .iter()
        .map(|key| Requirement::new(&(*key).into(), Operator::DoesNotExist, []))
        .collect();
    for (key, value) in known {
        requirements.replace(Requirement::label(&key.into(), &value.into()));
    }
    let capacity_types = ["on-demand".into(), "spot".into()];
    requirements.replace(Requirement::new(
        &labels::CAPACITY_TYPE.into(),
        Operator::In,
        capacity_types,
    ));
    for key in [labels::NODE_POOL, "karpenter.k8s.aws/ec2nodeclass"] {
        requirements.remove(key);
    }
    Arc::new(InstanceType {
        requirements,
        name: name.as_str().into(),
        capacity: Resources::of(cores * 1000, cores << 32).with(ResourceName::Pods, 110),
        overhead: Resources::new(),
        offerings: vec![
            offering(CapacityType::OnDemand, 50),
            offering(CapacityType::Spot, 20),
        ],
    })
}

/// What one test is about: everything else is as usual.
pub(super) struct World {
    pub(super) nodes: Vec<FleetNode>,
    pub(super) rules: BTreeMap<NodePoolName, DisruptionRules>,
    pub(super) pdbs: Vec<ObservedPdb>,
    pub(super) waiting: Vec<Arc<Pod>>,
    pub(super) types: Vec<Arc<InstanceType>>,
    pub(super) requirements: Requirements,
}

pub(super) fn rules() -> DisruptionRules {
    DisruptionRules {
        is_static: false,
        consolidate_after: ConsolidateAfter::After(Span(0)),
        policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
        budgets: vec![budget("100%")],
    }
}

pub(super) fn budget(nodes: &str) -> Budget {
    Budget {
        nodes: nodes.into(),
        reasons: None,
        schedule: None,
        duration: None,
    }
}

/// A world with pool `default` whose nodes are given as (name, cores, cores of each pod in
/// thousandths).
pub(super) fn world(nodes: &[(&str, i64, &[i64])]) -> World {
    let made = nodes
        .iter()
        .map(|(name, cores, pods)| node(name, *cores, CapacityType::OnDemand, pods));
    World {
        nodes: made.collect(),
        rules: [("default".into(), rules())].into(),
        pdbs: Vec::new(),
        waiting: Vec::new(),
        types: [2, 4, 8, 16].map(machine).into(),
        requirements: [Requirement::label(
            &labels::CAPACITY_TYPE.into(),
            &"on-demand".into(),
        )]
        .into_iter()
        .collect(),
    }
}

pub(super) fn node(name: &str, cores: i64, capacity: CapacityType, pods: &[i64]) -> FleetNode {
    let labels: BTreeMap<Name, Name> = [
        (labels::NODE_POOL, "default".to_owned()),
        (labels::INSTANCE_TYPE, format!("c{cores}")),
        (labels::CAPACITY_TYPE, capacity.as_str().to_owned()),
        (labels::ZONE, ZONE.to_owned()),
        (labels::ARCH, "amd64".to_owned()),
        (labels::OS, "linux".to_owned()),
        (labels::HOSTNAME, name.to_owned()),
        (labels::REGISTERED, "true".to_owned()),
        (labels::INITIALIZED, "true".to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), value.as_str().into()))
    .collect();
    let id = format!("id-{name}");
    let mut claim = ObservedClaim {
        labels: labels.clone(),
        provider_id: Some(id.as_str().into()),
        ..ObservedClaim::new(name.into(), name.into(), Timestamp(0))
    };
    for kind in [ConditionType::Initialized, ConditionType::Consolidatable] {
        claim.conditions.apply(&Change::holds(kind), Timestamp(0));
    }
    let seen = ObservedNode {
        provider_id: Some(id.as_str().into()),
        ready: true,
        labels: labels.clone(),
        ..ObservedNode::new(name.into(), Timestamp(0))
    };
    let capacity = Resources::of(cores * 1000, cores << 32).with(ResourceName::Pods, 110);
    let mut made = FleetNode {
        state: Arc::new(StateNode {
            name: name.into(),
            provider_id: Some(id.as_str().into()),
            node_claim: Some(name.into()),
            node_pool: Some("default".into()),
            launched: true,
            registered: true,
            initialized: true,
            deleting: false,
            nominated_until: None,
            created_at: Timestamp(0),
            labels: Arc::new(labels),
            taints: [].into(),
            hostname: name.into(),
            allocatable: capacity.clone(),
            capacity: capacity.with(ResourceName::Nodes, 1),
            requested: Resources::new(),
            daemon_requested: Resources::new(),
            workload_pods: 0,
            pods: [].into(),
            price: None,
        }),
        claim: Some(claim),
        node: Some(seen),
        queued: false,
        pods: Vec::new(),
        displaced: HashMap::new(),
    };
    for (at, cores) in pods.iter().enumerate() {
        bind(&mut made, &format!("{name}-{at}"), *cores);
    }
    made
}

pub(super) fn requests(cores: i64) -> Resources {
    Resources::of(cores, 1 << 20).with(ResourceName::Pods, 1)
}

/// Puts a pod on a node.
pub(super) fn bind(node: &mut FleetNode, name: &str, cores: i64) {
    let pod = pod(
        name,
        cores,
        Intake::Rescheduled {
            from: node.state.name.clone(),
        },
    );
    node.pods
        .push(ObservedPod::new(pod.key.clone(), pod.uid.clone()));
    change(node, |state| {
        state.requested.add(&pod.spec.requests);
        state.workload_pods += 1;
    });
    node.displaced.insert(pod.key.clone(), pod);
}

/// Changes what planning sees of a node.
pub(super) fn change(node: &mut FleetNode, change: impl FnOnce(&mut StateNode)) {
    let mut state = (*node.state).clone();
    change(&mut state);
    node.state = Arc::new(state);
}

pub(super) fn pod(name: &str, cores: i64, intake: Intake) -> Arc<Pod> {
    let spec = PodSpec {
        namespace: "default".into(),
        requests: requests(cores),
        ..PodSpec::default()
    };
    Arc::new(Pod {
        key: PodKey::new("default", name),
        uid: name.into(),
        created_at: Timestamp(0),
        spec: Arc::new(spec),
        volumes: [].into(),
        owner: None,
        intake,
        planned_on: None,
        rejections: [].into(),
    })
}

impl World {
    pub(super) fn node(&mut self, name: &str) -> &mut FleetNode {
        let found = self
            .nodes
            .iter_mut()
            .find(|n| n.state.name.as_str() == name);
        found.expect("a node of the test")
    }

    pub(super) fn rules(&mut self) -> &mut DisruptionRules {
        self.rules
            .get_mut(&"default".into())
            .expect("the pool of the test")
    }

    pub(super) fn fleet(&self) -> Fleet {
        let pool = |(name, rules): (&NodePoolName, &DisruptionRules)| {
            Arc::new(NodePool {
                name: name.clone(),
                uid: "".into(),
                weight: 0,
                ready: true,
                deleting: false,
                is_static: rules.is_static,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                requirements: self.requirements.clone(),
                taints: Vec::new(),
                startup_taints: Vec::new(),
                node_class: NodeClassRef {
                    group: "karpenter.k8s.aws".into(),
                    kind: "EC2NodeClass".into(),
                    name: "default".into(),
                },
                termination_grace_period: None,
                expire_after: None,
                limits: None,
                usage: Resources::new(),
                hash: "".into(),
                instance_types: self.types.clone().into(),
            })
        };
        let mut snapshot = ClusterSnapshot {
            node_pools: self.rules.iter().map(pool).collect(),
            ..ClusterSnapshot::default()
        };
        for node in &self.nodes {
            snapshot.nodes.push(Arc::clone(&node.state));
        }
        for pod in &self.waiting {
            snapshot.pods.push(Arc::clone(pod));
        }
        Fleet::new(
            Arc::new(snapshot),
            self.nodes.clone(),
            self.rules.clone(),
            self.pdbs.clone(),
            NOW,
        )
    }

    pub(super) fn decide(&self) -> Decision {
        decide(&self.fleet(), &settings())
    }

    /// What the whole-fleet search decides.
    pub(super) fn search(&self) -> Decision {
        decide(&self.fleet(), &Settings::default())
    }

    /// What Karpenter's rules decide, as text; empty without a command.
    pub(super) fn decided(&self) -> String {
        text(&self.decide())
    }

    /// Why a node stays.
    pub(super) fn reasons(&self, node: &str) -> String {
        let skipped = self.decide().skipped;
        let reasons = skipped.get(&NodeName::from(node));
        reasons
            .map(|reasons| reasons.join("; "))
            .unwrap_or_default()
    }
}

/// The commands of a decision.
pub(super) fn text(decision: &Decision) -> String {
    let commands: Vec<String> = decision.commands.iter().map(ToString::to_string).collect();
    commands.join("; ")
}

/// Karpenter's rules.
pub(super) fn settings() -> Settings {
    Settings {
        solve: millwright_scheduling::SolveSettings {
            packing: millwright_scheduling::Packing::Karpenter,
            ..millwright_scheduling::SolveSettings::default()
        },
        ..Settings::default()
    }
}
