//! Commands of the laboratory: `bench`, `recommend`, `sim`, `explore`, `reproduce`.

mod bench;
mod explore;
mod input;
mod recommend;
mod reproduce;
mod screen;
mod sim;
mod trace;

use clap::Subcommand;

pub use bench::of_named_experiment;

use crate::Outcome;

/// A command of the laboratory.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    Bench(bench::BenchArgs),
    Recommend(recommend::Arguments),
    Sim(sim::SimArgs),
    Reproduce(reproduce::ReproduceArgs),
    Explore(explore::Arguments),
}

/// Runs a command; without one, the measuring run.
pub fn run(command: Option<LabCommand>) -> Outcome {
    match command {
        None => bench::run(&bench::BenchArgs::default()),
        Some(LabCommand::Bench(arguments)) => bench::run(&arguments),
        Some(LabCommand::Recommend(arguments)) => recommend::run(&arguments),
        Some(LabCommand::Sim(arguments)) => sim::run(&arguments),
        Some(LabCommand::Reproduce(arguments)) => reproduce::run(&arguments),
        Some(LabCommand::Explore(arguments)) => explore::run(&arguments),
    }
}
