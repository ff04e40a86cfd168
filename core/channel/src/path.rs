//! The way of a message, for any machine: claim (block first, then packet: L19), wait for
//! space while polling, fill, publish; and take what has arrived.
//!
//! An endpoint adds its correspondents, their liveness, and the form of its handlers; none of that
//! is here. Native endpoints (`send.rs`, `deliver.rs`) and those of the laboratory on simulated
//! machines send and receive by this text.
//!
//! **A sender that dies** leaves what the claim algorithm says of each step (`claim/`), and no
//! more: a block that it had claimed and not published is found by the receiver's sweep.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;

use towpath_machine::Processor;
use towpath_sync::WaitForSpace;

use crate::claim::Claim;
use crate::packet::{Form, Header, LINE_ARGS, MAX_ARGS, READY, READY_BULK, Slot};
use crate::queue::{Arrival, ClaimError, Queue, Receiver, Sender, write_intent};
use crate::store_mode::{BlockStores, MEASURED};

/// The limits of a poll's quota.
const QUOTA: (usize, usize) = (16, 512);
/// The quota of a new receiver.
pub const FIRST_QUOTA: usize = 32;

/// A message on its way into a queue.
#[derive(Clone, Copy, Debug)]
pub struct PacketContent<'a> {
    /// Its form.
    pub form: Form,
    /// The receiver's handler.
    pub handler: u8,
    /// The tag that the sender addresses.
    pub tag: u64,
    /// Arguments, at most [`MAX_ARGS`].
    pub args: &'a [u32],
    /// See [`crate::packet::Extra`].
    pub aux: u64,
    /// The sender's incarnation ([`crate::packet::source_code`]).
    pub source: u32,
}

/// A piece of a transfer: the contents of a block.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Bytes, at most a block full.
    pub bytes: &'a [u8],
    /// Long: where this piece belongs.
    pub offset: u64,
    /// Long: the whole transfer's offset and length.
    pub whole: (u64, u64),
    /// The receiver runs elsewhere, and its processor reads the bytes next: they are
    /// written by [`Processor::copy_away`], or as is measured ([`crate::store_mode`]).
    pub away: bool,
}

/// Reason for which a message did not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No space, and the caller does not want to wait.
    NotSent,
    /// The destination is gone.
    Gone,
}

