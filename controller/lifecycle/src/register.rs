//! Registration: joining a Node with its NodeClaim.
//!
//! Source: disruption specification 1.3.

use std::collections::BTreeMap;

use millwright_model::{Name, Taint, labels};

use crate::{
    condition::{Change, ConditionType},
    names,
    observed::{NodeMatch, ObservedClaim, ObservedNode, unregistered_taint},
};

/// What to write to a Node, in one patch that carries its resource version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEdit {
    /// Add the finalizer.
    pub add_finalizer: bool,
    /// Add an owner reference to the NodeClaim (`blockOwnerDeletion: true`).
    pub add_owner: bool,
    /// Labels to set.
    pub labels: BTreeMap<Name, Name>,
    /// Annotations to set.
    pub annotations: BTreeMap<Name, Name>,
    /// Taints to append.
    pub add_taints: Vec<Taint>,
    /// Taints to remove, by key and effect.
    pub remove_taints: Vec<Taint>,
}

impl NodeEdit {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The Node as it will be once the edit is written.
    #[must_use]
    pub fn applied_to(&self, node: &ObservedNode) -> ObservedNode {
        let mut node = node.clone();
        node.has_finalizer |= self.add_finalizer;
        node.labels.extend(self.labels.clone());
        node.annotations.extend(self.annotations.clone());
        node.taints
            .retain(|taint| !self.remove_taints.iter().any(|gone| gone.matches(taint)));
        node.taints.extend(self.add_taints.iter().cloned());
        node
    }
}

/// Where registration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Decided before: only refresh the condition.
    Decided(Change),
    /// Not yet, or never: the condition says why.
    Waiting(Change),
    /// The Node is there: write the edit, then the condition.
    Ready {
        /// What to write to the Node; may be empty after a lost status write.
        edit: NodeEdit,
        /// `Registered` True.
        change: Change,
        /// Whether the Node joined without the `unregistered` taint (it is registered all the
        /// same, but pods may have been placed on it too early).
        taint_missing: bool,
    },
}

/// Decides about registration.
#[must_use]
pub fn register(claim: &ObservedClaim, nodes: NodeMatch<'_>) -> Registration {
    let kind = ConditionType::Registered;
    if let Some(decided) = crate::advance::decided(claim, kind) {
        return Registration::Decided(decided);
    }
    let node = match nodes {
        NodeMatch::One(node) => node,
        NodeMatch::None => {
            return Registration::Waiting(Change::unknown(
                kind,
                "NodeNotFound",
                "Node not registered with cluster",
            ));
        }
        NodeMatch::Several => {
            return Registration::Waiting(Change::fails(
                kind,
                "MultipleNodesFound",
                "Invariant violated, matched multiple nodes",
            ));
        }
    };
    let taint_missing =
        !node.labels.contains_key(labels::REGISTERED) && !node.has_taint(&unregistered_taint());
    Registration::Ready {
        edit: sync(claim, node),
        change: Change::holds(kind),
        taint_missing,
    }
}

/// What makes the Node carry everything that the NodeClaim promises.
fn sync(claim: &ObservedClaim, node: &ObservedNode) -> NodeEdit {
    let mut edit = NodeEdit {
        add_finalizer: !node.has_finalizer,
        add_owner: !node.owner_uids.contains(&claim.uid),
        labels: missing(&claim.labels, &node.labels),
        annotations: missing(&claim.annotations, &node.annotations),
        ..NodeEdit::default()
    };
    if !node.has_label(names::DO_NOT_SYNC_TAINTS, "true") {
        for taint in claim.taints.iter().chain(&claim.startup_taints) {
            let known =
                node.has_taint(taint) || edit.add_taints.iter().any(|own| own.matches(taint));
            if !known {
                edit.add_taints.push(taint.clone());
            }
        }
    }
    if node.has_taint(&unregistered_taint()) {
        edit.remove_taints.push(unregistered_taint());
    }
    if !node.is_registered() {
        edit.labels.insert(labels::REGISTERED.into(), "true".into());
    }
    edit
}

