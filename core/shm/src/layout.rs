//! What a segment holds, and where.
//!
//! ```text
//! 0          Control: header | counts | participants | doorbells | barrier | directory
//! HEAP       the heap of named shared objects (object_bytes, rounded up to pages; at least 64 KiB)
//! area       the area (area_bytes, rounded up to pages)
//! ```
//!
//! Everything is atomic, `repr(C)`, without pointers, and all-zero initially. The geometry follows
//! from the number of bytes of the area and from where it begins; the header repeats the rest so
//! that a joiner can compare. Changing anything here means a new [`LAYOUT_VERSION`].

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Error;

/// The version of the layout of segments. Programs of different versions can't share a
/// world.
pub const LAYOUT_VERSION: u32 = 4;

/// The largest number of processes in a world: one bit each in a word.
pub const MAX_PROCESSES: usize = 64;

/// The first word of every segment.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"Towpath\x01");

/// The header's `state` once the creator has finished.
pub(crate) const READY: u64 = u64::from_le_bytes(*b"is ready");

/// Sizes are multiples of this (a page of most machines; a larger page only means that
/// the last one isn't full).
pub(crate) const PAGE: u64 = 4096;

/// The least that a world has for its named shared objects, in bytes.
pub const OBJECT_BYTES: u64 = 64 * 1024;

/// How many named shared objects there can be.
pub(crate) const SLOTS: usize = 64;

/// Words of a type's text in a slot.
pub(crate) const TYPE_WORDS: usize = 23;

/// Words of a set of processors: as many bits as the kernel's largest usual set.
pub(crate) const CPU_WORDS: usize = 16;

/// Written by the creator before [`READY`], never changed afterwards.
#[repr(C, align(128))]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub layout: AtomicU32,
    pub control_bytes: AtomicU32,
    pub bytes: AtomicU64,
    pub area_offset: AtomicU64,
    pub area_bytes: AtomicU64,
    pub processes: AtomicU64,
    /// [`READY`] once everything else is there.
    pub state: AtomicU64,
    pub creator: AtomicU64,
    pub params: [AtomicU64; 16],
}

/// What slow paths look at, apart from what fast paths look at.
#[repr(C, align(128))]
pub(crate) struct Counts {
    /// One bit per rank: entered. Only a hint (see `around.rs`); the table decides.
    pub entered: AtomicU64,
    /// One bit per rank: all that it does is sleep.
    pub asleep: AtomicU64,
    /// How many processors the participants may use together.
    pub cores: AtomicU64,
    /// What a context switch cost the creator, in nanoseconds.
    pub switch_cost: AtomicU64,
    pub pad: [AtomicU64; 12],
    /// How many deaths were noted, and the last one: see `liveness.rs`. On a line that is
    /// otherwise never written.
    pub deaths: AtomicU64,
    pub pad2: [AtomicU64; 15],
}

/// A participant's entry: see `participant.rs`.
#[repr(C, align(128))]
pub(crate) struct Entry {
    /// Generation, pid, part of the start time, and state in one word.
    pub word: AtomicU64,
    /// What tells the process from others with its pid: see `process.rs`.
    pub start: AtomicU64,
    /// In which namespaces the pid and the start time are to be understood.
    pub namespace: AtomicU64,
    /// 1 if the process holds a lock on the segment's byte `LOCKS + index`.
    pub locked: AtomicU64,
    pub pad: [AtomicU64; 12],
    /// The processors that it may use.
    pub cpus: [AtomicU64; CPU_WORDS],
}

/// A word on its own (pair of) lines.
#[repr(C, align(128))]
pub(crate) struct Bell(pub AtomicU64);

/// See `barrier.rs`.
#[repr(C, align(128))]
pub(crate) struct BarrierState {
    /// Number and outcome of the last completed episode.
    pub episode: AtomicU64,
    /// Number of the last episode for which a waiter slept at its doorbell.
    pub at_doorbells: AtomicU64,
    pub pad: [AtomicU64; 14],
    /// Per rank: the episode at which it has arrived.
    pub arrivals: [AtomicU32; MAX_PROCESSES],
}

/// A named shared object: see `directory.rs`.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// 1 once the rest is there and the object prepared.
    pub ready: AtomicU64,
    /// Offset in the heap.
    pub offset: AtomicU64,
    pub bytes: AtomicU64,
    pub align: AtomicU64,
    /// Padded with zeroes.
    pub name: [AtomicU64; 4],
    /// Hash of the type's text, all of it.
    pub type_hash: AtomicU64,
    /// The type's text (`Object::describe`), as much as fits, padded with zeroes.
    pub type_text: [AtomicU64; TYPE_WORDS],
}

/// See `directory.rs`.
#[repr(C, align(128))]
pub(crate) struct DirectoryState {
    /// The participant that is creating an object, or 0.
    pub creating: AtomicU64,
    pub pad: [AtomicU64; 15],
    pub slots: [Slot; SLOTS],
}

/// What precedes the heap.
#[repr(C)]
pub(crate) struct Control {
    pub header: Header,
    pub counts: Counts,
    pub entries: [Entry; MAX_PROCESSES],
    pub bells: [Bell; MAX_PROCESSES],
    pub barrier: BarrierState,
    pub directory: DirectoryState,
}

const _: () = {
    assert!(size_of::<Header>() == 256 && size_of::<Counts>() == 256 && size_of::<Entry>() == 256);
    assert!(size_of::<Bell>() == 128 && size_of::<BarrierState>() == 384 && size_of::<Slot>() == 256);
    assert!(offset_of!(Header, params) == 64 && offset_of!(Counts, deaths) == 128);
    assert!(offset_of!(Entry, cpus) == 128 && offset_of!(BarrierState, arrivals) == 128);
    assert!(size_of::<Control>() == 256 + 256 + 64 * 256 + 64 * 128 + 384 + 128 + 64 * 256);
};

/// Where the heap starts.
pub(crate) const HEAP: u64 = (size_of::<Control>() as u64).next_multiple_of(PAGE);

/// The size of the smallest segment.
pub(crate) const LEAST: u64 = HEAP + OBJECT_BYTES;

/// Where participants lock one byte each: beyond everything that is ever mapped.
pub(crate) const LOCKS: u64 = 1 << 62;

/// Where the area begins in a segment with so many bytes for named objects, and the size
/// of the segment if the area has so many.
pub(crate) fn area_and_end(object_bytes: u64, area_bytes: u64) -> Result<(u64, u64), Error> {
    let too_large = |bytes| move || Error::TooLarge(bytes);
    let pages = |bytes: u64| bytes.checked_next_multiple_of(PAGE).ok_or_else(too_large(bytes));
    let area =
        pages(object_bytes.max(OBJECT_BYTES))?.checked_add(HEAP).ok_or_else(too_large(object_bytes))?;
    let end = pages(area_bytes)?.checked_add(area).ok_or_else(too_large(area_bytes))?;
    // The address space of user programs has 47 bits on x86-64 and at least 39 elsewhere; mmap says
    // the rest.
    if end > 1 << 46 { Err(Error::TooLarge(object_bytes.max(area_bytes))) } else { Ok((area, end)) }
}
