//! Array queue over fetch-ops at memory: the ends are tickets, the slots are cleared by
//! an exchange with zero, and nothing that is shared is ever cached.
//!
//! **Source.** Nikolopoulos & Papatheodorou 1999, Figure 1, corrected. (The text as printed is
//! [`crate::planted::FetchOpArrayAsPrinted`].) What differs:
//!
//! * `enqueue` draws its ticket from `tail`; the figure increments `head` in both operations, so
//!   that `tail` never moves and nothing is found where it was put.
//! * The array is circular: ticket `t` uses slot `t mod slots`. Tickets have 64 bits and do not
//!   come round.
//! * What a slot holds is marked with its ticket (plus one, so that 0 is "nothing"), and the value
//!   is in a word beside it. In the figure the item is its own mark: then 0 could not be enqueued,
//!   and a dequeuer that read `head` long ago could clear an item that was put there a lap later,
//!   out of order, and move `head` past another one.
//! * Hence the retry: a dequeuer that clears a slot and finds nothing, because another one was
//!   faster, reads `head` again (in the figure the loop is there, but it is left in the first
//!   round). A dequeuer that clears a *later* item than it came for puts it back; no other can have
//!   gone past it meanwhile, since `head` cannot.
//! * A slot is read before it is cleared: clearing what isn't ours is rare then. Only if it does
//!   not hold what we come for is the queue tested for being empty.
//! * The empty test reads `head`, **then** `tail`: if they are equal, the queue was empty when
//!   `tail` was read. In the other order an old tail may equal a new head while there are values
//!   (the figure's `==` leaves the order to the compiler).
//! * The ends and the slots are homed at different nodes; the paper does not say where they are.
//! * There is a test for room.
//!
//! **Progress.** Blocking, though without locks. A dequeue at whose ticket an enqueue is under way
//! waits for that one, even if later ones have finished; all dequeues wait for the one that has
//! cleared the first slot but not moved `head` yet. Enqueues never wait.
//!
//! **Fields.** All but `seen` at memory. `tail`: by increment, in `enqueue`. `head`: by increment,
//! by the dequeuer that has cleared its slot's mark. `slots[i].mark`: stored by the ticket's owner
//! (or put back by the dequeuer that has cleared it), cleared by any dequeuer. `slots[i].value`: by
//! the ticket's owner before the mark, read by the dequeuer that has the mark. `seen[me]`: only
//! participant `me`.
//!
//! **Crashes.** Dies before the draw (1): nothing happened. Dies between (1) and (3): the ticket's
//! value never comes, and dequeuers wait for it for ever. Dies between (4) and (5), or before it
//! puts a later item back: dequeuers wait for it for ever. Waiting ends with
//! [`QueueError::Abandoned`] if the surroundings know of the death; the queue must then be made
//! anew.
//!
//! **Capacity.** `capacity` values, and one more for each participant that tested for room at the
//! same time: so many more slots there are, hence no ticket's slot is still in use.
//! [`QueueError::Full`] is exact: `capacity` values (or more) were in when `tail` was read.
//!
//! **Memory.** Two words at memory per slot, two more, and a line per participant.
//!
//! **Don't use it** where participants may die or are preempted often, nor where operations at
//! memory are emulated in caches.

use towpath_machine::{Arena, FetchOp, Ordering, OwnLine, Place, Processor};

use super::{ConcurrentQueue, QueueError};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Array queue over fetch-ops at memory.
#[repr(C)]
pub struct FetchOpArray<P: Processor, S: Storage = Boxed> {
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    seen: S::Each<SeenHead<P>>,
    slots: S::Nodes<ArraySlot<P>>,
}

/// The head as a participant saw it last: saves a read at memory.
#[repr(C, align(64))]
struct SeenHead<P: Processor>(P::Cell);

#[repr(C)]
struct ArraySlot<P: Processor> {
    /// The ticket plus one, or 0.
    mark: P::Word,
    value: P::Word,
}

