//! The command `towpath`.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod bench;
mod clean;
mod doctor;
mod explore;
mod input;
mod mpich;
mod mpirun;
mod output;
mod reproduce;
mod run;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Processes that talk through shared memory: starts them, measures them, looks after
/// what they leave behind.
#[derive(Debug, Parser)]
#[command(
    name = "towpath",
    version,
    max_term_width = 110,
    after_help = "Without a command: bench, for about a minute.

Exit codes of all commands: 2 for arguments that make no sense, 1 for an answer that can't be written, 141 if its reader has gone."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure this machine: the floor, every claim algorithm, and on request the peers.
    Bench(bench::BenchArgs),
    /// Run the algorithms on a simulated machine of up to 1,024 processors.
    Sim(sim::SimArgs),
    /// Judge the papers' claims by experiments on their machines, simulated.
    Reproduce(reproduce::ReproduceArgs),
    /// Start N processes of a program as one world.
    Run(run::Arguments),
    /// Run an unmodified MPI program with its messages over Towpath.
    Mpirun(mpirun::Arguments),
    /// Search schedules for one under which an algorithm goes wrong.
    Explore(explore::Arguments),
    /// Say what this machine offers, and what dead worlds have left behind.
    Doctor(doctor::Arguments),
    /// Remove what dead worlds have left behind.
    Clean(clean::Arguments),
}

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(said) => output::of_arguments(&said),
    };
    result.unwrap_or_else(|failure| {
        // Nobody is left to be told of a closed pipe.
        if !failure.message.is_empty() {
            output::remark!("towpath: {}", output::printable(&failure.message));
        }
        ExitCode::from(failure.code)
    })
}

fn run(command: Option<Command>) -> Outcome {
    match command {
        Some(Command::Bench(arguments)) => bench::run(&arguments),
        Some(Command::Sim(arguments)) => sim::run(&arguments),
        Some(Command::Reproduce(arguments)) => reproduce::run(&arguments),
        Some(Command::Run(arguments)) => run::run(arguments),
        Some(Command::Mpirun(arguments)) => mpirun::run(&arguments),
        Some(Command::Explore(arguments)) => explore::run(&arguments),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Clean(arguments)) => clean::run(&arguments),
        None => bench::run(&bench::BenchArgs::default()),
    }
}

/// Why a command gave up.
#[derive(Debug)]
struct Failure {
    /// Empty: the command ends quietly.
    message: String,
    code: u8,
}

impl Failure {
    /// The command itself failed: exit code 1.
    fn new(message: impl ToString) -> Self {
        Failure { message: message.to_string(), code: 1 }
    }

    /// With a certain exit code.
    fn with_code(self, code: u8) -> Self {
        Failure { code, ..self }
    }
}

/// What a command ends with.
type Outcome = Result<ExitCode, Failure>;
