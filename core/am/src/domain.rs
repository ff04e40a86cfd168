//! Domain of an endpoint: the memory, the members and the ways to wait around it.
//!
//! An endpoint is written for any [`Domain`](crate::Domain), which is three things and the type of
//! its handlers:
//!
//! | trait | gives an endpoint |
//! | --- | --- |
//! | [`DomainMemory`] | a processor, the entries of the directory, queues with their claims, segments |
//! | [`Membership`] | the participants, their deaths, their doorbells |
//! | [`Hooks`] | waiting, interrupts, and the clock of a simulated machine |
//!
//! Native endpoints live in the shared memory of a world of processes
//! ([`SharedMemory`](crate::SharedMemory)), which is the default wherever a type takes a domain.
//! The laboratory has another one, in the memory of a simulated machine.
//!
//! A domain belongs to one endpoint: it holds the processor that the endpoint acts on. Other
//! processes may write to everything in its memory, so each reader checks what it reads.

use core::ops::Deref;

use towpath_channel::answer_line::AnswerLine;
use towpath_channel::stream::Stream;
use towpath_machine::{Park, Prefetch, Processor};
use towpath_shm::{ParticipantId, RemoteBytes};
use towpath_sync::{Policy, WaitForSpace};

use crate::claim::Claim;
use crate::error::Error;
use crate::layout::WorldConfig;
use crate::message::Direction;
use crate::queue::{Queue, STALL};

pub use crate::entry::Entry;

/// One queue of an endpoint, with the algorithm by which its packets are claimed.
pub trait Side<P: Processor> {
    /// Type of the claim algorithm.
    type Claim: Claim<P>;
    /// Returns the queue.
    fn queue(&self) -> &Queue<'_, P>;
    /// Returns the claim algorithm.
    fn claim(&self) -> &Self::Claim;
    /// Makes the locks in front of the queue new. `first`: their memory was never used
    /// and is all zero. Only for the queue's owner, while no other process uses it.
    fn renew_locks(&self, first: bool);
}

/// Segment of an endpoint in the domain's memory: senders store into it.
pub trait Stored {
    /// Returns its length in bytes.
    fn len(&self) -> u64;
    /// Returns whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies the bytes out that start at offset `at`. Panics if they are not all there.
    fn read(&self, at: usize, to: &mut [u8]);
    /// Copies bytes in. Panics if they do not fit.
    fn write(&self, at: usize, from: &[u8]);
}

/// Memory of a domain: entries, queues, segments.
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
    fn cpu(&self) -> &Self::Cpu;
    /// Makes the processor act for this endpoint: natively that gives it its number.
    fn act_for(&mut self, endpoint: u16);
    /// Returns the configuration that the layout follows from.
    fn config(&self) -> &WorldConfig;
    /// Returns an endpoint's entry in the directory.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there are not so many.
    fn entry(&self, endpoint: u16) -> Result<Self::Entry, Error>;
    /// Returns an endpoint's request or reply queue.
    ///
    /// # Errors
    ///
    /// As [`DomainMemory::entry`].
    fn side(&self, endpoint: u16, direction: Direction) -> Result<Self::Side, Error>;
    /// Returns an endpoint's segment in the domain's memory.
    ///
    /// # Errors
    ///
    /// As [`DomainMemory::entry`].
    fn segment(&self, endpoint: u16) -> Result<Self::Segment, Error>;
    /// Returns the line in which two endpoints answer each other, if they have one.
    fn answer_line(&self, one: u16, other: u16) -> Option<Self::Line>;
    /// Returns a stream beside an endpoint's request queue, if there are so many.
    fn stream(&self, endpoint: u16, number: u32) -> Option<Self::Stream>;
}

