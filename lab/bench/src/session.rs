//! A whole run: the experiments one after the other, their results to the console, to
//! stdout as JSON, and to the report.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::experiment::{Bench, Measure, Sink};
use crate::experiments::kills;
use crate::settings::BenchSettings;
use crate::shown::report;
use crate::transport::Contender;
use towpath_host::Error;
use towpath_host::topology::Placement;
use towpath_host::{CoreLooks, Host};
use towpath_report::console::{self, ConsoleBar};
use towpath_report::files::{prepare, write};
use towpath_report::record::{Record, RecordSubject};
use towpath_report::results::{Missing, Results};

/// Shortest time of an experiment that is told before it begins.
const WORTH_A_REMARK: Duration = Duration::from_secs(15);

/// A time to wait, in seconds or whole minutes.
fn roughly(time: Duration) -> String {
    match time.as_secs_f64().ceil() {
        seconds if seconds <= 90.0 => format!("{seconds} s"),
        seconds => format!("{} minutes", (seconds / 60.0).ceil()),
    }
}

/// A run: settings, experiments, contenders, and the destination of the results.
pub struct Session {
    /// The settings.
    pub settings: BenchSettings,
    /// The experiments.
    pub experiments: Vec<&'static dyn Measure>,
    /// The contenders.
    pub contenders: Vec<Box<dyn Contender>>,
    /// True if records go to stdout as JSON lines, as soon as they are there.
    pub json: bool,
    /// The folder of the report, if one is to be written.
    pub report: Option<PathBuf>,
    /// True if the report shows the developers' targets.
    pub targets: bool,
    /// True if each experiment stops after about the time that it may take as one of all.
    pub budgeted: bool,
}

impl Session {
    /// Runs it. The report is written anew after each experiment, so that an interrupted
    /// run has one too.
    ///
    /// # Errors
    ///
    /// If the report or stdout can't be written. An experiment that fails as a whole is one of the
    /// results.
    pub fn run(mut self) -> Result<Results, Error> {
        let placement = Placement::detect(self.settings.pin);
        let host = Host::detect(&placement.describe());
        let results = Results {
            host: host.clone(),
            asked: self.settings.asked(),
            records: vec![],
            missing: vec![],
            seconds: 0.0,
            shared_cores: None,
        };
        let mut sink = Gather {
            results,
            looks: CoreLooks::default(),
            progress: ConsoleBar::new(true),
            json: self.json,
            broken: None,
        };
        if let Some(folder) = &self.report {
            prepare(folder)?;
        }
        let begun = Instant::now();
        for experiment in &self.experiments {
            let mut settings = self.settings.clone();
            if self.budgeted {
                settings.limit = Some(std::time::Duration::from_secs(experiment.seconds()));
            }
            let mut bench = Bench {
                settings: &settings,
                placement: &placement,
                host: &host,
                contenders: &mut self.contenders,
                sink: &mut sink,
            };
            let outcome = match settings.primitives.kills {
                Some(count) if kills::has_survivors(experiment.name()) => {
                    kills::kill_those_of(&mut bench, experiment.name(), count);
                    Ok(())
                }
                _ => experiment.run(&mut bench),
            };
            if let Err(error) = outcome {
                sink.missing(&RecordSubject::new(experiment.name(), "all", "none", 0), &error.to_string());
            }
            sink.results.seconds = begun.elapsed().as_secs_f64();
            sink.results.shared_cores = sink.looks.tell();
            if let Some(folder) = &self.report {
                write(&sink.results, &report(&sink.results, self.targets), folder)?;
            }
            if let Some(error) = sink.broken.take() {
                return Err(Error::Unwritten(error));
            }
        }
        sink.progress.finish();
        Ok(sink.results)
    }
}

struct Gather {
    results: Results,
    looks: CoreLooks,
    progress: ConsoleBar,
    json: bool,
    broken: Option<io::Error>,
}

impl Sink for Gather {
    fn record(&mut self, record: Record) {
        if self.json && self.broken.is_none() {
            #[allow(clippy::disallowed_methods)]
            let mut stdout = io::stdout().lock();
            let written = writeln!(stdout, "{}", record.to_json()).and_then(|()| stdout.flush());
            self.broken = written.err();
        }
        self.results.records.push(record);
    }
    fn missing(&mut self, subject: &RecordSubject, reason: &str) {
        self.results.missing.push(Missing { subject: subject.clone(), reason: reason.into() });
    }
    fn expect(&mut self, steps: i64) {
        self.progress.expect(steps);
    }
    fn announce(&mut self, experiment: &str, measurements: usize, time: Duration) {
        if time >= WORTH_A_REMARK {
            console::remark(format_args!(
                "{experiment}: {measurements} measurements take about {} (less with fewer --runs)",
                roughly(time)
            ));
        }
    }
    fn step(&mut self, what: &str) {
        self.progress.step(what);
    }
    fn rest(&mut self, placement: &Placement) {
        self.looks.look(placement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;
    use crate::fake::{Fake, quick};

    #[test]
    fn a_session_writes_its_report_and_returns_its_results() {
        let folder = std::env::temp_dir().join(format!("towpath-session-{}", std::process::id()));
        let session = Session {
            settings: quick(),
            experiments: vec![find("logp").unwrap(), find("stress").unwrap()],
            contenders: vec![Box::new(Fake::ours("towpath", 1.0)), Box::new(Fake::absent("mpich"))],
            json: false,
            report: Some(folder.clone()),
            targets: false,
            budgeted: true,
        };
        let results = session.run().unwrap();
        assert!(results.has("logp") && results.has("stress") && !results.has("bulk"));
        assert!(results.missing.iter().any(|m| m.subject.algorithm == "mpich"));
        let lines = std::fs::read_to_string(folder.join("results.jsonl")).unwrap();
        assert_eq!(lines, results.to_json_lines());
        assert!(std::fs::read_to_string(folder.join("index.html")).unwrap().contains("towpath"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn time_to_wait_is_told_in_seconds_or_minutes() {
        let told = |seconds| roughly(Duration::from_secs(seconds));
        assert_eq!(
            (told(15), told(90), told(91), told(361)),
            ("15 s".into(), "90 s".into(), "2 minutes".into(), "7 minutes".into())
        );
    }

    #[test]
    fn session_report_unwritable_names_the_folder() {
        let file = std::env::temp_dir().join(format!("towpath-file-{}", std::process::id()));
        std::fs::write(&file, "in the way").unwrap();
        let session = Session {
            settings: quick(),
            experiments: vec![find("logp").unwrap()],
            contenders: Vec::new(),
            json: false,
            report: Some(file.join("below")),
            targets: false,
            budgeted: false,
        };
        let error = session.run().unwrap_err().to_string();
        assert!(error.contains("below") && error.contains("--report"), "{error}");
        std::fs::remove_file(&file).unwrap();
    }
}
