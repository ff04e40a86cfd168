//! The claim algorithm that was chosen when the world was made.

use towpath_machine::{Arena, KernelMutex, Prefetch, Processor};
use towpath_sync::locks::{Anderson, Mcs, Posix, TestAndSet, TestAndTestAndSet, Ticket};
use towpath_sync::{Lock, WaitForSpace};

use super::{Claim, LockFree, Locked, Towpath};
use crate::packet::Header;
use crate::queue::{Census, ClaimError, Queue, Receiver, Sender};

/// Maximum number of endpoints that the lock with a node for each contender can serve
/// (`mcs`), and number of places of `anderson`, which contenders may share.
pub const MAX_CONTENDERS: usize = 64;

/// The claim algorithms by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    /// Figure 2 over a test&set lock.
    TestAndSet = 0,
    /// Figure 2 over a test&test&set lock.
    TestAndTestAndSet = 1,
    /// Figure 2 over a ticket lock, both counters on one line.
    Ticket = 2,
    /// Figure 2 over Anderson's array lock.
    Anderson = 3,
    /// Figure 2 over an MCS queue lock.
    Mcs = 4,
    /// Figure 2 over a process-shared, robust pthread mutex.
    Posix = 5,
    /// Figure 3.
    LockFree = 6,
    /// Ours.
    #[default]
    Towpath = 7,
}

impl Algorithm {
    /// All of them, in the order of the paper's tables, ours last.
    pub const ALL: [Algorithm; 8] = [
        Algorithm::TestAndSet,
        Algorithm::TestAndTestAndSet,
        Algorithm::Ticket,
        Algorithm::Anderson,
        Algorithm::Mcs,
        Algorithm::Posix,
        Algorithm::LockFree,
        Algorithm::Towpath,
    ];

    /// The name by which users choose it.
    ///
    /// ```
    /// use towpath_channel::claim::Algorithm;
    ///
    /// assert_eq!(Algorithm::LockFree.name(), "lock-free");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::TestAndSet => "test-and-set",
            Algorithm::TestAndTestAndSet => "test-and-test-and-set",
            Algorithm::Ticket => "ticket",
            Algorithm::Anderson => "anderson",
            Algorithm::Mcs => "mcs",
            Algorithm::Posix => "posix",
            Algorithm::LockFree => "lock-free",
            Algorithm::Towpath => "towpath",
        }
    }

    /// The algorithm of that name.
    ///
    /// ```
    /// use towpath_channel::claim::Algorithm;
    ///
    /// assert_eq!(Algorithm::from_name("towpath"), Some(Algorithm::default()));
    /// assert_eq!(Algorithm::from_name("wait-free"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| a.name() == name)
    }

    /// The algorithm with that number.
    ///
    /// ```
    /// use towpath_channel::claim::Algorithm;
    ///
    /// assert_eq!(Algorithm::from_bits(Algorithm::Mcs as u64), Some(Algorithm::Mcs));
    /// ```
    pub fn from_bits(bits: u64) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| *a as u64 == bits)
    }

    /// Returns whether a claim takes a lock.
    ///
    /// ```
    /// use towpath_channel::claim::Algorithm;
    ///
    /// assert!(Algorithm::Ticket.is_locked() && !Algorithm::Towpath.is_locked());
    /// ```
    #[inline]
    pub const fn is_locked(self) -> bool {
        !matches!(self, Algorithm::LockFree | Algorithm::Towpath)
    }

    /// Returns whether a packet's lap, rather than its state, says if it is in use.
    ///
    /// ```
    /// use towpath_channel::claim::Algorithm;
    ///
    /// assert!(Algorithm::Towpath.has_laps() && !Algorithm::LockFree.has_laps());
    /// ```
    #[inline]
    pub const fn has_laps(self) -> bool {
        matches!(self, Algorithm::Towpath)
    }

    /// Returns whether claims are served in the order of arrival.
    ///
    /// ```
    /// use towpath_channel::claim::Algorithm;
    ///
    /// assert!(Algorithm::Ticket.is_fifo() && !Algorithm::TestAndSet.is_fifo());
    /// ```
    #[inline]
    pub const fn is_fifo(self) -> bool {
        matches!(self, Algorithm::Ticket | Algorithm::Anderson | Algorithm::Mcs)
    }
}

