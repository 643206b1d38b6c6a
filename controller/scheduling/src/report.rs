//! What a planning pass says about itself: counts, prices, and why it stopped.

use millwright_model::{NanoDollarsPerHour, NodePoolName};

/// Figures of one planning pass. Holds no time: the caller owns the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SolveReport {
    /// Pods of the snapshot.
    pub pods: usize,
    /// Distinct kinds of pods among them, as far as placement is concerned.
    pub classes: usize,
    /// Pods that got a place.
    pub scheduled: usize,
    /// NodeClaims proposed.
    pub new_nodes: usize,
    /// Cheapest price of the proposed NodeClaims together.
    pub price_per_hour: NanoDollarsPerHour,
    /// The same for Karpenter's rules, where the pass computed both.
    pub incumbent_price_per_hour: NanoDollarsPerHour,
    /// No set of nodes that holds the pods of the proposed NodeClaims costs less: the price of
    /// their requests at resource prices under which no offering is a bargain.
    pub lower_bound_per_hour: NanoDollarsPerHour,
    /// Threads that took part.
    pub workers: usize,
    /// Groups of pods that could be planned independently of each other.
    pub components: usize,
    /// Steps spent on improving the cost.
    pub steps_used: u64,
    /// Whether improving stopped because the step budget ended.
    pub budget_exhausted: bool,
    /// Hash of the plan's contents; equal plans have equal hashes on every machine.
    pub plan_hash: u64,
    /// Figures by NodePool, in order of name; every pool of the snapshot is present.
    pub node_pools: Vec<PoolStats>,
    /// NodePools that could not be used for new nodes, and why; in order of name.
    pub unused_node_pools: Vec<(NodePoolName, String)>,
}

/// Figures of one NodePool in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// The NodePool.
    pub name: NodePoolName,
    /// NodeClaims proposed for it.
    pub new_nodes: usize,
    /// Pods on them.
    pub pods: usize,
    /// Their cheapest prices together.
    pub price_per_hour: NanoDollarsPerHour,
}
