//! Start of MPI programs over Towpath.
//!
//! Finds the MPI for which a program was built, that MPI's launcher and Towpath's libfabric
//! provider, and makes the environment that joins them.
//!
//! `towpath mpirun` starts programs this way, and so does the laboratory's benchmark of MPIs.
#![forbid(unsafe_code)]

mod announced;
mod command_output;
mod kind;
mod launcher;
mod program;
mod provider;
mod regular_file;

pub use announced::AnnounceFile;
pub use command_output::{CommandError, output_within};
pub use kind::MpiKind;
pub use launcher::MpiLauncher;
pub use program::{ProgramMpi, find_program, launcher_for, ranks_asked_for};
pub use provider::{ANNOUNCE, Provider, data_folder};
pub use regular_file::{mentions, open_regular};
