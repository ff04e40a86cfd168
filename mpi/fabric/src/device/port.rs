//! An endpoint's own segment: taking what arrives, and sleeping until something does.
//!
//! What has no slots of its own comes through the shared queue of the room channel, claimed by Towpath's
//! algorithm; its census are the members of the segment.

use core::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::rand::{GetRandomFlags, getrandom};
use towpath_channel::claim::{Claim, Towpath};
use towpath_channel::doorbell;
use towpath_channel::path::{FIRST_QUOTA, Inbox, free_afterwards};
use towpath_channel::queue::{CLOSED, Receiver};
use towpath_machine::{Native, Park, Processor};
use towpath_sync::Spinning;

use crate::device::bell::Bell;
use crate::device::connect::address::Address;
use crate::device::connect::attach::{AttachError, PairMemory, Segment};
use crate::device::connect::fd_listener::FdListener;
use crate::device::connect::layout::MEMBERS;
pub use crate::device::members::MemberId;
use crate::device::members::Members;
use crate::device::pair::{PairIn, PairLine};
use crate::device::protocol::wire::{Arrived, LINE};
use crate::device::resource::buffers::Payload;

/// Frames taken from one pair's slots before the others have their turn.
const TURN: usize = 64;
/// The shared queue is looked at in one of so many polls at least.
const QUEUE_EVERY: u32 = 8;

/// Who comes through a pair's slots.
struct Slots {
    from: MemberId,
    /// Ourselves. These come first.
    own: bool,
    pair: PairIn,
}

/// The receiving side of an endpoint.
pub struct Port {
    /// Its segment. Who sleeps on its doorbell holds it too.
    pub segment: Arc<Segment>,
    /// Its address.
    pub address: Address,
    cpu: Native,
    receiver: RefCell<Receiver>,
    quota: Cell<usize>,
    polls: Cell<u32>,
    pairs: RefCell<Vec<Slots>>,
    new_pairs: RefCell<Vec<Slots>>,
    /// The owner's own slots are new.
    own_follows: Cell<bool>,
    leaving: RefCell<Vec<MemberId>>,
    bell: OnceCell<Bell>,
    /// Its senders.
    pub members: Members,
}

