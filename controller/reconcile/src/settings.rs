//! What the operator chose, as far as this crate acts on it.

use millwright_scheduling::SolveSettings;

use crate::batch::BatchSettings;

/// Settings of watching, planning and acting. Flags and environment are read by the binary.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Upper limits of the batch window.
    pub batch: BatchSettings,
    /// Whether pods are planned that the kube-scheduler has not tried yet (decision D-007).
    pub anticipation: bool,
    /// What the solver may choose.
    pub solve: SolveSettings,
    /// Cores that the process was given, in thousandths; scales concurrency.
    pub cpu_requests_millis: u32,
}

impl Settings {
    /// Worker threads of a solve: one per whole core.
    #[must_use]
    pub fn workers(&self) -> usize {
        usize::try_from(self.cpu_requests_millis.div_ceil(1000))
            .unwrap_or(1)
            .clamp(1, 64)
    }
}
