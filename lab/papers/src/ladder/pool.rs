//! The shared pool: memory for the data of messages that do not fit into a packet,
//! allocated under a lock (Gropp & Lusk 1997, Section 5: "there is a single shared pool").
//!
//! First fit in a table of regions that lie one after the other; neighbours that are both free are
//! joined.
//!
//! **Fields.** All of them only under the lock. **Crashes.** None are survived; what a process has
//! allocated when it dies stays so.

use towpath_machine::{Arena, OwnLine, Place, Processor};
use towpath_sync::Waiting;

use super::LadderLock;

/// Regions in the table.
const REGIONS: usize = 64;

/// The table: for each region its length, and whether it is in use. Region 0 starts at 0,
/// each other where the one before ends. A length of 0 ends the table.
#[repr(C)]
pub struct PoolTable<P: Processor> {
    regions: OwnLine<[FreeRegion<P>; REGIONS]>,
}

#[repr(C)]
struct FreeRegion<P: Processor> {
    len: P::Cell,
    used: P::Cell,
}

impl<P: Processor> PoolTable<P> {
    /// Makes a pool without regions.
    pub fn new(arena: &impl Arena<P>) -> Self {
        let cell = |place| arena.cell(place, 0);
        let region = |_| FreeRegion { len: cell(Place::NewLine), used: cell(Place::SameLine) };
        PoolTable { regions: OwnLine(core::array::from_fn(region)) }
    }
}

/// The pool.
pub struct Pool<'a, P: Processor, X> {
    /// Its table.
    pub table: &'a PoolTable<P>,
    /// Its bytes.
    pub bytes: &'a P::Bytes,
    /// Number of bytes.
    pub size: usize,
    /// Its lock.
    pub lock: X,
}

impl<P: Processor, X: LadderLock<P>> Pool<'_, P, X> {
    /// Makes everything one free region. Before any process uses it.
    pub fn prepare(&self, cpu: &P) {
        cpu.write(&self.table.regions.0[0].len, self.size as u64);
    }

    /// The longest piece that is allocated at one time: half of the pool, so that both
    /// directions can move.
    pub fn longest_piece(&self) -> usize {
        self.size / 2
    }

    fn region(&self, n: usize) -> &FreeRegion<P> {
        &self.table.regions.0[n]
    }

    fn get(&self, cpu: &P, n: usize) -> (u64, bool) {
        (cpu.read(&self.region(n).len), cpu.read(&self.region(n).used) != 0)
    }

    fn set(&self, cpu: &P, n: usize, (len, used): (u64, bool)) {
        cpu.write(&self.region(n).len, len);
        cpu.write(&self.region(n).used, used.into());
    }

    /// Number of regions.
    fn regions(&self, cpu: &P) -> usize {
        (0..REGIONS).take_while(|&n| self.get(cpu, n).0 > 0).count()
    }

    /// Allocates; `None` if there is no such piece at this moment.
    pub fn allocate<W: Waiting<P>>(&self, cpu: &P, wait: &W, len: usize) -> Option<usize> {
        let want = len.next_multiple_of(64) as u64;
        self.lock.enter(cpu, wait);
        let regions = self.regions(cpu);
        let (mut at, mut found) = (0, None);
        for n in 0..regions {
            let (len, used) = self.get(cpu, n);
            if !used && (len == want || len > want && regions < REGIONS) {
                found = Some((n, len));
                break;
            }
            at += len;
        }
        if let Some((n, len)) = found {
            if len > want {
                for m in (n + 1..=regions.min(REGIONS - 1)).rev() {
                    let moved = self.get(cpu, m - 1);
                    self.set(cpu, m, moved);
                }
                self.set(cpu, n + 1, (len - want, false));
            }
            self.set(cpu, n, (want, true));
        }
        self.lock.leave(cpu, wait);
        found.map(|_| at as usize)
    }

    /// Gives a piece back.
    pub fn free<W: Waiting<P>>(&self, cpu: &P, wait: &W, at: usize) {
        self.lock.enter(cpu, wait);
        let mut regions = self.regions(cpu);
        let mut start = 0;
        let mut n = 0;
        while n < regions && start < at as u64 {
            start += self.get(cpu, n).0;
            n += 1;
        }
        debug_assert!(n < regions && start == at as u64, "a piece that was never allocated");
        let len = self.get(cpu, n).0;
        self.set(cpu, n, (len, false));
        // With the one behind, then with the one before.
        for first in [Some(n), n.checked_sub(1)].into_iter().flatten() {
            if first + 1 >= regions {
                continue;
            }
            let ((a, a_used), (b, b_used)) = (self.get(cpu, first), self.get(cpu, first + 1));
            if a_used || b_used {
                continue;
            }
            self.set(cpu, first, (a + b, false));
            for m in first + 1..regions - 1 {
                let moved = self.get(cpu, m + 1);
                self.set(cpu, m, moved);
            }
            self.set(cpu, regions - 1, (0, false));
            regions -= 1;
        }
        self.lock.leave(cpu, wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_machine::{Heap, Native, Random};
    use towpath_sync::locks::TestAndSet;
    use towpath_sync::{Lock, Spinning};

    #[test]
    fn pieces_never_overlap_and_all_of_it_comes_back() {
        let cpu = Native::with_id(0);
        let (table, bytes) = (PoolTable::new(&Heap), Arena::<Native>::bytes(&Heap, 64));
        let lock = TestAndSet::<Native>::new(&Heap);
        let pool = Pool { table: &table, bytes: &bytes, size: 64 * 100, lock: &lock };
        pool.prepare(&cpu);
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut random = Random::new(1);
        for step in 0..20_000 {
            if random.below(2) == 0 && !held.is_empty() {
                let (at, _) = held.swap_remove(random.below(held.len() as u64) as usize);
                pool.free(&cpu, &Spinning, at);
            } else {
                let len = 1 + random.below(900) as usize;
                if let Some(at) = pool.allocate(&cpu, &Spinning, len) {
                    assert!(at % 64 == 0 && at + len <= pool.size);
                    let free = held.iter().all(|&(a, l)| at + len <= a || a + l <= at);
                    assert!(free, "step {step}: {len} at {at} overlaps one of {held:?}");
                    held.push((at, len));
                }
            }
        }
        held.into_iter().for_each(|(at, _)| pool.free(&cpu, &Spinning, at));
        assert_eq!(pool.allocate(&cpu, &Spinning, pool.size), Some(0), "joined to one region again");
    }
}
