//! Locks of a rank: a handle holds the lock's state, so that an idle lock that is cached
//! here is acquired without a message, a table or shared memory.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::Error;
use super::guard::Guard;
use super::hold::{HoldBudget, HoldClock};
use super::identity::Identity;
use super::progress::StateHandle;
use super::serve::{ManagerState, Sends};
use crate::data::LockData;
use crate::message::{Decision, LockRequest, Mode};
use crate::node::{LoanEntry, NodeLock, NodeState};
use crate::numbers::Node;
use crate::protocol::Protocol;
use crate::token::FencingToken;

/// Number of acquisitions without a message after which the manager polls.
const POLL_EVERY: u32 = 16;
/// Number of acquisitions under a loan after which the manager polls.
pub(crate) const POLL_EVERY_LENT: u32 = 64;

/// State of a lock at this node.
#[derive(Debug)]
pub(crate) struct LockCell {
    pub(crate) node: RefCell<NodeLock>,
    /// Decision that has come on the request that waits.
    pub(crate) decision: Cell<Option<Decision>>,
    pub(crate) home: Cell<Node>,
    pub(crate) hold: HoldClock,
    /// Request of this rank that waits for the seat of its own loan.
    pub(crate) request: Cell<Option<LockRequest>>,
    /// Number of handles.
    pub(crate) handles: Cell<usize>,
    pub(crate) identity: Identity,
    pub(crate) protocol: Protocol,
    name: Box<str>,
}

impl LockCell {
    #[expect(clippy::arc_with_non_send_sync, reason = "counted by two threads, used in turns")]
    pub(crate) fn new(name: &str, identity: Identity, protocol: Protocol, home: Node) -> Arc<LockCell> {
        let (node, decision, home) = (RefCell::default(), Cell::new(None), Cell::new(home));
        let (hold, request, handles) = (HoldClock::default(), Cell::new(None), Cell::new(0));
        Arc::new(LockCell {
            hold,
            request,
            handles,
            node,
            decision,
            home,
            identity,
            protocol,
            name: name.into(),
        })
    }

    #[inline]
    pub(crate) fn sends<'a>(&self, manager: &'a ManagerState) -> Sends<'a> {
        Sends { manager, lock: self.identity, protocol: self.protocol, home: self.home.get() }
    }
}

/// Lock of a [`Manager`](super::Manager): a handle.
///
/// While a process has a handle, an idle lock may stay with it (as the [`Protocol`] says), and is
/// acquired there in nanoseconds. With the last handle the lock goes home.
pub struct Lock {
    cell: Arc<LockCell>,
    manager: StateHandle,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Lock {
    /// Makes a handle, in a turn of the caller's.
    pub(crate) fn new(cell: Arc<LockCell>, manager: StateHandle) -> Lock {
        cell.handles.set(cell.handles.get() + 1);
        Lock { cell, manager }
    }

    /// Returns its name.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// assert_eq!(manager.lock("table").name(), "table");
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.cell.name
    }

