//! How a control plane is started.

use std::fmt;
use std::time::Duration;

/// A process of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The built-in controllers.
    ControllerManager,
    /// The scheduler.
    Scheduler,
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        })
    }
}

/// A user who is known by a fixed bearer token. The token and the names hold no commas,
/// quotes or line ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticToken {
    /// The bearer token.
    pub token: String,
    /// The user's name, for RBAC.
    pub user: String,
    /// The user's groups, for RBAC.
    pub groups: Vec<String>,
}

/// What to start. The default is everything, with Kubernetes' own defaults.
#[derive(Debug, Clone)]
pub struct ControlPlaneOptions {
    /// Start kube-scheduler.
    pub scheduler: bool,
    /// Start kube-controller-manager.
    pub controller_manager: bool,
    /// `Name=true,Other=false`, given to all Kubernetes components; may be empty.
    pub feature_gates: String,
    /// How long a node may miss its heartbeat (a day where nothing renews Leases);
    /// `None` is Kubernetes' 50 s.
    pub node_monitor_grace_period: Option<Duration>,
    /// Users with fixed tokens.
    pub tokens: Vec<StaticToken>,
    /// More kube-apiserver flags; the last value of a flag wins.
    pub api_server_args: Vec<String>,
    /// More kube-controller-manager flags.
    pub controller_manager_args: Vec<String>,
    /// More kube-scheduler flags.
    pub scheduler_args: Vec<String>,
    /// Limit for becoming ready, at the start and after a command.
    pub timeout: Duration,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            scheduler: true,
            controller_manager: true,
            feature_gates: String::new(),
            node_monitor_grace_period: None,
            tokens: Vec::new(),
            api_server_args: Vec::new(),
            controller_manager_args: Vec::new(),
            scheduler_args: Vec::new(),
            // Ready takes 4 s on a quiet machine; this is for one that compiles beside.
            timeout: Duration::from_secs(120),
        }
    }
}

impl ControlPlaneOptions {
    /// The flags of `controlplane up` for everything but files.
    pub(super) fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--timeout={}s", self.timeout.as_secs())];
        if !self.scheduler {
            flags.push("--no-scheduler".to_owned());
        }
        if !self.controller_manager {
            flags.push("--no-controller-manager".to_owned());
        }
        if !self.feature_gates.is_empty() {
            flags.push(format!("--feature-gates={}", self.feature_gates));
        }
        if let Some(grace) = self.node_monitor_grace_period {
            flags.push(format!("--node-monitor-grace-period={}s", grace.as_secs()));
        }
        let repeated = [
            ("apiserver", &self.api_server_args),
            ("controller-manager", &self.controller_manager_args),
            ("scheduler", &self.scheduler_args),
        ];
        for (component, args) in repeated {
            flags.extend(args.iter().map(|arg| format!("--{component}-arg={arg}")));
        }
        flags
    }

    /// The token file's text, or `None` when there are no static tokens.
    pub(super) fn token_file(&self) -> Option<String> {
        let line = |(number, one): (usize, &StaticToken)| {
            format!(
                "{},{},static-{number},\"{}\"\n",
                one.token,
                one.user,
                one.groups.join(",")
            )
        };
        (!self.tokens.is_empty()).then(|| self.tokens.iter().enumerate().map(line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_flags() {
        let options = ControlPlaneOptions {
            scheduler: false,
            feature_gates: "A=true".to_owned(),
            node_monitor_grace_period: Some(Duration::from_secs(86_400)),
            api_server_args: vec!["--v=2".to_owned()],
            timeout: Duration::from_secs(7),
            ..ControlPlaneOptions::default()
        };
        let expected = [
            "--timeout=7s",
            "--no-scheduler",
            "--feature-gates=A=true",
            "--node-monitor-grace-period=86400s",
            "--apiserver-arg=--v=2",
        ];
        assert_eq!(options.flags(), expected);
    }

    #[test]
    fn static_tokens_become_the_lines_of_a_token_file() {
        let mut options = ControlPlaneOptions::default();
        assert_eq!(options.token_file(), None);
        options.tokens.push(StaticToken {
            token: "t".to_owned(),
            user: "u".to_owned(),
            groups: vec!["g".to_owned(), "h".to_owned()],
        });
        assert_eq!(
            options.token_file().as_deref(),
            Some("t,u,static-0,\"g,h\"\n")
        );
    }
}
