//! Flags and environment variables: Karpenter's names and defaults where the meaning is the same.
//!
//! Source: operations specification 1.

use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use millwright_model::Span;
use millwright_reconcile::{Settings, batch::BatchSettings};
use millwright_scheduling::{MinValuesPolicy, PreferencePolicy, SolveSettings};

/// Provisions the nodes of a Kubernetes cluster through Karpenter's API.
///
/// Every flag can be given as an environment variable; the flag wins. Millwright takes part in the
/// election for Karpenter's own Lease: while another holder has it, it watches and does not act.
#[derive(Clone, Debug, Parser)]
#[command(name = "millwright-controller", version, next_line_help = false)]
pub struct Arguments {
    /// Name of the cluster; instances and other resources are tagged with it.
    #[arg(long, env = "CLUSTER_NAME", value_name = "NAME")]
    pub cluster_name: String,
    /// URL of the API server that nodes join; read from EKS when absent.
    #[arg(long, env = "CLUSTER_ENDPOINT", value_name = "URL", value_parser = url)]
    pub cluster_endpoint: Option<String>,
    /// Base64 of the certificate authority that nodes trust; read from EKS when absent.
    #[arg(long, env = "CLUSTER_CA_BUNDLE", value_name = "BASE64")]
    pub cluster_ca_bundle: Option<String>,
    /// A batch of pods is planned at the latest after this long without a new one.
    #[arg(long, env = "BATCH_IDLE_DURATION", default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub batch_idle_duration: Duration,
    /// A batch of pods is planned at the latest this long after its first one.
    #[arg(long, env = "BATCH_MAX_DURATION", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub batch_max_duration: Duration,
    /// Plan pods that the kube-scheduler has not tried yet, if they fit nowhere.
    #[arg(long, env = "ANTICIPATION", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub anticipation: bool,
    /// CPU given to this process, in thousandths of a core; scales concurrency.
    #[arg(
        long,
        env = "CPU_REQUESTS",
        default_value_t = 1000,
        value_name = "MILLICORES"
    )]
    pub cpu_requests: i64,
    /// Memory limit of this process in bytes; accepted for compatibility, nothing depends on it.
    #[arg(long, env = "MEMORY_LIMIT", default_value_t = -1, allow_negative_numbers = true, value_name = "BYTES")]
    pub memory_limit: i64,
    /// How preferences of pods count.
    #[arg(long, env = "PREFERENCE_POLICY", default_value = "Respect", value_enum)]
    pub preference_policy: PreferenceArgument,
    /// What happens when minValues cannot be met.
    #[arg(long, env = "MIN_VALUES_POLICY", default_value = "Strict", value_enum)]
    pub min_values_policy: MinValuesArgument,
    /// Gates as `A=true,B=false`; unknown gates are ignored.
    #[arg(long, env = "FEATURE_GATES", default_value = "", value_name = "GATES")]
    pub feature_gates: String,
    /// Gates of the AWS provider, as above.
    #[arg(
        long,
        env = "AWS_FEATURE_GATES",
        default_value = "",
        value_name = "GATES"
    )]
    pub aws_feature_gates: String,
    /// Port of /metrics.
    #[arg(
        long,
        env = "METRICS_PORT",
        default_value_t = 8080,
        value_name = "PORT"
    )]
    pub metrics_port: u16,
    /// Port of /healthz and /readyz.
    #[arg(
        long,
        env = "HEALTH_PROBE_PORT",
        default_value_t = 8081,
        value_name = "PORT"
    )]
    pub health_probe_port: u16,
    /// Address that both ports listen on.
    #[arg(
        long,
        env = "LISTEN_ADDRESS",
        default_value = "0.0.0.0",
        value_name = "ADDRESS"
    )]
    pub listen_address: std::net::IpAddr,
    /// Name of the Lease.
    #[arg(
        long,
        env = "LEADER_ELECTION_NAME",
        default_value = "karpenter-leader-election",
        value_name = "NAME"
    )]
    pub leader_election_name: String,
    /// Namespace of the Lease; the own namespace when empty.
    #[arg(
        long,
        env = "LEADER_ELECTION_NAMESPACE",
        default_value = "",
        value_name = "NAMESPACE"
    )]
    pub leader_election_namespace: String,
    /// Act without an election. Only for a single replica beside no Karpenter.
    #[arg(long, env = "DISABLE_LEADER_ELECTION", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub disable_leader_election: bool,
    /// Namespace of this process.
    #[arg(
        long,
        env = "SYSTEM_NAMESPACE",
        default_value = "kube-system",
        value_name = "NAMESPACE"
    )]
    pub system_namespace: String,
    /// debug, info or error.
    #[arg(long, env = "LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub log_level: String,
    /// json for machines, plain for people.
    #[arg(long, env = "LOG_FORMAT", default_value = "json", value_enum)]
    pub log_format: LogFormatArgument,
    /// Share of an instance's memory that its operating system never sees.
    #[arg(long, env = "VM_MEMORY_OVERHEAD_PERCENT", default_value = "0.075", value_parser = share, value_name = "SHARE")]
    pub vm_memory_overhead_percent: u32,
    /// Network interfaces of an instance that pods cannot use.
    #[arg(
        long,
        env = "RESERVED_ENIS",
        default_value_t = 0,
        value_name = "NUMBER"
    )]
    pub reserved_enis: u32,
    /// Address of the cluster's DNS service, for nodes.
    #[arg(long, env = "CLUSTER_DNS_IP", value_name = "ADDRESS")]
    pub cluster_dns_ip: Option<String>,
    /// No calls to IAM and the price list.
    #[arg(long, env = "ISOLATED_VPC", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub isolated_vpc: bool,
    /// Take the control plane's version from EKS.
    #[arg(long, env = "EKS_CONTROL_PLANE", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub eks_control_plane: bool,
    /// Skip the permission checks of node classes.
    #[arg(long, env = "DISABLE_DRY_RUN", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub disable_dry_run: bool,
    /// How often images are looked up again; at least 1m.
    #[arg(long, env = "AMI_REFRESH_INTERVAL", default_value = "1m", value_parser = duration, value_name = "DURATION")]
    pub ami_refresh_interval: Duration,
    /// How often subnets are looked up again; at least 1m.
    #[arg(long, env = "SUBNET_REFRESH_INTERVAL", default_value = "1m", value_parser = duration, value_name = "DURATION")]
    pub subnet_refresh_interval: Duration,
}

