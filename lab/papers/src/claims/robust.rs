//! L17: with more processes than processors the lock-free algorithm loses least.
//!
//! "Only the lock-free algorithm is both fast and robust to multiprogramming" (4.3). Here: with two
//! to eight times as many processes as cores (writers and the reader), the rate with one writer
//! divided by that with many is smallest for `lock-free` among the paper's six. MCS and our own
//! algorithm are not the paper's and stand beside them.

use super::l_machine::{enterprise, stuck};
use super::native::{AlgorithmRecords, Comparison, Figure, JudgedRecords, Native, papers, record};
use super::{Claim, Context, Finding, above};
use crate::sim::messages::stress::stress;
use crate::sim::messages::{Layer, MessageAlgorithm};
use towpath_host::Error;
use towpath_report::OURS;
use towpath_report::format::digits;
use towpath_report::format::nanoseconds;
use towpath_report::results::Results;
use towpath_report::stats::percentile;

/// Paper L's seventeenth claim.
pub(super) const CLAIM: Claim = Claim {
    id: "L17",
    what: "Only lock-free is fast and robust to multiprogramming: it slows down least when processes outnumber processors",
    paper: "lock-free best",
    tolerance: "the smallest slowdown of the six, 3 % is a tie; simulated with 2 processes on each processor, natively with 2 to 8",
    input: false,
    simulated,
    native: Some(&Robust),
};

/// The native evidence.
struct Robust;

/// The paper's own algorithm.
const LOCK_FREE: &str = "lock-free";

/// Numbers of processes per core that the claim is about.
const OVERSUBSCRIPTION: std::ops::RangeInclusive<f64> = 2.0..=8.0;

impl Native for Robust {
    fn experiments(&self) -> &'static [&'static str] {
        &["stress"]
    }
    fn caveat(&self, waiting: &str) -> String {
        match waiting {
            "spin" => String::new(),
            _ => format!(
                "taken under {waiting}, but the paper's algorithms spin: towpath bench stress --waiting spin --writers 1,3 judges them as meant"
            ),
        }
    }
    fn thoroughly(&self) -> &'static str {
        "towpath bench stress --writers 1,3"
    }
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<JudgedRecords<'a>, String> {
        let rate = |name: &str, writers: u64| {
            record(results, ("stress", "messages_per_s"), name, waiting, &[("writers", writers)])
        };
        for name in papers() {
            rate(name, 1)?;
        }
        let cores = f64::from(results.host.cores);
        let many: Vec<u64> = results
            .numbers("stress", "writers")
            .into_iter()
            // One writer is what the others are compared with, also on a single core.
            .filter(|w| *w > 1 && OVERSUBSCRIPTION.contains(&((w + 1) as f64 / cores)))
            .collect();
        // A number of writers with which one of the six could not be measured says nothing of which
        // is best.
        let (mut complete, mut lacking) = (Vec::new(), Vec::new());
        for writers in many {
            match papers().find_map(|name| rate(name, writers).err()) {
                None => complete.push(writers),
                Some(why) => lacking.push(format!("{writers} writers not judged: {why}")),
            }
        }
        if complete.is_empty() {
            return Err(lacking.pop().unwrap_or_else(|| {
                let (from, to) = ((2.0 * cores - 1.0).max(2.0), 8.0 * cores - 1.0);
                format!(
                    "the stress test had no number of writers from {from} to {to} (2 to 8 processes per core)"
                )
            }));
        }
        let line = |algorithm| -> Result<AlgorithmRecords<'a>, String> {
            let mut records = vec![rate(algorithm, 1)?];
            for &writers in &complete {
                records.push(rate(algorithm, writers)?);
            }
            Ok(AlgorithmRecords { algorithm, records })
        };
        Ok(JudgedRecords {
            judged: papers().map(line).collect::<Result<_, _>>()?,
            beside: ["mcs", OURS].into_iter().filter_map(|name| line(name).ok()).collect(),
            lacking: lacking.join("; "),
        })
    }
    fn compare(&self, lines: &JudgedRecords<'_>, figure: Figure<'_>) -> Comparison {
        let mut finding = Comparison::default();
        let mut measured = Vec::new();
        let numbers = lines.judged.first().map_or(0, |l| l.records.len());
        for n in 1..numbers {
            let slowdown = |l: &AlgorithmRecords<'_>| figure(l.records[0]) / figure(l.records[n]);
            let list = |lines: &[AlgorithmRecords<'_>]| {
                let each = lines.iter().map(|l| format!("{} {}", l.algorithm, digits(slowdown(l))));
                each.collect::<Vec<_>>().join(", ")
            };
            let writers = lines.judged[0].records[n].number("writers").unwrap_or(0);
            let mut text = format!("{writers} writers, slower by a factor: {}", list(&lines.judged));
            if !lines.beside.is_empty() {
                text.push_str(&format!("; beside: {}", list(&lines.beside)));
            }
            measured.push(text);
            let slowdowns: Vec<(&str, f64)> =
                lines.judged.iter().map(|l| (l.algorithm, slowdown(l))).collect();
            let better = losing_less(&slowdowns);
            if !better.is_empty() {
                finding.against.push(format!("with {writers} writers {} lose less", better.join(", ")));
            }
        }
        finding.measured = measured.join("; ");
        finding
    }
}

