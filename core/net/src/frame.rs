//! Frames: records of the cipher, of which the last of a frame says so.
//!
//! ```text
//! record   length (2 bytes, little-endian) | ciphertext of: last (1 byte: 1 or 0), bytes
//! ```
//!
//! Records are numbered by both ends; the cipher refuses one that is out of turn. Lengths are
//! checked before anything is allocated.

use std::io::{self, Read};

use snow::StatelessTransportState;

/// Maximum number of bytes of a frame.
pub const MAX_FRAME: usize = 16 << 20;

/// Maximum number of bytes of a record's ciphertext, by the Noise protocol.
const MAX_RECORD: usize = 65_535;
/// Number of bytes that the cipher adds.
const TAG: usize = 16;
/// Maximum number of a frame's bytes in a record.
const MAX_PART: usize = MAX_RECORD - TAG - 1;

/// Failure of reading a frame.
#[derive(Debug)]
pub enum ReadFailure {
    Io(io::Error),
    /// The bytes are not those that the peer sent.
    Damaged,
    /// The peer closed the link between two frames.
    Closed,
}

impl From<io::Error> for ReadFailure {
    fn from(error: io::Error) -> Self {
        ReadFailure::Io(error)
    }
}

/// Writer of frames: the next record's number, and the bytes that were not sent yet.
#[derive(Debug, Default)]
pub struct FrameWriter {
    number: u64,
    plain: Vec<u8>,
    bytes: Vec<u8>,
    /// Number of these that were sent.
    sent: usize,
}

impl FrameWriter {
    /// Adds a frame of at most [`MAX_FRAME`] bytes to those that are to be sent.
    pub fn add(&mut self, cipher: &StatelessTransportState, frame: &[u8]) -> io::Result<()> {
        self.bytes.drain(..self.sent);
        self.sent = 0;
        let mut rest = frame;
        loop {
            let (part, after) = rest.split_at(rest.len().min(MAX_PART));
            rest = after;
            self.plain.clear();
            self.plain.push(u8::from(rest.is_empty()));
            self.plain.extend_from_slice(part);
            let begin = self.bytes.len();
            self.bytes.resize(begin + 2 + self.plain.len() + TAG, 0);
            let written = cipher
                .write_message(self.number, &self.plain, &mut self.bytes[begin + 2..])
                .map_err(io::Error::other)?;
            self.number += 1;
            let length = u16::try_from(written).map_err(io::Error::other)?;
            self.bytes[begin..begin + 2].copy_from_slice(&length.to_le_bytes());
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}

impl FrameWriter {
    /// Returns the bytes that are to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Notes that so many more of them were sent.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
    }
}

/// Reader of frames: the next record's number, and room for it.
#[derive(Debug, Default)]
pub struct FrameReader {
    number: u64,
    record: Vec<u8>,
    plain: Vec<u8>,
}

impl FrameReader {
    /// Reads a frame into `frame`, which is cleared first.
    pub fn read(
        &mut self,
        cipher: &StatelessTransportState,
        from: &mut impl Read,
        frame: &mut Vec<u8>,
    ) -> Result<(), ReadFailure> {
        frame.clear();
        loop {
            let mut length = [0; 2];
            if !fill(from, &mut length)? {
                return Err(if frame.is_empty() { ReadFailure::Closed } else { ReadFailure::Damaged });
            }
            let length = usize::from(u16::from_le_bytes(length));
            self.record.resize(length, 0);
            from.read_exact(&mut self.record)?;
            let record = std::mem::take(&mut self.record);
            let ended = self.open(cipher, &record, frame);
            self.record = record;
            if ended? {
                return Ok(());
            }
        }
    }

    /// Reads the part of a frame at the beginning of `bytes`, and appends it to `frame`.
    ///
    /// Returns the number of bytes that were read, and whether the frame has ended with them.
    pub fn read_part(
        &mut self,
        cipher: &StatelessTransportState,
        bytes: &[u8],
        frame: &mut Vec<u8>,
    ) -> Result<(usize, bool), ReadFailure> {
        let mut begin = 0;
        while let Some((length, rest)) = bytes[begin..].split_first_chunk() {
            let Some(record) = rest.get(..usize::from(u16::from_le_bytes(*length))) else { break };
            begin += length.len() + record.len();
            if self.open(cipher, record, frame)? {
                return Ok((begin, true));
            }
        }
        Ok((begin, false))
    }

    /// Appends a record's bytes to a frame. Returns whether it is the frame's last one.
    fn open(
        &mut self,
        cipher: &StatelessTransportState,
        record: &[u8],
        frame: &mut Vec<u8>,
    ) -> Result<bool, ReadFailure> {
        if record.len() <= TAG {
            return Err(ReadFailure::Damaged);
        }
        self.plain.resize(record.len(), 0);
        let count =
            cipher.read_message(self.number, record, &mut self.plain).map_err(|_| ReadFailure::Damaged)?;
        self.number += 1;
        let (Some(&last), part) = (self.plain.first(), &self.plain[1..count.max(1)]) else {
            return Err(ReadFailure::Damaged);
        };
        if last > 1 || frame.len() + part.len() > MAX_FRAME {
            return Err(ReadFailure::Damaged);
        }
        frame.extend_from_slice(part);
        Ok(last == 1)
    }
}

/// Fills `to`. `false`: there was no byte, the stream has ended.
fn fill(from: &mut impl Read, to: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < to.len() {
        match from.read(&mut to[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
