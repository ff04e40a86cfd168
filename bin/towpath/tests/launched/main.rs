//! Programs that `towpath run` and `mpirun` start, in one program: most of them wait.

#[path = "../launching/mod.rs"]
mod launching;

mod examples;
mod examples_hostile;
mod file_systems;
mod input;
mod mpich_files;
mod mpirun;
mod names;
mod run;
mod run_failures;
mod run_limits;
mod run_many;
mod run_namespaces;
mod run_streams;
mod run_surroundings;
