//! Layout of a segment.
//!
//! ```text
//! 0          WorldControl: header | counts | barrier | directory
//! entries    processes × Entry
//! doorbells  processes × RankDoorbell
//! presence   one for 64 processes
//! arrivals   processes × u32
//! buckets    heads of the lists of named objects, one for about 512 bytes of the heap
//! heap       records and objects (object_bytes and 16 KiB, rounded up to pages)
//! area       area_bytes, rounded up to pages
//! ```
//!
//! Everything is atomic, `repr(C)`, without pointers, and all-zero initially. The offsets follow
//! from three numbers that the creator chooses ([`Geometry`]): processes, bytes for objects, bytes
//! of the area. The header repeats them; a joiner believes them only if they are in range and lead
//! to the size that the segment has. Changing anything here means a new [`LAYOUT_VERSION`].
#![allow(unsafe_code)]

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64};

use towpath_machine::Concurrent;
use towpath_sync::SlowSpan;

use crate::Error;

/// Version of the layout of segments. Programs of different versions can't share a world.
pub const LAYOUT_VERSION: u32 = 7;

/// Maximum number of processes in a world: as many as [`RANK_BITS`] can name.
pub(crate) const MOST_PROCESSES: u32 = 1 << RANK_BITS;

/// Number of bits of a rank, where it shares a word with something else.
pub(crate) const RANK_BITS: u32 = 12;

/// First word of every segment.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"Towpath\x01");

/// The header's `state` once the creator has finished.
pub(crate) const READY: u64 = u64::from_le_bytes(*b"is ready");

/// Sizes are multiples of this (a page of most machines; a larger page only means that
/// the last one isn't full).
pub(crate) const PAGE: u64 = 4096;

/// Minimum number of bytes for a world's named objects.
pub const OBJECT_BYTES: u64 = 64 * 1024;

/// Number of bytes for the records of the first 64 objects, beside those for objects.
const FIRST_RECORDS: u64 = 64 * size_of::<ObjectRecord>() as u64;

/// Maximum number of bytes that an object takes in the heap beside its own: its record,
/// and space before it that its alignment may leave.
const OBJECT_BYTES_BESIDE: u64 = size_of::<ObjectRecord>() as u64 + 128;

/// Number of bytes of the heap for each list of named objects.
const HEAP_PER_BUCKET: u64 = 512;

/// Maximum number of lists of named objects.
const MOST_BUCKETS: u64 = 65_536;

/// Number of words of a type's text in a record.
pub(crate) const TYPE_WORDS: usize = 23;

/// Number of ranks in a [`Presence`].
pub(crate) const PRESENCE: usize = 64;

/// Number of words in a set of processors: the bits of the kernel's largest usual set.
pub(crate) const CPU_WORDS: usize = 16;

/// Written by the creator before [`READY`], never changed afterwards.
#[repr(C, align(128))]
pub(crate) struct WorldHeader {
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
    /// Bytes for named objects, as the creator asked for them.
    pub object_bytes: AtomicU64,
    /// Ranks that run on this host (`gateway.rs`); 0 if all do.
    pub host_ranks: AtomicU64,
    /// Namespaces of the processes that open it in memory of the caller's
    /// (`in_mapping.rs`; [`MAPPED`] if they are not known); 0 in a segment of its own.
    pub mapped: AtomicU64,
    /// The process that makes a world in memory of the caller's, until it is ready.
    pub maker: AtomicU64,
}

/// [`WorldHeader::mapped`] where the namespaces are not known.
pub(crate) const MAPPED: u64 = 1;

/// Words of slow paths, apart from those of fast paths.
#[repr(C, align(128))]
pub(crate) struct Counts {
    /// Number of processors that the participants may use together.
    pub cores: AtomicU64,
    /// Cost of a context switch, as the creator measured it, in nanoseconds.
    pub switch_cost: AtomicU64,
    /// Time and place of the last look for deaths in a large world: see `liveness.rs`.
    pub looked: AtomicU64,
    /// Time in which rounds of waits are slow: a hint.
    pub slow_span: SlowSpan,
    pub pad: [AtomicU64; 11],
    /// Number of noted deaths, and the last one (`liveness.rs`). On a line that is
    /// otherwise never written.
    pub deaths: AtomicU64,
    pub pad2: [AtomicU64; 15],
}

