//! State behind a world's handle: its header, made by the creator and checked by each
//! process that opens the world, and what the process keeps beside the segment.
//!
//! A segment states its own magic number, layout version, sizes and offsets in its header. The
//! creator writes these words and then `state`, once, before any other process can find the
//! segment. A process that opens the world compares each of them with its own constants, with the
//! segment's length and with the [`Geometry`] that follows from three of them; only then does it
//! look at other parts. After that it uses its own copies (`processes`, `params`, `Parts`): what is
//! written over the header later changes nothing for it.
//!
//! **Fields.** `local`: a page that a fork clears, written by this process. `watched`, `lock`:
//! threads of this process, each under its mutex. All others: never changed.
//!
//! **Crashes.** A creator that dies before (H1) leaves a segment without `READY`: without a name no
//! process finds it, and the kernel frees it. A process that dies later leaves only its entry
//! (`liveness.rs`); its handle is not dropped, so the name of a world whose last process dies stays
//! until `sweep.rs` removes it.
//!
//! **Memory.** One page beside the segment, and up to 64 descriptors of watched processes.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Mutex;

use towpath_machine::Native;

use crate::host_ranks::HostRanks;
use crate::layout::{
    Geometry, LAYOUT_VERSION, MAGIC, MAPPED, MOST_PROCESSES, ParticipantEntry, READY, WorldControl,
};
use crate::local::LocalPage;
use crate::participant::ParticipantId;
use crate::parts::Parts;
use crate::segment::Segment;
use crate::table::ParticipantTable;
use crate::watchlist::Watchlist;
use crate::words::Handles;
use crate::{Error, process, shown, words};

/// Specification of a new world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldSpec {
    /// Its name; `None`: anonymous.
    pub name: Option<String>,
    /// Number of its ranks: 1 to 4,096.
    pub processes: u32,
    /// The length of its area.
    pub area_bytes: u64,
    /// Number of bytes for its named objects together
    /// ([`World::shared`](crate::World::shared)), at least [`OBJECT_BYTES`](crate::OBJECT_BYTES).
    /// The first 64 objects take what their types take; each further one takes 256 bytes more, for
    /// its name and type. Sizes are rounded up to 64.
    pub object_bytes: u64,
    /// Message from the users of the area to processes that open the world.
    pub params: [u64; 16],
}

/// One process's part of a world, shared by the clones of its handle.
///
/// Outside of this crate: surroundings alone.
#[derive(Debug)]
pub struct Inner {
    pub(crate) segment: Parts,
    pub(crate) local: LocalPage,
    pub(crate) processes: u32,
    /// Its ranks on this host, if it spans several.
    pub(crate) host: Option<HostRanks>,
    pub(crate) params: [u64; 16],
    pub(crate) name: Option<(String, PathBuf)>,
    /// The rank that the environment gives to this process.
    pub(crate) suggested: Option<u32>,
    pub(crate) watched: Mutex<Watchlist>,
    /// Holds the lock on this participant's byte.
    pub(crate) lock: Mutex<Option<OwnedFd>>,
}

/// Writes the header of a new segment that no other process can find yet.
pub(crate) fn write_header(
    segment: &Segment,
    spec: &WorldSpec,
    host: Option<HostRanks>,
    geometry: &Geometry,
) {
    let header = &segment.control().header;
    // Relaxed, all but the last: (H1) publishes them.
    let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
    set(&header.magic, MAGIC);
    header.layout.store(LAYOUT_VERSION, Ordering::Relaxed);
    header.control_bytes.store(size_of::<WorldControl>() as u32, Ordering::Relaxed);
    set(&header.bytes, segment.len());
    set(&header.area_offset, geometry.area());
    set(&header.object_bytes, spec.object_bytes);
    set(&header.area_bytes, spec.area_bytes);
    set(&header.processes, u64::from(spec.processes));
    set(&header.creator, u64::from(std::process::id()));
    set(&header.host_ranks, HostRanks::pack(host));
    let is_mapped = segment.file().is_none();
    set(&header.mapped, if is_mapped { process::own_namespace().max(MAPPED) } else { 0 });
    for (word, value) in header.params.iter().zip(spec.params) {
        set(word, value);
    }
    set(&segment.control().counts.switch_cost, Native::switch_cost());
    words::publish_header(&Native::with_id(0), &header.state, READY);
}

/// The caller's memory, in errors.
pub(crate) const MEMORY: &str = "the memory given for a world";

