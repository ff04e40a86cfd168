//! Senders and receivers of queues.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_machine::{Heap, Native, Plain};

use super::{
    BoundedQueue, Leased, LinkedWords, ManyHead, ManyToMany, OneHead, OneToOne, QueueGeometry, QueueSide,
    TransferError, WordLine,
};
use crate::mutex::adaptive;
use crate::{Attempt, Deadline, Wait};

/// Kind of a queue: how many may send, and receive.
pub trait QueueKind: 'static {
    /// The name in a type's text.
    const NAME: &'static str;
    /// Head of the queue. All-zero memory is that of an empty one.
    type Head: Send + Sync + 'static;
    /// The algorithm, wherever its parts lie.
    type Queue<'a>: BoundedQueue<Native>;
    /// A type that is `Sync` if threads may share a handle.
    type Sharing: Send;
    /// Maximum number of slots.
    const MOST: usize;

    /// Number of slots for so many values of type `T`, and of words of each.
    fn geometry<T>(capacity: usize) -> QueueGeometry;

    /// Number of lines beside the slots.
    fn ring_lines(geometry: QueueGeometry) -> usize;

    /// The head of an empty queue between threads.
    fn head() -> Self::Head;

    /// The queue of these parts.
    ///
    /// # Panics
    ///
    /// If there are fewer lines than the geometry asks for.
    fn queue<'a>(
        head: &'a Self::Head,
        ring: &'a [WordLine<Native>],
        slots: &'a [WordLine<Native>],
        geometry: QueueGeometry,
    ) -> Self::Queue<'a>;

    /// The queue in a memory with others.
    #[inline(always)]
    fn beside<'a>(queue: Self::Queue<'a>, words: &'a dyn LinkedWords<Native>) -> Self::Queue<'a> {
        let _ = words;
        queue
    }
}

/// Kinds of which several may send.
pub trait SharedSenders: QueueKind {}
/// Kinds of which several may receive.
pub trait SharedReceivers: QueueKind {}

/// Kinds whose values can be leased, and lie in slots of their own: they come in again
/// if their receiver dies.
pub trait Leasing: QueueKind {
    /// The queue, as the algorithm that can lease.
    fn leasing<'q>(queue: Self::Queue<'q>) -> ManyToMany<'q, Native>;
}

/// Many senders, many receivers.
#[derive(Clone, Copy, Debug)]
pub struct Mpmc;

/// Many senders, one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Mpsc;

macro_rules! many_to_many {
    ($kind:ident, $name:literal) => {
        impl QueueKind for $kind {
            const NAME: &'static str = $name;
            type Head = ManyHead<Native>;
            type Queue<'a> = ManyToMany<'a, Native>;
            type Sharing = ();
            const MOST: usize = ManyToMany::<Native>::MOST;

            fn geometry<T>(capacity: usize) -> QueueGeometry {
                ManyToMany::<Native>::geometry::<T>(capacity)
            }
            fn ring_lines(geometry: QueueGeometry) -> usize {
                geometry.ring_lines()
            }
            fn head() -> ManyHead<Native> {
                ManyHead::in_arena(&Heap)
            }
            #[inline]
            fn queue<'a>(
                head: &'a Self::Head,
                ring: &'a [WordLine<Native>],
                slots: &'a [WordLine<Native>],
                geometry: QueueGeometry,
            ) -> Self::Queue<'a> {
                ManyToMany::of(head, ring, slots, geometry)
            }
            #[inline(always)]
            fn beside<'a>(queue: Self::Queue<'a>, words: &'a dyn LinkedWords<Native>) -> Self::Queue<'a> {
                queue.beside(words)
            }
        }
        impl SharedSenders for $kind {}
        impl Leasing for $kind {
            #[inline]
            fn leasing<'q>(queue: Self::Queue<'q>) -> ManyToMany<'q, Native> {
                queue
            }
        }
    };
}

many_to_many!(Mpmc, "mpmc");
many_to_many!(Mpsc, "mpsc");
impl SharedReceivers for Mpmc {}

/// One sender, one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Spsc;

impl QueueKind for Spsc {
    const NAME: &'static str = "spsc";
    type Head = OneHead<Native>;
    type Queue<'a> = OneToOne<'a, Native>;
    type Sharing = Cell<()>;
    const MOST: usize = OneToOne::<Native>::MOST;