/// A sender's actions while it waits for space. Passed by
/// value, so that nothing has to lie in memory for it unless it is needed.
pub trait WhileFull: Copy {
    /// Returns whether the destination is known to be gone.
    ///
    /// The destination is known to be gone before the first attempt:
    ///
    /// ```
    /// use towpath_channel::path::{Failure, WhileFull, patiently};
    ///
    /// #[derive(Clone, Copy)]
    /// struct Gone;
    /// impl WhileFull for Gone {
    ///     fn is_gone(&self) -> bool { true }
    ///     fn poll(&self) -> usize { 0 }
    ///     fn pause(&self, _round: u32) {}
    ///     fn look_around(&self) -> bool { false }
    /// }
    /// assert_eq!(patiently(true, Gone, || Ok(7)), Err(Failure::Gone));
    /// ```
    fn is_gone(&self) -> bool;
    /// Polls: everything while a request waits, only replies while a reply does. Returns
    /// how many messages were delivered.
    ///
    /// A poll that delivers messages makes the wait begin anew:
    ///
    /// ```
    /// use std::cell::Cell;
    /// use towpath_channel::path::{WhileFull, patiently};
    /// use towpath_channel::queue::ClaimError;
    ///
    /// #[derive(Clone, Copy)]
    /// struct Polling<'a>(&'a Cell<usize>);
    /// impl WhileFull for Polling<'_> {
    ///     fn is_gone(&self) -> bool { false }
    ///     fn poll(&self) -> usize { self.0.replace(0) } // messages that wait
    ///     fn pause(&self, round: u32) { assert_eq!(round, 0) }
    ///     fn look_around(&self) -> bool { true }
    /// }
    /// let (waiting, mut attempts) = (Cell::new(3), [Err(ClaimError::Full), Ok(7)].into_iter());
    /// let claimed = patiently(true, Polling(&waiting), || attempts.next().expect("two attempts"));
    /// assert_eq!((claimed, waiting.get()), (Ok(7), 0));
    /// ```
    fn poll(&self) -> usize;
    /// Waits for a turn, the `round`-th since a poll has found something:
    /// [`Claim::await_space`].
    ///
    /// ```
    /// use std::cell::Cell;
    /// use towpath_channel::path::{WhileFull, patiently};
    /// use towpath_channel::queue::ClaimError;
    ///
    /// #[derive(Clone, Copy)]
    /// struct Counting<'a>(&'a Cell<u32>);
    /// impl WhileFull for Counting<'_> {
    ///     fn is_gone(&self) -> bool { false }
    ///     fn poll(&self) -> usize { 0 }
    ///     fn pause(&self, round: u32) { self.0.set(round) } // the longer, the larger
    ///     fn look_around(&self) -> bool { true }
    /// }
    /// let (last, full) = (Cell::new(0), Err(ClaimError::Full));
    /// let mut attempts = [full, full, full, Ok(())].into_iter();
    /// let claimed = patiently(true, Counting(&last), || attempts.next().expect("four attempts"));
    /// assert_eq!(claimed, Ok(()));
    /// assert_eq!(last.get(), 2); // rounds 0 to 2
    /// ```
    fn pause(&self, round: u32);
    /// Returns whether it is time to look around, after the `round`-th turn. By default
    /// every 64 turns.
    ///
    /// ```
    /// # use towpath_channel::path::WhileFull;
    /// # #[derive(Clone, Copy)]
    /// # struct Idle;
    /// # impl WhileFull for Idle {
    /// #     fn is_gone(&self) -> bool { false }
    /// #     fn poll(&self) -> usize { 0 }
    /// #     fn pause(&self, _round: u32) {}
    /// #     fn look_around(&self) -> bool { true }
    /// # }
    /// assert_eq!((1..=200).filter(|&round| Idle.is_due(round)).count(), 3); // every 64 turns
    /// ```
    fn is_due(&self, round: u32) -> bool {
        round.is_multiple_of(64)
    }
    /// Looks after events that polls don't see. `false` if the destination is gone.
    ///
    /// The destination dies while the sender waits:
    ///
    /// ```
    /// use towpath_channel::path::{Failure, WhileFull, patiently};
    /// use towpath_channel::queue::ClaimError;
    ///
    /// #[derive(Clone, Copy)]
    /// struct Dying;
    /// impl WhileFull for Dying {
    ///     fn is_gone(&self) -> bool { false }
    ///     fn poll(&self) -> usize { 0 }
    ///     fn pause(&self, _round: u32) {}
    ///     fn look_around(&self) -> bool { false } // asks for deaths
    /// }
    /// let claimed = patiently(true, Dying, || Err::<u64, _>(ClaimError::Full));
    /// assert_eq!(claimed, Err(Failure::Gone));
    /// ```
    fn look_around(&self) -> bool;
}

/// Path from one endpoint into a queue of another.
pub struct SendPath<'a, P: Processor, C> {
    /// The queue.
    pub queue: &'a Queue<'a, P>,
    /// Its claim algorithm.
    pub claim: &'a C,
    /// The sender's knowledge of it.
    pub sender: &'a RefCell<Sender>,
    /// The sender's word for claims on queues of this kind.
    pub intent: &'a P::Word,
    /// Its word for the block that it may hold there.
    pub block_intent: &'a P::Word,
}

impl<P: Processor, C> Clone for SendPath<'_, P, C> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor, C> Copy for SendPath<'_, P, C> {}

