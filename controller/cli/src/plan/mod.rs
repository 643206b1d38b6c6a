//! `millwright plan`: what would be launched for these manifests, on files.

pub mod instance_types;
pub mod output;
pub mod world;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use millwright_cloud::embedded_instance_types;
use millwright_model::{ClusterSnapshot, Timestamp, instance_type::InstanceTypes};
use millwright_scheduling::{Packing, SolveSettings, check, solve};

use crate::documents::Document;

/// What came of planning.
#[derive(Debug)]
pub struct Planned {
    /// The answer.
    pub output: output::Output,
    /// Things to say on standard error.
    pub warnings: Vec<String>,
}

/// Plans for documents. `types` replaces the embedded catalogue; node classes then play no part.
///
/// # Errors
/// Bad input, as one line.
pub fn plan(
    documents: Vec<Document>,
    types: Option<&InstanceTypes>,
    settings: &SolveSettings,
) -> Result<Planned, String> {
    let mut world = world::read(documents)?;
    let snapshot = snapshot(&mut world, types, Timestamp(0), true)?;
    let started = Instant::now();
    let solution = solve(&snapshot, settings);
    let elapsed = started.elapsed();
    if let Err(violations) = check(&snapshot, &solution.plan) {
        return Err(format!(
            "internal error: the plan violates its rules: {:?}",
            violations.first()
        ));
    }
    let report = &solution.report;
    let summary = output::Summary {
        pods: report.pods,
        scheduled: report.scheduled,
        new_nodes: report.new_nodes,
        price_per_hour: report.price_per_hour.as_dollars(),
        lower_bound_per_hour: report.lower_bound_per_hour.as_dollars(),
        solve_micros: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        workers: report.workers,
        packing: match settings.packing {
            Packing::Karpenter => "karpenter",
            Packing::Cost => "cost",
        },
        plan_hash: format!("{:016x}", report.plan_hash),
    };
    Ok(Planned {
        output: output::output(&snapshot, &solution.plan, summary),
        warnings: world.warnings,
    })
}

/// Publishes the cluster, its NodePools with `types`, else with the embedded ones of their classes.
/// `anticipate` plans pods that no scheduler has seen, as those made from owners.
///
/// # Errors
/// A NodePool whose class is not in the input, or whose fields cannot be converted.
pub fn snapshot(
    world: &mut world::World,
    types: Option<&InstanceTypes>,
    now: Timestamp,
    anticipate: bool,
) -> Result<Arc<ClusterSnapshot>, String> {
    let mut lists: BTreeMap<String, InstanceTypes> = BTreeMap::new();
    for (source, pool) in &world.pools {
        let reference = &pool.spec.template.spec.node_class_ref;
        if types.is_some() || lists.contains_key(&reference.name) {
            continue;
        }
        let class = world.classes.get(&reference.name).ok_or_else(|| {
            format!(
                "{source}: NodePool: spec.template.spec.nodeClassRef.name: EC2NodeClass \"{}\" is not in the input (give it, or \
                 use --instance-types)",
                reference.name
            )
        })?;
        lists.insert(reference.name.clone(), embedded_instance_types(class));
    }
    let offered = |pool: &millwright_api::NodePool| -> InstanceTypes {
        let name = &pool.spec.template.spec.node_class_ref.name;
        types
            .cloned()
            .or_else(|| lists.get(name).cloned())
            .unwrap_or_else(|| [].into())
    };
    let (snapshot, errors) = world.state.snapshot(now, anticipate, offered);
    if let Some(error) = errors.first() {
        return Err(format!("NodePool: {error}"));
    }
    Ok(snapshot)
}
