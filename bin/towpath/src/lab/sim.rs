//! `towpath sim`: experiments on simulated machines.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use towpath_host::Host;
use towpath_host::trace::LockReplay;
use towpath_lab::waiting_policies;
use towpath_papers::sim::{self, Effort, Point, SIM_EXPERIMENTS, Sweep, Watcher, show};
use towpath_report::Table;
use towpath_report::console::ConsoleBar;
use towpath_report::files::prepare;
use towpath_shm::shown;
use towpath_sim::parameters::read_time;
use towpath_sim::{Parameters, machines};
use towpath_sync::Policy;

use super::input::read_text;
use super::screen::Screen;
use crate::{CommandFailure, Outcome, output};

/// Default folder of the report.
const REPORT: &str = "towpath-report/sim";

/// Maximum length of a machine's file, in bytes. Those that come with Towpath have 4 KiB.
const LONGEST_FILE: u64 = 1 << 20;

/// Arguments of `towpath sim`.
#[derive(clap::Args, Clone, Debug)]
#[command(
    about = "Run the algorithms on a simulated machine of up to 1,024 processors",
    long_about = "Runs the same algorithms that run natively on a simulated machine: its caches, coherence protocol, network and operating system charge every shared access, in exact \
                  global order. Equal seeds give equal runs, on every host. Prints one screen with the time for each operation; \
                  the report (index.html, which needs no other file, and results.jsonl) has plots and what an operation cost in coherence traffic.",
    after_long_help = HELP
)]
pub struct SimArgs {
    /// A machine's name, or `list` (machines, experiments, algorithms) or `describe`
    #[arg(value_name = "MACHINE")]
    machine: Option<String>,

    /// The experiment; after `describe` a machine
    #[arg(value_name = "EXPERIMENT")]
    experiment: Option<String>,

    /// File with a machine of your own: TOML, at most 1 MiB (see `towpath sim describe`)
    #[arg(long = "machine", value_name = "FILE")]
    file: Option<PathBuf>,

    /// Change one of the machine's parameters
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Numbers of processors [default: powers of two up to the machine's, at most 64]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = procs)]
    procs: Vec<std::ops::RangeInclusive<usize>>,

    /// Private work between two operations, ± 20 % at random; without a unit in cycles,
    /// on machines that have them [default: 5us; multiprogramming: 50us; list: 20,2000 cycles]
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', value_parser = work)]
    work: Vec<Amount>,

    /// Variation of the work, in percent of it
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100))]
    spread: u32,

    /// Operations of all processors together [default: 20000; multiprogramming: 100000
    /// for each copy; list: 10000 pairs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    operations: Option<u64>,

    /// Number of seeds; figures are medians over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,

    /// First seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Algorithms to run (see `towpath sim list`) [default: those that suit the machine]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    algorithms: Vec<String>,

    /// Waiting policies [default: spin; multiprogramming: spin,spin-then-park,park]
    #[arg(long, value_name = "W,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(waiting_policies()))]
    waiting: Vec<String>,

    /// Copies of the program at one time (multiprogramming, apps) [default: 2,3; apps: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=16))]
    copies: Vec<u32>,

    /// Processes on each processor (list) [default: 1,3]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=16))]
    per_processor: Vec<u32>,

    /// States and patterns (mplocks): local-idle, remote-idle, remote-busy, one-lock,
    /// many-locks, one-home, bursts [default: the first four]; applications (apps), each
    /// with a size behind it if it is not `small`: lu, lu/tiny, …; spark98/FILE multiplies a
    /// pack of Spark98's [default: all]
    #[arg(long, visible_alias = "app", value_name = "P,…", value_delimiter = ',')]
    patterns: Vec<String>,

    /// Schedulers (multiprogramming, apps) [default: both]
    #[arg(long, value_name = "S,…", value_delimiter = ',', value_parser = ["time-sharing", "gang"])]
    scheduler: Vec<String>,

    /// Replay a program's locks (locks), as `towpath preload --trace` wrote them: its
    /// threads, its work inside and outside [procs: as many as it has threads]
    #[arg(long, value_name = "FILE", conflicts_with = "work")]
    trace: Option<PathBuf>,

    /// Number of simulations that run at one time [default: one for each core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,

    /// Print every table, instead of one screen
    #[arg(long)]
    all: bool,

    /// Print the records to stdout, one JSON object per line, and everything else to
    /// stderr
    #[arg(long)]
    json: bool,

    /// Folder of the report
    #[arg(long, value_name = "DIR", default_value = REPORT)]
    report: PathBuf,
}

