//! Liveness of participants; each death becomes known to all, exactly once.
//!
//! **Asking.** A participant is alive if its process is: its pidfd is not readable (a zombie's is),
//! and the process with its pid is the one that the entry means (a pid is used again:
//! `process.rs`). pidfds are kept. Where the participant lives in another pid or time namespace,
//! its pid means nothing here, and where neither the kernel nor /proc tells processes apart,
//! another one may have it; then the lock that it holds on a byte of the segment decides, and
//! without one it counts as alive.
//!
//! **Noting.** A process that finds a participant dead moves its entry from ENTERED to DYING. Then
//! the death is counted in `counts.deaths`:
//!
//! ```text
//! 63    36 35    24 23          0
//! [ count ][ rank  ][ generation ]
//! ```
//!
//! and the entry moves to DEAD. Any process may do the second and third step, so a noter that dies
//! in between holds up no other; and each death counts once: before the word changes from one death
//! to the next, the entry of the former is moved to DEAD, so an entry that is DYING and is not the
//! last one counted has not been counted.
//!
//! **Many ranks.** To ask after n processes takes n times a few system calls, and a pidfd each to
//! remember them. So a process keeps at most 64 pidfds of a world (`watchlist.rs`). In a world with
//! more ranks than that, the participants share the work: `counts.looked` says when and up to which
//! rank one of them has looked last, and the next one that asks goes on there, with as many ranks
//! as are due since. The clock says how often to ask; the kernel alone says which processes live.
//!
//! **Progress.** Lock-free, besides the system calls.

use core::sync::atomic::Ordering;
use towpath_machine::{Native, Park, Processor};

use crate::inner::Inner;
use crate::layout::{LOCKS, MOST_PROCESSES, RANK_BITS};
use crate::participant::{Ending, EntryState, EntryWord, PID_BITS, ParticipantId};
use crate::process::{self, Dead, FoundProcess, Pulse, Wanted};
use crate::segment::byte_is_locked;
use crate::table::ParticipantTable;
use crate::watchlist::{WATCHED, Watched};

/// Number of ranks that are looked after in a [`TICK`] in a larger world.
const WINDOW: u64 = 64;

/// Time between two looks in a larger world, in nanoseconds.
const TICK: u64 = 2_000_000;

/// A unit of the time in `counts.looked`, as a shift of nanoseconds: 65 µs.
const LOOKED_UNIT: u32 = 16;

impl Inner {
    /// Finds out whether the participant described by the entry's word is alive.
    pub(crate) fn pulse(&self, index: u32, bits: u64) -> Pulse {
        // A lock that is taken (by another thread, or for ever by one that a fork did not copy)
        // costs only the memory.
        let Ok(mut watched) = self.watched.try_lock() else {
            return self.pulse_of(index, bits, &mut None);
        };
        match watched.place(index) {
            Some(slot) => self.pulse_of(index, bits, slot),
            None => Pulse::Alive,
        }
    }

    fn pulse_of(&self, index: u32, bits: u64, watched: &mut Option<Watched>) -> Pulse {
        let word = EntryWord::unpack(bits);
        let entry = self.entry(index);
        let fresh = !matches!(watched, Some(w) if (w.index, w.word) == (index, bits));
        if fresh {
            *watched = Some(Watched { index, word: bits, pidfd: None });
        }
        let Some(memory) = watched else { return Pulse::Alive };
        if let Some(pidfd) = &memory.pidfd {
            return if process::has_ended(pidfd) { Pulse::Dead } else { Pulse::Alive };
        }
        let found = match word.state {
            EntryState::Entered => {
                // Relaxed, both: written before the word that says ENTERED, which was read with
                // Acquire (E4).
                let start = entry.start.load(Ordering::Relaxed);
                let namespace = entry.namespace.load(Ordering::Relaxed);
                // Namespaces that are unknown may be different ones.
                if namespace != self.namespace() || namespace == 0 {
                    return if self.has_unlocked(index) { Pulse::Dead } else { Pulse::Alive };
                }
                match process::watch(word.pid, Wanted::Start(start)) {
                    // After the pidfd was opened: if the lock is still held, the pid is still the
                    // participant's.
                    Ok(FoundProcess { sure: false, .. }) if self.has_unlocked(index) => Err(Dead),
                    found => found,
                }
            }
            // It holds the rank's lock from before it wrote the word.
            EntryState::Joining if word.has_lock() => {
                let held = self.byte_is_locked(index);
                return if held == Some(false) { Pulse::Dead } else { Pulse::Alive };
            }
            // It may be of another namespace, where its pid is another's: not found does not mean
            // dead.
            EntryState::Joining => match process::watch(word.pid, Wanted::Hash(word.start_hash)) {
                Err(Dead) if self.segment.file().is_some() => return Pulse::Alive,
                // All that open the caller's memory are of one namespace.
                found => found,
            },
            _ => return Pulse::Dead,
        };
        match found {
            Err(Dead) => Pulse::Dead,
            Ok(FoundProcess { pidfd: None, .. }) => Pulse::Alive,
            Ok(FoundProcess { pidfd: Some(pidfd), .. }) => {
                let ended = process::has_ended(&pidfd);
                memory.pidfd = Some(pidfd);
                if ended { Pulse::Dead } else { Pulse::Alive }
            }
        }
    }

