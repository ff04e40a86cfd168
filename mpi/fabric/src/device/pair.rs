//! Slots of one ordered pair, used cyclically (Gropp & Lusk 1997, §5 and §9.1): one
//! writes, one reads, nobody claims.
//!
//! A slot is a packet's line; what does not fit there lies in the pair's bytes, which are given out
//! in turn too. The slot's header says by its lap whether it is full.
//!
//! **Progress.** Wait-free on both sides.
//!
//! **Bytes.** Longer messages are copied twice, but both ends at once, and each line crosses from
//! core to core once: what is fetched out of the sender's own buffer stays there. How they are
//! written is measured ([`Stores`]). A pair that has moved 4 MiB and does not share its cores gets
//! more of them, so that a line has left the reader's cache by the time that it is written again.
//!
//! **Fields.** Slots and bytes: the sender, until the header is published, then the receiver until
//! it moves `progress` past it. `progress`, `answer`, `told`: the receiver.
//!
//! **Two directions.** Where both ends have slots for each other they may also share one line
//! ([`volley`](crate::device::volley)), for messages that answer each other.
//!
//! **A death.** The sender's: what it published arrives, what it had not is not there. The
//! receiver's: the slots fill up, and the sender finds its process dead.
//!
//! **Memory.** 300 KiB for each ordered pair that has earned it, 2 MiB for one that has moved a
//! lot, 16 of a process's at most (of addresses: 2 MiB each); made by the sender, gone with both.
//! **Don't use it** for pairs that seldom talk: the receiver looks at every pair's slots in turn.
#![allow(unsafe_code)]

use std::cell::OnceCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use towpath_am::packet::{Form, Header, READY, Slot};
use towpath_machine::{Native, Prefetch, Processor};

use crate::device::connect::attach::{AttachError, PairMemory};
use crate::device::connect::layout::{ACCEPTED, DECLINED, FIRST_BYTES, SLOT_BYTES, SLOTS};
use crate::device::protocol::wire::{Arrived, LINE, Line, RawFrame as Frame};
use crate::device::resource::buffers::Payload;
use crate::device::tune::copy_mode::now;
use crate::device::tune::store_mode::{Stores, TIMED, report};
use crate::device::volley::{self, Lane, Volley};

const LEN: u64 = SLOTS as u64;
/// A pair that has moved so many bytes has earned all of its memory.
const EARNS: u64 = 4 << 20;
/// So many pairs of a process get it at most: 32 MiB.
const MOST: u32 = 16;
/// How many have it.
static GROWN: AtomicU32 = AtomicU32::new(0);

/// Writes a frame to a line, but for the header.
#[inline(always)]
fn lay_down(line: &Slot<Native>, frame: &Frame<'_>, place: Option<u64>) {
    // Relaxed, both: published by the header (S1, V1).
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
    bulk: impl FnOnce(u64) -> Option<Payload>,
) -> Option<Arrived> {
    // Relaxed, all: ordered by the look at the header (S2, V2).
    let words = core::array::from_fn(|n| line.args[n].load(Ordering::Relaxed));
    // SAFETY: the line's cells, mapped for as long as the pair; who sent them promises not to touch
    // them before they are done with; if it does, the bytes are wrong, no more.
    let all = unsafe { Payload::new(line.args.as_ptr().cast(), LINE) };
    Arrived::read(header.handler(), header.args(), line.tag.load(Ordering::Relaxed), words, all, |words| {
        bulk(line.args.get(words)?.load(Ordering::Relaxed))
    })
}

fn lap(ticket: u64) -> u16 {
    (ticket / LEN + 1) as u16
}

/// One end of what two directions between the same processes share: a line
/// ([`volley`](crate::device::volley)), in the memory of that direction whose sender may write it
/// first.
pub struct Conversation {
    volley: Volley,
    first: bool,
    memory: OnceCell<Rc<PairMemory>>,
}

impl Conversation {
    /// An end. One of the two is `first`, and both agree which.
    pub fn new(first: bool) -> Rc<Conversation> {
        Rc::new(Conversation { volley: Volley::new(first), first, memory: OnceCell::new() })
    }

    /// Where the line is, if it is known yet.
    #[inline(always)]
    fn line(&self) -> Option<&Slot<Native>> {
        Some(&self.memory.get()?.header().volley)
    }

    /// The line, if we may send there.
    #[inline(always)]
    fn ours(&self) -> Option<&Slot<Native>> {
        if self.volley.is_ours() { self.line() } else { None }
    }

    #[inline(always)]
    fn look(&self, head: u64) -> Option<Header> {
        self.volley.look(&Native::with_id(0), self.line()?, head)
    }
}

