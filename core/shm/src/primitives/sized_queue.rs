//! Queues of values whose size is known when the program runs.
//!
//! For programs in other languages.
//!
//! A value of 8, 16, … bytes is `[u64; N]` to programs that know its type, another one `[u8; N]`.
#![allow(unsafe_code)]

use towpath_derive::OpaqueDebug;
use towpath_machine::Object;
use towpath_sync::Deadline;
use towpath_sync::queues::{
    BoundedQueue, BytesAt, BytesInto, CALLER, Leased, Leasing, Mpmc, Mpsc, QueueKind, QueueObject, Spsc,
    TransferError, ValueReceiver, ValueSender, Venue, WordsAt, WordsInto, lines_of, queue_text,
};

use super::LINE;
use super::queues::{WorldQueue, WorldVenue};
use crate::{Error, World};

/// Kind of a queue, how many may send, and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizedKind {
    /// Many senders, many receivers.
    Mpmc,
    /// Many senders, one receiver.
    Mpsc,
    /// One sender, one receiver.
    Spsc,
}

/// Maximum number of bytes of a value.
const MOST_BYTES: usize = 1 << 16;

/// Text of the type of a value of so many bytes.
fn value_text(bytes: usize) -> String {
    if bytes.is_multiple_of(8) { format!("[u64; {}]", bytes / 8) } else { format!("[u8; {bytes}]") }
}

type Venued<K> = WorldVenue<u64, K>;

/// Queue, sender or receiver of each kind.
#[derive(OpaqueDebug)]
enum OfKind<A, B, C> {
    Mpmc(A),
    Mpsc(B),
    Spsc(C),
}

macro_rules! each {
    ($of:expr, $one:ident => $act:expr) => {
        match $of {
            OfKind::Mpmc($one) => $act,
            OfKind::Mpsc($one) => $act,
            OfKind::Spsc($one) => $act,
        }
    };
}

macro_rules! ends {
    ($of:expr, $join:ident) => {
        match $of {
            OfKind::Mpmc(one) => OfKind::Mpmc(QueueEnd { venue: one.venue(), joined: one.$join()? }),
            OfKind::Mpsc(one) => OfKind::Mpsc(QueueEnd { venue: one.venue(), joined: one.$join()? }),
            OfKind::Spsc(one) => OfKind::Spsc(QueueEnd { venue: one.venue(), joined: one.$join()? }),
        }
    };
}

mod ends;

pub use ends::SizedLease;

type EachQueue = OfKind<WorldQueue<u64, Mpmc>, WorldQueue<u64, Mpsc>, WorldQueue<u64, Spsc>>;

/// Queue of values of a size, of any kind.
#[derive(OpaqueDebug)]
pub struct SizedQueue {
    of: EachQueue,
    bytes: usize,
}

/// A queue with the sender, or receiver, that has joined it.
struct QueueEnd<K: QueueKind, J>
where
    QueueObject<u64, K>: Object,
{
    venue: Venued<K>,
    joined: J,
}

type SendingEnd<K> = QueueEnd<K, ValueSender<u64, Venued<K>>>;
type ReceivingEnd<K> = QueueEnd<K, ValueReceiver<u64, Venued<K>>>;

/// Sender of values of a size.
///
/// At a queue of one sender one thread at a time uses it.
#[derive(OpaqueDebug)]
pub struct SizedSender {
    of: OfKind<SendingEnd<Mpmc>, SendingEnd<Mpsc>, SendingEnd<Spsc>>,
    bytes: usize,
}

/// Receiver of values of a size.
///
/// At a queue of one receiver one thread at a time uses it.
#[derive(OpaqueDebug)]
pub struct SizedReceiver {
    of: OfKind<ReceivingEnd<Mpmc>, ReceivingEnd<Mpsc>, ReceivingEnd<Spsc>>,
    bytes: usize,
}

