//! Refusal of the laboratory's commands in a build without the laboratory.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::{CommandFailure, Outcome};

/// A command of the laboratory, which this binary does not have.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    #[command(hide = true, disable_help_flag = true)]
    Bench(AnyArguments),
    #[command(hide = true, disable_help_flag = true)]
    Recommend(AnyArguments),
    #[command(hide = true, disable_help_flag = true)]
    Sim(AnyArguments),
    #[command(hide = true, disable_help_flag = true)]
    Reproduce(AnyArguments),
    #[command(hide = true, disable_help_flag = true)]
    Explore(AnyArguments),
}

/// Arguments of any kind, which are not read.
#[derive(Debug, Args)]
pub struct AnyArguments {
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    _words: Vec<OsString>,
}

/// The command as it is: there are no experiments.
pub fn of_named_experiment(command: clap::Command, _: &[String]) -> clap::Command {
    command
}

/// Refuses a command of the laboratory, with the way to get it.
pub fn run(command: Option<LabCommand>) -> Outcome {
    let name = match command {
        None => "a measuring run (`towpath` without a command)",
        Some(LabCommand::Bench(_)) => "`towpath bench`",
        Some(LabCommand::Recommend(_)) => "`towpath recommend`",
        Some(LabCommand::Sim(_)) => "`towpath sim`",
        Some(LabCommand::Reproduce(_)) => "`towpath reproduce`",
        Some(LabCommand::Explore(_)) => "`towpath explore`",
    };
    Err(CommandFailure::new(format!(
        "{name} belongs to the laboratory, without which this towpath was built: build it with `cargo build --release -p towpath-cli` in Towpath's sources; here there are run, lock, key, mpirun, preload, doctor and clean \
         (`towpath --help`)"
    ))
    .with_code(2))
}
