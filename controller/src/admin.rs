//! Health, readiness, metrics, and the last plans, over HTTP.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::{Router, http::StatusCode, response::IntoResponse, routing::get};
use millwright_model::ResourceName;
use millwright_reconcile::{Context, planner::PlanLog};
use millwright_telemetry::{self as telemetry, Metrics};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// Serves both ports as tasks.
///
/// # Errors
/// When a port cannot be listened on.
pub(crate) async fn serve(
    metrics_at: SocketAddr,
    health_at: SocketAddr,
    context: &Context,
    plans: PlanLog,
    metrics: Option<Metrics>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let seen = context.clone();
    let render = move || {
        let (seen, metrics) = (seen.clone(), metrics.clone());
        async move {
            telemetry::cluster_synced(seen.is_synced(), seen.nodes.list().len());
            telemetry::leading(seen.leadership.is_leader());
            measure_pools(&seen);
            metrics.map(|metrics| metrics.render()).unwrap_or_default()
        }
    };
    let metrics_routes = Router::new().route("/metrics", get(render)).route(
        "/debug/plans",
        get(move || {
            let plans = plans.clone();
            async move { axum::Json(Value::Array(plans.records().iter().map(plan).collect())) }
        }),
    );
    let ready = context.clone();
    let health_routes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(move || {
                let ready = ready.clone();
                async move {
                    if ready.is_synced() {
                        (StatusCode::OK, "ok").into_response()
                    } else {
                        (StatusCode::SERVICE_UNAVAILABLE, "watches are not synced").into_response()
                    }
                }
            }),
        );
    for (address, routes) in [(metrics_at, metrics_routes), (health_at, health_routes)] {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("listen on {address}"))?;
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "admin server ended");
            }
        });
    }
    Ok(())
}

/// Limits and usage of every NodePool.
fn measure_pools(context: &Context) {
    for pool in context.node_pools.list() {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let limits = millwright_state::convert::resources(&pool.spec.limits, "spec.limits")
            .unwrap_or_default();
        let usage = context.state().usage(name);
        let unlimited = usage.iter().map(|(resource, _)| resource);
        for resource in limits.iter().map(|(resource, _)| resource).chain(unlimited) {
            let limit = limits
                .find(resource)
                .map(|amount| base_units(resource, amount));
            let used = base_units(resource, usage.get(resource));
            telemetry::nodepool_resource(name, resource.as_str(), limit, used);
        }
    }
}

/// Cores instead of thousandths; all else is in base units already.
#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn base_units(resource: &ResourceName, amount: i64) -> f64 {
    let amount = amount as f64;
    if *resource == ResourceName::Cpu {
        amount / 1000.0
    } else {
        amount
    }
}

fn plan(record: &millwright_reconcile::planner::PlanRecord) -> Value {
    let report = &record.report;
    json!({
        "generation": record.generation,
        "takenAtMs": record.taken_at.0,
        "pods": report.pods,
        "scheduled": report.scheduled,
        "newNodes": report.new_nodes,
        "pricePerHour": report.price_per_hour.as_dollars(),
        "lowerBoundPerHour": report.lower_bound_per_hour.as_dollars(),
        "planHash": format!("{:016x}", report.plan_hash),
        "solveMicros": u64::try_from(record.solve_time.as_micros()).unwrap_or(u64::MAX),
        "nodeClaimsCreated": record.created.0,
        "nodeClaimsFailed": record.created.1,
        "unschedulable": record.unschedulable.iter().map(|(pods, reasons)| json!({"pods": pods, "reasons": reasons})).collect::<Vec<_>>(),
    })
}