impl World {
    /// Opens the queue of that name, of values of so many bytes; makes it as
    /// [`World::mpmc`] if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::NumberOutOfRange`]; as [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath_shm::SizedKind;
    /// use towpath_sync::Deadline;
    ///
    /// let jobs = world.sized_queue("jobs", SizedKind::Mpmc, 8, 64)?;
    /// jobs.sender()?.send(b"a number", Deadline::NEVER)?;
    /// let same = world.mpmc::<[u64; 1]>("jobs", 64)?;
    /// assert_eq!(same.receiver()?.receive()?[0].to_ne_bytes(), *b"a number");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sized_queue(
        &self,
        name: &str,
        kind: SizedKind,
        bytes: usize,
        capacity: usize,
    ) -> Result<SizedQueue, Error> {
        if !(1..=MOST_BYTES).contains(&bytes) {
            return Err(Error::NumberOutOfRange {
                of: "bytes of a queue's values",
                wanted: bytes as u64,
                least: 1,
                most: MOST_BYTES as u64,
            });
        }
        let of = match kind {
            SizedKind::Mpmc => OfKind::Mpmc(self.sized(name, bytes, capacity)?),
            SizedKind::Mpsc => OfKind::Mpsc(self.sized(name, bytes, capacity)?),
            SizedKind::Spsc => OfKind::Spsc(self.sized(name, bytes, capacity)?),
        };
        Ok(SizedQueue { of, bytes })
    }

    fn sized<K: QueueKind>(
        &self,
        name: &str,
        bytes: usize,
        capacity: usize,
    ) -> Result<WorldQueue<u64, K>, Error>
    where
        QueueObject<u64, K>: Object,
    {
        self.queue_as(name, &queue_text::<K>(value_text(bytes)), bytes.div_ceil(8), capacity, |_| ())
    }
}

impl SizedQueue {
    /// Number of bytes of such a queue in a world; `None` if there can be none.
    ///
    /// ```
    /// use towpath_shm::{SizedKind, SizedQueue};
    ///
    /// let bytes = SizedQueue::object_bytes(SizedKind::Spsc, 24, 64);
    /// assert!(bytes.is_some_and(|bytes| bytes > 24 * 64));
    /// assert_eq!(SizedQueue::object_bytes(SizedKind::Spsc, 0, 64), None);
    /// ```
    pub fn object_bytes(kind: SizedKind, bytes: usize, capacity: usize) -> Option<u64> {
        fn of<K: QueueKind>(bytes: usize, capacity: usize) -> Option<u64> {
            let is_possible = (1..=MOST_BYTES).contains(&bytes) && (1..=K::MOST).contains(&capacity);
            is_possible.then(|| {
                let lines = lines_of::<K>(K::geometry_of(bytes.div_ceil(8), capacity));
                lines * LINE + size_of::<QueueObject<u64, K>>() as u64
            })
        }
        match kind {
            SizedKind::Mpmc => of::<Mpmc>(bytes, capacity),
            SizedKind::Mpsc => of::<Mpsc>(bytes, capacity),
            SizedKind::Spsc => of::<Spsc>(bytes, capacity),
        }
    }

    /// Makes a sender.
    ///
    /// # Errors
    ///
    /// As [`WorldQueue::sender`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let sender = world.sized_queue("points", SizedKind::Mpsc, 24, 64)?.sender()?;
    /// assert_eq!(sender.bytes(), 24);
    /// sender.send(&[0; 24], Deadline::NEVER)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sender(&self) -> Result<SizedSender, TransferError> {
        Ok(SizedSender { of: ends!(&self.of, sender), bytes: self.bytes })
    }

    /// Makes a receiver.
    ///
    /// # Errors
    ///
    /// As [`WorldQueue::sender`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let points = world.sized_queue("points", SizedKind::Mpsc, 24, 64)?;
    /// let receiver = points.receiver()?;
    /// points.sender()?.send(&[7; 24], Deadline::NEVER)?;
    /// assert_eq!(receiver.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receiver(&self) -> Result<SizedReceiver, TransferError> {
        Ok(SizedReceiver { of: ends!(&self.of, receiver), bytes: self.bytes })
    }
}

