//! The `millwright` command: what would happen to these manifests, what of this cluster could go,
//! and old manifests made new.
//!
//! Exit status: 0 when everything went well, 2 on bad input, 3 when `plan` left pods without a place.
#![expect(clippy::print_stderr, reason = "a command line speaks through both")]

use std::{
    io::Write as _,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use millwright_cli::{consolidate, convert, documents, plan};
use millwright_disruption::Settings;
use millwright_model::{Timestamp, instance_type::InstanceTypes};
use millwright_scheduling::{MinValuesPolicy, Packing, PreferencePolicy, SolveSettings};
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Node provisioning for Kubernetes: plan and consolidate on files, convert old manifests, print the CRDs.
///
/// Also works as a kubectl plugin: name it kubectl-millwright.
#[derive(Debug, Parser)]
#[command(
    name = "millwright",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what would be launched for these manifests, and why some pods would find no place.
    Plan(PlanArguments),
    /// Print which nodes would be deleted or replaced to save money, and why the others stay.
    Consolidate(ConsolidateArguments),
    /// Print manifests of older releases as v1.
    ///
    /// Takes Provisioner, AWSNodeTemplate, the v1beta1 kinds and blends of them, beside any other
    /// manifest. Converted documents go to standard output in the order of the input; every change
    /// gives one warning on standard error. A document that is v1 already passes unchanged.
    #[command(
        after_help = "Example:\n  millwright convert -f nodeclass.yaml -f nodepool.yaml > v1.yaml"
    )]
    Convert {
        #[command(flatten)]
        files: Files,
    },
    /// Print the custom resource definitions, or write one file for each.
    Crds {
        /// Folder to write to; standard output when absent.
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Files {
    /// File with manifests, YAML or JSON; `-` reads standard input. May be given several times.
    #[arg(short, long = "filename", required = true, value_name = "FILE", num_args = 1..)]
    filename: Vec<String>,
}

/// What is decided from, and how the answer is printed.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    files: Files,
    /// Catalogue of instance types in the format of Karpenter's KWOK provider; node classes then play no
    /// part. The embedded us-east-1 catalogue when absent.
    #[arg(long, value_name = "FILE")]
    instance_types: Option<String>,
    /// cost: the cheapest plan found; karpenter: Karpenter's own rule.
    #[arg(long, value_enum, default_value = "cost")]
    packing: PackingArgument,
    /// Whether preferences of pods count.
    #[arg(long, value_enum, default_value = "Respect")]
    preference_policy: PreferenceArgument,
    /// What happens when minValues cannot be met.
    #[arg(long, value_enum, default_value = "Strict")]
    min_values_policy: MinValuesArgument,
    /// Threads; the plan is the same for any number.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    workers: u16,
    /// Roughly how long cost packing may search.
    #[arg(long, default_value = "100ms", value_parser = budget, value_name = "DURATION")]
    budget: Duration,
    /// table for people, json and yaml for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// What would be launched.
#[derive(Debug, Args)]
#[command(after_help = PLAN_HELP)]
struct PlanArguments {
    #[command(flatten)]
    common: Common,
}

/// Which nodes could go.
#[derive(Debug, Args)]
#[command(after_help = CONSOLIDATE_HELP)]
struct ConsolidateArguments {
    #[command(flatten)]
    common: Common,
    /// Let spot nodes be replaced by cheaper spot nodes (feature gate SpotToSpotConsolidation).
    #[arg(long)]
    spot_to_spot: bool,
}

const CONSOLIDATE_HELP: &str = "\
Reads what plan reads, and PodDisruptionBudgets. Give it the nodes with their NodeClaims and pods; nothing is changed.
karpenter packing decides by Karpenter's own order and rules; cost packing searches the whole fleet.

Examples:
  kubectl get nodepools,ec2nodeclasses,nodeclaims,nodes,pods,daemonsets,pdb -A -o json | millwright consolidate -f -

Exit status: 0, also when there is nothing to do; 2 bad input.";

const PLAN_HELP: &str = "\
Reads Pod, Deployment, ReplicaSet, StatefulSet, Job, DaemonSet, Node, NodePool, NodeClaim, EC2NodeClass,
PersistentVolume(Claim), StorageClass, LimitRange, RuntimeClass. Owners become pods; pods with spec.nodeName are bound.

Examples:
  millwright plan -f deployment.yaml -f nodepool.yaml -f nodeclass.yaml
  kubectl get nodepools,ec2nodeclasses,nodes,pods -A -o json | millwright plan -f - -o json

Exit status: 0 every pod has a place, 3 some have none, 2 bad input.";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PackingArgument {
    Cost,
    Karpenter,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum PreferenceArgument {
    Respect,
    Ignore,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum MinValuesArgument {
    Strict,
    BestEffort,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
    Yaml,
}

/// `100ms` or `2s`.
fn budget(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is not a duration like 100ms or 2s");
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_millis(number.saturating_mul(scale)))
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Plan(arguments) => run_plan(&arguments),
        Command::Consolidate(arguments) => run_consolidate(&arguments),
        Command::Convert { files } => run_convert(&files),
        Command::Crds { output } => run_crds(output.as_deref()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
fn write(text: &str) -> Result<(), String> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: {error}"))
        }
        _ => Ok(()),
    }
}