impl Port {
    /// A new endpoint's.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn open() -> Result<Port, AttachError> {
        let segment = Arc::new(Segment::create()?);
        let mut nonce = [0; 8];
        // If the system has no random numbers the time will do: it is against mistakes, not against
        // enemies.
        let random = getrandom(&mut nonce, GetRandomFlags::NONBLOCK) == Ok(nonce.len());
        let nonce = if random { u64::from_le_bytes(nonce) } else { Native::with_id(0).now() };
        let address = Address::here(segment.descriptor(), nonce)?;
        for (word, value) in segment.header().identity.iter().zip(address.to_words()) {
            // Relaxed: published with the address, by whatever carries it.
            word.store(value, Ordering::Relaxed);
        }
        let members = Members::new(Arc::clone(&segment), address);
        Ok(Port {
            segment,
            address,
            cpu: Native::with_id(0),
            receiver: RefCell::default(),
            quota: Cell::new(FIRST_QUOTA),
            polls: Cell::new(0),
            pairs: RefCell::default(),
            new_pairs: RefCell::default(),
            own_follows: Cell::new(false),
            leaving: RefCell::default(),
            bell: OnceCell::new(),
            members,
        })
    }

    /// Serves the visitors of the descriptor listener.
    #[cold]
    pub fn serve(&self) {
        if let Some(listener) = &self.members.listener {
            listener.serve(self.segment.file(), self.bell.get());
        }
    }

    /// Visitors of the descriptor listener that have gone since the last call.
    pub fn lost(&self) -> Vec<Address> {
        self.members.listener.as_ref().map_or_else(Vec::new, FdListener::lost)
    }

    /// Looks for a visitor of the descriptor listener: `Some` if this sender is one, with
    /// the ring that it has passed with this nonce.
    #[cold]
    pub fn passed_slots(&self, of: &Address, nonce: u64) -> Option<Option<PairMemory>> {
        let passed = self.members.listener.as_ref()?.slots(of, nonce)?;
        Some(passed.and_then(|file| PairMemory::given(of.pid, file, nonce).ok()))
    }

    /// Takes what has arrived. Returns how much that was. `to_itself`: the owner is one
    /// of its senders.
    #[inline]
    pub fn poll(&self, to_itself: bool, mut deliver: impl FnMut(MemberId, Option<Arrived>)) -> usize {
        let mut taken = if to_itself { self.poll_own(&mut deliver) } else { 0 };
        for slots in self.pairs.borrow_mut().iter_mut() {
            let from = slots.from;
            for _ in 0..TURN {
                if slots.pair.take(|frame| deliver(from, frame)).is_none() {
                    break;
                }
                taken += 1;
            }
        }
        // Who got something from its pairs wants to go on with it: the rest is looked at when they
        // are quiet, or now and then.
        let polls = self.polls.get().wrapping_add(1);
        self.polls.set(polls);
        if taken == 0 || polls.is_multiple_of(QUEUE_EVERY) {
            taken += self.poll_queue(&mut deliver);
        }
        let mut leaving = self.leaving.borrow_mut();
        if !leaving.is_empty() {
            for member in leaving.drain(..) {
                self.pairs.borrow_mut().retain(|slots| slots.from != member);
                self.members.free(member);
            }
        }
        self.adopt();
        taken
    }

    /// Slots that are to be followed from now on.
    #[inline]
    fn adopt(&self) {
        let mut new = self.new_pairs.borrow_mut();
        if !new.is_empty() {
            let mut pairs = self.pairs.borrow_mut();
            for slots in new.drain(..) {
                let place = if slots.own { 0 } else { pairs.len() };
                pairs.insert(place, slots);
            }
        }
    }

    /// Takes all that the owner has sent to itself: before what others send because of
    /// it. (Say, it changes its own memory, then tells another, who changes it too: mpi4py's
    /// `Mutex` relies on the order.)
    fn poll_own(&self, deliver: &mut impl FnMut(MemberId, Option<Arrived>)) -> usize {
        if self.pairs.borrow().first().is_some_and(|slots| slots.own) {
            return self.poll_own_slots(deliver);
        }
        // It is in the shared queue, or behind something there.
        let mut taken = 0;
        for _ in 0..TURN {
            match self.poll_queue(deliver) {
                0 => break,
                n => taken += n,
            }
        }
        taken
    }

    fn poll_own_slots(&self, deliver: &mut impl FnMut(MemberId, Option<Arrived>)) -> usize {
        let mut taken = 0;
        if let Some(Slots { from, own: true, pair }) = self.pairs.borrow_mut().first_mut() {
            while pair.take(|frame| deliver(*from, frame)).is_some() {
                taken += 1;
            }
        }
        taken
    }

    #[inline]
    fn poll_queue(&self, deliver: &mut impl FnMut(MemberId, Option<Arrived>)) -> usize {
        let q = self.segment.queue();
        let inbox = Inbox { queue: q, claim: &Towpath, receiver: &self.receiver, quota: &self.quota };
        inbox.poll(
            &self.cpu,
            || Spinning,
            |arrival| {
                let header = arrival.header;
                let slot = q.slot(arrival.ticket);
                let _block = free_afterwards(q, &self.cpu, header);
                let cells: [u64; LINE / 8] = core::array::from_fn(|i| self.cpu.read(&slot.args[i]));
                let tag = self.cpu.read(&slot.tag);
                let words = [cells[0], cells[1], cells[2], cells[3]];
                let line = Payload::of_cells(&cells);
                let frame = Arrived::read(header.handler(), header.args(), tag, words, line, |_| {
                    let block = q.blocks.get(header.block()).filter(|_| header.has_block())?;
                    let len = (self.cpu.read(&block.len) as usize).min(q.block_size);
                    payload(q, header.block(), len)
                });
                deliver(MemberId::from_code(header.source() as u16), frame);
                if self.own_follows.take() {
                    // What the owner has sent to itself since lies in its slots, and comes before
                    // the rest of the queue.
                    self.adopt();
                    self.poll_own_slots(deliver);
                }
            },
        )
    }

    /// Whether a poll would find something.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.pairs.borrow().iter().any(|slots| slots.pair.is_ready())
            || self.receiver.borrow_mut().next(&Towpath, self.segment.queue(), &self.cpu).is_some()
    }

    /// What polls don't see: places in the shared queue whose senders stopped or died.
    #[cold]
    pub fn look_after(&self, died: bool) {
        let q = self.segment.queue();
        let mut receiver = self.receiver.borrow_mut();
        if died {
            receiver.sweep(&Towpath, q, &self.cpu, &self.members);
        }
        receiver.heal(&Towpath, q, &self.cpu);
        while receiver.look_after(&Towpath, q, &self.cpu, &self.members) {}
        Claim::<Native>::flush(&Towpath, q, &mut receiver, &self.cpu, &Spinning);
    }

    /// Whether something was claimed in the shared queue that is not there yet.
    pub fn is_behind(&self) -> bool {
        self.receiver.borrow().behind(self.segment.queue(), &self.cpu)
    }

    /// How many senders have slots here.
    pub fn pairs(&self) -> usize {
        // Borrowed: the question itself came through slots, which it never does among honest
        // senders.
        self.pairs.try_borrow().map_or(MEMBERS, |pairs| pairs.len()) + self.new_pairs.borrow().len()
    }

    /// From now on a member's slots are looked at.
    pub fn follow(&self, from: MemberId, own: bool, pair: PairIn) {
        self.own_follows.set(own);
        self.new_pairs.borrow_mut().push(Slots { from, own, pair });
    }

    /// A member has said its last word, or is dead and everything of it was taken: after
    /// this poll its place is free.
    pub fn leave(&self, member: MemberId) {
        self.leaving.borrow_mut().push(member);
    }

    /// Accepts or declines slots, whose sender then says when to follow them.
    pub fn judge(
        &self,
        memory: PairMemory,
        most: usize,
        shared_line: Option<&Rc<PairLine>>,
    ) -> Option<PairIn> {
        if self.pairs() >= most {
            PairIn::decline(&memory);
            return None;
        }
        let mut pair = PairIn::accept(memory);
        if let Some(line) = shared_line {
            pair.share(line);
        }
        Some(pair)
    }

    /// Arms the doorbell. Returns what to hand to [`Port::sleep`]; `None` if something has come.
    pub fn arm(&self) -> Option<u64> {
        let count = self.segment.header().doorbell.arm(&self.cpu);
        if self.may_sleep() {
            return Some(count);
        }
        self.disarm();
        None
    }

    /// Whether nothing has come, and a claim that comes from now on wakes the owner.
    fn may_sleep(&self) -> bool {
        let q = self.segment.queue();
        Claim::<Native>::fall_asleep(&Towpath, q, &self.receiver.borrow(), &self.cpu) && !self.is_ready()
    }

    /// Sleeps until a sender wakes the owner, at most so many nanoseconds.
    pub fn sleep(&self, count: u64, ns: u64) {
        self.cpu.park(&self.segment.header().doorbell.count, count, ns);
    }

    /// Takes the request to be woken back.
    pub fn disarm(&self) {
        if !self.segment.header().doorbell.disarm(&self.cpu) {
            Claim::<Native>::wake_up(&Towpath, self.segment.queue(), &self.cpu);
        }
    }

    /// The wake pipe, for owners that wait on a descriptor. Made when it is first asked for.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn bell(&self) -> io::Result<&Bell> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell);
        }
        let bell = Bell::new()?;
        self.segment.header().doorbell.set_pipe(&self.cpu, bell.outer());
        let bell = self.bell.get_or_init(|| bell);
        if let Some(listener) = &self.members.listener {
            listener.pass(bell);
        }
        Ok(bell)
    }

    /// Empties the wake pipe and arms it. `false`: something has come, or is about to, for which no
    /// sender writes to the pipe.
    pub fn arm_pipe(&self) -> bool {
        let Some(bell) = self.bell.get() else { return false };
        bell.silence();
        self.segment.header().doorbell.arm_pipe(&self.cpu);
        self.may_sleep()
    }

    /// Wakes the owner, from another of its threads, which holds the lock under which the pipe is
    /// armed.
    pub fn wake(&self) {
        let doorbell = &self.segment.header().doorbell;
        doorbell::wake(&self.cpu, &doorbell.count);
        if doorbell.is_pipe_armed(&self.cpu)
            && let Some(bell) = self.bell.get()
        {
            bell.ring();
        }
    }

    /// Takes nothing more.
    pub fn close(&self) {
        // (C1) Release: the owner takes no frame any more; pairs with the Acquire (C2) in
        // `Link::is_closed`. AcqRel: the flag in the tail is ordered with the claims, whose partner
        // is the compare-exchange in `claim/towpath.rs`.
        self.segment.header().closed.store(1, Ordering::Release);
        self.segment.queue().control.tail.fetch_or(CLOSED, Ordering::AcqRel);
    }
}

#[allow(unsafe_code)]
fn payload(q: &towpath_channel::queue::Queue<'_, Native>, block: usize, len: usize) -> Option<Payload> {
    let at = q.block_at(block);
    let fits = at.checked_add(len)? <= q.bytes.len();
    // SAFETY: in bounds of the mapped blocks; the block is freed only after the delivery.
    fits.then(|| unsafe { Payload::new(q.bytes.as_ptr().add(at), len) })
}
