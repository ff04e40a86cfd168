//! The figures that Towpath sets itself, computed from the records of one run.

mod primitives;

use crate::experiments::dcas::dcas_figure;
use crate::mplocks::shown::lock_figure;
use crate::mplocks::{LockAlgorithm, LockState};
use crate::structures::shown::{WITHOUT, figure};
use crate::structures::{Sharing, Structure, StructureAlgorithm};
use towpath_report::format::digits;
use towpath_report::format::{in_unit, percent};
use towpath_report::record::Record;
use towpath_report::results::Results;
use towpath_report::table::header;
use towpath_report::{ADAPTIVE, CLAIM_ALGORITHMS, Cell, Kind, OURS, Table};

/// The better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// The smaller the better.
    AtMost,
    /// The larger the better.
    AtLeast,
}

/// Distance from a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// The aim itself is reached.
    Aim,
    /// The bound is reached.
    Met,
    /// The bound is missed, by this part of it.
    Missed(f64),
    /// The figure could not be computed, for this reason.
    NotMeasured(String),
}

/// One line of the table of targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The experiment that it is taken from.
    pub experiment: &'static str,
    /// The figure in words: numerator and denominator.
    pub what: String,
    /// The ratio, if it could be computed.
    pub ours: Option<f64>,
    /// The two figures that it was computed from, in words.
    pub detail: String,
    /// The better direction.
    pub sense: Sense,
    /// The bound.
    pub must: f64,
    /// The aim.
    pub aim: f64,
    /// The distance from bound and aim.
    pub reach: Reach,
}

impl Target {
    fn new(
        experiment: &'static str,
        what: &str,
        sense: Sense,
        (must, aim): (f64, f64),
        found: Result<(f64, String), String>,
    ) -> Target {
        let (ours, detail, reach) = match found {
            Ok((ratio, detail)) => (Some(ratio), detail, judge(ratio, sense, must, aim)),
            Err(reason) => (None, String::new(), Reach::NotMeasured(reason)),
        };
        Target { experiment, what: what.into(), ours, detail, sense, must, aim, reach }
    }

    /// The bound with its sense: `≤ 1.5`.
    pub fn must_text(&self) -> String {
        let sign = if self.sense == Sense::AtMost { "≤" } else { "≥" };
        format!("{sign} {}", self.must)
    }

    /// The verdict in words.
    pub fn reach_text(&self) -> String {
        match &self.reach {
            Reach::Aim => "met, aim reached".into(),
            Reach::Met => "met".into(),
            Reach::Missed(by) => format!("missed by {}", percent(*by)),
            Reach::NotMeasured(reason) => format!("not measured: {reason}"),
        }
    }
}

fn judge(ratio: f64, sense: Sense, must: f64, aim: f64) -> Reach {
    let reaches = |bound: f64| match sense {
        Sense::AtMost => ratio <= bound,
        Sense::AtLeast => ratio >= bound,
    };
    if reaches(aim) {
        Reach::Aim
    } else if reaches(must) {
        Reach::Met
    } else {
        Reach::Missed((ratio - must).abs() / must)
    }
}

/// A record, or why there is none.
type Found<'a> = Result<&'a Record, String>;