impl<P: Processor, C: Claim<P>> SendPath<'_, P, C> {
    /// Claims, fills and publishes one packet, with a block if there is a piece.
    /// `patient`: waits for space. Returns whether the receiver sleeps and must be woken.
    ///
    /// # Errors
    ///
    /// [`Failure`]: nothing was sent, and nothing is held.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// # use std::cell::RefCell;
    /// # use towpath_channel::path::{Failure, PacketContent, SendPath, WhileFull};
    /// # #[derive(Clone, Copy)]
    /// # struct Idle;
    /// # impl WhileFull for Idle {
    /// #     fn is_gone(&self) -> bool { false }
    /// #     fn poll(&self) -> usize { 0 }
    /// #     fn pause(&self, _round: u32) {}
    /// #     fn look_around(&self) -> bool { true }
    /// # }
    /// # let (sender, block_intent) = (RefCell::new(sender), Native::word(0));
    /// let [intent, block_intent] = [&intent, &block_intent];
    /// let path =
    ///     SendPath { queue: &q, claim: &Towpath, sender: &sender, intent, block_intent };
    /// let out = PacketContent {
    ///     form: Form::Short, handler: 7, tag: 0, args: &[1, 2], aux: 0, source: source_code(0, 1),
    /// };
    /// let patient = false; // `Idle`, which it is given, would poll while the queue is full
    /// while path.send(&cpu, &out, None, patient, &Spinning, Idle).is_ok() {}
    /// let full = path.send(&cpu, &out, None, patient, &Spinning, Idle);
    /// assert_eq!(full, Err(Failure::NotSent));
    /// # }
    /// ```
    #[inline(always)]
    pub fn send<W: WaitForSpace<P>>(
        self,
        cpu: &P,
        out: &PacketContent<'_>,
        piece: Option<Piece<'_>>,
        patient: bool,
        wait: &W,
        meanwhile: impl WhileFull,
    ) -> Result<bool, Failure> {
        let SendPath { queue: q, claim, intent, block_intent, .. } = self;
        // Block first, then packet (L19).
        let block = match piece {
            None => None,
            Some(piece) => {
                let block = self.claim_patiently(cpu, patient, meanwhile, move |s| {
                    // Before the claim by its Release (B1).
                    write_intent(cpu, block_intent, u64::from(q.id) + 1);
                    let claimed = claim.claim_block(q, s, cpu, wait, intent);
                    if claimed.is_err() {
                        // While we wait we hold none.
                        write_intent(cpu, block_intent, 0);
                    }
                    claimed
                })?;
                self.fill_block(cpu, block, piece);
                Some(block)
            }
        };
        let claimed = {
            let mut sender = self.sender.borrow_mut();
            sender.hasty = !patient;
            claim.claim(q, &mut sender, cpu, wait, intent)
        };
        let claimed = match claimed {
            Ok(ticket) => Ok(ticket),
            Err(_) => self
                .claim_patiently(cpu, patient, meanwhile, |s| self.claim.claim(q, s, cpu, wait, self.intent)),
        };
        let ticket = match claimed {
            Ok(ticket) => ticket,
            Err(failure) => {
                if let Some(block) = block {
                    q.free_block(cpu, block);
                    write_intent(cpu, block_intent, 0);
                }
                return Err(failure);
            }
        };
        let slot = q.slot(ticket);
        cpu.write(&slot.tag, out.tag);
        write_args(cpu, &slot.args, out.args);
        if out.args.len() > LINE_ARGS || out.aux != 0 {
            self.fill_extra(cpu, ticket, out);
        }
        let mut header = Header::new(out.form, out.handler, out.args.len(), out.source);
        header = match block {
            None => header.with_state(READY),
            Some(block) => header.with_block(block).with_state(READY_BULK),
        };
        let mut sender = self.sender.borrow_mut();
        let must_wake = claim.publish(q, &mut sender, cpu, wait.parks(), intent, ticket, header);
        if block.is_some() {
            // A receiver that sees that we hold none sees the publication.
            write_intent(cpu, block_intent, 0);
        }
        Ok(must_wake)
    }

    fn fill_block(self, cpu: &P, block: usize, piece: Piece<'_>) {
        let q = self.queue;
        let head = &q.blocks[block];
        cpu.write(&head.len, piece.bytes.len() as u64);
        cpu.write(&head.offset, piece.offset);
        cpu.write(&head.whole[0], piece.whole.0);
        cpu.write(&head.whole[1], piece.whole.1);
        if piece.bytes.len() >= MEASURED {
            if piece.away {
                let stores = &mut self.sender.borrow_mut().stores;
                let new = || Box::new(BlockStores::new(q.blocks.len(), q.block_size));
                return stores.get_or_insert_with(new).write(cpu, q, block, piece);
            }
            // Otherwise the receiver tells the time of this piece for an earlier one in the block.
            cpu.write(&head.timed, 0);
        }
        let (bytes, at) = (&q.bytes, q.block_at(block));
        if piece.away { cpu.copy_away(bytes, at, piece.bytes) } else { cpu.copy_in(bytes, at, piece.bytes) }
    }

    #[cold]
    fn fill_extra(self, cpu: &P, ticket: u64, out: &PacketContent<'_>) {
        let extra = self.queue.extra(ticket);
        cpu.write(&extra.aux, out.aux);
        let rest = out.args.get(LINE_ARGS..).unwrap_or(&[]);
        write_args(cpu, &extra.args, rest);
    }

    /// Tries until it succeeds, polling between the attempts so that no cycle of full
    /// queues stands still.
    #[cold]
    #[inline(never)]
    fn claim_patiently<T>(
        self,
        cpu: &P,
        patient: bool,
        meanwhile: impl WhileFull,
        mut attempt: impl FnMut(&mut Sender) -> Result<T, ClaimError>,
    ) -> Result<T, Failure> {
        let claimed = patiently(patient, meanwhile, || attempt(&mut self.sender.borrow_mut()));
        claimed.inspect_err(|_| {
            self.claim.give_up(&mut self.sender.borrow_mut(), cpu, self.intent);
        })
    }
}

