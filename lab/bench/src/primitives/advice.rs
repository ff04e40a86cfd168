//! The recommendation of a lock, a queue, a barrier and a counter, from the records of
//! a run.

use serde_json::{Map, Value, json};
use towpath_report::format::digits;
use towpath_report::record::metrics::{
    ACQUISITIONS_PER_S, BARRIER_US, LEAST_SHARE, MESSAGES_PER_S, OPERATIONS_PER_S, P999_US,
};
use towpath_report::record::{Metric, Record};
use towpath_report::results::Results;

use super::MeasuredKind;
use super::barriers::BarrierKind;
use super::counter::CounterKind;
use super::locks::LockKind;
use super::queues::ValueQueue;
use crate::structures::Sharing;

/// Least share of a participant, by the mean, of a lock that is recommended.
const FAIR: f64 = 0.5;
/// Part of the best figure from which on another one is as good.
const AS_GOOD: f64 = 0.95;

/// Kind of primitive that is recommended.
#[derive(Clone)]
struct AdvisedKind {
    experiment: &'static str,
    noun: &'static str,
    metric: Metric,
    /// Unit of a figure in that of the metric, and its name in the sentence.
    shown: (f64, &'static str),
    is_best_smallest: bool,
    /// Names of ours, the default first.
    ours: Vec<&'static str>,
    /// Names of ours for other values: neither recommended nor compared.
    apart: Vec<&'static str>,
    /// Names of those that go on when a process is killed in the middle.
    survive: &'static [&'static str],
}

fn kinds() -> [AdvisedKind; 5] {
    let is_ours = |kind: &LockKind| matches!(kind, LockKind::Mutex | LockKind::Ours(_));
    let is_our_barrier = |kind: &BarrierKind| matches!(kind, BarrierKind::Robust | BarrierKind::Ours(_));
    let is_our_counter = |kind: &CounterKind| match kind {
        CounterKind::Over(_) => true,
        CounterKind::Under(lock) => is_ours(lock),
    };
    let locks = AdvisedKind {
        experiment: "locks",
        noun: "lock",
        metric: ACQUISITIONS_PER_S,
        shown: (1e6, "million acquisitions a second"),
        is_best_smallest: false,
        ours: LockKind::all().into_iter().filter(is_ours).map(LockKind::name).collect(),
        apart: Vec::new(),
        survive: &["mutex", "robust"],
    };
    [
        AdvisedKind {
            experiment: "rw-locks",
            noun: "readers–writer lock",
            ours: vec![LockKind::RwLock.name()],
            survive: &["rw-lock"],
            ..locks.clone()
        },
        AdvisedKind {
            experiment: "queues",
            noun: "queue",
            metric: MESSAGES_PER_S,
            shown: (1e6, "million values a second"),
            is_best_smallest: false,
            ours: [ValueQueue::Mpmc, ValueQueue::Mpsc, ValueQueue::PerSender, ValueQueue::Spsc]
                .map(ValueQueue::name)
                .to_vec(),
            apart: [ValueQueue::MpscOwned, ValueQueue::PerSenderOwned].map(ValueQueue::name).to_vec(),
            survive: &["mpmc", "mpsc", "per-sender", "spsc"],
        },
        AdvisedKind {
            experiment: "barriers",
            noun: "barrier",
            metric: BARRIER_US,
            shown: (1.0, "µs for an episode"),
            is_best_smallest: true,
            ours: BarrierKind::all().into_iter().filter(is_our_barrier).map(BarrierKind::name).collect(),
            apart: Vec::new(),
            survive: &["robust-barrier"],
        },
        AdvisedKind {
            experiment: "counter",
            noun: "counter",
            metric: OPERATIONS_PER_S,
            shown: (1e6, "million increments a second"),
            is_best_smallest: false,
            ours: CounterKind::all().into_iter().filter(is_our_counter).map(CounterKind::name).collect(),
            apart: Vec::new(),
            survive: &["atomics", "ll-sc", "fetch-op", "mutex", "robust"],
        },
        locks,
    ]
}

