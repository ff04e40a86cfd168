//! Operations that can be tried again and again: those of queues, rings, events,
//! semaphores and barriers.

use towpath_derive::OpaqueDebug;
use towpath_machine::Plain;
use towpath_shm::{SemaphorePermit, Shared};
use towpath_sync::queues::{
    BroadcastMessage, BroadcastReader, BroadcastVenue, TransferError, ValueReceiver, ValueSender, Venue,
};
use towpath_sync::robust::{Barrier, EpisodeError, Event, Semaphore, ThreadPermit};
use towpath_sync::{Attempt, LockError, TimedOut};

use crate::repeating::{Repeating, until};

/// Operation that can be tried again and again until it is done.
pub trait AsyncOperation {
    /// Result of the operation when it is done.
    type Output;

    /// Tries it once; never blocks.
    ///
    /// ```
    /// use towpath_readiness::{AsyncOperation, ValueReception};
    /// use towpath_sync::Attempt;
    /// use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    ///
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16); // towpath::mpmc::queue
    /// let mut reception = ValueReception(&receiver);
    /// assert!(matches!(reception.attempt(), Attempt::Asleep(..))); // says where it would sleep
    /// sender.send(7)?;
    /// assert!(matches!(reception.attempt(), Attempt::Done(Ok(7))));
    /// # Ok::<(), TransferError>(())
    /// ```
    fn attempt(&mut self) -> Attempt<Self::Output>;
}

/// Reception of a value.
#[derive(OpaqueDebug)]
pub struct ValueReception<'a, T, V: Venue>(pub &'a ValueReceiver<T, V>);

impl<T: Plain + Copy, V: Venue> AsyncOperation for ValueReception<'_, T, V> {
    type Output = Result<T, TransferError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_receive()
    }
}

/// Sending of a value.
#[derive(OpaqueDebug)]
pub struct ValueSending<'a, T, V: Venue>(pub &'a ValueSender<T, V>, pub T);

impl<T: Plain + Copy, V: Venue> AsyncOperation for ValueSending<'_, T, V> {
    type Output = Result<(), TransferError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_send(&self.1)
    }
}

/// Arrival of a message at a reader of a ring; returns how many the reader missed before
/// it. [`BroadcastReader::last`] has the message.
#[derive(OpaqueDebug)]
pub struct NextMessage<'a, V: BroadcastVenue>(pub &'a mut BroadcastReader<V>);

impl<V: BroadcastVenue> AsyncOperation for NextMessage<'_, V> {
    type Output = Result<u64, TransferError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_receive()
    }
}

/// Wait for an event that has been set since the wait began, or is set.
#[derive(Clone, Copy, Debug)]
pub struct EventSetting<'a, E> {
    event: &'a E,
    since: u64,
}

/// Wait for a permit of a semaphore.
#[derive(Clone, Copy, Debug)]
pub struct Acquisition<'a, S>(pub &'a S);

/// Wait for all participants of a barrier.
///
/// The thread that tries it first is one of them, and alone tries it again.
#[derive(Clone, Copy, Debug)]
pub struct BarrierEpisode<'a>(pub &'a Shared<Barrier>);

impl<'a> EventSetting<'a, Event> {
    /// Wait for an event between threads.
    ///
    /// ```
    /// use towpath_readiness::{AsyncOperation, EventSetting};
    /// use towpath_sync::{Attempt, robust::Event};
    ///
    /// let event = Event::default();
    /// let mut wait = EventSetting::new(&event);
    /// event.set();
    /// assert!(matches!(wait.attempt(), Attempt::Done(Ok(()))));
    /// ```
    pub fn new(event: &'a Event) -> Self {
        EventSetting { event, since: event.count() }
    }
}

impl<'a> EventSetting<'a, Shared<Event>> {
    /// Wait for an event in a world.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath_readiness::{EventSetting, ReadyDescriptor};
    ///
    /// let event = world.event("started")?;
    /// let mut ready = ReadyDescriptor::new()?;
    /// assert!(ready.attempt(&mut EventSetting::of(&event))?.is_none(), "an event loop waits now");
    /// event.set();
    /// assert!(ready.attempt(&mut EventSetting::of(&event))?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(event: &'a Shared<Event>) -> Self {
        EventSetting { event, since: event.count() }
    }

    /// Wait that began when [`Shared::count`] or [`Shared::known`] returned `since`.
    pub(crate) const fn since(event: &'a Shared<Event>, since: u64) -> Self {
        EventSetting { event, since }
    }
}

impl AsyncOperation for EventSetting<'_, Event> {
    type Output = Result<(), TimedOut>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.event.attempt_wait(self.since)
    }
}

impl AsyncOperation for EventSetting<'_, Shared<Event>> {
    type Output = Result<(), LockError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.event.attempt_wait(self.since)
    }
}

impl<'a> AsyncOperation for Acquisition<'a, Semaphore> {
    type Output = Result<ThreadPermit<'a>, LockError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_acquire()
    }
}

impl<'a> AsyncOperation for Acquisition<'a, Shared<Semaphore>> {
    type Output = Result<SemaphorePermit<'a>, LockError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_acquire()
    }
}

