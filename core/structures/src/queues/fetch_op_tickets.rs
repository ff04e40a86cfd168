//! Ticket queue over fetch-ops at memory: both ends are drawn from, each ticket names a
//! slot, and nothing but the two draws is serialised.
//!
//! **Source.** Nikolopoulos & Papatheodorou 1999 §3.2: "an array-based variant of the ticket
//! algorithm, where the queue ends are kept uncached at-memory and used as tickets to access the
//! slots of the queue". Figure 1 beside that sentence does something else: its `dequeue` reads
//! `head`, clears that slot and only then increments, so that all dequeuers meet in one slot; that
//! text, corrected, is [`FetchOpArray`](super::FetchOpArray). The differences from the figure:
//!
//! * `enqueue` draws from `tail` (the figure: from `head`), and `dequeue` draws its own ticket from
//!   `head` before it looks at a slot.
//! * A slot says by a count of visits whether its value has come, instead of by the value: 0 can be
//!   enqueued, and the array is circular.
//! * A dequeuer may draw a ticket that no enqueuer has drawn, since others draw between its empty
//!   test and its draw. It then *voids* the slot, and looks again whether the queue is empty. The
//!   enqueuer that draws the same ticket finds its slot void and draws again. Without this a
//!   dequeuer would wait for a value that perhaps never comes.
//! * The empty test reads `head`, **then** `tail`; there is a test for room; the ends and the slots
//!   are homed at different nodes.
//!
//! **A slot's visits**, for the ticket of lap `n` (ticket = n · slots + slot), each step by the
//! participant that is named:
//!
//! | visits | means | next |
//! | --- | --- | --- |
//! | < 3n | the ticket a lap earlier is still being worked on | wait |
//! | 3n | neither has been here | enqueuer +1: its value is in; dequeuer +1: void |
//! | 3n + 1 | one has been here; the dequeuer finds the value, or the enqueuer finds the slot void | the other one |
//! | 3n + 2 | both have come at one time, the second one goes on as at 3n + 1 | the second one |
//! | 3n + 3 | done: free for the next lap | – |
//!
//! **What an operation means.** An enqueue happens when it draws the ticket under which it
//! succeeds; a dequeue of that ticket happens at its own draw or at the enqueue's, whichever is
//! later; both orders are those of the tickets, hence FIFO. A dequeue that finds nothing happens
//! when it reads `tail`: all tickets below have been drawn from both ends.
//!
//! **Progress.** Blocking, though without locks: a dequeuer waits for the enqueuer of the same
//! ticket if that has drawn it, and for no other; an enqueuer never waits, unless two of the lap
//! before are so late that a whole lap has passed meanwhile. A dequeue never waits for an enqueue
//! that has not begun.
//!
//! **Fields.** All but `seen` at memory. `tail`, `head`: by increment, when drawing.
//! `slots[i].visits`: by increment, and by a store of the second visitor (no other participant
//! writes it then). `slots[i].value`: by the ticket's enqueuer before its visit, read by the
//! ticket's dequeuer before the slot is free. `seen[me]`: only participant `me`.
//!
//! **Crashes.** Dies before a draw: nothing happened. An enqueuer dies between (1) and (3): the
//! dequeuer of its ticket waits for ever. A dequeuer dies between (5) and (7): the value of its
//! ticket is lost, and a lap later its slot is waited for. Others' values are not held up before
//! that. Waiting ends with [`QueueError::Abandoned`] if the surroundings know of the death; the
//! queue must then be made anew.
//!
//! **Capacity.** `capacity` values, and one more for each participant that tested for room at the
//! same time: so many more slots there are. [`QueueError::Full`] is exact: `capacity` values (or
//! more) were in when `tail` was read.
//!
//! **Memory.** Two words at memory per slot, two more, and a line per participant.
//!
//! **Don't use it** where participants may die or are preempted often, nor where operations at
//! memory are emulated in caches.

use towpath_machine::{Arena, FetchOp, Ordering, OwnLine, Place, Processor};

use super::{ConcurrentQueue, QueueError};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Ticket queue over fetch-ops at memory.
#[repr(C)]
pub struct FetchOpTickets<P: Processor, S: Storage = Boxed> {
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    seen: S::Each<SeenTicket<P>>,
    slots: S::Nodes<TicketSlot<P>>,
}

/// The head as a participant saw it last: saves a read at memory.
#[repr(C, align(64))]
struct SeenTicket<P: Processor>(P::Cell);

#[repr(C)]
struct TicketSlot<P: Processor> {
    visits: P::Word,
    value: P::Word,
}

/// A ticket's slot, and its visits before the first one.
struct TicketTurn<'a, P: Processor> {
    slot: &'a TicketSlot<P>,
    fresh: u64,
    /// Maximum distance of the visits behind the newest: each lap that isn't over holds
    /// up a participant.
    late: u64,
}

