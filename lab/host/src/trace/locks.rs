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
        let mut locks: HashMap<u64, LockUses> = HashMap::new();
        for (thread, events) in &self.threads {
            // Beginning of the thread's wait, and the place from which it waits.
            let (mut waits, mut site) = (None, None);
            for event in events {
                if event.kind == LockEventKind::Site {
                    site = Some(event.object);
                }
                if !event.kind.is_about_a_lock() {
                    continue;
                }
                let lock = locks.entry(event.object).or_default();
                if event.kind == LockEventKind::Waits {
                    waits = Some(event.ns);
                    continue;
                }
                if let Some(begin) = waits.take() {
                    lock.has_waited(event.ns - begin, site.take());
                }
                if event.kind.acquires() {
                    lock.begin(*thread, event.ns);
                } else if event.kind == LockEventKind::Released {
                    lock.end(event.ns);
                }
            }
            // A hold that has no end is none of the next thread's.
            locks.values_mut().for_each(|lock| lock.holds.clear());
        }
        let used = locks.into_iter().filter(|(_, lock)| lock.figures.acquisitions + lock.figures.waits > 0);
        let mut all: Vec<TracedLock> = used.map(|(address, lock)| lock.into_figures(address)).collect();
        all.sort_by_key(|lock| (std::cmp::Reverse((lock.waited, lock.acquisitions)), lock.address));
        all
    }
}

/// Uses of a lock, thread by thread.
#[derive(Default)]
struct LockUses {
    figures: TracedLock,
    /// Times and threads of acquisitions.
    acquisitions: Vec<(u64, u64)>,
    /// Beginnings of the present thread's holds.
    holds: Vec<u64>,
    /// Time of the waits from each place.
    sites: BTreeMap<u64, u64>,
}

impl LockUses {
    fn has_waited(&mut self, waited: u64, site: Option<u64>) {
        self.figures.waits += 1;
        self.figures.waited += waited;
        self.figures.longest_wait = self.figures.longest_wait.max(waited);
        if let Some(site) = site {
            *self.sites.entry(site).or_default() += waited;
        }
    }

    fn begin(&mut self, thread: u64, ns: u64) {
        self.figures.acquisitions += 1;
        self.acquisitions.push((ns, thread));
        self.holds.push(ns);
    }

    fn end(&mut self, ns: u64) {
        if let Some(begin) = self.holds.pop() {
            self.figures.held += ns - begin;
            self.figures.longest_hold = self.figures.longest_hold.max(ns - begin);
        }
    }

    fn into_figures(mut self, address: u64) -> TracedLock {
        self.acquisitions.sort_by_key(|(ns, _)| *ns);
        let threads: BTreeSet<u64> = self.acquisitions.iter().map(|(_, thread)| *thread).collect();
        let hand_overs = self.acquisitions.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        // The first of those that are as long.
        let site = self.sites.into_iter().max_by_key(|(site, waited)| (*waited, std::cmp::Reverse(*site)));
        TracedLock { address, threads: threads.len(), hand_overs: hand_overs as u64, site, ..self.figures }
    }
}