impl AsyncOperation for BarrierEpisode<'_> {
    type Output = Result<(), EpisodeError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_wait()
    }
}

/// Receivers in asynchronous code.
pub trait AsyncReceiver {
    /// Reception of a value.
    type Reception<'a>: AsyncOperation
    where
        Self: 'a;

    /// Receives the oldest value, when there is one.
    ///
    /// The future's errors: as [`ValueReceiver::receive`].
    ///
    /// ```
    /// use towpath_readiness::AsyncReceiver;
    /// # use towpath_sync::queues::{TransferError, Mpmc, Threads, ValueReceiver};
    ///
    /// async fn next(jobs: &ValueReceiver<u64, Threads<Mpmc>>) -> Result<u64, TransferError> {
    ///     jobs.receive_async().await
    /// }
    /// ```
    fn receive_async(&self) -> Repeating<Self::Reception<'_>>;
}

impl<T: Plain + Copy, V: Venue> AsyncReceiver for ValueReceiver<T, V> {
    type Reception<'a>
        = ValueReception<'a, T, V>
    where
        Self: 'a;
    fn receive_async(&self) -> Repeating<ValueReception<'_, T, V>> {
        until(ValueReception(self))
    }
}

/// Senders in asynchronous code.
pub trait AsyncSender {
    /// Type of the values.
    type Value;
    /// Sending of a value.
    type Sending<'a>: AsyncOperation
    where
        Self: 'a;

    /// Sends a value, when there is room for it.
    ///
    /// The future's errors: as [`ValueSender::send`].
    ///
    /// ```
    /// use towpath_readiness::AsyncSender;
    /// # use towpath_sync::queues::{TransferError, Mpmc, Threads, ValueSender};
    ///
    /// async fn enqueue(jobs: &ValueSender<u64, Threads<Mpmc>>) -> Result<(), TransferError> {
    ///     jobs.send_async(7).await
    /// }
    /// ```
    fn send_async(&self, value: Self::Value) -> Repeating<Self::Sending<'_>>;
}

impl<T: Plain + Copy + Unpin, V: Venue> AsyncSender for ValueSender<T, V> {
    type Value = T;
    type Sending<'a>
        = ValueSending<'a, T, V>
    where
        Self: 'a;
    fn send_async(&self, value: T) -> Repeating<ValueSending<'_, T, V>> {
        until(ValueSending(self, value))
    }
}

/// Readers of broadcast rings in asynchronous code.
pub trait AsyncReader {
    /// Receives the next message, when there is one.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive`].
    ///
    /// ```
    /// use towpath_readiness::AsyncReader;
    /// # use towpath_sync::queues::{TransferError, ThreadRing, BroadcastReader, HoldsBack};
    /// # type Reader = BroadcastReader<ThreadRing<HoldsBack>>; // towpath::broadcast::Reader
    ///
    /// async fn length(reader: &mut Reader) -> Result<usize, TransferError> {
    ///     Ok(reader.receive_async().await?.len())
    /// }
    /// ```
    fn receive_async(&mut self) -> impl Future<Output = Result<BroadcastMessage<'_>, TransferError>>;
}

impl<V: BroadcastVenue> AsyncReader for BroadcastReader<V> {
    async fn receive_async(&mut self) -> Result<BroadcastMessage<'_>, TransferError> {
        let missed = until(NextMessage(self)).await?;
        Ok(self.last(missed))
    }
}

/// Events in asynchronous code.
pub trait AsyncEvent: Sized {
    /// Waits until it is set, or has been set since the call.
    ///
    /// ```
    /// use towpath_readiness::AsyncEvent;
    /// # use towpath_sync::{TimedOut, robust::Event};
    ///
    /// async fn ready(event: &Event) -> Result<(), TimedOut> {
    ///     event.wait_async().await
    /// }
    /// ```
    fn wait_async(&self) -> Repeating<EventSetting<'_, Self>>;
}

impl AsyncEvent for Event {
    fn wait_async(&self) -> Repeating<EventSetting<'_, Self>> {
        until(EventSetting::new(self))
    }
}

impl AsyncEvent for Shared<Event> {
    fn wait_async(&self) -> Repeating<EventSetting<'_, Self>> {
        until(EventSetting::of(self))
    }
}

/// Semaphores in asynchronous code.
pub trait AsyncSemaphore: Sized {
    /// Takes a permit, when one is free.
    ///
    /// ```
    /// use towpath_readiness::AsyncSemaphore;
    /// # use towpath_sync::{LockError, robust::Semaphore};
    ///
    /// async fn work(slots: &Semaphore) -> Result<(), LockError> {
    ///     let _permit = slots.acquire_async().await?;
    ///     Ok(()) // and the permit is given back
    /// }
    /// ```
    fn acquire_async(&self) -> Repeating<Acquisition<'_, Self>>;
}

impl AsyncSemaphore for Semaphore {
    fn acquire_async(&self) -> Repeating<Acquisition<'_, Self>> {
        until(Acquisition(self))
    }
}

impl AsyncSemaphore for Shared<Semaphore> {
    fn acquire_async(&self) -> Repeating<Acquisition<'_, Self>> {
        until(Acquisition(self))
    }
}
