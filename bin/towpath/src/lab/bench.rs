//! `towpath bench`: measures this machine.

mod checks;
mod help;
mod settings;

pub use help::of_named_experiment;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use towpath_apps::{AnyApplication, ProblemInput, Size};
use towpath_host::Error;
use towpath_lab::experiments::find;
use towpath_lab::primitives::copies::{CopyScheduler, MOST_COPIES};
use towpath_lab::structures::{POOLS, Sharing, Structure};
use towpath_lab::{EXPERIMENTS, Session, contenders, report, waiting_policies};
use towpath_launch::MpiKind;
use towpath_report::{Kind, Report, Results, Table, console};
use towpath_shm::shown;

use super::screen::Screen;
use crate::size::parse_positive_size;
use crate::{CommandFailure, Outcome, output};

/// Default folder of the report.
const REPORT: &str = "towpath-report";
/// Name of the experiment that has options of its own.
const STRUCTURES: &str = "structures";
/// Name of the experiment that runs applications.
const APPS: &str = "apps";
/// Name of the experiment of locks by message.
const MPLOCKS: &str = "mplocks";
/// Names of the experiments that have writers, sizes, kills or MPIs to choose.
const STRESS: &str = "stress";
const BULK: &str = "bulk";
const CRASH: &str = "crash";
const MPI: &str = "mpi";
/// Names of the experiments of primitives.
const PRIMITIVES: [&str; 7] = [LOCKS, RW_LOCKS, QUEUES, BARRIERS, COUNTER, BROADCAST, POOL];
const LOCKS: &str = "locks";
const RW_LOCKS: &str = "rw-locks";
const QUEUES: &str = "queues";
const BARRIERS: &str = "barriers";
const COUNTER: &str = "counter";
const BROADCAST: &str = "broadcast";
const POOL: &str = "pool";
/// Name of the experiment that kills users of primitives.
const KILLS: &str = "kills";
/// Default number of rounds of these experiments, which have many variants.
const RUNS_OF_MANY: u32 = 5;

/// Arguments of `towpath bench`.
///
/// `BenchArgs::default()` is the measuring run of `towpath` without a command.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(
    about = "Measure this machine: the floor, every claim algorithm, and on request the peers",
    long_about = "Measures this machine with real processes: what the cache, memory and kernel cost (the floor), the claim algorithms of Towpath's queues, and with --peers other ways to send messages. Without the name of an experiment all that fit run, in about half a minute. Figures are medians of interleaved rounds.\n\n\
                  Prints one screen: a recommendation for this machine, the figures that count, and where the report is. The report (index.html, which needs no other file, and results.jsonl) has everything: pictures, all tables, and the papers' claims beside this machine's figures.",
    after_long_help = help::below_options()
)]
pub struct BenchArgs {
    /// Experiment to run [default: all that fit into half a minute]
    #[arg(value_name = "EXPERIMENT", value_parser = experiments())]
    pub experiment: Option<String>,

    /// Claim algorithms (or others that the experiment has) to compare [default: all]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', value_parser = algorithms())]
    pub algorithms: Vec<String>,

    /// Waiting policies to compare [default: adaptive]
    #[arg(long, value_name = "W,…", value_delimiter = ',', value_parser = policies())]
    pub waiting: Vec<String>,

    /// Numbers of writers in the stress test [default: 1,3,7,15]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub writers: Vec<u32>,

    /// Messages in each stress test, all of them however long it takes [default: 1000000,
    /// fewer where that takes too long]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: Option<u64>,

    /// Sizes of transfers (bulk), messages (broadcast), or buffers (pool); K, M and G are
    /// powers of 1024 [default: 64,256,1K,4K,16K,64K,256K,1M,4M; broadcast 64,64K; pool 1M]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_positive_size)]
    pub sizes: Vec<u64>,

    /// Rounds, all of them however long it takes [default: 7, fewer where that takes too
    /// long]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,

    /// Pin process n to core n modulo their number [default: only where each process can
    /// have a core of its own]
    #[arg(long, conflicts_with = "no_pin")]
    pub pin: bool,

    /// Leave processes to the scheduler
    #[arg(long)]
    pub no_pin: bool,

    /// Measure the peers too, in the same rounds: pipe, Unix socket, crossbeam, Open MPI,
    /// MPICH, and iceoryx2 if it is built in (takes longer)
    #[arg(long)]
    pub peers: bool,

    /// MPIs to measure (experiment mpi) [default: mpich,open-mpi]
    #[arg(long = "impl", value_name = "MPI,…", value_delimiter = ',', value_parser = MpiKind::ALL.map(MpiKind::name))]
    pub mpis: Vec<String>,

