//! Trace of the locks that a program acquired and released, as `towpath preload --trace`
//! writes it, and its replay.

mod locks;
mod replay;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

pub use locks::TracedLock;
pub use replay::{LockReplay, MOST_LOCKS, ReplayStep};

/// Beginning of the file.
const MAGIC: [u8; 8] = *b"twptrac1";
/// Length of the header, in bytes.
const HEADER: usize = 4096;
/// Length of a record, in bytes.
const RECORD: usize = 16;
/// Number of records in a chunk; the first one names the thread.
const RECORDS: usize = 128;
/// Maximum length of the list of mappings, in bytes.
const LONGEST_LIST: u64 = 64 << 10;
/// Number of bits of a record's first word that are its kind.
const KIND_BITS: u32 = 4;

/// Step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockEventKind {
    /// Beginning of a wait for the lock.
    Waits,
    /// Acquisition, after a wait or without.
    Acquired,
    /// Acquisition beside other readers.
    Shared,
    /// Acquisition by a try, which does not wait.
    Tried,
    /// End of a wait whose time was over.
    GaveUp,
    /// Beginning of a release.
    Released,
    /// Beginning of a wait for a condition: the release that follows is part of it.
    Sleeps,
    /// Address to which the call returns that is about to wait, as the object.
    Site,
    /// Beginning of a wait for a semaphore's unit, or for a barrier's other participants.
    Rests,
    /// End of such a wait.
    Returns,
}

impl LockEventKind {
    /// All, in the order of their numbers from 1.
    const ALL: [LockEventKind; 10] = [
        LockEventKind::Waits,
        LockEventKind::Acquired,
        LockEventKind::Shared,
        LockEventKind::Tried,
        LockEventKind::GaveUp,
        LockEventKind::Released,
        LockEventKind::Sleeps,
        LockEventKind::Site,
        LockEventKind::Rests,
        LockEventKind::Returns,
    ];

    /// Returns whether the object is a lock.
    pub const fn is_about_a_lock(self) -> bool {
        use LockEventKind::{Rests, Returns, Site, Sleeps};
        !matches!(self, Sleeps | Site | Rests | Returns)
    }

    /// Returns whether the thread has the lock from now on.
    pub const fn acquires(self) -> bool {
        matches!(self, LockEventKind::Acquired | LockEventKind::Shared | LockEventKind::Tried)
    }
}

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedEvent {
    /// Nanoseconds since the trace began.
    pub ns: u64,
    /// Kind of the step.
    pub kind: LockEventKind,
    /// Address of the lock or condition.
    pub object: u64,
}

/// Trace of a program's locks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockTrace {
    /// Events of each thread, by its number, in their order.
    pub threads: BTreeMap<u64, Vec<TracedEvent>>,
    /// Number of events for which there was no room.
    pub dropped: u64,
    /// True if the file had room for more: its file system had not.
    pub disk_was_full: bool,
    /// Length, in nanoseconds.
    pub length: u64,
    /// Processor time of the process meanwhile, in nanoseconds.
    pub processor_time: u64,
    /// Number of children of the process, of which there are no events.
    pub forks: u64,
    /// Files that the process had mapped, as the kernel lists them.
    pub mappings: Vec<MappedFile>,
}

/// Part of a file in the process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// First address.
    pub begin: u64,
    /// First address behind it.
    pub end: u64,
    /// Place in the file at which it begins.
    pub offset: u64,
    /// Name of the file.
    pub file: String,
}

impl MappedFile {
    /// The list behind so many chunks; empty if the file ends before.
    fn read(file: &mut File, room: u64, length: u64) -> Vec<MappedFile> {
        let place = room.saturating_mul((RECORD * RECORDS) as u64).saturating_add(HEADER as u64);
        let mut text = Vec::new();
        let has_text = file.seek(SeekFrom::Start(place)).is_ok()
            && file.take(length.min(LONGEST_LIST)).read_to_end(&mut text).is_ok();
        let text = if has_text { String::from_utf8_lossy(&text) } else { "".into() };
        text.lines().filter_map(MappedFile::from_line).collect()
    }

