//! `towpath preload`: an unchanged program whose pthread locks are Towpath's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use clap::builder::PossibleValuesParser;
use towpath::Policy;
use towpath_machine::Native;

use crate::output::remark;
use crate::run::why_not_executed;
use crate::{CommandFailure, Outcome};

mod unreached;

/// Exit code if this command itself fails, apart from the codes that programs use.
const PRELOAD_FAILED: u8 = 125;

/// File names of the library (`doors/preload`), as it is installed and as Cargo builds
/// it.
const LIBRARY: [&str; 2] = ["libtowpath-pthread.so", "libtowpath_pthread.so"];

#[derive(Debug, Args)]
#[command(
    about = "Run a program with Towpath's locks instead of libc's",
    long_about = "Runs an unchanged program whose pthread mutexes, readers–writer locks, conditions, barriers and semaphores are Towpath's: a library is loaded before libc (LD_PRELOAD). Objects with attributes that it does not carry (robust, process-shared, with priorities) stay libc's. The program's children inherit it.",
    after_help = "Examples:
  towpath preload -- ./server                     with Towpath's locks
  towpath preload --waiting park -- ./server      waiters sleep at once
  towpath preload --lock ticket -- ./server       another lock
  towpath preload --report -- ./server            and a report on standard error at the end
  towpath preload --picture locks.html -- ./server    and a page with a picture of that
  towpath preload --trace FILE -- ./server        and a trace of its locks, for `towpath recommend --trace FILE`

Programs for which it does nothing: statically linked ones, ones with more rights than their user (set-user-ID, file capabilities), ones of another libc than glibc, of 32 bits; they are told of on standard error. And locks that are not pthread's (of Rust's std, of Go).

Exit codes: the program's; 2: arguments that make no sense; 125: the library is missing, or the trace or picture can't be written; 126: the program can't be executed; 127: there is no such program.",
    trailing_var_arg = true
)]
pub struct Arguments {
    /// Waiting policy of the program's threads
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Policy::ALL.map(|(_, name)| name)), default_value = "adaptive")]
    waiting: String,
    /// Lock in the program's mutexes: compact, compact/handing, test-and-set,
    /// test-and-test-and-set, ticket
    #[arg(long, value_name = "NAME", value_parser = lock_of_a_mutex, default_value = LOCKS[0])]
    lock: String,
    /// Say on standard error, at the end, for which locks threads have waited, how often
    /// they were handed over, how many of their holders were preempted, and how many objects were
    /// passed to libc. Also if a signal ends the program
    #[arg(long)]
    report: bool,
    /// Draw the waits, hand-overs and preempted holders into a page, at the end. Of the
    /// program's own process, not of its children
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Write the program's acquisitions and releases to a file, which `towpath recommend
    /// --trace` and `towpath sim … --trace` replay. Of the program's own process, not of its
    /// children
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Number of events for which the trace has room, of 16 bytes; those that come later
    /// are counted
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "trace", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    trace_events: u64,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Names of the locks that a mutex can have.
pub const LOCKS: [&str; 5] =
    ["compact", "compact/handing", "test-and-set", "test-and-test-and-set", "ticket"];

fn lock_of_a_mutex(name: &str) -> Result<String, String> {
    match LOCKS.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "a mutex of another program can have one of {}. Locks with a place for each waiter (mcs, clh and others), and robust, are compared for a program by `towpath recommend --trace`",
            LOCKS.join(", ")
        )),
    }
}

/// Replaces this process by the program.
pub fn run(arguments: &Arguments) -> Outcome {
    let failed = |message: String| CommandFailure::new(message).with_code(PRELOAD_FAILED);
    let library = library().map_err(failed)?;
    let Some((program, rest)) = arguments.program.split_first() else {
        return Err(failed("name the program to run".into()));
    };
    let mut preloaded = library.into_os_string();
    if let Some(before) = env::var_os("LD_PRELOAD").filter(|list| !list.is_empty()) {
        preloaded.push(":");
        preloaded.push(before);
    }
    let mut command = Command::new(program);
    command
        .args(rest)
        .env("LD_PRELOAD", preloaded)
        .env("TOWPATH_PRELOAD_WAITING", &arguments.waiting)
        .env("TOWPATH_PRELOAD_LOCK", &arguments.lock)
        .env("TOWPATH_PRELOAD_BUDGET", Native::switch_cost().to_string());
    // The program keeps this process's number.
    let process = std::process::id().to_string();
    // A trace and a picture that this process was to make go on to the program; those of one that
    // has started this command are that one's.
    if env::var("TOWPATH_PRELOAD_MAIN").is_ok_and(|main| main != process) {
        for of_main in ["TOWPATH_PRELOAD_TRACE", "TOWPATH_PRELOAD_EVENTS", "TOWPATH_PRELOAD_PICTURE"] {
            command.env_remove(of_main);
        }
    }
    command.env("TOWPATH_PRELOAD_MAIN", process);
    // The library writes a number over these digits.
    command.env("TOWPATH_PRELOAD_REPORTER", "0000000000");
    if arguments.report {
        command.env("TOWPATH_PRELOAD_REPORT", "1");
    }
    if let Some(picture) = &arguments.picture {
        command.env("TOWPATH_PRELOAD_PICTURE", new_file("picture", picture).map_err(failed)?);
    }
    if let Some(trace) = &arguments.trace {
        command
            .env("TOWPATH_PRELOAD_TRACE", new_file("trace", trace).map_err(failed)?)
            .env("TOWPATH_PRELOAD_EVENTS", arguments.trace_events.to_string());
    }
    if let Some(why) = unreached::why_unreached(program) {
        remark!("towpath: {} keeps its own locks: {why}", program.display());
    }
    let error = command.exec();
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let why = why_not_executed(program, &error);
    Err(CommandFailure::new(format!("{}: {why}", program.display())).with_code(code))
}

/// The name from the root of a file that is made: the program may change its folder.
fn new_file(kind: &str, file: &Path) -> Result<PathBuf, String> {
    File::create(file).and_then(|_| file.canonicalize()).map_err(|error| {
        let remedy = "name one in a folder that you may write to";
        format!("the {kind} {} can't be written: {error}; {remedy}", file.display())
    })
}

/// The library, beside this command or where scripts install.
fn library() -> Result<PathBuf, String> {
    let beside = env::current_exe().ok().and_then(|command| Some(command.parent()?.to_owned()));
    let installed = beside.as_ref().and_then(|folder| Some(folder.parent()?.join("lib")));
    let folders: Vec<PathBuf> = beside.into_iter().chain(installed).collect();
    let found =
        folders.iter().flat_map(|folder| LIBRARY.map(|name| folder.join(name))).find(|file| file.is_file());
    let Some(library) = found else {
        let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        return Err(format!(
            "there is no {} in {}: build it with `cargo build --release -p towpath-pthread`",
            LIBRARY[1],
            places.join(" or ")
        ));
    };
    // The loader takes both for the end of a name.
    let splits = |name: &OsStr| name.as_bytes().iter().any(|byte| b": ".contains(byte));
    if splits(library.as_os_str()) {
        return Err(format!(
            "{} has a space or a colon in its name, at which LD_PRELOAD ends: move it",
            library.display()
        ));
    }
    Ok(library)
}