    /// Returns the rank that is its home, as far as known here.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// assert_eq!(manager.lock("table").home(), 0);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn home(&self) -> u32 {
        let _turn = self.manager.turn();
        self.cell.home.get().into()
    }

    /// Acquires the lock. Serves as home of other locks while it waits.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyHeld`] if this process holds it; [`Error::UnknownRank`] and
    /// [`Error::NotDelivered`] if no lock can be had by this process.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let guard = lock.acquire()?;
    /// println!("held, with fencing token {}", guard.token());
    /// # drop(guard);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[inline]
    pub fn acquire(&self) -> Result<Guard<'_>, Error> {
        self.acquire_in(Mode::Exclusive)
    }

    /// Acquires the lock for reading, beside other readers. Readers and other holders are
    /// served in the order of their requests.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let reader = lock.acquire_shared()?;
    /// # drop(reader);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[inline]
    pub fn acquire_shared(&self) -> Result<Guard<'_>, Error> {
        self.acquire_in(Mode::Shared)
    }

    /// Acquires the lock if no other process has it or waits for it; `None` otherwise.
    ///
    /// At once if the lock is cached here. Otherwise its home answers, after asking the process
    /// that keeps the lock, if there is one: the answer comes when these poll. While the home looks
    /// for the lock of a process that has died, the answer comes when it has found it.
    ///
    /// `None` is also the answer while a request of this process that was withdrawn
    /// ([`Lock::acquire_timeout`]) still has its place in the queue.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// assert!(lock.try_acquire()?.is_some());
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[doc(alias = "try_lock")]
    pub fn try_acquire(&self) -> Result<Option<Guard<'_>>, Error> {
        self.acquire_within(Mode::Exclusive, true, None)
    }

    /// Acquires the lock for reading if no other process has it alone or waits for it.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// assert!(lock.try_acquire_shared()?.is_some());
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn try_acquire_shared(&self) -> Result<Option<Guard<'_>>, Error> {
        self.acquire_within(Mode::Shared, true, None)
    }

    /// Acquires the lock, waiting for at most `timeout`. Withdraws the request then:
    /// `None`. The process has to go on polling ([`Manager::poll`](super::Manager::poll)), to pass
    /// the lock by when its turn comes.
    ///
    /// Asked again before that, the process has the place in the queue that it had. So a wait that
    /// another thread or a signal handler may cancel asks for short times, and looks at a flag
    /// between them.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// static CANCELLED: AtomicBool = AtomicBool::new(false);
    ///
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// while !CANCELLED.load(Ordering::Relaxed) {
    ///     if let Some(guard) = lock.acquire_timeout(Duration::from_millis(10))? {
    ///         println!("held, with token {}", guard.token());
    ///         break;
    ///     }
    /// }
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[doc(alias = "cancel")]
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Option<Guard<'_>>, Error> {
        self.acquire_within(Mode::Exclusive, false, Instant::now().checked_add(timeout))
    }

    /// Acquires the lock for reading, waiting for at most `timeout`, as
    /// [`Lock::acquire_timeout`] does.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let reader = lock.acquire_shared_timeout(std::time::Duration::from_secs(1))?;
    /// assert!(reader.is_some());
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn acquire_shared_timeout(&self, timeout: Duration) -> Result<Option<Guard<'_>>, Error> {
        self.acquire_within(Mode::Shared, false, Instant::now().checked_add(timeout))
    }

    /// Returns whether the idle lock is cached here: the next acquisition needs no
    /// message.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::mplock::{Manager, Protocol};
    ///
    /// let manager = Manager::new(&world)?;
    /// let lock = manager.lock_with("table", Protocol::Distributed);
    /// drop(lock.acquire()?);
    /// assert!(lock.is_cached());
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn is_cached(&self) -> bool {
        let _turn = self.manager.turn();
        self.is_here()
    }

    #[inline]
    fn is_here(&self) -> bool {
        matches!(self.cell.node.borrow().state(), NodeState::Cached | NodeState::Kept)
    }

    #[inline]
    fn acquire_in(&self, mode: Mode) -> Result<Guard<'_>, Error> {
        loop {
            if let Some(guard) = self.acquire_within(mode, false, None)? {
                return Ok(guard);
            }
        }
    }

    #[inline]
    fn acquire_within(
        &self,
        mode: Mode,
        tries: bool,
        deadline: Option<Instant>,
    ) -> Result<Option<Guard<'_>>, Error> {
        if !tries && let Some(token) = self.borrow_at_once(mode) {
            return Ok(Some(Guard::of(self, token, mode, false)));
        }
        // The guard is made where it is used: it is larger than what comes back from there.
        Ok(match self.decide(mode, tries, deadline)? {
            Decision::Granted(grant) => Some(Guard::new(self, &grant)),
            Decision::Refused => None,
        })
    }

    /// Takes the lock if it is lent to this rank, and its seat is free.
    #[inline(never)]
    fn borrow_at_once(&self, mode: Mode) -> Option<FencingToken> {
        let manager = &*self.manager;
        if manager.turns.are_shared() {
            return None;
        }
        let mut node = self.cell.node.borrow_mut();
        manager.borrow_at_once(&mut node, mode).then(|| node.token())
    }

    /// Takes the lock or waits for it.
    #[inline(never)]
    fn decide(&self, mode: Mode, tries: bool, deadline: Option<Instant>) -> Result<Decision, Error> {
        if self.manager.turns.are_shared() {
            return self.decide_in_turn(mode, tries, deadline);
        }
        match self.begin(mode, tries)? {
            Some(decision) => Ok(decision),
            None => self.await_decision(deadline),
        }
    }

    /// Takes the lock or waits for it, in a turn of this thread.
    ///
    /// Apart, and without a guard in its result, so that the other case stays in registers.
    #[cold]
    #[inline(never)]
    fn decide_in_turn(&self, mode: Mode, tries: bool, deadline: Option<Instant>) -> Result<Decision, Error> {
        let _turn = self.manager.turn();
        match self.begin(mode, tries)? {
            Some(decision) => Ok(decision),
            None => self.await_decision(deadline),
        }
    }

    /// Takes the lock if it is here, and asks for it otherwise.
    #[inline(always)]
    fn begin(&self, mode: Mode, tries: bool) -> Result<Option<Decision>, Error> {
        let manager = &*self.manager;
        // Its line comes while the rest is done.
        let is_lent = manager.prefetch_seat(&self.cell.node.borrow());
        let acquired = manager.acquired.get().wrapping_add(1);
        manager.acquired.set(acquired);
        let every = if is_lent { POLL_EVERY_LENT } else { POLL_EVERY };
        let polls = acquired.is_multiple_of(every) || tries && !self.is_here();
        if polls {
            manager.serve();
        }
        let mut node = self.cell.node.borrow_mut();
        if node.offer().is_some() && manager.borrow(&mut node, mode) {
            return Ok(Some(Decision::Granted(node.grant(mode))));
        }
        let is_busy = node.lent().is_some()
            && manager.enter_lent(&self.cell, manager.seat_of(&node), &mut node) == LoanEntry::Busy;
        if matches!(node.state(), NodeState::Held(_) | NodeState::Waits(_)) {
            return Err(self.already_held());
        }
        if node.state() == NodeState::Absent {
            self.cell.hold.note_request(manager.endpoint.world());
        }
        let ticket = manager.next_ticket.get();
        let request = LockRequest { ticket, mode, tries };
        if is_busy {
            self.cell.request.set((!tries).then_some(request));
            manager.next_ticket.set(ticket.wrapping_add(1).max(1));
            return Ok(tries.then_some(Decision::Refused));
        }
        let decision = node.acquire(request, &mut self.cell.sends(manager));
        if decision.is_none() {
            manager.next_ticket.set(ticket.wrapping_add(1).max(1));
        }
        Ok(decision)
    }

    #[cold]
    fn already_held(&self) -> Error {
        Error::AlreadyHeld(self.cell.name.to_string())
    }

    /// Serves until the decision comes. Withdraws the request at `deadline`, which counts
    /// as a refusal.
    #[cold]
    fn await_decision(&self, deadline: Option<Instant>) -> Result<Decision, Error> {
        let manager = &*self.manager;
        let mut in_vain = 0;
        loop {
            let polled = manager.serve();
            if let Some(decision) = self.cell.decision.take() {
                return Ok(decision);
            }
            if let Some(decision) = manager.take_soon(&self.cell, &mut in_vain) {
                return Ok(decision);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let outcome = manager.check();
            if outcome.is_err() || left == Some(Duration::ZERO) {
                self.cell.request.set(None);
                self.cell.node.borrow_mut().cancel();
                return outcome.map(|()| Decision::Refused);
            }
            if polled == 0 {
                manager.rest(left);
            }
        }
    }

    /// Returns the data that came with the lock.
    #[cold]
    pub(crate) fn data(&self) -> Option<LockData> {
        let _turn = self.manager.turn();
        self.cell.node.borrow().data().cloned()
    }

    /// Replaces the lock's data.
    #[cold]
    pub(crate) fn publish(&self, bytes: &[u8]) {
        let Some(_turn) = self.manager.try_turn() else { return };
        self.cell.node.borrow_mut().publish(bytes);
    }

    /// Maximum number of bytes of a lock's data in this world.
    pub(crate) fn max_data(&self) -> usize {
        LockData::MAX.min(self.manager.endpoint.config().block_size as usize)
    }

    /// Releases the lock.
    #[inline]
    pub(crate) fn release(&self, consistent: bool) {
        if self.manager.turns.are_shared() {
            return self.release_in_turn(consistent);
        }
        self.release_alone(consistent);
    }

    /// Releases in a turn of this thread: apart, so that the other case is short.
    #[cold]
    #[inline(never)]
    fn release_in_turn(&self, consistent: bool) {
        if let Some(_turn) = self.manager.try_turn() {
            self.release_alone(consistent);
        }
    }

    /// Releases while no other thread uses the manager.
    #[inline(always)]
    fn release_alone(&self, consistent: bool) {
        let manager = &*self.manager;
        let mut node = self.cell.node.borrow_mut();
        if consistent && manager.leave_at_once(&self.cell, &mut node) {
            return;
        }
        if node.loan().is_some() && manager.leave_loan(&self.cell, &mut node, consistent) {
            return;
        }
        let hold = if node.is_wanted() { self.hold() } else { 0 };
        node.release(consistent, hold, &mut self.cell.sends(manager));
        let is_kept = hold > 0 && node.state() == NodeState::Kept;
        if is_kept && !self.cell.hold.listed.replace(true) {
            manager.kept.borrow_mut().push(self.cell.identity);
        }
        drop(node);
        if is_kept && self.cell.hold.take_lends() {
            manager.lend(&self.cell);
        }
        manager.work_if_local();
    }

    /// Returns for how many acquisitions this process keeps the lock that another one
    /// waits for.
    fn hold(&self) -> u32 {
        let manager = &*self.manager;
        let budget = manager.hold.get();
        if budget == HoldBudget::NONE {
            return 0;
        }
        self.cell.hold.budget(budget, manager.endpoint.world())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A forked child does not speak for its parent.
        if self.manager.is_forked() {
            return;
        }
        let _turn = self.manager.turn();
        self.cell.handles.set(self.cell.handles.get() - 1);
        self.manager.forget_unused(&self.cell);
        self.manager.work_if_local();
    }
}
