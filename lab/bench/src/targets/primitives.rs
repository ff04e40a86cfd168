//! Targets of locks, queues, barriers, rings and pools: ratios to the best of the others.

use super::Sense::{AtLeast, AtMost};
use super::{Found, Sense, Target, ratio};
use crate::structures::Sharing::{self, Processes, Threads};
use towpath_report::format::digits;
use towpath_report::record::Record;
use towpath_report::results::Results;

/// Experiments of which a run may be about a part only.
pub(super) const EXPERIMENTS: [&str; 7] =
    ["locks", "rw-locks", "queues", "barriers", "counter", "broadcast", "pool"];

const RATE: &str = "acquisitions_per_s";
const MESSAGES: &str = "messages_per_s";

/// One experiment's records by one kind of participants, and their number.
#[derive(Clone, Copy)]
struct Group<'a> {
    results: &'a Results,
    experiment: &'static str,
    sharing: Sharing,
    procs: u32,
    /// Size of a message or buffer; `None`: the experiment has no sizes.
    bytes: Option<u64>,
}

type Figure = Result<(f64, String), String>;

impl<'a> Group<'a> {
    /// The figure of an algorithm, under the adaptive policy where it has one.
    fn of(&self, metric: &str, algorithm: &str) -> Found<'a> {
        let is_it = |r: &&Record| {
            r.algorithm == algorithm
                && r.procs == self.procs
                && r.text("sharing") == Some(self.sharing.name())
                && r.number("copies").is_none_or(|copies| copies == 1)
                && (self.bytes.is_none() || r.number("bytes") == self.bytes)
                && matches!(r.waiting.as_str(), "own" | "adaptive")
        };
        let found = self.results.records.iter().filter(|r| r.experiment == self.experiment);
        found.filter(|r| r.metric == metric).find(is_it).ok_or_else(|| {
            let reason = self.results.reason(self.experiment, algorithm, None, &[]);
            reason.map_or_else(String::new, |reason| format!("{algorithm}: {reason}"))
        })
    }

    /// The best of some, which is the largest.
    fn best(&self, metric: &str, algorithms: &[&str]) -> Found<'a> {
        let all = algorithms.iter().filter_map(|algorithm| self.of(metric, algorithm).ok());
        all.max_by(|a, b| a.value.total_cmp(&b.value)).ok_or_else(String::new)
    }

    /// A rate divided by the best of some.
    fn over(&self, metric: &str, ours: &str, others: &[&str]) -> Figure {
        let best = self.best(metric, others);
        let name = best.as_ref().map_or("", |best| best.algorithm.as_str()).to_owned();
        ratio(self.of(metric, ours), best).map(|(ratio, detail)| (ratio, format!("{detail} ({name})")))
    }

    fn value(&self, metric: &str, algorithm: &str) -> Figure {
        self.of(metric, algorithm).map(|r| (r.value, digits(r.value)))
    }

    /// Participants in words.
    fn participants(&self) -> String {
        let of = match (self.sharing, self.procs) {
            (Threads, 1) => "1 thread".to_owned(),
            (Processes, 1) => "1 process".to_owned(),
            (sharing, procs) => format!("{procs} {}", sharing.name()),
        };
        match self.bytes {
            Some(bytes) => format!("{of}, {bytes} B"),
            None => of,
        }
    }

    fn target(&self, what: &str, sense: Sense, bounds: (f64, f64), found: Figure) -> Target {
        Target::new(self.experiment, &format!("{}, {what}", self.participants()), sense, bounds, found)
    }
}

