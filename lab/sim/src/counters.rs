//! Counters: the events of a run that are counted.

use crate::event_queue::Time;
use crate::request::Op;

/// Maximum number of classes of distance of misses: local, and through 1, 2, …
/// routers (or the classes of a machine without routers).
pub const DISTANCES: usize = 8;

/// The counts of a run. "Received" counts both processors of a node, since the hub
/// delivers to both; "hit" those that had the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Shared accesses of all kinds.
    pub accesses: u64,
    /// Accesses that the cache satisfied at once.
    pub hits: u64,
    /// Lines fetched, by the distance of the supplier.
    pub misses: [u64; DISTANCES],
    /// Lines fetched from another cache.
    pub from_caches: u64,
    /// Requests for ownership of a line that the cache had already.
    pub upgrades: u64,
    /// Read-modify-writes of the processors' own instructions, without compare-and-swaps.
    pub updates: u64,
    /// Compare-and-swaps.
    pub exchanges: u64,
    /// Compare-and-swaps that found another value.
    pub failed_exchanges: u64,
    /// Double compare-and-swaps.
    pub double_exchanges: u64,
    /// Double compare-and-swaps that found other values.
    pub failed_double_exchanges: u64,
    /// Double compare-and-swaps begun anew, since a line was lost between its load and
    /// its store.
    pub double_retries: u64,
    /// Advisory loads.
    pub advisory_loads: u64,
    /// Advisory loads that found the line locked.
    pub advisory_refusals: u64,
    /// Store-conditionals that succeeded.
    pub conditionals: u64,
    /// Store-conditionals that failed.
    pub failed_conditionals: u64,
    /// Store-conditionals that failed at home, after a request.
    pub failed_at_home: u64,
    /// Invalidations sent to nodes (or, on a bus, caches that lost the line).
    pub invalidations: u64,
    /// Invalidations as the processors' counters see them.
    pub invalidations_received: u64,
    /// Invalidations of lines that were there.
    pub invalidations_hit: u64,
    /// Interventions: an owner is asked for its line.
    pub interventions: u64,
    /// Interventions as the processors' counters see them.
    pub interventions_received: u64,
    /// Replies that an invalidation overtook: their lines were used once and not kept.
    pub overtaken: u64,
    /// Requests refused since the line was busy.
    pub refusals: u64,
    /// Operations at memory.
    pub fetch_ops: u64,
    /// Messages that crossed the network.
    pub messages: u64,
    /// Transactions on the bus.
    pub bus_transactions: u64,
    /// Time for which the bus was held (write-once), in picoseconds.
    pub bus_held: Time,
    /// Words that were written through to memory (write-once).
    pub write_throughs: u64,
    /// Changed lines that went back to memory (write-once).
    pub write_backs: u64,
    /// Time for which the busiest home was busy, in picoseconds.
    pub home_busy: Time,
    /// Lines that were thrown out for lack of space.
    pub evictions: u64,
    /// Context switches.
    pub switches: u64,
    /// Context switches at the end of a time slice.
    pub preemptions: u64,
    /// Changes of counts of active threads by the operating system.
    pub active_changes: u64,
    /// Holders of locks that the operating system has rolled back.
    pub roll_backs: u64,
    /// Threads that blocked.
    pub blocks: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Messages that processors sent to other nodes.
    pub sent: u64,
    /// Interrupts by messages.
    pub message_interrupts: u64,
    /// Interrupts by messages of a thread within a critical section.
    pub interrupts_inside: u64,
    /// Time that system calls about messages and their interrupts took, in picoseconds.
    pub kernel_time: Time,
    /// Time that all threads computed, in picoseconds.
    pub computed: Time,
    /// Prefetches that were sent.
    pub prefetches: u64,
    /// Loads that a cache answered with a value that memory no longer held (no
    /// coherence).
    pub stale: u64,
    /// Caches that were written back and emptied as a whole.
    pub flushes: u64,
}

impl Counters {
    /// Counts a read-modify-write that found this value.
    pub(crate) fn update(&mut self, op: Op, old: u64) {
        match op {
            Op::Exchange(expected, _) => {
                self.exchanges += 1;
                self.failed_exchanges += u64::from(old != expected);
            }
            _ => self.updates += 1,
        }
    }

    /// All lines fetched.
    pub fn all_misses(&self) -> u64 {
        self.misses.iter().sum()
    }

    /// Lines fetched from another node.
    pub fn remote_misses(&self) -> u64 {
        self.misses[1..].iter().sum()
    }

    /// The counts between an earlier state and this one.
    pub fn since(&self, start: &Counters) -> Counters {
        let mut misses = self.misses;
        misses.iter_mut().zip(start.misses).for_each(|(a, b)| *a -= b);
        macro_rules! difference {
            ($($field:ident)*) => { Counters { misses, $($field: self.$field - start.$field),* } };
        }
        difference!(accesses hits from_caches upgrades updates exchanges failed_exchanges double_exchanges failed_double_exchanges double_retries advisory_loads
            advisory_refusals bus_held write_throughs write_backs active_changes roll_backs conditionals failed_conditionals failed_at_home invalidations invalidations_received
            invalidations_hit interventions interventions_received overtaken refusals fetch_ops messages bus_transactions home_busy evictions switches
            preemptions blocks interrupts sent message_interrupts interrupts_inside kernel_time computed prefetches stale flushes)
    }
}
