//! The locks, and the meaning of their memory, by which the judge knows the right
//! outcome. The survivors don't look.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use towpath_machine::{Concurrent, Native};
use towpath_sync::locks::{Mcs, Posix, Robust, TestAndSet, TestAndTestAndSet, Ticket};
use towpath_sync::{Exclusive, Lock, PARKED};
use towpath_testkit::Child;

use crate::player::Act;

// Ranks. The victim's places in the locks come before the other survivor's, so that `robust` hands
// over to the victim first.
pub const JUDGE: u32 = 0;
pub const VICTIM: u32 = 1;
pub const OTHER: u32 = 2;
pub const FORMER: u32 = 3;

/// Traces of a dead process: a rank, a process id, an identity.
pub struct Dead {
    pub rank: u32,
    pub pid: u64,
    pub identity: u64,
}

/// Finding of a process that locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Consistent,
    OwnerDied,
    Abandoned,
    Poisoned,
}

use Found::{Abandoned, OwnerDied};

/// A lock.
pub trait Subject: Lock<Native> + Exclusive + Concurrent + Send {
    const ACTS: &'static [Act];
    /// Finding of the next process after its death.
    const DEATH: Found;
    /// Returns whether all that come are held up (or are to be told) by that process, if
    /// it dies now.
    fn in_the_way(words: &[AtomicU64], dead: &Dead) -> bool;
    /// Returns whether the other survivor stands in line.
    fn in_line(words: &[AtomicU64], other: &Child) -> bool;
}

impl Subject for Robust<Native> {
    const ACTS: &'static [Act] = &[Act::Alone, Act::Awaited, Act::Behind, Act::Between, Act::Repairing];
    const DEATH: Found = OwnerDied;

    /// `word`: names the owner, which has noticed that it is (bit 31 is off).
    fn in_the_way(words: &[AtomicU64], dead: &Dead) -> bool {
        let word = words[0].load(SeqCst) & !PARKED;
        word >> 32 == dead.identity && word & 1 << 31 == 0
    }

    /// `turns`, a line each, after the head's: a process's first thread has its rank's.
    fn in_line(words: &[AtomicU64], _other: &Child) -> bool {
        words[8 * (1 + OTHER as usize)].load(SeqCst) & !PARKED != 0
    }
}

impl Subject for Posix<Native> {
    const ACTS: &'static [Act] = &[Act::Alone, Act::Awaited, Act::Behind, Act::Between, Act::Repairing];
    const DEATH: Found = OwnerDied;

    /// The word of the kernel's robust futexes, with which glibc's mutex begins:
    /// bits 0 to 29 name the owner, bit 30 says that one died.
    fn in_the_way(words: &[AtomicU64], dead: &Dead) -> bool {
        let word = words[0].load(SeqCst);
        word & 0x3fff_ffff == dead.pid || dead.rank == FORMER && word & 1 << 30 != 0
    }

    fn in_line(_words: &[AtomicU64], other: &Child) -> bool {
        other.is_asleep()
    }
}

pub type Queue = Mcs<Native, 32>;

/// A process's node, as tail and links name it: by its place among the mutex's intents,
/// which lie behind the lock, after a word of their own. Of several processes of a rank it is the
/// last one's.
fn node_of(words: &[AtomicU64], rank: u32) -> Option<u64> {
    let intents = &words[size_of::<Queue>() / 8 + 1..][..32];
    let identity = |place: usize| intents[place].load(SeqCst);
    let place = (0..32).filter(|&p| identity(p) & 0x1fff == u64::from(rank) + 2).max_by_key(|&p| identity(p));
    place.map(|place| place as u64 + 1)
}

impl Subject for Queue {
    const ACTS: &'static [Act] = &[Act::Alone, Act::Awaited, Act::Behind, Act::Between];
    const DEATH: Found = Abandoned;

    /// `tail`: it is the last in the queue.
    fn in_the_way(words: &[AtomicU64], dead: &Dead) -> bool {
        node_of(words, dead.rank) == Some(words[0].load(SeqCst) & !PARKED)
    }

    /// `nodes`, a line each, after the tail's: the other's says that it waits, and
    /// another one that it is next.
    fn in_line(words: &[AtomicU64], _other: &Child) -> bool {
        let word = |node: u64, word: usize| words[8 * node as usize + word].load(SeqCst) & !PARKED;
        let Some(other) = node_of(words, OTHER) else { return false };
        let next = |rank| node_of(words, rank).is_some_and(|node| word(node, 0) == other);
        word(other, 1) == 1 && (next(JUDGE) || next(VICTIM))
    }
}

/// A lock without other users: the only case that is tried with it.
macro_rules! held_by_the_dead_alone {
    ($lock:ident, $words:ident => $in_the_way:expr) => {
        impl Subject for $lock<Native> {
            const ACTS: &'static [Act] = &[Act::Alone];
            const DEATH: Found = Abandoned;
            fn in_the_way($words: &[AtomicU64], _dead: &Dead) -> bool {
                $in_the_way
            }
            fn in_line(_words: &[AtomicU64], _other: &Child) -> bool {
                false
            }
        }
    };
}

held_by_the_dead_alone!(TestAndSet, words => words[0].load(SeqCst) & !PARKED != 0);
held_by_the_dead_alone!(TestAndTestAndSet, words => words[0].load(SeqCst) & !PARKED != 0);
// Drawn, and being served.
held_by_the_dead_alone!(Ticket, words => words[0].load(SeqCst) & !PARKED != words[1].load(SeqCst) & !PARKED);