/// The targets of all these experiments.
pub(super) fn of_primitives(results: &Results) -> Vec<Target> {
    let group = |experiment, sharing, procs| Group { results, experiment, sharing, procs, bytes: None };
    let mut all = Vec::new();
    of_locks(&mut all, group);
    for (sharing, procs, other) in [
        (Threads, 2, "parking-lot"),
        (Threads, 8, "parking-lot"),
        (Processes, 2, "pthread"),
        (Processes, 8, "pthread"),
    ] {
        let here = group("rw-locks", sharing, procs);
        let what = format!("95 % reads, rw-lock ÷ {other}");
        all.push(here.target(&what, AtLeast, (1.0, 2.0), here.over(RATE, "rw-lock", &[other])));
    }
    for procs in [1, 2, 8] {
        let here = group("counter", Processes, procs);
        let found = here.over("operations_per_s", "mutex", &["pthread", "pthread-robust"]);
        let what = "a counter under mutex ÷ under pthread's, plain or robust";
        all.push(here.target(what, AtLeast, (1.0, 2.0), found));
    }
    for procs in [2, 4, 8] {
        let here = group("queues", Threads, procs);
        const OURS: [&str; 4] = ["spsc", "mpsc", "mpmc", "per-sender"];
        let ours = here.best(MESSAGES, &OURS).map_or("mpsc", |best| &best.algorithm);
        let found = here.over(MESSAGES, ours, &["crossbeam", "kanal", "crossfire"]);
        let what = format!("{ours} ÷ the best of crossbeam, kanal, crossfire");
        all.push(here.target(&what, AtLeast, (1.0, 1.5), found));
        let between = group("queues", Processes, procs);
        for queue in ["mpsc", "per-sender"] {
            let found = ratio(between.of(MESSAGES, queue), here.of(MESSAGES, queue));
            all.push(between.target(&format!("{queue} ÷ between threads"), AtLeast, (0.8, 1.0), found));
        }
    }
    for procs in [8, 16] {
        let here = group("barriers", Processes, procs);
        let found = ratio(here.of("barrier_us", "robust-barrier"), here.of("barrier_us", "pthread"));
        all.push(here.target("time, robust-barrier ÷ pthread", AtMost, (1.0, 0.5), found));
    }
    of_rings(&mut all, group);
    let sized = |sharing| Group { bytes: Some(1 << 20), ..group("pool", sharing, 3) };
    let found =
        ratio(sized(Processes).of("bytes_per_s", "pool"), sized(Threads).of("bytes_per_s", "crossbeam"));
    let what = "through three stages, pool ÷ crossbeam between threads";
    all.push(sized(Processes).target(what, AtLeast, (0.95, 1.0), found));
    all
}

fn of_locks<'a>(all: &mut Vec<Target>, group: impl Fn(&'static str, Sharing, u32) -> Group<'a>) {
    for (sharing, other, bounds) in [(Threads, "std", (1.1, 1.0)), (Processes, "pthread", (1.0, 0.8))] {
        let alone = group("locks", sharing, 1);
        let found = ratio(alone.of(RATE, other), alone.of(RATE, "mutex"));
        all.push(alone.target(&format!("time with its work, mutex ÷ {other}"), AtMost, bounds, found));
    }
    for procs in [2, 8, 32] {
        let here = group("locks", Threads, procs);
        let found = here.over(RATE, "mutex", &["pthread", "std", "parking-lot"]);
        all.push(here.target("mutex ÷ the best of pthread, std, parking_lot", AtLeast, (1.0, 1.5), found));
        let here = group("locks", Processes, procs);
        for other in ["pthread", "pthread-robust"] {
            let found = here.over(RATE, "mutex", &[other]);
            all.push(here.target(&format!("mutex ÷ {other}"), AtLeast, (1.0, 2.0), found));
        }
    }
    let many = group("locks", Threads, 32);
    let share = many.value("least_share", "mutex");
    all.push(many.target("mutex, smallest share ÷ mean", AtLeast, (0.5, 0.9), share));
    let tail = ratio(many.of("p999_us", "mutex"), many.of("p999_us", "parking-lot"));
    all.push(many.target("99.9 % of the acquisitions, mutex ÷ parking_lot", AtMost, (0.5, 0.1), tail));
    for (procs, fifo) in [(8, "ticket"), (8, "mcs"), (32, "ticket"), (32, "mcs")] {
        let here = group("locks", Threads, procs);
        let found = here.over(RATE, fifo, &["parking-lot-fair"]);
        let what = format!("{fifo} ÷ parking_lot's FairMutex");
        all.push(here.target(&what, AtLeast, (1.0, 3.0), found));
    }
}

