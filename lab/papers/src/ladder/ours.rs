//! Ours: the channel's ring for each direction, and the line that both share
//! (`core/channel/src/ring.rs`, `shared_line.rs`).
//!
//! Like the paper's versions it carries the messages of one process to another in order. A message
//! of at most [`INLINE`] bytes lies in a slot or in the line, a longer one in the ring's bytes, in
//! pieces of at most [`PIECE`].
//!
//! **Progress.** Wait-free but for space. **Fields.** Those of the ring.
//!
//! **Crashes.** A sender's messages arrive if they were published; if the receiver dies, its sender
//! waits for space for ever here (the device of `mpi/fabric` asks whether it lives).

use towpath_channel::packet::{Form, Header, LINE_ARGS, Slot};
use towpath_channel::ring::{Found, RingMemory, RingReceiver, RingSender};
use towpath_machine::{Prefetch, Processor};

/// Maximum number of bytes of a message on a line.
pub const INLINE: usize = LINE_ARGS * 4;
/// Maximum number of bytes of a piece.
pub const PIECE: usize = 16 << 10;

/// Access to the bytes behind a ring.
pub trait RingBytes<P, M> {
    /// Copies a piece to its place, and returns the word by which the slot names the
    /// place.
    fn write(&mut self, cpu: &P, memory: &M, ticket: u64, at: usize, piece: &[u8]) -> Option<u64>;
    /// Copies the piece out that the word names. Returns whether there is one of this
    /// length.
    fn read(&mut self, cpu: &P, memory: &M, ticket: u64, place: u64, piece: &mut [u8]) -> bool;
}

/// A process's end of both directions.
pub struct Ours<M, B, const SLOTS: usize> {
    out: RingSender<M, SLOTS>,
    into: RingReceiver<M, SLOTS>,
    bytes: B,
}

/// A slot or the line as a message's first or only part.
struct MessagePart {
    tag: u64,
    /// The whole message's length.
    len: usize,
    /// Length of this part; `None` if it makes no sense.
    here: Option<usize>,
}

impl<M: RingMemory<SLOTS>, B: RingBytes<M::Cpu, M>, const SLOTS: usize> Ours<M, B, SLOTS>
where
    M::Cpu: Prefetch,
{
    /// Both ends of one process, which share the line already if they are to.
    pub fn new(out: RingSender<M, SLOTS>, into: RingReceiver<M, SLOTS>, bytes: B) -> Self {
        Ours { out, into, bytes }
    }

    /// The sending end.
    pub fn sender(&mut self) -> &mut RingSender<M, SLOTS> {
        &mut self.out
    }

    /// The receiving end.
    pub fn receiver(&self) -> &RingReceiver<M, SLOTS> {
        &self.into
    }

    /// Sends a message. `wait` waits for space, the `n`-th time in a row; `sent` is
    /// called after each part.
    #[inline(always)]
    pub fn send(
        &mut self,
        cpu: &M::Cpu,
        tag: u64,
        data: &[u8],
        mut wait: impl FnMut(u32),
        mut sent: impl FnMut(),
    ) {
        if data.len() <= INLINE {
            let fill = |slot: &Slot<M::Cpu>| {
                cpu.write(&slot.tag, tag);
                for (cell, chunk) in slot.args.iter().zip(data.chunks(8)) {
                    cpu.write(cell, word_of(chunk));
                }
                Header::new(Form::Short, 0, 0, 0).with_block(data.len())
            };
            if !self.out.send_in_line(cpu, fill) {
                let mut round = 0;
                while !self.out.send_in_slot(cpu, None, |_, _, slot, _| Some(fill(slot))) {
                    wait(round);
                    round += 1;
                }
            }
            return sent();
        }
        self.send_long(cpu, tag, data, wait, sent);
    }

    fn send_long(
        &mut self,
        cpu: &M::Cpu,
        tag: u64,
        data: &[u8],
        mut wait: impl FnMut(u32),
        mut sent: impl FnMut(),
    ) {
        for piece in data.chunks(PIECE) {
            let (bytes, mut round) = (&mut self.bytes, 0);
            while !self.out.send_in_slot(cpu, Some(piece.len()), |memory, ticket, slot, at| {
                let place = bytes.write(cpu, memory, ticket, at?, piece)?;
                cpu.write(&slot.tag, tag);
                for (cell, value) in slot.args.iter().zip([data.len() as u64, piece.len() as u64, place]) {
                    cpu.write(cell, value);
                }
                Some(Header::new(Form::Medium, 0, 0, 0))
            }) {
                wait(round);
                round += 1;
            }
            sent();
        }
    }

    /// Receives the next message into `buffer`. `next` waits until something is there.
    /// Returns tag and length; `None` if it makes no sense, or is too long.
    #[inline(always)]
    pub fn receive(
        &mut self,
        cpu: &M::Cpu,
        mut next: impl FnMut(&RingReceiver<M, SLOTS>) -> Found,
        buffer: &mut [u8],
    ) -> Option<(u64, usize)> {
        let found = next(&self.into);
        let MessagePart { tag, len, here } = self.part(cpu, found, buffer);
        let mut done = here?;
        while done < len {
            let found = next(&self.into);
            done += self.part(cpu, found, &mut buffer[done..]).here?;
        }
        (done == len).then_some((tag, len))
    }

    /// Takes one part.
    #[inline(always)]
    fn part(&mut self, cpu: &M::Cpu, found: Found, buffer: &mut [u8]) -> MessagePart {
        let bytes = &mut self.bytes;
        self.into.deliver(cpu, found, |memory, slot, header, ticket| {
            let tag = cpu.read(&slot.tag);
            if let (Some(Form::Medium), Some(ticket)) = (header.form(), ticket) {
                let [len, here, place] = [0, 1, 2].map(|n| cpu.read(&slot.args[n]));
                let here = buffer
                    .get_mut(..here as usize)
                    .and_then(|piece| bytes.read(cpu, memory, ticket, place, piece).then_some(piece.len()));
                return MessagePart { tag, len: len as usize, here };
            }
            let len = header.block();
            let fits = len <= INLINE && len <= buffer.len();
            if fits {
                for (chunk, cell) in buffer[..len].chunks_mut(8).zip(&slot.args) {
                    chunk.copy_from_slice(&cpu.read(cell).to_le_bytes()[..chunk.len()]);
                }
            }
            MessagePart { tag, len, here: fits.then_some(len) }
        })
    }
}

/// Word of up to eight bytes.
#[inline(always)]
fn word_of(chunk: &[u8]) -> u64 {
    match chunk.try_into() {
        Ok(eight) => u64::from_le_bytes(eight),
        Err(_) => {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(eight)
        }
    }
}
