//! What a process has cost so far, read from procfs.

use std::fmt;
use std::io;
use std::path::Path;

/// Linux reports process times to user space in hundredths of a second on every
/// architecture (`USER_HZ`, proc(5)), whatever the kernel's own tick.
const MILLIS_PER_TICK: u64 = 10;

/// Memory and processor time of one process and its threads, without its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessCosts {
    /// Largest resident memory so far, in bytes (`VmHWM`).
    pub memory_bytes_peak: u64,
    /// Resident memory now, in bytes (`VmRSS`).
    pub memory_bytes: u64,
    /// Processor time so far, user and system, in milliseconds.
    pub cpu_millis: u64,
}

impl ProcessCosts {
    /// Reads the costs of a running process. A process that has ended has no memory
    /// figures any more: read them before stopping it.
    ///
    /// # Errors
    /// `NotFound` when there is no such process, `InvalidData` when it has ended.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::read(&Path::new("/proc").join(pid.to_string()))
    }

    /// The costs of the calling process.
    ///
    /// # Errors
    /// When procfs is not mounted.
    pub fn own() -> io::Result<Self> {
        Self::read(Path::new("/proc/self"))
    }

    fn read(folder: &Path) -> io::Result<Self> {
        let status = std::fs::read_to_string(folder.join("status"))?;
        let stat = std::fs::read_to_string(folder.join("stat"))?;
        Self::parse(&status, &stat).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("no costs in {}: it has ended", folder.display()),
            )
        })
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        let bytes = |field: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            let kibibytes = line.trim_start_matches(':').trim().strip_suffix(" kB")?;
            kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        // The command's name stands in parentheses and may hold spaces and parentheses.
        let (_, after_name) = stat.rsplit_once(')')?;
        // Fields 14 and 15 of stat; the name is field 2.
        let mut ticks = after_name
            .split_whitespace()
            .skip(11)
            .map(str::parse::<u64>);
        let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
        Some(Self {
            memory_bytes_peak: bytes("VmHWM")?,
            memory_bytes: bytes("VmRSS")?,
            cpu_millis: user.checked_add(system)?.checked_mul(MILLIS_PER_TICK)?,
        })
    }
}

impl fmt::Display for ProcessCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.memory_bytes_peak / 100_000;
        let (seconds, millis) = (self.cpu_millis / 1_000, self.cpu_millis % 1_000);
        write!(
            f,
            "peak memory {}.{} MB, CPU {seconds}.{:02} s",
            tenths / 10,
            tenths % 10,
            millis / 10
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  12345 kB\nVmRSS:\t   1000 kB\n";

    #[test]
    fn fields_are_found_behind_a_name_with_parentheses() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 4 0 99 1 2";
        let costs = ProcessCosts::parse(STATUS, stat).expect("well formed");
        let expected = ProcessCosts {
            memory_bytes_peak: 12345 * 1024,
            memory_bytes: 1000 * 1024,
            cpu_millis: 2810,
        };
        assert_eq!(costs, expected);
        assert_eq!(costs.to_string(), "peak memory 12.6 MB, CPU 2.81 s");
    }

    #[test]
    fn an_ended_process_has_no_costs() {
        let stat = "42 (x) Z 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 4 0 99 1 2";
        assert_eq!(
            ProcessCosts::parse("Name:\tx\nState:\tZ (zombie)\n", stat),
            None
        );
    }

    #[test]
    fn costs_of_this_process_grow_with_its_work() {
        let before = ProcessCosts::own().expect("procfs");
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = ProcessCosts::of(std::process::id()).expect("procfs");
        assert!(
            after.memory_bytes_peak >= before.memory_bytes + (60 << 20),
            "{before:?} {after:?}"
        );
        assert!(after.cpu_millis >= before.cpu_millis);
        drop(block);
    }
}
