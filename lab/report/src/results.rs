//! The results of a run: records, missing subjects, and ways to look figures up.

use towpath_host::{Host, SharedCores};

use crate::names::{ADAPTIVE, CLAIM_ALGORITHMS, OURS};
use crate::record::{Metric, Record, RecordSubject};

/// Experiments that kill users of primitives.
const WITH_KILLS: [&str; 7] = ["locks", "rw-locks", "queues", "barriers", "broadcast", "pool", "kills"];

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The subject that was not measured.
    pub subject: RecordSubject,
    /// The reason.
    pub reason: String,
}

/// The settings of a run that its report names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Waiting policies, by name.
    pub waiting: Vec<String>,
    /// Number of rounds.
    pub runs: u32,
    /// Seed of pseudo-random choices.
    pub seed: u64,
    /// True if the peers were to be measured too.
    pub peers: bool,
}

/// Everything that tables and the report are made from.
#[derive(Clone, Debug)]
pub struct Results {
    /// The machine.
    pub host: Host,
    /// The settings that the report names.
    pub asked: Asked,
    /// The figures.
    pub records: Vec<Record>,
    /// The missing subjects.
    pub missing: Vec<Missing>,
    /// Duration of the whole run, in seconds.
    pub seconds: f64,
    /// Neighbours that computed during the run.
    pub shared_cores: Option<SharedCores>,
}

/// One line of a table or of a plot: a contender, its waiting policy, its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    rank: usize,
    /// The claim algorithm or peer.
    pub algorithm: String,
    /// The waiting policy.
    pub waiting: String,
    /// The path of a bulk transfer; empty if there is only one.
    pub path: String,
}

impl Row {
    fn of(record: &Record) -> Row {
        let rank = CLAIM_ALGORITHMS.iter().position(|a| a.name == record.algorithm);
        Row {
            rank: match (rank, record.algorithm.as_str()) {
                (Some(rank), _) => rank,
                (None, "hardware" | "memcpy" | "two copies") => usize::MAX,
                (None, _) => CLAIM_ALGORITHMS.len(),
            },
            algorithm: record.algorithm.clone(),
            waiting: record.waiting.clone(),
            path: record.text("path").unwrap_or_default().into(),
        }
    }

    /// Name in tables and plots.
    pub fn label(&self) -> String {
        let mut label = match self.algorithm.as_str() {
            "hardware" => "floor (two lines)".to_string(),
            name => name.to_string(),
        };
        if !matches!(self.waiting.as_str(), ADAPTIVE | "own" | "none" | "") {
            label.push_str(&format!(", {}", self.waiting));
        }
        if !self.path.is_empty() {
            label.push_str(&format!(", {}", self.path));
        }
        label
    }

    /// The row without its path.
    #[must_use]
    pub fn without_path(mut self) -> Row {
        self.path.clear();
        self
    }

    /// Returns whether it is one of our claim algorithms.
    pub fn is_ours(&self) -> bool {
        self.rank < CLAIM_ALGORITHMS.len()
    }

    /// Returns whether it is the machine itself.
    pub fn is_floor(&self) -> bool {
        self.rank == usize::MAX
    }
}

fn has_numbers(record: &Record, extra: &[(&str, u64)]) -> bool {
    extra.iter().all(|(key, value)| record.number(key) == Some(*value))
}

/// An experiment and the circumstances of one of its figures: `stress writers 15`.
fn place(subject: &RecordSubject) -> String {
    let mut text = subject.experiment.clone();
    for (key, value) in &subject.extra {
        text.push_str(&format!(" {key} {}", crate::record::plainly(value)));
    }
    text
}

impl Results {
    /// Makes up the results of a run on a machine with `cores` cores: subject, metric,
    /// and the value of each round. Without rounds there is no record.
    pub fn from_figures(figures: &[(RecordSubject, Metric, Vec<f64>)], cores: u32) -> Results {
        let host = Host { cores, ..Host::detect("none") };
        let records = figures
            .iter()
            .filter_map(|(subject, metric, samples)| subject.record(*metric, samples, 1, &host))
            .collect();
        let asked = Asked { waiting: vec![ADAPTIVE.into()], runs: 1, seed: 1, peers: false };
        Results { host, asked, records, missing: Vec::new(), seconds: 1.0, shared_cores: None }
    }

