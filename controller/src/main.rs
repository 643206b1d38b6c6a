//! The controller's binary: allocator, crypto provider, logging, and hand-over.
#![expect(
    clippy::print_stderr,
    reason = "errors before logging is set up have no other place"
)]

use std::{process::ExitCode, sync::Arc};

use clap::Parser as _;
use kube::Client;
use millwright_cloud::instance_types::CapacitySettings;
use millwright_cloud_aws::{AwsProvider, AwsSettings};
use millwright_controller::args::{Arguments, LogFormatArgument};
use millwright_telemetry::{LogFormat, init_tracing};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = arguments.validate() {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let format = match arguments.log_format {
        LogFormatArgument::Json => LogFormat::Json,
        LogFormatArgument::Plain => LogFormat::Plain,
    };
    if let Err(error) = init_tracing(&arguments.log_level, format) {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    match start(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "controller ends");
            ExitCode::FAILURE
        }
    }
}

async fn start(arguments: &Arguments) -> anyhow::Result<()> {
    // An error means that a provider was installed before, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stop = CancellationToken::new();
    tokio::spawn(cancel_on_signal(stop.clone()));
    let client = Client::try_default().await?;
    let version = if arguments.eks_control_plane {
        None
    } else {
        let info = client.apiserver_version().await?;
        let digits = |text: &str| {
            text.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        };
        Some(format!("{}.{}", digits(&info.major), digits(&info.minor)))
    };
    let provider = AwsProvider::from_environment(aws_settings(arguments, version)).await;
    millwright_controller::run(arguments, client, Arc::new(provider), stop).await
}

fn aws_settings(arguments: &Arguments, kubernetes_version: Option<String>) -> AwsSettings {
    let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    AwsSettings {
        cluster_name: arguments.cluster_name.clone(),
        cluster_endpoint: arguments.cluster_endpoint.clone(),
        cluster_ca_bundle: arguments.cluster_ca_bundle.clone(),
        kubernetes_version,
        cluster_dns: arguments.cluster_dns_ip.clone(),
        capacity: CapacitySettings {
            vm_memory_overhead_ppm: arguments.vm_memory_overhead_percent,
            reserved_enis: arguments.reserved_enis,
        },
        isolated_vpc: arguments.isolated_vpc,
        disable_dry_run: arguments.disable_dry_run,
        image_refresh_ms: millis(arguments.ami_refresh_interval),
        subnet_refresh_ms: millis(arguments.subnet_refresh_interval),
    }
}

async fn cancel_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.cancel();
}
