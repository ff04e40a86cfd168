//! Transfers in pieces, and the frames and transfers that wait in a peer's queue.

use crate::device::link::{Link, SendResult};
use crate::device::protocol::frame::Frame;
use crate::device::protocol::wire::PayloadSource;
use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::CompletionTicket;

/// Bytes of a transfer.
#[derive(Debug)]
pub enum TransferSource {
    /// The caller's.
    Buffer(Buffer),
    /// A copy.
    Copy(Vec<u8>),
}

impl TransferSource {
    /// The bytes of a buffer; `inject`: copied now, since the caller may change it.
    pub fn new(buffer: &Buffer, inject: bool) -> TransferSource {
        if inject { TransferSource::Copy(buffer.to_vec()) } else { TransferSource::Buffer(buffer.clone()) }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            TransferSource::Buffer(buffer) => buffer.len(),
            TransferSource::Copy(bytes) => bytes.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the bytes, which must exist.
    pub fn part(&self, at: usize, len: usize) -> PayloadSource<'_> {
        match self {
            TransferSource::Buffer(buffer) => PayloadSource::Part(buffer, at, len),
            TransferSource::Copy(bytes) => PayloadSource::Bytes(&bytes[at..at + len]),
        }
    }

    /// Address in this process's memory; 0 if the bytes are scattered, or a copy.
    pub fn address(&self) -> u64 {
        match self {
            TransferSource::Buffer(buffer) if buffer.is_contiguous() => buffer.address() as u64,
            _ => 0,
        }
    }
}

/// Kind of the frames that carry a transfer's pieces.
#[derive(Clone, Copy, Debug)]
pub enum StreamKind {
    /// The rest of an eager message.
    Eager,
    /// Bytes that the receiver asked for.
    Rendezvous {
        /// The receiver's id of the receive or the read.
        receive: u64,
    },
    /// A write to remote memory.
    Write {
        /// Offset in the region.
        address: u64,
        /// Key of the region.
        key: u64,
        /// Our id of the operation.
        id: u64,
        /// Data for the target's completion.
        data: Option<u64>,
    },
}

/// A transfer in pieces.
#[derive(Debug)]
pub struct Stream {
    /// Kind of its frames.
    pub kind: StreamKind,
    /// The bytes.
    pub source: TransferSource,
    /// Number of bytes sent so far.
    pub at: usize,
    /// Number of bytes to send.
    pub end: usize,
    /// The completion to report at the end.
    pub then: Option<CompletionTicket>,
}

impl Stream {
    /// Sends at most `most` pieces, while there is space. `Some(sent)`: it is stuck
    /// ([`SendResult::Full`]), over ([`SendResult::Gone`]), or done ([`SendResult::Yes`]).
    pub fn push(&mut self, link: &mut Link, most: usize) -> Option<SendResult> {
        for _ in 0..most {
            let len = link.piece().min(self.end - self.at);
            let last = self.at + len == self.end;
            let at = self.at as u64;
            let frame = match self.kind {
                StreamKind::Eager => Frame::EagerNext,
                StreamKind::Rendezvous { receive } => Frame::RendezvousData { receive, offset: at },
                StreamKind::Write { address, key, id, data } => {
                    Frame::Write { address: address.wrapping_add(at), key, id, data, last }
                }
            };
            match link.send(&frame.encode(self.source.part(self.at, len))) {
                SendResult::Yes => self.at += len,
                other => return Some(other),
            }
            if last {
                return Some(SendResult::Yes);
            }
        }
        None
    }
}

/// An entry of a peer's queue, in the order of the sends.
#[derive(Debug)]
pub enum Queued {
    /// A frame and its payload.
    Frame(Frame, Vec<u8>),
    /// A transfer whose pieces keep their place among the messages.
    Stream(Stream),
}
