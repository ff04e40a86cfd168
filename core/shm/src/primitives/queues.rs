//! Queues of values in a world, by name.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use towpath_derive::OpaqueDebug;
use towpath_machine::{Native, Object, Plain, TypeText};
use towpath_sync::queues::{
    CALLER, LinkedWords, MakerNote, Mpmc, Mpsc, PerSender, QueueGeometry, QueueKind, QueueObject, QueueOf,
    Spsc, TransferError, ValueReceiver, ValueSender, Venue, WordLine, geometry_of_words_in, lines_of,
};
use towpath_sync::{LateWait, Wait};

use super::{LINE, check_maker};
use crate::inner::Inner;
use crate::participant::ParticipantId;
use crate::{Error, Shared, World};

/// Queue of values in a world: makes senders and receivers.
#[derive(OpaqueDebug)]
pub struct WorldQueue<T, K>(WorldVenue<T, K>)
where
    K: QueueKind,
    QueueObject<T, K>: Object;

/// Place of a queue in a world.
#[derive(OpaqueDebug)]
pub struct WorldVenue<T, K>
where
    K: QueueKind,
    QueueObject<T, K>: Object,
{
    object: Shared<QueueObject<T, K>>,
    geometry: QueueGeometry,
    /// Number of lines of the slots, by the geometry.
    slot_lines: u32,
    /// Participant that has made the end, where it matters.
    maker: K::Maker,
}

impl<T, K> Clone for WorldVenue<T, K>
where
    K: QueueKind,
    QueueObject<T, K>: Object,
{
    fn clone(&self) -> Self {
        WorldVenue { object: self.object.clone(), ..*self }
    }
}

impl LinkedWords<Native> for World {
    fn memory(&self) -> usize {
        self.inner().segment.heap_words().as_ptr().addr()
    }

    fn place_of(&self, word: &AtomicU64) -> u64 {
        let bytes = core::ptr::from_ref(word).addr().wrapping_sub(self.memory());
        bytes as u64 / 8
    }

    fn word_at(&self, place: u64) -> Option<&AtomicU64> {
        self.inner().segment.heap_words().get(usize::try_from(place).ok()?)
    }
}

// SAFETY: the object and the lines behind it lie in the world's segment, which stays mapped where
// it is as long as a handle of the object lives.
unsafe impl<T, K> Venue for WorldVenue<T, K>
where
    K: QueueKind,
    QueueObject<T, K>: Object,
{
    type Kind = K;
    type Late = LateWait<Inner>;

    #[inline(always)]
    fn late(&self) -> Result<(QueueOf<'_, Self>, &LateWait<Inner>), TransferError> {
        let (queue, world) = self.queue()?;
        Ok((queue, LateWait::of(world.inner())))
    }

    #[inline]
    fn call<R>(
        &self,
        act: impl FnOnce(QueueOf<'_, Self>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        let (queue, world) = self.queue()?;
        act(queue, CALLER, &world.adaptive_wait())
    }
}

impl<T, K> WorldVenue<T, K>
where
    K: QueueKind,
    QueueObject<T, K>: Object,
{
    #[inline(always)]
    fn queue(&self) -> Result<(QueueOf<'_, Self>, &World), TransferError> {
        let world = self.object.world();
        let me = world.entered().ok_or(TransferError::NotEntered)?;
        check_maker(self.maker.noted(), me)?;
        let object = self.object.as_ptr();
        let (ring_lines, slot_lines) = (K::ring_lines(self.geometry), self.slot_lines as usize);
        // SAFETY: the object and the lines behind it, as many as its geometry says, are mapped as
        // long as the handle lives (`World::object` checked them, `queue` derived the geometry from
        // their number), and aligned, since the object's size is a multiple of its alignment, a
        // line's; any bits are both, whose words are atomic.
        let (head, ring, slots) = unsafe {
            let lines = object.add(1).cast::<WordLine<Native>>();
            (
                &(*object.as_ptr()).head,
                core::slice::from_raw_parts(lines.as_ptr(), ring_lines),
                core::slice::from_raw_parts(lines.add(ring_lines).as_ptr(), slot_lines),
            )
        };
        Ok((K::beside(K::queue(head, ring, slots, self.geometry), world), world))
    }

    /// The venue of an end that this process makes.
    fn of_caller(&self) -> Self {
        let me = self.object.world().entered().map_or(0, ParticipantId::to_bits);
        WorldVenue { maker: K::Maker::note(me), ..self.clone() }
    }
}

impl<T, K> WorldQueue<T, K>
where
    T: Plain + Copy,
    K: QueueKind,
    QueueObject<T, K>: Object,
{
    /// Makes a sender. When the last one is dropped, or dies, receivers learn of it.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`]; [`TransferError::Capacity`]; [`TransferError::Taken`] where
    /// there may be one only.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let jobs = world.mpmc::<u64>("jobs", 64)?;
    /// jobs.sender()?.send(7)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sender(&self) -> Result<ValueSender<T, WorldVenue<T, K>>, TransferError> {
        ValueSender::new(self.0.of_caller())
    }

    /// Makes a receiver. When the last one is dropped, or dies, senders learn of it.
    ///
    /// # Errors
    ///
    /// As [`WorldQueue::sender`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let jobs = world.mpmc::<u64>("jobs", 64)?;
    /// assert!(jobs.receiver()?.try_receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receiver(&self) -> Result<ValueReceiver<T, WorldVenue<T, K>>, TransferError> {
        ValueReceiver::new(self.0.of_caller())
    }

    /// Head of the queue.
    pub(super) fn head(&self) -> &K::Head {
        head_of(&self.0.object)
    }

    pub(super) fn venue(&self) -> WorldVenue<T, K> {
        self.0.of_caller()
    }

    /// Number of values for which it has room.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.mpmc::<u64>("jobs", 60)?.capacity(), 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.0.geometry.capacity()
    }

    /// The world in which the queue lies.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.mpmc::<u64>("jobs", 64)?.world().rank(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn world(&self) -> &World {
        self.0.object.world()
    }
}

