//! The command line: one subcommand per thing that the program can do.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};

/// Load tests, demonstrations, and the simulators on their own.
#[derive(Debug, Parser)]
#[command(name = "millwright-loadtest", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a simulated AWS account: EC2, IAM, STS, SSM, EKS, Pricing and SQS on one port.
    Aws(AwsArgs),
    /// Show the main job: pods that cannot be placed get nodes, and the fleet shrinks again.
    Demo(DemoArgs),
    /// Time a burst of equal pods: when each is created, marked, given a node and bound.
    Burst(BurstArgs),
    /// Run a simulated Kubernetes API, without controllers, for kubectl and other clients.
    Kube(KubeArgs),
}

/// A burst.
#[derive(Debug, Args)]
pub(crate) struct BurstArgs {
    /// Pods of 1 vCPU and 1 GiB that are created at once.
    #[arg(long, default_value_t = 1_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(crate) pods: u32,
    /// The Kubernetes API to run on.
    #[arg(long, value_enum, default_value = "real")]
    pub(crate) control_plane: ControlPlane,
    /// Use the cluster of this kubeconfig, with simulated machines; nothing is left behind there.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Seconds after which pods without a node count as failed.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Delays and identifiers of the simulated cloud follow from it.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// Keep the controller's log in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<std::path::PathBuf>,
}

/// A simulated Kubernetes API.
#[derive(Debug, Args)]
pub(crate) struct KubeArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8001", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Write a kubeconfig for it to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) write_kubeconfig: Option<std::path::PathBuf>,
}

/// The demo.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The Kubernetes API to run on.
    #[arg(long, value_enum, default_value = "embedded")]
    pub(crate) control_plane: ControlPlane,
    /// Use the cluster of this kubeconfig, with simulated machines.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Delays and identifiers of the simulated cloud follow from it.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// Keep the controller's log in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<std::path::PathBuf>,
}

/// Which Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ControlPlane {
    /// The simulated one: needs nothing but this program.
    Embedded,
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler.
    Real,
}

/// A simulated AWS account.
#[derive(Debug, Args)]
#[command(after_long_help = AWS_HELP)]
pub(crate) struct AwsArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:4566", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Name of the EKS cluster, of its discovery tags and of the interruption queue.
    #[arg(long, default_value = "demo", value_name = "NAME")]
    pub(crate) cluster_name: String,
    /// URL of the Kubernetes API that DescribeCluster answers with.
    #[arg(long, default_value = "https://127.0.0.1:6443", value_name = "URL")]
    pub(crate) cluster_endpoint: String,
    /// Kubernetes version that DescribeCluster answers with.
    #[arg(long, default_value = "1.34", value_name = "MAJOR.MINOR")]
    pub(crate) cluster_version: String,
    /// Identifiers, delays and draws follow from it: the same calls give the same answers.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// Let time pass so many times as fast (instances start sooner, prices move sooner).
    #[arg(long, default_value_t = 1, value_name = "FACTOR")]
    pub(crate) speed: u32,
    /// Refuse calls beyond EC2's default token buckets (RequestLimitExceeded).
    #[arg(long)]
    pub(crate) throttle: bool,
    /// Milliseconds until reads see a new instance, launch template or instance profile.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub(crate) read_lag: u64,
    /// Instances that each pool of type, zone and capacity type can give [default: any number].
    #[arg(long, value_name = "COUNT")]
    pub(crate) pool_capacity: Option<u32>,
    /// Share of pools without capacity, in 1/1000; which ones follows from the seed.
    #[arg(long, default_value_t = 0, value_name = "PER_MILLE", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) empty_pools: u32,
    /// vCPUs of on-demand instances allowed [default: any number].
    #[arg(long, value_name = "COUNT")]
    pub(crate) on_demand_vcpus: Option<u32>,
    /// vCPUs of spot instances allowed [default: any number].
    #[arg(long, value_name = "COUNT")]
    pub(crate) spot_vcpus: Option<u32>,
}

/// What `--help` teaches beyond the options.
const AWS_HELP: &str = "\
Any AWS SDK and the AWS command line work against it. Once it says \"ready\", in another shell:

  export AWS_ENDPOINT_URL=http://127.0.0.1:4566 AWS_DEFAULT_REGION=us-east-1
  export AWS_ACCESS_KEY_ID=simulated AWS_SECRET_ACCESS_KEY=simulated
  aws ec2 describe-subnets --filters Name=tag:karpenter.sh/discovery,Values=demo

Keys are not checked. Faults are scripted through the same port; GET /_sim/help lists them:

  curl -d '{\"instance_type\":\"m5.*\",\"free\":0}'        $AWS_ENDPOINT_URL/_sim/capacity
  curl -d '{\"action\":\"CreateFleet\",\"per_mille\":300}' $AWS_ENDPOINT_URL/_sim/throttle
  curl -d '{\"instance_id\":\"i-0123\"}'                 $AWS_ENDPOINT_URL/_sim/interrupt
  curl $AWS_ENDPOINT_URL/_sim/calls";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
