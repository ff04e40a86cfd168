//! A link that never blocks: for a thread that polls many.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::Error;
use crate::frame::{FrameReader, FrameWriter, MAX_FRAME, MAX_RECORD, ReadFailure};
use crate::link::Common;

/// Maximum number of bytes that wait to be sent, besides one frame.
const MAX_WAITING: usize = 4 * MAX_FRAME;
/// Maximum number of bytes that wait to be read: more than a record.
const INPUT: usize = 2 * (2 + MAX_RECORD);

/// Link that never blocks. Made by [`Link::polled`](crate::Link::polled).
///
/// Its descriptor becomes readable when frames may have come, and writable when more of what waits
/// can be sent.
#[derive(Debug)]
pub struct PolledLink {
    common: Arc<Common>,
    writer: FrameWriter,
    reader: FrameReader,
    /// Room for bytes that have come; those of `begin..end` were not read yet.
    input: Vec<u8>,
    begin: usize,
    end: usize,
    /// True if the last read took all bytes that had come.
    emptied: bool,
    /// Frame of which a part has come.
    frame: Vec<u8>,
}

impl PolledLink {
    pub(crate) fn new(common: Arc<Common>, writer: FrameWriter, reader: FrameReader) -> PolledLink {
        PolledLink {
            common,
            writer,
            reader,
            input: vec![0; INPUT],
            begin: 0,
            end: 0,
            emptied: false,
            frame: Vec::new(),
        }
    }

    /// Sends a frame: now as far as there is space, the rest in [`PolledLink::flush`].
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`]; [`Error::Unreachable`] if the peer is gone, or has not read for so long
    /// that too much waits.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        if frame.len() > MAX_FRAME {
            return Err(Error::TooLong(frame.len()));
        }
        if self.writer.unsent().len() > MAX_WAITING {
            return Err(self.unreachable(io::ErrorKind::WouldBlock.into()));
        }
        self.writer.add(frame).map_err(|error| self.unreachable(error))?;
        self.flush()
    }

    /// Sends the bytes that wait, as far as there is space.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`].
    pub fn flush(&mut self) -> Result<(), Error> {
        while self.is_waiting() {
            match (&self.common.stream).write(self.writer.unsent()) {
                Ok(0) => return Err(self.unreachable(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.writer.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreachable(error)),
            }
        }
        Ok(())
    }

    /// Returns whether something waits for space.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.writer.unsent().is_empty()
    }

    /// Takes the next frame, if it has come whole. Its bytes replace those in `frame`.
    ///
    /// `false`: none has come whole since the last read; the descriptor says when there is more.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Unreachable`], [`Error::Damaged`].
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> Result<bool, Error> {
        let peer = self.common.peer;
        loop {
            let bytes = &self.input[self.begin..self.end];
            let part = self.reader.read_part(bytes, &mut self.frame);
            let (count, ended) = part.map_err(|failure| match failure {
                ReadFailure::Io(error) => Error::Unreachable(peer, error),
                ReadFailure::Damaged | ReadFailure::Closed => Error::Damaged(peer),
            })?;
            self.begin += count;
            if ended {
                frame.clear();
                std::mem::swap(frame, &mut self.frame);
                return Ok(true);
            }
            if !self.fill()? {
                return Ok(false);
            }
        }
    }

    /// Reads bytes that have come. `false`: there are none, or the last read took all.
    fn fill(&mut self) -> Result<bool, Error> {
        if std::mem::take(&mut self.emptied) {
            return Ok(false);
        }
        self.input.copy_within(self.begin..self.end, 0);
        self.end -= std::mem::take(&mut self.begin);
        loop {
            let room = &mut self.input[self.end..];
            match (&self.common.stream).read(room) {
                Ok(0) => return Err(Error::Closed(self.common.peer)),
                Ok(count) => {
                    self.emptied = count < room.len();
                    self.end += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreachable(error)),
            }
        }
    }

    fn unreachable(&self, error: io::Error) -> Error {
        Error::Unreachable(self.common.peer, error)
    }
}

impl AsFd for PolledLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.common.stream.as_fd()
    }
}
