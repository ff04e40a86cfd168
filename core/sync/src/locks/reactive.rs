//! Reactive lock: test&test&set while few want it, an MCS queue while many do; it changes
//! over by the contention that it sees.
//!
//! **Source.** Lim & Agarwal 1994, figures 8 to 10. Their mode variable is part of our flag; nodes
//! are named by index, as in `mcs`. With [`ModeWord`] the mode is also told by a word on a line of
//! its own, as in theirs: a processor that reads it there takes the flag or joins the queue by one
//! miss, where it would otherwise read the flag and then change it. Without it (the default) an
//! acquisition whose line is in the cache has one access less.
//!
//! **How.** There are two locks, of which at most one can be had: the flag, and the queue. The flag
//! says "queue" while the queue is valid; the queue's tail says "invalid" while the flag is. Only a
//! holder changes over, on its release:
//!
//! * *to the queue*, if it needed at least `TO_QUEUE` attempts: it enters the invalid queue as its
//!   holder, lets the flag say "queue", and releases the queue;
//! * *to the flag*, if the queue was found empty more than `TO_FLAG` times in a row: it takes the
//!   flag, makes the queue invalid, sends away all that had queued behind it, and releases the
//!   flag.
//!
//! A waiter that has come to an invalid queue (it read the flag before the change) sends away all
//! behind it, makes the queue invalid again, and starts anew. Where the policy restricts queueing
//! (more processes than cores), no holder changes over to the queue, and a holder changes back.
//!
//! | `flag` (bits 0 and 1; the others count changes) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | 1, by its next holder |
//! | 1 | held, or about to be free again | 0 or 2, by the holder |
//! | 2 | see the queue | 1, by the queue's holder |
//!
//! | `tail` | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | invalid | a node, of the flag's holder that changes over, or of a waiter that is mistaken |
//! | 1 | valid, and free | a node, of its holder |
//! | i + 2 | node i is the last one | another node; 1, by the holder with this node; 0, by the first one in the queue |
//!
//! **Progress.** Blocking; FIFO only under contention. Changing over waits for the waiters that are
//! mistaken.
//!
//! **Fields.** `flag`: every processor, by compare-and-swap from 0; else its holder or the queue's.
//! `tail`: every processor, by exchange. `empty`: the queue's holder. `nodes[i].next`: reset by its
//! owner, set by the successor. `nodes[i].status`: set to 1 (waiting) by its owner, to 2 (go) or 3
//! (sent away) by a predecessor. `mode`: a holder that changes over; it may be out of date, which
//! costs its reader time and nothing else.
//!
//! **Crashes.** As for `test_and_set` under the flag and `mcs` under the queue, and a death while
//! changing over is that of a holder: the lock stays held; waiters get [`LockError::Abandoned`]
//! once their surroundings know.
//!
//! **Memory.** `N` + 2 lines; one more with [`ModeWord`].
//!
//! **Don't use it** where contention is known beforehand: the lock that suits it is smaller. Nor
//! with processors whose id is `N` or more ([`LockError::Capacity`]).

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::{Abandoned, Lock, LockError, PARKED, Waiting};

const FREE: u64 = 0;
const HELD: u64 = 1;
const QUEUE: u64 = 2;
const STATE: u64 = 3;

const INVALID: u64 = 0;
const EMPTY: u64 = 1;

const WAITING: u64 = 1;
const GO: u64 = 2;
const AWAY: u64 = 3;

/// Word that tells a reactive lock's mode beside its flag, or none.
pub trait ModeHint<P: Processor> {
    /// Name of a reactive lock that has it.
    const NAME: &'static str;
    /// Makes it, for a lock whose flag is valid.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::{ModeHint, ModeWord, NoModeWord};
    ///
    /// let cpu = Native::current();
    /// // the flag is the lock
    /// assert_eq!(ModeWord::<Native>::new(&Heap).queues(&cpu), Some(false));
    /// assert_eq!(NoModeWord.queues(&cpu), None);
    /// ```
    fn new(arena: &impl Arena<P>) -> Self;
    /// Returns whether the queue is the lock, as far as known; `None` if nothing tells.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::{ModeHint, ModeWord};
    /// let (cpu, mode) = (Native::current(), ModeWord::<Native>::new(&Heap));
    /// let tries_flag_first = mode.queues(&cpu) != Some(true);
    /// assert!(tries_flag_first);
    /// ```
    fn queues(&self, cpu: &P) -> Option<bool>;
    /// Notes which of the two is the lock from now on.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::{ModeHint, ModeWord};
    /// let (cpu, mode) = (Native::current(), ModeWord::<Native>::new(&Heap));
    /// mode.note(&cpu, true); // by the holder that changes it
    /// assert_eq!(mode.queues(&cpu), Some(true));
    /// ```
    fn note(&self, cpu: &P, queues: bool);
}

