//! `towpath recommend`: which lock, queue and barrier to use here.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use towpath_host::Host;
use towpath_host::trace::LockReplay;
use towpath_lab::experiments::find;
use towpath_lab::primitives::PrimitiveSettings;
use towpath_lab::primitives::advice::{Advice, advise};
use towpath_lab::structures::{MOST, Sharing};
use towpath_lab::{BenchSettings, Session, report};
use towpath_papers::sim::advice::ADVISED;
use towpath_papers::sim::{self, Effort, Sweep, show};
use towpath_report::console::ConsoleBar;
use towpath_report::format::digits;
use towpath_report::record::Record;
use towpath_report::record::metrics::ACQUISITIONS_PER_S;
use towpath_report::{Results, Table};
use towpath_shm::shown;
use towpath_sync::Policy;

use super::bench::{policies, results};
use super::screen::Screen;
use super::sim::{ProgressBar, by_name};
use super::trace::{MOST_SIMULATED, TracedProgram, traced_program};
use crate::preload::LOCKS;
use crate::{CommandFailure, Outcome, output};

/// Arguments of `towpath recommend`.
#[derive(clap::Args, Clone, Debug)]
#[command(
    about = "Recommend a lock, a queue, a barrier and a waiting policy for this machine and your program's shape",
    long_about = "Measures all locks, queues and barriers on this machine, with as many participants and as much work as your program has, beside pthread's, std's, parking_lot's and crossbeam's, and recommends one of each with the reasons: a sentence each, then tables; the report has pictures.\n\n\
                  A lock is recommended if its slowest participant gets half of the mean or more, where there is such a one; between processes only what goes on when one is killed. Whatever is faster is named, too.",
    after_long_help = "Examples:\n  towpath recommend                                        twice as many threads, and processes, as cores\n  towpath recommend --participants 8 --processes           between 8 processes\n  towpath recommend --critical-section 2000 --between 500  long critical sections, hardly any work between them\n  towpath recommend --primitive locks --json               one JSON object for each recommendation\n  towpath recommend --trace FILE                           for a program that `towpath preload --trace FILE` has run\n  towpath recommend --machine epyc-milan --participants 64 for a simulated machine with more cores than this one (`towpath sim list`)\n\nExit codes: 0 recommended; 1 the report can't be written, or nothing could be measured; 2 arguments that make no sense; 141 the reader of the answer has gone."
)]
pub struct Arguments {
    /// Number of threads or processes that take part [default: twice the cores; all
    /// processors of a simulated machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    participants: Option<u32>,

    /// Nanoseconds of work in a critical section
    #[arg(long, value_name = "NS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    critical_section: u64,

    /// Nanoseconds of work between two operations of a participant
    #[arg(long, value_name = "NS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    between: u64,

    /// Recommend for processes only
    #[arg(long, conflicts_with = "threads")]
    processes: bool,

    /// Recommend for threads only
    #[arg(long)]
    threads: bool,

    /// Recommend for a simulated machine, by runs there (`towpath sim list` names them)
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["processes", "threads"])]
    machine: Option<String>,

    /// Replay a program's locks, of `towpath preload --trace`, under every lock and
    /// waiting policy: its threads, its work inside and outside
    #[arg(long, value_name = "FILE", conflicts_with_all = ["participants", "critical_section", "between", "processes", "threads", "primitive"])]
    trace: Option<PathBuf>,

    /// Primitives to recommend [default: locks,queues,barriers]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = PRIMITIVES)]
    primitive: Vec<String>,

    /// Waiting policies to compare [default: adaptive,spin-then-park; with --trace all;
    /// simulated: spin]
    #[arg(long, value_name = "W,…", value_delimiter = ',', value_parser = policies())]
    waiting: Vec<String>,

    /// Rounds
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Print one JSON object for each recommendation to stdout, all else to stderr
    #[arg(long)]
    json: bool,

    /// Folder of the report
    #[arg(long, value_name = "DIR", default_value = "towpath-report/recommend")]
    report: PathBuf,
}

/// The experiments that recommend something.
const PRIMITIVES: [&str; 4] = ["locks", "rw-locks", "queues", "barriers"];
/// Operations of each simulated processor, and of all together at least.
const OPERATIONS_EACH: u64 = 50;
const LEAST_OPERATIONS: u64 = 2_000;
/// Kinds of objects whose participants wait for each other.
const OF_SEVERAL: [&str; 2] = ["queues", "barriers"];

impl Arguments {
    /// The program of the trace, if there is one, with at most so many threads.
    fn traced(&self, most: usize) -> Result<Option<TracedProgram>, CommandFailure> {
        self.trace.as_deref().map(|file| traced_program(file, most, &self.report)).transpose()
    }

