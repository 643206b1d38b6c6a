//! Rules of CapacityBuffer. Source: provisioning specification 1.5.

use super::refine::Schema;
use super::shared::{self, Conditions};

/// Adds the rules.
pub(super) fn refine(schema: &mut Schema) {
    schema
        .at("spec")
        .rule(
            "'podTemplateRef' needs 'replicas' or 'limits'",
            "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        )
        .rule(
            "cannot set both 'podTemplateRef' and 'scalableRef'",
            "!has(self.podTemplateRef) || !has(self.scalableRef)",
        );
    for path in [
        "spec.podTemplateRef.name",
        "spec.scalableRef.kind",
        "spec.scalableRef.name",
        "status.podTemplateRef.name",
    ] {
        schema.at(path).min_length(1);
    }
    schema.at("spec.replicas").minimum(0);
    schema.at("spec.percentage").minimum(0);
    shared::conditions(schema, Conditions::Complete);
}
