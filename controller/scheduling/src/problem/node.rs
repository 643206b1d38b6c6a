//! Nodes that exist or are in flight, as the packer sees them: what is left on each, and which
//! of them look alike to every pod.
//!
//! Source: provisioning specification 5.1, 6.3 (daemon reserve), 6.7 (order and acceptance).

use std::collections::BTreeMap;

use millwright_model::{
    ClusterSnapshot, DaemonPod, Effect, Name, NodeName, Requirement, Requirements, Resources,
    StateNode, Taint, labels, taints,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Dimensions, ord, shape::TaintsOrd, template::strict_alternatives};

pub(crate) type KindOrd = u32;
pub(crate) type NodeOrd = u32;

/// A node that may take pods.
#[derive(Debug)]
pub(crate) struct ExistingNode<'a> {
    pub(crate) node: &'a StateNode,
    pub(crate) kind: KindOrd,
    /// What daemons that have not arrived yet will take, a row; never negative.
    pub(crate) reserve: Vec<i64>,
    /// Whether some resource, asked for or not, is already overcommitted: then nothing fits.
    pub(crate) overcommitted: bool,
}

/// Nodes that no pod can tell apart: the same taints, and the same values of the labels that any
/// pod mentions.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) labels: Requirements,
    pub(crate) taints: TaintsOrd,
    /// Indices of the daemons that run on such nodes.
    daemons: Vec<usize>,
}

/// All nodes, in the order in which they are tried: initialised ones first, then by name.
#[derive(Debug, Default)]
pub(crate) struct ExistingNodes<'a> {
    pub(crate) nodes: Vec<ExistingNode<'a>>,
    pub(crate) kinds: Vec<Kind>,
    /// What is left of each node for pods, rows; the daemons' reserve is not subtracted.
    pub(crate) left: Vec<i64>,
    pub(crate) by_name: FxHashMap<&'a NodeName, NodeOrd>,
}

/// What nodes of one [`Kind`] have in common.
#[derive(PartialEq, Eq, Hash)]
struct KindKey {
    /// The labels that anybody asks about, by canonical key.
    labels: Vec<(Name, Name)>,
    launched: bool,
    taints: TaintsOrd,
}

impl<'a> ExistingNodes<'a> {
    /// `mentioned`: the label keys that pods or daemons constrain. `intern` numbers taint sets.
    pub(crate) fn new(
        snapshot: &'a ClusterSnapshot,
        mentioned: &FxHashSet<Name>,
        dimensions: &Dimensions,
        mut intern: impl FnMut(&[Taint]) -> TaintsOrd,
    ) -> Self {
        let mut listed: Vec<&StateNode> = snapshot
            .nodes
            .iter()
            .map(AsRef::as_ref)
            .filter(|node| !node.deleting)
            .collect();
        listed.sort_unstable_by_key(|node| (!node.initialized, &node.name));
        let mut this = Self::default();
        let mut kinds: FxHashMap<KindKey, KindOrd> = FxHashMap::default();
        for node in listed {
            let key = KindKey {
                labels: project(node, mentioned),
                launched: node.launched,
                taints: intern(&node.taints),
            };
            let kind = *kinds.entry(key).or_insert_with_key(|key| {
                this.kinds
                    .push(Kind::new(key, &node.taints, &snapshot.daemons));
                ord(this.kinds.len() - 1)
            });
            this.push(node, kind, snapshot, dimensions);
        }
        this
    }

    fn push(
        &mut self,
        node: &'a StateNode,
        kind: KindOrd,
        snapshot: &ClusterSnapshot,
        dimensions: &Dimensions,
    ) {
        let mut reserve = Resources::new();
        for daemon in &self.kinds[kind as usize].daemons {
            reserve.add(&snapshot.daemons[*daemon].spec.requests);
        }
        reserve.subtract(&node.daemon_requested);
        reserve.clamp_to_zero();
        let available = node.available();
        let mut left = available.clone();
        left.subtract(&reserve);
        let overcommitted = left.iter().any(|(_, amount)| amount < 0);
        self.by_name.insert(&node.name, ord(self.nodes.len()));
        self.left.extend(dimensions.row(&available));
        let reserve = dimensions.row(&reserve);
        self.nodes.push(ExistingNode {
            node,
            kind,
            reserve,
            overcommitted,
        });
    }
}

impl Kind {
    fn new(key: &KindKey, taint_list: &[Taint], daemons: &[std::sync::Arc<DaemonPod>]) -> Self {
        let labels: Requirements = key
            .labels
            .iter()
            .map(|(key, value)| Requirement::label(key, value))
            .collect();
        let runs = |daemon: &DaemonPod| {
            if key.launched {
                // The first term only: a running daemon has been put here by the whole
                // expression, but the reserve follows Karpenter's reading of it.
                taints::untolerated(taint_list, &daemon.spec.tolerations).is_none()
                    && strict_alternatives(&daemon.spec)
                        .first()
                        .is_some_and(|wanted| labels.compatible(wanted, |_| false).is_ok())
            } else {
                may_run(daemon, &labels, taint_list)
            }
        };
        let daemons = (0..daemons.len())
            .filter(|at| runs(&daemons[*at]))
            .collect();
        Self {
            labels,
            taints: key.taints,
            daemons,
        }
    }
}

/// Whether a daemon may run on a node whose labels and taints are those of a NodeClaim that is not
/// launched: labels that are still open count as whatever the daemon wants, as in the plan that
/// reserved room for it.
pub(crate) fn may_run(daemon: &DaemonPod, labels: &Requirements, taints: &[Taint]) -> bool {
    let tolerated = |taint: &Taint| {
        taint.effect == Effect::PreferNoSchedule
            || daemon
                .spec
                .tolerations
                .iter()
                .any(|toleration| toleration.tolerates(taint))
    };
    let here = |wanted: &Requirements| labels.compatible(wanted, labels::is_well_known).is_ok();
    taints.iter().all(tolerated) && strict_alternatives(&daemon.spec).iter().any(here)
}

/// The labels of `node` that anybody asks about, by canonical key.
fn project(node: &StateNode, mentioned: &FxHashSet<Name>) -> Vec<(Name, Name)> {
    if mentioned.is_empty() {
        return Vec::new();
    }
    let mut projected = BTreeMap::new();
    for (key, value) in node.labels.iter() {
        let key = labels::normalise(key);
        if mentioned.contains(&key) {
            projected.insert(key, value.clone());
        }
    }
    if mentioned.contains(labels::HOSTNAME) {
        projected.insert(labels::HOSTNAME.into(), node.hostname.clone());
    }
    projected.into_iter().collect()
}
