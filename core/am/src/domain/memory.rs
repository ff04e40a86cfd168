//! Memory of a domain.

use core::ops::Deref;

use towpath_channel::answer_line::AnswerLine;
use towpath_channel::stream::Stream;
use towpath_machine::{Park, Prefetch, Processor};

use super::Entry;
use crate::claim::Claim;
use crate::error::Error;
use crate::layout::WorldConfig;
use crate::message::Direction;
use crate::queue::Queue;

/// One queue of an endpoint, with the algorithm by which its packets are claimed.
pub trait Side<P: Processor> {
    /// Type of the claim algorithm.
    type Claim: Claim<P>;
    /// Returns the queue.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::Direction;
    /// use towpath::domain::{DomainMemory, Side};
    ///
    /// let requests = endpoint.domain().side(0, Direction::Request)?;
    /// assert!(!requests.queue().is_empty()); // it has packets
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn queue(&self) -> &Queue<'_, P>;
    /// Returns the claim algorithm.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::Direction;
    /// use towpath::channel::claim::Claim;
    /// use towpath::domain::{DomainMemory, Side};
    ///
    /// let replies = endpoint.domain().side(0, Direction::Reply)?;
    /// assert!(!replies.claim().overdraws()); // no sender takes more packets than there are
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn claim(&self) -> &Self::Claim;
    /// Makes the locks in front of the queue new. `first`: their memory was never used
    /// and is all zero. Only for the queue's owner, while no other process uses it.
    fn renew_locks(&self, first: bool);
}

/// Segment of an endpoint in the domain's memory: senders store into it.
pub trait Stored {
    /// Returns its length in bytes.
    ///
    /// ```
    /// # use towpath::WorldConfig;
    /// let config = WorldConfig { segment_bytes: 4096, ..WorldConfig::new(1) };
    /// # let world = towpath::create(None, &config)?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::{DomainMemory, Stored};
    ///
    /// let segment = endpoint.domain().segment(0)?;
    /// assert_eq!(Stored::len(&segment), 4096);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn len(&self) -> u64;
    /// Returns whether it has no bytes.
    ///
    /// ```
    /// # use towpath::WorldConfig;
    /// let config = WorldConfig { segment_bytes: 4096, ..WorldConfig::new(1) };
    /// # let world = towpath::create(None, &config)?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::{DomainMemory, Stored};
    ///
    /// assert!(!Stored::is_empty(&endpoint.domain().segment(0)?)); // senders may store into it
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies the bytes out that start at offset `at`. Panics if they are not all there.
    ///
    /// ```
    /// # use towpath::WorldConfig;
    /// let config = WorldConfig { segment_bytes: 4096, ..WorldConfig::new(1) };
    /// # let world = towpath::create(None, &config)?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::{DomainMemory, Stored};
    ///
    /// let (segment, mut bytes) = (endpoint.domain().segment(0)?, [1; 4]);
    /// Stored::read(&segment, 8, &mut bytes);
    /// assert_eq!(bytes, [0; 4]); // of a new world
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn read(&self, at: usize, to: &mut [u8]);
    /// Copies bytes in. Panics if they do not fit.
    ///
    /// ```
    /// # use towpath::WorldConfig;
    /// let config = WorldConfig { segment_bytes: 4096, ..WorldConfig::new(1) };
    /// # let world = towpath::create(None, &config)?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::{DomainMemory, Stored};
    ///
    /// let (segment, mut bytes) = (endpoint.domain().segment(0)?, [0; 4]);
    /// Stored::write(&segment, 8, b"abcd");
    /// Stored::read(&segment, 8, &mut bytes);
    /// assert_eq!(&bytes, b"abcd");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn write(&self, at: usize, from: &[u8]);
}

/// Memory of a domain: entries, queues, segments.
///
/// An implementation: [the module's example](super#a-domain-of-ones-own).
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// # let endpoint = towpath::Endpoint::new(&world)?;
/// use towpath::Direction;
/// use towpath::domain::{DomainMemory, Side};
///
/// let memory = endpoint.domain();
/// let requests = memory.side(0, Direction::Request)?; // of the first endpoint
/// assert_eq!(requests.queue().len(), u64::from(memory.config().packets));
/// # Ok::<(), towpath::Error>(())
/// ```
pub trait DomainMemory: Sized {
    /// Processor that the endpoint acts on.
    type Cpu: Processor + Park + Prefetch;
    /// One queue of an endpoint.
    type Side: Side<Self::Cpu>;
    /// Reference to an entry of the directory.
    type Entry: Copy + Deref<Target = Entry<Self::Cpu>>;
    /// Segment of an endpoint in the domain's memory.
    type Segment: Stored;
    /// Reference to an answer line.
    type Line: Deref<Target = AnswerLine<Self::Cpu>>;
    /// Reference to a stream.
    type Stream: Deref<Target = Stream<Self::Cpu>>;

    /// Returns the processor.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::DomainMemory;
    /// use towpath::machine::Processor;
    ///
    /// assert_eq!(endpoint.domain().cpu().id(), 0); // natively the endpoint's number
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn cpu(&self) -> &Self::Cpu;
    /// Makes the processor act for this endpoint: natively that gives it its number.
    fn act_for(&mut self, endpoint: u16);
    /// Returns the configuration that the layout follows from.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::DomainMemory;
    ///
    /// assert_eq!(endpoint.domain().config().processes, world.size());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn config(&self) -> &WorldConfig;
    /// Returns an endpoint's entry in the directory.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there are not so many.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::DomainMemory;
    ///
    /// assert!(endpoint.domain().entry(0).is_ok());
    /// assert!(endpoint.domain().entry(1).is_err()); // of a world with one endpoint
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn entry(&self, endpoint: u16) -> Result<Self::Entry, Error>;
    /// Returns an endpoint's request or reply queue.
    ///
    /// # Errors
    ///
    /// As [`DomainMemory::entry`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::Direction;
    /// use towpath::domain::{DomainMemory, Side};
    ///
    /// let sides =
    ///     [Direction::Request, Direction::Reply].map(|way| endpoint.domain().side(0, way));
    /// let [requests, replies] = sides;
    /// assert_ne!(requests?.queue().id, replies?.queue().id);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn side(&self, endpoint: u16, direction: Direction) -> Result<Self::Side, Error>;
    /// Returns an endpoint's segment in the domain's memory.
    ///
    /// # Errors
    ///
    /// As [`DomainMemory::entry`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::DomainMemory;
    ///
    /// assert!(endpoint.domain().segment(0).is_ok());
    /// assert!(endpoint.domain().segment(9).is_err()); // there is no such endpoint
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn segment(&self, endpoint: u16) -> Result<Self::Segment, Error>;
    /// Returns the line in which two endpoints answer each other, if they have one.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::DomainMemory;
    ///
    /// assert!(endpoint.domain().answer_line(0, 9).is_none()); // there is no such endpoint
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn answer_line(&self, one: u16, other: u16) -> Option<Self::Line>;
    /// Returns a stream beside an endpoint's request queue, if there are so many.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::DomainMemory;
    ///
    /// let memory = endpoint.domain();
    /// let streams = (0..).take_while(|&number| memory.stream(0, number).is_some()).count();
    /// assert_eq!(streams, memory.config().streams as usize);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn stream(&self, endpoint: u16, number: u32) -> Option<Self::Stream>;
}
