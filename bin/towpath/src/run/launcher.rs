//! The supervisor's loop while ranks run: passes signals on and reacts to ends.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use towpath::World;
use towpath_shm::{Ending, Handover};

use super::signals::{Signals, is_ending, name_of};
use super::streams::Streams;
use super::supervisor::{Heard, Parent};
use super::{Arguments, LAUNCHER_FAILED, OnDeath, children};
use crate::{CommandFailure, Outcome};

/// Exit code when the reader of labelled output has gone: that of a death by SIGPIPE.
const READER_GONE: u8 = 141;

/// A process that was started.
struct Rank {
    child: Child,
    pid: u32,
    status: Option<ExitStatus>,
}

/// Reason for which the ranks were told to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// None: they were not told.
    No,
    /// A rank has failed.
    Failure,
    /// The launcher was told to, or was killed.
    Launcher,
}

/// The ranks of a world, and how they are looked after.
pub struct Launcher<'a> {
    program: String,
    on_death: OnDeath,
    grace: Duration,
    world: World,
    handover: Handover,
    signals: &'a Signals,
    parent: &'a Parent,
    streams: Streams,
    ranks: Vec<Rank>,
    /// True once a process has entered the world.
    came: bool,
    /// The exit code of the first failure.
    failed: Option<u8>,
    /// Reason for which the ranks were told to end. Their ends are then no news.
    told: Told,
    /// Time at which ranks that were told to end are killed.
    deadline: Option<Instant>,
    /// True once the command has died: nothing is reported or waited for any more.
    alone: bool,
}

impl<'a> Launcher<'a> {
    pub fn new(
        arguments: &Arguments,
        world: World,
        handover: Handover,
        signals: &'a Signals,
        parent: &'a Parent,
    ) -> Result<Self, CommandFailure> {
        let streams = Streams::new(arguments.label, arguments.processes).map_err(|e| {
            let remedy = match e.raw_os_error() {
                Some(libc::EMFILE) => "too many open files: raise `ulimit -n`",
                _ => "raise `ulimit -u` or `ulimit -v`",
            };
            CommandFailure::new(format!("starting a thread for the output: {e} ({remedy})"))
                .with_code(LAUNCHER_FAILED)
        })?;
        Ok(Launcher {
            program: arguments.program[0].to_string_lossy().into_owned(),
            on_death: arguments.on_death,
            grace: arguments.grace,
            world,
            handover,
            signals,
            parent,
            streams,
            ranks: Vec::new(),
            came: false,
            failed: None,
            told: Told::No,
            deadline: None,
            alone: false,
        })
    }

    pub fn handover(&self) -> &Handover {
        &self.handover
    }

    /// Starts the next rank.
    pub fn start(&mut self, rank: u32, mut command: Command) -> io::Result<()> {
        let mut child = command.spawn()?;
        self.streams.add(rank, &mut child);
        let pid = child.id();
        self.ranks.push(Rank { child, pid, status: None });
        Ok(())
    }

    /// Looks after the ranks to their end, ends orphans, and passes on the last output.
    pub fn finish(mut self) -> Outcome {
        if let Err(e) = self.look_after() {
            self.abort();
            return Err(CommandFailure::new(e).with_code(LAUNCHER_FAILED));
        }
        let (grace, say) =
            if self.alone { (Duration::ZERO, false) } else { (self.grace, self.told == Told::No) };
        let streams = &mut self.streams;
        children::end_orphans(grace, |pid| {
            if say {
                streams.remark(format_args!("towpath: ending process {pid}, which was left running"));
            }
        });
        if !self.alone {
            self.write_rest();
        }
        let code = self.exit_code();
        match self.streams.failure() {
            Some((_, Errno::PIPE)) if code == 0 => Ok(ExitCode::from(READER_GONE)),
            Some((target, e)) if e != Errno::PIPE => {
                let code = if code == 0 { LAUNCHER_FAILED } else { code };
                Err(CommandFailure::new(format!("writing to {}: {e}", target.name())).with_code(code))
            }
            _ => Ok(ExitCode::from(code)),
        }
    }

    /// Reacts to events until all ranks have ended.
    fn look_after(&mut self) -> io::Result<()> {
        loop {
            self.collect()?;
            if self.ranks.iter().all(|r| r.status.is_some()) {
                return Ok(());
            }
            let wait = self.deadline.map(|d| d.saturating_duration_since(Instant::now()));
            self.wait(wait)?;
        }
    }

    /// Sleeps until an event comes, and handles it.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|w| Timespec { tv_sec: w.as_secs() as i64, tv_nsec: w.subsec_nanos().into() });
        let socket = self.handover.socket();
        let mut sources = vec![PollFd::new(self.signals, PollFlags::IN)];
        if !self.alone {
            sources.push(PollFd::new(self.parent, PollFlags::IN));
        }
        sources.extend(socket.map(|s| PollFd::from_borrowed_fd(s, PollFlags::IN)));
        let own = sources.len();
        sources.extend(self.streams.sources());
        match poll(&mut sources, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready: Vec<bool> = sources.iter().map(|s| !s.revents().is_empty()).collect();
        drop(sources);
        self.streams.read(&ready[own..]);
        self.handover.answer();
        while let Some(received) = self.signals.next() {
            // The ranks are of the same process group and have got it too: what was typed, and what
            // was sent to the group, of which the command says so as well.
            self.note(received.signal);
        }
        while !self.alone
            && let Some(heard) = self.parent.next()
        {
            match heard {
                Heard::Signal(signal) => {
                    self.send_all(signal);
                    self.note(signal);
                }
                Heard::Death => {
                    self.alone = true;
                    self.told = Told::Launcher;
                    self.send_all(Signal::KILL);
                }
            }
        }
        Ok(())
    }

