//! `barrier`: no participant passes before all have arrived; a dead one is reported to
//! all others at one time, and not waited for again.
//!
//! **Source.** The sense-reversing central barrier (Mellor-Crummey & Scott 1991, algorithm 7).
//! The count only tells which participant looks whether all have arrived; each writes its arrival
//! into a place of its own, so no death leaves a count wrong. The outcome of an episode is in the
//! word that ends it, so that all waiters read the same.
//!
//! **Progress.** Blocking, by nature; a dead participant holds the others up for no longer than it
//! takes to notice its death.
//!
//! ```text
//! episode:    63       62            32 31      24 23       0
//!             [PARKED ][ dead, or 0    ][ joins   ][ number  ]
//! places[i]:           62            32 31    30        29        16 15        0
//!                      [ identity      ][TOLD][PENDING   ][ processor ][ arrived  ]
//! ```
//!
//! **Fields.** `episode`: any participant, by compare-and-swap. `places[i]`: 0; from 0, or from a
//! dead participant's that was told of, or from one's that has left, by the one that takes it;
//! then by that one; [`TOLD`] by any; [`VOID`] by a newcomer. `count`: number of arrivals and of
//! known deaths in this episode, or a higher one, below the number of the last episode: a hint to
//! the participant that looks at once; the others look every millisecond.
//!
//! A participant that takes the place of another one counts itself in `joins`, so that no episode
//! ends by an older look at the places.
//!
//! **Crashes.** Before it arrives, or after: the others end the episode without it, and all get
//! its identity ([`EpisodeError::PeerDied`]). That is said once: before the next episode ends, its
//! place is marked, as that of a participant that leaves, of which no other is told. If two have
//! died, the second is reported by the next episode. A participant that dies before it arrives for
//! the first time is not known: the others wait until their deadlines, or until another comes
//! instead. A waiter at its deadline has arrived ([`PENDING`]); it waits for the same episode when
//! it comes again.
//!
//! **Newcomers.** One that finds all places taken, one of them by a dead participant, waits until
//! the others are told of that death, and takes its place.
//!
//! **Renewal.** If all places are taken and no process lives that has one, or has left one, a
//! newcomer marks them as [`VOID`] before it takes one: newcomers wait for as many as the barrier
//! was made for, and are told of no earlier death. One that dies before all are marked leaves that
//! to the next one. If a newcomer takes a place meanwhile without a look at the others, it waits,
//! too.
//!
//! **Memory.** `N` / 8 + 2 lines.
//!
//! **Don't use it** where no participant can die alone: `centralized` and its like are faster.
//! Use the barrier of a world where all its ranks take part.

mod threads;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, Native, Ordering, OwnLine, Place, Processor};

use super::EpisodeError;
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

/// Part of a place: the death of its participant was told, or it has left.
const TOLD: u64 = 1 << 31;
/// Part of a place: its participant has arrived, and has not had the outcome yet.
const PENDING: u64 = 1 << 30;
/// Part of a place, both: it counts as one that none has taken.
const VOID: u64 = TOLD | PENDING;
/// Part of a place: first bit of the processor's number.
const PROCESSOR: u32 = 16;
/// Part of a place: the episode at which its participant has arrived, modulo 2¹⁶.
const ARRIVED: u64 = (1 << 16) - 1;
/// Part of a place: identity and processor.
const OWNER: u64 = !(PARKED | TOLD | PENDING | ARRIVED);
/// Part of the episode: its number, modulo 2²⁴.
const NUMBER: u64 = (1 << 24) - 1;
/// Part of the episode: one participant that took the place of another one; they are
/// counted modulo 2⁸.
const JOIN: u64 = 1 << 24;
/// Part of the episode: number of such participants.
const JOINS: u64 = 0xff * JOIN;

/// Part of the count: first bit of the number of the last episode that it does not count.
const COUNTED: u32 = 32;
/// Part of the count: number of arrivals and of known deaths.
const ARRIVALS: u64 = (1 << COUNTED) - 1;

const fn identity(value: u64) -> u32 {
    (value >> 32) as u32 & 0x7fff_ffff
}

/// Returns whether no participant has this place.
const fn is_free(place: u64) -> bool {
    place == 0 || place & VOID == VOID
}

/// Number of the episode after that one.
const fn next_number(episode: u64) -> u64 {
    episode.wrapping_add(1) & NUMBER
}

