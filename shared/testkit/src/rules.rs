//! Random rules between pods, for the worlds of [`crate::world`].
//!
//! Three labels, three topology keys and two ports, so that rules meet.

use std::sync::Arc;

use millwright_model::{
    ClusterSnapshot, Name, PodKey, PodSpec, labels,
    pod::HostPort,
    snapshot::BoundPod,
    topology::{LabelSelector, PodAffinityTerm, TopologySpread, WhenUnsatisfiable},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::world::{TEAM, World, world};

const APP: &str = "app";
const APPS: [&str; 3] = ["web", "db", "cache"];

fn selector() -> impl Strategy<Value = Option<LabelSelector>> {
    let one = select(APPS.to_vec()).prop_map(|app| LabelSelector {
        match_labels: vec![(APP.into(), app.into())],
        match_expressions: Vec::new(),
    });
    prop_oneof![
        8 => one.prop_map(Some),
        1 => Just(Some(LabelSelector::default())),
        1 => Just(None),
    ]
}

fn key() -> impl Strategy<Value = Name> {
    let keys = vec![
        labels::ZONE,
        labels::ZONE,
        labels::HOSTNAME,
        labels::HOSTNAME,
        labels::CAPACITY_TYPE,
        TEAM,
    ];
    select(keys).prop_map(Name::from)
}

fn spread() -> impl Strategy<Value = TopologySpread> {
    let hard = select(vec![
        WhenUnsatisfiable::DoNotSchedule,
        WhenUnsatisfiable::ScheduleAnyway,
    ]);
    let domains = option::weighted(0.2, 1_u32..4);
    let honour = (proptest::bool::weighted(0.8), proptest::bool::weighted(0.3));
    (1_u32..3, key(), hard, selector(), domains, honour).prop_map(
        |(max_skew, topology_key, when_unsatisfiable, selector, min_domains, honour)| {
            TopologySpread {
                max_skew,
                topology_key,
                when_unsatisfiable,
                selector,
                min_domains,
                match_label_keys: Vec::new(),
                honor_node_affinity: honour.0,
                honor_node_taints: honour.1,
            }
        },
    )
}

fn term() -> impl Strategy<Value = PodAffinityTerm> {
    let namespaces = prop_oneof![
        4 => Just((Vec::new(), None)),
        1 => Just((vec![Name::from("other")], None)),
        1 => Just((Vec::new(), Some(LabelSelector::default()))),
    ];
    (key(), selector(), namespaces).prop_map(
        |(topology_key, selector, (namespaces, namespace_selector))| PodAffinityTerm {
            topology_key,
            selector,
            namespaces,
            namespace_selector,
            match_label_keys: Vec::new(),
            mismatch_label_keys: Vec::new(),
        },
    )
}

fn port() -> impl Strategy<Value = HostPort> {
    (
        select(vec!["0.0.0.0", "10.0.0.1"]),
        select(vec![80_u16, 443]),
    )
        .prop_map(|(ip, port)| HostPort {
            ip: ip.into(),
            port,
            protocol: "TCP".into(),
        })
}

/// The rules of one class of pods.
fn rules() -> impl Strategy<Value = PodSpec> {
    let few = |terms| prop_oneof![4 => Just(Vec::new()), 1 => terms];
    let preferred = || vec((1_u32..4, term()), 1..3);
    (
        select(APPS.to_vec()),
        prop_oneof![5 => Just("default"), 1 => Just("other")],
        prop_oneof![1 => Just(Vec::new()), 1 => vec(spread(), 1..3)],
        few(vec(term(), 1..2).boxed()),
        few(vec(term(), 1..3).boxed()),
        prop_oneof![6 => Just(Vec::new()), 1 => preferred()],
        prop_oneof![6 => Just(Vec::new()), 1 => preferred()],
        prop_oneof![6 => Just(Vec::new()), 1 => vec(port(), 1..2)],
    )
        .prop_map(
            |(app, namespace, topology_spread, affinity, anti_affinity, liked, disliked, ports)| {
                PodSpec {
                    namespace: namespace.into(),
                    labels: [(APP.into(), app.into())].into(),
                    topology_spread,
                    affinity,
                    anti_affinity,
                    preferred_affinity: liked,
                    preferred_anti_affinity: disliked,
                    host_ports: ports,
                    ..PodSpec::default()
                }
            },
        )
}

/// A world whose pods obey rules, and whose nodes run pods that do.
pub fn ruled_world() -> impl Strategy<Value = World> {
    let running = vec((rules(), 0_usize..4, proptest::bool::weighted(0.1)), 0..6);
    (world(), vec(rules(), 6), running).prop_map(|(World(mut world), rules, running)| {
        rule_pods(&mut world, &rules);
        run_pods(&mut world, running);
        World(world)
    })
}

/// Gives the pods of each class the rules of that class.
fn rule_pods(world: &mut ClusterSnapshot, rules: &[PodSpec]) {
    let mut specs: Vec<(Arc<PodSpec>, Arc<PodSpec>)> = Vec::new();
    let mut ruled = |plain: &Arc<PodSpec>| {
        if let Some((_, known)) = specs.iter().find(|(known, _)| Arc::ptr_eq(known, plain)) {
            return Arc::clone(known);
        }
        let rules = &rules[specs.len() % rules.len()];
        let spec = Arc::new(PodSpec {
            requests: plain.requests.clone(),
            node_selector: plain.node_selector.clone(),
            required_terms: plain.required_terms.clone(),
            preferred_terms: plain.preferred_terms.clone(),
            tolerations: plain.tolerations.clone(),
            ..rules.clone()
        });
        specs.push((Arc::clone(plain), Arc::clone(&spec)));
        spec
    };
    let pods = world.pods.iter().map(|pod| {
        let mut pod = (**pod).clone();
        pod.spec = ruled(&pod.spec);
        Arc::new(pod)
    });
    world.pods = pods.collect();
}

/// Binds pods to nodes, beside what the nodes hold already.
fn run_pods(world: &mut ClusterSnapshot, running: Vec<(PodSpec, usize, bool)>) {
    let mut nodes: Vec<_> = world.nodes.iter().map(|node| (**node).clone()).collect();
    if nodes.is_empty() {
        return;
    }
    for (nth, (spec, at, is_terminating)) in running.into_iter().enumerate() {
        let at = at % nodes.len();
        let mut pods = nodes[at].pods.to_vec();
        pods.push(BoundPod {
            key: PodKey::new(&*spec.namespace, format!("running-{nth}")),
            spec: Arc::new(spec),
            is_daemon: false,
            is_terminating,
        });
        nodes[at].pods = pods.into();
    }
    world.nodes = nodes.into_iter().map(Arc::new).collect();
}
