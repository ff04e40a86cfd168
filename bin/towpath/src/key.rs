//! `towpath key`: makes a cluster's key.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use towpath_net::Key;

use crate::{CommandFailure, Outcome};

#[derive(Debug, Args)]
#[command(
    about = "Make the key of a cluster",
    long_about = "Makes a new key for the hosts of a cluster, in a file that only its owner can read (mode 600). Each host needs a copy: agents of `towpath lock --hosts` talk only to those that have the key, and others can neither read nor alter what they say.",
    after_help = "Example:
  towpath key cluster.key && scp -p cluster.key beta: && scp -p cluster.key gamma:

Exit codes: 0 the key was made; 1 the file exists already, or can't be made."
)]
pub struct Arguments {
    /// File to make
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn run(arguments: &Arguments) -> Outcome {
    Key::generate().write(&arguments.file).map_err(CommandFailure::new)?;
    Ok(ExitCode::SUCCESS)
}