impl<P: FetchOp, S: Storage> FetchOpArray<P, S> {
    #[inline(always)]
    fn slot(&self, ticket: u64) -> Result<&ArraySlot<P>, QueueError> {
        let slots = self.slots.as_ref();
        let index = ticket.checked_rem(slots.len() as u64).ok_or(QueueError::Full)?;
        slots.get(index as usize).ok_or(QueueError::Corrupt)
    }

    /// Number of values that there is surely room for.
    fn capacity(&self) -> u64 {
        self.slots.as_ref().len().saturating_sub(self.seen.as_ref().len()) as u64
    }
}

impl<P: FetchOp, S: Storage> ConcurrentQueue<P> for FetchOpArray<P, S> {
    const NAME: &'static str = "fetch-op-array";
    const BLOCKING: bool = true;

    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        FetchOpArray {
            head: OwnLine(arena.word(Place::AtMemory(0), 0)),
            tail: OwnLine(arena.word(Place::AtMemory(1), 0)),
            seen: S::each(participants, |_| SeenHead(arena.cell(Place::NewLine, 0))),
            // Dealt out to the nodes, so that what is not the ends does not queue up at theirs.
            slots: S::nodes(capacity + participants, |i| ArraySlot {
                mark: arena.word(Place::AtMemory(i as u32), 0),
                value: arena.word(Place::SameLine, 0),
            }),
        }
    }

    fn enqueue<W: Waiting<P>>(&self, cpu: &P, _wait: &W, me: usize, value: u64) -> Result<(), QueueError> {
        let seen = &self.seen.as_ref().get(me).ok_or(QueueError::UnknownParticipant)?.0;
        let mut head = cpu.read(seen);
        // (6) Acquire: not before the head was read; pairs with the draw (1).
        while cpu.load(&self.tail, Ordering::Acquire).wrapping_sub(head) >= self.capacity() {
            // (2) Acquire: the values before the head have been read; pairs with the increment (5),
            // and through the draws (1) for enqueuers that draw later.
            let now = cpu.load(&self.head, Ordering::Acquire);
            if now == head {
                return Err(QueueError::Full); // It did not move while the tail was read.
            }
            head = now;
            cpu.write(seen, now);
        }
        // (1) Acquires and releases, as all operations at memory.
        let ticket = cpu.fetch_increment(&self.tail);
        let slot = self.slot(ticket)?;
        // Relaxed: published by (3).
        cpu.store(&slot.value, value, Ordering::Relaxed);
        // (3) Release: pairs with the clearing (4) in `dequeue`.
        cpu.store(&slot.mark, ticket.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    fn dequeue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize) -> Result<Option<u64>, QueueError> {
        if me >= self.seen.as_ref().len() {
            return Err(QueueError::UnknownParticipant);
        }
        let mut round = 0u32;
        loop {
            // (7) Acquire: before the mark and the tail; pairs with the increment (5).
            let head = cpu.load(&self.head, Ordering::Acquire);
            let slot = self.slot(head)?;
            let mine = head.wrapping_add(1);
            // Relaxed: only whether it is worth the while; (4) acquires.
            if cpu.load(&slot.mark, Ordering::Relaxed) == mine {
                // (4) The mark is ours, or cleared already, or a later one. It acquires: pairs with
                // the Release (3), (3b).
                match cpu.fetch_clear(&slot.mark) {
                    mark if mark == mine => {
                        // Relaxed: written before (3).
                        let value = cpu.load(&slot.value, Ordering::Relaxed);
                        // (5) Acquires and releases: the slot may be used again; pairs with the
                        // Acquire (2).
                        cpu.fetch_increment(&self.head);
                        return Ok(Some(value));
                    }
                    0 => {}
                    // (3b) Release: as (3), which it stands for; pairs with the clearing (4).
                    later => cpu.store(&slot.mark, later, Ordering::Release),
                }
            // Relaxed: the draws before those of the head are known by (7), and nothing is read.
            } else if cpu.load(&self.tail, Ordering::Relaxed) == head {
                return Ok(None);
            }
            wait.back_off(cpu, round)?;
            round = round.wrapping_add(1);
        }
    }
}
