//! API objects to the observed values that the rules read: what only this crate asks for, beside what
//! cluster state converts.

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use millwright_lifecycle::volumes::ObservedAttachment;

pub(crate) use millwright_state::observe::{budget, claim, disruption_rules, node, pod};

/// A VolumeAttachment.
pub(super) fn attachment(attachment: &VolumeAttachment) -> ObservedAttachment {
    ObservedAttachment {
        name: attachment.name_any().as_str().into(),
        volume: attachment
            .spec
            .source
            .persistent_volume_name
            .as_deref()
            .map(Into::into),
    }
}
