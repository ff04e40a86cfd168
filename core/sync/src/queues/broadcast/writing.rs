//! The writer's steps: room, its bytes, and their publication.

use towpath_machine::{Ordering, Prefetch};

use super::{Broadcast, CLOSED, FIRST, GAP, HEAD, LAST, LENGTH, words_of};
use crate::queues::TransferError;
use crate::queues::members::QueueSide;
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

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

/// Room in the ring that the writer fills.
#[derive(Debug)]
pub struct Reservation {
    at: u64,
    bytes: usize,
    /// [`FIRST`] and [`LAST`], as the piece is.
    marks: u64,
}

impl Reservation {
    pub(in crate::queues) const fn at(&self) -> u64 {
        self.at
    }
}

impl<P: Prefetch, const N: usize> Broadcast<'_, P, N> {
    /// Enters the calling process as the writer.
    ///
    /// # Errors
    ///
    /// [`TransferError::Taken`] while there is another one.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// let second = ring.join_writer(&cpu, &Spinning);
    /// assert!(matches!(second, Err(TransferError::Taken { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn join_writer<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<WriterEnd, TransferError> {
        self.head.members.join_alone(cpu, wait, QueueSide::Sender)?;
        // Relaxed, both: what a writer before has written is known, by the exchange of its place
        // (QM1) with which it left, or by its death.
        let at = (cpu.load(&self.head.writer.published, Ordering::Relaxed) & !PARKED) >> 1;
        let number = cpu.load(self.word(at), Ordering::Relaxed);
        // Relaxed: an update sees the last value, also of a writer that died after it.
        let reserved = cpu.fetch_or(&self.head.writer.reserved, 0, Ordering::Relaxed);
        Ok(WriterEnd { at, number, limit: at, reserved })
    }

    /// Takes the calling process off as the writer.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// ring.leave_writer(&cpu, &Spinning);
    /// let next = ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER);
    /// assert_eq!(next.err(), Some(TransferError::Disconnected));
    /// # Ok(())
    /// # }
    /// ```
    pub fn leave_writer<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        if self.head.members.leave(cpu, wait, QueueSide::Sender) {
            wait.wake_all(cpu, &self.head.writer.published);
        }
    }

    /// Room for a message, or piece, of so many bytes, when there is some.
    ///
    /// # Errors
    ///
    /// [`TransferError::TooLong`]; [`TransferError::Closed`]; [`TransferError::TimedOut`], never in
    /// the lossy mode.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// let room = ring.reserve(&cpu, &Spinning, &mut writer, 100, Deadline::NEVER)?;
    /// ring.fill(&cpu, &room, b"abc");
    /// ring.commit(&cpu, &Spinning, &mut writer, &room, 3)?; // less than was reserved
    /// assert_eq!(ring.next(&cpu, &Spinning, &mut reader, Deadline::NEVER)?.bytes, 3);
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
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
        // The slowest reader of a lossy ring has no say.
        let limit = if self.lossy { u64::MAX } else { writer.limit };
        self.prefetch_after(at, words, limit, |word| cpu.prefetch_exclusive(word));
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// let room = ring.reserve(&cpu, &Spinning, &mut writer, 3, Deadline::NEVER)?;
    /// ring.fill(&cpu, &room, b"abc");
    /// assert!(!ring.is_ready(&cpu, &mut reader)); // readers do not see it yet
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn fill(&self, cpu: &P, reservation: &Reservation, bytes: &[u8]) {
        assert!(bytes.len() <= reservation.bytes);
        // Relaxed: published by (BC2).
        cpu.store_bytes(self.content(reservation.at, bytes.len()), bytes);
    }

    /// Publishes the first bytes of room that was filled.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]; [`TransferError::Damaged`].
    ///
    /// # Panics
    ///
    /// If there are more than were reserved.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// let room = ring.reserve(&cpu, &Spinning, &mut writer, 3, Deadline::NEVER)?;
    /// ring.fill(&cpu, &room, b"abc");
    /// ring.commit(&cpu, &Spinning, &mut writer, &room, 3)?;
    /// assert!(ring.is_ready(&cpu, &mut reader));
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn commit<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        writer: &mut WriterEnd,
        reservation: &Reservation,
        bytes: usize,
    ) -> Result<(), TransferError> {
        let &Reservation { at, bytes: most, marks } = reservation;
        assert!(bytes <= most, "{bytes} bytes are committed, of {most} that were reserved: reserve more");
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// # let mut message = Vec::new();
    /// ring.send(&cpu, &Spinning, &mut writer, b"abc", Deadline::NEVER)?;
    /// ring.receive(&cpu, &Spinning, &mut reader, &mut message, Deadline::NEVER)?;
    /// assert_eq!(message, b"abc");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn send<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        writer: &mut WriterEnd,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        if message.len() > self.most_whole() {
            return self.send_rest(cpu, wait, writer, message, &mut 0, deadline);
        }
        let room = self.reserve(cpu, wait, writer, message.len(), deadline)?;
        self.fill(cpu, &room, message);
        self.commit(cpu, wait, writer, &room, message.len())
    }

    /// Sends the rest of a message, behind the first `sent` bytes, and counts there.
    ///
    /// # Errors
    ///
    /// As [`Broadcast::send`]; after [`TransferError::TimedOut`] another call goes on, unless
    /// another message was begun meanwhile.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, (ring, mut writer, mut reader)) = (Native::current(), ring_of_two(false)?);
    /// let (long, mut sent) = ([7; 1500], 0); // longer than the ring
    /// let late = ring.send_rest(&cpu, &Spinning, &mut writer, &long, &mut sent, Deadline::PAST);
    /// assert_eq!(late, Err(TransferError::TimedOut));
    /// assert!(0 < sent && sent < 1500); // another call goes on there, once the reader has read
    /// # let _ = &mut reader;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_rest<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        writer: &mut WriterEnd,
        message: &[u8],
        sent: &mut usize,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let whole = self.most_whole();
        let most = if self.lossy || message.len() <= whole { usize::MAX } else { (whole / 2).max(8) & !7 };
        loop {
            let rest = message.get(*sent..).unwrap_or_default();
            let bytes = rest.len().min(most);
            let mut reservation = self.reserve(cpu, wait, writer, bytes, deadline)?;
            let (is_first, is_last) = (*sent == 0, bytes == rest.len());
            reservation.marks = if is_first { FIRST } else { 0 } | if is_last { LAST } else { 0 };
            self.fill(cpu, &reservation, &rest[..bytes]);
            self.commit(cpu, wait, writer, &reservation, bytes)?;
            *sent += bytes;
            if is_last {
                return Ok(());
            }
        }
    }
}