    fn participants(&self) -> u32 {
        self.participants.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
            (2 * cores).min(MOST as u32)
        })
    }

    fn primitives(&self) -> Result<Vec<&str>, CommandFailure> {
        let is_asked = |name: &&str| match self.primitive.is_empty() {
            true => *name != "rw-locks" && (self.participants() > 1 || !OF_SEVERAL.contains(name)),
            false => self.primitive.iter().any(|asked| asked == *name),
        };
        let asked: Vec<&str> = PRIMITIVES.into_iter().filter(is_asked).collect();
        match asked.iter().find(|name| self.participants() == 1 && OF_SEVERAL.contains(name)) {
            Some(name) => Err(CommandFailure::new(format!(
                "{name} want 2 participants at least: --participants 2 or more"
            ))
            .with_code(2)),
            None => Ok(asked),
        }
    }

    /// The waiting policies that were asked for, or those.
    fn waiting(&self, or: &[&str]) -> Vec<String> {
        match self.waiting.is_empty() {
            true => or.iter().map(|name| (*name).to_owned()).collect(),
            false => self.waiting.clone(),
        }
    }

    fn settings(&self, replay: Option<Arc<LockReplay>>) -> BenchSettings {
        let sharing = match (self.processes, self.threads || replay.is_some()) {
            (true, _) => vec![Sharing::Processes],
            (_, true) => vec![Sharing::Threads],
            _ => Sharing::ALL.to_vec(),
        };
        let waiting = match replay {
            None => self.waiting(&["adaptive", "spin-then-park"]),
            Some(_) => self.waiting(&Policy::ALL.map(|(_, name)| name)),
        };
        BenchSettings {
            waiting,
            runs: self.runs,
            procs: vec![replay.as_ref().map_or(self.participants(), |replay| replay.threads.len() as u32)],
            primitives: PrimitiveSettings {
                inside: self.critical_section,
                between: self.between,
                sharing,
                replay,
                ..PrimitiveSettings::default()
            },
            ..BenchSettings::default()
        }
    }
}

impl Arguments {
    /// The program's shape, in words.
    fn shape(&self, replay: Option<&LockReplay>) -> String {
        match replay {
            Some(replay) => format!("a replay of {replay}"),
            None => format!(
                "{} ns in a critical section, {} ns between two operations",
                self.critical_section, self.between
            ),
        }
    }
}

/// Runs `towpath recommend`.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(machine) = &arguments.machine {
        return simulated(arguments, machine);
    }
    if let Some(most) = arguments.participants.filter(|&n| n > MOST as u32) {
        let text = format!(
            "{most} participants are more than the {MOST} that can be measured here: a simulated machine has more (--machine, `towpath sim list`)"
        );
        return Err(CommandFailure::new(text).with_code(2));
    }
    let traced = arguments.traced(MOST)?;
    let replay = traced.as_ref().map(|traced| Arc::clone(&traced.replay));
    let primitives = if replay.is_some() { vec!["locks"] } else { arguments.primitives()? };
    let experiments = primitives.into_iter().filter_map(find).collect();
    let session = Session {
        settings: arguments.settings(replay.clone()),
        experiments,
        contenders: Vec::new(),
        json: false,
        report: Some(arguments.report.clone()),
        targets: false,
        budgeted: false,
    };
    let results = results(session)?;
    let mut advice = advise(&results);
    if let Some(replay) = &replay {
        for advice in &mut advice {
            advice.sentence.push_str(&for_the_program(&results, advice, replay));
        }
    }
    let shape = arguments.shape(replay.as_deref());
    let report = report(&results, false);
    let tables = traced.iter().map(|traced| &traced.locks).chain(report.tables()).collect();
    let text = on_one_screen(arguments, &shape, &results, tables, &advice);
    answer(arguments, advice.iter().map(|advice| advice.to_json().to_string()), &text)?;
    match advice.is_empty() {
        false => Ok(ExitCode::SUCCESS),
        true => Err(CommandFailure::new(
            "nothing could be measured, so nothing is recommended (the report says why)",
        )),
    }
}

/// Name of libc's mutex among the measured locks.
const LIBCS: &str = "pthread";
/// Part of the threads' time, in percent, below which waits for locks hardly matter.
const HARDLY: f64 = 1.0;

