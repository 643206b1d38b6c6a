//! Rules that this build does not plan for. A pod under such a rule is refused with the rule's
//! name: placing it as if the rule were absent could put it where it cannot run.

use millwright_model::{ClusterSnapshot, PodSpec, labels};

use crate::topology::{asks_for_namespace_labels, pod_terms, topology_keys};

/// Why pods with this spec are not planned for; `None` when they are.
pub(crate) fn unsupported(spec: &PodSpec, snapshot: &ClusterSnapshot) -> Option<&'static str> {
    if spec.uses_resource_claims {
        Some("dynamic resource allocation is not planned for (resourceClaims)")
    } else if spec.claim_volumes > 0 {
        Some("volumes of claims are not planned for (volumes.persistentVolumeClaim)")
    } else if topology_keys(spec).any(|key| labels::normalise(key) != *key) {
        Some("a deprecated alias of a label is no topologyKey that is planned for")
    } else if snapshot.namespaces.is_none() && pod_terms(spec).any(asks_for_namespace_labels) {
        Some("labels of namespaces are not watched (namespaceSelector)")
    } else {
        None
    }
}
