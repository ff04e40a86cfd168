//! `towpath explore`: searches schedules for one under which an algorithm goes wrong.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use serde_json::json;
use towpath_explore::harness::Case;
use towpath_explore::subjects::{FAMILIES, STRUCTURES, find, subjects};
use towpath_explore::{
    FoundFault, Liberties, MAX_THREADS, MemoryModel, Method, Plan, Schedule, SearchReport, SearchSettings,
    Subject, replay, replay_seed, search,
};
use towpath_sync::Policy;

use crate::output::{self, remark, say};
use crate::{CommandFailure, Outcome};

/// Default number of orderings of steps that a fault may need under random priorities.
const DEPTH: u32 = 3;

/// Arguments of `towpath explore`.
#[derive(clap::Args, Clone, Debug)]
#[command(
    about = "Search schedules for one under which an algorithm goes wrong",
    long_about = "Runs a lock, a barrier, a queue, a counter or a non-blocking structure under schedule after schedule, on a machine that makes one access to shared memory after the other, with C11's memory or a sequentially consistent one, and looks \
                  for a history that isn't linearizable, a deadlock, a lost wake-up, a lost element, or a data race. What is found is made as short as possible, printed step by step, \
                  and can be run again.",
    after_long_help = HELP
)]
pub struct Arguments {
    /// Subject to explore: a name, or a family (`queue`, `list`) for all of its members
    /// [default: none; the subjects are listed, as by --list]
    #[arg(value_name = "SUBJECT")]
    subject: Option<String>,

    /// Number of threads
    #[arg(long, requires = "subject", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=MAX_THREADS as u64))]
    threads: u64,

    /// Number of operations of each thread
    #[arg(long, requires = "subject", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=12))]
    ops: u64,

    /// Maximum number of schedules for each subject [default: 100000; with --states no
    /// limit]
    #[arg(long, requires = "subject", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    schedules: Option<u64>,

    /// Choose at each step any thread that can go on (the default method)
    #[arg(long, requires = "subject", group = "method")]
    random: bool,

    /// Choose by random priorities that change now and then: finds faults that need few
    /// changes with a known probability
    #[arg(long, requires = "subject", group = "method")]
    pct: bool,

    /// Run all schedules, one after the other
    #[arg(long, requires = "subject", group = "method")]
    dfs: bool,

    /// Go to every state once: schedules that lead to a state that was seen end there.
    ///
    /// For queues and stacks, without deaths, and with --waiting spin
    #[arg(long, requires = "subject", group = "method", conflicts_with_all = ["depth", "kill"])]
    states: bool,

    /// Bound of the search: with --pct the number of orderings of steps that the fault
    /// may need [default: 3], with --dfs the maximum number of interruptions of threads that
    /// could go on [default: no limit]
    #[arg(long, value_name = "D", conflicts_with = "random", requires = "method", value_parser = clap::value_parser!(u32).range(0..=64))]
    depth: Option<u32>,

    /// Let a thread die in each schedule, at any step
    #[arg(long, requires = "subject")]
    kill: bool,

    /// Seed of the first schedule; the next schedules have the next seeds
    #[arg(long, requires = "subject", value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Run one schedule again: the seed under which a fault was found, or the schedule
    /// that was printed
    #[arg(long, requires = "subject", value_name = "SEED|SCHEDULE")]
    replay: Option<String>,

    /// Memory model: sequentially consistent, or C11's, where a load may also take older
    /// values than the latest
    #[arg(long, requires = "subject", value_name = "M", default_value = "c11", value_parser = PossibleValuesParser::new(MemoryModel::ALL.map(|(_, name)| name)))]
    memory: String,

    /// Waiting policy of the threads
    #[arg(long, value_name = "W", default_value = "park", value_parser = PossibleValuesParser::new(Policy::ALL.map(|(_, name)| name)))]
    waiting: String,

    /// Print a JSON object per subject to stdout, and everything else to stderr
    #[arg(long)]
    json: bool,

