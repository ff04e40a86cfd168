//! `towpath run`: N processes of a program as one world.
//!
//! The launcher makes the world, starts the ranks, and then only reacts: to signals for itself (passes them on), to
//! ends of ranks (tells the world at once, so that survivors learn of a death without having to look), and with
//! `--label` to their output. The kernel ends the ranks if the launcher dies (PR_SET_PDEATHSIG); orphans of the ranks
//! become the launcher's children (PR_SET_CHILD_SUBREAPER) and are ended when it ends.
#![allow(unsafe_code)]

mod children;
mod signals;
mod streams;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use towpath::{Algorithm, Policy, World, WorldConfig};
use towpath_shm::{Ending, Handover};

use crate::{Failure, Outcome};
use signals::{Received, Signals, name_of};
use streams::Streams;

/// The exit code if the launcher itself fails, apart from what programs use.
const LAUNCHER_FAILED: u8 = 125;
/// How long those who are to stop may take, before they are killed.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(
    after_help = "Each process finds its rank in TOWPATH_RANK and the number of ranks in TOWPATH_SIZE; the library joins the world by itself (World::join). Standard input goes to rank 0. What the processes leave running is ended when they have ended.

Exit code: that of the first process that crashed (128 + the signal's number for a signal), else the first rank's that isn't 0, else 0. 127: no such program; 126: it can't be executed; 125: the world could not be made.",
    trailing_var_arg = true
)]
pub struct Arguments {
    /// How many processes.
    #[arg(short = 'n', long = "processes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Give the world a name, by which other processes of the same user can open it.
    #[arg(long, value_name = "NAME")]
    world: Option<String>,
    /// The size of the world's area, with K, M or G for powers of 1024: what the queues leave is for long transfers
    /// [default: what the queues need].
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,
    /// How much memory the world has for named shared objects (structures that processes open by name).
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "64K")]
    objects: u64,
    /// Begin each line of output with the rank that wrote it.
    #[arg(long)]
    label: bool,
    /// What to do with the others when a process crashes.
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    on_death: OnDeath,
    /// The claim algorithm of the world's queues.
    #[arg(long, value_name = "NAME", value_parser = algorithm_names())]
    algorithm: Option<String>,
    /// How the processes wait.
    #[arg(long, value_name = "NAME", value_parser = waiting_names())]
    waiting: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnDeath {
    /// Say so; the others go on.
    Report,
    /// Say so and stop the others: SIGTERM, after 2 seconds SIGKILL.
    Kill,
}

fn algorithm_names() -> clap::builder::PossibleValuesParser {
    Algorithm::ALL.map(Algorithm::name).into()
}

fn waiting_names() -> clap::builder::PossibleValuesParser {
    Policy::ALL.iter().map(|(_, name)| *name).collect::<Vec<_>>().into()
}

/// A number of bytes, perhaps with K, M or G.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        other => return Err(format!("{other:?} is no unit: use K, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number of bytes".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// The world: the one place that knows what the rooms above shm put into it.
fn make_world(arguments: &Arguments) -> Result<World, String> {
    let mut config = match arguments.size {
        Some(bytes) => WorldConfig::with_area(arguments.processes, bytes)
            .and_then(|config| config.check().map(|()| config))
            .map_err(|e| format!("--size {bytes}: {e}"))?,
        None => WorldConfig::new(arguments.processes),
    };
    config.object_bytes = arguments.objects;
    if let Some(algorithm) = arguments.algorithm.as_deref().and_then(Algorithm::from_name) {
        config.algorithm = algorithm;
    }
    if let Some(waiting) = arguments.waiting.as_deref().and_then(Policy::from_name) {
        config.waiting = waiting;
    }
    towpath::create(arguments.world.as_deref(), &config).map_err(|e| e.to_string())
}

/// A process that was started.
struct Rank {
    child: Child,
    pid: u32,
    status: Option<ExitStatus>,
    /// It failed without ever having entered the world: a crash as soon as somebody else has.
    never_came: bool,
}

