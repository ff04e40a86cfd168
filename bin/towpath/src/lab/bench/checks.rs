//! Refusals of arguments of `towpath bench` that the chosen experiments do not have.

use towpath_apps::AnyApplication;
use towpath_lab::experiments::find;
use towpath_lab::primitives::broadcast::LEAST_BYTES;
use towpath_lab::structures::MOST;
use towpath_report::CLAIM_ALGORITHMS;

use super::{
    APPS, BARRIERS, BROADCAST, BULK, BenchArgs, COUNTER, CRASH, KILLS, LOCKS, MPI, MPLOCKS, POOL, PRIMITIVES,
    QUEUES, RW_LOCKS, STRESS, STRUCTURES,
};
use crate::CommandFailure;

/// Option that not all experiments have.
pub(super) struct OwnOption {
    /// Its name, without hyphens.
    pub(super) name: &'static str,
    /// Experiments that have it, the usual one first.
    of: &'static [&'static str],
    /// True if one of those that run without a name has it.
    is_of_all: bool,
}

impl OwnOption {
    /// Name of its argument in clap.
    pub(super) fn id(&self) -> String {
        if self.name == "impl" { "mpis".into() } else { self.name.replace('-', "_") }
    }

    /// Returns whether the experiment has it; without a name: whether one of all has it.
    pub(super) fn fits(&self, experiment: Option<&str>) -> bool {
        experiment.map_or(self.is_of_all, |name| self.of.contains(&name))
    }
}

