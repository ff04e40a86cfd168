//! Objects that are passed to libc's functions, since this library does not carry their
//! attributes: counted, and reported at the program's end.
#![allow(unsafe_code)]

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{hot, start};

/// Kind of an object.
#[derive(Clone, Copy, Debug)]
pub enum Passed {
    /// Robust, process-shared, priority-inheriting or priority-protecting mutex.
    Mutex,
    /// Process-shared condition.
    Condition,
    /// Process-shared readers–writer lock.
    RwLock,
    /// Process-shared barrier.
    Barrier,
    /// Process-shared or named semaphore.
    Semaphore,
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

static COUNTS: [PassedCount; 5] = [
    PassedCount::of("mutexes (robust, process-shared or with priorities)"),
    PassedCount::of("conditions (process-shared)"),
    PassedCount::of("readers–writer locks (process-shared)"),
    PassedCount::of("barriers (process-shared)"),
    PassedCount::of("semaphores (process-shared or named)"),
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

/// Process that writes a report in any case: that of the program that the user has named.
static MAIN: AtomicU64 = AtomicU64::new(0);

/// Has the counts and the waits written when the program ends.
pub fn report_at_exit(main: u64) {
    MAIN.store(main, Ordering::Relaxed);
    hot::switch_on();
    // SAFETY: the library stays loaded until the end.
    unsafe { libc::atexit(report) };
}

/// Lines on standard error, without allocation.
#[derive(Debug)]
pub struct ReportLines {
    /// Number of lines so far.
    lines: u32,
}

/// Text of a limited length.
struct FixedText {
    bytes: [u8; 512],
    length: usize,
}

impl Write for FixedText {
    /// Leaves out the rest of a text that is too long.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let fits = text.len().min(room.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

impl ReportLines {
    /// Writes a line.
    pub fn line(&mut self, text: fmt::Arguments<'_>) {
        let mut line = FixedText { bytes: [0; 512], length: 0 };
        // SAFETY: no preconditions.
        let process = unsafe { libc::getpid() };
        // It fails never.
        let _ = writeln!(line, "towpath preload: process {process}: {text}");
        start::write(&line.bytes[..line.length]);
        self.lines += 1;
    }
}

extern "C" fn report() {
    let mut report = ReportLines { lines: 0 };
    hot::report(&mut report);
    for count in &COUNTS {
        let [objects, uses] = [&count.objects, &count.uses].map(|n| n.load(Ordering::Relaxed));
        if objects + uses > 0 {
            report.line(format_args!(
                "passed to libc: {}: {objects} initialised, used {uses} times",
                count.name
            ));
        }
    }
    // SAFETY: no preconditions.
    let is_main = unsafe { libc::getpid() } as u64 == MAIN.load(Ordering::Relaxed);
    if report.lines == 0 && is_main {
        report.line(format_args!("no thread has waited for a lock, and nothing was passed to libc"));
    }
}
