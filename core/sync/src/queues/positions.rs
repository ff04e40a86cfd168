//! `positions`: the readers of a ring, each with the position up to which it has read,
//! so that the writer does not pass the slowest one.
//!
//! **Source.** Ours.
//!
//! **Progress.** Lock-free.
//!
//! ```text
//! lines[i].owner:     62            32 31   2    1       0
//!                     [ identity      ][ – ][DROPPED][HELD]
//! lines[i].position:  62            1  0
//!                     [ position      ][LEFT]
//! ```
//!
//! | owner of a place | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | held, by a reader |
//! | held | its position holds the writer back, unless it has left | 0, by that reader; if it is dead: dropped, by the writer, or held, by another reader |
//! | dropped | its reader died, and the writer has yet to be told | 0, by the writer; held, by a reader that finds no free place |
//!
//! **Fields.** `used`: places that were ever taken, a bit each: any reader. `owner`: by those of
//! the table. `position`: the place's reader; the writer marks it before it sleeps.
//!
//! **Crashes.** A reader that joins, before its place is taken: nothing. Afterwards: a dead reader,
//! which may hold the writer back at an older position than its own, until the writer drops it. One
//! that leaves, before the exchange of `owner`: a dead reader, which holds back no more once it has
//! left; after it: has left. A writer, before a place is free again: its successor is told.
//!
//! **Memory.** `N` + 1 lines.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::TransferError;
use crate::{PARKED, Waiting};

/// Part of a position: its reader does not hold the writer back.
const LEFT: u64 = 1;
/// Value of an owner: a reader has the place.
const HELD: u64 = 1;
/// Value of an owner: its reader died, and the writer has yet to be told.
const DROPPED: u64 = 2;

const fn identity(owner: u64) -> u32 {
    (owner >> 32) as u32
}

const fn held_by(identity: u32) -> u64 {
    (identity as u64) << 32 | HELD
}

/// A reader's line.
#[derive(Debug)]
#[repr(C, align(64))]
struct ReaderLine<P: Processor> {
    owner: P::Word,
    position: P::Word,
}

/// The readers.
#[repr(C)]
pub(super) struct Positions<P: Processor, const N: usize> {
    used: OwnLine<P::Word>,
    lines: [ReaderLine<P>; N],
}

impl<P: Processor, const N: usize> Positions<P, N> {
    pub(super) fn in_arena(arena: &impl Arena<P>) -> Self {
        const { assert!(N <= 64) };
        Positions {
            used: OwnLine(arena.word(Place::NewLine, 0)),
            lines: core::array::from_fn(|_| ReaderLine {
                owner: arena.word(Place::NewLine, 0),
                position: arena.word(Place::SameLine, 0),
            }),
        }
    }

    /// The word with a reader's position, for the writer to wait on.
    pub(super) const fn position(&self, place: usize) -> &P::Word {
        &self.lines[place].position
    }

    fn owner(&self, cpu: &P, place: usize) -> u64 {
        // Relaxed: exchanges compare, and the dead do not read any more.
        cpu.load(&self.lines[place].owner, Ordering::Relaxed)
    }

