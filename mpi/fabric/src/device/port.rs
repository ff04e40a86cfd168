//! Receiving side of an endpoint: takes frames out of its segment, and sleeps until some
//! come.
//!
//! Senders without a ring use the shared queue of the room channel, claimed by Towpath's algorithm;
//! its census are the members of the segment.

use core::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::rand::{GetRandomFlags, getrandom};
use towpath_channel::claim::{Claim, Towpath};
use towpath_channel::doorbell;
use towpath_channel::path::{FIRST_QUOTA, ReceivePath, free_afterwards};
use towpath_channel::queue::{CLOSED, Receiver};
use towpath_machine::{Native, Park, Processor};
use towpath_sync::Spinning;

use crate::device::connect::address::Address;
use crate::device::connect::attach::{AttachError, EndpointSegment, PairMemory};
use crate::device::connect::fd_listener::FdListener;
use crate::device::connect::layout::MEMBERS;
pub use crate::device::members::MemberId;
use crate::device::members::Members;
use crate::device::pair::{PairIn, PairLine};
use crate::device::protocol::wire::{Arrived, LINE};
use crate::device::resource::buffers::ArrivedPayload;
use crate::device::wake_pipe::WakePipe;

/// Number of frames taken from one ring before the others have their turn.
const TURN: usize = 64;
/// Number of polls of which one at least looks at the shared queue.
const QUEUE_EVERY: u32 = 8;

/// A member's ring.
struct MemberRing {
    from: MemberId,
    /// The member is the owner itself. Its ring comes first.
    own: bool,
    ring: PairIn,
}

