//! `pool`: buffers of a world that move between processes and are never copied.
//!
//! A buffer has one owner at a time, also when processes are killed.
//!
//! **Source.** Ours: the pool is a bounded queue of the free buffers' numbers, and a stage is
//! another one. An owner of a buffer is the holder of a lease in one of them, and a buffer moves by
//! [`complete_into`](towpath_sync::queues::ManyToMany::complete_into).
//!
//! **Progress.** As the queue: lock-free while there is a buffer, or room.
//!
//! | a buffer is | its number | after its owner's death |
//! | --- | --- | --- |
//! | free | in the pool's queue | – |
//! | taken | leased there | is free again |
//! | sent | in the stage's queue | stays sent |
//! | received | leased there | comes in again at that stage, with its bytes as the dead left them |
//!
//! **Fields.** `count`, `bytes`: written before the pool has a name. `holders[…]`: identity of the
//! owner, or 0: by the owner, and by the next one after a death. Bytes: the owner.
//!
//! **Crashes.** See the table. Each move is one exchange, so that no buffer is lost, and none has
//! two owners. Numbers that no owner sent, out of range, of another pool, or of a buffer whose
//! owner lives, are refused ([`TransferError::Damaged`]).
//!
//! **Memory.** The queue's, for twice as many numbers and 64; a word for each buffer; the buffers,
//! each rounded up to whole lines.
//!
//! **Don't use it** for messages of less than a few hundred bytes: a queue of values copies them in
//! less time than the two queues take.
#![allow(unsafe_code)]

mod buffer;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_machine::{Native, Object};
use towpath_sync::queues::{
    BoundedQueue, ManyHead, ManyToMany, Mpmc, QueueGeometry, QueueKind, TransferError, WordLine, lines_of,
};
use towpath_sync::{Attempt, Deadline, Wait, Waiting};

use super::LINE;
use crate::{Error, Shared, World};

pub use buffer::PoolBuffer;
pub(super) use buffer::{BufferLease, BufferNumber};

/// Maximum number of buffers of a pool.
const MOST: usize = 1 << 14;
/// Maximum number of bytes of a buffer.
const MOST_BYTES: usize = 1 << 40;
/// Number of bytes that are copied between two cores during a usual spin, about.
const BYTES_OF_A_SPIN: usize = 1 << 17;

/// Head of a pool in a segment, behind which its queue, its holders and its buffers lie.
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct PoolObject {
    head: ManyHead<Native>,
    count: AtomicU64,
    bytes: AtomicU64,
}

// SAFETY: `repr(C)`, made of atomic words, so every bit pattern is valid and accesses are atomic;
// all zero is a pool without buffers; no `Drop`.
unsafe impl Object for PoolObject {
    const NAMES_USERS: bool = true;

    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pool v1")
    }
}

/// Number of buffers of a pool, and of bytes of each.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PoolShape {
    count: usize,
    bytes: usize,
}

impl PoolShape {
    fn checked(count: u64, bytes: u64) -> Option<PoolShape> {
        let shape = PoolShape { count: usize::try_from(count).ok()?, bytes: usize::try_from(bytes).ok()? };
        ((1..=MOST).contains(&shape.count) && (1..=MOST_BYTES).contains(&shape.bytes)).then_some(shape)
    }

    /// Geometry of the queue.
    ///
    /// A stopped process may hold a slot while its buffer comes back.
    fn geometry(self) -> QueueGeometry {
        Mpmc::geometry::<u32>(2 * self.count + 64)
    }

    const fn stride(self) -> usize {
        self.bytes.next_multiple_of(LINE as usize)
    }

    /// Number of bytes between the head and the holders.
    fn queue_bytes(self) -> usize {
        (lines_of::<Mpmc>(self.geometry()) * LINE) as usize
    }

    /// Number of bytes between the head and the buffers.
    fn before_buffers(self) -> usize {
        self.queue_bytes() + (8 * self.count).next_multiple_of(LINE as usize)
    }

    /// Number of bytes behind the head.
    fn tail(self) -> u64 {
        (self.before_buffers() + self.count * self.stride()) as u64
    }
}

/// Pool of buffers in a world.
#[derive(OpaqueDebug, Clone)]
pub struct WorldPool {
    pub(super) object: Shared<PoolObject>,
    shape: PoolShape,
}

