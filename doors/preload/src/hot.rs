//! Locks for which threads have waited, the places in the program at which they did, and
//! their holders, for the report at the program's end.
//!
//! The table has a fixed number of places, found by the lock's address; locks for which there is
//! none are counted together, and so are calls of a lock from further places. A lock gets its place
//! when a thread has waited for it: from then on its acquisitions are counted.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use towpath_machine::Processor;

use crate::layout::{MutexWords, caller};
use crate::switches;
use crate::text::TimeText;
use crate::trace::LockEvent;
use crate::waiting::CPU;

/// Number of places in the table.
const PLACES: usize = 1024;
/// Number of places that are tried for an address.
const ATTEMPTS: usize = 8;
/// Number of locks that are reported.
const SHOWN: usize = 10;
/// Number of call sites of a lock. The last one stands for all others, and for calls
/// whose place is not known.
pub const SITES: usize = 5;
/// Number of classes of waits by their time.
pub const CLASSES: usize = 12;
/// Time below which a wait is of the first class, in nanoseconds; that of each further
/// class is four times as long.
const FIRST_CLASS: u64 = 1_000;

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

/// Holders of one lock. Readers beside others are none.
#[derive(Debug)]
struct HolderCounts {
    acquisitions: AtomicU64,
    /// Number of acquisitions by another thread than the last holder.
    hand_overs: AtomicU64,
    /// Number of holders that were preempted before they released.
    preempted: AtomicU64,
    /// Number of holders that slept before they released, and were not preempted.
    slept: AtomicU64,
    /// The last holder ([`caller`]); 0: none is known.
    last: AtomicU64,
    /// Context switches of the holder when it acquired; by the holder.
    switches: [AtomicU64; 2],
}

/// Waits for one lock, and its holders.
#[derive(Debug)]
pub struct HotLock {
    /// Address of the lock; 0: free.
    address: AtomicUsize,
    sites: [CallSite; SITES],
    /// Number of waits of each class.
    classes: [AtomicU64; CLASSES],
    holders: HolderCounts,
}

const fn none() -> AtomicU64 {
    AtomicU64::new(0)
}

static TABLE: [HotLock; PLACES] = [const {
    HotLock {
        address: AtomicUsize::new(0),
        sites: [const { CallSite { address: AtomicUsize::new(0), waits: none(), total: none(), longest: none() } };
            SITES],
        classes: [const { none() }; CLASSES],
        holders: HolderCounts {
            acquisitions: none(),
            hand_overs: none(),
            preempted: none(),
            slept: none(),
            last: none(),
            switches: [const { none() }; 2],
        },
    }
}; PLACES];
/// Number of waits without a place.
static UNPLACED: AtomicU64 = AtomicU64::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Waits and holders are noted from now on.
pub fn switch_on() {
    switches::find_areas();
    MutexWords::show_every_use();
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

/// Notes an acquisition or a release by a thread that holds the lock alone.
#[inline]
fn note_holder(event: LockEvent, address: usize) {
    // Relaxed: set before the program begins; a place's address is only compared.
    if IS_ON.load(Ordering::Relaxed)
        && let Some(place) =
            places_for(address).find(|place| place.address.load(Ordering::Relaxed) == address)
    {
        match event {
            LockEvent::Acquired | LockEvent::Tried => place.holders.begin(),
            LockEvent::Released => place.holders.end(),
            _ => {}
        }
    }
}

/// Notes an event of a thread that holds the lock alone: for the report, and in the
/// trace.
#[inline]
pub fn note_both(event: LockEvent, address: usize) {
    note_holder(event, address);
    crate::trace::note(event, address);
}

/// Returns whether the place has this address from now on.
fn claims(place: &AtomicUsize, address: usize) -> bool {
    // Relaxed: addresses and counts order nothing.
    let taken = place.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
    taken.is_ok() || taken == Err(address)
}

/// The places at which a lock may be.
fn places_for(address: usize) -> impl Iterator<Item = &'static HotLock> {
    let begin = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..ATTEMPTS).map(move |attempt| &TABLE[(begin + attempt) % PLACES])
}

