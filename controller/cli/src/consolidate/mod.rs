//! `millwright consolidate`: which nodes of this cluster could go now, on files.

mod fleet;
pub mod output;

use std::time::Instant;

use millwright_disruption::{Settings, decide};
use millwright_model::{Timestamp, instance_type::InstanceTypes};
use millwright_scheduling::Packing;

use crate::{
    documents::Document,
    plan::{snapshot, world},
};

/// What came of it.
#[derive(Debug)]
pub struct Consolidated {
    /// The answer.
    pub output: output::Output,
    /// Things to say on standard error.
    pub warnings: Vec<String>,
}

/// Decides for documents. `types` replaces the embedded catalogue; node classes then play no part.
/// `now` is what budgets' schedules and times of pods are compared with.
///
/// # Errors
/// Bad input, as one line.
pub fn consolidate(
    documents: Vec<Document>,
    types: Option<&InstanceTypes>,
    settings: &Settings,
    now: Timestamp,
) -> Result<Consolidated, String> {
    let mut world = world::read(documents)?;
    // Pods that no scheduler has seen may not need anything: only what waits visibly holds nodes.
    let snapshot = snapshot(&mut world, types, now, false)?;
    let fleet = fleet::fleet(&mut world, snapshot, now);
    let started = Instant::now();
    let decision = decide(&fleet, settings);
    let elapsed = started.elapsed();
    let packing = match settings.solve.packing {
        Packing::Karpenter => "karpenter",
        Packing::Cost => "cost",
    };
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    Ok(Consolidated {
        output: output::output(&fleet, &decision, packing, micros),
        warnings: world.warnings,
    })
}
