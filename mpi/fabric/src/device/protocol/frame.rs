//! Frames: the typed messages of the protocols between two endpoints.
//!
//! On the wire ([`wire`](crate::device::protocol::wire)) a frame is a kind, a tag, up to four words
//! and a payload. This file alone knows which word means what:
//!
//! ```text
//! frame           from      word 0      word 1   word 2  word 3     payload      answered by
//! Eager           sender    data                                    message
//! EagerFirst      sender    length ¹    data     id ²               first piece  Fin if id ≠ 0
//! EagerNext       sender                                            next piece
//! Rts             sender    length ¹    data     id      address ³               Cts or Fin
//! Cts             receiver  id          receive  length                          RendezvousData
//! RendezvousData  sender    receive     offset                      bytes
//! Fin             receiver  id
//! Write           origin    address     key      id      data       bytes        Done
//! Read            origin    address     key      id      length                  RendezvousData
//! Atomic          origin    address     key      id      count      operands     AtomicResult
//! Done            target    id          error
//! AtomicResult    target    id          error                       old values
//! RingOffer       sender    descriptor  nonce                                    (in the ring)
//! RingSwitch      sender
//! Disconnect      either
//! ```
//!
//! ¹ Its highest bit says whether there are data. ² 0: the sender wants no answer. ³ In the
//! sender's memory, or 0 if the message is scattered there. A read of nothing, one that fails, and
//! an atomic operation that fetches nothing are answered by Done.
//!
//! The tag is the message's, where the kind says that it has one. In `Write` it says whether the
//! piece is the last one and carries data, in `Atomic` the operation. Ids are the numbers of a
//! [`Slab`]: the side that gave one checks it when it comes back.
//!
//! **Speed.** Encoding and decoding are inlined into their callers, where the frame's variant is
//! known or decided upon at once: no `Frame` is ever put together in memory on the short path.
//!
//! [`Slab`]: crate::device::resource::slab::Slab

use crate::device::protocol::wire::{Arrived, PayloadSource, RawFrame, WORDS};
use crate::device::resource::completion::error;

/// Maximum length of a message, in bytes.
pub const LONGEST: usize = 1 << 46;

/// Flag in the length of `EagerFirst` and `Rts`: the message carries data.
const WITH_DATA: u64 = 1 << 63;
/// Flag in the tag of `Write`: the operation carries data.
const DATA: u64 = 1;
/// Flag in the tag of `Write`: the last piece.
const LAST: u64 = 2;

/// Kind of a frame: the number that travels. Any other number is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "named after the variants of `Frame`")]
pub enum FrameKind {
    Eager = 0,
    EagerTagged = 1,
    EagerData = 2,
    EagerDataTagged = 3,
    EagerFirst = 4,
    EagerFirstTagged = 5,
    EagerNext = 6,
    Rts = 7,
    RtsTagged = 8,
    Cts = 9,
    RendezvousData = 10,
    Fin = 11,
    Write = 12,
    Read = 13,
    Done = 14,
    Atomic = 15,
    AtomicResult = 16,
    RingOffer = 17,
    RingSwitch = 18,
    Disconnect = 19,
}

impl FrameKind {
    /// Every kind, in the order of the numbers, and its number of words.
    pub const ALL: [(FrameKind, u8); 20] = [
        (FrameKind::Eager, 0),
        (FrameKind::EagerTagged, 0),
        (FrameKind::EagerData, 1),
        (FrameKind::EagerDataTagged, 1),
        (FrameKind::EagerFirst, 3),
        (FrameKind::EagerFirstTagged, 3),
        (FrameKind::EagerNext, 0),
        (FrameKind::Rts, 4),
        (FrameKind::RtsTagged, 4),
        (FrameKind::Cts, 3),
        (FrameKind::RendezvousData, 2),
        (FrameKind::Fin, 1),
        (FrameKind::Write, 4),
        (FrameKind::Read, 4),
        (FrameKind::Done, 2),
        (FrameKind::Atomic, 4),
        (FrameKind::AtomicResult, 2),
        (FrameKind::RingOffer, 2),
        (FrameKind::RingSwitch, 0),
        (FrameKind::Disconnect, 0),
    ];

    /// Numbers of words of all kinds, in three bits each.
    const WORDS: u64 = {
        let (mut all, mut n) = (0, 0);
        while n < FrameKind::ALL.len() {
            all |= (FrameKind::ALL[n].1 as u64) << (n * 3);
            n += 1;
        }
        all
    };

