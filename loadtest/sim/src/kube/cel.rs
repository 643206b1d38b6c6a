//! CEL rules of CustomResourceDefinitions (`x-kubernetes-validations`).
//!
//! What the interpreter cannot evaluate is an error when the CRD is created, never a rule that
//! silently holds: every function a rule calls must be one that is known to work here.

use std::collections::HashMap;
use std::sync::Arc;

use cel::common::types::CelString;
use cel::objects::{Key, Map as CelMap};
use cel::{Context, Env, ExecutionError, Program, Value as CelValue};
use serde_json::Value;

/// Functions the interpreter has, besides operators and macros.
const FUNCTIONS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "find",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "dyn",
    "lowerAscii",
    "upperAscii",
    "split",
    "join",
    "replace",
    "substring",
    "trim",
    "indexOf",
    "lastIndexOf",
    "charAt",
    "distinct",
    "flatten",
    "reverse",
    "sort",
    "slice",
];

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Program,
    source: String,
    message: Option<String>,
    message_expression: Option<Program>,
    reason: String,
    field_path: String,
    /// Transition rules are evaluated on updates only.
    uses_old_self: bool,
}

/// A rule that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// What to tell the client.
    pub(crate) message: String,
    /// `FieldValueInvalid` and relatives.
    pub(crate) reason: String,
    /// Path below the rule's place, with a leading dot; often empty.
    pub(crate) field_path: String,
}

impl Rule {
    /// Compiles one element of `x-kubernetes-validations`.
    ///
    /// # Errors
    /// Why the rule can not be evaluated here.
    pub(crate) fn compile(rule: &Value) -> Result<Self, String> {
        let text = |name: &str| {
            rule.get(name)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        let source = text("rule");
        if rule.get("optionalOldSelf").and_then(Value::as_bool) == Some(true) {
            return Err(format!("rule {source:?}: optionalOldSelf is not supported"));
        }
        let program = compile(&source)?;
        let uses_old_self = program.references().has_variable("oldSelf");
        let expression = text("messageExpression");
        let message_expression = if expression.is_empty() {
            None
        } else {
            Some(compile(&expression)?)
        };
        let or_default = |text: String, default: &str| {
            if text.is_empty() {
                default.to_owned()
            } else {
                text
            }
        };
        let message = text("message");
        Ok(Self {
            program,
            message: (!message.is_empty()).then_some(message),
            message_expression,
            reason: or_default(text("reason"), "FieldValueInvalid"),
            field_path: text("fieldPath"),
            source,
            uses_old_self,
        })
    }

    /// Evaluates the rule; `None` if it holds or does not apply.
    pub(crate) fn violation(&self, value: &Value, old: Option<&Value>) -> Option<Violation> {
        if self.uses_old_self && old.is_none() {
            return None;
        }
        let mut context = Context::with_env(environment());
        context.add_variable_from_value("self", to_cel(value));
        if let Some(old) = old.filter(|_| self.uses_old_self) {
            context.add_variable_from_value("oldSelf", to_cel(old));
        }
        let message = match self.program.execute(&context) {
            Ok(CelValue::Bool(true)) => return None,
            Ok(CelValue::Bool(false)) => self.message(&context),
            Ok(other) => format!("rule {:?} is not boolean: {other:?}", self.source),
            Err(error) => format!("rule evaluation error: {error}"),
        };
        let (reason, field_path) = (self.reason.clone(), self.field_path.clone());
        Some(Violation {
            message,
            reason,
            field_path,
        })
    }

    fn message(&self, context: &Context<'_, '_>) -> String {
        let expression = self.message_expression.as_ref();
        if let Some(Ok(CelValue::String(text))) = expression.map(|it| it.execute(context)) {
            return text.to_string();
        }
        self.message
            .clone()
            .unwrap_or_else(|| format!("failed rule: {}", self.source.trim()))
    }
}

/// Kubernetes' own function: the first match of an expression, or the empty string.
fn find(
    text: &CelString<'_>,
    expression: &CelString<'_>,
) -> Result<CelString<'static>, ExecutionError> {
    let regex = regex::Regex::new(expression.inner())
        .map_err(|error| ExecutionError::function_error("find", error))?;
    let found = regex.find(text.inner()).map_or("", |found| found.as_str());
    Ok(found.to_owned().into())
}

