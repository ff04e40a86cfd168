//! `once`: something is done once, by one of many; if that one dies in the middle,
//! another does it.
//!
//! **Source.** The usual state machine (std's `Once`), with the identity of the runner in the
//! state.
//!
//! **Progress.** Blocking: the others wait for the runner, as long as it lives. Done: one load.
//!
//! | `word` (without [`PARKED`]) | meaning | leaves to |
//! | --- | --- | --- |
//! | identity or 0, attempts, 0 | not done; the identity is that of a runner that died, whose successor gave up | running, by a runner |
//! | identity, attempts, 1 | running | done or not done, by the runner; running with another identity, by a survivor |
//! | attempts, 2 | done | – |
//!
//! **Crashes.** The runner dies: one of the others finds out, takes its place by compare-and-swap,
//! and is told ([`OnceTurn::dead`]). After done, before it has woken the sleepers: they look again
//! within a few milliseconds. Waiters die: nothing.
//!
//! **Memory.** A line.
//!
//! **Don't use it** recursively: a runner that runs it again waits for itself.

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, Native, Ordering, OwnLine, Place, Processor, zeroed};

use crate::mutex::adaptive;
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, TimedOut, Waiting};

const RUNNING: u64 = 1;
const DONE: u64 = 2;
const STATE: u64 = 3;
/// Number of attempts, above the state. The half of the word that a sleeper compares
/// differs with each.
const ATTEMPTS: u64 = u32::MAX as u64 & !STATE;

/// Something that is done once. Between processes: a named object of a world.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use towpath_sync::robust::Once;
///
/// let (once, times): (Once, _) = (Once::new(), AtomicU64::new(0));
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| once.call(|_| times.fetch_add(1, Relaxed)));
///     }
/// });
/// assert_eq!(times.into_inner(), 1);
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct Once<P: Processor = Native> {
    word: OwnLine<P::Word>,
}

/// Permission to do it. Given back by [`Once::finish`] or [`Once::give_up`].
#[derive(Debug)]
#[must_use = "the others wait until it is given back"]
pub struct OnceTurn {
    /// The word while it runs.
    running: u64,
    /// Identity of the runner that died before; 0: there was none.
    dead: u32,
}

impl OnceTurn {
    /// Identity of a runner that died in the middle, and may have left something half
    /// done.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Wait, robust::Once};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (cpu, once) = (Native::current(), Once::<Native>::in_arena(&Heap));
    /// let turn = once.begin(&cpu, &first, Deadline::NEVER)?.expect("the first one");
    /// assert_eq!(turn.dead(), None);
    /// // Its process dies in the middle; the next one may have to clean up after it.
    /// let turn = once.begin(&cpu, &second, Deadline::NEVER)?.expect("it is not done");
    /// assert_eq!(turn.dead(), Some(1));
    /// # once.finish(&cpu, &second, turn);
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn dead(&self) -> Option<u32> {
        (self.dead != 0).then_some(self.dead)
    }
}

const fn identity(value: u64) -> u32 {
    (value >> 32) as u32 & 0x7fff_ffff
}

impl<P: Processor> Once<P> {
    /// Something that is not done yet, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::robust::Once;
    ///
    /// let once = Once::<Native>::in_arena(&Heap);
    /// assert!(!once.is_done_for(&Native::current()));
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        Once { word: OwnLine(arena.word(Place::NewLine, 0)) }
    }

    /// Returns whether it is done.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Once};
    /// let (cpu, once) = (Native::current(), Once::<Native>::in_arena(&Heap));
    /// let turn = once.begin(&cpu, &Spinning, Deadline::NEVER)?.expect("it is not done");
    /// assert!(!once.is_done_for(&cpu)); // while it runs, too
    /// once.finish(&cpu, &Spinning, turn);
    /// assert!(once.is_done_for(&cpu));
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    #[inline(always)]
    pub fn is_done_for(&self, cpu: &P) -> bool {
        // (O1) Acquire: pairs with the Release (O2).
        cpu.load(&self.word, Ordering::Acquire) & STATE == DONE
    }

    /// Takes the turn to do it, or waits until another has done it: `None`.
    ///
    /// # Errors
    ///
    /// [`TimedOut`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Once};
    /// let (cpu, once) = (Native::current(), Once::<Native>::in_arena(&Heap));
    /// for done in [false, true] {
    ///     match once.begin(&cpu, &Spinning, Deadline::NEVER)? {
    ///         Some(turn) if !done => once.finish(&cpu, &Spinning, turn),
    ///         turn => assert!(turn.is_none()),
    ///     }
    /// }
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn begin<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Option<OnceTurn>, TimedOut> {
        let mut turns = None;
        loop {
            // (O1b) Acquire: as (O1); pairs with the Release (O2), (O3).
            let seen = cpu.load(&self.word, Ordering::Acquire);
            let dead = match seen & STATE {
                DONE => return Ok(None),
                RUNNING => {
                    let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
                    if !turns.is_time_to_ask(cpu) || wait.is_alive(identity(seen)) {
                        turns.wait(cpu, wait, &self.word, seen & !PARKED)?;
                        continue;
                    }
                    identity(seen)
                }
                _ => identity(seen),
            };
            let attempt = (seen & ATTEMPTS).wrapping_add(STATE + 1) & ATTEMPTS;
            let running = u64::from(wait.identity()) << 32 | attempt | RUNNING;
            let next = running | seen & PARKED;
            // Relaxed: (O1b) has acquired what a runner that gave up left, and no two have one
            // number. The acts of a dead one come before its death was known.
            if cpu.compare_exchange(&self.word, seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(Some(OnceTurn { running, dead }));
            }
        }
    }

    /// Ends the turn: it is done.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Once};
    /// let (cpu, once) = (Native::current(), Once::<Native>::in_arena(&Heap));
    /// let turn = once.begin(&cpu, &Spinning, Deadline::NEVER)?.expect("it is not done");
    /// once.finish(&cpu, &Spinning, turn);
    /// assert!(once.begin(&cpu, &Spinning, Deadline::NEVER)?.is_none());
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn finish<W: Waiting<P>>(&self, cpu: &P, wait: &W, turn: OnceTurn) {
        // (O2) Release (in `release`): what was done; pairs with the Acquire (O1), (O1b).
        wait.release(cpu, &self.word, turn.running & ATTEMPTS | DONE);
    }

    /// Ends the turn: it is not done, and the next may try. That one is told of a dead
    /// runner, as this one was.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Once};
    /// let (cpu, once) = (Native::current(), Once::<Native>::in_arena(&Heap));
    /// let turn = once.begin(&cpu, &Spinning, Deadline::NEVER)?.expect("it is not done");
    /// once.give_up(&cpu, &Spinning, turn); // it failed
    /// assert!(once.begin(&cpu, &Spinning, Deadline::PAST)?.is_some()); // the next one tries
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn give_up<W: Waiting<P>>(&self, cpu: &P, wait: &W, turn: OnceTurn) {
        // (O3) Release (in `release`): what was done in part; pairs with the Acquire (O1b).
        wait.release(cpu, &self.word, u64::from(turn.dead) << 32 | turn.running & ATTEMPTS);
    }
}

