//! Store mode of a sender: plain stores, or stores past the caches. For bytes that
//! another core will read ([`Processor::copy_away`], [`copy_past_caches`]). The mode is measured at
//! run time.
//!
//! A plain store fetches the line that it overwrites from the core that has read it last. Where
//! that is far away it takes several times as long as to write to memory and to read from there;
//! where both share a cache, or the line has left the reader's meanwhile, it is the other way
//! round.
//!
//! **What is measured.** The sender's time for a piece and the receiver's together, per byte. The
//! sender marks a piece whose time it has taken; the receiver takes its own and tells it, with the
//! piece's ticket: of a ring's piece beside its progress, of a block in its head
//! ([`BlockHead::told`]). The sender looks there before its next piece, only while it waits for it.
//!
//! **A death.** A piece that is never taken gives no value. **Hostile bytes.** A receiver that lies
//! about its time gets its bytes more slowly. **Memory.** A sender to a
//! queue makes its [`BlockStores`] at its first long piece. **Don't use it** for short pieces:
//! there is nothing to win below [`SHORTEST`].
//!
//! [`copy_past_caches`]: towpath_machine::copy_past_caches
//! [`BlockHead::told`]: crate::packet::BlockHead::told

use towpath_machine::{Ordering, Processor};

use crate::ab_test::{AbTest, Round};
use crate::path::Piece;
use crate::queue::Queue;

/// Shorter pieces are written with plain stores.
pub const SHORTEST: usize = 2 << 10;
/// Number of bytes of the longest class's pieces. Longer ones are counted as these.
const LONGEST: usize = 32 << 10;

/// Number of classes of lengths: one for each power of two.
const CLASSES: usize = (LONGEST.ilog2() - SHORTEST.ilog2() + 1) as usize;
/// A piece whose time has not come when so many others have been sent will not be told
/// any more.
const LOST: u64 = 1 << 12;

/// Packs a receiver's report: a ticket and its time, in nanoseconds.
///
/// ```
/// use towpath_channel::store_mode::report;
///
/// assert_eq!(report(3, u64::MAX), 3 << 32 | u64::from(u32::MAX)); // a time has 32 bits
/// ```
pub fn report(ticket: u64, ns: u64) -> u64 {
    ticket << 32 | ns.min(u64::from(u32::MAX))
}

/// A piece that is measured.
#[derive(Clone, Copy, Debug)]
pub struct StoreTrial {
    class: u8,
    round: Round,
}

#[derive(Clone, Copy, Debug)]
struct PendingTrial {
    trial: StoreTrial,
    ticket: u64,
    bytes: u64,
    ns: u64,
}

/// Chooser of store modes: the measurements of a sender.
#[derive(Debug)]
pub struct StoreModes {
    /// The second way is past the caches.
    classes: [AbTest; CLASSES],
    pending: Option<PendingTrial>,
    /// Number of bytes from which on copies go past the caches, unmeasured; 0: never.
    fixed: Option<usize>,
}

impl StoreModes {
    /// Makes a chooser. `fixed`: from so many bytes on past the caches (0: never), or as
    /// is measured.
    ///
    /// ```
    /// use towpath_channel::store_mode::StoreModes;
    ///
    /// let mut modes = StoreModes::new(Some(4096)); // from 4 KiB on past the caches
    /// assert!(modes.choose(1, 4096, || 0).0 && !modes.choose(2, 4095, || 0).0);
    /// ```
    pub const fn new(fixed: Option<usize>) -> StoreModes {
        StoreModes { classes: [AbTest::new(false); CLASSES], pending: None, fixed }
    }

    /// Measured from the `turns`-th piece of plain stores on: while they write memory for
    /// the first time, or after others, they say nothing of those that follow.
    const fn with_warm_up(turns: u32) -> StoreModes {
        StoreModes { classes: [AbTest::with_warm_up(turns); CLASSES], pending: None, fixed: None }
    }

    /// Chooses whether a piece is written past the caches, and whether it is measured.
    /// `told`: the receiver's last report, which is read only if it is waited for.
    ///
    /// ```
    /// use towpath_channel::store_mode::{SHORTEST, StoreModes};
    ///
    /// let mut modes = StoreModes::new(None);
    /// let (past, trial) = modes.choose(1, SHORTEST, || 0);
    /// assert!(!past && trial.is_some()); // plain stores, which are measured first
    /// assert!(modes.choose(2, SHORTEST - 1, || 0).1.is_none()); // too short
    /// ```
    #[inline]
    pub fn choose(
        &mut self,
        ticket: u64,
        len: usize,
        told: impl FnOnce() -> u64,
    ) -> (bool, Option<StoreTrial>) {
        if let Some(from) = self.fixed {
            return (from != 0 && len >= from, None);
        }
        if len < SHORTEST {
            return (false, None);
        }
        if let Some(PendingTrial { trial, ticket: of, bytes, ns }) = self.pending {
            let told = told();
            if told >> 32 == of & u64::from(u32::MAX) {
                let sum = ns + (told & u64::from(u32::MAX));
                self.classes[usize::from(trial.class)].took(trial.round, (sum << 20) / bytes);
                self.pending = None;
            } else if ticket - of > LOST {
                self.pending = None;
            }
        }
        let class = len.ilog2().min(LONGEST.ilog2()) - SHORTEST.ilog2();
        let (past, round) = self.classes[class as usize].turn();
        let trial = round.filter(|_| self.pending.is_none());
        (past, trial.map(|round| StoreTrial { class: class as u8, round }))
    }