/// No word: the flag alone tells the mode.
#[derive(Debug)]
#[repr(C)]
pub struct NoModeWord;

impl<P: Processor> ModeHint<P> for NoModeWord {
    const NAME: &'static str = "reactive";
    fn new(_: &impl Arena<P>) -> Self {
        NoModeWord
    }
    #[inline(always)]
    fn queues(&self, _: &P) -> Option<bool> {
        None
    }
    #[inline(always)]
    fn note(&self, _: &P, _: bool) {}
}

/// Word on a line of its own, which all processors keep in their caches (Lim & Agarwal).
///
/// ```
/// use towpath_machine::{Heap, Native};
/// use towpath_sync::{Lock, Spinning, locks::{ModeWord, Reactive}};
///
/// let lock: Reactive<Native, 8, 4, 16, ModeWord<Native>> = Reactive::new(&Heap);
/// let cpu = Native::with_id(0);
/// let held = lock.lock(&cpu, &Spinning)?;
/// lock.unlock(&cpu, &Spinning, held);
/// # Ok::<(), towpath_sync::LockError>(())
/// ```
#[repr(C)]
pub struct ModeWord<P: Processor>(OwnLine<P::Word>);

impl<P: Processor> core::fmt::Debug for ModeWord<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ModeWord").finish_non_exhaustive()
    }
}

impl<P: Processor> ModeHint<P> for ModeWord<P> {
    const NAME: &'static str = "reactive/mode-word";
    fn new(arena: &impl Arena<P>) -> Self {
        ModeWord(OwnLine(arena.word(Place::NewLine, 0)))
    }
    fn queues(&self, cpu: &P) -> Option<bool> {
        // Relaxed: only a hint; the flag or the queue's tail decides.
        Some(cpu.load(&self.0, Ordering::Relaxed) != 0)
    }
    fn note(&self, cpu: &P, queues: bool) {
        // Relaxed: as in `queues`.
        cpu.store(&self.0, u64::from(queues), Ordering::Relaxed);
    }
}

/// Reactive lock for processors with ids below `N`.
#[repr(C)]
pub struct Reactive<
    P: Processor,
    const N: usize,
    const TO_QUEUE: u32 = 4,
    const TO_FLAG: u64 = 16,
    H = NoModeWord,
> {
    flag: OwnLine<P::Word>,
    queue: ReactiveQueue<P>,
    nodes: [ReactiveNode<P>; N],
    mode: H,
}

#[repr(C, align(64))]
struct ReactiveQueue<P: Processor> {
    tail: P::Word,
    /// Number of times in a row that the queue was found empty.
    empty: P::Word,
}

#[repr(C, align(64))]
struct ReactiveNode<P: Processor> {
    next: P::Word,
    status: P::Word,
}

/// Holder's node, the lock of the two that it holds, and whether to change over on
/// release.
#[derive(Debug)]
pub struct ReactiveHeld {
    me: u64,
    queue: bool,
    change: bool,
    /// Value of the flag, as the holder of the flag made it.
    flag: u64,
    /// Number of times in a row that the queue was found empty, this one included.
    empty: u64,
}

impl ReactiveHeld {
    /// Returns the state of a processor that has made the flag "held" from this value.
    fn of_flag(me: u64, seen: u64, change: bool) -> Self {
        ReactiveHeld { me, queue: false, change, flag: seen | HELD, empty: 0 }
    }

