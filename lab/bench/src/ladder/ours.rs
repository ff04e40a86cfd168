//! Our own rung of the ladder: the pairs of slots through which the device that carries
//! MPI programs moves their messages (`mpi/fabric/src/device/pair.rs`), one for each direction, and
//! the line that both share (`volley.rs`).
//!
//! Like the paper's versions it carries the messages of one process to another in order, and waits
//! for space and for messages. Matching by tags and completions are not its business, nor theirs:
//! the device does that above.
//!
//! # Safety
//!
//! The one `unsafe` operation gives a pair a caller's buffer; every call here returns only when
//! that is done with.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use towpath_fi::device::connect::attach::PairMemory;
use towpath_fi::device::connect::layout::SLOT_PIECE;
use towpath_fi::device::pair::{Conversation, Found, PairIn, PairOut, publish_then_look};
use towpath_fi::device::protocol::frame::Frame;
use towpath_fi::device::protocol::wire::{Arrived, Content, LINE, RawFrame};
use towpath_fi::device::resource::buffers::Buffer;
use towpath_machine::{Native, Park, Processor};
use towpath_sync::strategy::{Course, Rest, Step, Strategy, WaitState};
use towpath_sync::{Wait, Waiting};

use super::native::{Anything, Link};
use towpath_host::process::SharedPages;

/// Words of each process: its pid, the descriptor of its slots and their nonce, which it
/// leaves for its partner; what it sleeps on; and whether it does.
pub const ADDRESS_WORDS: usize = 5;
const DOORBELL: usize = 3;
const ASLEEP: usize = 4;
/// First look for an answer, in nanoseconds: longer than a partner that is running takes, and
/// before it is asked whether cores are shared.
const GLANCE: u64 = 500;
/// The device's rounds under an MPI: with a core to itself it spins for 20 µs, then yields; where
/// cores are shared it yields eight times, then sleeps for at most a millisecond at a time.
const STRATEGY: Strategy = Strategy {
    spare: Course { spin: 20_000, rest: Rest::Yield },
    oversubscribed: Course { spin: 0, rest: Rest::Park { yields: 8 } },
    first_nap: 1_000_000,
    longest_nap: 1_000_000,
};

/// Slots that are not met yet.
pub struct Opened {
    out: PairOut,
}

/// A process's end of a conversation.
pub struct Ours<'a> {
    out: RefCell<PairOut>,
    into: RefCell<PairIn>,
    pages: &'a SharedPages,
    /// Where our own words are, and the partner's.
    rank: usize,
    partner: usize,
    cpu: Native,
    wait: Wait<'a>,
    /// Answer of the surroundings in the last wait.
    oversubscribed: Cell<bool>,
}

impl Opened {
    /// Makes the slots of the way out, and leaves word for the partner.
    pub fn new(rank: usize, pages: &SharedPages) -> Result<Self, Anything> {
        let nonce = Native::with_id(0).now();
        let out = PairOut::create(nonce, None)?;
        let words = [u64::from(std::process::id()), u64::from(out.descriptor()), nonce];
        for (n, word) in words.into_iter().enumerate() {
            // Relaxed: a barrier comes before anybody reads it.
            pages.word(rank * ADDRESS_WORDS + n).store(word, Ordering::Relaxed);
        }
        Ok(Opened { out })
    }

    /// Takes those of the partner, which has made them. Another barrier comes before the
    /// first message.
    pub fn meet<'a>(
        mut self,
        rank: usize,
        partner: usize,
        pages: &'a SharedPages,
        wait: Wait<'a>,
    ) -> Result<Ours<'a>, Anything> {
        // Relaxed: as above.
        let [pid, descriptor, nonce] =
            std::array::from_fn(|n| pages.word(partner * ADDRESS_WORDS + n).load(Ordering::Relaxed));
        let mut into = PairIn::accept(PairMemory::attach(pid as u32, descriptor as u32, nonce)?);
        let conversation = Conversation::new(rank < partner);
        self.out.converse(&conversation);
        into.converse(&conversation);
        let (out, into, cpu) = (RefCell::new(self.out), RefCell::new(into), Native::with_id(0));
        Ok(Ours { out, into, pages, rank, partner, cpu, wait, oversubscribed: Cell::new(false) })
    }
}

