//! Waiting for volumes to be detached.
//!
//! Source: disruption specification 4.6.

use std::collections::BTreeSet;

use millwright_model::{Name, Timestamp};

use crate::pod::ObservedPod;

/// A VolumeAttachment of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedAttachment {
    /// Its name.
    pub name: Name,
    /// The PersistentVolume, if it names one.
    pub volume: Option<Name>,
}

/// Names of the attachments that are waited for, in the order given: those of volumes that no
/// undrainable pod of the node uses.
///
/// `volume_of` resolves a claim (namespace, name) to its PersistentVolume.
pub fn awaited<'a>(
    attachments: &'a [ObservedAttachment],
    pods: &[ObservedPod],
    volume_of: impl Fn(&str, &str) -> Option<Name>,
    now: Timestamp,
) -> Vec<&'a Name> {
    let kept: BTreeSet<Name> = pods
        .iter()
        .filter(|pod| !pod.is_drainable(now))
        .flat_map(|pod| {
            pod.volume_claims
                .iter()
                .map(move |claim| (&pod.key.namespace, claim))
        })
        .filter_map(|(namespace, claim)| volume_of(namespace, claim))
        .collect();
    attachments
        .iter()
        .filter(|attachment| {
            attachment
                .volume
                .as_ref()
                .is_some_and(|name| !kept.contains(name))
        })
        .map(|attachment| &attachment.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, pod};

    #[test]
    fn only_volumes_of_drainable_pods_are_waited_for() {
        let attachment = |name: &str, volume: Option<&str>| ObservedAttachment {
            name: name.into(),
            volume: volume.map(Into::into),
        };
        let attachments = [
            attachment("a", Some("pv-a")),
            attachment("b", Some("pv-b")),
            attachment("c", None),
        ];
        let with = |claim: &str, pod: ObservedPod| ObservedPod {
            volume_claims: [Name::from(claim)].into(),
            ..pod
        };
        let pods = [
            with("claim-a", pod("plain")),
            with(
                "claim-b",
                ObservedPod {
                    is_mirror: true,
                    ..pod("mirror")
                },
            ),
        ];
        let volume_of = |namespace: &str, claim: &str| {
            assert_eq!(namespace, "default");
            claim
                .strip_prefix("claim-")
                .map(|suffix| Name::from(format!("pv-{suffix}")))
        };
        assert_eq!(
            awaited(&attachments, &pods, volume_of, T0),
            [&Name::from("a")]
        );
        assert_eq!(awaited(&attachments, &[], volume_of, T0).len(), 2);
    }
}
