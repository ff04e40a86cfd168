//! Wait in turns, between which the waiter looks whether its time is over and, now and
//! then, whether the process that it waits for is alive.

use towpath_machine::Processor;

use crate::waiting::CALLED;
use crate::{Deadline, TimedOut, Waiting};

/// Time between two questions for deaths, in nanoseconds.
const ASK_EVERY: u64 = 1_000_000;
/// Maximum sleep of a waiter before it looks again, in nanoseconds: bounds the time until
/// a death is found, and the delay of a wake-up whose sender died.
pub(crate) const TURN: u64 = 4_000_000;

/// One wait.
#[derive(Debug)]
pub(crate) struct Turns {
    deadline: Deadline,
    /// Maximum time of a turn, in nanoseconds.
    turn: u64,
    /// Number of turns so far.
    round: u32,
    /// Time of the last question for deaths.
    asked: u64,
    /// True if the last question before giving up has been asked.
    last_asked: bool,
    began: u64,
}

impl Turns {
    pub fn new<P: Processor>(cpu: &P, deadline: Deadline, turn: u64) -> Turns {
        let now = cpu.now();
        Turns { deadline, turn, round: 0, asked: now, last_asked: false, began: now }
    }

    /// Turns of a waiter that is woken when its turn comes: it sleeps at once.
    ///
    /// Yielding first would take time from the process that it waits for.
    pub fn called(self) -> Turns {
        Turns { round: CALLED, ..self }
    }

    /// Sleeps at once, for a turn that does not count, unless the word has changed.
    ///
    /// # Errors
    ///
    /// As [`Turns::wait`].
    pub fn sleep<P: Processor, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        word: &P::Word,
        seen: u64,
    ) -> Result<(), TimedOut> {
        Turns { ..*self }.called().wait(cpu, wait, word, seen)
    }

    /// Returns whether it is time to ask for deaths: now and then, and once before the
    /// waiter gives up.
    pub fn is_time_to_ask<P: Processor>(&mut self, cpu: &P) -> bool {
        let now = cpu.now();
        if !self.last_asked && self.deadline.is_over(cpu) {
            self.last_asked = true;
            return true;
        }
        let is_time = now.wrapping_sub(self.asked) >= ASK_EVERY;
        if is_time {
            self.asked = now;
        }
        is_time
    }

    /// Returns whether a turn is over.
    pub const fn have_begun(&self) -> bool {
        self.round > 0
    }

    /// Returns whether the wait has lasted so many nanoseconds.
    pub fn has_lasted<P: Processor>(&self, cpu: &P, ns: u64) -> bool {
        cpu.now().wrapping_sub(self.began) >= ns
    }

    /// Time of the next turn.
    ///
    /// # Errors
    ///
    /// The time is over.
    pub fn next<P: Processor>(&self, cpu: &P) -> Result<u64, TimedOut> {
        match self.deadline {
            Deadline::NEVER => Ok(self.turn),
            Deadline::ONE_TURN if self.round == 0 => Ok(self.turn),
            deadline if deadline.is_over(cpu) => Err(TimedOut),
            deadline => Ok(deadline.left(cpu).min(self.turn)),
        }
    }

    /// Waits a turn for the word to differ from `seen`. May return early for no reason.
    ///
    /// # Errors
    ///
    /// The time is over, before the turn.
    pub fn wait<P: Processor, W: Waiting<P>>(
        &mut self,
        cpu: &P,
        wait: &W,
        word: &P::Word,
        seen: u64,
    ) -> Result<(), TimedOut> {
        let turn = self.next(cpu)?;
        wait.wait_turn(cpu, word, seen, self.round, turn);
        self.round = self.round.saturating_add(1);
        Ok(())
    }
}