/// Tries until it succeeds, polling between the attempts so that no cycle of full queues
/// stands still. `patient`: waits for space.
///
/// # Errors
///
/// [`Failure`].
///
/// ```
/// use towpath_channel::path::{Failure, WhileFull, patiently};
/// use towpath_channel::queue::ClaimError;
///
/// #[derive(Clone, Copy)]
/// struct Idle;
/// impl WhileFull for Idle {
///     fn is_gone(&self) -> bool { false }
///     fn poll(&self) -> usize { 0 }
///     fn pause(&self, _round: u32) {}
///     fn look_around(&self) -> bool { true }
/// }
/// let mut attempts = 0;
/// let claimed = patiently(true, Idle, || {
///     attempts += 1;
///     if attempts == 3 { Ok(attempts) } else { Err(ClaimError::Full) }
/// });
/// assert_eq!(claimed, Ok(3));
/// let hasty = patiently(false, Idle, || Err::<u64, _>(ClaimError::Full));
/// assert_eq!(hasty, Err(Failure::NotSent));
/// ```
pub fn patiently<T>(
    patient: bool,
    meanwhile: impl WhileFull,
    mut attempt: impl FnMut() -> Result<T, ClaimError>,
) -> Result<T, Failure> {
    let mut round = 0;
    loop {
        if meanwhile.is_gone() {
            return Err(Failure::Gone);
        }
        match attempt() {
            Ok(done) => return Ok(done),
            Err(ClaimError::Closed) => return Err(Failure::Gone),
            Err(ClaimError::Full) if !patient => return Err(Failure::NotSent),
            Err(ClaimError::Full) => {}
        }
        if meanwhile.poll() > 0 {
            round = 0;
            continue;
        }
        meanwhile.pause(round);
        round = round.saturating_add(1);
        if meanwhile.is_due(round) && !meanwhile.look_around() {
            return Err(Failure::Gone);
        }
    }
}

/// A queue's receiving end.
pub struct ReceivePath<'a, P: Processor, C> {
    /// The queue.
    pub queue: &'a Queue<'a, P>,
    /// Its claim algorithm.
    pub claim: &'a C,
    /// Its progress.
    pub receiver: &'a RefCell<Receiver>,
    /// Maximum number of messages of one poll: adjusts itself.
    pub quota: &'a Cell<usize>,
}

