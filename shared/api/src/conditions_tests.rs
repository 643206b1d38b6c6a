//! Each test is one sentence of provisioning specification 1.6.

use super::*;

const GENERATION: i64 = 3;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn facts() -> ObjectFacts {
    ObjectFacts {
        generation: GENERATION,
        created: Some(at(100)),
        deleting: false,
    }
}

/// Opens a NodeClaim's set over `list` at second `now` and lets `change` work on it.
fn with<T>(
    list: &mut Vec<Condition>,
    facts: ObjectFacts,
    now: i64,
    change: impl FnOnce(&mut ConditionSet<'_>) -> T,
) -> T {
    change(&mut ConditionSet::over(
        list,
        NodeClaim::DEPENDENTS,
        facts,
        at(now),
    ))
}

fn types(list: &[Condition]) -> Vec<&str> {
    list.iter().map(|c| c.type_.as_str()).collect()
}

fn second(list: &[Condition], kind: &str) -> i64 {
    find(list, kind).unwrap().last_transition_time.0.as_second()
}

#[test]
fn opening_creates_every_dependent_as_unknown_since_the_object_s_creation() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |_| ());
    for kind in NodeClaim::DEPENDENTS {
        let condition = find(&list, kind).unwrap();
        assert_eq!(condition.status, UNKNOWN);
        assert_eq!(condition.reason, "AwaitingReconciliation");
        assert_eq!(condition.message, "object is awaiting reconciliation");
        assert_eq!(condition.observed_generation, Some(GENERATION));
        assert_eq!(second(&list, kind), 100);
    }
    let root = find(&list, READY).unwrap();
    assert_eq!((root.status.as_str(), second(&list, READY)), (UNKNOWN, 100));
    assert_eq!(root.reason, "ReconcilingDependents");
    assert_eq!(
        root.message,
        "Launched=Unknown, Registered=Unknown, Initialized=Unknown"
    );
}

#[test]
fn a_missing_root_alone_is_created_awaiting_reconciliation() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |_| ());
    list.retain(|c| c.type_ != READY);
    with(&mut list, facts(), 600, |_| ());
    let root = find(&list, READY).unwrap();
    assert_eq!(
        (root.status.as_str(), root.reason.as_str()),
        (UNKNOWN, "AwaitingReconciliation")
    );
    assert_eq!(second(&list, READY), 100);
}

#[test]
fn opening_a_complete_set_changes_nothing() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| set.set_true(LAUNCHED));
    let before = list.clone();
    with(
        &mut list,
        ObjectFacts {
            generation: 9,
            ..facts()
        },
        900,
        |_| (),
    );
    assert_eq!(list, before);
}

#[test]
fn an_independent_condition_starts_now() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| set.set_true(DRIFTED));
    assert_eq!(second(&list, DRIFTED), 500);
}

#[test]
fn an_object_without_creation_time_starts_its_conditions_now() {
    let mut list = Vec::new();
    with(
        &mut list,
        ObjectFacts {
            created: None,
            ..facts()
        },
        500,
        |_| (),
    );
    assert_eq!(second(&list, LAUNCHED), 500);
}

#[test]
fn setting_stamps_the_generation_and_moves_the_time_only_with_the_status() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| {
        set.set_false(REGISTERED, "A", "a")
    });
    assert_eq!(second(&list, REGISTERED), 500);

    let newer = ObjectFacts {
        generation: 4,
        ..facts()
    };
    assert!(with(&mut list, newer.clone(), 600, |set| set
        .set_false(REGISTERED, "B", "b")));
    let condition = find(&list, REGISTERED).unwrap();
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("B", "b")
    );
    assert_eq!(
        (condition.observed_generation, second(&list, REGISTERED)),
        (Some(4), 500)
    );

    assert!(with(&mut list, newer, 700, |set| set.set_true(REGISTERED)));
    assert_eq!(second(&list, REGISTERED), 700);
}

#[test]
fn an_identical_condition_is_no_change() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| {
        set.set_false(REGISTERED, "A", "a")
    });
    let before = list.clone();
    assert!(!with(&mut list, facts(), 900, |set| set
        .set_false(REGISTERED, "A", "a")));
    assert_eq!(list, before);
}

#[test]
fn true_without_reason_gives_its_own_type_as_reason_and_no_message() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| set.set_true(LAUNCHED));
    let condition = find(&list, LAUNCHED).unwrap();
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        (LAUNCHED, "")
    );
}

#[test]
fn root_is_true_once_every_dependent_is_true_at_this_generation() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| {
        for kind in NodeClaim::DEPENDENTS {
            assert!(!set.is_true(&[READY]));
            set.set_true(kind);
        }
        assert!(set.is_true(&[READY]));
    });
    let root = find(&list, READY).unwrap();
    assert_eq!((root.reason.as_str(), root.message.as_str()), ("Ready", ""));
    assert_eq!(second(&list, READY), 500);
}

#[test]
fn root_is_false_while_a_dependent_is_false_at_this_generation() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| set.set_true(LAUNCHED));
    with(&mut list, facts(), 600, |set| {
        set.set_false(REGISTERED, "MultipleNodesFound", "two")
    });
    let root = find(&list, READY).unwrap();
    assert_eq!(
        (root.status.as_str(), root.reason.as_str()),
        (FALSE, "UnhealthyDependents")
    );
    assert_eq!(root.message, "Registered=False, Initialized=Unknown");
    assert_eq!(second(&list, READY), 600);
}

