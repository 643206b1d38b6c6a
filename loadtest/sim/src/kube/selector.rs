//! Label and field selectors: parsing, matching, and the fields each resource offers.

use serde_json::Value;

use super::error::ApiError;
use super::object::{at, meta_str};
use super::registry::Resource;

/// A parsed label selector; empty selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let integer = |text: &str| text.parse::<i64>().ok();
        match (&self.operator, value) {
            (Operator::In(values), Some(found)) => values.iter().any(|value| value == found),
            (Operator::NotIn(values), Some(found)) => values.iter().all(|value| value != found),
            (Operator::Exists, found) => found.is_some(),
            (Operator::NotIn(_) | Operator::DoesNotExist, None) => true,
            (Operator::In(_) | Operator::GreaterThan(_) | Operator::LessThan(_), None)
            | (Operator::DoesNotExist, Some(_)) => false,
            (Operator::GreaterThan(bound), Some(found)) => {
                integer(found).is_some_and(|found| found > *bound)
            }
            (Operator::LessThan(bound), Some(found)) => {
                integer(found).is_some_and(|found| found < *bound)
            }
        }
    }
}

impl LabelSelector {
    /// Parses the query form: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let bad = || ApiError::bad_request(format!("unable to parse requirement: {text:?}"));
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            requirements.push(parse_requirement(part).ok_or_else(bad)?);
        }
        Ok(Self { requirements })
    }

    /// Reads `matchLabels` and `matchExpressions` of a `metav1.LabelSelector`; `None` for an
    /// operator or shape the API does not know.
    pub(crate) fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                let operator = Operator::In(vec![value.as_str()?.to_owned()]);
                requirements.push(Requirement {
                    key: key.clone(),
                    operator,
                });
            }
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            requirements.push(expression_requirement(expression)?);
        }
        Some(Self { requirements })
    }

    /// Reads a plain map of labels, as Services and ReplicationControllers have it.
    pub(crate) fn from_map(map: &Value) -> Option<Self> {
        Self::from_object(&serde_json::json!({ "matchLabels": map }))
    }

    /// Whether the object's labels match.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = at(object, &["metadata", "labels"]);
        self.matches_labels(labels)
    }

    /// Whether a map of labels matches.
    pub(crate) fn matches_labels(&self, labels: Option<&Value>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels
                .and_then(|labels| labels.get(&requirement.key))
                .and_then(Value::as_str);
            requirement.matches(value)
        })
    }

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Operator::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0])?,
                Operator::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::Exists => write!(f, "{key}")?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Operator::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn expression_requirement(expression: &Value) -> Option<Requirement> {
    let key = expression.get("key")?.as_str()?.to_owned();
    let values: Vec<String> = expression
        .get("values")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect();
    let operator = match expression.get("operator")?.as_str()? {
        "In" => Operator::In(values),
        "NotIn" => Operator::NotIn(values),
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan(values.first()?.parse().ok()?),
        "Lt" => Operator::LessThan(values.first()?.parse().ok()?),
        _ => return None,
    };
    Some(Requirement { key, operator })
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    if let Some(key) = part.strip_prefix('!') {
        let key = valid_key(key)?;
        return Some(Requirement {
            key,
            operator: Operator::DoesNotExist,
        });
    }
    if let Some((head, values)) = part.split_once('(') {
        let values = values
            .strip_suffix(')')?
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let mut words = head.split_whitespace();
        let key = valid_key(words.next()?)?;
        let operator = match words.next()? {
            "in" => Operator::In(values),
            "notin" => Operator::NotIn(values),
            _ => return None,
        };
        return words
            .next()
            .is_none()
            .then_some(Requirement { key, operator });
    }
    for (sign, negate) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((key, value)) = part.split_once(sign) {
            let values = vec![value.trim().to_owned()];
            let operator = if negate {
                Operator::NotIn(values)
            } else {
                Operator::In(values)
            };
            return Some(Requirement {
                key: valid_key(key)?,
                operator,
            });
        }
    }
    if let Some((key, bound)) = part.split_once('>') {
        let operator = Operator::GreaterThan(bound.trim().parse().ok()?);
        return Some(Requirement {
            key: valid_key(key)?,
            operator,
        });
    }
    if let Some((key, bound)) = part.split_once('<') {
        let operator = Operator::LessThan(bound.trim().parse().ok()?);
        return Some(Requirement {
            key: valid_key(key)?,
            operator,
        });
    }
    Some(Requirement {
        key: valid_key(part)?,
        operator: Operator::Exists,
    })
}