/// Entries of `wanted` that `present` lacks or has with another value.
fn missing(wanted: &BTreeMap<Name, Name>, present: &BTreeMap<Name, Name>) -> BTreeMap<Name, Name> {
    wanted
        .iter()
        .filter(|(key, value)| present.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use millwright_model::Effect;

    use super::*;
    use crate::{
        condition::Status,
        fixtures::{claim, node},
    };

    fn ready(claim: &ObservedClaim, node: &ObservedNode) -> (NodeEdit, bool) {
        match register(claim, NodeMatch::One(node)) {
            Registration::Ready {
                edit,
                change,
                taint_missing,
            } => {
                assert_eq!(change, Change::holds(ConditionType::Registered));
                (edit, taint_missing)
            }
            other => panic!("not ready: {other:?}"),
        }
    }

    #[test]
    fn a_node_gets_finalizer_owner_labels_and_taints_and_loses_the_unregistered_taint() {
        let (edit, taint_missing) = ready(&claim(&[]), &node());
        assert!(edit.add_finalizer && edit.add_owner && !taint_missing);
        assert_eq!(
            edit.labels,
            [
                ("karpenter.sh/nodepool".into(), "default".into()),
                ("karpenter.sh/registered".into(), "true".into()),
            ]
            .into()
        );
        let keys: Vec<&str> = edit.add_taints.iter().map(|taint| &*taint.key).collect();
        assert_eq!(keys, ["team", "cni"]);
        assert_eq!(edit.remove_taints, [unregistered_taint()]);
    }

    #[test]
    fn registering_again_after_a_lost_status_write_edits_nothing() {
        let claim = claim(&[]);
        let (edit, _) = ready(&claim, &node());
        let mut written = edit.applied_to(&node());
        written.owner_uids.push(claim.uid.clone());
        let (again, taint_missing) = ready(&claim, &written);
        assert!(again.is_empty(), "{again:?}");
        assert!(
            !taint_missing,
            "a registered node has lost the taint by right"
        );
    }

    #[test]
    fn a_node_without_the_unregistered_taint_registers_and_is_reported() {
        let bare = ObservedNode {
            taints: Vec::new(),
            ..node()
        };
        assert!(ready(&claim(&[]), &bare).1);
    }

    #[test]
    fn a_taint_that_is_there_keeps_its_value() {
        let mut node = node();
        node.taints
            .push(Taint::new("team", "other", Effect::NoSchedule));
        let (edit, _) = ready(&claim(&[]), &node);
        assert!(edit.add_taints.iter().all(|taint| &*taint.key != "team"));
    }

    #[test]
    fn only_the_value_true_keeps_taints_from_being_copied() {
        for (value, copied) in [("true", 0), ("false", 2), ("yes", 2)] {
            let mut node = node();
            node.labels
                .insert(names::DO_NOT_SYNC_TAINTS.into(), value.into());
            assert_eq!(
                ready(&claim(&[]), &node).0.add_taints.len(),
                copied,
                "{value}"
            );
        }
    }

    #[test]
    fn labels_of_the_claim_overwrite_the_node_s() {
        let mut node = node();
        node.labels
            .insert("karpenter.sh/nodepool".into(), "wrong".into());
        let (edit, _) = ready(&claim(&[]), &node);
        assert_eq!(
            edit.labels.get("karpenter.sh/nodepool").map(|v| &**v),
            Some("default")
        );
    }

    #[test]
    fn no_node_leaves_it_open_and_two_nodes_fail_it_for_good() {
        for (nodes, status, reason) in [
            (NodeMatch::None, Status::Unknown, "NodeNotFound"),
            (NodeMatch::Several, Status::False, "MultipleNodesFound"),
        ] {
            let Registration::Waiting(change) = register(&claim(&[]), nodes) else {
                panic!("must wait");
            };
            let Change::Set {
                status: s,
                reason: r,
                ..
            } = &change
            else {
                panic!("must be set")
            };
            assert_eq!((*s, &**r), (status, reason));
            let mut failed = claim(&[]);
            failed.conditions.apply(&change, crate::fixtures::T0);
            let sticky = matches!(
                register(&failed, NodeMatch::One(&node())),
                Registration::Decided(_)
            );
            assert_eq!(sticky, status == Status::False);
        }
    }
}