struct Launcher {
    program: String,
    on_death: OnDeath,
    world: World,
    ranks: Vec<Rank>,
    /// Somebody has entered the world.
    came: bool,
    /// The exit code of the first crash.
    crashed: Option<u8>,
    /// The ranks were told to end, by a signal that was passed on or because of a crash: their ends are no news.
    told_to_end: bool,
    /// When to kill those who were asked to stop.
    deadline: Option<Instant>,
}

pub fn run(arguments: Arguments) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| Failure::new(e).with_code(LAUNCHER_FAILED);
    let world = make_world(&arguments).map_err(|e| failed(&e))?;
    // Before any thread is started, so that all have them blocked.
    let signals = Signals::block().map_err(|e| failed(&e))?;
    children::adopt_orphans().map_err(|e| failed(&e))?;
    let handover = Handover::new(&world).map_err(|e| failed(&e))?;
    let mut launcher = Launcher {
        program: arguments.program[0].to_string_lossy().into_owned(),
        on_death: arguments.on_death,
        world,
        ranks: Vec::new(),
        came: false,
        crashed: None,
        told_to_end: false,
        deadline: None,
    };
    let mut streams = Streams::new(arguments.label, arguments.processes);
    for rank in 0..arguments.processes {
        let mut command = command(&arguments, rank, &signals, &handover);
        match command.spawn() {
            Ok(mut child) => {
                streams.add(rank, &mut child);
                let pid = child.id();
                launcher.ranks.push(Rank { child, pid, status: None, never_came: false });
            }
            Err(e) => {
                launcher.abort();
                return Err(not_started(&launcher.program, &e));
            }
        }
    }
    launcher.look_after(&signals, &mut streams).map_err(|e| {
        launcher.abort();
        failed(&e)
    })?;
    children::end_orphans(GRACE, !launcher.told_to_end);
    streams.finish();
    Ok(ExitCode::from(launcher.exit_code()))
}