/// A participant's entry: see `participant.rs`.
#[repr(C, align(128))]
pub(crate) struct ParticipantEntry {
    /// Generation, pid, part of the start time, and state in one word.
    pub word: AtomicU64,
    /// The mark by which the process differs from others with its pid: see `process.rs`.
    pub start: AtomicU64,
    /// Number of the namespaces in which the pid and the start time are valid.
    pub namespace: AtomicU64,
    /// 1 if the process holds a lock on the segment's byte `LOCKS + index`.
    pub locked: AtomicU64,
    pub pad: [AtomicU64; 12],
    /// The processors that it may use.
    pub cpus: [AtomicU64; CPU_WORDS],
}

/// A word on its own (pair of) lines.
#[repr(C, align(128))]
pub(crate) struct RankDoorbell(pub AtomicU64);

/// Hints whether 64 ranks run (`around.rs`): a bit each.
#[repr(C, align(64))]
pub(crate) struct Presence {
    /// Ranks that have entered; the table decides.
    pub entered: AtomicU64,
    /// Ranks that only sleep.
    pub asleep: AtomicU64,
    pub pad: [AtomicU64; 6],
}

/// See `episodes.rs`.
#[repr(C, align(128))]
pub(crate) struct BarrierState {
    /// Number and outcome of the last completed episode.
    pub episode: AtomicU64,
    /// Number of the last episode for which a waiter slept at its doorbell.
    pub at_doorbells: AtomicU64,
    /// Number of events of this host that its gateway looks at (`gateway.rs`).
    pub host_events: AtomicU64,
    pub pad: [AtomicU64; 13],
}

/// Record of a named object, in the heap before the object: see `directory.rs`.
#[repr(C, align(64))]
pub(crate) struct ObjectRecord {
    /// The record before it in its list ([`code_of`]), or 0.
    pub next: AtomicU64,
    /// Offset of the object in the heap.
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
    /// Bytes of the heap that records and objects take; the creator's.
    pub used: AtomicU64,
    pub pad: [AtomicU64; 14],
}

/// The part of a segment that every world has at the same place.
#[repr(C)]
pub(crate) struct WorldControl {
    pub header: WorldHeader,
    pub counts: Counts,
    pub barrier: BarrierState,
    pub directory: DirectoryState,
}

// SAFETY: `repr(C)`, of atomic words only: any bits are valid, accesses are atomic; no `Drop`.
unsafe impl Concurrent for ParticipantEntry {}
// SAFETY: `repr(C)`, of atomic words only: any bits are valid, accesses are atomic; no `Drop`.
unsafe impl Concurrent for RankDoorbell {}
// SAFETY: `repr(C)`, of atomic words only: any bits are valid, accesses are atomic; no `Drop`.
unsafe impl Concurrent for Presence {}
// SAFETY: `repr(C)`, of atomic words only: any bits are valid, accesses are atomic; no `Drop`.
unsafe impl Concurrent for ObjectRecord {}

const _: () = {
    assert!(
        size_of::<WorldHeader>() == 256 && size_of::<Counts>() == 256 && size_of::<ParticipantEntry>() == 256
    );
    assert!(
        size_of::<RankDoorbell>() == 128 && size_of::<Presence>() == 64 && size_of::<ObjectRecord>() == 256
    );
    assert!(offset_of!(WorldHeader, params) == 64 && offset_of!(Counts, deaths) == 128);
    assert!(offset_of!(ParticipantEntry, cpus) == 128 && offset_of!(WorldHeader, object_bytes) == 192);
    assert!(size_of::<WorldControl>() == 256 + 256 + 128 + 128 && size_of::<WorldControl>() <= PAGE as usize);
};

/// Minimum size of a segment, in bytes.
pub(crate) const LEAST: u64 = PAGE;

/// First of the bytes that participants lock, one each: beyond everything that is ever
/// mapped.
pub(crate) const LOCKS: u64 = 1 << 62;

/// Name of a record in the lists: 0 names none.
pub(crate) const fn code_of(record: u64) -> u64 {
    record / 64 + 1
}

/// Offset in the heap of the record with this code, which is not 0.
pub(crate) const fn record_of(code: u64) -> u64 {
    code.wrapping_sub(1).wrapping_mul(64)
}

/// Alignment of a world in memory of the caller's.
pub(crate) const MAPPED_ALIGN: usize = 128;

/// Offsets and lengths in a segment.
///
/// Its arrays are aligned, apart from each other, and end before `end`: only [`Geometry::of`] makes
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    processes: u32,
    entries: u64,
    doorbells: u64,
    presence: u64,
    arrivals: u64,
    buckets: u64,
    bucket_count: u64,
    heap: u64,
    area: u64,
    area_bytes: u64,
    end: u64,
}

