//! `event`: a flag that waiters wait for. A waiter that was there when it was set goes
//! on, also if it is reset at once.
//!
//! **Source.** The event of Windows and of Python's `threading`, over a count of settings as in an
//! eventcount (Reed & Kanodia 1979), which tells a waiter that it was set meanwhile.
//!
//! **Progress.** Setting and resetting are lock-free; waiting is blocking, by nature.
//!
//! **Fields.** `word`: number of settings (bits 1 to 31), above whether it is set (bit 0). Any
//! process; waiters add [`PARKED`].
//!
//! **Crashes.** A waiter, anywhere: nothing. One that sets it, before the exchange: nothing; after
//! it, before it has woken the sleepers: they look again within a few milliseconds. There is no
//! owner: if the only process that would set it dies, waiters wait until their deadlines.
//!
//! **Memory.** A line.
//!
//! **Don't use it** to hand something to one waiter: all go on. A semaphore or a channel does that.

use std::time::{Duration, Instant};

use towpath_machine::{Arena, Native, Ordering, OwnLine, Place, Processor, zeroed};

use crate::mutex::adaptive;
use crate::turns::{TURN, Turns};
use crate::{Attempt, Deadline, PARKED, TimedOut, Wait, Waiting};

/// Part of the word: the event is set.
const SET: u64 = 1;
/// Part of the word: number of settings and [`SET`].
const VALUE: u64 = u32::MAX as u64;

/// A flag that waiters wait for. Between processes: a named object of a world.
///
/// ```
/// use towpath_sync::robust::Event;
///
/// let ready = Event::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| ready.wait());
///     ready.set();
/// });
/// assert!(ready.is_set());
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct Event<P: Processor = Native> {
    word: OwnLine<P::Word>,
}

impl<P: Processor> Event<P> {
    /// An event that is not set, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::robust::Event;
    ///
    /// let ready = Event::<Native>::in_arena(&Heap);
    /// assert!(!ready.is_set_for(&Native::current()));
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        Event { word: OwnLine(arena.word(Place::NewLine, 0)) }
    }

    /// Sets it, and wakes all that wait for it.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Spinning, robust::Event};
    /// let (cpu, ready) = (Native::current(), Event::<Native>::in_arena(&Heap));
    /// ready.set_by(&cpu, &Spinning);
    /// assert!(ready.is_set_for(&cpu));
    /// ```
    pub fn set_by<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: the exchange compares, and publishes.
        let mut seen = cpu.load(&self.word, Ordering::Relaxed);
        loop {
            let next = if seen & SET == 0 { seen.wrapping_add(2) & VALUE | SET } else { seen };
            // (V1) Release: the setter's writes, also if it is set already; pairs with the Acquire
            // (V2), (V3).
            match cpu.compare_exchange(&self.word, seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    if (seen ^ next) & PARKED != 0 {
                        wait.wake_all(cpu, &self.word);
                    }
                    return;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Resets it. Returns whether it was set.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Spinning, robust::Event};
    /// let (cpu, ready) = (Native::current(), Event::<Native>::in_arena(&Heap));
    /// ready.set_by(&cpu, &Spinning);
    /// assert!(ready.reset_by(&cpu)); // of several that reset it, one is told that it was set
    /// assert!(!ready.reset_by(&cpu));
    /// ```
    pub fn reset_by(&self, cpu: &P) -> bool {
        // (V4) AcqRel: the setter's writes, as for a waiter, pairs with the Release (V1); this
        // process's come before the next setting.
        cpu.fetch_and(&self.word, !SET, Ordering::AcqRel) & SET != 0
    }

    /// Returns whether it is set.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Spinning, robust::Event};
    /// let (cpu, ready) = (Native::current(), Event::<Native>::in_arena(&Heap));
    /// std::thread::scope(|scope| scope.spawn(|| ready.set_by(&cpu, &Spinning)).join()).unwrap();
    /// assert!(ready.is_set_for(&cpu)); // what the other thread wrote before is here, too
    /// ```
    pub fn is_set_for(&self, cpu: &P) -> bool {
        // (V2) Acquire: pairs with the Release (V1).
        cpu.load(&self.word, Ordering::Acquire) & SET != 0
    }

    /// Waits until it is set, or has been set since the call began.
    ///
    /// # Errors
    ///
    /// [`TimedOut`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Event};
    /// let (cpu, ready) = (Native::current(), Event::<Native>::in_arena(&Heap));
    /// assert!(ready.wait_as(&cpu, &Spinning, Deadline::PAST).is_err());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| ready.set_by(&cpu, &Spinning));
    ///     ready.wait_as(&cpu, &Spinning, Deadline::NEVER)
    /// })?;
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn wait_as<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), TimedOut> {
        self.wait_since(cpu, wait, self.count_for(cpu), deadline)
    }

    /// Value to wait from ([`Event::wait_since`]).
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Spinning, robust::Event};
    /// let (cpu, ready) = (Native::current(), Event::<Native>::in_arena(&Heap));
    /// let before = ready.count_for(&cpu);
    /// ready.set_by(&cpu, &Spinning);
    /// ready.reset_by(&cpu);
    /// assert_ne!(ready.count_for(&cpu), before); // it has been set since
    /// ```
    pub fn count_for(&self, cpu: &P) -> u64 {
        // Relaxed: only compared.
        cpu.load(&self.word, Ordering::Relaxed) & VALUE
    }

    /// Value to wait from for a waiter that knows of all settings so far.
    ///
    /// Also of the present one, if it is set.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Event};
    /// let (cpu, ready) = (Native::current(), Event::<Native>::in_arena(&Heap));
    /// ready.set_by(&cpu, &Spinning);
    /// let known = ready.known_for(&cpu);
    /// ready.reset_by(&cpu);
    /// assert!(ready.wait_since(&cpu, &Spinning, known, Deadline::PAST).is_err()); // not once more
    /// ```
    pub fn known_for(&self, cpu: &P) -> u64 {
        let known = self.count_for(cpu) & !SET;
        // With the writes of their setters: the word is at least as new there.
        self.is_set_for(cpu);
        known
    }

    /// Waits until it is set, or has been since [`Event::count_for`] returned `first`.
    ///
    /// # Errors
    ///
    /// [`TimedOut`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Event};
    /// let (cpu, ready) = (Native::current(), Event::<Native>::in_arena(&Heap));
    /// let first = ready.count_for(&cpu);
    /// ready.set_by(&cpu, &Spinning);
    /// ready.reset_by(&cpu);
    /// ready.wait_since(&cpu, &Spinning, first, Deadline::NEVER)?; // it was set meanwhile
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn wait_since<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        first: u64,
        deadline: Deadline,
    ) -> Result<(), TimedOut> {
        // (V2b) Acquire: as (V2); pairs with the Release (V1).
        let now = cpu.load(&self.word, Ordering::Acquire) & VALUE;
        if now & SET != 0 || now != first {
            return Ok(());
        }
        let mut turns = Turns::new(cpu, deadline, TURN);
        loop {
            turns.wait(cpu, wait, &self.word, first)?;
            // (V3) Acquire: pairs with the Release (V1). The number of settings only grows.
            if cpu.load(&self.word, Ordering::Acquire) & VALUE != first {
                return Ok(());
            }
        }
    }
}

