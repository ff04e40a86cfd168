//! Sleep where one thread polls several domains in one loop.
//!
//! An MPI may open one domain for messages and another for one-sided operations, and poll them in
//! turn (Open MPI does). A rank that slept in one of them would not notice frames for the other: it
//! would wait for an atomic operation for as long as no message comes. So a domain that is ready to
//! sleep is only armed, and its thread goes on polling until all domains that it polls are armed;
//! the last one sleeps, on all doorbells.
//!
//! Each thread has a list of its own, and in it are only words that outlive their domain: nothing
//! of another domain is touched but its doorbell. A domain that is no longer polled is forgotten
//! after 64 polls of others. A wake-up on behalf of another domain happens once: then that domain
//! counts as awake until it is armed again.
//!
//! Where several threads poll the same domains, one of them may disarm a domain that another one
//! has on its list as armed: then that one may sleep on although a frame has come, but not longer
//! than [`Settings::nap`](crate::device::tune::settings::Settings::nap).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use towpath_machine::Native;

use crate::device::connect::attach::EndpointSegment;

/// Number of polls within which all domains of one loop are polled.
const RECENT: u64 = 64;

/// Number of domains that the process has open.
static DOMAINS: AtomicUsize = AtomicUsize::new(0);
/// Number of domains that know that the ranks share cores.
static OVERSUBSCRIBED: AtomicUsize = AtomicUsize::new(0);
/// Number of completions that the program was given by any of them.
static COMPLETIONS: AtomicU64 = AtomicU64::new(0);

/// Count of one domain, for as long as it is open.
#[derive(Debug)]
pub struct DomainCount {
    is_oversubscribed: Cell<bool>,
}

impl DomainCount {
    /// Counts one more domain.
    #[expect(clippy::new_without_default, reason = "it counts")]
    pub fn new() -> DomainCount {
        // Relaxed, here and below: a hint; it orders nothing.
        DOMAINS.fetch_add(1, Ordering::Relaxed);
        DomainCount { is_oversubscribed: Cell::new(false) }
    }

