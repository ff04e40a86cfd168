//! The supervisor's loop while ranks run: passes signals on and reacts to ends.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use towpath::World;
use towpath_shm::{Ending, Handover};

use super::children::ChildEnd;
use super::signals::{Signals, is_ending, name_of};
use super::span::job::{Job, JobEvent};
use super::span::note::RankEnd;
use super::streams::Streams;
use super::supervisor::{Heard, Parent};
use super::{Arguments, LAUNCHER_FAILED, Launch, OnDeath, children, poll_within};
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
    /// A rank has failed, or a host was lost.
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
    /// The job's other hosts.
    job: Option<Job>,
    handover: Handover,
    signals: &'a Signals,
    parent: &'a Parent,
    streams: Streams,
    /// Ranks of this host, from [`Launcher::first`] on.
    ranks: Vec<Rank>,
    first: u32,
    /// Exit codes of ranks of other hosts that have failed, with the lowest rank first.
    codes: BTreeMap<u32, u8>,
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
        launch: Launch,
        handover: Handover,
        signals: &'a Signals,
        parent: &'a Parent,
    ) -> Result<Self, CommandFailure> {
        let Launch { world, mut job, on_death, grace, .. } = launch;
        let streams = Streams::new(arguments.label, world.size());
        let mut streams = streams.map_err(|e| {
            let remedy = match e.raw_os_error() {
                Some(libc::EMFILE) => "too many open files: raise `ulimit -n`",
                _ => "raise `ulimit -u` or `ulimit -v`",
            };
            CommandFailure::new(format!("starting a thread for the output: {e} ({remedy})"))
                .with_code(LAUNCHER_FAILED)
        })?;
        if let Some(job) = &mut job {
            job.add_streams(&mut streams);
        }
        Ok(Launcher {
            program: arguments.program[0].to_string_lossy().into_owned(),
            on_death,
            grace,
            first: world.local_ranks().start,
            world,
            job,
            codes: BTreeMap::new(),
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
        let looked_after = self.look_after().and_then(|()| self.take_leave());
        if let Err(e) = looked_after {
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

    /// Tells the other hosts that the job is over, and waits until they are gone.
    fn take_leave(&mut self) -> io::Result<()> {
        let code = self.exit_code();
        if let Some(job) = self.job.as_mut().filter(|_| !self.alone) {
            job.end(code);
        }
        let until = Instant::now() + self.grace + Job::FAREWELL;
        while !self.alone && self.job.as_ref().is_some_and(Job::has_guests) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.wait(Some(left))?;
            self.collect()?;
        }
        if let Some(job) = &mut self.job {
            job.close();
        }
        Ok(())
    }

    /// Reacts to events until all ranks have ended.
    fn look_after(&mut self) -> io::Result<()> {
        loop {
            self.collect()?;
            let others_ended = self.job.as_ref().is_none_or(Job::is_over) || self.alone;
            if others_ended && self.ranks.iter().all(|r| r.status.is_some()) {
                return Ok(());
            }
            let wait = self.deadline.map(|d| d.saturating_duration_since(Instant::now()));
            self.wait(wait)?;
        }
    }

    /// Sleeps until an event comes, and handles it.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let socket = self.handover.socket();
        let mut sources = vec![PollFd::new(self.signals, PollFlags::IN)];
        if !self.alone {
            sources.push(PollFd::new(self.parent, PollFlags::IN));
        }
        sources.extend(socket.map(|s| PollFd::from_borrowed_fd(s, PollFlags::IN)));
        let others = self.job.as_ref().and_then(Job::source);
        sources.extend(others.map(|s| PollFd::from_borrowed_fd(s, PollFlags::IN)));
        let own = sources.len();
        sources.extend(self.streams.sources());
        poll_within(&mut sources, limit)?;
        let ready: Vec<bool> = sources.iter().map(|s| !s.revents().is_empty()).collect();
        drop(sources);
        self.streams.read(&ready[own..]);
        self.handover.answer();
        while let Some(received) = self.signals.next() {
            // The ranks are of the same process group and have got it too: what was typed, and what
            // was sent to the group, of which the command says so as well.
            if received.typed {
                self.tell_signal(received.signal);
            }
            self.note(received.signal);
        }
        while !self.alone
            && let Some(heard) = self.parent.next()
        {
            match heard {
                Heard::Signal(signal) => {
                    self.tell_signal(signal);
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
        while let Some(event) = self.job.as_mut().and_then(Job::next) {
            self.note_event(event)?;
        }
        Ok(())
    }

    /// Reacts to an event of the job's other hosts.
    fn note_event(&mut self, event: JobEvent) -> io::Result<()> {
        match event {
            JobEvent::Ended(end) => {
                if end.code != Some(0) {
                    self.codes.insert(end.rank, code_of(end.code, end.signal));
                    self.report(&end);
                }
            }
            JobEvent::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.send_all(signal);
                    self.note(signal);
                }
            }
            JobEvent::Stop => self.stop_others(),
            JobEvent::HostLost { name, why, ranks, is_hub } => self.note_lost(&name, &why, &ranks, is_hub),
            JobEvent::GatewayFailed => {
                return Err(io::Error::other("the gateway to the other hosts has failed; see above"));
            }
        }
        Ok(())
    }

    /// Reacts to the loss of a host.
    fn note_lost(&mut self, name: &str, why: &str, ranks: &[u32], is_hub: bool) {
        let is_attached = self.job.as_ref().is_some_and(Job::is_attached);
        if self.told == Told::No {
            let which = match (is_hub, ranks) {
                (true, _) => "all ranks of other hosts".to_owned(),
                (false, [rank]) => format!("rank {rank}"),
                (false, [first, .., last]) => format!("ranks {first} to {last}"),
                (false, []) => "its ranks".to_owned(),
            };
            let stops = is_attached || self.on_death == OnDeath::Kill;
            let then = match (self.running(), stops) {
                (0, _) => "",
                (_, true) => "; stopping the others",
                (_, false) => "; the others go on",
            };
            self.remark(format_args!("towpath: host {name} is lost ({why}): {which} count as dead{then}"));
            self.failed.get_or_insert(LAUNCHER_FAILED);
        }
        // Without the launcher that the user has started nothing is left running.
        if is_attached || self.on_death == OnDeath::Kill {
            self.stop_others();
        }
    }

    fn tell_signal(&self, signal: Signal) {
        if let Some(job) = &self.job {
            job.tell_signal(signal.as_raw());
        }
    }

    /// Number of ranks of all hosts that have not ended.
    fn running(&self) -> usize {
        let here = self.ranks.iter().filter(|r| r.status.is_none()).count();
        here + self.job.as_ref().map_or(0, Job::running)
    }

    /// Ends the ranks that have not failed.
    fn stop_others(&mut self) {
        if self.told == Told::No {
            self.told = Told::Failure;
            if let Some(job) = &self.job {
                job.tell_stop();
            }
            self.send_all(Signal::TERM);
            self.expect_end(Signal::TERM);
        }
    }

    /// The child to be noted instead of one that has ended, for which it was not waited
    /// yet: until a rank has failed, one that a signal has killed goes before one that failed by
    /// its code.
    ///
    /// The kernel shows ended children by age, and the older may have failed because of the killed.
    fn first_failed(&self, pid: u32) -> u32 {
        let end = |pid| children::end_of(pid);
        if self.failed.is_some() || !matches!(end(pid), Some(ChildEnd::Code(1..))) {
            return pid;
        }
        let is_killed = |r: &&Rank| r.status.is_none() && matches!(end(r.pid), Some(ChildEnd::Signal(_)));
        self.ranks.iter().find(is_killed).map_or(pid, |killed| killed.pid)
    }

    /// Notes ends of ranks and orphans, and kills late ones.
    fn collect(&mut self) -> io::Result<()> {
        while let Some(pid) = children::ended_child() {
            let pid = self.first_failed(pid);
            match self.ranks.iter().position(|r| r.pid == pid && r.status.is_none()) {
                Some(rank) => {
                    let status = self.ranks[rank].child.wait()?;
                    self.ended(rank, status);
                }
                None => {
                    let is_shell = self.job.as_mut().is_some_and(|job| job.shell_ended(pid));
                    if !is_shell {
                        // An orphan.
                        children::reap(pid);
                    }
                }
            }
        }
        if self.deadline.is_some_and(|d| d <= Instant::now()) {
            self.deadline = None;
            let late: Vec<String> = (0..self.ranks.len())
                .filter(|&r| self.ranks[r].status.is_none())
                .map(|r| (self.first as usize + r).to_string())
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

    fn ended(&mut self, index: usize, status: ExitStatus) {
        let failed = !status.success();
        self.ranks[index].status = Some(status);
        let (rank, pid) = (self.first + index as u32, self.ranks[index].pid);
        // Before the others can hear of it, and leave.
        self.came |= (0..self.world.size()).any(|rank| self.world.participant(rank).is_some());
        let ending = self.world.process_ended(rank, pid, failed);
        // The deaths of its processes in the world, if it had any, may be known only now.
        self.world.check_deaths();
        self.came |= ending != Ending::NeverCame;
        let circumstances = match (status.signal(), ending) {
            _ if !failed => "",
            (None, Ending::Participant) => " without having left the world",
            (None, Ending::Left) => " after it had left the world",
            (None, Ending::NeverCame) if self.came => " without having entered the world",
            _ => "",
        };
        let end = RankEnd {
            rank,
            program: self.program.clone(),
            pid,
            code: status.code(),
            signal: status.signal(),
            core_dumped: status.core_dumped(),
            circumstances: circumstances.to_owned(),
        };
        if let Some(job) = &self.job {
            job.tell_end(&end);
        }
        if failed {
            self.report(&end);
        }
    }

    /// Reports a rank's failure and treats the other ranks as --on-death asks.
    fn report(&mut self, end: &RankEnd) {
        if self.told != Told::No {
            return;
        }
        let how = match end.signal {
            Some(signal) => {
                let core = if end.core_dumped { ", core dumped" } else { "" };
                format!("was killed by {} (signal {signal}{core})", name_of(signal))
            }
            None => format!("ended with code {}{}", end.code.unwrap_or(1), end.circumstances),
        };
        let then = match (self.on_death, self.running()) {
            (_, 0) => "",
            (OnDeath::Kill, _) => "; stopping the others",
            (OnDeath::Report, _) => "; the others go on",
        };
        let RankEnd { rank, program, pid, .. } = end;
        let host = self.job.as_ref().and_then(|job| job.host_of(*rank));
        let host = host.map(|host| format!(" on {host}")).unwrap_or_default();
        // The hub reports for the joiners that it has started.
        if !self.job.as_ref().is_some_and(Job::is_attached) {
            self.remark(format_args!("towpath: rank {rank} ({program}, process {pid}{host}) {how}{then}"));
        }
        self.failed.get_or_insert(code_of(end.code, end.signal));
        if self.on_death == OnDeath::Kill {
            self.stop_others();
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
        if let Some(job) = &mut self.job {
            job.close();
        }
        children::end_orphans(Duration::ZERO, |_| {});
    }

    fn exit_code(&self) -> u8 {
        if let Some(code) = self.job.as_ref().and_then(Job::code) {
            return code;
        }
        let here = self.ranks.iter().zip(self.first..).filter_map(|(r, rank)| Some((rank, r.status?)));
        let here = here.map(|(rank, status)| (rank, code_of(status.code(), status.signal())));
        let others = self.codes.iter().map(|(&rank, &code)| (rank, code));
        let first = here.chain(others).filter(|(_, code)| *code != 0).min_by_key(|(rank, _)| *rank);
        self.failed.or(first.map(|(_, code)| code)).unwrap_or(0)
    }

    fn remark(&mut self, text: fmt::Arguments<'_>) {
        self.streams.remark(text);
    }
}

fn code_of(code: Option<i32>, signal: Option<i32>) -> u8 {
    let code = match (code, signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    code as u8
}
