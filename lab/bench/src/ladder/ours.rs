//! Our own rung of the ladder on this machine: the channel's rings and their line
//! (`lab/papers/src/ladder/ours.rs`), in the memory, and with the way of writing long pieces, of
//! the device that carries MPI programs (`mpi/fabric/src/device/pair.rs`).
//!
//! Matching by tags and completions are not its business, nor that of the paper's versions: the
//! device does that above.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use towpath_channel::doorbell::Doorbell;
use towpath_channel::ring::{Found, RingReceiver, RingSender};
use towpath_channel::shared_line::SharedLine;
use towpath_channel::store_mode::StoreModes;
use towpath_fi::device::connect::attach::PairMemory;
use towpath_fi::device::connect::layout::{FIRST_BYTES, SLOT_BYTES, SLOTS};
use towpath_fi::device::pair::{Timed, write_piece};
use towpath_fi::device::protocol::wire::PayloadSource;
use towpath_machine::{Native, Park, Processor};
use towpath_papers::ladder::{INLINE, Ours as Rings, RingBytes};
use towpath_sync::strategy::{Course, Rest, Step, Strategy, WaitState};
use towpath_sync::{Wait, Waiting};

use super::{Anything, LadderEnd};
use crate::shared::RingPlace;

/// First look for an answer, in nanoseconds: longer than a partner that is running takes,
/// and before it is asked whether cores are shared.
const GLANCE: u64 = 500;
/// The device's rounds under an MPI: with a core to itself it spins for 20 µs, then
/// yields; where cores are shared it yields eight times, then sleeps for at most a millisecond at a
/// time.
const STRATEGY: Strategy = Strategy {
    spare: Course { spin: 20_000, rest: Rest::Yield },
    oversubscribed: Course { spin: 0, rest: Rest::Park { yields: 8 } },
    first_nap: 1_000_000,
    longest_nap: 1_000_000,
};
/// Number of bytes after which a ring uses all of its memory.
const EARNS: u64 = 4 << 20;

type Memory = Rc<PairMemory>;

/// Long pieces, written as the device writes them.
struct Pieces(StoreModes);

impl RingBytes<Native, Memory> for Pieces {
    #[inline(always)]
    fn write(&mut self, _cpu: &Native, memory: &Memory, ticket: u64, at: usize, piece: &[u8]) -> Option<u64> {
        write_piece(memory, &mut self.0, ticket, &PayloadSource::Bytes(piece), at)
    }
    #[inline(always)]
    fn read(&mut self, _cpu: &Native, memory: &Memory, ticket: u64, place: u64, piece: &mut [u8]) -> bool {
        let mut timed = Timed::default();
        let found = timed.find_piece(memory, place).filter(|found| found.len() == piece.len());
        let Some(found) = found else { return false };
        found.copy_to_slice(piece);
        timed.tell(memory, ticket);
        true
    }
}

/// A ring that its receiver has not opened yet.
pub struct Opened {
    memory: Memory,
}

/// A process's end.
pub struct Ours<'a> {
    rings: RefCell<Rings<Memory, Pieces, SLOTS>>,
    /// Its own doorbell, and its partner's.
    own: &'a Doorbell<Native>,
    partner: &'a Doorbell<Native>,
    cpu: Native,
    wait: Wait<'a>,
    /// Answer of the surroundings in the last wait.
    oversubscribed: Cell<bool>,
    /// Number of bytes sent in long messages.
    moved: Cell<u64>,
}

impl Opened {
    /// Makes the ring of the way out, and leaves word for the partner.
    pub fn new(rank: usize, places: &[RingPlace]) -> Result<Self, Anything> {
        let memory = Rc::new(PairMemory::create()?);
        let nonce = Native::with_id(0).now();
        // Relaxed, all: a barrier comes before anything is read.
        memory.header().nonce.store(nonce, Ordering::Relaxed);
        let place = &places[rank];
        place.pid.store(std::process::id().into(), Ordering::Relaxed);
        place.descriptor.store(memory.descriptor().into(), Ordering::Relaxed);
        place.nonce.store(nonce, Ordering::Relaxed);
        Ok(Opened { memory })
    }