/// The sending end.
pub struct PairOut {
    memory: Rc<PairMemory>,
    conversation: Option<Rc<Conversation>>,
    next: u64,
    emptied: u64,
    /// Where the next bytes go, counted without end, and up to where they are free again.
    at: u64,
    freed: u64,
    /// How many of the bytes are given out in turn.
    capacity: u64,
    moved: u64,
    stores: Stores,
    /// Per slot: where the bytes given out so far ended.
    ends: Box<[u64; SLOTS]>,
}

/// What the receiver said to slots that were offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    None,
    /// It will look at them.
    Accepted,
    /// It won't.
    Declined,
}

impl PairOut {
    /// New slots, with a number by which the receiver recognises them.
    ///
    /// `past`: from how many bytes on a piece is written past the caches (0: never), or as is
    /// measured.
    pub fn create(nonce: u64, past: Option<usize>) -> Result<PairOut, AttachError> {
        let memory = Rc::new(PairMemory::create()?);
        // Relaxed: ordered by the announcement.
        memory.header().nonce.store(nonce, Ordering::Relaxed);
        Ok(PairOut {
            memory,
            conversation: None,
            next: 0,
            emptied: 0,
            at: 0,
            freed: 0,
            capacity: FIRST_BYTES as u64,
            moved: 0,
            stores: Stores::new(past),
            ends: Box::new([0; SLOTS]),
        })
    }

    /// From now on short messages go through the line in common when it is ours. The
    /// receiver must look at it from when it accepts the slots ([`PairIn::converse`]).
    pub fn converse(&mut self, with: &Rc<Conversation>) {
        if with.first {
            // Only the first slots of a way have the line.
            let _ = with.memory.set(Rc::clone(&self.memory));
        }
        self.conversation = Some(Rc::clone(with));
    }

    /// Their descriptor.
    pub fn descriptor(&self) -> u32 {
        self.memory.descriptor()
    }

    /// The descriptor itself, to be passed.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// The receiver's answer.
    pub fn answer(&self) -> Answer {
        // (A1) Acquire: pairs with the Release (A2) in `PairIn::accept`.
        match self.memory.header().answer.load(Ordering::Acquire) {
            ACCEPTED => Answer::Accepted,
            DECLINED => Answer::Declined,
            _ => Answer::None,
        }
    }

    /// Sends, if there is space.
    #[inline(always)]
    pub fn send(&mut self, frame: &Frame<'_>) -> bool {
        let line = frame.line();
        if !line.bulk
            && let Some(shared) = &self.conversation
            && let Some(place) = shared.ours()
        {
            let packet = Header::new(Form::Short, line.handler, line.args, 0);
            lay_down(place, frame, None);
            shared.volley.send(&Native::with_id(0), place, packet, self.next);
            return true;
        }
        self.send_in_slot(frame, line)
    }

    #[inline]
    fn send_in_slot(&mut self, frame: &Frame<'_>, mut line: Line) -> bool {
        let mut place = None;
        if self.next - self.emptied >= LEN {
            self.look();
            if self.next - self.emptied >= LEN {
                return false;
            }
        }
        if line.bulk {
            place = self.put(frame);
            if place.is_none() {
                return false;
            }
            line.args += 2;
        }
        self.ends[self.next as usize % SLOTS] = self.at;
        let slot = self.memory.slot(self.next);
        lay_down(slot, frame, place);
        let header =
            Header::new(Form::Short, line.handler, line.args, 0).with_state(READY).with_lap(lap(self.next));
        // (S1) Release: what the slot holds comes before; pairs with the Acquire (S2) in
        // `PairIn::next`.
        slot.header.store(header.0, Ordering::Release);
        self.next += 1;
        Native::with_id(0).prefetch_exclusive(&self.memory.slot(self.next).header);
        true
    }

    /// Copies a payload to where there is space for it: its place, as the slot names it.
    #[inline]
    fn put(&mut self, frame: &Frame<'_>) -> Option<u64> {
        let (len, capacity) = (frame.content.len() as u64, self.capacity);
        // In one piece: what is left before the end is passed over.
        let start =
            if self.at % capacity + len > capacity { self.at.next_multiple_of(capacity) } else { self.at };
        let end = (start + len).next_multiple_of(64);
        if end - self.freed > capacity {
            self.look();
            if end - self.freed > capacity {
                return None;
            }
        }
        let at = start % capacity;
        let to = self.memory.bytes(at as usize, len as usize)?;
        // (T1) Acquire: pairs with the Release (T2) in `PairIn::take`, though nothing else depends
        // on it.
        let told = || self.memory.header().told.load(Ordering::Acquire);
        let (past, trial) = self.stores.choose(self.next, len as usize, told);
        let timed = trial.map(|trial| (trial, now()));
        // SAFETY: in bounds of the pair's bytes, and free: only the sender writes them, and no
        // buffer of a caller lies there.
        unsafe { if past { frame.content.copy_past_caches(to) } else { frame.content.copy_to(to) } }
        if let Some((trial, begun)) = timed {
            self.stores.wrote(trial, self.next, len as usize, now().saturating_sub(begun));
        }
        self.at = end;
        self.moved += len;
        Some(at | if trial.is_some() { TIMED } else { 0 } | len << 32)
    }

