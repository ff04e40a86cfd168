//! Falling asleep where one thread polls several domains in one loop.
//!
//! An MPI may open one domain for messages and another for one-sided operations, and poll them in
//! turn (Open MPI does). Who slept in one of them would not hear what comes to the other: a rank
//! that waits for an atomic operation would sleep for as long as nobody sends it a message. So
//! whoever wants to sleep lies down only, and goes on polling, until all domains that its thread
//! polls lie down; the last one sleeps, on all doorbells.
//!
//! Each thread has its own list, and in it are only words that outlive their domain: nothing of
//! another domain is touched but its doorbell. A domain that is no longer polled is forgotten after
//! 64 polls of others. What wakes a sleeper on behalf of another domain does so once: then that
//! domain counts as awake until it lies down again.
//!
//! Where several threads poll the same domains one of them may get a domain up that another one has
//! on its list as lying: then that one may sleep in vain, but not longer than
//! [`Settings::nap`](crate::device::tune::settings::Settings::nap).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use towpath_machine::Native;

use crate::device::connect::attach::Segment;

/// Domains that are polled in one loop are all polled within so many polls.
const ROUND: u64 = 64;

/// How many domains the process has open.
static DOMAINS: AtomicUsize = AtomicUsize::new(0);
/// How many of them know that the ranks share cores.
static OVERSUBSCRIBED: AtomicUsize = AtomicUsize::new(0);
/// Changes when the program is given something by any of them.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// Lives as long as a domain.
#[derive(Debug)]
pub struct Watcher {
    is_oversubscribed: Cell<bool>,
}

impl Watcher {
    /// One more domain.
    #[expect(clippy::new_without_default, reason = "it counts")]
    pub fn new() -> Watcher {
        // Relaxed, here and below: a hint; it orders nothing.
        DOMAINS.fetch_add(1, Ordering::Relaxed);
        Watcher { is_oversubscribed: Cell::new(false) }
    }