    /// Returns whether a participant that had locked its byte of the segment has it
    /// locked no more: only the dead.
    fn has_unlocked(&self, index: u32) -> bool {
        // Relaxed: as in `pulse_of`.
        self.entry(index).locked.load(Ordering::Relaxed) == 1 && self.byte_is_locked(index) == Some(false)
    }

    /// Returns whether a process holds the lock of that rank; `None` if that can't be
    /// told.
    fn byte_is_locked(&self, index: u32) -> Option<bool> {
        byte_is_locked(self.segment.file()?, LOCKS + u64::from(index))
    }

    /// See [`crate::World::is_alive`].
    pub(crate) fn is_alive(&self, id: ParticipantId) -> bool {
        if id.index >= self.processes {
            return false;
        }
        let bits = self.entry_bits(id.index);
        let word = EntryWord::unpack(bits);
        if word.generation != id.generation {
            return false;
        }
        match word.state {
            EntryState::Entered => match self.pulse(id.index, bits) {
                Pulse::Alive => true,
                Pulse::Dead => {
                    self.note_death(id.index, bits);
                    false
                }
            },
            EntryState::Dying => {
                self.count_death(id.index);
                false
            }
            EntryState::Free | EntryState::Joining | EntryState::Dead => false,
        }
    }

    /// See [`crate::World::check_deaths`].
    pub(crate) fn check_deaths(&self) -> u64 {
        if self.processes <= WATCHED {
            self.look_for_deaths(0, self.processes);
        } else if let Some((from, count)) = self.due_look(Native::with_id(0).now()) {
            self.look_for_deaths(from, count);
        }
        self.noted_deaths().count()
    }

    /// First rank after which this process has to look now in a large world, and their
    /// number.
    ///
    /// `None` if no look is due, or if another process does it.
    fn due_look(&self, now: u64) -> Option<(u32, u32)> {
        let looked = &self.control().counts.looked;
        let now = now >> LOOKED_UNIT;
        // Relaxed, both: the word orders nothing; the exchange makes one process win.
        let seen = looked.load(Ordering::Relaxed);
        let mask = (1u64 << (64 - RANK_BITS)) - 1;
        let elapsed = (now & mask).wrapping_sub(seen >> RANK_BITS) & mask;
        // A time in the future (another time namespace, or damage) is one long ago.
        let ticks = elapsed / (TICK >> LOOKED_UNIT);
        if ticks == 0 {
            return None;
        }
        let processes = u64::from(self.processes);
        let (from, count) = (seen % u64::from(MOST_PROCESSES) % processes, (ticks * WINDOW).min(processes));
        let next = (now << RANK_BITS) | ((from + count) % processes);
        looked.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some((from as u32, count as u32))
    }

    /// Looks after `count` ranks from one on, but not after this process.
    pub(crate) fn look_for_deaths(&self, from: u32, count: u32) {
        let me = self.local.me.load(Ordering::Relaxed);
        for index in (0..count).map(|i| (from + i) % self.processes) {
            if me != 0 && ParticipantId::from_bits(me).index == index {
                continue;
            }
            let bits = self.entry_bits(index);
            match EntryWord::unpack(bits).state {
                EntryState::Entered | EntryState::Joining => {
                    if self.pulse(index, bits) == Pulse::Dead {
                        self.note_death(index, bits);
                    }
                }
                EntryState::Dying => self.count_death(index),
                EntryState::Free | EntryState::Dead => {}
            }
        }
    }

    /// Tells all, once, that the participant is dead. `bits`: the entry's word when that
    /// was found out.
    pub(crate) fn note_death(&self, index: u32, bits: u64) {
        if self.mark_dead(index, bits) {
            self.show_presence(index, false);
        }
        self.count_processors();
        self.wake_all_waiters();
    }

    /// Wakes all that sleep on a doorbell or at the barrier, so that they look around.
    pub(crate) fn wake_all_waiters(&self) {
        let cpu = Native::with_id(0);
        for doorbell in self.segment.doorbells() {
            cpu.wake(&doorbell.0, u32::MAX);
        }
        cpu.wake(&self.control().barrier.episode, u32::MAX);
        self.tell_gateway();
    }

