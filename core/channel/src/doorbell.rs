//! Doorbell: the word on which a receiver sleeps, and the handshake that loses no
//! wake-up.
//!
//! **Source.** The store-buffering handshake ("Dekker's"): each side writes, then looks at what the
//! other one writes, with a full fence between. Futexes count as in Drepper, *Futexes Are Tricky*.
//!
//! **How.** The receiver *arms* the doorbell (it reads the count, says that it sleeps, a fence),
//! looks once more, and only then sleeps, while the count is as it was. The sender publishes, a
//! fence, and looks whether the doorbell is armed; if so it adds to the count and wakes. So either
//! the sender sees that the receiver sleeps, or the receiver sees the message.
//!
//! | | receiver | sender |
//! | --- | --- | --- |
//! | 1 | [`arm`](Doorbell::arm): reads the count (D1), writes `armed`, fence (W1) | publishes, fence (W2) |
//! | 2 | looks at its queue and its rings | [`is_armed`](Doorbell::is_armed) |
//! | 3 | nothing there: sleeps while the count is unchanged | armed: [`wake`](Doorbell::wake) (D2) |
//! | 4 | [`disarm`](Doorbell::disarm) | |
//!
//! A queue whose claims find in its tail that the receiver sleeps
//! ([`SLEEPING`](crate::queue::SLEEPING)) needs neither `armed` nor the fence: the claim is one
//! exchange with the receiver's announcement. There the word alone is the doorbell: [`count`],
//! [`wake`].
//!
//! **Wake pipe.** A receiver that sleeps in `poll` needs a descriptor. It empties the pipe, arms it
//! ([`Doorbell::arm_pipe`]), and looks once more. The sender publishes, looks, writes to the pipe,
//! and only then takes the request back, unless the receiver has armed it anew (the word counts).
//! So each message that is published while the pipe is armed finds the pipe full, or fills it. How
//! a pipe is written to is the caller's business.
//!
//! **Progress.** Wait-free, but for the sleep; [`Doorbell::arm_pipe`] is lock-free.
//!
//! **Fields.** `count`: a sender that wakes the receiver adds to it. `armed`: the receiver; a
//! sender that has written to the pipe takes [`PIPE`] out of it. `pipe`: the receiver, before it
//! arms it.
//!
//! **Crashes.** A sender that dies or stops between publishing and waking wakes no receiver: sleeps
//! are bounded, so the message is late, not lost. A receiver that dies armed costs its senders a
//! system call for each message.
//!
//! **Memory.** Three lines for a receiver.
//!
//! **Don't use it** where the receiver never sleeps: the sender's fence costs as much as an
//! exchange.

use towpath_machine::{Arena, Ordering, OwnLine, Park, Place, Processor};

/// Value of `armed`: the receiver sleeps on the count.
pub const SLEEPS: u64 = 1;
/// Value of `armed`: the receiver waits for its wake pipe.
pub const PIPE: u64 = 2;
/// Value of `armed`: the pipe was armed once more.
const ARMED_AGAIN: u64 = 4;

/// A doorbell: the layout natively.
#[repr(C)]
pub struct Doorbell<P: Processor> {
    /// Number of times that a sender has woken the receiver: the word on which it sleeps.
    pub count: OwnLine<P::Word>,
    /// [`SLEEPS`] and [`PIPE`]; in the bits above, the number of times that the pipe was
    /// armed.
    armed: OwnLine<P::Word>,
    /// One more than the descriptor of the receiver's wake pipe; 0 if it has none.
    pipe: OwnLine<P::Word>,
}

/// The count of a doorbell that is a word alone, before the last look at the queue.
///
/// ```
/// use towpath_channel::doorbell::{count, wake};
/// use towpath_machine::Native;
///
/// let (cpu, doorbell) = (Native::current(), Native::word(0));
/// let before = count(&cpu, &doorbell);
/// wake(&cpu, &doorbell);
/// assert_ne!(count(&cpu, &doorbell), before); // a receiver that looked before does not sleep
/// ```
#[inline]
pub fn count<P: Processor>(cpu: &P, doorbell: &P::Word) -> u64 {
    // (D1) Acquire: the messages of the wake-ups counted so far are seen by the look that follows;
    // pairs with the Release (D2) in `wake`.
    cpu.load(doorbell, Ordering::Acquire)
}