/// Sentences about the traced program: the recommended lock beside libc's mutex, the cost
/// of waits, the command that tries the lock.
fn for_the_program(results: &Results, advice: &Advice, replay: &LockReplay) -> String {
    let measured = || {
        let all = results.of(advice.experiment, ACQUISITIONS_PER_S.name);
        all.filter(|record| record.procs == advice.procs && record.value > 0.0)
    };
    let ours = measured()
        .find(|record| (&record.algorithm, &record.waiting) == (&advice.algorithm, &advice.waiting));
    let mut text = String::new();
    if let Some(ours) = ours
        && let Some(libcs) = measured().find(|record| record.algorithm == LIBCS)
    {
        let times = digits(ours.value / libcs.value);
        text.push_str(&format!(" That is {times} times the rate under libc's mutex (`{LIBCS}`)."));
    }
    if replay.waited_percent() < HARDLY {
        text.push_str(" The program's threads hardly waited for locks: another one hardly matters.");
    }
    let is_carried = |name: &str| LOCKS.contains(&name);
    let by_value = |a: &&Record, b: &&Record| a.value.total_cmp(&b.value);
    let carried = match ours {
        Some(ours) if is_carried(&ours.algorithm) => Some(ours),
        _ => measured().filter(|record| is_carried(&record.algorithm)).max_by(by_value),
    };
    if let Some(Record { algorithm, waiting, .. }) = carried {
        let which =
            if *algorithm == advice.algorithm { "it" } else { "the fastest lock that a mutex can have" };
        text.push_str(&format!(
            " `towpath preload --lock {algorithm} --waiting {waiting} -- PROGRAM` tries {which} in the program as it is."
        ));
    }
    text
}

/// Prints the screen, or with `--json` the objects, and the screen aside.
fn answer(
    arguments: &Arguments,
    objects: impl Iterator<Item = String>,
    screen: &str,
) -> Result<(), CommandFailure> {
    if !arguments.json {
        return output::answer(screen);
    }
    output::answer(&objects.map(|object| object + "\n").collect::<String>())?;
    output::remark_text(screen);
    Ok(())
}

/// Recommends for a simulated machine.
fn simulated(arguments: &Arguments, name: &str) -> Outcome {
    let machine = by_name(name)?;
    let traced = arguments.traced(MOST_SIMULATED)?;
    let replay = traced.as_ref().map(|traced| Arc::clone(&traced.replay));
    let most = replay.as_ref().map_or(usize::MAX, |replay| replay.threads.len());
    let procs = (arguments.participants.unwrap_or(machine.processors as u32) as usize).min(most);
    if procs > machine.processors as usize {
        let text =
            format!("{name} has {} processors, not {procs}: --participants {0} or fewer", machine.processors);
        return Err(CommandFailure::new(text).with_code(2));
    }
    let experiments: Vec<&str> = ADVISED.iter().map(|&(experiment, _)| experiment).collect();
    let chosen = |asked: &&&str| match replay.is_some() {
        true => **asked == "locks",
        false => arguments.primitive.is_empty() || arguments.primitive.iter().any(|p| p == **asked),
    };
    let experiments: Vec<&'static str> = experiments.iter().filter(chosen).copied().collect();
    if experiments.is_empty() {
        let text = format!(
            "nothing of {} is simulated: {} are",
            arguments.primitive.join(","),
            ADVISED.map(|(e, _)| e).join(", ")
        );
        return Err(CommandFailure::new(text).with_code(2));
    }
    let host = Host::detect("not pinned: simulated time does not depend on the host");
    let bar = ProgressBar(ConsoleBar::new(true));
    let effort = Effort { seeds: arguments.runs, threads: 0 };
    let (mut records, mut failures) = (Vec::new(), Vec::new());
    for experiment in experiments {
        let sweep = Sweep {
            procs: vec![procs],
            waiting: arguments.waiting(&["spin"]).iter().filter_map(|name| Policy::from_name(name)).collect(),
            ..Sweep::new(experiment, machine.clone())
        };
        let operations = (OPERATIONS_EACH * procs as u64).max(LEAST_OPERATIONS);
        let between = if replay.is_some() { 0 } else { arguments.between };
        let mut sweep = sweep.work(between, 0.2).operations(operations);
        sweep.run.inside = arguments.critical_section;
        sweep.run.replay = replay.clone();
        let (more, failed) =
            sim::run(&sweep, effort, &host, &bar).map_err(|e| CommandFailure::new(e).with_code(2))?;
        records.extend(more);
        failures.extend(failed);
    }
    bar.0.finish();
    let advice = sim::advice::advise(&records);
    let seeds = match arguments.runs {
        1 => "one seed".into(),
        runs => format!("medians of {runs} seeds"),
    };
    let introduction =
        format!("Simulated on {}: {}, {seeds}.", machine.title, arguments.shape(replay.as_deref()));
    let title = format!("recommendations for {name}");
    let sentences: Vec<String> = advice.iter().map(|advice| advice.sentence.clone()).collect();
    show::write(&arguments.report, &title, &introduction, &sentences, &records, &failures)
        .map_err(CommandFailure::new)?;
    let opening = sentences.into_iter().chain([introduction]);
    let sections = show::sections(&records);
    // The traffic of an operation is in the report.
    let is_time = |table: &&Table| table.title.contains("time for each");
    let tables = sections.iter().map(|section| &section.table).filter(is_time);
    let tables: Vec<&Table> = traced.iter().map(|traced| &traced.locks).chain(tables).collect();
    let closing = [format!("report: {} (pictures, all tables)", shown(arguments.report.join("index.html")))];
    let text = Screen::of_output().lay_out(&opening.collect::<Vec<_>>(), &tables, &closing);
    answer(arguments, advice.iter().map(|advice| advice.to_json().to_string()), &text)?;
    match failures.first() {
        None => Ok(ExitCode::SUCCESS),
        Some((subject, why)) => {
            Err(CommandFailure::new(format!("{} could not be simulated: {why}", subject.describe())))
        }
    }
}

