//! Recommendation of a lock, a queue and a barrier for a simulated machine, made from the
//! records of a run.

use serde_json::{Value, json};
use towpath_report::format::digits;
use towpath_report::record::Record;
use towpath_report::record::metrics::TIME_PER_OPERATION;

/// Part by which a time may be longer than the best one and be as good.
const AS_GOOD: f64 = 1.05;

/// Experiments that recommend something, and the noun of it.
pub const ADVISED: [(&str, &str); 3] = [("locks", "lock"), ("queues", "queue"), ("barriers", "barrier")];

/// Name of the lock that `Mutex` has by default.
const DEFAULT_LOCK: &str = "robust";

/// Recommendation of one primitive for a simulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedAdvice {
    /// The experiment: `locks`, `queues`, `barriers`.
    pub experiment: &'static str,
    /// The machine.
    pub machine: String,
    /// Number of processors that take part.
    pub procs: u32,
    /// Name of the primitive.
    pub algorithm: String,
    /// Waiting policy.
    pub waiting: String,
    /// Time for each operation of all processors together, in nanoseconds.
    pub ns: f64,
    /// The recommendation in a sentence, with the others' times.
    pub sentence: String,
}

impl SimulatedAdvice {
    /// The recommendation as a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "experiment": self.experiment,
            "machine": self.machine,
            "participants": self.procs,
            "algorithm": self.algorithm,
            "waiting": self.waiting,
            "sentence": self.sentence,
            "figures": { TIME_PER_OPERATION.name: self.ns },
        })
    }
}

fn label(record: &Record) -> String {
    format!("`{}` under `{}`", record.algorithm, record.waiting)
}

/// Recommendations for the most processors that were measured: one of each experiment.
pub fn advise(records: &[Record]) -> Vec<SimulatedAdvice> {
    ADVISED.iter().filter_map(|&(experiment, noun)| advise_one(records, experiment, noun)).collect()
}

fn advise_one(records: &[Record], experiment: &'static str, noun: &str) -> Option<SimulatedAdvice> {
    let of_it = |r: &&Record| r.experiment == experiment && r.metric == TIME_PER_OPERATION.name;
    let procs = records.iter().filter(of_it).map(|r| r.procs).max()?;
    let mut all: Vec<&Record> = records.iter().filter(of_it).filter(|r| r.procs == procs).collect();
    all.sort_by(|a, b| a.value.total_cmp(&b.value));
    let (best, slowest) = (*all.first()?, *all.last()?);
    let operation = if experiment == "barriers" { "for each processor's passage" } else { "an operation" };
    let mut reasons = vec![format!("{} ns {operation}", digits(best.value))];
    let is_as_good = |r: &&Record| r.value <= AS_GOOD * best.value;
    let as_good: Vec<String> =
        all[1..].iter().copied().filter(|r| is_as_good(r)).take(3).map(label).collect();
    if !as_good.is_empty() {
        reasons.push(format!("as good within 5 %: {}", as_good.join(", ")));
    }
    let times = |r: &Record| digits(r.value / best.value);
    let ours = all.iter().find(|r| experiment == "locks" && r.algorithm == DEFAULT_LOCK);
    if let Some(ours) = ours.filter(|ours| !is_as_good(ours)) {
        reasons.push(format!(
            "{}, which survives a killed owner, takes {} times that",
            label(ours),
            times(ours)
        ));
    }
    if !is_as_good(&slowest) && ours.is_none_or(|ours| ours.algorithm != slowest.algorithm) {
        reasons.push(format!("the slowest, {}, {} times", label(slowest), times(slowest)));
    }
    let sentence = format!(
        "{noun} on `{}` (simulated) among {procs} processors: {} ({}).",
        best.machine,
        label(best),
        reasons.join("; ")
    );
    Some(SimulatedAdvice {
        experiment,
        machine: best.machine.clone(),
        procs,
        algorithm: best.algorithm.clone(),
        waiting: best.waiting.clone(),
        ns: best.value,
        sentence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Effort, Sweep, run};
    use towpath_host::Host;

    fn records(inside: u64) -> Vec<Record> {
        let sweep = Sweep::on("locks", "origin2000", &["mcs", "test-and-set", "robust"], &[1, 32]);
        let sweep = Sweep { run: crate::sim::Run { inside, ..sweep.run.clone() }, ..sweep };
        let host = Host::detect("not pinned");
        let effort = Effort { seeds: 1, threads: 0 };
        run(&sweep.work(200, 0.2).operations(640), effort, &host, &()).unwrap().0
    }

    #[test]
    fn the_fastest_at_the_most_processors_is_recommended() {
        let records = records(0);
        let all = advise(&records);
        let [advice] = &all[..] else { panic!("{all:?}") };
        assert_eq!((advice.algorithm.as_str(), advice.procs), ("mcs", 32));
        let times = records.iter().filter(|r| r.procs == 32 && r.metric == TIME_PER_OPERATION.name);
        let least = times.map(|r| r.value).fold(f64::INFINITY, f64::min);
        assert_eq!(advice.ns, least);
        assert!(advice.sentence.contains("`robust` under `spin`, which survives"), "{}", advice.sentence);
        assert_eq!(advice.to_json()["participants"], 32);
    }

    #[test]
    fn a_longer_critical_section_takes_longer() {
        let time = |inside| advise(&records(inside))[0].ns;
        let (short, long) = (time(0), time(3_000));
        assert!(long > short + 2_500.0, "{short} and {long} ns");
    }
}
