//! Small builders for the tables of this crate's tests.

use millwright_model::{Effect, PodKey, Resources, Span, Taint, Timestamp};

use crate::{
    condition::{Change, ConditionType},
    observed::{ObservedClaim, ObservedNode, unregistered_taint},
    pod::ObservedPod,
};

/// The moment at which fixtures were created.
pub(crate) const T0: Timestamp = Timestamp(1_700_000_000_000);

/// A moment some seconds after [`T0`].
pub(crate) const fn at(seconds: i64) -> Timestamp {
    Timestamp(T0.0 + seconds * 1_000)
}

/// A claim of pool `default`, created at [`T0`], with its finalizer and the conditions given.
pub(crate) fn claim(holds: &[ConditionType]) -> ObservedClaim {
    let mut claim = ObservedClaim {
        has_finalizer: true,
        labels: [("karpenter.sh/nodepool".into(), "default".into())].into(),
        taints: vec![Taint::new("team", "a", Effect::NoSchedule)],
        startup_taints: vec![Taint::new("cni", "", Effect::NoExecute)],
        requests: Resources::of(1_000, 1 << 30),
        provider_id: Some("aws:///us-east-1a/i-1".into()),
        ..ObservedClaim::new("default-1".into(), "uid-1".into(), T0)
    };
    for kind in holds {
        claim.conditions.apply(&Change::holds(*kind), T0);
    }
    claim
}

/// A Node of that claim that has just joined.
pub(crate) fn node() -> ObservedNode {
    ObservedNode {
        provider_id: Some("aws:///us-east-1a/i-1".into()),
        taints: vec![unregistered_taint()],
        capacity: Resources::of(2_000, 8 << 30),
        allocatable: Resources::of(1_900, 7 << 30),
        ..ObservedNode::new("ip-10-0-0-1".into(), T0)
    }
}

/// A plain pod of a ReplicaSet that started at [`T0`].
pub(crate) fn pod(name: &str) -> ObservedPod {
    ObservedPod {
        started_at: Some(T0),
        grace: Some(Span::from_secs(30)),
        ..ObservedPod::new(PodKey::new("default", name), name.into())
    }
}