fn command(arguments: &Arguments, rank: u32, signals: &Signals, handover: &Handover) -> Command {
    let mut command = Command::new(&arguments.program[0]);
    command.args(&arguments.program[1..]);
    // Like other launchers: what is typed goes to the first.
    command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
    if arguments.label {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    handover.prepare(&mut command, rank);
    let launcher = std::process::id();
    let mask = signals.mask_before();
    let prepare = move || {
        signals::set_mask(&mask)?;
        // SAFETY: prctl with PR_SET_PDEATHSIG takes a number; getppid has no preconditions.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The launcher may have died before the call.
            if libc::getppid() as u32 != launcher {
                libc::_exit(i32::from(LAUNCHER_FAILED));
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    command
}

fn not_started(program: &str, error: &io::Error) -> Failure {
    let (code, why) = match error.kind() {
        io::ErrorKind::NotFound => {
            (127, "not found: neither here nor in PATH, or its interpreter is missing".to_owned())
        }
        io::ErrorKind::PermissionDenied => (126, "not executable: permission denied (chmod +x?)".to_owned()),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            (126, "not executable: neither a program for this machine nor a script with #!".to_owned())
        }
        _ => (126, format!("can't be started: {error}")),
    };
    Failure::new(format!("{program}: {why}")).with_code(code)
}

impl Launcher {
    /// Until all ranks have ended.
    fn look_after(&mut self, signals: &Signals, streams: &mut Streams) -> io::Result<()> {
        loop {
            self.collect()?;
            if self.ranks.iter().all(|r| r.status.is_some()) {
                return Ok(());
            }
            let mut sources = vec![PollFd::new(signals, PollFlags::IN)];
            sources.extend(streams.sources());
            let timeout = self.timeout();
            match poll(&mut sources, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let ready: Vec<bool> = sources.iter().map(|s| !s.revents().is_empty()).collect();
            drop(sources);
            streams.read(&ready[1..]);
            while let Some(received) = signals.next() {
                self.pass_on(received);
            }
        }
    }

    /// How long nothing needs to be done by itself.
    fn timeout(&self) -> Option<Timespec> {
        let mut wait = self.deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if self.ranks.iter().any(|r| r.never_came) {
            let soon = Duration::from_millis(100);
            wait = Some(wait.map_or(soon, |w| w.min(soon)));
        }
        wait.map(|w| Timespec { tv_sec: w.as_secs() as i64, tv_nsec: w.subsec_nanos().into() })
    }

    /// Notes who has ended, and what follows.
    fn collect(&mut self) -> io::Result<()> {
        while let Some(pid) = children::ended_child() {
            match self.ranks.iter().position(|r| r.pid == pid && r.status.is_none()) {
                Some(rank) => {
                    let status = self.ranks[rank].child.wait()?;
                    self.ended(rank, status);
                }
                // Somebody's orphan.
                None => children::reap(pid),
            }
        }
        if self.ranks.iter().any(|r| r.never_came) && self.somebody_came() {
            for rank in 0..self.ranks.len() {
                if std::mem::take(&mut self.ranks[rank].never_came) {
                    self.crash(rank, "without having entered the world");
                }
            }
        }
        if self.deadline.is_some_and(|d| d <= Instant::now()) {
            self.deadline = None;
            self.send_all(Signal::KILL);
        }
        Ok(())
    }

    /// Whether the program uses the world at all.
    fn somebody_came(&mut self) -> bool {
        self.came = self.came || (0..self.world.size()).any(|rank| self.world.participant(rank).is_some());
        self.came
    }

    fn ended(&mut self, rank: usize, status: ExitStatus) {
        let failed = !status.success();
        self.ranks[rank].status = Some(status);
        let ending = self.world.process_ended(rank as u32, self.ranks[rank].pid, failed);
        self.came |= ending != Ending::NeverCame;
        // What its processes, if it had any, were in the world may be known only now.
        self.world.check_deaths();
        if !failed {
            return;
        }
        match (status.signal(), ending) {
            (Some(_), _) => self.crash(rank, ""),
            (None, Ending::Participant) => self.crash(rank, "without having left the world"),
            (None, Ending::NeverCame) => self.ranks[rank].never_came = true,
            // It said how it went; nobody waits for it.
            (None, Ending::Left) => {}
        }
    }

    /// A rank has crashed: says so, and does what was asked for in this case.
    fn crash(&mut self, rank: usize, circumstances: &str) {
        if self.told_to_end {
            return;
        }
        let Some(status) = self.ranks[rank].status else { return };
        let how = match status.signal() {
            Some(signal) => {
                let core = if status.core_dumped() { ", core dumped" } else { "" };
                format!("was killed by {} (signal {signal}{core})", name_of(signal))
            }
            None => format!("ended with code {} {circumstances}", status.code().unwrap_or(1)),
        };
        let others = self.ranks.iter().filter(|r| r.status.is_none()).count();
        let then = match (self.on_death, others) {
            (_, 0) => "",
            (OnDeath::Kill, _) => "; stopping the others",
            (OnDeath::Report, _) => "; the others go on",
        };
        eprintln!("towpath: rank {rank} ({}, process {}) {how}{then}", self.program, self.ranks[rank].pid);
        self.crashed.get_or_insert(code_of(status));
        if self.on_death == OnDeath::Kill && others > 0 {
            self.send_all(Signal::TERM);
            // One that is stopped could not react.
            self.send_all(Signal::CONT);
            self.told_to_end = true;
            self.deadline = Some(Instant::now() + GRACE);
        }
    }

    fn pass_on(&mut self, received: Received) {
        // What was typed has reached the ranks too: they are in the same process group.
        if !received.typed {
            self.send_all(received.signal);
        }
        if signals::ENDING.contains(&received.signal.as_raw()) {
            self.told_to_end = true;
        }
    }

    fn send_all(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|r| r.status.is_none()) {
            // A child that was not waited for: its pid is still its own.
            if let Some(pid) = i32::try_from(rank.pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// Ends those that were started, at once.
    fn abort(&mut self) {
        for rank in self.ranks.iter_mut().filter(|r| r.status.is_none()) {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
        children::end_orphans(Duration::ZERO, false);
    }

    fn exit_code(&self) -> u8 {
        let first = self.ranks.iter().filter_map(|r| r.status).map(code_of).find(|&code| code != 0);
        self.crashed.or(first).unwrap_or(0)
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    code as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("3K"), Ok(3072));
        assert_eq!(parse_size("2m"), Ok(2 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for bad in ["", "K", "1T", "1KB", "-1", "1.5M", "99999999999G", "M1"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