const fn of_all(name: &'static str, of: &'static [&'static str]) -> OwnOption {
    OwnOption { name, of, is_of_all: true }
}

const fn of_some(name: &'static str, of: &'static [&'static str]) -> OwnOption {
    OwnOption { name, of, is_of_all: false }
}

/// The options that not all experiments have.
pub(super) const OWN_OPTIONS: [OwnOption; 19] = [
    of_all("waiting", &[LOCKS, BARRIERS, COUNTER, STRUCTURES, APPS, "logp", STRESS, BULK, CRASH, "idle"]),
    of_all("writers", &[STRESS]),
    of_all("messages", &[STRESS]),
    of_all("sizes", &[BULK, BROADCAST, POOL]),
    of_all("kills", &[CRASH, MPLOCKS, STRUCTURES, KILLS, LOCKS, RW_LOCKS, QUEUES, BARRIERS, BROADCAST, POOL]),
    of_some(
        "procs",
        &[LOCKS, RW_LOCKS, QUEUES, BARRIERS, COUNTER, BROADCAST, POOL, KILLS, STRUCTURES, MPLOCKS, MPI, APPS],
    ),
    of_some("impl", &[MPI]),
    of_some("structure", &[STRUCTURES]),
    of_some("reads", &[STRUCTURES]),
    of_some("stop", &[STRUCTURES]),
    of_some("kill", &[STRUCTURES]),
    of_some("pool", &[STRUCTURES]),
    of_some("critical-section", &[LOCKS, RW_LOCKS]),
    of_some("between", &[LOCKS, RW_LOCKS, BARRIERS, COUNTER]),
    of_some("sharing", &[LOCKS, RW_LOCKS, QUEUES, BARRIERS, COUNTER, BROADCAST, POOL]),
    of_some("copies", &[LOCKS, RW_LOCKS, QUEUES, BARRIERS, COUNTER]),
    of_some("scheduler", &[LOCKS, RW_LOCKS, QUEUES, BARRIERS, COUNTER]),
    of_some("app", &[APPS]),
    of_some("input", &[APPS]),
];

impl BenchArgs {
    /// Refuses arguments that the chosen experiments do not have.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        let here = self.experiment.as_deref().unwrap_or("bench without an experiment");
        let refusal = self
            .misplaced_option(here)
            .or_else(|| self.impossible_number(here))
            .or_else(|| self.unsuitable_pack())
            .or_else(|| self.unknown_algorithm(here));
        refusal.map_or(Ok(()), |text| Err(CommandFailure::new(text).with_code(2)))
    }

    /// Answer to an option of other experiments.
    fn misplaced_option(&self, here: &str) -> Option<String> {
        if here == COUNTER && self.kills.is_some() {
            return Some(
                "a counter has nothing to repair: towpath bench kills has what survives kills".into(),
            );
        }
        let given = [
            ("waiting", !self.waiting.is_empty()),
            ("writers", !self.writers.is_empty()),
            ("messages", self.messages.is_some()),
            ("sizes", !self.sizes.is_empty()),
            ("kills", self.kills.is_some()),
            ("procs", !self.procs.is_empty()),
            ("impl", !self.mpis.is_empty()),
            ("structure", !self.structure.is_empty()),
            ("reads", !self.reads.is_empty()),
            ("stop", self.stop.is_some()),
            ("kill", self.kill.is_some()),
            ("pool", self.pool.is_some()),
            ("critical-section", self.critical_section.is_some()),
            ("between", self.between.is_some()),
            ("sharing", !self.sharing.is_empty()),
            ("copies", !self.copies.is_empty()),
            ("app", !self.app.is_empty()),
            ("input", self.input.is_some()),
        ];
        let is_misplaced = |option: &&'static OwnOption| {
            let is_given = given.iter().any(|&(name, given)| given && name == option.name);
            is_given && !option.fits(self.experiment.as_deref())
        };
        let OwnOption { name, of, .. } = OWN_OPTIONS.iter().find(is_misplaced)?;
        let (home, plural) = (of[0], if of.len() > 1 { "s" } else { "" });
        let list = of.join(", ");
        Some(format!(
            "--{name} is an option of the experiment{plural} {list}: towpath bench {home} --{name} …"
        ))
    }

    /// Answer to a number, or a pair of options, that the experiment can't run with.
    /// Answer to a pack for an application that takes none.
    fn unsuitable_pack(&self) -> Option<String> {
        let pack = self.input.filter(|input| input.pack.is_some())?;
        let takes = |name: &&String| AnyApplication::from_name(name).is_some_and(AnyApplication::takes_packs);
        let other = self.app.iter().find(|name| !takes(name))?;
        let takers =
            Vec::from_iter(AnyApplication::all().filter(|a| a.takes_packs()).map(AnyApplication::name));
        Some(format!("{other} takes no pack ({}): --app {}", pack.name(), takers.join(",")))
    }

    fn impossible_number(&self, here: &str) -> Option<String> {
        let of_primitives = PRIMITIVES.contains(&here);
        let of_locks = [LOCKS, RW_LOCKS].contains(&here);
        let kills = here == KILLS || of_primitives && self.kills.is_some();
        let has_board = here == STRUCTURES || of_primitives || here == KILLS;
        if [MPLOCKS, MPI].contains(&here) && self.procs.contains(&1) {
            return Some(format!("{here} wants 2 processes at least: --procs 2,8"));
        }
        if let Some(many) = self.procs.iter().find(|n| has_board && **n as usize > MOST) {
            return Some(format!("{here} has room for {MOST} participants, not {many}: --procs {MOST}"));
        }
        if let Some(stop) = self.stop
            && !self.procs.is_empty()
            && self.procs.iter().all(|n| *n <= stop)
        {
            return Some(format!(
                "--stop {stop} leaves no participant to measure: --procs {} or more",
                stop + 1
            ));
        }
        if self.runs.is_some() && (kills || here == MPLOCKS && self.kills.is_some()) {
            return Some(
                "kills have no rounds, but a number for each algorithm: --kills 1000, without --runs".into(),
            );
        }
        if here == POOL && !self.procs.is_empty() && self.kills.is_none() {
            return Some("pool has three stages, each of one participant: without --procs".into());
        }
        if let Some(few) = self.sizes.iter().find(|size| here == BROADCAST && **size < LEAST_BYTES) {
            return Some(format!("broadcast wants {LEAST_BYTES} bytes at least, not {few}: --sizes 64,64K"));
        }
        let wants_two = kills || of_primitives && here != COUNTER && !of_locks;
        (wants_two && self.procs.contains(&1))
            .then(|| format!("{here} wants 2 participants at least: --procs 2,8"))
    }

    /// Answer to an algorithm that the experiment does not have.
    fn unknown_algorithm(&self, here: &str) -> Option<String> {
        let offered = match self.experiment.as_deref().and_then(find) {
            Some(experiment) => experiment.algorithms(),
            None => CLAIM_ALGORITHMS.iter().map(|a| a.name).collect(),
        };
        let unknown = self.algorithms.iter().find(|a| !offered.contains(&a.as_str()))?;
        Some(format!("{here} has no algorithm {unknown}; it has: {}", offered.join(", ")))
    }
}