    /// See [`crate::World::process_ended`].
    pub(crate) fn process_ended(&self, index: u32, pid: u32, failed: bool) -> Ending {
        if index >= self.processes {
            return Ending::NeverCame;
        }
        loop {
            let bits = self.entry_bits(index);
            let word = EntryWord::unpack(bits);
            match word.state {
                // The caller may be mistaken: as long as the process lives, it may hold locks. One
                // that joins holds none.
                EntryState::Entered | EntryState::Joining
                    if self.is_entry_of(index, word, pid)
                        && (word.state == EntryState::Joining || self.pulse(index, bits) == Pulse::Dead) =>
                {
                    self.note_death(index, bits);
                    return Ending::Participant;
                }
                // Started by the process that has ended, perhaps in a namespace of its own; or a
                // successor.
                EntryState::Entered | EntryState::Joining => {
                    if self.pulse(index, bits) == Pulse::Dead {
                        self.note_death(index, bits);
                    }
                    return Ending::Replaced;
                }
                EntryState::Free => {
                    let ending = if word.generation == 0 { Ending::NeverCame } else { Ending::Left };
                    if !failed && ending == Ending::Left {
                        return ending;
                    }
                    // A generation's death is counted at most once: one that has left in order had
                    // no death yet.
                    let next = EntryWord {
                        generation: word.generation.max(1),
                        start_hash: 0,
                        pid: if failed { pid & ((1 << PID_BITS) - 1) } else { 0 },
                        state: if failed { EntryState::Dying } else { EntryState::Free },
                    };
                    // Fails if a newcomer was faster.
                    if self.change(index, bits, next) {
                        self.count_death(index);
                        self.wake_all_waiters();
                        return ending;
                    }
                }
                // Another participant was faster to notice.
                EntryState::Dying => {
                    self.count_death(index);
                    return Ending::Participant;
                }
                EntryState::Dead => return Ending::Participant,
            }
        }
    }

    /// Returns whether the entry was made by the process that has this pid here.
    fn is_entry_of(&self, index: u32, word: EntryWord, pid: u32) -> bool {
        // Relaxed: written before the word that says ENTERED, which was read with Acquire (E4). A
        // process that was still joining has not written it.
        let namespace = self.entry(index).namespace.load(Ordering::Relaxed);
        word.pid == pid && (word.state == EntryState::Joining || namespace == self.namespace())
    }

    pub(crate) fn namespace(&self) -> u64 {
        // Relaxed: all processes compute the same value.
        match self.local.namespace.load(Ordering::Relaxed) {
            0 => {
                let namespace = process::own_namespace();
                self.local.namespace.store(namespace, Ordering::Relaxed);
                namespace
            }
            namespace => namespace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Deaths;
    use crate::{World, WorldSpec};

    fn world(processes: u32) -> World {
        let world = World::create(&WorldSpec {
            name: None,
            processes,
            area_bytes: 0,
            object_bytes: 0,
            params: [0; 16],
        });
        world.unwrap()
    }

    #[test]
    fn deaths_name_the_last_rank_of_the_largest_world() {
        let deaths = Deaths(0).next(MOST_PROCESSES - 1, 0xff_ffff);
        assert_eq!((deaths.count(), deaths.rank(), deaths.generation()), (1, MOST_PROCESSES - 1, 0xff_ffff));
        assert_eq!(Deaths(u64::MAX).next(1, 1).count(), 0);
    }

    #[test]
    fn large_world_looks_after_all_ranks_in_turn() {
        let world = world(1000);
        let inner = world.inner();
        let mut now = 77 * TICK;
        // Nothing was ever looked after: all of them at once.
        assert_eq!(inner.due_look(now), Some((0, 1000)));
        assert_eq!(inner.due_look(now + TICK / 2), None, "another process has just looked");
        let mut next = 0;
        for round in 0..40 {
            // Two units more than a tick, of which each look drops a part.
            now += TICK + (2 << LOOKED_UNIT);
            let (from, count) = inner.due_look(now).unwrap();
            assert_eq!((from, count), (next, WINDOW as u32), "round {round}");
            next = (next + count) % 1000;
        }
        // After a pause more are due; a clock that goes back makes all due.
        assert_eq!(inner.due_look(now + 4 * TICK).unwrap().1, 4 * WINDOW as u32);
        assert_eq!(inner.due_look(1).unwrap().1, 1000);
    }

    #[test]
    fn process_keeps_few_descriptors_of_a_large_world() {
        let world = world(300);
        let handles: Vec<World> = (0..300)
            .map(|_| {
                let handle = world.reopen().unwrap();
                handle.enter(None).unwrap();
                handle
            })
            .collect();
        let all = || handles.iter().all(|other| world.is_alive(other.me()));
        assert!(all() && all());
        let kept = world.inner().watched.lock().unwrap().len();
        assert_eq!(kept as u32, WATCHED);
    }
}