    /// Returns the state of a processor that has the queue.
    fn of_queue(me: u64, empty: u64, change: bool) -> Self {
        ReactiveHeld { me, queue: true, change, flag: 0, empty }
    }
}

impl<P: Processor, const N: usize, const TO_QUEUE: u32, const TO_FLAG: u64, H> core::fmt::Debug
    for Reactive<P, N, TO_QUEUE, TO_FLAG, H>
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reactive").finish_non_exhaustive()
    }
}

impl<P: Processor, const N: usize, const TO_QUEUE: u32, const TO_FLAG: u64, H: ModeHint<P>>
    Reactive<P, N, TO_QUEUE, TO_FLAG, H>
{
    /// Returns whether the queue is the lock at present, not the flag.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::{Lock, locks::Reactive};
    ///
    /// let lock: Reactive<Native, 8> = Reactive::new(&Heap);
    /// assert!(!lock.queues(&Native::with_id(0)), "no waiter is there");
    /// ```
    pub fn queues(&self, cpu: &P) -> bool {
        // Relaxed: out of date as soon as it is said.
        cpu.load(&self.flag, Ordering::Relaxed) & STATE == QUEUE
    }

    /// The node with this code, if it is one: a code read from the segment may be
    /// nonsense.
    fn node(&self, code: u64) -> Option<&ReactiveNode<P>> {
        self.nodes.get(code.wrapping_sub(2) as usize)
    }

    /// Changes the flag, as its holder or the queue's.
    ///
    /// `flag`: its value now, but for the mark of a sleeper.
    fn turn<W: Waiting<P>>(&self, cpu: &P, wait: &W, flag: u64, state: u64) {
        let turned = ((flag & !PARKED) | STATE).wrapping_add(1) | state;
        // (1) Release (in `release`), pairs with the Acquire (2).
        wait.release(cpu, &self.flag, turned & !PARKED);
    }

    /// Takes the flag from `seen`, which says that it is free.
    #[inline(always)]
    fn take(&self, cpu: &P, seen: u64) -> bool {
        // (2) Acquire, pairs with the Release (1). Relaxed on failure: we look again.
        cpu.compare_exchange(&self.flag, seen, seen | HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Puts our node at the end of the queue; returns the end before. Its predecessor, if
    /// it has one, learns of it.
    fn append<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        me: u64,
        node: &ReactiveNode<P>,
    ) -> Result<u64, LockError> {
        // Relaxed: published by the exchange (3) and by (4).
        cpu.store(&node.next, 0, Ordering::Relaxed);
        cpu.store(&node.status, WAITING, Ordering::Relaxed);
        // (3) Acquire: pairs with the Release (6) of a holder that left the queue empty. Release:
        // publishes our node.
        let before = cpu.swap(&self.queue.tail, me, Ordering::AcqRel);
        if before > EMPTY {
            let before = self.node(before).ok_or(LockError::Poisoned)?;
            // (4) Release (in `release`): our node is ready; pairs with the Acquire (5).
            wait.release(cpu, &before.next, me);
        }
        Ok(before)
    }

    /// Waits in the queue until it is our turn (`true`) or we are sent away.
    fn turn_comes<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        node: &ReactiveNode<P>,
    ) -> Result<bool, LockError> {
        // (7) Acquire (in `wait_until`), pairs with the Release (8).
        match wait.wait_until(cpu, &node.status, |s| s != WAITING) {
            Ok(status) => Ok(status == GO),
            Err(_) => Err(LockError::Abandoned),
        }
    }

    /// Queues. `None`: the queue is invalid.
    fn queue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) -> Result<Option<ReactiveHeld>, LockError> {
        let node = self.node(me).ok_or(LockError::Capacity)?;
        let empty = match self.append(cpu, wait, me, node)? {
            INVALID => {
                self.invalidate(cpu, wait, me).map_err(|_| LockError::Abandoned)?;
                return Ok(None);
            }
            // Relaxed: only the holder counts; (3) brought the line.
            EMPTY => cpu.load(&self.queue.empty, Ordering::Relaxed).wrapping_add(1),
            _ if self.turn_comes(cpu, wait, node)? => 0,
            _ => return Ok(None),
        };
        let change = empty > TO_FLAG || wait.attempts_before_queueing(cpu) > 0;
        Ok(Some(ReactiveHeld::of_queue(me, empty, change)))
    }

    /// Makes the queue, of which ours is the first node, invalid, and sends away all
    /// waiters behind us.
    fn invalidate<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) -> Result<(), Abandoned> {
        // (9) Release: a waiter that finds the queue invalid sees the flag as we have seen it, and
        // does not come again and again for an old one; pairs with the Acquire (3). Not Acquire:
        // the waiters behind us are found through (5); the last one is only compared.
        let last = cpu.swap(&self.queue.tail, INVALID, Ordering::Release);
        let mut current = me;
        // Not for ever, whatever the nodes hold.
        for _ in 0..N {
            let Some(node) = self.node(current) else { break };
            // Before it is sent away: then it is its owner's again. (5) Acquire (in `wait_until`),
            // pairs with the Release (4).
            let next =
                if current == last { None } else { Some(wait.wait_until(cpu, &node.next, |n| n != 0)?) };
            if current != me {
                // (8) Release (in `release`), pairs with the Acquire (7): we are done with the
                // node.
                wait.release(cpu, &node.status, AWAY);
            }
            let Some(next) = next else { break };
            current = next;
        }
        Ok(())
    }

    /// Enters the invalid queue as the holder of the flag, and so of the lock. Whether
    /// that worked.
    fn enter<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) -> bool {
        let Some(node) = self.node(me) else { return false };
        loop {
            match self.append(cpu, wait, me, node) {
                Ok(INVALID | EMPTY) => return true,
                // Another waiter took the queue for valid by mistake; it will send us away.
                Ok(_) => match self.turn_comes(cpu, wait, node) {
                    Ok(true) => return true,
                    Ok(false) => {}
                    Err(_) => return false,
                },
                Err(_) => return false,
            }
        }
    }

    /// Releases the queue.
    fn pass_on<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64, empty: u64) {
        let Some(node) = self.node(me) else { return };
        // (5b) Acquire: as (5); pairs with the Release (4).
        let mut next = cpu.load(&node.next, Ordering::Acquire) & !PARKED;
        if next == 0 {
            // Relaxed: only the holder counts; published by (6) to the one that finds it empty.
            cpu.store(&self.queue.empty, empty, Ordering::Relaxed);
            // (6) Release: pairs with the Acquire (3). Relaxed on failure: a waiter has come, and
            // (5) will show which.
            if cpu.compare_exchange(&self.queue.tail, me, EMPTY, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                return;
            }
            // (5c) Acquire: as (5); pairs with the Release (4).
            match wait.wait_until(cpu, &node.next, |n| n != 0) {
                Ok(code) => next = code,
                // It died before it said its name.
                Err(_) => return,
            }
        }
        if let Some(successor) = self.node(next) {
            // (8) Release (in `release`), pairs with the Acquire (7).
            wait.release(cpu, &successor.status, GO);
        }
    }

    #[cold]
    fn lock_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) -> Result<ReactiveHeld, LockError> {
        let mut attempts = 0u32;
        loop {
            // Relaxed: only a test; (2) confirms it, or the queue is asked.
            let seen = cpu.load(&self.flag, Ordering::Relaxed) & !PARKED;
            match seen & STATE {
                FREE if self.take(cpu, seen) => {
                    let change = attempts >= TO_QUEUE && wait.attempts_before_queueing(cpu) == 0;
                    return Ok(ReactiveHeld::of_flag(me, seen, change));
                }
                // Lost the race after a release: the others that saw it will be trying too.
                FREE => wait.back_off(cpu, attempts.min(7)).map_err(|_| LockError::Abandoned)?,
                QUEUE => {
                    if let Some(held) = self.queue(cpu, wait, me)? {
                        return Ok(held);
                    }
                    continue; // That was no attempt at the flag.
                }
                _ => {
                    let free = |v| v & STATE != HELD;
                    wait.wait_until(cpu, &self.flag, free).map_err(|_| LockError::Abandoned)?;
                }
            }
            attempts += 1;
        }
    }
}