/// Mark of a message that is being handled. Its delivery ends even if the handler
/// panics.
pub struct Handled<F: Fn()>(F);

impl<F: Fn()> Handled<F> {
    /// Marks a message whose delivery ends so.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use towpath_channel::path::Handled;
    ///
    /// let ended = Cell::new(false);
    /// let handled = Handled::new(|| ended.set(true));
    /// drop(handled); // as a handler that panics
    /// assert!(ended.get());
    /// ```
    #[inline(always)]
    pub fn new(end: F) -> Self {
        Handled(end)
    }

    /// Ends the delivery. Dropping it does the same if the handler panics, and is a call
    /// without LTO.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use towpath_channel::path::Handled;
    ///
    /// let ends = Cell::new(0);
    /// Handled::new(|| ends.set(ends.get() + 1)).end();
    /// assert_eq!(ends.get(), 1); // not once more when it is dropped
    /// ```
    #[inline(always)]
    pub fn end(self) {
        (ManuallyDrop::new(self).0)();
    }
}

impl<F: Fn()> Drop for Handled<F> {
    #[inline(always)]
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A delivered message's block: free in the end.
struct Block<'a, 'b, P: Processor>(&'a Queue<'b, P>, &'a P, Header);

impl<P: Processor> Drop for Block<'_, '_, P> {
    #[inline]
    fn drop(&mut self) {
        if self.2.has_block() {
            self.0.free_block(self.1, self.2.block());
        }
    }
}

impl<P: Processor, C: Claim<P>> ReceivePath<'_, P, C> {
    /// Delivers messages that have arrived, up to the quota. Returns their number.
    /// `deliver` returns the number of other messages that it has delivered before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// # use std::cell::{Cell, RefCell};
    /// # use towpath_channel::path::{FIRST_QUOTA, ReceivePath};
    /// for _ in 0..3 {
    ///     send(&q, &mut sender, &intent).expect("there is room");
    /// }
    /// let (receiver, quota) = (RefCell::new(receiver), Cell::new(FIRST_QUOTA));
    /// let path = ReceivePath { queue: &q, claim: &Towpath, receiver: &receiver, quota: &quota };
    /// let mut handlers = Vec::new();
    /// let delivered = path.poll(&cpu, || Spinning, |arrival| {
    ///     handlers.push(arrival.header.handler());
    ///     0 // none was delivered in the handler
    /// });
    /// assert_eq!((delivered, handlers), (3, vec![1, 1, 1]));
    /// # }
    /// ```
    #[inline(always)]
    pub fn poll<W: WaitForSpace<P>>(
        &self,
        cpu: &P,
        wait: impl FnOnce() -> W,
        mut deliver: impl FnMut(Arrival) -> usize,
    ) -> usize {
        let quota = self.quota.get();
        let mut delivered = 0;
        while delivered < quota {
            let Some(arrival) = self.receiver.borrow_mut().next(self.claim, self.queue, cpu) else { break };
            let handled =
                Handled::new(|| self.receiver.borrow_mut().done(self.claim, self.queue, cpu, arrival));
            delivered += deliver(arrival) + 1;
            handled.end();
        }
        if delivered > 0 {
            self.claim.flush(self.queue, &mut self.receiver.borrow_mut(), cpu, &wait());
            adjust(self.quota, delivered);
        }
        delivered
    }
}

/// Adjusts a quota to the number of messages that a poll has delivered, if any.
///
/// As long as polls deliver all of it, more at a time cost less each; otherwise other work need not
/// wait.
///
/// ```
/// use std::cell::Cell;
/// use towpath_channel::path::{FIRST_QUOTA, adjust};
///
/// let quota = Cell::new(FIRST_QUOTA);
/// adjust(&quota, FIRST_QUOTA); // a poll has delivered all of it
/// assert_eq!(quota.get(), 2 * FIRST_QUOTA);
/// ```
#[inline(always)]
pub fn adjust(quota: &Cell<usize>, delivered: usize) {
    let now = quota.get();
    if delivered >= now {
        quota.set((now * 2).min(QUOTA.1));
    } else if delivered > 0 && delivered < now / 4 {
        quota.set((now / 2).max(QUOTA.0));
    }
}

/// Gives a message's block back, if it has one, when the guard is dropped.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
/// # fn main() {
/// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
/// # let (q, mut sender, mut receiver) =
/// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
/// use towpath_channel::path::free_afterwards;
///
/// let block = Towpath.claim_block(&q, &mut sender, &cpu, &Spinning, &intent).expect("a block");
/// let header = Header::new(Form::Medium, 7, 0, 0).with_block(block).with_state(READY_BULK);
/// drop(free_afterwards(&q, &cpu, header)); // its handler has returned, or panicked
/// assert_eq!(receiver.in_use(&Towpath, &q, &cpu), (0, 0));
/// # }
/// ```
#[inline]
pub fn free_afterwards<'a, P: Processor>(
    q: &'a Queue<'_, P>,
    cpu: &'a P,
    header: Header,
) -> impl Drop + use<'a, P> {
    Block(q, cpu, header)
}

