//! Idle strategy of `fi_cq_read`: spin, return, yield or sleep when the queue is empty.
//!
//! An MPI that waits polls in a loop, and the event that it waits for need not come through here:
//! messages to oneself, files and threads are its own business. So a read must not keep the MPI for
//! long before it has had a few turns of its loop; and while a rank waits, other ranks may need the
//! core. A wait goes through the stages of `IdleStage`, by the number of empty polls so far:
//!
//! ```text
//! stage      cores are shared            a core for each rank                  pause
//! Return     the first F + W + P polls   the first P, and 2 more (0 if F = 1)  none
//! ShortSpin                              up to SHORT_SPINS                     spin 1 µs
//! Rounds     the next Y                  the next 2 LONG_SPINS                 the strategy's step
//! Observe    the next F                                                        none
//! Rounds     then, and Observe again     each SELDOM-th                        the strategy's step
//! Rest                                   the others                            none
//!
//! F   1 if the program has started something here, and most likely waits for the answer; or FREE
//! W   WORK polls more each time that the program was found working between two polls
//! P   patience: the program often goes on without a completion (`TestPredictor`)
//! Y   `TOWPATH_YIELDS`; 0 while yields are expensive (`YieldCost`)
//! ```
//!
//! In its rounds a wait takes the steps of a [`Strategy`], as all waits of Towpath do: where cores
//! are shared, Y yields, then sleeps; with a core for each rank, spins of `TOWPATH_SPIN`, and
//! yields between them, or sleeps while yields are expensive.
//!
//! The wait begins anew when the program starts an operation, when it is given a completion, and
//! when it did foreign work between two polls ([`Estimator`]). Where cores are shared, time passes
//! while others run, so the thread's own processor time is read; that is a system call, so it is
//! read in Observe, after a pause and after a long gap only.
//!
//! A program may also poll in passing, while it computes, and then each stage keeps it from its
//! work. With a core for each rank it loses some 20 µs of spinning at most, and sleeps only if
//! others want the core; where cores are shared it sleeps at once only if it does nothing else
//! while others compute ([`PollGaps`](crate::device::wait::poll_gap::PollGaps)).

use towpath_machine::{Native, Processor};
use towpath_sync::strategy::{Course, Rest, Step, Strategy, WaitState};

use crate::device::tune::settings::Settings;
use crate::device::wait::activity::Activity;
use crate::device::wait::estimator::{Estimator, PollDifference, PollEvent, SWITCHED, TIGHT};
use crate::device::wait::yield_cost::YieldCost;

/// Time between two looks at the peers' liveness while nothing happens, in nanoseconds.
pub const LOOK_EVERY: u64 = 10_000_000;
/// Number of short spins in a wait, with a core for each rank.
const SHORT_SPINS: u32 = 3;
/// Length of a short spin, in nanoseconds.
/// Less than a program that has other things to do would notice, and more than an answer takes.
const SHORT_SPIN: u64 = 1_000;
/// Number of long spins in a wait.
/// An event that takes longer can wait for another turn of the MPI's loop.
const LONG_SPINS: u32 = 4;
/// Number of polls without a pause after which a rank yields: others may want the core.
const SELDOM: u32 = 32;
/// Number of polls that return at once for each time that the program was found working.
const WORK: u32 = 32;
/// Maximum of that number.
const MOST_WORK: u32 = 256;
/// Minimum frequency of foreign work, in polls, with a core for each rank.
/// Interrupts and other programs hold the clocks up too, but less often.
const OFTEN: u32 = 16;
/// Number of polls that return at once where cores are shared. If the program has started
/// nothing here: enough for the answer to a message that it sent to itself.
const FREE: u32 = 6;
/// Length of the first sleep then, in nanoseconds.
const FIRST_SLEEP: u64 = 50_000;
/// Length of the first sleep of a program that waits for an answer, in nanoseconds: the
/// answer will most likely wake it.
const FIRST_SLEEP_FOR_ANSWER: u64 = 200_000;
/// Number of sleeps with one poll in between, where others compute.
const SLEEPS: u32 = 4;
/// Number of empty polls after which a program that asked for a wait sleeps.
const LONG: u32 = 20;