    /// Notes that a piece that is measured was written, in so many nanoseconds.
    ///
    /// ```
    /// use towpath_channel::store_mode::{SHORTEST, StoreModes, report};
    ///
    /// let mut modes = StoreModes::new(None);
    /// let trial = modes.choose(1, SHORTEST, || 0).1.expect("it is measured");
    /// modes.wrote(trial, 1, SHORTEST, 700); // nanoseconds
    /// assert!(modes.choose(2, SHORTEST, || 0).1.is_none()); // the receiver's time is awaited
    /// assert!(modes.choose(3, SHORTEST, || report(1, 300)).1.is_some());
    /// ```
    pub fn wrote(&mut self, trial: StoreTrial, ticket: u64, len: usize, ns: u64) {
        let ns = ns.min(u64::from(u32::MAX));
        self.pending = Some(PendingTrial { trial, ticket, bytes: len.max(1) as u64, ns });
    }
}

/// Minimum number of bytes of a block's piece whose store mode is measured. Shorter ones
/// are written past the caches.
pub const MEASURED: usize = 16 << 10;

/// Minimum number of bytes of a queue's blocks whose lines leave the receiver's caches
/// before they are written again. Fewer are as fast at first as later.
pub const COLD: u64 = 1 << 20;

/// Store modes of a sender to the blocks of one queue.
#[derive(Debug)]
pub struct BlockStores {
    modes: StoreModes,
    /// Number of pieces so far: their tickets.
    pieces: u64,
    /// Block of the piece whose time is awaited.
    asked: usize,
}

impl BlockStores {
    /// Modes of which nothing is measured yet. `blocks`: number of the queue's, and their
    /// size.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// # use towpath_channel::path::Piece;
    /// # use towpath_channel::store_mode::BlockStores;
    /// let mut stores = BlockStores::new(q.blocks.len(), q.block_size);
    /// let piece = Piece { bytes: b"payload", offset: 0, whole: (0, 7), away: true };
    /// stores.write(&cpu, &q, 0, piece);
    /// # let mut read = [0; 7];
    /// # cpu.copy_out(&q.bytes, 0, &mut read);
    /// assert_eq!(&read, b"payload");
    /// # }
    /// ```
    pub const fn new(blocks: usize, size: usize) -> BlockStores {
        let turns = if (blocks * size) as u64 >= COLD { blocks as u32 } else { 0 };
        BlockStores { modes: StoreModes::with_warm_up(turns), pieces: 0, asked: 0 }
    }

    /// Writes a piece into a block that the caller has claimed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// # use towpath_channel::path::Piece;
    /// # use towpath_channel::store_mode::BlockStores;
    /// let (mut stores, mut read) = (BlockStores::new(q.blocks.len(), q.block_size), [0; 4]);
    /// let piece = Piece { bytes: b"long", offset: 0, whole: (0, 4), away: true };
    /// stores.write(&cpu, &q, 1, piece); // into a block that the caller has claimed
    /// cpu.copy_out(&q.bytes, q.block_at(1), &mut read);
    /// assert_eq!(&read, b"long");
    /// # }
    /// ```
    pub fn write<P: Processor>(&mut self, cpu: &P, q: &Queue<'_, P>, block: usize, piece: Piece<'_>) {
        let (to, at, len) = (&q.bytes, q.block_at(block), piece.bytes.len());
        self.pieces += 1;
        // Relaxed: nothing else depends on it. Another sender may own the block by now.
        let told = || cpu.load(&q.blocks[self.asked].told, Ordering::Relaxed);
        let (past, trial) = self.modes.choose(self.pieces, len, told);
        let begun = trial.map(|trial| (trial, cpu.now()));
        if past {
            cpu.copy_away(to, at, piece.bytes)
        } else {
            cpu.copy_in(to, at, piece.bytes)
        }
        cpu.write(&q.blocks[block].timed, begun.map_or(0, |_| self.pieces));
        if let Some((trial, begun)) = begun {
            // Relaxed: it is published with the block. Another sender's ticket there may be equal.
            cpu.store(&q.blocks[block].told, 0, Ordering::Relaxed);
            self.modes.wrote(trial, self.pieces, len, cpu.now().saturating_sub(begun));
            self.asked = block;
        }
    }
}

