//! Experiments on this machine, and the one way of comparing: side by side, in
//! interleaved rounds.

use std::time::{Duration, Instant};

use crate::settings::BenchSettings;
use crate::transport::{Circumstances, Contender};
use towpath_host::Error;
use towpath_host::Host;
use towpath_host::topology::Placement;
use towpath_report::record::{Extra, Metric, Record, RecordSubject};
use towpath_report::{CLAIM_ALGORITHMS, Experiment, OURS};

/// Receiver of an experiment's results and progress.
pub trait Sink {
    /// A figure.
    fn record(&mut self, record: Record);
    /// Something that was not measured, and why.
    fn missing(&mut self, subject: &RecordSubject, reason: &str);
    /// An experiment is about to take this many steps more (or, if negative, fewer than
    /// it announced).
    fn expect(&mut self, steps: i64);
    /// An experiment is about to take this many measurements, and about this long.
    fn announce(&mut self, experiment: &str, measurements: usize, time: Duration) {
        let _ = (experiment, measurements, time);
    }
    /// A step begins; the text names its subject.
    fn step(&mut self, what: &str);
    /// Nothing is measured for a moment: a look for neighbours fits in.
    fn rest(&mut self, placement: &Placement) {
        let _ = placement;
    }
}

/// An experiment on this machine: one file, and one line in [`crate::EXPERIMENTS`].
pub trait Measure: Experiment {
    /// Approximate duration as one of all, in seconds.
    fn seconds(&self) -> u64;
    /// Returns whether it is run when no experiment is named.
    fn is_one_of_all(&self) -> bool {
        true
    }
    /// Runs it.
    ///
    /// # Errors
    ///
    /// Only what makes all of it impossible. A failure of one contender goes to [`Sink::missing`].
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error>;
}

/// The names of the claim algorithms.
pub fn claim_algorithms() -> Vec<&'static str> {
    CLAIM_ALGORITHMS.iter().map(|a| a.name).collect()
}

/// Everything that an experiment works with.
pub struct Bench<'a> {
    /// The settings.
    pub settings: &'a BenchSettings,
    /// The cores of the processes.
    pub placement: &'a Placement,
    /// The machine.
    pub host: &'a Host,
    /// The contenders.
    pub contenders: &'a mut [Box<dyn Contender>],
    /// The receiver of the results.
    pub sink: &'a mut dyn Sink,
}

/// Figures of one measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Figures by metric. A metric may occur several times (every recovery after a kill,
    /// say): then all of them count.
    pub values: Vec<(Metric, f64)>,
    /// Other fields of the record: of several rounds the last one's.
    pub extra: Extra,
}

impl Samples {
    /// A single figure.
    pub fn one(metric: Metric, value: f64) -> Samples {
        Samples { values: vec![(metric, value)], extra: Extra::new() }
    }

    /// Adds a figure.
    pub fn push(&mut self, metric: Metric, value: f64) {
        self.values.push((metric, value));
    }
}

/// One of several things to measure side by side: its subject in the records, and the key
/// by which the measuring code knows it.
#[derive(Clone, Debug)]
pub struct Variant<T> {
    /// Subject for the records.
    pub subject: RecordSubject,
    /// Key for the measuring code.
    pub key: T,
}

