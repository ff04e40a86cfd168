//! Queues over memory: the file that makes references into shared memory.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_channel::packet::{BlockHead, Extra, Slot};
use towpath_channel::queue::{Queue, QueueControl};
use towpath_channel::ring::{Ring, RingMemory};
use towpath_machine::{Concurrent, Native, NativeBytes};
use towpath_shm::Memory;

use crate::device::connect::address::Address;
use crate::device::connect::layout::{self, EndpointHeader, MemberRow, SlotsHeader, at};

// `Slot`, `Extra`, `BlockHead` and `QueueControl` are `Concurrent` by the room channel.
// SAFETY: `repr(C)`, of atomic words only; all zero is the initial state; no `Drop`.
unsafe impl Concurrent for EndpointHeader {}
// SAFETY: `repr(C)`, of atomic words only; all zero is the initial state; no `Drop`.
unsafe impl Concurrent for MemberRow {}
// SAFETY: `repr(C)`, of atomic words only; all zero is the initial state; no `Drop`.
unsafe impl Concurrent for SlotsHeader {}

/// Error: a segment could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The segment has no memory, or is not the process's own.
    #[error("{0}")]
    Memory(#[from] towpath_shm::Error),
    /// Its owner has ended, or its memory can't be opened.
    #[error(
        "process {pid}'s memory can't be opened ({source}): it has ended, or the ranks may not look into each other's /proc (same user, same container, no hidepid)"
    )]
    Open {
        /// The owner.
        pid: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process is not seen under its pid, and its socket does not answer.
    #[error(
        "process {pid} of another pid namespace does not answer at its socket ({source}): it has ended, or belongs to another user, or something keeps the ranks from Unix sockets; start the ranks of a host as one user, in one container, or with --pid=host"
    )]
    Silent {
        /// The owner.
        pid: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The segment is another user's, or open to others.
    #[error("process {pid}'s memory is not used: {why}; an endpoint's memory must be its own user's alone")]
    Untrusted {
        /// The owner.
        pid: u32,
        /// The reason.
        why: String,
    },
    /// Another segment has its place.
    #[error("process {pid} has ended, and another process has its number")]
    Another {
        /// The owner.
        pid: u32,
    },
    /// The receiver's table is full.
    #[error(
        "process {pid} has {most} senders already: no more ranks than that can talk to one on the same host"
    )]
    TooMany {
        /// The receiver.
        pid: u32,
        /// Maximum number of senders.
        most: usize,
    },
}

/// Extends the borrow of mapped memory: sound as long as its holder holds the memory too,
/// and drops it later.
///
/// # Safety
///
/// The result is not used after the memory was unmapped.
unsafe fn lasting<T: Concurrent>(slice: &[T]) -> &'static [T] {
    // SAFETY: the caller's promise.
    unsafe { core::mem::transmute::<&[T], &'static [T]>(slice) }
}

/// Opens memory of another process (or of this one) by its descriptor there. Both mean
/// the same by a pid.
pub fn open(pid: u32, fd: u32) -> Result<Memory, AttachError> {
    // Oneself one sees in any /proc, though perhaps under another number.
    let path = if pid == std::process::id() {
        format!("/proc/self/fd/{fd}")
    } else {
        format!("/proc/{pid}/fd/{fd}")
    };
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|source| AttachError::Open { pid, source })?;
    given(pid, OwnedFd::from(file))
}

/// Memory that another process has passed.
fn given(pid: u32, file: OwnedFd) -> Result<Memory, AttachError> {
    Memory::from_descriptor(file).map_err(|error| match error {
        towpath_shm::Error::NotTrusted { why, .. } => AttachError::Untrusted { pid, why },
        towpath_shm::Error::NotAWorld { why, .. } => AttachError::Untrusted { pid, why: why.to_string() },
        other => other.into(),
    })
}

/// An endpoint's segment, mapped.
///
/// Its references are `'static` in type only: they are valid while this lives, and it never lends
/// them out for longer.
pub struct EndpointSegment {
    header: &'static EndpointHeader,
    members: &'static [MemberRow],
    queue: Queue<'static, Native>,
    memory: Memory,
}

impl EndpointSegment {
    /// Makes a new segment, with its address yet to be written.
    pub fn create() -> Result<EndpointSegment, AttachError> {
        EndpointSegment::of(Memory::anonymous(at::END)?)
    }

    /// Another endpoint's, which is seen under its pid.
    pub fn attach(address: &Address) -> Result<EndpointSegment, AttachError> {
        EndpointSegment::check(EndpointSegment::of(open(address.pid, address.fd)?)?, address)
    }

    /// Another endpoint's, which it has passed.
    pub fn given(address: &Address, file: OwnedFd) -> Result<EndpointSegment, AttachError> {
        EndpointSegment::check(EndpointSegment::of(given(address.pid, file)?)?, address)
    }