    /// A line of the kernel's list, if it is about a file.
    fn from_line(line: &str) -> Option<MappedFile> {
        let mut words = line.split_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let offset = number(words.nth(1)?)?;
        // No field before the name has a slash; a name may have spaces.
        let file = &line[line.find('/')?..];
        Some(MappedFile { begin: number(begin)?, end: number(end)?, offset, file: file.into() })
    }
}

/// A word of the file.
fn word(bytes: &[u8], index: usize) -> u64 {
    bytes
        .get(8 * index..8 * index + 8)
        .map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

impl LockTrace {
    /// Reads a trace.
    ///
    /// # Errors
    ///
    /// A sentence: the file can't be read, or is no trace, or is damaged.
    pub fn read(path: &Path) -> Result<LockTrace, String> {
        let remedy = "`towpath preload --trace FILE -- PROGRAM` writes one";
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}; {remedy}", path.display());
        let mut file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                format!("{}: {error}; read it as a user that may, or copy it", path.display())
            }
            _ => failed(&error),
        })?;
        let mut header = vec![0; HEADER];
        match file.read_exact(&mut header) {
            Ok(()) if header[..8] == MAGIC => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(failed(&error)),
            _ => return Err(failed(&"this is no trace of locks, or its program has not begun")),
        }
        let [room, claimed, dropped, _, length, processor_time, forks] =
            [1, 2, 3, 4, 5, 6, 7].map(|at| word(&header, at));
        let disk_was_full = dropped > 0 && claimed < room;
        let mut trace =
            LockTrace { dropped, disk_was_full, length, processor_time, forks, ..LockTrace::default() };
        // Read bit by bit: the numbers of a damaged file reserve no memory.
        let mut chunk = vec![0; RECORD * RECORDS];
        for _ in 0..claimed.min(room) {
            file.read_exact(&mut chunk)
                .map_err(|_| failed(&"the file is shorter than it says: copy it whole"))?;
            trace.take(&chunk).map_err(|why| failed(&why))?;
        }
        trace.mappings = MappedFile::read(&mut file, room, word(&header, 8));
        if dropped > 0 {
            // Later ones are those of some threads, which had room left, and the program may have
            // gone on for long.
            for events in trace.threads.values_mut() {
                events.retain(|event| event.ns <= length);
            }
            trace.length = 0;
        }
        let last = trace.threads.values().filter_map(|events| Some(events.last()?.ns)).max();
        trace.length = trace.length.max(last.unwrap_or(0));
        Ok(trace)
    }

    /// Adds the events of a chunk.
    fn take(&mut self, chunk: &[u8]) -> Result<(), &'static str> {
        if word(chunk, 2) == 0 {
            return Ok(());
        }
        let events = self.threads.entry(word(chunk, 1)).or_default();
        for record in chunk.chunks_exact(RECORD).skip(1) {
            let what = word(record, 0);
            if what == 0 {
                break;
            }
            let kind = (what & ((1 << KIND_BITS) - 1)) as usize;
            let kind = kind.checked_sub(1).and_then(|kind| LockEventKind::ALL.get(kind));
            let event = TracedEvent {
                ns: what >> KIND_BITS,
                kind: *kind
                    .ok_or("it has an event of an unknown kind: a newer version of this command reads it")?,
                object: word(record, 1),
            };
            if events.last().is_some_and(|last| last.ns > event.ns) {
                return Err("a thread's events are not in their order: the file is damaged");
            }
            events.push(event);
        }
        Ok(())
    }

    /// Name of an address in the program: the file there and the place in it, as
    /// `addr2line` takes it; or the address.
    pub fn place(&self, address: u64) -> String {
        let found = self.mappings.iter().find(|mapping| (mapping.begin..mapping.end).contains(&address));
        let Some(found) = found else { return format!("{address:#x}") };
        // Of a library or program, addresses are counted from where its first part lies.
        let first = self.mappings.iter().find(|mapping| mapping.file == found.file && mapping.offset == 0);
        let begin = first.map_or(found.begin - found.offset.min(found.begin), |first| first.begin);
        format!("{}+{:#x}", found.file, address - begin)
    }

    /// Number of acquisitions.
    pub fn acquisitions(&self) -> u64 {
        self.threads.values().flatten().filter(|event| event.kind.acquires()).count() as u64
    }
}

#[cfg(test)]
mod tests;