impl<P: Processor, const N: usize, const TO_QUEUE: u32, const TO_FLAG: u64, H: ModeHint<P>> Lock<P>
    for Reactive<P, N, TO_QUEUE, TO_FLAG, H>
{
    const NAME: &'static str = H::NAME;
    const FIFO: bool = false;
    type Held = ReactiveHeld;

    fn new(arena: &impl Arena<P>) -> Self {
        Reactive {
            mode: H::new(arena),
            flag: OwnLine(arena.word(Place::NewLine, 0)),
            queue: ReactiveQueue {
                tail: arena.word(Place::NewLine, INVALID),
                empty: arena.word(Place::SameLine, 0),
            },
            nodes: core::array::from_fn(|_| ReactiveNode {
                next: arena.word(Place::NewLine, 0),
                status: arena.word(Place::SameLine, 0),
            }),
        }
    }

    fn capacity(&self) -> usize {
        N
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<ReactiveHeld, LockError> {
        if cpu.id() >= N {
            return Err(LockError::Capacity);
        }
        let me = cpu.id() as u64 + 2;
        let seen = match self.mode.queues(cpu) {
            // Relaxed: only a test; (2) confirms it.
            None => cpu.load(&self.flag, Ordering::Relaxed),
            Some(true) => match self.queue(cpu, wait, me)? {
                Some(held) => return Ok(held),
                None => return self.lock_slowly(cpu, wait, me),
            },
            // It gets the line for writing, whatever the flag says.
            Some(false) => {
                // Relaxed: each change is counted in the flag, so it succeeds for the first holder
                // only, before which there was no release. On failure only a test: (2) confirms it.
                match cpu.compare_exchange(&self.flag, FREE, HELD, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return Ok(ReactiveHeld::of_flag(me, FREE, false)),
                    Err(seen) => seen,
                }
            }
        };
        if TO_QUEUE > 0 && seen & (STATE | PARKED) == FREE && self.take(cpu, seen) {
            return Ok(ReactiveHeld::of_flag(me, seen, false));
        }
        self.lock_slowly(cpu, wait, me)
    }

    fn try_lock(&self, cpu: &P) -> Option<ReactiveHeld> {
        let me = cpu.id() as u64 + 2;
        let node = self.node(me)?;
        // Relaxed: as in `lock`.
        let seen = cpu.load(&self.flag, Ordering::Relaxed);
        match seen & STATE {
            FREE if self.take(cpu, seen) => Some(ReactiveHeld::of_flag(me, seen, false)),
            QUEUE => {
                // Relaxed: published by the exchange.
                cpu.store(&node.next, 0, Ordering::Relaxed);
                // (3b) AcqRel: as (3); pairs with the Release (6).
                cpu.compare_exchange(&self.queue.tail, EMPTY, me, Ordering::AcqRel, Ordering::Relaxed)
                    .ok()?;
                // Relaxed: only the holder counts.
                let empty = cpu.load(&self.queue.empty, Ordering::Relaxed);
                Some(ReactiveHeld::of_queue(me, empty, false))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: ReactiveHeld) {
        let me = held.me;
        match (held.queue, held.change) {
            (false, false) => self.turn(cpu, wait, held.flag, FREE),
            (false, true) => {
                if self.enter(cpu, wait, me) {
                    self.mode.note(cpu, true);
                    self.turn(cpu, wait, held.flag, QUEUE);
                    self.pass_on(cpu, wait, me, 0);
                } else {
                    self.turn(cpu, wait, held.flag, FREE);
                }
            }
            (true, false) => self.pass_on(cpu, wait, me, held.empty),
            (true, true) => {
                // Relaxed: while it says "queue", only the queue's holder changes it.
                let flag = cpu.load(&self.flag, Ordering::Relaxed);
                self.turn(cpu, wait, flag, HELD);
                // Abandoned: a waiter behind us died before it said its name. The flag is valid all
                // the same.
                let _ = self.invalidate(cpu, wait, me);
                self.mode.note(cpu, false);
                // Relaxed: while it says "held", only its holder changes it.
                let flag = cpu.load(&self.flag, Ordering::Relaxed);
                self.turn(cpu, wait, flag, FREE);
            }
        }
    }
}