    /// List the subjects, or those that SUBJECT names, and explore none
    #[arg(long, conflicts_with_all = ["threads", "ops", "schedules", "method", "kill", "seed", "replay", "memory"])]
    list: bool,
}

/// Number of schedules, unless one is given.
const SCHEDULES: u64 = 100_000;

const HELP: &str = "\
Examples:
  towpath explore --list                                      the subjects, family by family
  towpath explore queue/michael-scott                         100,000 random schedules of 3 threads with 4 operations each
  towpath explore queue --schedules 10000 --pct               every queue, by random priorities
  towpath explore lock/ticket --threads 2 --ops 1 --dfs       every schedule there is
  towpath explore queue/michael-scott --threads 3 --ops 2 --waiting spin --states
                                                              every state there is
  towpath explore lock/mcs --dfs --depth 2                    every schedule with at most two interruptions
  towpath explore queue/two-lock --memory sc                  loads take the latest values only
  towpath explore lock/robust --kill                          a thread dies in each schedule
  towpath explore hash-map --kill                             the non-blocking hash map, over every DCAS
  towpath explore planted/michael-scott-no-recheck            a fault that is there on purpose: see how it is shown
  towpath explore planted/michael-scott-no-recheck --replay 147

What a search says:
  Under c11 a load takes any value that C11 allows: `1r2` in a schedule is a step of thread 1 that takes the value two before the latest. Left out are load buffering (a load that takes
  what its own thread makes possible only later), values out of thin air, and orders of sequentially consistent accesses that contradict what weaker accesses see. One call comes before
  another if its end happens before the other's beginning: no thread sees the time. Under sc a load takes the latest value, and calls are ordered by time. Under both, two accesses to
  plain data that nothing orders are a race.
  Without a limit on interruptions --dfs leaves out schedules that differ only in the order of steps that have nothing to do with each other, and says when there are no more.
  --states goes on where --dfs would not end: two schedules after which each thread has learned the same since its call began, the same values can be read, and the calls so far can be
  put in the same orders, have the same continuations. States are compared by 64 bits. Threads do not wait there, so that one that would wait for ever is not noticed.
  Random schedules prove nothing: more of them, other seeds and other numbers of threads find more.
  A deadlock is found at once: no thread can go on. A sleeper that only its time-out would wake counts as forgotten.
  With --kill it is no fault of a blocking algorithm that the others wait for the dead: --list says of which it would be one.

Exit codes: 0 no fault was found; 1 a fault was found; 2 arguments that make no sense; 141 the reader of the answer has gone.";