/// The algorithms that slow down less than lock-free by more than a tie.
fn losing_less<'n>(slowdowns: &[(&'n str, f64)]) -> Vec<&'n str> {
    let Some((_, lock_free)) = slowdowns.iter().find(|(name, _)| *name == LOCK_FREE) else {
        return Vec::new();
    };
    slowdowns.iter().filter(|(_, other)| above(*lock_free, *other)).map(|(name, _)| *name).collect()
}

/// Part by which a time of two copies may differ from twice that on half of the
/// processors, to be explained by it.
const EXPLAINED: f64 = 0.15;

/// Two copies of the stress test beside one, on the simulated Enterprise 5000.
fn simulated(context: &Context<'_>) -> Result<Finding, Error> {
    let mut one = Layer::on(enterprise(), 8, 20_000);
    // Run, time slice and the receiver's patience are shortened together: a slice is still 250
    // context switches, and hundreds of messages, long.
    const SHORTER: u64 = 20;
    one.run.machine.quantum /= SHORTER;
    one.habits.patience /= SHORTER;
    let mut two = one.clone();
    two.run.copies = 2;
    // Of two programs each has half of the processors at a time.
    let mut half = one.clone();
    half.run.procs = one.run.procs / 2;
    let mut against = Vec::new();
    let mut rows = vec![[Vec::new(), Vec::new(), Vec::new()]; MessageAlgorithm::PAPER.len()];
    for seed in 1..=u64::from(context.seeds()) {
        let mut slowdowns = Vec::new();
        for (row, algorithm) in rows.iter_mut().zip(MessageAlgorithm::PAPER) {
            let [alone, both, by_half] =
                [&one, &two, &half].map(|layer| stress(&layer.seed(seed), algorithm).map_err(stuck));
            let (alone, both) = (alone?.message, both?.message);
            row[0].push(alone);
            row[1].push(both);
            row[2].push(by_half?.message);
            slowdowns.push((algorithm.name(), both / alone));
        }
        for name in losing_less(&slowdowns) {
            let text = format!("{name} slows down less than lock-free");
            if !against.contains(&text) {
                against.push(text);
            }
        }
    }
    let median = |all: &Vec<f64>| percentile(all, 50.0).unwrap_or(f64::NAN);
    let medians: Vec<(&str, [f64; 3])> = MessageAlgorithm::PAPER
        .map(MessageAlgorithm::name)
        .into_iter()
        .zip(rows.iter().map(|row| row.each_ref().map(median)))
        .collect();
    let text = medians.iter().map(|(name, [one, both, _])| {
        format!("{name} {} to {} (× {})", nanoseconds(*one), nanoseconds(*both), digits(both / one))
    });
    let text = text.collect::<Vec<_>>().join(", ");
    Ok(Finding::new(text, against).because(&thinned_out(&medians)))
}

/// Cause of the smaller losses, by algorithm: that half of the writers contend less, or
/// none. `medians`: times alone, of two copies, and alone on half of the processors.
fn thinned_out(medians: &[(&str, [f64; 3])]) -> String {
    let slowdowns: Vec<_> = medians.iter().map(|(name, [one, both, _])| (*name, both / one)).collect();
    let better = losing_less(&slowdowns);
    let better = medians.iter().filter(|(name, _)| better.contains(name));
    let is_thinned = |(_, [_, both, half]): &&(&str, [f64; 3])| (2.0 * half / both - 1.0).abs() <= EXPLAINED;
    let (thinned, not): (Vec<_>, Vec<_>) = better.partition(is_thinned);
    let list = |some: &[&(&str, [f64; 3])]| {
        let each = some.iter().map(|(name, [_, both, half])| {
            format!("{name} {} ({})", nanoseconds(2.0 * half), nanoseconds(*both))
        });
        each.collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    if !thinned.is_empty() {
        parts.push(format!(
            "half of the writers contend less: alone on half of the processors, twice as long, it takes {}",
            list(&thinned)
        ));
    }
    if !not.is_empty() {
        parts.push(format!("not explained by that: {}", list(&not)));
    }
    let fastest = medians.iter().map(|(_, [_, both, _])| *both).fold(f64::INFINITY, f64::min);
    let lock_free = medians.iter().find(|(name, _)| *name == LOCK_FREE).map_or(f64::NAN, |it| it.1[1]);
    parts.push(format!(
        "among two processes a processor the fastest of the six takes {}, lock-free {}",
        nanoseconds(fastest),
        nanoseconds(lock_free)
    ));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_told_only_where_the_experiment_shows_it() {
        let medians = [
            ("test-and-set", [4.3e3, 6.0e3, 2.8e3]),
            ("posix", [7.9e3, 8.9e3, 7.9e3]),
            (LOCK_FREE, [2.9e3, 7.7e3, 2.9e3]),
        ];
        let text = thinned_out(&medians);
        let [shown, not, times] = text.split("; ").collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(shown.ends_with("it takes test-and-set 5.60 µs (6.00 µs)"), "{text}");
        assert_eq!(not, "not explained by that: posix 15.8 µs (8.90 µs)");
        assert!(times.ends_with("the fastest of the six takes 6.00 µs, lock-free 7.70 µs"), "{text}");
    }
}