impl<K: QueueKind> SendingEnd<K>
where
    QueueObject<u64, K>: Object,
{
    #[inline(always)]
    fn send(&self, message: &[u8], deadline: Deadline) -> Result<(), TransferError> {
        let (queue, wait) = self.venue.late()?;
        let words = message.as_chunks::<8>().0;
        // Usual sizes without a loop.
        if message.len() == 64
            && let Some(words) = words.first_chunk::<8>()
        {
            return queue.send(CALLER, wait, &WordsAt(words), deadline);
        }
        if message.len() == 8
            && let Some(words) = words.first_chunk::<1>()
        {
            return queue.send(CALLER, wait, &WordsAt(words), deadline);
        }
        queue.send(CALLER, wait, &BytesAt(message), deadline)
    }
}

impl<K: QueueKind> ReceivingEnd<K>
where
    QueueObject<u64, K>: Object,
{
    /// # Safety
    ///
    /// As for [`SizedReceiver::receive_into`].
    #[inline(always)]
    unsafe fn receive_into(
        &self,
        to: *mut u8,
        bytes: usize,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let (queue, wait) = self.venue.late()?;
        // SAFETY: as many bytes at `to` are the caller's: its promise.
        unsafe {
            match bytes {
                8 => queue.receive_as(CALLER, wait, &WordsInto::<1>::new(to), deadline),
                64 => queue.receive_as(CALLER, wait, &WordsInto::<8>::new(to), deadline),
                _ => queue.receive_as(CALLER, wait, &BytesInto::new(to, bytes), deadline),
            }
        }
    }
}