    /// Opens the ring of the partner, which has made it. Another barrier comes before the
    /// first message.
    pub fn meet<'a>(
        self,
        (rank, partner): (usize, usize),
        places: &[RingPlace],
        doorbells: &'a [Doorbell<Native>],
        wait: Wait<'a>,
    ) -> Result<Ours<'a>, Anything> {
        let RingPlace { pid, descriptor, nonce } = &places[partner];
        // Relaxed: a barrier has come before.
        let [pid, descriptor, nonce] = [pid, descriptor, nonce].map(|word| word.load(Ordering::Relaxed));
        let theirs = Rc::new(PairMemory::attach(pid as u32, descriptor as u32, nonce)?);
        let line = SharedLine::new(rank < partner);
        let (mut out, mut into) = (RingSender::new(self.memory, FIRST_BYTES), RingReceiver::new(theirs));
        out.share(&line);
        into.share(&line);
        Ok(Ours {
            rings: RefCell::new(Rings::new(out, into, Pieces(StoreModes::new(None)))),
            own: &doorbells[rank],
            partner: &doorbells[partner],
            cpu: Native::with_id(0),
            wait,
            oversubscribed: Cell::new(false),
            moved: Cell::new(0),
        })
    }
}

impl Ours<'_> {
    /// Waits for the next message, which did not come at once.
    #[cold]
    fn wait_for(&self, into: &RingReceiver<Memory, SLOTS>) -> Found {
        let mut state = WaitState::default();
        loop {
            let step = STRATEGY.next(&mut state, || self.wait.around.oversubscribed());
            self.oversubscribed.set(state.is_oversubscribed());
            match step {
                Step::Spin(ns) => {
                    if let Some(found) = into.find(&self.cpu, ns) {
                        return found;
                    }
                }
                Step::Yield => self.cpu.yield_now(),
                Step::Park(nap) => self.sleep(into, nap),
            }
        }
    }

    /// Sleeps for at most `nap` nanoseconds, unless a message has come.
    #[cold]
    fn sleep(&self, into: &RingReceiver<Memory, SLOTS>, nap: u64) {
        let count = self.own.arm(&self.cpu);
        if !into.is_ready(&self.cpu) {
            self.cpu.park(&self.own.count, count, nap);
        }
        self.own.disarm(&self.cpu);
    }

    /// Wakes the partner, if it sleeps. (If it sleeps because it alone has noticed that
    /// cores are shared, it wakes by itself.)
    #[cold]
    fn wake(&self) {
        if self.partner.is_armed(&self.cpu) {
            self.partner.wake(&self.cpu, |_| {});
        }
    }

    /// A long message has gone out: the ring may have earned all of its memory.
    #[cold]
    fn earn(&self, rings: &mut Rings<Memory, Pieces, SLOTS>, bytes: usize) {
        self.moved.set(self.moved.get() + bytes as u64);
        let out = rings.sender();
        if self.moved.get() >= EARNS && out.capacity() < SLOT_BYTES && !self.wait.around.oversubscribed() {
            out.grow(&self.cpu, SLOT_BYTES);
        }
    }
}

impl LadderEnd for Ours<'_> {
    #[inline(always)]
    fn send(&self, _to: usize, tag: u64, data: &[u8]) -> Result<(), Anything> {
        let mut rings = self.rings.borrow_mut();
        let wait = |round| {
            // No waiter gives up here (see `LadderLock`).
            let _ = self.wait.back_off(&self.cpu, round);
        };
        rings.send(&self.cpu, tag, data, wait, || {
            if self.oversubscribed.get() {
                self.wake();
            }
        });
        if data.len() > INLINE {
            self.earn(&mut rings, data.len());
        }
        Ok(())
    }

    #[inline(always)]
    fn receive(&self, _from: usize, buffer: &mut [u8]) -> Result<(u64, usize), Anything> {
        let next = |into: &RingReceiver<Memory, SLOTS>| {
            into.find(&self.cpu, GLANCE).unwrap_or_else(|| self.wait_for(into))
        };
        let received = self.rings.borrow_mut().receive(&self.cpu, next, buffer);
        received.ok_or_else(|| "a message that makes no sense".into())
    }
}