    fn geometry<T>(capacity: usize) -> QueueGeometry {
        OneToOne::<Native>::geometry::<T>(capacity)
    }
    fn ring_lines(_geometry: QueueGeometry) -> usize {
        0
    }
    fn head() -> OneHead<Native> {
        OneHead::in_arena(&Heap)
    }
    #[inline]
    fn queue<'a>(
        head: &'a Self::Head,
        _ring: &'a [WordLine<Native>],
        slots: &'a [WordLine<Native>],
        geometry: QueueGeometry,
    ) -> Self::Queue<'a> {
        OneToOne::of(head, slots, geometry)
    }
}

/// Place of a queue, and its callers: threads of one process, or processes of a world.
///
/// # Safety
///
/// The queue that `act` is given stays where it is, and mapped, as long as the venue or a clone of
/// it lives.
#[allow(unsafe_code)]
pub unsafe trait Venue: Clone {
    /// The kind of the queue.
    type Kind: QueueKind;

    /// Gives the queue, the caller, and its way of waiting.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`].
    fn call<R>(
        &self,
        act: impl FnOnce(QueueOf<'_, Self>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError>;
}

/// The queue of a venue.
pub type QueueOf<'a, V> = <<V as Venue>::Kind as QueueKind>::Queue<'a>;

type SharingOf<V> = <<V as Venue>::Kind as QueueKind>::Sharing;

/// A queue between threads.
#[allow(missing_debug_implementations, reason = "nothing to show")]
pub struct Threads<K: QueueKind>(Arc<ThreadParts<K>>);

impl<K: QueueKind> Clone for Threads<K> {
    fn clone(&self) -> Self {
        Threads(self.0.clone())
    }
}

struct ThreadParts<K: QueueKind> {
    head: K::Head,
    ring: Box<[WordLine<Native>]>,
    slots: Box<[WordLine<Native>]>,
    geometry: QueueGeometry,
}

#[allow(unsafe_code)]
// SAFETY: the queue's parts are boxes, and its head, behind the `Arc`.
unsafe impl<K: QueueKind> Venue for Threads<K> {
    type Kind = K;

    #[inline]
    fn call<R>(
        &self,
        act: impl FnOnce(QueueOf<'_, Self>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        let parts = &*self.0;
        let queue = K::queue(&parts.head, &parts.ring, &parts.slots, parts.geometry);
        act(queue, &Native::with_id(0), &adaptive())
    }
}

/// Makes a queue between threads, with its sender and receiver.
///
/// # Panics
///
/// If the capacity is 0, or more than the kind allows.
pub fn between_threads<T: Plain + Copy, K: QueueKind>(
    capacity: usize,
) -> (ValueSender<T, Threads<K>>, ValueReceiver<T, Threads<K>>) {
    let geometry = K::geometry::<T>(capacity);
    let (ring, slots) =
        (WordLine::row(&Heap, K::ring_lines(geometry)), WordLine::row(&Heap, geometry.slot_lines()));
    let venue: Threads<K> = Threads(Arc::new(ThreadParts { head: K::head(), ring, slots, geometry }));
    // A new queue has places.
    let joined = [QueueSide::Sender, QueueSide::Receiver].map(|side| join(&venue, side));
    assert_eq!(joined, [Ok(()); 2]);
    let sender = ValueSender { venue: venue.clone(), values: PhantomData, sharing: PhantomData };
    (sender, ValueReceiver { venue, values: PhantomData, sharing: PhantomData })
}

fn join<V: Venue>(venue: &V, side: QueueSide) -> Result<(), TransferError> {
    venue.call(|queue, cpu, wait| queue.join(cpu, wait, side))
}

/// Tries an operation of a queue once.
fn attempt<V: Venue, R>(
    venue: &V,
    act: impl FnOnce(&QueueOf<'_, V>, &Native, &Wait<'_>, Deadline) -> Result<R, TransferError>,
) -> Attempt<Result<R, TransferError>> {
    let tried = venue.call(|queue, cpu, wait| {
        Ok(Attempt::of(wait, TransferError::is_timeout, |wait, turn| act(&queue, cpu, wait, turn)))
    });
    tried.unwrap_or_else(|error| Attempt::Done(Err(error)))
}

fn leave<V: Venue>(venue: &V, side: QueueSide) {
    let left = venue.call(|queue, cpu, wait| {
        queue.leave(cpu, wait, side);
        Ok(())
    });
    // A process that is not in the world any more is not at the queue either.
    let _ = left;
}

/// Sender of a queue: one of several, if it can be cloned.
#[allow(missing_debug_implementations, reason = "nothing to show")]
pub struct ValueSender<T, V: Venue> {
    pub(super) venue: V,
    values: PhantomData<fn(T)>,
    sharing: PhantomData<SharingOf<V>>,
}

impl<T: Plain + Copy, V: Venue> ValueSender<T, V> {
    /// Makes a sender: for the rooms that lend queues to processes.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`], [`TransferError::Capacity`].
    pub fn new(venue: V) -> Result<Self, TransferError> {
        join(&venue, QueueSide::Sender)?;
        Ok(ValueSender { venue, values: PhantomData, sharing: PhantomData })
    }

    /// Sends a value, when there is room for it.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]. [`TransferError::Disconnected`] and [`TransferError::PeerDied`]
    /// if the last receiver has gone: at once if it was dropped, or else when the queue is full.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), TransferError> {
        self.send_before(value, Deadline::NEVER)
    }

    /// Sends a value if there is room for it; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`ValueSender::send`].
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TransferError> {
        self.send_before(value, Deadline::PAST)
    }

    /// Sends a value; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueSender::send`].
    pub fn send_timeout(&self, value: T, time: Duration) -> Result<(), TransferError> {
        self.send_before(value, Deadline::within(time))
    }

    /// Sends a value; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueSender::send`].
    pub fn send_until(&self, value: T, instant: Instant) -> Result<(), TransferError> {
        self.send_before(value, Deadline::at(instant))
    }

    /// Sends a value if there is room for it; otherwise says where it would sleep: for
    /// event loops.
    pub fn attempt_send(&self, value: &T) -> Attempt<Result<(), TransferError>> {
        attempt(&self.venue, |queue, cpu, wait, turn| queue.send(cpu, wait, value, turn))
    }

    #[inline]
    fn send_before(&self, value: T, deadline: Deadline) -> Result<(), TransferError> {
        self.venue.call(|queue, cpu, wait| queue.send(cpu, wait, &value, deadline))
    }

    /// Sends these values in turn, each when there is room for it. Returns their number.
    ///
    /// # Errors
    ///
    /// [`Unsent`]: how many were sent, the next value, and the reason, as [`ValueSender::send`].
    pub fn send_all(&self, values: impl IntoIterator<Item = T>) -> Result<usize, Unsent<T>> {
        self.all_before(values, Deadline::NEVER)
    }

    /// Sends these values in turn; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send_all`].
    pub fn send_all_timeout(
        &self,
        values: impl IntoIterator<Item = T>,
        time: Duration,
    ) -> Result<usize, Unsent<T>> {
        self.all_before(values, Deadline::within(time))
    }

    fn all_before(
        &self,
        values: impl IntoIterator<Item = T>,
        deadline: Deadline,
    ) -> Result<usize, Unsent<T>> {
        let (mut sent, mut values) = (0, values.into_iter());
        let Some(first) = values.next() else { return Ok(0) };
        let mut value = first;
        let done = self.venue.call(|queue, cpu, wait| {
            loop {
                queue.send(cpu, wait, &value, deadline)?;
                sent += 1;
                match values.next() {
                    Some(next) => value = next,
                    None => return Ok(()),
                }
            }
        });
        done.map_or_else(|error| Err(Unsent { sent, value, error }), |()| Ok(sent))
    }
}

/// Values of a batch that were not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unsent<T> {
    /// Number of values that were sent before.
    pub sent: usize,
    /// The first value that was not sent.
    pub value: T,
    /// The reason.
    pub error: TransferError,
}

impl<T> fmt::Display for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values of the batch were sent; then: {}", self.sent, self.error)
    }
}