impl WorldPool {
    /// Takes a free buffer, when there is one. It has any bytes.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`]; [`TransferError::Damaged`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let mut frame = frames.take()?;
    /// frame.fill(7);
    /// drop(frame); // it is free again
    /// assert_eq!(frames.free(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take(&self) -> Result<PoolBuffer, TransferError> {
        self.take_before(Deadline::NEVER)
    }

    /// Takes a free buffer if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`WorldPool::take`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 1, 1 << 12)?;
    /// let _frame = frames.try_take()?;
    /// assert!(frames.try_take().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_take(&self) -> Result<PoolBuffer, TransferError> {
        self.take_before(Deadline::PAST)
    }

    /// Takes a free buffer; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`WorldPool::try_take`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let frames = world.pool("frames", 1, 1 << 12)?;
    /// let _frame = frames.take_timeout(Duration::from_secs(1))?;
    /// assert!(frames.take_timeout(Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_timeout(&self, time: Duration) -> Result<PoolBuffer, TransferError> {
        self.take_before(Deadline::within(time))
    }

    /// Takes a free buffer; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`WorldPool::try_take`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let frames = world.pool("frames", 1, 1 << 12)?;
    /// let noon = Instant::now() + Duration::from_millis(1);
    /// let _frame = frames.take_until(noon)?;
    /// assert!(frames.take_until(noon).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_until(&self, instant: Instant) -> Result<PoolBuffer, TransferError> {
        self.take_before(Deadline::at(instant))
    }

    pub(super) fn take_before(&self, deadline: Deadline) -> Result<PoolBuffer, TransferError> {
        self.call(|queue, cpu, wait| self.take_of(&queue, cpu, wait, deadline))
    }

    /// Takes a free buffer if there is one, or says where it would sleep.
    pub(super) fn attempt_take(&self) -> Attempt<Result<PoolBuffer, TransferError>> {
        let tried = self.call(|queue, cpu, wait| {
            let act = |wait: &Wait<'_>, turn| self.take_of(&queue, cpu, wait, turn);
            Ok(Attempt::of(wait, TransferError::is_timeout, act))
        });
        tried.unwrap_or_else(|error| Attempt::Done(Err(error)))
    }

    fn take_of(
        &self,
        queue: &ManyToMany<'_, Native>,
        cpu: &Native,
        wait: &Wait<'_>,
        deadline: Deadline,
    ) -> Result<PoolBuffer, TransferError> {
        let (number, leased) = queue.receive_leased::<u32, _>(cpu, wait, deadline)?;
        let Some(number) = self.claim(wait, number) else {
            queue.complete(cpu, wait, leased);
            return Err(TransferError::Damaged);
        };
        Ok(PoolBuffer { pool: self.clone(), number, lease: Some(BufferLease::Taken(leased)) })
    }

    /// Number of bytes of such a pool in a world; `None` if there can be none.
    pub(super) fn object_bytes(count: usize, bytes: usize) -> Option<u64> {
        let shape = PoolShape::checked(count as u64, bytes as u64)?;
        Some(size_of::<PoolObject>() as u64 + shape.tail())
    }

    /// Number of buffers.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.pool("frames", 4, 1 << 12)?.count(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(&self) -> usize {
        self.shape.count
    }

    /// Number of bytes of each buffer.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.pool("frames", 4, 1 << 12)?.buffer_bytes(), 1 << 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn buffer_bytes(&self) -> usize {
        self.shape.bytes
    }

    /// Number of buffers that are free.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.pool("frames", 4, 1 << 12)?.free(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn free(&self) -> usize {
        self.call(|queue, cpu, _| Ok(queue.len(cpu))).unwrap_or(0)
    }

    /// The world in which the pool lies.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.pool("frames", 4, 1 << 12)?.world().rank(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn world(&self) -> &World {
        self.object.world()
    }

    /// First byte at so many behind the head.
    fn behind(&self, bytes: usize) -> *mut u8 {
        debug_assert!((bytes as u64) < self.shape.tail());
        self.object.as_ptr().as_ptr().wrapping_add(1).cast::<u8>().wrapping_add(bytes)
    }

    fn call<R>(
        &self,
        act: impl FnOnce(ManyToMany<'_, Native>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        let world = self.world();
        world.entered().ok_or(TransferError::NotEntered)?;
        let geometry = self.shape.geometry();
        let ring_lines = Mpmc::ring_lines(geometry);
        // SAFETY: the object and what lies behind it, as much as its shape says, are mapped as long
        // as the handle lives (`World::pool` compared it with the object's bytes), and aligned,
        // since the object's size is a multiple of its alignment, a line's; any bits are both,
        // whose words are atomic.
        let (head, ring, slots) = unsafe {
            let lines = self.behind(0).cast::<WordLine<Native>>();
            (
                &self.object.as_ptr().as_ref().head,
                core::slice::from_raw_parts(lines, ring_lines),
                core::slice::from_raw_parts(lines.wrapping_add(ring_lines), geometry.slot_lines()),
            )
        };
        let queue = Mpmc::beside(Mpmc::queue(head, ring, slots, geometry), world);
        let wait = Waiting::<Native>::scaled(&world.adaptive_wait(), self.patience());
        act(queue, &Native::with_id(0), &wait)
    }

    /// Number of usual spins of a waiter for a buffer, or for a message in one.
    ///
    /// They take about as long as its peer needs to fill, or read, a buffer, so that buffers that
    /// go to and fro are not waited for asleep.
    pub(super) fn patience(&self) -> u64 {
        1 + (self.buffer_bytes() / BYTES_OF_A_SPIN) as u64
    }

    fn holder(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.shape.count);
        let holders = self.behind(self.shape.queue_bytes()).cast::<AtomicU64>();
        // SAFETY: one of as many words as there are buffers (just checked), behind the queue,
        // mapped as long as the handle lives; any bits are an atomic word.
        unsafe { &*holders.wrapping_add(number) }
    }

    /// Makes this process the owner of a buffer whose lease it has. `None` if the number
    /// is none, or an owner lives.
    pub(super) fn claim(&self, wait: &Wait<'_>, number: u32) -> Option<usize> {
        let number = usize::try_from(number).ok().filter(|&number| number < self.shape.count)?;
        let (word, me) = (self.holder(number), u64::from(identity(wait)));
        // Relaxed, all: the lease's exchanges order the owners.
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            if seen != 0 && is_alive(wait, seen) {
                return None;
            }
            match word.compare_exchange(seen, me, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(number),
                Err(now) => seen = now,
            }
        }
    }

    /// Place of the pool, by which its buffers are known.
    pub(super) fn tag(&self) -> u32 {
        let heap = self.world().inner().segment.heap_words().as_ptr().addr();
        (self.object.as_ptr().as_ptr().addr().wrapping_sub(heap) / LINE as usize) as u32
    }
}