/// Wakes the receiver that sleeps on a doorbell that is a word alone.
///
/// ```
/// use towpath_channel::doorbell::{count, wake};
/// use towpath_machine::{Native, Park};
///
/// let doorbell = Native::word(0);
/// let seen = count(&Native::current(), &doorbell);
/// std::thread::scope(|scope| {
///     scope.spawn(|| wake(&Native::current(), &doorbell));
///     while count(&Native::current(), &doorbell) == seen {
///         Native::current().park(&doorbell, seen, 1_000_000_000);
///     }
/// });
/// ```
#[cold]
pub fn wake<P: Park>(cpu: &P, doorbell: &P::Word) {
    // (D2) Release: the published message comes before; pairs with the Acquire (D1) in `count`.
    cpu.fetch_add(doorbell, 1, Ordering::Release);
    cpu.wake(doorbell, u32::MAX);
}

impl<P: Processor> Doorbell<P> {
    /// A doorbell that is not armed.
    ///
    /// ```
    /// use towpath_channel::doorbell::Doorbell;
    /// use towpath_machine::{Heap, Native};
    ///
    /// let doorbell = Doorbell::<Native>::new(&Heap);
    /// assert!(!doorbell.is_armed(&Native::current())); // senders need not wake the receiver
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let line = || OwnLine(arena.word(Place::NewLine, 0));
        Doorbell { count: line(), armed: line(), pipe: line() }
    }

    // ---- the receiver ----

    /// Arms it. The caller looks once more for messages; if there are none it parks on
    /// [`count`](Doorbell::count) while that has the value returned. Then, or if there are some:
    /// [`Doorbell::disarm`].
    ///
    /// ```
    /// # use towpath_channel::doorbell::Doorbell;
    /// # use towpath_machine::{Heap, Native, Park};
    /// let (cpu, doorbell) = (Native::current(), Doorbell::<Native>::new(&Heap));
    /// let count = doorbell.arm(&cpu);
    /// let has_message = true; // looks once more
    /// if !has_message {
    ///     cpu.park(&doorbell.count, count, 1_000_000);
    /// }
    /// doorbell.disarm(&cpu);
    /// assert!(!doorbell.is_armed(&cpu));
    /// ```
    #[inline]
    pub fn arm(&self, cpu: &P) -> u64 {
        let count = count(cpu, &self.count);
        // Relaxed: ordered by the fence.
        cpu.fetch_or(&self.armed, SLEEPS, Ordering::Relaxed);
        fence(cpu);
        count
    }

    /// Takes the request to be woken back. Returns whether the pipe is still armed.
    ///
    /// ```
    /// # use towpath_channel::doorbell::Doorbell;
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, doorbell) = (Native::current(), Doorbell::<Native>::new(&Heap));
    /// doorbell.arm(&cpu);
    /// doorbell.arm_pipe(&cpu);
    /// assert!(doorbell.disarm(&cpu)); // the pipe is still armed
    /// ```
    #[inline]
    pub fn disarm(&self, cpu: &P) -> bool {
        // Relaxed: at worst a sender's wake is needless.
        cpu.fetch_and(&self.armed, !SLEEPS, Ordering::Relaxed) & PIPE != 0
    }

    /// Names the wake pipe, by its descriptor, before it is armed for the first time.
    ///
    /// ```
    /// # use towpath_channel::doorbell::Doorbell;
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, doorbell) = (Native::current(), Doorbell::<Native>::new(&Heap));
    /// doorbell.set_pipe(&cpu, 5);
    /// doorbell.arm_pipe(&cpu);
    /// doorbell.wake(&cpu, |pipe| assert_eq!(pipe, 5 + 1));
    /// ```
    pub fn set_pipe(&self, cpu: &P, descriptor: u32) {
        // Relaxed: published by (D3).
        cpu.store(&self.pipe, u64::from(descriptor) + 1, Ordering::Relaxed);
    }

    /// Arms the wake pipe, which the caller has emptied. Then the caller looks once more.
    ///
    /// ```
    /// # use towpath_channel::doorbell::Doorbell;
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, doorbell, mut written) = (Native::current(), Doorbell::<Native>::new(&Heap), 0);
    /// doorbell.set_pipe(&cpu, 5);
    /// for _ in 0..2 {
    ///     doorbell.arm_pipe(&cpu);
    ///     doorbell.wake(&cpu, |_| written += 1);
    /// }
    /// assert_eq!(written, 2); // once each time that it was armed
    /// ```
    pub fn arm_pipe(&self, cpu: &P) {
        // Relaxed: a guess, confirmed by the exchange.
        let mut armed = cpu.load(&self.armed, Ordering::Relaxed);
        loop {
            let again = armed.wrapping_add(ARMED_AGAIN) | PIPE;
            // (D3) Release: the pipe's number comes before; pairs with the Acquire (D4) in `wake`.
            match cpu.compare_exchange(&self.armed, armed, again, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => armed = now,
            }
        }
        fence(cpu);
    }

    /// Returns whether the pipe is armed, for the receiver's other threads.
    ///
    /// They hold the lock under which it was armed.
    ///
    /// ```
    /// # use towpath_channel::doorbell::Doorbell;
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, doorbell) = (Native::current(), Doorbell::<Native>::new(&Heap));
    /// doorbell.arm(&cpu); // to sleep on the count
    /// assert!(doorbell.is_armed(&cpu) && !doorbell.is_pipe_armed(&cpu));
    /// ```
    #[inline]
    pub fn is_pipe_armed(&self, cpu: &P) -> bool {
        // Relaxed: the lock orders it.
        cpu.load(&self.armed, Ordering::Relaxed) & PIPE != 0
    }

    // ---- the sender ----

    /// Returns whether the receiver must be woken. Called after publishing.
    ///
    /// ```
    /// # use towpath_channel::doorbell::Doorbell;
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, doorbell) = (Native::current(), Doorbell::<Native>::new(&Heap));
    /// doorbell.arm(&cpu);
    /// // A sender, when it has published:
    /// if doorbell.is_armed(&cpu) {
    ///     doorbell.wake(&cpu, |_pipe| ());
    /// }
    /// # doorbell.disarm(&cpu);
    /// ```
    #[inline(always)]
    pub fn is_armed(&self, cpu: &P) -> bool {
        fence(cpu);
        // Relaxed: ordered by the fence.
        cpu.load(&self.armed, Ordering::Relaxed) & (SLEEPS | PIPE) != 0
    }

    /// Wakes the receiver. `write` writes to the pipe of this number (the descriptor and
    /// 1).
    ///
    /// ```
    /// # use towpath_channel::doorbell::{Doorbell, count};
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, doorbell) = (Native::current(), Doorbell::<Native>::new(&Heap));
    /// let seen = doorbell.arm(&cpu);
    /// doorbell.wake(&cpu, |_pipe| unreachable!("no pipe is armed"));
    /// assert_ne!(count(&cpu, &doorbell.count), seen); // the receiver does not sleep
    /// ```
    #[cold]
    pub fn wake(&self, cpu: &P, write: impl FnOnce(u64))
    where
        P: Park,
    {
        // (D4) Acquire: pairs with the Release (D3) in `arm_pipe`.
        let armed = cpu.load(&self.armed, Ordering::Acquire);
        if armed & PIPE != 0 {
            // Relaxed: ordered by the load above.
            write(cpu.load(&self.pipe, Ordering::Relaxed));
            // Only then, so that others write too if we stop here; and only if the receiver has not
            // armed it anew. Relaxed: orders nothing.
            let taken_back = armed & !PIPE;
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = cpu.compare_exchange(&self.armed, armed, taken_back, success, failure);
            if armed & SLEEPS == 0 {
                return;
            }
        }
        wake(cpu, &self.count);
    }
}

/// The full fence of both sides, between their write and their look.
#[inline(always)]
fn fence<P: Processor>(cpu: &P) {
    // (W1) SeqCst: pairs with itself on the other side: either the sender sees that the doorbell is
    // armed, or the receiver sees the message.
    cpu.fence(Ordering::SeqCst);
}
