//! Frames: records of the cipher, of which the last of a frame says so.
//!
//! ```text
//! record   length (2 bytes, little-endian) | ciphertext of: last (1 byte: 1 or 0), bytes
//! ```
//!
//! Records are numbered by both ends; the cipher refuses one that is out of turn. Lengths are
//! checked before anything is allocated.

use std::io::{self, Read};

use crate::cipher::RecordCipher;

/// Maximum number of bytes of a frame.
pub const MAX_FRAME: usize = 16 << 20;

/// Maximum number of bytes of a record's ciphertext, by the Noise protocol.
pub const MAX_RECORD: usize = 65_535;
/// Number of bytes that the cipher adds.
pub const TAG: usize = 16;
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

/// Sealer of records.
#[derive(Debug)]
pub struct Sealer {
    pub cipher: RecordCipher,
    plain: Vec<u8>,
}

impl Sealer {
    pub fn new(cipher: RecordCipher) -> Sealer {
        Sealer { cipher, plain: Vec::new() }
    }

    /// Seals the next record of a frame into `to`.
    ///
    /// There is room for [`MAX_RECORD`] bytes, or for the frame's rest. Returns the record's
    /// length, and the frame's rest after it.
    pub fn seal<'f>(&mut self, frame: &'f [u8], to: &mut [u8]) -> (usize, &'f [u8]) {
        let (part, rest) = frame.split_at(frame.len().min(MAX_PART));
        self.plain.clear();
        self.plain.push(u8::from(rest.is_empty()));
        self.plain.extend_from_slice(part);
        (self.cipher.seal(&self.plain, to), rest)
    }
}

/// Writer of frames: the sealer, and the bytes that were not sent yet.
#[derive(Debug)]
pub struct FrameWriter {
    pub sealer: Sealer,
    bytes: Vec<u8>,
    /// Number of these that were sent.
    sent: usize,
}

impl FrameWriter {
    pub fn new(cipher: RecordCipher) -> FrameWriter {
        FrameWriter { sealer: Sealer::new(cipher), bytes: Vec::new(), sent: 0 }
    }

    /// Adds a frame of at most [`MAX_FRAME`] bytes to those that are to be sent.
    pub fn add(&mut self, frame: &[u8]) -> io::Result<()> {
        self.bytes.drain(..self.sent);
        self.sent = 0;
        let mut rest = frame;
        loop {
            let begin = self.bytes.len();
            self.bytes.resize(begin + 2 + 1 + rest.len().min(MAX_PART) + TAG, 0);
            let (written, after) = self.sealer.seal(rest, &mut self.bytes[begin + 2..]);
            rest = after;
            let length = u16::try_from(written).map_err(io::Error::other)?;
            self.bytes[begin..begin + 2].copy_from_slice(&length.to_le_bytes());
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Returns the bytes that are to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Notes that so many more of them were sent.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
    }
}

/// Opener of records.
#[derive(Debug)]
pub struct Opener {
    pub cipher: RecordCipher,
    plain: Vec<u8>,
}

/// Record that came with its number in clear.
#[cfg(feature = "fabric")]
#[derive(Debug, PartialEq, Eq)]
pub enum NumberedRecord {
    /// The frame's last one.
    Last,
    /// Another one of the frame.
    Part,
    /// The peer did not send it, or it came before.
    Foreign,
}

/// Reader of frames: the opener, and room for a record.
#[derive(Debug)]
pub struct FrameReader {
    pub opener: Opener,
    record: Vec<u8>,
}

impl FrameReader {
    pub fn new(cipher: RecordCipher) -> FrameReader {
        FrameReader { opener: Opener::new(cipher), record: Vec::new() }
    }

    /// Reads a frame into `frame`, which is cleared first.
    pub fn read(&mut self, from: &mut impl Read, frame: &mut Vec<u8>) -> Result<(), ReadFailure> {
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
            let ended = self.opener.open(&record, frame);
            self.record = record;
            if ended? {
                return Ok(());
            }
        }
    }

    /// Reads the part of a frame at the beginning of `bytes`, and appends it to `frame`.
    ///
    /// Returns the number of bytes that were read, and whether the frame has ended with them.
    pub fn read_part(&mut self, bytes: &[u8], frame: &mut Vec<u8>) -> Result<(usize, bool), ReadFailure> {
        let mut begin = 0;
        while let Some((length, rest)) = bytes[begin..].split_first_chunk() {
            let Some(record) = rest.get(..usize::from(u16::from_le_bytes(*length))) else { break };
            begin += length.len() + record.len();
            if self.opener.open(record, frame)? {
                return Ok((begin, true));
            }
        }
        Ok((begin, false))
    }
}

impl Opener {
    pub fn new(cipher: RecordCipher) -> Opener {
        Opener { cipher, plain: Vec::new() }
    }

    /// Appends the next record's bytes to a frame.
    ///
    /// Returns whether it is the frame's last one.
    fn open(&mut self, record: &[u8], frame: &mut Vec<u8>) -> Result<bool, ReadFailure> {
        let number = self.cipher.number();
        let count = self.decrypt(number, record).ok_or(ReadFailure::Damaged)?;
        self.append(count, frame)
    }

    /// Appends a record's bytes to a frame, if it is the next one.
    ///
    /// A later record means that one was lost: the link is damaged.
    #[cfg(feature = "fabric")]
    pub fn open_numbered(
        &mut self,
        number: u64,
        record: &[u8],
        frame: &mut Vec<u8>,
    ) -> Result<NumberedRecord, ReadFailure> {
        if number < self.cipher.number() {
            return Ok(NumberedRecord::Foreign);
        }
        let Some(count) = self.decrypt(number, record) else { return Ok(NumberedRecord::Foreign) };
        if number != self.cipher.number() {
            return Err(ReadFailure::Damaged);
        }
        let is_last = self.append(count, frame)?;
        Ok(if is_last { NumberedRecord::Last } else { NumberedRecord::Part })
    }

    fn decrypt(&mut self, number: u64, record: &[u8]) -> Option<usize> {
        self.plain.resize(record.len(), 0);
        self.cipher.open(number, record, &mut self.plain)
    }

    /// Appends the decrypted record to a frame.
    ///
    /// Returns whether it is the frame's last one.
    fn append(&mut self, count: usize, frame: &mut Vec<u8>) -> Result<bool, ReadFailure> {
        self.cipher.advance();
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
