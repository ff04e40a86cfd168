//! Objects with a descriptor of their own.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use towpath_derive::SentenceDebug;
use towpath_machine::Plain;
use towpath_shm::{SemaphorePermit, Shared};
use towpath_sync::LockError;
use towpath_sync::queues::{
    BroadcastMessage, BroadcastReader, BroadcastVenue, OwnedReceiver, OwnedSender, QueueKind, TransferError,
    Unsent, ValueReceiver, ValueSender, Venue,
};
use towpath_sync::robust::{Barrier, EpisodeError, Event, Semaphore};

use crate::descriptor::{Means, ReadyDescriptor};
use crate::operation::{
    Acquisition, AsyncOperation, BarrierEpisode, EventSetting, NextMessage, ValueReception, ValueSending,
};
use crate::owned::{OwnedReception, OwnedSending};

/// Object with a descriptor that becomes readable when an operation that was refused may
/// go on: for `poll`, `epoll` and event loops over them.
///
/// Each `try_` method never blocks. One that returns `None` (or `false`) has made sure that the
/// descriptor becomes readable; it stays so until the next call. So an event loop calls it until it
/// returns `None`, then waits for the descriptor. The descriptor may be readable for no reason.
///
/// ```
/// use towpath_readiness::Pollable;
/// # use towpath_sync::queues::{Mpmc, between_threads};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (sender, receiver) = between_threads::<u64, Mpmc>(16); // towpath::mpmc::queue, or by name
/// let mut receiver = Pollable::new(receiver)?;
/// assert_eq!(receiver.try_receive()?, None);
/// sender.send(7)?;
/// # use rustix::event::{PollFd, PollFlags, poll};
/// poll(&mut [PollFd::new(&receiver, PollFlags::IN)], None)?;
/// assert_eq!(receiver.try_receive()?, Some(7));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pollable<O> {
    object: O,
    descriptor: ReadyDescriptor,
    /// Settings of an event that its waiter knows of; none before its first attempt.
    known: Option<u64>,
}

impl<O> Pollable<O> {
    /// Gives an object a descriptor.
    ///
    /// # Errors
    ///
    /// The system's: too many descriptors are open.
    ///
    /// ```
    /// use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16);
    /// let receiver = Pollable::new(receiver)?;
    /// assert!(sender.try_send(7).is_ok());
    /// # drop(receiver);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(object: O) -> io::Result<Self> {
        Ok(Pollable::with(object, ReadyDescriptor::new()?))
    }

    /// Gives an object this descriptor.
    ///
    /// ```
    /// # use towpath_readiness::{Pollable, ReadyDescriptor};
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16); // towpath::mpmc::queue
    /// let mut receiver = Pollable::with(receiver, ReadyDescriptor::new()?);
    /// sender.send(7)?;
    /// assert_eq!(receiver.try_receive()?, Some(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn with(object: O, descriptor: ReadyDescriptor) -> Self {
        Pollable { object, descriptor, known: None }
    }

    /// The means by which its descriptor becomes readable.
    ///
    /// ```
    /// # use towpath_readiness::{Pollable, ReadyDescriptor};
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (_sender, receiver) = between_threads::<u64, Mpmc>(16); // towpath::mpmc::queue
    /// let receiver = Pollable::new(receiver)?;
    /// let another = Pollable::new(receiver.object().clone())?;
    /// assert_eq!(receiver.means(), another.means()); // as the system offers it
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn means(&self) -> Means {
        self.descriptor.means()
    }

    /// The object.
    ///
    /// ```
    /// # use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16);
    /// let receiver = Pollable::new(receiver)?;
    /// assert!(receiver.object().is_empty());
    /// # drop(sender);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn object(&self) -> &O {
        &self.object
    }

    /// Gives the object back.
    ///
    /// ```
    /// # use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16);
    /// let receiver = Pollable::new(receiver)?.into_object();
    /// sender.send(7)?;
    /// assert_eq!(receiver.receive()?, 7); // waits itself
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_object(self) -> O {
        self.object
    }
}

impl<O> AsFd for Pollable<O> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl<O> AsRawFd for Pollable<O> {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Error of an operation with a descriptor.
#[derive(SentenceDebug)]
pub enum PollableError<E> {
    /// The operation's.
    Operation(E),
    /// The system refuses to wait.
    System(io::Error),
}

impl<E: core::fmt::Display> core::fmt::Display for PollableError<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PollableError::Operation(error) => error.fmt(f),
            PollableError::System(error) => write!(f, "the system can't wait for the object: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PollableError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PollableError::Operation(error) => error.source(),
            PollableError::System(error) => Some(error),
        }
    }
}

fn attempt<R, E>(
    descriptor: &mut ReadyDescriptor,
    operation: &mut impl AsyncOperation<Output = Result<R, E>>,
) -> Result<Option<R>, PollableError<E>> {
    match descriptor.attempt(operation) {
        Ok(outcome) => outcome.transpose().map_err(PollableError::Operation),
        Err(error) => Err(PollableError::System(error)),
    }
}

impl<T: Plain + Copy, V: Venue> Pollable<ValueReceiver<T, V>> {
    /// Receives the oldest value, if there is one.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`]; the system's.
    ///
    /// ```
    /// # use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16);
    /// let mut receiver = Pollable::new(receiver)?;
    /// assert_eq!(receiver.try_receive()?, None);
    /// sender.send(7)?;
    /// assert_eq!(receiver.try_receive()?, Some(7));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_receive(&mut self) -> Result<Option<T>, PollableError<TransferError>> {
        attempt(&mut self.descriptor, &mut ValueReception(&self.object))
    }
}

