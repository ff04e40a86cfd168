//! The experiments: one file each, and one line in [`EXPERIMENTS`].

mod apps;
mod broadcast;
mod bulk;
mod crash;
pub mod dcas;
pub mod floor;
mod idle;
pub(crate) mod kills;
pub mod ladder;
mod logp;
pub mod mpi;
mod mplocks;
mod pool;
pub mod primitives;
pub mod simulator;
mod stress;
pub mod structures;

use crate::experiment::Measure;

/// All experiments, in the order in which they run.
pub const EXPERIMENTS: &[&dyn Measure] = &[
    &floor::Floor,
    &logp::LogParameters,
    &stress::StressTest,
    &bulk::Bulk,
    &crash::CrashTest,
    &idle::Idle,
    &ladder::Ladder,
    &mpi::MpiExperiment,
    &mplocks::MpLocks,
    &dcas::DcasExperiment,
    &structures::Structures,
    &primitives::LockBench,
    &primitives::RwLockBench,
    &primitives::QueueBench,
    &primitives::BarrierBench,
    &primitives::CounterBench,
    &broadcast::BroadcastBench,
    &pool::PoolBench,
    &kills::KillBench,
    &apps::Apps,
    &simulator::Simulator,
];

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static dyn Measure> {
    EXPERIMENTS.iter().copied().find(|e| e.name() == name)
}
