//! How fast the packing core is, over sizes and both packings, beside the naive reference in the
//! same run. Prints figures and asserts none but that plans are valid: the machine is shared.
//!
//! Times say little on a shared machine. Ratios say more: each round runs the reference and the
//! core one after the other, and the ratio is taken per round.
//!
//! `cargo bench -p millwright-scheduling -- [ROUNDS] [LARGEST SIZE OF THE REFERENCE]`
//! (defaults 5 and 5000).

mod counting;
mod worlds;

use std::{
    io::{self, Write},
    time::Instant,
};

use millwright_model::ClusterSnapshot;
use millwright_scheduling::{Packing, SolveReport, SolveSettings, check, solve};
use millwright_testkit::reference;

use counting::peak_bytes;

const SIZES: [usize; 4] = [1_000, 5_000, 20_000, 100_000];
const PACKINGS: [(&str, Packing); 2] = [("karpenter", Packing::Karpenter), ("cost", Packing::Cost)];

/// Milliseconds of one call.
fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let started = Instant::now();
    std::hint::black_box(work());
    started.elapsed().as_secs_f64() * 1e3
}

/// Median, smallest and largest.
#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        Self {
            median: values[values.len() / 2],
            min: values[0],
            max: values[values.len() - 1],
        }
    }

    fn text(self, decimals: usize) -> String {
        let number = |value: f64| format!("{value:.decimals$}");
        format!(
            "{:>9} ({} .. {})",
            number(self.median),
            number(self.min),
            number(self.max)
        )
    }
}

/// Times of one world: by packing, and of the reference where it took part.
#[derive(Default)]
struct Times {
    ours: [Vec<f64>; 2],
    naive: Vec<f64>,
}

fn settings(packing: Packing) -> SolveSettings {
    SolveSettings {
        packing,
        ..SolveSettings::default()
    }
}

fn measure(worlds: &[ClusterSnapshot], rounds: usize, reference_max: usize) -> Vec<Times> {
    let mut all: Vec<Times> = worlds.iter().map(|_| Times::default()).collect();
    for _ in 0..rounds {
        for (world, times) in worlds.iter().zip(&mut all) {
            for (at, (_, packing)) in PACKINGS.into_iter().enumerate() {
                times.ours[at].push(time(|| solve(world, &settings(packing))));
            }
            if world.pods.len() <= reference_max {
                times.naive.push(time(|| reference::solve(world, true)));
            }
        }
    }
    all
}

fn table(
    out: &mut impl Write,
    worlds: &[ClusterSnapshot],
    rounds: usize,
    reference_max: usize,
) -> io::Result<()> {
    let all = measure(worlds, rounds, reference_max);
    writeln!(
        out,
        "{:>8}  {:<10} {:>6}  {:<34} {:<34} {:>6} {:>10}",
        "pods",
        "packing",
        "nodes",
        "  solve, ms: median (min .. max)",
        "  naive / ours (min .. max)",
        "B/pod",
        "$/h"
    )?;
    for (world, times) in worlds.iter().zip(&all) {
        for (at, (name, packing)) in PACKINGS.into_iter().enumerate() {
            let ours = &times.ours[at];
            let ratios: Vec<f64> = times.naive.iter().zip(ours).map(|(a, b)| a / b).collect();
            let ratio = if ratios.is_empty() {
                format!("{:>9}", "-")
            } else {
                Spread::of(&ratios).text(1)
            };
            let (bytes, report) = plan(world, packing);
            writeln!(
                out,
                "{:>8}  {name:<10} {:>6}  {:<34} {ratio:<34} {:>6} {:>10.2}",
                world.pods.len(),
                report.new_nodes,
                Spread::of(ours).text(2),
                bytes / world.pods.len(),
                report.price_per_hour.as_dollars(),
            )?;
        }
        if !times.naive.is_empty() {
            let nodes = reference::solve(world, true).node_claims.len();
            writeln!(
                out,
                "{:>8}  {:<10} {nodes:>6}  {}",
                world.pods.len(),
                "naive",
                Spread::of(&times.naive).text(2)
            )?;
        }
    }
    for (at, (name, _)) in PACKINGS.into_iter().enumerate() {
        writeln!(
            out,
            "growth of {name} packing from 5,000 to 100,000 pods: time ~ pods^{:.2}",
            exponent(&all[1].ours[at], &all[3].ours[at])
        )?;
    }
    Ok(())
}

/// Slope of log time over log size between the second and the last size, medians.
fn exponent(small: &[f64], large: &[f64]) -> f64 {
    const TWENTYFOLD: f64 = 20.0;
    (Spread::of(large).median / Spread::of(small).median).ln() / TWENTYFOLD.ln()
}

/// Bytes held at the peak, and what the solver says. The plan is checked, outside of all times.
fn plan(world: &ClusterSnapshot, packing: Packing) -> (usize, SolveReport) {
    let (bytes, solution) = peak_bytes(|| solve(world, &settings(packing)));
    let violations = check(world, &solution.plan).err().unwrap_or_default();
    assert!(violations.is_empty(), "invalid plan: {violations:?}");
    (bytes, solution.report)
}

fn main() -> io::Result<()> {
    // Cargo passes `--bench`; numbers are ours.
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<usize>().ok());
    let rounds = numbers.next().unwrap_or(5).max(1);
    let reference_max = numbers.next().unwrap_or(5_000);
    let types = worlds::catalogue();
    let out = &mut io::stdout().lock();
    writeln!(
        out,
        "plain pods (30 sizes) over {} amd64 types; one thread, {rounds} rounds, interleaved",
        types.len()
    )?;
    out.flush()?;
    let plain: Vec<ClusterSnapshot> = SIZES.iter().map(|n| worlds::plain(*n, &types)).collect();
    table(out, &plain, rounds, reference_max)?;
    writeln!(
        out,
        "\npods of which four in five constrain their node (1,050 specs); the same types"
    )?;
    out.flush()?;
    let worlds: Vec<ClusterSnapshot> = SIZES
        .iter()
        .map(|n| worlds::constrained(*n, &types))
        .collect();
    table(out, &worlds, rounds, reference_max.min(SIZES[0]))?;
    out.flush()
}