/// Returns two arguments as they lie in a cell: the one of this number, and the next, if
/// there is one.
#[inline(always)]
pub(crate) fn two_args(args: &[u32], n: usize) -> u64 {
    let high = if n + 1 < args.len() { args[n + 1] } else { 0 };
    u64::from(args[n]) | u64::from(high) << 32
}

/// Writes arguments into cells, two in each, the even one in the low half, as far as they
/// go.
///
/// By index: the adapters of iterators are calls where a program is built without LTO.
#[inline(always)]
fn write_args<P: Processor>(cpu: &P, cells: &[P::Cell], args: &[u32]) {
    let mut n = 0;
    while n < args.len().min(cells.len() * 2) {
        cpu.write(&cells[n / 2], two_args(args, n));
        n += 2;
    }
}

/// Reads as many arguments as `args` has places, an even number, out of cells
/// ([`write_args`]).
#[inline(always)]
pub(crate) fn read_args<P: Processor>(cpu: &P, cells: &[P::Cell], args: &mut [u32]) {
    let mut n = 0;
    while n + 1 < args.len() {
        let both = cpu.read(&cells[n / 2]);
        args[n] = both as u32;
        args[n + 1] = (both >> 32) as u32;
        n += 2;
    }
}

/// The arguments on a packet's line. All of them: they are on the header's line, and a
/// loop of fixed length is none.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
/// # fn main() {
/// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
/// # let (q, mut sender, mut receiver) =
/// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
/// let ticket = Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
/// cpu.write(&q.slot(ticket).args[0], 2 << 32 | 1); // two in a cell
/// let mut args = [0; MAX_ARGS];
/// towpath_channel::path::line_args(&cpu, q.slot(ticket), &mut args);
/// assert_eq!(args[..2], [1, 2]);
/// # }
/// ```
#[inline(always)]
pub fn line_args<P: Processor>(cpu: &P, slot: &Slot<P>, args: &mut [u32; MAX_ARGS]) {
    read_args(cpu, &slot.args, &mut args[..LINE_ARGS]);
}

/// The arguments that did not fit there, if the message has so many.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
/// # fn main() {
/// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
/// # let (q, mut sender, mut receiver) =
/// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
/// let ticket = Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
/// cpu.write(&q.extra(ticket).args[0], 2 << 32 | 1);
/// let header = Header::new(Form::Short, 7, LINE_ARGS + 2, 0);
/// let mut args = [0; MAX_ARGS];
/// let arrival = Arrival { ticket, header, late: false };
/// towpath_channel::path::extra_args(&cpu, &q, arrival, &mut args);
/// assert_eq!(args[LINE_ARGS..][..2], [1, 2]);
/// # }
/// ```
pub fn extra_args<P: Processor>(cpu: &P, q: &Queue<'_, P>, arrival: Arrival, args: &mut [u32; MAX_ARGS]) {
    if arrival.header.args() > LINE_ARGS {
        read_args(cpu, &q.extra(arrival.ticket).args, &mut args[LINE_ARGS..]);
    }
}