fn kubernetes(env: &mut Env) -> Result<(), cel::DeclarationError> {
    cel::add_member_overload!(env, fn find: (CelString<'_>, CelString<'_>) -> Result<CelString<'_>>)
}

fn environment() -> Arc<Env> {
    thread_local! {
        static ENVIRONMENT: Arc<Env> = {
            let mut env = Env::stdlib();
            env.add_extension(cel::extensions::strings).expect("first extension of a new environment");
            env.add_extension(cel::extensions::lists).expect("lists and strings do not overlap");
            env.add_extension(kubernetes).expect("no other extension has it");
            Arc::new(env)
        };
    }
    ENVIRONMENT.with(Arc::clone)
}

fn compile(source: &str) -> Result<Program, String> {
    let program = environment()
        .compile(source)
        .map_err(|error| format!("rule {source:?}: {error}"))?;
    let operator = |name: &str| name.contains('_') || name.starts_with('@');
    let references = program.references();
    let mut unknown: Vec<&str> = references
        .functions()
        .into_iter()
        .filter(|name| !operator(name) && !FUNCTIONS.contains(name))
        .collect();
    unknown.sort_unstable();
    if unknown.is_empty() {
        return Ok(program);
    }
    Err(format!(
        "rule {source:?}: functions that this server can not evaluate: {}",
        unknown.join(", ")
    ))
}

fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        // JSON does not say whether a whole number is signed; Kubernetes' CEL says int.
        Value::Number(number) => number.as_i64().map_or_else(
            || CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
            CelValue::Int,
        ),
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let entry = |(key, value): (&String, &Value)| {
                (Key::String(Arc::new(key.clone())), to_cel(value))
            };
            let map: HashMap<Key, CelValue> = fields.iter().map(entry).collect();
            CelValue::Map(CelMap { map: Arc::new(map) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(rule: &str, value: &Value, old: Option<&Value>, holds: bool) {
        let rule = Rule::compile(&json!({ "rule": rule, "message": "no" })).unwrap();
        assert_eq!(rule.violation(value, old).is_none(), holds, "{rule:?}");
    }

    #[test]
    fn rules_of_the_kind_our_crds_use_are_evaluated() {
        check("has(self.a) != has(self.b)", &json!({ "a": 1 }), None, true);
        check(
            "has(self.a) != has(self.b)",
            &json!({ "a": 1, "b": 2 }),
            None,
            false,
        );
        check(
            "self.all(k, k != '' && self[k] != '')",
            &json!({ "x": "" }),
            None,
            false,
        );
        check(
            "!self.exists(x, has(x.alias) && x.alias.startsWith('al2@'))",
            &json!([{}]),
            None,
            true,
        );
        check(
            "self.limits.size() == 1 && 'nodes' in self.limits",
            &json!({ "limits": { "nodes": 1 } }),
            None,
            true,
        );
        check(
            "self.n > 1 && self.n + 1 == 4",
            &json!({ "n": 3 }),
            None,
            true,
        );
        check(
            "self.find('^[^@]+') in ['al2']",
            &json!("al2@latest"),
            None,
            true,
        );
        check("self.matches('^[a-z]+$')", &json!("abc"), None, true);
    }

    #[test]
    fn transition_rules_apply_to_updates_only() {
        check("self == oldSelf", &json!("a"), None, true);
        check("self == oldSelf", &json!("a"), Some(&json!("b")), false);
    }

    #[test]
    fn a_rule_that_cannot_be_evaluated_is_refused_when_it_is_compiled() {
        for rule in [
            "duration(self) > duration('1s')",
            "quantity(self).isInteger()",
            "self.(",
        ] {
            let error = Rule::compile(&json!({ "rule": rule })).unwrap_err();
            assert!(error.contains("rule"), "{error}");
        }
    }
}