/// Recommendation of one primitive for participants of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The experiment: `locks`, `rw-locks`, `queues`, `barriers`, `counter`.
    pub experiment: &'static str,
    /// The participants' kind.
    pub sharing: Sharing,
    /// Their number.
    pub procs: u32,
    /// Name of the primitive.
    pub algorithm: String,
    /// Waiting policy; `own` if it has its own.
    pub waiting: String,
    /// The recommendation in a sentence, with its reasons and the fastest.
    pub sentence: String,
    /// The figures that it rests on.
    pub figures: Vec<(&'static str, f64)>,
}

impl Advice {
    /// The recommendation as a JSON object.
    pub fn to_json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "experiment": self.experiment,
            "sharing": self.sharing.name(),
            "participants": self.procs,
            "algorithm": self.algorithm,
            "waiting": self.waiting,
            "sentence": self.sentence,
            "figures": figures,
        })
    }
}

/// A primitive as it was measured.
#[derive(Clone, Copy)]
struct MeasuredPrimitive<'a> {
    record: &'a Record,
    /// Merit: larger is better.
    merit: f64,
    share: Option<f64>,
}

impl MeasuredPrimitive<'_> {
    fn is_fair(&self) -> bool {
        self.share.is_none_or(|share| share >= FAIR)
    }

    fn label(&self) -> String {
        match self.record.waiting.as_str() {
            "own" => format!("`{}`", self.record.algorithm),
            waiting => format!("`{}` under `{waiting}`", self.record.algorithm),
        }
    }
}

/// Recommendations for the most participants of each kind that were measured.
pub fn advise(results: &Results) -> Vec<Advice> {
    let mut all = Vec::new();
    for kind in kinds() {
        for sharing in Sharing::ALL {
            all.extend(advise_one(results, &kind, sharing));
        }
    }
    // Locks first: most programs use one.
    all.sort_by_key(|advice| (advice.experiment != "locks", advice.experiment));
    all
}

fn figure_beside<'a>(
    results: &'a Results,
    experiment: &'a str,
    of: &Record,
    metric: Metric,
) -> Option<&'a Record> {
    results.of(experiment, metric.name).filter(is_alone).find(|r| {
        (&r.algorithm, &r.waiting, r.procs) == (&of.algorithm, &of.waiting, of.procs)
            && r.text("sharing") == of.text("sharing")
    })
}

/// Returns whether no other copies ran at the same time.
fn is_alone(record: &&Record) -> bool {
    record.number("copies").is_none_or(|copies| copies == 1)
}

