//! `broadcast`: a ring of bytes from one writer to many readers, each of which gets every
//! message at its own pace. Slow readers hold the writer back or, in the lossy mode, are told how
//! many messages they missed.
//!
//! **Source.** Ours. The lossy mode checks a copy as readers of a sequence lock do (Boehm, *Can
//! Seqlocks Get Along With Programming Language Memory Models?*, MSPC 2012). Ends prefetch the
//! lines of the message after the next one, as far as it is there, or there is room for it.
//!
//! **Progress.** Wait-free for the writer while there is room, and always in the lossy mode, but
//! for waiters that mark its word. Readers: wait-free while there is a message; in the lossy mode
//! lock-free.
//!
//! ```text
//! ring, by words:  number | length, LAST, FIRST, GAP | bytes … | number of the next message | …
//! published:       62                        1 0             number of words ever written
//!                  [ position of the next piece ][CLOSED]
//! ```
//!
//! A piece of a message never goes across the end of the ring: a gap is left there. Messages longer
//! than half of the ring travel in pieces, and in the lossy mode not at all.
//!
//! **Fields.** `published`: the writer, by compare-and-swap, since readers mark it before they
//! sleep (`PARKED`), and any process may close. `reserved`: the writer: words before it may be
//! overwritten a lap before. `newest`: the writer: start of its last message, in the lossy mode; a
//! hint. `readers`: see [`Positions`]. The ring: the writer, from `published` to
//! a lap behind the slowest reader.
//!
//! **Crashes.** The writer, before the exchange of `published`: nothing was sent; after it: the
//! piece was. Its readers get what was sent, then [`TransferError::PeerDied`]; its successor goes
//! on at `published`, and readers throw away a message of which the last piece never comes. Killed
//! in a copy, it leaves words behind `published`: no reader looks there, and its successor writes
//! them anew. Copies access each word as an atomic ([`Processor::store_bytes`]): a process that
//! writes where it must not changes bytes, lengths and numbers, which are checked, and no more. A
//! reader: the writer drops it when it waits for room, and tells ([`Broadcast::lost_reader`]).
//! Sleepers that a dead process did not wake look again within a few milliseconds.
//!
//! **Memory.** `N` + 4 lines, and the ring; 16 bytes in it beside each message.
//!
//! **Don't use it** to share work out: every reader gets all. In the lossy mode a reader is told of
//! missed messages with the next one that it gets: not of those behind the last one, which a writer
//! may have begun to overwrite when another process closed the ring.

mod reading;
mod writing;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, Ordering, Place, Processor};

pub use reading::{ReaderEnd, RingPiece};
pub use writing::{Reservation, WriterEnd};

use super::members::{Members, PLACES};
use super::positions::Positions;
use super::{TransferError, WordLine, all_words, word_at};
use crate::Waiting;

/// Part of `published`: nothing more is sent.
const CLOSED: u64 = 1;
/// Number of words of a piece beside its bytes.
const HEAD: u64 = 2;
/// Part of a piece's second word: the first, or last, one of its message.
const FIRST: u64 = 1;
const LAST: u64 = 2;
/// Part of a piece's second word: nothing comes up to the end of the ring.
const GAP: u64 = 4;
/// Part of a piece's second word: first bit of its number of bytes.
const LENGTH: u32 = 3;

/// Number of words of the longest piece after which lines are prefetched.
///
/// The lines of longer ones come together while they are copied.
const PREFETCHED: u64 = 32;

/// Number of words of a piece of so many bytes.
const fn words_of(bytes: usize) -> u64 {
    HEAD + bytes.div_ceil(8) as u64
}

/// The writer's line.
#[derive(Debug)]
#[repr(C, align(64))]
struct WriterLine<P: Processor> {
    published: P::Word,
    reserved: P::Word,
    newest: P::Word,
}

/// Head of the ring. All-zero memory is that of an empty one.
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct BroadcastHead<P: Processor, const N: usize = PLACES> {
    writer: WriterLine<P>,
    /// The writer, and whether the ring was closed.
    members: Members<P, 1>,
    readers: Positions<P, N>,
}

impl<P: Processor, const N: usize> BroadcastHead<P, N> {
    /// The head of an empty ring, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::queues::{Broadcast, BroadcastHead, WordLine};
    ///
    /// let (head, lines) = (BroadcastHead::<Native>::in_arena(&Heap), WordLine::row(&Heap, 16));
    /// assert_eq!(Broadcast::of(&head, &lines, false).readers(&Native::current()), 0);
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        let word = |place| arena.word(place, 0);
        BroadcastHead {
            writer: WriterLine {
                published: word(Place::NewLine),
                reserved: word(Place::SameLine),
                newest: word(Place::SameLine),
            },
            members: Members::in_arena(arena),
            readers: Positions::in_arena(arena),
        }
    }
}

/// The ring, wherever its parts lie.
///
/// `ring` in the examples has a kilobyte, its writer and a reader (`doc/queues.rs`).
#[derive(OpaqueDebug)]
pub struct Broadcast<'a, P: Processor, const N: usize = PLACES> {
    head: &'a BroadcastHead<P, N>,
    ring: &'a [WordLine<P>],
    lossy: bool,
}