/// Checks each statement of a segment about itself before it is believed.
pub(crate) fn adopt(
    segment: Segment,
    name: Option<(String, PathBuf)>,
    suggested: Option<u32>,
) -> Result<Inner, Error> {
    let header = &segment.control().header;
    let state = words::header_state(&Native::with_id(0), &header.state);
    // Relaxed, here and below: see (H2).
    let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
    if get(&header.magic) != MAGIC {
        let descriptor = if segment.file().is_some() { "the descriptor of this world" } else { MEMORY };
        let what = name.map_or_else(|| descriptor.to_owned(), |(_, path)| shown(path));
        return Err(Error::NotAWorld { what, why: "it does not begin like one" });
    }
    let layout = header.layout.load(Ordering::Relaxed);
    if layout != LAYOUT_VERSION {
        return Err(Error::OtherLayout { here: LAYOUT_VERSION, there: layout });
    }
    if state != READY {
        return Err(Error::Unfinished { creator: get(&header.creator) });
    }
    let expect = |what, found: u64, expected: u64| {
        if found == expected { Ok(()) } else { Err(Error::Damaged { what, found, expected }) }
    };
    expect(
        "the size of the control part",
        header.control_bytes.load(Ordering::Relaxed).into(),
        size_of::<WorldControl>() as u64,
    )?;
    let processes = get(&header.processes);
    expect("the number of processes", processes, processes.clamp(1, MOST_PROCESSES.into()))?;
    let processes = processes as u32;
    let (object_bytes, area_bytes) = (get(&header.object_bytes), get(&header.area_bytes));
    let bytes = segment.len();
    expect("the segment's size", get(&header.bytes), bytes)?;
    let mapped = get(&header.mapped);
    let geometry = match segment.file() {
        Some(_) => {
            expect("the mark of a world in a mapping", mapped, 0)?;
            Geometry::of(processes, object_bytes, area_bytes)
        }
        None if mapped == 0 => {
            return Err(Error::NotAWorld {
                what: MEMORY.to_owned(),
                why: "it is a world with a file of its own",
            });
        }
        None => Geometry::within(processes, bytes),
    };
    let geometry = geometry.map_err(|_| Error::Damaged {
        what: "the number of bytes for objects or of the area",
        found: object_bytes.max(area_bytes),
        expected: bytes,
    })?;
    expect("the area's offset", get(&header.area_offset), geometry.area())?;
    expect("the size of all parts together", geometry.end(), bytes)?;
    let params = std::array::from_fn(|i| get(&header.params[i]));
    let host = HostRanks::unpack(get(&header.host_ranks), processes)?;
    let local = LocalPage::new()?;
    // Relaxed: no other process has this page yet.
    local.opener.store(1, Ordering::Relaxed);
    // Its length was compared above.
    let segment = Parts::new(segment, geometry).ok_or(Error::TooLarge(bytes))?;
    Ok(Inner {
        segment,
        local,
        processes,
        host,
        params,
        name,
        suggested,
        watched: Mutex::new(Watchlist::new(processes)),
        lock: Mutex::new(None),
    })
}

impl ParticipantTable for Inner {
    type Cpu = Native;

    #[inline]
    fn cpu(&self) -> &Native {
        const { &Native::with_id(0) }
    }
    #[inline]
    fn ranks(&self) -> u32 {
        self.processes
    }
    #[inline]
    fn word(&self, index: u32) -> &AtomicU64 {
        &self.entry(index).word
    }
    #[inline]
    fn last_death(&self) -> &AtomicU64 {
        &self.control().counts.deaths
    }
}

impl Inner {
    pub(crate) fn control(&self) -> &WorldControl {
        self.segment.control()
    }

    /// The entry of a rank below `processes`.
    pub(crate) fn entry(&self, index: u32) -> &ParticipantEntry {
        debug_assert!(index < self.processes);
        &self.segment.entries()[index as usize]
    }

    pub(crate) fn me(&self) -> Result<ParticipantId, Error> {
        // Relaxed: written by this process's own call of `enter`.
        match self.local.me.load(Ordering::Relaxed) {
            0 => Err(Error::NotEntered),
            bits => Ok(ParticipantId::from_bits(bits)),
        }
    }
}

impl LocalPage {
    /// The words by which handles prevent this process from leaving.
    pub(crate) fn open_handles(&self) -> Handles<'_, Native> {
        Handles { me: &self.me, handles: &self.handles }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail();
        }
        self.leave();
        // Only the process that opened the world: its children share its lock.
        if let Some((_, path)) = &self.name
            && self.local.opener.load(Ordering::Relaxed) == 1
            && !self.is_inhabited()
        {
            self.segment.unlink_if_last(path);
        }
    }
}