fn advise_one(results: &Results, kind: &AdvisedKind, sharing: Sharing) -> Option<Advice> {
    let of_sharing = || {
        let all = results.of(kind.experiment, kind.metric.name).filter(is_alone);
        all.filter(|r| r.text("sharing") == Some(sharing.name()))
    };
    let procs = of_sharing().map(|r| r.procs).max()?;
    let all: Vec<MeasuredPrimitive<'_>> = of_sharing()
        .filter(|r| r.procs == procs && r.value > 0.0)
        .filter(|r| !kind.apart.contains(&r.algorithm.as_str()))
        .map(|record| {
            let share = figure_beside(results, kind.experiment, record, LEAST_SHARE);
            MeasuredPrimitive {
                record,
                merit: if kind.is_best_smallest { 1.0 / record.value } else { record.value },
                share: share.map(|share| share.value),
            }
        })
        .collect();
    let is_ours = |it: &&MeasuredPrimitive<'_>| kind.ours.contains(&it.record.algorithm.as_str());
    // Threads die together.
    let survives = |it: &&MeasuredPrimitive<'_>| {
        sharing == Sharing::Threads || kind.survive.contains(&it.record.algorithm.as_str())
    };
    let candidates: Vec<&MeasuredPrimitive<'_>> = all.iter().filter(is_ours).filter(survives).collect();
    let best = best_of(&candidates, kind.ours.first().copied())?;
    let figure =
        |it: &MeasuredPrimitive<'_>| format!("{} {}", digits(it.record.value / kind.shown.0), kind.shown.1);
    let mut reasons = vec![figure(best)];
    let mut figures = vec![(kind.metric.name, best.record.value)];
    if let Some(share) = best.share {
        reasons.push(format!("the smallest share is {} of the mean", digits(share)));
        figures.push((LEAST_SHARE.name, share));
    }
    let p999 = figure_beside(results, kind.experiment, best.record, P999_US).filter(|_| procs > 1);
    if let Some(p999) = p999 {
        reasons.push(format!("one in a thousand takes longer than {} µs", digits(p999.value)));
        figures.push((P999_US.name, p999.value));
    }
    let but = |it: &MeasuredPrimitive<'_>| {
        let mut but = Vec::new();
        if let Some(share) = it.share.filter(|_| !it.is_fair()) {
            but.push(format!("with a smallest share of {}", digits(share)));
        }
        if !survives(&it) {
            but.push("but does not outlive a process that is killed".into());
        }
        but.iter().map(|but| format!(", {but}")).collect::<String>()
    };
    let faster = faster(&all, best);
    let rivals = all.iter().filter(|it| !is_ours(it));
    let rival = rivals.max_by(|a, b| a.merit.total_cmp(&b.merit));
    let is_rival = |it: &MeasuredPrimitive<'_>| rival.is_some_and(|rival| core::ptr::eq(rival, it));
    if let Some(rival) = rival {
        let times = rival.merit / best.merit;
        // Said once, if none is faster than the fastest of the others.
        let but = faster.filter(|it| is_rival(it)).map_or_else(String::new, but);
        reasons.push(format!(
            "the fastest of the others, {}, is {} times as fast{but}",
            rival.label(),
            digits(times)
        ));
        figures.push(("rival_times", times));
    }
    let participants = match procs {
        1 => format!("For one of {}", sharing.name()),
        _ => format!("Between {procs} {}", sharing.name()),
    };
    let mut sentence =
        format!("{participants} use the {} {}: {}", kind.noun, best.label(), reasons.join(", "));
    if let Some(faster) = faster {
        let times = faster.merit / best.merit;
        if !is_rival(faster) {
            let but = but(faster);
            sentence.push_str(&format!("; {} is {} times as fast{but}", faster.label(), digits(times)));
        }
        figures.push(("faster_times", times));
    }
    sentence.push('.');
    Some(Advice {
        experiment: kind.experiment,
        sharing,
        procs,
        algorithm: best.record.algorithm.clone(),
        waiting: best.record.waiting.clone(),
        sentence,
        figures,
    })
}

/// The fair one with the greatest merit; or the default, if it is as good and as fair.
fn best_of<'a, 'b>(
    candidates: &[&'a MeasuredPrimitive<'b>],
    default: Option<&str>,
) -> Option<&'a MeasuredPrimitive<'b>> {
    let is_any_fair = candidates.iter().any(|it| it.is_fair());
    let fair = || candidates.iter().copied().filter(|it| it.is_fair() || !is_any_fair);
    let best = fair().max_by(|a, b| a.merit.total_cmp(&b.merit))?;
    let defaults = fair().filter(|it| Some(it.record.algorithm.as_str()) == default);
    let default = defaults.max_by(|a, b| a.merit.total_cmp(&b.merit));
    Some(default.filter(|it| it.merit >= best.merit * AS_GOOD).unwrap_or(best))
}

