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
    let mut pools: Vec<(&'static str, &str, CapacityType, u32)> = Vec::new();
    let mut draws = Ids::new(seed);
    let mut below = |bound: u64| draws.draw() % bound;
    for (name, capacity_type) in [("m5.large", OnDemand), ("m5.xlarge", Spot)] {
        let given = u32::try_from(3 + below(6)).expect("small");
        let pattern = PoolPattern {
            instance_type: Some(name.to_owned()),
            zone: Some("us-east-1a".to_owned()),
            capacity_type: Some(capacity_type),
        };
        rig.world.set_capacity(pattern, Some(given));
        pools.push((name, "us-east-1a", capacity_type, given));
    }
    let mut alive: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        match below(6) {
            0..=2 => {
                let letters: Vec<char> = ('a'..='c').collect();
                let mut offers = Vec::new();
                for (name, letter) in TYPES
                    .iter()
                    .flat_map(|t| letters.iter().map(move |l| (*t, *l)))
                {
                    if below(3) > 0 {
                        offers.push((name, letter));
                    }
                }
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
