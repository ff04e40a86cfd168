//! The recommendation of an algorithm for this machine, made from the records
//! of this run.

use crate::EXPERIMENTS;
use crate::primitives::advice::advise;
use towpath_report::format::{message_rate, nanoseconds};
use towpath_report::record::Record;
use towpath_report::results::{Results, Row};
use towpath_report::stats::geometric_mean;

/// One thing that counts: an experiment's metric under given circumstances.
struct Axis {
    /// Axes of one experiment count together as one.
    experiment: &'static str,
    metric: &'static str,
    extra: Option<(&'static str, u64)>,
    smaller_is_better: bool,
}

impl Axis {
    fn record<'a>(&self, results: &'a Results, row: &Row) -> Option<&'a Record> {
        let extra: Vec<(&str, u64)> = self.extra.into_iter().collect();
        results.best(self.experiment, self.metric, &row.algorithm, &row.waiting, &extra)
    }

    /// Merit of a row: larger is better.
    fn merit(&self, results: &Results, row: &Row) -> Option<f64> {
        let value = self.record(results, row)?.value;
        (value > 0.0).then(|| if self.smaller_is_better { 1.0 / value } else { value })
    }

    /// Returns whether one row is better than the other beyond doubt: the worst of its
    /// runs at least a twentieth better than the other's best.
    fn beats(&self, results: &Results, one: &Row, other: &Row) -> bool {
        match (self.record(results, one), self.record(results, other)) {
            (Some(one), Some(other)) if self.smaller_is_better => one.max * 1.05 <= other.min,
            (Some(one), Some(other)) => one.min >= other.max * 1.05,
            _ => false,
        }
    }

    fn name(&self) -> String {
        match self.extra {
            Some(("writers", value)) => format!("{} with {value} writers", self.experiment),
            Some((_, value)) => format!("{} of {}", self.experiment, towpath_report::format::size(value)),
            None => "round trip".into(),
        }
    }
}

fn axes(results: &Results) -> Vec<Axis> {
    let mut axes =
        vec![Axis { experiment: "logp", metric: "round_trip_ns", extra: None, smaller_is_better: true }];
    for (experiment, metric, key) in
        [("stress", "messages_per_s", "writers"), ("bulk", "bytes_per_s", "bytes")]
    {
        axes.extend(results.numbers(experiment, key).into_iter().map(|value| Axis {
            experiment,
            metric,
            extra: Some((key, value)),
            smaller_is_better: false,
        }));
    }
    axes
}

/// The rows that are compared: those of every experiment, whatever the path of bulk
/// transfers, without the floor.
fn candidates(results: &Results) -> Vec<Row> {
    let mut rows: Vec<Row> = ["logp", "stress", "bulk"]
        .iter()
        .flat_map(|e| results.rows(e))
        .filter(|r| !r.is_floor())
        .map(Row::without_path)
        .collect();
    rows.sort();
    rows.dedup();
    rows
}

/// The geometric mean, over the experiments, of how near a row comes to the best of
/// `rows`; an experiment without a figure of it counts as a hundredth.
fn score(results: &Results, axes: &[Axis], rows: &[Row], row: &Row) -> f64 {
    let mut by_experiment: Vec<(&str, Vec<f64>)> = Vec::new();
    for axis in axes {
        let best = rows.iter().filter_map(|r| axis.merit(results, r)).fold(0.0, f64::max);
        if best <= 0.0 {
            continue;
        }
        let part = axis.merit(results, row).unwrap_or(0.0).max(best / 100.0) / best;
        match by_experiment.iter_mut().find(|(name, _)| *name == axis.experiment) {
            Some((_, parts)) => parts.push(part),
            None => by_experiment.push((axis.experiment, vec![part])),
        }
    }
    let means: Vec<f64> = by_experiment.iter().filter_map(|(_, parts)| geometric_mean(parts)).collect();
    geometric_mean(&means).unwrap_or(0.0)
}

/// The sentence.
pub fn recommendation(results: &Results) -> String {
    let axes = axes(results);
    let all = candidates(results);
    let damaged = |row: &Row| {
        results.defects().iter().any(|d| d.starts_with(&format!("{} ({})", row.algorithm, row.waiting)))
    };
    let sound: Vec<Row> = all.iter().filter(|r| r.is_ours() && !damaged(r)).cloned().collect();
    let mut ranked: Vec<(f64, &Row)> =
        sound.iter().map(|row| (score(results, &axes, &sound, row), row)).filter(|(s, _)| *s > 0.0).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let Some((_, best)) = ranked.first() else {
        let advice: Vec<String> = advise(results).into_iter().map(|advice| advice.sentence).collect();
        return if advice.is_empty() { without_candidates(results) } else { advice.join("\n") };
    };
    let mut sentence = format!(
        "On this machine ({}, {}) use the claim algorithm {} with {} waiting",
        results.host.cpu,
        results.host.cores_text(),
        best.algorithm,
        best.waiting
    );
    let reasons = reasons(results, best);
    if !reasons.is_empty() {
        sentence.push_str(&format!(": {}", reasons.join(", ")));
    }
    if let Some((_, second)) = ranked.get(1) {
        sentence.push_str(&format!("; next best is {}", second.label()));
    }
    let losses = losses(results, &axes, &all, best);
    if !losses.is_empty() {
        sentence.push_str(&format!("; but it is not the fastest everywhere: {}", losses.join(", ")));
    }
    sentence.push('.');
    sentence
}

