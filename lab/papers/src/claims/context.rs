//! Simulated evidence: figures of simulated machines, each run once however many claims
//! need it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::above;
use super::runs::{RunKey, Runs};
use super::sabotage::SabotageChange;
use crate::sim::show::{OfPaper, by_processors_beside, distinct, plot_by_bytes};
use crate::sim::{Effort, Figures, Point, Sweep, Watcher, find, run_points};
use towpath_host::Error;
use towpath_report::format::digits;
use towpath_report::record::{Metric, RecordSubject};
use towpath_report::stats::{percentile, summarise};
use towpath_report::svg::{Bar, Look, PlotValue, bars};

/// The runs of experiments for claims.
pub struct Context<'a> {
    seeds: u32,
    /// Number of seeds up to which nothing that was asked so far is another.
    same_until: AtomicU32,
    /// Number of host threads; 0: one for each core.
    pub threads: usize,
    /// The watcher of the runs.
    pub watcher: &'a dyn Watcher,
    runs: Arc<Runs>,
    /// Sabotage of all that is asked.
    change: Option<SabotageChange>,
}

impl<'a> Context<'a> {
    /// A context of so many seeds and host threads.
    pub fn new(seeds: u32, threads: usize, watcher: &'a dyn Watcher) -> Self {
        let (same_until, runs) = (AtomicU32::new(u32::MAX), Arc::default());
        Context { seeds, same_until, threads, watcher, runs, change: None }
    }

    /// Returns a context of so many seeds, which shares this one's runs.
    #[must_use]
    pub fn with_seeds(&self, seeds: u32) -> Context<'a> {
        let (threads, watcher, runs) = (self.threads, self.watcher, Arc::clone(&self.runs));
        Context { seeds, same_until: AtomicU32::new(u32::MAX), threads, watcher, runs, change: self.change }
    }

    /// Returns this context with a claim's effect taken away.
    #[must_use]
    pub(super) fn without(self, change: SabotageChange) -> Self {
        Context { change: Some(change), ..self }
    }

    /// Returns whether a claim's effect is taken away: then no cause need be found.
    pub(super) fn is_sabotaged(&self) -> bool {
        self.change.is_some()
    }

    /// Returns the number of the sabotage that the claim's own experiment makes.
    ///
    /// 0 if it makes none.
    pub(super) fn own_sabotage(&self) -> u8 {
        match self.change {
            Some(SabotageChange::Model(number) | SabotageChange::Counts(number)) => number,
            _ => 0,
        }
    }

    /// Returns the number of seeds.
    pub fn seeds(&self) -> u32 {
        self.seeds_or(1)
    }

    /// Returns the number of seeds, or this one, if it is larger.
    pub fn seeds_or(&self, least: u32) -> u32 {
        // Relaxed: read by the thread that has judged the claim.
        self.same_until.fetch_min(least, Relaxed);
        self.seeds.max(least)
    }

    /// Returns whether anything so far would be another with so many seeds.
    pub(super) fn changes_with(&self, seeds: u32) -> bool {
        seeds > self.same_until.load(Relaxed)
    }

    /// Returns this context with another watcher.
    #[must_use]
    pub(super) fn watched_by<'b>(&self, watcher: &'b dyn Watcher) -> Context<'b>
    where
        'a: 'b,
    {
        Context { watcher, ..self.with_seeds(self.seeds) }
    }

    /// Returns the answers, from earlier runs or from runs made now.
    ///
    /// # Errors
    ///
    /// If an experiment fails.
    pub fn ask(&self, sweep: &Sweep) -> Result<Series, Error> {
        self.ask_all(std::slice::from_ref(sweep))
    }

    /// Returns the points of a sweep as they were measured.
    fn measured(&self, sweep: &Sweep) -> Result<Vec<(RecordSubject, Figures)>, Error> {
        let experiment = find(sweep.experiment)
            .ok_or_else(|| Error::NotAvailable(format!("there is no experiment `{}`", sweep.experiment)))?;
        let machine = format!("{:?}", sweep.run.machine.describe());
        let points = experiment.points(sweep)?;
        let (mut wanted, seeds) = (Vec::new(), self.seeds() as usize);
        for point in &points {
            let Point { subject, run, .. } = point;
            for seed in (run.seed..).take(seeds) {
                let setting = format!("{subject:?} {:?} {} {seed}", run.work, run.operations);
                let key = RunKey { setting, machine: machine.clone() };
                wanted.push((key, Point { run: run.seed(seed), ..point.clone() }));
            }
        }
        let effort = Effort { seeds: 1, threads: self.threads };
        let mut figures =
            self.runs.figures(&wanted, &|missing| run_points(missing, effort, self.watcher))?.into_iter();
        let each = |point: Point| (point.subject, together(figures.by_ref().take(seeds)));
        Ok(points.into_iter().map(each).collect())
    }

    /// Returns the answers of one seed, for the cause of a verdict.
    ///
    /// # Errors
    ///
    /// If an experiment fails.
    pub fn ask_once(&self, sweep: &Sweep) -> Result<Series, Error> {
        self.with_seeds(1).ask(sweep)
    }

    /// The answers to several sweeps as one series.
    ///
    /// # Errors
    ///
    /// If an experiment fails.
    pub fn ask_all(&self, sweeps: &[Sweep]) -> Result<Series, Error> {
        let mut points = Vec::new();
        for sweep in sweeps {
            points.extend(self.measured(sweep)?);
        }
        if let Some(change) = self.change {
            change.apply(&mut points);
        }
        Ok(Series { points, seeds: self.seeds() as usize })
    }

    /// The answers of one seed to several sweeps, as [`Context::ask_once`] gives them.
    ///
    /// # Errors
    ///
    /// If an experiment fails.
    pub fn ask_all_once(&self, sweeps: &[Sweep]) -> Result<Series, Error> {
        self.with_seeds(1).ask_all(sweeps)
    }
}

