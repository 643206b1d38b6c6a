//! Rules of NodePool. Source: provisioning specification 1.2.

use serde_json::json;

use super::refine::Schema;
use super::shared::{self, Conditions, Keys};

/// A number, or a percentage up to 100.
const BUDGET_NODES: &str = r"^((100|[0-9]{1,2})%|[0-9]+)$";
/// A named schedule, or five fields; spaces around them are harmless.
const BUDGET_SCHEDULE: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|\s*\S+(\s+\S+){4}\s*)$";
/// Hours and minutes; cron knows no seconds.
const BUDGET_DURATION: &str = r"^([0-9]+(h|m)|[0-9]+h[0-9]+m)(0s)?$";

/// Adds the rules.
pub(super) fn refine(schema: &mut Schema) {
    schema
        .at("spec")
        .rule(
            "a NodePool cannot change between static and dynamic: 'replicas' cannot be added or removed",
            "has(self.replicas) == has(oldSelf.replicas)",
        )
        .rule(
            "only 'limits.nodes' is supported on NodePools with 'replicas'",
            "!has(self.replicas) || !has(self.limits) || self.limits.size() == 0 \
             || self.limits.size() == 1 && 'nodes' in self.limits",
        )
        .rule(
            "'weight' is not supported on NodePools with 'replicas'",
            "!has(self.replicas) || !has(self.weight)",
        );
    schema.at("spec.weight").range(1, 100);
    schema.at("spec.replicas").minimum(0);

    shared::template_labels(schema, "spec.template.metadata.labels");
    shared::taints(schema, "spec.template.spec.taints");
    shared::taints(schema, "spec.template.spec.startupTaints");
    shared::requirements(schema, "spec.template.spec.requirements", Keys::Pool);
    shared::node_class_ref(schema, "spec.template.spec.nodeClassRef");
    schema
        .at("spec.template.spec.nodeClassRef")
        .rule(
            "nodeClassRef.group is immutable",
            "self.group == oldSelf.group",
        )
        .rule(
            "nodeClassRef.kind is immutable",
            "self.kind == oldSelf.kind",
        );
    shared::duration(schema, "spec.template.spec.terminationGracePeriod");
    shared::nillable_duration(schema, "spec.template.spec.expireAfter");

    schema
        .at("spec.disruption")
        .require(&["consolidateAfter"])
        .default(json!({ "consolidateAfter": "0s" }));
    shared::nillable_duration(schema, "spec.disruption.consolidateAfter");
    budgets(schema);
    shared::conditions(schema, Conditions::Complete);
}

fn budgets(schema: &mut Schema) {
    schema
        .at("spec.disruption.budgets")
        .max_items(50)
        .atomic_list()
        .rule(
            "'schedule' must be set with 'duration'",
            "self.all(x, has(x.schedule) == has(x.duration))",
        );
    schema.at("spec.disruption.budgets[]").require(&["nodes"]);
    schema
        .at("spec.disruption.budgets[].reasons")
        .max_items(50)
        .set();
    schema
        .at("spec.disruption.budgets[].nodes")
        .pattern(BUDGET_NODES);
    schema
        .at("spec.disruption.budgets[].schedule")
        .pattern(BUDGET_SCHEDULE);
    schema
        .at("spec.disruption.budgets[].duration")
        .pattern(BUDGET_DURATION);
}
