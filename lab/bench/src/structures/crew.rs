//! The participants: started, stopped, continued, killed, replaced. Dropping the crew
//! ends all of its members.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath_machine::Native;
use towpath_sync::Policy;

use super::board::{Board, BoardMember, BoardSurroundings, SUPERVISOR};
use super::room::Room;
use super::work::{self, WorkKind, fill};
use super::{Contest, Sharing, halt, peers};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::{self, Child, fork_on};
use towpath_host::topology::pin_to;

/// Time-out of steps that should take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Capacity of a peer's structure.
const CAPACITY: usize = 4096;

/// A number of participants at one structure.
pub struct Crew<'a> {
    contest: Contest,
    /// The structure's memory, if processes can share it.
    room: Option<&'a Room>,
    board: Board<'a>,
    policy: Policy,
    task: WorkKind,
    cores: Vec<Option<usize>>,
    /// A process for each, or one for all threads.
    children: Vec<Child>,
    lives: u64,
}

impl<'a> Crew<'a> {
    /// Starts so many; they are at work when this returns.
    pub fn start(
        contest: Contest,
        room: Option<&'a Room>,
        board: Board<'a>,
        (procs, policy, task): (usize, Policy, WorkKind),
        run: &Circumstances<'_>,
    ) -> Result<Crew<'a>, Error> {
        // Measured before there are processes that would each measure it.
        let _ = (Native::pause_ps(), Native::switch_cost());
        let cores = (0..procs).map(|n| run.placement.core_for(n, procs)).collect();
        let mut crew = Crew { contest, room, board, policy, task, cores, children: Vec::new(), lives: 0 };
        match contest.sharing {
            Sharing::Processes => {
                for me in 0..procs {
                    let child = crew.process(me)?;
                    crew.children.push(child);
                }
            }
            Sharing::Threads => {
                (0..procs).for_each(|me| crew.board.begin(me, 1));
                let child = crew.threads()?;
                crew.children.push(child);
            }
        }
        crew.until("all to begin", |crew| (0..procs).all(|me| crew.done(me) > 0))?;
        Ok(crew)
    }

    fn process(&mut self, me: usize) -> Result<Child, Error> {
        self.lives += 1;
        self.board.begin(me, self.lives);
        let (board, policy) = (self.board, self.policy);
        let task = WorkKind { seed: self.task.seed.wrapping_add(self.lives << 20), ..self.task };
        let room = self.room.ok_or_else(|| Error::NotAvailable("threads only".into()))?;
        let subject = room.subject()?;
        fork_on(self.cores[me], || {
            let around = BoardSurroundings::new(board, me);
            work::work(subject, &BoardMember::new(&around, policy), &board, &task);
            0
        })
    }

    fn threads(&self) -> Result<Child, Error> {
        let (board, policy, task) = (self.board, self.policy, &self.task);
        fork_on(None, || {
            let made;
            let subject = match self.room.map(Room::subject) {
                Some(Ok(subject)) => subject,
                Some(Err(_)) => return 3,
                None => match peers::make(self.contest.structure, self.contest.algorithm, CAPACITY) {
                    Some(peer) => {
                        made = peer;
                        let around = BoardSurroundings::new(board, SUPERVISOR);
                        if fill(&*made, &BoardMember::new(&around, policy), self.contest.structure).is_err() {
                            return 4;
                        }
                        &*made
                    }
                    None => return 5,
                },
            };
            if halt::prepare().is_err() {
                return 6;
            }
            std::thread::scope(|scope| {
                for (me, core) in self.cores.iter().copied().enumerate() {
                    scope.spawn(move || {
                        // If it can't be pinned, it runs where it may.
                        let _ = core.map(pin_to);
                        // Relaxed: read by the supervisor long afterwards, if at all.
                        board.thread(me).store(halt::thread_number(), Ordering::Relaxed);
                        halt::obey(board.halt(me), || {
                            let around = BoardSurroundings::new(board, me);
                            work::work(subject, &BoardMember::new(&around, policy), &board, task);
                        });
                    });
                }
            });
            0
        })
    }

    /// Number of participants.
    pub fn size(&self) -> usize {
        self.cores.len()
    }

    /// Number of operations that one has ended.
    pub fn done(&self, me: usize) -> u64 {
        // Relaxed: a count.
        self.board.done(me).load(Ordering::Relaxed)
    }

    /// A participant's reason for giving up, if one has.
    pub fn failure(&self) -> Option<Error> {
        (0..self.size()).find_map(|me| {
            // (H1) Acquire: pairs with the Release (P2) in `work`.
            match self.board.failed(me).load(Ordering::Acquire) {
                0 => None,
                code => {
                    let why = work::error(code).map_or(format!("failure {code}"), |e| e.to_string());
                    Some(Error::NotAvailable(format!("participant {me} gave up: {why}")))
                }
            }
        })
    }

    /// Waits for something that must come, and looks whether a participant has given up.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Crew<'_>) -> bool) -> Result<(), Error> {
        let start = Instant::now();
        while !done(self) {
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if start.elapsed() > PATIENCE {
                let place = format!("waiting for {what}");
                return Err(Error::Stuck { seconds: PATIENCE.as_secs(), place });
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Stops one, wherever it is.
    pub fn stop(&mut self, me: usize) -> Result<(), Error> {
        match self.contest.sharing {
            Sharing::Processes => process::stop(&self.children[me]),
            Sharing::Threads => {
                // (H2) Release: pairs with the handler's Acquire (H5).
                self.board.halt(me).store(halt::STOP, Ordering::Release);
                halt::signal(self.children[0].pid(), self.board.thread(me).load(Ordering::Relaxed));
                // (H3) Acquire: pairs with the handler's Release (H5).
                self.until("a thread to stop", |crew| {
                    crew.board.halt(me).load(Ordering::Acquire) == halt::STOPPED
                })
            }
        }
    }

    /// Lets one go on that was stopped.
    pub fn go_on(&mut self, me: usize) {
        match self.contest.sharing {
            Sharing::Processes => self.children[me].go_on(),
            // (H4) Release: pairs with the handler's Acquire (H5).
            Sharing::Threads => self.board.halt(me).store(0, Ordering::Release),
        }
    }

    /// Has one wait between two operations, until it goes on: as if it were not there.
    pub fn rest(&mut self, me: usize) -> Result<(), Error> {
        // (H7) Release, and below Acquire: pairs with those of the participant (H6).
        self.board.halt(me).store(halt::REST, Ordering::Release);
        self.until("a participant to rest", |crew| {
            crew.board.halt(me).load(Ordering::Acquire) == halt::RESTING
        })
    }

    /// Lets one go on that rests.
    pub fn end_rest(&mut self, me: usize) {
        // (H8) Release: pairs with the participant's Acquire (H6).
        self.board.halt(me).store(0, Ordering::Release);
    }

    /// Kills a process, wherever it is; its death is known when this returns.
    pub fn kill(&mut self, me: usize) -> Result<(), Error> {
        self.children[me].kill();
        process::wait(&mut self.children[me], Instant::now() + PATIENCE)?;
        self.board.over(me);
        Ok(())
    }

    /// Starts a successor of a process that was killed.
    pub fn replace(&mut self, me: usize) -> Result<(), Error> {
        self.children[me] = self.process(me)?;
        Ok(())
    }

    /// Lets all processes end by themselves.
    pub fn dismiss(mut self) -> Result<(), Error> {
        // (H9) Release: pairs with the participants' Acquire (P1); nothing depends on it.
        self.board.end().store(1, Ordering::Release);
        let deadline = Instant::now() + PATIENCE;
        for child in &mut self.children {
            process::wait(child, deadline)?;
        }
        match self.failure() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}
