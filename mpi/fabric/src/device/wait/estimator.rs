//! Estimator of a program's behaviour between its polls: it waits, tests in passing, or
//! works.
//!
//! A poll of an empty completion queue looks alike in all three cases. The estimator looks at what
//! lies between the polls (time on the thread's own clock, [`PollGaps`]) and at what comes after
//! them (a completion, or the program's next operation, [`TestPredictor`]). The decision what to do
//! is [`Idle`](crate::device::wait::idle::Idle)'s.

use crate::device::wait::activity::Activity;
use crate::device::wait::poll_gap::{Gap, PollGaps};
use crate::device::wait::test_predictor::TestPredictor;

/// Maximum gap between two polls of one loop that waits, in nanoseconds.
pub const TIGHT: u64 = 10_000;
/// Time off the core that shows in the clocks, in nanoseconds.
pub const SWITCHED: u64 = 1_000;

/// Event since the last poll, as far as the endpoints know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEvent {
    /// Nothing.
    None,
    /// The program has started an operation; `without_frames`: no frame had come before.
    Operation {
        /// No frame has come meanwhile.
        without_frames: bool,
    },
    /// Another domain of the process has given the program a completion.
    Elsewhere,
    /// A frame has come, but no completion of it.
    Frame,
}

/// Difference between two empty polls.
#[derive(Clone, Copy, Debug)]
pub struct PollDifference {
    /// The event between them.
    pub event: PollEvent,
    /// True if nothing at all has happened.
    pub is_still: bool,
    /// True if this poll only looks whether there is more after a completion.
    pub drains: bool,
    /// True if operations of the program were refused for want of space.
    pub refused: bool,
}

/// Clocks at the end of the last step.
#[derive(Debug, Default)]
struct Clocks {
    /// The thread's own processor time if `is_timed`, or wall time, in nanoseconds.
    thread: u64,
    /// Wall time, in nanoseconds.
    wall: u64,
    /// `thread` was read at the last step.
    is_timed: bool,
    /// True if a poll since then has not looked at the clocks.
    skipped: bool,
    /// The last step was a pause.
    after_pause: bool,
}

/// Expectations of the program.
#[derive(Debug, Default)]
struct Expected {
    /// An answer: the program has started an operation since it last got a completion
    /// elsewhere, or worked.
    answer: bool,
    /// A completion of this domain: the last event was here.
    here: bool,
    /// Space: its last operation was refused for want of it.
    space: bool,
}

/// A gap between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollGap {
    /// The program did foreign work in it.
    pub is_work: bool,
    /// Time that the thread was off its core, in nanoseconds, as far as that was
    /// measured.
    pub off_core: u64,
}

/// Estimator of one program.
#[derive(Debug, Default)]
pub struct Estimator {
    activity: Activity,
    clocks: Clocks,
    expected: Expected,
    gaps: PollGaps,
    tests: TestPredictor,
    /// The last read gave a completion.
    has_completed: bool,
    /// Polls since foreign work was last noticed.
    polls_since_work: u32,
}

impl Estimator {
    /// A read has given the program a completion, after so many empty ones.
    /// `activity`: so far. Returns whether the program had started a new operation before it.
    #[inline(always)]
    pub fn on_completion(&mut self, empty_polls: u32, activity: impl FnOnce() -> Activity) -> bool {
        self.has_completed = true;
        if empty_polls == 0 {
            return false;
        }
        let is_new = activity().calls != self.activity.calls;
        if !is_new {
            self.tests.on_completion();
        }
        is_new
    }

    /// The program has only looked whether there is more after a completion.
    #[inline(always)]
    pub fn on_drain_poll(&mut self) {
        self.has_completed = false;
        self.clocks.is_timed = false;
        self.clocks.skipped = true;
    }

    /// The program has started an operation with no completion, after so many empty
    /// polls. The first `spared` of them cost it nothing.
    pub fn on_new_operation(&mut self, empty_polls: u32, spared: u32) {
        // Space is what it may have waited for.
        if self.expected.space {
            self.tests.on_completion();
        } else if empty_polls > spared {
            self.tests.on_new_operation(empty_polls);
        }
    }

    /// Wall time since the last step, in nanoseconds; 0 if there was a poll meanwhile.
    pub fn elapsed(&mut self, now: u64) -> u64 {
        if core::mem::take(&mut self.clocks.skipped) { 0 } else { now.wrapping_sub(self.clocks.wall) }
    }