fn identity(wait: &Wait<'_>) -> u32 {
    Waiting::<Native>::identity(wait)
}

fn is_alive(wait: &Wait<'_>, identity: u64) -> bool {
    u32::try_from(identity).is_ok_and(|identity| Waiting::<Native>::is_alive(wait, identity))
}

impl World {
    /// Opens the pool of that name; makes it if there is none.
    ///
    /// One that is there keeps its size: [`WorldPool::count`], [`WorldPool::buffer_bytes`].
    ///
    /// # Errors
    ///
    /// [`Error::NumberOutOfRange`]; as [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let stage = frames.stage("decoded", 4)?;
    /// let mut frame = frames.take()?;
    /// frame.fill(7);
    /// stage.sender()?.send(frame)?;
    /// let frame = stage.receiver()?.receive()?; // usually in another process
    /// assert!(frame.iter().all(|&byte| byte == 7));
    /// drop(frame); // it is free again
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pool(&self, name: &str, count: usize, bytes: usize) -> Result<WorldPool, Error> {
        for (of, wanted, most) in
            [("buffers of a pool", count, MOST), ("bytes of a buffer", bytes, MOST_BYTES)]
        {
            if !(1..=most).contains(&wanted) {
                return Err(Error::NumberOutOfRange {
                    of,
                    wanted: wanted as u64,
                    least: 1,
                    most: most as u64,
                });
            }
        }
        let shape = PoolShape { count, bytes };
        let least = PoolShape { count: 1, bytes: 1 }.tail();
        let (object, tail) = self.object(
            name,
            shape.tail(),
            |tail| tail >= least,
            |object: &Shared<PoolObject>| {
                // SAFETY: mapped as long as the handle lives; any bits are a pool's head.
                let head = unsafe { object.as_ptr().as_ref() };
                // Relaxed, both: the record's store publishes them.
                head.count.store(count as u64, Ordering::Relaxed);
                head.bytes.store(bytes as u64, Ordering::Relaxed);
                let pool = WorldPool { object: object.clone(), shape };
                let filled = pool.call(|queue, cpu, wait| {
                    (0..count as u32).try_for_each(|number| queue.send(cpu, wait, &number, Deadline::PAST))
                });
                // The queue is empty, and has room for twice as many.
                debug_assert_eq!(filled, Ok(()));
            },
        )?;
        // SAFETY: mapped as long as the handle lives; any bits are a pool's head.
        let head = unsafe { object.as_ptr().as_ref() };
        // Relaxed, both: written before the record's name was.
        let [count, bytes] = [&head.count, &head.bytes].map(|word| word.load(Ordering::Relaxed));
        let shape = PoolShape::checked(count, bytes).filter(|shape| shape.tail() == tail);
        let shape =
            shape.ok_or(Error::Damaged { what: "number of buffers of a pool", found: count, expected: 0 })?;
        Ok(WorldPool { object, shape })
    }
}
