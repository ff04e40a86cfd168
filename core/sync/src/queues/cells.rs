//! Cells beside a queue: each value that is sent has one, which its sender writes and its
//! receiver empties.
//!
//! For values that are no words: what moves through the queue is the number of a cell, and the cell
//! is a place in the memory of one process.
//!
//! **Source.** Ours.
//!
//! **Progress.** That of the queue; of many to many, one more exchange for each value.
//!
//! **Fields.** A cell: the sender, from the call of `write` until the value is sent; then the
//! receiver that takes it, in the call of `read`. They need no ordering of their own: theirs are
//! those of the queue's slots.
//!
//! * Many to many: a slot has a cell. A sender has reserved the slot while it writes, and a
//!   receiver has it under a lease while it reads: so the slot's word orders them.
//! * Many to one: a slot has two cells, which its values use in turn, and is free when the one
//!   receiver has taken the cell's number. A sender that writes into the first cell again follows
//!   one whose value, in the second, was taken: before that the receiver had read the first.
//! * One sender to a ring: value `n` of a ring lies in its cell `n` modulo their number, which is
//!   at least twice that of the slots, and four. The sender writes before it knows that there is
//!   room. Then value `n - 1` was sent, so its receiver has released value `n - 1 - slots`, and
//!   read all before that: the cell's last value, `n - 2 * slots`, too (`n - 4`, with one slot).
//!
//! **Crashes.** The whole process dies, and the cells with it. So a queue of a world has none.
//!
//! **Don't use it** for plain values, which lie in the slots themselves, nor where a value that
//! a receiver had must come in again: there are no leases.

use towpath_machine::{Prefetch, Processor};

use super::one_to_one::OneToOne;
use super::ring_per_sender::RingPerSender;
use super::{BoundedQueue, QueueGeometry, TransferError};
use crate::{Deadline, Waiting};

/// A queue whose values lie in cells beside it.
pub trait CellQueue<P: Processor>: BoundedQueue<P> {
    /// Number of cells beside a queue of that geometry.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::queues::{CellQueue, OneToOne};
    ///
    /// type Queue = OneToOne<'static, Native>;
    /// assert_eq!(<Queue as CellQueue<Native>>::cells(Queue::geometry::<u64>(8)), 16);
    /// ```
    fn cells(geometry: QueueGeometry) -> usize;

    /// Sends the value that `write` puts into the cell of the given number.
    ///
    /// If the call fails the cell is not the caller's any more, and no receiver reads it.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::send`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// # use towpath_sync::queues::CellQueue;
    /// let mut cells = [const { String::new() }; 4];
    /// let send = |cell: usize| cells[cell].push_str("seven");
    /// queue.send_cell(&cpu, &Spinning, Deadline::NEVER, send)?;
    /// let receive = |cell: usize| core::mem::take(&mut cells[cell]);
    /// assert_eq!(queue.receive_cell(&cpu, &Spinning, Deadline::NEVER, receive)?, "seven");
    /// # Ok(())
    /// # }
    /// ```
    fn send_cell<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        write: impl FnOnce(usize),
    ) -> Result<(), TransferError>;

    /// Receives the oldest value, which `read` takes out of the cell of the given number.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::receive`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// # use towpath_sync::queues::CellQueue;
    /// let empty = queue.receive_cell(&cpu, &Spinning, Deadline::PAST, |cell| cell);
    /// assert_eq!(empty, Err(TransferError::TimedOut)); // there is no value
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    fn receive_cell<R, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        read: impl FnOnce(usize) -> R,
    ) -> Result<R, TransferError> {
        receive_numbered(self, cpu, wait, deadline, read)
    }
}

/// Receives the number of a cell from a queue whose receiver may read it then.
#[inline(always)]
pub(super) fn receive_numbered<P: Processor, R, W: Waiting<P>>(
    queue: &impl BoundedQueue<P>,
    cpu: &P,
    wait: &W,
    deadline: Deadline,
    read: impl FnOnce(usize) -> R,
) -> Result<R, TransferError> {
    let cell: u64 = queue.receive(cpu, wait, deadline)?;
    Ok(read(cell as usize))
}

/// Number of cells of a ring of so many slots.
fn cells_of_ring(slots: usize) -> usize {
    (2 * slots).max(4)
}

/// Number of cells of all rings.
fn cells_of_rings(geometry: QueueGeometry) -> usize {
    geometry.rings() as usize * cells_of_ring(geometry.capacity())
}

/// Cell of the value of that number in a ring.
#[inline(always)]
fn cell_of(geometry: QueueGeometry, ring: u32, number: u64) -> usize {
    let cells = cells_of_ring(geometry.capacity());
    ring as usize * cells + (number as usize & (cells - 1))
}

impl<P: Prefetch> CellQueue<P> for OneToOne<'_, P> {
    fn cells(geometry: QueueGeometry) -> usize {
        cells_of_rings(geometry)
    }

    #[inline]
    fn send_cell<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        write: impl FnOnce(usize),
    ) -> Result<(), TransferError> {
        let cell = cell_of(self.geometry, 0, self.next_number(cpu));
        write(cell);
        self.send(cpu, wait, &(cell as u64), deadline)
    }
}

impl<P: Prefetch, const N: usize> CellQueue<P> for RingPerSender<'_, P, N> {
    fn cells(geometry: QueueGeometry) -> usize {
        cells_of_rings(geometry)
    }

    #[inline]
    fn send_cell<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        write: impl FnOnce(usize),
    ) -> Result<(), TransferError> {
        let cell = cell_of(self.geometry, self.seat, self.next_number(cpu));
        write(cell);
        self.send(cpu, wait, &(cell as u64), deadline)
    }
}
