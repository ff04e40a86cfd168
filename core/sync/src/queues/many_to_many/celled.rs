//! Values in cells beside the queue: of a slot under a lease, or of one receiver.

use towpath_machine::{Ordering, Processor};

use super::{ManyToMany, Reserved};
use crate::queues::cells::receive_numbered;
use crate::queues::members::QueueSide;
use crate::queues::{CellQueue, QueueGeometry, TransferError};
use crate::{Deadline, Waiting};

impl<P: Processor, const N: usize> ManyToMany<'_, P, N> {
    /// Writes a value into a cell of a slot that the caller has reserved, and sends it.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]: the slot's next value uses the same cell.
    #[inline(always)]
    fn put_cell<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reserved: Reserved,
        write: impl FnOnce(usize),
    ) -> Result<u64, TransferError> {
        if !self.one_receiver {
            write(reserved.slot);
            return self.put(cpu, wait, reserved);
        }
        // Relaxed, all: the caller's own, or handed over with the slot; published with it.
        let (at, slots) = (self.word(reserved.slot, 1), self.geometry.capacity());
        let last = cpu.load(at, Ordering::Relaxed);
        let cell = reserved.slot + (!(last as usize) & slots);
        write(cell);
        cpu.store(at, cell as u64, Ordering::Relaxed);
        self.put_unless_closed(cpu, wait, reserved).or_else(|word| {
            // The receiver may still read the other cell.
            cpu.store(at, last, Ordering::Relaxed);
            self.apart().refuse(cpu, wait, reserved.slot, word)
        })
    }
}

impl<P: Processor, const N: usize> CellQueue<P> for ManyToMany<'_, P, N> {
    fn cells(geometry: QueueGeometry) -> usize {
        2 * geometry.capacity()
    }

    #[inline]
    fn send_cell<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        write: impl FnOnce(usize),
    ) -> Result<(), TransferError> {
        if !self.head.members.may_be_without(cpu, QueueSide::Receiver)
            && let Some(reserved) = self.take_next_slot(cpu, wait.identity())
        {
            let ticket = self.put_cell(cpu, wait, reserved, write)?;
            if ticket != reserved.ticket {
                self.apart().give_way(cpu, wait, ticket, deadline);
            }
            return Ok(());
        }
        let reserved = self.apart().reserve_slowly(cpu, wait, deadline)?;
        self.put_cell(cpu, wait, reserved, write).map(drop)
    }

    #[inline]
    fn receive_cell<R, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        read: impl FnOnce(usize) -> R,
    ) -> Result<R, TransferError> {
        if self.one_receiver {
            return receive_numbered(self, cpu, wait, deadline, read);
        }
        let leased = self.lease_in_place(cpu, wait, deadline)?;
        let value = read(leased.slot);
        self.complete_own(cpu, wait, leased);
        Ok(value)
    }
}
