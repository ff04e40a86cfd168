//! Trace of the locks that threads acquire and release, in a file that this process maps.
//!
//! A thread claims a chunk of records in the file and fills it; the order of a thread's chunks is
//! that of its events. When the file is full, events are counted and left out: the file has the
//! program's beginning. It remains if the program is killed. docs/preload.md has the
//! format; the laboratory reads it (`lab/host/src/trace`).
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use towpath_machine::Processor;

use crate::layout::MutexWords;
use crate::text::write;
use crate::waiting::CPU;

/// Beginning of the file, with the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"twptrac1");
/// Length of the header, in bytes.
const HEADER: usize = 4096;
/// Number of records in a chunk; the first one names the thread.
const RECORDS: usize = 128;
/// Room for the list of the process's mappings behind the chunks, in bytes.
const MAPPINGS: usize = 64 << 10;
/// Number of bits of a record's first word that are its kind.
const KIND_BITS: u32 = 4;
/// `MADV_POPULATE_WRITE`, of Linux 5.14 and later.
const POPULATE: core::ffi::c_int = 23;

/// Step of a thread.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum LockEvent {
    /// Beginning of a wait for the lock.
    Waits = 1,
    /// Acquisition, after a wait or without.
    Acquired = 2,
    /// Acquisition beside other readers.
    Shared = 3,
    /// Acquisition by a try, which does not wait.
    Tried = 4,
    /// End of a wait whose time was over.
    GaveUp = 5,
    /// Beginning of a release.
    Released = 6,
    /// Beginning of a wait for a condition: the release that follows is part of it.
    Sleeps = 7,
    /// Address to which the call returns that is about to wait.
    Site = 8,
    /// Beginning of a wait for a semaphore's unit, or for a barrier's other participants.
    Rests = 9,
    /// End of such a wait.
    Returns = 10,
}

/// Words at the beginning of the file.
#[derive(Debug)]
#[repr(C)]
struct TraceHeader {
    magic: AtomicU64,
    /// Number of chunks for which there is room.
    room: AtomicU64,
    /// Number of chunks that were claimed, or were to be.
    claimed: AtomicU64,
    /// Number of events that were left out.
    dropped: AtomicU64,
    /// Time at which the trace began, in nanoseconds of the monotonic clock.
    start: AtomicU64,
    /// Time until which there are events for certain.
    end: AtomicU64,
    /// Processor time of the process between both, in nanoseconds.
    processor_time: AtomicU64,
    /// Number of children of this process, of which there are no events.
    forks: AtomicU64,
    /// Length of the list of the process's mappings, in bytes.
    mappings: AtomicU64,
}

/// A record of the file.
#[derive(Debug)]
#[repr(C)]
struct TraceRecord {
    what: AtomicU64,
    object: AtomicU64,
}

static HEADER_AT: AtomicPtr<TraceHeader> = AtomicPtr::new(core::ptr::null_mut());
/// The file system has no room for another chunk.
static IS_FULL: AtomicBool = AtomicBool::new(false);
/// Word that is 1 in this process, and 0 in children that a system call has made, past
/// libc's functions (`MADV_WIPEONFORK`). None: kernels before Linux 4.14.
static OWN: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// Processor time of the process when the trace began.
static PROCESSOR_TIME: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Index of the calling thread's next record; at the end of a chunk: it has none.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Notes an event, if there is a trace.
#[inline]
pub fn note(event: LockEvent, object: usize) {
    // Relaxed: mapped before the program begins.
    let header = HEADER_AT.load(Ordering::Relaxed);
    if !header.is_null() {
        // SAFETY: mapped, and never unmapped.
        write_down(unsafe { &*header }, event, object);
    }
}

/// Notes the address from which a call came that is about to wait, if it is known.
pub fn note_site(site: usize) {
    if site != 0 {
        note(LockEvent::Site, site);
    }
}