fn read(files: &Files) -> Result<Vec<documents::Document>, String> {
    let mut read = Vec::new();
    for file in &files.filename {
        read.extend(documents::read(file).map_err(|e| e.to_string())?);
    }
    Ok(read)
}

impl Common {
    fn types(&self) -> Result<Option<InstanceTypes>, String> {
        let Some(file) = &self.instance_types else {
            return Ok(None);
        };
        let bytes = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        plan::instance_types::parse(file, &bytes).map(Some)
    }

    fn settings(&self) -> SolveSettings {
        let defaults = SolveSettings::default();
        let millis = u64::try_from(self.budget.as_millis()).unwrap_or(u64::MAX);
        SolveSettings {
            packing: match self.packing {
                PackingArgument::Cost => Packing::Cost,
                PackingArgument::Karpenter => Packing::Karpenter,
            },
            preference_policy: match self.preference_policy {
                PreferenceArgument::Respect => PreferencePolicy::Respect,
                PreferenceArgument::Ignore => PreferencePolicy::Ignore,
            },
            min_values_policy: match self.min_values_policy {
                MinValuesArgument::Strict => MinValuesPolicy::Strict,
                MinValuesArgument::BestEffort => MinValuesPolicy::BestEffort,
            },
            workers: usize::from(self.workers),
            // The default budget stands for about 100 ms; steps, not time, keep plans reproducible.
            step_budget: defaults.step_budget.saturating_mul(millis) / 100,
            ..defaults
        }
    }

    /// Prints an answer as the format says.
    fn print<T: Serialize>(
        &self,
        output: &T,
        warnings: &[String],
        table: impl Fn(&T) -> String,
    ) -> Result<(), String> {
        for warning in warnings {
            eprintln!("{warning}");
        }
        let text = match self.output {
            Format::Table => table(output),
            Format::Json => {
                let json = serde_json::to_string(output).map_err(|e| e.to_string())?;
                format!("{json}\n")
            }
            Format::Yaml => serde_saphyr::to_string(output).map_err(|e| e.to_string())?,
        };
        write(&text)
    }
}

fn run_plan(arguments: &PlanArguments) -> Result<ExitCode, String> {
    let common = &arguments.common;
    let types = common.types()?;
    let planned = plan::plan(read(&common.files)?, types.as_ref(), &common.settings())?;
    common.print(&planned.output, &planned.warnings, plan::output::table)?;
    Ok(ExitCode::from(if planned.output.unschedulable.is_empty() {
        0
    } else {
        3
    }))
}

fn run_consolidate(arguments: &ConsolidateArguments) -> Result<ExitCode, String> {
    let common = &arguments.common;
    let types = common.types()?;
    let settings = Settings {
        solve: common.settings(),
        spot_to_spot: arguments.spot_to_spot,
        ..Settings::default()
    };
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since_epoch.map_or(0, |since| since.as_millis());
    let now = Timestamp(i64::try_from(millis).unwrap_or(i64::MAX));
    let done = consolidate::consolidate(read(&common.files)?, types.as_ref(), &settings, now)?;
    common.print(&done.output, &done.warnings, consolidate::output::table)?;
    Ok(ExitCode::SUCCESS)
}

fn run_convert(files: &Files) -> Result<ExitCode, String> {
    let conversion = convert::convert(read(files)?);
    for warning in &conversion.warnings {
        eprintln!("{warning}");
    }
    for line in conversion.notes.iter().chain(&conversion.errors) {
        eprintln!("{line}");
    }
    write(&format!("{}\n", conversion.documents.join("\n---\n")))?;
    Ok(ExitCode::from(if conversion.errors.is_empty() {
        0
    } else {
        2
    }))
}

fn run_crds(output: Option<&std::path::Path>) -> Result<ExitCode, String> {
    match output {
        None => write(&millwright_api::crds_yaml().map_err(|e| e.to_string())?)?,
        Some(folder) => {
            millwright_api::write_crds(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            eprintln!("wrote the definitions to {}", folder.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