/// The figures of all seeds, from those of each.
fn together(seeds: impl Iterator<Item = Arc<Figures>>) -> Figures {
    let mut all = Figures::new();
    for figures in seeds {
        for (metric, values) in figures.iter() {
            all.entry(*metric).or_default().extend(values);
        }
    }
    all
}

/// The figures of one sweep, or of several.
pub struct Series {
    points: Vec<(RecordSubject, Figures)>,
    seeds: usize,
}

/// The place of a figure in a series: an algorithm on a number of processors; and, where
/// these vary, waiting, copies, scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct At<'a> {
    /// The algorithm.
    pub algorithm: &'a str,
    /// The processors.
    pub procs: usize,
    /// Any, if empty.
    pub waiting: &'a str,
    /// Any, if 0.
    pub copies: u64,
    /// Any, if empty.
    pub scheduler: &'a str,
    /// The length of messages; any, if not given.
    pub bytes: Option<u64>,
    /// State or program (`mplocks`); any, if empty.
    pub pattern: &'a str,
}

impl<'a> At<'a> {
    /// An algorithm on so many processors.
    pub fn new(algorithm: &'a str, procs: usize) -> Self {
        At { algorithm, procs, ..At::default() }
    }
}

/// The contradictions of a claim, from a way to look figures up.
type Contradictions<'a> = dyn Fn(&dyn Fn(At<'_>, Metric) -> f64) -> Vec<String> + 'a;

/// A way to look figures up in several series, by the series' place.
pub type Lookup<'a> = dyn Fn(usize, At<'_>, Metric) -> f64 + 'a;