    /// Number of words.
    #[inline(always)]
    pub fn words(self) -> usize {
        (FrameKind::WORDS >> (self as usize * 3) & 7) as usize
    }

    /// Returns the kind with this number, if there is one.
    #[inline(always)]
    pub fn from_number(number: u8) -> Option<FrameKind> {
        FrameKind::ALL.get(usize::from(number)).map(|k| k.0)
    }
}

/// A frame, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole message.
    Eager {
        /// Its tag, if it is a tagged message.
        tag: Option<u64>,
        /// Data for the receiver's completion.
        data: Option<u64>,
    },
    /// The first piece of an eager message.
    EagerFirst {
        /// Its tag, if it is a tagged message.
        tag: Option<u64>,
        /// Data for the receiver's completion.
        data: Option<u64>,
        /// Length of the whole message.
        len: u64,
        /// The sender's id of the message, if it wants to know of the match; 0 otherwise.
        id: u64,
    },
    /// The next piece of an eager message.
    EagerNext,
    /// Request to send: a message that stays at its sender until there is a receive.
    Rts {
        /// Its tag, if it is a tagged message.
        tag: Option<u64>,
        /// Data for the receiver's completion.
        data: Option<u64>,
        /// Length of the message.
        len: u64,
        /// The sender's id of the message.
        id: u64,
        /// Address of its bytes in the sender's memory; 0 if they are scattered.
        address: u64,
    },
    /// Clear to send: the receiver asks for the bytes of an [`Frame::Rts`].
    Cts {
        /// The sender's id of the message.
        id: u64,
        /// The receiver's id of the receive.
        receive: u64,
        /// Number of bytes that fit there.
        wanted: u64,
    },
    /// Bytes that a [`Frame::Cts`] or a [`Frame::Read`] asked for.
    RendezvousData {
        /// The asker's id.
        receive: u64,
        /// Their offset.
        offset: u64,
    },
    /// A message has found its receive, or nothing (more) of it is wanted.
    Fin {
        /// The sender's id of the message.
        id: u64,
    },
    /// A piece of a write to the receiver's memory.
    Write {
        /// Offset of this piece in the region.
        address: u64,
        /// Key of the region.
        key: u64,
        /// The origin's id of the operation.
        id: u64,
        /// Data for the target's completion.
        data: Option<u64>,
        /// True for the last piece.
        last: bool,
    },
    /// A read of the receiver's memory.
    Read {
        /// Offset in the region.
        address: u64,
        /// Key of the region.
        key: u64,
        /// The origin's id of the operation.
        id: u64,
        /// Number of bytes.
        len: u64,
    },
    /// An atomic operation on the receiver's memory.
    Atomic {
        /// Operation, type and the wish for old values, as `rma::atomics` packs them.
        operation: u64,
        /// Offset in the region.
        address: u64,
        /// Key of the region.
        key: u64,
        /// The origin's id of the operation.
        id: u64,
        /// Number of elements.
        count: u64,
    },
    /// The end of a one-sided operation.
    Done {
        /// The origin's id of the operation.
        id: u64,
        /// 0, or an error.
        error: i32,
    },
    /// The end of an atomic operation that fetches; the payload is the old values.
    AtomicResult {
        /// The origin's id of the operation.
        id: u64,
        /// 0, or an error.
        error: i32,
    },
    /// A ring that the sender has made for its messages to this receiver.
    RingOffer {
        /// The ring's descriptor in the sender's process.
        descriptor: u32,
        /// The number by which the receiver recognises the ring.
        nonce: u64,
    },
    /// The sender's last frame in the shared queue: the next ones come through the ring.
    RingSwitch,
    /// The sender closes its endpoint.
    Disconnect,
}

/// Packs a length and whether there are data.
#[inline(always)]
fn pack(len: u64, data: Option<u64>) -> u64 {
    len | if data.is_some() { WITH_DATA } else { 0 }
}

/// Unpacks a length and data; `None` for a length beyond [`LONGEST`].
#[inline(always)]
fn unpack(packed: u64, data: u64) -> Option<(u64, Option<u64>)> {
    let len = packed & !WITH_DATA;
    (len <= LONGEST as u64).then_some((len, (packed & WITH_DATA != 0).then_some(data)))
}

