//! Buffer of a pool, as its owner has it.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use core::time::Duration;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Native, Object, Plain};
use towpath_sync::queues::{Leased, Leasing, ManyToMany, Mpmc, TransferError, Venue};
use towpath_sync::{Deadline, Wait};

use super::{WorldPool, identity};
use crate::primitives::LINE;
use crate::primitives::message_slot::MessageSlot;
use crate::primitives::queues::WorldVenue;

/// Number of a buffer, as it travels through a stage, and the place of its pool.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferNumber {
    pub(in crate::primitives) pool: u32,
    pub(in crate::primitives) number: u32,
}

// SAFETY: two numbers without padding; no `Drop`; no other type writes this text.
unsafe impl Object for BufferNumber {
    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pool-buffer v1")
    }
}
// SAFETY: fixed layout, every bit pattern.
unsafe impl Plain for BufferNumber {}

/// Lease by which a process owns a buffer.
pub(in crate::primitives) enum BufferLease {
    Taken(Leased),
    Received(Leased, WorldVenue<BufferNumber, Mpmc>),
    Message(Leased, WorldVenue<MessageSlot, Mpmc>),
}

impl BufferLease {
    /// Completes the lease into another queue.
    fn move_into<T: Plain>(
        &self,
        pool: &WorldPool,
        cpu: &Native,
        wait: &Wait<'_>,
        into: &ManyToMany<'_, Native>,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        match self {
            BufferLease::Taken(leased) => {
                pool.call(|queue, _, _| queue.complete_into(cpu, wait, *leased, into, value, deadline))
            }
            BufferLease::Received(leased, stage) => stage.call(|queue, _, _| {
                Mpmc::leasing(queue).complete_into(cpu, wait, *leased, into, value, deadline)
            }),
            BufferLease::Message(leased, queue) => queue.call(|queue, _, _| {
                Mpmc::leasing(queue).complete_into(cpu, wait, *leased, into, value, deadline)
            }),
        }
    }
}

/// Buffer of a pool that this process owns. Dropped, it is free again.
///
/// If this process dies, a buffer that it took is free again, and one that it received comes in
/// again where it was received.
#[derive(OpaqueDebug)]
#[must_use = "the buffer is free again at once"]
pub struct PoolBuffer {
    pub(in crate::primitives) pool: WorldPool,
    pub(in crate::primitives) number: usize,
    pub(in crate::primitives) lease: Option<BufferLease>,
}

impl PoolBuffer {
    /// The buffer as values of a type: as many as fit.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frame = world.pool("frames", 4, 1 << 12)?.take()?;
    /// assert_eq!(frame.values::<f32>().len(), 1 << 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn values<T: Plain>(&self) -> &[T] {
        let (first, number) = self.row::<T>();
        // SAFETY: as in `deref`, and any bits are a `T`, to which the buffer is aligned (`row`).
        unsafe { core::slice::from_raw_parts(first.as_ptr(), number) }
    }

    /// The buffer as values of a type, to be changed.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let mut frame = world.pool("frames", 4, 1 << 12)?.take()?;
    /// frame.values_mut::<f32>()[3] = 0.5;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn values_mut<T: Plain>(&mut self) -> &mut [T] {
        let (first, number) = self.row::<T>();
        // SAFETY: as in `values`; and this is the only reference, borrowed from the owner.
        unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), number) }
    }

    /// The first value of a type in the buffer, and their number.
    fn row<T>(&self) -> (NonNull<T>, usize) {
        const { assert!(align_of::<T>() <= LINE as usize && size_of::<T>() > 0) };
        let shape = self.pool.shape;
        assert!(self.number < shape.count);
        let first = self.pool.behind(shape.before_buffers() + self.number * shape.stride());
        // Behind an object, whose address is not null.
        (NonNull::new(first.cast()).unwrap_or(NonNull::dangling()), shape.bytes / size_of::<T>())
    }

    fn set_holder(&self, holder: u32) {
        // Relaxed: the lease's exchanges order the owners.
        self.pool.holder(self.number).store(holder.into(), Ordering::Relaxed);
    }

    /// Moves the buffer into a queue; on an error this process still owns it.
    pub(in crate::primitives) fn move_into<T: Plain>(
        &mut self,
        cpu: &Native,
        wait: &Wait<'_>,
        into: &ManyToMany<'_, Native>,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let Some(lease) = &self.lease else { return Err(TransferError::Damaged) };
        let me = identity(wait);
        // Relaxed: its own. A forked child does not have its parent's buffers.
        if self.pool.holder(self.number).load(Ordering::Relaxed) != u64::from(me) {
            return Err(TransferError::NotEntered);
        }
        self.set_holder(0);
        let moved = lease.move_into(&self.pool, cpu, wait, into, value, deadline);
        match moved {
            Ok(()) => self.lease = None,
            Err(_) => self.set_holder(me),
        }
        moved
    }

    /// Gives the buffer back: it comes in again where it was received, behind those that
    /// wait. One that was taken is free again.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let decoded = frames.stage("decoded", 4)?;
    /// decoded.sender()?.send(frames.take()?)?;
    /// let receiver = decoded.receiver()?;
    /// receiver.receive()?.give_back();
    /// receiver.receive()?; // it has come in again
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_back(mut self) {
        let given = match self.lease.take() {
            Some(BufferLease::Received(leased, stage)) => self.give_back_to(&stage, leased),
            Some(BufferLease::Message(leased, queue)) => self.give_back_to(&queue, leased),
            taken => {
                self.lease = taken;
                Ok(())
            }
        };
        // A process outside the world owns no buffer.
        let _ = given;
    }

    fn give_back_to(&self, venue: &impl Venue<Kind = Mpmc>, leased: Leased) -> Result<(), TransferError> {
        venue.call(|queue, cpu, wait| {
            // Of a forked child it is not.
            if self.pool.holder(self.number).load(Ordering::Relaxed) == u64::from(identity(wait)) {
                self.set_holder(0);
                Mpmc::leasing(queue).give_back(cpu, wait, leased);
            }
            Ok(())
        })
    }

    fn end(&mut self) -> Result<(), TransferError> {
        let pool = self.pool.clone();
        pool.call(|queue, cpu, wait| {
            if let Some(BufferLease::Taken(leased)) = self.lease {
                // Of a forked child it is not.
                if pool.holder(self.number).load(Ordering::Relaxed) == u64::from(identity(wait)) {
                    self.set_holder(0);
                    queue.give_back(cpu, wait, leased);
                }
                return Ok(());
            }
            // There is room for all buffers, unless the memory is damaged.
            self.move_into(cpu, wait, &queue, &(self.number as u32), Deadline::within(Duration::from_secs(1)))
        })
    }
}

impl Deref for PoolBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let (first, bytes) = self.row::<u8>();
        // SAFETY: within the pool's bytes behind its head (`row`), which stay mapped as long as the
        // pool's handle lives; any bytes are valid; the owner alone writes to them, and this
        // process is the owner as long as it has the lease.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), bytes) }
    }
}

impl DerefMut for PoolBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.values_mut()
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        if self.lease.is_some() {
            // A process outside the world owns no buffer.
            let _ = self.end();
        }
    }
}
