//! Participants of a measurement: processes, or threads of one process.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use towpath_machine::Native;

use super::{Counted, CountsBefore, describe_costs, rounds_per_ns};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember, BoardSurroundings};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::{Child, ChildState, fork_on, wait};
use towpath_host::topology::pin_to;
use towpath_report::record::Metric;
use towpath_sync::Policy;

/// Time after which participants that do not begin, or end, are given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Exit code of a participant that gave up.
const GAVE_UP: i32 = 3;

/// Participants to run.
pub struct LoadCrew<'a> {
    /// Their kind.
    pub sharing: Sharing,
    /// Number.
    pub procs: usize,
    /// Their waiting policy.
    pub policy: Policy,
    /// The board.
    pub board: Board<'a>,
}

impl LoadCrew<'_> {
    /// Runs `body` for each participant, and counts their operations in the given time.
    ///
    /// `body` counts its operations in [`Board::done`], and returns when [`Board::end`] is not 0.
    ///
    /// # Errors
    ///
    /// Those of the system; a participant that gave up, or does not begin or end in a minute.
    pub fn count(
        &self,
        run: &Circumstances<'_>,
        body: &(dyn Fn(&BoardMember<'_>) -> Result<(), String> + Sync),
    ) -> Result<Counted, Error> {
        // Measured before there are participants that would each measure it.
        let _ = (Native::pause_ps(), Native::switch_cost(), rounds_per_ns());
        let cores: Vec<_> = (0..self.procs).map(|n| run.placement.core_for(n, self.procs)).collect();
        (0..self.procs).for_each(|me| self.board.begin(me, 1));
        let act = |me: usize| {
            let around = BoardSurroundings::new(self.board, me);
            let done = body(&BoardMember::new(&around, self.policy));
            self.note_costs(me);
            if let Err(why) = &done {
                // The others may wait for this one.
                self.board.end().store(1, Relaxed);
                self.board.failed(me).store(1, Relaxed);
                // The reason of a child, whose exit code says that it gave up.
                #[allow(clippy::disallowed_methods)]
                let _ = writeln!(std::io::stderr(), "towpath: participant {me}: {why}");
            }
            done.is_ok()
        };
        let mut children = Vec::new();
        match self.sharing {
            Sharing::Processes => {
                for (me, core) in cores.iter().enumerate() {
                    children.push(fork_on(*core, || if act(me) { 0 } else { GAVE_UP })?);
                }
            }
            Sharing::Threads => children.push(fork_on(None, || {
                std::thread::scope(|scope| {
                    for (me, core) in cores.iter().copied().enumerate() {
                        let act = &act;
                        scope.spawn(move || {
                            // If it can't be pinned, it runs where it may.
                            let _ = core.map(pin_to);
                            act(me)
                        });
                    }
                });
                let failed = |me| self.board.failed(me).load(Relaxed) != 0;
                if (0..self.procs).any(failed) { GAVE_UP } else { 0 }
            })?),
        }
        self.until_begun(&children)?;
        std::thread::sleep(run.limit / 10);
        let before = CountsBefore::now(&self.board, self.procs);
        std::thread::sleep(run.limit);
        let counted = before.until_now(&self.board);
        self.board.end().store(1, Relaxed);
        let deadline = Instant::now() + PATIENCE;
        for child in &mut children {
            let exit = wait(child, deadline)?;
            if exit.code != 0 {
                let how = format!("ended with code {}", exit.code);
                return Err(Error::Process { rank: child.pid() as u32, how });
            }
        }
        Ok(counted)
    }

    /// Checks that as much was done under so many locks as the participants have counted.
    ///
    /// # Errors
    ///
    /// A lock that did not exclude.
    pub fn check_exclusion(&self, locks: usize) -> Result<(), Error> {
        // Relaxed, both: the participants have ended.
        let counted: u64 = (0..self.procs).map(|me| self.board.thread(me).load(Relaxed)).sum();
        let protected: u64 = (0..locks).map(|lock| self.board.token(lock).load(Relaxed)).sum();
        if protected == counted { Ok(()) } else { Err(Error::Other("a lock did not exclude".into())) }
    }

    /// Figures of a measurement: this one, and the operations' times, fairness and costs.
    pub fn figures(&self, counted: &Counted, metric: Metric, value: f64) -> Samples {
        let mut samples = Samples::one(metric, value);
        counted.describe(&mut samples);
        describe_costs(&self.board, self.procs, &mut samples);
        samples
    }

    fn until_begun(&self, children: &[Child]) -> Result<(), Error> {
        let begun = Instant::now();
        while (0..self.procs).any(|me| self.board.done(me).load(Relaxed) == 0) {
            if self.board.end().load(Relaxed) != 0 || begun.elapsed() > PATIENCE {
                let place = format!("{} participants had not all begun", self.procs);
                return Err(Error::Stuck { seconds: begun.elapsed().as_secs(), place });
            }
            // A process that has ended is found below, by its exit code.
            if children.iter().any(|child| child.state() != ChildState::Alive) {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Notes the caller's processor time and switches.
    fn note_costs(&self, me: usize) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let ns = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        self.board.intent(me).store(ns, Relaxed);
        self.board.present(me).store(switches().unwrap_or(0), Relaxed);
    }
}

/// Context switches of this thread so far.
fn switches() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let of = |line: &str| {
        line.contains("ctxt_switches").then(|| line.split_whitespace().nth(1)?.parse::<u64>().ok())?
    };
    Some(status.lines().filter_map(of).sum())
}