    /// Notes whether this domain's peers share cores.
    pub fn note(&self, is_oversubscribed: bool) {
        match (self.is_oversubscribed.replace(is_oversubscribed), is_oversubscribed) {
            (false, true) => OVERSUBSCRIBED.fetch_add(1, Ordering::Relaxed),
            (true, false) => OVERSUBSCRIBED.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Drop for DomainCount {
    fn drop(&mut self) {
        self.note(false);
        DOMAINS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns whether there is more than one domain.
#[inline(always)]
pub fn is_needed() -> bool {
    DOMAINS.load(Ordering::Relaxed) > 1
}

/// Returns whether the ranks share cores, as far as any domain knows: a domain without
/// peers knows of no others.
#[inline(always)]
pub fn is_oversubscribed() -> bool {
    OVERSUBSCRIBED.load(Ordering::Relaxed) > 0
}

/// Counts a completion that the program was given.
#[inline(always)]
pub fn note_completion() {
    // Relaxed, and not one step: readers look only whether it changes.
    COMPLETIONS.store(COMPLETIONS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Number of completions that the program was given; it may skip some.
pub fn completions() -> u64 {
    COMPLETIONS.load(Ordering::Relaxed)
}

/// A doorbell, and its count when its owner was armed.
#[derive(Clone)]
struct Armed {
    segment: Weak<EndpointSegment>,
    count: u64,
}

impl Armed {
    fn has_changed(&self) -> bool {
        // Relaxed: the poll that follows reads with an Acquire of its own.
        self.segment
            .upgrade()
            .is_some_and(|s| s.header().doorbell.count.load(Ordering::Relaxed) != self.count)
    }
}

/// A domain on the list of a thread that polls it.
struct PolledDomain {
    domain: usize,
    /// Count of polls when it was last polled.
    polled: u64,
    armed: Option<Armed>,
}

/// List of the domains that a thread polls.
#[derive(Default)]
struct PolledDomains {
    polls: u64,
    domains: Vec<PolledDomain>,
}

thread_local! {
    static POLLED: RefCell<PolledDomains> = RefCell::default();
}

/// State of the other domains of a loop.
#[derive(Default)]
pub enum Others {
    /// No others.
    #[default]
    None,
    /// Refusal: at least one is not ready to sleep.
    Awake,
    /// All are armed: their doorbells, to sleep on beside one's own.
    Armed(Doorbells),
}

/// Doorbells of armed domains.
pub struct Doorbells(Vec<(Arc<EndpointSegment>, u64)>);

impl Doorbells {
    /// Sleeps until one of them changes, or one's own, at most so long, in nanoseconds.
    pub fn park(&self, own: &EndpointSegment, count: u64, ns: u64) {
        let own = (&*own.header().doorbell.count, count);
        let all: Vec<_> = core::iter::once(own)
            .chain(self.0.iter().map(|(s, count)| (&*s.header().doorbell.count, *count)))
            .collect();
        Native::with_id(0).park_on_any(&all, ns);
    }
}

fn with<R: Default>(what: impl FnOnce(&mut PolledDomains) -> R) -> R {
    // A thread that ends has no list any more.
    POLLED.try_with(|list| what(&mut list.borrow_mut())).unwrap_or_default()
}

/// Notes an empty poll of a domain by this thread.
pub fn polled(domain: usize) {
    with(|list| {
        list.polls += 1;
        let now = list.polls;
        match list.domains.iter_mut().find(|other| other.domain == domain) {
            Some(other) => other.polled = now,
            None => {
                list.domains.retain(|other| other.is_recent(now));
                list.domains.push(PolledDomain { domain, polled: now, armed: None });
            }
        }
    });
}

impl PolledDomain {
    fn is_recent(&self, now: u64) -> bool {
        now - self.polled < RECENT
    }
}

/// Arms a domain: it is ready to sleep, and its doorbell has this count. Frames that come
/// from now on change it.
pub fn arm(domain: usize, segment: &Arc<EndpointSegment>, count: u64) {
    let armed = Armed { segment: Arc::downgrade(segment), count };
    with(|list| list.set(domain, Some(armed)));
}

/// Disarms a domain.
pub fn disarm(domain: usize) {
    with(|list| list.set(domain, None));
}

impl PolledDomains {
    fn set(&mut self, domain: usize, armed: Option<Armed>) {
        if let Some(other) = self.domains.iter_mut().find(|other| other.domain == domain) {
            other.armed = armed;
        }
    }
}

/// State of the domains that this thread polls beside this one.
pub fn others(domain: usize) -> Others {
    with(|list| {
        let now = list.polls;
        let mut doorbells = Vec::new();
        for other in list.domains.iter_mut().filter(|other| other.domain != domain && other.is_recent(now)) {
            // A frame has come to it: it has to be polled.
            let armed = other
                .armed
                .take_if(|armed| armed.has_changed())
                .map_or_else(|| other.armed.as_ref(), |_| None);
            match armed {
                Some(armed) => {
                    doorbells.extend(armed.segment.upgrade().map(|segment| (segment, armed.count)))
                }
                None => return Others::Awake,
            }
        }
        if doorbells.is_empty() { Others::None } else { Others::Armed(Doorbells(doorbells)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Arc<EndpointSegment> {
        Arc::new(EndpointSegment::create().unwrap())
    }

    fn wake(segment: &EndpointSegment) {
        // Release: in the place of (D2); pairs with the Acquire (D1) in `doorbell.rs` of the room
        // channel.
        segment.header().doorbell.count.fetch_add(1, Ordering::Release);
    }

    #[test]
    fn domain_polled_alone_sleeps_alone() {
        polled(1);
        assert!(matches!(others(1), Others::None));
        polled(2);
        assert!(matches!(others(1), Others::Awake) && matches!(others(2), Others::Awake));
        // No longer polled.
        for _ in 0..RECENT {
            polled(2);
        }
        assert!(matches!(others(2), Others::None));
        // Another thread's are its own business.
        std::thread::spawn(|| assert!(matches!(others(1), Others::None))).join().unwrap();
    }

    #[test]
    fn last_armed_domain_sleeps_for_all() {
        let (first, last) = (segment(), segment());
        polled(1);
        polled(2);
        arm(1, &first, 0);
        let Others::Armed(doorbells) = others(2) else { panic!("armed") };
        // Without a wake-up the test does not end: an hour.
        wake(&first);
        doorbells.park(&last, 0, 3_600_000_000_000);
        // It has to be polled before any domain sleeps again.
        assert!(matches!(others(2), Others::Awake));
        arm(1, &first, 1);
        let Others::Armed(doorbells) = others(2) else { panic!("armed again") };
        wake(&last);
        doorbells.park(&last, 0, 3_600_000_000_000);
        disarm(1);
        assert!(matches!(others(2), Others::Awake));
    }

    #[test]
    fn sleeper_wakes_through_either_doorbell() {
        let (first, last) = (segment(), segment());
        for woken in [&first, &last] {
            polled(1);
            polled(2);
            arm(1, &first, first.header().doorbell.count.load(Ordering::Relaxed));
            let Others::Armed(doorbells) = others(2) else { panic!("armed") };
            let at = last.header().doorbell.count.load(Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    wake(woken);
                    towpath_machine::Park::wake(
                        &Native::with_id(0),
                        &woken.header().doorbell.count,
                        u32::MAX,
                    );
                });
                doorbells.park(&last, at, 3_600_000_000_000);
            });
        }
    }

    #[test]
    fn closed_domain_keeps_nothing_awake_or_mapped() {
        let (gone, last) = (segment(), segment());
        polled(1);
        polled(2);
        arm(1, &gone, 0);
        drop(gone);
        assert!(matches!(others(2), Others::None));
        drop(last);
    }
}
