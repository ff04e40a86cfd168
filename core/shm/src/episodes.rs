//! Episodes of a barrier that survives its participants.
//!
//! One text for all machines: natively it is a world's barrier (`barrier.rs`); the laboratory
//! explores it. Each participant writes the number of the episode at which it has arrived into its
//! own place, so nothing has to be counted and no death leaves a count wrong. A participant that
//! then sees that all have arrived moves `episode` on, with the outcome in the same
//! compare-and-swap: all waiters for this episode read the same outcome. Waiters look again now and
//! then, so if the last to arrive dies between arriving and moving on, another does it.
//!
//! ```text
//! episode:  63     62     61     50 49        32 31          0
//!           [PARKED][failed][ rank ][ deaths   ][ number      ]
//! ```
//!
//! **Source.** The sense-reversing central barrier (Mellor-Crummey & Scott 1991, algorithm 7), with
//! the count replaced by places.
//!
//! **Fields.** The arrival of a rank: written by that rank alone. `episode`: by any rank, by
//! compare-and-swap; waiters add PARKED. `at_doorbells`: by waiters that poll endpoints meanwhile
//! ([`Episode`](crate::Episode)) and are about to sleep at their doorbells.
//!
//! **Progress.** Blocking, by nature; a dead member blocks the others for no longer than it takes
//! to notice its death.
//!
//! **Crashes.** Before arriving: the survivors find the death, complete the episode without it and
//! all get its rank. After arriving, before or after moving on: the same, or the episode succeeds,
//! for all alike. The failure is reported once: `deaths` remembers up to which death. After moving
//! on, before waking: a waiter at its doorbell wakes by itself after its sleep's time-out.
//!
//! **Memory.** A number for each rank, and two words.

use towpath_machine::{Ordering, Park, Processor};
use towpath_sync::PARKED;

use crate::layout::{MOST_PROCESSES, RANK_BITS};
use crate::participant::{EntryState, EntryWord};
use crate::table::{Deaths, ParticipantTable, TableWord};

const FAILED: u64 = 1 << 62;
/// Number of the first bit of the rank.
const RANK: u32 = 50;
/// The bits of the number of deaths that an episode remembers.
const DEATHS: u64 = (1 << 18) - 1;
const _: () = assert!(RANK + RANK_BITS == 62);

/// Returns the number of an episode.
pub fn number(episode: u64) -> u32 {
    episode as u32
}

fn deaths_of(episode: u64) -> u64 {
    episode >> 32 & DEATHS
}

/// Returns whether the episode `now` is the wanted one or a later one.
pub fn reached(now: u32, wanted: u32) -> bool {
    now.wrapping_sub(wanted) < 1 << 31
}

/// Returns whether a rank with this entry is waited for: not one that has left, or is
/// dead.
pub fn is_expected(word: EntryWord) -> bool {
    match word.state {
        EntryState::Entered | EntryState::Joining => true,
        EntryState::Free => word.generation == 0,
        EntryState::Dying | EntryState::Dead => false,
    }
}

/// Outcome of the episode `mine`, read from `episode` when that has been reached.
///
/// # Errors
///
/// The rank by whose death it has failed.
pub fn result_of(episode: u64, mine: u32) -> Result<(), u32> {
    if episode & FAILED != 0 && number(episode) == mine {
        return Err((episode >> RANK) as u32 & (MOST_PROCESSES - 1));
    }
    Ok(())
}

/// Barrier of a table's participants, on any machine.
pub trait MemberEpisodes: ParticipantTable<Cpu: Park> {
    /// Returns the word of the last completed episode.
    fn episode(&self) -> &TableWord<Self>;
    /// Returns the word with the last episode for which a waiter slept at its doorbell.
    fn at_doorbells(&self) -> &TableWord<Self>;
    /// Returns the word on which a rank sleeps.
    fn doorbell_word(&self, index: u32) -> &TableWord<Self>;
    /// Reads the episode at which a rank has arrived.
    #[track_caller]
    fn load_arrival(&self, index: u32, order: Ordering) -> u32;
    /// Writes it.
    #[track_caller]
    fn store_arrival(&self, index: u32, episode: u32, order: Ordering);

    /// Returns the last completed episode.
    #[inline]
    fn last_episode(&self) -> u64 {
        // (B1) Acquire: pairs with the Release (B3).
        self.cpu().load(self.episode(), Ordering::Acquire)
    }

    /// Arrives at the next episode. Returns its number.
    fn arrive_at_next(&self, me: u32) -> u32 {
        // This episode can't end before this participant arrives, so the next number is its own.
        let mine = number(self.last_episode()).wrapping_add(1);
        // (B2) SeqCst: of the ranks that arrive and then look whether all have, the last one sees
        // all, itself included; pairs with (B2) in `has_arrived`.
        self.store_arrival(me, mine, Ordering::SeqCst);
        mine
    }

    /// Returns whether a rank has arrived at this episode.
    fn has_arrived(&self, index: u32, wanted: u32) -> bool {
        // (B2) SeqCst: pairs with the store (B2) in `arrive_at_next`.
        self.load_arrival(index, Ordering::SeqCst) == wanted
    }

