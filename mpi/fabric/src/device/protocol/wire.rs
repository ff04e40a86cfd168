//! Layout of a frame on a packet's line: kind, tag, up to four words, and a payload.
//!
//! A packet (`towpath_channel::packet::Slot`) is a place of the shared queue or a slot of a ring;
//! the layout is one for both. The handler's byte is the kind; the words and, if it fits behind
//! them, the payload are the arguments. A longer payload lies in a block of the queue or in the
//! ring's bytes. The words' meanings: [`frame`](crate::device::protocol::frame).

use towpath_channel::packet::LINE_ARGS;

use crate::device::protocol::frame::FrameKind;
use crate::device::resource::buffers::{ArrivedPayload, Buffer};

/// Bytes for words and payload on a packet's line.
pub const LINE: usize = LINE_ARGS * 4;
/// Maximum number of words.
pub const WORDS: usize = 4;

/// Source of a payload.
#[derive(Clone, Copy, Debug)]
pub enum PayloadSource<'a> {
    /// A part of the caller's buffer: offset, length.
    Part(&'a Buffer, usize, usize),
    /// These bytes.
    Bytes(&'a [u8]),
}

impl PayloadSource<'_> {
    /// No payload.
    pub const NONE: PayloadSource<'static> = PayloadSource::Bytes(&[]);

    /// Number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            PayloadSource::Part(_, _, len) => *len,
            PayloadSource::Bytes(bytes) => bytes.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies it.
    ///
    /// # Safety
    ///
    /// `to` is writable for [`PayloadSource::len`] bytes.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub unsafe fn copy_to(&self, to: *mut u8) {
        match self {
            // SAFETY: the caller's promise.
            PayloadSource::Part(buffer, at, len) => unsafe { buffer.read(*at, to, *len) },
            // SAFETY: the caller's promise; bytes of ours don't overlap it.
            PayloadSource::Bytes(bytes) => unsafe {
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len())
            },
        }
    }

    /// Gives its bytes, eight at a time, as many as fit on a line.
    #[allow(unsafe_code)]
    #[inline(always)]
    fn cells(&self, put: impl FnMut(usize, u64)) {
        let mut gathered = [0u8; LINE];
        let (from, len) = match self {
            PayloadSource::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            PayloadSource::Part(buffer, at, len) => match buffer.in_one_piece(*at, *len) {
                Some(from) => (from, *len),
                None => {
                    let len = (*len).min(LINE);
                    // SAFETY: as many bytes as the array has, at most.
                    unsafe { buffer.read(*at, gathered.as_mut_ptr(), len) };
                    (gathered.as_ptr(), len)
                }
            },
        };
        // SAFETY: the bytes of a slice or an array, or of a caller's buffer, which is readable.
        unsafe { cells_of(from, len.min(LINE), put) }
    }

    /// Copies it past the caches.
    ///
    /// # Safety
    ///
    /// `to` is writable for [`PayloadSource::len`] bytes, and shared memory of ours, which no
    /// caller's buffer overlaps.
    #[allow(unsafe_code)]
    pub unsafe fn copy_past_caches(&self, to: *mut u8) {
        match self {
            // SAFETY: the caller's promise.
            PayloadSource::Part(buffer, at, len) => unsafe { buffer.read_past_caches(*at, to, *len) },
            // SAFETY: the caller's promise.
            PayloadSource::Bytes(bytes) => unsafe {
                towpath_machine::copy_past_caches(bytes.as_ptr(), to, bytes.len())
            },
        }
    }
}

/// A frame to be sent, encoded.
#[derive(Clone, Copy, Debug)]
pub struct RawFrame<'a> {
    /// Its kind.
    pub kind: FrameKind,
    /// Its tag.
    pub tag: u64,
    /// Its words: as many as the kind has.
    pub words: [u64; WORDS],
    /// Its payload.
    pub content: PayloadSource<'a>,
}

/// Form of a frame on a line.
#[derive(Clone, Copy, Debug)]
pub struct FrameLine {
    /// The handler's byte.
    pub handler: u8,
    /// Number of arguments of 32 bits, without the place of a payload that does not fit.
    pub args: usize,
    /// The payload does not fit.
    pub bulk: bool,
}

const BULK: u8 = 1 << 7;

/// Gives bytes eight at a time, the last ones with zeros behind them.
///
/// # Safety
///
/// `len` bytes are readable at `from`.
#[allow(unsafe_code)]
#[inline(always)]
unsafe fn cells_of(from: *const u8, len: usize, mut put: impl FnMut(usize, u64)) {
    // SAFETY: the caller of these asks for bytes within `len` only.
    let (eight, four, two) = unsafe {
        (
            |at: usize| from.add(at).cast::<u64>().read_unaligned().to_le(),
            |at: usize| u64::from(from.add(at).cast::<u32>().read_unaligned().to_le()),
            |at: usize| u64::from(from.add(at).cast::<u16>().read_unaligned().to_le()),
        )
    };
    let (whole, rest) = (len / 8, len % 8);
    for n in 0..whole {
        put(n, u64::from_le(eight(n * 8)));
    }
    let last = match (len, rest) {
        (_, 0) => return,
        // The last eight, without those that were given.
        (8.., _) => eight(len - 8) >> (64 - rest * 8),
        (4.., _) => four(0) | four(len - 4) << (len * 8 - 32),
        (2.., _) => two(0) | two(len - 2) << (len * 8 - 16),
        // SAFETY: one byte.
        _ => u64::from(unsafe { *from }),
    };
    put(whole, u64::from_le(last));
}