/// The figures of the project's table of targets, in its order, of those experiments that
/// were part of the run. A figure for which something is missing says so.
pub fn targets(results: &Results) -> Vec<Target> {
    use Sense::{AtLeast, AtMost};
    let ours = |writers| stress(results, OURS, ADAPTIVE, writers);
    let kept = |writers| ratio(ours(writers), ours(1));
    let open_mpi = || stress(results, "open-mpi", "own", 1);
    let stress = |what, bounds, found| Target::new("stress", what, AtLeast, bounds, found);
    let structure = |what, sense, bounds, found| Target::new("structures", what, sense, bounds, found);
    let figures = [
        Target::new(
            "logp",
            "round trip of 8 bytes ÷ the floor's two-line round trip",
            AtMost,
            (1.3, 1.1),
            round_trip(results),
        ),
        stress("one-way stream of short messages ÷ Open MPI's", (2.0, 3.0), ratio(ours(1), open_mpi())),
        stress("stress, 7 writers ÷ 1 writer", (0.65, 0.95), kept(7)),
        stress("stress, 15 writers ÷ 1 writer", (0.65, 0.95), kept(15)),
        stress(
            "stress, 7 writers ÷ the best of our other claim algorithms",
            (1.15, 2.0),
            best_other(results),
        ),
        stress(
            "stress, 15 writers ÷ 1 writer, FIFO claim algorithms (the worst)",
            (0.05, 0.2),
            worst_kept(results, true),
        ),
        stress(
            "stress, 15 writers ÷ 1 writer, the other claim algorithms (the worst)",
            (0.3, 0.7),
            worst_kept(results, false),
        ),
        Target::new("bulk", "bulk, 1 MiB ÷ memcpy of 1 MiB", AtLeast, (0.75, 0.95), bulk(results)),
        Target::new(
            "dcas",
            "a double compare-and-swap (guerraoui) ÷ a compare-and-swap with two loads",
            AtMost,
            (3.3, 2.5),
            dcas(results),
        ),
        structure(
            "stack of 2 processes ÷ under the lock robust",
            AtLeast,
            (0.5, 1.0),
            beside_robust(results, Structure::Stack),
        ),
        structure(
            "fifo of 2 processes ÷ under the lock robust",
            AtLeast,
            (0.5, 1.0),
            beside_robust(results, Structure::Fifo),
        ),
        structure(
            "hash map, 90 % reads, 8 threads ÷ dashmap",
            AtLeast,
            (1.0, 1.5),
            beside_dashmap(results, 8),
        ),
        structure(
            "throughput beside one that is stopped ÷ without it (the worst of ours)",
            AtLeast,
            (0.9, 0.95),
            beside_stopped(results),
        ),
        structure(
            "median time from death to recovery, ms (the worst of ours)",
            AtMost,
            (10.0, 5.0),
            recovery(results),
        ),
    ]
    .into_iter()
    .chain(mplocks(results))
    .chain(primitives::of_primitives(results));
    // Of `structures` there are several ways to run it: what this one was not about is not missing.
    let asked = |f: &Target| match f.experiment {
        "structures" | "mplocks" => f.ours.is_some(),
        here if primitives::EXPERIMENTS.contains(&here) => f.reach != Reach::NotMeasured(String::new()),
        _ => true,
    };
    figures.filter(|f| results.has(f.experiment) && asked(f)).collect()
}

