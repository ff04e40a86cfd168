//! Manager of the locks of a rank: one in each process of a world.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_am::Endpoint;
use towpath_shm::World;

use super::codec::LetterContent;
use super::error::Error;
use super::hold::HoldBudget;
use super::identity::Identity;
use super::lock::{Lock, LockCell};
use super::members::{Members, Names};
use super::progress::{ManagerTurns, Progress, StateHandle};
use super::serve::{Inbox, ManagerState};
use super::traffic::LockTraffic;
use crate::message::{Message, MessageBody};
use crate::node::NodeState;
use crate::numbers::Node;
use crate::protocol::Protocol;
use crate::token::FencingToken;

/// Longest wait at a barrier between two looks at it.
const BARRIER_LOOK: Duration = Duration::from_millis(1);
/// Longest time for which a manager that closes waits for space at the others.
const FAREWELL: Duration = Duration::from_millis(100);

/// Manager of the locks of a process: each rank of the world has one.
///
/// It is the home of some of the world's locks, so its process has to poll, for the others to go
/// on: [`Lock::acquire`], [`Manager::wait`] and [`Manager::barrier`] do so while they wait; a
/// process that computes calls [`Manager::poll`], or has a thread that serves
/// ([`Progress::Thread`]). Manager, locks and guards belong to one thread.
#[derive(Clone)]
pub struct Manager {
    state: StateHandle,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("rank", &self.state.me).finish_non_exhaustive()
    }
}

impl Manager {
    /// Makes a manager with an endpoint of its own, and waits until each rank has one.
    ///
    /// For worlds in which each rank has one endpoint; it may carry other messages, too
    /// ([`Manager::endpoint`]).
    ///
    /// # Errors
    ///
    /// [`Error::Message`] if the process has not entered the world, all its endpoints are taken, or
    /// a rank makes none within 30 seconds.
    ///
    /// ```no_run
    /// use towpath::{World, mplock::Manager};
    ///
    /// let world = World::join()?; // started by: towpath run -n 4 PROGRAM
    /// let manager = Manager::new(&world)?;
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn new(world: &World) -> Result<Manager, Error> {
        Manager::with_progress(world, Progress::Poll)
    }

    /// Makes a manager as [`Manager::new`], and says how it answers while its process
    /// computes.
    ///
    /// Ranks of one world may differ in it.
    ///
    /// # Errors
    ///
    /// As [`Manager::new`]; [`Error::NoThread`] if the system has none.
    ///
    /// ```no_run
    /// use towpath::World;
    /// use towpath::mplock::{Manager, Progress};
    ///
    /// let world = World::join()?; // started by: towpath run -n 4 PROGRAM
    /// let manager = Manager::with_progress(&world, Progress::Thread)?;
    /// // … compute, without a call of the manager: the other ranks go on.
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn with_progress(world: &World, progress: Progress) -> Result<Manager, Error> {
        Manager::on_with_progress(Endpoint::new(world)?, progress)
    }

    /// Makes a manager over an endpoint that has not polled yet.
    ///
    /// Entry r of its translation table leads to the endpoint of rank r's manager; if entries are
    /// not mapped, all are mapped as by [`Endpoint::map_world`]. The manager takes handlers 0 and
    /// 255. A program that wants handler 0 for its own messages may set it: the manager then
    /// notices a little later that a rank has left.
    ///
    /// # Errors
    ///
    /// As [`Manager::new`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::{Endpoint, mplock::Manager};
    ///
    /// let endpoint = Endpoint::with_private_segment(&world, 4096)?;
    /// let manager = Manager::on(endpoint)?;
    /// manager.endpoint()?.set_handler(1, |message| println!("{:?}", message.args()));
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn on(endpoint: Endpoint) -> Result<Manager, Error> {
        Manager::on_with_progress(endpoint, Progress::Poll)
    }