/// An error's number as it travels: it is never negative.
#[inline(always)]
fn from_error(error: i32) -> u64 {
    error as u64
}

/// The error that travelled as this number.
#[inline(always)]
fn to_error(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(error::INVALID)
}

impl Frame {
    /// Encodes the frame with its payload.
    #[inline(always)]
    pub fn encode(self, content: PayloadSource<'_>) -> RawFrame<'_> {
        let tagged = |tag: Option<u64>, plain, with_tag| if tag.is_some() { with_tag } else { plain };
        let (kind, tag, words): (FrameKind, u64, [u64; WORDS]) = match self {
            Frame::Eager { tag, data } => {
                let kind = match data {
                    None => tagged(tag, FrameKind::Eager, FrameKind::EagerTagged),
                    Some(_) => tagged(tag, FrameKind::EagerData, FrameKind::EagerDataTagged),
                };
                (kind, tag.unwrap_or(0), [data.unwrap_or(0), 0, 0, 0])
            }
            Frame::EagerFirst { tag, data, len, id } => {
                let kind = tagged(tag, FrameKind::EagerFirst, FrameKind::EagerFirstTagged);
                (kind, tag.unwrap_or(0), [pack(len, data), data.unwrap_or(0), id, 0])
            }
            Frame::EagerNext => (FrameKind::EagerNext, 0, [0; 4]),
            Frame::Rts { tag, data, len, id, address } => {
                let kind = tagged(tag, FrameKind::Rts, FrameKind::RtsTagged);
                (kind, tag.unwrap_or(0), [pack(len, data), data.unwrap_or(0), id, address])
            }
            Frame::Cts { id, receive, wanted } => (FrameKind::Cts, 0, [id, receive, wanted, 0]),
            Frame::RendezvousData { receive, offset } => {
                (FrameKind::RendezvousData, 0, [receive, offset, 0, 0])
            }
            Frame::Fin { id } => (FrameKind::Fin, 0, [id, 0, 0, 0]),
            Frame::Write { address, key, id, data, last } => {
                let data_flag = if last && data.is_some() { DATA } else { 0 };
                let flags = if last { data_flag | LAST } else { 0 };
                (FrameKind::Write, flags, [address, key, id, data.unwrap_or(0)])
            }
            Frame::Read { address, key, id, len } => (FrameKind::Read, 0, [address, key, id, len]),
            Frame::Atomic { operation, address, key, id, count } => {
                (FrameKind::Atomic, operation, [address, key, id, count])
            }
            Frame::Done { id, error } => (FrameKind::Done, 0, [id, from_error(error), 0, 0]),
            Frame::AtomicResult { id, error } => (FrameKind::AtomicResult, 0, [id, from_error(error), 0, 0]),
            Frame::RingOffer { descriptor, nonce } => {
                (FrameKind::RingOffer, 0, [u64::from(descriptor), nonce, 0, 0])
            }
            Frame::RingSwitch => (FrameKind::RingSwitch, 0, [0; 4]),
            Frame::Disconnect => (FrameKind::Disconnect, 0, [0; 4]),
        };
        RawFrame { kind, tag, words, content }
    }

    /// Decodes a frame. `None`: its words make no sense.
    #[inline(always)]
    pub fn decode(frame: &Arrived) -> Option<Frame> {
        let Arrived { kind, tag, words: w, .. } = *frame;
        Some(match kind {
            FrameKind::Eager => Frame::Eager { tag: None, data: None },
            FrameKind::EagerTagged => Frame::Eager { tag: Some(tag), data: None },
            FrameKind::EagerData => Frame::Eager { tag: None, data: Some(w[0]) },
            FrameKind::EagerDataTagged => Frame::Eager { tag: Some(tag), data: Some(w[0]) },
            FrameKind::EagerFirst | FrameKind::EagerFirstTagged => {
                let (len, data) = unpack(w[0], w[1])?;
                if frame.payload.len() as u64 > len {
                    return None;
                }
                let tag = (kind == FrameKind::EagerFirstTagged).then_some(tag);
                Frame::EagerFirst { tag, data, len, id: w[2] }
            }
            FrameKind::EagerNext => Frame::EagerNext,
            FrameKind::Rts | FrameKind::RtsTagged => {
                let (len, data) = unpack(w[0], w[1])?;
                let tag = (kind == FrameKind::RtsTagged).then_some(tag);
                Frame::Rts { tag, data, len, id: w[2], address: w[3] }
            }
            FrameKind::Cts => Frame::Cts { id: w[0], receive: w[1], wanted: w[2] },
            FrameKind::RendezvousData => Frame::RendezvousData { receive: w[0], offset: w[1] },
            FrameKind::Fin => Frame::Fin { id: w[0] },
            FrameKind::Write => {
                let data = (tag & DATA != 0).then_some(w[3]);
                Frame::Write { address: w[0], key: w[1], id: w[2], data, last: tag & LAST != 0 }
            }
            FrameKind::Read => Frame::Read { address: w[0], key: w[1], id: w[2], len: w[3] },
            FrameKind::Atomic => {
                Frame::Atomic { operation: tag, address: w[0], key: w[1], id: w[2], count: w[3] }
            }
            FrameKind::Done => Frame::Done { id: w[0], error: to_error(w[1]) },
            FrameKind::AtomicResult => Frame::AtomicResult { id: w[0], error: to_error(w[1]) },
            FrameKind::RingOffer => Frame::RingOffer { descriptor: w[0] as u32, nonce: w[1] },
            FrameKind::RingSwitch => Frame::RingSwitch,
            FrameKind::Disconnect => Frame::Disconnect,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::protocol::wire::LINE;
    use crate::device::resource::buffers::ArrivedPayload;

    /// Sends a frame with this payload over a line.
    fn over_the_wire(frame: Frame, payload: &[u8]) -> Option<Frame> {
        let raw = frame.encode(PayloadSource::Bytes(payload));
        let line = raw.line();
        let mut cells = [u64::MAX; LINE / 8];
        raw.cells(None, |n, cell| cells[n] = cell);
        let words = [cells[0], cells[1], cells[2], cells[3]];
        let all = ArrivedPayload::of_cells(&cells);
        let arrived = Arrived::read(line.handler, line.args, raw.tag, words, all, |_| None)?;
        assert_eq!(arrived.payload.to_vec(), payload);
        Frame::decode(&arrived)
    }

    #[test]
    fn every_frame_decodes_to_itself() {
        let mut frames = vec![
            Frame::EagerNext,
            Frame::Cts { id: 1, receive: 2, wanted: 3 },
            Frame::RendezvousData { receive: 1, offset: 2 },
            Frame::Fin { id: 1 },
            Frame::Write { address: 1, key: 2, id: 3, data: None, last: true },
            Frame::Write { address: 1, key: 2, id: 3, data: None, last: false },
            Frame::Write { address: 1, key: 2, id: 3, data: Some(4), last: true },
            Frame::Read { address: 1, key: 2, id: 3, len: 4 },
            Frame::Atomic { operation: 5, address: 1, key: 2, id: 3, count: 4 },
            Frame::Done { id: 1, error: error::NO_KEY },
            Frame::AtomicResult { id: 1, error: 0 },
            Frame::RingOffer { descriptor: 1, nonce: 2 },
            Frame::RingSwitch,
            Frame::Disconnect,
        ];
        for tag in [None, Some(7)] {
            for data in [None, Some(0), Some(8)] {
                frames.push(Frame::Eager { tag, data });
                frames.push(Frame::EagerFirst { tag, data, len: LONGEST as u64, id: 9 });
                frames.push(Frame::Rts { tag, data, len: 10, id: 9, address: 11 });
            }
        }
        for frame in frames {
            assert_eq!(over_the_wire(frame, b"payload"), Some(frame));
        }
    }

    #[test]
    fn impossible_lengths_are_no_frame() {
        let (tag, data, id) = (Some(1), Some(2), 3);
        let first = |len| Frame::EagerFirst { tag, data, len, id };
        assert_eq!(over_the_wire(first(7), b"payload"), Some(first(7)));
        assert_eq!(over_the_wire(first(6), b"payload"), None, "more than the message");
        assert_eq!(over_the_wire(first(LONGEST as u64 + 1), b"payload"), None);
        assert_eq!(
            over_the_wire(Frame::Rts { tag, data, len: LONGEST as u64 + 1, id, address: 0 }, b""),
            None
        );
    }

    #[test]
    fn unknown_errors_become_invalid_arguments() {
        assert_eq!((to_error(0), to_error(u64::MAX)), (0, error::INVALID));
        assert_eq!(to_error(from_error(error::UNREACHABLE)), error::UNREACHABLE);
    }
}
