//! The `millwright` command: what would happen to these manifests, and old manifests made new.
//!
//! Exit status: 0 when everything went well, 2 on bad input, 3 when `plan` left pods without a place.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks through both")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millwright_cli::{convert, documents};

/// Node provisioning for Kubernetes: plan on files, convert old manifests.
///
/// Also works as a kubectl plugin: name it kubectl-millwright.
#[derive(Debug, Parser)]
#[command(name = "millwright", version, subcommand_required = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print manifests of older releases as v1.
    ///
    /// Takes Provisioner, AWSNodeTemplate, the v1beta1 kinds and blends of them, beside any other
    /// manifest. Converted documents go to standard output in the order of the input; every change
    /// gives one warning on standard error. A document that is v1 already passes unchanged.
    #[command(after_help = "Example:\n  millwright convert -f nodeclass.yaml -f nodepool.yaml > v1.yaml")]
    Convert {
        /// File with manifests, YAML or JSON; `-` reads standard input. May be given several times.
        #[arg(short, long = "filename", required = true, value_name = "FILE", num_args = 1..)]
        filename: Vec<String>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Convert { filename } => run_convert(&filename),
    }
}

fn run_convert(files: &[String]) -> ExitCode {
    let mut read = Vec::new();
    for file in files {
        match documents::read(file) {
            Ok(documents) => read.extend(documents),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        }
    }
    let conversion = convert::convert(read);
    for warning in &conversion.warnings {
        eprintln!("{warning}");
    }
    for line in conversion.notes.iter().chain(&conversion.errors) {
        eprintln!("{line}");
    }
    println!("{}", conversion.documents.join("\n---\n"));
    if conversion.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) }
}