/// A range of a segment: offset, and number of elements.
pub(crate) type Range = (u64, usize);

impl Geometry {
    /// The geometry of a world with so many processes, bytes for objects and of the area.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidProcesses`], [`Error::TooLarge`].
    pub fn of(processes: u32, object_bytes: u64, area_bytes: u64) -> Result<Geometry, Error> {
        if !(1..=MOST_PROCESSES).contains(&processes) {
            return Err(Error::InvalidProcesses { wanted: processes, most: MOST_PROCESSES });
        }
        let too_large = || Error::TooLarge(object_bytes.max(area_bytes));
        let pages = |bytes: u64| bytes.checked_next_multiple_of(PAGE).ok_or_else(too_large);
        let heap_bytes = object_bytes.max(OBJECT_BYTES).checked_add(FIRST_RECORDS).ok_or_else(too_large)?;
        let heap_bytes = pages(heap_bytes)?;
        let control = Geometry::control(processes, heap_bytes);
        let heap = pages(control.heap)?;
        let area = heap.checked_add(heap_bytes).ok_or_else(too_large)?;
        let end = area.checked_add(pages(area_bytes)?).ok_or_else(too_large)?;
        // The address space of user programs has 47 bits on x86-64 and at least 39 elsewhere; mmap
        // says the rest.
        if end > 1 << 46 {
            return Err(too_large());
        }
        Ok(Geometry { heap, area, area_bytes, end, ..control })
    }

    /// The geometry of a world of so many bytes in memory of the caller's: no area, and
    /// a heap that takes the rest.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidProcesses`], [`Error::NoRoom`], [`Error::TooLarge`].
    pub fn within(processes: u32, bytes: u64) -> Result<Geometry, Error> {
        if !(1..=MOST_PROCESSES).contains(&processes) {
            return Err(Error::InvalidProcesses { wanted: processes, most: MOST_PROCESSES });
        }
        if bytes > 1 << 46 {
            return Err(Error::TooLarge(bytes));
        }
        // As many lists as all of the memory could have objects for.
        let control = Geometry::control(processes, bytes);
        let least = Geometry::mapped_bytes(processes, &[]);
        if bytes < least || bytes < control.heap {
            return Err(Error::NoRoom { wanted: least.max(control.heap), room: bytes });
        }
        Ok(Geometry { area: bytes, end: bytes, ..control })
    }

    /// Number of bytes of a world in memory of the caller's, with objects of these sizes.
    pub fn mapped_bytes(processes: u32, objects: &[u64]) -> u64 {
        let object = |bytes: &u64| bytes.next_multiple_of(64).saturating_add(OBJECT_BYTES_BESIDE);
        let heap = objects.iter().map(object).fold(0, u64::saturating_add);
        let mut bytes = LEAST.max(heap);
        // More memory has more lists, which take memory.
        while Geometry::control(processes.clamp(1, MOST_PROCESSES), bytes).heap.saturating_add(heap) > bytes {
            bytes = bytes.saturating_add(1024);
        }
        bytes
    }

    /// The parts before a heap of so many bytes, which follows at once.
    fn control(processes: u32, heap_bytes: u64) -> Geometry {
        let bucket_count = (heap_bytes / HEAP_PER_BUCKET).clamp(1, MOST_BUCKETS).next_power_of_two();
        // At most 2³⁰ bytes together: nothing overflows.
        let mut at = size_of::<WorldControl>() as u64;
        let mut take = |bytes: usize, count: u64| {
            let start = at;
            at = (at + bytes as u64 * count).next_multiple_of(128);
            start
        };
        let n = u64::from(processes);
        let (entries, doorbells) =
            (take(size_of::<ParticipantEntry>(), n), take(size_of::<RankDoorbell>(), n));
        let presence = take(size_of::<Presence>(), n.div_ceil(PRESENCE as u64));
        let (arrivals, buckets) = (take(4, n), take(8, bucket_count));
        Geometry {
            processes,
            entries,
            doorbells,
            presence,
            arrivals,
            buckets,
            bucket_count,
            heap: at,
            area: at,
            area_bytes: 0,
            end: at,
        }
    }