/// Stage of a wait: the table is in the file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleStage {
    /// Return at once: events that the MPI makes itself are found now.
    Return,
    /// Spin for less than the program would notice.
    ShortSpin,
    /// Take the strategy's next step.
    Rounds,
    /// Return at once, and measure the gaps between the polls.
    Observe,
    /// Return at once: the wait is a long one, and the core is not wanted.
    Rest,
}

/// The current wait.
#[derive(Debug, Default)]
struct IdleWait {
    /// Empty polls since it began, or since the last sleep.
    polls: u32,
    /// Empty polls since it began.
    empty_polls: u32,
    /// Progress in the strategy.
    steps: WaitState,
    /// Number of sleeps.
    sleeps: u32,
    /// Polls that return at once because the program works between them.
    work: u32,
}

/// Idle strategy of one completion queue or counter.
#[derive(Debug, Default)]
pub struct Idle {
    wait: IdleWait,
    /// Polls since the last pause.
    unpaused: u32,
    estimator: Estimator,
    yields: YieldCost,
    oversubscribed: bool,
    /// Time of the last look at the peers' liveness, in nanoseconds.
    looked: u64,
}

/// Way to wait now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// No pause.
    None,
    /// Spin for so many nanoseconds.
    Spin(u64),
    /// Give the core to another thread.
    Yield,
    /// Sleep for so many nanoseconds.
    Sleep(u64),
}