impl<P: Processor, const N: usize> Clone for Broadcast<'_, P, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor, const N: usize> Copy for Broadcast<'_, P, N> {}

impl<'a, P: Processor, const N: usize> Broadcast<'a, P, N> {
    /// Maximum number of bytes of a ring.
    pub const MOST: usize = 1 << 40;

    /// Number of lines of a ring of at least so many bytes.
    ///
    /// # Panics
    ///
    /// If that is more than [`Broadcast::MOST`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::Broadcast;
    /// assert_eq!(Broadcast::<Native>::lines(1000), 16); // of 64 bytes
    /// ```
    pub fn lines(bytes: usize) -> usize {
        assert!(bytes <= Self::MOST, "a ring of {bytes} bytes");
        bytes.div_ceil(64).next_power_of_two()
    }

    /// The ring of these parts: a power of two of lines.
    ///
    /// # Panics
    ///
    /// If it is not one.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::Spinning;
    /// # use towpath_sync::queues::{Broadcast, BroadcastHead, TransferError, WordLine};
    /// let (head, lines) = (BroadcastHead::<Native>::in_arena(&Heap), WordLine::row(&Heap, 16));
    /// let lossy = Broadcast::of(&head, &lines, true);
    /// assert!(lossy.join_writer(&Native::current(), &Spinning).is_ok());
    /// ```
    #[inline(always)]
    pub fn of(head: &'a BroadcastHead<P, N>, ring: &'a [WordLine<P>], lossy: bool) -> Self {
        assert!(ring.len().is_power_of_two());
        Broadcast { head, ring, lossy }
    }

    /// Number of words of the ring.
    #[inline(always)]
    const fn size(&self) -> u64 {
        self.ring.len() as u64 * 8
    }

    /// Maximum number of bytes of a message that travels in one piece.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// let long =
    ///     ring.reserve(&cpu, &Spinning, &mut writer, ring.most_whole() + 1, Deadline::PAST);
    /// assert_eq!(long.err(), Some(TransferError::TooLong { most: ring.most_whole() }));
    /// # Ok(())
    /// # }
    /// ```
    pub const fn most_whole(&self) -> usize {
        (self.size() / 2 - HEAD) as usize * 8
    }

    /// The lines.
    pub(super) const fn row(&self) -> &'a [WordLine<P>] {
        self.ring
    }

    /// Place of the first byte of room, or of a piece, among those of the lines.
    pub(super) const fn first_byte(&self, at: u64) -> usize {
        ((at + HEAD) & (self.size() - 1)) as usize * 8
    }

    #[inline(always)]
    fn word(&self, at: u64) -> &'a P::Word {
        word_at(self.ring, (at & (self.size() - 1)) as usize)
    }

    /// The words of so many bytes of the piece there, which end with the ring at most.
    #[inline(always)]
    fn content(&self, at: u64, bytes: usize) -> &'a [P::Word] {
        let first = self.first_byte(at) / 8;
        &all_words(self.ring)[first..][..bytes.div_ceil(8)]
    }

    /// Prefetches the lines of a piece of so many words, two pieces after the one there.
    ///
    /// As far as `end`; none if the piece is long.
    #[inline(always)]
    fn prefetch_after(&self, at: u64, words: u64, end: u64, prefetch: impl Fn(&P::Word)) {
        if words > PREFETCHED {
            return;
        }
        let first = at.wrapping_add(2 * words);
        for k in (0..PREFETCHED).step_by(8) {
            if k < words && first.wrapping_add(k) < end {
                prefetch(self.word(first.wrapping_add(k)));
            }
        }
    }

    /// Number of readers, some of which may be dead.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// assert_eq!(ring.readers(&cpu), 1);
    /// ring.leave_reader(&cpu, &Spinning, &reader);
    /// assert_eq!(ring.readers(&cpu), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn readers(&self, cpu: &P) -> usize {
        self.head.readers.count(cpu)
    }

    /// Looks for readers that died, and drops them: [`TransferError::PeerDied`] for one
    /// that the writer was not told of yet.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// # use towpath_sync::Wait;
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// # ring.leave_reader(&cpu, &Spinning, &reader);
    /// ring.join_reader(&cpu, &first)?; // and dies
    /// let lost = ring.lost_reader(&cpu, &second);
    /// assert!(matches!(lost, Some(TransferError::PeerDied { .. })));
    /// assert_eq!(ring.lost_reader(&cpu, &second), None); // told once
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost_reader<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<TransferError> {
        self.head.readers.drop_dead(cpu, wait);
        self.head.readers.next_lost(cpu, wait)
    }

    fn mark_closed<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: an update, behind which a reader still sees what (BC2) published.
        cpu.fetch_or(&self.head.writer.published, CLOSED, Ordering::Relaxed);
        wait.wake_all(cpu, &self.head.writer.published);
    }

    /// Closes the ring: the writer is refused, readers get the messages sent before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// ring.close(&cpu, &Spinning);
    /// let refused = ring.send(&cpu, &Spinning, &mut writer, b"abc", Deadline::NEVER);
    /// assert_eq!(refused, Err(TransferError::Closed));
    /// # Ok(())
    /// # }
    /// ```
    pub fn close<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.head.members.close(cpu);
        self.mark_closed(cpu, wait);
        self.head.readers.wake_writer(cpu, wait);
    }
}