    /// Compares an empty poll with the one before.
    pub fn on_empty_poll(&mut self, activity: Activity) -> PollDifference {
        let before = core::mem::replace(&mut self.activity, activity);
        let event = if activity.calls != before.calls {
            PollEvent::Operation { without_frames: activity.frames == before.frames }
        } else if activity.elsewhere != before.elsewhere {
            PollEvent::Elsewhere
        } else if activity.frames != before.frames {
            PollEvent::Frame
        } else {
            PollEvent::None
        };
        PollDifference {
            event,
            is_still: activity == before,
            drains: core::mem::take(&mut self.has_completed) && activity.calls == before.calls,
            refused: activity.refused != before.refused,
        }
    }

    /// Takes an event into account. `refused`: operations were refused for want of space.
    pub fn expect(&mut self, event: PollEvent, refused: bool) {
        match event {
            PollEvent::Operation { .. } => (self.expected.answer, self.expected.here) = (true, true),
            PollEvent::Elsewhere => (self.expected.answer, self.expected.here) = (false, false),
            PollEvent::Frame => self.expected.here = true,
            PollEvent::None => {}
        }
        self.expected.space = refused;
    }

    /// Measures the gap before this poll. `elapsed`: wall time since the last step.
    /// `thread_time`: the thread's own clock, or `None` if this gap is not to be judged.
    /// `is_still`: nothing has happened in it. `longest_sleep`: the most that the program can earn,
    /// in nanoseconds.
    pub fn on_gap(
        &mut self,
        now: u64,
        elapsed: u64,
        thread_time: Option<u64>,
        is_still: bool,
        longest_sleep: u64,
    ) -> PollGap {
        let clocks = &mut self.clocks;
        let was_timed = core::mem::replace(&mut clocks.is_timed, thread_time.is_some());
        let is_timed = was_timed && clocks.is_timed;
        let thread = thread_time.unwrap_or(now);
        let gap = thread.wrapping_sub(clocks.thread);
        (clocks.thread, clocks.wall) = (thread, now);
        let after_pause = core::mem::take(&mut clocks.after_pause);
        let mut is_work = false;
        if is_timed && is_still {
            self.gaps.earn(gap, longest_sleep);
            // The thread ran all the time, and with warm caches, so the gap is the program's.
            let is_clear = elapsed <= gap + SWITCHED && !after_pause;
            is_work = gap >= TIGHT || is_clear && self.gaps.judge(gap) == Gap::Work;
        }
        let off_core = if is_timed && elapsed > gap + SWITCHED { elapsed - gap } else { 0 };
        PollGap { is_work, off_core }
    }

    /// Counts a poll since the last foreign work.
    pub fn count_poll(&mut self) {
        self.polls_since_work = self.polls_since_work.saturating_add(1);
    }

    /// Foreign work was noticed. Returns the number of polls since it was last noticed.
    pub fn on_foreign_work(&mut self) -> u32 {
        core::mem::take(&mut self.polls_since_work)
    }

    /// The program is not waiting for an answer any more.
    pub fn forget_answer(&mut self) {
        self.expected.answer = false;
    }

    /// The next gap is not to be judged.
    pub fn skip_gap(&mut self) {
        self.clocks.is_timed = false;
    }

    /// A pause has ended. `thread_time` reads the thread's own clock.
    pub fn on_pause_end(&mut self, now: u64, thread_time: impl FnOnce() -> u64) {
        self.clocks.after_pause = true;
        self.clocks.thread = if self.clocks.is_timed { thread_time() } else { now };
        self.clocks.wall = now;
    }

    /// Sets whether the last step was a pause, whose end a test leaves out.
    #[cfg(test)]
    pub fn set_after_pause(&mut self, after_pause: bool) {
        self.clocks.after_pause = after_pause;
    }

    /// Wall time at the last step, in nanoseconds.
    pub fn last_step(&self) -> u64 {
        self.clocks.wall
    }

    /// Number of polls that return at once for a program that most likely tests in
    /// passing.
    pub fn patience(&self) -> u32 {
        self.tests.patience()
    }

    /// Returns whether the program waits for an answer.
    pub fn awaits_answer(&self) -> bool {
        self.expected.answer
    }

    /// Returns whether the program waits for space.
    pub fn awaits_space(&self) -> bool {
        self.expected.space
    }

    /// Returns whether the next completion will most likely be this domain's.
    pub fn awaits_here(&self) -> bool {
        self.expected.here
    }

    /// Returns whether the program may be put to sleep for so long, in nanoseconds.
    pub fn may_sleep(&mut self, ns: u64, others_compute: bool) -> bool {
        self.expected.space || self.gaps.may_sleep(ns, others_compute)
    }
}
