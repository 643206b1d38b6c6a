//! The `millwright-loadtest` command.

mod args;
mod aws;
mod burst;
mod demo;
mod kube;
mod manifests;
mod parts;

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match args::Cli::parse().command {
        args::Command::Aws(args) => aws::run(args).await,
        args::Command::Demo(args) => demo::run(args).await,
        args::Command::Burst(args) => burst::run(args).await,
        args::Command::Kube(args) => kube::run(args).await,
    }
}