fn valid_key(key: &str) -> Option<String> {
    let key = key.trim();
    let legal =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    (!key.is_empty() && key.bytes().all(legal)).then(|| key.to_owned())
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A parsed field selector; empty selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<(Vec<String>, String, bool)>,
}

impl FieldSelector {
    /// Parses `a=b,c!=d` for a resource. `selectable` are further dotted paths the resource
    /// offers (a CRD's `selectableFields`).
    ///
    /// # Errors
    /// 400 for a field the resource does not offer, as the real one answers.
    pub(crate) fn parse(
        text: &str,
        resource: &Resource,
        selectable: &[String],
    ) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let split =
                [("!=", false), ("==", true), ("=", true)]
                    .iter()
                    .find_map(|(sign, equal)| {
                        part.split_once(sign)
                            .map(|(key, value)| (key, value, *equal))
                    });
            let Some((key, value, equal)) = split else {
                return Err(ApiError::bad_request(format!(
                    "invalid field selector {text:?}; can't understand '{part}'"
                )));
            };
            if !is_offered(key, resource) && !selectable.iter().any(|offered| offered == key) {
                return Err(ApiError::bad_request(format!(
                    "field label not supported: {key}"
                )));
            }
            let key = super::events::stored_field(&resource.group, key);
            let path = key.split('.').map(str::to_owned).collect();
            terms.push((path, value.to_owned(), equal));
        }
        Ok(Self { terms })
    }

    /// Whether the object's fields match; an absent field is the empty string.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|(path, wanted, equal)| {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            (field_text(object, &path) == *wanted) == *equal
        })
    }

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

fn field_text(object: &Value, path: &[&str]) -> String {
    if path == ["metadata", "namespace"] {
        return meta_str(object, "namespace").to_owned();
    }
    // Core events keep the reporting component in either of two fields.
    if path == ["source"] {
        return at(object, &["source", "component"])
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned();
    }
    match at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
        None if matches!(path, ["spec", "unschedulable" | "hostNetwork"]) => "false".to_owned(),
        None => String::new(),
    }
}

fn is_offered(key: &str, resource: &Resource) -> bool {
    if matches!(key, "metadata.name" | "metadata.namespace") {
        return true;
    }
    if resource.custom.is_some() {
        return false;
    }
    let offered: &[&str] = match resource.plural.as_str() {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "reportingComponent",
            "reportingController",
            "source",
            "type",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "jobs" => &["status.successful"],
        "replicasets" | "replicationcontrollers" => &["status.replicas"],
        "resourceslices" => &["spec.nodeName", "spec.driver"],
        _ => &[],
    };
    offered.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(selector: &str, labels: &Value, expected: bool) {
        let selector = LabelSelector::parse(selector).unwrap();
        assert_eq!(
            selector.matches_labels(Some(labels)),
            expected,
            "{selector}"
        );
        let again = LabelSelector::parse(&selector.to_string()).unwrap();
        assert_eq!(
            again, selector,
            "the printed form parses to the same selector"
        );
    }

    #[test]
    fn label_selectors_match_as_the_api_defines() {
        let labels = json!({ "app": "web", "tier": "1" });
        check("app=web", &labels, true);
        check("app==web,tier!=2", &labels, true);
        check("app in (db, web)", &labels, true);
        check("app notin (web)", &labels, false);
        check("absent notin (web)", &labels, true);
        check("absent!=x", &labels, true);
        check("absent", &labels, false);
        check("!absent,app", &labels, true);
        check("tier>0", &labels, true);
        check("tier<1", &labels, false);
        check("", &labels, true);
    }

    #[test]
    fn malformed_label_selectors_are_bad_requests() {
        for text in ["app in web", "a b=c", "=x", "app in (a"] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().code, 400, "{text}");
        }
    }

    #[test]
    fn field_selectors_know_only_the_fields_of_their_resource() {
        let registry = crate::kube::registry::Registry::builtin();
        let of = |plural| registry.find("", "v1", plural).unwrap();
        let (pods, services) = (of("pods"), of("services"));
        let pod = json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n1" } });
        let on_node =
            FieldSelector::parse("spec.nodeName=n1,metadata.name!=b", &pods, &[]).unwrap();
        assert!(on_node.matches(&pod));
        let unbound = FieldSelector::parse("spec.nodeName=", &pods, &[]).unwrap();
        assert!(!unbound.matches(&pod));
        let error = FieldSelector::parse("spec.nodeName=n1", &services, &[]).unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.nodeName");
    }
}
