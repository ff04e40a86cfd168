//! `broadcast`: a ring of bytes from one writer to many readers, each of which gets every
//! message at its own pace. Slow readers hold the writer back or, in the lossy mode, are told how
//! many messages they missed.
//!
//! **Source.** Ours. The lossy mode checks a copy as readers of a sequence lock do (Boehm, *Can
//! Seqlocks Get Along With Programming Language Memory Models?*, MSPC 2012).
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
//! sleep ([`PARKED`]), and any process may close. `reserved`: the writer: words before it may be
//! overwritten a lap before. `newest`: the writer: start of its last message, in the lossy mode; a
//! hint. `readers`: see [`Positions`]. The ring: the writer, from `published` to
//! a lap behind the slowest reader.
//!
//! **Crashes.** The writer, before the exchange of `published`: nothing was sent; after it: the
//! piece was. Its readers get what was sent, then [`TransferError::PeerDied`]; its successor goes
//! on at `published`, and readers throw away a message of which the last piece never comes. A
//! reader: the writer drops it when it waits for room, and tells ([`Broadcast::lost_reader`]).
//! Sleepers that a dead process did not wake look again within a few milliseconds.
//!
//! **Memory.** `N` + 4 lines, and the ring; 16 bytes in it beside each message.
//!
//! **Don't use it** to share work out: every reader gets all. In the lossy mode a reader is told of
//! missed messages with the next one that it gets: not of those behind the last one, which a writer
//! may have begun to overwrite when another process closed the ring.

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::members::{Members, PLACES, QueueSide};
use super::positions::Positions;
use super::{TransferError, WordLine};
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

/// In `published`: nothing more is sent.
const CLOSED: u64 = 1;
/// Number of words of a piece beside its bytes.
const HEAD: u64 = 2;
/// In a piece's second word: the first, or last, one of its message.
const FIRST: u64 = 1;
const LAST: u64 = 2;
/// In a piece's second word: nothing comes up to the end of the ring.
const GAP: u64 = 4;
/// In a piece's second word: first bit of its number of bytes.
const LENGTH: u32 = 3;

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
#[allow(missing_debug_implementations, reason = "words without a form to show")]
#[repr(C)]
pub struct BroadcastHead<P: Processor, const N: usize = PLACES> {
    writer: WriterLine<P>,
    /// The writer, and whether the ring was closed.
    members: Members<P, 1>,
    readers: Positions<P, N>,
}

impl<P: Processor, const N: usize> BroadcastHead<P, N> {
    /// The head of an empty ring, in memory of the given arena.
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
#[allow(missing_debug_implementations, reason = "a view")]
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

/// The writer's own knowledge.
#[derive(Debug)]
pub struct WriterEnd {
    at: u64,
    /// Number of the next message.
    number: u64,
    /// Position up to which there is room.
    limit: u64,
    reserved: u64,
}

/// A reader's own knowledge.
#[derive(Debug)]
pub struct ReaderEnd {
    place: usize,
    at: u64,
    /// End of the pieces that are known to be published.
    seen: u64,
    /// Number of the next message.
    number: u64,
    /// True if it has read the first piece of a message, and not the last one.
    begun: bool,
}

/// A piece of a message, where it lies in the ring.
#[derive(Clone, Copy, Debug)]
pub struct RingPiece {
    at: u64,
    number: u64,
    /// Number of bytes.
    pub bytes: usize,
    /// True for the first one of its message.
    pub is_first: bool,
    /// True for the last one of its message.
    pub is_last: bool,
}

impl RingPiece {
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    const fn end(&self) -> u64 {
        self.at + words_of(self.bytes)
    }
}

/// Room in the ring that the writer fills.
#[derive(Debug)]
pub struct Reservation {
    at: u64,
    bytes: usize,
    /// [`FIRST`] and [`LAST`], as the piece is.
    marks: u64,
}

impl Reservation {
    pub(super) const fn at(&self) -> u64 {
        self.at
    }
}

impl<'a, P: Processor, const N: usize> Broadcast<'a, P, N> {
    /// Maximum number of bytes of a ring.
    pub const MOST: usize = 1 << 40;

    /// Number of lines of a ring of at least so many bytes.
    ///
    /// # Panics
    ///
    /// If that is more than [`Broadcast::MOST`].
    pub fn lines(bytes: usize) -> usize {
        assert!(bytes <= Self::MOST, "a ring of {bytes} bytes");
        bytes.div_ceil(64).next_power_of_two()
    }

