//! Worlds in memory that the caller has mapped: no file, no name, no launcher.
//!
//! The memory is the caller's: a part of a mapping that it shares with other processes, or memory
//! of one process whose threads are the users. The world takes all of it: the participants' table,
//! and a heap for named objects (`layout.rs`). [`InMapping`](crate::InMapping) puts a single
//! object there.
//!
//! **Fields.** `maker`: by compare-and-swap, until the world is ready. All others: as in a segment.
//!
//! **Making.** Zeroed memory has no maker. [`World::open_or_init_in`] claims it: with one
//! compare-and-swap it writes its process into `maker`. Memory that is not zero beside that, before
//! the heap and at its beginning, is the caller's data: it is refused as it was. Then the maker
//! clears all before the heap, writes the header, `magic` first, and stores READY, the last step.
//! Where `magic` is set a dead maker's world was begun: that is begun anew.
//!
//! | if the maker dies | then |
//! | --- | --- |
//! | before its claim | nothing has happened |
//! | before READY | the next process that comes finds it dead, takes its place with one compare-and-swap, and begins anew |
//! | after READY | the world exists; its objects are made as in every world (`directory.rs`) |
//!
//! A maker that is stopped holds the others up; they give up after ten seconds.
//!
//! **Limits.** Without a file there is no lock that the kernel releases at a death. Deaths are seen
//! by pid and start time only, so all processes have to be of the same pid namespace; one of
//! another is refused.
//!
//! **Do not use it** where a named world will do: that finds its processes by name, cleans up after
//! the last one, and spans containers.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_machine::Native;

use crate::inner::{MEMORY, WorldSpec, write_header};
use crate::layout::{Geometry, LEAST, MAGIC, MAPPED, MAPPED_ALIGN, READY};
use crate::process::{self, Dead, ProcessIdentity, Wanted, start_hash};
use crate::segment::Segment;
use crate::{Error, World, words};

/// Maximum time to wait for a maker that is alive.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks.
const NAP: Duration = Duration::from_micros(100);

/// The part of the caller's memory that is aligned.
///
/// # Safety
///
/// As for [`Segment::of_caller`].
unsafe fn segment_in(memory: NonNull<[u8]>) -> Result<Segment, Error> {
    let start = memory.cast::<u8>();
    let skipped = start.as_ptr().align_offset(MAPPED_ALIGN);
    let room = memory.len().saturating_sub(skipped);
    if (room as u64) < LEAST {
        return Err(Error::NoRoom { wanted: LEAST + MAPPED_ALIGN as u64, room: memory.len() as u64 });
    }
    // SAFETY: within the memory: some bytes of it remain (just checked). Aligned, and at least
    // `LEAST` bytes long; the rest are the caller's obligations.
    Ok(unsafe { Segment::of_caller(start.add(skipped), room) })
}

/// This process in the header's `maker`.
fn maker_of(identity: ProcessIdentity) -> u64 {
    u64::from(start_hash(identity.start)) << 32 | u64::from(identity.pid)
}

impl World {
    /// Number of bytes that a world in the caller's memory takes, with objects of these
    /// sizes.
    ///
    /// ```
    /// let bytes = towpath::World::bytes_in(8, &[1000, 64]);
    /// assert!(bytes < 10_000);
    /// ```
    pub fn bytes_in(processes: u32, objects: &[u64]) -> usize {
        // The memory may begin anywhere.
        usize::try_from(Geometry::mapped_bytes(processes, objects)).unwrap_or(usize::MAX - MAPPED_ALIGN)
            + MAPPED_ALIGN
    }