fn of_rings<'a>(all: &mut Vec<Target>, group: impl Fn(&'static str, Sharing, u32) -> Group<'a>) {
    let five = Group { bytes: Some(64), ..group("broadcast", Processes, 5) };
    let part = five.value("cpu_fraction", "broadcast");
    all.push(five.target("processor time of a reader, a message each 5 ms", AtMost, (0.05, 0.01), part));
    let wake = five.value("p50_us", "broadcast");
    all.push(five.target("median time until a reader has it, µs", AtMost, (60.0, 30.0), wake));
    for (procs, bytes) in [(2, 64), (2, 64 << 10), (4, 64), (4, 64 << 10)] {
        let here = Group { bytes: Some(bytes), ..group("broadcast", Processes, procs) };
        for (ours, theirs) in [("broadcast", "iceoryx2"), ("broadcast-in-place", "iceoryx2-in-place")] {
            let found = match (here.of(MESSAGES, ours), here.of(MESSAGES, theirs)) {
                (Ok(_), Err(reason)) if reason.is_empty() => Err("needs --peers".to_owned()),
                (ours, theirs) => ratio(ours, theirs),
            };
            all.push(here.target(&format!("{ours} ÷ {theirs}"), AtLeast, (1.5, 4.0), found));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::{Reach, targets};
    use towpath_report::record::RecordSubject;
    use towpath_report::record::metrics::{
        ACQUISITIONS_PER_S, BARRIER_US, LEAST_SHARE, MESSAGES_PER_S, P999_US,
    };

    #[test]
    fn ratios_of_primitives_are_to_the_best_of_the_others() {
        let subject = |experiment, algorithm, sharing: Sharing, procs| {
            RecordSubject::new(experiment, algorithm, "own", procs).with("sharing", sharing.name())
        };
        let ring = subject("broadcast", "broadcast", Processes, 4).with("bytes", 64u64);
        let figures = [
            (subject("locks", "mutex", Threads, 32), ACQUISITIONS_PER_S, vec![6e6]),
            (subject("locks", "std", Threads, 32), ACQUISITIONS_PER_S, vec![3e6]),
            (subject("locks", "parking-lot", Threads, 32), ACQUISITIONS_PER_S, vec![8e6]),
            (subject("locks", "mutex", Threads, 32), LEAST_SHARE, vec![0.6]),
            (subject("locks", "mutex", Threads, 32), P999_US, vec![1.0]),
            (subject("locks", "parking-lot", Threads, 32), P999_US, vec![4.0]),
            (subject("queues", "mpsc", Threads, 4), MESSAGES_PER_S, vec![2e6]),
            (subject("queues", "mpmc", Threads, 4), MESSAGES_PER_S, vec![3e6]),
            (subject("queues", "kanal", Threads, 4), MESSAGES_PER_S, vec![2e6]),
            (subject("queues", "mpsc", Processes, 4), MESSAGES_PER_S, vec![1e6]),
            (subject("barriers", "robust-barrier", Processes, 8), BARRIER_US, vec![3.0]),
            (subject("barriers", "pthread", Processes, 8), BARRIER_US, vec![4.0]),
            (ring, MESSAGES_PER_S, vec![5e6]),
        ];
        let found = targets(&Results::from_figures(&figures, 2));
        let by =
            |what: &str| found.iter().find(|t| t.what.contains(what)).unwrap_or_else(|| panic!("{what}"));
        let near = |what: &str, value: f64| (by(what).ours.unwrap() - value).abs() < 1e-9;
        assert!(near("32 threads, mutex ÷ the best", 0.75), "{found:?}");
        assert!(by("32 threads, mutex ÷ the best").detail.contains("parking-lot"));
        assert!(near("smallest share", 0.6) && near("99.9 %", 0.25));
        assert!(near("4 threads, mpmc ÷ the best", 1.5) && near("4 processes, mpsc", 0.5));
        assert!(near("8 processes, time, robust-barrier", 0.75));
        assert_eq!(by("broadcast ÷ iceoryx2").reach, Reach::NotMeasured("needs --peers".into()));
        assert_eq!(found.len(), 7, "what was not asked for is not missing: {found:?}");
    }
}