/// Targets of locks by message.
fn mplocks(results: &Results) -> Vec<Target> {
    use LockAlgorithm::{Central, Distributed, Endpoint, Etcd, Hosts, Link, Posix, Reactive};
    use Sense::{AtLeast, AtMost};
    let of =
        |metric, algorithm, state| lock_figure(results, metric, algorithm, state).ok_or_else(String::new);
    let by = |metric, state, above, below| ratio(of(metric, above, state), of(metric, below, state));
    let line = |what, sense, bounds, found| Target::new("mplocks", what, sense, bounds, found);
    let (local, remote) = (LockState::LocalIdle, LockState::RemoteIdle);
    let contended = |state| by("acquisitions_per_s", state, Reactive, Posix);
    let share = |state| of("least_share", Reactive, state).map(|r| (r.value, digits(r.value)));
    let at_agent = ratio(of("acquire_at_agent_ns", Hosts, remote), of("acquire_ns", Link, remote));
    let killed = |algorithm| {
        of("next_grant_p99_ms", algorithm, LockState::Killed).map(|r| (r.value, in_unit(r.value, &r.unit)))
    };
    vec![
        line(
            "local idle, distributed ÷ posix",
            AtMost,
            (1.5, 1.0),
            by("acquire_ns", local, Distributed, Posix),
        ),
        line("local idle, reactive ÷ posix", AtMost, (1.5, 1.0), by("acquire_ns", local, Reactive, Posix)),
        line("contended, reactive ÷ posix", AtLeast, (1.0, 3.0), contended(LockState::Contended)),
        line("contended, reactive, smallest share", AtLeast, (0.5, 0.9), share(LockState::Contended)),
        line("back to back, reactive ÷ posix", AtLeast, (1.0, 3.0), contended(LockState::BackToBack)),
        line("back to back, reactive, smallest share", AtLeast, (0.5, 0.9), share(LockState::BackToBack)),
        line(
            "remote idle, central ÷ endpoint",
            AtMost,
            (1.2, 1.05),
            by("acquire_ns", remote, Central, Endpoint),
        ),
        line("remote idle, hosts at the agent ÷ link", AtMost, (1.2, 1.05), at_agent),
        line("remote idle, hosts ÷ etcd", AtMost, (0.1, 0.1), by("acquire_ns", remote, Hosts, Etcd)),
        line(
            "contended, hosts ÷ etcd",
            AtLeast,
            (10.0, 10.0),
            by("acquisitions_per_s", LockState::Contended, Hosts, Etcd),
        ),
        line("next grant after kill -9, same host, p99, ms", AtMost, (50.0, 5.0), killed(Reactive)),
        line("next grant after kill -9, other host, p99, ms", AtMost, (1000.0, 100.0), killed(Hosts)),
    ]
}

fn ratio(above: Found<'_>, below: Found<'_>) -> Result<(f64, String), String> {
    let (above, below) = (above?, below?);
    let ratio = above.divided_by(below).ok_or("the figure to divide by is zero")?;
    let text = |r: &Record| in_unit(r.value, &r.unit);
    Ok((ratio, format!("{} ÷ {}", text(above), text(below))))
}

fn dcas(results: &Results) -> Result<(f64, String), String> {
    let of = |metric| {
        dcas_figure(results, metric, "guerraoui", 1, 2)
            .ok_or_else(|| reason(results, "dcas", "guerraoui", "guerraoui was not part of this run"))
    };
    ratio(of("dcas_ns"), of("cas_ns"))
}

fn beside_robust(results: &Results, structure: Structure) -> Result<(f64, String), String> {
    let of = |algorithm| {
        figure(results, (structure, None), (algorithm, Sharing::Processes), 2, 0).ok_or_else(String::new)
    };
    ratio(of(StructureAlgorithm::Guerraoui), of(StructureAlgorithm::Robust))
}

/// Threads beside threads.
fn beside_dashmap(results: &Results, procs: u32) -> Result<(f64, String), String> {
    let of = |algorithm| {
        let panel = (Structure::HashMap, Some(90));
        figure(results, panel, (algorithm, Sharing::Threads), procs, 0).ok_or_else(String::new)
    };
    ratio(of(StructureAlgorithm::Guerraoui), of(StructureAlgorithm::DashMap))
}

fn beside_stopped(results: &Results) -> Result<(f64, String), String> {
    let is_ours = |r: &&Record| r.algorithm == "guerraoui" && r.text("sharing") == Some("processes");
    let mut worst: Option<(f64, String)> = None;
    for r in results.of("structures", "operations_per_s").filter(is_ours) {
        let structure = r.text("structure").unwrap_or_default();
        if r.number("stopped") != Some(1) {
            continue;
        }
        let same =
            |o: &&Record| is_ours(o) && o.procs == r.procs && o.waiting == r.waiting && o.extra == r.extra;
        let without = results.of("structures", WITHOUT).find(same).ok_or_else(String::new);
        let (ratio, detail) = ratio(Ok(r), without)?;
        if worst.as_ref().is_none_or(|(least, _)| ratio < *least) {
            worst = Some((ratio, format!("{structure}, {} processes: {detail}", r.procs)));
        }
    }
    worst.ok_or_else(String::new)
}

