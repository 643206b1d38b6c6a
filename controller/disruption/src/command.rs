//! What a pass decides: immutable values that leave no choice to whoever carries them out.

use std::{collections::BTreeMap, fmt, sync::Arc};

use millwright_lifecycle::{budget::Reason, candidate::Candidate};
use millwright_model::{
    InstanceType, NanoDollarsPerHour, NodeName, NodePool, PodKey, Requirements, Resources,
    plan::Launchable,
};

/// How a command was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Nodes that no pod needs.
    Emptiness,
    /// Several nodes at once.
    MultiNode,
    /// One node.
    SingleNode,
}

impl Method {
    /// As documents and reports spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emptiness => "emptiness",
            Self::MultiNode => "multi",
            Self::SingleNode => "single",
        }
    }

    /// The reason that its commands count under in budgets.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Emptiness => Reason::Empty,
            Self::MultiNode | Self::SingleNode => Reason::Underutilized,
        }
    }

    /// The consolidation method for that many candidates.
    pub(crate) const fn for_count(candidates: usize) -> Self {
        if candidates == 1 {
            Self::SingleNode
        } else {
            Self::MultiNode
        }
    }
}

/// A NodeClaim to create before the candidates go.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// Its NodePool, as the decision saw it.
    pub node_pool: Arc<NodePool>,
    /// Labels and constraints of the node, without the list of instance types.
    pub requirements: Requirements,
    /// Every type that may be launched, cheapest first; never empty.
    pub instance_types: Vec<Arc<InstanceType>>,
    /// The cheapest offering among them.
    pub cheapest: Launchable,
    /// What its pods and daemons ask for together.
    pub requests: Resources,
    /// Pods it is made for, in order.
    pub pods: Vec<PodKey>,
}

/// Nodes to disrupt together.
#[derive(Clone, Debug)]
pub struct Command {
    /// How it was found.
    pub method: Method,
    /// The nodes, at least one, in order of name.
    pub candidates: Vec<Candidate>,
    /// What must be ready before they go.
    pub replacements: Vec<Replacement>,
    /// Price of the candidates less the cheapest price of the replacements.
    pub savings: NanoDollarsPerHour,
    /// Pods that leave the candidates.
    pub pods_moved: usize,
    /// Existing nodes with the pods expected there, candidates' and waiting ones alike.
    pub to_existing_nodes: BTreeMap<NodeName, Vec<PodKey>>,
}

impl Command {
    /// The reason that it counts under in budgets.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.method.reason()
    }

    /// `delete` or `replace`.
    #[must_use]
    pub const fn decision(&self) -> &'static str {
        if self.replacements.is_empty() {
            "delete"
        } else {
            "replace"
        }
    }

    /// Price of the candidates together.
    pub(crate) fn price(&self) -> NanoDollarsPerHour {
        self.candidates.iter().map(|c| c.price).sum()
    }
}

impl fmt::Display for Command {
    /// `delete: [a, b]`, `replace: [a] -> [1 replacement]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.candidates.iter().map(|c| c.node.as_str()).collect();
        write!(f, "{}: [{}]", self.decision(), names.join(", "))?;
        match self.replacements.len() {
            0 => Ok(()),
            1 => f.write_str(" -> [1 replacement]"),
            several => write!(f, " -> [{several} replacements]"),
        }
    }
}