    /// The run's own reason why it did not measure something: under any waiting policy if
    /// none is given, and with at least these extra fields.
    pub fn reason(
        &self,
        experiment: &str,
        algorithm: &str,
        waiting: Option<&str>,
        extra: &[(&str, u64)],
    ) -> Option<&str> {
        let there = |s: &RecordSubject| {
            s.experiment == experiment
                && s.algorithm == algorithm
                && waiting.is_none_or(|w| s.waiting == w)
                && extra.iter().all(|(key, value)| s.extra.get(*key).and_then(|v| v.as_u64()) == Some(*value))
        };
        self.missing.iter().find(|m| there(&m.subject)).map(|m| m.reason.as_str())
    }

    /// Algorithms of which nothing was measured, each with the reason.
    ///
    /// All that is missing, if there is no record at all.
    pub fn unmeasured(&self, algorithms: &[String]) -> Vec<String> {
        let reason = |algorithm: &str| {
            let of = |name: &str| self.missing.iter().find(|m| m.subject.algorithm == name);
            let missing = of(algorithm).or_else(|| of("all"));
            missing.map_or("no variant has these participants and options", |m| m.reason.as_str())
        };
        let has = |algorithm: &String| self.records.iter().any(|r| r.algorithm == *algorithm);
        let mut all: Vec<String> = algorithms
            .iter()
            .filter(|algorithm| !has(algorithm))
            .map(|algorithm| format!("{algorithm}: {}", reason(algorithm)))
            .collect();
        if all.is_empty() && self.records.is_empty() {
            all = self
                .missing_summary()
                .into_iter()
                .map(|(_, subject, why)| format!("{subject}: {why}"))
                .collect();
            if all.is_empty() {
                all.push("all: no variant has these participants and options".into());
            }
        }
        all
    }