const HELP: &str = "\
Examples:
  towpath sim list                                                     what there is
  towpath sim describe origin2000                                      every parameter, with its source
  towpath sim origin2000 queues --procs 1,2,4,8,16,32,64 --work 5us    figure 5 of Nikolopoulos & Papatheodorou
  towpath sim origin2000 counter --work 0 --set directory.service=fifo
  towpath sim origin2000 multiprogramming --copies 2,3 --scheduler time-sharing,gang
  towpath sim epyc-milan locks --procs 1-128 --json
  towpath sim sx4 ladder                                               figures 1 and 4 to 7 of Gropp & Lusk
  towpath sim paradigm list --procs 1-16 --per-processor 1,3 --work 20,2000   figures 5 to 7 of Greenwald & Cheriton
  towpath sim avalanche mplocks --patterns remote-idle,one-lock        table 1 of Kuo, Carter & Kuramkote; avalanche-slow has slow switches
  towpath sim avalanche apps --patterns mp3d --procs 4,8,16,32         figure 1 of Kuo, Carter & Kuramkote; barnes, radiosity, raytrace, spark98
  towpath sim rdma-cluster mplocks --patterns many-locks --procs 64,256,1024
  towpath sim origin2000 apps --patterns lu,cholesky --procs 1,16,64   the papers' applications; on enterprise5000 fft, con-comm, con-comp, sample
  towpath sim epyc-milan locks --trace FILE                            a program's own locks, from `towpath preload --trace FILE`
  towpath sim --machine mine.toml barriers                             your own machine

A machine's file is TOML: `like = \"origin2000\"` and what is to be different, for example `network.hop = \"100ns\"`.

Sources of parameters: S the paper itself; P another public source, read; R one from memory; D derived; E estimated.

Exit codes: 0 measured; 1 a simulation failed (a deadlock, say), or the report can't be written; 2 arguments that make no sense; 141 the reader of the answer has gone.";

