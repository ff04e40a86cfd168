//! MPI over Towpath: which MPI a program was built for, what its launcher is, and what
//! sends its traffic through our libfabric provider.
//!
//! `towpath mpirun` and `towpath bench mpi` both start programs this way.

mod announced;
mod launcher;
mod measuring;
mod program;
mod provider;

pub use announced::Announced;
pub use launcher::{Kind, Launcher};
pub use measuring::{Measuring, Over};
pub use program::{Flavour, find_program, launcher_for, ranks_asked_for};
pub use provider::{ANNOUNCE, Provider};