    /// Makes a manager as [`Manager::on`], and says how it answers while its process
    /// computes.
    ///
    /// Under [`Progress::Thread`] handlers that the program has set on the endpoint run on either
    /// thread, the endpoint leaves its bundle, and [`Manager::endpoint`] does not give it out.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_progress`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::Endpoint;
    /// use towpath::mplock::{Manager, Progress};
    ///
    /// let endpoint = Endpoint::new(&world)?;
    /// endpoint.set_handler(1, |message| println!("{:?}", message.args()));
    /// let manager = Manager::on_with_progress(endpoint, Progress::Thread)?;
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn on_with_progress(mut endpoint: Endpoint, progress: Progress) -> Result<Manager, Error> {
        if progress != Progress::Poll {
            // Out of its bundle, whose owner is one thread.
            endpoint = endpoint.into_parallel()?.into_sequential();
        }
        let (inbox, names) = (Arc::new(Inbox::default()), Names::default());
        inbox.listen(&endpoint, &names);
        let size = endpoint.world().size() as usize;
        if !(0..size).all(|rank| endpoint.mapping(rank).is_some()) {
            match endpoint.map_world() {
                // The others are mapped.
                Err(towpath_am::Error::World(towpath_shm::Error::MemberDied { .. })) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let members = Members::new(&endpoint, names);
        let turns = ManagerTurns::new(&endpoint, progress)?;
        Ok(Manager { state: StateHandle::start(ManagerState::new(endpoint, members, inbox, turns))? })
    }

    /// Returns how it answers while its process computes.
    ///
    /// [`Progress::Poll`] also if its progress thread has ended, by the panic of a handler of the
    /// program's.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::mplock::{Manager, Progress};
    ///
    /// assert_eq!(Manager::new(&world)?.progress(), Progress::Poll);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.state.turns.progress()
    }

    /// Returns its endpoint.
    ///
    /// # Errors
    ///
    /// [`Error::EndpointOfTwo`] if the manager was made with [`Progress::Thread`]: the endpoint
    /// belongs to two threads then. Set handlers before ([`Manager::on_with_progress`]), and send
    /// through an endpoint of your own.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// assert_eq!(manager.endpoint()?.world().rank(), 0);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn endpoint(&self) -> Result<&Endpoint, Error> {
        if self.state.turns.are_shared() { Err(Error::EndpointOfTwo) } else { Ok(&self.state.endpoint) }
    }

    /// Returns a handle of the lock of that name, under [`Protocol::Reactive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("any text");
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn lock(&self, name: &str) -> Lock {
        self.lock_with(name, Protocol::default())
    }

    /// Returns a handle of the lock of that name. Programs use a lock under one protocol;
    /// where they differ, each use follows the protocol of the node that asked first.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::mplock::{Manager, Protocol};
    ///
    /// let manager = Manager::new(&world)?;
    /// let lock = manager.lock_with("log", Protocol::Central);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn lock_with(&self, name: &str, protocol: Protocol) -> Lock {
        let identity = Identity::of(name);
        let _turn = self.state.turn();
        let mut locks = self.state.locks.borrow_mut();
        let new = || LockCell::new(name, identity, protocol, self.state.members.borrow().home(identity));
        let cell = locks.entry(identity).or_insert_with(new).clone();
        drop(locks);
        Lock::new(cell, self.state.clone())
    }

    /// Handles the messages that have come, as home and as node. Returns their number.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// for _ in 0..10 {
    ///     // … compute for a millisecond …
    ///     manager.poll();
    /// }
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn poll(&self) -> usize {
        let _turn = self.state.turn();
        self.state.serve()
    }

    /// Serves the other ranks for this time.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// manager.wait(std::time::Duration::from_millis(1));
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn wait(&self, time: Duration) {
        let (start, _turn) = (Instant::now(), self.state.turn());
        loop {
            let polled = self.state.serve();
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            if polled == 0 {
                self.state.rest(Some(left));
            }
        }
    }

    /// Waits until all ranks are at a barrier, and serves them meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Message`] if a rank has died since the last barrier, as at [`World::barrier`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// manager.barrier()?;
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn barrier(&self) -> Result<(), Error> {
        let _turn = self.state.turn();
        let _polls = self.state.endpoint.polls_at_barrier();
        let episode = self.state.endpoint.world().arrive()?;
        while !episode.is_over() {
            if self.state.serve() == 0 && !episode.is_over() {
                episode.announce_sleep();
                self.state.rest(Some(BARRIER_LOOK));
            }
            episode.look_around()?;
        }
        Ok(episode.outcome()?)
    }

    /// Sets how long this process keeps a lock that others wait for, where ranks share
    /// cores: 2 ms at first.
    ///
    /// A holder that comes back to the lock soon is spared a switch of processes for each
    /// acquisition. A waiter waits at most that long for each one before it, and then until that
    /// one next releases, acquires, polls or waits. [`HoldBudget::NONE`] has locks go on at once.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::mplock::{HoldBudget, Manager};
    ///
    /// let manager = Manager::new(&world)?;
    /// manager.set_hold_budget(HoldBudget::NONE);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn set_hold_budget(&self, budget: HoldBudget) {
        let _turn = self.state.turn();
        self.state.hold.set(budget);
    }

    /// Returns the number of messages that were sent to other ranks.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// drop(manager.lock("table").acquire()?);
    /// assert_eq!(manager.traffic().total(), 0, "no other rank is there");
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn traffic(&self) -> LockTraffic {
        let _turn = self.state.turn();
        self.state.traffic.get()
    }

    /// Returns the number of locks that are in use here, as a node and as a home.
    ///
    /// A lock with data is in use at its home. The state of at most 1,024 idle locks is kept at
    /// home beside them.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// for n in 0..1000 {
    ///     drop(manager.lock(&format!("file {n}")).acquire()?);
    /// }
    /// assert_eq!(manager.locks_in_use(), (0, 0));
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn locks_in_use(&self) -> (usize, usize) {
        let _turn = self.state.turn();
        (self.state.locks.borrow().len(), self.state.homes.borrow().in_use())
    }
}

