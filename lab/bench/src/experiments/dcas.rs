//! Double compare-and-swap beside a compare-and-swap with the loads of both words: alone,
//! and with two processes at the same two words.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use towpath_report::record::Record;
use towpath_report::table::{Cell, Table, ratio};

use towpath_machine::{Concurrent, Native};
use towpath_shm::Memory;
use towpath_structures::dcas::{Actor, Change, DcasError, DoubleCas};
use towpath_structures::{InPlace, for_each_dcas};
use towpath_sync::Spinning;

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::team;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{CAS_NS, DCAS_NS};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct DcasExperiment;

/// The implementations that there are, by software and by an instruction for adjacent
/// words, in the order in which tables show them.
pub const ALGORITHMS: [&str; 5] = ["guerraoui", "harris", "bershad", "locked", "cas2"];

/// One process by itself with two words, one with one word and 63 others in turn, and two
/// processes at the same two words.
const SETTINGS: [(u32, u32); 3] = [(1, 2), (1, 64), (2, 2)];

/// Words lie as far apart as lines that are fetched together, in units of words.
const APART: u32 = 16;
const MOST_WORDS: u64 = 64;
/// Operations of a batch; the shortest batch is the one that nothing has disturbed.
const BATCH: u64 = 500;
/// No fewer pairs of batches than this.
const LEAST_BATCHES: u32 = 50;

type Room = InPlace<1, 2>;
type Cost = fn(u32, u32, &Circumstances<'_>) -> Result<Samples, Error>;

impl Experiment for DcasExperiment {
    fn name(&self) -> &'static str {
        "dcas"
    }
    fn about(&self) -> &'static str {
        "double compare-and-swap by software beside one compare-and-swap, alone and contended (paper G)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        ALGORITHMS.to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![Section::new(dcas(results))]
    }
}

impl Measure for DcasExperiment {
    fn seconds(&self) -> u64 {
        5
    }
    /// False: a building block is asked for by name.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let mut measures: Vec<(&'static str, bool, Cost)> = Vec::new();
        for_each_dcas!([atomics cas2] Native, Room => add(&mut measures));
        let chosen = &bench.settings.algorithms;
        let mut variants: Vec<Variant<(Cost, u32, u32)>> = Vec::new();
        for (name, adjacent, measure) in measures {
            if !chosen.is_empty() && !chosen.iter().any(|c| c == name) {
                continue;
            }
            let settings = SETTINGS.into_iter().filter(|(_, words)| !adjacent || *words == 2);
            variants.extend(settings.map(|(procs, words)| Variant {
                subject: RecordSubject::new(self.name(), name, "spin", procs).with("words", words),
                key: (measure, procs, words),
            }));
        }
        bench.compare(&variants, |_, &(measure, procs, words), run| {
            // There are many variants: each takes a part of what one measurement may.
            measure(procs, words, &Circumstances { limit: run.limit / 16, ..*run })
        });
        Ok(())
    }
}

fn add<D: DoubleCas<Native> + Concurrent>(measures: &mut Vec<(&'static str, bool, Cost)>) {
    measures.push((D::NAME, D::ADJACENT, cost::<D>));
}

fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(source))
}

/// Both figures of one implementation, from processes that share nothing else.
fn cost<D: DoubleCas<Native> + Concurrent>(
    procs: u32,
    words: u32,
    run: &Circumstances<'_>,
) -> Result<Samples, Error> {
    let at_words = (size_of::<D>() as u64).next_multiple_of(128);
    let at_results = at_words + MOST_WORDS * u64::from(APART) * 8;
    let memory = Memory::anonymous(at_results + 4096).map_err(failed)?;
    let dcas = &memory.slice::<D>(0, 1).map_err(failed)?[0];
    let table = memory.slice::<AtomicU64>(at_words, MOST_WORDS * u64::from(APART)).map_err(failed)?;
    let results = memory.slice::<AtomicU64>(at_results, 64).map_err(failed)?;
    // Measured before there are processes that would measure it at the same time.
    let _ = Native::pause_ps();
    let cores: Vec<_> = (0..procs as usize).map(|n| run.placement.core_for(n, procs as usize)).collect();
    let patience = run.limit * 20 + std::time::Duration::from_secs(10);
    team(&cores, patience, |me| {
        let pair = DcasProcess { dcas, words: table, count: words, me };
        let found = if procs == 1 { pair.alone(run) } else { pair.contended(procs, results, run) };
        match found {
            Ok(both) => {
                // Relaxed, here and below: the process's end orders them before they are read.
                for (n, ns) in both.into_iter().enumerate() {
                    results[8 + n].store(ns.to_bits(), Ordering::Relaxed);
                }
                0
            }
            Err(error) => {
                towpath_report::console::remark(format_args!("dcas {}: {error}", D::NAME));
                3
            }
        }
    })?;
    let figure = |n: usize| f64::from_bits(results[8 + n].load(Ordering::Relaxed));
    let mut samples = Samples::one(DCAS_NS, figure(0));
    samples.push(CAS_NS, figure(1));
    Ok(samples)
}

