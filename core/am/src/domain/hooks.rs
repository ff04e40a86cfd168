//! Hooks of a domain.

use towpath_shm::ParticipantId;
use towpath_sync::{Policy, SlowRounds, WaitForSpace};

use super::DomainMemory;
#[cfg(doc)]
use crate::layout::WorldConfig;
use crate::queue::{Queue, STALL};

/// Step of an endpoint, for domains whose processors take time for it
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
///
/// An implementation: [the module's example](super#a-domain-of-ones-own).
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// # let endpoint = towpath::Endpoint::new(&world)?;
/// use towpath::Policy;
/// use towpath::domain::Hooks;
///
/// let hooks = endpoint.domain();
/// assert_eq!(hooks.policy(), Policy::Adaptive);
/// assert!(hooks.budget() > 0, "the cost of a context switch");
/// # Ok::<(), towpath::Error>(())
/// ```
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
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::Direction;
    /// use towpath::domain::{DomainMemory, Hooks, Side};
    ///
    /// let hooks = endpoint.domain();
    /// let side = hooks.side(0, Direction::Request)?;
    /// let around = hooks.around(side.queue()); // knows the deaths of the queue's senders
    /// assert_eq!(hooks.wait(&around).budget, hooks.budget());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn around<'a>(&'a self, queue: &'a Queue<'a, Self::Cpu>) -> Self::Around<'a>;
    /// Returns the way of waiting there, which follows from [`WorldConfig::waiting`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::Direction;
    /// use towpath::domain::{DomainMemory, Hooks, Side};
    ///
    /// let hooks = endpoint.domain();
    /// let side = hooks.side(0, Direction::Request)?;
    /// let around = hooks.around(side.queue());
    /// assert_eq!(hooks.wait(&around).policy, hooks.policy());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn wait<'a, 'b: 'a>(&'a self, around: &'a Self::Around<'b>) -> Self::Wait<'a>;
    /// Returns the policy by which all participants wait.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::{DomainMemory, Hooks};
    ///
    /// let hooks = endpoint.domain();
    /// assert_eq!(hooks.policy(), hooks.config().waiting);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn policy(&self) -> Policy;
    /// Returns about the cost of a context switch, in nanoseconds.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Hooks;
    /// use towpath::sync::{Alone, Surroundings};
    ///
    /// assert_eq!(endpoint.domain().budget(), Alone.switch_cost());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn budget(&self) -> u64;
    /// Returns whether more runnable participants than cores share the machine.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Hooks;
    ///
    /// assert!(!endpoint.domain().oversubscribed()); // one rank, one core at least
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn oversubscribed(&self) -> bool;
    /// Memory for rounds in which another program had the core.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Hooks;
    ///
    /// assert!(endpoint.domain().slow_rounds().is_some()); // the processes of a world share them
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        None
    }
    /// Notes that the caller is about to sleep (`true`) or has woken (`false`).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Hooks;
    ///
    /// endpoint.domain().asleep(true);
    /// // … sleeps: a core for the other ranks …
    /// endpoint.domain().asleep(false);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn asleep(&self, asleep: bool);
    /// Lets about `ns` nanoseconds go by, where there is no word to wait on.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use std::time::{Duration, Instant};
    /// use towpath::domain::Hooks;
    ///
    /// let begin = Instant::now();
    /// endpoint.domain().pause(1_000_000);
    /// assert!(begin.elapsed() >= Duration::from_micros(500)); // about a millisecond
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn pause(&self, ns: u64);
    /// Returns how long a receiver waits for a claimed packet before it looks past it, in
    /// nanoseconds.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Hooks;
    ///
    /// assert!(endpoint.domain().patience() > endpoint.domain().turn());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    fn patience(&self) -> u64 {
        STALL
    }
    /// Returns the longest time for which a poll spins on a line in which an answer is
    /// likely, in nanoseconds.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Hooks;
    ///
    /// assert!(endpoint.domain().turn() > 0); // a poll spins a little where an answer is likely
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    fn turn(&self) -> u64 {
        100
    }
    /// Returns the longest time for which a waiting sender does not look around, in
    /// nanoseconds; `None`: it only counts turns.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Hooks;
    ///
    /// assert_eq!(endpoint.domain().look_every(), Some(1_000_000)); // a millisecond
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn look_every(&self) -> Option<u64> {
        None
    }
    /// Interrupts a participant's thread, by the address that was found in its entry.
    /// `ask`: whether there is time to ask if the participant lives (not in a signal handler). Does
    /// nothing where no endpoint gives such an address.
    #[inline(always)]
    fn interrupt(&self, _participant: ParticipantId, _address: u64, _ask: bool) {}
    /// Executes the instructions of one step. Costs nothing natively.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::{EndpointStep, Hooks};
    ///
    /// endpoint.domain().charge(EndpointStep::Poll); // only a simulated clock goes on
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    fn charge(&self, _step: EndpointStep) {}
}
