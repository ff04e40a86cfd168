//! The ring of one ordered pair of processes, with the device's frames in it: where a
//! frame lies in a slot, how its bytes are written, and how many of them a pair uses.
//!
//! The ring itself, and the line that both directions share, are those of the room channel
//! ([`towpath_channel::ring`], [`towpath_channel::shared_line`]), as are progress and crashes.
//!
//! **Bytes.** Longer messages are copied twice, but both ends at once, and each line crosses from
//! core to core once: what is fetched out of the sender's own buffer stays there. How they are
//! written is measured ([`StoreModes`]). A pair that has moved 4 MiB and does not share its cores
//! gets more of them, so that a line has left the reader's cache by the time that it is written
//! again.
//!
//! **Fields.** `nonce`: the sender, before it offers the ring. `answer`, `told`: the receiver.
//!
//! **Memory.** 300 KiB for each ordered pair that has earned it, 2 MiB for one that has moved a
//! lot, 16 of a process's at most (of addresses: 2 MiB each); made by the sender, gone with both.
//! **Don't use it** for pairs that seldom talk: the receiver looks at every pair's ring in turn.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use towpath_channel::packet::{Form, Header, Slot};
use towpath_channel::ring::{Found, RingReceiver, RingSender};
use towpath_channel::shared_line::SharedLine;
use towpath_channel::store_mode::{StoreModes, report};
use towpath_machine::Native;

use crate::device::connect::attach::{AttachError, PairMemory};
use crate::device::connect::layout::{ACCEPTED, DECLINED, FIRST_BYTES, SLOT_BYTES, SLOTS};
use crate::device::protocol::wire::{Arrived, LINE, PayloadSource, RawFrame as Frame};
use crate::device::resource::buffers::ArrivedPayload;
use crate::device::tune::copy_mode::now;

/// Mark of a piece whose time is to be told, among the bits of its place.
const TIMED: u64 = 1 << 31;

/// Number of bytes that a pair has moved when it has earned all of its memory.
const EARNS: u64 = 4 << 20;
/// Maximum number of a process's pairs that get it: 32 MiB.
const MOST: u32 = 16;
/// Number of pairs that have it.
static GROWN: AtomicU32 = AtomicU32::new(0);

const CPU: Native = Native::with_id(0);

/// One end of the line that two directions between the same processes share.
pub type PairLine = SharedLine<Rc<PairMemory>>;

/// Writes a frame to a line, but for the header.
#[inline(always)]
fn lay_down(line: &Slot<Native>, frame: &Frame<'_>, place: Option<u64>) {
    // Relaxed, both: published by the header, in the ring.
    line.tag.store(frame.tag, Ordering::Relaxed);
    frame.cells(place, |n, cell| {
        if let Some(to) = line.args.get(n) {
            to.store(cell, Ordering::Relaxed);
        }
    });
}

/// Reads a frame from a line. The payload stays there, or where `bulk` says.
#[inline(always)]
fn pick_up(
    line: &Slot<Native>,
    header: Header,
    bulk: impl FnOnce(u64) -> Option<ArrivedPayload>,
) -> Option<Arrived> {
    // Relaxed, all: ordered by the ring's look at the header.
    let words = core::array::from_fn(|n| line.args[n].load(Ordering::Relaxed));
    // SAFETY: the line's cells, mapped for as long as the pair; their sender promises not to touch
    // them before the receiver has released them; if it does, the bytes are wrong, no more.
    let all = unsafe { ArrivedPayload::new(line.args.as_ptr().cast(), LINE) };
    Arrived::read(header.handler(), header.args(), line.tag.load(Ordering::Relaxed), words, all, |words| {
        bulk(line.args.get(words)?.load(Ordering::Relaxed))
    })
}

/// The sending end.
pub struct PairOut {
    ring: RingSender<Rc<PairMemory>, SLOTS>,
    moved: u64,
    stores: StoreModes,
}

/// The receiver's answer to a ring that was offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferAnswer {
    /// Nothing yet.
    None,
    /// The receiver will look at the ring.
    Accepted,
    /// The receiver will not.
    Declined,
}

impl PairOut {
    /// A new ring, with a number by which the receiver recognises it.
    ///
    /// `past`: from how many bytes on a piece is written past the caches (0: never), or as is
    /// measured.
    pub fn create(nonce: u64, past: Option<usize>) -> Result<PairOut, AttachError> {
        let memory = Rc::new(PairMemory::create()?);
        // Relaxed: ordered by the announcement.
        memory.header().nonce.store(nonce, Ordering::Relaxed);
        Ok(PairOut { ring: RingSender::new(memory, FIRST_BYTES), moved: 0, stores: StoreModes::new(past) })
    }

