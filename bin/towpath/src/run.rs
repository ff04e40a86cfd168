//! `towpath run`: N processes of a program as one world.
//!
//! A supervisor (`run/supervisor.rs`) makes the world, starts the ranks, and then only reacts
//! (`run/launcher.rs`): to signals for the launcher (passes them on), to ends of ranks (tells the
//! world at once, so that survivors learn of a death without having to look), and with `--label` to
//! their output. The kernel ends the ranks if the supervisor dies (PR_SET_PDEATHSIG); orphans of
//! the ranks become its children (PR_SET_CHILD_SUBREAPER) and are ended when it ends.
#![allow(unsafe_code)]

pub mod children;
mod descriptors;
mod launcher;
pub mod signals;
mod span;
pub mod streams;
pub mod supervisor;
mod writer;

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use towpath::{Algorithm, Policy, World, WorldConfig};
use towpath_shm::Handover;

use crate::size::parse_size;
use crate::{CommandFailure, Outcome};
use descriptors::LimitsBefore;
use launcher::Launcher;
use signals::Signals;
use span::LaunchPart;
use span::job::Job;
use supervisor::{Parent, supervised};

/// Exit code if the launcher itself fails, apart from the codes that programs use.
const LAUNCHER_FAILED: u8 = 125;

#[derive(Debug, Args)]
#[command(
    about = "Start N processes of a program as one world",
    long_about = "Starts N processes of a program as the ranks of one world: they share a segment of memory in which they send each other messages. Each rank finds its number in TOWPATH_RANK and the number of ranks in TOWPATH_SIZE; the library enters the world by itself (World::join). Standard input goes to rank 0.",
    after_help = "Examples:
  towpath run -n 4 ./program                    four ranks
  towpath run -n 4 --label ./program input      each line of output begins with its rank
  towpath run -n 4 --on-death=report ./program  survivors go on when a rank dies, and are told
  towpath run -n 2 --size 64M ./program         room for long transfers
  towpath run --hosts localhost:2,b:2 ./program two ranks here, two on host b (docs/hosts.md)

Failures: a rank fails if it ends with a code other than 0, or by a signal, with or without having entered the world. Then the others are ended, or (--on-death=report) informed. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM and SIGWINCH are passed on to the ranks; after one of the first four their ends are no failures. SIGTERM is followed by SIGKILL after the time of --grace. Processes that the ranks leave running are ended when all ranks have ended, and when this command is killed.

Exit codes: that of the rank that failed first (128 + the signal's number for a signal), else that of the lowest rank whose code isn't 0, else 0. 125: the world could not be made, a host could not join or was lost, too few processes can be started, or labelled output can't be written; 126: the program can't be executed; 127: there is no such program; 141: the reader of the labelled output has gone.",
    trailing_var_arg = true
)]
pub struct Arguments {
    /// Number of processes, 1 to 4096. More than 8 have smaller queues, unless --packets
    /// and --blocks say otherwise: 64 take 64 MiB together, 256 take 71 MiB, 1024 take 168 MiB
    #[arg(short = 'n', long = "processes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), required_unless_present = "hosts")]
    processes: Option<u32>,
    /// Name of the world, by which other processes of the same user can open it
    #[arg(long, value_name = "NAME")]
    world: Option<String>,
    /// Number of endpoints that each process may have, 1 to 64. Queues are as small as
    /// those of so many processes with one each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), default_value = "1", conflicts_with = "join")]
    endpoints: u32,
    /// Number of packets in each queue, a power of two [default: 512 for up to 64
    /// processes, then fewer, at least 64]
    #[arg(long, value_name = "N", conflicts_with = "join")]
    packets: Option<u32>,
    /// Number of blocks of 32 KiB in each queue, for payloads [default: 64 for up to 8
    /// processes, then fewer, 12 for 43 to 64, at least 2]
    #[arg(long, value_name = "N", conflicts_with = "join")]
    blocks: Option<u32>,
    /// Size of the world's area, with K, M or G for powers of 1024; memory beyond the
    /// queues is for long transfers, and an area too small for them has fewer blocks, at least
    /// 12 in each queue [default: the size of the queues]
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "join")]
    size: Option<u64>,
    /// Size of the memory for named objects (structures that processes open by name).
    /// Each object after the 64th takes 256 bytes more than its type
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "64K", conflicts_with = "join")]
    objects: u64,
    /// Begin each line of output with the rank that wrote it (lines longer than 1 MiB are
    /// broken)
    #[arg(long)]
    label: bool,
    /// Time that processes have to end after SIGTERM before they are killed, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds, conflicts_with = "join")]
    grace: Duration,
    /// Treatment of the other processes when one fails
    #[arg(long, value_name = "WHAT", default_value = "kill", conflicts_with = "join")]
    on_death: OnDeath,
    /// Claim algorithm of the world's queues
    #[arg(long, value_name = "NAME", value_parser = algorithm_names(), conflicts_with = "join")]
    algorithm: Option<String>,
    /// Waiting policy of the processes
    #[arg(long, value_name = "NAME", value_parser = waiting_names(), conflicts_with = "join")]
    waiting: Option<String>,
    #[command(flatten)]
    span: span::SpanArguments,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnDeath {
    /// Report it; the others go on, and their calls report the death
    Report,
    /// Report it and end the others: SIGTERM, after the time of --grace SIGKILL
    Kill,
}

