//! The planning loop: a closed batch window becomes a snapshot, a plan, and acts.
//!
//! Followers run all of it but the acts, so that a new leader's caches are warm and failing over costs
//! one solve.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use millwright_model::{ClusterSnapshot, Timestamp};
use millwright_scheduling::{Solution, SolveReport, check, solve};
use millwright_telemetry as telemetry;

use crate::{
    batch::{BatchWindow, Closing, Decision, until},
    context::{Context, now},
    executor,
};

/// Plans kept for the admin port.
const KEPT: usize = 20;
/// Pods that wait are looked at again at least this often.
const RETRY: Duration = Duration::from_secs(10);
/// The same when a NodeClaim could not be created: the API server is rarely away for long.
const RETRY_FAILED: Duration = Duration::from_secs(1);

/// A plan that was made, for people.
#[derive(Clone, Debug)]
pub struct PlanRecord {
    /// Generation of the snapshot.
    pub generation: u64,
    /// When the snapshot was taken.
    pub taken_at: Timestamp,
    /// What the solver says.
    pub report: SolveReport,
    /// Reasons of pods without a place, with the number of pods each.
    pub unschedulable: Vec<(usize, Vec<String>)>,
    /// Time of the solve.
    pub solve_time: Duration,
    /// NodeClaims created and failed.
    pub created: (usize, usize),
}

/// The last plans, newest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PlanLog(Arc<Mutex<VecDeque<PlanRecord>>>);

impl PlanLog {
    fn push(&self, record: PlanRecord) {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.push_front(record);
        records.truncate(KEPT);
    }

    /// The records, newest first.
    #[must_use]
    pub fn records(&self) -> Vec<PlanRecord> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }
}

/// Runs until the task is dropped.
pub async fn run(context: Context, log: PlanLog) {
    context.synced().await;
    let mut planner = Planner {
        window: BatchWindow::new(context.settings.batch),
        seen: 0,
        supplied: 0,
        unplaced: false,
        led: false,
        retry_at: Instant::now(),
        context,
        log,
    };
    loop {
        planner.turn().await;
    }
}

struct Planner {
    context: Context,
    log: PlanLog,
    window: BatchWindow,
    /// Arrivals that the window was told of.
    seen: u64,
    /// Changes of supply that the last plan knew of.
    supplied: u64,
    /// Whether the last plan left pods without a place, or a NodeClaim could not be created.
    unplaced: bool,
    /// Whether the last turn was taken as leader.
    led: bool,
    retry_at: Instant,
}

impl Planner {
    /// Waits for news or a deadline, and plans if it is time.
    async fn turn(&mut self) {
        let now = now();
        self.note_arrivals(now);
        let completeness = self.context.state().completeness();
        let wait = match self.window.decide(now, completeness) {
            Decision::Plan(closing) => {
                self.plan(closing).await;
                return;
            }
            Decision::WaitUntil(due) => until(now, due),
            Decision::Closed => self.until_retry(),
        };
        let led = self.led;
        tokio::select! {
            () = self.context.arrivals.notified() => {}
            // A new leader plans at once what waited for it.
            () = self.context.leadership.acquired(), if !led => {}
            () = tokio::time::sleep(wait.min(RETRY)) => {}
        }
    }

    fn until_retry(&self) -> Duration {
        let wait = self.retry_at.saturating_duration_since(Instant::now());
        // Past: nothing waits, or it would have been planned again.
        if wait.is_zero() { RETRY } else { wait }
    }

    fn note_arrivals(&mut self, now: Timestamp) {
        let arrivals = self.context.state().arrivals();
        let fresh = arrivals.saturating_sub(self.seen);
        self.seen = arrivals;
        let became_leader = self.context.leadership.is_leader() && !self.led;
        self.led = self.context.leadership.is_leader();
        let supply = self.context.supply();
        let fresh_supply = supply != self.supplied;
        self.supplied = supply;
        // The kube-scheduler may fill nodes in another way than planned, so that a planned pod finds its
        // place taken: whoever still waits is looked at again from time to time.
        let waiting = self.context.state().waiting_pods() > 0;
        let retry = (self.unplaced && fresh_supply) || (waiting && Instant::now() >= self.retry_at);
        if fresh > 0 {
            self.window.arrive(now, fresh);
        } else if became_leader || retry {
            self.window.arrive(now, 1);
            self.retry_at = Instant::now() + RETRY;
        }
    }

    async fn plan(&mut self, closing: Closing) {
        let context = &self.context;
        executor::confirm_claims(context).await;
        let (snapshot, errors) =
            context
                .state()
                .snapshot(now(), context.settings.anticipation, |pool| {
                    context.instance_types(pool)
                });
        for error in errors {
            tracing::warn!(%error, "nodepool cannot be read and is not planned with");
        }
        if snapshot.pods.is_empty() {
            self.unplaced = false;
            if context.leadership.is_leader() {
                executor::withdraw_idle_claims(context, snapshot.taken_at).await;
            }
            return;
        }
        let Some((solution, solve_time)) = self.solve(&snapshot).await else {
            return;
        };
        let context = &self.context;
        let outcome = executor::provision(context, &snapshot, &solution.plan).await;
        if context.leadership.is_leader() {
            executor::withdraw_idle_claims(context, snapshot.taken_at).await;
        }
        self.unplaced = !solution.plan.unschedulable.is_empty() || outcome.failed > 0;
        let retry = if outcome.failed > 0 {
            RETRY_FAILED
        } else {
            RETRY
        };
        self.retry_at = Instant::now() + retry;
        self.record(
            &snapshot,
            &solution,
            solve_time,
            (outcome.created, outcome.failed),
            closing,
        );
    }

    /// Solves on a thread of its own, never on one that serves connections.
    async fn solve(&self, snapshot: &Arc<ClusterSnapshot>) -> Option<(Solution, Duration)> {
        let mut settings = self.context.settings.solve.clone();
        settings.workers = self.context.settings.workers();
        let input = Arc::clone(snapshot);
        let solved = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let solution = solve(&input, &settings);
            let elapsed = started.elapsed();
            let verdict = check(&input, &solution.plan);
            (solution, elapsed, verdict)
        })
        .await;
        match solved {
            Ok((solution, elapsed, Ok(()))) => Some((solution, elapsed)),
            Ok((_, _, Err(violations))) => {
                telemetry::plan_rejected();
                tracing::error!(count = violations.len(), first = ?violations.first(), "plan violates its rules and was discarded");
                None
            }
            Err(error) => {
                tracing::error!(%error, "solver panicked");
                None
            }
        }
    }

    fn record(
        &self,
        snapshot: &ClusterSnapshot,
        solution: &Solution,
        solve_time: Duration,
        created: (usize, usize),
        closing: Closing,
    ) {
        let report = &solution.report;
        telemetry::solved(solve_time, report.pods);
        tracing::info!(
            generation = snapshot.generation,
            pods = report.pods,
            scheduled = report.scheduled,
            new_nodes = report.new_nodes,
            solve_ms = solve_time.as_secs_f64() * 1e3,
            price_per_hour = report.price_per_hour.as_dollars(),
            leader = self.context.leadership.is_leader(),
            window = ?closing,
            "planned"
        );
        let unschedulable = solution
            .plan
            .unschedulable
            .iter()
            .map(|group| {
                (
                    group.pods.len(),
                    group.reasons.iter().map(ToString::to_string).collect(),
                )
            })
            .collect();
        self.log.push(PlanRecord {
            generation: snapshot.generation,
            taken_at: snapshot.taken_at,
            report: report.clone(),
            unschedulable,
            solve_time,
            created,
        });
    }
}
