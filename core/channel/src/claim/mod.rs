//! Claim algorithms: how concurrent senders come to own a packet. One algorithm, one
//! file.

mod any;
mod lock_free;
mod locked;
mod towpath;

use towpath_machine::{Ordering, Processor};
use towpath_sync::WaitForSpace;

use crate::packet::Header;
use crate::queue::{Census, ClaimError, Queue, Receiver, Sender};

pub use any::{Algorithm, Any, Locks, MAX_CONTENDERS};
pub use lock_free::LockFree;
pub use locked::Locked;
pub use towpath::Towpath;

/// A claim algorithm: the sender's way to a packet and a block, and the receiver's way of
/// giving them back.
///
/// Both sides are one trait, since they are one protocol: each ordering of one side has its partner
/// in the other, and no algorithm has one side only. From [`claim`](Claim::claim) to
/// [`await_space`](Claim::await_space) it is senders that call; from [`is_ready`](Claim::is_ready)
/// on it is the receiver.
///
/// None of the claims waits for space: that is the endpoint's business, which polls meanwhile.
///
/// `q` in the examples has four packets and two blocks; `send` claims one of them and publishes a
/// message (`doc/queue.rs`).
pub trait Claim<P: Processor> {
    // The sender's side.

    /// Claims a packet. `intent` is the sending endpoint's word for claims on queues of
    /// this kind.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`]: nothing was claimed for good; try again. [`ClaimError::Closed`]:
    /// never.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// for _ in 0..q.len() {
    ///     Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("there is room");
    /// }
    /// let full = Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent);
    /// assert_eq!(full, Err(ClaimError::Full));
    /// # }
    /// ```
    fn claim<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<u64, ClaimError>;