/// The locks of one queue, side by side: whichever the world's algorithm needs is there.
#[repr(C, align(64))]
pub struct Locks<P: Processor + KernelMutex> {
    test_and_set: TestAndSet<P>,
    test_and_test_and_set: TestAndTestAndSet<P>,
    ticket: Ticket<P>,
    posix: Posix<P>,
    anderson: Anderson<P, MAX_CONTENDERS>,
    mcs: Mcs<P, MAX_CONTENDERS>,
}

impl<P: Processor + KernelMutex> Locks<P> {
    /// Makes locks that are all free.
    ///
    /// ```
    /// use towpath_channel::claim::{Algorithm, Claim, Locks};
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::Spinning;
    ///
    /// let locks = Locks::<Native>::new(&Heap);
    /// let claim = locks.choose(Algorithm::Mcs);
    /// assert!(claim.is_unlocked(&Native::current(), &Spinning));
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        Locks {
            test_and_set: Lock::new(arena),
            test_and_test_and_set: Lock::new(arena),
            ticket: Lock::new(arena),
            posix: Lock::new(arena),
            anderson: Lock::new(arena),
            mcs: Lock::new(arena),
        }
    }

    /// Prepares locks that came to be as zeroed memory in a segment, for use between
    /// processes.
    ///
    /// # Safety
    ///
    /// * No thread of any process uses the locks yet.
    /// * From now on a process that uses them keeps them at their address, and mapped, while one of
    ///   its threads holds one of them or waits for it.
    ///
    /// ```
    /// use towpath_channel::claim::{Algorithm, Claim, Locks};
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::Spinning;
    ///
    /// let locks = Box::leak(Box::new(Locks::<Native>::new(&Heap)));
    /// // SAFETY: no thread uses them yet, and they stay where they are.
    /// unsafe { locks.prepare() };
    /// assert!(locks.choose(Algorithm::Posix).is_unlocked(&Native::current(), &Spinning));
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn prepare(&self) {
        // SAFETY: no thread uses it yet, and from now on it stays where it is while it is held or
        // waited for (the caller's promises).
        unsafe { Lock::<P>::prepare(&self.posix) };
    }

    /// The chosen algorithm over these locks.
    ///
    /// ```
    /// use towpath_channel::claim::{Algorithm, Any, Locks};
    /// use towpath_machine::{Heap, Native};
    ///
    /// let locks = Locks::<Native>::new(&Heap);
    /// assert!(matches!(locks.choose(Algorithm::default()), Any::Towpath(_)));
    /// ```
    pub fn choose(&self, algorithm: Algorithm) -> Any<'_, P> {
        match algorithm {
            Algorithm::TestAndSet => Any::TestAndSet(Locked(&self.test_and_set)),
            Algorithm::TestAndTestAndSet => Any::TestAndTestAndSet(Locked(&self.test_and_test_and_set)),
            Algorithm::Ticket => Any::Ticket(Locked(&self.ticket)),
            Algorithm::Anderson => Any::Anderson(Locked(&self.anderson)),
            Algorithm::Mcs => Any::Mcs(Locked(&self.mcs)),
            Algorithm::Posix => Any::Posix(Locked(&self.posix)),
            Algorithm::LockFree => Any::LockFree(LockFree),
            Algorithm::Towpath => Any::Towpath(Towpath),
        }
    }
}

