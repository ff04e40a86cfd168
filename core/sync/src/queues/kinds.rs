//! Kinds of queues, and their places: in a process, or elsewhere.

use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Heap, Native, OwnLine};

use super::{
    BoundedQueue, CellQueue, LinkedWords, ManyHead, ManyToMany, OneHead, OneToOne, QueueGeometry,
    RingPerSender, RingsHead, TransferError, WordLine, value,
};
use crate::{LateWait, Surroundings, Wait, Waiting, is_oversubscribed};

mod private {
    /// A kind of this room.
    pub trait KindOfThisRoom {}
    impl KindOfThisRoom for super::Mpmc {}
    impl KindOfThisRoom for super::Mpsc {}
    impl KindOfThisRoom for super::Spsc {}
    impl KindOfThisRoom for super::PerSender {}
}

/// Kind of a queue: how many may send, and receive.
///
/// The four of this room: values of any type lie safely in cells that these give out alone.
pub trait QueueKind: private::KindOfThisRoom + 'static {
    /// The name in a type's text.
    const NAME: &'static str;
    /// Head of the queue. All-zero memory is that of an empty one.
    type Head: Send + Sync + 'static;
    /// The algorithm, wherever its parts lie.
    type Queue<'a>: CellQueue<Native> + BoundedQueue<Native, Seat = Self::Seat>;
    /// Place of an end in the queue, where it has one.
    type Seat: Copy + Send + Sync;
    /// A type that is `Sync` if threads may share a handle.
    type Sharing: Send;
    /// Note of the process that has made an end.
    ///
    /// `u64` where a side has one end, or an end writes without a look at the slot, so that a
    /// forked child must not use one of its parent; else `()`.
    type Maker: MakerNote;
    /// Maximum number of slots.
    const MOST: usize;

    /// Number of slots for so many values of type `T`, and of words of each.
    ///
    /// ```
    /// use towpath_sync::queues::{QueueKind, Spsc};
    ///
    /// assert_eq!(Spsc::geometry::<[u64; 4]>(10).capacity(), 16);
    /// ```
    fn geometry<T>(capacity: usize) -> QueueGeometry {
        Self::geometry_of(value::words::<T>(), capacity)
    }

    /// Number of slots for so many values of so many words, and of words of each.
    ///
    /// ```
    /// use towpath_sync::queues::{Mpmc, QueueKind};
    ///
    /// assert_eq!(Mpmc::geometry_of(4, 10), Mpmc::geometry::<[u64; 4]>(10));
    /// ```
    fn geometry_of(words: usize, capacity: usize) -> QueueGeometry;

    /// Number of lines beside the slots.
    ///
    /// ```
    /// use towpath_sync::queues::{Mpmc, QueueKind, Spsc};
    ///
    /// assert_eq!(Spsc::ring_lines(Spsc::geometry::<u64>(16)), 0); // has slots alone
    /// assert_eq!(Mpmc::ring_lines(Mpmc::geometry::<u64>(16)), 4);
    /// ```
    fn ring_lines(geometry: QueueGeometry) -> usize;

    /// The head of an empty queue between threads.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::{BoundedQueue, Mpmc, QueueKind, WordLine};
    /// let geometry = Mpmc::geometry::<u64>(16);
    /// let ring = WordLine::row(&Heap, Mpmc::ring_lines(geometry));
    /// let (head, slots) = (Mpmc::head(), WordLine::row(&Heap, geometry.slot_lines()));
    /// assert!(Mpmc::queue(&head, &ring, &slots, geometry).is_empty(&Native::current()));
    /// ```
    fn head() -> Self::Head;

    /// Word of the head for the number of slots.
    ///
    /// ```
    /// # use std::sync::atomic::Ordering::Relaxed;
    /// # use towpath_sync::queues::{QueueKind, Spsc};
    /// let head = Spsc::head();
    /// Spsc::slots(&head).store(16, Relaxed); // for processes that map it later
    /// assert_eq!(Spsc::slots(&head).load(Relaxed), 16);
    /// ```
    fn slots(head: &Self::Head) -> &AtomicU64;

    /// The queue of these parts.
    ///
    /// # Panics
    ///
    /// If there are fewer lines than the geometry asks for.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # use towpath_sync::queues::{BoundedQueue, QueueKind, QueueSide};
    /// # use towpath_sync::queues::{Spsc, TransferError, WordLine};
    /// let (cpu, geometry, head) = (Native::current(), Spsc::geometry::<u64>(16), Spsc::head());
    /// let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// let queue = Spsc::queue(&head, &[], &slots, geometry);
    /// queue.join(&cpu, &Spinning, QueueSide::Receiver)?;
    /// queue.join(&cpu, &Spinning, QueueSide::Sender)?;
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// assert_eq!(queue.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
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
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # use towpath_sync::queues::{BoundedQueue, Leasing, Mpsc, QueueKind};
    /// # use towpath_sync::queues::{QueueSide, TransferError, WordLine};
    /// # let (cpu, geometry, head) = (Native::current(), Mpsc::geometry::<u64>(4), Mpsc::head());
    /// # let ring = WordLine::row(&Heap, Mpsc::ring_lines(geometry));
    /// # let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// let queue = Mpsc::leasing(Mpsc::queue(&head, &ring, &slots, geometry));
    /// # queue.join(&cpu, &Spinning, QueueSide::Receiver)?;
    /// # queue.join(&cpu, &Spinning, QueueSide::Sender)?;
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let (job, lease) = queue.receive_leased::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.complete(&cpu, &Spinning, lease);
    /// assert_eq!(job, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    fn leasing<'q>(queue: Self::Queue<'q>) -> ManyToMany<'q, Native>;
}

