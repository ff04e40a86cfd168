//! Store mode of a sender: plain stores, or stores past the caches. For bytes that
//! another core will read ([`copy_past_caches`](towpath_machine::copy_past_caches)). The mode is
//! measured at run time, as [`copy_mode`](crate::device::tune::copy_mode) is.
//!
//! A plain store fetches the line that it overwrites from the core that has read it last. Where
//! that is far away it takes several times as long as to write to memory and to read from there;
//! where both share a cache, or the line has left the reader's meanwhile, it is the other way
//! round.
//!
//! **What is measured.** The sender's time for a piece and the receiver's together, per byte. The
//! sender marks a piece whose time it has taken ([`TIMED`]); the receiver takes its own and tells
//! it beside its progress, with the piece's ticket. The sender looks there before its next piece,
//! only while it waits for it.
//!
//! **A death.** A piece that is never taken gives no value. **Hostile bytes.** A receiver that lies
//! about its time gets its bytes more slowly. **Memory.** Nothing is allocated. **Don't use it**
//! for short pieces: there is nothing to win below [`SHORTEST`].

use crate::device::connect::layout::SLOT_PIECE;
use towpath_channel::ab_test::{AbTest, Round};

/// Shorter pieces are written with plain stores.
pub const SHORTEST: usize = 2 << 10;
/// The mark of a piece whose time is to be told, among the bits of its place.
pub const TIMED: u64 = 1 << 31;

/// One for each power of two, up to the longest piece.
const CLASSES: usize = (SLOT_PIECE.ilog2() - SHORTEST.ilog2() + 1) as usize;
/// A piece whose time has not come when so many others have been sent will not be told
/// any more.
const LOST: u64 = 1 << 12;

/// Packs a receiver's report: a ticket and its time, in nanoseconds.
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

/// Chooser of store modes: the measurements of a ring's sender.
#[derive(Debug)]
pub struct StoreModes {
    /// The second way is past the caches.
    classes: [AbTest; CLASSES],
    pending: Option<PendingTrial>,
    /// From so many bytes on past the caches, without measuring; 0: never.
    fixed: Option<usize>,
}

impl StoreModes {
    /// `fixed`: from so many bytes on past the caches (0: never), or as is measured.
    pub fn new(fixed: Option<usize>) -> StoreModes {
        StoreModes { classes: [AbTest::new(false); CLASSES], pending: None, fixed }
    }

    /// Chooses whether a piece is written past the caches, and whether it is measured.
    /// `told`: the receiver's last report, which is read only if it is waited for.
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
        let class = len.ilog2().min(SLOT_PIECE.ilog2()) - SHORTEST.ilog2();
        let (past, round) = self.classes[class as usize].turn();
        let trial = round.filter(|_| self.pending.is_none());
        (past, trial.map(|round| StoreTrial { class: class as u8, round }))
    }

    /// A piece that is measured has been written, in so many nanoseconds.
    pub fn wrote(&mut self, trial: StoreTrial, ticket: u64, len: usize, ns: u64) {
        let ns = ns.min(u64::from(u32::MAX));
        self.pending = Some(PendingTrial { trial, ticket, bytes: len.max(1) as u64, ns });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_channel::ab_test::{REST, SAMPLES};

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

    #[test]
    fn tickets_may_go_beyond_what_is_told_of_them() {
        let mut stores = StoreModes::new(None);
        let costs = [(2500, 500), (400, 1500)];
        pieces(&mut stores, 8192, costs, TRIALS + 1, (1 << 32) - 3);
        assert_eq!(pieces(&mut stores, 8192, costs, 10, 1 << 33), 10);
    }
}
