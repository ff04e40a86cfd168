//! Members of a domain.

use towpath_machine::Processor;
use towpath_shm::{ParticipantId, RemoteBytes};

use super::DomainMemory;

/// Members of a domain: participants, their deaths, their doorbells.
///
/// An implementation: [the module's example](super#a-domain-of-ones-own).
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// # let endpoint = towpath::Endpoint::new(&world)?;
/// use towpath::domain::Membership;
///
/// let members = endpoint.domain();
/// assert!(members.me().is_some_and(|me| members.is_alive(me)));
/// assert_eq!((members.size(), members.deaths()), (1, 0));
/// # Ok::<(), towpath::Error>(())
/// ```
pub trait Membership: DomainMemory {
    /// Returns the calling process's participant, if it takes part.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// assert_eq!(endpoint.domain().me().map(|me| me.index), Some(world.rank()));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn me(&self) -> Option<ParticipantId>;
    /// Returns the number of ranks.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// assert_eq!(endpoint.domain().size(), 1);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn size(&self) -> u32;
    /// Returns whether a participant lives, and has not left.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::ParticipantId;
    /// use towpath::domain::Membership;
    ///
    /// let (members, me) = (endpoint.domain(), endpoint.domain().me().expect("it has entered"));
    /// assert!(members.is_alive(me));
    /// let next = ParticipantId { generation: me.generation + 1, ..me };
    /// assert!(!members.is_alive(next)); // a successor, which has not come
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn is_alive(&self, participant: ParticipantId) -> bool;
    /// Returns whether the rank's last process died, and no other one has taken its
    /// place.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// assert!(!endpoint.domain().has_died(world.rank()));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn has_died(&self, rank: u32) -> bool;
    /// Returns whether the rank's last process left or ended in good order, and no other
    /// one has taken its place.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// assert!(!endpoint.domain().has_left(world.rank())); // it is still here
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn has_left(&self, _rank: u32) -> bool {
        false
    }
    /// Returns the number of deaths that were noted so far.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// let before = endpoint.domain().deaths();
    /// endpoint.domain().check_deaths();
    /// assert_eq!(endpoint.domain().deaths(), before); // no table need be looked through
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn deaths(&self) -> u64;
    /// Asks for deaths that were not noted yet, and notes them.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// endpoint.domain().check_deaths(); // asks the kernel now, not in a while
    /// assert_eq!(endpoint.domain().deaths(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn check_deaths(&self);
    /// Returns whether the calling process is at its end, or is a forked child of the
    /// endpoint's process, and must not touch the domain's memory: its endpoints then stay as they
    /// are, like those of the dead.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// assert!(!endpoint.domain().has_ended()); // it is no forked child
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    fn has_ended(&self) -> bool {
        false
    }
    /// Returns whether a participant may be offered long transfers out of this process's
    /// memory.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// let me = endpoint.domain().me().expect("it has entered");
    /// assert!(!endpoint.domain().may_offer(me)); // its own memory is at hand
    /// # Ok::<(), towpath::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// assert!(endpoint.domain().is_local(0)); // a world of one host
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn is_local(&self, _endpoint: u16) -> bool {
        true
    }
    /// Tells this host's gateway, if there is one, that an endpoint was opened or closed.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// endpoint.domain().tell_gateway(); // does nothing in a world of one host
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn tell_gateway(&self) {}
    /// Returns the word on which a participant sleeps, if there is such a rank.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::domain::Membership;
    ///
    /// assert!(endpoint.domain().doorbell(0).is_some());
    /// assert!(endpoint.domain().doorbell(9).is_none()); // there is no such rank
    /// # Ok::<(), towpath::Error>(())
    /// ```
    fn doorbell(&self, rank: u32) -> Option<&<Self::Cpu as Processor>::Word>;
}
