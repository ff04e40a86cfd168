//! Entering a world and leaving it.
//!
//! Entering claims an entry of the table with one compare-and-swap that carries the claimer's pid
//! and part of its start time (`participant.rs`), fills in the rest, and publishes it with a second
//! one. Before the first it takes the rank's lock, a byte of the segment's file, which the kernel
//! releases at its death. A process that dies in between leaves an entry in JOINING without that
//! lock; a process that wants the rank, or looks for deaths, finds it dead and clears the entry
//! away. One that is stopped there keeps its rank.
//!
//! Leaving gives the entry back with one compare-and-swap, and wakes all waiters: no rank waits any
//! more for one that has left.

use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use towpath_machine::Native;

use crate::Error;
use crate::inner::Inner;
use crate::layout::LOCKS;
use crate::participant::{EntryState, EntryWord, ParticipantId, joining_hash};
use crate::process::{ProcessIdentity, Pulse};
use crate::segment::{lock_byte, open_again};
use crate::table::ParticipantTable;

impl Inner {
    pub(crate) fn enter(&self, rank: Option<u32>) -> Result<(), Error> {
        // Relaxed: only threads of this process compete, for the permission to try.
        if self.local.entering.swap(1, Ordering::Relaxed) == 1 {
            let rank = self.me().map_or(0, |me| me.index);
            return Err(Error::AlreadyEntered { rank });
        }
        let result = self.find_rank(rank);
        match &result {
            Ok(me) => {
                // In memory of the caller's it may be one of many worlds of this process.
                if self.segment.file().is_some() {
                    Native::set_process_base(me.index);
                }
                // Relaxed: other threads learn of it however they learn that `enter` has returned.
                self.local.me.store(me.to_bits(), Ordering::Relaxed);
            }
            Err(_) => self.local.entering.store(0, Ordering::Relaxed),
        }
        result.map(|_| ())
    }

    fn find_rank(&self, rank: Option<u32>) -> Result<ParticipantId, Error> {
        let identity = ProcessIdentity::own()?;
        match rank.or(self.suggested) {
            Some(rank) if rank >= self.processes => Err(Error::NoSuchRank { rank, size: self.processes }),
            Some(rank) => self
                .try_enter(rank, identity, Duration::from_secs(1))?
                .map_err(|pid| Error::RankTaken { rank, pid }),
            None => {
                // Those of other hosts are their gateway's.
                for rank in self.host_ranks() {
                    if let Ok(me) = self.try_enter(rank, identity, Duration::ZERO)? {
                        return Ok(me);
                    }
                }
                Err(Error::WorldFull { size: self.processes })
            }
        }
    }

    /// `Ok(Err(pid))`: taken by that process. Waits for the given time at most for one
    /// that is only just joining.
    fn try_enter(
        &self,
        index: u32,
        identity: ProcessIdentity,
        patience: Duration,
    ) -> Result<Result<ParticipantId, u32>, Error> {
        let since = Instant::now();
        loop {
            let bits = self.entry_bits(index);
            let word = EntryWord::unpack(bits);
            match word.state {
                EntryState::Entered | EntryState::Joining => match self.pulse(index, bits) {
                    Pulse::Dead => self.note_death(index, bits),
                    Pulse::Alive if word.state == EntryState::Joining && since.elapsed() < patience => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Pulse::Alive => return Ok(Err(word.pid)),
                },
                EntryState::Dying => self.count_death(index),
                EntryState::Free | EntryState::Dead => {
                    // Before the claim: as long as it is held, whatever namespace asks, the claimer
                    // lives.
                    let lock = self.lock_rank(index);
                    let claim = EntryWord {
                        generation: word.next_generation(),
                        start_hash: joining_hash(identity.start, lock.is_some()),
                        pid: identity.pid,
                        state: EntryState::Joining,
                    };
                    // Fails if another process was faster.
                    if self.change(index, bits, claim)
                        && let Some(me) = self.finish_entering(index, claim, identity, lock)
                    {
                        return Ok(Ok(me));
                    }
                }
            }
        }
    }

    /// Takes the lock that says that the process which enters as this rank, or has,
    /// lives.
    fn lock_rank(&self, index: u32) -> Option<OwnedFd> {
        let file = open_again(self.segment.file()?).ok()?;
        lock_byte(file.as_fd(), LOCKS + u64::from(index)).then_some(file)
    }

    fn finish_entering(
        &self,
        index: u32,
        claim: EntryWord,
        identity: ProcessIdentity,
        lock: Option<OwnedFd>,
    ) -> Option<ParticipantId> {
        let entry = self.entry(index);
        let me = ParticipantId { index, generation: claim.generation };
        // A predecessor may only just have let go of it.
        let lock = lock.or_else(|| self.lock_rank(index));
        // Relaxed, all: published with the word.
        entry.start.store(identity.start, Ordering::Relaxed);
        entry.namespace.store(identity.namespace, Ordering::Relaxed);
        entry.locked.store(lock.is_some().into(), Ordering::Relaxed);
        self.reset_arrival(index);
        let entered = EntryWord { state: EntryState::Entered, ..claim };
        // Fails if the others took this process for dead.
        self.change(index, claim.pack(), entered).then_some(())?;
        self.show_presence(index, true);
        self.local.sleepers.store(0, Ordering::Relaxed);
        self.note_processors(me);
        self.tell_gateway();
        if let Ok(mut held) = self.lock.try_lock() {
            *held = lock;
        } else {
            // Held for ever by a thread that a fork did not copy: keep the descriptor open all the
            // same.
            std::mem::forget(lock);
        }
        Some(me)
    }

    /// Leaves, unless objects that name their users are open.
    pub(crate) fn leave_unless_open(&self) -> Result<(), Error> {
        let left = self.local.open_handles().leave(self.cpu());
        self.leave_as(left.map_err(|objects| Error::ObjectsOpen { objects })?);
        Ok(())
    }

    pub(crate) fn leave(&self) {
        // Relaxed: as in `enter`.
        self.leave_as(self.local.me.swap(0, Ordering::Relaxed));
    }

    fn leave_as(&self, bits: u64) {
        if bits == 0 {
            return;
        }
        let me = ParticipantId::from_bits(bits);
        self.show_presence(me.index, false);
        let seen = self.entry_bits(me.index);
        let word = EntryWord::unpack(seen);
        if word.generation == me.generation && word.state == EntryState::Entered {
            let free = EntryWord { state: EntryState::Free, pid: 0, start_hash: 0, ..word };
            // Fails if the others took this process for dead.
            self.change(me.index, seen, free);
        }
        if let Ok(mut held) = self.lock.try_lock() {
            *held = None;
        }
        self.count_processors();
        self.wake_all_waiters();
        self.local.entering.store(0, Ordering::Relaxed);
    }

    /// Counts this process as dead, if it is a participant: it unwinds, so its duties to
    /// the others are not done.
    pub(crate) fn fail(&self) {
        let Ok(me) = self.me() else { return };
        let seen = self.entry_bits(me.index);
        let word = EntryWord::unpack(seen);
        if word.generation == me.generation && word.state == EntryState::Entered {
            self.note_death(me.index, seen);
        }
    }

    /// Returns whether a living process has entered.
    pub(crate) fn is_inhabited(&self) -> bool {
        self.look_for_deaths(0, self.processes);
        (0..self.processes).any(|index| {
            let word = self.entry_word(index);
            matches!(word.state, EntryState::Entered | EntryState::Joining)
        })
    }
}