    fn check(segment: EndpointSegment, address: &Address) -> Result<EndpointSegment, AttachError> {
        // Relaxed: written before the address was published, by whatever way it came to us.
        let found: [u64; 8] = core::array::from_fn(|i| segment.header.identity[i].load(Ordering::Relaxed));
        if Address::from_words(found) != Some(*address) {
            return Err(AttachError::Another { pid: address.pid });
        }
        Ok(segment)
    }

    fn of(memory: Memory) -> Result<EndpointSegment, AttachError> {
        // SAFETY: `memory` is kept beside the references, and dropped after them.
        unsafe {
            let header = &lasting(memory.slice::<EndpointHeader>(0, 1)?)[0];
            let members = lasting(memory.slice::<MemberRow>(at::MEMBERS, layout::MEMBERS as u64)?);
            let queue = Queue {
                id: 0,
                control: &lasting(memory.slice::<QueueControl<Native>>(at::CONTROL, 1)?)[0],
                slots: lasting(memory.slice::<Slot<Native>>(at::SLOTS, layout::PACKETS as u64)?),
                extras: lasting(memory.slice::<Extra<Native>>(at::EXTRAS, layout::PACKETS as u64)?),
                blocks: lasting(memory.slice::<BlockHead<Native>>(at::HEADS, layout::BLOCKS as u64)?),
                bytes: Arc::new(memory.bytes(at::BYTES, (layout::BLOCKS * layout::BLOCK) as u64)?),
                block_size: layout::BLOCK,
            };
            Ok(EndpointSegment { header, members, queue, memory })
        }
    }

    /// Its header.
    #[inline(always)]
    pub fn header(&self) -> &EndpointHeader {
        self.header
    }

    /// Its members.
    #[inline(always)]
    pub fn members(&self) -> &[MemberRow] {
        self.members
    }

    /// Its queue.
    #[inline(always)]
    pub fn queue<'a>(&'a self) -> &'a Queue<'a, Native> {
        // SAFETY: only shortens the lifetime (`Queue` is invariant in it, but nothing can be stored
        // in a shared reference to one).
        unsafe { core::mem::transmute::<&'a Queue<'static, Native>, &'a Queue<'a, Native>>(&self.queue) }
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> u32 {
        self.memory.descriptor() as u32
    }

    /// The descriptor itself, to be passed.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }
}

/// A ring's memory, mapped. As [`EndpointSegment`].
pub struct PairMemory {
    header: &'static SlotsHeader,
    ring: &'static Ring<Native, { layout::SLOTS }>,
    bytes: NativeBytes,
    memory: Memory,
}

impl PairMemory {
    /// New ones.
    pub fn create() -> Result<PairMemory, AttachError> {
        PairMemory::of(Memory::anonymous(at::PAIR_END)?)
    }

    /// Maps a pair's memory that another process has made, by its pid.
    pub fn attach(pid: u32, fd: u32, nonce: u64) -> Result<PairMemory, AttachError> {
        PairMemory::check(PairMemory::of(open(pid, fd)?)?, pid, nonce)
    }

    /// Maps a pair's memory that another process has made and passed.
    pub fn given(pid: u32, file: OwnedFd, nonce: u64) -> Result<PairMemory, AttachError> {
        PairMemory::check(PairMemory::of(given(pid, file)?)?, pid, nonce)
    }

    fn check(pair: PairMemory, pid: u32, nonce: u64) -> Result<PairMemory, AttachError> {
        // Relaxed: written before they were announced.
        if pair.header.nonce.load(Ordering::Relaxed) != nonce {
            return Err(AttachError::Another { pid });
        }
        Ok(pair)
    }

    fn of(memory: Memory) -> Result<PairMemory, AttachError> {
        // SAFETY: `memory` is kept beside the references, and dropped after them.
        unsafe {
            let header = &lasting(memory.slice::<SlotsHeader>(0, 1)?)[0];
            let ring = &lasting(memory.slice::<Ring<Native, { layout::SLOTS }>>(at::PAIR_RING, 1)?)[0];
            let bytes = memory.bytes(at::PAIR_BYTES, layout::SLOT_BYTES as u64)?;
            Ok(PairMemory { header, ring, bytes, memory })
        }
    }

    /// Their header.
    #[inline(always)]
    pub fn header(&self) -> &SlotsHeader {
        self.header
    }

    /// Returns the address of a range of the bytes, if it lies within them.
    #[inline(always)]
    pub fn bytes(&self, at: usize, len: usize) -> Option<*mut u8> {
        let end = at.checked_add(len)?;
        // SAFETY: in bounds.
        (end <= self.bytes.len()).then(|| unsafe { self.bytes.as_ptr().add(at) })
    }

    /// Their descriptor.
    pub fn descriptor(&self) -> u32 {
        self.memory.descriptor() as u32
    }

    /// The descriptor itself, to be passed.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }
}

impl RingMemory<{ layout::SLOTS }> for PairMemory {
    type Cpu = Native;
    #[inline(always)]
    fn ring(&self) -> &Ring<Native, { layout::SLOTS }> {
        self.ring
    }
}
