//! Rules of NodeClaim. Source: provisioning specification 1.3.

use super::refine::Schema;
use super::shared::{self, Conditions, Keys};

/// Adds the rules.
pub(super) fn refine(schema: &mut Schema) {
    schema
        .at("spec")
        .rule("spec is immutable", "self == oldSelf");
    shared::taints(schema, "spec.taints");
    shared::taints(schema, "spec.startupTaints");
    shared::requirements(schema, "spec.requirements", Keys::Claim);
    shared::node_class_ref(schema, "spec.nodeClassRef");
    shared::duration(schema, "spec.terminationGracePeriod");
    shared::nillable_duration(schema, "spec.expireAfter");
    schema
        .at("status.lastPodEventTime")
        .describe("When a pod was last bound to the node, removed from it, or ended on it.");
    shared::conditions(schema, Conditions::Relaxed);
}
