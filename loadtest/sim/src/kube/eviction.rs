//! Eviction: a deletion that PodDisruptionBudgets may refuse.

use std::sync::{Arc, PoisonError};

use http::StatusCode;
use serde_json::{Value, json};

use super::api::{ApiServer, Reply};
use super::delete::DeleteOptions;
use super::disruption::{self, BUDGETS};
use super::error::ApiError;
use super::object::{Object, int_at, is_deleting, str_at};
use super::request::Call;
use super::write::ATTEMPTS;

impl ApiServer {
    pub(crate) fn evict(&self, call: &Call) -> Result<Reply, ApiError> {
        let eviction = call.object()?;
        let options = DeleteOptions {
            grace_seconds: int_at(&eviction, &["deleteOptions", "gracePeriodSeconds"]),
            uid: precondition(&eviction, "uid"),
            resource_version: precondition(&eviction, "resourceVersion"),
            propagation: str_at(&eviction, &["deleteOptions", "propagationPolicy"]).to_owned(),
            dry_run: call.params.dry_run()?
                || eviction.pointer("/deleteOptions/dryRun") == Some(&json!(["All"])),
        };
        let _turn = self
            .evictions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for _ in 0..ATTEMPTS {
            let pod = self.stored(call)?;
            if !may_ignore_budgets(&pod.value) {
                self.ask_budgets(&pod)?;
            }
            if self
                .delete_object(&call.resource, &pod, &options)?
                .is_some()
            {
                self.refresh_budgets();
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
                });
                return Ok(Reply::json(StatusCode::CREATED, &status));
            }
        }
        Err(ApiError::stale("", "pods", &call.name))
    }

    /// Whether the budgets of a pod allow its disruption. A pod that is being deleted is not
    /// healthy, so the next eviction sees this one.
    fn ask_budgets(&self, pod: &Object) -> Result<(), ApiError> {
        let budgets = self.budgets_of(pod);
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction \
                           subresource does not support.";
                return Err(ApiError::internal(why));
            }
        };
        let counts = self.count(budget);
        let may_always =
            str_at(&budget.value, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
        let is_guarded = counts.healthy < counts.desired || counts.desired == 0;
        if !disruption::is_ready(&pod.value) && (may_always || !is_guarded) {
            return Ok(());
        }
        if counts.allowed() > 0 {
            return Ok(());
        }
        let cause = format!(
            "The disruption budget {} needs {} healthy pods and has {} currently",
            budget.key.name, counts.desired, counts.healthy
        );
        let why = "Cannot evict pod as it would violate the pod's disruption budget.";
        Err(ApiError::disruption_budget(why.to_owned(), cause))
    }

    fn budgets_of(&self, pod: &Object) -> Vec<Arc<Object>> {
        let (budgets, _) = self.store.list(BUDGETS, &pod.key.namespace);
        let covers = |budget: &Arc<Object>| disruption::covers(&budget.value, &pod.value);
        budgets.into_iter().filter(covers).collect()
    }
}

fn precondition(eviction: &Value, field: &str) -> Option<String> {
    let text = str_at(eviction, &["deleteOptions", "preconditions", field]);
    (!text.is_empty()).then(|| text.to_owned())
}

/// Pods that serve nobody: ended, not begun, or already going.
fn may_ignore_budgets(pod: &Value) -> bool {
    is_deleting(pod)
        || matches!(
            str_at(pod, &["status", "phase"]),
            "Succeeded" | "Failed" | "Pending"
        )
}
