//! Receiving: messages that have arrived are delivered, their packets and blocks freed.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;

use towpath_machine::Processor;
use towpath_sync::WaitForSpace;

use crate::claim::Claim;
use crate::packet::Header;
use crate::queue::{Arrival, Queue, Receiver};

/// The limits of a poll's quota.
const QUOTA: (usize, usize) = (16, 512);

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
