//! Kills of processes that use locks, queues and their like, and the damage.

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::primitives::kills::{BATCH, KilledKind, PROCS_KILLED, PrimitiveDamage, kill_users};
use crate::primitives::rows::{FigureColumn, SubjectTable};
use crate::settings::BenchSettings;
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{
    DUPLICATED, HUNG, INCONSISTENT, KILLS, LEAKED_SLOTS, LOST, RECOVERY_MS,
};
use towpath_report::{Experiment, Results, Section};

/// The experiment with all of them; those of one kind are in the experiment of its speed.
pub struct KillBench;

impl Experiment for KillBench {
    fn name(&self) -> &'static str {
        "kills"
    }
    fn about(&self) -> &'static str {
        "kills of processes that use each lock, queue, barrier, ring or pool that survives them, and what is lost; --kills, --algorithms"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        KilledKind::ALL.map(KilledKind::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![section(results, self.name())]
    }
}

impl Measure for KillBench {
    fn seconds(&self) -> u64 {
        60
    }
    /// Returns false: it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let count = bench.settings.kills;
        kill(bench, self.name(), count, |_| true);
        Ok(())
    }
}

/// Returns whether an experiment measures primitives that survive kills.
///
/// With `--kills` their users are killed instead.
pub(crate) fn has_survivors(experiment: &str) -> bool {
    KilledKind::ALL.iter().any(|kind| kind.experiment() == Some(experiment))
}

/// Kills users of the primitives of one experiment.
pub(crate) fn kill_those_of(bench: &mut Bench<'_>, experiment: &str, count: u32) {
    kill(bench, experiment, count, |kind| kind.experiment() == Some(experiment));
}

/// Number of rounds of so many kills, of at most [`BATCH`] each.
fn rounds(count: u32) -> u32 {
    count.div_ceil(BATCH).max(1)
}

/// Number of a round's kills.
fn share(count: u32, round: u32) -> u32 {
    let rounds = rounds(count);
    count / rounds + u32::from(round < count % rounds)
}

/// Kills users of some primitives, in rounds of which each is a step of the progress.
fn kill(bench: &mut Bench<'_>, experiment: &str, count: u32, is_one: impl Fn(KilledKind) -> bool) {
    let settings = &BenchSettings { runs: rounds(count), ..bench.settings.clone() };
    let (placement, host) = (bench.placement, bench.host);
    let bench = &mut Bench { settings, placement, host, contenders: bench.contenders, sink: bench.sink };
    let mut variants: Vec<Variant<(usize, KilledKind, u32)>> = Vec::new();
    for kind in KilledKind::ALL.into_iter().filter(|&kind| is_one(kind) && settings.asks_for(kind.name())) {
        let asked = settings.procs.iter().copied().filter(|&procs| kind.is_for(procs));
        let own = [PROCS_KILLED, 2].into_iter().find(|&procs| kind.is_for(procs));
        let numbers: Vec<u32> =
            if settings.procs.is_empty() { own.into_iter().collect() } else { asked.collect() };
        for procs in numbers {
            let subject = RecordSubject::new(experiment, kind.name(), "own", procs);
            let subject = subject.with("sharing", "processes");
            variants.push(Variant { subject, key: (variants.len(), kind, procs) });
        }
    }
    if variants.is_empty() {
        let subject = RecordSubject::new(experiment, "all", "own", 0);
        bench.sink.missing(&subject, "none of these survives kills; towpath bench kills has those that do");
    }
    let mut total = vec![PrimitiveDamage::default(); variants.len()];
    bench.compare(&variants, |_, &(n, kind, procs), run| {
        let share = share(count, run.round);
        if share > 0 {
            total[n].add(kill_users(kind, share, procs, run)?);
        }
        Ok(Samples::default())
    });
    for (variant, damage) in variants.iter().zip(&total) {
        if damage.kills > 0 {
            bench.record(&variant.subject, damage.samples());
        }
    }
}

/// Table of the damage.
pub(crate) fn section(results: &Results, experiment: &'static str) -> Section {
    let table = SubjectTable {
        experiment,
        title: "Users killed at random moments",
        note: "Hung: a participant did not get on. Lost: ended changes, sent values or messages that are not there, deaths that were not told. Twice: values that came again without a receiver's death. Leaked: permits or buffers that did not come back. Inconsistent: half-changed data of which no participant was told, other contents. Recovery: from the kill until each participant that does not need the dead one has ended three operations more; where all need it, with a successor.",
        fields: &[],
        columns: &[
            FigureColumn::count("kills", KILLS),
            FigureColumn::damage("hung", HUNG),
            FigureColumn::damage("lost", LOST),
            FigureColumn::damage("twice", DUPLICATED),
            FigureColumn::damage("leaked", LEAKED_SLOTS),
            FigureColumn::damage("inconsistent", INCONSISTENT),
            FigureColumn::new("recovery, ms", RECOVERY_MS, 1.0),
        ],
    };
    table.section(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};

    #[test]
    fn shares_of_rounds_are_small_and_all_kills() {
        for count in [0, 1, BATCH, BATCH + 1, 300, 1001] {
            let shares: Vec<u32> = (0..rounds(count)).map(|round| share(count, round)).collect();
            assert!(shares.iter().all(|&some| some <= BATCH), "{count}: {shares:?}");
            assert_eq!(shares.iter().sum::<u32>(), count);
        }
    }

    #[test]
    fn kills_are_recorded_and_few_are_one_round() {
        let settings = BenchSettings { algorithms: vec!["mutex".into(), "spsc".into()], kills: 5, ..quick() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |bench| KillBench.run(bench).unwrap());
        assert!(sink.missing.is_empty(), "{:?}", sink.missing);
        assert_eq!((sink.expected, sink.steps.len()), (2, 2));
        for (name, procs) in [("mutex", 4), ("spsc", 2)] {
            let is_it = |r: &&towpath_report::Record| r.algorithm == name && r.procs == procs;
            let of = |metric: &str| sink.records.iter().filter(is_it).find(|r| r.metric == metric);
            assert_eq!(of("kills").unwrap().value, 5.0);
            assert_eq!(of("recovery_ms").unwrap().runs, 5);
            assert!(["hung", "lost"].iter().all(|metric| of(metric).unwrap().value == 0.0));
        }
    }

    #[test]
    fn lock_that_does_not_survive_is_missing() {
        let settings = BenchSettings { algorithms: vec!["ticket".into()], ..quick() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |bench| kill_those_of(bench, "locks", 3));
        assert_eq!((sink.records.len(), sink.missing.len()), (0, 1));
    }
}