    /// Makes a world of so many ranks in memory that the caller has mapped; enters it.
    ///
    /// It does not matter how the memory was used before. Other processes map the same memory and
    /// call [`World::open_in`].
    ///
    /// The world takes all of the memory: what its own parts leave is for named objects. It has no
    /// area, so no endpoints.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidProcesses`], [`Error::NoRoom`]; the system's.
    ///
    /// # Safety
    ///
    /// * The memory stays mapped, readable and writable, at least as long as a handle of the world
    ///   or of one of its objects exists. With a lock of libc's (`posix`) it stays mapped until the
    ///   process ends.
    /// * All processes and threads access it by such handles only; none has one yet.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use towpath::World;
    ///
    /// // Or a mapping that other processes share.
    /// let memory = Box::leak(vec![0u8; 20_000].into_boxed_slice());
    /// let world = unsafe { World::init_in(NonNull::from(memory), 4)? };
    /// *world.mutex("balance", 100u64)?.lock()? -= 30;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn init_in(memory: NonNull<[u8]>, processes: u32) -> Result<World, Error> {
        // SAFETY: the caller's obligations are the same.
        let segment = unsafe { segment_in(memory) }?;
        let geometry = Geometry::within(processes, segment.len())?;
        make(&segment, processes, &geometry);
        World::enter_mapped(segment)
    }

    /// Opens the world that another process, or thread, has made in this memory.
    ///
    /// The caller enters it as the first free rank. The memory may lie elsewhere in each process.
    ///
    /// # Errors
    ///
    /// [`Error::NotAWorld`], [`Error::Unfinished`]; [`Error::OtherNamespace`];
    /// [`Error::OtherLayout`], [`Error::Damaged`]; [`Error::NoRoom`] if the world is larger than
    /// this memory; [`Error::WorldFull`].
    ///
    /// # Safety
    ///
    /// * As for [`World::init_in`], but others may have handles.
    /// * No process makes a world here anew.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use towpath::World;
    /// # let memory = Box::leak(vec![0u8; 20_000].into_boxed_slice());
    /// # let memory = NonNull::from(memory);
    /// let first = unsafe { World::init_in(memory, 4)? };
    /// let second = unsafe { World::open_in(memory)? }; // in another process, or thread
    /// assert_eq!((first.rank(), second.rank()), (0, 1));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub unsafe fn open_in(memory: NonNull<[u8]>) -> Result<World, Error> {
        // SAFETY: the caller's obligations are the same.
        let whole = unsafe { segment_in(memory) }?;
        let room = whole.len();
        let header = &whole.control().header;
        let state = words::header_state(&Native::with_id(0), &header.state);
        // Relaxed, all: see (H2).
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        if get(&header.magic) != MAGIC {
            let why = "it does not begin like one (another process may not have come so far)";
            return Err(Error::NotAWorld { what: MEMORY.to_owned(), why });
        }
        if state != READY {
            return Err(Error::Unfinished { creator: get(&header.creator) });
        }
        let (mapped, here) = (get(&header.mapped), process::own_namespace().max(MAPPED));
        if mapped > MAPPED && here > MAPPED && mapped != here {
            return Err(Error::OtherNamespace);
        }
        let bytes = get(&header.bytes);
        if bytes > room {
            return Err(Error::NoRoom { wanted: bytes, room });
        }
        // SAFETY: as for `whole`; shorter, and long enough.
        World::enter_mapped(unsafe { Segment::of_caller(whole.base(), bytes.max(LEAST) as usize) })
    }

    /// Opens the world in this memory; makes it first if the memory is still zeroed.
    ///
    /// Processes may do so at the same time, and be killed meanwhile: one of them makes it.
    ///
    /// # Errors
    ///
    /// As [`World::init_in`] and [`World::open_in`]. [`Error::Unfinished`] if the process that
    /// makes it has stood still for ten seconds.
    ///
    /// # Safety
    ///
    /// As for [`World::open_in`]. The memory was zeroed before the first call, and no process has
    /// written to it otherwise.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use towpath::World;
    /// # let memory = Box::leak(vec![0u8; 20_000].into_boxed_slice());
    /// # let memory = NonNull::from(memory);
    /// let world = unsafe { World::open_or_init_in(memory, 4)? }; // the same text in each process
    /// let jobs = world.semaphore("jobs", 2)?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub unsafe fn open_or_init_in(memory: NonNull<[u8]>, processes: u32) -> Result<World, Error> {
        // SAFETY: the caller's obligations are the same.
        let segment = unsafe { segment_in(memory) }?;
        let geometry = Geometry::within(processes, segment.len())?;
        let header = &segment.control().header;
        let (me, since) = (maker_of(ProcessIdentity::own()?), Instant::now());
        while words::header_state(&Native::with_id(0), &header.state) != READY {
            // Relaxed, both: the exchange decides.
            let (magic, maker) = (header.magic.load(Ordering::Relaxed), header.maker.load(Ordering::Relaxed));
            let not_zeroed = || Error::NotAWorld { what: MEMORY.to_owned(), why: "it was not zeroed before" };
            if magic != 0 && (maker == 0 || magic != MAGIC) {
                return Err(not_zeroed());
            }
            if maker == 0 || is_dead(maker) {
                // Relaxed, both: nothing of a dead maker is read; what it wrote and what this
                // process writes are atomic, and the dead write no more.
                if header.maker.compare_exchange(maker, me, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    // From now on no other process makes it, and none that has died meanwhile.
                    let is_made = words::header_state(&Native::with_id(0), &header.state) == READY;
                    // Relaxed: a dead maker's first store, without which there is no other.
                    let is_begun = header.magic.load(Ordering::Relaxed) == MAGIC;
                    if is_made || !is_begun && !is_zeroed(&segment, &geometry) {
                        // Relaxed: nothing was written.
                        header.maker.store(maker, Ordering::Relaxed);
                        if is_made {
                            continue;
                        }
                        return Err(not_zeroed());
                    }
                    make(&segment, processes, &geometry);
                    return World::enter_mapped(segment);
                }
            } else if since.elapsed() > PATIENCE {
                return Err(Error::Unfinished { creator: maker & u64::from(u32::MAX) });
            } else {
                std::thread::sleep(NAP);
            }
        }
        // SAFETY: the caller's obligations are the same; a world is made anew only before it is
        // ready.
        unsafe { World::open_in(memory) }
    }

    fn enter_mapped(segment: Segment) -> Result<World, Error> {
        let world = World::adopt(segment, None, None)?;
        world.enter(None)?;
        Ok(world)
    }
}

