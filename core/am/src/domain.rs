//! Where endpoints live: what an endpoint needs of the world around it.
//!
//! An endpoint is written for any [`Domain`]. Native ones live in the shared memory of a world of
//! processes (`attach.rs`, [`SharedMemory`](crate::SharedMemory)), which is the default wherever a
//! type here takes a domain. The laboratory has another one, in the memory of a simulated machine.
//!
//! A domain is seen by one endpoint: it holds the processor that the endpoint acts on. Everything
//! that it hands out of its memory may be written by others, and is checked by those who read it.

use core::ops::Deref;

use towpath_machine::{Arena, Ordering, OwnLine, Park, Place, Processor};
use towpath_shm::ParticipantId;
use towpath_sync::{Policy, WaitForSpace};

use crate::claim::Claim;
use crate::directory::Directory;
use crate::error::Error;
use crate::layout::WorldConfig;
use crate::queue::{Census, Queue, STALL};
use crate::token::Token;

/// An endpoint's entry in the directory. The layout natively.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Entry<P: Processor> {
    /// Who has it: a participant's bits, or 0.
    pub owner: P::Word,
    /// How often it has been taken; its low bits are the endpoint's generation.
    pub generation: P::Word,
    /// Its owner's bits once its queues may be used, until it is closed or its next owner
    /// readies it.
    pub open: P::Word,
    /// Bytes of the shared segment that are in use as such (0: the segment is private).
    pub segment_len: P::Word,
    /// Where its thread can be interrupted ([`towpath_shm::Interrupts::address`]), while
    /// it is away and wants to be told of messages; whoever takes it does that.
    pub signal: P::Word,
    /// Unused.
    pub spare: [P::Word; 3],
    /// What it is about to do to request queues, and to reply queues (see
    /// [`crate::queue::intent`]); then on which queue it may hold a block that it has not
    /// published, likewise: the queue's number plus one.
    pub intents: OwnLine<[P::Word; 4]>,
}

impl<P: Processor> Entry<P> {
    /// A free entry, on two lines.
    pub fn new(arena: &impl Arena<P>) -> Self {
        let word = || arena.word(Place::SameLine, 0);
        Entry {
            owner: arena.word(Place::NewLine, 0),
            generation: word(),
            open: word(),
            segment_len: word(),
            signal: word(),
            spare: [word(), word(), word()],
            intents: OwnLine([arena.word(Place::NewLine, 0), word(), word(), word()]),
        }
    }
}

/// One queue of an endpoint, with the algorithm by which its packets are claimed.
pub trait Side<P: Processor> {
    /// The algorithm.
    type Claim: Claim<P>;
    /// The queue.
    fn queue(&self) -> &Queue<'_, P>;
    /// The algorithm.
    fn claim(&self) -> &Self::Claim;
    /// Makes the locks in front of the queue new. `first`: their memory was never used
    /// and is all zero. Only the queue's owner, while nobody else uses it.
    fn renew_locks(&self, first: bool);
}

/// An endpoint's segment in its domain's memory: senders store into it.
pub trait Stored {
    /// Its length in bytes.
    fn len(&self) -> u64;
    /// Whether nothing can be stored in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies the bytes out that start at offset `at`. Panics if they are not all there.
    fn read(&self, at: usize, to: &mut [u8]);
    /// Copies bytes in. Panics if they do not fit.
    fn write(&self, at: usize, from: &[u8]);
}

/// What an endpoint is doing, for domains whose processors take time for that
/// ([`Domain::charge`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It composes and sends a packet.
    Send,
    /// It polls, whether or not it finds something.
    Poll,
    /// It dispatches a message to its handler.
    Dispatch,
}