/// `1,2,8` or `1-64` (powers of two from the first to the last).
fn procs(text: &str) -> Result<std::ops::RangeInclusive<usize>, String> {
    let number = |t: &str| match t.parse::<usize>() {
        Ok(n) if (1..=1024).contains(&n) => Ok(n),
        _ => Err(format!("`{t}` is not a number of processors from 1 to 1024")),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    if first <= last { Ok(first..=last) } else { Err(format!("`{text}` goes backwards")) }
}

/// Amount of work.
#[derive(Clone, Copy, Debug)]
enum Amount {
    Nanoseconds(u64),
    Cycles(u64),
}

fn work(text: &str) -> Result<Amount, String> {
    if let Some(ps) = read_time(text) {
        return Ok(Amount::Nanoseconds(ps / 1000));
    }
    match text.parse() {
        Ok(cycles) if cycles <= 1_000_000_000 => Ok(Amount::Cycles(cycles)),
        _ => Err("a time has a unit and is a day at most: 5us, 200ns, or 0 (or is a number of up to 1000000000 cycles)".into()),
    }
}

impl Amount {
    /// Returns it in nanoseconds.
    fn on(self, machine: &Parameters) -> Result<u64, CommandFailure> {
        match self {
            Amount::Nanoseconds(ns) => Ok(ns),
            Amount::Cycles(cycles) if machine.cycle != 0 => Ok(cycles * machine.cycle / 1000),
            Amount::Cycles(cycles) => Err(CommandFailure::new(format!(
                "{} has no `processor.cycle`, so {cycles} cycles are no time: a time has a unit, like 5us or 200ns",
                machine.name
            ))
            .with_code(2)),
        }
    }
}

/// Progress bar that several threads advance.
pub(crate) struct ProgressBar(pub ConsoleBar);

impl Watcher for ProgressBar {
    fn expect(&self, steps: usize) {
        self.0.expect(steps as i64);
    }
    fn done(&self, point: &Point, _time: Duration) {
        self.0.step(&point.subject.describe());
    }
}

impl SimArgs {
    /// The machine, and the word after it.
    fn machine(&self) -> Result<(Parameters, Option<&str>), CommandFailure> {
        let (mut machine, next) = match (&self.file, &self.machine) {
            (Some(file), experiment) => (from_file(file)?, experiment.as_deref()),
            (None, Some(name)) => (by_name(name)?, self.experiment.as_deref()),
            (None, None) => {
                return Err(CommandFailure::new("which machine? `towpath sim list` names them").with_code(2));
            }
        };
        for change in &self.set {
            machine.set_from_text(change).map_err(|e| CommandFailure::new(e).with_code(2))?;
        }
        Ok((machine, next))
    }

    /// Answer to an option of other experiments.
    fn misplaced_option(&self, experiment: &str) -> Option<String> {
        let of_copies = ["multiprogramming", "apps"];
        let without_work = ["messages", "ladder", "apps"];
        let options: [(&str, bool, bool, &[&str]); 6] = [
            ("--copies", !self.copies.is_empty(), of_copies.contains(&experiment), &of_copies),
            ("--scheduler", !self.scheduler.is_empty(), of_copies.contains(&experiment), &of_copies),
            ("--per-processor", !self.per_processor.is_empty(), experiment == "list", &["list"]),
            (
                "--patterns",
                !self.patterns.is_empty(),
                ["mplocks", "apps"].contains(&experiment),
                &["mplocks", "apps"],
            ),
            ("--work", !self.work.is_empty(), !without_work.contains(&experiment), &[]),
            ("--operations", self.operations.is_some(), !["ladder", "apps"].contains(&experiment), &[]),
        ];
        let (option, _, _, homes) = options.into_iter().find(|(_, given, fits, _)| *given && !fits)?;
        Some(match homes {
            [] => format!("{experiment} has work and operations of its own: leave {option} out"),
            homes => {
                format!("{option} is an option of {}, not of {experiment}: leave it out", homes.join(" and "))
            }
        })
    }

    /// The settings for each amount of work.
    fn sweeps(&self, machine: Parameters, experiment: &'static str) -> Result<Vec<Sweep>, CommandFailure> {
        let several = experiment == "multiprogramming";
        let is_list = experiment == "list";
        let replay = self.replay(experiment)?;
        let works = match (self.work.is_empty(), is_list) {
            // It has the trace's work.
            _ if replay.is_some() => vec![Amount::Nanoseconds(0)],
            (false, _) => self.work.clone(),
            (true, true) if machine.cycle != 0 => vec![Amount::Cycles(20), Amount::Cycles(2000)],
            (true, _) => vec![Amount::Nanoseconds(if several { 50_000 } else { 5_000 })],
        };
        let works =
            works.into_iter().map(|work| work.on(&machine)).collect::<Result<Vec<u64>, CommandFailure>>()?;
        let mut defaults = Sweep::new(experiment, machine.clone());
        defaults.run.replay = replay.clone();
        let or = |given: &[String], default: &[&str]| -> Vec<String> {
            if given.is_empty() { default.iter().map(|s| s.to_string()).collect() } else { given.to_vec() }
        };
        let waiting: &[&str] = if several { &["spin", "spin-then-park", "park"] } else { &["spin"] };
        let mut procs: Vec<usize> = Vec::new();
        for range in &self.procs {
            let (first, last) = (*range.start(), *range.end());
            let doubled = std::iter::successors(Some(first), |n| Some(n * 2)).take_while(|n| *n < last);
            procs.extend(doubled.chain([last]));
        }
        if let (Some(replay), true) = (&replay, procs.is_empty()) {
            procs.push(replay.threads.len().min(machine.processors as usize));
        }
        procs.sort_unstable();
        procs.dedup();
        let operations = match (several, is_list) {
            (true, _) => 100_000,
            (_, true) => 10_000,
            _ => defaults.run.operations,
        };
        let operations = self.operations.unwrap_or(operations);
        let sweep = Sweep {
            procs,
            run: defaults.run.seed(self.seed),
            algorithms: self.algorithms.clone(),
            waiting: or(&self.waiting, waiting).iter().filter_map(|w| Policy::from_name(w)).collect(),
            copies: match (self.copies.is_empty(), experiment == "apps") {
                (false, _) => self.copies.iter().map(|n| *n as usize).collect(),
                (true, true) => vec![1],
                (true, false) => vec![2, 3],
            },
            schedulers: or(&self.scheduler, &["time-sharing", "gang"]),
            per_processor: match (self.per_processor.is_empty(), is_list) {
                (false, _) => self.per_processor.iter().map(|n| *n as usize).collect(),
                (true, true) => vec![1, 3],
                (true, false) => vec![1],
            },
            patterns: self.patterns.clone(),
            ..defaults
        };
        let spread = f64::from(self.spread) / 100.0;
        let with = |ns| sweep.clone().work(ns, spread).operations(operations);
        Ok(works.into_iter().map(with).collect())
    }
}

impl SimArgs {
    /// The replay of the trace, if there is one.
    fn replay(&self, experiment: &str) -> Result<Option<Arc<LockReplay>>, CommandFailure> {
        match &self.trace {
            None => Ok(None),
            Some(file) if experiment == "locks" => {
                Ok(Some(super::trace::replay(file, super::trace::MOST_SIMULATED)?))
            }
            Some(_) => {
                let text =
                    format!("a trace of locks is replayed by the experiment `locks`, not by `{experiment}`");
                Err(CommandFailure::new(text).with_code(2))
            }
        }
    }
}

/// Finds a machine that comes with Towpath.
pub(crate) fn by_name(name: &str) -> Result<Parameters, CommandFailure> {
    machines::by_name(name).ok_or_else(|| {
        let all: Vec<&str> = machines::names().collect();
        let text = format!(
            "no machine is called `{name}`; there are {} (or a file of your own: --machine FILE)",
            all.join(", ")
        );
        CommandFailure::new(text).with_code(2)
    })
}

fn from_file(file: &Path) -> Result<Parameters, CommandFailure> {
    let text = read_text(file, LONGEST_FILE).map_err(|e| CommandFailure::new(e).with_code(2))?;
    machines::from_text(&shown(file), &text).map_err(|e| CommandFailure::new(e).with_code(2))
}

/// Runs `towpath sim`.
pub fn run(args: &SimArgs) -> Outcome {
    match args.machine.as_deref().filter(|_| args.file.is_none()) {
        Some("list") => return print(&list(args.experiment.as_deref())?),
        Some("describe") => {
            let name = args.experiment.as_deref().ok_or_else(|| {
                CommandFailure::new("which machine? `towpath sim list` names them").with_code(2)
            })?;
            let mut machine = by_name(name)?;
            for change in &args.set {
                machine.set_from_text(change).map_err(|e| CommandFailure::new(e).with_code(2))?;
            }
            return print(&describe(&machine));
        }
        _ => {}
    }
    let (machine, experiment) = args.machine()?;
    if experiment == Some("describe") {
        return print(&describe(&machine));
    }
    let Some(name) = experiment else {
        let lines = SIM_EXPERIMENTS.iter().map(|e| format!("\n  {:<16} {}", e.name(), e.about()));
        let text = format!("which experiment on {}? There are{}", machine.name, lines.collect::<String>());
        return Err(CommandFailure::new(text).with_code(2));
    };
    let experiment = sim::find(name).ok_or_else(|| no_experiment(name))?;
    if let Some(text) = args.misplaced_option(experiment.name()) {
        return Err(CommandFailure::new(text).with_code(2));
    }
    let sweeps = args.sweeps(machine.clone(), experiment.name())?;
    prepare(&args.report).map_err(CommandFailure::new)?;
    let effort = Effort { seeds: args.seeds, threads: args.threads };
    let host = Host::detect("not pinned: simulated time does not depend on the host");
    let bar = ProgressBar(ConsoleBar::new(true));
    let results: Vec<_> = sweeps.iter().map(|sweep| sim::run(sweep, effort, &host, &bar)).collect();
    bar.0.finish();
    let (mut records, mut failures) = (Vec::new(), Vec::new());
    for result in results {
        let (more, failed) = result.map_err(|e| CommandFailure::new(e).with_code(2))?;
        records.extend(more);
        failures.extend(failed);
    }
    let replayed = sweeps.first().and_then(|sweep| sweep.run.replay.as_ref());
    let replayed = replayed.map(|replay| format!("; a replay of {replay}"));
    let about = experiment.about();
    let introduction = format!("{}; {about}{}", machine.title, replayed.unwrap_or_default());
    let title = format!("{name} on {}", machine.name);
    show::write(&args.report, &title, &introduction, &[], &records, &failures)
        .map_err(CommandFailure::new)?;
    let place = format!("report: {}", shown(args.report.join("index.html")));
    let text = if args.all {
        format!("{introduction}\n\n{}{place}\n", show::render(&records, &failures))
    } else {
        let sections = show::sections(&records);
        let tables: Vec<&Table> = sections.iter().map(|section| &section.table).collect();
        let missing = failures.first().map(|(subject, why)| {
            format!(
                "Not measured: {}. The first: {} on {} processors: {why}",
                failures.len(),
                subject.describe(),
                subject.procs
            )
        });
        let place = format!("{place} (everything; --all prints it)");
        let closing: Vec<String> = missing.into_iter().chain([place]).collect();
        Screen::of_output().lay_out(&[introduction], &tables, &closing)
    };
    if args.json {
        let lines: String = records.iter().map(|r| r.to_json() + "\n").collect();
        output::remark_text(&text);
        output::answer(&lines)?;
    } else {
        output::answer(&text)?;
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(text: &str) -> Outcome {
    output::answer(text)?;
    Ok(ExitCode::SUCCESS)
}

fn no_experiment(name: &str) -> CommandFailure {
    let names: Vec<&str> = SIM_EXPERIMENTS.iter().map(|e| e.name()).collect();
    CommandFailure::new(format!("no experiment is called `{name}`; there are {}", names.join(", ")))
        .with_code(2)
}

fn list(experiment: Option<&str>) -> Result<String, CommandFailure> {
    let mut text = String::new();
    if experiment.is_none() {
        text.push_str("Machines\n");
        for name in machines::names() {
            let title = by_name(name)?.title;
            text.push_str(&format!("  {name:<16} {title}\n"));
        }
        text.push('\n');
    }
    let chosen: Vec<_> =
        SIM_EXPERIMENTS.iter().filter(|e| experiment.is_none_or(|name| e.name() == name)).collect();
    if let Some(name) = experiment.filter(|_| chosen.is_empty()) {
        return Err(no_experiment(name));
    }
    text.push_str("Experiments and their algorithms\n");
    for experiment in chosen {
        text.push_str(&format!("  {:<16} {}\n", experiment.name(), experiment.about()));
        let mut line = String::new();
        for name in experiment.algorithms() {
            if line.len() + name.len() > 90 {
                text.push_str(&format!("{:19}{}\n", "", line.trim_end()));
                line.clear();
            }
            line.push_str(name);
            line.push(' ');
        }
        text.push_str(&format!("{:19}{}\n", "", line.trim_end()));
    }
    Ok(text)
}

fn describe(machine: &Parameters) -> String {
    let mut text = format!("{}: {}\n\n", machine.name, machine.title);
    for p in machine.describe() {
        let source = if p.source.0.is_empty() { "default".to_string() } else { p.source.0 };
        text.push_str(&format!(
            "{:<36} {:<14} {}\n{:36} {:14} {source}\n",
            p.name, p.value, p.meaning, "", ""
        ));
    }
    text.push_str("\nSources: S the paper itself; P another public source, read; R one from memory; D derived; E estimated.\n");
    text
}