    /// The ring of these parts: a power of two of lines.
    ///
    /// # Panics
    ///
    /// If it is not one.
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
        let place = (at & (self.size() - 1)) as usize;
        &self.ring[place / 8].0[place % 8]
    }

    /// The words of so many bytes of the piece there, which end with the ring at most.
    #[inline(always)]
    fn content(&self, at: u64, bytes: usize) -> impl Iterator<Item = &'a P::Word> {
        let first = self.first_byte(at) / 8;
        self.ring[first / 8..].iter().flat_map(|line| &line.0).skip(first % 8).take(bytes.div_ceil(8))
    }

    /// Enters the calling process as the writer.
    ///
    /// # Errors
    ///
    /// [`TransferError::Taken`] while there is another one.
    pub fn join_writer<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<WriterEnd, TransferError> {
        self.head.members.join_alone(cpu, wait, QueueSide::Sender)?;
        // (BC1) Acquire: the number there; pairs with the Release (BC2) of a writer before.
        let at = (cpu.load(&self.head.writer.published, Ordering::Acquire) & !PARKED) >> 1;
        let number = cpu.load(self.word(at), Ordering::Relaxed);
        // Relaxed: an update sees the last value, also of a writer that died after it.
        let reserved = cpu.fetch_or(&self.head.writer.reserved, 0, Ordering::Relaxed);
        Ok(WriterEnd { at, number, limit: at, reserved })
    }

    /// Takes the calling process off as the writer.
    pub fn leave_writer<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        if self.head.members.leave(cpu, wait, QueueSide::Sender) {
            wait.wake_all(cpu, &self.head.writer.published);
        }
    }

    /// Enters a reader, which gets the messages that are sent from now on.
    ///
    /// # Errors
    ///
    /// [`TransferError::Capacity`]; [`TransferError::Damaged`].
    pub fn join_reader<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<ReaderEnd, TransferError> {
        let (readers, published) = (&self.head.readers, &self.head.writer.published);
        let place = readers.take_place(cpu, wait)?;
        // Relaxed: looked at again.
        let mut before = (cpu.load(published, Ordering::Relaxed) & !PARKED) >> 1;
        readers.announce(cpu, wait, place, before);
        loop {
            // (BC1b) Acquire: the number there; pairs with the Release (BC2).
            let at = (cpu.load(published, Ordering::Acquire) & !PARKED) >> 1;
            readers.advance(cpu, wait, place, at);
            // Relaxed: after (BC1b), and (BC8) tells whether it was overwritten.
            let number = cpu.load(self.word(at), Ordering::Relaxed);
            if !self.is_overrun(cpu, at) {
                return Ok(ReaderEnd { place, at, seen: at, number, begun: false });
            }
            if at == before {
                readers.leave(cpu, wait, place);
                return Err(TransferError::Damaged);
            }
            before = at;
        }
    }

    /// Takes a reader off.
    pub fn leave_reader<W: Waiting<P>>(&self, cpu: &P, wait: &W, reader: &ReaderEnd) {
        self.head.readers.leave(cpu, wait, reader.place);
    }

    /// Number of readers, some of which may be dead.
    pub fn readers(&self, cpu: &P) -> usize {
        self.head.readers.count(cpu)
    }

    /// Looks for readers that died, and drops them: [`TransferError::PeerDied`] for one
    /// that the writer was not told of yet.
    pub fn lost_reader<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<TransferError> {
        self.head.readers.drop_dead(cpu, wait);
        self.head.readers.next_lost(cpu, wait)
    }

    /// Room for a message, or piece, of so many bytes, when there is some.
    ///
    /// # Errors
    ///
    /// [`TransferError::TooLong`]; [`TransferError::Closed`]; [`TransferError::TimedOut`], never in
    /// the lossy mode.
    #[inline]
    pub fn reserve<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        writer: &mut WriterEnd,
        bytes: usize,
        deadline: Deadline,
    ) -> Result<Reservation, TransferError> {
        if bytes > self.most_whole() {
            return Err(TransferError::TooLong { most: self.most_whole() });
        }
        let (words, left) = (words_of(bytes), self.size() - (writer.at & (self.size() - 1)));
        let at = if words <= left { writer.at } else { writer.at + left };
        // The number behind it is written, too.
        let end = at + words + 1;
        if self.lossy {
            // A refused message overwrites no other.
            if self.head.members.is_closed(cpu) {
                return Err(TransferError::Closed);
            }
            if end > writer.reserved {
                writer.reserved = end;
                cpu.store(&self.head.writer.reserved, end, Ordering::Relaxed);
            }
            // (BC7) Release: a reader that sees a word of this lap sees `reserved`; pairs with the
            // fence (BC8).
            cpu.fence(Ordering::Release);
        } else if end > writer.limit {
            self.wait_for_room(cpu, wait, writer, end, deadline)?;
        }
        if at != writer.at {
            // Relaxed, both here and below: published by (BC2).
            if left >= HEAD {
                cpu.store(self.word(writer.at + 1), GAP, Ordering::Relaxed);
            }
            cpu.store(self.word(at), writer.number, Ordering::Relaxed);
        }
        Ok(Reservation { at, bytes, marks: FIRST | LAST })
    }

    #[cold]
    fn wait_for_room<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        writer: &mut WriterEnd,
        end: u64,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let mut turns = None;
        loop {
            let slowest = self.head.readers.slowest(cpu);
            writer.limit = slowest.map_or(writer.at, |(_, position)| position >> 1) + self.size();
            let (Some((place, seen)), true) = (slowest, end > writer.limit) else { return Ok(()) };
            if self.head.members.is_closed(cpu) {
                return Err(TransferError::Closed);
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if self.head.members.is_time_to_ask(cpu, turns, deadline)
                && self.head.readers.drop_dead(cpu, wait)
            {
                continue;
            }
            turns.wait(cpu, wait, self.head.readers.position(place), seen)?;
        }
    }

    /// Fills room with the bytes.
    ///
    /// # Panics
    ///
    /// If there are more than it was reserved for.
    #[inline]
    pub fn fill(&self, cpu: &P, reservation: &Reservation, bytes: &[u8]) {
        assert!(bytes.len() <= reservation.bytes);
        self.content(reservation.at, bytes.len()).zip(bytes.chunks(8)).for_each(|(word, chunk)| {
            let mut full = [0; 8];
            full[..chunk.len()].copy_from_slice(chunk);
            cpu.store(word, u64::from_ne_bytes(full), Ordering::Relaxed);
        });
    }

    /// Publishes the first bytes of room that was filled.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]; [`TransferError::Damaged`].
    #[inline]
    pub fn commit<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        writer: &mut WriterEnd,
        reservation: &Reservation,
        bytes: usize,
    ) -> Result<(), TransferError> {
        let &Reservation { at, bytes: most, marks } = reservation;
        assert!(bytes <= most);
        let (end, number) = (at + words_of(bytes), writer.number.wrapping_add(u64::from(marks & LAST != 0)));
        // Relaxed, all: published by (BC2); the index is the writer's own but for marks.
        cpu.store(self.word(at + 1), (bytes as u64) << LENGTH | marks, Ordering::Relaxed);
        cpu.store(self.word(end), number, Ordering::Relaxed);
        if self.lossy {
            cpu.store(&self.head.writer.newest, at, Ordering::Relaxed);
        }
        let published = &self.head.writer.published;
        let mut index = cpu.load(published, Ordering::Relaxed);
        loop {
            if (index & !PARKED) >> 1 != writer.at {
                // Another has written there.
                return Err(TransferError::Damaged);
            }
            if index & CLOSED != 0 {
                return Err(TransferError::Closed);
            }
            // (BC2) Release: the piece, and the number behind it; pairs with the Acquire (BC1),
            // (BC1b), (BC9).
            match cpu.compare_exchange(published, index, end << 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => index = now,
            }
        }
        (writer.at, writer.number) = (end, number);
        if index & PARKED != 0 {
            wait.wake_all(cpu, published);
        }
        Ok(())
    }

    /// Sends a message, in pieces if it is long, when there is room for each.
    ///
    /// # Errors
    ///
    /// As [`Broadcast::reserve`]. A message of which some pieces were sent then is thrown away by
    /// the readers; [`TransferError::TooLong`] in the lossy mode only.
    pub fn send<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        writer: &mut WriterEnd,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let whole = self.most_whole();
        let most = if self.lossy || message.len() <= whole { usize::MAX } else { (whole / 2).max(8) & !7 };
        let mut sent = 0;
        loop {
            let bytes = (message.len() - sent).min(most);
            let mut reservation = self.reserve(cpu, wait, writer, bytes, deadline)?;
            let (is_first, is_last) = (sent == 0, sent + bytes == message.len());
            reservation.marks = if is_first { FIRST } else { 0 } | if is_last { LAST } else { 0 };
            self.fill(cpu, &reservation, &message[sent..sent + bytes]);
            self.commit(cpu, wait, writer, &reservation, bytes)?;
            sent += bytes;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Returns whether the writer may have overwritten the words there, or is about to.
    #[inline(always)]
    fn is_overrun(&self, cpu: &P, at: u64) -> bool {
        if !self.lossy {
            return false;
        }
        // (BC8) Acquire: a word of a later lap that was read comes before; pairs with the fence
        // (BC7).
        cpu.fence(Ordering::Acquire);
        cpu.load(&self.head.writer.reserved, Ordering::Relaxed).saturating_sub(at) > self.size()
    }

    /// Goes on where messages may still be whole: at the beginning of the writer's lap,
    /// at the newest message, or behind it.
    #[cold]
    fn catch_up(&self, cpu: &P, reader: &mut ReaderEnd) {
        // Relaxed: the pieces before are looked at behind the fence (BC8).
        let index = cpu.load(&self.head.writer.published, Ordering::Relaxed) & !PARKED;
        reader.seen = index >> 1;
        // Relaxed: it may be that of a message which is not published yet.
        let newest = cpu.load(&self.head.writer.newest, Ordering::Relaxed);
        let starts = [reader.seen & !(self.size() - 1), newest];
        let is_whole = |&at: &u64| reader.at < at && at < reader.seen && !self.is_overrun(cpu, at);
        reader.at = starts.into_iter().find(is_whole).unwrap_or(reader.seen);
    }

    /// The next piece, if there is one; or else the index that has to change first.
    #[inline]
    fn look(&self, cpu: &P, reader: &mut ReaderEnd) -> Result<Result<RingPiece, u64>, TransferError> {
        loop {
            if reader.at == reader.seen {
                // (BC9) Acquire: the pieces before; pairs with the Release (BC2).
                let index = cpu.load(&self.head.writer.published, Ordering::Acquire) & !PARKED;
                reader.seen = index >> 1;
                if reader.seen == reader.at {
                    return Ok(Err(index));
                }
            }
            let left = self.size() - (reader.at & (self.size() - 1));
            // Relaxed, all: after (BC9), and (BC8) tells whether they were overwritten.
            let [number, head] = [0, 1].map(|k| cpu.load(self.word(reader.at + k), Ordering::Relaxed));
            if self.is_overrun(cpu, reader.at) {
                self.catch_up(cpu, reader);
                continue;
            }
            if left < HEAD || head & GAP != 0 {
                reader.at += left;
                if reader.at >= reader.seen {
                    return Err(TransferError::Damaged);
                }
                continue;
            }
            let bytes = usize::try_from(head >> LENGTH).unwrap_or(usize::MAX);
            let unread = reader.seen.saturating_sub(reader.at).min(left);
            if bytes > self.most_whole() || words_of(bytes) > unread {
                return Err(TransferError::Damaged);
            }
            let (is_first, is_last) = (head & FIRST != 0, head & LAST != 0);
            let piece = RingPiece { at: reader.at, number, bytes, is_first, is_last };
            if is_first || reader.begun {
                return Ok(Ok(piece));
            }
            // It came in the middle of a message.
            reader.at = piece.end();
        }
    }

    /// The next piece of a message, when there is one. It stays the next one until
    /// [`Broadcast::pass`].
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; and, after all that was sent, [`TransferError::Closed`], or
    /// [`TransferError::Disconnected`] and [`TransferError::PeerDied`] if the writer has gone.
    #[inline]
    pub fn next<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reader: &mut ReaderEnd,
        deadline: Deadline,
    ) -> Result<RingPiece, TransferError> {
        match self.look(cpu, reader)? {
            Ok(piece) => Ok(piece),
            Err(_) => self.next_slowly(cpu, wait, reader, deadline),
        }
    }

    #[cold]
    fn next_slowly<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reader: &mut ReaderEnd,
        deadline: Deadline,
    ) -> Result<RingPiece, TransferError> {
        let (mut turns, mut end) = (None, None);
        loop {
            let index = match self.look(cpu, reader)? {
                Ok(piece) => return Ok(piece),
                Err(index) => index,
            };
            // Pieces that it only passed hold back no longer than it waits.
            self.progress(cpu, wait, reader);
            // It was over before the last look.
            if let Some(end) = end {
                return Err(end);
            }
            let members = &self.head.members;
            if index & CLOSED != 0 {
                return Err(TransferError::Closed);
            }
            if members.is_closed(cpu) {
                // Its closer may have died in between.
                self.mark_closed(cpu, wait);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if members.is_time_to_ask(cpu, turns, deadline) || members.may_be_without(cpu, QueueSide::Sender)
            {
                end = members.end_of(cpu, wait, QueueSide::Sender);
                if end.is_some() {
                    continue;
                }
            }
            turns.wait(cpu, wait, &self.head.writer.published, index)?;
        }
    }

    /// Copies a piece's bytes, as many as there is room for.
    #[inline]
    pub fn copy(&self, cpu: &P, piece: &RingPiece, to: &mut [u8]) {
        let most = piece.bytes.min(to.len());
        self.content(piece.at, most).zip(to[..most].chunks_mut(8)).for_each(|(word, chunk)| {
            // Relaxed: after (BC9), and (BC8) tells whether it was overwritten.
            let bytes = cpu.load(word, Ordering::Relaxed).to_ne_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        });
    }

    /// Returns whether all that was copied of a piece until now belongs to it. If it does
    /// not, the next piece is another one. Always true where readers hold the writer back.
    #[inline]
    pub fn is_whole(&self, cpu: &P, piece: &RingPiece) -> bool {
        !self.is_overrun(cpu, piece.at)
    }

    /// Number of messages that the reader missed before this one.
    pub const fn missed(&self, reader: &ReaderEnd, piece: &RingPiece) -> u64 {
        if self.lossy { piece.number.saturating_sub(reader.number) } else { 0 }
    }

    /// Goes on to the next piece. The room is given back with [`Broadcast::progress`].
    #[inline]
    pub const fn pass(&self, reader: &mut ReaderEnd, piece: &RingPiece) {
        reader.at = piece.end();
        reader.number = piece.number.saturating_add(piece.is_last as u64);
        reader.begun = !piece.is_last;
    }

    /// Gives back the room of all pieces before the next one: once for several.
    #[inline]
    pub fn progress<W: Waiting<P>>(&self, cpu: &P, wait: &W, reader: &ReaderEnd) {
        // In the lossy mode the writer does not look at it.
        if !self.lossy {
            self.head.readers.advance(cpu, wait, reader.place, reader.at);
        }
    }

    /// Receives the next message without giving back its room ([`Broadcast::progress`]).
    /// Returns how many were missed before it.
    ///
    /// `into` is the reader's: what it has of a message stays there until the next call.
    ///
    /// # Errors
    ///
    /// As [`Broadcast::next`].
    pub fn gather<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reader: &mut ReaderEnd,
        into: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<u64, TransferError> {
        loop {
            let piece = self.next(cpu, wait, reader, deadline)?;
            if piece.is_first {
                into.clear();
            }
            let had = into.len();
            into.resize(had + piece.bytes, 0);
            self.copy(cpu, &piece, &mut into[had..]);
            if !self.is_whole(cpu, &piece) {
                continue;
            }
            let missed = self.missed(reader, &piece);
            self.pass(reader, &piece);
            if piece.is_last {
                return Ok(missed);
            }
        }
    }

    /// Receives the next message, as [`Broadcast::gather`], and gives back its room.
    ///
    /// # Errors
    ///
    /// As [`Broadcast::next`].
    #[inline]
    pub fn receive<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reader: &mut ReaderEnd,
        into: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<u64, TransferError> {
        let missed = self.gather(cpu, wait, reader, into, deadline)?;
        self.progress(cpu, wait, reader);
        Ok(missed)
    }

    /// Returns whether the next piece is there.
    pub fn is_ready(&self, cpu: &P, reader: &mut ReaderEnd) -> bool {
        matches!(self.look(cpu, reader), Ok(Ok(_)))
    }

    fn mark_closed<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: an update, behind which a reader still sees what (BC2) published.
        cpu.fetch_or(&self.head.writer.published, CLOSED, Ordering::Relaxed);
        wait.wake_all(cpu, &self.head.writer.published);
    }

    /// Closes the ring: the writer is refused, readers get the messages sent before.
    pub fn close<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.head.members.close(cpu);
        self.mark_closed(cpu, wait);
        self.head.readers.wake_writer(cpu, wait);
    }
}