impl<P: FetchOp, S: Storage> FetchOpTickets<P, S> {
    #[inline(always)]
    fn turn(&self, ticket: u64) -> Result<TicketTurn<'_, P>, QueueError> {
        let slots = self.slots.as_ref();
        let count = slots.len() as u64;
        let index = ticket.checked_rem(count).ok_or(QueueError::Full)?;
        let slot = slots.get(index as usize).ok_or(QueueError::Corrupt)?;
        let fresh = (ticket / count).wrapping_mul(3);
        let late = fresh.min(3 * self.seen.as_ref().len() as u64);
        Ok(TicketTurn { slot, fresh, late })
    }

    /// Number of values that there is surely room for.
    fn capacity(&self) -> u64 {
        self.slots.as_ref().len().saturating_sub(self.seen.as_ref().len()) as u64
    }

    /// Number of tickets that the second end is behind the first one; 0 if it isn't (more
    /// are drawn from the head than from the tail while dequeuers void slots).
    fn behind(first: u64, second: u64) -> u64 {
        (first.wrapping_sub(second) as i64).max(0) as u64
    }

    fn has_room(&self, cpu: &P, me: usize) -> Result<bool, QueueError> {
        let seen = &self.seen.as_ref().get(me).ok_or(QueueError::UnknownParticipant)?.0;
        let mut head = cpu.read(seen);
        // (8) Acquire: not before the head was read; pairs with the draw (1).
        while Self::behind(cpu.load(&self.tail, Ordering::Acquire), head) >= self.capacity() {
            // Relaxed: (8) has brought what the drawers of the tail knew of the head. If the tail
            // is read as it was before, one more ticket is drawn than there is room, as by one that
            // tested at the same time; our own draw then shows the tail as it is.
            let now = cpu.load(&self.head, Ordering::Relaxed);
            if now == head {
                return Ok(false); // It did not move while the tail was read.
            }
            head = now;
            cpu.write(seen, now);
        }
        Ok(true)
    }
}

impl<P: Processor> TicketTurn<'_, P> {
    /// Visits since the lap began, as an Acquire load (2) saw them: pairs with the
    /// Release (4), (7) of the lap before. `None` while it has not begun.
    fn visits(&self, seen: u64) -> Result<Option<u64>, QueueError> {
        match seen.wrapping_sub(self.fresh) {
            visits @ 0..=1 => Ok(Some(visits)),
            early if early.wrapping_neg() <= self.late => Ok(None),
            _ => Err(QueueError::Corrupt), // Both would have to have been here, and one of them is us.
        }
    }

    /// The slot is free for the next lap. Release (4), (7): pairs with the Acquire (2).
    fn finish(&self, cpu: &P) {
        cpu.store(&self.slot.visits, self.fresh.wrapping_add(3), Ordering::Release);
    }
}

impl<P: FetchOp, S: Storage> ConcurrentQueue<P> for FetchOpTickets<P, S> {
    const NAME: &'static str = "fetch-op-tickets";
    const BLOCKING: bool = true;

    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        FetchOpTickets {
            head: OwnLine(arena.word(Place::AtMemory(0), 0)),
            tail: OwnLine(arena.word(Place::AtMemory(1), 0)),
            seen: S::each(participants, |_| SeenTicket(arena.cell(Place::NewLine, 0))),
            // Dealt out to the nodes, so that what is not the ends does not queue up at theirs.
            slots: S::nodes(capacity + participants, |i| TicketSlot {
                visits: arena.word(Place::AtMemory(i as u32), 0),
                value: arena.word(Place::SameLine, 0),
            }),
        }
    }

    fn enqueue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize, value: u64) -> Result<(), QueueError> {
        while self.has_room(cpu, me)? {
            // (1) Acquires and releases, as all operations at memory.
            let turn = self.turn(cpu.fetch_increment(&self.tail))?;
            let mut round = 0u32;
            // (2) Acquire: the dequeuer that used the slot a lap ago has read its value; pairs with
            // its visit (7).
            while turn.visits(cpu.load(&turn.slot.visits, Ordering::Acquire))?.is_none() {
                wait.back_off(cpu, round)?;
                round = round.wrapping_add(1);
            }
            // Relaxed: published by (3). No dequeuer reads it if the slot is void.
            cpu.store(&turn.slot.value, value, Ordering::Relaxed);
            // (3) Acquires and releases: pairs with (5), (6).
            if turn.visits(cpu.fetch_increment(&turn.slot.visits))? == Some(0) {
                return Ok(());
            }
            // (4) Void: its dequeuer was here first, and left.
            turn.finish(cpu);
        }
        Err(QueueError::Full)
    }

    fn dequeue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize) -> Result<Option<u64>, QueueError> {
        if me >= self.seen.as_ref().len() {
            return Err(QueueError::UnknownParticipant);
        }
        loop {
            // (9b) Acquire: before the tail is read; pairs with the draw (5).
            let head = cpu.load(&self.head, Ordering::Acquire);
            // Relaxed: the draws before those of the head are known by (9b), and the slot's value
            // by the visits.
            if Self::behind(cpu.load(&self.tail, Ordering::Relaxed), head) == 0 {
                return Ok(None);
            }
            // (5) Acquires and releases, as all operations at memory.
            let ticket = cpu.fetch_increment(&self.head);
            let turn = self.turn(ticket)?;
            let mut round = 0u32;
            let filled = loop {
                // (2b) Acquire: if the value has come, pairs with the visit (3).
                match turn.visits(cpu.load(&turn.slot.visits, Ordering::Acquire))? {
                    Some(1) => break true,
                    // No enqueuer has drawn this ticket so far: if one does now, the visits tell
                    // which was first. Relaxed: so they do if one has drawn it already.
                    Some(_) if Self::behind(cpu.load(&self.tail, Ordering::Relaxed), ticket) == 0 => {
                        // (6) Acquires and releases: pairs with the visit (3).
                        break turn.visits(cpu.fetch_increment(&turn.slot.visits))? == Some(1);
                    }
                    _ => wait.back_off(cpu, round)?,
                }
                round = round.wrapping_add(1);
            };
            if filled {
                // Relaxed: written before (3).
                let value = cpu.load(&turn.slot.value, Ordering::Relaxed);
                // (7) The value has been read.
                turn.finish(cpu);
                return Ok(Some(value));
            }
        }
    }
}
