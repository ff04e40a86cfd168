//! The command `towpath`, as a library: so it is compiled beside its dependencies.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod clean;
mod doctor;
mod key;
#[cfg(feature = "lab")]
mod lab;
#[cfg(not(feature = "lab"))]
#[path = "lean.rs"]
mod lab;
mod lock;
mod mpich;
mod mpirun;
mod output;
mod preload;
mod run;
mod size;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Beginning of the help text.
const ABOUT: &str = if cfg!(feature = "lab") {
    "Messages and locks between processes: starts the processes, runs commands under locks, measures this machine, and removes leftovers of dead ones."
} else {
    "Messages and locks between processes: starts the processes, runs commands under locks, and removes leftovers of dead ones."
};

/// End of the help text.
const HELP: &str = if cfg!(feature = "lab") {
    "Without a command: the measuring run of `towpath bench`, half a minute long. It writes a report to towpath-report/index.html.

Exit codes of all commands: 0 success; 1 a failure, or an answer that can't be written; 2 arguments that make no sense; 141 the reader of the answer has gone. More of them: `towpath COMMAND --help`."
} else {
    "This build has no laboratory: `towpath bench`, `recommend`, `sim`, `explore` and `reproduce` say how to get it.

Exit codes of all commands: 0 success; 1 a failure, or an answer that can't be written; 2 arguments that make no sense; 141 the reader of the answer has gone. More of them: `towpath COMMAND --help`."
};

/// The command's arguments.
#[derive(Debug, Parser)]
#[command(name = "towpath", version, about = ABOUT, max_term_width = 110, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

// Each command's arguments have its help: a comment here would replace it.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Lab(Box<lab::LabCommand>),
    Run(Box<run::Arguments>),
    Lock(lock::Arguments),
    Key(key::Arguments),
    Mpirun(mpirun::Arguments),
    Preload(preload::Arguments),
    Doctor(doctor::Arguments),
    Clean(clean::Arguments),
}

/// Runs the command by the process's arguments.
pub fn main() -> ExitCode {
    let result = match parsed(std::env::args_os().collect()) {
        Ok(cli) => run(cli.command),
        Err(said) => output::of_arguments(&said),
    };
    result.unwrap_or_else(|failure| {
        // After a closed pipe no reader is left for a message.
        if !failure.message.is_empty() {
            output::remark!("towpath: {}", output::printable(&failure.message));
        }
        ExitCode::from(failure.code)
    })
}

/// The command's arguments; help and errors of an experiment tell its own options.
fn parsed(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let texts: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command = lab::of_named_experiment(Cli::command(), &texts);
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn run(command: Option<Command>) -> Outcome {
    match command {
        None => lab::run(None),
        Some(Command::Lab(command)) => lab::run(Some(*command)),
        Some(Command::Run(arguments)) => run::run(*arguments),
        Some(Command::Lock(arguments)) => lock::run(&arguments),
        Some(Command::Key(arguments)) => key::run(&arguments),
        Some(Command::Mpirun(arguments)) => mpirun::run(&arguments),
        Some(Command::Preload(arguments)) => preload::run(&arguments),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Clean(arguments)) => clean::run(&arguments),
    }
}

/// Failure of a command.
#[derive(Debug)]
struct CommandFailure {
    /// Sentence for standard error. Empty: the command ends quietly.
    message: String,
    code: u8,
}

impl CommandFailure {
    /// A failure with exit code 1.
    fn new(message: impl ToString) -> Self {
        CommandFailure { message: message.to_string(), code: 1 }
    }

    /// The failure with another exit code.
    fn with_code(self, code: u8) -> Self {
        CommandFailure { code, ..self }
    }
}

/// End of a command: its exit code or its failure.
type Outcome = Result<ExitCode, CommandFailure>;