/// Any of the algorithms: one well-predicted branch before the real one.
#[expect(missing_docs, reason = "named as in `Algorithm`")]
pub enum Any<'a, P: Processor + KernelMutex> {
    TestAndSet(Locked<&'a TestAndSet<P>>),
    TestAndTestAndSet(Locked<&'a TestAndTestAndSet<P>>),
    Ticket(Locked<&'a Ticket<P>>),
    Anderson(Locked<&'a Anderson<P, MAX_CONTENDERS>>),
    Mcs(Locked<&'a Mcs<P, MAX_CONTENDERS>>),
    Posix(Locked<&'a Posix<P>>),
    LockFree(LockFree),
    Towpath(Towpath),
}

macro_rules! each {
    ($self:ident, $c:ident => $call:expr) => {
        match $self {
            Any::Towpath($c) => $call,
            Any::LockFree($c) => $call,
            Any::TestAndSet($c) => $call,
            Any::TestAndTestAndSet($c) => $call,
            Any::Ticket($c) => $call,
            Any::Anderson($c) => $call,
            Any::Mcs($c) => $call,
            Any::Posix($c) => $call,
        }
    };
}

impl<P: Processor + KernelMutex + Prefetch> Claim<P> for Any<'_, P> {
    #[inline(always)]
    fn claim<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<u64, ClaimError> {
        each!(self, c => c.claim(q, sender, cpu, wait, intent))
    }
    #[inline(always)]
    fn anticipate(&self, q: &Queue<'_, P>, cpu: &P, ticket: u64) {
        if let Any::Towpath(c) = self {
            c.anticipate(q, cpu, ticket);
        }
    }
    fn give_up(&self, sender: &mut Sender, cpu: &P, intent: &P::Word) {
        each!(self, c => c.give_up(sender, cpu, intent));
    }
    fn claim_block<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<usize, ClaimError> {
        each!(self, c => c.claim_block(q, sender, cpu, wait, intent))
    }
    #[inline(always)]
    fn publish(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        parks: bool,
        intent: &P::Word,
        ticket: u64,
        header: Header,
    ) -> bool {
        each!(self, c => c.publish(q, sender, cpu, parks, intent, ticket, header))
    }
    fn await_space<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &Sender,
        cpu: &P,
        wait: &W,
        round: u32,
    ) {
        each!(self, c => c.await_space(q, sender, cpu, wait, round))
    }
    #[inline(always)]
    fn is_ready(&self, q: &Queue<'_, P>, header: Header, ticket: u64) -> bool {
        match self {
            Any::Towpath(c) => c.is_ready(q, header, ticket),
            Any::LockFree(c) => c.is_ready(q, header, ticket),
            // The locks share the hand-shake.
            _ => header.is_ready(),
        }
    }
    fn is_ready_late(&self, q: &Queue<'_, P>, header: Header, ticket: u64, head: u64) -> bool {
        each!(self, c => c.is_ready_late(q, header, ticket, head))
    }
    fn undelivered(&self, q: &Queue<'_, P>, cpu: &P, header: Header, ticket: u64) -> Option<u64> {
        each!(self, c => c.undelivered(q, cpu, header, ticket))
    }
    #[inline(always)]
    fn release(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64) {
        each!(self, c => c.release(q, receiver, cpu, ticket))
    }
    fn release_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64) {
        each!(self, c => c.release_late(q, receiver, cpu, ticket))
    }
    #[inline(always)]
    fn flush<W: WaitForSpace<P>>(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, wait: &W) {
        each!(self, c => c.flush(q, receiver, cpu, wait))
    }
    fn fall_asleep(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> bool {
        each!(self, c => c.fall_asleep(q, receiver, cpu))
    }
    fn wake_up(&self, q: &Queue<'_, P>, cpu: &P) {
        each!(self, c => c.wake_up(q, cpu))
    }
    fn resolve_head(
        &self,
        q: &Queue<'_, P>,
        receiver: &mut Receiver,
        cpu: &P,
        census: &dyn Census,
        overdue: bool,
    ) -> bool {
        each!(self, c => c.resolve_head(q, receiver, cpu, census, overdue))
    }
    fn resolve_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census) -> bool {
        each!(self, c => c.resolve_late(q, receiver, cpu, census))
    }
    fn sweep_packets(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census) {
        each!(self, c => c.sweep_packets(q, receiver, cpu, census))
    }
    fn is_unlocked<W: WaitForSpace<P>>(&self, cpu: &P, wait: &W) -> bool {
        each!(self, c => c.is_unlocked(cpu, wait))
    }
    fn overdraws(&self) -> bool {
        matches!(self, Any::LockFree(_))
    }
    fn heal(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P) -> bool {
        each!(self, c => c.heal(q, receiver, cpu))
    }
    fn packets_in_use(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> u64 {
        each!(self, c => c.packets_in_use(q, receiver, cpu))
    }
}