/// Members of a domain: participants, their deaths, their doorbells.
pub trait Membership: DomainMemory {
    /// Returns the calling process's participant, if it takes part.
    fn me(&self) -> Option<ParticipantId>;
    /// Returns the number of ranks.
    fn size(&self) -> u32;
    /// Returns whether a participant lives, and has not left.
    fn is_alive(&self, participant: ParticipantId) -> bool;
    /// Returns whether the rank's last process died, and no other one has taken its
    /// place.
    fn has_died(&self, rank: u32) -> bool;
    /// Returns the number of deaths that were noted so far.
    fn deaths(&self) -> u64;
    /// Asks for deaths that were not noted yet, and notes them.
    fn check_deaths(&self);
    /// Returns whether the calling process is at its end, or is a forked child of the
    /// endpoint's process, and must not touch the domain's memory: its endpoints then stay as they
    /// are, like those of the dead.
    #[inline(always)]
    fn has_ended(&self) -> bool {
        false
    }
    /// Returns whether a participant may be offered long transfers out of this process's
    /// memory.
    fn may_offer(&self, _to: ParticipantId) -> bool {
        false
    }
    /// Copies bytes out of a participant's private memory. Returns `false` if that is not
    /// possible.
    fn read_remote(&self, _participant: ParticipantId, _from: RemoteBytes, _to: &mut [u8]) -> bool {
        false
    }
    /// Returns whether an endpoint's rank runs on this host: its peers reach it without a
    /// gateway between.
    fn is_local(&self, _endpoint: u16) -> bool {
        true
    }
    /// Tells this host's gateway, if there is one, that an endpoint was opened or closed.
    fn tell_gateway(&self) {}
    /// Returns the word on which a participant sleeps, if there is such a rank.
    fn doorbell(&self, rank: u32) -> Option<&<Self::Cpu as Processor>::Word>;
}

/// EndpointStep of an endpoint, for domains whose processors take time for it
/// ([`Hooks::charge`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointStep {
    /// Composing and sending a packet.
    Send,
    /// A poll, whether or not it finds a message.
    Poll,
    /// Dispatching a message to its handler.
    Dispatch,
}

/// Hooks of a domain: waiting, interrupts, and the clock of a simulated machine.
pub trait Hooks: DomainMemory {
    /// Surroundings of a waiter for a queue.
    type Around<'a>
    where
        Self: 'a;
    /// Way of waiting for a queue.
    type Wait<'a>: WaitForSpace<Self::Cpu>
    where
        Self: 'a;

    /// Returns the surroundings of a waiter for this queue.
    fn around<'a>(&'a self, queue: &'a Queue<'a, Self::Cpu>) -> Self::Around<'a>;
    /// Returns the way of waiting there, which follows from [`WorldConfig::waiting`].
    fn wait<'a, 'b: 'a>(&'a self, around: &'a Self::Around<'b>) -> Self::Wait<'a>;
    /// Returns the policy by which all participants wait.
    fn policy(&self) -> Policy;
    /// Returns about the cost of a context switch, in nanoseconds.
    fn budget(&self) -> u64;
    /// Returns whether more runnable participants than cores share the machine.
    fn oversubscribed(&self) -> bool;
    /// Notes that the caller is about to sleep (`true`) or has woken (`false`).
    fn asleep(&self, asleep: bool);
    /// Lets about `ns` nanoseconds go by, where there is no word to wait on.
    fn pause(&self, ns: u64);
    /// Returns how long a receiver waits for a claimed packet before it looks past it, in
    /// nanoseconds.
    #[inline(always)]
    fn patience(&self) -> u64 {
        STALL
    }
    /// Returns the longest time for which a poll spins on a line in which an answer is
    /// likely, in nanoseconds.
    #[inline(always)]
    fn turn(&self) -> u64 {
        100
    }
    /// Returns the longest time for which a waiting sender does not look around, in
    /// nanoseconds; `None`: it only counts turns.
    fn look_every(&self) -> Option<u64> {
        None
    }
    /// Interrupts a participant's thread, by the address that was found in its entry.
    /// `ask`: whether there is time to ask if the participant lives (not in a signal handler). Does
    /// nothing where no endpoint gives such an address.
    #[inline(always)]
    fn interrupt(&self, _participant: ParticipantId, _address: u64, _ask: bool) {}
    /// Executes the instructions of one step. Costs nothing natively.
    #[inline(always)]
    fn charge(&self, _step: EndpointStep) {}
}

/// Word of a domain's memory.
pub(crate) type Word<D> = <<D as DomainMemory>::Cpu as Processor>::Word;