/// Measurement of a variant, by its number.
type MeasureByNumber<'a> =
    dyn FnMut(&mut [Box<dyn Contender>], usize, &Circumstances<'_>) -> Result<Samples, Error> + 'a;

/// Puts the floor right after our own claim algorithm, since their ratio is to be taken
/// of figures that are as close in time as can be; before all others if our own is not among them.
pub fn insert_beside_ours<T>(variants: &mut Vec<Variant<T>>, floor: Variant<T>) {
    let ours = variants.iter().rposition(|v| v.subject.algorithm == OURS);
    variants.insert(ours.map_or(0, |n| n + 1), floor);
}

/// No measurement gets less time than this.
const SHORTEST: Duration = Duration::from_millis(20);

/// The order in which round `round` of `rounds` takes `variants` variants: all of them,
/// beginning elsewhere each time, so that none is always the first after a pause or always behind
/// the same neighbour's heat.
pub fn order(variants: usize, round: u32, rounds: u32) -> impl Iterator<Item = usize> {
    let shift = variants * round as usize / rounds.max(1) as usize;
    let backwards = round % 2 == 1;
    (0..variants)
        .map(move |n| if backwards { variants - 1 - n } else { n })
        .map(move |n| (n + shift) % variants)
}

impl Bench<'_> {
    /// Measures all variants in each of the settings' rounds, in an order that changes
    /// from round to round, and records the medians. A variant that fails is reported as missing
    /// and left out of further rounds.
    pub fn compare<T>(
        &mut self,
        variants: &[Variant<T>],
        mut measure: impl FnMut(&mut [Box<dyn Contender>], &T, &Circumstances<'_>) -> Result<Samples, Error>,
    ) {
        let subjects: Vec<&RecordSubject> = variants.iter().map(|variant| &variant.subject).collect();
        // Compiled once, not for each kind of key.
        self.compare_all(&subjects, &mut |contenders, n, run| measure(contenders, &variants[n].key, run));
    }

    fn compare_all(&mut self, variants: &[&RecordSubject], measure: &mut MeasureByNumber<'_>) {
        let rounds = self.settings.runs.max(1);
        let mut collected: Vec<Samples> = variants.iter().map(|_| Samples::default()).collect();
        let mut failed = vec![false; variants.len()];
        // With a limit, the time is divided so that all rounds fit into it: many short ones see
        // more of the machine's moods than few long.
        let share = self.settings.limit.map(|limit| limit / (rounds * variants.len().max(1) as u32));
        let sample =
            share.map_or(self.settings.sample, |share| self.settings.sample.min(share.max(SHORTEST)));
        self.sink.expect((variants.len() * rounds as usize) as i64);
        let start = Instant::now();
        for round in 0..rounds {
            let round_start = Instant::now();
            for n in order(variants.len(), round, rounds) {
                let subject = variants[n];
                self.sink.step(&format!("{} · {}", subject.experiment, subject.describe()));
                if failed[n] {
                    continue;
                }
                self.sink.rest(self.placement);
                let run = Circumstances {
                    settings: self.settings,
                    placement: self.placement,
                    round,
                    seed: self.settings.seed.wrapping_add(u64::from(round) << 32).wrapping_add(n as u64),
                    limit: sample,
                };
                match measure(self.contenders, n, &run) {
                    Ok(samples) => {
                        collected[n].values.extend(samples.values);
                        collected[n].extra.extend(samples.extra);
                    }
                    Err(error) => {
                        failed[n] = true;
                        self.sink.missing(subject, &error.to_string());
                    }
                }
            }
            let spent = start.elapsed() + round_start.elapsed();
            if self.settings.limit.is_some_and(|limit| spent > limit) {
                let left = (rounds - 1 - round) as i64 * variants.len() as i64;
                self.sink.expect(-left);
                break;
            }
        }
        for (subject, samples) in variants.iter().zip(collected) {
            self.record(subject, samples);
        }
    }

    /// Records a subject's samples: for each metric, in order of appearance, the median,
    /// smallest and largest.
    pub fn record(&mut self, subject: &RecordSubject, samples: Samples) {
        let mut subject = subject.clone();
        subject.extra.extend(samples.extra);
        let mut by_metric: Vec<(Metric, Vec<f64>)> = Vec::new();
        for (metric, value) in samples.values {
            match by_metric.iter_mut().find(|(m, _)| *m == metric) {
                Some((_, values)) => values.push(value),
                None => by_metric.push((metric, vec![value])),
            }
        }
        for (metric, values) in by_metric {
            match subject.record(metric, &values, self.settings.seed, self.host) {
                Some(record) => self.sink.record(record),
                None => self.sink.missing(&subject, &format!("{} has no finite value", metric.name)),
            }
        }
    }

    /// The contenders that can be measured, as `(index, subject)`; the others are
    /// reported as missing.
    pub fn present(&mut self, experiment: &str, procs: u32) -> Vec<(usize, RecordSubject)> {
        let mut present = Vec::new();
        for (n, contender) in self.contenders.iter().enumerate() {
            let subject = RecordSubject::new(experiment, contender.name(), contender.waiting(), procs);
            match contender.available() {
                Ok(()) => present.push((n, subject)),
                Err(reason) => self.sink.missing(&subject, &reason),
            }
        }
        present
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, Fake, bench_with};
    use towpath_report::record::metrics::{GAP, MESSAGES_PER_S};

    fn variants(names: &[&str]) -> Vec<Variant<usize>> {
        names
            .iter()
            .enumerate()
            .map(|(key, name)| Variant { subject: RecordSubject::new("logp", name, "own", 2), key })
            .collect()
    }

    #[test]
    fn each_round_takes_every_variant_once_and_begins_elsewhere() {
        let rounds = 4;
        let orders: Vec<Vec<usize>> = (0..rounds).map(|r| order(4, r, rounds).collect()).collect();
        for one in &orders {
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        let firsts: std::collections::BTreeSet<usize> = orders.iter().map(|o| o[0]).collect();
        assert!(firsts.len() > 1, "{orders:?}");
        assert_ne!(orders[0], orders[1]);
        assert_eq!(order(0, 0, 3).count(), 0);
    }

    #[test]
    fn measurements_are_interleaved_and_the_medians_recorded() {
        let settings = BenchSettings { runs: 3, ..BenchSettings::default() };
        let mut sink = Collected::default();
        let mut seen = Vec::new();
        bench_with(&settings, &mut [], &mut sink, |bench| {
            bench.compare(&variants(&["a", "b"]), |_, &key, run| {
                seen.push((run.round, key));
                Ok(Samples::one(GAP, f64::from(run.round) + 10.0 * key as f64))
            });
        });
        assert_eq!(seen.len(), 6);
        assert_eq!(seen.iter().map(|(round, _)| *round).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        let values: Vec<(String, f64, f64, f64, u32)> =
            sink.records.iter().map(|r| (r.algorithm.clone(), r.value, r.min, r.max, r.runs)).collect();
        assert_eq!(values, [("a".into(), 1.0, 0.0, 2.0, 3), ("b".into(), 11.0, 10.0, 12.0, 3)]);
        assert_eq!(sink.expected, 6);
        assert_eq!(sink.steps.len(), 6);
    }

    #[test]
    fn the_floor_stands_beside_our_own() {
        let names =
            |list: &[Variant<usize>]| list.iter().map(|v| v.subject.algorithm.clone()).collect::<Vec<_>>();
        let floor = || variants(&["floor"]).remove(0);
        let mut with_ours = variants(&["mcs", "towpath", "pipe"]);
        insert_beside_ours(&mut with_ours, floor());
        assert_eq!(names(&with_ours), ["mcs", "towpath", "floor", "pipe"]);
        let mut without = variants(&["mcs"]);
        insert_beside_ours(&mut without, floor());
        assert_eq!(names(&without), ["floor", "mcs"]);
    }

    #[test]
    fn a_failing_variant_is_named_and_does_not_stop_the_others() {
        let settings = BenchSettings { runs: 2, ..BenchSettings::default() };
        let mut sink = Collected::default();
        let mut calls = 0;
        bench_with(&settings, &mut [], &mut sink, |bench| {
            bench.compare(&variants(&["good", "bad"]), |_, &key, _| {
                if key == 1 {
                    calls += 1;
                    return Err(Error::NotAvailable("it is not installed".into()));
                }
                Ok(Samples::one(MESSAGES_PER_S, 5.0))
            });
        });
        assert_eq!(calls, 1, "a failed variant is not tried again");
        assert_eq!(sink.records.len(), 1);
        assert_eq!(sink.missing, [("bad".to_string(), "it is not installed".to_string())]);
    }

    #[test]
    fn no_round_begins_after_the_limit_but_one_always_runs() {
        let settings = BenchSettings { runs: 50, limit: Some(Duration::ZERO), ..BenchSettings::default() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |bench| {
            bench.compare(&variants(&["a", "b"]), |_, _, run| {
                assert_eq!(run.limit, SHORTEST);
                Ok(Samples::one(GAP, 1.0))
            });
        });
        assert!(sink.records.iter().all(|r| r.runs == 1));
        assert_eq!((sink.records.len(), sink.expected), (2, 2));
    }

    #[test]
    fn a_figure_that_is_not_a_number_is_missing_not_recorded() {
        let settings = BenchSettings { runs: 1, ..BenchSettings::default() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |bench| {
            bench.compare(&variants(&["a"]), |_, _, _| Ok(Samples::one(GAP, f64::NAN)));
        });
        assert!(sink.records.is_empty());
        assert_eq!(sink.missing.len(), 1);
    }

    #[test]
    fn contenders_that_are_not_there_are_named() {
        let settings = BenchSettings::default();
        let mut sink = Collected::default();
        let mut contenders: Vec<Box<dyn Contender>> =
            vec![Box::new(Fake::ours("towpath", 1.0)), Box::new(Fake::absent("mpich"))];
        let mut present = Vec::new();
        bench_with(&settings, &mut contenders, &mut sink, |bench| present = bench.present("logp", 2));
        assert_eq!(
            present.iter().map(|(n, s)| (*n, s.algorithm.as_str())).collect::<Vec<_>>(),
            [(0, "towpath")]
        );
        assert_eq!(sink.missing.len(), 1);
        assert_eq!(sink.missing[0].0, "mpich");
    }
}
