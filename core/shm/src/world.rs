//! Worlds: making, opening, and the operations of their participants.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use towpath_sync::{Policy, Surroundings};

use crate::host_ranks::HostRanks;
use crate::inner::{Inner, WorldSpec, adopt, write_header};
use crate::layout::Geometry;
use crate::local::EnteredAs;
use crate::participant::{Ending, EntryState, EntryWord, ParticipantId};
use crate::segment::{Segment, open_again, path_of};
use crate::table::ParticipantTable;
use crate::{Error, environment, sweep};

/// A world of processes that share a segment; this is one process's handle. Clones are
/// the same handle.
///
/// Dropping the last clone leaves the world and unmaps the segment; if the world has a name and no
/// other process has it open, the name is removed too. Dropped while its thread unwinds from a
/// panic, it counts as a death: the others learn of it as of any other.
#[derive(Clone)]
pub struct World(pub(crate) Arc<Inner>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("World");
        out.field("name", &self.name()).field("size", &self.size()).field("entered", &self.entered()).finish()
    }
}

impl World {
    /// Makes a world. The caller is not a participant yet: see [`World::enter`].
    ///
    /// A world for endpoints is made with `towpath::create`, which lays out its area for messages.
    ///
    /// A dead world of the same name is removed first.
    ///
    /// # Errors
    ///
    /// A bad name, number or size; a name in use; too little memory, with what to do about it.
    ///
    /// ```
    /// use towpath::{World, WorldConfig};
    ///
    /// let world = World::create(&WorldConfig::new(4).spec(None))?; // with room for endpoints
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn create(spec: &WorldSpec) -> Result<World, Error> {
        World::create_as(spec, None)
    }

    /// Makes a world, or this host's part of one.
    pub(crate) fn create_as(spec: &WorldSpec, host: Option<HostRanks>) -> Result<World, Error> {
        let geometry = Geometry::of(spec.processes, spec.object_bytes, spec.area_bytes)?;
        let bytes = geometry.end();
        let Some(name) = &spec.name else {
            let segment = Segment::anonymous(bytes)?;
            write_header(&segment, spec, host, &geometry);
            return World::adopt(segment, None, None);
        };
        let path = path_of(name)?;
        sweep::remove_if_dead(&path)?;
        let segment = Segment::unnamed(bytes)?;
        write_header(&segment, spec, host, &geometry);
        while !segment.publish(&path)? {
            // Another process was faster. If its world is dead already, once more.
            sweep::remove_if_dead(&path)?;
        }
        World::adopt(segment, Some((name.clone(), path)), None)
    }