/// Returns whether the process that a `maker` names is dead.
fn is_dead(maker: u64) -> bool {
    let (pid, hash) = (maker as u32, (maker >> 32) as u16);
    match process::watch(pid, Wanted::Hash(hash)) {
        Err(Dead) => true,
        Ok(found) => found.pidfd.is_some_and(|pidfd| process::has_ended(&pidfd)),
    }
}

/// The words of so many bytes of the memory, but the one that names the maker.
fn words_beside_maker(segment: &Segment, bytes: u64) -> impl Iterator<Item = &AtomicU64> {
    let keep = &raw const segment.control().header.maker;
    let words = bytes.min(segment.len()) as usize / size_of::<AtomicU64>();
    // SAFETY: within the segment; every bit pattern is an atomic word, and all accesses of other
    // processes are atomic.
    let words = unsafe { core::slice::from_raw_parts(segment.base().cast::<AtomicU64>().as_ptr(), words) };
    words.iter().filter(move |word| !core::ptr::eq(*word, keep))
}

/// Returns whether the memory is zero, apart from the maker's word: the part that a world
/// is written into, and where its first objects will lie.
fn is_zeroed(segment: &Segment, geometry: &Geometry) -> bool {
    /// Bytes of objects that are looked at: a page that is read may be allocated.
    const OBJECTS: u64 = 1 << 12;
    // Relaxed: no other process makes a world here meanwhile.
    words_beside_maker(segment, geometry.heap() + OBJECTS).all(|word| word.load(Ordering::Relaxed) == 0)
}

/// Writes a world into memory in which no process has one.
fn make(segment: &Segment, processes: u32, geometry: &Geometry) {
    // Relaxed, all: (H1) publishes them. A process that finds READY of an earlier world has no
    // business here: no process may open what is made anew.
    words_beside_maker(segment, geometry.heap()).for_each(|word| word.store(0, Ordering::Relaxed));
    let spec = WorldSpec {
        name: None,
        processes,
        area_bytes: 0,
        object_bytes: geometry.heap_bytes(),
        params: [0; 16],
    };
    write_header(segment, &spec, None, geometry);
}

#[cfg(test)]
pub(crate) mod tests {
    use towpath_sync::Mutex;
    use towpath_sync::robust::Event;
    use towpath_testkit::shared_words;

    use super::*;
    use crate::InMapping;

    /// Pages that a fork shares.
    pub(crate) fn memory(bytes: usize) -> NonNull<[u8]> {
        let words = shared_words(bytes.div_ceil(8));
        NonNull::slice_from_raw_parts(NonNull::from(words).cast(), bytes)
    }

    #[test]
    fn mapping_may_lie_anywhere_and_elsewhere_in_each_process() {
        let whole = memory(3 * World::bytes_in(3, &[64]));
        for skip in [0usize, 1, 8, 127, 129] {
            let part = NonNull::slice_from_raw_parts(
                // SAFETY: within the memory, which is much longer.
                unsafe { whole.cast::<u8>().add(skip) },
                World::bytes_in(3, &[64]),
            );
            // SAFETY: mapped for good; the worlds of the last round are gone.
            let world = unsafe { World::init_in(part, 3) }.unwrap();
            world.semaphore("s", 1).unwrap();
            assert!(matches!(world.find::<Event>("s"), Err(Error::OtherType { .. })));
            assert!(matches!(world.find::<Event>("e"), Err(Error::NoSuchObject { .. })));
        }
    }