    /// Numbers of processes, or participants [default: mpi 2,4,8,16; structures 1,2,4,8;
    /// mplocks 8; apps 1, the cores, twice the cores; queues 2,4,8; broadcast 2,4,5; locks,
    /// rw-locks, barriers and counter up to eight a core]
    #[arg(long, visible_alias = "participants", value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub procs: Vec<u32>,

    /// Structures to compare (experiment structures) [default: all]
    #[arg(long, value_name = "S,…", value_delimiter = ',', value_parser = Structure::ALL.map(Structure::name))]
    pub structure: Vec<String>,

    /// Share of reads among operations on structures with keys, in percent (experiment
    /// structures) [default: 90]
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    pub reads: Vec<u32>,

    /// Participants to stop (SIGSTOP) at random while the others are measured, beside a
    /// run with as many fewer (experiment structures)
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..32), conflicts_with_all = ["kill", "kills"])]
    pub stop: Option<u32>,

    /// Participants to kill each second while the others are measured, each of them
    /// replaced (experiment structures)
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "kills")]
    pub kill: Option<f64>,

    /// Descriptors in the pool of a structure whose participants are killed [default:
    /// 100000]
    #[arg(long, value_name = "N", value_parser = pool)]
    pub pool: Option<u32>,

    /// Applications to run (experiment apps) [default: all]
    #[arg(long, value_name = "APP,…", value_delimiter = ',', value_parser = applications())]
    pub app: Vec<String>,

    /// Size of the applications' problems: tiny, small, medium, large; or a file with a
    /// mesh for spark98, a pack of Spark98's (experiment apps) [default: medium]
    #[arg(long, value_name = "SIZE|FILE", value_parser = problem_input)]
    pub input: Option<ProblemInput>,

    /// Nanoseconds of work in a critical section (experiments locks, rw-locks) [default:
    /// 50]
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub critical_section: Option<u64>,

    /// Nanoseconds of work between two operations (experiments locks, rw-locks, barriers,
    /// counter) [default: 200]
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub between: Option<u64>,

    /// Participants (experiments locks, rw-locks, queues, barriers, counter, broadcast,
    /// pool) [default: both]
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = Sharing::ALL.map(Sharing::name))]
    pub sharing: Vec<String>,

    /// Copies of each measurement at one time (experiments locks, rw-locks, queues,
    /// barriers, counter) [default: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MOST_COPIES as i64), conflicts_with = "kills")]
    pub copies: Vec<u32>,

    /// The way in which copies share the cores: as the system schedules processes, or one
    /// copy after the other, by SIGSTOP and SIGCONT [default: both]
    #[arg(long, value_name = "S,…", value_delimiter = ',', value_parser = CopyScheduler::ALL.map(CopyScheduler::name), requires = "copies")]
    pub scheduler: Vec<String>,

    /// Processes to kill, all of them however long it takes, and nothing else of the
    /// experiment: senders in the crash test, participants of structures, holders of mplocks, users
    /// of each primitive of locks, rw-locks, queues, barriers, broadcast, pool, kills [default:
    /// crash, mplocks and kills 300]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub kills: Option<u32>,

    /// Seed of pseudo-random choices
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,

    /// Print everything that the report has, instead of one screen
    #[arg(long)]
    pub all: bool,

    /// Show the developers' own targets, here and in the report
    #[arg(long)]
    pub targets: bool,

    /// Print the records to stdout, one JSON object per line, and everything else to
    /// stderr
    #[arg(long)]
    pub json: bool,

    /// Folder of the report [default: towpath-report]
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

fn experiments() -> PossibleValuesParser {
    PossibleValuesParser::new(
        EXPERIMENTS.iter().map(|e| clap::builder::PossibleValue::new(e.name()).help(e.about())),
    )
}

/// The algorithms of any experiment, each once.
fn algorithms() -> PossibleValuesParser {
    let all: Vec<&str> = EXPERIMENTS.iter().flat_map(|e| e.algorithms()).collect();
    PossibleValuesParser::new(deduplicated(&all))
}

fn applications() -> PossibleValuesParser {
    PossibleValuesParser::new(
        AnyApplication::all().map(|a| clap::builder::PossibleValue::new(a.name()).help(a.about())),
    )
}

/// Reads a problem's input. A pack is multiplied as often as a medium mesh.
fn problem_input(text: &str) -> Result<ProblemInput, String> {
    ProblemInput::read(text, Size::Medium)
}

/// Parses the size of a pool. There are few, since the compiler must know them.
fn pool(text: &str) -> Result<u32, String> {
    let known = POOLS.map(|n| n.to_string());
    let found = POOLS.into_iter().find(|n| n.to_string() == text);
    found.ok_or_else(|| format!("no pool of {text} descriptors: there are {}", known.join(", ")))
}

