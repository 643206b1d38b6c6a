//! Random launches, terminations and interruptions; what is counted by increments must agree
//! with a count from scratch, and the same seed must give the same run.

use super::client::{Rig, ids};
use crate::aws::CapacityType::{OnDemand, Spot};
use crate::aws::id::Ids;
use crate::aws::{CapacityType, PoolPattern};

const STEPS: u64 = 120;
const TYPES: [&str; 3] = ["m5.large", "m5.xlarge", "c5.2xlarge"];

async fn run(seed: u64) -> Vec<String> {
    let rig = Rig::with(|config| {
        config.seed = seed;
        config.subnet_prefix = 27;
        config.quotas.on_demand_vcpus = Some(60);
    })
    .await;
    rig.template("tpl").await;
    let mut draws = Ids::new(seed);
    let pools = limited_pools(&rig, &mut draws);
    let mut below = |bound: u64| draws.draw() % bound;
    let mut alive: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        match below(6) {
            0..=2 => {
                let all = TYPES
                    .iter()
                    .flat_map(|name| ['a', 'b', 'c'].map(|letter| (*name, letter)));
                let offers: Vec<_> = all.filter(|_| below(3) > 0).collect();
                let capacity_type = if below(2) == 0 { "spot" } else { "on-demand" };
                let count = u32::try_from(1 + below(8)).expect("small");
                if !offers.is_empty() {
                    let form = rig.fleet(count, capacity_type, &offers);
                    alive.extend(ids(&rig.ec2("CreateFleet", &form).await.ok()));
                }
            }
            3 if !alive.is_empty() => {
                let at = usize::try_from(below(alive.len() as u64)).expect("an index");
                let id = alive.swap_remove(at);
                rig.ec2("TerminateInstances", &format!("InstanceId.1={id}"))
                    .await
                    .ok();
            }
            4 if !alive.is_empty() => {
                let at = usize::try_from(below(alive.len() as u64)).expect("an index");
                let id = alive.swap_remove(at);
                assert!(if below(2) == 0 {
                    rig.world.kill(&id)
                } else {
                    rig.world.interrupt(&id)
                });
            }
            _ => rig.pass(below(60)),
        }
        rig.world.check(&pools);
    }
    rig.world
        .instances()
        .iter()
        .map(|i| {
            format!(
                "{} {} {} {}",
                i.id,
                i.facts.name,
                i.zone.name,
                i.state.as_str()
            )
        })
        .collect()
}

/// A pool with the capacity that it was given.
type Pool = (&'static str, &'static str, CapacityType, u32);

/// Gives some pools a capacity.
fn limited_pools(rig: &Rig, draws: &mut Ids) -> Vec<Pool> {
    let zone = "us-east-1a";
    [("m5.large", OnDemand), ("m5.xlarge", Spot)]
        .map(|(name, capacity_type)| {
            let given = u32::try_from(3 + draws.draw() % 6).expect("small");
            let pattern = PoolPattern {
                instance_type: Some(name.to_owned()),
                zone: Some(zone.to_owned()),
                capacity_type: Some(capacity_type),
            };
            rig.world.set_capacity(pattern, Some(given));
            (name, zone, capacity_type, given)
        })
        .to_vec()
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a failing run names its seed")]
async fn counts_agree_with_the_instances_at_every_step_and_runs_repeat() {
    for seed in 0..6 {
        // Shown only when this fails: the seed replays the run.
        println!("seed {seed}");
        let first = run(seed).await;
        assert!(!first.is_empty());
        assert_eq!(
            first,
            run(seed).await,
            "seed {seed} gives the same run twice"
        );
    }
}