    /// Sends short messages through the shared line, too, when this end may write it.
    /// The receiver must look at it from when it accepts the ring ([`PairIn::share`]).
    pub fn share(&mut self, line: &Rc<PairLine>) {
        self.ring.share(line);
    }

    /// The ring's descriptor.
    pub fn descriptor(&self) -> u32 {
        self.ring.memory().descriptor()
    }

    /// The descriptor itself, to be passed.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.ring.memory().file()
    }

    /// The receiver's answer.
    pub fn answer(&self) -> OfferAnswer {
        // Relaxed: the receiver writes nothing before it that the sender reads.
        match self.ring.memory().header().answer.load(Ordering::Relaxed) {
            ACCEPTED => OfferAnswer::Accepted,
            DECLINED => OfferAnswer::Declined,
            _ => OfferAnswer::None,
        }
    }

    /// Sends, if there is space.
    #[inline(always)]
    pub fn send(&mut self, frame: &Frame<'_>) -> bool {
        let line = frame.line();
        let header = Header::new(Form::Short, line.handler, line.args, 0);
        if line.bulk {
            return self.send_bulk(frame, Header::new(Form::Short, line.handler, line.args + 2, 0));
        }
        self.ring.send_in_line(&CPU, |slot| {
            lay_down(slot, frame, None);
            header
        }) || self.ring.send_in_slot(&CPU, None, |_, _, slot, _| {
            lay_down(slot, frame, None);
            Some(header)
        })
    }

    /// Sends a frame whose payload lies in the ring's bytes.
    #[inline]
    fn send_bulk(&mut self, frame: &Frame<'_>, header: Header) -> bool {
        let (stores, len) = (&mut self.stores, frame.content.len());
        let sent = self.ring.send_in_slot(&CPU, Some(len), |memory, ticket, slot, at| {
            let place = write_piece(memory, stores, ticket, &frame.content, at?)?;
            lay_down(slot, frame, Some(place));
            Some(header)
        });
        if sent {
            self.moved += len as u64;
        }
        sent
    }

    /// Returns whether the pair has earned more memory than it uses.
    #[inline(always)]
    pub fn has_earned(&self) -> bool {
        self.moved >= EARNS && self.ring.capacity() < SLOT_BYTES
    }

    /// Uses all of its memory from now on, unless too many pairs do.
    #[cold]
    pub fn grow(&mut self) {
        // Relaxed, both: a count.
        if GROWN.fetch_add(1, Ordering::Relaxed) >= MOST {
            GROWN.fetch_sub(1, Ordering::Relaxed);
            // It may ask again when it has moved as much once more.
            self.moved = 0;
            return;
        }
        self.ring.grow(&CPU, SLOT_BYTES);
    }

    /// Returns whether all frames that were sent through slots have been taken.
    pub fn is_empty(&mut self) -> bool {
        self.ring.is_empty(&CPU)
    }
}

/// Copies a payload to its place in the ring's bytes, and returns the place as the slot
/// names it.
#[inline]
pub fn write_piece(
    memory: &PairMemory,
    stores: &mut StoreModes,
    ticket: u64,
    content: &PayloadSource<'_>,
    at: usize,
) -> Option<u64> {
    let len = content.len();
    let to = memory.bytes(at, len)?;
    // Relaxed: nothing else depends on it.
    let told = || memory.header().told.load(Ordering::Relaxed);
    let (past, trial) = stores.choose(ticket, len, told);
    let timed = trial.map(|trial| (trial, now()));
    // SAFETY: in bounds of the ring's bytes, and free: only the sender writes them, and no buffer
    // of a caller lies there.
    unsafe { if past { content.copy_past_caches(to) } else { content.copy_to(to) } }
    if let Some((trial, begun)) = timed {
        stores.wrote(trial, ticket, len, now().saturating_sub(begun));
    }
    Some(at as u64 | if trial.is_some() { TIMED } else { 0 } | (len as u64) << 32)
}

