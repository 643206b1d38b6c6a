//! Rules of the building blocks that several kinds share.
//!
//! Source: provisioning specification 1.1; AWS specification 1.2.

use serde_json::json;

use super::refine::Schema;
use crate::labels;

/// Optional DNS subdomain and slash, then a name.
pub(super) const QUALIFIED_NAME: &str = concat!(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
);
/// Empty, or a name.
const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// A camel-case identifier, as Kubernetes wants it in conditions.
const REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const REASON_OR_EMPTY: &str = r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$";
const DURATION: &str = r"^([0-9]+(s|m|h))+$";
const NILLABLE_DURATION: &str = r"^(([0-9]+(s|m|h))+|Never)$";
/// Longest label key: 253 characters of domain, the slash, 63 characters of name, within 316.
const KEY_LENGTH: u32 = 316;

const OPERATORS: &[&str] = &[
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Gte",
    "Lte",
];

/// Which keys a kind forbids besides those that all of them forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// NodePool: the pool itself is forbidden, and the reserved rest of the AWS domain.
    Pool,
    /// NodeClaim: the reserved rest of the AWS domain is forbidden.
    Claim,
    /// NodeOverlay: nothing more.
    Overlay,
}

/// The rules on a label key, as (message, expression over the key).
fn key_rules(keys: Keys, key: &str) -> Vec<(String, String)> {
    let reserved = |domain: &str, allowed: &[&str]| {
        let list = allowed
            .iter()
            .map(|k| format!("'{k}'"))
            .collect::<Vec<_>>()
            .join(", ");
        (
            format!("label domain \"{domain}\" is restricted"),
            format!("{key} in [{list}] || !{key}.find('^[^/]+').endsWith('{domain}')"),
        )
    };
    let forbidden = |label: &str| {
        (
            format!("label \"{label}\" is restricted"),
            format!("{key} != '{label}'"),
        )
    };

    let mut rules = vec![reserved(
        labels::GROUP,
        &[labels::CAPACITY_TYPE, labels::NODE_POOL],
    )];
    if keys == Keys::Pool {
        rules.push(forbidden(labels::NODE_POOL));
    }
    rules.push(forbidden(labels::HOSTNAME));
    if keys != Keys::Overlay {
        rules.push(reserved(labels::AWS_GROUP, &labels::aws_domain()));
    }
    rules
}

/// Rules of a list of requirements; the field `minValues` is there except for overlays.
pub(super) fn requirements(schema: &mut Schema, path: &str, keys: Keys) {
    schema
        .at(&format!("{path}[].key"))
        .max_length(KEY_LENGTH)
        .pattern(QUALIFIED_NAME);
    for (message, rule) in key_rules(keys, "self") {
        schema.at(&format!("{path}[].key")).rule(&message, &rule);
    }
    schema.at(&format!("{path}[].operator")).one_of(OPERATORS);
    schema.at(&format!("{path}[].values")).atomic_list();

    schema.at(path).max_items(100).atomic_list().rule(
        "requirements with operator 'In' must have a value defined",
        "self.all(x, x.operator != 'In' || has(x.values) && x.values.size() > 0)",
    );
    if keys == Keys::Overlay {
        schema.at(path).rule(
            "requirements with operator 'NotIn' must have a value defined",
            "self.all(x, x.operator != 'NotIn' || has(x.values) && x.values.size() > 0)",
        );
    }
    schema.at(path).rule(
        "requirements with operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
        "self.all(x, !(x.operator in ['Gt', 'Lt', 'Gte', 'Lte']) \
         || has(x.values) && x.values.size() == 1 && int(x.values[0]) >= 0)",
    );
    if keys != Keys::Overlay {
        schema.at(path).rule(
            "requirements with 'minValues' must have at least that many values in 'values'",
            "self.all(x, x.operator != 'In' || !has(x.minValues) || x.values.size() >= x.minValues)",
        );
        schema.at(&format!("{path}[].minValues")).range(1, 50);
    }
}