impl World {
    /// Opens the queue of that name, of many senders and many receivers; makes it with
    /// room for at least so many values ([`WorldQueue::capacity`]) if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::NumberOutOfRange`]; as [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let jobs = world.mpmc::<[u32; 4]>("jobs", 64)?;
    /// jobs.sender()?.send([1, 2, 3, 4])?;
    /// assert_eq!(jobs.receiver()?.receive()?, [1, 2, 3, 4]); // usually in another process
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mpmc<T: Plain + Copy>(&self, name: &str, capacity: usize) -> Result<WorldQueue<T, Mpmc>, Error> {
        self.queue(name, capacity, |_| ())
    }

    /// Opens the queue of that name, of many senders and one receiver; makes it as
    /// [`World::mpmc`] if there is none. Another process may receive when the receiver has gone.
    ///
    /// # Errors
    ///
    /// As [`World::mpmc`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let results = world.mpsc::<f64>("results", 64)?;
    /// results.sender()?.send(0.5)?;
    /// let receiver = results.receiver()?;
    /// assert!(results.receiver().is_err(), "one only");
    /// assert_eq!(receiver.receive()?, 0.5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mpsc<T: Plain + Copy>(&self, name: &str, capacity: usize) -> Result<WorldQueue<T, Mpsc>, Error> {
        self.queue(name, capacity, |_| ())
    }

    /// Opens the queue of that name, of one sender and one receiver; makes it as
    /// [`World::mpmc`] if there is none. Another process may take the place of one that has gone.
    ///
    /// # Errors
    ///
    /// As [`World::mpmc`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let samples = world.spsc::<u64>("samples", 1024)?;
    /// let sender = samples.sender()?;
    /// assert!(samples.sender().is_err(), "one only");
    /// sender.send(7)?;
    /// assert_eq!(samples.receiver()?.receive()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spsc<T: Plain + Copy>(&self, name: &str, capacity: usize) -> Result<WorldQueue<T, Spsc>, Error> {
        self.queue(name, capacity, |_| ())
    }

    /// Opens the queue of that name, of senders with a ring each and one receiver.
    ///
    /// Makes it with room for at least so many values of each sender if there is none. Values of
    /// one sender come in order, those of different ones in any. There may be
    /// [`RINGS`](towpath_sync::queues::RINGS) senders, clones included; the memory is for as many.
    /// Another process may take the place of one that has gone. The ends of a parent refuse its
    /// forked child with [`TransferError::Taken`], when that has entered: it makes its own.
    ///
    /// # Errors
    ///
    /// As [`World::mpmc`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let samples = world.per_sender::<u64>("samples", 64)?;
    /// let (first, second) = (samples.sender()?, samples.sender()?);
    /// first.send(7)?;
    /// second.send(8)?;
    /// let receiver = samples.receiver()?;
    /// assert_eq!(receiver.receive()? + receiver.receive()?, 15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn per_sender<T: Plain + Copy>(
        &self,
        name: &str,
        capacity: usize,
    ) -> Result<WorldQueue<T, PerSender>, Error> {
        self.queue(name, capacity, |_| ())
    }

    /// Opens a queue; `prepare` prepares a new one.
    pub(super) fn queue<T: Plain + Copy, K: QueueKind>(
        &self,
        name: &str,
        capacity: usize,
        prepare: impl FnOnce(&K::Head),
    ) -> Result<WorldQueue<T, K>, Error>
    where
        QueueObject<T, K>: Object,
    {
        let text = TypeText::<QueueObject<T, K>>::default().to_string();
        self.queue_as(name, &text, size_of::<T>().div_ceil(8), capacity, prepare)
    }

    /// Opens a queue of values of so many words, of a type with that text, of which the
    /// result says nothing.
    pub(super) fn queue_as<T, K: QueueKind>(
        &self,
        name: &str,
        text: &str,
        words: usize,
        capacity: usize,
        prepare: impl FnOnce(&K::Head),
    ) -> Result<WorldQueue<T, K>, Error>
    where
        T: Plain + Copy,
        QueueObject<T, K>: Object,
    {
        if !(1..=K::MOST).contains(&capacity) {
            return Err(Error::NumberOutOfRange {
                of: "slots of a queue",
                wanted: capacity as u64,
                least: 1,
                most: K::MOST as u64,
            });
        }
        let of_bytes = |bytes: u64| {
            let lines = bytes.is_multiple_of(LINE).then_some(bytes / LINE);
            lines.and_then(|lines| geometry_of_words_in::<K>(words, lines))
        };
        let asked = K::geometry_of(words, capacity);
        let wanted = lines_of::<K>(asked).saturating_mul(LINE);
        let is_one = |bytes| of_bytes(bytes).is_some();
        let made = |object: &Shared<QueueObject<T, K>>| {
            let head = head_of(object);
            // Relaxed: before others know the queue.
            K::slots(head).store(asked.capacity() as u64, Ordering::Relaxed);
            prepare(head);
        };
        let (object, bytes) = self.object_as(name, text, wanted, is_one, made)?;
        // The number of bytes was accepted, or is the wanted one.
        let most = of_bytes(bytes).unwrap_or(asked);
        // Relaxed: see above.
        let noted = K::slots(head_of(&object)).load(Ordering::Relaxed) as usize;
        let fewer = (1..most.capacity()).contains(&noted).then(|| K::geometry_of(words, noted));
        let is_possible = |fewer: &QueueGeometry| lines_of::<K>(*fewer) == bytes / LINE;
        let geometry = fewer.filter(is_possible).unwrap_or(most);
        let slot_lines = geometry.slot_lines();
        let slot_lines = u32::try_from(slot_lines).map_err(|_| Error::NumberOutOfRange {
            of: "lines of a queue's slots",
            wanted: slot_lines as u64,
            least: 1,
            most: u64::from(u32::MAX),
        })?;
        Ok(WorldQueue(WorldVenue { object, geometry, slot_lines, maker: K::Maker::note(0) }))
    }
}

fn head_of<T, K: QueueKind>(object: &Shared<QueueObject<T, K>>) -> &K::Head
where
    QueueObject<T, K>: Object,
{
    // SAFETY: mapped as long as the handle lives, and aligned; any bits are a head, whose words
    // are atomic.
    unsafe { &(*object.as_ptr().as_ptr()).head }
}