impl Drop for PairOut {
    fn drop(&mut self) {
        if self.ring.capacity() == SLOT_BYTES {
            // Relaxed: a count.
            GROWN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The receiving end.
pub struct PairIn {
    ring: RingReceiver<Rc<PairMemory>, SLOTS>,
}

impl PairIn {
    /// Takes a ring that a sender offers.
    pub fn accept(memory: PairMemory) -> PairIn {
        // Relaxed: as in `PairOut::answer`.
        memory.header().answer.store(ACCEPTED, Ordering::Relaxed);
        PairIn { ring: RingReceiver::new(Rc::new(memory)) }
    }

    /// Makes the receiver look at the shared line, too. To be called before the sender
    /// learns that its ring was accepted, or at least before it uses it.
    pub fn share(&mut self, line: &Rc<PairLine>) {
        self.ring.share(line);
    }

    /// Refuses a ring that a sender offers.
    pub fn decline(memory: &PairMemory) {
        // Relaxed: as in `PairOut::answer`.
        memory.header().answer.store(DECLINED, Ordering::Relaxed);
    }

    /// Returns whether there is a frame to take.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.ring.is_ready(&CPU)
    }

    /// Delivers the next frame, if there is one: `Some(None)` if it makes no sense.
    #[inline(always)]
    pub fn take<T>(&mut self, deliver: impl FnOnce(Option<Arrived>) -> T) -> Option<T> {
        let found = self.ring.next(&CPU)?;
        Some(self.deliver(found, deliver))
    }

    /// The next frame; spins for at most so many nanoseconds until one is there.
    #[inline(always)]
    pub fn find(&self, ns: u64) -> Option<Found> {
        self.ring.find(&CPU, ns)
    }

    /// Delivers the frame that [`PairIn::find`] has found: `None` if it makes no sense.
    #[inline(always)]
    pub fn deliver<T>(&mut self, found: Found, deliver: impl FnOnce(Option<Arrived>) -> T) -> T {
        self.ring.deliver(&CPU, found, |memory, slot, header, ticket| {
            let Some(ticket) = ticket else { return deliver(pick_up(slot, header, |_| None)) };
            let mut timed = Timed(None);
            let frame = pick_up(slot, header, |place| timed.find_piece(memory, place));
            let result = deliver(frame);
            timed.tell(memory, ticket);
            result
        })
    }
}

/// Start of the reading of a piece whose time is to be told, in nanoseconds.
#[derive(Default)]
pub struct Timed(Option<u64>);

impl Timed {
    /// The piece that a slot names, in the ring's bytes.
    #[inline(always)]
    pub fn find_piece(&mut self, memory: &PairMemory, place: u64) -> Option<ArrivedPayload> {
        if place & TIMED != 0 {
            self.0 = Some(now());
        }
        let (at, len) = ((place & (TIMED - 1)) as usize, (place >> 32) as usize);
        let from = memory.bytes(at, len)?;
        // SAFETY: in bounds, and the sender's promise not to touch them before `progress` says so;
        // if it does, the bytes are wrong, no more.
        Some(unsafe { ArrivedPayload::new(from, len) })
    }

    /// Tells the sender how long it took, if that is to be told.
    #[inline(always)]
    pub fn tell(self, memory: &PairMemory, ticket: u64) {
        if let Some(begun) = self.0 {
            let told = report(ticket, now().saturating_sub(begun));
            // Relaxed: as in `write_piece`.
            memory.header().told.store(told, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_channel::packet::READY;
    use towpath_channel::ring::RingMemory;
    use towpath_machine::Random;

    use super::*;
    use crate::device::protocol::frame::FrameKind;

    fn ends() -> (PairOut, PairIn) {
        let out = PairOut::create(42, None).unwrap();
        assert_eq!(out.answer(), OfferAnswer::None);
        let memory = PairMemory::attach(std::process::id(), out.descriptor(), 42).unwrap();
        let into = PairIn::accept(memory);
        assert_eq!(out.answer(), OfferAnswer::Accepted);
        (out, into)
    }

    fn frame(n: u64, bytes: &[u8]) -> Frame<'_> {
        Frame {
            kind: FrameKind::EagerData,
            tag: n,
            words: [n * 3, 0, 0, 0],
            content: PayloadSource::Bytes(bytes),
        }
    }

    #[test]
    fn frames_come_out_in_order_from_a_full_ring_and_another() {
        for past in [None, Some(0), Some(1)] {
            frames_of_all_lengths_come_out_in_order(past);
        }
        // Here, since no other test may grow pairs meanwhile.
        only_so_many_pairs_get_all_of_their_memory();
    }

    fn only_so_many_pairs_get_all_of_their_memory() {
        let grown = |pair: &PairOut| pair.ring.capacity() == SLOT_BYTES;
        let mut pairs: Vec<PairOut> = (0..=MOST).map(|_| PairOut::create(1, None).unwrap()).collect();
        for pair in &mut pairs {
            pair.moved = EARNS;
            assert!(pair.has_earned());
            pair.grow();
            assert!(!pair.has_earned());
        }
        assert_eq!(pairs.iter().filter(|pair| grown(pair)).count(), MOST as usize);
        // One goes: the next one gets what it had.
        pairs.remove(0);
        let last = pairs.last_mut().unwrap();
        assert!(!grown(last));
        last.moved = EARNS;
        last.grow();
        assert!(grown(last));
    }

    fn frames_of_all_lengths_come_out_in_order(past: Option<usize>) {
        let (mut out, mut into) = ends();
        out.stores = StoreModes::new(past);
        let data: Vec<u8> = (0..40_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let (mut sent, mut taken) = (0u64, 0u64);
        let mut random = Random::new(1);
        let mut length = |n: u64| random.below([60, 32_768][n as usize % 2]) as usize;
        let mut lengths = Vec::new();
        while taken < 6000 {
            if sent < 6000 {
                if out.has_earned() && (sent % 3 == 2 || out.moved > 2 * EARNS) {
                    out.grow();
                }
                let n = length(sent);
                let ok = out.send(&frame(sent, &data[..n]));
                if ok {
                    lengths.push(n);
                    sent += 1;
                    if sent % 3 != 0 {
                        continue;
                    }
                }
            }
            let got = into.take(|f| f.map(|f| (f.tag, f.words[0], f.payload.to_vec())));
            let (tag, word, bytes) = got.unwrap().unwrap();
            assert_eq!((tag, word), (taken, taken * 3));
            assert!(bytes == data[..lengths[taken as usize]]);
            taken += 1;
        }
        assert!(!into.is_ready());
        assert!(out.is_empty());
        assert_eq!(out.ring.capacity(), SLOT_BYTES);
    }

    #[test]
    fn both_directions_stay_in_order_through_line_and_slots() {
        let (mut there, mut at_b) = ends();
        let (mut back, mut at_a) = ends();
        let (a, b) = (PairLine::new(true), PairLine::new(false));
        at_b.share(&b);
        there.share(&a);
        at_a.share(&a);
        back.share(&b);
        let data: Vec<u8> = (0..200).collect();
        let mut random = Random::new(7);
        let (mut sent, mut taken, mut through_line) = ([0u64; 2], [0u64; 2], 0);
        for _ in 0..200_000 {
            let way = random.below(2) as usize;
            let (out, into) = if way == 0 { (&mut there, &mut at_b) } else { (&mut back, &mut at_a) };
            if random.below(3) == 0 {
                let (n, before) = (sent[way], out.ring.sent());
                // Some do not fit on a line.
                if out.send(&frame(n, &data[..(n * 7 % 60) as usize])) {
                    sent[way] += 1;
                    through_line += u64::from(out.ring.sent() == before);
                }
            } else if let Some(got) = into.take(|f| f.map(|f| (f.tag, f.payload.to_vec()))) {
                let n = taken[way];
                assert_eq!(got, Some((n, data[..(n * 7 % 60) as usize].to_vec())));
                taken[way] += 1;
            } else {
                assert_eq!(sent[way], taken[way], "what was sent is there");
            }
        }
        let through_slots = sent[0] + sent[1] - through_line;
        assert!(through_line > 5000 && through_slots > 5000, "{through_line} and {through_slots}");
    }

    #[test]
    fn slots_of_another_sender_are_not_taken() {
        let out = PairOut::create(1, None).unwrap();
        assert!(matches!(
            PairMemory::attach(std::process::id(), out.descriptor(), 2),
            Err(AttachError::Another { .. })
        ));
        assert!(matches!(PairMemory::attach(std::process::id(), 999_999, 2), Err(AttachError::Open { .. })));
    }

    #[test]
    fn nonsense_in_a_slot_is_taken_as_such() {
        let (out, mut into) = ends();
        let slot = out.ring.memory().ring().slot(0);
        slot.args[1].store(u64::MAX, Ordering::Relaxed);
        let header =
            Header::new(Form::Short, FrameKind::EagerData as u8 | 1 << 7, 4, 0).with_state(READY).with_lap(1);
        // Release: in the place of (S1); pairs with the Acquire (S2) in `ring.rs` of the room
        // channel.
        slot.header.store(header.0, Ordering::Release);
        assert_eq!(into.take(|f| f.is_none()), Some(true));
        assert!(!into.is_ready());
    }
}
