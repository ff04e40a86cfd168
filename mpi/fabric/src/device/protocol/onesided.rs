//! Reading and writing memory of others, by messages: the owner does it when it makes
//! progress.
//!
//! Every operation is answered, so its end is its delivery. Writes and atomic operations keep their
//! place among the messages to the same peer; the bytes of a long read may be overtaken by later
//! writes.

use crate::device::endpoint::{Core, LONGEST, Refusal};
use crate::device::peer::{Queued, Source, Stream, What};
use crate::device::protocol::frame::{Arrived, Kind};
use crate::device::resource::buffers::{Buffer, Payload};
use crate::device::resource::completion::{Class, Completion, Ticket, WITH_DATA, error};

/// An operation that waits for its answer.
#[derive(Debug)]
pub struct OneSided {
    /// Who is to answer.
    pub peer: u32,
    /// What to report.
    pub ticket: Ticket,
    /// Where what was read goes.
    pub into: Buffer,
    /// How much of it has come.
    pub came: usize,
}

/// The flags that a remote write with data is reported with: `FI_RMA | FI_REMOTE_WRITE`.
const REMOTE_WRITE: u64 = 1 << 2 | 1 << 13;
/// In a write's tag: it carries data.
const DATA: u64 = 1;
/// In a write's tag: it is the last piece.
const LAST: u64 = 2;

/// What a one-sided operation is about.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Whose memory.
    pub peer: u32,
    /// The offset in the region.
    pub address: u64,
    /// The region's key.
    pub key: u64,
}

impl Core {
    /// Writes to remote memory.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub fn write(
        &mut self,
        to: Target,
        buffer: &Buffer,
        data: Option<u64>,
        ticket: Ticket,
        inject: bool,
    ) -> Result<(), Refusal> {
        if buffer.len() > LONGEST {
            return Err(Refusal::TooLong);
        }
        self.check(to.peer)?;
        self.happened.called(false);
        let number =
            self.onesided.insert(OneSided { peer: to.peer, ticket, into: Buffer::default(), came: 0 });
        let source = if inject { Source::Copy(buffer.to_vec()) } else { Source::Buffer(buffer.clone()) };
        let what = What::Write { address: to.address, key: to.key, number, data };
        let stream = Stream { what, source, at: 0, end: buffer.len(), then: None };
        self.enqueue(to.peer, Queued::Stream(stream));
        self.push_peer(to.peer);
        Ok(())
    }

    /// Reads remote memory.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub fn read(&mut self, from: Target, buffer: &Buffer, ticket: Ticket) -> Result<(), Refusal> {
        if buffer.len() > LONGEST {
            return Err(Refusal::TooLong);
        }
        self.check(from.peer)?;
        self.happened.called(false);
        let number =
            self.onesided.insert(OneSided { peer: from.peer, ticket, into: buffer.clone(), came: 0 });
        let words = [from.address, from.key, number, buffer.len() as u64];
        self.post(from.peer, Kind::Read, 0, words, &[]);
        Ok(())
    }

    /// A peer writes to our memory.
    pub(crate) fn written(&mut self, peer: u32, frame: &Arrived) {
        let [address, key, number, data] = frame.words;
        let error = match self.regions.part(key, address, frame.payload.len() as u64, true) {
            Some(part) => {
                frame.payload.copy_to(&part, 0);
                0
            }
            None if frame.payload.is_empty() => 0,
            None => error::NO_KEY,
        };
        if error != 0 {
            // Once is enough: the number is not known any more when the next comes.
            return self.post(peer, Kind::Done, 0, [number, error as u64, 0, 0], &[]);
        }
        if frame.tag & LAST != 0 {
            self.reports.remote(Class::RemoteWrite);
            self.regions.count(key, true);
            if frame.tag & DATA != 0 {
                let source = self.peers[peer as usize].listed;
                let flags = REMOTE_WRITE | WITH_DATA;
                self.reports.tell(true, Completion { flags, data, source, ..Completion::default() });
            }
            self.post(peer, Kind::Done, 0, [number, 0, 0, 0], &[]);
        }
    }

    /// A peer reads our memory.
    pub(crate) fn asked(&mut self, peer: u32, frame: &Arrived) {
        let [address, key, number, len] = frame.words;
        match self.regions.part(key, address, len, false) {
            Some(part) if len > 0 => {
                self.reports.remote(Class::RemoteRead);
                self.regions.count(key, false);
                let what = What::Bytes { to: number };
                let stream =
                    Stream { what, source: Source::Buffer(part), at: 0, end: len as usize, then: None };
                if self.check(peer) != Err(Refusal::Unreachable) {
                    self.stream(peer, stream);
                }
            }
            part => {
                let error = if part.is_some() || len == 0 { 0 } else { error::NO_KEY };
                self.post(peer, Kind::Done, 0, [number, error as u64, 0, 0], &[]);
            }
        }
    }

    /// Bytes that a read of ours asked for.
    pub(crate) fn read_bytes(&mut self, frame: &Arrived, peer: u32) {
        let [number, offset, ..] = frame.words;
        let Some(operation) = self.onesided.get_mut(number).filter(|o| o.peer == peer) else { return };
        if offset != operation.came as u64 || frame.payload.len() > operation.into.len() - operation.came {
            return;
        }
        frame.payload.copy_to(&operation.into, operation.came);
        operation.came += frame.payload.len();
        if operation.came == operation.into.len() {
            self.done(peer, number, 0);
        }
    }

    /// An operation of ours has ended. Only the errors that there are, are reported.
    pub(crate) fn done(&mut self, peer: u32, number: u64, error: u64) {
        let error = match error {
            0 => 0,
            e if e == error::NO_KEY as u64 => error::NO_KEY,
            _ => error::INVALID,
        };
        if self.onesided.get_mut(number).is_some_and(|o| o.peer == peer)
            && let Some(operation) = self.onesided.remove(number)
        {
            self.reports.end(&operation.ticket, error);
        }
    }

    /// What an atomic operation of ours found.
    pub(crate) fn atomic_found(&mut self, peer: u32, frame: &Arrived) {
        let [number, error, ..] = frame.words;
        if let Some(operation) = self.onesided.get_mut(number).filter(|o| o.peer == peer) {
            let found: Payload = frame.payload;
            found.copy_to(&operation.into, 0);
            self.done(peer, number, error);
        }
    }
}