    /// The participants' entries.
    pub fn entries(&self) -> Range {
        (self.entries, self.processes as usize)
    }
    /// The doorbells.
    pub fn doorbells(&self) -> Range {
        (self.doorbells, self.processes as usize)
    }
    /// The hints whether ranks run.
    pub fn presence(&self) -> Range {
        (self.presence, (self.processes as usize).div_ceil(PRESENCE))
    }
    /// The episodes of the barrier at which ranks have arrived.
    pub fn arrivals(&self) -> Range {
        (self.arrivals, self.processes as usize)
    }
    /// The heads of the lists of named objects: a power of two of them.
    pub fn buckets(&self) -> Range {
        (self.buckets, self.bucket_count as usize)
    }
    /// Offset of the heap: a multiple of a page, or of 128 in memory of the caller's.
    pub fn heap(&self) -> u64 {
        self.heap
    }
    /// Number of bytes of the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.area - self.heap
    }
    /// Offset of the area: a multiple of a page.
    pub fn area(&self) -> u64 {
        self.area
    }
    /// Number of bytes of the area.
    pub fn area_bytes(&self) -> u64 {
        self.area_bytes
    }
    /// Number of bytes of the segment.
    pub fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arrays_are_aligned_and_apart(
            processes in 1..=MOST_PROCESSES,
            objects in 0..1u64 << 40,
            area in 0..1u64 << 40,
        ) {
            let g = Geometry::of(processes, objects, area).unwrap();
            let mut at = size_of::<WorldControl>() as u64;
            for ((start, count), bytes) in [
                (g.entries(), size_of::<ParticipantEntry>()),
                (g.doorbells(), size_of::<RankDoorbell>()),
                (g.presence(), size_of::<Presence>()),
                (g.arrivals(), 4),
                (g.buckets(), 8),
            ] {
                prop_assert!(start >= at && start.is_multiple_of(128));
                at = start + (count * bytes) as u64;
            }
            prop_assert!(g.heap() >= at && g.area() >= g.heap() + objects.max(OBJECT_BYTES));
            prop_assert!(g.end() >= g.area() + area);
            prop_assert!([g.heap(), g.area(), g.end()].iter().all(|at| at.is_multiple_of(PAGE)));
            prop_assert!(g.buckets().1.is_power_of_two());
        }

        #[test]
        fn codes_name_records(record in 0..1u64 << 40) {
            prop_assert_eq!(record_of(code_of(record * 64)), record * 64);
        }
    }

    proptest! {
        #[test]
        fn world_in_a_mapping_fits(
            processes in 1..=MOST_PROCESSES,
            objects in proptest::collection::vec(0..1u64 << 20, 0..20),
            more in 0..1u64 << 20,
        ) {
            let least = Geometry::mapped_bytes(processes, &objects);
            let heap: u64 = objects.iter().map(|bytes| bytes.next_multiple_of(64) + 384).sum();
            let g = Geometry::within(processes, least).unwrap();
            prop_assert!(g.heap_bytes() >= heap && g.end() == least && g.heap().is_multiple_of(128));
            prop_assert!(g.buckets().0 + 8 * g.buckets().1 as u64 <= g.heap() && g.area() == g.end());
            prop_assert_eq!(Geometry::within(processes, least + more).unwrap().end(), least + more);
        }
    }

    #[test]
    fn mapping_that_is_too_small_is_refused() {
        for bytes in [0, 1, LEAST - 1] {
            assert!(matches!(Geometry::within(1, bytes), Err(Error::NoRoom { room, .. }) if room == bytes));
        }
        assert!(matches!(Geometry::within(4096, 100_000), Err(Error::NoRoom { .. })));
        assert!(matches!(Geometry::within(1, u64::MAX), Err(Error::TooLarge(_))));
        assert!(matches!(Geometry::within(0, 100_000), Err(Error::InvalidProcesses { .. })));
        // A mutex of two processes takes two pages, one of sixteen three.
        assert!(Geometry::mapped_bytes(2, &[128]) <= 4096 && Geometry::mapped_bytes(16, &[128]) <= 3 * 4096);
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for processes in [0, MOST_PROCESSES + 1, u32::MAX] {
            assert!(matches!(Geometry::of(processes, 0, 0), Err(Error::InvalidProcesses { .. })));
        }
        for (objects, area) in [(u64::MAX, 0), (0, u64::MAX), (1 << 46, 0), (u64::MAX - 70_000, 1)] {
            assert!(matches!(Geometry::of(1, objects, area), Err(Error::TooLarge(_))));
        }
    }

    #[test]
    fn empty_directory_takes_little_memory() {
        let control = |processes| Geometry::of(processes, 0, 0).unwrap().heap();
        assert!(control(2) <= 8192 && control(1024) <= 420 << 10, "{}", control(1024));
        // The lists of a heap for 65,536 objects of a word each take 512 KiB.
        let many = Geometry::of(1, 65_536 * 320, 0).unwrap();
        assert!(many.heap() <= 520 << 10);
    }
}