fn on_one_screen(
    arguments: &Arguments,
    shape: &str,
    results: &Results,
    tables: Vec<&Table>,
    advice: &[Advice],
) -> String {
    let host = &results.host;
    let mut opening: Vec<String> = advice.iter().map(|advice| advice.sentence.clone()).collect();
    opening.push(format!("Measured on {}, {}, {}: {shape}.", host.cpu, host.cores_text(), host.date));
    let closing = [format!("report: {} (pictures, all tables)", shown(arguments.report.join("index.html")))];
    Screen::of_output().lay_out(&opening, &tables, &closing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use towpath_report::record::RecordSubject;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        recommend: Arguments,
    }

    fn parse(arguments: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("towpath").chain(arguments.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.recommend)
    }

    #[test]
    fn a_programs_shape_becomes_the_settings() {
        let arguments =
            parse("--participants 8 --processes --critical-section 1000 --between 0 --runs 2").unwrap();
        let settings = arguments.settings(None);
        assert_eq!((settings.procs, settings.runs), (vec![8], 2));
        assert_eq!((settings.primitives.inside, settings.primitives.between), (1000, 0));
        assert_eq!(settings.primitives.sharing, [Sharing::Processes]);
        assert_eq!(arguments.primitives().unwrap(), ["locks", "queues", "barriers"]);
        assert_eq!(parse("").unwrap().settings(None).primitives.sharing, Sharing::ALL);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            "--participants 0",
            "--participants 1025",
            "--machine paradigm --threads",
            "--processes --threads",
            "--primitive heap",
            "--trace file --participants 3",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("--participants 1").unwrap().primitives().unwrap(), ["locks"]);
        let refused = parse("--participants 1 --primitive queues").unwrap().primitives().unwrap_err();
        assert!(refused.code == 2 && refused.message.contains("--participants 2"));
    }

    /// The recommendation for a replay by two threads that waited for so many
    /// nanoseconds of a thousand, under locks of these rates.
    fn answer_for(rates: &[(&str, &str, f64)], waited_ns: u64) -> String {
        let figures: Vec<_> = rates
            .iter()
            .map(|(lock, waiting, rate)| {
                let subject = RecordSubject::new("locks", lock, waiting, 2).with("sharing", "threads");
                (subject, ACQUISITIONS_PER_S, vec![*rate])
            })
            .collect();
        let results = Results::from_figures(&figures, 2);
        let replay = LockReplay {
            threads: vec![Vec::new(); 2],
            part: (0, 1_000, 1_000),
            waited_ns,
            ..LockReplay::default()
        };
        for_the_program(&results, &advise(&results)[0], &replay)
    }

    #[test]
    fn answer_for_a_program_names_libc_and_the_command() {
        let rates = [("mutex", "own", 2e6), ("ticket", "park", 3e6), ("pthread", "own", 1.5e6)];
        let text = answer_for(&rates, 800);
        assert!(text.contains("2.00 times the rate under libc's mutex"), "{text}");
        assert!(
            text.contains("`towpath preload --lock ticket --waiting park -- PROGRAM` tries it"),
            "{text}"
        );
        assert!(!text.contains("hardly waited"), "{text}");
    }

    #[test]
    fn answer_for_a_program_names_the_best_lock_that_it_can_have() {
        let rates = [("mcs", "park", 3e6), ("ticket", "park", 1e6), ("compact", "adaptive", 2e6)];
        let text = answer_for(&rates, 2);
        assert!(
            text.contains("--lock compact --waiting adaptive -- PROGRAM` tries the fastest lock that"),
            "{text}"
        );
        assert!(text.contains("hardly waited"), "{text}");
    }
}