impl<T> fmt::Debug for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> std::error::Error for Unsent<T> {}

impl<T> From<Unsent<T>> for TransferError {
    fn from(unsent: Unsent<T>) -> Self {
        unsent.error
    }
}

/// Receiver of a queue: one of several, if it can be cloned.
#[allow(missing_debug_implementations, reason = "nothing to show")]
pub struct ValueReceiver<T, V: Venue> {
    pub(super) venue: V,
    values: PhantomData<fn() -> T>,
    sharing: PhantomData<SharingOf<V>>,
}

impl<T: Plain + Copy, V: Venue> ValueReceiver<T, V> {
    /// Makes a receiver: for the rooms that lend queues to processes.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`], [`TransferError::Capacity`].
    pub fn new(venue: V) -> Result<Self, TransferError> {
        join(&venue, QueueSide::Receiver)?;
        Ok(ValueReceiver { venue, values: PhantomData, sharing: PhantomData })
    }

    /// Receives the oldest value, when there is one.
    ///
    /// # Errors
    ///
    /// After all that was sent: [`TransferError::Closed`]; [`TransferError::Disconnected`] or
    /// [`TransferError::PeerDied`] if the last sender has gone.
    #[inline]
    pub fn receive(&self) -> Result<T, TransferError> {
        self.receive_before(Deadline::NEVER)
    }