fn rate(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is no rate: give kills per second"))?;
    let sensible = value > 0.0 && value <= 1000.0;
    sensible
        .then_some(value)
        .ok_or_else(|| format!("{text} kills per second: give more than 0, at most 1000"))
}

/// The waiting policies, as values of an argument.
pub fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(waiting_policies())
}

impl BenchArgs {
    /// Option or command that prints everything.
    ///
    /// `towpath` without a command has no such option.
    fn printer_of_everything(&self) -> &'static str {
        if self.experiment.is_some() { "--all" } else { "`towpath bench --all`" }
    }

    /// True if each experiment keeps to its part of a minute.
    ///
    /// It does unless the user asked for one experiment or for an amount of work.
    fn budgeted(&self) -> bool {
        self.experiment.is_none() && self.messages.is_none() && self.kills.is_none() && self.runs.is_none()
    }
}

/// Each value once, in the order in which they were first given.
fn deduplicated<T: Clone + PartialEq>(values: &[T]) -> Vec<T> {
    let mut seen: Vec<T> = Vec::new();
    for value in values {
        if !seen.contains(value) {
            seen.push(value.clone());
        }
    }
    seen
}

/// Runs `towpath bench`.
pub fn run(args: &BenchArgs) -> Outcome {
    args.check()?;
    let settings = args.settings();
    let experiments = match &args.experiment {
        Some(name) => find(name).into_iter().collect(),
        None => EXPERIMENTS.iter().copied().filter(|e| e.is_one_of_all()).collect(),
    };
    let folder = args.report.clone().unwrap_or_else(|| REPORT.into());
    let session = Session {
        contenders: contenders(&settings),
        settings,
        experiments,
        json: args.json,
        report: Some(folder.clone()),
        targets: args.targets,
        budgeted: args.budgeted(),
    };
    let results = results(session)?;
    let defects = results.defects();
    let unmeasured = results.unmeasured(&args.algorithms);
    let damage: Vec<String> = (defects.iter().map(|d| format!("DEFECT: {d}")))
        .chain(unmeasured.iter().map(|line| format!("NOT MEASURED: {line}")))
        .collect();
    let place = format!("report: {}", shown(folder.join("index.html")));
    let report = report(&results, args.targets);
    let text = if args.all {
        let before: String = damage.iter().chain([&place]).map(|line| format!("{line}\n")).collect();
        format!("{before}\n{}", console::render(&results, &report))
    } else {
        on_one_screen(args, &results, &report, damage, place)
    };
    if args.json {
        output::remark_text(&text);
    } else {
        output::answer(&text)?;
    }
    let is_whole = defects.is_empty() && unmeasured.is_empty();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a session.
pub fn results(session: Session) -> Result<Results, CommandFailure> {
    session.run().map_err(|error| match error {
        Error::Unwritten(error) => output::unwritten(&error),
        other => CommandFailure::new(other),
    })
}

/// Lays a run out on one screen: recommendation, pictures' numbers, place of the report.
fn on_one_screen(
    args: &BenchArgs,
    results: &Results,
    report: &Report,
    damage: Vec<String>,
    place: String,
) -> String {
    let host = &results.host;
    let mut opening = damage;
    opening.push(format!("{}, {}, {}", host.cpu, host.cores_text(), host.date));
    opening.push(report.advice.clone());
    let pictures = report.pictures.iter().map(|picture| &picture.table);
    let tables: Vec<&Table> = match args.experiment.is_some() || report.pictures.is_empty() {
        true => report.targets.iter().chain(report.tables()).collect(),
        false => report.targets.iter().chain(pictures).collect(),
    };
    let mut closing: Vec<String> = results.shared_cores.iter().map(ToString::to_string).collect();
    let count = |kind| report.claims.iter().filter(|c| c.kind == kind).count();
    let open = report.claims.len() - count(Kind::Good) - count(Kind::Bad);
    if !report.claims.is_empty() {
        closing.push(format!(
            "Papers' claims that this run bears on: {}; {} hold here, {} do not{}.",
            report.claims.len(),
            count(Kind::Good),
            count(Kind::Bad),
            if open > 0 { format!(", {open} are undecided") } else { String::new() }
        ));
    }
    match results.missing_summary().len() {
        0 => {}
        missing => closing.push(format!("Not measured: {missing} (the report says why).")),
    }
    closing.push(format!("{place} (everything; {} prints it)", args.printer_of_everything()));
    Screen::of_output().lay_out(&opening, &tables, &closing)
}

#[cfg(test)]
mod tests;
