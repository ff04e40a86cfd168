//! Locks for which threads have waited, and the places in the program at which they did,
//! for the report at the program's end.
//!
//! Only waits are noted: an acquisition without one costs nothing more. The table has a fixed
//! number of places, found by the lock's address; locks for which there is none are counted
//! together, and so are calls of a lock from further places.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::fmt;
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
/// Number of call sites of a lock. The last one stands for all others, and for calls
/// whose place is not known.
const SITES: usize = 5;

/// Waits for one lock, from one place.
#[derive(Debug)]
struct CallSite {
    /// Address to which the call returns; 0: free.
    address: AtomicUsize,
    waits: AtomicU64,
    /// Nanoseconds in all.
    total: AtomicU64,
    /// Nanoseconds of the longest wait.
    longest: AtomicU64,
}

/// Waits for one lock.
#[derive(Debug)]
struct HotLock {
    /// Address of the lock; 0: free.
    address: AtomicUsize,
    sites: [CallSite; SITES],
}

static TABLE: [HotLock; PLACES] = [const {
    HotLock {
        address: AtomicUsize::new(0),
        sites: [const {
            CallSite {
                address: AtomicUsize::new(0),
                waits: AtomicU64::new(0),
                total: AtomicU64::new(0),
                longest: AtomicU64::new(0),
            }
        }; SITES],
    }
}; PLACES];
/// Number of waits without a place.
static UNPLACED: AtomicU64 = AtomicU64::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Waits are noted from now on.
pub fn switch_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Waits by `wait` for the lock at the first address, for a call that returns to the
/// second one, and notes how long it took.
#[inline]
pub fn noted<T>(places: (usize, usize), wait: impl FnOnce() -> T) -> T {
    // Relaxed: set before the program begins.
    if !IS_ON.load(Ordering::Relaxed) {
        return wait();
    }
    let start = CPU.now();
    let result = wait();
    note(places, CPU.now().saturating_sub(start));
    result
}

/// Returns whether the place has this address from now on.
fn claims(place: &AtomicUsize, address: usize) -> bool {
    // Relaxed: addresses and counts order nothing.
    let taken = place.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
    taken.is_ok() || taken == Err(address)
}

fn note((address, site): (usize, usize), ns: u64) {
    let begin = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut places = (0..ATTEMPTS).map(|attempt| &TABLE[(begin + attempt) % PLACES]);
    let Some(place) = places.find(|place| claims(&place.address, address)) else {
        UNPLACED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let [known @ .., others] = &place.sites;
    let known = known.iter().find(|known| site != 0 && claims(&known.address, site));
    known.unwrap_or(others).add(ns);
}

impl CallSite {
    fn add(&self, ns: u64) {
        // Relaxed, all: counts.
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(ns, Ordering::Relaxed);
        self.longest.fetch_max(ns, Ordering::Relaxed);
    }
}

/// Figures of waits.
#[derive(Clone, Copy)]
struct WaitFigures {
    waits: u64,
    total: u64,
    longest: u64,
}

impl WaitFigures {
    /// Those of all these places together.
    fn of(sites: &[CallSite]) -> WaitFigures {
        // Relaxed, all: counts.
        let of =
            |count: fn(&CallSite) -> &AtomicU64| sites.iter().map(move |s| count(s).load(Ordering::Relaxed));
        WaitFigures {
            waits: of(|site| &site.waits).sum(),
            total: of(|site| &site.total).sum(),
            longest: of(|site| &site.longest).max().unwrap_or(0),
        }
    }
}

impl fmt::Display for WaitFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [all, longest] = [self.total, self.longest].map(|ns| ns / 1_000);
        write!(f, "{} waits, {all} µs in all, longest {longest} µs", self.waits)
    }
}

/// Calls `show` with the index of each entry that has a total, the greatest first, at
/// most `N`.
fn greatest_first<const N: usize>(entries: usize, total: impl Fn(usize) -> u64, mut show: impl FnMut(usize)) {
    let mut shown = [usize::MAX; N];
    for count in 0..N {
        let left = (0..entries).filter(|index| total(*index) > 0 && !shown[..count].contains(index));
        let Some(most) = left.max_by_key(|index| total(*index)) else { break };
        shown[count] = most;
        show(most);
    }
}

/// Adds the locks with the longest waits in all to the report, each with its call sites.
pub fn report(report: &mut ReportLines) {
    let total = |index: usize| WaitFigures::of(&TABLE[index].sites).total;
    greatest_first::<SHOWN>(PLACES, total, |index| {
        let HotLock { address, sites } = &TABLE[index];
        // Relaxed, here and below: as in `note`.
        let place = NamedPlace::of(address.load(Ordering::Relaxed), true);
        report.line(format_args!("lock {place}: {}", WaitFigures::of(sites)));
        let total = |site: usize| sites[site].total.load(Ordering::Relaxed);
        greatest_first::<SITES>(SITES, total, |site| {
            let figures = WaitFigures::of(&sites[site..=site]);
            match sites[site].address.load(Ordering::Relaxed) {
                0 => report.line(format_args!("    from other places: {figures}")),
                address => {
                    report.line(format_args!("    from {}: {figures}", NamedPlace::of(address, false)))
                }
            }
        });
    });
    // Relaxed: a count.
    let unplaced = UNPLACED.load(Ordering::Relaxed);
    if unplaced > 0 {
        report.line(format_args!("other locks: {unplaced} waits"));
    }
}

/// Address in the program, with the names that the loader knows.
struct NamedPlace {
    address: usize,
    /// True if an object lies there; or else it is code.
    is_object: bool,
    /// Name and address of the symbol; empty where there is none.
    symbol: (&'static str, usize),
    /// Name and beginning of the loaded file; empty where there is none.
    file: (&'static str, usize),
}

impl NamedPlace {
    fn of(address: usize, is_object: bool) -> NamedPlace {
        let mut found = MaybeUninit::<libc::Dl_info>::uninit();
        let text = |text: *const libc::c_char| {
            if text.is_null() {
                return "";
            }
            // SAFETY: a name in a loaded file, which ends with zero and stays until the end.
            unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
        };
        // The address to which a call returns may be another function's beginning.
        let inside = if is_object { address } else { address - 1 };
        // SAFETY: `dladdr` takes any address, and fills in the place if it succeeds.
        unsafe {
            if libc::dladdr(core::ptr::without_provenance(inside), found.as_mut_ptr()) == 0 {
                return NamedPlace { address, is_object, symbol: ("", 0), file: ("", 0) };
            }
            let found = found.assume_init();
            let symbol = (text(found.dli_sname), found.dli_saddr.addr());
            NamedPlace { address, is_object, symbol, file: (text(found.dli_fname), found.dli_fbase.addr()) }
        }
    }
}

impl fmt::Display for NamedPlace {
    /// Address, symbol and distance from it, file and place there, as debuggers take it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamedPlace { address, symbol: (symbol, at), file: (file, begin), .. } = *self;
        write!(f, "{address:#x}")?;
        if file.is_empty() {
            return f.write_str(if self.is_object { " (on the heap or a stack)" } else { " (in no file)" });
        }
        f.write_str(" (")?;
        if !symbol.is_empty() {
            write!(f, "{symbol}")?;
            if address != at {
                write!(f, "+{:#x}", address - at)?;
            }
            f.write_str(" in ")?;
        }
        write!(f, "{file}+{:#x})", address - begin)
    }
}
