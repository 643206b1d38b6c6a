//! How fast the packing core is: over sizes, against the naive reference in the same run, and in
//! memory. Prints figures and asserts none: the machine is shared.
//!
//! `cargo bench -p millwright-scheduling -- [ROUNDS] [LARGEST SIZE OF THE REFERENCE]`
//! (defaults 7 and 1000; the reference needs minutes for 5,000 pods).

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use millwright_ec2_catalogue::{Architecture, Hypervisor, TypeFacts, facts, spot_price};
use millwright_model::{
    CapacityType, ClusterSnapshot, InstanceType, NanoDollarsPerHour, Offering, Operator, PodSpec,
    Requirement, ResourceName, Resources, instance_type::InstanceTypes, labels,
};
use millwright_scheduling::{Packing, SolveSettings, check, solve};
use millwright_testkit::{reference, world};

const SIZES: [usize; 4] = [1_000, 5_000, 20_000, 100_000];
const ZONES: [char; 3] = ['a', 'b', 'c'];

/// Counts what is allocated, and the most that was at once.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "a global allocator cannot be written otherwise")]
// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The amd64 types of families c, m and r from generation 3 on, Nitro, virtual, up to `vcpu_max`.
fn catalogue(vcpu_max: u32) -> InstanceTypes {
    let plain = |facts: &&TypeFacts| {
        let generation = facts
            .name
            .chars()
            .nth(1)
            .and_then(|digit| digit.to_digit(10));
        facts.name.starts_with(['c', 'm', 'r'])
            && generation.is_some_and(|generation| generation >= 3)
            && facts.architecture == Architecture::Amd64
            && facts.hypervisor == Some(Hypervisor::Nitro)
            && !facts.bare_metal
            && facts.vcpu <= vcpu_max
            && !facts.zones.is_empty()
    };
    facts()
        .iter()
        .filter(plain)
        .filter_map(instance_type)
        .map(Arc::new)
        .collect()
}

fn instance_type(facts: &TypeFacts) -> Option<InstanceType> {
    let allocatable = facts.allocatable?;
    let vcpu = i64::from(facts.vcpu);
    let mut built = world::instance_type(facts.name, "amd64", vcpu, 1, facts.on_demand_price);
    built.overhead = Resources::new();
    built.capacity = Resources::of(
        i64::try_from(allocatable.cpu_millis).ok()?,
        i64::try_from(allocatable.memory_mib).ok()? << 20,
    )
    .with(ResourceName::Pods, i64::from(allocatable.pods));
    let offer = |zone: &str, capacity_type, price| {
        Offering::new(zone.into(), capacity_type, NanoDollarsPerHour(price))
    };
    built.offerings.clear();
    for (zone, letter) in world::ZONES.into_iter().zip(ZONES) {
        built
            .offerings
            .push(offer(zone, CapacityType::OnDemand, facts.on_demand_price));
        let spot = spot_price(facts, letter, 0);
        built
            .offerings
            .extend(spot.map(|price| offer(zone, CapacityType::Spot, price)));
    }
    Some(built)
}

/// Karpenter's benchmark sizes, seven labels, five kinds of constraints: 1,050 distinct specs.
fn snapshot(count: usize, types: &InstanceTypes) -> ClusterSnapshot {
    let mut specs = Vec::new();
    for cpu in [100, 250, 500, 1000, 1500] {
        for memory in [100, 256, 512, 1024, 2048, 4096] {
            for label in 0..7 {
                for kind in 0..5 {
                    specs.push(Arc::new(spec(cpu, memory, label, kind)));
                }
            }
        }
    }
    let mut state = 42_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let pod = |nth: usize| {
        let spec = &specs[usize::try_from(random()).unwrap_or(0) % specs.len()];
        let age = i64::try_from(random() % 60_000).unwrap_or(0);
        let mut pod = world::pod(&format!("p-{nth}"), Arc::clone(spec), age);
        pod.uid = format!("{:016x}-{:016x}", random(), random()).into();
        Arc::new(pod)
    };
    ClusterSnapshot {
        pods: (0..count).map(pod).collect(),
        node_pools: [Arc::new(world::node_pool("default", types.clone()))].into(),
        ..ClusterSnapshot::default()
    }
}

fn spec(cpu: i64, memory: i64, label: usize, kind: usize) -> PodSpec {
    let mut spec = world::spec(cpu, memory);
    spec.labels
        .insert("my-label".into(), format!("value-{label}").into());
    match kind {
        1 => {
            let zone = world::ZONES[label % 3].into();
            spec.node_selector = vec![(labels::ZONE.into(), zone)];
        }
        2 => spec.node_selector = vec![(labels::CAPACITY_TYPE.into(), "on-demand".into())],
        3 => {
            let values = ["amd64".into(), "arm64".into()];
            let either = Requirement::new(&labels::ARCH.into(), Operator::In, values);
            spec.required_terms = vec![vec![either]];
        }
        4 => {
            let zones = world::ZONES[..2].iter().map(|zone| (*zone).into());
            let not_c = Requirement::new(&labels::ZONE.into(), Operator::In, zones);
            spec.preferred_terms = vec![(1, vec![not_c])];
        }
        _ => {}
    }
    spec
}