#[cold]
fn write_down(header: &TraceHeader, event: LockEvent, object: usize) {
    if is_child() {
        // Relaxed, both: this process has no other thread; a count. The file is its parent's.
        HEADER_AT.store(core::ptr::null_mut(), Ordering::Relaxed);
        header.forks.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let now = CPU.now().saturating_sub(header.start.load(Ordering::Relaxed));
    // It fails when the thread ends: it has no place any more.
    let _ = NEXT.try_with(|next| {
        if next.get() % RECORDS as u64 == 0 {
            let Some(first) = claim(header, now) else { return };
            next.set(first);
        }
        let at = next.get();
        next.set(at + 1);
        let record = record(header, at);
        // Relaxed, all: read when the program has ended.
        record.object.store(object as u64, Ordering::Relaxed);
        record.what.store(now << KIND_BITS | event as u64, Ordering::Relaxed);
    });
}

/// Returns whether this process is a child of the one whose trace this is, of which no
/// function of libc's has told.
fn is_child() -> bool {
    // Relaxed, both: written before the program begins; the kernel clears it at a fork.
    let own = OWN.load(Ordering::Relaxed);
    // SAFETY: null, or mapped and never unmapped.
    !own.is_null() && unsafe { &*own }.load(Ordering::Relaxed) == 0
}

/// Makes the word that is cleared in children.
fn mark_as_own() {
    // SAFETY: no preconditions; a new mapping of a page, which belongs to nothing else.
    unsafe {
        let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(HEADER);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(core::ptr::null_mut(), page, access, flags, -1, 0);
        if at == libc::MAP_FAILED || libc::madvise(at, page, libc::MADV_WIPEONFORK) != 0 {
            return;
        }
        let word = at.cast::<AtomicU64>();
        // Relaxed, both: no other thread uses them yet.
        (*word).store(1, Ordering::Relaxed);
        OWN.store(word, Ordering::Relaxed);
    }
}

fn record(header: &TraceHeader, index: u64) -> &TraceRecord {
    // SAFETY: `claim` has found room for the index in the file, which is mapped whole.
    unsafe {
        let first = core::ptr::from_ref(header).cast::<u8>().add(HEADER).cast::<TraceRecord>();
        &*first.add(index as usize)
    }
}

/// Notes the time until which there are events, and the processor time until then.
fn note_end(header: &TraceHeader, now: u64) {
    // Relaxed, all: other threads may still write events.
    header.end.fetch_max(now, Ordering::Relaxed);
    let used = processor_time().saturating_sub(PROCESSOR_TIME.load(Ordering::Relaxed));
    header.processor_time.fetch_max(used, Ordering::Relaxed);
}

/// A chunk for the calling thread. Returns the index of its first free record.
fn claim(header: &TraceHeader, now: u64) -> Option<u64> {
    // Relaxed, all: each number is given once. Looked at first: when the file is full, each event
    // comes here, and the number must not wrap.
    let room = header.room.load(Ordering::Relaxed);
    let is_full = IS_FULL.load(Ordering::Relaxed) || header.claimed.load(Ordering::Relaxed) >= room;
    let mut chunk = if is_full { room } else { header.claimed.fetch_add(1, Ordering::Relaxed) };
    if chunk < room && !has_room(record(header, chunk * RECORDS as u64), RECORDS * size_of::<TraceRecord>()) {
        IS_FULL.store(true, Ordering::Relaxed);
        chunk = room;
    }
    if chunk >= room {
        // From here on it is not complete.
        if header.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            note_end(header, now);
        }
        return None;
    }
    note_end(header, now);
    let first = chunk * RECORDS as u64;
    // SAFETY: no preconditions.
    let thread = unsafe { libc::gettid() } as u64;
    record(header, first).object.store(thread, Ordering::Relaxed);
    Some(first + 1)
}

/// Returns whether the file system has room for so many bytes of the mapped file: where
/// it has none, a write would end the program (`SIGBUS`).
///
/// Kernels that can't be asked are trusted.
fn has_room<T>(begin: &T, length: usize) -> bool {
    let begin = core::ptr::from_ref(begin).cast_mut().cast::<libc::c_void>();
    // SAFETY: no preconditions. The pages are of the mapping, which the caller has of this length
    // from here on; the call fills them in, and changes nothing that is there.
    unsafe {
        let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(HEADER);
        let before = begin.addr() % page;
        // Programs count on their variable across pthread's functions.
        let (errno, kept) = (libc::__errno_location(), *libc::__errno_location());
        let asked = libc::madvise(begin.wrapping_byte_sub(before), before + length, POPULATE);
        let has_room = asked == 0 || *errno != libc::EFAULT;
        *errno = kept;
        has_room
    }
}