fn recovery(results: &Results) -> Result<(f64, String), String> {
    let ours = results.of("structures", "recovery_ms").filter(|r| r.algorithm == "guerraoui");
    let worst = ours.max_by(|a, b| a.value.total_cmp(&b.value)).ok_or_else(String::new)?;
    let pool = worst.number("pool").unwrap_or(0);
    let structure = worst.text("structure").unwrap_or_default();
    Ok((worst.value, format!("{structure}, {pool} descriptors, {} kills", worst.runs)))
}

/// The run's own reason why something is missing, or another one.
fn reason(results: &Results, experiment: &str, algorithm: &str, otherwise: &str) -> String {
    let reason = results.reason(experiment, algorithm, None, &[]);
    reason.map_or_else(|| otherwise.to_string(), |reason| format!("{algorithm}: {reason}"))
}

fn stress<'a>(results: &'a Results, algorithm: &str, waiting: &str, writers: u64) -> Found<'a> {
    results.best("stress", "messages_per_s", algorithm, waiting, &[("writers", writers)]).ok_or_else(|| {
        let otherwise = match (results.has("stress"), algorithm) {
            (true, "open-mpi") if !results.asked.peers => "needs --peers".into(),
            (true, _) => format!("{algorithm} ({waiting}) with {writers} writers was not part of this run"),
            (false, _) => "the stress test was not part of this run".into(),
        };
        reason(results, "stress", algorithm, &otherwise)
    })
}

fn round_trip(results: &Results) -> Result<(f64, String), String> {
    let ours = results
        .best("logp", "round_trip_ns", OURS, ADAPTIVE, &[])
        .ok_or_else(|| reason(results, "logp", OURS, "towpath (adaptive) in logp was not part of this run"));
    // The floor that was taken between the rounds of the same experiment, not the one of the
    // experiment `floor`.
    let floor = results
        .best("logp", "round_trip_ns", "hardware", "none", &[("lines", 2)])
        .ok_or_else(|| reason(results, "logp", "hardware", "the floor was not part of this run"));
    let measured = results.best("logp", "round_trip_over_floor", OURS, ADAPTIVE, &[]);
    match measured {
        Some(r) => Ok((r.value, ratio(ours, floor).map(|(_, detail)| detail).unwrap_or_default())),
        None => ratio(ours, floor),
    }
}

fn best_other(results: &Results) -> Result<(f64, String), String> {
    let best = CLAIM_ALGORITHMS
        .iter()
        .filter(|a| a.name != OURS)
        .filter_map(|a| Some((stress(results, a.name, ADAPTIVE, 7).ok()?, a.name)))
        .max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let ours = stress(results, OURS, ADAPTIVE, 7);
    let (other, name) = match best {
        Some(best) => best,
        None => {
            return Err(ours.err().unwrap_or_else(|| "no other claim algorithm was part of this run".into()));
        }
    };
    ratio(ours, Ok(other)).map(|(ratio, detail)| (ratio, format!("{detail} ({name})")))
}

fn worst_kept(results: &Results, fifo: bool) -> Result<(f64, String), String> {
    let mut kept = Vec::new();
    let mut why = String::new();
    for algorithm in CLAIM_ALGORITHMS.iter().filter(|a| a.name != OURS && a.fifo == fifo) {
        let rate = |writers| stress(results, algorithm.name, ADAPTIVE, writers);
        match ratio(rate(15), rate(1)) {
            Ok((ratio, detail)) => kept.push((ratio, format!("{detail} ({})", algorithm.name))),
            Err(reason) => why = reason,
        }
    }
    kept.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).ok_or(why)
}

fn bulk(results: &Results) -> Result<(f64, String), String> {
    let at = |algorithm: &str, waiting: &str| {
        results.best("bulk", "bytes_per_s", algorithm, waiting, &[("bytes", 1 << 20)]).ok_or_else(|| {
            reason(results, "bulk", algorithm, &format!("{algorithm} at 1 MiB was not part of this run"))
        })
    };
    ratio(at(OURS, ADAPTIVE), at("memcpy", "none"))
}