/// The calling thread's processor time, in nanoseconds.
fn thread_time() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Idle {
    /// A read has given the program a completion. `activity`: so far.
    #[inline(always)]
    pub fn on_completion(&mut self, activity: impl FnOnce() -> Activity) {
        if self.estimator.on_completion(self.wait.empty_polls, activity) {
            self.on_new_operation();
        }
        self.wait = IdleWait::default();
    }

    /// The program was given a completion and looked whether there is more.
    /// That is an empty poll that is not worth a look at the clocks.
    #[inline(always)]
    pub fn on_drain_poll(&mut self) {
        self.wait.polls += 1;
        self.estimator.on_drain_poll();
    }

    /// The program has started an operation with no completion.
    fn on_new_operation(&mut self) {
        let spared = if self.oversubscribed { FREE } else { SHORT_SPINS };
        self.estimator.on_new_operation(self.wait.empty_polls, spared);
    }

    /// Chooses the pause after an empty poll.
    /// Returns it, and whether it is time to look after the peers.
    ///
    /// `others`: whether others than the ranks want to run on this machine.
    pub fn step(
        &mut self,
        oversubscribed: bool,
        activity: Activity,
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
        (self.decide(thread_time, now, activity, settings, others), look)
    }

    /// Chooses the pause at the time `now`. `thread_time` reads the thread's own clock.
    fn decide(
        &mut self,
        thread_time: impl Fn() -> u64,
        now: u64,
        activity: Activity,
        settings: &Settings,
        others: impl Fn() -> bool,
    ) -> Pause {
        let elapsed = self.estimator.elapsed(now);
        let PollDifference { event, is_still, drains, refused } = self.estimator.on_empty_poll(activity);
        match event {
            PollEvent::Operation { without_frames } => {
                if without_frames {
                    self.on_new_operation();
                }
                self.wait = IdleWait::default();
            }
            PollEvent::Elsewhere => self.wait = IdleWait::default(),
            PollEvent::Frame => {
                // Others were served; the program has got nothing.
                self.wait.polls = self.wait.polls.min(self.free());
                self.wait.steps = WaitState::default();
            }
            PollEvent::None => {}
        }
        self.estimator.expect(event, refused);
        // Early, too, where a lot of time has passed while nothing happened: one more system call
        // is nothing then.
        let is_judged = !self.oversubscribed
            || self.wait.polls >= self.returns() + self.yields(settings)
            || (elapsed >= TIGHT && is_still);
        let time = is_judged.then(|| if self.oversubscribed { thread_time() } else { now });
        let gap = self.estimator.on_gap(now, elapsed, time, is_still, settings.nap);
        if gap.is_work {
            self.on_foreign_work();
        }
        if self.oversubscribed && gap.off_core > 0 {
            self.on_off_core(gap.off_core, now, others); // The MPI yields.
        }
        self.estimator.count_poll();
        self.wait.polls = self.wait.polls.saturating_add(1);
        self.wait.empty_polls = self.wait.empty_polls.saturating_add(1);
        let pause = match self.stage(settings) {
            _ if drains && !self.oversubscribed => Pause::None,
            stage => self.pause(stage, elapsed, settings),
        };
        self.unpaused = if pause == Pause::None { self.unpaused + 1 } else { 0 };
        if self.unpaused >= SELDOM && (elapsed < SWITCHED || !self.oversubscribed) {
            self.unpaused = 0;
            return if self.yield_is_expensive() { Pause::None } else { Pause::Yield };
        }
        pause
    }

    /// The thread was off its core.
    fn on_off_core(&mut self, ns: u64, now: u64, others: impl Fn() -> bool) {
        if self.yields.on_off_core(ns, now, others) {
            // To ask took some microseconds, which are not the program's.
            self.estimator.skip_gap();
        }
    }

    /// Returns whether a yield would most likely give the core to a program that
    /// computes.
    fn yield_is_expensive(&self) -> bool {
        self.yields.yield_is_expensive(self.estimator.last_step())
    }

    /// The program did foreign work between two polls.
    fn on_foreign_work(&mut self) {
        let since = self.estimator.on_foreign_work();
        if self.oversubscribed || since < OFTEN {
            // `empty_polls` stays: the program's next step will tell whether it waits.
            self.wait.polls = 0;
            self.wait.steps = WaitState::default();
            self.estimator.forget_answer();
            self.wait.work = (self.wait.work + WORK).min(MOST_WORK);
        }
    }

    /// Stage of the wait: the table is in the file's header.
    fn stage(&self, settings: &Settings) -> IdleStage {
        if self.oversubscribed {
            let returns = self.returns();
            let yields = returns + self.yields(settings);
            return match self.wait.polls {
                n if n <= returns => IdleStage::Return,
                n if n > yields && n <= yields + self.observed() => IdleStage::Observe,
                _ => IdleStage::Rounds,
            };
        }
        match self.wait.polls.saturating_sub(self.estimator.patience()) {
            0 => IdleStage::Return,
            n if n <= 2 && !self.estimator.awaits_answer() => IdleStage::Return,
            n if n <= SHORT_SPINS => IdleStage::ShortSpin,
            n if n > SHORT_SPINS + 2 * LONG_SPINS && !n.is_multiple_of(SELDOM) => IdleStage::Rest,
            _ => IdleStage::Rounds,
        }
    }

    /// Pause of a stage. `elapsed`: wall time since the last poll, in nanoseconds.
    fn pause(&mut self, stage: IdleStage, elapsed: u64, settings: &Settings) -> Pause {
        match stage {
            IdleStage::Return | IdleStage::Observe | IdleStage::Rest => Pause::None,
            IdleStage::ShortSpin => Pause::Spin(SHORT_SPIN.min(settings.spin)),
            IdleStage::Rounds => {
                let before = self.wait.steps;
                match self.next_step(settings) {
                    Step::Spin(ns) => Pause::Spin(ns),
                    // The MPI has yielded; another yield would only make the program wait twice.
                    Step::Yield if self.oversubscribed && elapsed >= SWITCHED => Pause::None,
                    Step::Yield => Pause::Yield,
                    Step::Park(ns) => self.sleep(ns, before, settings),
                }
            }
        }
    }

    /// Strategy of the rounds.
    fn strategy(&self, settings: &Settings) -> Strategy {
        let is_expensive = self.yield_is_expensive();
        let rest = if is_expensive { Rest::Park { yields: 0 } } else { Rest::Yield };
        let awaits_answer = self.estimator.awaits_answer();
        Strategy {
            // Other programs may want the core even where the ranks have one each.
            spare: Course { spin: settings.spin, rest },
            oversubscribed: Course { spin: 0, rest: Rest::Park { yields: self.yields(settings) } },
            first_nap: if awaits_answer { FIRST_SLEEP_FOR_ANSWER } else { FIRST_SLEEP },
            longest_nap: settings.nap,
        }
    }

    /// Next step of the strategy.
    fn next_step(&mut self, settings: &Settings) -> Step {
        let (strategy, oversubscribed) = (self.strategy(settings), self.oversubscribed);
        // Where cores are shared the poll itself was the look, and with a core for each rank the
        // short spins were the first spin; a long wait only rests.
        let is_over = oversubscribed
            || self.wait.steps == WaitState::default()
            || self.wait.polls > self.estimator.patience() + SHORT_SPINS + 2 * LONG_SPINS;
        let steps = &mut self.wait.steps;
        match strategy.next(steps, || oversubscribed) {
            Step::Spin(_) if is_over => strategy.next(steps, || oversubscribed),
            step => step,
        }
    }

    /// Number of yields before the first sleep, where cores are shared.
    fn yields(&self, settings: &Settings) -> u32 {
        if self.yield_is_expensive() { 0 } else { settings.yields }
    }

    /// Number of polls that return at once before the next sleep. Where others compute:
    /// few, since the MPI may yield in its own loop, at the same price; but the gaps must be
    /// measured now and then, or the program may never return to its work.
    fn observed(&self) -> u32 {
        if !self.yield_is_expensive() {
            return self.free();
        }
        match self.wait.sleeps {
            0 => 0,
            n if n.is_multiple_of(SLEEPS) || !self.estimator.awaits_answer() => FREE / 2,
            _ => 0,
        }
    }

    /// Sleeps for so long, in nanoseconds, if the estimator permits it.
    ///
    /// `before`: progress in the strategy before this step, which is taken back otherwise where
    /// cores are shared.
    fn sleep(&mut self, ns: u64, before: WaitState, settings: &Settings) -> Pause {
        let yields_instead = self.oversubscribed && !self.yield_is_expensive();
        if self.oversubscribed {
            let observed = if yields_instead { self.free() / 2 } else { 0 };
            self.wait.polls = self.returns() + self.yields(settings) + observed;
        }
        if self.estimator.may_sleep(ns, self.yields.others_compute()) {
            self.wait.sleeps = self.wait.sleeps.wrapping_add(1);
            return Pause::Sleep(ns);
        }
        if self.oversubscribed {
            self.wait.steps = before;
        }
        if yields_instead { Pause::Yield } else { Pause::None }
    }

    /// Number of polls that return at once where cores are shared: F + W + P.
    fn returns(&self) -> u32 {
        self.free() + self.wait.work + self.estimator.patience()
    }

    /// Number of polls that return at once for a program that waits where cores are
    /// shared: F.
    fn free(&self) -> u32 {
        if self.estimator.awaits_answer() { 1 } else { FREE }
    }

    /// Returns whether the wait has taken longer than an answer from another core.
    pub fn is_waiting(&self) -> bool {
        self.wait.empty_polls > SHORT_SPINS
    }

    /// Returns whether the wait is long enough for a program that asked for it to sleep.
    pub fn is_long(&self) -> bool {
        self.wait.empty_polls > LONG
    }

    /// Returns whether the next completion will most likely be this domain's.
    /// If not, and the program polls other domains too, it had better wait in one of those.
    pub fn awaits_here(&self) -> bool {
        self.estimator.awaits_here()
    }

    /// A pause has ended. `others`: as for [`Idle::step`].
    pub fn on_pause_end(&mut self, pause: Pause, others: impl Fn() -> bool) {
        let now = Native::with_id(0).now();
        if pause == Pause::Yield {
            self.on_off_core(now.wrapping_sub(self.estimator.last_step()), now, others);
        }
        let oversubscribed = self.oversubscribed;
        self.estimator.on_pause_end(now, || if oversubscribed { thread_time() } else { now });
    }
}

#[cfg(test)]
mod tests;
