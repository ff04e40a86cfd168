//! Locks for which threads have waited, for the report at the program's end.
//!
//! Only waits are noted: an acquisition without one costs nothing more. The table has a fixed
//! number of places, found by the lock's address; locks for which there is none are counted
//! together.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use towpath_machine::Processor;

use crate::passed::ReportLines;
use crate::waiting::CPU;

/// Number of places in the table.
const PLACES: usize = 1024;
/// Number of places that are tried for an address.
const ATTEMPTS: usize = 8;
/// Number of locks that are reported.
const SHOWN: usize = 10;

/// Waits for one lock.
#[derive(Debug)]
struct HotLock {
    /// Address of the lock; 0: free.
    address: AtomicUsize,
    waits: AtomicU64,
    /// Nanoseconds in all.
    total: AtomicU64,
    /// Nanoseconds of the longest wait.
    longest: AtomicU64,
}

static TABLE: [HotLock; PLACES] = [const {
    HotLock {
        address: AtomicUsize::new(0),
        waits: AtomicU64::new(0),
        total: AtomicU64::new(0),
        longest: AtomicU64::new(0),
    }
}; PLACES];
/// Number of waits without a place.
static UNPLACED: AtomicU64 = AtomicU64::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Waits are noted from now on.
pub fn switch_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Waits by `wait` for the lock at this address, and notes how long it took.
#[inline]
pub fn noted<T>(address: usize, wait: impl FnOnce() -> T) -> T {
    // Relaxed: set before the program begins.
    if !IS_ON.load(Ordering::Relaxed) {
        return wait();
    }
    let start = CPU.now();
    let result = wait();
    note(address, CPU.now().saturating_sub(start));
    result
}

fn note(address: usize, ns: u64) {
    // Relaxed, all: counts.
    let begin = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for attempt in 0..ATTEMPTS {
        let place = &TABLE[(begin + attempt) % PLACES];
        let taken = place.address.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() || taken == Err(address) {
            place.waits.fetch_add(1, Ordering::Relaxed);
            place.total.fetch_add(ns, Ordering::Relaxed);
            place.longest.fetch_max(ns, Ordering::Relaxed);
            return;
        }
    }
    UNPLACED.fetch_add(1, Ordering::Relaxed);
}

/// Adds the locks with the longest waits in all to the report.
pub fn report(report: &mut ReportLines) {
    let total = |index: usize| TABLE[index].total.load(Ordering::Relaxed);
    let (mut shown, mut count) = ([usize::MAX; SHOWN], 0);
    while count < SHOWN {
        let left = (0..PLACES).filter(|index| total(*index) > 0 && !shown[..count].contains(index));
        let Some(most) = left.max_by_key(|index| total(*index)) else { break };
        shown[count] = most;
        count += 1;
    }
    for index in &shown[..count] {
        let place = &TABLE[*index];
        let waits = place.waits.load(Ordering::Relaxed);
        let [all, longest] = [&place.total, &place.longest].map(|ns| ns.load(Ordering::Relaxed) / 1_000);
        let address = place.address.load(Ordering::Relaxed);
        let (symbol, file) = place_of(address);
        report.line(format_args!(
            "lock {address:#x} ({symbol}{}{file}): {waits} waits, {all} µs in all, longest {longest} µs",
            if symbol.is_empty() || file.is_empty() { "" } else { " in " },
        ));
    }
    let unplaced = UNPLACED.load(Ordering::Relaxed);
    if unplaced > 0 {
        report.line(format_args!("other locks: {unplaced} waits"));
    }
}

/// Symbol and file of a static object at this address; empty where there is none.
fn place_of(address: usize) -> (&'static str, &'static str) {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let text = |text: *const libc::c_char| {
        if text.is_null() {
            return "";
        }
        // SAFETY: a name in a loaded file, which ends with zero and stays until the end.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
    };
    // SAFETY: `dladdr` takes any address, and fills in the place if it succeeds.
    unsafe {
        match libc::dladdr(core::ptr::without_provenance(address), found.as_mut_ptr()) {
            0 => ("on the heap or a stack", ""),
            _ => (text(found.assume_init().dli_sname), text(found.assume_init().dli_fname)),
        }
    }
}