impl<K: QueueKind + Leasing> ReceivingEnd<K>
where
    QueueObject<u64, K>: Object,
{
    fn lease(&self, deadline: Deadline) -> Result<SizedLease, TransferError> {
        self.venue.call(|queue, cpu, wait| {
            let queue = K::leasing(queue);
            let leased = queue.lease_in_place(cpu, wait, deadline)?;
            Ok(SizedLease { at: queue.leased_value(&leased), words: leased.into_words() })
        })
    }

    fn end(&self, words: [u64; 2], completed: bool) -> Result<(), TransferError> {
        self.venue.call(|queue, cpu, wait| {
            K::leasing(queue).end(cpu, wait, Leased::from_words(words), completed);
            Ok(())
        })
    }

    fn end_into<I: QueueKind + Leasing>(
        &self,
        words: [u64; 2],
        into: &SendingEnd<I>,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<(), TransferError>
    where
        QueueObject<u64, I>: Object,
    {
        self.venue.call(|from, cpu, wait| {
            into.venue.call(|to, _, _| {
                let (from, to) = (K::leasing(from), I::leasing(to));
                from.complete_into(cpu, wait, Leased::from_words(words), &to, &BytesAt(message), deadline)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::world_of_two;

    #[test]
    fn values_of_all_sizes_and_kinds_come_whole() {
        let world = world_of_two();
        for bytes in [1, 7, 8, 13, 16, 56, 60, 64, 100, 4096] {
            for kind in [SizedKind::Mpmc, SizedKind::Mpsc, SizedKind::Spsc] {
                let name = format!("{kind:?}-{bytes}");
                let queue = world.sized_queue(&name, kind, bytes, 2).unwrap();
                let (sender, receiver) = (queue.sender().unwrap(), queue.receiver().unwrap());
                for round in 0..3u8 {
                    let sent: Vec<_> = (0..bytes).map(|i| i as u8 ^ round).collect();
                    sender.send(&sent, Deadline::PAST).unwrap();
                    assert_eq!(receiver.len(), 1);
                    let mut received = vec![0xaa; bytes + 1];
                    // SAFETY: as many bytes, of this test alone.
                    unsafe { receiver.receive_into(received.as_mut_ptr(), Deadline::PAST) }.unwrap();
                    assert_eq!(received.pop(), Some(0xaa), "nothing is written behind it");
                    assert_eq!(received, sent);
                }
                receiver.close();
                assert_eq!(sender.send(&vec![0; bytes], Deadline::PAST), Err(TransferError::Closed));
                let other = world.sized_queue(&name, kind, bytes + 1, 2);
                assert!(matches!(other, Err(Error::OtherType { .. })));
            }
        }
    }

    #[test]
    fn small_queues_have_as_many_slots_as_asked_for() {
        let world = world_of_two();
        for kind in [SizedKind::Mpmc, SizedKind::Mpsc, SizedKind::Spsc] {
            for capacity in [1, 2, 4, 8, 16] {
                let name = format!("{kind:?}-{capacity}");
                let first = world.sized_queue(&name, kind, 8, capacity).unwrap();
                // The one that is there keeps its size.
                let second = world.sized_queue(&name, kind, 8, 1).unwrap();
                for queue in [first, second] {
                    let (sender, receiver) = (queue.sender().unwrap(), queue.receiver().unwrap());
                    let sent = (0..32).take_while(|_| sender.send(&[7; 8], Deadline::PAST).is_ok()).count();
                    assert_eq!((sent, receiver.len()), (capacity, capacity), "{name}");
                    let mut into = [0u8; 8];
                    // SAFETY: as many bytes, of this test alone.
                    while unsafe { receiver.receive_into(into.as_mut_ptr(), Deadline::PAST) }.is_ok() {}
                }
            }
        }
    }

    #[test]
    fn typed_and_sized_queues_are_the_same() {
        let world = world_of_two();
        let typed = world.spsc::<[u8; 11]>("q", 4).unwrap();
        let sized = world.sized_queue("q", SizedKind::Spsc, 11, 4).unwrap();
        typed.sender().unwrap().send(*b"eleven-byte").unwrap();
        let mut into = [0; 11];
        // SAFETY: as many bytes, of this test alone.
        unsafe { sized.receiver().unwrap().receive_into(into.as_mut_ptr(), Deadline::PAST) }.unwrap();
        assert_eq!(into, *b"eleven-byte");
    }

    #[test]
    fn leased_values_come_again_or_go_on() {
        let world = world_of_two();
        let jobs = world.sized_queue("jobs", SizedKind::Mpmc, 10, 4).unwrap();
        let done = world.sized_queue("done", SizedKind::Mpsc, 3, 4).unwrap();
        let (sender, receiver) = (jobs.sender().unwrap(), jobs.receiver().unwrap());
        let (results, results_receiver) = (done.sender().unwrap(), done.receiver().unwrap());
        sender.send(b"0123456789", Deadline::PAST).unwrap();
        let lease = receiver.lease(Deadline::PAST).unwrap().unwrap();
        // SAFETY: a leased value of 10 bytes, which no process writes.
        assert_eq!(unsafe { core::slice::from_raw_parts(lease.at, 10) }, b"0123456789");
        receiver.end(lease.words, false).unwrap().unwrap();
        let lease = receiver.lease(Deadline::PAST).unwrap().unwrap();
        receiver.end_into(lease.words, &results, b"yes", Deadline::PAST).unwrap().unwrap();
        receiver.end(lease.words, false).unwrap().unwrap();
        assert_eq!((receiver.len(), results_receiver.len()), (0, 1), "a lease ends once");
        receiver.end([u64::MAX, 7], true).unwrap().unwrap();
        let lease = results_receiver.lease(Deadline::PAST).unwrap().unwrap();
        results_receiver.end(lease.words, true).unwrap().unwrap();
        assert!(results_receiver.is_empty());
        let single = world.sized_queue("one", SizedKind::Spsc, 3, 4).unwrap();
        assert!(single.receiver().unwrap().lease(Deadline::PAST).is_none());
    }
}