/// The words and the operations of one process.
struct DcasProcess<'a, D> {
    dcas: &'a D,
    words: &'a [AtomicU64],
    count: u32,
    me: usize,
}

impl<D: DoubleCas<Native>> DcasProcess<'_, D> {
    /// The other word of the `turn`-th operation.
    fn other(&self, turn: u64) -> u32 {
        (1 + (turn % u64::from(self.count - 1)) as u32) * if D::ADJACENT { 1 } else { APART }
    }

    /// One attempt to raise both words. Returns whether it succeeded.
    #[inline(always)]
    fn both(&self, cpu: &Native, turn: u64) -> Result<bool, DcasError> {
        let actor = Actor { cpu, wait: &Spinning, me: self.me };
        let other = self.other(turn);
        let a = self.dcas.read(&actor, self.words, 0)?;
        let b = self.dcas.read(&actor, self.words, other)?;
        let next = |v: u64| (v + 1) & u64::from(u32::MAX);
        let changes =
            [Change { word: 0, old: a, new: next(a) }, Change { word: other, old: b, new: next(b) }];
        self.dcas.dcas(&actor, self.words, changes)
    }

    /// One attempt to raise one of them by a compare-and-swap, after the loads of both;
    /// other words than those of the DCAS, which hold bits of it.
    #[inline(always)]
    fn one(&self, turn: u64) -> bool {
        let word = |number: u32| &self.words[number as usize + 2];
        // (D1) Acquire, twice: as strong as those of the DCAS; pairs with the AcqRel (D2).
        let (a, b) = (word(0).load(Ordering::Acquire), word(self.other(turn)).load(Ordering::Acquire));
        let new = black_box(a.wrapping_add(b).wrapping_add(1));
        // (D2) AcqRel: as strong as that of the DCAS; pairs with the Acquire (D1).
        word(0).compare_exchange(a, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The shortest batch of each kind, in nanoseconds for each operation. They
    /// alternate, so that what disturbs the machine disturbs both.
    fn alone(&self, run: &Circumstances<'_>) -> Result<[f64; 2], DcasError> {
        let cpu = Native::with_id(self.me as u32);
        let mut best = [u64::MAX; 2];
        let begun = Instant::now();
        let mut batches = 0;
        while batches < LEAST_BATCHES || begun.elapsed() < run.limit {
            let start = Instant::now();
            for turn in 0..BATCH {
                if !self.both(&cpu, turn)? {
                    return Err(DcasError::Corrupt); // No other thread changes them.
                }
            }
            best[0] = best[0].min(start.elapsed().as_nanos() as u64);
            let start = Instant::now();
            for turn in 0..BATCH {
                if !self.one(turn) {
                    return Err(DcasError::Corrupt);
                }
            }
            best[1] = best[1].min(start.elapsed().as_nanos() as u64);
            batches += 1;
        }
        Ok(best.map(|ns| ns as f64 / BATCH as f64))
    }

    /// Measures the time of each successful operation under contention: the time by the
    /// number of operations of all.
    fn contended(
        &self,
        procs: u32,
        results: &[AtomicU64],
        run: &Circumstances<'_>,
    ) -> Result<[f64; 2], DcasError> {
        let cpu = Native::with_id(self.me as u32);
        let mut figures = [0.0; 2];
        for (phase, figure) in figures.iter_mut().enumerate() {
            let (arrived, all) = (&results[2 * phase], &results[2 * phase + 1]);
            // (D3) AcqRel and Acquire: all processes are there, and have ended the phase before;
            // each pairs with the others'.
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < u64::from(procs) {
                std::thread::yield_now();
            }
            let (begun, mut done, mut turn) = (Instant::now(), 0u64, 0u64);
            while begun.elapsed() < run.limit / 2 {
                for _ in 0..64 {
                    let success = if phase == 0 { self.both(&cpu, turn)? } else { self.one(turn) };
                    done += u64::from(success);
                    turn += 1;
                }
            }
            let ns = begun.elapsed().as_nanos() as f64;
            // (D4) AcqRel and Acquire: pairs with those of the others. So the sum is whole
            // when all have arrived once more.
            all.fetch_add(done, Ordering::AcqRel);
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < 2 * u64::from(procs) {
                std::thread::yield_now();
            }
            // (D5) Acquire: the whole sum; pairs with the AcqRel (D4).
            *figure = ns / all.load(Ordering::Acquire).max(1) as f64;
        }
        Ok(figures)
    }
}

/// A record of the experiment `dcas`.
pub fn dcas_figure<'a>(
    results: &'a Results,
    metric: &str,
    algorithm: &str,
    procs: u32,
    words: u64,
) -> Option<&'a Record> {
    let found = |r: &&Record| {
        r.experiment == "dcas"
            && r.metric == metric
            && r.algorithm == algorithm
            && r.procs == procs
            && r.number("words") == Some(words)
    };
    results.records.iter().find(found)
}