impl Ours<'_> {
    /// Takes the next frame: waits for it.
    #[inline(always)]
    fn next<T>(&self, deliver: impl FnOnce(Arrived) -> T) -> Result<T, Anything> {
        let mut into = self.into.borrow_mut();
        let found = into.find(GLANCE).unwrap_or_else(|| self.wait_for(&into));
        let taken = into.deliver(found, |frame| frame.map(deliver));
        taken.ok_or_else(|| "a frame that makes no sense".into())
    }

    /// Waits for the next frame, which did not come at once.
    #[cold]
    fn wait_for(&self, into: &PairIn) -> Found {
        let mut state = WaitState::default();
        loop {
            let step = STRATEGY.next(&mut state, || self.wait.around.oversubscribed());
            self.oversubscribed.set(state.is_oversubscribed());
            match step {
                Step::Spin(ns) => {
                    if let Some(found) = into.find(ns) {
                        return found;
                    }
                }
                Step::Yield => self.cpu.yield_now(),
                Step::Park(nap) => self.sleep(into, nap),
            }
        }
    }

    /// Sleeps for at most `nap` nanoseconds, unless a frame has come.
    #[cold]
    fn sleep(&self, into: &PairIn, nap: u64) {
        let word = |n| self.pages.word(self.rank * ADDRESS_WORDS + n);
        // Acquire: before the last look; pairs with the Release in `ring`.
        let rung = word(DOORBELL).load(Ordering::Acquire);
        // Relaxed, both: ordered by the fence; at worst somebody rings in vain.
        word(ASLEEP).store(1, Ordering::Relaxed);
        publish_then_look();
        if !into.is_ready() {
            self.cpu.park(word(DOORBELL), rung, nap);
        }
        word(ASLEEP).store(0, Ordering::Relaxed);
    }

    /// Wakes the partner, if it sleeps. (If it sleeps because it alone has noticed that
    /// cores are shared, it wakes by itself.)
    #[cold]
    fn ring(&self) {
        let word = |n| self.pages.word(self.partner * ADDRESS_WORDS + n);
        publish_then_look();
        // Relaxed: ordered by the fence.
        if word(ASLEEP).load(Ordering::Relaxed) != 0 {
            // Release: what was sent comes before; pairs with the Acquire in `sleep`.
            word(DOORBELL).fetch_add(1, Ordering::Release);
            self.cpu.wake(word(DOORBELL), 1);
        }
    }

    #[inline(always)]
    fn put(&self, frame: &RawFrame<'_>) {
        let mut out = self.out.borrow_mut();
        if !out.send(frame) {
            self.push(&mut out, frame);
        }
        if self.oversubscribed.get() {
            self.ring();
        }
    }

    /// Waits until there is space for a frame.
    #[cold]
    fn push(&self, out: &mut PairOut, frame: &RawFrame<'_>) {
        let mut round = 0;
        while !out.send(frame) {
            // Nobody gives up here (see `Exclusive`).
            let _ = self.wait.back_off(&self.cpu, round);
            round += 1;
        }
    }

    /// Sends what does not fit on a line.
    fn send_long(&self, tag: u64, data: &[u8]) {
        // SAFETY: read until the pieces are copied, which is before this returns.
        let all = unsafe { Buffer::one(data.as_ptr() as usize, data.len()) };
        let mut frame = Frame::EagerFirst { tag: Some(tag), data: None, len: data.len() as u64, id: 0 };
        for at in (0..data.len()).step_by(SLOT_PIECE) {
            let content = Content::Part(&all, at, SLOT_PIECE.min(data.len() - at));
            self.put(&frame.encode(content));
            frame = Frame::EagerNext;
        }
        let mut out = self.out.borrow_mut();
        if out.has_earned() && !self.wait.around.oversubscribed() {
            out.grow();
        }
    }
}

/// A caller's buffer, as pieces are copied to it.
fn whole(into: &mut [u8]) -> Buffer {
    // SAFETY: the caller drops it before the borrow ends.
    unsafe { Buffer::one(into.as_mut_ptr() as usize, into.len()) }
}

impl Link for Ours<'_> {
    #[inline(always)]
    fn send(&self, _to: usize, tag: u64, data: &[u8]) -> Result<(), Anything> {
        if data.len() <= LINE {
            self.put(&Frame::Eager { tag: Some(tag), data: None }.encode(Content::Bytes(data)));
        } else {
            self.send_long(tag, data);
        }
        Ok(())
    }

    #[inline(always)]
    fn receive(&self, _from: usize, into: &mut [u8]) -> Result<(u64, usize), Anything> {
        let (tag, mut done, len) = self.next(|frame| {
            let here = frame.payload.len();
            match Frame::decode(&frame) {
                Some(Frame::Eager { .. }) if here <= into.len() => {
                    frame.payload.copy_to_slice(&mut into[..here]);
                    (frame.tag, here, here)
                }
                first => {
                    frame.payload.copy_to(&whole(into), 0);
                    let Some(Frame::EagerFirst { len, .. }) = first else { return (frame.tag, here, here) };
                    (frame.tag, here, len as usize)
                }
            }
        })?;
        while done < len {
            done += self.next(|frame| {
                frame.payload.copy_to(&whole(into), done);
                frame.payload.len()
            })?;
        }
        Ok((tag, len))
    }
}
