//! The table's rows and their parser.
//!
//! The table is ours and part of the binary, so a malformed row is a bug and panics on first
//! use, naming the type; the tests read every row.

/// Architecture of the processor, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Architecture {
    /// `amd64`; EC2 says `x86_64`.
    Amd64,
    /// `arm64`, the same in EC2.
    Arm64,
}

/// The hypervisor under a virtual machine. Bare metal has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hypervisor {
    /// Nitro, every current type.
    Nitro,
    /// Xen, previous generations.
    Xen,
}

/// The GPUs of a type. Gaudi (dl1) counts as a GPU here, as EC2 reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu {
    /// Model, lower case with dashes: `a10g`, `h100`.
    pub name: &'static str,
    /// Whole GPUs; 0 for types that have a fraction of one (g6f, gr6f).
    pub count: u32,
    /// Memory of one GPU in MiB; absent where the table does not know it.
    pub memory_mib: Option<u64>,
}

/// AWS's own accelerators of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accelerator {
    /// `inferentia`, `inferentia2` or `trainium`.
    pub name: &'static str,
    /// Number of devices, at least 1.
    pub count: u32,
}

/// What is left for pods on an AL2023 node, as the provider's documentation states it.
/// For tests of overhead formulas; nothing decides by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocatable {
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// MiB.
    pub memory_mib: u64,
    /// Number of pods.
    pub pods: u32,
}

/// What is known about one instance type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeFacts {
    /// `m7i-flex.12xlarge`; unique.
    pub name: &'static str,
    /// Architecture.
    pub architecture: Architecture,
    /// Virtual processors, before any overhead.
    pub vcpu: u32,
    /// Memory in MiB as EC2 states it, before any overhead.
    pub memory_mib: u64,
    /// GPUs, if any.
    pub gpu: Option<Gpu>,
    /// AWS accelerators, if any.
    pub accelerator: Option<Accelerator>,
    /// Network interfaces.
    pub max_eni: u32,
    /// IPv4 addresses per network interface.
    pub ipv4_per_eni: u32,
    /// Instance store in GB (10^9 bytes), 0 without.
    pub nvme_gb: u64,
    /// Baseline network bandwidth in Mbit/s; absent where AWS gives only words.
    pub network_mbps: Option<u64>,
    /// Maximum EBS bandwidth in Mbit/s; absent if not EBS-optimised or not known.
    pub ebs_mbps: Option<u64>,
    /// Baseline EBS bandwidth in Mbit/s; absent if not known.
    pub ebs_baseline_mbps: Option<u64>,
    /// No hypervisor.
    pub bare_metal: bool,
    /// Absent for bare metal, and where not known.
    pub hypervisor: Option<Hypervisor>,
    /// Has CPU credits.
    pub burstable: bool,
    /// On-demand Linux list price in nano-dollars (1e-9 USD) per hour.
    pub on_demand_price: u64,
    /// Suffix letters of the zones that offer the type, ascending; empty if not known.
    pub zones: &'static str,
    /// Can be had as Spot. A type whose zones are not known counts as "no".
    pub spot_supported: bool,
    /// EC2 calls it current. Types newer than the source count as current.
    pub current_generation: bool,
    /// Documented allocatable resources; for tests.
    pub allocatable: Option<Allocatable>,
}

/// Types of known shape and all prices, both in the order of the rows.
pub(crate) fn parse(csv: &'static str) -> (Vec<TypeFacts>, Vec<(&'static str, u64)>) {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut types = Vec::new();
    let mut prices = Vec::new();
    for line in lines {
        let row = Row {
            header: &header,
            cells: line.split(',').collect(),
        };
        prices.push((
            row.text("instance_type"),
            nano_dollars(row.text("od_price_usd_hour")),
        ));
        types.extend(type_of(&row));
    }
    (types, prices)
}