    /// Whether it has earned more memory than it uses.
    #[inline(always)]
    pub fn has_earned(&self) -> bool {
        self.moved >= EARNS && self.capacity < SLOT_BYTES as u64
    }

    /// From now on uses all of its memory, unless too many pairs do.
    #[cold]
    pub fn grow(&mut self) {
        // Relaxed, both: a count.
        if GROWN.fetch_add(1, Ordering::Relaxed) >= MOST {
            GROWN.fetch_sub(1, Ordering::Relaxed);
            // It may ask again when it has moved as much once more.
            self.moved = 0;
            return;
        }
        self.look();
        // It goes on behind the first part, which is free again when all that lies there has been
        // taken.
        self.capacity = SLOT_BYTES as u64;
        self.at = FIRST_BYTES as u64;
        if self.emptied == self.next {
            self.freed = self.at;
            return;
        }
        self.freed = 0;
        for ticket in self.emptied..self.next {
            self.ends[ticket as usize % SLOTS] = 0;
        }
        self.ends[(self.next - 1) as usize % SLOTS] = self.at;
    }

    #[cold]
    fn look(&mut self) {
        // (S3) Acquire: the receiver's reads come before our writes; pairs with the Release (S4) in
        // `PairIn::done`.
        let emptied = self.memory.header().progress.load(Ordering::Acquire);
        // Only what was sent can be emptied.
        if emptied > self.emptied && emptied <= self.next {
            self.emptied = emptied;
            self.freed = self.ends[(emptied - 1) as usize % SLOTS];
        }
    }

    /// Whether everything that was sent through slots has been taken.
    pub fn is_empty(&mut self) -> bool {
        self.look();
        self.next == self.emptied
    }
}

