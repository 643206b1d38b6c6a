//! What the caller may choose about a planning pass.

use millwright_model::NanoDollarsPerHour;

/// How new nodes are shaped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Karpenter's own rules: the same schedulable pods, node count and NodeClaims.
    Karpenter,
    /// The cheapest plan found within the step budget; never dearer than [`Packing::Karpenter`].
    #[default]
    Cost,
}

/// What becomes of soft constraints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PreferencePolicy {
    /// Preferences are tried first and dropped one by one.
    #[default]
    Respect,
    /// Preferences are ignored from the start.
    Ignore,
}

/// What happens when fewer distinct values remain than `minValues` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MinValuesPolicy {
    /// The NodeClaim is not opened.
    #[default]
    Strict,
    /// The NodeClaim is opened with the values there are.
    BestEffort,
}

/// Settings of one planning pass. Equal settings and equal snapshots give equal plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SolveSettings {
    /// How new nodes are shaped.
    pub packing: Packing,
    /// What one node more is worth avoiding, added to the price of each new node when plans are
    /// compared (launch tokens, boot time, daemons). Not part of reported prices.
    pub per_node_charge: NanoDollarsPerHour,
    /// Number of threads, at least 1; has no influence on the plan.
    pub workers: usize,
    /// Work that improving the cost may take, in steps: one step is one attempt to put pods of one
    /// kind into one node, roughly 50 ns on a current core. Finding a first plan is not limited.
    pub step_budget: u64,
    /// Seed of the only random choices there are: which nodes an improvement round takes apart.
    pub seed: u64,
    /// What becomes of soft constraints.
    pub preference_policy: PreferencePolicy,
    /// What happens when `minValues` cannot be kept. Without effect in this build, which does not
    /// use NodePools that ask for minimum values.
    pub min_values_policy: MinValuesPolicy,
}

impl Default for SolveSettings {
    fn default() -> Self {
        Self {
            packing: Packing::default(),
            // 0.002 $/h: small against any instance, so that it only decides between near-ties.
            per_node_charge: NanoDollarsPerHour(2_000_000),
            workers: 1,
            step_budget: 2_000_000,
            seed: 0,
            preference_policy: PreferencePolicy::default(),
            min_values_policy: MinValuesPolicy::default(),
        }
    }
}