fn reasons(results: &Results, best: &Row) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(r) = results.get("logp", "round_trip_ns", best, &[]) {
        reasons.push(format!("a round trip takes {}", nanoseconds(r.value)));
    }
    let writers = results.numbers("stress", "writers");
    for &n in [writers.first(), writers.last().filter(|_| writers.len() > 1)].into_iter().flatten() {
        if let Some(r) = results.get("stress", "messages_per_s", best, &[("writers", n)]) {
            let plural = if n == 1 { "" } else { "s" };
            let rate = message_rate(r.value).replace("/s", " messages/s");
            reasons.push(format!("{rate} arrive from {n} writer{plural}"));
        }
    }
    let bulk = results.numbers("bulk", "bytes").into_iter().filter_map(|bytes| {
        results.value("bulk", "bytes_per_s", &best.algorithm, &best.waiting, &[("bytes", bytes)])
    });
    if let Some(most) = bulk.max_by(f64::total_cmp) {
        reasons.push(format!("bulk reaches {}", towpath_report::format::bandwidth(most)));
    }
    reasons
}

/// Places where a rival is faster beyond doubt: for each rival the place where it is so
/// by the largest factor.
fn losses(results: &Results, axes: &[Axis], all: &[Row], best: &Row) -> Vec<String> {
    let mut worst: Vec<(f64, String, String)> = Vec::new();
    for axis in axes {
        let rival = all
            .iter()
            .filter(|r| *r != best && axis.beats(results, r, best))
            .filter_map(|r| Some((axis.merit(results, r)? / axis.merit(results, best)?, r.label())))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((factor, name)) = rival else { continue };
        match worst.iter_mut().find(|(_, n, _)| *n == name) {
            Some(known) if known.0 < factor => *known = (factor, name, axis.name()),
            Some(_) => {}
            None => worst.push((factor, name, axis.name())),
        }
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    worst
        .into_iter()
        .take(3)
        .map(|(factor, name, place)| {
            format!("{name} is {} times as fast in {place}", towpath_report::format::digits(factor))
        })
        .collect()
}

fn without_candidates(results: &Results) -> String {
    let floor = |metric: &str, extra: &[(&str, u64)]| {
        results
            .of("floor", metric)
            .find(|r| extra.iter().all(|(key, value)| r.number(key) == Some(*value)))
            .map(|r| nanoseconds(r.value))
    };
    let measured: Vec<_> = EXPERIMENTS.iter().map(|e| e.name()).filter(|name| results.has(name)).collect();
    match (floor("context_switch_ns", &[]), floor("futex_wake_ns", &[("sleepers", 1)])) {
        (Some(switch), Some(wake)) => format!(
            "On this machine a waiter should spin for about {switch} (a context switch) before it gives its core away, since waking \
             it costs {wake}; no claim algorithm was part of this run, so none can be recommended."
        ),
        (Some(switch), None) => format!(
            "On this machine a waiter should spin for about {switch} (a context switch) before it gives its core away; no claim \
             algorithm was part of this run, so none can be recommended."
        ),
        _ if !["logp", "stress", "bulk"].iter().any(|name| results.has(name)) && !measured.is_empty() => {
            format!("Measured: {}. The tables and pictures compare what takes part.", measured.join(", "))
        }
        _ => "No claim algorithm was compared in this run, so none can be recommended: run towpath bench without the name of an \
              experiment."
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::example_results;

    #[test]
    fn the_best_is_recommended_with_its_figures() {
        let sentence = recommendation(&example_results());
        assert!(sentence.contains("use the claim algorithm towpath with adaptive waiting"), "{sentence}");
        assert!(
            sentence.contains("120 ns") && sentence.contains("25.0 M messages/s arrive from 1 writer,"),
            "{sentence}"
        );
        assert_eq!(sentence.matches(". ").count(), 0, "one sentence: {sentence}");
        assert!(!sentence.contains("not the fastest"), "{sentence}");
    }

    #[test]
    fn losses_are_told() {
        let mut results = example_results();
        for r in &mut results.records {
            if r.algorithm == "open-mpi" && r.experiment == "stress" {
                (r.value, r.min, r.max) = (r.value * 10.0, r.min * 10.0, r.max * 10.0);
            }
        }
        let sentence = recommendation(&results);
        assert!(sentence.contains("use the claim algorithm towpath"), "{sentence}");
        assert!(sentence.contains("open-mpi is 5.56 times as fast in stress"), "{sentence}");
    }

    #[test]
    fn a_difference_within_the_runs_range_is_no_loss() {
        let mut results = example_results();
        for r in results.records.iter_mut().filter(|r| r.algorithm == "open-mpi" && r.experiment == "stress")
        {
            (r.value, r.max) = (r.value * 10.0, r.max * 10.0);
        }
        assert!(!recommendation(&results).contains("not the fastest"));
    }

    #[test]
    fn what_compares_no_claims_is_named() {
        let mut results = example_results();
        results.records.retain(|r| r.experiment == "stress");
        for r in &mut results.records {
            r.experiment = "locks".into();
        }
        let sentence = recommendation(&results);
        assert!(sentence.starts_with("Measured: locks."), "{sentence}");
    }

    #[test]
    fn what_damages_messages_is_not_recommended() {
        let mut results = example_results();
        let lost =
            results.records.iter_mut().find(|r| r.metric == "lost" && r.algorithm == "towpath").unwrap();
        lost.value = 1.0;
        assert!(!recommendation(&results).contains("algorithm towpath"));
    }

    #[test]
    fn the_floor_alone_recommends_no_algorithm() {
        let mut results = example_results();
        results.records.retain(|r| r.experiment == "floor");
        assert!(recommendation(&results).contains("none can be recommended"));
        results.records.clear();
        assert!(recommendation(&results).contains("none can be recommended"));
    }
}