/// One row with access by column name, so that the order of columns does not matter.
struct Row<'header> {
    header: &'header [&'static str],
    cells: Vec<&'static str>,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &'static str {
        self.header
            .iter()
            .position(|name| *name == column)
            .and_then(|at| self.cells.get(at))
            .unwrap_or_else(|| {
                panic!(
                    "instance type table: no column {column} in {:?}",
                    self.cells
                )
            })
    }

    fn number<N: std::str::FromStr>(&self, column: &str) -> Option<N> {
        let text = self.text(column);
        if text.is_empty() {
            return None;
        }
        match text.parse() {
            Ok(number) => Some(number),
            Err(_) => panic!(
                "instance type table: {column} of {:?} is not a number",
                self.cells
            ),
        }
    }

    fn flag(&self, column: &str) -> Option<bool> {
        match self.text(column) {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }
}

/// `None` when the row's shape is not known (it is a price only).
fn type_of(row: &Row<'_>) -> Option<TypeFacts> {
    let architecture = match row.text("arch") {
        "amd64" => Architecture::Amd64,
        "arm64" => Architecture::Arm64,
        _ => return None,
    };
    let hypervisor = match row.text("hypervisor") {
        "nitro" => Some(Hypervisor::Nitro),
        "xen" => Some(Hypervisor::Xen),
        _ => None,
    };
    let gpu = match row.text("gpu_name") {
        "" => None,
        name => Some(Gpu {
            name,
            count: row.number("gpu_count").unwrap_or(0),
            memory_mib: row.number("gpu_memory_mib"),
        }),
    };
    let accelerator = match row.text("accel_name") {
        "" => None,
        name => Some(Accelerator {
            name,
            count: row.number("accel_count")?,
        }),
    };
    let allocatable = row.number("karp_alloc_cpu_m").and_then(|cpu_millis| {
        Some(Allocatable {
            cpu_millis,
            memory_mib: row.number("karp_alloc_memory_mib")?,
            pods: row.number("karp_max_pods")?,
        })
    });
    Some(TypeFacts {
        name: row.text("instance_type"),
        architecture,
        vcpu: row.number("vcpu")?,
        memory_mib: row.number("memory_mib")?,
        gpu,
        accelerator,
        max_eni: row.number("max_eni")?,
        ipv4_per_eni: row.number("ipv4_per_eni")?,
        nvme_gb: row.number("local_nvme_gb").unwrap_or(0),
        network_mbps: row.number("network_mbps"),
        ebs_mbps: row.number("ebs_mbps"),
        ebs_baseline_mbps: row.number("ebs_baseline_mbps"),
        bare_metal: row.flag("bare_metal")?,
        hypervisor,
        burstable: row.flag("burstable").unwrap_or(false),
        on_demand_price: nano_dollars(row.text("od_price_usd_hour")),
        zones: row.text("zones"),
        spot_supported: row.flag("spot_supported").unwrap_or(false),
        current_generation: row.flag("current_generation").unwrap_or(true),
        allocatable,
    })
}

/// Dollars in decimal notation to nano-dollars, exactly: digits beyond the ninth are an error
/// of the table, and so is anything that is not a decimal number.
fn nano_dollars(text: &str) -> u64 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction:0<9}");
    match digits.parse() {
        Ok(nanos) if fraction.len() <= 9 => nanos,
        _ => panic!("instance type table: {text:?} is not a price"),
    }
}

#[cfg(test)]
mod tests {
    use super::nano_dollars;

    #[test]
    fn prices_are_exact() {
        assert_eq!(nano_dollars("0.096"), 96_000_000);
        assert_eq!(nano_dollars("113.9328"), 113_932_800_000);
        assert_eq!(nano_dollars("4"), 4_000_000_000);
        assert_eq!(nano_dollars("0.000000000"), 0);
    }

    #[test]
    #[should_panic(expected = "is not a price")]
    fn a_price_finer_than_a_nano_dollar_is_refused() {
        nano_dollars("0.1234567891");
    }
}