    /// A hint that this ticket is likely to be claimed soon: its packet's line may be
    /// fetched meanwhile. Claims nothing.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let first = send(&q, &mut sender, &intent).expect("it is empty");
    /// Towpath.anticipate(&q, &cpu, first + 1); // while the caller computes its arguments
    /// assert_eq!(send(&q, &mut sender, &intent), Ok(first + 1));
    /// # }
    /// ```
    #[inline(always)]
    fn anticipate(&self, _q: &Queue<'_, P>, _cpu: &P, _ticket: u64) {}

    /// Gives up a ticket that a claim in a full queue may have kept for the next attempt.
    /// Called when there will be none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// while LockFree.claim(&q, &mut sender, &cpu, &Spinning, &intent).is_ok() {}
    /// LockFree.give_up(&mut sender, &cpu, &intent); // its caller does not want to wait
    /// assert_eq!(sender.pending, None);
    /// # }
    /// ```
    fn give_up(&self, _sender: &mut Sender, _cpu: &P, _intent: &P::Word) {}

    /// Claims a block. On success the caller owns it until it publishes it with a packet
    /// or frees it.
    ///
    /// # Errors
    ///
    /// As [`Claim::claim`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let block =
    ///     Towpath.claim_block(&q, &mut sender, &cpu, &Spinning, &intent).expect("a block");
    /// cpu.copy_in(&q.bytes, q.block_at(block), b"payload");
    /// assert_ne!(cpu.load(&q.blocks[block].owner, Ordering::Relaxed), 0); // the sender's
    /// # }
    /// ```
    fn claim_block<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<usize, ClaimError>;

    #[expect(
        clippy::too_many_arguments,
        reason = "each is another thing; a struct of them would be made only for this call"
    )]
    /// Publishes a filled packet. Returns whether the receiver sleeps and must be woken.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let ticket = Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
    /// cpu.write(&q.slot(ticket).args[0], 42);
    /// let header = Header::new(Form::Short, 7, 1, source_code(0, 1)).with_state(READY);
    /// let must_wake = Towpath.publish(&q, &mut sender, &cpu, true, &intent, ticket, header);
    /// assert!(!must_wake && receiver.next(&Towpath, &q, &cpu).is_some());
    /// # }
    /// ```
    fn publish(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        parks: bool,
        intent: &P::Word,
        ticket: u64,
        header: Header,
    ) -> bool;

    /// Waits a while for space in a queue that was found full. A hint: returns at any
    /// time.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// while send(&q, &mut sender, &intent).is_ok() {}
    /// Towpath.await_space(&q, &sender, &cpu, &Spinning, 0); // then it polls, and tries again
    /// assert_eq!(send(&q, &mut sender, &intent), Err(ClaimError::Full));
    /// # }
    /// ```
    fn await_space<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &Sender,
        cpu: &P,
        wait: &W,
        round: u32,
    );

    // The receiver's side.

    /// Returns whether the ticket's packet can be delivered.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let ticket = send(&q, &mut sender, &intent).expect("it is empty");
    /// let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Acquire));
    /// assert!(Towpath.is_ready(&q, header, ticket));
    /// assert!(!Towpath.is_ready(&q, header, ticket + q.len())); // a lap later
    /// # }
    /// ```
    fn is_ready(&self, q: &Queue<'_, P>, header: Header, ticket: u64) -> bool;

    /// Returns whether the packet of a place that was passed over holds a message whose
    /// turn has passed too (and not one whose turn is still to come).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let ticket = send(&q, &mut sender, &intent).expect("it is empty");
    /// let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Acquire));
    /// assert!(Towpath.is_ready_late(&q, header, ticket, ticket + 1)); // its turn has passed
    /// # }
    /// ```
    fn is_ready_late(&self, q: &Queue<'_, P>, header: Header, ticket: u64, head: u64) -> bool {
        let _ = head;
        self.is_ready(q, header, ticket)
    }

    /// Returns the ticket of the message that the packet of a dead receiver holds, if it
    /// was not delivered. `ticket` is the place's first one that the receiver had not passed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let ticket = send(&q, &mut sender, &intent).expect("it is empty"); // and its receiver dies
    /// let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Acquire));
    /// assert_eq!(Towpath.undelivered(&q, &cpu, header, ticket), Some(ticket));
    /// # }
    /// ```
    fn undelivered(&self, q: &Queue<'_, P>, cpu: &P, header: Header, ticket: u64) -> Option<u64> {
        let _ = (q, cpu);
        header.is_ready().then_some(ticket)
    }

    /// Makes a delivered packet reusable, now or later ([`Claim::flush`]).
    /// `receiver.head` is past it already.
    ///
    /// Called by [`Receiver::done`]:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let ticket = send(&q, &mut sender, &intent).expect("it is empty");
    /// receiver.head = ticket + 1; // it was delivered
    /// Towpath.release(&q, &mut receiver, &cpu, ticket);
    /// assert!(!receiver.behind(&q, &cpu));
    /// # }
    /// ```
    fn release(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64);

    /// Makes a delivered packet reusable that came late.
    ///
    /// Called by [`Receiver::done`]:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let ticket = Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
    /// let census = One { intent: &intent, lives: true };
    /// Towpath.resolve_head(&q, &mut receiver, &cpu, &census, true); // passes over it
    /// Towpath.release_late(&q, &mut receiver, &cpu, ticket); // it came, and was handled
    /// assert!(receiver.late.is_empty());
    /// # }
    /// ```
    fn release_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64);

    /// Publishes lazily kept progress; wakes senders that sleep for want of space. Called
    /// when a poll ends. Does nothing where progress is published with each packet.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// while send(&q, &mut sender, &intent).is_ok() {}
    /// while let Some(arrival) = receiver.next(&Towpath, &q, &cpu) {
    ///     receiver.done(&Towpath, &q, &cpu, arrival);
    /// }
    /// Towpath.flush(&q, &mut receiver, &cpu, &Spinning); // senders see all of the room
    /// assert!((0..q.len()).all(|_| send(&q, &mut sender, &intent).is_ok()));
    /// # }
    /// ```
    #[inline]
    fn flush<W: WaitForSpace<P>>(&self, _q: &Queue<'_, P>, _receiver: &mut Receiver, _cpu: &P, _wait: &W) {}

    /// Says that the receiver will sleep. `false` if it must not, since something was
    /// claimed already.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(Towpath.fall_asleep(&q, &receiver, &cpu)); // the next sender is to wake it
    /// Towpath.wake_up(&q, &cpu);
    /// send(&q, &mut sender, &intent).expect("it is empty");
    /// assert!(!Towpath.fall_asleep(&q, &receiver, &cpu)); // a message has come
    /// # }
    /// ```
    fn fall_asleep(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> bool;

    /// Takes that back: in `sleeping`, where the algorithm keeps no flag in the tail.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// LockFree.fall_asleep(&q, &receiver, &cpu);
    /// LockFree.wake_up(&q, &cpu); // senders need not wake it
    /// assert_eq!(cpu.load(&q.control.sleeping, Ordering::Relaxed), 0);
    /// # }
    /// ```
    fn wake_up(&self, q: &Queue<'_, P>, cpu: &P) {
        // Relaxed: taking the request to be woken back orders nothing.
        cpu.store(&q.control.sleeping, 0, Ordering::Relaxed);
    }

    /// Passes over a head that was claimed and not published. Returns whether it moved.
    ///
    /// It does so where the algorithm permits, if its owner is dead, or it is `overdue`.
    ///
    /// Called by [`Receiver::look_after`]:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
    /// let census = One { intent: &intent, lives: false }; // and dies
    /// assert!(Towpath.resolve_head(&q, &mut receiver, &cpu, &census, true));
    /// assert_eq!(receiver.late.len(), 1); // its message could still come
    /// # }
    /// ```
    fn resolve_head(
        &self,
        q: &Queue<'_, P>,
        receiver: &mut Receiver,
        cpu: &P,
        census: &dyn Census,
        overdue: bool,
    ) -> bool;

    /// Decides about places passed over whose owner is dead. Returns whether one was
    /// freed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let census = One { intent: &intent, lives: true };
    /// assert!(!Towpath.resolve_late(&q, &mut receiver, &cpu, &census)); // none was passed over
    /// # }
    /// ```
    fn resolve_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census) -> bool;

    /// Frees packets that the dead had claimed.
    ///
    /// Called by [`Receiver::sweep`]:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let census = One { intent: &intent, lives: false };
    /// Towpath.sweep_packets(&q, &mut receiver, &cpu, &census);
    /// assert_eq!(Towpath.packets_in_use(&q, &receiver, &cpu), 0);
    /// # }
    /// ```
    fn sweep_packets(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census);

    /// Returns whether the lock in front of the queue, if any, is free at this moment.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(Towpath.is_unlocked(&cpu, &Spinning)); // it has no lock
    /// let locks = Locks::<Native>::new(&Heap);
    /// assert!(locks.choose(Algorithm::Ticket).is_unlocked(&cpu, &Spinning)); // free
    /// # }
    /// ```
    fn is_unlocked<W: WaitForSpace<P>>(&self, _cpu: &P, _wait: &W) -> bool {
        true
    }

    /// Returns whether more tickets may be out than there are packets.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(Claim::<Native>::overdraws(&LockFree)); // a ticket that waits for its packet
    /// assert!(!Claim::<Native>::overdraws(&Towpath));
    /// # }
    /// ```
    fn overdraws(&self) -> bool {
        false
    }

    /// The algorithm's part of [`Receiver::heal`].
    ///
    /// Called by [`Receiver::heal`]:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(!Towpath.heal(&q, &mut receiver, &cpu)); // nothing is damaged
    /// # }
    /// ```
    fn heal(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P) -> bool;

    /// Number of packets that no sender could claim although the queue is empty.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let arrival = send(&q, &mut sender, &intent).map(|_| receiver.next(&Towpath, &q, &cpu));
    /// receiver.done(&Towpath, &q, &cpu, arrival.ok().flatten().expect("it has come"));
    /// assert_eq!(Towpath.packets_in_use(&q, &receiver, &cpu), 0); // none is lost
    /// # }
    /// ```
    fn packets_in_use(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> u64;
}

#[cfg(test)]
mod tests;
