//! The board that participants and supervisor share beside the structure: counts,
//! latencies, lives, orders.

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::Native;
use towpath_shm::Memory;
use towpath_structures::dcas::Actor;
use towpath_sync::{Policy, Surroundings, Wait, is_oversubscribed};

use towpath_host::Error;

/// Maximum number of participants.
pub const MOST: usize = 32;
/// The supervisor's number, which it uses the structure under.
pub const SUPERVISOR: usize = MOST;
/// All of them.
pub const ALL: usize = MOST + 1;
/// Number of items or keys whose whereabouts are written down when participants are
/// killed.
pub const TOKENS: usize = 256;

/// Steps of an eighth from one power of two to the next, up to 2⁴⁰ ns.
const BUCKETS: usize = 8 * 38 + 8;
/// Number of words of a participant, and their places.
const DESK: usize = 512;
const LATENCIES: usize = 64;
const HALT: usize = 32;
/// Words of all together.
const COMMON: usize = 64;

/// The shared words.
#[derive(Clone, Copy)]
pub struct Board<'a> {
    words: &'a [AtomicU64],
}

/// Histogram of the operations' times.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Vec<u64>);

impl<'a> Board<'a> {
    /// Memory for one.
    pub fn memory() -> Result<Memory, Error> {
        let words = COMMON + DESK * ALL + TOKENS;
        Memory::anonymous(words as u64 * 8).map_err(|e| Error::Other(Box::new(e)))
    }

    /// The board in that memory.
    pub fn new(memory: &'a Memory) -> Result<Board<'a>, Error> {
        let words = memory.slice::<AtomicU64>(0, memory.len() / 8).map_err(|e| Error::Other(Box::new(e)))?;
        Ok(Board { words })
    }

    /// Order to end, if not 0.
    pub fn end(&self) -> &'a AtomicU64 {
        &self.words[0]
    }
    /// A bit for each participant that has been started.
    pub fn entered(&self) -> &'a AtomicU64 {
        &self.words[16]
    }
    /// A bit for each that sleeps in a lock.
    fn asleep(&self) -> &'a AtomicU64 {
        &self.words[17]
    }
    /// Number of items that came out twice, were there though they should not be, or had
    /// other contents.
    pub fn inconsistent(&self) -> &'a AtomicU64 {
        &self.words[32]
    }
    /// Number of items that should be there and were not.
    pub fn lost(&self) -> &'a AtomicU64 {
        &self.words[33]
    }
    /// The place of an item.
    pub fn token(&self, number: usize) -> &'a AtomicU64 {
        &self.words[COMMON + DESK * ALL + number % TOKENS]
    }

    fn desk(&self, me: usize, word: usize) -> &'a AtomicU64 {
        &self.words[COMMON + DESK * me.min(SUPERVISOR) + word]
    }
    /// Number of operations that a participant has ended.
    pub fn done(&self, me: usize) -> &'a AtomicU64 {
        self.desk(me, 0)
    }
    /// The number of its present life, while it is alive; 0: it is dead.
    pub fn life(&self, me: usize) -> &'a AtomicU64 {
        self.desk(me, 1)
    }
    /// A participant's reason for giving up; 0 if it has not.
    pub fn failed(&self, me: usize) -> &'a AtomicU64 {
        self.desk(me, 2)
    }
    /// Its thread's number.
    pub fn thread(&self, me: usize) -> &'a AtomicU64 {
        self.desk(me, 3)
    }
    /// A participant's intent, when participants are killed.
    pub fn intent(&self, me: usize) -> &'a AtomicU64 {
        self.desk(me, 4)
    }
    /// A participant's keys that are in the structure, when participants are killed.
    pub fn present(&self, me: usize) -> &'a AtomicU64 {
        self.desk(me, 5)
    }
    /// 1: the thread shall stop; 2: it has stopped.
    pub fn halt(&self, me: usize) -> &'a AtomicU64 {
        self.desk(me, HALT)
    }

    /// Writes down that an operation took so long. Only for the participant itself.
    pub fn note(&self, me: usize, ns: u64) {
        let word = self.desk(me, LATENCIES + bucket(ns));
        // Relaxed, here and below: counts, which order nothing.
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Times of the operations so far, over all participants.
    pub fn latencies(&self) -> Latencies {
        let all =
            |bucket| (0..MOST).map(|me| self.desk(me, LATENCIES + bucket).load(Ordering::Relaxed)).sum();
        Latencies((0..BUCKETS).map(all).collect())
    }

    /// Number of operations that all have ended so far.
    pub fn operations(&self) -> u64 {
        (0..MOST).map(|me| self.done(me).load(Ordering::Relaxed)).sum()
    }

    /// A participant's life begins.
    pub fn begin(&self, me: usize, life: u64) {
        // Relaxed, here and below: written before the process or thread is started, or after its
        // death is known; hints otherwise.
        self.life(me).store(life, Ordering::Relaxed);
        self.entered().fetch_or(1 << me, Ordering::Relaxed);
    }

    /// A participant's death is known.
    pub fn over(&self, me: usize) {
        self.life(me).store(0, Ordering::Relaxed);
        self.entered().fetch_and(!(1 << me), Ordering::Relaxed);
        self.asleep().fetch_and(!(1 << me), Ordering::Relaxed);
    }
}

