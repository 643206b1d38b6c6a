//! Rules for pods on nodes that exist or are in flight.

use std::collections::HashMap;

use millwright_model::{
    Plan, Pod, Requirement, Requirements, Resources, StateNode, labels, taints,
};

use super::{Checker, Property, Strict, keeps_away, total};
use crate::problem::{may_run, strict_alternatives};

impl Checker<'_> {
    pub(super) fn check_nominations(&mut self, plan: &Plan) {
        let snapshot = self.snapshot;
        let nodes: HashMap<_, _> = snapshot
            .nodes
            .iter()
            .map(|node| (&node.name, node.as_ref()))
            .collect();
        let mut strict = Strict::default();
        for nomination in &plan.nominations {
            let Some(node) = nodes.get(&nomination.node) else {
                let detail = format!("node {} does not exist", nomination.node);
                self.report(Property::Fit, detail);
                continue;
            };
            if node.deleting {
                let detail = format!("node {} is being deleted", node.name);
                self.report(Property::Fit, detail);
            }
            let pods: Vec<&Pod> = nomination
                .pods
                .iter()
                .filter_map(|at| self.pod(*at))
                .collect();
            self.check_room(node, &pods);
            let labels = labels_of(node);
            for pod in pods {
                self.check_placeable(pod);
                if !is_kept(pod, node) {
                    self.check_welcome(node, &labels, pod, &mut strict);
                }
            }
        }
    }

    fn check_room(&mut self, node: &StateNode, pods: &[&Pod]) {
        let asked = total(pods.iter().copied());
        let mut room = node.available();
        // What an unlaunched NodeClaim reserves for daemons was computed for types in general,
        // its labels are not known yet; the pods planned for it are covered as they are.
        if !pods.iter().all(|pod| is_kept(pod, node)) || node.launched {
            room.subtract(&self.daemon_reserve(node));
        }
        if !asked.fits(&room) {
            let detail = format!("node {} has {room} left but takes {asked}", node.name);
            self.report(Property::Fit, detail);
        }
    }

    fn check_welcome(
        &mut self,
        node: &StateNode,
        labels: &Requirements,
        pod: &Pod,
        strict: &mut Strict,
    ) {
        if let Some(taint) = keeps_away(&node.taints, &pod.spec) {
            let detail = format!(
                "{} does not tolerate {taint} of node {}",
                pod.key, node.name
            );
            self.report(Property::Requirements, detail);
        }
        if !strict
            .of(pod)
            .iter()
            .any(|wanted| labels.compatible(wanted, |_| false).is_ok())
        {
            let detail = format!("{} may not run on node {}", pod.key, node.name);
            self.report(Property::Requirements, detail);
        }
    }

    /// What daemons that should run on the node but do not yet will ask for.
    fn daemon_reserve(&self, node: &StateNode) -> Resources {
        let labels = labels_of(node);
        let mut reserve = Resources::new();
        for daemon in self.snapshot.daemons.iter() {
            let runs = if node.launched {
                let strict = strict_alternatives(&daemon.spec);
                let here = strict
                    .first()
                    .is_some_and(|w| labels.compatible(w, |_| false).is_ok());
                here && taints::untolerated(&node.taints, &daemon.spec.tolerations).is_none()
            } else {
                may_run(daemon, &labels, &node.taints)
            };
            if runs {
                reserve.add(&daemon.spec.requests);
            }
        }
        reserve.subtract(&node.daemon_requested);
        reserve.clamp_to_zero();
        reserve
    }
}

/// Whether the pod stays on an unlaunched NodeClaim that an earlier plan made for it.
fn is_kept(pod: &Pod, node: &StateNode) -> bool {
    !node.launched && pod.planned_on.as_ref() == Some(&node.name)
}

fn labels_of(node: &StateNode) -> Requirements {
    let mut labels = Requirements::from_labels(node.labels.iter());
    labels.replace(Requirement::label(&labels::HOSTNAME.into(), &node.hostname));
    labels
}