fn algorithm_names() -> clap::builder::PossibleValuesParser {
    Algorithm::ALL.map(Algorithm::name).into()
}

fn waiting_names() -> clap::builder::PossibleValuesParser {
    Policy::ALL.iter().map(|(_, name)| *name).collect::<Vec<_>>().into()
}

/// Longest time that is told apart from forever: it can be added to any instant.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A number of seconds, perhaps with a fraction.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let time =
        Duration::try_from_secs_f64(seconds).map_err(|_| "not a time that can be waited for".to_owned())?;
    Ok(time.min(CENTURY))
}

/// Sleeps until a descriptor is ready, a signal comes, or the time is over.
pub fn poll_within(sources: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<()> {
    // A time that no `Timespec` has room for is without an end.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(sources, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// The configuration of a world of so many processes, with the queues and objects of
/// the rooms above shm.
fn config(arguments: &Arguments, processes: u32) -> Result<WorldConfig, String> {
    let endpoints = processes * arguments.endpoints;
    let mut config =
        WorldConfig { processes, object_bytes: arguments.objects, ..WorldConfig::new(endpoints) };
    config.packets = arguments.packets.unwrap_or(config.packets);
    config.blocks = arguments.blocks.unwrap_or(config.blocks);
    config.check().map_err(|e| e.to_string())?;
    if let Some(bytes) = arguments.size {
        if arguments.blocks.is_none() {
            config = config.with_blocks_for(bytes);
        }
        config = config
            .in_area(bytes)
            .and_then(|config| config.check().map(|()| config))
            .map_err(|e| format!("--size {bytes}: {e}"))?;
    }
    if let Some(algorithm) = arguments.algorithm.as_deref().and_then(Algorithm::from_name) {
        config.algorithm = algorithm;
    }
    if let Some(waiting) = arguments.waiting.as_deref().and_then(Policy::from_name) {
        config.waiting = waiting;
    }
    Ok(config)
}

/// Makes the world, or this host's part of it: these ranks.
fn make_world(arguments: &Arguments, config: &WorldConfig, ranks: Range<u32>) -> Result<World, String> {
    config.check().map_err(|e| e.to_string())?;
    World::create_part(&config.spec(arguments.world.as_deref()), ranks).map_err(|e| e.to_string())
}

pub fn run(arguments: Arguments) -> Outcome {
    supervised(LAUNCHER_FAILED, "the ranks", |parent, signals| supervise(&arguments, parent, signals))
}

/// World of a job, the job's other hosts if there are any, and its rules.
struct Launch {
    world: World,
    job: Option<Job>,
    on_death: OnDeath,
    grace: Duration,
    limit: LimitsBefore,
}

/// Makes the world, with other hosts if that is wanted.
fn launch(arguments: &Arguments, parent: &Parent, signals: &Signals) -> Result<Launch, CommandFailure> {
    let failed = |e: String| CommandFailure::new(e).with_code(LAUNCHER_FAILED);
    let room = |world: &World| {
        let here = world.local_ranks().len() as u32;
        let pipes = if arguments.label { 2 } else { 0 };
        descriptors::make_room(here, pipes, world.size() - here).map_err(failed)
    };
    let (on_death, grace) = (arguments.on_death, arguments.grace);
    match arguments.span.part() {
        LaunchPart::Alone => {
            arguments.span.check_alone()?;
            let processes = arguments.processes.unwrap_or(1);
            let config = config(arguments, processes).map_err(failed)?;
            let world = make_world(arguments, &config, 0..processes).map_err(failed)?;
            Ok(Launch { limit: room(&world)?, world, job: None, on_death, grace })
        }
        LaunchPart::Hub => {
            let gathered = span::hub::gather(arguments, parent, signals)?;
            let limit = room(&gathered.world)?;
            let (job, world) = Job::of_hub(gathered)?;
            Ok(Launch { world, job: Some(job), on_death, grace, limit })
        }
        LaunchPart::Joiner => {
            let joined = span::joiner::join(arguments, parent, signals)?;
            let limit = room(&joined.world)?;
            let on_death = if joined.terms.stops_on_failure { OnDeath::Kill } else { OnDeath::Report };
            let grace = Duration::from_millis(joined.terms.grace).min(CENTURY);
            let (job, world) = Job::of_joiner(joined, arguments.span.place.is_some())?;
            Ok(Launch { world, job: Some(job), on_death, grace, limit })
        }
    }
}

/// Starts the ranks and looks after them, as the supervisor.
fn supervise(arguments: &Arguments, parent: &Parent, signals: &Signals) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| CommandFailure::new(e).with_code(LAUNCHER_FAILED);
    let launch = launch(arguments, parent, signals)?;
    let handover = Handover::polled(&launch.world).map_err(|e| failed(&e))?;
    let (ranks, limit) = (launch.world.local_ranks(), launch.limit);
    let mut launcher = Launcher::new(arguments, launch, handover, signals, parent)?;
    for rank in ranks {
        let command = command(arguments, rank, signals, launcher.handover(), limit);
        if let Err(e) = launcher.start(rank, command) {
            launcher.abort();
            return Err(not_started(&arguments.program[0].to_string_lossy(), &e));
        }
    }
    launcher.finish()
}

fn command(
    arguments: &Arguments,
    rank: u32,
    signals: &Signals,
    handover: &Handover,
    limit: LimitsBefore,
) -> Command {
    let mut command = Command::new(&arguments.program[0]);
    command.args(&arguments.program[1..]);
    // Like other launchers: what is typed goes to the first.
    let gets_input = rank == 0 && arguments.span.key.as_deref() != Some(Path::new("-"));
    command.stdin(if gets_input { Stdio::inherit() } else { Stdio::null() });
    if arguments.label {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    handover.prepare(&mut command, rank);
    let launcher = getpid();
    let mask = signals.mask_before();
    let prepare = move || {
        signals::set_mask(&mask)?;
        limit.restore()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The launcher may have died before the call.
        if getppid() != Some(launcher) {
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(i32::from(LAUNCHER_FAILED)) };
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    command
}

fn not_started(program: &str, error: &io::Error) -> CommandFailure {
    let short_of = |what: &str, remedy: &str| {
        CommandFailure::new(format!("{program} can't be started: {what}: {remedy}"))
            .with_code(LAUNCHER_FAILED)
    };
    match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            return short_of("too many processes of this user", "raise the limit (`ulimit -u`)");
        }
        Some(libc::ENOMEM) => return short_of("too little memory", "free some, or start fewer processes"),
        Some(libc::EMFILE) => return short_of("too many open files", "raise the limit (`ulimit -n`)"),
        Some(libc::ENFILE) => {
            return short_of("too many open files on this machine", "close some (/proc/sys/fs/file-max)");
        }
        _ => {}
    }
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    CommandFailure::new(format!("{program}: {}", why_not_executed(program, error))).with_code(code)
}

/// Returns why the system did not execute a program.
pub fn why_not_executed(program: impl AsRef<Path>, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "not found: neither here nor in PATH, or its interpreter is missing",
        io::ErrorKind::PermissionDenied if program.as_ref().is_dir() => "not executable: it is a directory",
        io::ErrorKind::PermissionDenied => "not executable: permission denied (chmod +x?)",
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            "not executable: neither a program for this machine nor a script with #!"
        }
        _ => return format!("can't be started: {error}"),
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_has_endpoints_for_each_process() {
        use clap::FromArgMatches as _;

        let command = Arguments::augment_args(clap::Command::new("run"));
        for (options, expected) in [(&["-n", "3"][..], Ok(3)), (&["-n", "3", "--endpoints", "4"], Ok(12))] {
            let words = ["run"].iter().chain(options).chain(&["true"]);
            let arguments = Arguments::from_arg_matches(&command.clone().get_matches_from(words)).unwrap();
            let made = config(&arguments, 3);
            assert_eq!(made.as_ref().map(|made| (made.processes, made.endpoints)), expected.map(|n| (3, n)));
        }
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0"), Ok(Duration::ZERO));
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        for bad in ["", "x", "-1", "1e300", "NaN", "inf"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