/// Many senders, many receivers.
#[derive(Clone, Copy, Debug)]
pub struct Mpmc;

/// Many senders, one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Mpsc;

macro_rules! many_to_many {
    ($kind:ident, $name:literal, $maker:ty, $of:expr) => {
        impl QueueKind for $kind {
            const NAME: &'static str = $name;
            type Head = ManyHead<Native>;
            type Queue<'a> = ManyToMany<'a, Native>;
            type Seat = ();
            type Sharing = ();
            type Maker = $maker;
            const MOST: usize = ManyToMany::<Native>::MOST;

            fn geometry_of(words: usize, capacity: usize) -> QueueGeometry {
                ManyToMany::<Native>::geometry_of(words, capacity)
            }
            fn ring_lines(geometry: QueueGeometry) -> usize {
                geometry.ring_lines()
            }
            fn head() -> ManyHead<Native> {
                ManyHead::in_arena(&Heap)
            }
            fn slots(head: &Self::Head) -> &AtomicU64 {
                head.slots()
            }
            #[inline]
            fn queue<'a>(
                head: &'a Self::Head,
                ring: &'a [WordLine<Native>],
                slots: &'a [WordLine<Native>],
                geometry: QueueGeometry,
            ) -> Self::Queue<'a> {
                $of(ManyToMany::of(head, ring, slots, geometry))
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

many_to_many!(Mpmc, "mpmc", (), core::convert::identity);
many_to_many!(Mpsc, "mpsc", u64, ManyToMany::of_one_receiver);
impl SharedReceivers for Mpmc {}

/// One sender, one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Spsc;

impl QueueKind for Spsc {
    const NAME: &'static str = "spsc";
    type Head = OneHead<Native>;
    type Queue<'a> = OneToOne<'a, Native>;
    type Seat = ();
    type Sharing = Cell<()>;
    type Maker = u64;
    const MOST: usize = OneToOne::<Native>::MOST;

    fn geometry_of(words: usize, capacity: usize) -> QueueGeometry {
        OneToOne::<Native>::geometry_of(words, capacity)
    }
    fn ring_lines(_geometry: QueueGeometry) -> usize {
        0
    }
    fn head() -> OneHead<Native> {
        OneHead::in_arena(&Heap)
    }
    fn slots(head: &Self::Head) -> &AtomicU64 {
        head.slots()
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

/// Many senders, each with a ring of its own, and one receiver.
#[derive(Clone, Copy, Debug)]
pub struct PerSender;

impl QueueKind for PerSender {
    const NAME: &'static str = "per_sender";
    type Head = RingsHead<Native>;
    type Queue<'a> = RingPerSender<'a, Native>;
    type Seat = u32;
    type Sharing = Cell<()>;
    type Maker = u64;
    const MOST: usize = RingPerSender::<Native>::MOST;

    fn geometry_of(words: usize, capacity: usize) -> QueueGeometry {
        RingPerSender::<Native>::geometry_of(words, capacity)
    }
    fn ring_lines(geometry: QueueGeometry) -> usize {
        geometry.rings_lines()
    }
    fn head() -> RingsHead<Native> {
        let head = RingsHead::in_arena(&Heap);
        head.keep_to_threads(&Native::with_id(0));
        head
    }
    fn slots(head: &Self::Head) -> &AtomicU64 {
        head.slots()
    }
    #[inline]
    fn queue<'a>(
        head: &'a Self::Head,
        ring: &'a [WordLine<Native>],
        slots: &'a [WordLine<Native>],
        geometry: QueueGeometry,
    ) -> Self::Queue<'a> {
        RingPerSender::of(head, ring, slots, geometry)
    }
}
impl SharedSenders for PerSender {}

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
    /// Way of waiting that is made by those that wait.
    type Late: Waiting<Native>;

    /// The queue, and a way of waiting for calls that seldom wait.
    ///
    /// # Errors
    ///
    /// As [`Venue::call`].
    fn late(&self) -> Result<(QueueOf<'_, Self>, &Self::Late), TransferError>;

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

/// Note of the process that has made an end of a queue between processes.
pub trait MakerNote: Copy + Send + Sync + 'static {
    /// Notes a process's identity.
    ///
    /// ```
    /// use towpath_sync::queues::MakerNote;
    ///
    /// assert_eq!(u64::note(7).noted(), Some(7));
    /// ```
    fn note(identity: u64) -> Self;
    /// Returns the identity, if it was noted.
    ///
    /// ```
    /// use towpath_sync::queues::MakerNote;
    ///
    /// <() as MakerNote>::note(7);
    /// assert_eq!(().noted(), None); // for ends that any process may use
    /// ```
    fn noted(self) -> Option<u64>;
}

impl MakerNote for () {
    #[inline(always)]
    fn note(_identity: u64) {}
    #[inline(always)]
    fn noted(self) -> Option<u64> {
        None
    }
}

impl MakerNote for u64 {
    #[inline(always)]
    fn note(identity: u64) -> u64 {
        identity
    }
    #[inline(always)]
    fn noted(self) -> Option<u64> {
        Some(self)
    }
}

/// The queue of a venue.
pub type QueueOf<'a, V> = <<V as Venue>::Kind as QueueKind>::Queue<'a>;

pub(super) type SeatOf<V> = <<V as Venue>::Kind as QueueKind>::Seat;
pub(super) type SharingOf<V> = <<V as Venue>::Kind as QueueKind>::Sharing;

/// A queue between threads.
#[derive(OpaqueDebug)]
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
    /// Number of threads that sleep.
    asleep: OwnLine<AtomicU64>,
}

#[allow(unsafe_code)]
// SAFETY: the queue's parts are boxes, and its head, behind the `Arc`.
unsafe impl<K: QueueKind> Venue for Threads<K> {
    type Kind = K;
    type Late = LateWait<Self>;

    #[inline(always)]
    fn late(&self) -> Result<(K::Queue<'_>, &LateWait<Self>), TransferError> {
        Ok((self.queue(), LateWait::of(self)))
    }

    #[inline]
    fn call<R>(
        &self,
        act: impl FnOnce(QueueOf<'_, Self>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        act(self.queue(), CALLER, &Wait::adaptive(self))
    }
}

/// Caller of a queue, to which the number of a processor is of no use.
///
/// For callers of [`Venue::late`].
pub const CALLER: &Native = &Native::with_id(0);

impl<K: QueueKind> Surroundings for Threads<K> {
    fn oversubscribed(&self) -> bool {
        // One for each handle: about the number of threads. Relaxed: a hint, which orders nothing.
        let threads = Arc::strong_count(&self.0) as u64;
        is_oversubscribed(threads.saturating_sub(self.0.asleep.load(Relaxed)), Native::cores())
    }

    fn asleep(&self, asleep: bool) {
        // Relaxed, both: a hint, which orders nothing.
        if asleep {
            self.0.asleep.fetch_add(1, Relaxed);
        } else {
            self.0.asleep.fetch_sub(1, Relaxed);
        }
    }
}

impl<K: QueueKind> Threads<K> {
    #[inline(always)]
    fn queue(&self) -> K::Queue<'_> {
        let parts = &*self.0;
        K::queue(&parts.head, &parts.ring, &parts.slots, parts.geometry)
    }

    /// Number of cells beside the queue.
    pub(super) fn cells(&self) -> usize {
        <K::Queue<'static> as CellQueue<Native>>::cells(self.0.geometry)
    }

    /// Place of a new queue for values of type `T`.
    pub(super) fn new<T>(capacity: usize) -> Self {
        let geometry = K::geometry::<T>(capacity);
        let (ring, slots) =
            (WordLine::row(&Heap, K::ring_lines(geometry)), WordLine::row(&Heap, geometry.slot_lines()));
        Threads(Arc::new(ThreadParts { head: K::head(), ring, slots, geometry, asleep: OwnLine::default() }))
    }
}
