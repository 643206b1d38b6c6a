//! What the demo shows: a picture of the cluster at one moment, and how it is drawn.
//!
//! On a terminal the picture is redrawn in place; elsewhere each change gives one plain line, so
//! that a log of a demo reads as a story.

use std::{collections::BTreeMap, io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One kind of node in the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeKind {
    pub(super) instance_type: String,
    pub(super) capacity_type: String,
}

/// Nodes of one kind, by how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeCounts {
    /// NodeClaims whose instance does not run as a Node yet.
    pub(super) starting: usize,
    /// Registered and initialised.
    pub(super) ready: usize,
    /// On their way out.
    pub(super) leaving: usize,
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) pods: usize,
    pub(super) pending: usize,
    pub(super) bound: usize,
    pub(super) running: usize,
    pub(super) nodes: BTreeMap<NodeKind, NodeCounts>,
    /// Sum of the offerings' prices, dollars per hour.
    pub(super) price_per_hour: f64,
}

impl View {
    pub(super) fn node_count(&self) -> usize {
        self.nodes
            .values()
            .map(|c| c.starting + c.ready + c.leaving)
            .sum()
    }

    fn table(&self) -> String {
        let mut lines = vec![format!(
            "  {:<14} {:<10} {:>9} {:>6} {:>8}",
            "INSTANCE TYPE", "CAPACITY", "STARTING", "READY", "LEAVING"
        )];
        for (kind, counts) in &self.nodes {
            lines.push(format!(
                "  {:<14} {:<10} {:>9} {:>6} {:>8}",
                kind.instance_type,
                kind.capacity_type,
                counts.starting,
                counts.ready,
                counts.leaving
            ));
        }
        if self.nodes.is_empty() {
            lines.push("  (no nodes)".to_owned());
        }
        lines.join("\n")
    }

    fn line(&self) -> String {
        let counts =
            |pick: fn(&NodeCounts) -> usize| -> usize { self.nodes.values().map(pick).sum() };
        format!(
            "pods: {} pending, {} bound, {} running | nodes: {} starting, {} ready, {} leaving | ${:.4}/h",
            self.pending,
            self.bound,
            self.running,
            counts(|c| c.starting),
            counts(|c| c.ready),
            counts(|c| c.leaving),
            self.price_per_hour
        )
    }
}

/// Draws views and says what is going on.
#[derive(Debug)]
pub(super) struct Screen {
    bar: Option<ProgressBar>,
    last: Option<View>,
    act: String,
}

impl Screen {
    /// `total` is the number of pods that the bar counts.
    pub(super) fn new(total: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(
                Some(u64::try_from(total).unwrap_or(u64::MAX)),
                ProgressDrawTarget::stderr(),
            );
            let style = ProgressStyle::with_template(
                "{msg}\n  pods [{bar:40}] {pos}/{len} running, {elapsed}",
            )
            .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        Self {
            bar,
            last: None,
            act: String::new(),
        }
    }

    /// Starts a new act of the demo.
    pub(super) fn act(&mut self, elapsed: Duration, text: &str) {
        text.clone_into(&mut self.act);
        self.say(&format!("[{:5.1} s] {text}", elapsed.as_secs_f64()));
    }

    /// A line that stays.
    #[expect(
        clippy::print_stderr,
        reason = "the demo tells its story on standard error"
    )]
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Draws a view if it differs from the last one.
    pub(super) fn draw(&mut self, elapsed: Duration, view: &View) {
        if self.last.as_ref() == Some(view) {
            return;
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(u64::try_from(view.running).unwrap_or(u64::MAX));
                let message = format!("{}\n{}\n  {}", self.act, view.table(), view.line());
                bar.set_message(message);
                bar.tick();
            }
            None => self.say(&format!(
                "[{:5.1} s] {}",
                elapsed.as_secs_f64(),
                view.line()
            )),
        }
        self.last = Some(view.clone());
    }

    /// Leaves the last picture on the terminal.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_tells_pods_nodes_and_price() {
        let kind = NodeKind {
            instance_type: "t3.2xlarge".into(),
            capacity_type: "spot".into(),
        };
        let counts = NodeCounts {
            starting: 3,
            ready: 7,
            leaving: 0,
        };
        let view = View {
            pods: 10,
            pending: 3,
            bound: 7,
            running: 6,
            nodes: BTreeMap::from([(kind, counts)]),
            price_per_hour: 1.25,
        };
        assert_eq!(
            view.line(),
            "pods: 3 pending, 7 bound, 6 running | nodes: 3 starting, 7 ready, 0 leaving | $1.2500/h"
        );
        assert_eq!(view.node_count(), 10);
        assert!(view.table().contains("t3.2xlarge"));
    }
}