    #[test]
    fn data_of_the_caller_are_not_made_a_world() {
        const WORDS: usize = 4096;
        let words = shared_words(WORDS);
        let memory = NonNull::slice_from_raw_parts(NonNull::from(words).cast::<u8>(), WORDS * 8);
        let refused = |fill: &dyn Fn(usize) -> u64| {
            words.iter().enumerate().for_each(|(n, word)| word.store(fill(n), Ordering::Relaxed));
            // SAFETY: mapped for good, and used by these worlds only.
            let opened = unsafe { World::open_or_init_in(memory, 2) };
            assert!(matches!(opened, Err(Error::NotAWorld { .. })), "{opened:?}");
            let is_as_it_was =
                words.iter().enumerate().all(|(n, word)| word.load(Ordering::Relaxed) == fill(n));
            assert!(is_as_it_was, "data were changed");
        };
        for byte in [1, 0x41, 0x5a, 0x80, 0xff] {
            refused(&|_| u64::from_le_bytes([byte; 8]));
        }
        // Text somewhere, the rest zero.
        for at in [0, 2, 3, 100, 625] {
            refused(&|n| if n == at { u64::from_le_bytes(*b"the data") } else { 0 });
        }
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        // SAFETY: mapped for good, and used by these worlds only.
        assert!(unsafe { World::open_or_init_in(memory, 2) }.is_ok());
    }

    #[test]
    fn what_is_no_world_is_refused() {
        let memory = memory(20_000);
        let words = shared_words(4096);
        let garbage = NonNull::slice_from_raw_parts(NonNull::from(words).cast::<u8>(), 4096 * 8);
        words[0].store(7, Ordering::Relaxed);
        // SAFETY: mapped for good, and used by these worlds only.
        unsafe {
            assert!(matches!(World::open_in(memory), Err(Error::NotAWorld { .. })));
            assert!(matches!(World::open_in(garbage), Err(Error::NotAWorld { .. })));
            assert!(matches!(World::open_or_init_in(garbage, 2), Err(Error::NotAWorld { .. })));
            let short = NonNull::slice_from_raw_parts(memory.cast(), 1000);
            assert!(matches!(World::init_in(short, 2), Err(Error::NoRoom { room: 1000, .. })));
            assert!(matches!(World::init_in(memory, 0), Err(Error::InvalidProcesses { .. })));
            let world = World::init_in(memory, 2).unwrap();
            let half = NonNull::slice_from_raw_parts(memory.cast(), 10_000);
            assert!(matches!(World::open_in(half), Err(Error::NoRoom { .. })));
            let second = World::open_in(memory).unwrap();
            assert!(matches!(World::open_in(memory), Err(Error::WorldFull { size: 2 })));
            assert!(matches!(second.reopen().and_then(|w| w.enter(None)), Err(Error::WorldFull { .. })));
            assert!(matches!(crate::Handover::new(&world), Err(Error::NotAFile)));
        }
    }

    #[test]
    fn header_that_others_wrote_is_not_believed() {
        let memory = memory(20_000);
        // SAFETY: mapped for good, and used by these worlds only; damage is what is tested.
        unsafe {
            let world = World::init_in(memory, 2).unwrap();
            let header = &world.inner().control().header;
            let sound = header.bytes.load(Ordering::Relaxed);
            for (word, bad) in [
                (&header.bytes, 1),
                (&header.bytes, sound - 128),
                (&header.processes, 0),
                (&header.processes, 1 << 40),
                (&header.processes, 3000),
                (&header.area_offset, 64),
                (&header.mapped, 0),
                (&header.state, 1),
            ] {
                let before = word.swap(bad, Ordering::Relaxed);
                assert!(World::open_in(memory).is_err(), "{bad}");
                word.store(before, Ordering::Relaxed);
            }
            assert!(World::open_in(memory).is_ok());
        }
    }

    #[test]
    fn many_make_it_at_once() {
        for _ in 0..50 {
            let memory = memory(Mutex::<u64>::bytes_in(4));
            let (address, len) = (memory.cast::<u8>().addr(), memory.len());
            let open = || {
                let start = NonNull::with_exposed_provenance(address);
                // SAFETY: mapped for good, zeroed, and used by these worlds only.
                unsafe { World::open_or_init_in(NonNull::slice_from_raw_parts(start, len), 4) }.unwrap()
            };
            memory.cast::<u8>().as_ptr().expose_provenance();
            let mut ranks = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let world = open();
                            *world.mutex("m", 0u64).unwrap().lock().unwrap() += 1;
                            world
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            ranks.sort_by_key(World::rank);
            assert!(ranks.iter().map(World::rank).eq(0..4));
            assert_eq!(*ranks[0].mutex("m", 0u64).unwrap().lock().unwrap(), 4);
        }
    }
}
