//! Objects that are passed to libc's functions, since this library does not carry their
//! attributes: counted, and reported at the program's end.
#![allow(unsafe_code)]

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::start;

/// Kind of an object.
#[derive(Clone, Copy, Debug)]
pub enum Passed {
    /// Robust, process-shared, priority-inheriting or priority-protecting mutex.
    Mutex,
    /// Process-shared condition.
    Condition,
    /// Process-shared readers–writer lock.
    RwLock,
}

/// Counts of a kind.
#[derive(Debug)]
struct PassedCount {
    name: &'static str,
    /// Number of objects that this process has initialised.
    objects: AtomicU64,
    /// Number of acquisitions or waits.
    uses: AtomicU64,
}

impl PassedCount {
    const fn of(name: &'static str) -> PassedCount {
        PassedCount { name, objects: AtomicU64::new(0), uses: AtomicU64::new(0) }
    }
}

static COUNTS: [PassedCount; 3] = [
    PassedCount::of("mutexes (robust, process-shared or with priorities)"),
    PassedCount::of("conditions (process-shared)"),
    PassedCount::of("readers–writer locks (process-shared)"),
];

/// Counts an object that is initialised.
pub fn count_object(kind: Passed) {
    // Relaxed: counts, here and below.
    COUNTS[kind as usize].objects.fetch_add(1, Ordering::Relaxed);
}

/// Counts a use.
pub fn count(kind: Passed) {
    COUNTS[kind as usize].uses.fetch_add(1, Ordering::Relaxed);
}

/// Has the counts written when the program ends.
pub fn report_at_exit() {
    // SAFETY: the library stays loaded until the end.
    unsafe { libc::atexit(report) };
}

/// Text of a limited length, without allocation.
struct FixedText {
    bytes: [u8; 256],
    length: usize,
}

impl Write for FixedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

extern "C" fn report() {
    let mut is_any = false;
    for count in &COUNTS {
        let [objects, uses] = [&count.objects, &count.uses].map(|n| n.load(Ordering::Relaxed));
        if objects + uses == 0 {
            continue;
        }
        is_any = true;
        let mut line = FixedText { bytes: [0; 256], length: 0 };
        // It has room for these.
        let _ = writeln!(
            line,
            "towpath preload: passed to libc: {}: {objects} initialised, used {uses} times",
            count.name
        );
        start::write(&line.bytes[..line.length]);
    }
    if !is_any {
        start::write(b"towpath preload: passed to libc: nothing\n");
    }
}