    /// Receives the oldest value if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`ValueReceiver::receive`].
    #[inline]
    pub fn try_receive(&self) -> Result<T, TransferError> {
        self.receive_before(Deadline::PAST)
    }

    /// Receives the oldest value; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueReceiver::receive`].
    pub fn receive_timeout(&self, time: Duration) -> Result<T, TransferError> {
        self.receive_before(Deadline::within(time))
    }

    /// Receives the oldest value; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueReceiver::receive`].
    pub fn receive_until(&self, instant: Instant) -> Result<T, TransferError> {
        self.receive_before(Deadline::at(instant))
    }

    /// Receives the oldest value if there is one, or says where it would sleep: for event
    /// loops.
    pub fn attempt_receive(&self) -> Attempt<Result<T, TransferError>> {
        attempt(&self.venue, |queue, cpu, wait, turn| queue.receive(cpu, wait, turn))
    }

    #[inline]
    fn receive_before(&self, deadline: Deadline) -> Result<T, TransferError> {
        self.venue.call(|queue, cpu, wait| queue.receive(cpu, wait, deadline))
    }

    /// Receives values that are there, up to so many, at the vector's end.
    /// Returns their number.
    ///
    /// Waits for the first.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`].
    pub fn receive_many(&self, values: &mut Vec<T>, most: usize) -> Result<usize, TransferError> {
        self.many_before(values, most, Deadline::NEVER)
    }

    /// Receives those that are there; gives up after that time if there are none.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_timeout`].
    pub fn receive_many_timeout(
        &self,
        values: &mut Vec<T>,
        most: usize,
        time: Duration,
    ) -> Result<usize, TransferError> {
        self.many_before(values, most, Deadline::within(time))
    }

    fn many_before(
        &self,
        values: &mut Vec<T>,
        most: usize,
        deadline: Deadline,
    ) -> Result<usize, TransferError> {
        if most == 0 {
            return Ok(0);
        }
        self.venue.call(|queue, cpu, wait| {
            values.push(queue.receive(cpu, wait, deadline)?);
            for number in 1..most {
                // An error is found by the next call.
                let Some(value) = queue.take_if_there(cpu, wait) else { return Ok(number) };
                values.push(value);
            }
            Ok(most)
        })
    }

    /// Values until the queue has come to its end: it was closed, or the last sender has
    /// gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        core::iter::from_fn(|| self.receive().ok())
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> ValueReceiver<T, V> {
    /// Receives the oldest value under a lease: it comes in again, behind those that
    /// wait, if this process dies before the lease is completed, or if the lease is dropped.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`].
    pub fn receive_leased(&self) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::NEVER)
    }

    /// Receives under a lease if there is a value; never waits.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::try_receive`].
    pub fn try_receive_leased(&self) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::PAST)
    }

    /// Receives under a lease; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_timeout`].
    pub fn receive_leased_timeout(&self, time: Duration) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::within(time))
    }

    /// Receives under a lease; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_until`].
    pub fn receive_leased_until(&self, instant: Instant) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::at(instant))
    }

    fn lease_before(&self, deadline: Deadline) -> Result<ValueLease<T, V>, TransferError> {
        let (value, leased) = self
            .venue
            .call(|queue, cpu, wait| V::Kind::leasing(queue).receive_leased(cpu, wait, deadline))?;
        Ok(ValueLease { venue: self.venue.clone(), value, leased: Some(leased) })
    }
}