impl ManagerState {
    /// Gives data away that only this rank has.
    ///
    /// Returns whether other ranks have taken them.
    fn hand_data_over(&self) -> bool {
        let mut sent: HashMap<Identity, FencingToken> = HashMap::new();
        let start = Instant::now();
        loop {
            let others: Vec<Node> = self.members.borrow().here().filter(|&rank| rank != self.me).collect();
            for (lock, protocol, data) in self.homes.borrow().data() {
                let Some(next) = lock.home(others.iter().copied()) else { return true };
                let version = data.version();
                if sent.insert(lock, version) == Some(version) {
                    continue;
                }
                self.deposits.borrow_mut().push((lock, version));
                let epoch = self.members.borrow().epoch();
                let message = Message { epoch, body: MessageBody::Deposit, data: Some(data) };
                self.send(next, LetterContent::Lock { lock, protocol, message });
            }
            let has_data = |cell: &Arc<LockCell>| cell.node.borrow().data().is_some();
            let is_done = self.deposits.borrow().is_empty() && !self.locks.borrow().values().any(has_data);
            if is_done || start.elapsed() > FAREWELL {
                return is_done;
            }
            if self.serve() == 0 {
                self.endpoint.wait(Some(BARRIER_LOOK));
            }
        }
    }

    /// Waits until borrowers have left the seats of this rank's loans, for a while.
    fn take_loans_back(&self) {
        let start = Instant::now();
        let is_lent = |cell: &&Arc<LockCell>| cell.node.borrow().lent().is_some();
        loop {
            let lent: Vec<Arc<LockCell>> = self.locks.borrow().values().filter(is_lent).cloned().collect();
            lent.iter().for_each(|cell| self.forget_unused(cell));
            if lent.iter().all(|cell| cell.node.borrow().lent().is_none()) || start.elapsed() > FAREWELL {
                return;
            }
            if self.serve() == 0 {
                self.endpoint.wait(Some(BARRIER_LOOK));
            }
        }
    }
}

impl Drop for ManagerState {
    /// Takes leave: no lock is lost with a manager that is closed in good order.
    fn drop(&mut self) {
        // A forked child does not speak for its parent.
        if self.is_forked() || self.endpoint.world().entered().is_none() {
            return;
        }
        self.work();
        self.take_loans_back();
        let has_given = self.hand_data_over();
        let has_lock = |cell: &Arc<LockCell>| {
            let node = cell.node.borrow();
            let is_here = matches!(node.state(), NodeState::Held(_) | NodeState::Cached | NodeState::Kept);
            is_here || node.has_warned()
        };
        let clean = has_given
            && !self.locks.borrow().values().any(has_lock)
            && !self.homes.borrow().locks.values().any(|entry| entry.lock.may_be_inconsistent());
        let others: Vec<Node> = self.members.borrow().here().filter(|&rank| rank != self.me).collect();
        for rank in others {
            self.send(rank, LetterContent::Farewell { clean: clean && !std::thread::panicking() });
        }
        let start = Instant::now();
        while !self.post.borrow().is_empty() && start.elapsed() < FAREWELL {
            self.endpoint.poll();
            self.post.borrow_mut().flush(&self.endpoint);
            self.endpoint.wait(Some(BARRIER_LOOK));
        }
    }
}