/// The targets as a table.
pub fn targets_table(results: &Results) -> Table {
    let rows = targets(results)
        .into_iter()
        .map(|f| {
            let kind = match f.reach {
                Reach::Aim | Reach::Met => Kind::Good,
                Reach::Missed(_) => Kind::Bad,
                Reach::NotMeasured(_) => Kind::Missing,
            };
            let ours = f.ours.map_or(Cell::new("–", Kind::Missing), |r| Cell::new(digits(r), Kind::Figure));
            vec![
                Cell::text(&f.what),
                ours,
                Cell::text(&f.detail),
                Cell::text(f.must_text()),
                Cell::text(f.aim.to_string()),
                Cell::new(f.reach_text(), kind),
            ]
        })
        .collect();
    Table {
        experiment: "targets",
        title: "Targets: ratios within this run".into(),
        note: "Absolute figures drift on a shared machine; each ratio is therefore the median of the ratios within \
               the rounds of one experiment, and need not be that of the medians beside it.".into(),
        header: header(&["figure", "ours", "from", "must reach", "aim", "verdict"]),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::example_results;

    #[test]
    fn verdicts_follow_the_bounds_in_both_senses() {
        use Sense::{AtLeast, AtMost};
        assert_eq!(judge(1.2, AtMost, 1.5, 1.25), Reach::Aim);
        assert_eq!(judge(1.5, AtMost, 1.5, 1.25), Reach::Met);
        assert_eq!(judge(3.0, AtMost, 1.5, 1.25), Reach::Missed(1.0));
        assert_eq!(judge(3.0, AtLeast, 1.5, 3.0), Reach::Aim);
        assert_eq!(judge(1.5, AtLeast, 1.5, 3.0), Reach::Met);
        assert_eq!(judge(0.75, AtLeast, 1.5, 3.0), Reach::Missed(0.5));
    }

    #[test]
    fn figures_are_ratios_of_records_of_this_run() {
        let results = example_results();
        let figures = targets(&results);
        assert_eq!(figures.len(), 8);
        // The fakes' rates fall with the square root of the number of writers, and Open MPI's fake
        // is 1.8 times as slow as ours.
        let by = |start: &str| figures.iter().find(|f| f.what.starts_with(start)).unwrap();
        let near = |figure: &Target, value: f64| (figure.ours.unwrap() - value).abs() < 1e-9;
        assert!(near(by("one-way stream"), 1.8), "{figures:?}");
        assert!(near(by("stress, 7 writers ÷ 1"), 1.0 / 7f64.sqrt()));
        assert!(near(by("stress, 7 writers ÷ the best"), 1.3));
        assert!(by("stress, 7 writers ÷ the best").detail.contains("lock-free"));
        assert!(matches!(by("stress, 7 writers ÷ 1").reach, Reach::Missed(_)));
        assert!(by("stress, 7 writers ÷ 1").reach_text().contains("missed by"));
        assert_eq!(by("stress, 7 writers ÷ the best").must_text(), "≥ 1.15");
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let mut results = example_results();
        results.records.retain(|r| r.algorithm != "open-mpi" && r.experiment != "logp");
        results.records.retain(|r| r.experiment != "bulk" || r.number("bytes") != Some(1 << 20));
        let figures = targets(&results);
        let stream = figures.iter().find(|f| f.what.starts_with("one-way")).unwrap();
        assert_eq!(stream.reach_text(), "not measured: needs --peers");
        assert_eq!(stream.ours, None);
        let bulk = figures.iter().find(|f| f.what.starts_with("bulk")).unwrap();
        assert!(matches!(&bulk.reach, Reach::NotMeasured(why) if why.contains("1 MiB")), "{bulk:?}");
        assert!(!figures.iter().any(|f| f.experiment == "logp"), "what was not asked for is not missing");
    }
}
