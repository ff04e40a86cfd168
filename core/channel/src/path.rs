//! The way of a message, for any machine: claim (block first, then packet: L19), wait for
//! space while polling, fill, publish; and take what has arrived.
//!
//! An endpoint adds its correspondents, their liveness, and the form of its handlers; none of that
//! is here. Native endpoints (`send.rs`, `deliver.rs`) and those of the laboratory on simulated
//! machines send and receive by this text.
//!
//! **A sender that dies** leaves what the claim algorithm says of each step (`claim/`), and no
//! more: a block that it had claimed and not published is found by the receiver's sweep.

mod args;
mod receiving;

use core::cell::RefCell;

use towpath_machine::Processor;
use towpath_sync::WaitForSpace;

use crate::claim::Claim;
use crate::packet::{Form, Header, LINE_ARGS, READY, READY_BULK};
use crate::queue::{ClaimError, Queue, Sender, write_intent};
use crate::store_mode::{BlockStores, MEASURED};

use args::write_args;
pub use args::{extra_args, line_args};
pub(crate) use args::{read_args, two_args};
pub use receiving::{Handled, ReceivePath, adjust, free_afterwards};

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
    /// Arguments, at most [`MAX_ARGS`](crate::packet::MAX_ARGS).
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