/// The receiving side of an endpoint.
pub struct Port {
    /// Its segment. A sleeper on its doorbell holds it too.
    pub segment: Arc<EndpointSegment>,
    /// Its address.
    pub address: Address,
    cpu: Native,
    receiver: RefCell<Receiver>,
    quota: Cell<usize>,
    polls: Cell<u32>,
    rings: RefCell<Vec<MemberRing>>,
    new_rings: RefCell<Vec<MemberRing>>,
    /// The owner's own ring is new.
    own_follows: Cell<bool>,
    leaving: RefCell<Vec<MemberId>>,
    pipe: OnceCell<WakePipe>,
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
        let segment = Arc::new(EndpointSegment::create()?);
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
            rings: RefCell::default(),
            new_rings: RefCell::default(),
            own_follows: Cell::new(false),
            leaving: RefCell::default(),
            pipe: OnceCell::new(),
            members,
        })
    }

    /// Serves the visitors of the descriptor listener.
    #[cold]
    pub fn serve(&self) {
        if let Some(listener) = &self.members.listener {
            listener.serve(self.segment.file(), self.pipe.get());
        }
    }

    /// Visitors of the descriptor listener that have gone since the last call.
    pub fn lost(&self) -> Vec<Address> {
        self.members.listener.as_ref().map_or_else(Vec::new, FdListener::lost)
    }

    /// Looks for a visitor of the descriptor listener: `Some` if this sender is one, with
    /// the ring that it has passed with this nonce.
    #[cold]
    pub fn passed_ring(&self, of: &Address, nonce: u64) -> Option<Option<PairMemory>> {
        let passed = self.members.listener.as_ref()?.ring(of, nonce)?;
        Some(passed.and_then(|file| PairMemory::given(of.pid, file, nonce).ok()))
    }

    /// Takes frames that have arrived. Returns their number. `to_itself`: the owner is
    /// one of its senders.
    #[inline]
    pub fn poll(&self, to_itself: bool, mut deliver: impl FnMut(MemberId, Option<Arrived>)) -> usize {
        let mut taken = if to_itself { self.poll_own(&mut deliver) } else { 0 };
        for member in self.rings.borrow_mut().iter_mut() {
            let from = member.from;
            for _ in 0..TURN {
                if member.ring.take(|frame| deliver(from, frame)).is_none() {
                    break;
                }
                taken += 1;
            }
        }
        // A program that got frames from its rings wants to go on with them: the shared queue is
        // looked at when they are quiet, or now and then.
        let polls = self.polls.get().wrapping_add(1);
        self.polls.set(polls);
        if taken == 0 || polls.is_multiple_of(QUEUE_EVERY) {
            taken += self.poll_queue(&mut deliver);
        }
        let mut leaving = self.leaving.borrow_mut();
        if !leaving.is_empty() {
            for member in leaving.drain(..) {
                self.rings.borrow_mut().retain(|ring| ring.from != member);
                self.members.free(member);
            }
        }
        self.adopt();
        taken
    }

    /// MemberRing that are to be followed from now on.
    #[inline]
    fn adopt(&self) {
        let mut new = self.new_rings.borrow_mut();
        if !new.is_empty() {
            let mut rings = self.rings.borrow_mut();
            for member in new.drain(..) {
                let place = if member.own { 0 } else { rings.len() };
                rings.insert(place, member);
            }
        }
    }

    /// Takes all frames of the owner to itself, before those that others send because of
    /// them. (Say, it changes its own memory, then tells another rank, which changes it too:
    /// mpi4py's `Mutex` relies on the order.)
    fn poll_own(&self, deliver: &mut impl FnMut(MemberId, Option<Arrived>)) -> usize {
        if self.rings.borrow().first().is_some_and(|member| member.own) {
            return self.poll_own_ring(deliver);
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

    fn poll_own_ring(&self, deliver: &mut impl FnMut(MemberId, Option<Arrived>)) -> usize {
        let mut taken = 0;
        if let Some(MemberRing { from, own: true, ring }) = self.rings.borrow_mut().first_mut() {
            while ring.take(|frame| deliver(*from, frame)).is_some() {
                taken += 1;
            }
        }
        taken
    }

    #[inline]
    fn poll_queue(&self, deliver: &mut impl FnMut(MemberId, Option<Arrived>)) -> usize {
        let q = self.segment.queue();
        let inbox = ReceivePath { queue: q, claim: &Towpath, receiver: &self.receiver, quota: &self.quota };
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
                let line = ArrivedPayload::of_cells(&cells);
                let frame = Arrived::read(header.handler(), header.args(), tag, words, line, |_| {
                    let block = q.blocks.get(header.block()).filter(|_| header.has_block())?;
                    let len = (self.cpu.read(&block.len) as usize).min(q.block_size);
                    payload(q, header.block(), len)
                });
                deliver(MemberId::from_code(header.source() as u16), frame);
                if self.own_follows.take() {
                    // The owner's later frames to itself lie in its ring, and come before the rest
                    // of the queue.
                    self.adopt();
                    self.poll_own_ring(deliver);
                }
                0
            },
        )
    }

    /// Returns whether a poll would find a frame.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.rings.borrow().iter().any(|member| member.ring.is_ready())
            || self.receiver.borrow_mut().next(&Towpath, self.segment.queue(), &self.cpu).is_some()
    }

    /// Repairs places in the shared queue whose senders stopped or died: polls don't see
    /// them.
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

    /// Returns whether a packet of the shared queue was claimed and is not there yet.
    pub fn is_behind(&self) -> bool {
        self.receiver.borrow().behind(self.segment.queue(), &self.cpu)
    }

    /// Number of senders that have a ring here.
    pub fn rings(&self) -> usize {
        // Borrowed: the question itself came through a ring, which it never does among honest
        // senders.
        self.rings.try_borrow().map_or(MEMBERS, |rings| rings.len()) + self.new_rings.borrow().len()
    }

    /// Looks at a member's ring from now on.
    pub fn follow(&self, from: MemberId, own: bool, ring: PairIn) {
        self.own_follows.set(own);
        self.new_rings.borrow_mut().push(MemberRing { from, own, ring });
    }

    /// Frees a member's place after this poll: it has said good-bye, or is dead and all
    /// its frames were taken.
    pub fn leave(&self, member: MemberId) {
        self.leaving.borrow_mut().push(member);
    }

    /// Accepts or declines a ring; its sender then says when to look at it.
    pub fn judge(
        &self,
        memory: PairMemory,
        most: usize,
        shared_line: Option<&Rc<PairLine>>,
    ) -> Option<PairIn> {
        if self.rings() >= most {
            PairIn::decline(&memory);
            return None;
        }
        let mut pair = PairIn::accept(memory);
        if let Some(line) = shared_line {
            pair.share(line);
        }
        Some(pair)
    }

    /// Arms the doorbell. Returns its count, for [`Port::sleep`]; `None` if a frame has
    /// come.
    pub fn arm(&self) -> Option<u64> {
        let count = self.segment.header().doorbell.arm(&self.cpu);
        if self.may_sleep() {
            return Some(count);
        }
        self.disarm();
        None
    }

    /// Returns whether no frame has come, and a claim from now on wakes the owner.
    fn may_sleep(&self) -> bool {
        let q = self.segment.queue();
        Claim::<Native>::fall_asleep(&Towpath, q, &self.receiver.borrow(), &self.cpu) && !self.is_ready()
    }

    /// Sleeps on a port's segment until a sender wakes the owner, at most so many
    /// nanoseconds. The port itself may be closed meanwhile.
    pub fn sleep(segment: &EndpointSegment, count: u64, ns: u64) {
        Native::with_id(0).park(&segment.header().doorbell.count, count, ns);
    }

    /// Takes the request to be woken back.
    pub fn disarm(&self) {
        if !self.segment.header().doorbell.disarm(&self.cpu) {
            Claim::<Native>::wake_up(&Towpath, self.segment.queue(), &self.cpu);
        }
    }

    /// The wake pipe, for owners that wait on a descriptor. Made when it is first asked
    /// for.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wake_pipe(&self) -> io::Result<&WakePipe> {
        if let Some(pipe) = self.pipe.get() {
            return Ok(pipe);
        }
        let pipe = WakePipe::new()?;
        self.segment.header().doorbell.set_pipe(&self.cpu, pipe.write_end());
        let pipe = self.pipe.get_or_init(|| pipe);
        if let Some(listener) = &self.members.listener {
            listener.pass(pipe);
        }
        Ok(pipe)
    }

    /// Empties the wake pipe and arms it. `false`: a frame has come, or is about to, for
    /// which no sender writes to the pipe.
    pub fn arm_pipe(&self) -> bool {
        let Some(pipe) = self.pipe.get() else { return false };
        pipe.empty();
        self.segment.header().doorbell.arm_pipe(&self.cpu);
        self.may_sleep()
    }

    /// Wakes the owner, from another of its threads, which holds the lock under which the
    /// pipe is armed.
    pub fn wake(&self) {
        let doorbell = &self.segment.header().doorbell;
        doorbell::wake(&self.cpu, &doorbell.count);
        if doorbell.is_pipe_armed(&self.cpu)
            && let Some(pipe) = self.pipe.get()
        {
            pipe.wake();
        }
    }

    /// Takes no more frames.
    pub fn close(&self) {
        // Relaxed, both: a sender that is refused reads nothing of the owner's, which takes no
        // frame any more.
        self.segment.header().closed.store(1, Ordering::Relaxed);
        self.segment.queue().control.tail.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

#[allow(unsafe_code)]
fn payload(
    q: &towpath_channel::queue::Queue<'_, Native>,
    block: usize,
    len: usize,
) -> Option<ArrivedPayload> {
    let at = q.block_at(block);
    let fits = at.checked_add(len)? <= q.bytes.len();
    // SAFETY: in bounds of the mapped blocks; the block is freed only after the delivery.
    fits.then(|| unsafe { ArrivedPayload::new(q.bytes.as_ptr().add(at), len) })
}
