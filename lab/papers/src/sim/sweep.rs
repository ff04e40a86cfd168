//! The settings that an experiment on a simulated machine goes through.

use towpath_sim::{Parameters, machines};
use towpath_sync::Policy;

use super::{Run, Work};

/// A sweep of an experiment's settings: one [`Run`], and lists of the values that vary.
/// The command line and the claims ask in this form.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The common setting of all points: machine, work, operations, first seed. The lists
    /// below replace its other fields.
    pub run: Run,
    /// Numbers of processors; empty: powers of two up to the machine's number (at most
    /// 64).
    pub procs: Vec<usize>,
    /// Algorithms; empty: those that suit the machine.
    pub algorithms: Vec<String>,
    /// Ways of waiting.
    pub waiting: Vec<Policy>,
    /// Copies of the program at one time (`multiprogramming`).
    pub copies: Vec<usize>,
    /// Processes on each processor (`list`).
    pub per_processor: Vec<usize>,
    /// `time-sharing`, `gang` (`multiprogramming`).
    pub schedulers: Vec<String>,
    /// Lengths of messages, in bytes (`ladder`); empty: its own.
    pub bytes: Vec<usize>,
    /// States and programs (`mplocks`); empty: the usual ones.
    pub patterns: Vec<String>,
}

impl Sweep {
    /// The papers' usual one: 5 µs ± 20 % of work, spinning, 20,000 operations.
    pub fn new(experiment: &'static str, machine: Parameters) -> Sweep {
        Sweep {
            experiment,
            run: Run::new(machine, 1, Work { ns: 5_000, spread: 0.2 }, 20_000),
            procs: Vec::new(),
            algorithms: Vec::new(),
            waiting: vec![Policy::Spin],
            copies: vec![2],
            per_processor: vec![1],
            schedulers: vec!["time-sharing".into(), "gang".into()],
            bytes: Vec::new(),
            patterns: Vec::new(),
        }
    }

    /// The papers' usual one on a machine that comes with Towpath.
    ///
    /// # Panics
    ///
    /// If there is no such machine.
    pub fn on(experiment: &'static str, machine: &str, algorithms: &[&str], procs: &[usize]) -> Sweep {
        let machine = machines::by_name(machine).expect("a machine that comes with Towpath");
        Sweep {
            procs: procs.to_vec(),
            algorithms: algorithms.iter().map(|a| a.to_string()).collect(),
            ..Sweep::new(experiment, machine)
        }
    }

    /// Changes the work: its mean in nanoseconds, and the part by which it varies.
    #[must_use]
    pub fn work(mut self, ns: u64, spread: f64) -> Sweep {
        self.run.work = Work { ns, spread };
        self
    }

    /// Changes the number of operations.
    #[must_use]
    pub fn operations(mut self, operations: u64) -> Sweep {
        self.run.operations = operations;
        self
    }

    /// Changes a parameter of the machine.
    ///
    /// # Panics
    ///
    /// If the text is no parameter and its value.
    #[must_use]
    pub fn set(mut self, change: &str) -> Sweep {
        self.run.machine.set_from_text(change).expect("a parameter and its value");
        self
    }

    /// The numbers of processors to run on.
    pub fn procs(&self) -> Vec<usize> {
        if !self.procs.is_empty() {
            return self.procs.clone();
        }
        let most = (self.run.machine.processors as usize).min(64);
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= most).collect()
    }
}

/// The effort that an experiment is given: number of seeds, and of host threads.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of seeds, from the run's on.
    pub seeds: u32,
    /// Number of host threads that run simulations at one time; 0: one for each core.
    pub threads: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { seeds: 5, threads: 0 }
    }
}