    /// What this domain's peers tell of processes and cores.
    pub fn counted(&self, is_oversubscribed: bool) {
        match (self.is_oversubscribed.replace(is_oversubscribed), is_oversubscribed) {
            (false, true) => OVERSUBSCRIBED.fetch_add(1, Ordering::Relaxed),
            (true, false) => OVERSUBSCRIBED.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.counted(false);
        DOMAINS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether there is more than one domain.
#[inline(always)]
pub fn is_needed() -> bool {
    DOMAINS.load(Ordering::Relaxed) > 1
}

/// Whether the ranks share cores, as far as any domain knows: a domain without peers
/// knows of no others.
#[inline(always)]
pub fn is_oversubscribed() -> bool {
    OVERSUBSCRIBED.load(Ordering::Relaxed) > 0
}

/// The program was given something.
#[inline(always)]
pub fn gave() {
    // Relaxed, and not one step: that it changes is all that matters.
    GIVEN.store(GIVEN.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Changes when the program is given something.
pub fn given() -> u64 {
    GIVEN.load(Ordering::Relaxed)
}

/// A doorbell, and how often it had been rung when its owner lay down.
#[derive(Clone)]
struct Bed {
    segment: Weak<Segment>,
    rung: u64,
}

impl Bed {
    fn is_rung(&self) -> bool {
        // Relaxed: whoever looks what has come does so with an Acquire of its own.
        self.segment.upgrade().is_some_and(|s| s.header().doorbell.load(Ordering::Relaxed) != self.rung)
    }
}

struct Mate {
    domain: usize,
    /// The count of polls when it was last polled.
    polled: u64,
    bed: Option<Bed>,
}

#[derive(Default)]
struct Round {
    polls: u64,
    mates: Vec<Mate>,
}

thread_local! {
    static ROUNDS: RefCell<Round> = RefCell::default();
}

/// What the other domains of a loop do.
#[derive(Default)]
pub enum Company {
    /// There are none.
    #[default]
    None,
    /// At least one is not ready to sleep.
    Awake,
    /// All lie: what to sleep on, beside one's own doorbell.
    Lie(Beds),
}

/// The doorbells of those who lie.
pub struct Beds(Vec<(Arc<Segment>, u64)>);

impl Beds {
    /// Sleeps until one of them is rung, or one's own, at most so long.
    pub fn park(&self, own: &Segment, rung: u64, ns: u64) {
        let own = (&*own.header().doorbell, rung);
        let all: Vec<_> = core::iter::once(own)
            .chain(self.0.iter().map(|(s, rung)| (&*s.header().doorbell, *rung)))
            .collect();
        Native::with_id(0).park_on_any(&all, ns);
    }
}

fn with<R: Default>(what: impl FnOnce(&mut Round) -> R) -> R {
    // A thread that ends has no list any more.
    ROUNDS.try_with(|round| what(&mut round.borrow_mut())).unwrap_or_default()
}

/// A poll of this domain, by this thread, was in vain.
pub fn polled(domain: usize) {
    with(|round| {
        round.polls += 1;
        let now = round.polls;
        match round.mates.iter_mut().find(|mate| mate.domain == domain) {
            Some(mate) => mate.polled = now,
            None => {
                round.mates.retain(|mate| mate.is_recent(now));
                round.mates.push(Mate { domain, polled: now, bed: None });
            }
        }
    });
}

impl Mate {
    fn is_recent(&self, now: u64) -> bool {
        now - self.polled < ROUND
    }
}

/// The domain is ready to sleep: its doorbell had been rung so often. What comes from now
/// on rings.
pub fn lie_down(domain: usize, segment: &Arc<Segment>, rung: u64) {
    let bed = Bed { segment: Arc::downgrade(segment), rung };
    with(|round| round.set(domain, Some(bed)));
}

/// It is not, any more.
pub fn get_up(domain: usize) {
    with(|round| round.set(domain, None));
}

impl Round {
    fn set(&mut self, domain: usize, bed: Option<Bed>) {
        if let Some(mate) = self.mates.iter_mut().find(|mate| mate.domain == domain) {
            mate.bed = bed;
        }
    }
}

/// What those do that this thread polls beside this domain.
pub fn company(domain: usize) -> Company {
    with(|round| {
        let now = round.polls;
        let mut beds = Vec::new();
        for mate in round.mates.iter_mut().filter(|mate| mate.domain != domain && mate.is_recent(now)) {
            // Something has come to it: it has to be polled.
            let bed = mate.bed.take_if(|bed| bed.is_rung()).map_or_else(|| mate.bed.as_ref(), |_| None);
            match bed {
                Some(bed) => beds.extend(bed.segment.upgrade().map(|segment| (segment, bed.rung))),
                None => return Company::Awake,
            }
        }
        if beds.is_empty() { Company::None } else { Company::Lie(Beds(beds)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Arc<Segment> {
        Arc::new(Segment::create().unwrap())
    }

    fn ring(segment: &Segment) {
        segment.header().doorbell.fetch_add(1, Ordering::Release);
    }

    #[test]
    fn who_is_polled_alone_sleeps_alone() {
        polled(1);
        assert!(matches!(company(1), Company::None));
        polled(2);
        assert!(matches!(company(1), Company::Awake) && matches!(company(2), Company::Awake));
        // No longer polled.
        for _ in 0..ROUND {
            polled(2);
        }
        assert!(matches!(company(2), Company::None));
        // Another thread's are its own business.
        std::thread::spawn(|| assert!(matches!(company(1), Company::None))).join().unwrap();
    }

    #[test]
    fn the_last_one_sleeps_for_all_and_is_woken_for_each_of_them() {
        let (first, last) = (segment(), segment());
        polled(1);
        polled(2);
        lie_down(1, &first, 0);
        let Company::Lie(beds) = company(2) else { panic!("it lies") };
        // A test that nobody wakes does not end: an hour.
        ring(&first);
        beds.park(&last, 0, 3_600_000_000_000);
        // It has to be looked at before anybody sleeps again.
        assert!(matches!(company(2), Company::Awake));
        lie_down(1, &first, 1);
        let Company::Lie(beds) = company(2) else { panic!("it lies again") };
        ring(&last);
        beds.park(&last, 0, 3_600_000_000_000);
        get_up(1);
        assert!(matches!(company(2), Company::Awake));
    }

    #[test]
    fn a_sleeper_is_woken_through_either_doorbell() {
        let (first, last) = (segment(), segment());
        for rung in [&first, &last] {
            polled(1);
            polled(2);
            lie_down(1, &first, first.header().doorbell.load(Ordering::Relaxed));
            let Company::Lie(beds) = company(2) else { panic!("it lies") };
            let at = last.header().doorbell.load(Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    ring(rung);
                    towpath_machine::Park::wake(&Native::with_id(0), &rung.header().doorbell, u32::MAX);
                });
                beds.park(&last, at, 3_600_000_000_000);
            });
        }
    }

    #[test]
    fn a_domain_that_has_gone_keeps_nobody_awake_or_mapped() {
        let (gone, last) = (segment(), segment());
        polled(1);
        polled(2);
        lie_down(1, &gone, 0);
        drop(gone);
        assert!(matches!(company(2), Company::None));
        drop(last);
    }
}
