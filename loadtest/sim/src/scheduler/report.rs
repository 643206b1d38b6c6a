//! What people and programs are told about a pod that has no node.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{NAME, filter::Reason, pod::PodInfo};

/// The message: how many nodes there are, and how many of them object for which reason.
pub(super) fn message(nodes: usize, reasons: &BTreeMap<Reason, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut parts: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    // As the kube-scheduler sorts them: by text.
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

/// The patch of the pod's condition; refused by the API server when the pod has changed meanwhile, which
/// may be its binding.
pub(super) fn condition(pod: &PodInfo, message: &str, now: Timestamp) -> Value {
    let since = pod.refused.as_ref().and_then(|(_, since)| since.clone());
    json!({
        "metadata": {"uid": pod.uid, "resourceVersion": pod.version},
        "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": since.unwrap_or(Time(now)),
        }]},
    })
}

/// The event; `unique` tells its name from those of the pod's other events.
pub(super) fn event(pod: &PodInfo, message: &str, now: Timestamp, unique: u64) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}.{unique:x}", pod.name, now.as_nanosecond())),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some("FailedScheduling".to_owned()),
        message: Some(message.to_owned()),
        source: Some(EventSource {
            component: Some(NAME.to_owned()),
            host: None,
        }),
        reporting_component: Some(NAME.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

/// Reports that have not been sent yet; of each pod the latest only.
#[derive(Debug, Default)]
pub(super) struct Reports {
    order: VecDeque<String>,
    latest: HashMap<String, (Arc<PodInfo>, String)>,
}

impl Reports {
    /// Takes a report unless the pod says the same already.
    pub(super) fn push(&mut self, pod: Arc<PodInfo>, message: String) {
        let known = pod.refused.as_ref().map(|(known, _)| known);
        if known == Some(&message) {
            self.latest.remove(&pod.uid);
            return;
        }
        let uid = pod.uid.clone();
        if self.latest.insert(uid.clone(), (pod, message)).is_none() {
            self.order.push_back(uid);
        }
    }

    /// The next one to send.
    pub(super) fn pop(&mut self) -> Option<(Arc<PodInfo>, String)> {
        while let Some(uid) = self.order.pop_front() {
            if let Some(report) = self.latest.remove(&uid) {
                return Some(report);
            }
        }
        None
    }

    /// Withdraws the report about a pod that has a node or is gone.
    pub(super) fn withdraw(&mut self, uid: &str) {
        self.latest.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_objects::pod;
    use super::*;

    #[test]
    fn the_message_has_the_well_known_shape() {
        let insufficient = |resource: &str| Reason::Insufficient(resource.to_owned());
        let taint = Reason::Taint("dedicated".to_owned(), "db".to_owned());
        let reasons = [
            (insufficient("memory"), 1),
            (insufficient("cpu"), 2),
            (taint, 1),
        ];
        assert_eq!(
            message(3, &reasons.into()),
            "0/3 nodes are available: 1 Insufficient memory, \
             1 node(s) had untolerated taint {dedicated: db}, 2 Insufficient cpu."
        );
        assert_eq!(
            message(0, &BTreeMap::new()),
            "no nodes available to schedule pods"
        );
    }

    #[test]
    fn of_each_pod_the_latest_report_and_none_that_is_known() {
        let mut reports = Reports::default();
        let quiet = Arc::new(pod("a", &json!({})));
        reports.push(quiet.clone(), "first".to_owned());
        reports.push(quiet, "second".to_owned());
        let refused = json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "known"}]}});
        reports.push(Arc::new(pod("b", &refused)), "known".to_owned());
        reports.push(Arc::new(pod("c", &json!({}))), "withdrawn".to_owned());
        reports.withdraw("c");
        let sent: Vec<String> = std::iter::from_fn(|| reports.pop())
            .map(|(_, message)| message)
            .collect();
        assert_eq!(sent, ["second"]);
    }

    #[test]
    fn the_condition_keeps_its_time_and_names_the_version_it_is_about() {
        let refused = json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "message": "old",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let patch = condition(&pod("a", &refused), "new", Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(condition["message"], "new");
    }
}