/// Judges a claim about several series, as [`Series::judge`] does: by the medians and by
/// each seed alone.
pub fn judge_together(series: &[&Series], claim: &dyn Fn(&Lookup<'_>) -> Vec<String>) -> Vec<String> {
    let by_median = claim(&|i, at, metric| series[i].median(at, metric));
    if !by_median.is_empty() {
        return by_median;
    }
    let seeds = series.iter().map(|s| s.seeds).min().unwrap_or(0);
    let mut failing = Vec::new();
    for seed in 0..seeds {
        let against = claim(&|i, at, metric| series[i].with_seed(at, metric, seed));
        if let Some(first) = against.first() {
            failing.push(format!("with seed {}: {first}", seed + 1));
        }
    }
    failing
}

impl Series {
    /// The number of seeds.
    pub(crate) fn seeds(&self) -> usize {
        self.seeds
    }

    /// A figure, for each seed. Empty if it was not measured.
    pub fn each(&self, at: At<'_>, metric: Metric) -> &[f64] {
        let fits = |s: &RecordSubject| {
            let text = |key: &str| s.extra.get(key).and_then(|v| v.as_str()).unwrap_or("");
            let number = |key: &str| s.extra.get(key).and_then(|v| v.as_u64()).unwrap_or(0);
            s.algorithm == at.algorithm
                && s.procs as usize == at.procs
                && (at.waiting.is_empty() || s.waiting == at.waiting)
                && (at.copies == 0 || number("copies") == at.copies)
                && (at.scheduler.is_empty() || text("scheduler") == at.scheduler)
                && (at.pattern.is_empty() || text("pattern") == at.pattern)
                && (at.bytes.is_none() || s.extra.get("bytes").and_then(|v| v.as_u64()) == at.bytes)
        };
        let found = self.points.iter().find(|(s, _)| fits(s));
        found.and_then(|(_, figures)| figures.get(&metric)).map_or(&[], Vec::as_slice)
    }

    /// The median over the seeds (not a number if it was not measured).
    pub fn median(&self, at: At<'_>, metric: Metric) -> f64 {
        percentile(self.each(at, metric), 50.0).unwrap_or(f64::NAN)
    }

    /// The median, and from … to.
    pub fn show(&self, at: At<'_>, metric: Metric) -> String {
        match summarise(self.each(at, metric)) {
            Some(all) => format!("{} ({} to {})", digits(all.median), digits(all.min), digits(all.max)),
            None => "not measured".into(),
        }
    }

    /// Judges by the medians and by each seed alone. `claim` gets a way to look figures
    /// up and returns what contradicts it. Each contradiction is told once, with how often it was
    /// seen.
    pub fn judge(&self, claim: impl Fn(&dyn Fn(At<'_>, Metric) -> f64) -> Vec<String>) -> Vec<String> {
        self.judge_by(&claim)
    }

    /// Judges any claim: compiled once.
    fn judge_by(&self, claim: &Contradictions<'_>) -> Vec<String> {
        judge_together(&[self], &|value| claim(&|at, metric| value(0, at, metric)))
    }

    /// A figure with one seed; not a number if it was not measured.
    pub(crate) fn with_seed(&self, at: At<'_>, metric: Metric, seed: usize) -> f64 {
        self.each(at, metric).get(seed).copied().unwrap_or(f64::NAN)
    }

    /// Bars of a figure, each with its name, and beside it the paper's value, if known,
    /// hollow.
    pub(crate) fn bars_beside(
        &self,
        title: &str,
        places: &[(String, Option<f64>)],
        of: &dyn Fn(usize, usize) -> f64,
        format: impl Fn(f64) -> String,
    ) -> String {
        let ours = |n| summarise(&(0..self.seeds).map(|seed| of(n, seed)).collect::<Vec<_>>());
        let place = |(n, (label, paper)): (usize, &(String, Option<f64>))| {
            (label.clone(), ours(n).map(Into::into), *paper)
        };
        bars_beside(title, &places.iter().enumerate().map(place).collect::<Vec<_>>(), format)
    }

    /// A plot of a metric over the length of messages, a line for each algorithm.
    pub fn plot_by_bytes(&self, title: &str, metric: Metric) -> String {
        let subjects = || self.points.iter().map(|(s, _)| s);
        let algorithms = distinct(subjects().map(|s| s.algorithm.as_str()));
        let mut sizes = distinct(subjects().filter_map(|s| s.extra.get("bytes")?.as_u64()));
        sizes.sort_unstable();
        let scale = if metric.unit == "us" { 1e3 } else { 1.0 };
        let curve = |algorithm: &&'_ str| {
            let point = |&bytes: &u64| {
                let at = At { bytes: Some(bytes), ..At::new(algorithm, 2) };
                let all = summarise(self.each(at, metric))?;
                let [value, min, max] = [all.median, all.min, all.max].map(|v| v * scale);
                Some((bytes, PlotValue { value, min, max }))
            };
            sizes.iter().filter_map(point).collect()
        };
        plot_by_bytes(title, metric, algorithms.iter().map(|a| (*a, curve(a))).collect())
    }

    /// A plot of a metric over the processors, a line for each algorithm.
    pub fn plot(&self, title: &str, metric: Metric, format: impl Fn(f64) -> String) -> String {
        self.plot_beside(title, metric, &[], format)
    }

    /// A plot like [`Series::plot`], with points of the paper's figure.
    pub(crate) fn plot_beside(
        &self,
        title: &str,
        metric: Metric,
        paper: &[OfPaper<'_>],
        format: impl Fn(f64) -> String,
    ) -> String {
        let subjects = || self.points.iter().map(|(s, _)| s);
        let algorithms = distinct(subjects().map(|s| s.algorithm.as_str()));
        let procs = distinct(subjects().map(|s| s.procs));
        let value = |algorithm: &str, procs: u32| {
            summarise(self.each(At::new(algorithm, procs as usize), metric)).map(PlotValue::from)
        };
        by_processors_beside(title, &algorithms, &procs, value, paper, format)
    }
}

/// Bars, each with its name and our value, and beside it the paper's, if known, hollow.
pub(super) fn bars_beside(
    title: &str,
    places: &[(String, Option<PlotValue>, Option<f64>)],
    format: impl Fn(f64) -> String,
) -> String {
    let mut all = Vec::new();
    for (n, (label, ours, paper)) in places.iter().enumerate() {
        let look = |dashed| Look { colour: n % 15, dashed, bold: false };
        all.extend(ours.map(|value| Bar { label: label.clone(), value, look: look(false) }));
        let of_paper =
            |value: f64| Bar { label: format!("paper: {label}"), value: value.into(), look: look(true) };
        all.extend(paper.map(of_paper));
    }
    bars(title, &all, format, None)
}

/// The contradiction if a value is not within a part of the expected one (T1: 0.25).
pub fn within(name: &str, value: f64, expected: f64, part: f64) -> Vec<String> {
    if (value / expected - 1.0).abs() <= part {
        return Vec::new();
    }
    vec![format!("{name} is {}, not {} ± {:.0} %", digits(value), digits(expected), part * 100.0)]
}

/// Nothing, if a value is within a factor of the expected one (T2: 2).
pub fn within_factor(name: &str, value: f64, expected: f64, factor: f64) -> Vec<String> {
    if value <= expected * factor && value >= expected / factor {
        return Vec::new();
    }
    vec![format!("{name} is {}, not within a factor {factor} of {}", digits(value), digits(expected))]
}

/// Nothing, if no value is above a later one (two within 3 % are tied: T3); otherwise
/// each that is, with the first one that it is above.
///
/// Every pair counts: a chain of ties does not hide that its ends are apart.
pub fn rising(what: &str, values: &[(&str, f64)]) -> Vec<String> {
    let contradiction = |(n, one): (usize, &(&str, f64))| {
        let falls = |next: &&(&str, f64)| one.1.is_nan() || next.1.is_nan() || above(one.1, next.1);
        let next = values[n + 1..].iter().find(falls)?;
        Some(format!("{what}: {} ({}) is above {} ({})", one.0, digits(one.1), next.0, digits(next.1)))
    };
    values.iter().enumerate().filter_map(contradiction).collect()
}

#[cfg(test)]
mod tests {
    use super::rising;

    #[test]
    fn chain_of_ties_is_no_order() {
        let of = |[a, b, c]: [f64; 3]| rising("time", &[("a", a), ("b", b), ("c", c)]);
        assert!(of([1.0, 2.0, 3.0]).is_empty() && of([1.02, 1.0, 1.0]).is_empty());
        assert_eq!(of([1.04, 1.02, 1.0]), ["time: a (1.04) is above c (1.00)"]);
        assert_eq!(of([3.0, 2.0, 1.0]).len(), 2);
        assert_eq!(of([f64::NAN, 1.0, 1.0]).len(), 1);
    }
}