/// A value that this process has, and that comes in again if it dies. Dropped, it is
/// given back.
#[allow(missing_debug_implementations, reason = "nothing to show")]
#[must_use = "the value comes in again at once"]
pub struct ValueLease<T, V: Venue<Kind: Leasing>> {
    venue: V,
    value: T,
    leased: Option<Leased>,
}

impl<T, V: Venue<Kind: Leasing>> ValueLease<T, V> {
    /// Says that the value is done with: it does not come in again.
    pub fn complete(mut self) {
        self.end(true);
    }

    /// Says that the value is done with, and sends another one when there is room.
    ///
    /// If this process dies, both have happened, or neither. On an error neither has, and the
    /// value comes in again.
    ///
    /// The room must be in another queue, or in another slot: while a queue is full of leases, a
    /// lease of it is not completed into that queue.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send`]; [`TransferError::Apart`] if the queues lie in different worlds.
    pub fn complete_into<U: Plain + Copy, I: Venue<Kind: Leasing>>(
        self,
        into: &ValueSender<U, I>,
        value: U,
    ) -> Result<(), TransferError> {
        self.into_before(into, value, Deadline::NEVER)
    }

    /// Completes into another queue; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueLease::complete_into`].
    pub fn complete_into_timeout<U: Plain + Copy, I: Venue<Kind: Leasing>>(
        self,
        into: &ValueSender<U, I>,
        value: U,
        time: Duration,
    ) -> Result<(), TransferError> {
        self.into_before(into, value, Deadline::within(time))
    }

    fn into_before<U: Plain + Copy, I: Venue<Kind: Leasing>>(
        mut self,
        into: &ValueSender<U, I>,
        value: U,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let Some(leased) = self.leased else { return Ok(()) };
        self.venue.call(|from, cpu, wait| {
            into.venue.call(|to, _, _| {
                let (from, to) = (V::Kind::leasing(from), I::Kind::leasing(to));
                from.complete_into(cpu, wait, leased, &to, &value, deadline)
            })
        })?;
        self.leased = None;
        Ok(())
    }

    fn end(&mut self, completed: bool) {
        let Some(leased) = self.leased.take() else { return };
        let ended = self.venue.call(|queue, cpu, wait| {
            V::Kind::leasing(queue).end(cpu, wait, leased, completed);
            Ok(())
        });
        // To a process outside the world the lease does not belong any more.
        let _ = ended;
    }
}

impl<T, V: Venue<Kind: Leasing>> core::ops::Deref for ValueLease<T, V> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, V: Venue<Kind: Leasing>> Drop for ValueLease<T, V> {
    fn drop(&mut self) {
        self.end(false);
    }
}

macro_rules! either {
    ($handle:ident, $side:ident, $many:ident) => {
        impl<T, V: Venue<Kind: $many>> Clone for $handle<T, V> {
            /// # Panics
            ///
            /// If there are as many in this process as are counted: 65,535 for each of 64 places.
            fn clone(&self) -> Self {
                let joined = join(&self.venue, QueueSide::$side);
                assert!(!matches!(joined, Err(TransferError::Capacity)), "too many handles of a queue");
                $handle { venue: self.venue.clone(), values: PhantomData, sharing: PhantomData }
            }
        }

        impl<T, V: Venue> $handle<T, V> {
            /// Closes the queue: senders are refused, receivers get the values sent
            /// before.
            pub fn close(&self) {
                let closed = self.venue.call(|queue, cpu, wait| {
                    queue.close(cpu, wait);
                    Ok(())
                });
                // A process outside the world closes nothing.
                let _ = closed;
            }

            /// Number of values that wait.
            pub fn len(&self) -> usize {
                self.venue.call(|queue, cpu, _| Ok(queue.len(cpu))).unwrap_or(0)
            }

            /// Returns whether no value waits.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        impl<T, V: Venue> Drop for $handle<T, V> {
            fn drop(&mut self) {
                leave(&self.venue, QueueSide::$side);
            }
        }
    };
}

either!(ValueSender, Sender, SharedSenders);
either!(ValueReceiver, Receiver, SharedReceivers);