impl Once<Native> {
    /// Something between threads that is not done yet.
    ///
    /// ```
    /// use towpath_sync::robust::Once;
    ///
    /// let once = Once::new();
    /// assert!(!once.is_done());
    /// ```
    pub const fn new() -> Self {
        zeroed()
    }

    /// Does it, unless it is done, or another thread does it: then waits. If `act`
    /// panics, the next may try. `act` is told the identity of a dead runner, which there is only
    /// between processes.
    ///
    /// ```
    /// # use towpath_sync::robust::Once;
    /// let (once, mut runs): (Once, u32) = (Once::new(), 0);
    /// once.call(|_| runs += 1);
    /// once.call(|_| runs += 1);
    /// assert_eq!(runs, 1);
    /// ```
    pub fn call<R>(&self, act: impl FnOnce(Option<u32>) -> R) {
        let (cpu, wait) = (Native::of_thread(), adaptive());
        if self.is_done_for(&cpu) {
            return;
        }
        // Without a deadline the time is never over.
        if let Ok(Some(turn)) = self.begin(&cpu, &wait, Deadline::NEVER) {
            let mut running = OnceRunner::new(self, cpu, wait, turn);
            act(running.dead());
            running.finish();
        }
    }

    /// Returns whether it is done.
    ///
    /// ```
    /// # use towpath_sync::robust::Once;
    /// let once = Once::new();
    /// once.call(|_| ());
    /// assert!(once.is_done());
    /// ```
    pub fn is_done(&self) -> bool {
        self.is_done_for(&Native::of_thread())
    }
}

impl Default for Once<Native> {
    fn default() -> Self {
        Once::new()
    }
}

/// A native runner, which gives up when it is dropped before it has finished.
#[derive(OpaqueDebug)]
pub struct OnceRunner<'a, W: Waiting<Native>> {
    once: &'a Once,
    cpu: Native,
    wait: W,
    turn: Option<OnceTurn>,
}

impl<'a, W: Waiting<Native>> OnceRunner<'a, W> {
    /// A runner with its turn.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Deadline, Spinning, robust::{Once, OnceRunner}};
    /// let (cpu, once) = (Native::current(), Once::new());
    /// let turn = once.begin(&cpu, &Spinning, Deadline::NEVER)?.expect("it is not done");
    /// drop(OnceRunner::new(&once, cpu, Spinning, turn)); // a panic does so
    /// assert!(once.begin(&cpu, &Spinning, Deadline::PAST)?.is_some()); // the next one tries
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn new(once: &'a Once, cpu: Native, wait: W, turn: OnceTurn) -> Self {
        OnceRunner { once, cpu, wait, turn: Some(turn) }
    }

    /// Identity of a runner that died in the middle.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Deadline, Spinning, robust::{Once, OnceRunner}};
    /// let (cpu, once) = (Native::current(), Once::new());
    /// let turn = once.begin(&cpu, &Spinning, Deadline::NEVER)?.expect("it is not done");
    /// let runner = OnceRunner::new(&once, cpu, Spinning, turn);
    /// assert_eq!(runner.dead(), None); // nothing is half done
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn dead(&self) -> Option<u32> {
        self.turn.as_ref().and_then(OnceTurn::dead)
    }

    /// Ends the turn: it is done.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Deadline, Spinning, robust::{Once, OnceRunner}};
    /// let (cpu, once) = (Native::current(), Once::new());
    /// let turn = once.begin(&cpu, &Spinning, Deadline::NEVER)?.expect("it is not done");
    /// OnceRunner::new(&once, cpu, Spinning, turn).finish();
    /// assert!(once.is_done());
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn finish(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.once.finish(&self.cpu, &self.wait, turn);
        }
    }
}

impl<W: Waiting<Native>> Drop for OnceRunner<'_, W> {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.once.give_up(&self.cpu, &self.wait, turn);
        }
    }
}