impl Event<Native> {
    /// An event between threads that is not set.
    ///
    /// ```
    /// use towpath_sync::robust::Event;
    ///
    /// let ready = Event::new();
    /// assert!(!ready.is_set());
    /// ```
    pub const fn new() -> Self {
        zeroed()
    }

    /// Sets it, and wakes all threads that wait for it.
    ///
    /// ```
    /// # use towpath_sync::robust::Event;
    /// let ready = Event::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| ready.wait());
    ///     ready.set();
    /// });
    /// ```
    pub fn set(&self) {
        self.set_by(&Native::of_thread(), &adaptive());
    }

    /// Resets it. Returns whether it was set.
    ///
    /// ```
    /// # use towpath_sync::robust::Event;
    /// let ready = Event::new();
    /// ready.set();
    /// assert!(ready.reset() && !ready.reset());
    /// ```
    pub fn reset(&self) -> bool {
        self.reset_by(&Native::of_thread())
    }

    /// Returns whether it is set.
    ///
    /// ```
    /// # use towpath_sync::robust::Event;
    /// let ready = Event::new();
    /// ready.set();
    /// assert!(ready.is_set());
    /// ```
    pub fn is_set(&self) -> bool {
        self.is_set_for(&Native::of_thread())
    }

    /// Waits until it is set.
    ///
    /// ```
    /// # use towpath_sync::robust::Event;
    /// let ready = Event::new();
    /// ready.set();
    /// ready.wait(); // returns at once
    /// ```
    pub fn wait(&self) {
        // Without a deadline the time is never over.
        while self.wait_as(&Native::of_thread(), &adaptive(), Deadline::NEVER).is_err() {}
    }

    /// Value that each setting changes: [`Event::attempt_wait`] waits for one more.
    ///
    /// ```
    /// # use towpath_sync::robust::Event;
    /// let ready = Event::new();
    /// let before = ready.count();
    /// ready.set();
    /// assert_ne!(ready.count(), before);
    /// ```
    pub fn count(&self) -> u64 {
        self.count_for(&Native::of_thread())
    }

    /// Looks whether it is set, or has been set since [`Event::count`] returned `since`;
    /// otherwise says where it would sleep until it is: for event loops.
    ///
    /// ```
    /// # use towpath_sync::{Attempt, robust::Event};
    /// let ready = Event::new();
    /// let since = ready.count();
    /// assert!(matches!(ready.attempt_wait(since), Attempt::Asleep(..)));
    /// ready.set();
    /// assert!(matches!(ready.attempt_wait(since), Attempt::Done(Ok(()))));
    /// ```
    pub fn attempt_wait(&self, since: u64) -> Attempt<Result<(), TimedOut>> {
        let act = |wait: &Wait<'_>, turn| self.wait_since(&Native::of_thread(), wait, since, turn);
        Attempt::of(&adaptive(), |_| true, act)
    }

    /// Waits until it is set; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TimedOut`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use towpath_sync::robust::Event;
    /// let ready = Event::new();
    /// assert!(ready.wait_timeout(Duration::from_millis(1)).is_err());
    /// ```
    pub fn wait_timeout(&self, time: Duration) -> Result<(), TimedOut> {
        self.wait_as(&Native::of_thread(), &adaptive(), Deadline::within(time))
    }

    /// Waits until it is set; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TimedOut`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::robust::Event;
    /// let ready = Event::new();
    /// assert!(ready.wait_until(Instant::now() + Duration::from_millis(1)).is_err());
    /// ```
    pub fn wait_until(&self, instant: Instant) -> Result<(), TimedOut> {
        self.wait_as(&Native::of_thread(), &adaptive(), Deadline::at(instant))
    }
}

impl Default for Event<Native> {
    fn default() -> Self {
        Event::new()
    }
}