    /// The records of one metric of one experiment.
    pub fn of<'a>(&'a self, experiment: &'a str, metric: &'a str) -> impl Iterator<Item = &'a Record> {
        self.records.iter().filter(move |r| r.experiment == experiment && r.metric == metric)
    }

    /// The rows of an experiment: ours first, then the peers, then the floor.
    pub fn rows(&self, experiment: &str) -> Vec<Row> {
        let mut rows: Vec<Row> =
            self.records.iter().filter(|r| r.experiment == experiment).map(Row::of).collect();
        rows.sort();
        rows.dedup();
        rows
    }

    /// The rows of a short table: the default algorithm under its default policy, the
    /// best of the other claim algorithms, the two best peers, and the floor, by the mean of a
    /// metric over all records with these extra fields.
    pub fn leaders(&self, experiment: &str, metric: &str, extra: &[(&str, u64)], smaller: bool) -> Vec<Row> {
        let mean = |row: &Row| {
            let values: Vec<f64> = self
                .of(experiment, metric)
                .filter(|r| Row::of(r) == *row && has_numbers(r, extra) && r.value > 0.0)
                .map(|r| r.value.ln())
                .collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let mut ranked: Vec<(f64, Row)> =
            self.rows(experiment).into_iter().filter_map(|row| Some((mean(&row)?, row))).collect();
        ranked.sort_by(|a, b| if smaller { a.0.total_cmp(&b.0) } else { b.0.total_cmp(&a.0) });
        let rows = || ranked.iter().map(|(_, row)| row);
        let is_default = |row: &&Row| row.algorithm == OURS && row.waiting == ADAPTIVE;
        let mut leaders: Vec<Row> = rows().filter(is_default).take(1).cloned().collect();
        leaders.extend(rows().filter(|r| r.is_ours() && r.algorithm != OURS).take(1).cloned());
        leaders.extend(rows().filter(|r| !r.is_ours() && !r.is_floor()).take(2).cloned());
        leaders.extend(rows().filter(|r| r.is_floor()).take(1).cloned());
        leaders
    }

    /// The record of a row, with extra fields that must have the given numbers.
    pub fn get(&self, experiment: &str, metric: &str, row: &Row, extra: &[(&str, u64)]) -> Option<&Record> {
        self.records.iter().find(|r| {
            r.experiment == experiment && r.metric == metric && Row::of(r) == *row && has_numbers(r, extra)
        })
    }

    /// The record of an algorithm under a waiting policy: the largest, where there are
    /// several (bulk by several paths).
    pub fn best(
        &self,
        experiment: &str,
        metric: &str,
        algorithm: &str,
        waiting: &str,
        extra: &[(&str, u64)],
    ) -> Option<&Record> {
        self.records
            .iter()
            .filter(|r| r.experiment == experiment && r.metric == metric && has_numbers(r, extra))
            .filter(|r| r.algorithm == algorithm && r.waiting == waiting)
            .max_by(|a, b| a.value.total_cmp(&b.value))
    }

    /// Its median.
    pub fn value(
        &self,
        experiment: &str,
        metric: &str,
        algorithm: &str,
        waiting: &str,
        extra: &[(&str, u64)],
    ) -> Option<f64> {
        self.best(experiment, metric, algorithm, waiting, extra).map(|r| r.value)
    }

    /// The different numbers that an extra field has in an experiment, in order.
    pub fn numbers(&self, experiment: &str, key: &str) -> Vec<u64> {
        let mut numbers: Vec<u64> = self
            .records
            .iter()
            .filter(|r| r.experiment == experiment)
            .filter_map(|r| r.number(key))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns whether an experiment has any figure.
    pub fn has(&self, experiment: &str) -> bool {
        self.records.iter().any(|r| r.experiment == experiment)
    }

    /// The missing subjects, once for each contender and reason: `(experiments and
    /// circumstances, contender, reason)`.
    pub fn missing_summary(&self) -> Vec<(String, String, String)> {
        let mut lines: Vec<(Vec<String>, String, String)> = Vec::new();
        for missing in &self.missing {
            let subject = match missing.subject.waiting.as_str() {
                ADAPTIVE | "own" | "none" | "" => missing.subject.algorithm.clone(),
                waiting => format!("{}, {waiting}", missing.subject.algorithm),
            };
            let place = place(&missing.subject);
            match lines.iter_mut().find(|(_, w, reason)| *w == subject && *reason == missing.reason) {
                Some((places, _, _)) if places.contains(&place) => {}
                Some((places, _, _)) => places.push(place),
                None => lines.push((vec![place], subject, missing.reason.clone())),
            }
        }
        lines.into_iter().map(|(places, subject, reason)| (places.join(", "), subject, reason)).collect()
    }

    /// The records as JSON lines.
    pub fn to_json_lines(&self) -> String {
        self.records.iter().map(|r| r.to_json() + "\n").collect()
    }

    /// Defects that the tests with kills found: algorithms of ours that lost, doubled or
    /// leaked something.
    pub fn defects(&self) -> Vec<String> {
        let of = |experiment: &'static str, metrics: &'static [&'static str]| {
            metrics.iter().flat_map(move |&metric| {
                self.of(experiment, metric).filter(|r| r.value > 0.0).map(move |r| {
                    let what = r.text("structure").map_or(String::new(), |s| format!("{s}, "));
                    format!("{what}{} ({}): {} = {:.0}", r.algorithm, r.waiting, metric, r.value)
                })
            })
        };
        let of_kills =
            |experiment| of(experiment, &["hung", "lost", "duplicated", "leaked_slots", "inconsistent"]);
        of("crash", &["lost", "duplicated", "leaked_slots"])
            .chain(of("structures", &["lost", "leaked_descriptors", "inconsistent"]))
            .chain(WITH_KILLS.into_iter().flat_map(of_kills))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::metrics::{BYTES_PER_S, GAP, LOST, MESSAGES_PER_S};

    fn example_results() -> Results {
        let mut figures = Vec::new();
        for (algorithm, waiting, rate) in [
            ("towpath", ADAPTIVE, 20e6),
            ("ticket", ADAPTIVE, 10e6),
            ("lock-free", ADAPTIVE, 15e6),
            ("pipe", "own", 1e6),
            ("crossbeam", "own", 30e6),
            ("open-mpi", "own", 12e6),
        ] {
            for writers in [1, 3, 7, 15] {
                let subject =
                    RecordSubject::new("stress", algorithm, waiting, writers + 1).with("writers", writers);
                figures.push((subject, MESSAGES_PER_S, vec![rate / f64::from(writers)]));
            }
        }
        figures.push((
            RecordSubject::new("bulk", "towpath", ADAPTIVE, 2).with("bytes", 64),
            BYTES_PER_S,
            vec![1e9],
        ));
        figures.push((
            RecordSubject::new("bulk", "memcpy", "none", 1).with("bytes", 64),
            BYTES_PER_S,
            vec![9e9],
        ));
        figures.push((RecordSubject::new("logp", "towpath", ADAPTIVE, 2), GAP, vec![40.0]));
        figures.push((RecordSubject::new("crash", "towpath", ADAPTIVE, 8), LOST, vec![0.0]));
        let mut results = Results::from_figures(&figures, 2);
        let missing = |experiment, procs| Missing {
            subject: RecordSubject::new(experiment, "mpich", "own", procs),
            reason: "it is not installed".into(),
        };
        results.missing = vec![missing("logp", 2), missing("stress", 2)];
        results
    }

    #[test]
    fn leaders_are_ours_the_best_rivals_and_the_floor() {
        let results = example_results();
        let names = |rows: Vec<Row>| rows.into_iter().map(|r| r.algorithm).collect::<Vec<_>>();
        let all = names(results.leaders("stress", "messages_per_s", &[], false));
        assert_eq!(all, ["towpath", "lock-free", "crossbeam", "open-mpi"]);
        assert_eq!(names(results.leaders("stress", "messages_per_s", &[], true))[1], "ticket");
        assert_eq!(names(results.leaders("bulk", "bytes_per_s", &[], false)), ["towpath", "memcpy"]);
    }

    #[test]
    fn reason_is_found_by_experiment_policy_and_fields() {
        let mut results = example_results();
        assert_eq!(results.reason("stress", "mpich", None, &[]), Some("it is not installed"));
        assert_eq!(results.reason("stress", "mpich", Some("spin"), &[]), None);
        assert_eq!(results.reason("stress", "mpich", None, &[("writers", 7)]), None);
        results.missing[1].subject = results.missing[1].subject.clone().with("writers", 7);
        assert!(results.reason("stress", "mpich", Some("own"), &[("writers", 7)]).is_some());
    }

    #[test]
    fn algorithms_without_a_record_are_named_with_the_reason() {
        let results = example_results();
        let named = ["towpath", "mpich", "pipe"].map(str::to_owned);
        let unmeasured = results.unmeasured(&named);
        assert!(unmeasured.contains(&"mpich: it is not installed".to_owned()), "{unmeasured:?}");
        assert!(!unmeasured.iter().any(|line| line.starts_with("towpath")));
        assert!(results.unmeasured(&[]).is_empty());
    }

    #[test]
    fn run_without_records_or_reasons_is_told() {
        let results = Results { records: Vec::new(), missing: Vec::new(), ..example_results() };
        assert_eq!(results.unmeasured(&[]), ["all: no variant has these participants and options"]);
    }

    #[test]
    fn rows_are_ours_then_peers_then_the_floor() {
        let results = example_results();
        let rows = results.rows("stress");
        let ours = rows.iter().take_while(|r| r.is_ours()).count();
        assert!(ours >= 3);
        assert!(rows[ours..].iter().all(|r| !r.is_ours()));
        assert_eq!(rows[ours - 1].algorithm, "towpath");
        assert!(results.rows("bulk").last().expect("bulk was measured").is_floor());
    }

    #[test]
    fn figures_are_found_by_what_distinguishes_them() {
        let results = example_results();
        let one =
            results.value("stress", "messages_per_s", "towpath", "adaptive", &[("writers", 1)]).unwrap();
        let seven =
            results.value("stress", "messages_per_s", "towpath", "adaptive", &[("writers", 7)]).unwrap();
        assert!(one > seven);
        assert_eq!(results.value("stress", "messages_per_s", "towpath", "park", &[("writers", 1)]), None);
        assert_eq!(results.numbers("stress", "writers"), [1, 3, 7, 15]);
    }

    #[test]
    fn what_is_missing_is_told_once() {
        let summary = example_results().missing_summary();
        let mpich: Vec<_> = summary.iter().filter(|(_, subject, _)| subject == "mpich").collect();
        assert_eq!(mpich.len(), 1, "{summary:?}");
        assert!(mpich[0].0.contains("logp") && mpich[0].0.contains("stress"));
        let mut results = example_results();
        results.missing = [7, 15, 7]
            .map(|writers| Missing {
                subject: RecordSubject::new("stress", "pipe", "own", 8).with("writers", writers),
                reason: "no room".into(),
            })
            .to_vec();
        let told =
            ("stress writers 7, stress writers 15".to_string(), "pipe".to_string(), "no room".to_string());
        assert_eq!(results.missing_summary(), [told]);
    }

    #[test]
    fn damage_is_a_defect() {
        let mut results = example_results();
        assert!(results.defects().is_empty());
        let lost = results.records.iter_mut().find(|r| r.metric == "lost").unwrap();
        lost.value = 2.0;
        assert_eq!(results.defects().len(), 1);
    }
}