    /// Opens a named world of the same user.
    ///
    /// # Errors
    ///
    /// There is none of that name, it isn't to be trusted, it was made by another version, it is
    /// damaged.
    ///
    /// ```no_run
    /// let world = towpath::World::open("prices")?; // of a process that has made it
    /// world.enter(None)?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn open(name: &str) -> Result<World, Error> {
        Self::open_as(name, None)
    }

    /// A handle of a segment whose header is right.
    pub(crate) fn adopt(
        segment: Segment,
        name: Option<(String, PathBuf)>,
        suggested: Option<u32>,
    ) -> Result<World, Error> {
        Ok(World(Arc::new(adopt(segment, name, suggested)?)))
    }

    fn open_as(name: &str, suggested: Option<u32>) -> Result<World, Error> {
        let path = path_of(name)?;
        match Segment::open(&path)? {
            Some(segment) => World::adopt(segment, Some((name.to_owned(), path)), suggested),
            None => Err(Error::NoSuchWorld { name: name.to_owned(), path }),
        }
    }

    /// Opens the world for which `towpath run` (or a [`crate::Handover`]) started this
    /// process. [`World::enter`] without a rank then takes the rank that the launcher chose.
    ///
    /// # Errors
    ///
    /// [`Error::NotLaunched`]; [`Error::LauncherGone`]; [`Error::WorldReplaced`]; as
    /// [`World::open`].
    ///
    /// ```no_run
    /// let world = towpath::World::from_environment()?; // under towpath run
    /// world.enter(Some(0))?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn from_environment() -> Result<World, Error> {
        let place = environment::from_environment()?;
        let world = match &place.name {
            Some(name) => {
                let world = Self::open_as(name, Some(place.rank))?;
                if !place.allows(world.file()?) {
                    return Err(Error::WorldReplaced { name: name.clone() });
                }
                world
            }
            None => World::adopt(Segment::from_descriptor(place.receive()?)?, None, Some(place.rank))?,
        };
        if place.rank < world.size() {
            Ok(world)
        } else {
            Err(Error::NoSuchRank { rank: place.rank, size: world.size() })
        }
    }

    /// Opens and enters the world for which this process was started.
    ///
    /// # Errors
    ///
    /// As [`World::from_environment`] and [`World::enter`].
    ///
    /// ```no_run
    /// let world = towpath::World::join()?; // started by: towpath run -n 4 PROGRAM
    /// println!("rank {} of {}", world.rank(), world.size());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn join() -> Result<World, Error> {
        let world = Self::from_environment()?;
        world.enter(None)?;
        Ok(world)
    }

    /// Another handle to the same world, with which this process can enter it a second
    /// time, as another rank.
    ///
    /// # Errors
    ///
    /// The system's.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let second = world.reopen()?; // for another thread, as another rank
    /// second.enter(Some(1))?;
    /// assert_eq!((world.rank(), second.rank()), (0, 1));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn reopen(&self) -> Result<World, Error> {
        match &self.0.name {
            Some((name, _)) => Self::open(name),
            None => match self.0.segment.file() {
                Some(file) => {
                    let file = open_again(file).map_err(Error::io("opening a segment again"))?;
                    World::adopt(Segment::from_descriptor(file)?, None, None)
                }
                None => World::adopt(self.0.segment.again(), None, None),
            },
        }
    }

    /// Becomes a participant, as the given rank or else as the one that the launcher
    /// chose or else as the first free one.
    ///
    /// A child that was forked from a participant is none itself until it enters, with the same
    /// handle, as another rank.
    ///
    /// Sets the base of this process's processor numbers
    /// ([`towpath_machine::Native::set_process_base`]).
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyEntered`], [`Error::NoSuchRank`], [`Error::RankTaken`],
    /// [`Error::WorldFull`].
    ///
    /// ```
    /// let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// world.enter(Some(1))?;
    /// assert!(world.enter(Some(0)).is_err(), "once at a time");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn enter(&self, rank: Option<u32>) -> Result<(), Error> {
        self.0.enter(rank)
    }

    /// Stops being a participant. Does nothing if this process is none.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::ObjectsOpen`] if the process has mutexes or structures of the world
    /// open, and may hold them. The others would take a holder that has left for dead.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// world.leave()?;
    /// assert!(world.entered().is_none());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn leave(&self) -> Result<(), Error> {
        self.0.leave_unless_open()
    }

    /// This process's rank.
    ///
    /// # Panics
    ///
    /// If it has not entered.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.rank(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn rank(&self) -> u32 {
        self.me().index
    }

    /// The number of ranks, of all hosts together.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.size(), 2);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn size(&self) -> u32 {
        self.0.processes
    }

    /// The world's name, if it has one.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.name(), None, "it is anonymous");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_ref().map(|(name, _)| name.as_str())
    }

    /// Parameters that the creator wrote for the users of the area. Copied when the world
    /// was opened.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let config = towpath::WorldConfig::from_params(&world.params())?;
    /// assert_eq!(config.processes, 2);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn params(&self) -> [u64; 16] {
        self.0.params
    }

    /// This process's identity.
    ///
    /// # Panics
    ///
    /// If it has not entered.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(world.is_alive(world.me()));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn me(&self) -> ParticipantId {
        self.entered().expect("this process has not entered the world: call World::enter first (after a fork, in the child too)")
    }

    /// This process's identity, if it has entered.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.entered(), Some(world.me()));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn entered(&self) -> Option<ParticipantId> {
        // Relaxed: written by this process's own call of `enter`.
        match self.0.local.me.load(Ordering::Relaxed) {
            0 => None,
            bits => Some(ParticipantId::from_bits(bits)),
        }
    }

    /// This process as the participant that it is now.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let now = world.entered_as();
    /// assert_eq!((now.participant(), now.still().is_some()), (world.entered(), true));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn entered_as(&self) -> EnteredAs<'_> {
        EnteredAs::new(&self.0.local, self.0.identity())
    }

    /// The participant with that rank, unless its death has been noted.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.participant(0), Some(world.me()));
    /// assert_eq!(world.participant(1), None, "it has not come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn participant(&self, index: u32) -> Option<ParticipantId> {
        if index >= self.0.processes {
            return None;
        }
        let word = self.0.entry_word(index);
        (word.state == EntryState::Entered).then_some(ParticipantId { index, generation: word.generation })
    }

    /// The pid of a participant, as it itself sees it; `None` if it is gone. For
    /// messages.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.pid_of(world.me()), Some(std::process::id()));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn pid_of(&self, id: ParticipantId) -> Option<u32> {
        if id.index >= self.0.processes {
            return None;
        }
        // Relaxed: pid and generation are in one word.
        let word = EntryWord::unpack(self.0.entry(id.index).word.load(Ordering::Relaxed));
        (word.state == EntryState::Entered && word.generation == id.generation).then_some(word.pid)
    }

    /// Returns whether a participant is alive and has not left. Asks the operating system
    /// (under a microsecond, mostly); a zombie is dead. A death found is noted for all.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let other = world.reopen()?;
    /// other.enter(Some(1))?;
    /// let id = other.me();
    /// assert!(world.is_alive(id));
    /// other.leave()?;
    /// assert!(!world.is_alive(id));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn is_alive(&self, id: ParticipantId) -> bool {
        self.0.is_alive(id)
    }

    /// Returns whether the last process of a rank died, and no other one has taken its
    /// place since. Only deaths that have been noted ([`World::check_deaths`]).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(!world.has_died(1), "it has not come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn has_died(&self, rank: u32) -> bool {
        rank < self.0.processes
            && matches!(self.0.entry_word(rank).state, EntryState::Dying | EntryState::Dead)
    }

    /// Returns whether the last process of a rank left or ended in good order, and no
    /// other one has taken its place since: no rank waits for it. Also of one that has ended
    /// without ever having entered ([`World::process_ended`]).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(!world.has_left(1), "it has not come");
    /// let other = world.reopen()?;
    /// other.enter(Some(1))?;
    /// other.leave()?;
    /// assert!(world.has_left(1));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn has_left(&self, rank: u32) -> bool {
        rank < self.0.processes && {
            let word = self.0.entry_word(rank);
            word.state == EntryState::Free && word.generation != 0
        }
    }

    /// Number of deaths that were noted so far in this world. One load of a line that is
    /// otherwise not written.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.deaths(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn deaths(&self) -> u64 {
        self.0.noted_deaths().count()
    }

    /// Asks after the others and notes the dead; returns [`World::deaths`].
    ///
    /// In a world of more than 64 ranks the participants share this work: together they ask after
    /// 32 ranks in a millisecond, so each death is found within n ÷ 32 milliseconds in which
    /// participants call this. [`World::is_alive`] asks at once.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// world.check_deaths(); // asks the kernel
    /// assert_eq!(world.deaths(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn check_deaths(&self) -> u64 {
        self.0.check_deaths()
    }

    /// Reports, for launchers, that the process that was started for a rank has ended,
    /// and has or hasn't failed. If it was a participant, or has failed (also before it had entered
    /// or after it had left), that is a death, of which all participants learn now.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::Ending;
    ///
    /// // A launcher tells of a rank that ended before it entered.
    /// assert_eq!(world.process_ended(1, 4_000_001, true), Ending::NeverCame);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn process_ended(&self, rank: u32, pid: u32, failed: bool) -> Ending {
        self.0.process_ended(rank, pid, failed)
    }

    /// The word of a rank on a line of its own, to park on; the room above defines its
    /// use.
    ///
    /// When a death is noted and when a participant leaves, sleepers on it are woken,
    /// without a change of its value. All ranks of other hosts have one word together, their
    /// gateway's.
    ///
    /// # Panics
    ///
    /// If there is no such rank.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::sync::atomic::Ordering::Acquire;
    ///
    /// let value = world.doorbell(0).load(Acquire); // changes when a sender wakes rank 0
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn doorbell(&self, index: u32) -> &AtomicU64 {
        assert!(index < self.0.processes, "no rank {index} in a world of {}", self.0.processes);
        &self.0.segment.doorbells()[self.0.doorbell_of(index)].0
    }

    /// The world as a waiter sees it: whether more participants run than there are cores
    /// for them together.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// println!("more ranks than cores: {}", world.surroundings().oversubscribed());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn surroundings(&self) -> &dyn Surroundings {
        &*self.0
    }

    /// Returns whether there are more ranks here than cores for them, those that sleep
    /// included.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// println!("a core for each rank: {}", !world.shares_cores());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[must_use]
    pub fn shares_cores(&self) -> bool {
        self.0.shares_cores()
    }

    /// Time for which a member should spin before it sleeps, in nanoseconds: the cost of
    /// a context switch, as the world's creator measured it.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// println!("a context switch takes about {} ns", world.switch_cost());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn switch_cost(&self) -> u64 {
        self.0.switch_cost()
    }

    /// Tells the world that the set of processors on which this process may run has
    /// changed (it was pinned).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// // after sched_setaffinity
    /// world.note_affinity();
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn note_affinity(&self) {
        if let Some(me) = self.entered() {
            self.0.note_processors(me);
        }
    }

    /// Waits until all ranks are here. Ranks that have left, or whose death all have
    /// noticed, are not waited for; ranks that have not come yet are.
    ///
    /// # Errors
    ///
    /// [`Error::MemberDied`] if a member has died since the last time: all that are here get the
    /// same error, and the next barrier is among the survivors. [`Error::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let other = world.reopen()?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         other.enter(Some(1))?;
    ///         other.barrier(Default::default())
    ///     });
    ///     world.barrier(Default::default())
    /// })?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn barrier(&self, policy: Policy) -> Result<(), Error> {
        self.0.barrier(policy)
    }

    /// Removes the world's name now: it can't be opened any more, participants go on.
    ///
    /// # Errors
    ///
    /// The system's.
    ///
    /// ```no_run
    /// let world = towpath::World::open("prices")?;
    /// world.unlink()?; // no other process finds it any more
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn unlink(&self) -> Result<(), Error> {
        match &self.0.name {
            Some((_, path)) => self.0.segment.unlink(path),
            None => Ok(()),
        }
    }

    /// Size of the segment in bytes: the area, and the needs of the world itself.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(world.segment_bytes() > world.area().len());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn segment_bytes(&self) -> u64 {
        self.0.segment.len()
    }

    /// Its file.
    pub(crate) fn file(&self) -> Result<BorrowedFd<'_>, Error> {
        self.0.segment.file().ok_or(Error::NotAFile)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }
}
