//! What a read of an empty completion queue does with its time.
//!
//! An MPI that waits polls in a loop, and what it waits for need not come through here: messages to
//! oneself, files and threads are its own business. So a read must not keep it for long before it
//! has had a few turns of its loop; and while a rank waits, whoever has something to do wants the
//! core. A waiter goes through five stages:
//!
//! 1. *Look on*, where there are cores to spare: an answer takes less time than another turn of the
//!    MPI's loop.
//! 2. *Return at once*: whatever the MPI sent to itself is found now. Once if the program has
//!    started something here, since then it most likely waits for others; a few times if it has
//!    not.
//! 3. *Yield*, [`Settings::yields`] times, unless the MPI does: then others have run between two
//!    polls, and one yield after the other would only make it wait twice.
//! 4. *Be judged*: a few polls return at once while the processor time between them is looked at.
//! 5. *Sleep* on the doorbell: shortly, then longer, up to [`Settings::nap`]. Whoever sends rings.
//!    Between two sleeps there are always a few polls, judged too.
//!
//! It begins anew when the program starts an operation, when something comes, and when the program
//! was doing something else between two polls ([`Pace`]). Where cores are shared time passes while
//! others run, so the thread's own processor time is looked at; asking for it takes a call of the
//! system, so not before it matters.
//!
//! A program may also poll in passing, while it computes, and then each of these stages keeps it
//! from its work. So who often goes on although nothing has come is left alone for longer
//! ([`Habit`]); where there are cores to spare nobody is kept for more than some 20 µs of looking
//! on, and nobody sleeps unless others want the core; and where cores are shared only those sleep
//! at once who do nothing else while somebody computes ([`Pace`]).
//!
//! Other programs may want the cores too, and one that computes keeps what a yield gives it for as
//! long as the scheduler lets it: milliseconds. Who has lost that much does not yield again for a
//! while, but sleeps instead: whoever sends wakes it, and the scheduler gives it the core back at
//! once, because it has not used its share.

use towpath_machine::{Native, Processor};

use crate::device::tune::settings::Settings;
use crate::device::wait::activity::Happened;
use crate::device::wait::poll_gap::{Gap, Pace};
use crate::device::wait::test_predictor::Habit;

/// How often the peers' lives are looked at while nothing happens, in nanoseconds.
pub const LOOK_EVERY: u64 = 10_000_000;
/// Polls closer together than this belong to one loop that waits, in nanoseconds.
const TIGHT: u64 = 10_000;
/// So often it looks on for longer than a glance, where there are cores to spare. What
/// takes longer can wait for another turn of the MPI's loop.
const SPINS: u32 = 4;
/// Others may want the core even of who is left alone: it yields once in so many polls.
const SELDOM: u32 = 32;
/// For so many polls it is left alone where cores are shared, each time that it was found
/// working between two.
const BUSY: u32 = 32;
/// At most.
const BUSIEST: u32 = 256;
/// Programs that do something else between polls do it more often than once in so many.
const OFTEN: u32 = 16;
/// What the first ones may take where there are cores to spare: less than a program that
/// has other things to do would notice, and more than an answer takes, in nanoseconds.
const GLANCE: u64 = 1_000;
/// So many of them.
const GLANCES: u32 = 3;
/// So many polls return at once where cores are shared, if the program has started
/// nothing here: enough for the answer to a message that it sent to itself.
const FREE: u32 = 6;
/// The first sleep then, in nanoseconds.
const FIRST_NAP: u64 = 50_000;
/// And if it has, so that somebody will most likely ring.
const FIRST_NAP_OF_ASKER: u64 = 200_000;
/// So many sleeps with one poll in between, where others compute.
const NAPS: u32 = 4;
/// Who was asked to wait sleeps after so many polls in vain.
const LONG: u32 = 20;
/// A thread that has lost more than this between two polls was not running all the time,
/// in nanoseconds.
const SWITCHED: u64 = 1_000;
/// Somebody who keeps the core for longer than this when he gets it does not only poll,
/// in nanoseconds.
const COMPUTES: u64 = 20_000;
/// And for longer than this, he may do nothing else, in nanoseconds.
const HOLDS: u64 = 500_000;
/// Then it does not yield again before so many times as long has passed, or so many times
/// [`LOOK_EVERY`].
const DEAR: u64 = 16;

