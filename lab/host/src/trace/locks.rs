//! Figures of each lock of a trace.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{LockEventKind, LockTrace};

/// Figures of a lock. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedLock {
    /// Its address in the program.
    pub address: u64,
    /// Number of threads that acquired it.
    pub threads: usize,
    /// Number of acquisitions.
    pub acquisitions: u64,
    /// Number of acquisitions by another thread than the one before.
    pub hand_overs: u64,
    /// Number of waits, with those that were given up.
    pub waits: u64,
    /// Time of all waits.
    pub waited: u64,
    /// Time of the longest wait.
    pub longest_wait: u64,
    /// Time for which it was held, by all threads.
    pub held: u64,
    /// Time for which it was held longest: the holder's work, or a holder without a core.
    pub longest_hold: u64,
    /// Place in the program from which it was waited for longest, and that time.
    pub site: Option<(u64, u64)>,
}

impl LockTrace {
    /// Figures of each lock, the one that was waited for longest in all first.
    pub fn locks(&self) -> Vec<TracedLock> {
        let mut locks: HashMap<u64, TracedLock> = HashMap::new();
        let mut threads: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        let mut acquisitions: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
        let mut sites: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (thread, events) in &self.threads {
            // Beginnings of the thread's wait, and of its holds, by lock.
            let (mut waits, mut holds) = (None, HashMap::<u64, Vec<u64>>::new());
            let mut site = None;
            for event in events.iter().filter(|event| event.kind != LockEventKind::Sleeps) {
                if event.kind == LockEventKind::Site {
                    site = Some(event.object);
                    continue;
                }
                let lock = locks.entry(event.object).or_default();
                if event.kind == LockEventKind::Waits {
                    waits = Some(event.ns);
                    continue;
                }
                if let Some(begin) = waits.take() {
                    let waited = event.ns - begin;
                    lock.waits += 1;
                    lock.waited += waited;
                    lock.longest_wait = lock.longest_wait.max(waited);
                    if let Some(site) = site.take() {
                        *sites.entry((event.object, site)).or_default() += waited;
                    }
                }
                if event.kind.acquires() {
                    lock.acquisitions += 1;
                    holds.entry(event.object).or_default().push(event.ns);
                    threads.entry(event.object).or_default().insert(*thread);
                    acquisitions.entry((event.object, event.ns)).or_default().push(*thread);
                } else if event.kind == LockEventKind::Released
                    && let Some(begin) = holds.get_mut(&event.object).and_then(Vec::pop)
                {
                    let held = event.ns - begin;
                    lock.held += held;
                    lock.longest_hold = lock.longest_hold.max(held);
                }
            }
        }
        let mut last: Option<(u64, u64)> = None;
        for ((object, _), by) in acquisitions {
            for thread in by {
                let is_next = last.is_some_and(|(before, other)| before == object && other != thread);
                if let Some(lock) = locks.get_mut(&object) {
                    lock.hand_overs += u64::from(is_next);
                }
                last = Some((object, thread));
            }
        }
        for ((object, site), waited) in sites {
            if let Some(lock) = locks.get_mut(&object)
                && lock.site.is_none_or(|(_, most)| most < waited)
            {
                lock.site = Some((site, waited));
            }
        }
        let mut all: Vec<TracedLock> = locks
            .into_iter()
            .filter(|(_, lock)| lock.acquisitions + lock.waits > 0)
            .map(|(address, lock)| TracedLock {
                address,
                threads: threads.get(&address).map_or(0, BTreeSet::len),
                ..lock
            })
            .collect();
        all.sort_by_key(|lock| (std::cmp::Reverse((lock.waited, lock.acquisitions)), lock.address));
        all
    }
}