impl Drop for PairOut {
    fn drop(&mut self) {
        if self.capacity == SLOT_BYTES as u64 {
            // Relaxed: a count.
            GROWN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The next frame: where it is, and its header. To be delivered before anything else is.
pub struct Found((Lane, Header));

/// The receiving end.
pub struct PairIn {
    memory: Rc<PairMemory>,
    conversation: Option<Rc<Conversation>>,
    head: u64,
}

impl PairIn {
    /// Takes slots that somebody offers.
    pub fn accept(memory: PairMemory) -> PairIn {
        // (A2) Release: pairs with the Acquire (A1).
        memory.header().answer.store(ACCEPTED, Ordering::Release);
        PairIn { memory: Rc::new(memory), conversation: None, head: 0 }
    }

    /// From now on looks at the line in common, too. To be called before the sender
    /// learns that its slots were accepted, or at least before it uses them.
    pub fn converse(&mut self, with: &Rc<Conversation>) {
        if !with.first {
            // As in `PairOut::converse`.
            let _ = with.memory.set(Rc::clone(&self.memory));
        }
        self.conversation = Some(Rc::clone(with));
    }

    /// Refuses them.
    pub fn decline(memory: &PairMemory) {
        // (A2) Release: as above.
        memory.header().answer.store(DECLINED, Ordering::Release);
    }

    #[inline(always)]
    fn in_slot(&self) -> Option<Header> {
        // (S2) Acquire: pairs with the Release (S1).
        let header = Header(self.memory.slot(self.head).header.load(Ordering::Acquire));
        (header.state() == READY && header.lap() == lap(self.head)).then_some(header)
    }

    #[inline(always)]
    fn next(&self) -> Option<(Lane, Header)> {
        let Some(shared) = &self.conversation else { return self.in_slot().map(|h| (Lane::Slot, h)) };
        volley::next(|| shared.look(self.head), || self.in_slot())
    }

    /// Whether there is something to take.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.next().is_some()
    }

    /// Delivers the next frame, if there is one: `Some(None)` if it makes no sense.
    #[inline(always)]
    pub fn take<T>(&mut self, deliver: impl FnOnce(Option<Arrived>) -> T) -> Option<T> {
        let found = Found(self.next()?);
        Some(self.deliver(found, deliver))
    }

    /// Looks on for at most so many nanoseconds, and finds the next frame.
    #[inline(always)]
    pub fn find(&self, ns: u64) -> Option<Found> {
        let mut found = None;
        let word = &self.memory.slot(self.head).header;
        // Relaxed: both lanes are looked at, and ordered, by `next`.
        let _ = Native::with_id(0).spin_until(word, Ordering::Relaxed, ns, |_| {
            found = self.next();
            found.is_some()
        });
        found.map(Found)
    }

    /// Delivers the frame that [`PairIn::find`] has found: `None` if it makes no sense.
    #[inline(always)]
    pub fn deliver<T>(&mut self, found: Found, deliver: impl FnOnce(Option<Arrived>) -> T) -> T {
        let Found((lane, header)) = found;
        if lane == Lane::Volley
            && let Some(shared) = &self.conversation
            && let Some(line) = shared.line()
        {
            let frame = pick_up(line, header, |_| None);
            // What it sends meanwhile goes through slots.
            let result = deliver(frame);
            shared.volley.taken();
            return result;
        }
        let mut begun = None;
        let frame = pick_up(self.memory.slot(self.head), header, |place| {
            if place & TIMED != 0 {
                begun = Some(now());
            }
            let (at, len) = ((place & (TIMED - 1)) as usize, (place >> 32) as usize);
            let from = self.memory.bytes(at, len)?;
            // SAFETY: in bounds, and the sender's promise not to touch them before `progress` says
            // so; if it does, the bytes are wrong, no more.
            Some(unsafe { Payload::new(from, len) })
        });
        let result = deliver(frame);
        if let Some(begun) = begun {
            // (T2) Release: pairs with the Acquire (T1).
            self.memory
                .header()
                .told
                .store(report(self.head, now().saturating_sub(begun)), Ordering::Release);
        }
        self.head += 1;
        // (S4) Release: our reads come before; pairs with the Acquire (S3).
        self.memory.header().progress.store(self.head, Ordering::Release);
        result
    }
}

/// Between publishing and looking whether the receiver sleeps, and between saying that
/// one sleeps and looking once more.
#[inline(always)]
pub fn publish_then_look() {
    // (W1) SeqCst: pairs with itself on the other side: either the sender sees the sleeper, or the
    // sleeper the message.
    Native::with_id(0).fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::protocol::frame::Kind;
    use crate::device::protocol::wire::Content;

    fn ends() -> (PairOut, PairIn) {
        let out = PairOut::create(42, None).unwrap();
        assert_eq!(out.answer(), Answer::None);
        let memory = PairMemory::attach(std::process::id(), out.descriptor(), 42).unwrap();
        let into = PairIn::accept(memory);
        assert_eq!(out.answer(), Answer::Accepted);
        (out, into)
    }

    fn frame(n: u64, bytes: &[u8]) -> Frame<'_> {
        Frame { kind: Kind::EagerData, tag: n, words: [n * 3, 0, 0, 0], content: Content::Bytes(bytes) }
    }

    #[test]
    fn frames_of_all_lengths_come_out_in_order_when_it_is_full_and_when_it_is_not() {
        for past in [None, Some(0), Some(1)] {
            frames_of_all_lengths_come_out_in_order(past);
        }
        // Here, since no other test may grow pairs meanwhile.
        only_so_many_pairs_get_all_of_their_memory();
    }

    fn only_so_many_pairs_get_all_of_their_memory() {
        let grown = |pair: &PairOut| pair.capacity == SLOT_BYTES as u64;
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
        out.stores = Stores::new(past);
        let data: Vec<u8> = (0..40_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let (mut sent, mut taken) = (0u64, 0u64);
        let mut seed = 1u64;
        let mut length = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(n | 1);
            [(seed >> 33) as usize % 60, (seed >> 40) as usize % 32_768][n as usize % 2]
        };
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
        assert_eq!(out.capacity, SLOT_BYTES as u64);
    }

    #[test]
    fn both_directions_stay_in_order_through_line_and_slots() {
        let (mut there, mut at_b) = ends();
        let (mut back, mut at_a) = ends();
        let (a, b) = (Conversation::new(true), Conversation::new(false));
        at_b.converse(&b);
        there.converse(&a);
        at_a.converse(&a);
        back.converse(&b);
        let data: Vec<u8> = (0..200).collect();
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let (mut sent, mut taken, mut through_line) = ([0u64; 2], [0u64; 2], 0);
        for _ in 0..200_000 {
            let way = random(2) as usize;
            let (out, into) = if way == 0 { (&mut there, &mut at_b) } else { (&mut back, &mut at_a) };
            if random(3) == 0 {
                let (n, before) = (sent[way], out.next);
                // Some do not fit on a line.
                if out.send(&frame(n, &data[..(n * 7 % 60) as usize])) {
                    sent[way] += 1;
                    through_line += u64::from(out.next == before);
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
    fn slots_of_somebody_else_are_not_taken() {
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
        let slot = out.memory.slot(0);
        slot.args[1].store(u64::MAX, Ordering::Relaxed);
        let header =
            Header::new(Form::Short, Kind::EagerData as u8 | 1 << 7, 4, 0).with_state(READY).with_lap(1);
        slot.header.store(header.0, Ordering::Release);
        assert_eq!(into.take(|f| f.is_none()), Some(true));
        assert!(!into.is_ready());
    }
}