    /// Ends this episode, if it is the next and all that count have arrived.
    fn complete_episode(&self, wanted: u32) {
        loop {
            let seen = self.last_episode();
            if number(seen).wrapping_add(1) != wanted || self.is_awaited(wanted) {
                return;
            }
            let deaths = self.noted_deaths();
            for index in 0..self.ranks() {
                let (arrived, word) = (self.has_arrived(index, wanted), self.entry_word(index));
                if word.state == EntryState::Dying {
                    self.count_death(index);
                }
                if is_expected(word) && !arrived {
                    return;
                }
            }
            // The ranks that were seen to be dead had been counted by then: if that is news, it
            // belongs to the outcome.
            if self.noted_deaths() != deaths {
                continue;
            }
            let dead = (deaths.count() & DEATHS != deaths_of(seen)).then(|| deaths.rank());
            if self.end_episode(seen, wanted, deaths, dead) {
                return;
            }
        }
    }

    /// Ends this episode as others have agreed, if it is the next. `dead`: the rank by
    /// whose death it has failed.
    fn conclude_episode(&self, wanted: u32, dead: Option<u32>) {
        loop {
            let seen = self.last_episode();
            if number(seen).wrapping_add(1) != wanted
                || self.end_episode(seen, wanted, self.noted_deaths(), dead)
            {
                return;
            }
        }
    }

    /// Moves the episode on, and wakes its waiters. `false`: another rank ended it, or
    /// parked.
    fn end_episode(&self, seen: u64, wanted: u32, deaths: Deaths, dead: Option<u32>) -> bool {
        let failed = dead.map_or(0, |rank| FAILED | u64::from(rank & (MOST_PROCESSES - 1)) << RANK);
        let next = failed | (deaths.count() & DEATHS) << 32 | u64::from(wanted);
        // (B3) Release: the arrivals that were seen; pairs with the Acquire (B1) and those in
        // `wait_until`. The episode that it replaces was acquired by (B1).
        let ended = self
            .cpu()
            .compare_exchange(self.episode(), seen, next, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if ended {
            self.wake_waiters(seen, wanted);
        }
        ended
    }

    /// Wakes the waiters for an episode that has ended. `seen`: the word before that.
    fn wake_waiters(&self, seen: u64, wanted: u32) {
        let cpu = self.cpu();
        if seen & PARKED != 0 {
            cpu.wake(self.episode(), u32::MAX);
        }
        // (B5) SeqCst: the end of the episode before the look; pairs with (B4).
        cpu.fence(Ordering::SeqCst);
        // A waiter for a later episode may have announced itself after one for this. Relaxed:
        // ordered by the fence; at worst all waiters look once too often.
        if reached(number(cpu.load(self.at_doorbells(), Ordering::Relaxed)), wanted) {
            self.wake_doorbells();
        }
    }

    /// Changes all doorbells and wakes all that sleep at them.
    #[cold]
    fn wake_doorbells(&self) {
        for index in 0..self.ranks() {
            let doorbell = self.doorbell_word(index);
            // Relaxed: a waiter that has read it from here on has its fence (B4) after (B5), and so
            // sees that the episode has ended.
            self.cpu().fetch_add(doorbell, 1, Ordering::Relaxed);
            self.cpu().wake(doorbell, u32::MAX);
        }
    }

    /// Announces that a waiter for this episode is about to sleep at its doorbell, whose
    /// value it has read.
    fn announce_sleep_at_doorbell(&self, wanted: u32) {
        let (cpu, word) = (self.cpu(), self.at_doorbells());
        // Relaxed, all: ordered by the fence. If another waiter sleeps for a later episode, its
        // announcement stays, and does for this one, too.
        let mut seen = cpu.load(word, Ordering::Relaxed);
        while !reached(number(seen), wanted) {
            match cpu.compare_exchange(word, seen, wanted.into(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // (B4) SeqCst: either the one that ends the episode sees this, or the waiter sees that it
        // has ended; pairs with the fence (B5).
        cpu.fence(Ordering::SeqCst);
    }

    /// Returns whether a rank that counts has not arrived: a quick look before the
    /// thorough.
    ///
    /// It begins at the rank that was found last, so that a wait costs as many looks at ranks as
    /// there are, and not as many at each turn.
    fn is_awaited(&self, wanted: u32) -> bool {
        let (ranks, first) = (self.ranks(), self.last_awaited());
        let awaited = (0..ranks)
            .map(|i| first.wrapping_add(i) % ranks)
            .find(|&index| !self.has_arrived(index, wanted) && is_expected(self.entry_word(index)));
        if let Some(rank) = awaited.filter(|&rank| rank != first) {
            self.note_awaited(rank);
        }
        awaited.is_some()
    }

    /// Returns the rank that this process found last not to have arrived: a hint.
    fn last_awaited(&self) -> u32 {
        0
    }

    /// Notes such a rank.
    fn note_awaited(&self, _rank: u32) {}
}