/// Milliseconds of one call.
fn time<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = std::hint::black_box(work());
    (started.elapsed().as_secs_f64() * 1e3, result)
}

/// Median, and the band from the 10th to the 90th percentile.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |tenths: usize| values[(values.len() - 1) * tenths / 10];
    (at(5), at(1), at(9))
}

fn settings(packing: Packing) -> SolveSettings {
    SolveSettings {
        packing,
        ..SolveSettings::default()
    }
}

fn bench(
    out: &mut impl std::io::Write,
    rounds: usize,
    reference_max: usize,
) -> std::io::Result<()> {
    for (name, vcpu_max) in [("all sizes", u32::MAX), ("up to 8 vCPU", 8)] {
        let types = catalogue(vcpu_max);
        writeln!(out, "catalogue: {} types, {name}", types.len())?;
        let worlds: Vec<ClusterSnapshot> = SIZES.iter().map(|n| snapshot(*n, &types)).collect();
        let mut ours = vec![Vec::new(); SIZES.len()];
        let mut theirs = vec![Vec::new(); SIZES.len()];
        for _ in 0..rounds {
            for (at, world) in worlds.iter().enumerate() {
                ours[at].push(time(|| solve(world, &settings(Packing::Karpenter))).0);
                if SIZES[at] <= reference_max {
                    theirs[at].push(time(|| reference::solve(world, true)).0);
                }
            }
        }
        for (at, world) in worlds.iter().enumerate() {
            report(out, world, &ours[at], &theirs[at])?;
        }
        let exponent = |from: usize, to: usize| {
            let ratio = spread(ours[to].clone()).0 / spread(ours[from].clone()).0;
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            let sizes = SIZES[to] as f64 / SIZES[from] as f64;
            ratio.ln() / sizes.ln()
        };
        writeln!(
            out,
            "  exponent from 5,000 to 100,000 pods: {:.2}",
            exponent(1, 3)
        )?;
        for world in &worlds[..3] {
            let (millis, solution) = time(|| solve(world, &settings(Packing::Cost)));
            let report = &solution.report;
            writeln!(
                out,
                "  cost packing, {:>6} pods: {millis:7.1} ms, {} nodes, {} (first plan {}, bound {})",
                report.pods,
                report.new_nodes,
                report.price_per_hour,
                report.incumbent_price_per_hour,
                report.lower_bound_per_hour
            )?;
        }
    }
    Ok(())
}

fn report(
    out: &mut impl std::io::Write,
    world: &ClusterSnapshot,
    ours: &[f64],
    theirs: &[f64],
) -> std::io::Result<()> {
    let (median, low, high) = spread(ours.to_vec());
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let calls = CALLS.load(Relaxed);
    let solution = solve(world, &settings(Packing::Karpenter));
    let (peak, calls) = (PEAK.load(Relaxed) - before, CALLS.load(Relaxed) - calls);
    let pods = world.pods.len();
    writeln!(
        out,
        "  {pods:>6} pods: {median:8.2} ms ({low:.2} to {high:.2}), {} classes, {} nodes, {} bytes \
         and {:.2} allocations per pod at most, checker {}",
        solution.report.classes,
        solution.report.new_nodes,
        peak / pods,
        f64::from(u32::try_from(calls).unwrap_or(u32::MAX))
            / f64::from(u32::try_from(pods).unwrap_or(u32::MAX)),
        if check(world, &solution.plan).is_ok() {
            "content"
        } else {
            "NOT CONTENT"
        },
    )?;
    if !theirs.is_empty() {
        let ratios = theirs
            .iter()
            .zip(ours)
            .map(|(theirs, ours)| theirs / ours)
            .collect();
        let (median, low, high) = spread(ratios);
        let naive = spread(theirs.to_vec()).0;
        writeln!(
            out,
            "         naive reference: {naive:.0} ms, {median:.0} times as long ({low:.0} to {high:.0})"
        )?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    // Cargo passes `--bench`; numbers are ours.
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<usize>().ok());
    let rounds = numbers.next().unwrap_or(7).max(1);
    let reference_max = numbers.next().unwrap_or(1_000);
    bench(&mut std::io::stdout().lock(), rounds, reference_max)?;
    std::io::stdout().flush()
}