/// `--preference-policy`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum PreferenceArgument {
    /// Preferences are tried first and given up one by one.
    Respect,
    /// Preferences do not count.
    Ignore,
}

/// `--min-values-policy`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum MinValuesArgument {
    /// The NodeClaim is not made.
    Strict,
    /// The NodeClaim is made with what can be had.
    BestEffort,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormatArgument {
    /// One JSON object per line.
    Json,
    /// Plain text.
    Plain,
}

/// A Go duration: `10s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is not a duration like 500ms, 10s or 1m30s");
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(end);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (millis, unit) = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]
            .into_iter()
            .find(|(unit, _)| tail.starts_with(unit))
            .map(|(unit, millis)| (millis, unit))
            .ok_or_else(wrong)?;
        total = number
            .checked_mul(millis)
            .and_then(|span| total.checked_add(Duration::from_millis(span)))
            .ok_or_else(wrong)?;
        rest = tail.get(unit.len()..).unwrap_or_default();
    }
    Ok(total)
}

/// An absolute URL.
fn url(text: &str) -> Result<String, String> {
    let host = text
        .split_once("://")
        .map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    match host {
        Some(host) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("\"{text}\" is not an absolute URL with a host")),
    }
}

/// A share of 0 or more as millionths.
fn share(text: &str) -> Result<u32, String> {
    let wrong = || format!("\"{text}\" is not a share like 0.075");
    let share: f64 = text.parse().map_err(|_| wrong())?;
    let millionths = (share * 1e6).round();
    if !(0.0..1e6).contains(&millionths) {
        return Err(wrong());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked in the line above"
    )]
    Ok(millionths as u32)
}

fn span(duration: Duration) -> Span {
    Span::from_millis(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

impl Arguments {
    /// Settings of the control loops.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let cpu = u32::try_from(self.cpu_requests)
            .ok()
            .filter(|cpu| *cpu > 0)
            .unwrap_or(1000);
        Settings {
            cluster_name: self.cluster_name.clone(),
            batch: BatchSettings {
                idle: span(self.batch_idle_duration),
                max: span(self.batch_max_duration),
            },
            anticipation: self.anticipation,
            solve: SolveSettings {
                preference_policy: match self.preference_policy {
                    PreferenceArgument::Respect => PreferencePolicy::Respect,
                    PreferenceArgument::Ignore => PreferencePolicy::Ignore,
                },
                min_values_policy: match self.min_values_policy {
                    MinValuesArgument::Strict => MinValuesPolicy::Strict,
                    MinValuesArgument::BestEffort => MinValuesPolicy::BestEffort,
                },
                ..SolveSettings::default()
            },
            cpu_requests_millis: cpu,
        }
    }

    /// Namespace of the Lease.
    #[must_use]
    pub fn lease_namespace(&self) -> &str {
        if self.leader_election_namespace.is_empty() {
            &self.system_namespace
        } else {
            &self.leader_election_namespace
        }
    }

    /// What types and defaults cannot say.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn validate(&self) -> Result<(), String> {
        if self.cluster_name.is_empty() {
            return Err("missing field, cluster-name".to_owned());
        }
        for (name, interval) in [
            ("ami-refresh-interval", self.ami_refresh_interval),
            ("subnet-refresh-interval", self.subnet_refresh_interval),
        ] {
            if interval < Duration::from_secs(60) {
                return Err(format!("{name} must be at least 1m"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_durations_are_go_s() {
        Arguments::command().debug_assert();
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "s", "1d", "-1s", "1 s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(share("0.075"), Ok(75_000));
        assert!(share("-1").is_err() && url("host:1").is_err());
    }
}
