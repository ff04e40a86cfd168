//! Settings of a run.

use std::time::Duration;

use crate::apps::AppSettings;
use crate::primitives::PrimitiveSettings;
use crate::structures::Structure;
use towpath_host::topology::Pin;
use towpath_report::{ADAPTIVE, Asked};
use towpath_sync::Policy;

/// The settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchSettings {
    /// Algorithms (of those that the experiment has); empty: all.
    pub algorithms: Vec<String>,
    /// Waiting policies, by name.
    pub waiting: Vec<String>,
    /// Numbers of writers for the stress test.
    pub writers: Vec<u32>,
    /// Messages in each stress test.
    pub messages: u64,
    /// Sizes of bulk transfers, in bytes.
    pub sizes: Vec<u64>,
    /// Number of rounds (the records' median, smallest and largest are over these).
    pub runs: u32,
    /// Pinning of processes to cores.
    pub pin: Pin,
    /// True if the peers are measured too.
    pub peers: bool,
    /// The MPIs (`mpi`).
    pub mpis: Vec<String>,
    /// Numbers of processes (`mpi`, `structures`, `apps`); empty: the experiment's own.
    pub procs: Vec<u32>,
    /// The settings of `structures`.
    pub structures: StructureSettings,
    /// The settings of `apps`.
    pub apps: AppSettings,
    /// The settings of `locks`, `queues` and `barriers`.
    pub primitives: PrimitiveSettings,
    /// Number of processes to kill.
    pub kills: u32,
    /// Seed of pseudo-random choices.
    pub seed: u64,
    /// Approximate duration of one measurement.
    pub sample: Duration,
    /// Time after which an experiment begins no further round. `None`: it runs them all.
    pub limit: Option<Duration>,
}

impl Default for BenchSettings {
    fn default() -> Self {
        BenchSettings {
            algorithms: Vec::new(),
            waiting: vec![ADAPTIVE.into()],
            writers: vec![1, 3, 7, 15],
            messages: 1_000_000,
            sizes: (6..=22).step_by(2).map(|power| 1 << power).collect(),
            runs: 7,
            pin: Pin::Auto,
            peers: false,
            mpis: vec!["mpich".into(), "open-mpi".into()],
            procs: Vec::new(),
            structures: StructureSettings::default(),
            apps: AppSettings::default(),
            primitives: PrimitiveSettings::default(),
            kills: 300,
            seed: 1,
            sample: Duration::from_secs(2),
            limit: None,
        }
    }
}

impl BenchSettings {
    /// The waiting policies. Names that no policy has are left out.
    pub fn policies(&self) -> impl Iterator<Item = Policy> {
        self.waiting.iter().filter_map(|name| Policy::from_name(name))
    }

    /// Returns whether the algorithm of that name is asked for.
    pub fn asks_for(&self, name: &str) -> bool {
        self.algorithms.is_empty() || self.algorithms.iter().any(|asked| asked == name)
    }

    /// The part of the settings that the report names.
    pub fn asked(&self) -> Asked {
        Asked { waiting: self.waiting.clone(), runs: self.runs, seed: self.seed, peers: self.peers }
    }
}

/// Settings of the experiment `structures` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct StructureSettings {
    /// The structures.
    pub structures: Vec<Structure>,
    /// Numbers of operations in a hundred that read, in turn.
    pub reads: Vec<u32>,
    /// Number of participants that are stopped while the others are measured.
    pub stop: u32,
    /// Number of participants killed each second meanwhile.
    pub kill_rate: f64,
    /// Number of kills, instead of measuring throughput.
    pub kills: Option<u32>,
    /// Number of descriptors in the pool of a structure whose participants are killed.
    pub pool: u32,
}

impl Default for StructureSettings {
    fn default() -> Self {
        StructureSettings {
            structures: Structure::ALL.to_vec(),
            reads: vec![90],
            stop: 0,
            kill_rate: 0.0,
            kills: None,
            pool: 100_000,
        }
    }
}