impl<T: Plain + Copy, V: Venue> Pollable<ValueSender<T, V>> {
    /// Sends a value, if there is room for it. Returns whether there was.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send`]; the system's.
    ///
    /// ```
    /// # use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16);
    /// let mut sender = Pollable::new(sender)?;
    /// assert!(sender.try_send(7)?);
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_send(&mut self, value: T) -> Result<bool, PollableError<TransferError>> {
        attempt(&mut self.descriptor, &mut ValueSending(&self.object, value)).map(|sent| sent.is_some())
    }
}

impl<T: Send, K: QueueKind> Pollable<OwnedReceiver<T, K>> {
    /// Receives the oldest value of any type, if there is one.
    ///
    /// # Errors
    ///
    /// As [`OwnedReceiver::receive`]; the system's.
    ///
    /// ```
    /// # use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{Mpmc, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(16);
    /// let mut receiver = Pollable::new(receiver)?;
    /// assert_eq!(receiver.try_receive()?, None);
    /// sender.send("seven".to_owned())?;
    /// assert_eq!(receiver.try_receive()?.as_deref(), Some("seven"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_receive(&mut self) -> Result<Option<T>, PollableError<TransferError>> {
        attempt(&mut self.descriptor, &mut OwnedReception(&self.object))
    }
}

impl<T: Send, K: QueueKind> Pollable<OwnedSender<T, K>> {
    /// Sends a value of any type, if there is room for it. Returns it if there was none.
    ///
    /// # Errors
    ///
    /// As [`OwnedSender::send`]; the system's.
    ///
    /// ```
    /// # use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{Mpmc, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(1);
    /// let mut sender = Pollable::new(sender)?;
    /// assert_eq!(sender.try_send("seven".to_owned())?, None);
    /// assert_eq!(sender.try_send("eight".to_owned())?.as_deref(), Some("eight")); // it is full
    /// assert_eq!(receiver.receive()?, "seven");
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_send(&mut self, value: T) -> Result<Option<T>, PollableError<Unsent<T>>> {
        let mut sending = OwnedSending::new(&self.object, value);
        attempt(&mut self.descriptor, &mut sending)?;
        Ok(sending.into_value())
    }
}

impl<V: BroadcastVenue> Pollable<BroadcastReader<V>> {
    /// Receives the next message, if there is one.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive`]; the system's.
    ///
    /// ```
    /// # use towpath_readiness::Pollable;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use towpath_sync::queues::{HoldsBack, broadcast_between_threads};
    /// let (mut writer, reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let mut reader = Pollable::new(reader)?;
    /// assert!(reader.try_receive()?.is_none());
    /// writer.send(b"abc")?;
    /// assert!(reader.try_receive()?.is_some_and(|message| *message == *b"abc"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_receive(&mut self) -> Result<Option<BroadcastMessage<'_>>, PollableError<TransferError>> {
        let missed = attempt(&mut self.descriptor, &mut NextMessage(&mut self.object))?;
        Ok(missed.map(|missed| self.object.last(missed)))
    }
}

impl Pollable<Shared<Event>> {
    /// Returns whether the event is set, or has been set since the last call: a setting
    /// that is reset at once is told, too. Several settings between two calls are told once.
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`]; the system's.
    ///
    /// ```
    /// use towpath::readiness::Pollable;
    ///
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let ready = world.event("ready")?;
    /// let mut waiter = Pollable::new(world.event("ready")?)?;
    /// assert!(!waiter.try_wait()?);
    /// ready.set();
    /// assert!(waiter.try_wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_wait(&mut self) -> Result<bool, PollableError<LockError>> {
        let since = *self.known.get_or_insert_with(|| self.object.count());
        let is_set = attempt(&mut self.descriptor, &mut EventSetting::since(&self.object, since))?.is_some();
        if is_set {
            self.known = Some(self.object.known());
        }
        Ok(is_set)
    }
}

impl Pollable<Shared<Semaphore>> {
    /// Takes a permit, if one is free.
    ///
    /// # Errors
    ///
    /// As [`Shared::acquire`]; the system's.
    ///
    /// ```
    /// use towpath::readiness::Pollable;
    ///
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let mut slots = Pollable::new(world.semaphore("slots", 1)?)?;
    /// assert!(slots.try_acquire()?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_acquire(&mut self) -> Result<Option<SemaphorePermit<'_>>, PollableError<LockError>> {
        attempt(&mut self.descriptor, &mut Acquisition(&self.object))
    }
}

impl Pollable<Shared<Barrier>> {
    /// Arrives, unless this thread has. Returns whether all participants have.
    ///
    /// After that the next call arrives once more. One thread makes all calls.
    ///
    /// # Errors
    ///
    /// As [`Shared::wait`]; the system's.
    ///
    /// ```
    /// use towpath::readiness::Pollable;
    ///
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let mut alone = Pollable::new(world.barrier_of("alone", 1)?)?;
    /// assert!(alone.try_wait()?);
    /// let mut both = Pollable::new(world.barrier_of("both", 2)?)?;
    /// assert!(!both.try_wait()?, "readable when the other one has come");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_wait(&mut self) -> Result<bool, PollableError<EpisodeError>> {
        attempt(&mut self.descriptor, &mut BarrierEpisode(&self.object)).map(|done| done.is_some())
    }
}
