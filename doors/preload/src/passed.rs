//! Objects that are passed to libc's functions, since this library does not carry their
//! attributes: counted, and reported at the program's end.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::text::ReportLines;

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

/// Adds the counts to the report.
pub fn report(report: &mut ReportLines) {
    for count in &COUNTS {
        let [objects, uses] = [&count.objects, &count.uses].map(|n| n.load(Ordering::Relaxed));
        if objects + uses > 0 {
            report.line(format_args!(
                "passed to libc: {}: {objects} initialised, used {uses} times",
                count.name
            ));
        }
    }
}