/// What a program that polls in vain is doing.
#[derive(Debug, Default)]
pub struct Idle {
    /// Polls in vain since it last began anew, or slept.
    polls: u32,
    /// The same, without regard to sleeps.
    vain: u32,
    /// Its last sleep, or 0.
    nap: u64,
    /// How many there were.
    naps: u32,
    /// The clocks at the end of the last step: the thread's own (where cores are shared,
    /// and if `timed`), everybody's.
    last: (u64, u64),
    timed: bool,
    /// It has polled since then without a look at the clock.
    unseen: bool,
    pace: Pace,
    habit: Habit,
    /// It is left alone for so many polls more.
    busy: u32,
    /// How long it was off its core when it last yielded.
    away: u64,
    /// When it may yield again: not at once after that was dear.
    yields_at: u64,
    /// Polls since the last pause.
    unpaused: u32,
    /// Polls since it was last taken for doing something else.
    since: u32,
    happened: Happened,
    /// The program has started something since the last time that something came.
    fresh: bool,
    /// It was given something by the last read.
    given: bool,
    /// The last thing that happened was here, and not in another domain.
    is_here: bool,
    oversubscribed: bool,
    /// It could not start what it wanted to, so it does nothing but wait.
    wants_room: bool,
    /// A pause has just ended.
    has_paused: bool,
    looked: u64,
}

/// How to wait now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Not at all.
    None,
    /// Look on for so many nanoseconds.
    Spin(u64),
    /// Let others run.
    Yield,
    /// Sleep for so many nanoseconds.
    Sleep(u64),
}