    fn change(&self, cpu: &P, place: usize, owner: u64, next: u64) -> bool {
        // Relaxed, both: as in `owner`; and a scan that misses the place comes before (BC5).
        let word = &self.lines[place].owner;
        cpu.compare_exchange(word, owner, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes a place for the calling process: a free one, or else one of the dead.
    ///
    /// # Errors
    ///
    /// [`TransferError::Capacity`].
    pub(super) fn take_place<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<usize, TransferError> {
        let mine = held_by(wait.identity());
        loop {
            let is_left = |owner: u64| owner & HELD == 0 || !wait.is_alive(identity(owner));
            let seen = |place| (place, self.owner(cpu, place));
            let free = (0..N).map(seen).find(|&(_, owner)| owner == 0);
            let left = || (0..N).map(seen).find(|&(_, owner)| is_left(owner));
            let (place, owner) = free.or_else(left).ok_or(TransferError::Capacity)?;
            if self.change(cpu, place, owner, mine) {
                // Relaxed: ordered by (BC5).
                cpu.fetch_or(&self.used.0, 1 << place, Ordering::Relaxed);
                return Ok(place);
            }
        }
    }

    /// Writes down a first position of the calling process: from now on the writer does
    /// not pass it. Messages published meanwhile may be overwritten; the caller looks again.
    pub(super) fn announce<W: Waiting<P>>(&self, cpu: &P, wait: &W, place: usize, position: u64) {
        wait.release(cpu, &self.lines[place].position, position << 1);
        // (BC5) SeqCst: either the writer's scan sees this place, or the next look sees all that
        // was published before the scan; pairs with the fence (BC6).
        cpu.fence(Ordering::SeqCst);
    }

    /// Writes down a position of the calling process, before which it has read all.
    #[inline]
    pub(super) fn advance<W: Waiting<P>>(&self, cpu: &P, wait: &W, place: usize, position: u64) {
        let word = &self.lines[place].position;
        // Relaxed: its own. Its Release (2) pairs with the Acquire (BC4).
        if cpu.load(word, Ordering::Relaxed) & !PARKED != position << 1 {
            wait.release(cpu, word, position << 1);
        }
    }

    /// Takes the calling process off its place.
    pub(super) fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W, place: usize) {
        let (line, mine) = (&self.lines[place], held_by(wait.identity()));
        // A forked child does not have its parent's place.
        if self.owner(cpu, place) != mine {
            return;
        }
        // (BC3) Release: what it read comes before the writer's next lap; pairs with the Acquire
        // (BC4).
        let is_awaited = cpu.fetch_or(&line.position, LEFT, Ordering::Release) & PARKED != 0;
        // (BC3b) Release: as (BC3); pairs with the Acquire (BC4b).
        let left = cpu.compare_exchange(&line.owner, mine, 0, Ordering::Release, Ordering::Relaxed);
        debug_assert!(left.is_ok());
        if is_awaited {
            wait.wake_all(cpu, &line.position);
        }
    }

    /// Numbers of the places that were ever taken.
    fn used(&self, cpu: &P) -> impl Iterator<Item = usize> {
        // Relaxed: ordered by (BC6) where it matters.
        let used = cpu.load(&self.used.0, Ordering::Relaxed);
        (0..N).filter(move |&place| used >> place & 1 == 1)
    }

    /// Number of readers, some of which may be dead.
    pub(super) fn count(&self, cpu: &P) -> usize {
        self.used(cpu).filter(|&place| self.owner(cpu, place) & HELD != 0).count()
    }

    /// The slowest reader: its place, and its position as it is in the word.
    pub(super) fn slowest(&self, cpu: &P) -> Option<(usize, u64)> {
        // (BC6) SeqCst: pairs with the fence (BC5), see there.
        cpu.fence(Ordering::SeqCst);
        let position = |place: usize| {
            let line = &self.lines[place];
            // (BC4) Acquire: the reader has read what lies before; pairs with the Release (2) of
            // `Waiting::release` in `advance`, and with (BC3).
            let position = cpu.load(&line.position, Ordering::Acquire) & !PARKED;
            // (BC4b) Acquire: as (BC4); pairs with the Release (BC3b).
            let is_held = cpu.load(&line.owner, Ordering::Acquire) & HELD != 0;
            (is_held && position & LEFT == 0).then_some((place, position))
        };
        self.used(cpu).filter_map(position).min_by_key(|&(_, position)| position)
    }

    /// Drops dead readers. Returns whether there were any.
    pub(super) fn drop_dead<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        let drops = |place: usize| {
            let owner = self.owner(cpu, place);
            owner & HELD != 0
                && !wait.is_alive(identity(owner))
                && self.change(cpu, place, owner, owner & !HELD | DROPPED)
        };
        self.used(cpu).filter(|&place| drops(place)).count() > 0
    }

    /// A dropped reader of which the writer was not told yet.
    pub(super) fn next_lost<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<TransferError> {
        self.used(cpu).find_map(|place| {
            let owner = self.owner(cpu, place);
            (owner & DROPPED != 0 && self.change(cpu, place, owner, 0))
                .then(|| TransferError::PeerDied { rank: wait.rank_of(identity(owner)) })
        })
    }

    /// Wakes the writer, whatever it waits for.
    pub(super) fn wake_writer<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.used(cpu).for_each(|place| wait.wake_all(cpu, &self.lines[place].position));
    }
}
