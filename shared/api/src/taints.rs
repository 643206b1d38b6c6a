//! Taints that the controller writes or waits for.
//!
//! Source: provisioning specification 2.6.

use k8s_openapi::api::core::v1::Taint;

/// Key of the taint of Nodes being disrupted, effect `NoSchedule`.
pub const DISRUPTED: &str = "karpenter.sh/disrupted";
/// Key of the taint of Nodes that have not registered, effect `NoExecute`.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";

/// Key of the taint of Nodes whose kubelet is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Key of the taint of Nodes whose kubelet has fallen silent.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Key of the taint that a cloud controller manager removes, value `true`.
pub const CLOUD_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Prefix of the keys of readiness gates; all of them are ephemeral.
pub const READINESS_PREFIX: &str = "readiness.k8s.io/";

/// Effect `NoSchedule`.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Effect `PreferNoSchedule`.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Effect `NoExecute`.
pub const NO_EXECUTE: &str = "NoExecute";

/// The taint `karpenter.sh/disrupted:NoSchedule`.
#[must_use]
pub fn disrupted() -> Taint {
    taint(DISRUPTED, NO_SCHEDULE)
}

/// The taint `karpenter.sh/unregistered:NoExecute`.
#[must_use]
pub fn unregistered() -> Taint {
    taint(UNREGISTERED, NO_EXECUTE)
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        value: None,
        time_added: None,
    }
}