/// Processor time that this process has used, in nanoseconds.
fn processor_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time; the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Makes a file of this length anew, and maps it.
///
/// # Errors
///
/// Cause and remedy.
fn map(file: &CStr, length: usize) -> Result<&'static TraceHeader, &'static str> {
    // SAFETY: a name that ends with zero; places for the answers, which are filled in where the
    // calls succeed; a new mapping of the kernel's choice, of the file's length.
    unsafe {
        let mut most = MaybeUninit::<libc::rlimit>::uninit();
        if libc::getrlimit(libc::RLIMIT_FSIZE, most.as_mut_ptr()) == 0
            && most.assume_init().rlim_cur < length as libc::rlim_t
        {
            return Err(
                "its file would be longer than files may be here: raise that (`ulimit -f`), or name a smaller number of --trace-events, of 16 bytes each",
            );
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        let descriptor = libc::open(file.as_ptr(), flags, 0o644);
        if descriptor < 0 {
            return Err("its file can't be written: name one in a folder that the program may write to");
        }
        let has_length = libc::ftruncate(descriptor, length as libc::off_t) == 0;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let at = match has_length {
            true => libc::mmap(core::ptr::null_mut(), length, access, libc::MAP_SHARED, descriptor, 0),
            false => libc::MAP_FAILED,
        };
        libc::close(descriptor);
        if !has_length {
            return Err(
                "its file can't get its length: name an ordinary file, on a file system with room for it",
            );
        }
        if at == libc::MAP_FAILED {
            return Err(
                "it does not fit into the program's address space: raise that (`ulimit -v`), or name a smaller number of --trace-events, of 16 bytes each",
            );
        }
        let header = &*at.cast::<TraceHeader>();
        let list = &*at.cast::<u8>().add(length - MAPPINGS);
        match has_room(header, HEADER) && has_room(list, MAPPINGS) {
            true => Ok(header),
            false => Err("the file system has no room for its file: make some, or name a file elsewhere"),
        }
    }
}

/// Begins a trace of about so many events in this file, which is made anew.
pub fn begin(file: &CStr, events: u64) {
    let chunks = events.div_ceil(RECORDS as u64 - 1).max(1);
    let length = HEADER + chunks as usize * RECORDS * size_of::<TraceRecord>() + MAPPINGS;
    let header = match map(file, length) {
        Ok(header) => header,
        Err(why) => {
            let none = "libtowpath-pthread: there is no trace: ";
            for part in [none, why, "\n"] {
                write(part.as_bytes());
            }
            return;
        }
    };
    // Relaxed, all: no other thread uses it yet.
    header.room.store(chunks, Ordering::Relaxed);
    header.start.store(CPU.now(), Ordering::Relaxed);
    header.magic.store(MAGIC, Ordering::Relaxed);
    PROCESSOR_TIME.store(processor_time(), Ordering::Relaxed);
    list_mappings(header);
    // SAFETY: functions that stay until the end.
    unsafe {
        libc::atexit(end);
        libc::pthread_atfork(Some(before_fork), None, Some(in_child));
    }
    mark_as_own();
    MutexWords::show_every_use();
    HEADER_AT.store(core::ptr::from_ref(header).cast_mut(), Ordering::Relaxed);
}

fn header() -> Option<&'static TraceHeader> {
    // SAFETY: null, or mapped and never unmapped.
    unsafe { HEADER_AT.load(Ordering::Relaxed).as_ref() }
}

extern "C" fn end() {
    if is_child() {
        return;
    }
    if let Some(header) = header() {
        // Relaxed, both: other threads may still write events.
        if header.dropped.load(Ordering::Relaxed) == 0 {
            note_end(header, CPU.now() - header.start.load(Ordering::Relaxed));
        }
        list_mappings(header);
    }
}

/// Copies the kernel's list of this process's mappings into the file, as far as it fits.
fn list_mappings(header: &TraceHeader) {
    let mut length = 0;
    // SAFETY: a name that ends with zero; room behind the chunks, which are mapped, for as much as
    // is read.
    unsafe {
        let descriptor = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if descriptor < 0 {
            return;
        }
        let chunks = header.room.load(Ordering::Relaxed) as usize * RECORDS * size_of::<TraceRecord>();
        let begin = core::ptr::from_ref(header).cast_mut().cast::<u8>().add(HEADER + chunks);
        while length < MAPPINGS {
            let read = libc::read(descriptor, begin.add(length).cast(), MAPPINGS - length);
            let Ok(read @ 1..) = usize::try_from(read) else { break };
            length += read;
        }
        libc::close(descriptor);
    }
    // Relaxed: read when the program has ended.
    header.mappings.store(length as u64, Ordering::Relaxed);
}

unsafe extern "C" fn before_fork() {
    if let Some(header) = header() {
        header.forks.fetch_add(1, Ordering::Relaxed);
    }
}

/// The child has no trace: the file is its parent's.
unsafe extern "C" fn in_child() {
    HEADER_AT.store(core::ptr::null_mut(), Ordering::Relaxed);
}
