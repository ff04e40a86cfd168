//! A reader's steps: the next piece, a copy of it, and the room given back.

use towpath_machine::{Ordering, Prefetch};

use super::{Broadcast, CLOSED, FIRST, GAP, HEAD, LAST, LENGTH, words_of};
use crate::queues::TransferError;
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

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
    pub(in crate::queues) const fn at(&self) -> u64 {
        self.at
    }

    const fn end(&self) -> u64 {
        self.at + words_of(self.bytes)
    }
}

impl<P: Prefetch, const N: usize> Broadcast<'_, P, N> {
    /// Enters a reader, which gets the messages that are sent from now on.
    ///
    /// # Errors
    ///
    /// [`TransferError::Capacity`]; [`TransferError::Damaged`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// # let mut message = Vec::new();
    /// ring.send(&cpu, &Spinning, &mut writer, b"early", Deadline::NEVER)?;
    /// let mut late = ring.join_reader(&cpu, &Spinning)?;
    /// assert!(!ring.is_ready(&cpu, &mut late)); // it gets later messages only
    /// ring.send(&cpu, &Spinning, &mut writer, b"late", Deadline::NEVER)?;
    /// ring.receive(&cpu, &Spinning, &mut late, &mut message, Deadline::NEVER)?;
    /// assert_eq!(message, b"late");
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// ring.leave_reader(&cpu, &Spinning, &reader);
    /// for _ in 0..100 {
    ///     // it holds none back
    ///     ring.send(&cpu, &Spinning, &mut writer, &[0; 100], Deadline::PAST)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn leave_reader<W: Waiting<P>>(&self, cpu: &P, wait: &W, reader: &ReaderEnd) {
        self.head.readers.leave(cpu, wait, reader.place);
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
    ///
    /// Inlined, since a piece that is returned in memory costs as much as the rest.
    #[inline(always)]
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
            self.prefetch_after(reader.at, words_of(bytes), reader.seen, |word| cpu.prefetch_shared(word));
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// ring.send(&cpu, &Spinning, &mut writer, b"abc", Deadline::NEVER)?;
    /// let piece = ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?;
    /// assert_eq!((piece.bytes, piece.is_first, piece.is_last), (3, true, true));
    /// ring.pass(&mut reader, &piece);
    /// let none = ring.next(&cpu, &Spinning, &mut reader, Deadline::PAST);
    /// assert_eq!(none.err(), Some(TransferError::TimedOut));
    /// # Ok(())
    /// # }
    /// ```
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
            if index & CLOSED != 0 {
                return Err(TransferError::Closed);
            }
            let members = &self.head.members;
            if members.is_closed(cpu) {
                // Its closer may have died in between.
                self.mark_closed(cpu, wait);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            end = members.end_of_senders(cpu, wait, turns, deadline);
            if end.is_some() {
                continue;
            }
            turns.wait(cpu, wait, &self.head.writer.published, index)?;
        }
    }

    /// Copies a piece's bytes, as many as there is room for.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// ring.send(&cpu, &Spinning, &mut writer, b"abc", Deadline::NEVER)?;
    /// let piece = ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?;
    /// let mut begin = [0; 2];
    /// ring.copy(&cpu, &piece, &mut begin); // as many as there is room for
    /// assert_eq!(&begin, b"ab");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn copy(&self, cpu: &P, piece: &RingPiece, to: &mut [u8]) {
        let most = piece.bytes.min(to.len());
        // Relaxed: after (BC9), and (BC8) tells whether it was overwritten.
        cpu.load_bytes(self.content(piece.at, most), &mut to[..most]);
    }

    /// Returns whether all that was copied of a piece until now belongs to it. If it does
    /// not, the next piece is another one. Always true where readers hold the writer back.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(true)?);
    /// // a lossy ring
    /// ring.send(&cpu, &Spinning, &mut writer, b"abc", Deadline::NEVER)?;
    /// let piece = ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?;
    /// assert!(ring.is_whole(&cpu, &piece));
    /// for _ in 0..100 {
    ///     ring.send(&cpu, &Spinning, &mut writer, &[0; 100], Deadline::NEVER)?; // overwrites it
    /// }
    /// assert!(!ring.is_whole(&cpu, &piece));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn is_whole(&self, cpu: &P, piece: &RingPiece) -> bool {
        !self.is_overrun(cpu, piece.at)
    }

    /// Number of messages that the reader missed before this one.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(true)?);
    /// // a lossy ring
    /// for _ in 0..100 {
    ///     ring.send(&cpu, &Spinning, &mut writer, &[0; 100], Deadline::NEVER)?;
    /// }
    /// let piece = ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?;
    /// assert!(ring.missed(&reader, &piece) > 80); // the ring has room for ten at most
    /// # Ok(())
    /// # }
    /// ```
    pub const fn missed(&self, reader: &ReaderEnd, piece: &RingPiece) -> u64 {
        if self.lossy { piece.number.saturating_sub(reader.number) } else { 0 }
    }

    /// Goes on to the next piece. The room is given back with [`Broadcast::progress`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// for message in [b"a", b"b"] {
    ///     ring.send(&cpu, &Spinning, &mut writer, message, Deadline::NEVER)?;
    /// }
    /// let piece = ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?;
    /// ring.pass(&mut reader, &piece);
    /// let (piece, mut byte) = (ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?, [0]);
    /// ring.copy(&cpu, &piece, &mut byte);
    /// assert_eq!(&byte, b"b");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub const fn pass(&self, reader: &mut ReaderEnd, piece: &RingPiece) {
        reader.at = piece.end();
        reader.number = piece.number.saturating_add(piece.is_last as u64);
        reader.begun = !piece.is_last;
    }

    /// Gives back the room of all pieces before the next one: once for several.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// for _ in 0..4 {
    ///     ring.send(&cpu, &Spinning, &mut writer, &[0; 200], Deadline::NEVER)?;
    ///     let piece = ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?;
    ///     ring.pass(&mut reader, &piece);
    /// }
    /// assert!(ring.send(&cpu, &Spinning, &mut writer, &[0; 400], Deadline::PAST).is_err());
    /// ring.progress(&cpu, &Spinning, &reader); // the room of all four
    /// ring.send(&cpu, &Spinning, &mut writer, &[0; 400], Deadline::PAST)?;
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// ring.send(&cpu, &Spinning, &mut writer, b"abc", Deadline::NEVER)?;
    /// let mut message = Vec::new();
    /// let missed = ring.gather(&cpu, &Spinning, &mut reader, &mut message, Deadline::NEVER)?;
    /// assert_eq!((message.as_slice(), missed), (&b"abc"[..], 0));
    /// ring.progress(&cpu, &Spinning, &reader); // now the writer may use its room
    /// # Ok(())
    /// # }
    /// ```
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
            let had = if piece.is_first { 0 } else { into.len() };
            // Zeroes only what is beyond the message before.
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// let mut message = Vec::new();
    /// for n in 0..100u64 {
    ///     ring.send(&cpu, &Spinning, &mut writer, &n.to_le_bytes(), Deadline::PAST)?;
    ///     ring.receive(&cpu, &Spinning, &mut reader, &mut message, Deadline::PAST)?;
    ///     assert_eq!(message, n.to_le_bytes());
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// assert!(!ring.is_ready(&cpu, &mut reader));
    /// ring.send(&cpu, &Spinning, &mut writer, b"abc", Deadline::NEVER)?;
    /// assert!(ring.is_ready(&cpu, &mut reader));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_ready(&self, cpu: &P, reader: &mut ReaderEnd) -> bool {
        matches!(self.look(cpu, reader), Ok(Ok(_)))
    }
}