fn note((address, site): (usize, usize), ns: u64) {
    let Some(place) = places_for(address).find(|place| claims(&place.address, address)) else {
        UNPLACED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let [known @ .., others] = &place.sites;
    let known = known.iter().find(|known| site != 0 && claims(&known.address, site));
    known.unwrap_or(others).add(ns);
    let class = (0..CLASSES - 1).find(|class| ns < longest_of(*class)).unwrap_or(CLASSES - 1);
    place.classes[class].fetch_add(1, Ordering::Relaxed);
}

/// Time below which waits of a class are, in nanoseconds. The last class has none.
pub const fn longest_of(class: usize) -> u64 {
    FIRST_CLASS << (2 * class)
}

impl CallSite {
    fn add(&self, ns: u64) {
        // Relaxed, all: counts.
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(ns, Ordering::Relaxed);
        self.longest.fetch_max(ns, Ordering::Relaxed);
    }
}

impl HolderCounts {
    // Relaxed, all: under the lock.
    fn begin(&self) {
        let (me, last) = (caller(), self.last.load(Ordering::Relaxed));
        self.acquisitions.fetch_add(1, Ordering::Relaxed);
        if last != me {
            self.hand_overs.fetch_add(u64::from(last != 0), Ordering::Relaxed);
            self.last.store(me, Ordering::Relaxed);
        }
        let now = switches::counts();
        for (place, count) in self.switches.iter().zip([now.preempted, now.slept]) {
            place.store(count, Ordering::Relaxed);
        }
    }

    fn end(&self) {
        // The lock may have got its place after it was acquired.
        if self.last.load(Ordering::Relaxed) != caller() {
            return;
        }
        let [preempted, slept] = self.switches.each_ref().map(|count| count.load(Ordering::Relaxed));
        let now = switches::counts();
        if now.preempted != preempted {
            self.preempted.fetch_add(1, Ordering::Relaxed);
        } else if now.slept != slept {
            self.slept.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Figures of waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitFigures {
    pub waits: u64,
    /// Nanoseconds in all.
    pub total: u64,
    /// Nanoseconds of the longest wait.
    pub longest: u64,
}

impl WaitFigures {
    /// Adds up the figures of all these places.
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
        let [all, longest] = [self.total, self.longest].map(TimeText);
        write!(f, "{} waits, {all} in all, longest {longest}", self.waits)
    }
}

/// Figures of the holders of a lock since a thread has first waited for it.
#[derive(Clone, Copy, Debug)]
pub struct HolderFigures {
    pub acquisitions: u64,
    /// Number of acquisitions by another thread than the last holder.
    pub hand_overs: u64,
    /// Number of holders that were preempted before they released.
    pub preempted: u64,
    /// Number of holders that slept before they released, and were not preempted.
    pub slept: u64,
}

impl fmt::Display for HolderFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HolderFigures { acquisitions, hand_overs, preempted, slept } = self;
        write!(
            f,
            "{acquisitions} acquisitions, {hand_overs} hand-overs, {preempted} holders preempted, {slept} asleep"
        )
    }
}

impl HotLock {
    pub fn address(&self) -> usize {
        // Relaxed: as in `claims`.
        self.address.load(Ordering::Relaxed)
    }

    /// Figures of all waits.
    pub fn waits(&self) -> WaitFigures {
        WaitFigures::of(&self.sites)
    }

    /// Number of waits of each class.
    pub fn classes(&self) -> [u64; CLASSES] {
        // Relaxed, here and below: counts.
        self.classes.each_ref().map(|class| class.load(Ordering::Relaxed))
    }

    /// Figures of the holders.
    pub fn holders(&self) -> HolderFigures {
        let HolderCounts { acquisitions, hand_overs, preempted, slept, .. } = &self.holders;
        let [acquisitions, hand_overs, preempted, slept] =
            [acquisitions, hand_overs, preempted, slept].map(|count| count.load(Ordering::Relaxed));
        HolderFigures { acquisitions, hand_overs, preempted, slept }
    }

    /// Calls `show` with each call site's address (0: other places) and figures, the one
    /// with the longest waits in all first.
    pub fn each_site(&self, mut show: impl FnMut(usize, WaitFigures)) {
        let total = |site: usize| self.sites[site].total.load(Ordering::Relaxed);
        greatest_first::<SITES>(SITES, total, |index| {
            let site = &self.sites[index];
            show(site.address.load(Ordering::Relaxed), WaitFigures::of(core::slice::from_ref(site)));
        });
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

/// Calls `show` with each of the locks with the longest waits in all, the greatest first.
pub fn each_hot(mut show: impl FnMut(&'static HotLock)) {
    greatest_first::<SHOWN>(PLACES, |index| TABLE[index].waits().total, |index| show(&TABLE[index]));
}

/// Number of waits for locks without a place in the table.
pub fn unplaced() -> u64 {
    // Relaxed: a count.
    UNPLACED.load(Ordering::Relaxed)
}