impl RawFrame<'_> {
    /// Lays it out for a line.
    #[inline(always)]
    pub fn line(&self) -> FrameLine {
        let (words, len) = (self.kind.words(), self.content.len());
        if len > LINE - words * 8 {
            return FrameLine { handler: self.kind as u8 | BULK, args: words * 2, bulk: true };
        }
        let args = words * 2 + len.div_ceil(4);
        let pad = (args * 4 - words * 8 - len) as u8;
        FrameLine { handler: self.kind as u8 | pad << 5, args, bulk: false }
    }

    /// Calls `put` for each cell of the line: the words, then the payload, or the `place`
    /// of one that does not fit. Each cell is made in a register: bytes that are put together in
    /// memory and then read in other portions keep the processor waiting until they have left its
    /// store buffer.
    #[inline(always)]
    pub fn cells(&self, place: Option<u64>, mut put: impl FnMut(usize, u64)) {
        let words = self.kind.words();
        for (n, word) in self.words[..words].iter().enumerate() {
            put(n, *word);
        }
        match place {
            Some(place) => put(words, place),
            None => self.content.cells(|n, cell| put(words + n, cell)),
        }
    }
}

/// A frame that has arrived, not decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its kind.
    pub kind: FrameKind,
    /// Its tag.
    pub tag: u64,
    /// Its words.
    pub words: [u64; WORDS],
    /// Its payload.
    pub payload: ArrivedPayload,
}

impl Arrived {
    /// Reads a line. `words`: its first cells; `line`: all of it, which stays readable
    /// while the frame is used; `bulk`: the payload that is elsewhere, if the line says so. `None`:
    /// nonsense.
    #[inline(always)]
    pub fn read(
        handler: u8,
        args: usize,
        tag: u64,
        words: [u64; WORDS],
        line: ArrivedPayload,
        bulk: impl FnOnce(usize) -> Option<ArrivedPayload>,
    ) -> Option<Arrived> {
        let kind = FrameKind::from_number(handler & 0x1f)?;
        let count = kind.words();
        let payload = if handler & BULK != 0 {
            bulk(count)?
        } else {
            let pad = usize::from(handler >> 5 & 3);
            let len = (args * 4).checked_sub(count * 8 + pad)?;
            line.part(count * 8, len)?
        };
        Some(Arrived { kind, tag, words, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_payloads_survive_the_line() {
        for (kind, _) in FrameKind::ALL {
            for len in 0..=60 {
                let bytes: Vec<u8> = (0..len).collect();
                let frame =
                    RawFrame { kind, tag: 9, words: [1, 2, 3, 4], content: PayloadSource::Bytes(&bytes) };
                let line = frame.line();
                assert_eq!(line.bulk, usize::from(len) > LINE - kind.words() * 8);
                let mut cells = [u64::MAX; LINE / 8];
                frame.cells(line.bulk.then_some(5), |n, cell| cells[n] = cell);
                let back = Arrived::read(
                    line.handler,
                    line.args,
                    9,
                    [cells[0], cells[1], cells[2], cells[3]],
                    ArrivedPayload::of_cells(&cells),
                    |_| Some(ArrivedPayload::of(&bytes)),
                );
                let back = back.unwrap();
                assert_eq!((back.kind, back.payload.to_vec()), (kind, bytes.clone()));
                assert_eq!(back.words[..kind.words()], [1, 2, 3, 4][..kind.words()]);
            }
        }
    }

    #[test]
    fn payloads_in_several_pieces_survive_it_too() {
        let bytes: Vec<u8> = (1..=48).collect();
        for at in 0..24 {
            for len in 0..=24 {
                let (first, second) = bytes.split_at(20);
                let spans =
                    [(first.as_ptr() as usize, first.len()), (second.as_ptr() as usize, second.len())];
                // SAFETY: read only, while the vector lives.
                #[allow(unsafe_code)]
                let buffer = unsafe { Buffer::many(spans) }.unwrap();
                let mut cells = [0u64; LINE / 8];
                PayloadSource::Part(&buffer, at, len).cells(|n, cell| cells[n] = cell);
                let back = ArrivedPayload::of_cells(&cells).part(0, len).unwrap().to_vec();
                assert_eq!(back, bytes[at..at + len], "{len} bytes from {at} on");
            }
        }
    }

    #[test]
    fn nonsense_is_no_frame() {
        let line = [0; LINE];
        for handler in 0..=255u8 {
            for args in 0..32 {
                if let Some(frame) =
                    Arrived::read(handler, args, 0, [0; 4], ArrivedPayload::of(&line), |_| None)
                {
                    assert!(frame.payload.len() + frame.kind.words() * 8 <= LINE);
                }
            }
        }
    }
}
