//! The command `towpath`.

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_cli::main()
}