fn dcas(results: &Results) -> Table {
    let mut rows = Vec::new();
    for (procs, words, what) in [
        (1, 2, "alone, two words"),
        (1, 64, "alone, one word and 63 others in turn"),
        (2, 2, "two processes, the same two words"),
    ] {
        for algorithm in ALGORITHMS {
            let of = |metric| dcas_figure(results, metric, algorithm, procs, words);
            let (dcas, cas) = (of("dcas_ns"), of("cas_ns"));
            if dcas.is_some() {
                rows.push(vec![
                    Cell::text(what),
                    Cell::text(algorithm),
                    Cell::figure(dcas),
                    Cell::figure(cas),
                    ratio(dcas, cas),
                ]);
            }
        }
    }
    Table {
        experiment: "dcas",
        title: "Double compare-and-swap by software".into(),
        note: "One double compare-and-swap with the reads of its words, one compare-and-swap with the loads of two words, and their ratio within the rounds. Alone: the shortest of many batches. Two \
               processes: the time by the number of operations that succeeded."
            .into(),
        header: ["", "implementation", "DCAS", "CAS and two loads", "ratio"].map(String::from).to_vec(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};
    use crate::settings::BenchSettings;
    use std::time::Duration;

    #[test]
    fn every_implementation_has_both_figures_alone_and_contended() {
        let settings = BenchSettings { sample: Duration::from_millis(16), ..quick() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |b| DcasExperiment.run(b).unwrap());
        // An old processor has no instruction for two words.
        let is_missing = |algorithm: &str| sink.records.iter().all(|r| r.algorithm != algorithm);
        assert!(sink.missing.is_empty() || is_missing("cas2"), "{:?}", sink.missing);
        for algorithm in ALGORITHMS.into_iter().filter(|a| *a != "cas2" || !is_missing(a)) {
            let of = |metric: &str| {
                let all = sink.records.iter().filter(|r| r.algorithm == algorithm && r.metric == metric);
                all.map(|r| (r.procs, r.number("words"))).collect::<Vec<_>>()
            };
            let settings = SETTINGS.into_iter().filter(|(_, words)| algorithm != "cas2" || *words == 2);
            let expected: Vec<_> = settings.map(|(procs, words)| (procs, Some(words.into()))).collect();
            assert_eq!(of("dcas_ns"), expected, "{algorithm}");
            assert_eq!(of("cas_ns"), expected, "{algorithm}");
        }
        assert!(sink.records.iter().all(|r| r.value > 0.0));
    }

    #[test]
    fn only_what_is_asked_for_is_measured() {
        let settings =
            BenchSettings { algorithms: vec!["harris".into()], sample: Duration::from_millis(16), ..quick() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |b| DcasExperiment.run(b).unwrap());
        assert!(!sink.records.is_empty() && sink.records.iter().all(|r| r.algorithm == "harris"));
    }

    #[test]
    fn table_has_the_ratio_within_the_rounds() {
        let subject = || RecordSubject::new("dcas", "guerraoui", "spin", 1).with("words", 2);
        let results = Results::from_figures(
            &[(subject(), DCAS_NS, vec![30.0, 90.0, 24.0]), (subject(), CAS_NS, vec![10.0, 30.0, 6.0])],
            2,
        );
        let table = super::dcas(&results);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.rows[0].iter().map(|c| c.text.as_str()).collect::<Vec<_>>()[4], "3.00");
    }
}