/// Runs `take`, which copies a block of [`MEASURED`] bytes or more, and tells its time if
/// the sender has asked for it.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
/// # fn main() {
/// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
/// # let (q, mut sender, mut receiver) =
/// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
/// let took = towpath_channel::store_mode::timed(&cpu, &q, 0, || 7); // copies block 0
/// assert_eq!(took, 7);
/// assert_eq!(cpu.load(&q.blocks[0].told, Ordering::Relaxed), 0); // the sender has not asked
/// # }
/// ```
#[inline]
pub fn timed<P: Processor, T>(cpu: &P, q: &Queue<'_, P>, block: usize, take: impl FnOnce() -> T) -> T {
    let head = &q.blocks[block];
    let ticket = cpu.read(&head.timed);
    if ticket == 0 {
        return take();
    }
    let begun = cpu.now();
    let took = take();
    // Relaxed: as in `BlockStores::write`.
    cpu.store(&head.told, report(ticket, cpu.now().saturating_sub(begun)), Ordering::Relaxed);
    took
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab_test::{REST, SAMPLES};

    /// Pieces of this length, for which plain stores and others take the sender and the
    /// receiver so long: how many went past the caches.
    fn pieces(stores: &mut StoreModes, len: usize, costs: [(u64, u64); 2], count: u64, first: u64) -> u64 {
        let (mut past, mut told) = (0, 0);
        for ticket in first..first + count {
            let (way, trial) = stores.choose(ticket, len, || told);
            past += u64::from(way);
            if let Some(trial) = trial {
                let (sender, receiver) = costs[usize::from(way)];
                stores.wrote(trial, ticket, len, sender);
                told = report(ticket, receiver);
            }
        }
        past
    }

    const TRIALS: u64 = 2 * SAMPLES as u64;
    const SETTLED: u64 = REST.0 as u64;

    #[test]
    fn what_takes_both_together_less_is_taken() {
        for len in [SHORTEST, 5000, 16 << 10, 1 << 20] {
            // The sender alone would gain, and the other way round.
            for (costs, better) in [([(900, 300), (200, 1500)], 0), ([(2500, 500), (400, 1500)], SETTLED)] {
                let mut stores = StoreModes::new(None);
                pieces(&mut stores, len, costs, TRIALS + 1, 0);
                assert_eq!(
                    pieces(&mut stores, len, costs, SETTLED - 1, 100),
                    better.saturating_sub(1),
                    "{len}"
                );
            }
        }
    }

    #[test]
    fn short_pieces_and_settings_are_not_measured() {
        let mut stores = StoreModes::new(None);
        assert!(matches!(stores.choose(0, SHORTEST - 1, || 0), (false, None)));
        for (fixed, len, past) in
            [(0, 1 << 20, false), (4096, 4096, true), (4096, 4095, false), (1, 64, true)]
        {
            let (way, trial) = StoreModes::new(Some(fixed)).choose(0, len, || 0);
            assert_eq!((way, trial.is_some()), (past, false));
        }
    }

    #[test]
    fn missing_time_delays_the_verdict_and_is_given_up() {
        let mut stores = StoreModes::new(None);
        let trial = stores.choose(5, 8192, || 0).1.unwrap();
        stores.wrote(trial, 5, 8192, 100);
        for ticket in 6..=LOST + 5 {
            let (past, trial) = stores.choose(ticket, 8192, || report(4, 1));
            assert!(!past && trial.is_none());
        }
        assert!(stores.choose(LOST + 6, 8192, || report(4, 1)).1.is_some());
    }

    /// A queue of two blocks: each of its pieces is received at once.
    #[test]
    fn blocks_are_timed_by_both_ends() {
        use crate::packet::BlockHead;
        use crate::queue::QueueControl;
        use towpath_machine::{Arena, Heap, Native};

        let (cpu, control) = (Native::with_id(0), QueueControl::new(&Heap));
        let heads = [BlockHead::new(&Heap), BlockHead::new(&Heap)];
        let bytes = std::sync::Arc::new(Heap.bytes(2 * MEASURED));
        let q = Queue {
            id: 0,
            control: &control,
            slots: &[],
            extras: &[],
            blocks: &heads,
            bytes,
            block_size: MEASURED,
        };
        let mut stores = BlockStores::new(2, MEASURED);
        let mut asked = 0;
        for number in 0..200u64 {
            let (block, sent) = (number as usize % 2, vec![number as u8; MEASURED]);
            stores.write(&cpu, &q, block, Piece { bytes: &sent, offset: 0, whole: (0, 0), away: true });
            let ticket = cpu.read(&heads[block].timed);
            assert!(ticket == 0 || ticket == number + 1);
            asked += u64::from(ticket != 0);
            let mut came = vec![0; MEASURED];
            timed(&cpu, &q, block, || cpu.copy_out(&q.bytes, q.block_at(block), &mut came));
            assert!(came == sent);
            let told = cpu.load(&heads[block].told, Ordering::Relaxed);
            assert!(ticket == 0 || told >> 32 == ticket && told as u32 > 0, "told: {told:x}");
        }
        assert_eq!(asked % TRIALS, 0, "judged each time");
        assert!((TRIALS..100).contains(&asked), "and then settled: {asked}");
    }

    #[test]
    fn tickets_may_go_beyond_what_is_told_of_them() {
        let mut stores = StoreModes::new(None);
        let costs = [(2500, 500), (400, 1500)];
        pieces(&mut stores, 8192, costs, TRIALS + 1, (1 << 32) - 3);
        assert_eq!(pieces(&mut stores, 8192, costs, 10, 1 << 33), 10);
    }
}
