//! Incremental state against state built from nothing, under random event sequences.

use std::collections::BTreeMap;

use millwright_model::{ClusterSnapshot, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::ClusterState;

#[derive(Clone, Debug)]
enum Event {
    Pod {
        name: u8,
        node: Option<u8>,
        phase: u8,
        marked: bool,
    },
    DeletePod(u8),
    Node {
        name: u8,
        managed: bool,
        registered: bool,
    },
    DeleteNode(u8),
    Claim {
        name: u8,
        launched: bool,
        deleting: bool,
    },
    DeleteClaim(u8),
    Snapshot,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_u8..6, prop::option::of(0_u8..4), 0_u8..4, any::<bool>())
            .prop_map(|(name, node, phase, marked)| Event::Pod { name, node, phase, marked }),
        1 => (0_u8..6).prop_map(Event::DeletePod),
        3 => (0_u8..4, any::<bool>(), any::<bool>())
            .prop_map(|(name, managed, registered)| Event::Node { name, managed, registered }),
        1 => (0_u8..4).prop_map(Event::DeleteNode),
        3 => (0_u8..4, any::<bool>(), any::<bool>())
            .prop_map(|(name, launched, deleting)| Event::Claim { name, launched, deleting }),
        1 => (0_u8..4).prop_map(Event::DeleteClaim),
        2 => Just(Event::Snapshot),
    ];
    prop::collection::vec(event, 0..60)
}

fn pod(name: u8, node: Option<u8>, phase: u8, marked: bool) -> Value {
    let phase = if phase == 3 { "Succeeded" } else { "Pending" };
    let mut pod = json!({
        "metadata": {"name": format!("p{name}"), "namespace": "d", "uid": format!("u{name}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{}m", 100 + u32::from(name))}}}]},
        "status": {"phase": phase},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = format!("n{node}").into();
    } else if marked {
        pod["status"]["conditions"] =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    }
    pod
}

fn node(name: u8, managed: bool, registered: bool) -> Value {
    let mut labels = json!({"node.kubernetes.io/instance-type": "t"});
    if managed {
        labels["karpenter.sh/nodepool"] = "pool".into();
    }
    if registered {
        labels["karpenter.sh/registered"] = "true".into();
    }
    json!({
        "metadata": {"name": format!("n{name}"), "labels": labels},
        "spec": {"providerID": format!("i{name}")},
        "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "1900m"}},
    })
}

fn claim(name: u8, launched: bool, deleting: bool) -> Value {
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": format!("c{name}"), "labels": {"karpenter.sh/nodepool": "pool"}},
        "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                 "resources": {"requests": {"cpu": "500m"}}},
        "status": {},
    });
    if launched {
        claim["status"] = json!({"providerID": format!("i{name}"), "capacity": {"cpu": "2"}});
    }
    if deleting {
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    claim
}

/// The objects that exist after the events.
#[derive(Default)]
struct World {
    pods: BTreeMap<u8, Value>,
    nodes: BTreeMap<u8, Value>,
    claims: BTreeMap<u8, Value>,
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn publish(state: &mut ClusterState) -> ClusterSnapshot {
    let (snapshot, errors) = state.snapshot(Timestamp(0), true, |_| [].into());
    assert!(errors.is_empty(), "{errors:?}");
    (*snapshot).clone()
}

/// A snapshot without order and generation.
fn normal(snapshot: &ClusterSnapshot) -> (Vec<String>, Vec<String>) {
    let mut pods: Vec<String> = snapshot.pods.iter().map(|pod| format!("{pod:?}")).collect();
    let mut nodes: Vec<String> = snapshot
        .nodes
        .iter()
        .map(|node| format!("{node:?}"))
        .collect();
    pods.sort_unstable();
    nodes.sort_unstable();
    (pods, nodes)
}

fn play(state: &mut ClusterState, world: &mut World, event: &Event) {
    match *event {
        Event::Pod {
            name,
            node,
            phase,
            marked,
        } => {
            let value = pod(name, node, phase, marked);
            state.apply_pod(&typed(&value));
            world.pods.insert(name, value);
        }
        Event::DeletePod(name) => {
            state.delete_pod(&millwright_model::PodKey::new("d", format!("p{name}")));
            world.pods.remove(&name);
        }
        Event::Node {
            name,
            managed,
            registered,
        } => {
            let value = node(name, managed, registered);
            state.apply_node(&typed(&value)).unwrap();
            world.nodes.insert(name, value);
        }
        Event::DeleteNode(name) => {
            state.delete_node(&format!("n{name}").into());
            world.nodes.remove(&name);
        }
        Event::Claim {
            name,
            launched,
            deleting,
        } => {
            let value = claim(name, launched, deleting);
            state.apply_claim(&typed(&value)).unwrap();
            world.claims.insert(name, value);
        }
        Event::DeleteClaim(name) => {
            state.delete_claim(&format!("c{name}").into());
            world.claims.remove(&name);
        }
        Event::Snapshot => drop(publish(state)),
    }
}

fn from_scratch(world: &World) -> ClusterState {
    let mut state = ClusterState::default();
    world
        .claims
        .values()
        .for_each(|value| state.apply_claim(&typed(value)).unwrap());
    world
        .nodes
        .values()
        .for_each(|value| state.apply_node(&typed(value)).unwrap());
    world.pods.values().for_each(|value| {
        state.apply_pod(&typed(value));
    });
    state
}

proptest! {
    #[test]
    fn any_order_of_events_gives_the_snapshot_that_a_fresh_start_would(events in events()) {
        let mut state = ClusterState::default();
        let mut world = World::default();
        for event in &events {
            play(&mut state, &mut world, event);
        }
        let mut fresh = from_scratch(&world);
        prop_assert_eq!(normal(&publish(&mut state)), normal(&publish(&mut fresh)));
        prop_assert_eq!(state.usage("pool"), fresh.usage("pool"));
        prop_assert_eq!(state.completeness(), fresh.completeness());
        prop_assert_eq!(state.waiting_pods(), fresh.waiting_pods());
    }
}

/// A pod that one caller's snapshot left out must be in the next caller's.
#[test]
fn snapshots_with_and_without_anticipation_do_not_hide_pods_from_each_other() {
    let mut state = ClusterState::default();
    state.apply_pod(&typed(&pod(1, None, 0, false)));
    let pods = |state: &mut ClusterState, anticipate| {
        state
            .snapshot(Timestamp(0), anticipate, |_| [].into())
            .0
            .pods
            .len()
    };
    assert_eq!(pods(&mut state, false), 0);
    assert_eq!(pods(&mut state, true), 1);
    assert_eq!(pods(&mut state, false), 0);
}
