//! Refusals of arguments of `towpath bench` that the chosen experiments do not have.

use towpath_lab::experiments::find;
use towpath_lab::primitives::broadcast::LEAST_BYTES;
use towpath_lab::structures::MOST;
use towpath_report::CLAIM_ALGORITHMS;

use super::{
    APPS, BARRIERS, BROADCAST, BULK, BenchArgs, COUNTER, CRASH, KILLS, LOCKS, MPI, MPLOCKS, POOL, PRIMITIVES,
    RW_LOCKS, STRESS, STRUCTURES,
};
use crate::CommandFailure;

impl BenchArgs {
    /// Refuses arguments that the chosen experiments do not have.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        let here = self.experiment.as_deref().unwrap_or("bench without an experiment");
        let refusal = self
            .misplaced_option(here)
            .or_else(|| self.impossible_number(here))
            .or_else(|| self.unknown_algorithm(here));
        refusal.map_or(Ok(()), |text| Err(CommandFailure::new(text).with_code(2)))
    }

    /// Answer to an option of other experiments.
    fn misplaced_option(&self, here: &str) -> Option<String> {
        let of_locks = [LOCKS, RW_LOCKS].contains(&here);
        let of_primitives = PRIMITIVES.contains(&here);
        let has_between = of_locks || [BARRIERS, COUNTER].contains(&here);
        let has_copies = of_primitives && ![BROADCAST, POOL].contains(&here);
        // Without an experiment all of them run, and some have these.
        let is_all = self.experiment.is_none();
        let has_sizes = [BULK, BROADCAST, POOL].contains(&here);
        let has_kills = [CRASH, MPLOCKS, STRUCTURES, KILLS].contains(&here) || of_primitives;
        let has_procs = [MPI, MPLOCKS, STRUCTURES, APPS, KILLS].contains(&here) || of_primitives;
        let options = [
            ("--writers", !self.writers.is_empty(), is_all || here == STRESS, STRESS),
            ("--messages", self.messages.is_some(), is_all || here == STRESS, STRESS),
            ("--sizes", !self.sizes.is_empty(), is_all || has_sizes, BULK),
            ("--kills", self.kills.is_some(), is_all || has_kills, CRASH),
            ("--procs", !self.procs.is_empty(), has_procs, LOCKS),
            ("--impl", !self.mpis.is_empty(), here == MPI, MPI),
            ("--structure", !self.structure.is_empty(), here == STRUCTURES, STRUCTURES),
            ("--reads", !self.reads.is_empty(), here == STRUCTURES, STRUCTURES),
            ("--stop", self.stop.is_some(), here == STRUCTURES, STRUCTURES),
            ("--kill", self.kill.is_some(), here == STRUCTURES, STRUCTURES),
            ("--pool", self.pool.is_some(), here == STRUCTURES, STRUCTURES),
            ("--critical-section", self.critical_section.is_some(), of_locks, LOCKS),
            ("--between", self.between.is_some(), has_between, LOCKS),
            ("--sharing", !self.sharing.is_empty(), of_primitives, LOCKS),
            ("--copies", !self.copies.is_empty(), has_copies, LOCKS),
            ("--app", !self.app.is_empty(), here == APPS, APPS),
            ("--input", self.input.is_some(), here == APPS, APPS),
        ];
        let (option, .., home) = options.into_iter().find(|(_, given, fits, _)| *given && !fits)?;
        Some(format!("{option} is an option of the experiment {home}: towpath bench {home} {option} …"))
    }

    /// Answer to a number, or a pair of options, that the experiment can't run with.
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
        if here == COUNTER && self.kills.is_some() {
            return Some(
                "a counter has nothing to repair: towpath bench kills has what survives kills".into(),
            );
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