/// Where an endpoint lives.
pub trait Domain: Sized {
    /// What it runs on.
    type Cpu: Processor + Park;
    /// One queue of an endpoint.
    type Side: Side<Self::Cpu>;
    /// A reference to an entry of the directory.
    type Entry: Copy + Deref<Target = Entry<Self::Cpu>>;
    /// An endpoint's segment in the domain's memory.
    type Segment: Stored;
    /// A handler: the trait object that says what handlers may hold.
    type Handler: ?Sized + Fn(&Token<'_, Self>);
    /// Who waits for a queue, and what it can learn.
    type Around<'a>
    where
        Self: 'a;
    /// How to wait.
    type Wait<'a>: WaitForSpace<Self::Cpu>
    where
        Self: 'a;

    /// The processor.
    fn cpu(&self) -> &Self::Cpu;
    /// From now on the processor acts for this endpoint: natively that gives it its
    /// number.
    fn act_for(&mut self, endpoint: u16);

    /// How the domain is laid out and used.
    fn config(&self) -> &WorldConfig;
    /// An endpoint's entry in the directory.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there are not so many.
    fn entry(&self, endpoint: u16) -> Result<Self::Entry, Error>;
    /// An endpoint's request or reply queue.
    ///
    /// # Errors
    ///
    /// As [`Domain::entry`].
    fn side(&self, endpoint: u16, reply: bool) -> Result<Self::Side, Error>;
    /// An endpoint's segment in the domain's memory.
    ///
    /// # Errors
    ///
    /// As [`Domain::entry`].
    fn segment(&self, endpoint: u16) -> Result<Self::Segment, Error>;

    /// Who the calling process is, if it takes part.
    fn me(&self) -> Option<ParticipantId>;
    /// How many ranks there are.
    fn size(&self) -> u32;
    /// Whether a participant lives, and has not left.
    fn is_alive(&self, participant: ParticipantId) -> bool;
    /// Whether the rank's last process died, and no other one has taken its place.
    fn has_died(&self, rank: u32) -> bool;
    /// How many deaths were noted so far.
    fn deaths(&self) -> u64;
    /// Looks for deaths that nobody has noted.
    fn check_deaths(&self);
    /// How long a receiver waits for a packet that was claimed before it looks past it,
    /// in nanoseconds.
    #[inline(always)]
    fn patience(&self) -> u64 {
        STALL
    }
    /// Longest time for which a waiting sender does not look around, in nanoseconds;
    /// `None`: it only counts turns.
    fn look_every(&self) -> Option<u64> {
        None
    }
    /// Whether the calling process is at its end, or is a forked child of the endpoint's,
    /// and must not touch the domain's memory: its endpoints then stay as they are, like those of
    /// the dead.
    #[inline(always)]
    fn has_ended(&self) -> bool {
        false
    }

    /// The word on which a participant sleeps, if there is such a rank.
    fn doorbell(&self, rank: u32) -> Option<&<Self::Cpu as Processor>::Word>;
    /// What waiting for a queue is done with.
    fn around<'a>(&'a self, queue: &'a Queue<'a, Self::Cpu>) -> Self::Around<'a>;
    /// How to wait for that queue: [`WorldConfig::waiting`] says it.
    fn wait<'a, 'b: 'a>(&'a self, around: &'a Self::Around<'b>) -> Self::Wait<'a>;
    /// How everybody waits.
    fn policy(&self) -> Policy;
    /// About the cost of a context switch, in nanoseconds.
    fn budget(&self) -> u64;
    /// Whether more runnable participants than cores share the machine.
    fn oversubscribed(&self) -> bool;
    /// The caller is about to sleep (`true`) or has woken (`false`).
    fn asleep(&self, asleep: bool);
    /// Lets about `ns` nanoseconds go by, where there is nothing to wait on.
    fn pause(&self, ns: u64);

    /// Interrupts a participant's thread, by the address that was found in its entry.
    /// `ask`: whether there is time to ask if it lives (not in a signal handler). Nothing, where
    /// nobody gives such an address.
    #[inline(always)]
    fn interrupt(&self, _participant: ParticipantId, _address: u64, _ask: bool) {}

    /// The replies of other endpoints that the calling process shares with other threads,
    /// while a reply of one of them waits for space. Returns how many messages were delivered.
    #[inline(always)]
    fn poll_replies_of_others(&self) -> usize {
        0
    }
    /// The endpoint executes the instructions of one step. Costs nothing natively.
    #[inline(always)]
    fn charge(&self, _step: Step) {}
}

/// A word of a domain's memory.
pub(crate) type Word<D> = <<D as Domain>::Cpu as Processor>::Word;

/// The census of a queue whose senders are the endpoints of a domain's directory.
pub(crate) struct Members<'a, D>(pub &'a D);

impl<D: Domain> Census for Members<'_, D> {
    fn members(&self) -> usize {
        self.0.config().endpoints as usize * 2
    }

    fn intent(&self, member: usize) -> u64 {
        let Ok(entry) = self.0.entry((member / 2) as u16) else { return 0 };
        let OwnLine(intents) = &entry.intents;
        // Acquire: pairs with the Release with which claimers change their intent.
        let intent = self.0.cpu().load(&intents[member % 2], Ordering::Acquire);
        // The intent first, then the question: what the dead intended will not happen any more.
        if intent != 0 && !self.0.owner_alive(&entry) { 0 } else { intent }
    }

    fn alive(&self, endpoint: u16, generation: u16) -> bool {
        let Ok(entry) = self.0.entry(endpoint) else { return false };
        // Acquire: pairs with the Release when an endpoint is taken or given up.
        self.0.cpu().load(&entry.generation, Ordering::Acquire) as u16 == generation
            && self.0.owner_alive(&entry)
    }

    fn holds_block(&self, endpoint: u16, queue: u32) -> bool {
        let Ok(entry) = self.0.entry(endpoint) else { return false };
        let OwnLine(intents) = &entry.intents;
        // Acquire: pairs with the Release after the publication.
        intents[2..].iter().any(|word| self.0.cpu().load(word, Ordering::Acquire) == u64::from(queue) + 1)
    }

    fn patience(&self) -> u64 {
        self.0.patience()
    }
}