#[test]
fn a_false_of_an_older_generation_leaves_the_root_unknown() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| {
        set.set_false(REGISTERED, "A", "a")
    });
    let newer = ObjectFacts {
        generation: 4,
        ..facts()
    };
    with(&mut list, newer, 600, |set| set.set_true(LAUNCHED));
    let root = find(&list, READY).unwrap();
    assert_eq!(
        (root.status.as_str(), root.reason.as_str()),
        (UNKNOWN, "ReconcilingDependents")
    );
    assert_eq!(root.message, "Registered=False, Initialized=Unknown");
}

#[test]
fn a_new_generation_takes_ready_away_until_every_dependent_is_judged_again() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| {
        for kind in NodeClaim::DEPENDENTS {
            set.set_true(kind);
        }
    });
    let newer = ObjectFacts {
        generation: 4,
        ..facts()
    };
    with(&mut list, newer, 600, |set| {
        set.set_true(LAUNCHED);
        assert_eq!(set.root().status, UNKNOWN);
        assert_eq!(set.root().message, "Registered=True, Initialized=True");
        set.set_true(REGISTERED);
        set.set_true(INITIALIZED);
        assert_eq!(set.root().status, TRUE);
    });
}

#[test]
fn root_message_lists_the_newest_transition_first() {
    let mut list = Vec::new();
    for (second, kind) in [(300, INITIALIZED), (200, LAUNCHED), (250, REGISTERED)] {
        with(&mut list, facts(), second, |set| {
            set.set_false(kind, "R", "")
        });
    }
    let root = find(&list, READY).unwrap();
    assert_eq!(
        root.message,
        "Initialized=False, Registered=False, Launched=False"
    );
}

#[test]
fn independent_conditions_do_not_touch_the_root() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| {
        for kind in NodeClaim::DEPENDENTS {
            set.set_true(kind);
        }
        set.set_false(CONSISTENT_STATE_FOUND, "NodeShape", "too small");
        assert!(set.is_true(&[READY]));
    });
}

#[test]
fn conditions_are_stored_by_transition_with_the_root_last() {
    let mut list = Vec::new();
    with(&mut list, facts(), 300, |set| set.set_true(REGISTERED));
    with(&mut list, facts(), 200, |set| set.set_true(DRIFTED));
    with(&mut list, facts(), 250, |set| set.set_true(LAUNCHED));
    assert_eq!(
        types(&list),
        [INITIALIZED, DRIFTED, LAUNCHED, REGISTERED, READY]
    );
}

#[test]
fn while_deleting_one_change_bumps_the_generation_of_all() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| set.set_true(LAUNCHED));
    let deleting = ObjectFacts {
        generation: 7,
        deleting: true,
        ..facts()
    };
    with(&mut list, deleting, 600, |set| set.set_true(DRAINED));
    assert!(
        list.iter().all(|c| c.observed_generation == Some(7)),
        "{list:?}"
    );

    let alive = ObjectFacts {
        generation: 8,
        ..facts()
    };
    with(&mut list, alive, 700, |set| set.set_true(VOLUMES_DETACHED));
    assert_eq!(find(&list, DRAINED).unwrap().observed_generation, Some(7));
}

#[test]
fn only_independent_conditions_can_be_cleared() {
    let mut list = Vec::new();
    with(&mut list, facts(), 500, |set| {
        set.set_true(CONSOLIDATABLE);
        assert_eq!(set.clear(CONSOLIDATABLE), Ok(true));
        assert_eq!(set.clear(CONSOLIDATABLE), Ok(false));
        for kind in [LAUNCHED, READY] {
            assert_eq!(
                set.clear(kind),
                Err(ClearError::Required {
                    kind: kind.to_owned()
                })
            );
        }
    });
    assert_eq!(types(&list), [LAUNCHED, REGISTERED, INITIALIZED, READY]);
}

#[test]
fn instants_are_cut_to_the_seconds_that_the_api_stores() {
    let mut list = Vec::new();
    let now = Timestamp::new(500, 999_999_999).unwrap();
    ConditionSet::over(&mut list, NodeClaim::DEPENDENTS, facts(), now).set_true(LAUNCHED);
    let stored: Vec<Condition> =
        serde_json::from_value(serde_json::to_value(&list).unwrap()).unwrap();
    assert_eq!(stored, list);
}

#[test]
fn opening_an_object_makes_its_status_and_uses_the_dependents_of_its_kind() {
    let mut class = Ec2NodeClass::new("default", crate::Ec2NodeClassSpec::default());
    class.metadata.generation = Some(2);
    ConditionSet::open(&mut class, at(500)).set_true(AMIS_READY);
    assert!(class.is_condition_true(AMIS_READY));
    assert!(!class.is_ready_now());
    let mut pool = NodePool::new("default", crate::NodePoolSpec::default());
    pool.metadata.generation = Some(2);
    {
        let mut set = ConditionSet::open(&mut pool, at(500));
        set.set_true(VALIDATION_SUCCEEDED);
        set.set_true(NODE_CLASS_READY);
    }
    assert!(pool.is_ready_now());
    pool.metadata.generation = Some(3);
    assert!(!pool.is_ready_now() && pool.is_condition_true(READY));
}

#[test]
fn reserved_capacity_adds_one_dependent() {
    let (all, few) = (
        EC2_NODE_CLASS_DEPENDENTS_RESERVED,
        EC2_NODE_CLASS_DEPENDENTS,
    );
    assert_eq!(all.len(), few.len() + 1);
    assert!(few.iter().all(|kind| all.contains(kind)));
}