/// Runs `towpath explore`.
pub fn run(args: &Arguments) -> Outcome {
    let policy = Policy::from_name(&args.waiting).unwrap_or_default();
    let Some(name) = &args.subject else {
        return list(&subjects(policy), args.json);
    };
    let cases = find(name, policy);
    if cases.is_empty() {
        return Err(unknown(name, policy).with_code(2));
    }
    if args.list {
        return list(&cases, args.json);
    }
    if cases.len() > 1 {
        remark!("{name}: {} subjects (`towpath explore --list` names all that there are)", cases.len());
    }
    let settings = args.settings();
    let mut faults = 0;
    for case in &cases {
        let start = Instant::now();
        let report = args.explore(case, &settings)?;
        let text = args.text(case, &report, start.elapsed());
        if args.json {
            output::remark_text(&text);
            say!("{}", args.record(case, &report, start.elapsed()))?;
        } else {
            output::answer(&text)?;
        }
        faults += u32::from(report.found.is_some());
    }
    Ok(if faults > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn list(cases: &[Case], json: bool) -> Outcome {
    let width = cases.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for case in cases {
        let _ = if json {
            let endures = case.endures_deaths;
            writeln!(
                text,
                "{}",
                json!({ "subject": case.name, "about": case.about, "endures_deaths": endures })
            )
        } else {
            writeln!(text, "{:width$}  {}", case.name, case.about)
        };
    }
    output::answer(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Refusal of a name, with the subjects that are named like it.
fn unknown(name: &str, policy: Policy) -> CommandFailure {
    let wanted = name.replace('_', "-");
    let words: Vec<&str> =
        wanted.split(['/', '-']).filter(|w| w.len() > 2 && !FAMILIES.contains(w)).collect();
    let names: Vec<String> = subjects(policy).into_iter().map(|c| c.name).collect();
    let like: Vec<String> = names.into_iter().filter(|n| words.iter().any(|w| n.contains(w))).collect();
    let like = if like.is_empty() { String::new() } else { format!(" Like it: {}.", like.join(", ")) };
    CommandFailure::new(format!(
        "there is no subject `{name}`.{like} Families: {}, planted. All subjects: `towpath explore --list`",
        [&FAMILIES[..], &STRUCTURES].concat().join(", "),
    ))
}

impl Arguments {
    fn method(&self) -> Method {
        match (self.pct, self.dfs) {
            (true, _) => Method::Pct { depth: self.depth.unwrap_or(DEPTH).max(1) },
            (_, true) => Method::Dfs { preemptions: self.depth },
            _ if self.states => Method::States,
            _ => Method::Random,
        }
    }

    fn settings(&self) -> SearchSettings {
        let plan = Plan { threads: self.threads as usize, ops: self.ops as usize };
        let liberties = Liberties { kills: self.kill.into(), ..Liberties::default() };
        let (method, seed) = (self.method(), self.seed);
        let memory = MemoryModel::from_name(&self.memory).unwrap_or_default();
        SearchSettings { memory, method, seed, liberties, ..SearchSettings::new(plan, self.most()) }
    }

    /// Maximum number of schedules.
    fn most(&self) -> u64 {
        let otherwise = if self.states { u64::MAX } else { SCHEDULES };
        self.schedules.unwrap_or(otherwise)
    }

    fn explore(&self, case: &Case, settings: &SearchSettings) -> Result<SearchReport, CommandFailure> {
        let usage = |error: &dyn ToString| CommandFailure::new(error.to_string()).with_code(2);
        match &self.replay {
            None => {
                let bar = progress(case, settings.schedules);
                let report = search(case, settings, &mut |done| {
                    if done % 256 == 0 {
                        bar.set_position(done);
                    }
                });
                bar.finish_and_clear();
                report.map_err(|e| usage(&e))
            }
            Some(text) => match text.parse::<u64>() {
                Ok(_) if self.dfs || self.states => {
                    let method = self.method_options();
                    Err(usage(&format!(
                        "with {method} there are no seeds: give --replay the schedule that was printed"
                    )))
                }
                Ok(seed) => replay_seed(case, settings, seed).map_err(|e| usage(&e)),
                Err(_) => {
                    let schedule: Schedule = text.parse().map_err(|e| usage(&e))?;
                    replay(case, settings, &schedule).map_err(|e| usage(&e))
                }
            },
        }
    }

    /// The command that runs a fault again.
    fn again(&self, case: &Case, what: &str) -> String {
        let mut text =
            format!("towpath explore {} --threads {} --ops {}", case.name(), self.threads, self.ops);
        let _ = write!(text, " --memory {} --waiting {}", self.memory, self.waiting);
        for (is_given, option) in [(self.kill, " --kill"), (self.states, " --states")] {
            text += if is_given { option } else { "" };
        }
        text + " --replay " + what
    }

    fn method_options(&self) -> String {
        match self.method() {
            Method::Pct { depth } => format!("--pct --depth {depth}"),
            Method::Dfs { preemptions: Some(bound) } => format!("--dfs --depth {bound}"),
            Method::Dfs { preemptions: None } => "--dfs".into(),
            Method::States => "--states".into(),
            Method::Random => "--random".into(),
        }
    }

    fn text(&self, case: &Case, report: &SearchReport, took: Duration) -> String {
        let mut text = String::new();
        let _ = write!(text, "{}: {}", case.name, self.extent(report, took));
        match &report.found {
            None => {
                let _ = writeln!(text, " No fault.");
            }
            Some(found) => {
                let _ = writeln!(text, " FAULT: {}", found.failure.fault.name());
                let _ = writeln!(text, "\n{}\n", found.failure.text.trim_end());
                let steps = found.shortest.0.len();
                let _ = writeln!(
                    text,
                    "The shortest schedule found that shows it: {steps} steps, {} switches between threads",
                    found.shortest.switches()
                );
                let _ = writeln!(text, "{}", found.trace);
                let _ = writeln!(text, "Again: {}", self.again(case, &self.schedule_text(found)));
                if let Some(seed) = found.seed {
                    let seed = format!("{seed} {}", self.method_options());
                    let _ = writeln!(text, "   or: {}", self.again(case, &seed));
                }
            }
        }
        text
    }

    /// The schedule as text. An empty one lets each thread go on for as long as it can.
    fn schedule_text(&self, found: &FoundFault) -> String {
        let text = found.replay.to_string();
        if text.is_empty() { "0x0".into() } else { text }
    }

    fn extent(&self, report: &SearchReport, took: Duration) -> String {
        let seconds = took.as_secs_f64();
        let states = match report.states {
            0 => String::new(),
            1 => "1 state in ".into(),
            states => format!("{states} states in "),
        };
        let mut text = format!(
            "{states}{} schedule{} of {} threads x {} operations ({}, {})",
            report.schedules,
            if report.schedules == 1 { "" } else { "s" },
            self.threads,
            self.ops,
            self.memory,
            self.method_options()
        );
        if self.replay.is_none() {
            let _ = write!(text, " in {seconds:.1} s");
            if report.found.is_none() {
                let done = report.schedules.max(report.states);
                let _ = write!(text, ", {:.0} a second", done as f64 / seconds.max(1e-6));
            }
        }
        text.push('.');
        if report.exhausted {
            let _ = write!(text, " There are no others");
            if report.given_up > 0 {
                let _ = write!(text, " ({} were given up as like others)", report.given_up);
            }
            text.push('.');
        }
        if report.stranded > 0 {
            let _ = write!(text, " In {} the others waited for the dead.", report.stranded);
        }
        text
    }

    fn record(&self, case: &Case, report: &SearchReport, took: Duration) -> serde_json::Value {
        let found = report.found.as_ref().map(|found| {
            json!({
                "kind": found.failure.fault,
                "text": found.failure.text,
                "seed": found.seed,
                "schedule": self.schedule_text(found),
                "steps": found.shortest.0.len(),
                "switches": found.shortest.switches(),
                "trace": found.trace,
                "replay": self.again(case, &self.schedule_text(found)),
            })
        });
        json!({
            "subject": case.name,
            "threads": self.threads,
            "ops": self.ops,
            "method": self.method_options(),
            "memory": self.memory,
            "waiting": self.waiting,
            "kill": self.kill,
            "seed": self.seed,
            "schedules": report.schedules,
            "given_up": report.given_up,
            "states": (self.states).then_some(report.states),
            "steps": report.steps,
            "stranded": report.stranded,
            "exhausted": report.exhausted,
            "seconds": took.as_secs_f64(),
            "fault": found,
        })
    }
}

/// Progress bar on standard error, hidden unless that is a terminal.
fn progress(case: &Case, schedules: u64) -> ProgressBar {
    if !output::is_watched() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match schedules {
        u64::MAX => {
            (ProgressBar::new_spinner(), "{prefix} {spinner} {pos} schedules ({rate} a second, {elapsed})")
        }
        _ => (ProgressBar::new(schedules), "{prefix} {wide_bar} {pos}/{len} ({rate} a second, {eta} left)"),
    };
    let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let _ = write!(text, "{}", HumanCount(state.per_sec() as u64));
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", rate));
    bar.set_prefix(case.name.clone());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        explore: Arguments,
    }

    fn parse(arguments: &str) -> Result<Arguments, String> {
        let words = std::iter::once("towpath").chain(arguments.split_whitespace());
        Cli::try_parse_from(words).map(|c| c.explore).map_err(|e| e.to_string())
    }

    #[test]
    fn methods_and_their_depth() {
        let method = |arguments| parse(arguments).unwrap().method();
        assert_eq!(method("queue"), Method::Random);
        assert_eq!(method("queue --pct"), Method::Pct { depth: 3 });
        assert_eq!(method("queue --pct --depth 5"), Method::Pct { depth: 5 });
        assert_eq!(method("queue --dfs"), Method::Dfs { preemptions: None });
        assert_eq!(method("queue --dfs --depth 2"), Method::Dfs { preemptions: Some(2) });
        assert_eq!(method("queue --states"), Method::States);
        assert_eq!(parse("queue").unwrap().most(), 100_000);
        assert_eq!(parse("queue --states").unwrap().most(), u64::MAX);
        assert_eq!(parse("queue --states --schedules 7").unwrap().most(), 7);
        for wrong in ["queue --states --depth 3", "queue --states --kill", "queue --states --dfs"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["queue --dfs --pct", "queue --depth 3", "queue --random --depth 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_of_a_search_need_a_subject() {
        assert!(parse("").unwrap().subject.is_none() && parse("--waiting spin --json").is_ok());
        assert!(parse("--list").unwrap().list && parse("queue --list").is_ok());
        for option in [
            "--threads 2",
            "--ops 2",
            "--schedules 9",
            "--random",
            "--pct",
            "--dfs",
            "--states",
            "--kill",
            "--seed 1",
            "--replay 1",
            "--memory sc",
        ] {
            let name = option.split(' ').next().unwrap_or_default();
            let error = parse(option).expect_err(option);
            assert!(error.contains(name) && error.contains("SUBJECT"), "{error}");
            let error = parse(&format!("queue --list {option}")).expect_err(option);
            assert!(error.contains(name) && error.contains("--list"), "{error}");
            assert!(parse(&format!("queue {option}")).is_ok(), "{option}");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let message = unknown("queue/micheal_scott", Policy::Park).message;
        assert!(message.contains("queue/michael-scott,") && !message.contains("lock/mcs"), "{message}");
        let message = unknown("nonsense", Policy::Park).message;
        assert!(
            message.contains("Families: counter, lock, readers-writer, barrier, queue")
                && message.contains("towpath explore --list")
                && !message.contains("lock/mcs"),
            "{message}"
        );
        assert!(parse("queue --waiting nonsense").unwrap_err().contains("spin-then-park"));
    }

    #[test]
    fn what_is_printed_runs_again() {
        let args = parse("planted/michael-scott-no-recheck --schedules 20000").unwrap();
        let case = find(args.subject.as_deref().unwrap(), Policy::Park).remove(0);
        let report = args.explore(&case, &args.settings()).unwrap();
        let text = args.text(&case, &report, Duration::from_secs(1));
        let commands: Vec<&str> =
            text.lines().filter_map(|l| l.split_once("towpath explore ")).map(|l| l.1).collect();
        assert_eq!(commands.len(), 2, "{text}");
        for command in commands {
            let again = parse(command).unwrap();
            let second = again.explore(&case, &again.settings()).unwrap();
            let (first, second) = (report.found.as_ref().unwrap(), second.found.unwrap());
            assert_eq!((&first.trace, first.digest), (&second.trace, second.digest), "{command}");
            assert!(text.contains(&first.trace));
        }
        let misfit = parse("planted/michael-scott-no-recheck --replay 0x2.7x5").unwrap();
        assert!(misfit.explore(&case, &misfit.settings()).unwrap_err().message.contains("does not fit"));
    }
}