    /// Notes ends of ranks and orphans, and kills late ones.
    fn collect(&mut self) -> io::Result<()> {
        while let Some(pid) = children::ended_child() {
            match self.ranks.iter().position(|r| r.pid == pid && r.status.is_none()) {
                Some(rank) => {
                    let status = self.ranks[rank].child.wait()?;
                    self.ended(rank, status);
                }
                // An orphan.
                None => _ = children::reap(pid),
            }
        }
        if self.deadline.is_some_and(|d| d <= Instant::now()) {
            self.deadline = None;
            let late: Vec<String> = (0..self.ranks.len())
                .filter(|&r| self.ranks[r].status.is_none())
                .map(|r| r.to_string())
                .collect();
            if !late.is_empty() {
                let (late, grace) = (late.join(", "), self.grace.as_secs_f64());
                self.remark(format_args!(
                    "towpath: killing what did not end within {grace} s of SIGTERM: rank {late}"
                ));
            }
            self.send_all(Signal::KILL);
        }
        Ok(())
    }

    fn ended(&mut self, rank: usize, status: ExitStatus) {
        let failed = !status.success();
        self.ranks[rank].status = Some(status);
        let ending = self.world.process_ended(rank as u32, self.ranks[rank].pid, failed);
        // The deaths of its processes in the world, if it had any, may be known only now.
        self.world.check_deaths();
        self.came = self.came
            || ending != Ending::NeverCame
            || (0..self.world.size()).any(|rank| self.world.participant(rank).is_some());
        if failed {
            let circumstances = match (status.signal(), ending) {
                (None, Ending::Participant) => " without having left the world",
                (None, Ending::Left) => " after it had left the world",
                (None, Ending::NeverCame) if self.came => " without having entered the world",
                _ => "",
            };
            self.report(rank, status, circumstances);
        }
    }

    /// Reports a rank's failure and treats the other ranks as --on-death asks.
    fn report(&mut self, rank: usize, status: ExitStatus, circumstances: &str) {
        if self.told != Told::No {
            return;
        }
        let how = match status.signal() {
            Some(signal) => {
                let core = if status.core_dumped() { ", core dumped" } else { "" };
                format!("was killed by {} (signal {signal}{core})", name_of(signal))
            }
            None => format!("ended with code {}{circumstances}", status.code().unwrap_or(1)),
        };
        let others = self.ranks.iter().filter(|r| r.status.is_none()).count();
        let then = match (self.on_death, others) {
            (_, 0) => "",
            (OnDeath::Kill, _) => "; stopping the others",
            (OnDeath::Report, _) => "; the others go on",
        };
        let (program, pid) = (self.program.clone(), self.ranks[rank].pid);
        self.remark(format_args!("towpath: rank {rank} ({program}, process {pid}) {how}{then}"));
        self.failed.get_or_insert(code_of(status));
        if self.on_death == OnDeath::Kill {
            self.told = Told::Failure;
            self.send_all(Signal::TERM);
            self.expect_end(Signal::TERM);
        }
    }

    /// Notes a signal that the ranks have got.
    fn note(&mut self, signal: Signal) {
        if is_ending(signal) {
            self.told = Told::Launcher;
            self.expect_end(signal);
        }
    }

    /// Prepares for the end of the ranks after a signal.
    ///
    /// SIGTERM ends them in any case: by SIGKILL, after the grace time.
    fn expect_end(&mut self, signal: Signal) {
        // A stopped rank could not react.
        self.send_all(Signal::CONT);
        if signal == Signal::TERM {
            self.deadline.get_or_insert(Instant::now() + self.grace);
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

    /// Waits until the last output is written (after an order to end: the grace time).
    fn write_rest(&mut self) {
        let mut deadline = None;
        while !self.streams.finish() && !self.alone {
            if self.told == Told::Launcher {
                deadline.get_or_insert(Instant::now() + self.grace);
            }
            let wait = deadline.map(|d: Instant| d.saturating_duration_since(Instant::now()));
            if wait == Some(Duration::ZERO) || self.wait(wait).is_err() {
                return;
            }
        }
    }

    /// Ends the started ranks at once.
    pub fn abort(&mut self) {
        for rank in self.ranks.iter_mut().filter(|r| r.status.is_none()) {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
        children::end_orphans(Duration::ZERO, |_| {});
    }

    fn exit_code(&self) -> u8 {
        let first = self.ranks.iter().filter_map(|r| r.status).map(code_of).find(|&code| code != 0);
        self.failed.or(first).unwrap_or(0)
    }

    fn remark(&mut self, text: fmt::Arguments<'_>) {
        self.streams.remark(text);
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
