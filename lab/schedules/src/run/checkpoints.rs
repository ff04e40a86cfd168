//! Checkpoints of a run that merges states: from there it goes on otherwise.
//!
//! A checkpoint keeps the state, and how far each thread had come. A thread that is further now is
//! ended; one that takes all of its steps again (`retrace.rs`) takes its turns from then on.

use super::{Chooser, Play, Runner, Terms, Thread, quietly};
use crate::fault::LocatedFault;
use crate::history::HistoryLength;
use crate::machine::Machine;
use crate::merging::SeenStates;
use crate::retrace::LogLength;
use crate::schedule::Schedule;
use crate::subject::Subject;
use crate::words::KeptState;

/// Checkpoint in a run.
struct Checkpoint {
    state: KeptState,
    logs: Vec<LogLength>,
    recorded: HistoryLength,
    /// Number of steps, and the thread that took the last one.
    steps: usize,
    last: Option<usize>,
}

/// Checkpoints to go back to, the last one last.
#[derive(Default)]
pub(super) struct Checkpoints {
    kept: Vec<Checkpoint>,
    /// Threads that have to take their steps again, a bit each.
    behind: u32,
}

impl Checkpoints {
    /// Returns whether a thread has to take its steps again, and forgets it.
    pub fn leaves_behind(&mut self, thread: usize) -> bool {
        let is_behind = self.behind >> thread & 1 == 1;
        self.behind &= !(1 << thread);
        is_behind
    }
}

/// Result of a run that went to every state.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    /// Ways to an end, and ways to a state that was seen.
    pub ways: u64,
    pub given_up: u64,
    pub steps: u64,
    /// The fault, and the way to it.
    pub found: Option<(LocatedFault, Schedule)>,
    /// The step after which states cannot be told apart, if there is one.
    pub unmergeable: Option<&'static str>,
    /// True if there is no other state.
    pub is_exhausted: bool,
}

impl Runner {
    /// Goes to every state, until there is a fault or there were enough ways.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn visit(
        &mut self,
        subject: &dyn Subject,
        terms: &Terms,
        seen: &mut SeenStates,
        limit: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Visit, String> {
        let (memory, body) = self.set_up(subject, terms, false)?;
        quietly(|| {
            let mut play = self.start(terms, &memory, &body);
            let mut visit = Visit::default();
            loop {
                let before = play.schedule.0.len();
                let is_whole = self.go_on(&mut play, terms, seen);
                visit.steps += (play.schedule.0.len() - before) as u64;
                visit.ways += u64::from(is_whole);
                visit.given_up += u64::from(!is_whole);
                let mut inner = memory.0.inner.borrow_mut();
                if let Some(failure) = inner.failure.take() {
                    visit.found = Some((failure, std::mem::take(&mut play.schedule)));
                }
                visit.unmergeable = inner.unmergeable;
                drop(inner);
                progress(visit.ways + visit.given_up);
                visit.is_exhausted = visit.found.is_none() && !seen.is_refused && !seen.advance();
                let is_enough = visit.ways + visit.given_up >= limit;
                if visit.found.is_some() || seen.is_refused || visit.is_exhausted || is_enough {
                    break;
                }
                self.go_back(&mut play, !seen.comes_back());
            }
            play.threads.into_iter().for_each(|coroutine| self.take_down(coroutine));
            Ok(visit)
        })
    }

    /// Goes on to an end (`true`), or to a state that was seen.
    fn go_on(&mut self, play: &mut Play, terms: &Terms, seen: &mut SeenStates) -> bool {
        let mut stranded = false;
        if !self.advance(play, terms, seen, &mut stranded) {
            return false;
        }
        let has_failed = |play: &Play| play.memory.0.inner.borrow().failure.is_some();
        if play.threads.len() == play.planned && !has_failed(play) {
            play.start_last(self.stack(), 0);
            if !self.advance(play, terms, seen, &mut stranded) {
                return false;
            }
        }
        play.judge();
        true
    }

    /// Goes back to the last checkpoint, which is not needed again if it `is_last`.
    fn go_back(&mut self, play: &mut Play, is_last: bool) {
        let mut kept = std::mem::take(&mut play.checkpoints.kept);
        let checkpoint = kept.last().expect("a checkpoint where another choice is left");
        let machine = &play.memory.0;
        while play.threads.len() > checkpoint.logs.len() {
            let ahead = play.threads.pop().expect("more threads than there");
            self.take_down(ahead);
            play.checkpoints.leaves_behind(play.threads.len());
            machine.logs.cut(play.threads.len(), LogLength::default());
        }
        for (index, length) in checkpoint.logs.iter().enumerate() {
            if *length == machine.logs.length(index) {
                continue;
            }
            machine.logs.cut(index, *length);
            if play.checkpoints.behind >> index & 1 == 0 {
                play.checkpoints.behind |= 1 << index;
                let ahead = play.threads.remove(index);
                self.take_down(ahead);
                let id = if index < play.planned { index } else { 0 };
                play.threads.insert(index, play.coroutine(self.stack(), index, id));
            }
        }
        machine.inner.borrow_mut().restore(&checkpoint.state);
        play.body.take_back(checkpoint.recorded);
        play.schedule.0.truncate(checkpoint.steps);
        play.last = checkpoint.last;
        if is_last {
            kept.pop();
        }
        play.checkpoints.kept = kept;
    }

    /// Ends a thread where it is.
    pub(super) fn take_down(&mut self, mut thread: Thread) {
        thread.force_unwind();
        self.stacks.push(thread.into_stack());
    }
}

impl Play<'_> {
    /// Makes this state a checkpoint.
    pub(super) fn keep_checkpoint(&mut self) {
        let Machine { inner, logs, .. } = &*self.memory.0;
        self.checkpoints.kept.push(Checkpoint {
            state: inner.borrow().keep(),
            logs: (0..self.threads.len()).map(|index| logs.length(index)).collect(),
            recorded: self.body.recorded(),
            steps: self.schedule.0.len(),
            last: self.last,
        });
    }
}