/// The calling thread's processor time, in nanoseconds.
#[allow(unsafe_code)]
fn cpu_time() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Idle {
    /// The program was given something. `happened`: so far.
    #[inline(always)]
    pub fn gave(&mut self, happened: impl FnOnce() -> Happened) {
        if self.vain > 0 {
            if happened().calls == self.happened.calls {
                self.habit.was_given();
            } else {
                self.went_on();
            }
        }
        self.reset();
        self.given = true;
    }

    /// It was given something, and only looked whether there is more: a poll in vain,
    /// which is not worth a look at the clocks.
    #[inline(always)]
    pub fn looked_for_more(&mut self) {
        self.given = false;
        self.polls += 1;
        self.timed = false;
        self.unseen = true;
    }

    /// It has started something, with nothing given: but room, if that is what it waited
    /// for.
    fn went_on(&mut self) {
        let in_passing = if self.oversubscribed { FREE } else { GLANCES };
        match self.vain {
            _ if self.wants_room => self.habit.was_given(),
            n if n > in_passing => self.habit.went_on(n),
            _ => {}
        }
    }

    /// It begins anew.
    #[inline(always)]
    fn reset(&mut self) {
        self.polls = 0;
        self.vain = 0;
        self.nap = 0;
        self.naps = 0;
        self.busy = 0;
    }

    /// A poll found nothing: what to do, and whether it is time to look after things.
    ///
    /// `others`: whether others than the ranks want to run on this machine.
    pub fn step(
        &mut self,
        oversubscribed: bool,
        happened: Happened,
        settings: &Settings,
        others: impl Fn() -> bool,
    ) -> (Pause, bool) {
        let now = Native::with_id(0).now();
        if oversubscribed != self.oversubscribed {
            *self = Idle { oversubscribed, looked: self.looked, ..Idle::default() };
        }
        let look = now.wrapping_sub(self.looked) >= LOOK_EVERY;
        if look {
            self.looked = now;
        }
        (self.decide(if oversubscribed { cpu_time } else { || 0 }, now, happened, settings, others), look)
    }

    /// `used`: the thread's own processor time.
    fn decide(
        &mut self,
        used: impl Fn() -> u64,
        now: u64,
        happened: Happened,
        settings: &Settings,
        others: impl Fn() -> bool,
    ) -> Pause {
        let whole = if core::mem::take(&mut self.unseen) { 0 } else { now.wrapping_sub(self.last.1) };
        let before = core::mem::replace(&mut self.happened, happened);
        let is_still = happened == before;
        let given = core::mem::take(&mut self.given) && happened.calls == before.calls;
        if happened.calls != before.calls {
            if happened.frames == before.frames {
                self.went_on();
            }
            self.reset();
            self.fresh = true;
            self.is_here = true;
        } else if happened.elsewhere != before.elsewhere {
            self.reset();
            self.fresh = false;
            self.is_here = false;
        } else if happened.frames != before.frames {
            self.is_here = true;
            // Others were served; the program has got nothing.
            self.polls = self.polls.min(self.free());
            self.nap = 0;
        }
        self.wants_room = happened.refused != before.refused;
        // Early, too, where a lot of time has passed while nothing happened: one more system call
        // is nothing then.
        let is_judged = !self.oversubscribed
            || self.polls >= self.left_alone() + self.yields(settings)
            || (whole >= TIGHT && is_still);
        let used = if !is_judged || !self.oversubscribed { now } else { used() };
        // Whether there is a gap to judge.
        let is_timed = core::mem::replace(&mut self.timed, is_judged) && is_judged;
        let gap = used.wrapping_sub(self.last.0);
        self.last = (used, now);
        let paused = core::mem::take(&mut self.has_paused);
        if is_timed && is_still {
            self.pace.earn(gap, settings.nap);
            // It ran all the time, and with warm caches, so that is what it did.
            let is_clear = whole <= gap + SWITCHED && !paused;
            if gap >= TIGHT || is_clear && self.pace.judge(gap) == Gap::Work {
                self.did_something_else();
            }
        }
        if self.oversubscribed && is_timed && whole > gap + SWITCHED {
            self.was_away(whole - gap, now, others); // The MPI yields.
        }
        self.since = self.since.saturating_add(1);
        self.polls = self.polls.saturating_add(1);
        self.vain = self.vain.saturating_add(1);
        let pause = match self.oversubscribed {
            true => self.shared(whole, settings),
            // It only looks whether there is more.
            false if given => Pause::None,
            false => self.alone(settings),
        };
        self.unpaused = if pause == Pause::None { self.unpaused + 1 } else { 0 };
        if self.unpaused >= SELDOM && (whole < SWITCHED || !self.oversubscribed) {
            self.unpaused = 0;
            return if self.is_dear() { Pause::None } else { Pause::Yield };
        }
        pause
    }

    /// It has been off its core. If that was long because ranks compute it may yield
    /// again: they will do so too. If another program does, that takes as long as the scheduler
    /// gives it at a time, but who is woken has the core back at once.
    fn was_away(&mut self, ns: u64, now: u64, others: impl Fn() -> bool) {
        self.away = ns;
        if ns < HOLDS {
            return;
        }
        // To ask takes some microseconds, which are not the program's.
        self.timed = false;
        if others() {
            // It may have been stopped for hours.
            self.yields_at = now + DEAR * ns.min(LOOK_EVERY);
        }
    }

    /// Whether a yield would most likely take as long as somebody else computes.
    fn is_dear(&self) -> bool {
        self.last.1 < self.yields_at
    }

    /// It was not only polling.
    fn did_something_else(&mut self) {
        // With a core to itself that is read from a clock that interrupts and other programs hold
        // up too, but not so often.
        if self.oversubscribed || self.since < OFTEN {
            // Its polls stay in vain: what it goes on to do will tell whether it waits.
            self.polls = 0;
            self.nap = 0;
            self.fresh = false;
            self.busy = (self.busy + BUSY).min(BUSIEST);
        }
        self.since = 0;
    }

    /// With a core for everybody.
    fn alone(&mut self, settings: &Settings) -> Pause {
        match self.polls.saturating_sub(self.habit.patience()) {
            0 => Pause::None,
            n if n <= 2 && !self.fresh => Pause::None,
            n if n <= GLANCES => Pause::Spin(GLANCE.min(settings.spin)),
            n if n > GLANCES + 2 * SPINS && !n.is_multiple_of(SELDOM) => Pause::None,
            // Other programs may want the core even where the ranks have one each.
            n if n.is_multiple_of(2) && self.is_dear() => self.sleep(settings).unwrap_or(Pause::None),
            n if n.is_multiple_of(2) => Pause::Yield,
            _ => Pause::Spin(settings.spin),
        }
    }

    /// With fewer cores than ranks.
    fn shared(&mut self, whole: u64, settings: &Settings) -> Pause {
        let (alone, yields, dear) = (self.left_alone(), self.yields(settings), self.is_dear());
        let free = if dear { self.free_beside_others() } else { self.free() };
        match self.polls {
            n if n <= alone => Pause::None,
            n if n <= alone + yields => {
                if whole < SWITCHED {
                    Pause::Yield
                } else {
                    Pause::None
                }
            }
            n if n <= alone + yields + free => Pause::None,
            _ => {
                self.polls = alone + yields + if dear { 0 } else { free / 2 };
                self.sleep(settings).unwrap_or(if dear { Pause::None } else { Pause::Yield })
            }
        }
    }

    /// So many yields before it sleeps, where cores are shared.
    fn yields(&self, settings: &Settings) -> u32 {
        if self.is_dear() { 0 } else { settings.yields }
    }

    /// So many polls return at once before the next sleep if others compute: the MPI may
    /// yield in its own loop, at the same price. But what it does must be looked at now and then,
    /// or it may never return to its work.
    fn free_beside_others(&self) -> u32 {
        match self.naps {
            0 => 0,
            n if n.is_multiple_of(NAPS) || !self.fresh => FREE / 2,
            _ => 0,
        }
    }

    /// Sleeps, if it may: shortly, then longer.
    fn sleep(&mut self, settings: &Settings) -> Option<Pause> {
        let next = match (self.nap, self.fresh) {
            (0, true) => FIRST_NAP_OF_ASKER,
            (0, false) => FIRST_NAP,
            (_, true) => settings.nap,
            (nap, false) => nap * 2,
        };
        let next = next.min(settings.nap);
        let may = self.wants_room || self.pace.may_sleep(next, self.away >= COMPUTES);
        may.then(|| {
            self.nap = next;
            self.naps = self.naps.wrapping_add(1);
            Pause::Sleep(next)
        })
    }

    /// So many polls return at once where cores are shared, with regard to what the
    /// program is doing.
    fn left_alone(&self) -> u32 {
        self.free() + self.busy + self.habit.patience()
    }

    /// So many polls return at once where cores are shared.
    fn free(&self) -> u32 {
        if self.fresh { 1 } else { FREE }
    }

    /// Whether more than an answer from another core takes was in vain.
    pub fn is_waiting(&self) -> bool {
        self.vain > GLANCES
    }

    /// Whether it has been waiting for long enough to sleep.
    pub fn is_long(&self) -> bool {
        self.vain > LONG
    }

    /// Whether what the program waits for will most likely come here. If not, and it
    /// polls other domains too, it had better wait in one of those.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// A pause has ended. `others`: as above.
    pub fn paused(&mut self, pause: Pause, others: impl Fn() -> bool) {
        self.has_paused = true;
        let now = Native::with_id(0).now();
        if pause == Pause::Yield {
            self.was_away(now.wrapping_sub(self.last.1), now, others);
        }
        self.last = (if self.oversubscribed && self.timed { cpu_time() } else { now }, now);
    }
}

#[cfg(test)]
mod tests;