fn bucket(ns: u64) -> usize {
    let exponent = 63 - (ns | 8).leading_zeros() as usize;
    let index = (exponent - 3) * 8 + (ns >> (exponent - 3)) as usize;
    index.min(BUCKETS - 1)
}

/// The middle of a bucket.
fn value(bucket: usize) -> f64 {
    if bucket < 16 {
        return bucket as f64;
    }
    let step = (1u64 << (bucket / 8 - 1)) as f64;
    (8 + bucket % 8) as f64 * step + step / 2.0
}

impl Latencies {
    /// The operations since an earlier state.
    pub fn since(&self, before: &Latencies) -> Latencies {
        Latencies(self.0.iter().zip(&before.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// The `part` (0 to 1) of all took no longer, in nanoseconds; nothing if there are
    /// none.
    pub fn percentile(&self, part: f64) -> Option<f64> {
        let total: u64 = self.0.iter().sum();
        let target = (total as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen >= target
        });
        found.filter(|_| total > 0).map(value)
    }
}

/// A participant, as the surroundings that locks ask.
pub struct BoardSurroundings<'a> {
    board: Board<'a>,
    me: usize,
    cores: u32,
    identity: u32,
}

impl<'a> BoardSurroundings<'a> {
    /// The surroundings of a participant in its present life.
    pub fn new(board: Board<'a>, me: usize) -> BoardSurroundings<'a> {
        let cores = towpath_cores();
        // Relaxed: written before it was started.
        let life = board.life(me).load(Ordering::Relaxed);
        BoardSurroundings { board, me, cores, identity: identity(me, life) }
    }
}

/// Number of cores that this process may use.
fn towpath_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

fn identity(me: usize, life: u64) -> u32 {
    ((life as u32) << 7 | (me as u32 + 1)) & 0x7fff_ffff
}

impl Surroundings for BoardSurroundings<'_> {
    fn oversubscribed(&self) -> bool {
        // Relaxed, here and below: hints.
        let running =
            self.board.entered().load(Ordering::Relaxed) & !self.board.asleep().load(Ordering::Relaxed);
        is_oversubscribed(running.count_ones().into(), self.cores.into())
    }
    fn identity(&self) -> u32 {
        self.identity
    }
    fn is_alive(&self, other: u32) -> bool {
        let Some(number) = (other as usize & 0x7f).checked_sub(1).filter(|number| *number < ALL) else {
            return true;
        };
        let life = self.board.life(number).load(Ordering::Relaxed);
        life != 0 && identity(number, life) == other
    }
    fn asleep(&self, asleep: bool) {
        let bit = 1 << self.me;
        if asleep {
            self.board.asleep().fetch_or(bit, Ordering::Relaxed);
        } else {
            self.board.asleep().fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// An acting participant, and its way of waiting.
pub struct BoardMember<'a> {
    /// Its number.
    pub me: usize,
    /// Its processor.
    pub cpu: Native,
    /// Its way of waiting.
    pub wait: Wait<'a>,
}

impl<'a> BoardMember<'a> {
    /// A participant, or the supervisor.
    pub fn new(around: &'a BoardSurroundings<'a>, policy: Policy) -> BoardMember<'a> {
        let wait = Wait { policy, around, budget: Native::switch_cost() };
        BoardMember { me: around.me, cpu: Native::with_id(around.me as u32), wait }
    }

    /// Its number in the structures.
    #[inline(always)]
    pub fn actor(&self) -> Actor<'_, Native, Wait<'a>> {
        Actor { cpu: &self.cpu, wait: &self.wait, me: self.me }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_found_within_an_eighth() {
        let memory = Board::memory().unwrap();
        let board = Board::new(&memory).unwrap();
        for ns in 1..=1000 {
            board.note(3, ns);
        }
        let before = board.latencies();
        let median = before.percentile(0.5).unwrap();
        assert!((450.0..=550.0).contains(&median), "{median}");
        board.note(4, 5_000_000);
        let since = board.latencies().since(&before);
        let one = since.percentile(0.999).unwrap();
        assert!((4.5e6..=5.5e6).contains(&one), "{one}");
        assert_eq!(before.since(&before).percentile(0.5), None);
        for ns in [0, 1, 7, 8, 15, 16, 17, 1 << 20, u64::MAX] {
            assert!(bucket(ns) < BUCKETS);
        }
        assert!((1..100_000u64).all(|ns| bucket(ns) <= bucket(ns + 1)));
    }

    #[test]
    fn the_dead_are_known_by_their_lives() {
        let memory = Board::memory().unwrap();
        let board = Board::new(&memory).unwrap();
        board.begin(2, 1);
        let around = BoardSurroundings::new(board, 2);
        assert!(around.is_alive(around.identity()));
        board.over(2);
        assert!(!around.is_alive(around.identity()));
        board.begin(2, 2);
        assert!(!around.is_alive(around.identity()), "a successor is another participant");
        assert!(!around.oversubscribed());
        (0..MOST).for_each(|me| board.begin(me, 1));
        assert!(around.oversubscribed() || towpath_cores() >= MOST as u32);
    }
}