/// Rules of the labels that a NodePool puts on its nodes.
pub(super) fn template_labels(schema: &mut Schema, path: &str) {
    schema.at(path).atomic_map().max_properties(100);
    for (message, rule) in key_rules(Keys::Pool, "x") {
        schema
            .at(path)
            .rule(&message, &format!("self.all(x, {rule})"));
    }
    schema
        .at(&format!("{path}{{}}"))
        .max_length(63)
        .pattern(LABEL_VALUE);
}

/// Rules of a list of taints.
pub(super) fn taints(schema: &mut Schema, path: &str) {
    schema.at(path).atomic_list();
    schema.at(&format!("{path}[]")).replace(json!({
        "type": "object",
        "required": ["effect", "key"],
        "properties": {
            "effect": {
                "type": "string",
                "description": "What happens to pods that do not tolerate the taint.",
                "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
            },
            "key": {
                "type": "string",
                "description": "Key of the taint.",
                "minLength": 1,
                "pattern": QUALIFIED_NAME,
            },
            "timeAdded": {
                "type": "string",
                "description": "When the taint was added.",
                "format": "date-time",
            },
            "value": {
                "type": "string",
                "description": "Value of the taint.",
                "pattern": QUALIFIED_NAME,
            },
        },
    }));
    // What derive has to say of the element is Kubernetes' own text.
    schema
        .at(&format!("{path}[]"))
        .describe("A taint of the node.");
}

/// Rules of a reference to a class.
pub(super) fn node_class_ref(schema: &mut Schema, path: &str) {
    for field in ["kind", "name", "group"] {
        schema
            .at(&format!("{path}.{field}"))
            .rule(&format!("{field} may not be empty"), "self != ''");
    }
    schema.at(&format!("{path}.group")).pattern("^[^/]*$");
}

/// Rules of `terminationGracePeriod`.
pub(super) fn duration(schema: &mut Schema, path: &str) {
    schema.at(path).pattern(DURATION);
}

/// Rules of `expireAfter` and `consolidateAfter`.
pub(super) fn nillable_duration(schema: &mut Schema, path: &str) {
    schema.at(path).pattern(NILLABLE_DURATION);
}

/// How much a condition must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conditions {
    /// Everything.
    Complete,
    /// Neither reason nor message: objects of long ago have none.
    Relaxed,
}

/// Rules of a list of conditions.
pub(super) fn conditions(schema: &mut Schema, strictness: Conditions) {
    let (required, reason) = match strictness {
        Conditions::Complete => (
            json!(["lastTransitionTime", "message", "reason", "status", "type"]),
            json!({
                "type": "string",
                "description": "Why the condition has its status, as an identifier.",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": REASON,
            }),
        ),
        Conditions::Relaxed => (
            json!(["lastTransitionTime", "status", "type"]),
            json!({
                "type": "string",
                "description": "Why the condition has its status, as an identifier; may be empty.",
                "maxLength": 1024,
                "pattern": REASON_OR_EMPTY,
            }),
        ),
    };
    schema.at("status.conditions").replace(json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "Something that holds, does not hold, or is unknown.",
            "required": required,
            "properties": {
                "lastTransitionTime": {
                    "type": "string",
                    "description": "When the status last changed.",
                    "format": "date-time",
                },
                "message": {
                    "type": "string",
                    "description": "Why the condition has its status, for people.",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "description": "Generation of the object that the condition was judged at.",
                    "minimum": 0,
                },
                "reason": reason,
                "status": {
                    "type": "string",
                    "description": "Whether the condition holds.",
                    "enum": ["True", "False", "Unknown"],
                },
                "type": {
                    "type": "string",
                    "description": "What may hold, as an identifier.",
                    "maxLength": KEY_LENGTH,
                    "pattern": QUALIFIED_NAME,
                },
            },
        },
    }));
}