/// Returns whether an episode is the one of this number, or a later one.
const fn has_reached(episode: u64, mine: u64) -> bool {
    episode.wrapping_sub(mine) & NUMBER <= NUMBER / 2
}

/// A barrier for some participants, with `N` places. Between processes: a named object
/// of a world.
///
/// ```
/// use towpath_sync::robust::Barrier;
///
/// let barrier = Barrier::new(2);
/// std::thread::scope(|scope| {
///     scope.spawn(|| barrier.wait());
///     barrier.wait()
/// })?;
/// # Ok::<(), towpath_sync::robust::EpisodeError>(())
/// ```
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct Barrier<P: Processor = Native, const N: usize = 64> {
    episode: OwnLine<P::Word>,
    arrivals: ArrivalCount<P>,
    places: [P::Word; N],
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ArrivalCount<P: Processor> {
    count: P::Word,
    /// Number of participants. Written before the barrier is used, and never again.
    participants: P::Word,
}

impl<P: Processor, const N: usize> Barrier<P, N> {
    /// Maximum number of participants.
    pub const MOST: usize = N;

    /// A barrier for so many participants, in memory of the given arena.
    ///
    /// # Panics
    ///
    /// If there are none or more than `N`.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::robust::Barrier;
    ///
    /// let barrier = Barrier::<Native, 8>::in_arena(&Heap, 3);
    /// assert_eq!(barrier.participants(&Native::current()), 3);
    /// ```
    pub fn in_arena(arena: &impl Arena<P>, participants: usize) -> Self {
        assert!(
            (1..=N).contains(&participants),
            "{participants} participants for a barrier with {N} places: choose one with enough of them"
        );
        Barrier {
            episode: OwnLine(arena.word(Place::NewLine, 0)),
            arrivals: ArrivalCount {
                count: arena.word(Place::NewLine, 0),
                participants: arena.word(Place::SameLine, participants as u64),
            },
            places: core::array::from_fn(|i| arena.word(Place::in_row(i % 8), 0)),
        }
    }

    /// Sets the number of participants (1 to `N`) of a barrier that came to be as
    /// zeroed memory, before any process uses it.
    ///
    /// ```
    /// # use towpath_machine::{Native, zeroed};
    /// # use towpath_sync::robust::Barrier;
    /// // as memory of a segment is
    /// let (cpu, barrier): (_, Barrier) = (Native::current(), zeroed());
    /// barrier.prepare_with(&cpu, 2);
    /// assert_eq!(barrier.participants(&cpu), 2);
    /// ```
    pub fn prepare_with(&self, cpu: &P, participants: usize) {
        // Relaxed: published with the object.
        cpu.store(&self.arrivals.participants, participants.clamp(1, N) as u64, Ordering::Relaxed);
    }

    /// Number of participants that the barrier was made for.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::robust::Barrier;
    /// assert_eq!(Barrier::new(4).participants(&Native::current()), 4);
    /// ```
    pub fn participants(&self, cpu: &P) -> u64 {
        // Relaxed: never changed while it is used. Another process may have written anything.
        cpu.load(&self.arrivals.participants, Ordering::Relaxed).clamp(1, N as u64)
    }

    /// Takes the caller's place without arriving, so that the others know it if it dies
    /// before it arrives for the first time.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::Capacity`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::robust::{Barrier, EpisodeError};
    /// # use towpath_sync::{Deadline, Wait};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (cpu, barrier) = (Native::with_id(0), Barrier::<Native, 2>::in_arena(&Heap, 2));
    /// barrier.join_as(&cpu, &first)?; // and dies before it arrives
    /// let outcome = barrier.wait_as(&cpu, &second, Deadline::NEVER);
    /// assert_eq!(outcome, Err(EpisodeError::PeerDied { rank: None }));
    /// # Ok::<(), EpisodeError>(())
    /// ```
    pub fn join_as<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), EpisodeError> {
        self.place_for(cpu, wait).map(|_| ())
    }

    /// The caller's place, taken if it has none.
    fn place_for<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<usize, EpisodeError> {
        if let Some(place) = self.place_of(cpu, Self::owner(wait.identity(), cpu.id())) {
            return Ok(place);
        }
        self.renew(cpu, wait);
        self.join_for(cpu, wait.identity(), cpu.id()).ok_or(EpisodeError::Capacity)
    }

    /// A place for the caller, where all are taken.
    ///
    /// If one of them has a dead participant, the caller waits until the others are told of that.
    #[cold]
    fn await_place<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<usize, EpisodeError> {
        let mut turns = None;
        loop {
            // Relaxed: with an older word the wait ends at once, and each turn looks again.
            let episode = cpu.load(&self.episode, Ordering::Relaxed) & !PARKED;
            let taken = self.place_for(cpu, wait);
            // Relaxed: identities; a later look finds the death that this one does not see.
            let is_dead = |word| !wait.is_alive(identity(cpu.load(word, Ordering::Relaxed)));
            if taken.is_ok() || !self.places(cpu, 0).any(|(_, word)| is_dead(word)) {
                return taken;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            turns.wait(cpu, wait, &self.episode, episode).map_err(|_| EpisodeError::TimedOut)?;
        }
    }

    /// Marks all places as [`VOID`] if all are taken, by none that lives.
    fn renew<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        let mut seen = [0; N];
        for (place, word) in self.places(cpu, 0) {
            // (Q8) Acquire: the marks that a newcomer made or saw before it took a place; pairs
            // with the Release (Q7).
            seen[place] = cpu.load(word, Ordering::Acquire);
            if seen[place] == 0 || wait.is_alive(identity(seen[place])) {
                return;
            }
        }
        for (place, word) in self.places(cpu, 0) {
            let (seen, void) = (seen[place], seen[place] | VOID);
            // Relaxed: a mark. The dead change nothing; a newcomer may have taken the place.
            let _ = cpu.compare_exchange(word, seen, void, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Arrives, and waits until all participants have arrived. The participant is the
    /// processor of this number in the process of this identity.
    ///
    /// # Errors
    ///
    /// See [`EpisodeError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::robust::{Barrier, EpisodeError};
    /// # use towpath_sync::{Alone, Deadline, Wait};
    /// let barrier = Barrier::<Native, 2>::in_arena(&Heap, 2);
    /// let arrive =
    ///     |id| barrier.wait_as(&Native::with_id(id), &Wait::adaptive(&Alone), Deadline::NEVER);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| arrive(1));
    ///     arrive(0)
    /// })?;
    /// # Ok::<(), EpisodeError>(())
    /// ```
    pub fn wait_as<W: Waiting<P> + Clone>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<(), EpisodeError> {
        let place = self.place_for(cpu, wait).or_else(|_| self.await_place(cpu, wait, deadline))?;
        let (mine, count) = self.arrive(cpu, wait, place, PENDING);
        let word = &self.places[place];
        let missing = self.participants(cpu).saturating_sub(count);
        let patient = wait.scaled(missing);
        let mut turns = Turns::new(cpu, deadline, TURN);
        loop {
            // (Q1) Acquire: what all did before they arrived; pairs with the Release (Q2).
            let episode = cpu.load(&self.episode, Ordering::Acquire) & !PARKED;
            if has_reached(episode, mine) {
                // It is this one: the next one needs this participant.
                // Relaxed: only this participant writes its place, while it lives.
                cpu.store(word, cpu.load(word, Ordering::Relaxed) & !PENDING, Ordering::Relaxed);
                return match identity(episode) {
                    0 => Ok(()),
                    dead => Err(EpisodeError::PeerDied { rank: wait.rank_of(dead) }),
                };
            }
            if turns.is_time_to_ask(cpu) && self.end(cpu, wait, mine) {
                continue;
            }
            turns.wait(cpu, &patient, &self.episode, episode).map_err(|_| EpisodeError::TimedOut)?;
        }
    }

    /// Arrives without waiting, and gives the caller's place up: from then on no episode
    /// waits for it. Another participant, or the caller once more, may take the place by coming.
    ///
    /// Returns whether it had a place.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::robust::{Barrier, EpisodeError};
    /// # use towpath_sync::{Deadline, Spinning};
    /// let [one, other] = [Native::with_id(0), Native::with_id(1)];
    /// let barrier = Barrier::<Native, 2>::in_arena(&Heap, 2);
    /// barrier.join_as(&other, &Spinning)?;
    /// assert!(barrier.leave_as(&other, &Spinning)); // and arrives, for the last time
    /// barrier.wait_as(&one, &Spinning, Deadline::NEVER)?;
    /// # Ok::<(), EpisodeError>(())
    /// ```
    pub fn leave_as<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        let Some(place) = self.place_of(cpu, Self::owner(wait.identity(), cpu.id())) else { return false };
        self.arrive(cpu, wait, place, TOLD);
        true
    }

    /// Arrives, with that mark in the caller's place: [`PENDING`], or [`TOLD`] if it
    /// leaves. Returns the number of the episode, and how many have arrived, or a few more.
    fn arrive<W: Waiting<P>>(&self, cpu: &P, wait: &W, place: usize, mark: u64) -> (u64, u64) {
        // Relaxed: nothing is read that others have written before. This episode can't end before
        // this participant arrives, so the next number is its own.
        let mine = next_number(cpu.load(&self.episode, Ordering::Relaxed));
        let word = &self.places[place];
        // Relaxed: only this participant writes its place, while it lives.
        let seen = cpu.load(word, Ordering::Relaxed);
        if seen & mark & PENDING != 0 {
            // It has arrived before, at this episode or the last one, and its time was over.
            let at_next = seen & ARRIVED == mine & ARRIVED;
            return (if at_next { mine } else { mine.wrapping_sub(1) & NUMBER }, 0);
        }
        let arrived = seen & OWNER | mark | mine & ARRIVED;
        // (Q3) Release: what it did before; pairs with the Acquire (Q4).
        cpu.store(word, arrived, Ordering::Release);
        // (Q5) AcqRel: the places of all that have counted before; pairs with itself.
        let count = (cpu.fetch_add(&self.arrivals.count, 1, Ordering::AcqRel) & ARRIVALS) + 1;
        if count >= self.participants(cpu) {
            self.end(cpu, wait, mine);
        }
        (mine, count)
    }

    /// Identity and processor, as places have them.
    fn owner(identity: u32, processor: usize) -> u64 {
        u64::from(identity) << 32 | (processor as u64) << PROCESSOR & (PENDING - 1)
    }

    /// The place of a participant, which has not left.
    fn place_of(&self, cpu: &P, owner: u64) -> Option<usize> {
        // Relaxed: this participant has written it.
        let is_its_own = |word: &P::Word| cpu.load(word, Ordering::Relaxed) & (OWNER | TOLD) == owner;
        self.places(cpu, owner).find(|(_, word)| is_its_own(word)).map(|(place, _)| place)
    }

    /// The places of participants, with their numbers, from the usual one of an owner on.
    fn places(&self, cpu: &P, owner: u64) -> impl Iterator<Item = (usize, &P::Word)> {
        let participants = self.participants(cpu) as usize;
        let first = ((owner & (PENDING - 1)) >> PROCESSOR) as usize;
        (0..participants).map(move |i| (first + i) % participants).map(|place| (place, &self.places[place]))
    }

    /// Place of the processor of this number in the process of this identity, taken if
    /// it has none.
    #[doc(hidden)]
    pub fn join_for(&self, cpu: &P, identity: u32, processor: usize) -> Option<usize> {
        let me = Self::owner(identity, processor);
        loop {
            if let Some(place) = self.place_of(cpu, me) {
                return Some(place);
            }
            // Relaxed: a number and an identity. Of places only what an exchange confirms counts.
            let last = cpu.load(&self.episode, Ordering::Relaxed);
            self.note_told(cpu, last);
            // A free one; if there is none, that of a participant whose death all others know, or
            // that has left. Relaxed: the exchange compares.
            let seen =
                || self.places(cpu, me).map(|(place, word)| (place, cpu.load(word, Ordering::Relaxed)));
            let free = seen().find(|&(_, seen)| is_free(seen));
            let (place, seen) = free.or_else(|| seen().find(|&(_, seen)| seen & TOLD != 0))?;
            // It has arrived nowhere yet: at the last episode, which is over.
            let taken = me | last & ARRIVED;
            let word = &self.places[place];
            // (Q7) Release: the marks on other places; pairs with the Acquire (Q8). Its work before
            // is published by its arrival (Q3).
            let done = cpu.compare_exchange(word, seen, taken, Ordering::Release, Ordering::Relaxed).is_ok();
            if done && seen != 0 {
                self.note_join(cpu);
            }
        }
    }

    /// Counts a participant that took the place of another one. An episode that ends
    /// afterwards ends by a look at its place.
    fn note_join(&self, cpu: &P) {
        // Relaxed: the exchange compares.
        let mut seen = cpu.load(&self.episode, Ordering::Relaxed);
        loop {
            let next = seen & !JOINS | seen.wrapping_add(JOIN) & JOINS;
            // (Q6) Release: for the place; pairs with the Acquire (Q1d). An update hands on what
            // the replaced number released (Q2).
            match cpu.compare_exchange(&self.episode, seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Marks the place of the participant whose death an episode has reported.
    fn note_told(&self, cpu: &P, episode: u64) {
        let dead = identity(episode);
        if dead == 0 {
            return;
        }
        for word in &self.places {
            // Relaxed: a mark; the exchange compares. The dead change nothing.
            let seen = cpu.load(word, Ordering::Relaxed);
            if identity(seen) == dead && seen & TOLD == 0 {
                let told = seen & !PENDING | TOLD;
                let _ = cpu.compare_exchange(word, seen, told, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Ends this episode if it is the next one, and all its participants have arrived
    /// or are dead. Returns whether it is over.
    fn end<W: Waiting<P>>(&self, cpu: &P, wait: &W, mine: u64) -> bool {
        loop {
            // (Q1d) Acquire: as (Q1); pairs with the Release (Q2).
            let seen = cpu.load(&self.episode, Ordering::Acquire);
            if next_number(seen) != mine {
                return true;
            }
            self.note_told(cpu, seen);
            let Some((dead, known)) = self.all_arrived(cpu, wait, mine) else { return false };
            if self.turn_over(cpu, wait, seen, u64::from(dead) << 32 | seen & JOINS | mine, known) {
                return true;
            }
        }
    }

    /// Returns a participant that died before it arrived (or 0) and the number of
    /// deaths that are known then, if all others have arrived.
    fn all_arrived<W: Waiting<P>>(&self, cpu: &P, wait: &W, mine: u64) -> Option<(u32, u64)> {
        let participants = self.participants(cpu) as usize;
        let (mut dead, mut known) = (0, 0);
        for word in &self.places[..participants] {
            // (Q4) Acquire: pairs with the Release (Q3).
            let place = cpu.load(word, Ordering::Acquire);
            if is_free(place) {
                return None;
            } else if place & TOLD != 0 {
                known += 1;
            } else if place & ARRIVED != mine & ARRIVED {
                if wait.is_alive(identity(place)) {
                    return None;
                }
                // One that arrived and died then is told of by a later episode, when it does not
                // arrive.
                dead = identity(place);
            }
        }
        Some((dead, known + u64::from(dead != 0)))
    }

    /// Begins the count of the next episode's arrivals.
    ///
    /// `last`: the count as it was seen before the episode `mine` ended. `known`: number of deaths
    /// that count as arrivals. The count may be too high afterwards, but not too low.
    fn begin_count(&self, cpu: &P, mine: u64, last: u64, known: u64) {
        let count = &self.arrivals.count;
        // Relaxed, all: a hint. Exchanges, so that the arrivals (Q5) stay one sequence.
        let mut seen = cpu.load(count, Ordering::Relaxed);
        // Otherwise this count, or a later one, has begun.
        while !has_reached(seen >> COUNTED, mine) {
            // Arrivals at the next episode may have been counted already.
            let counted = if (seen ^ last) >> COUNTED == 0 { last & ARRIVALS } else { 0 };
            let arrivals = known + (seen & ARRIVALS).saturating_sub(counted);
            let next = mine << COUNTED | arrivals;
            match cpu.compare_exchange(count, seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Replaces the word of the episode, unless it has changed otherwise than by a
    /// sleeper's mark. Wakes the sleepers. `known`: number of deaths that count as arrivals.
    fn turn_over<W: Waiting<P>>(&self, cpu: &P, wait: &W, mut seen: u64, next: u64, known: u64) -> bool {
        // Relaxed: a hint.
        let count = cpu.load(&self.arrivals.count, Ordering::Relaxed);
        loop {
            // (Q2) Release: pairs with the Acquire (Q1). The number before was acquired by (Q1d); a
            // sleeper's mark continues that. Relaxed if it fails: (Q1d) looks again.
            match cpu.compare_exchange(&self.episode, seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    self.begin_count(cpu, next & NUMBER, count, known);
                    if seen & PARKED != 0 {
                        wait.wake_all(cpu, &self.episode);
                    }
                    return true;
                }
                Err(now) if now & !PARKED == seen & !PARKED => seen = now,
                Err(_) => return false,
            }
        }
    }
}
