//! Messages of a broadcast ring that are written and read where they lie.
#![allow(unsafe_code)]

use core::ops::{Deref, DerefMut};
use core::slice;

use towpath_derive::OpaqueDebug;
use towpath_machine::Native;

use super::broadcast_handles::HoldsBack;
use super::{
    Broadcast, BroadcastReader, BroadcastVenue, BroadcastWriter, Reservation, RingPiece, TransferError,
};
use crate::Deadline;

/// First of so many bytes of the ring, which lie there in one piece.
///
/// # Panics
///
/// If they do not.
fn first_of(ring: &Broadcast<'_, Native>, at: u64, bytes: usize) -> *mut u8 {
    let (lines, first) = (ring.row(), ring.first_byte(at));
    assert!(first + bytes <= size_of_val(lines));
    // Words are atomic, so that the bytes may be written through a shared reference.
    lines.as_ptr().cast_mut().cast::<u8>().wrapping_add(first)
}

/// Room in a ring, to be filled where it lies. Dropped, nothing is sent.
#[derive(OpaqueDebug)]
#[must_use = "nothing is sent unless it is committed"]
pub struct RoomInPlace<'a, V: BroadcastVenue<Mode = HoldsBack>> {
    writer: &'a mut BroadcastWriter<V>,
    reservation: Reservation,
    first: *mut u8,
    bytes: usize,
}

impl<'a, V: BroadcastVenue<Mode = HoldsBack>> RoomInPlace<'a, V> {
    pub(super) fn new(
        writer: &'a mut BroadcastWriter<V>,
        bytes: usize,
        deadline: Deadline,
    ) -> Result<Self, TransferError> {
        let BroadcastWriter { venue, end } = &mut *writer;
        let (reservation, first) = venue.call(|ring, cpu, wait| {
            let reservation = ring.reserve(cpu, wait, end, bytes, deadline)?;
            let first = first_of(&ring, reservation.at(), bytes);
            Ok((reservation, first))
        })?;
        Ok(RoomInPlace { writer, reservation, first, bytes })
    }

    /// Sends the first bytes of it as a message.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`].
    ///
    /// # Panics
    ///
    /// If it has fewer.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let mut room = writer.reserve(64)?;
    /// room[..3].copy_from_slice(b"abc");
    /// room.commit(3)?;
    /// assert_eq!(*reader.receive()?, *b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn commit(self, bytes: usize) -> Result<(), TransferError> {
        let BroadcastWriter { venue, end } = &mut *self.writer;
        venue.call(|ring, cpu, wait| ring.commit(cpu, wait, end, &self.reservation, bytes))
    }
}

impl<V: BroadcastVenue<Mode = HoldsBack>> Deref for RoomInPlace<'_, V> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: within the ring (`first_of`), which stays mapped as long as the writer's venue
        // lives; any bytes are valid; no reader looks at room that is reserved, and the borrowed
        // writer writes nothing else meanwhile.
        unsafe { slice::from_raw_parts(self.first, self.bytes) }
    }
}

impl<V: BroadcastVenue<Mode = HoldsBack>> DerefMut for RoomInPlace<'_, V> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and this is the only reference, borrowed from the guard.
        unsafe { slice::from_raw_parts_mut(self.first, self.bytes) }
    }
}

/// A message that was received and lies in the ring until this is dropped.
#[derive(OpaqueDebug)]
pub struct MessageInPlace<'a, V: BroadcastVenue<Mode = HoldsBack>> {
    reader: &'a mut BroadcastReader<V>,
    /// Its first byte in the ring, and their number; `None` if it came in pieces.
    lies: Option<(*const u8, usize)>,
}

impl<'a, V: BroadcastVenue<Mode = HoldsBack>> MessageInPlace<'a, V> {
    pub(super) fn new(reader: &'a mut BroadcastReader<V>, deadline: Deadline) -> Result<Self, TransferError> {
        let BroadcastReader { venue, end, message } = &mut *reader;
        let lies = venue.call(|ring, cpu, wait| {
            let piece: RingPiece = ring.next(cpu, wait, end, deadline)?;
            if piece.is_first && piece.is_last {
                ring.pass(end, &piece);
                return Ok(Some((first_of(&ring, piece.at(), piece.bytes).cast_const(), piece.bytes)));
            }
            ring.receive(cpu, wait, end, message, deadline).map(|_| None)
        })?;
        Ok(MessageInPlace { reader, lies })
    }
}

impl<V: BroadcastVenue<Mode = HoldsBack>> Deref for MessageInPlace<'_, V> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self.lies {
            // SAFETY: within the ring (`first_of`), which stays mapped as long as the venue lives;
            // any bytes are valid; the writer does not overwrite them before the reader, which is
            // borrowed, has told its progress.
            Some((first, bytes)) => unsafe { slice::from_raw_parts(first, bytes) },
            None => &self.reader.message,
        }
    }
}

impl<V: BroadcastVenue<Mode = HoldsBack>> Drop for MessageInPlace<'_, V> {
    fn drop(&mut self) {
        let BroadcastReader { venue, end, .. } = &mut *self.reader;
        let told = venue.call(|ring, cpu, wait| {
            ring.progress(cpu, wait, end);
            Ok(())
        });
        // A process outside the world holds no writer back.
        let _ = told;
    }
}