/// The fastest of all, if it is faster beyond doubt.
fn faster<'a, 'b>(
    all: &'a [MeasuredPrimitive<'b>],
    best: &MeasuredPrimitive<'b>,
) -> Option<&'a MeasuredPrimitive<'b>> {
    let fastest = all.iter().max_by(|a, b| a.merit.total_cmp(&b.merit))?;
    let (one, other) = (fastest.record, best.record);
    let ranges_part = one.min > other.max || one.max < other.min;
    (fastest.merit * AS_GOOD > best.merit && ranges_part).then_some(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::example_results;
    use towpath_report::record::RecordSubject;

    fn results(rows: &[(&str, &str, f64, f64)], sharing: Sharing) -> Results {
        let mut results = example_results();
        let host = results.host.clone();
        results.records.clear();
        for (algorithm, waiting, rate, share) in rows {
            let subject = RecordSubject::new("locks", algorithm, waiting, 8).with("sharing", sharing.name());
            for (metric, value) in [(ACQUISITIONS_PER_S, *rate), (LEAST_SHARE, *share)] {
                results.records.extend(subject.record(metric, &[value], 1, &host));
            }
        }
        results
    }

    #[test]
    fn the_fastest_fair_one_is_recommended_and_the_faster_told() {
        let rows = [
            ("mutex", "own", 2e6, 0.6),
            ("ticket", "park", 3e6, 0.9),
            ("test-and-set", "spin", 9e6, 0.1),
            ("std", "own", 8e6, 0.01),
        ];
        let advice = advise(&results(&rows, Sharing::Threads));
        let rival = "the fastest of the others, `std`, is 2.67 times as fast";
        assert!(advice[0].sentence.contains(rival), "{}", advice[0].sentence);
        let [advice] = advice.as_slice() else { panic!("{advice:?}") };
        assert_eq!((advice.algorithm.as_str(), advice.waiting.as_str()), ("ticket", "park"));
        assert!(advice.sentence.contains("3.00 million acquisitions a second"), "{}", advice.sentence);
        let faster = "`test-and-set` under `spin` is 3.00 times as fast, with a smallest share of 0.100";
        assert!(advice.sentence.contains(faster), "{}", advice.sentence);
        assert_eq!(advice.to_json()["figures"]["acquisitions_per_s"], 3e6);
    }

    #[test]
    fn the_default_is_recommended_if_it_is_as_good() {
        let rows = [("mutex", "own", 2.9e6, 0.6), ("ticket", "park", 3e6, 0.9)];
        assert_eq!(advise(&results(&rows, Sharing::Threads))[0].algorithm, "mutex");
    }

    #[test]
    fn between_processes_only_survivors_of_kills_are_recommended() {
        let rows = [("mutex", "own", 2e6, 0.6), ("ticket", "park", 3e6, 0.9), ("pthread", "own", 1e6, 0.9)];
        let advice = advise(&results(&rows, Sharing::Processes));
        assert_eq!(advice[0].algorithm, "mutex");
        assert!(advice[0].sentence.contains("does not outlive a process that is killed"));
    }

    #[test]
    fn what_is_fastest_is_named_once() {
        let rows = [("mutex", "own", 2e6, 0.6), ("pthread", "own", 6e6, 0.3)];
        let sentence = &advise(&results(&rows, Sharing::Processes))[0].sentence;
        let end = "others, `pthread`, is 3.00 times as fast, with a smallest share of 0.300, but does not outlive a process that is killed.";
        assert!(sentence.ends_with(end), "{sentence}");
    }

    #[test]
    fn a_barrier_that_takes_longer_is_no_faster() {
        let mut results = results(&[], Sharing::Threads);
        let host = results.host.clone();
        for (algorithm, us) in [("robust-barrier", 10.0), ("std", 40.0)] {
            let subject =
                RecordSubject::new("barriers", algorithm, "own", 8).with("sharing", Sharing::Threads.name());
            results.records.extend(subject.record(BARRIER_US, &[us], 1, &host));
        }
        let sentence = &advise(&results)[0].sentence;
        assert!(sentence.contains("10.0 µs for an episode"), "{sentence}");
        assert!(sentence.contains("`std`, is 0.250 times as fast"), "{sentence}");
    }

    #[test]
    fn counter_without_a_lock_is_recommended_if_it_is_the_fastest() {
        let mut results = results(&[], Sharing::Processes);
        let host = results.host.clone();
        for (algorithm, rate) in [("mutex", 2e6), ("atomics", 5e6), ("pthread", 3e6)] {
            let subject =
                RecordSubject::new("counter", algorithm, "own", 8).with("sharing", Sharing::Processes.name());
            results.records.extend(subject.record(OPERATIONS_PER_S, &[rate], 1, &host));
        }
        let sentence = &advise(&results)[0].sentence;
        let begin = "Between 8 processes use the counter `atomics`: 5.00 million increments a second";
        assert!(sentence.starts_with(begin), "{sentence}");
        assert!(sentence.contains("`pthread`, is 0.600 times as fast"), "{sentence}");
    }

    #[test]
    fn rivals_alone_are_not_recommended() {
        assert!(advise(&results(&[("std", "own", 2e6, 0.6)], Sharing::Threads)).is_empty());
    }
}
